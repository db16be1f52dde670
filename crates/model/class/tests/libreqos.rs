//! Files of LibreQoS in the formats of its versions: 13 columns, more columns, and its test files.

use fairpath_class::{ClassSet, Drafts, MAX_DEPTH, Outcome, ProblemKind, Uplinks};

const HEADER: &str = "Circuit ID,Circuit Name,Device ID,Device Name,Parent Node,MAC,IPv4,IPv6,\
    Download Min Mbps,Upload Min Mbps,Download Max Mbps,Upload Max Mbps,Comment";

const NETWORK: &str = r#"{
  "North": {
    "downloadBandwidthMbps": 1000, "uploadBandwidthMbps": 500.5, "type": "Site",
    "children": {
      "Mast 1": { "downloadBandwidthMbps": 200, "uploadBandwidthMbps": 100, "type": "AP" },
      "Area": { "virtual": true, "children": { "Mast 2": {} } }
    }
  }
}"#;

fn read(rows: &str, network: Option<&str>) -> Outcome {
    let mut drafts = Drafts::new();
    drafts.read_shaped_devices(
        ("s.csv", &format!("{HEADER}\n{rows}")),
        network.map(|text| ("n.json", text)),
    );
    ClassSet::build(drafts, Uplinks::Unknown)
}

fn reported(outcome: &Outcome) -> Vec<String> {
    outcome
        .report
        .problems
        .iter()
        .map(ToString::to_string)
        .collect()
}

#[test]
fn circuits_are_children_of_network_nodes() {
    let outcome = read(
        "7,\"1 High St., Ely\",1,Router,Mast 1,02:00:00:00:00:01,\"100.64.0.1, 100.64.0.14\",fd00:1::/56,1,0.5,155.5,20,note\n\
         8,2 High St.,2,Router,Mast 2,,100.64.0.2/31,,,,25,5,\n",
        Some(NETWORK),
    );
    assert_eq!(reported(&outcome), [""; 0]);
    let set = outcome.set.unwrap();
    let tree: Vec<_> = set
        .classes()
        .iter()
        .map(|c| format!("{} {}", c.depth, c.name))
        .collect();
    assert_eq!(
        tree,
        [
            "0 North",
            "1 Mast 1",
            "2 1 High St., Ely",
            "1 Area",
            "2 Mast 2",
            "3 2 High St."
        ]
    );
    let north = set.get("North").unwrap();
    assert_eq!(
        (north.down.ceil_bps, north.up.ceil_bps),
        (Some(1_000_000_000), Some(500_500_000))
    );
    assert_eq!(north.attribute("type"), Some("Site"));
    assert_eq!(set.get("Area").unwrap().attribute("virtual"), Some("true"));
    let circuit = set.get("1 High St., Ely").unwrap();
    let criteria: Vec<_> = circuit.criteria.iter().map(ToString::to_string).collect();
    assert_eq!(
        criteria,
        [
            "prefix 100.64.0.1/32",
            "prefix 100.64.0.14/32",
            "prefix fd00:1::/56"
        ]
    );
    assert_eq!(
        (circuit.up.floor_bps, circuit.up.ceil_bps),
        (Some(500_000), Some(20_000_000))
    );
    assert_eq!(
        (circuit.down.floor_bps, circuit.down.ceil_bps),
        (Some(1_000_000), Some(155_500_000))
    );
    assert_eq!(circuit.attribute("circuit_id"), Some("7"));
    assert_eq!(circuit.attribute("mac"), Some("02:00:00:00:00:01"));
    assert_eq!(circuit.attribute("comment"), Some("note"));
}

#[test]
fn devices_with_different_rates_are_classes() {
    let set = read(
        "7,Ely,1,Roof,,,100.64.0.1,,1,1,100,20,\n\
         8,Cam,3,Only,,,100.64.0.3,,1,1,50,20,\n\
         7,Ely,2,Shed,,,100.64.0.2,,1,1,100,20,\n\
         9,Bar,4,Roof,,,100.64.0.4,,1,1,50,20,\n\
         9,Bar,5,Shed,,,100.64.0.5,,1,1,80,20,\n",
        None,
    )
    .set
    .unwrap();
    let names: Vec<_> = set
        .classes()
        .iter()
        .map(|c| (c.name.as_str(), c.criteria.len()))
        .collect();
    assert_eq!(
        names,
        [
            ("Ely", 2),
            ("Cam", 1),
            ("Bar", 0),
            ("Bar / Roof", 1),
            ("Bar / Shed", 1)
        ]
    );
    let rate = |name| set.get(name).unwrap().down.ceil_bps;
    assert_eq!(
        (rate("Bar"), rate("Bar / Roof"), rate("Bar / Shed")),
        (Some(80_000_000), Some(50_000_000), Some(80_000_000))
    );
    assert_eq!(
        set.parent(set.get("Bar / Roof").unwrap()).unwrap().name,
        "Bar"
    );
}

