//! The verbs for packets, time, counters and test cases, and the functions that run a script.

use std::rc::Rc;

use fairpath_core::sched::{NEVER, Op};
use mlua::chunk::ChunkMode;
use mlua::{FromLuaMulti, Function, IntoLuaMulti, Lua, MultiValue, Table, Value};

use super::packet::{
    self, LuaItem, LuaPacket, item_of, number, number32, packet_of, shown, to_lua,
};
use super::report::{Failure, FailureKind, ScriptReport, table};
use super::sandbox::{self, Budget, UsedUp};
use super::session::{Bed, Halt, Item, Session, Shared, State, Tag};
use super::{Bench, SHOWN_PACKETS, expect, settings, xdq};
use fairpath_sched::tree::Tree;
use fairpath_units::nearest;

/// The name of the script in Lua, which would truncate a long file name.
const CHUNK: &str = "script";
/// Stack frames that are searched for lines of the script.
const MAX_FRAMES: usize = 64;
/// Maximum float that is a tag: beyond it, two integers may be one float.
const MAX_WHOLE: f64 = 9_007_199_254_740_991.0;
/// Maximum lines of the script in a failure.
const MAX_LINES: usize = 8;

/// A verb stopped. The session has the reason.
#[derive(Debug, thiserror::Error)]
#[error("the test case has failed")]
struct Stop;

pub(super) fn run(name: &str, text: &[u8], bench: &Bench) -> ScriptReport {
    let budget = Budget::new(bench.limits);
    let session: Shared = Rc::new(std::cell::RefCell::new(Session::new(bench, budget.clone())));
    let ran = sandbox::lua(bench.limits, &budget, bench.seed).and_then(|lua| {
        install(&lua, &session)?;
        xdq::install(&lua)?;
        let chunk = lua
            .load(text)
            .set_name(format!("@{CHUNK}"))
            .set_mode(ChunkMode::Text);
        chunk.exec()
    });
    let mut session = session.borrow_mut();
    session.end(name.to_owned(), ran.as_ref().err());
    ScriptReport {
        script: name.to_owned(),
        runtimes: std::mem::take(&mut session.runtimes),
        cases: std::mem::take(&mut session.cases),
        printed: std::mem::take(&mut session.printed),
        cut_bytes: session.cut_bytes,
        instructions: budget.used(),
    }
}

/// Defines verbs as globals of a Lua state.
pub(super) struct Verbs<'a> {
    pub lua: &'a Lua,
    pub session: &'a Shared,
}

impl Verbs<'_> {
    /// Defines a verb. A failure is reported with its name and the lines of the script.
    pub fn add<A: FromLuaMulti, R: IntoLuaMulti>(
        &self,
        name: &'static str,
        body: impl Fn(&mut Session, &Lua, A) -> Result<R, Halt> + 'static,
    ) -> mlua::Result<()> {
        let session = self.session.clone();
        let verb = self.lua.create_function(move |lua, args: MultiValue| {
            let busy =
                |_| mlua::Error::runtime(format!("{name}: a verb cannot run inside another verb"));
            let mut session = session.try_borrow_mut().map_err(busy)?;
            let wrong = |error: mlua::Error| Halt::usage(error.to_string());
            let args = A::from_lua_multi(args, lua).map_err(wrong);
            args.and_then(|args| body(&mut session, lua, args))
                .map_err(|mut halt| {
                    halt.message = format!("{name}: {}", halt.message);
                    session.failure = Some(session.failed(halt, lines(lua)));
                    mlua::Error::external(Stop)
                })
        })?;
        self.lua.globals().raw_set(name, verb)
    }

    /// Defines a verb that calls a function of the script.
    pub fn add_calling(
        &self,
        name: &'static str,
        body: impl Fn(&Shared, MultiValue) -> mlua::Result<()> + 'static,
    ) -> mlua::Result<()> {
        let session = self.session.clone();
        let verb = self
            .lua
            .create_function(move |_, args: MultiValue| body(&session, args))?;
        self.lua.globals().raw_set(name, verb)
    }
}

