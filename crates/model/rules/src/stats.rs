//! Numbers about a set of rules.

use crate::tree::{ChainId, Ruleset, Table, Target};

/// Numbers of a table.
#[derive(Debug, Clone, PartialEq)]
pub struct TableStats {
    /// Name.
    pub name: String,
    /// Rules.
    pub rules: usize,
    /// Chains.
    pub chains: usize,
    /// Rules of a chain: minimum, quartiles, maximum.
    pub density: [usize; 5],
    /// Most rules that one packet can be compared with, by base chain. None is 2^64 or more.
    pub longest_span: Vec<(String, Option<u64>)>,
    /// Most nested jumps.
    pub depth: usize,
}

/// The numbers of each table.
pub fn stats(ruleset: &Ruleset) -> Vec<TableStats> {
    ruleset.tables.iter().map(table_stats).collect()
}

fn table_stats(table: &Table) -> TableStats {
    let mut sizes: Vec<usize> = table.chains().map(|(_, chain)| chain.rules.len()).collect();
    sizes.sort_unstable();
    let quartile = |part: usize| match sizes.len() {
        0 => 0,
        count => sizes[(count - 1) * part / 4],
    };
    let mut spans = Spans {
        table,
        of: vec![None; table.bound() as usize],
    };
    let mut depth = 0;
    let longest_span = table
        .chains()
        .filter(|(_, chain)| chain.hook.is_some())
        .map(|(id, chain)| {
            let (span, nested) = spans.span(id);
            depth = depth.max(nested);
            (chain.name().into_owned(), span)
        })
        .collect();
    TableStats {
        name: table.name.to_string(),
        rules: table.rules(),
        chains: sizes.len(),
        density: [0, 1, 2, 3, 4].map(quartile),
        longest_span,
        depth,
    }
}

/// The span of each chain: its rules and those of the chains that it leads to, if no rule decides.
struct Spans<'a> {
    table: &'a Table,
    of: Vec<Option<Span>>,
}

/// Rules, none for 2^64 or more, and nested jumps.
type Span = (Option<u64>, usize);

impl Spans<'_> {
    /// Without recursion, because chains may be nested as deep as there are chains. A loop counts
    /// once.
    fn span(&mut self, root: ChainId) -> Span {
        let mut open = vec![(root, 0usize)];
        let mut sums: Vec<Span> = vec![(Some(0), 0)];
        let mut active = std::collections::HashSet::from([root]);
        while let Some((id, at)) = open.last_mut() {
            let rules = &self.table.get(*id).rules;
            let Some(rule) = rules.get(*at) else {
                let id = *id;
                open.pop();
                active.remove(&id);
                let sum = sums.pop().expect("one sum for each open chain");
                self.of[id.0 as usize] = Some(sum);
                add(&mut sums, sum);
                continue;
            };
            *at += 1;
            if let Some((span, _)) = sums.last_mut() {
                *span = span.and_then(|span| span.checked_add(1));
            }
            let (Target::Jump(to) | Target::Goto(to)) = rule.target else {
                continue;
            };
            match self.of[to.0 as usize] {
                Some(sum) => add(&mut sums, sum),
                None if active.insert(to) => {
                    open.push((to, 0));
                    sums.push((Some(0), 0));
                }
                None => {}
            }
        }
        self.of[root.0 as usize].expect("the loop ends with the root")
    }
}

/// Adds the span of a chain to that of its caller.
fn add(sums: &mut [Span], (span, depth): Span) {
    if let Some((sum, deepest)) = sums.last_mut() {
        *sum = sum.zip(span).and_then(|(sum, span)| sum.checked_add(span));
        *deepest = (*deepest).max(depth + 1);
    }
}
