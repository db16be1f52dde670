// Included by the build script of fairpath-core: the lines of FP_METHODS for Rust.

/// The text of `methods.rs`: a macro that calls another one with number, variant, name, counter and
/// description of each line of FP_METHODS. `root` is the repository.
fn methods(root: &std::path::Path) -> String {
    let list = root.join("bpf/core/rtt/methods.h");
    let text = std::fs::read_to_string(&list)
        .unwrap_or_else(|e| panic!("read {}: {e}", list.display()));
    let mut lines = String::new();
    // `X(1, seq, SEQ, "Sequence numbers.")`
    for line in text.lines().filter_map(|line| line.trim().strip_prefix("X(")) {
        let parts: Vec<&str> = line.splitn(4, ',').map(str::trim).collect();
        let [number, name, constant, rest] = parts[..] else {
            panic!("{}: {line:?} has no four parts", list.display());
        };
        let variant = constant[..1].to_owned() + &constant[1..].to_lowercase();
        let about = rest.trim_end_matches(['\\', ' ', '\t']).trim_end_matches(')');
        lines += &format!("    {number} {variant} {name} samples_{name} {about};\n");
    }
    format!("macro_rules! for_methods {{ ($call:ident) => {{ $call! {{\n{lines}}} }} }}\n")
}
