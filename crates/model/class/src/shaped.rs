//! Reads `ShapedDevices.csv` of LibreQoS, with circuits as classes.
//!
//! The addresses of the devices of a circuit are its prefixes. If the devices of a circuit have different
//! rates, each is a child class of the circuit. MAC addresses become attributes and not criteria,
//! because LibreQoS uses addresses and the router rarely receives the MAC address of a subscriber.
//! Columns are found by name, and unknown columns are ignored. The columns of service levels are those
//! of Fairpath's own files, which LibreQoS ignores.

use std::collections::{HashMap, HashSet};

use crate::draft::{Draft, DraftRates, Drafts};
use crate::key::Key;
use crate::problem::{ProblemKind, Problems};
use crate::source::{At, Place};
use crate::sqm::RefusedQueues;
use crate::table::{Cell, Rows, ShortRows};
use crate::value;

/// Indices of the columns.
#[derive(Default)]
struct Columns {
    circuit_id: Option<usize>,
    circuit_name: Option<usize>,
    device_id: Option<usize>,
    device_name: Option<usize>,
    parent: Option<usize>,
    mac: Option<usize>,
    ipv4: Option<usize>,
    ipv6: Option<usize>,
    down_min: Option<usize>,
    up_min: Option<usize>,
    down_max: Option<usize>,
    up_max: Option<usize>,
    comment: Option<usize>,
    sqm: Option<usize>,
    rtt_p95: Option<usize>,
    loss: Option<usize>,
}

impl Columns {
    /// Cells that a row must have, so that no address and no rate is missing or shifted.
    fn needed(&self) -> usize {
        let columns = [
            self.circuit_id,
            self.ipv4,
            self.ipv6,
            self.down_min,
            self.up_min,
            self.down_max,
            self.up_max,
        ];
        columns.into_iter().flatten().max().map_or(0, |at| at + 1)
    }
}

struct Device {
    id: String,
    name: String,
    /// Named after the whole circuit was read.
    draft: Draft,
}

struct Circuit {
    id: String,
    name: String,
    place: Place,
    parent: Option<At<String>>,
    devices: Vec<Device>,
}

/// True if a header is that of ShapedDevices.csv.
pub(crate) fn is_header(cells: &[String]) -> bool {
    cells.iter().any(|cell| column_name(cell) == "circuit id")
}

/// `Download Min Mbps` and `download_min` are the same column.
fn column_name(text: &str) -> String {
    let name = text.to_ascii_lowercase().replace('_', " ");
    name.strip_suffix(" mbps").unwrap_or(&name).to_owned()
}

impl Drafts {
    /// Reads the circuits of a `ShapedDevices.csv` as classes, and the nodes of its `network.json` if
    /// there is one. Each is a file name and its content. O(bytes).
    ///
    /// Without network.json, parent nodes become classes without rates.
    pub fn read_shaped_devices(&mut self, csv: (&str, &str), network: Option<(&str, &str)>) {
        if let Some((file, text)) = network {
            self.read_network(file, text);
        }
        let (file, text) = csv;
        let start = self.sources.add(file, text);
        let mut rows = Rows::new(text, start);
        let missing = "no header: ShapedDevices.csv begins with Circuit ID,Circuit Name";
        if !rows.advance_to_header(missing, &mut self.problems) {
            return;
        }
        let columns = columns(&rows, &mut self.problems);
        let width = rows.len();
        let mut circuits: Vec<Circuit> = Vec::new();
        let mut by_id: HashMap<String, usize> = HashMap::new();
        let mut queues = RefusedQueues::default();
        let mut short = ShortRows::default();
        while rows.advance(&mut self.problems) {
            if rows.len() > width {
                let text = format!(
                    "{} cells, but the header has {width}: put quotes around a cell with commas",
                    rows.len()
                );
                self.problems
                    .warning(ProblemKind::Syntax, rows.place(), "", text);
            }
            if rows.len() < columns.needed() {
                short.note(&rows);
                continue;
            }
            let row = ShapedRow {
                rows: &rows,
                columns: &columns,
            };
            let id = row.text(columns.circuit_id);
            if id.text.is_empty() {
                let text = "row without Circuit ID: it belongs to no circuit".to_owned();
                self.problems.error(ProblemKind::Value, id.place, "", text);
                continue;
            }
            let next = circuits.len();
            let at = *by_id.entry(id.text.to_owned()).or_insert(next);
            if at == next {
                circuits.push(row.circuit());
            }
            row.join(&mut circuits[at], &mut self.problems);
            queues.read(row.text(columns.sqm));
        }
        queues.report(&mut self.problems);
        short.report(width, &mut self.problems);
        self.take_circuits(circuits);
    }

