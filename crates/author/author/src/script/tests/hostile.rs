//! Scripts that loop, exhaust memory, try to escape the sandbox, or have invalid input.

use super::*;

fn limited(text: &str, instructions: u64, memory_bytes: usize) -> ScriptReport {
    let limits = Limits {
        instructions,
        memory_bytes,
        time: MAX_TIME,
    };
    let bench = Bench {
        limits,
        ..bench(vec![sorted(None)])
    };
    Script::new("a.lua", text).run(&bench)
}

#[test]
fn endless_loop_is_stopped_with_line_and_option() {
    for text in [
        "\nwhile true do end",
        "local f = function()\nwhile true do end end\nf()",
        "test('t', function()\nwhile true do end end)",
        "\nfor i = 1, math.huge do dequeue() end",
        "expect_error(function()\nwhile true do end end, '')",
        "local t = setmetatable({}, { __index = function(t, k)\nwhile true do end end }) return t.x",
        "table.sort({ 3, 2, 1 }, function()\nwhile true do end end)",
        "string.gsub('abc', '.', function()\nwhile true do end end)",
        "::a::\ngoto a",
    ] {
        let failure = failure_of(&limited(text, 1_000_000, MAX_MEMORY_BYTES));
        assert_eq!(
            failure.kind,
            FailureKind::Limit,
            "{text}: {}",
            failure.message
        );
        assert!(
            failure.message.contains("1000000 instructions"),
            "{}",
            failure.message
        );
        assert!(
            failure.message.contains("--max-instructions"),
            "{}",
            failure.message
        );
        let line = failure.lines.first().copied();
        assert!(
            line == Some(2) || line == Some(3),
            "{text}: {:?}",
            failure.lines
        );
    }
}

#[test]
fn memory_is_limited() {
    for text in [
        "local t = {} while true do t[#t + 1] = {} end",
        "local s = 'x' while true do s = s .. s end",
        "return ('x'):rep(1 << 40)",
        "local t = {} for i = 1, 1e9 do t[i] = udp {} end",
        "local s = ('x'):rep(1 << 20) return table.concat({ s, s, s, s, s, s, s, s, s, s, s, s, s, s, s, s, s, s })",
    ] {
        let failure = failure_of(&limited(text, 100_000_000, 16 << 20));
        assert_eq!(
            failure.kind,
            FailureKind::Limit,
            "{text}: {}",
            failure.message
        );
    }
    let failure = failure_of(&limited(
        "local s = 'x' while true do s = s .. s end",
        1 << 30,
        16 << 20,
    ));
    assert!(
        failure
            .message
            .contains("16777216 bytes of memory: raise it with --max-memory"),
        "{}",
        failure.message
    );
}

#[test]
fn unbounded_library_loops_are_refused() {
    for text in [
        "string.find(('a'):rep(1000), ('.-'):rep(20) .. 'b')",
        "string.find(('a'):rep(1 << 18), ('a'):rep(1 << 15) .. 'b.')",
        "return ('a'):rep(30):match(('a*'):rep(30) .. 'b')",
        "table.move({}, 1, math.maxinteger - 1, 2)",
        "table.concat(setmetatable({}, { __index = table.concat }), '', 1, 1 << 62)",
        "table.concat({}, '', 1, 1 << 62)",
        "table.insert(setmetatable({}, { __len = function() return 1 << 60 end }), 1, 0)",
        "table.unpack({}, 1, 1e15)",
        "setmetatable({}, { __gc = function() while true do end end })",
        "local x <close> = setmetatable({}, { __close = function() while true do end end })",
        "local m = {} local t = setmetatable({}, m) m.__close = function() end local x <close> = t",
        "getmetatable('').__close = function() end",
        "math.randomseed()",
    ] {
        let failure = failure_of(&limited(text, 10_000_000, 64 << 20));
        assert_eq!(
            failure.kind,
            FailureKind::Script,
            "{text}: {}",
            failure.message
        );
        assert_eq!(failure.lines, [1], "{text}");
    }
}

