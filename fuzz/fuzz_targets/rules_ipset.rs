//! Files of `ipset save`: what is read is the same after it is written and read.

#![no_main]

use fairpath_rules::Sets;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Ok(sets) = Sets::read("input", input) else {
        return;
    };
    let written = sets.to_string();
    let again = match Sets::read("written", written.as_bytes()) {
        Ok(again) => again.to_string(),
        Err(problem) => panic!("{problem}\n{written}"),
    };
    assert!(written == again, "{written}\nis not\n{again}");
    for (name, set) in sets.iter() {
        let elements = set.elements().count();
        assert!(
            elements == set.len() || set.family().is_none() || set.opaque().is_some(),
            "{name} has {elements} elements of {}",
            set.len()
        );
    }
});