#[test]
fn circuits_with_one_name_get_their_ids() {
    let set = read(
        "1,Smith,1,R,Mast,,100.64.0.1,,,,,,\n2,Smith,2,R,Mast,,100.64.0.2,,,,,,\n3,Mast,3,R,Mast,,100.64.0.3,,,,,,\n4,,4,R,,,100.64.0.4,,,,,,\n",
        None,
    )
    .set
    .unwrap();
    let mut names: Vec<_> = set.classes().iter().map(|c| c.name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["4", "Mast", "Mast (3)", "Smith (1)", "Smith (2)"]);
}

#[test]
fn without_network_parent_nodes_are_classes() {
    let rows = "1,Ely,1,R,Mast 1,,100.64.0.1,,,,,,\n2,Cam,2,R,none,,100.64.0.2,,,,,,\n3,Bar,3,R,Mast l,,100.64.0.3,,,,,,\n";
    let alone = read(rows, None);
    assert_eq!(reported(&alone), [""; 0]);
    assert_eq!(alone.set.unwrap().get("Mast 1").unwrap().depth, 0);
    let outcome = read(rows, Some(NETWORK));
    let errors: Vec<_> = outcome
        .report
        .problems
        .iter()
        .filter(|p| p.kind == ProblemKind::Orphan)
        .map(ToString::to_string)
        .collect();
    assert_eq!(
        errors,
        [
            "s.csv:4:11: error: class \"Bar\": there is no parent \"Mast l\"; did you mean \"Mast 1\"?"
        ]
    );
}

#[test]
fn columns_are_found_by_name() {
    let mut drafts = Drafts::new();
    drafts.read_file(
        "ShapedDevices.csv",
        b"# made by a tool\ncircuit_id,circuit_name,parent_node,Parent Node ID,Anchor Node ID,ipv6,ipv4,download_max,sqm\n\
          1,Ely,Mast,m1,a1,fd00::/56,100.64.0.1,25,/\n",
    );
    let outcome = ClassSet::build(drafts, Uplinks::Unknown);
    assert_eq!(reported(&outcome), [""; 0]);
    let set = outcome.set.unwrap();
    let ely = set.get("Ely").unwrap();
    assert_eq!(
        (ely.criteria.len(), ely.down.ceil_bps),
        (2, Some(25_000_000))
    );
    assert_eq!(set.parent(ely).unwrap().name, "Mast");
}

#[test]
fn problems_of_both_files_have_positions() {
    let outcome = read(
        "1,Ely,1,R,North,,100.64.0.300,,1,1,fast,20,Down=cake, Up=cake\n,Cam,2,R,,,100.64.0.2,,,,,,\n",
        Some("{\n \"North\": { \"downloadBandwidthMbps\": \"x\",\n  \"children\": 5 }\n}"),
    );
    assert_eq!(
        reported(&outcome),
        [
            "n.json:2:38: error: node \"North\": bandwidth: \"x\" is not a number of Mbit/s",
            "n.json:3:15: error: node \"North\": \"children\" must be an object",
            "s.csv:2:1: warning: 14 cells, but the header has 13: put quotes around a cell with commas",
            "s.csv:2:3: warning: class \"Ely\": no criteria and no children",
            "s.csv:2:18: error: class \"Ely\": prefix: \"100.64.0.300\" is not a prefix: write 192.0.2.0/24, 2001:db8::/32 or an address",
            "s.csv:2:36: error: circuit \"1\": rate: \"fast\" is not a number of Mbit/s",
            "s.csv:3:1: error: row without Circuit ID: it belongs to no circuit",
        ]
    );
}

#[test]
fn invalid_json_has_a_position() {
    let mut drafts = Drafts::new();
    drafts.read_network("n.json", "{\n \"A\": {,}\n}");
    let outcome = ClassSet::build(drafts, Uplinks::Unknown);
    let problem = &outcome.report.problems[0];
    assert_eq!(
        (problem.kind, problem.location.line),
        (ProblemKind::Syntax, 2)
    );
}

#[test]
fn a_too_deep_network_has_one_message() {
    let levels = 50_000;
    let text = format!(
        "{}{}{}",
        "{\"a\":{\"children\":".repeat(levels),
        "{}",
        "}}".repeat(levels)
    );
    let mut drafts = Drafts::new();
    drafts.read_network("n.json", &text);
    let outcome = ClassSet::build(drafts, Uplinks::Unknown);
    let deep: Vec<_> = outcome
        .report
        .problems
        .iter()
        .filter(|p| p.kind == ProblemKind::TooDeep)
        .collect();
    assert_eq!(deep.len(), 1, "{:?}", reported(&outcome));
    assert_eq!(outcome.report.classes, MAX_DEPTH as usize);
}