#[test]
fn deep_recursion_is_an_error() {
    for text in [
        "local function f() return 1 + f() end f()",
        "local t = {} setmetatable(t, { __index = function(t, k) return t[k] end }) return t.x",
        "local t = setmetatable({}, { __tostring = function(t) return tostring(t) end }) print(t)",
    ] {
        let failure = failure_of(&limited(text, MAX_INSTRUCTIONS, MAX_MEMORY_BYTES));
        assert_eq!(failure.kind, FailureKind::Script, "{}", failure.message);
        assert!(failure.message.contains("overflow"), "{}", failure.message);
        assert!(
            !failure.message.contains("traceback"),
            "{}",
            failure.message
        );
    }
}

#[test]
fn only_verbs_and_three_libraries_are_available() {
    passes(
        r#"
        for _, name in ipairs { "io", "os", "load", "loadfile", "loadstring", "dofile", "require", "package",
            "debug", "collectgarbage", "pcall", "xpcall", "coroutine", "warn", "utf8" } do
            expect(_G[name] == nil, name .. " is defined")
        end
        expect(string.dump == nil)
        expect(getmetatable(udp {}) == false)
        "#,
    );
}

#[test]
fn bytecode_and_invalid_scripts_are_refused() {
    for text in [
        &b"\x1bLua\x54\x00\x19\x93\r\n\x1a\n"[..],
        b"\xff\xfe x",
        b"local x = ",
        b"= = =",
    ] {
        let report = Script::new("a.lua", text).run(&bench(vec![sorted(None)]));
        assert_eq!(failure_of(&report).kind, FailureKind::Script);
    }
    assert_eq!(failure("x = 1\nlocal y = = 2").lines, [2]);
    passes("local p = udp { label = 'p' } expect_equal('\\xff\\xfe', '\\xff\\xfe')");
}

#[test]
fn invalid_arguments_are_refused_with_their_name() {
    for (text, words) in [
        ("set_time_ns(0/0)", "set_time_ns: time: expected an integer"),
        ("set_time_ns(-1)", "not -1"),
        ("set_time_ns(1.5)", "not 1.5"),
        ("set_time_ns(1/0)", "not inf"),
        ("set_time_ns('x')", "not \"x\""),
        (
            "set_time_ns(5) set_time_ns(4)",
            "time cannot go back: it is 5 ns",
        ),
        (
            "set_time_ns(5) advance_ns(math.mininteger)",
            "by: expected an integer",
        ),
        (
            "set_time_ns('18446744073709551614') advance_ns(1)",
            "by: expected an integer",
        ),
        ("udp { length = -1 }", "udp: length"),
        ("udp { length = 1 << 32 }", "udp: length"),
        ("udp { payload = 4294967295 }", "udp: payload"),
        ("udp { length = 5, payload = 5 }", "both set the length"),
        ("udp { dscp = 64 }", "udp: dscp"),
        ("udp { dscp = 'AF99' }", "not a code point"),
        ("udp { ecn = 4 }", "udp: ecn"),
        ("udp { ecn = 'maybe' }", "write not-ect"),
        ("udp { source_port = 65536 }", "source_port"),
        ("udp { source = 'here' }", "not an IP address"),
        (
            "udp { source = 'fd00::1', destination = '10.0.0.1' }",
            "different IP versions",
        ),
        ("udp { sorce = '10.0.0.1' }", "did you mean source?"),
        ("udp { protocol = 6 }", "the verb defines it"),
        ("udp { label = '\\xff' }", "not UTF-8"),
        ("udp { label = ('x'):rep(61) }", "at most 60 bytes"),
        ("udp { class = 'gold' }", "no class \"gold\""),
        ("udp { flow = 1, source_port = 2 }", "write one of them"),
        ("udp(5)", "udp: "),
        ("enqueue(5)", "expected a packet"),
        ("enqueue(nil)", "expected a packet"),
        ("enqueue(udp {}, {})", "expected an integer or a string"),
        ("dequeue_cmp('x')", "expected a packet"),
        ("expect_dropped(udp {})", "a result of enqueue or dequeue"),
        ("expect_drops(1, 'fun')", "write one of queue_full"),
        (
            "local item = enqueue(udp {}) print(item.came_ns)",
            "the field is now enqueued_ns",
        ),
        ("remove(udp {})", "remove: "),
        ("test('x')", "a name and a function"),
        ("nosuch()", "nosuch"),
        ("error({})", "table"),
        ("error('mine')", "mine"),
        ("error()", "nil"),
        (
            "test('a', function() test('b', function() end) end)",
            "inside another test",
        ),
    ] {
        let failure = failure(text);
        assert_eq!(
            failure.kind,
            FailureKind::Script,
            "{text}: {}",
            failure.message
        );
        assert!(
            failure.message.contains(words),
            "{text}: {}",
            failure.message
        );
    }
}

