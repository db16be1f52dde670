//! Errors of policy authors, and their messages.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use fairpath_bpf::author::{CompileError, Compiler, verify};
use fairpath_testbed::{Need, requires};

use super::{BEGIN, PLAIN, compile, read, shipped, write};

/// The body is refused, and the message has all of these.
fn refused(body: &str, wanted: &[&str]) {
    let reported = compile(body).map(|author| author.policy).expect_err(body);
    for part in wanted {
        assert!(
            reported.contains(part),
            "{body}\nis reported:\n{reported}\nwithout: {part}"
        );
    }
}

#[test]
fn unguarded_divisions_and_shifts_are_refused_with_line() {
    refused(
        "RANK_ENQUEUE\n{\n\treturn p->hint / r->cost;\n}\n",
        &["mine.c:9", "div(a, b)"],
    );
    refused(
        "RANK_ENQUEUE\n{\n\treturn p->hint % f->value;\n}\n",
        &["mine.c:9", "mod(a, b)"],
    );
    refused(
        "RANK_ENQUEUE\n{\n\treturn 1ull << p->mark;\n}\n",
        &["mine.c:9", "shl(a, bits)"],
    );
    refused(
        "RANK_ENQUEUE\n{\n\treturn p->hint >> p->mark;\n}\n",
        &["mine.c:9", "shr(a, bits)"],
    );
}

#[test]
fn guarded_and_constant_divisions_and_shifts_are_accepted() {
    let bodies = [
        "return div(p->hint, r->cost) + mod(p->hint, f->value);",
        "return shl(1, p->mark) + shr(p->hint, p->dscp);",
        "return p->hint / 7 + p->hint % 9 + (p->hint << 3) + (p->hint >> 63);",
        "return r->cost ? p->hint / r->cost : p->hint >> (p->mark & 31);",
    ];
    for body in bodies {
        let author = compile(&format!("RANK_ENQUEUE {{ {body} }}"));
        assert!(
            author.is_ok(),
            "{body}: {}",
            author.err().unwrap_or_default()
        );
    }
}

#[test]
fn variables_helpers_atomics_and_sections_are_refused() {
    refused(
        "static u64 count; RANK_ENQUEUE { return count++; }",
        &["variable count"],
    );
    refused(
        "u64 count = 5; RANK_ENQUEUE { return ++count; }",
        &["variable count"],
    );
    refused(
        "RANK_ENQUEUE { static u64 (*const now)(void) = (void *)5; return now(); }",
        &["mine.c:", "helper 5"],
    );
    refused(
        "u64 other(u64); RANK_ENQUEUE { return other(p->hint); }",
        &["calls other", "static"],
    );
    refused(
        "RANK_ENQUEUE { return __sync_fetch_and_add(&f->value, 1); }",
        &["atomic"],
    );
    refused(
        "__attribute__((section(\"xdp\"))) int x(void *c) { return 0; } RANK_ENQUEUE { return 0; }",
        &["section xdp"],
    );
}

#[test]
fn floating_point_and_signed_division_are_refused() {
    refused(
        "RANK_ENQUEUE { return p->bytes * 1.5; }",
        &["mine.c:", "floating point"],
    );
    refused(
        "RANK_ENQUEUE { return (s64)p->hint / (s64)r->cost; }",
        &["mine.c:"],
    );
}

#[test]
fn writing_the_packet_is_refused() {
    refused(
        "RANK_ENQUEUE { p->hint = 1; return 0; }",
        &["mine.c:", "const"],
    );
}

#[test]
fn wrong_state_sizes_are_refused() {
    let with = |flow: &str, class: &str, state: &str| {
        let text = format!(
            "{BEGIN}struct flow {{ {flow} }}; struct class {{ {class} }}; struct global {{ }};\n\
             POLICY{{ {state}, .name = \"mine\", .about = \"a test\", .source = \"a test\",\n\
             .over = PACKETS, .usual = FP_OVER_PACKETS }};\nRANK_ENQUEUE {{ return 0; }}\n"
        );
        let written = write(&text);
        read(&written.file).map(|author| author.policy.state_bytes)
    };
    assert_eq!(
        with("u64 a[8];", "PARAMS; u64 b[8];", "STATE"),
        Ok([64, 128, 0])
    );
    let reported = with("u64 a[9];", "PARAMS;", "STATE").expect_err("72 bytes");
    assert!(reported.contains("struct flow has 72 bytes"), "{reported}");
    let reported = with("u64 a;", "u64 b;", "STATE").expect_err("no parameters");
    assert!(reported.contains("begin it with PARAMS"), "{reported}");
    let lie = ".version = 1, .flow_bytes = 8, .class_bytes = 64, .global_bytes = 0";
    let reported = with("u64 a[9];", "PARAMS;", lie).expect_err("it has 72");
    assert!(
        reported.contains("has 72 bytes and POLICY has 8"),
        "{reported}"
    );
}

