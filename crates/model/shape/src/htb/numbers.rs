//! A number for each node, the same each time.
//!
//! Where a node's first number is taken, or runs with another parent or as another kind, the next one
//! that is free is its number. So a node's number may depend on others that came before it, but what
//! is there is never asked to move.

use std::ops::Range;

use fairpath_sched::tree::Tree;

use super::{DEFAULT_MINOR, Node};

/// Minors by node; the default leaf's is fixed.
pub(super) fn numbers(
    tree: &Tree,
    nodes: &[Node],
    (default, majors): (usize, Range<u16>),
    running: impl Fn(u16) -> Option<(u16, bool)>,
) -> Vec<u16> {
    let mut taken = vec![false; usize::from(u16::MAX) + 1];
    for reserved in majors.chain([0, DEFAULT_MINOR, u16::MAX]) {
        taken[usize::from(reserved)] = true;
    }
    let mut minors: Vec<u16> = Vec::with_capacity(nodes.len());
    for (at, node) in nodes.iter().enumerate() {
        let parent = node.parent.map_or(0, |parent| minors[parent]);
        if at == default {
            minors.push(DEFAULT_MINOR);
            continue;
        }
        let first = first(tree.names.node(node.id), parent, node.leaf);
        let fits = |minor: &u16| {
            let free = !taken[usize::from(*minor)];
            free && running(*minor).is_none_or(|there| there == (parent, node.leaf))
        };
        let all = (0..=u16::MAX).map(|step| first.wrapping_add(step));
        // Where everything else runs as something else, it cannot stay: the kernel will say so.
        let free = |minor: &u16| !taken[usize::from(*minor)];
        let minor = all.clone().find(fits).or_else(|| all.clone().find(free));
        let minor = minor.expect("there are fewer nodes than numbers");
        taken[usize::from(minor)] = true;
        minors.push(minor);
    }
    minors
}

/// FNV-1a over name, parent and kind, folded.
fn first(name: &str, parent: u16, leaf: bool) -> u16 {
    let fold = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    let rest = parent.to_be_bytes().into_iter().chain([u8::from(leaf)]);
    let hash = name.bytes().chain(rest).fold(0x811c_9dc5, fold);
    (hash ^ hash >> 16) as u16
}