#[test]
fn handle_of_a_waiting_packet_is_refused() {
    passes(
        "local item = enqueue(udp { label = 'p' })\n\
         local again = enqueue(item)\n\
         expect_dropped(again, 'bad_handle') expect_waiting(1)\n\
         dequeue_cmp(item) expect_empty()\n\
         local third = enqueue(item) dequeue_cmp(third)",
    );
}

#[test]
fn full_scheduler_drops_and_reuses_handles() {
    passes(
        "local p = udp {}\n\
         for i = 1, 30000 do enqueue(p) end\n\
         expect_equal(#queue(), stats().enqueued - 30000 + #queue())\n\
         local waiting = #queue() expect(waiting > 0 and waiting < 30000)\n\
         expect_drops(30000 - waiting, 'limit')\n\
         drain() expect_empty()\n\
         for i = 1, 10 do enqueue(p) end expect_waiting(10)",
    );
}

#[test]
fn verbs_ignore_metatables_of_their_arguments() {
    passes(
        "local t = setmetatable({}, { __index = function() enqueue(udp {}) end, __pairs = function() enqueue(udp {}) end })\n\
         udp(t) expect_waiting(0)\n\
         local m = {} expect_equal(getmetatable(setmetatable({}, m)), m)\n\
         expect_waiting(0)",
    );
    let swallowed = failure(
        "setmetatable(_G, { __index = function() return function() end end }) expect_error(function() expect(false) end, '')",
    );
    assert_eq!(swallowed.kind, FailureKind::Expectation);
}

#[test]
fn printed_output_is_limited() {
    let report = run("print('a', 1, nil, true) print(udp { label = 'p' }) expect(true)");
    assert_eq!(
        report.printed,
        "a\t1\tnil\ttrue\np (42 bytes, udp 10.0.0.1:1 > 10.0.0.2:1)\n"
    );
    let report = run("for i = 1, 3000 do print(('x'):rep(1000)) end expect(true)");
    assert!(report.printed.len() <= MAX_PRINTED_BYTES);
    assert_eq!(report.printed.len() as u64 + report.cut_bytes, 3000 * 1001);
}

#[test]
fn random_numbers_repeat_with_the_same_seed() {
    let text = "print(math.random(1 << 30), math.random()) expect(true)";
    assert_eq!(run(text).printed, run(text).printed);
    let other = Bench {
        seed: 2,
        ..bench(vec![sorted(None)])
    };
    assert_ne!(
        Script::new("a.lua", text).run(&other).printed,
        run(text).printed
    );
}

#[test]
fn sparse_table_lengths_do_not_loop() {
    let _ = limited(
        "local t = {} for i = 0, 62 do t[1 << i] = 1 end table.insert(t, 1, 0) table.remove(t, 1)",
        10_000_000,
        64 << 20,
    );
}