#[test]
fn parameters_with_defects_are_refused() {
    let with = |params: &str| {
        let text = format!(
            "{BEGIN}struct flow {{ }}; struct class {{ PARAMS; }}; struct global {{ }};\n\
             POLICY{{ STATE, .name = \"mine\", .about = \"a test\", .source = \"a test\",\n\
             .over = PACKETS, .usual = FP_OVER_PACKETS, .params = {{ {params} }} }};\n\
             RANK_ENQUEUE {{ return c->param[0]; }}\n"
        );
        let written = write(&text);
        read(&written.file).map(|author| author.policy.params.len())
    };
    let good = "{ \"a\", \"ns\", \"about\", 0, 10, 5 }, { \"b\", \"\", \"about\", 0, 1, 1 }";
    assert_eq!(with(good), Ok(2));
    let cases = [
        (
            "{ \"a\", \"ns\", \"about\", 0, 10, 11 }",
            "not between 0 and 10",
        ),
        ("{ \"a\", \"miles\", \"about\", 0, 10, 5 }", "miles"),
        (
            "{ \"a\", \"\", \"about\", 0, 1, 1 }, { \"a\", \"\", \"x\", 0, 1, 1 }",
            "a is there twice",
        ),
        (
            "[1] = { \"b\", \"\", \"about\", 0, 1, 1 }",
            "[0] has no name",
        ),
        ("{ \"A\", \"\", \"about\", 0, 1, 1 }", "small letter"),
    ];
    for (params, wanted) in cases {
        let reported = with(params).expect_err(params);
        assert!(reported.contains(wanted), "{params}: {reported}");
    }
}

#[test]
fn files_without_policy_block_are_refused() {
    let reported = |text: &str| {
        let written = write(text);
        read(&written.file)
            .map(|author| author.policy.name)
            .expect_err(text)
    };
    let state = "struct flow { }; struct class { PARAMS; }; struct global { };\n";
    let rank = "RANK_ENQUEUE { return 0; }\n";
    let no_block = reported(&format!("{BEGIN}{state}{rank}"));
    assert!(no_block.contains("no POLICY block"), "{no_block}");
    let no_rank = reported(&format!("{BEGIN}{PLAIN}"));
    assert!(no_rank.contains("no RANK_ENQUEUE"), "{no_rank}");
    assert!(reported("").contains("error:"));
    assert!(reported("\0\u{1}\u{2}").contains("error:"));
    let typo = reported(&format!(
        "{BEGIN}{PLAIN}RANK_ENQUEUE {{ return p->length; }}\n"
    ));
    assert!(
        typo.contains("mine.c:7") && typo.contains("length"),
        "{typo}"
    );
    assert!(
        !typo.contains("fairpath-policy-"),
        "our own directory is nobody's business: {typo}"
    );
}

#[test]
fn constant_tables_and_local_functions_are_accepted() {
    let author = compile(
        "static const u64 table[4] = { 1, 5, 9, 77 };\n\
         static __attribute__((noinline)) u64 twice(u64 a) { return 2 * a; }\n\
         RANK_ENQUEUE { return twice(table[p->dscp & 3]); }",
    )
    .expect("taken");
    let names: Vec<_> = author.functions().map(|(name, _)| name).collect();
    assert_eq!(names, ["custom_rank_enqueue", "twice"]);
}

#[test]
fn sums_of_bytes_in_32_bits_are_found() {
    let state = "struct flow { u32 sum; u64 wide; u32 last; s32 sent; u16 few; u32 part : 20, rest : 12; };\n\
                 struct class { PARAMS; u32 total; }; struct global { };\n";
    let body = "RANK_ENQUEUE\n{\n\tu32 local = 0;\n\n\tf->sum += p->bytes;\n\
                \tc->total = c->total + p->bytes;\n\tlocal += p->bytes;\n\
                \tf->sum = add(f->sum, p->bytes);\n\tf->wide = add(f->wide, p->bytes);\n\
                \tf->wide += p->bytes;\n\tf->last = p->bytes;\n\
                \tf->last = (u32)(f->last + p->bytes);\n\treturn f->sum + local;\n}\n\n\
                RANK_DEQUEUE\n{\n\tu32 len = p->bytes;\n\tu32 n, cost;\n\n\tcost = len + 38;\n\tn = cost;\n\
                \tf->sum += n;\n\tc->total = add(c->total, len);\n\tf->wide += cost;\n\
                \tf->last = cost + 1;\n\tn = len + 1;\n\treturn n;\n}\n\n\
                SEND_TIME\n{\n\tu32 next = f->sum + p->bytes;\n\n\tf->sum = next;\n\
                \tc->total =\n\t\tc->total + p->bytes;\n\tf->sent += p->bytes;\n\
                \tf->few += p->bytes;\n\tf->part += p->bytes;\n\tf->rest = p->bytes;\n\treturn 0;\n}\n";
    let written = write(&format!("{BEGIN}{state}{body}"));
    let compiler = Compiler::new().expect("clang");
    let found = compiler.narrow_sums(&written.file).expect("compiles");
    let texts: Vec<_> = found.iter().map(|(_, text)| text.as_str()).collect();
    assert_eq!(
        texts,
        [
            "f->sum += p->bytes;",
            "c->total = c->total + p->bytes;",
            "local += p->bytes;",
            "f->sum = add(f->sum, p->bytes);",
            "f->sum += n;",
            "c->total = add(c->total, len);",
            "u32 next = f->sum + p->bytes;",
            "c->total + p->bytes;",
            "f->sent += p->bytes;",
            "f->few += p->bytes;",
            "f->part += p->bytes;",
        ]
    );
    for file in shipped() {
        let found = compiler.narrow_sums(&file).expect("compiles");
        assert_eq!(found, [], "{}", file.display());
    }
}