/// The lines of the script on the stack, innermost first.
pub(super) fn lines(lua: &Lua) -> Vec<usize> {
    let line = |level| {
        lua.inspect_stack(level, |debug| {
            let is_script = debug
                .source()
                .short_src
                .is_some_and(|source| source == CHUNK);
            debug.current_line().filter(|_| is_script)
        })
    };
    let frames = (0..MAX_FRAMES).map_while(line);
    frames.flatten().take(MAX_LINES).collect()
}

impl Session {
    /// Ends a case, with or without an error.
    pub fn end(&mut self, name: String, error: Option<&mlua::Error>) {
        let last = self.cases.last().and_then(|case| case.failure.as_ref());
        let is_reported = last.is_some_and(|failure| failure.kind == FailureKind::Limit);
        if let Some(error) = error.filter(|_| self.failure.is_none() && !is_reported) {
            let (halt, lines) = self.explain(error);
            self.failure = Some(self.failed(halt, lines));
        }
        if self.is_used() || self.cases.is_empty() {
            self.close(name);
        }
    }

    fn explain(&self, error: &mlua::Error) -> (Halt, Vec<usize>) {
        let text = error.to_string();
        let (mut message, traceback) = match text.split_once("stack traceback:") {
            Some((message, traceback)) => (message.trim(), traceback),
            None => (text.trim(), ""),
        };
        let mut lines = numbers(traceback);
        for prefix in ["runtime error: ", "syntax error: "] {
            message = message.strip_prefix(prefix).unwrap_or(message);
        }
        if let Some((line, rest)) = located(message) {
            message = rest;
            if lines.first() != Some(&line) {
                lines.insert(0, line);
            }
        }
        let limits = &self.bench.limits;
        if let Some(used_up) = error.downcast_ref::<UsedUp>() {
            let text = used_up.to_string();
            let lines = self.budget.stopped_at().or(lines.first().copied());
            return (
                Halt::new(FailureKind::Limit, text),
                lines.into_iter().collect(),
            );
        }
        let out_of_memory = |error: &mlua::Error| matches!(error, mlua::Error::MemoryError(_));
        let mut causes = std::iter::successors(Some(error), |error| error.parent());
        if causes.any(out_of_memory) || message == "not enough memory" {
            let text = format!(
                "the script exceeded its limit of {} bytes of memory: raise it with --max-memory",
                limits.memory_bytes
            );
            return (Halt::new(FailureKind::Limit, text), lines);
        }
        (Halt::usage(message.replace("[C]: in ", "in ")), lines)
    }
}

/// Splits "script:12: text" into 12 and "text".
fn located(message: &str) -> Option<(usize, &str)> {
    let rest = message.strip_prefix(CHUNK)?.strip_prefix(':')?;
    let (line, rest) = rest.split_once(':')?;
    Some((line.parse().ok()?, rest.trim_start()))
}

/// The lines of the script in a traceback.
fn numbers(traceback: &str) -> Vec<usize> {
    let frames = traceback.lines().map(str::trim_start);
    frames
        .filter_map(|frame| Some(located(frame)?.0))
        .take(MAX_LINES)
        .collect()
}

fn install(lua: &Lua, session: &Shared) -> mlua::Result<()> {
    let verbs = Verbs { lua, session };
    let globals = lua.globals();
    for (name, ns) in [("US", 1_000), ("MS", 1_000_000), ("S", 1_000_000_000_i64)] {
        globals.raw_set(name, ns)?;
    }
    globals.raw_set("NEVER", to_lua(lua, NEVER)?)?;
    packets(&verbs)?;
    moving(&verbs)?;
    time(&verbs)?;
    settings::install(&verbs)?;
    printing(&verbs)?;
    cases(&verbs)?;
    expect::install(&verbs)
}