/// Each of these took minutes within a thousand instructions.
#[test]
fn work_on_long_strings_is_charged_by_length() {
    for call in [
        "string.find(s, t, 1, true)",
        "string.find(s, '[' .. t .. ']')",
        "string.upper(s)",
        "string.lower(s)",
        "string.reverse(s)",
        "string.rep('x', 1 << 20)",
        "string.rep('', 1 << 20, 'x')",
        "string.format('%s', s)",
        "string.sub(s, 2)",
        "s:sub(-1000000, -2)",
        "string.byte(s, 1, 10000)",
        "string.char(s:byte(1, 10000))",
        "string.find(s, t .. '.')",
        "string.match(s, ('.'):rep(90))",
        "string.gsub('aaaaaaaa', 'a', s)",
        "string.pack('s', s)",
        "string.pack('c1000000', '')",
        "string.packsize(('b'):rep(1000))",
        "string.unpack('z', z)",
        "tonumber(blank)",
        "table.concat({ s, s })",
        "table.concat({ '', '' }, s)",
        "table.sort { s, s, s }",
    ] {
        let text = format!(
            "local s, t = ('a'):rep(1 << 20), ('a'):rep(90) .. 'b'\n\
             local z, blank = s .. '\\0', (' '):rep(1 << 20) .. '1'\n\
             for i = 1, 1e6 do {call} end"
        );
        let failure = failure_of(&limited(&text, 1_000_000, MAX_MEMORY_BYTES));
        assert_eq!(
            failure.kind,
            FailureKind::Limit,
            "{call}: {}",
            failure.message
        );
        assert!(
            failure.message.contains("--max-instructions"),
            "{call}: {}",
            failure.message
        );
    }
}

/// It took ten seconds in one call, whatever the limits.
#[test]
fn sorting_long_strings_is_refused_in_advance() {
    let text = "local t, s = {}, ('a'):rep(1 << 20)\n\
                for i = 1, 20000 do t[i] = s end\ntable.sort(t)";
    let begin = std::time::Instant::now();
    let failure = failure_of(&limited(text, 1_000_000, MAX_MEMORY_BYTES));
    assert_eq!(failure.kind, FailureKind::Limit, "{}", failure.message);
    assert!(begin.elapsed().as_secs() < 5, "{:?}", begin.elapsed());
}

#[test]
fn wrong_arguments_name_the_function() {
    for name in ["sub", "upper", "rep", "byte"] {
        let failure = failure_of(&run(&format!("string.{name}(nil)")));
        let expected = format!("bad argument #1 to '{name}'");
        assert!(failure.message.contains(&expected), "{}", failure.message);
    }
}

/// Lua has no hook for `..`: the time ends a loop after at most one stride of concatenations.
#[test]
fn concatenations_end_with_the_time() {
    let limits = Limits {
        time: std::time::Duration::from_millis(200),
        ..Limits::default()
    };
    let bench = Bench {
        limits,
        ..bench(vec![sorted(None)])
    };
    // As many as a stride can have, and each with 10 % of the memory.
    let unrolled = "t = s .. 1\n".repeat(100);
    for text in [
        "local s = ('x'):rep(1 << 22)\nfor i = 1, 1e9 do local t = s .. i end".to_owned(),
        format!("local t, s = '', ('x'):rep(100 << 20)\nwhile true do {unrolled} end"),
    ] {
        let begin = std::time::Instant::now();
        let failure = failure_of(&Script::new("a.lua", text).run(&bench));
        assert_eq!(failure.kind, FailureKind::Limit, "{}", failure.message);
        assert!(
            failure.message.contains("--max-time"),
            "{}",
            failure.message
        );
        // 1 s of processor time, for 3 GiB.
        assert!(begin.elapsed().as_secs() < 30, "{:?}", begin.elapsed());
    }
}
