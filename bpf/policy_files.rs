// Included by the build scripts of fairpath-core and fairpath-bpf: the files of the shipped policies.

/// The text of `policy_files.h`: an #include for each line of FP_POLICIES, so that a policy is
/// registered once. `root` is the repository.
fn policy_files(root: &std::path::Path) -> String {
    let list = root.join("bpf/core/sched/policies.h");
    let text = std::fs::read_to_string(&list)
        .unwrap_or_else(|e| panic!("read {}: {e}", list.display()));
    let mut header = String::from("/* SPDX-License-Identifier: MIT OR GPL-2.0-only */\n");
    // The lines of FP_POLICIES: `X(3, fq_codel, E, D, N, N)`.
    let numbered = text.lines().filter_map(|line| line.trim().strip_prefix("X("));
    for name in numbered.filter_map(|line| line.split(',').nth(1)).map(str::trim) {
        header += &format!(
            "#define FP_POLICY_NAME {name}\n#include \"policy/{name}.c\"\n#undef FP_POLICY_NAME\n"
        );
    }
    header
}
