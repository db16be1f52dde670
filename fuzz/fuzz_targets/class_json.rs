//! Classes from LibreQoS's network.json: read, checked, compiled.

#![no_main]

use fairpath_class::{ClassSet, Drafts, Slots, Space, Uplinks};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let mut drafts = Drafts::new();
    drafts.read_file("input.json", input);
    let outcome = ClassSet::build(drafts, Uplinks::Given);
    assert_eq!(outcome.set.is_some(), outcome.report.errors == 0);
    let Some(set) = outcome.set else {
        return;
    };
    let mut slots = Slots::new(64);
    let assigned = slots.assign(Space::Class, set.slot_keys());
    assert_eq!(assigned.added.len() + assigned.refused, set.len());
    set.rules(&slots, |name| Some(name.len() as u32), &outcome.labels, &[]);
});