    fn take_circuits(&mut self, mut circuits: Vec<Circuit>) {
        let parents = circuits.iter().filter_map(|circuit| circuit.parent.clone());
        let nodes: HashMap<String, Place> =
            parents.map(|parent| (parent.value, parent.place)).collect();
        let mut names: HashMap<&str, u32> = nodes.keys().map(|node| (node.as_str(), 1)).collect();
        for circuit in &circuits {
            *names.entry(&circuit.name).or_default() += 1;
        }
        let ambiguous: HashSet<String> = names
            .into_iter()
            .filter(|(_, count)| *count > 1)
            .map(|(name, _)| name.to_owned())
            .collect();
        for circuit in &mut circuits {
            if circuit.name.is_empty() {
                circuit.name = circuit.id.clone();
            } else if ambiguous.contains(&circuit.name) {
                circuit.name = format!("{} ({})", circuit.name, circuit.id);
            }
        }
        let mut seen = HashSet::new();
        let parents = circuits
            .iter()
            .filter_map(|circuit| circuit.parent.as_ref());
        self.nodes.extend(
            parents
                .filter(|parent| seen.insert(parent.value.clone()))
                .cloned(),
        );
        for circuit in circuits {
            self.take_circuit(circuit);
        }
    }

    fn take_circuit(&mut self, circuit: Circuit) {
        let rates = |draft: &Draft| [&draft.up, &draft.down].map(bps);
        let same = |pair: &[Device]| rates(&pair[0].draft) == rates(&pair[1].draft);
        let one_plan = circuit.devices.windows(2).all(same);
        let mut whole = Draft {
            place: circuit.place,
            parent: circuit.parent,
            ..Draft::default()
        };
        whole.set(Key::Name, &circuit.name, circuit.place, &mut self.problems);
        whole.attribute("circuit_id", &circuit.id);
        if one_plan {
            for device in circuit.devices {
                whole.promise(&device.draft);
                (whole.up, whole.down) = (device.draft.up, device.draft.down);
                whole.criteria.extend(device.draft.criteria);
                for (name, value) in device.draft.attributes {
                    whole.attribute(&name, &value);
                }
            }
            self.push(whole);
            return;
        }
        for device in &circuit.devices {
            raise(&mut whole.up.ceil_bps, &device.draft.up.ceil_bps);
            raise(&mut whole.down.ceil_bps, &device.draft.down.ceil_bps);
        }
        let above = At::new(whole.name.clone(), circuit.place);
        self.push(whole);
        let names = circuit.devices.iter().map(|device| device.name.clone());
        let different = names.collect::<HashSet<_>>().len() == circuit.devices.len();
        for device in circuit.devices {
            let name = if different {
                device.name
            } else {
                format!("{} ({})", device.name, device.id)
            };
            let mut draft = device.draft;
            let place = draft.place;
            draft.parent = Some(above.clone());
            draft.set(
                Key::Name,
                &format!("{} / {name}", above.value),
                place,
                &mut self.problems,
            );
            self.push(draft);
        }
    }
}

fn bps(rates: &DraftRates) -> [Option<u64>; 2] {
    [&rates.floor_bps, &rates.ceil_bps].map(|rate| rate.as_ref().map(|rate| rate.value))
}

fn raise(ceiling: &mut Option<At<u64>>, other: &Option<At<u64>>) {
    let value = |rate: &Option<At<u64>>| rate.as_ref().map(|rate| rate.value);
    if value(other) > value(ceiling) {
        *ceiling = other.clone();
    }
}

