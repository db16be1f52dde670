//! `rules diff`: packets that two files treat differently.

use super::{example, rules, stdout};

#[test]
fn difference_has_example_packet() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("new.v4");
    let file = example("home.v4");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(
        &path,
        text.replace(
            "-i lan -p tcp -m tcp --dport 22",
            "-p tcp -m tcp --dport 22",
        ),
    )
    .unwrap();
    let output = rules(&["diff", &file, path.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    let out = String::from_utf8_lossy(&output.stdout);
    assert!(
        out.contains("first:  DROP by policy of filter INPUT"),
        "{out}"
    );
    assert!(out.contains("second: ACCEPT by line 27"), "{out}");
    assert!(stdout(&["diff", &file, &file]).contains("equal"));
}

#[test]
fn difference_of_sets_has_example_packet() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let file = write(
        "rules",
        "*filter\n-A INPUT -m set --match-set bad src -j DROP\nCOMMIT\n",
    );
    let create = "create bad hash:ip family inet\n";
    let old = write("old", &format!("{create}add bad 192.0.2.1\n"));
    let new = write(
        "new",
        &format!("{create}add bad 192.0.2.1\nadd bad 192.0.2.9\n"),
    );
    let output = rules(&["diff", &file, &file, "--sets", &old, "--second-sets", &new]);
    assert_eq!(output.status.code(), Some(1));
    let out = String::from_utf8_lossy(&output.stdout);
    assert!(
        out.contains("set bad: 0 lines only in the first, 1 only in the second"),
        "{out}"
    );
    assert!(out.contains("192.0.2.9"), "{out}");
    assert!(out.contains("second: DROP by line 2"), "{out}");
    assert!(stdout(&["diff", &file, &file, "--sets", &old]).contains("equal"));
    // A file of sets alone.
    let text = stdout(&["show", &new]);
    assert!(
        text.ends_with("add bad 192.0.2.1\nadd bad 192.0.2.9\n"),
        "{text}"
    );
    let json: serde_json::Value =
        serde_json::from_str(&stdout(&["show", "--format", "json", &new])).unwrap();
    assert_eq!(json["sets"][0]["elements"], 2);
}