#[test]
fn missing_or_old_clang_names_the_remedy() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let old = dir.path().join("old-clang");
    std::fs::write(&old, "#!/bin/sh\necho clang version 14.0.6\n").expect("written");
    std::fs::set_permissions(&old, std::fs::Permissions::from_mode(0o755)).expect("executable");
    let other = dir.path().join("gcc");
    std::fs::write(&other, "#!/bin/sh\necho gcc 12.2.0\n").expect("written");
    std::fs::set_permissions(&other, std::fs::Permissions::from_mode(0o755)).expect("executable");
    for (clang, wanted) in [
        (Path::new("/nowhere/clang"), "run /nowhere/clang"),
        (&old, "old-clang: found clang 14.0.6, but"),
        (&other, "gcc: found another program than clang"),
    ] {
        let error = Compiler::with_clang(clang).expect_err("no clang 19");
        let reported = error.to_string();
        assert!(
            reported.contains(wanted) && reported.contains("apt-get install clang-19"),
            "{reported}"
        );
    }
    let missing = Compiler::new()
        .expect("clang")
        .policy(Path::new("/nowhere/mine.c"));
    assert!(
        matches!(missing, Err(CompileError::Read(..))),
        "{missing:?}"
    );
}

/// Returns the verifier's verdict on a body.
fn verdict(body: &str) -> fairpath_bpf::author::Verdict {
    let written = write(&format!("{BEGIN}{PLAIN}{body}"));
    let compiler = Compiler::new().expect("clang");
    let author = read(&written.file).unwrap_or_else(|reported| panic!("{reported}"));
    let trial = compiler
        .trial(&written.file, author.has())
        .expect("compiles as before");
    verify(&trial).expect("root may verify")
}

#[test]
fn verifier_refusals_name_the_policy_line() {
    requires!(Need::Root);
    fairpath_bpf::quiet_libbpf();
    let endless = verdict(
        "RANK_ENQUEUE\n{\n\twhile (p->hint != f->value)\n\t\tf->value ^= 1;\n\treturn 0;\n}\n",
    );
    let refusal = endless.refusal.expect("endless");
    assert_eq!(refusal.function, "custom_rank_enqueue");
    let outside = verdict(
        "static const u64 table[4] = { 1, 5, 9, 77 };\n\
         RANK_ENQUEUE\n{\n\treturn table[p->dscp];\n}\n",
    );
    let refusal = outside.refusal.expect("the verifier allows dscp up to 255");
    let line = refusal.line.expect("it has lines");
    assert!(
        line.starts_with("mine.c:10: return table[p->dscp];"),
        "{line}"
    );
    let made_up = verdict("RANK_ENQUEUE\n{\n\treturn *(volatile u64 *)p->hint;\n}\n");
    assert!(made_up.refusal.is_some());
    let behind = verdict("RANK_ENQUEUE\n{\n\treturn (&f->value)[1];\n}\n");
    assert!(behind.refusal.is_some());
}

#[test]
fn verifier_accepts_every_shipped_policy() {
    requires!(Need::Root);
    fairpath_bpf::quiet_libbpf();
    let compiler = Compiler::new().expect("clang");
    for file in shipped() {
        let author =
            read(&file).unwrap_or_else(|reported| panic!("{}: {reported}", file.display()));
        let trial = compiler.trial(&file, author.has()).expect("compiles");
        let verdict = verify(&trial).expect("root may verify");
        assert_eq!(verdict.refusal, None, "{}", file.display());
        // Those and what they call, each once.
        assert!(verdict.functions.len() >= author.policy.functions.len());
        assert!(
            verdict
                .functions
                .iter()
                .all(|(_, instructions)| *instructions > 0)
        );
    }
}