fn packets(verbs: &Verbs<'_>) -> mlua::Result<()> {
    for (name, protocol) in [("udp", Some(17)), ("tcp", Some(6)), ("packet", None)] {
        verbs.add(name, move |session, lua, table: Option<Table>| {
            let table = match table {
                Some(table) => table,
                None => lua.create_table().map_err(memory)?,
            };
            session.packets += 1;
            let tree = session.bed.tree.as_deref();
            let packet = packet::packet(&table, protocol, session.packets, tree)?;
            Ok(LuaPacket(Rc::new(packet)))
        })?;
    }
    Ok(())
}

fn memory(error: mlua::Error) -> Halt {
    Halt::new(FailureKind::Limit, error.to_string())
}

/// The tag of an item, or `None` if the script gives none.
pub(super) fn tag(value: &Value) -> Result<Option<Tag>, Halt> {
    match value {
        Value::Nil => Ok(None),
        Value::Integer(number) => Ok(Some(Tag::Number(*number))),
        Value::Number(number) if number.fract() == 0.0 && number.abs() <= MAX_WHOLE => {
            Ok(Some(Tag::Number(*number as i64)))
        }
        Value::String(text) => Ok(Some(Tag::Text(text.to_string_lossy()))),
        other => Err(Halt::usage(format!(
            "expected an integer or a string as tag, not {}",
            shown(other)
        ))),
    }
}

fn enqueue(session: &mut Session, value: &Value, tag_value: &Value) -> Result<Rc<Item>, Halt> {
    let again = item_of(value);
    let packet = again
        .as_ref()
        .map(|item| item.packet.clone())
        .or_else(|| packet_of(value));
    let packet = packet.ok_or_else(|| {
        Halt::usage(format!(
            "expected a packet (udp, tcp, packet), not {}",
            shown(value)
        ))
    })?;
    let count = session.bed.times.entry(packet.number).or_default();
    *count += 1;
    let tag = tag(tag_value)?.unwrap_or(Tag::Number(*count));
    session.enqueue(&packet, tag, again.as_ref())
}

fn moving(verbs: &Verbs<'_>) -> mlua::Result<()> {
    verbs.add("enqueue", |session, _, (packet, tag): (Value, Value)| {
        Ok(LuaItem(enqueue(session, &packet, &tag)?))
    })?;
    verbs.add("dequeue", |session, lua, ()| {
        let (sent, again) = session.dequeue(1, 0)?;
        let item = sent.into_iter().next().map(LuaItem);
        let again = if item.is_some() || again == NEVER {
            Value::Nil
        } else {
            to_lua(lua, again).map_err(memory)?
        };
        Ok((item, again))
    })?;
    verbs.add(
        "dequeue_batch",
        |session, lua, (count, bytes): (Value, Value)| {
            let count = number32(&count, "packets", u32::MAX)?;
            let bytes = if bytes.is_nil() {
                0
            } else {
                number(&bytes, "bytes", 0, u64::MAX)?
            };
            let (sent, _) = session.dequeue(count, bytes)?;
            list(lua, sent)
        },
    )?;
    verbs.add("drain", |session, lua, until: Value| {
        let until = match until {
            Value::Nil => None,
            until => Some(number(&until, "until", session.bed.now, u64::MAX)?),
        };
        list(lua, drain(session, until)?)
    })?;
    verbs.add("remove", |session, _, item: Value| {
        let item = item_of(&item).ok_or_else(|| Halt::usage("expected a result of enqueue"))?;
        if item.state.get() != State::Waiting {
            return Err(Halt::usage(format!(
                "{item} does not wait: its state is {}",
                item.state.get()
            )));
        }
        session.step(Op::remove(session.bed.now, item.handle.get()), None)?;
        Ok(())
    })
}

fn list(lua: &Lua, items: Vec<Rc<Item>>) -> Result<Table, Halt> {
    lua.create_sequence_from(items.into_iter().map(LuaItem))
        .map_err(memory)
}