fn columns(rows: &Rows<'_>, problems: &mut Problems) -> Columns {
    let mut columns = Columns::default();
    for (at, cell) in rows.cells().enumerate() {
        let column = match column_name(cell.text).as_str() {
            "circuit id" => &mut columns.circuit_id,
            "circuit name" => &mut columns.circuit_name,
            "device id" => &mut columns.device_id,
            "device name" => &mut columns.device_name,
            "parent node" => &mut columns.parent,
            "mac" => &mut columns.mac,
            "ipv4" => &mut columns.ipv4,
            "ipv6" => &mut columns.ipv6,
            "download min" => &mut columns.down_min,
            "upload min" => &mut columns.up_min,
            "download max" => &mut columns.down_max,
            "upload max" => &mut columns.up_max,
            "comment" => &mut columns.comment,
            "sqm" => &mut columns.sqm,
            "rtt p95" => &mut columns.rtt_p95,
            "loss" => &mut columns.loss,
            _ => continue,
        };
        *column = Some(at);
    }
    let mut missing = |column: Option<usize>, name: &str| {
        if column.is_none() {
            let text = format!("no column \"{name}\": check that this is a ShapedDevices.csv");
            problems.error(ProblemKind::Key, rows.place(), "", text);
        }
    };
    missing(columns.circuit_id, "Circuit ID");
    missing(columns.ipv4.or(columns.ipv6), "IPv4");
    columns
}

struct ShapedRow<'r> {
    rows: &'r Rows<'r>,
    columns: &'r Columns,
}

impl ShapedRow<'_> {
    fn text(&self, column: Option<usize>) -> Cell<'_> {
        match column {
            Some(column) => self.rows.cell(column),
            None => Cell {
                text: "",
                place: self.rows.place(),
            },
        }
    }

    fn parent(&self) -> Option<Cell<'_>> {
        let parent = self.text(self.columns.parent);
        // LibreQoS writes "none" for an empty cell.
        let flat = parent.text.is_empty() || parent.text.eq_ignore_ascii_case("none");
        (!flat).then_some(parent)
    }

    fn circuit(&self) -> Circuit {
        let id = self.text(self.columns.circuit_id);
        let name = self.text(self.columns.circuit_name);
        let place = if name.text.is_empty() {
            id.place
        } else {
            name.place
        };
        let parent = self.parent();
        Circuit {
            id: id.text.to_owned(),
            name: name.text.to_owned(),
            place,
            parent: parent.map(|parent| At::new(parent.text.to_owned(), parent.place)),
            devices: Vec::with_capacity(1),
        }
    }

    /// Adds the device of this row to its circuit.
    fn join(&self, circuit: &mut Circuit, problems: &mut Problems) {
        let columns = self.columns;
        let first = circuit.parent.as_ref().map(|parent| parent.value.as_str());
        if self.parent().map(|parent| parent.text) != first {
            let place = self.text(columns.parent).place;
            let text = format!(
                "circuit \"{}\": devices have different parent nodes: the first one is used",
                circuit.id
            );
            problems.warning(ProblemKind::Value, place, &circuit.name, text);
        }
        let mut draft = Draft {
            place: self.rows.place(),
            name: circuit.name.clone(),
            ..Draft::default()
        };
        for cell in [self.text(columns.ipv4), self.text(columns.ipv6)] {
            for address in cell.values() {
                draft.set(Key::Prefix, address.text, address.place, problems);
            }
        }
        draft.down = self.rates(columns.down_min, columns.down_max, &circuit.id, problems);
        draft.up = self.rates(columns.up_min, columns.up_max, &circuit.id, problems);
        for (key, column) in [(Key::RttP95, columns.rtt_p95), (Key::Loss, columns.loss)] {
            let cell = self.text(column);
            if !cell.text.is_empty() {
                draft.set(key, cell.text, cell.place, problems);
            }
        }
        draft.attribute("mac", self.text(columns.mac).text);
        draft.attribute("comment", self.text(columns.comment).text);
        let id = self.text(columns.device_id).text.to_owned();
        let name = self.text(columns.device_name).text;
        circuit.devices.push(Device {
            name: if name.is_empty() {
                id.clone()
            } else {
                name.to_owned()
            },
            id,
            draft,
        });
    }

    fn rates(
        &self,
        floor: Option<usize>,
        ceil: Option<usize>,
        circuit: &str,
        problems: &mut Problems,
    ) -> DraftRates {
        let mut rate = |column| {
            let cell = self.text(column);
            match value::mbps(cell.text) {
                _ if cell.text.is_empty() => None,
                Ok(bps) => Some(At::new(bps, cell.place)),
                Err(wrong) => {
                    let text = format!("circuit \"{circuit}\": rate: {wrong}");
                    problems.error(ProblemKind::Value, cell.place, "", text);
                    None
                }
            }
        };
        DraftRates {
            floor_bps: rate(floor),
            ceil_bps: rate(ceil),
        }
    }
}
