//! The verbs, and the reports of failed expectations.

use super::*;

#[test]
fn packets_leave_by_rank_and_arrival() {
    passes(
        r#"
        local a, b = udp { label = "a", hint = 5 }, tcp { label = "b", hint = 3, dscp = "EF" }
        enqueue(a) enqueue(b) enqueue(a)
        expect_waiting(3)
        expect_order { b, a, a }
        expect_empty()
        local first = enqueue(a, "first")
        local second = enqueue(a, "second")
        expect(first ~= second and first == queue()[1])
        dequeue_cmp(a, "first")
        dequeue_cmp(second)
        local item = enqueue(b)
        expect_equal(dequeue(), item)
        local got, again = dequeue()
        expect(got == nil and again == nil)
        "#,
    );
}

#[test]
fn tags_keep_the_type_they_were_given() {
    passes(
        r#"
        local a = udp { label = "a" }
        local number, text, counted = enqueue(a, 388), enqueue(a, "388"), enqueue(a)
        expect(math.type(number.tag) == "integer" and number.tag == 388)
        expect(type(text.tag) == "string" and text.tag == "388")
        expect(counted.tag == 3)
        expect(tostring(number) == "a#388" and tostring(text) == 'a#"388"')
        dequeue_cmp(a, 388)
        dequeue_cmp(a, "388")
        dequeue_cmp(a, 3)
        "#,
    );
}

#[test]
fn packets_have_their_fields_and_header_lengths() {
    passes(
        r#"
        expect_equal(udp { payload = 38 }.length, 14 + 20 + 8 + 38)
        expect_equal(udp { source = "fd00::1", payload = "abc" }.length, 14 + 40 + 8 + 3)
        expect_equal(tcp {}.length, 14 + 20 + 20)
        expect_equal(packet { protocol = 47 }.length, 34)
        expect_equal(packet { length = 1514 }.length, 1514)
        local p = udp { dscp = "AF41", ecn = "ect0", mark = 7, class = 3, flow = 9, hint = "18446744073709551615" }
        expect_equal(p.dscp, 34) expect_equal(p.ecn, 2) expect_equal(p.mark, 7)
        expect_equal(p.class, 3) expect_equal(p.source_port, 9)
        expect_equal(p.hint, "18446744073709551615")
        expect(udp { flow = 1 }.flow_hash ~= udp { flow = 2 }.flow_hash)
        expect_rank(enqueue(p), "18446744073709551615")
        "#,
    );
}

#[test]
fn times_are_compared_to_the_nanosecond() {
    let script = r#"
        local p = udp { label = "p", mark = 5000 }
        set_time_ns(1000)
        local item = enqueue(p)
        expect_nothing(5000)
        AFTER
        expect_sojourn(item, 4000)
        expect_equal(time_ns(), 5000)
    "#;
    passes(&script.replace("AFTER", "expect_sent_at(p, 5000)"));
    passes(&script.replace("AFTER", "expect_sent_after(p, 5000)"));
    passes(&script.replace(
        "AFTER",
        "expect_equal(#drain(4999), 0) expect_equal(drain(5000)[1], item)",
    ));
    for wrong in ["expect_sent_at(p, 4999)", "expect_sent_after(p, 5001)"] {
        let failure = failure(&script.replace("AFTER", wrong));
        assert_eq!(failure.kind, FailureKind::Expectation);
        assert_eq!(failure.got.unwrap(), "5000");
    }
}

#[test]
fn drops_and_marks_are_checked_per_packet() {
    let script = r#"
        local lost = enqueue(udp { segments = 13 })
        local marked = enqueue(udp { segments = 14 })
        local plain = enqueue(udp { label = "plain" })
        drain()
    "#;
    let all = "expect_dropped(lost, 'policy') expect_drops(1) expect_drops(1, 'policy') \
               expect_drops(0, 'limit') expect_marked(marked) expect_marked(plain, false)";
    passes(&format!("{script}{all}"));
    for wrong in [
        "expect_dropped(lost, 'limit')",
        "expect_dropped(plain)",
        "expect_drops(2)",
        "expect_drops(1, 'limit')",
        "expect_marked(plain)",
        "expect_marked(lost)",
        "expect_sojourn(plain, 1)",
        "expect_rank(plain, 1)",
        "expect(false)",
        "expect_equal(1, 2)",
        "expect_between(3, 1, 2)",
        "expect_waiting(1)",
        "enqueue(udp{}) expect_empty()",
        "enqueue(udp{}) expect_nothing()",
        "fail('so')",
    ] {
        let failure = failure(&format!("{script}{wrong}"));
        assert_eq!(failure.kind, FailureKind::Expectation, "{wrong}");
        assert_eq!(failure.lines, [6], "{wrong}");
    }
}

