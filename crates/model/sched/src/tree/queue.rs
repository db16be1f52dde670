//! The queue of a node, with the names of TOML and the numbers of `bpf/core/pifo/pifo.h`.

/// Kinds of queues by name and number.
pub(super) const KINDS: [(&str, u32); 6] = [
    ("heap", HEAP),
    ("bands", BANDS),
    ("cffs", CFFS),
    ("gradient", GRADIENT),
    ("sp-pifo", SP_PIFO),
    ("aifo", AIFO),
];

pub(super) const HEAP: u32 = 1;
pub(super) const BANDS: u32 = 2;
const CFFS: u32 = 3;
const GRADIENT: u32 = 4;
const SP_PIFO: u32 = 5;
const AIFO: u32 = 6;

/// The handling of ranks outside of the window.
pub(super) const OUTSIDE: [(&str, u32); 3] = [("clamp", 0), ("drop", 1), ("error", 2)];

/// The packet that a full queue drops.
pub(super) const FULL: [(&str, u32); 2] = [("tail", 0), ("push-out", PUSH_OUT)];
pub(super) const PUSH_OUT: u32 = 1;

/// The maximum number of buckets of a kind (`FP_MAX_*`), or 0 for a kind without buckets.
pub(super) fn max_buckets(kind: u32) -> u64 {
    match kind {
        BANDS | SP_PIFO => 64,
        CFFS => 1 << 20,
        GRADIENT => 523,
        AIFO => 1024,
        _ => 0,
    }
}

/// The name of a kind, or "?" for an unknown number.
pub(super) fn kind_name(number: u32) -> &'static str {
    let found = KINDS.iter().find(|(_, kind)| *kind == number);
    found.map_or("?", |(name, _)| name)
}

/// True if the queue admits everything up to a share of its capacity.
pub(super) fn has_headroom(kind: u32) -> bool {
    kind == AIFO
}

/// True if the queue has places for a range of ranks only.
pub(super) fn has_window(kind: u32) -> bool {
    is_fixed(kind) || matches!(kind, CFFS | GRADIENT)
}

/// True if this range never moves.
pub(super) fn is_fixed(kind: u32) -> bool {
    kind == BANDS
}

/// True if the queue is in exact order for all ranks.
pub(super) fn is_exact(kind: u32) -> bool {
    kind == HEAP
}
