// Included by the build script of fairpath-core: the lines of FP_MATCHES for Rust.

/// The text of `matches.rs`: a macro that calls another one with number, field, type and description
/// of each line of FP_MATCHES. `root` is the repository.
fn matches(root: &std::path::Path) -> String {
    let list = root.join("bpf/core/class/matches.h");
    let text = std::fs::read_to_string(&list)
        .unwrap_or_else(|e| panic!("read {}: {e}", list.display()));
    let mut lines = String::new();
    // `X(6, vlan, VLAN, FP_OF_LINK, fp_key_vlan(w, sender), vlans, u16, "Outermost VLAN.")`
    for line in text.lines().filter_map(|line| line.trim().strip_prefix("X(")) {
        let mut columns = line.splitn(3, '"');
        let (Some(before), Some(about)) = (columns.next(), columns.next()) else {
            panic!("{}: {line:?} has no description", list.display());
        };
        let number = before.split(',').next().unwrap_or_default();
        let mut last = before.trim().trim_end_matches(',').rsplit(',').map(str::trim);
        let (Some(value), Some(field)) = (last.next(), last.next()) else {
            panic!("{}: {line:?} has no field and type", list.display());
        };
        lines += &format!("    {number} {field} ({value}) {about:?};\n");
    }
    format!("macro_rules! for_matches {{ ($call:ident) => {{ $call! {{\n{lines}}} }} }}\n")
}