#[test]
fn failure_has_line_packets_and_operations() {
    let failure = failure(
        "local a, b = udp { label = 'a', hint = 2 }, udp { label = 'b', flow = 2 }\n\
         local function go()\n\
         set_time_ns(10) enqueue(a) enqueue(b) enqueue(a) set_time_ns(30)\n\
         dequeue_cmp(a)\n\
         end\n\
         go()\n",
    );
    assert_eq!(failure.lines, [4, 6]);
    assert_eq!(failure.expected.as_deref(), Some("a"));
    assert_eq!(failure.got.as_deref(), Some("b#1"));
    let waiting: Vec<_> = failure
        .waiting
        .iter()
        .map(|p| (p.packet.as_str(), p.rank, p.age_ns))
        .collect();
    assert_eq!(waiting, [("a#1", 2, 20), ("a#2", 2, 20)]);
    assert_eq!(failure.operations.len(), 4);
    let last = &failure.operations[3];
    assert!(
        last.starts_with("30 ns dequeue up to 1 -> sent 2"),
        "{last}"
    );
}

#[test]
fn each_test_has_a_separate_scheduler() {
    let report = run("local p = udp {}\n\
         test('one', function() enqueue(p) expect_waiting(1) set_time_ns(5) end)\n\
         test('two', function() expect_waiting(1) end)\n\
         test('three', function() expect_waiting(0) expect_equal(time_ns(), 0) end)\n");
    let names: Vec<_> = report
        .cases
        .iter()
        .map(|c| (c.name.as_str(), c.failure.is_none()))
        .collect();
    assert_eq!(names, [("one", true), ("two", false), ("three", true)]);
    assert_eq!((report.passed(), report.failed()), (2, 1));
    let text = report.text(1);
    assert!(text.contains("not ok 2 - a.lua: two"), "{text}");
    assert!(
        text.contains("a.lua:3: expect_waiting: packets waiting"),
        "{text}"
    );
}

#[test]
fn weights_set_costs_and_parameters_are_checked() {
    let bench = bench(vec![sorted(None)]);
    let log = Rc::new(RefCell::new(Ops::default()));
    let recording = Bench {
        record: Some(log.clone()),
        ..bench
    };
    let text = "local p = udp {}\n\
        set_flow_weight(p, 2) set_flow_weight(p, 0.5) param('fifo', 'target', 7) param(1, 'target', '5ms')\n\
        expect_error(function() set_flow_weight(p, 0) end, 'weight')\n\
        expect_error(function() set_flow_weight(p, 0/0) end, 'weight')\n\
        expect_error(function() param('fifo', 'target', '5s') end, 'out of range')\n\
        expect_error(function() param('fifo', 'tarqet', 5) end, 'it has target')\n\
        expect_error(function() param('fofo', 'target', 5) end, 'did you mean fifo')\n";
    Script::new("a.lua", text).run(&recording).expect_pass();
    let values: Vec<u64> = log.borrow().0.iter().map(|op| op.value).collect();
    assert_eq!(values, [8192, 32_768, 7, 5_000_000]);
}

/// A weight is exact within 1 %, or refused with one that is.
#[test]
fn weights_that_would_be_rounded_are_refused() {
    let text = "local p = udp {}\n\
        for _, weight in ipairs { 1, 64, 100, 300, 327, 1024, 4096, 8192, 16384, 0.001, 0.0001 } do set_flow_weight(p, weight) end\n\
        expect_error(function() set_flow_weight(p, 1000) end, 'weight: 1000 would be rounded to 1024: write that, or at most 327')\n\
        expect_error(function() set_flow_weight(p, 10000) end, 'rounded to 8192')\n\
        expect_error(function() set_flow_weight(p, 65536) end, 'rounded to 16384')\n\
        expect_error(function() set_node('fifo', { weight = 1000 }) end, 'rounded to 1024')\n";
    Script::new("a.lua", text)
        .run(&bench(vec![sorted(None)]))
        .expect_pass();
}

#[derive(Default)]
struct Ops(Vec<Op>);

impl Record for Ops {
    fn begin(&mut self, _: &Run) -> Result<(), LogError> {
        Ok(())
    }

    fn record(&mut self, ops: &[Op], _: &[Outcome]) -> Result<(), LogError> {
        self.0.extend(ops);
        Ok(())
    }
}

