//! Scripts in the dialect of the XDP queueing tester.

use super::*;

#[test]
fn script_of_the_xdp_queueing_tester_runs() {
    passes(
        r#"
        config.bpf.file = "./sched_fifo.bpf.o"
        local one, two = Udp:new(), Udp:new()
        one.udp.dest = 4000
        one.udp.payload = create_payload(38)
        two.udp.dest = 4001
        set_time_ns(100)
        expect_equal(enqueue(one, 1), XDP_REDIRECT)
        enqueue(two, 1)
        enqueue(one, 2)
        expect_equal(xdq.currently_queued, 3)
        dequeue_cmp(one, 1)
        dequeue_cmp(two, 1)
        local packet = dequeue()
        cmp(packet, one, 2)
        expect_equal(packet.udp.dest, 4000)
        expect_equal(#packet.udp.payload, 38)
        expect_equal(dequeue(), nil)
        expect_equal(get_time_ns(), 100)
        expect_equal(normalize_ipv6_address("FE80:0::1"), "fe80::1")
        adjust_meta(8)
        show_flow_map()
        print(dump(two))
        "#,
    );
}

#[test]
fn packets_are_compared_by_content() {
    let script = |end: &str| {
        format!(
            "local one = Udp:new() one.udp.dest = 4000\n\
             local two = Udp:new() two.udp.dest = 4001\n\
             enqueue(one, 1) enqueue(one, 2)\n{end}"
        )
    };
    passes(&script("dequeue_cmp(one, 1) dequeue_cmp(one, 2)"));
    for (wrong, words) in [
        ("dequeue_cmp(two, 1)", "udp.dest differs"),
        ("dequeue_cmp(one, 2)", "udp.payload differs"),
        (
            "one.ip.hop_limit = 9 dequeue_cmp(one, 1)",
            "ip.hop_limit differs",
        ),
        (
            "dequeue() dequeue() dequeue_cmp(one, 1)",
            "no packet leaves",
        ),
    ] {
        let failure = failure(&script(wrong));
        assert_eq!(
            (failure.kind, &failure.lines[..]),
            (FailureKind::Expectation, &[4][..]),
            "{wrong}"
        );
        assert!(
            failure.message.contains(words),
            "{wrong}: {}",
            failure.message
        );
    }
}

#[test]
fn both_dialects_share_a_scheduler() {
    passes(
        "local old, new = Udp:new(), udp { label = 'new' }\n\
         enqueue(new) enqueue(old, 1) enqueue(new)\n\
         dequeue_cmp(new) dequeue_cmp(old, 1)\n\
         expect_equal(dequeue().label, 'new')",
    );
}

#[test]
fn weights_of_the_dialect_are_costs() {
    let text = "set_flow_weight(Udp:new(), 512)\nset_flow_weight(Udp:new(), 0)";
    let failure = failure(text);
    assert_eq!(failure.lines, [2]);
    assert!(
        failure.operations[0].contains("cost 32768"),
        "{:?}",
        failure.operations
    );
}

#[test]
fn unknown_program_is_refused_with_a_remedy() {
    let open = Bench {
        tree: None,
        ..bench(vec![sorted(None)])
    };
    let go = |name: &str| {
        let text =
            format!("config.bpf.file = './{name}.bpf.o' enqueue(Udp:new(), 1) expect(dequeue())");
        Script::new("a.lua", text).run(&open)
    };
    go("sched_fifo").expect_pass();
    let failure = failure_of(&go("sched_sprio"));
    assert!(
        failure
            .message
            .contains("name a policy on the command line"),
        "{}",
        failure.message
    );
}