/// Dequeues all packets that leave now, or until a time, which is then the current time.
fn drain(session: &mut Session, until: Option<u64>) -> Result<Vec<Rc<Item>>, Halt> {
    let mut all = Vec::new();
    loop {
        let (sent, again) = session.dequeue(1, 0)?;
        let nothing = sent.is_empty();
        all.extend(sent);
        match until {
            _ if !nothing => {}
            Some(until) if again <= until && again > session.bed.now => session.bed.now = again,
            Some(until) => {
                session.bed.now = until;
                return Ok(all);
            }
            None => return Ok(all),
        }
    }
}

fn time(verbs: &Verbs<'_>) -> mlua::Result<()> {
    verbs.add("set_time_ns", |session, _, now: Value| {
        let now = number(&now, "time", 0, u64::MAX - 1)?;
        if now < session.bed.now {
            let before = session.bed.now;
            return Err(Halt::usage(format!(
                "time cannot go back: it is {before} ns, and {now} ns is earlier"
            )));
        }
        session.bed.now = now;
        Ok(())
    })?;
    verbs.add("advance_ns", |session, lua, by: Value| {
        let by = number(&by, "by", 0, u64::MAX - 1 - session.bed.now)?;
        session.bed.now += by;
        to_lua(lua, session.bed.now).map_err(memory)
    })?;
    for name in ["time_ns", "get_time_ns"] {
        verbs.add(name, |session, lua, ()| {
            to_lua(lua, session.bed.now).map_err(memory)
        })?;
    }
    Ok(())
}

/// A node by name or number.
pub(super) fn node(tree: &Tree, value: &Value) -> Result<u32, Halt> {
    match value {
        Value::String(name) => {
            let name = name.to_string_lossy();
            let all = tree.names.nodes().iter().map(String::as_str);
            let near =
                nearest(&name, all).map_or(String::new(), |near| format!(": did you mean {near}?"));
            tree.names
                .id(&name)
                .ok_or_else(|| Halt::usage(format!("node {name} does not exist{near}")))
        }
        value => Ok(number(value, "node", 1, tree.plan.nodes.len() as u64)? as u32),
    }
}

fn printing(verbs: &Verbs<'_>) -> mlua::Result<()> {
    let tostring: Function = verbs.lua.globals().raw_get("tostring")?;
    let session = verbs.session.clone();
    let print = verbs.lua.create_function(move |_, values: MultiValue| {
        let texts: Vec<String> = values
            .iter()
            .map(|value| Ok(tostring.call::<mlua::LuaString>(value)?.to_string_lossy()))
            .collect::<mlua::Result<_>>()?;
        session.borrow_mut().print(&texts.join("\t"));
        Ok(())
    })?;
    verbs.lua.globals().raw_set("print", print)?;
    verbs.add("queue", |session, lua, ()| list(lua, session.items()))?;
    verbs.add("show", |session, _, ()| {
        let (now, count) = (session.bed.now, session.waiting_packets());
        let text = table(&session.waiting(SHOWN_PACKETS));
        session.print(&format!(
            "waiting at {now} ns: {}",
            super::report::packets(count)
        ));
        text.lines()
            .for_each(|line| session.print(&format!("  {line}")));
        Ok(())
    })?;
    verbs.add("stats", |session, lua, ()| {
        let stats = session.runtime()?.stats();
        let dropped =
            fairpath_core::sched::Drop::ALL.map(|drop| (drop.name(), stats.dropped[drop as usize]));
        let table = numbers_table(
            lua,
            &[
                ("enqueued", stats.enqueued),
                ("queued", stats.queued),
                ("sent", stats.sent),
                ("sent_bytes", stats.sent_bytes),
                ("marked", stats.marked),
                ("put_off", stats.put_off),
                ("shared", stats.shared),
                ("state_lost", stats.state_lost),
                ("tries_spent", stats.tries_spent),
                ("woken", stats.woken),
            ],
        )?;
        table
            .raw_set("dropped", numbers_table(lua, &dropped)?)
            .map_err(memory)?;
        Ok(table)
    })?;
    verbs.add("node_stats", |session, lua, at: Value| {
        let at = node(&*session.tree()?, &at)?;
        let stats = session.runtime()?.node_stats(at);
        numbers_table(
            lua,
            &[
                ("sent", stats.sent),
                ("sent_bytes", stats.sent_bytes),
                ("dropped", stats.dropped),
                ("marked", stats.marked),
                ("by_floor", stats.by_floor),
                ("packets", stats.packets.into()),
                ("bytes", stats.bytes.into()),
            ],
        )
    })
}

