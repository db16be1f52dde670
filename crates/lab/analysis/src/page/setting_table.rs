//! Tables with one or more rows per setting: one column for each axis that distinguishes settings, and no
//! column without values.

use fairpath_report::{Cell as TableCell, Column, Table, TableRow};

use crate::grid::{Grid, Setting};

/// A table whose first columns are the axes.
pub struct SettingTable<'g, 'a> {
    grid: &'g Grid<'a>,
    table: Table,
}

impl<'g, 'a> SettingTable<'g, 'a> {
    /// An empty one with these columns after the axes.
    pub fn new(grid: &'g Grid<'a>, id: &str, title: &str, columns: Vec<Column>) -> Self {
        let axes = grid
            .reporting_axes()
            .into_iter()
            .map(|axis| Column::text(axis.title()));
        SettingTable {
            grid,
            table: Table::new(id, title, axes.chain(columns).collect()),
        }
    }

    /// Adds a row.
    pub fn push(&mut self, setting: &Setting, cells: Vec<TableCell>, marked: bool) {
        let axes = self.grid.reporting_axes().into_iter().map(|axis| {
            let value = setting.get(&axis.name).map_or("", String::as_str);
            TableCell::from(self.grid.shown(&axis.name, value))
        });
        self.table.rows.push(TableRow {
            cells: axes.chain(cells).collect(),
            marked,
        });
    }

    /// The table without columns that are empty in every row; none without rows.
    pub fn finish(mut self, caption: &str, command: Option<String>) -> Option<Table> {
        if self.table.rows.is_empty() {
            return None;
        }
        let rows = &self.table.rows;
        let reported = |i: usize| {
            rows.iter()
                .any(|row| row.cells.get(i) != Some(&TableCell::Missing))
        };
        let reported: Vec<bool> = (0..self.table.columns.len()).map(reported).collect();
        keep(&mut self.table.columns, &reported);
        for row in &mut self.table.rows {
            keep(&mut row.cells, &reported);
        }
        self.table.caption = caption.to_owned();
        self.table.command = command;
        Some(self.table)
    }
}

fn keep<T>(items: &mut Vec<T>, reported: &[bool]) {
    let mut index = 0;
    items.retain(|_| {
        index += 1;
        reported[index - 1]
    });
}
