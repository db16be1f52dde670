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
    let text = "set_flow_weight(Udp:new(), 512)\n\
                set_flow_weight(Udp:new(), 0)\n\
                set_flow_weight(Udp:new(), 65535)\n\
                set_flow_weight(Udp:new(), 65536)";
    let failure = failure(text);
    assert_eq!(
        (failure.kind, &failure.lines[..]),
        (FailureKind::Script, &[4][..])
    );
    assert!(
        failure.message.contains("0 to 65535"),
        "{}",
        failure.message
    );
    for (operation, cost) in failure.operations.iter().zip([32768, 1, 4_194_240]) {
        let words = format!("cost {cost} of");
        assert!(operation.contains(&words), "{operation}");
    }
}

#[test]
fn counters_of_the_dialect_are_read_and_set() {
    passes(
        r#"
        local one, seen = Udp:new(), 0
        enqueue(one, 1)
        enqueue(one, 2)
        dequeue()
        for name, count in pairs(xdq) do
            seen = seen + 1
            expect_equal(count, name == "total_queued" and 2 or 1, name)
        end
        expect_equal(seen, 3)
        xdq.total_queued = 0
        enqueue(one, 3)
        expect_equal(xdq.total_queued, 1)
        expect_equal(xdq.currently_queued, 2)
        expect(dump(xdq):find('"currently_queued": 2', 1, true), dump(xdq))
        "#,
    );
    let open = Bench {
        tree: None,
        ..bench(vec![sorted(None)])
    };
    let text = "expect_equal(xdq.total_queued, 0) expect_equal(xdq.currently_queued, 0)\n\
                config.bpf.file = './sched_fifo.bpf.o' enqueue(Udp:new(), 1)\n\
                expect_equal(xdq.total_queued, 1)\n\
                expect_equal(config.bpf.file, './sched_fifo.bpf.o')\n\
                expect_equal(config.bpf.dequeue_func, 'dequeue_prog')";
    Script::new("a.lua", text).run(&open).expect_pass();
}

#[test]
fn numbers_of_packets_may_be_whole_floats() {
    passes(
        r#"
        local one = Udp:new()
        one.udp.payload = create_payload(1514 / 2 - 62)
        enqueue(one, 6 / 2)
        dequeue_cmp(one, 3)
        local item = enqueue(udp { label = "a" }, 4 / 2)
        expect_equal(item.tag, 2)
        dequeue_cmp(item)
        "#,
    );
    for (wrong, words) in [
        ("enqueue(Udp:new(), 0.5)", "expected an integer, not 0.5"),
        ("enqueue(Udp:new(), '388')", "expected an integer, not 388"),
        (
            "enqueue(udp {}, 0.5)",
            "expected an integer or a string as tag, not 0.5",
        ),
        ("enqueue(udp {}, 1e300)", "as tag"),
        ("create_payload(0.5)", "expected a number of bytes"),
    ] {
        let failure = failure(wrong);
        assert_eq!(failure.kind, FailureKind::Script, "{wrong}");
        assert!(
            failure.message.contains(words),
            "{wrong}: {}",
            failure.message
        );
    }
}

#[test]
fn addresses_are_compared_as_addresses() {
    passes(
        r#"
        local one = Udp:new()
        one.ip.saddr = "FE80:0:0::1"
        enqueue(one, 1)
        one.ip.saddr = "fe80::1"
        dequeue_cmp(one, 1)
        "#,
    );
    let text = "local one = Udp:new() enqueue(one, 1) one.ip.daddr = 'fe80::3' dequeue_cmp(one, 1)";
    assert!(failure(text).message.contains("ip.daddr differs"));
}

#[test]
fn packets_other_than_udp_over_ipv6_are_refused() {
    for change in ["eth.proto = 0x800", "ip.nexthdr = 6"] {
        let failure = failure(&format!(
            "local one = Udp:new() one.{change} enqueue(one, 1)"
        ));
        assert_eq!(failure.kind, FailureKind::Script);
        assert!(
            failure.message.contains("UDP over IPv6"),
            "{}",
            failure.message
        );
    }
}

#[test]
fn two_programs_of_one_scheduler_are_refused() {
    let open = Bench {
        tree: None,
        ..bench(vec![sorted(None)])
    };
    let text = "config.bpf.file = './sched_fifo.bpf.o'\nenqueue(Udp:new(), 1)\n\
                config.bpf.file = './sched_test.bpf.o'";
    let failure = failure_of(&Script::new("a.lua", text).run(&open));
    assert_eq!(failure.lines, [3]);
    assert!(
        failure.message.contains("the scheduler is in use"),
        "{}",
        failure.message
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
    let failure = failure_of(&go("sched_edf"));
    assert!(
        failure
            .message
            .contains("name a policy on the command line"),
        "{}",
        failure.message
    );
}