fn numbers_table(lua: &Lua, values: &[(&str, u64)]) -> Result<Table, Halt> {
    let make = || {
        let table = lua.create_table()?;
        for (name, value) in values {
            table.raw_set(*name, to_lua(lua, *value)?)?;
        }
        Ok(table)
    };
    make().map_err(memory)
}

fn cases(verbs: &Verbs<'_>) -> mlua::Result<()> {
    verbs.add_calling("test", |shared, args| {
        let (name, body) = match (args.front(), args.get(1)) {
            (Some(Value::String(name)), Some(Value::Function(body))) => {
                (name.to_string_lossy(), body.clone())
            }
            _ => {
                return Err(mlua::Error::runtime("test: expected a name and a function"));
            }
        };
        {
            let session = &mut *shared.borrow_mut();
            if session.outside.is_some() {
                return Err(mlua::Error::runtime(
                    "test: a test cannot run inside another test",
                ));
            }
            let bed = Bed::new(session.bed.tree.clone());
            session.outside = Some(std::mem::replace(&mut session.bed, bed));
        }
        let ran = body.call::<()>(());
        let session = &mut *shared.borrow_mut();
        let out_of_budget = session.budget.is_used_up();
        session.end_test(name, ran.as_ref().err());
        match ran {
            Err(error) if out_of_budget => Err(error),
            _ => Ok(()),
        }
    })?;
    verbs.add_calling("expect_error", |shared, args| {
        let (Some(Value::Function(body)), text) = (args.front(), args.get(1)) else {
            return Err(mlua::Error::runtime(
                "expect_error: expected a function and a string",
            ));
        };
        let ran = body.call::<()>(());
        let session = &mut *shared.borrow_mut();
        let wanted = text
            .and_then(Value::as_string)
            .map_or(String::new(), |text| text.to_string_lossy());
        session.expect_error(ran, &wanted)
    })
}

impl Session {
    fn end_test(&mut self, name: String, error: Option<&mlua::Error>) {
        if let Some(error) = error.filter(|_| self.failure.is_none()) {
            let (halt, lines) = self.explain(error);
            self.failure = Some(self.failed(halt, lines));
        }
        self.close(name);
        if let Some(outside) = self.outside.take() {
            self.bed = outside;
        }
    }

    /// Only errors of the script can be expected, not failed expectations or exceeded limits.
    fn expect_error(&mut self, ran: mlua::Result<()>, wanted: &str) -> mlua::Result<()> {
        let Err(error) = ran else {
            let halt = Halt::expected("expect_error: no error occurred", wanted, "no error");
            self.failure = Some(self.failed(halt, Vec::new()));
            return Err(mlua::Error::external(Stop));
        };
        let failure: Failure = match self.failure.take() {
            Some(failure) => failure,
            None => {
                let (halt, lines) = self.explain(&error);
                self.failed(halt, lines)
            }
        };
        if failure.kind == FailureKind::Script && failure.message.contains(wanted) {
            self.bed.checks += 1;
            return Ok(());
        }
        self.failure = Some(match failure.kind {
            FailureKind::Script => Failure {
                kind: FailureKind::Expectation,
                expected: Some(wanted.to_owned()),
                got: Some(failure.message),
                message: "expect_error: a different error occurred".into(),
                ..failure
            },
            _ => failure,
        });
        Err(error)
    }
}