const HEADER_OF_15: &str = "Circuit ID,Circuit Name,Device ID,Device Name,Parent Node,Parent Node ID,\
    Anchor Node ID,MAC,IPv4,IPv6,Download Min Mbps,Upload Min Mbps,Download Max Mbps,\
    Upload Max Mbps,Comment";

fn read_with(header: &str, rows: &str) -> Outcome {
    let mut drafts = Drafts::new();
    drafts.read_shaped_devices(("s.csv", &format!("{header}\n{rows}")), None);
    ClassSet::build(drafts, Uplinks::Unknown)
}

/// Rows of 13 cells below the newer header, as in the example file of LibreQoS of 2026. Cells would
/// be read as other columns.
#[test]
fn rows_of_an_older_format_get_one_error() {
    let rows: String = (1..=200)
        .map(|n| format!("{n},C{n},{n},D{n},AP,,\"100.64.0.{n}, 100.64.1.{n}\",,1,1,155,20,\n"))
        .collect();
    let outcome = read_with(HEADER_OF_15, &rows);
    assert_eq!(
        reported(&outcome),
        [
            "s.csv:2:1: error: 200 rows have too few cells, here 13, but the header has 15: \
             write a cell for each column, also for an empty one"
        ]
    );
    assert!(outcome.set.is_none());
}

#[test]
fn circuits_have_the_strictest_service_level_of_devices() {
    let header = format!("{HEADER_OF_15},rtt_p95,Loss");
    let row = |circuit: u32, device: u32, down: &str, rest: &str| {
        format!(
            "{circuit},C{circuit},{device},D{device},AP,,,,100.64.{circuit}.{device},,1,1,{down},20,{rest}\n"
        )
    };
    let outcome = read_with(
        &header,
        &[
            row(1, 1, "155", ",80ms,1%"),
            row(1, 2, "155", ",40ms,"),
            row(2, 1, "155", ",,"),
            row(2, 2, "155", ""),
            row(3, 1, "155", ",80ms,"),
            row(3, 2, "20", ",,0.02"),
        ]
        .concat(),
    );
    assert_eq!(reported(&outcome), [""; 0]);
    let set = outcome.set.unwrap();
    let level = |name: &str| {
        let sla = set.get(name).unwrap().sla;
        (sla.rtt_p95_ns.map(|ns| ns / 1_000_000), sla.loss)
    };
    assert_eq!(level("C1"), (Some(40), Some(0.01)));
    assert_eq!(level("C2"), (None, None));
    assert_eq!(level("C3"), (None, None), "its devices have other rates");
    assert_eq!(level("C3 / D1"), (Some(80), None));
    assert_eq!(level("C3 / D2"), (None, Some(0.02)));
    let outcome = read_with(&header, &row(1, 1, "155", ",80,1"));
    assert_eq!(
        reported(&outcome),
        [
            "s.csv:2:41: error: class \"C1\": rtt_p95: \"80\" has no unit of time: write 40ms, 800us or 1.5s",
            "s.csv:2:44: error: class \"C1\": loss: \"1\" is not a share: write 1% or 0.01",
        ]
    );
}

#[test]
fn cells_after_the_rates_may_be_missing() {
    let header = format!("{HEADER_OF_15},sqm");
    let outcome = read_with(&header, "1,Ely,1,R,AP,,,,100.64.0.1,,1,1,155,20\n");
    assert_eq!(reported(&outcome), [""; 0]);
    let set = outcome.set.unwrap();
    assert_eq!(set.get("Ely").unwrap().up.ceil_bps, Some(20_000_000));
}

#[test]
fn sqm_choices_are_refused_by_name() {
    let read = |values: &[&str]| {
        let row = |(n, sqm): (usize, &&str)| {
            format!("{n},C{n},{n},D{n},AP,,,,100.64.0.{n},,1,1,155,20,,{sqm}\n")
        };
        let rows: String = values.iter().enumerate().map(row).collect();
        read_with(&format!("{HEADER_OF_15},sqm"), &rows)
    };
    let no_choice = read(&["", "/"]);
    assert_eq!(reported(&no_choice), [""; 0]);
    assert!(no_choice.set.is_some());
    let refused = read(&["cake", "", "/none", "Cake", "fq_codel/cake"]);
    let cause = "a circuit cannot choose its queue: \
        leave the cell empty, and set \"policy\" of [shape] for all classes";
    assert_eq!(
        reported(&refused),
        [
            format!("s.csv:2:41: error: sqm \"cake\" in 2 rows: {cause}"),
            format!("s.csv:4:41: error: sqm \"/none\" in 1 row: {cause}"),
            format!("s.csv:6:41: error: sqm \"fq_codel/cake\" in 1 row: {cause}"),
        ]
    );
    assert!(refused.set.is_none());
}