#[test]
fn replay_reports_a_difference_only_after_a_change() {
    let writer = Rc::new(RefCell::new(Writer::new(Vec::new()).unwrap()));
    let recording = Bench {
        record: Some(writer.clone()),
        ..bench(vec![sorted(None)])
    };
    let text = "for i = 1, 2 do test('t' .. i, function() \
                enqueue(udp { hint = 4 }) advance_ns(3) expect(dequeue()) end) end";
    Script::new("a.lua", text).run(&recording).expect_pass();
    drop(recording);
    let bytes = Rc::into_inner(writer)
        .unwrap()
        .into_inner()
        .finish()
        .unwrap();
    let mut faithful = |run: &Run| Ok(vec![sorted(None)(&run.plan).unwrap()]);
    let replayed = fairpath_sched::log::replay(&bytes[..], &mut faithful).unwrap();
    assert_eq!((replayed.summary.runs, replayed.summary.ops), (2, 4));
    assert_eq!(replayed.difference, None);
    let mut faulty = |run: &Run| Ok(vec![sorted(Some((2, Fault::Sojourn)))(&run.plan).unwrap()]);
    let difference = fairpath_sched::log::replay(&bytes[..], &mut faulty)
        .unwrap()
        .difference
        .unwrap();
    assert_eq!((difference.run, difference.index), (1, 1));
}

#[test]
fn different_outcomes_are_reported_as_runtimes_differ() {
    let text = "local p = udp {} enqueue(p) enqueue(p)\ndequeue_cmp(p) dequeue_cmp(p)";
    let report =
        |fault| Script::new("a.lua", text).run(&bench(vec![sorted(None), sorted(Some(fault))]));
    report((9, Fault::Rank)).expect_pass();
    let differ = failure_of(&report((3, Fault::Rank)));
    assert_eq!(
        (differ.kind, differ.lines),
        (FailureKind::RuntimesDiffer, vec![2])
    );
    let got = differ.got.unwrap();
    assert!(
        got.contains("native: sent 1 from node 1, rank 0") && got.contains("kernel: "),
        "{got}"
    );
    assert_eq!(
        failure_of(&report((2, Fault::Stats))).kind,
        FailureKind::RuntimesDiffer
    );
}

#[test]
fn inconsistent_runtime_is_detected() {
    let text = "local p = udp {} enqueue(p)\nadvance_ns(5) dequeue()";
    let faults = [
        ((1, Fault::Unknown), "was not enqueued"),
        ((1, Fault::Silent), "returned no outcome"),
        ((2, Fault::Unknown), "which does not wait"),
        ((2, Fault::Twice), "which does not wait"),
        (
            (2, Fault::Sojourn),
            "waited 5 ns, but the scheduler reports 6",
        ),
        ((2, Fault::Silent), "neither a packet"),
        ((9, Fault::Audit), "a bit is set"),
    ];
    for (fault, words) in faults {
        let failure =
            failure_of(&Script::new("a.lua", text).run(&bench(vec![sorted(Some(fault))])));
        assert_eq!(failure.kind, FailureKind::Broken, "{}", failure.message);
        assert!(failure.message.contains(words), "{}", failure.message);
    }
    let failure =
        failure_of(&Script::new("a.lua", text).run(&bench(vec![sorted(Some((1, Fault::Fails)))])));
    assert_eq!(failure.kind, FailureKind::Runtime);
    assert!(
        failure.message.contains("no CAP_BPF"),
        "{}",
        failure.message
    );
}

#[test]
fn command_line_selection_excludes_selection_by_script() {
    let chosen = bench(vec![sorted(None)]);
    let open = Bench {
        tree: None,
        ..chosen.clone()
    };
    let text = "policy('fifo', { target = '1ms' }) enqueue(udp {}) expect_waiting(1)";
    Script::new("a.lua", text).run(&open).expect_pass();
    let toml = "tree([[\n[[node]]\nname = \"all\"\npolicy = \"fifo\"\n]]) enqueue(udp {}) expect_equal(node_stats('all').packets, 1)";
    Script::new(
        "a.lua",
        toml.replace("]])", "]==])").replace("tree([[", "tree([==["),
    )
    .run(&open)
    .expect_pass();
    let failure = failure_of(&Script::new("a.lua", text).run(&chosen));
    assert!(
        failure.message.contains("write - there"),
        "{}",
        failure.message
    );
    let none = failure_of(&Script::new("a.lua", "enqueue(udp {})").run(&open));
    assert!(
        none.message.contains("name a policy or tree"),
        "{}",
        none.message
    );
    let typo = failure_of(&Script::new("a.lua", "policy('fifa')").run(&open));
    assert!(
        typo.message.contains("did you mean fifo?"),
        "{}",
        typo.message
    );
}
