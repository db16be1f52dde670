//! The sandbox of a script: its libraries and its limits.
//!
//! Invariant: every script ends within its memory and its instructions, plus at most [`STRIDE`] and
//! the work of one library call, and its time, plus that of [`STRIDE`] instructions. The count hook
//! ends loops in Lua. It does not run in three cases, so scripts have none of them:
//!
//! - Finalizers (`__gc`) run without hooks, as do closed variables (`__close`) during an error of the
//!   hook. `setmetatable` refuses both.
//! - A script that catches errors (`pcall`, coroutines) would continue. These functions are absent.
//! - The library has loops (patterns that backtrack, ranges of `table`). Their work is bounded in
//!   advance and counted as instructions, as is the length of strings that it copies.
//!
//! Operators (`..`, comparisons, `...`) process long strings without a call, and Lua has no hook for
//! them, so they are not charged by length. A stride has at most 33 of them, each reads or copies at
//! most the memory of the script, and the limit of time is checked after it: 33 strings of 500 MiB
//! took 6 s of processor time.

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use mlua::{Function, HookTriggers, Lua, LuaOptions, MultiValue, StdLib, Table, Value, VmState};

use super::Limits;
use super::verbs::lines;

/// Instructions between two checks of the limit.
pub(super) const STRIDE: u32 = 100;
/// Bytes that the library processes in the time of an instruction.
const BYTES_AN_INSTRUCTION: u64 = 100;
/// Maximum elements that one call of a function of `table` processes.
const MAX_ELEMENTS: i64 = 1 << 24;
/// Maximum steps of one pattern match in the worst case.
const MAX_PATTERN_STEPS: u64 = 100_000_000;

/// Globals of the base library that scripts have.
const BASE: [&str; 20] = [
    "_G",
    "_VERSION",
    "assert",
    "error",
    "getmetatable",
    "ipairs",
    "math",
    "next",
    "pairs",
    "rawequal",
    "rawget",
    "rawlen",
    "rawset",
    "select",
    "setmetatable",
    "string",
    "table",
    "tonumber",
    "tostring",
    "type",
];

/// The instruction count, the time, and their limits.
#[derive(Clone)]
pub(super) struct Budget {
    used: Rc<Cell<u64>>,
    stopped_at: Rc<Cell<Option<usize>>>,
    begin: Instant,
    limits: Limits,
}

/// The script exceeded a limit.
#[derive(Clone, Copy, Debug, thiserror::Error)]
pub(super) enum UsedUp {
    #[error(
        "the script exceeded its limit of {0} instructions: check it for an endless loop, or raise the \
         limit with --max-instructions"
    )]
    Instructions(u64),
    #[error(
        "the script exceeded its limit of {0:?}: check it for long strings in a loop, or raise the \
         limit with --max-time"
    )]
    Time(Duration),
}

impl Budget {
    pub(super) fn new(limits: Limits) -> Budget {
        Budget {
            used: Rc::default(),
            stopped_at: Rc::default(),
            begin: Instant::now(),
            limits,
        }
    }

    pub(super) fn is_used_up(&self) -> bool {
        self.check().is_err()
    }

    fn check(&self) -> Result<(), UsedUp> {
        let Limits {
            instructions, time, ..
        } = self.limits;
        if self.used.get() > instructions {
            return Err(UsedUp::Instructions(instructions));
        }
        match self.begin.elapsed() > time {
            true => Err(UsedUp::Time(time)),
            false => Ok(()),
        }
    }

    /// The line of the script that exceeded the limit.
    pub(super) fn stopped_at(&self) -> Option<usize> {
        self.stopped_at.get()
    }

    pub(super) fn used(&self) -> u64 {
        self.used.get()
    }

    pub(super) fn charge(&self, instructions: u64) -> Result<(), UsedUp> {
        self.used.set(self.used.get().saturating_add(instructions));
        self.check()
    }

    /// Charges a library call for its arguments or results, and for the bytes of strings that it made.
    fn charge_values(&self, values: &MultiValue, bytes: u64) -> mlua::Result<()> {
        let charged = self.charge(values.len() as u64 + bytes / BYTES_AN_INSTRUCTION);
        charged.map_err(mlua::Error::external)
    }

    /// Charges a library call for the bytes that it processes.
    fn charge_bytes(&self, bytes: u64) -> mlua::Result<()> {
        let charged = self.charge(bytes / BYTES_AN_INSTRUCTION);
        charged.map_err(mlua::Error::external)
    }
}

/// Creates a Lua state with `table`, `string`, `math` and the harmless part of the base library.
pub(super) fn lua(limits: Limits, budget: &Budget, seed: u64) -> mlua::Result<Lua> {
    let libraries = StdLib::TABLE | StdLib::STRING | StdLib::MATH;
    let lua = Lua::new_with(libraries, LuaOptions::default())?;
    let globals = lua.globals();
    let names: Vec<String> = globals
        .pairs::<String, Value>()
        .map(|pair| Ok(pair?.0))
        .collect::<mlua::Result<_>>()?;
    for name in names.iter().filter(|name| !BASE.contains(&name.as_str())) {
        globals.raw_set(name.as_str(), Value::Nil)?;
    }
    guard_metatables(&lua, &globals)?;
    guard_strings(&lua, &globals.raw_get("string")?, budget)?;
    guard_tables(&lua, &globals.raw_get("table")?, budget)?;
    guard_by_arguments(&lua, &globals, &["tonumber"], budget)?;
    fix_random(&lua, &globals.raw_get("math")?, budget, seed)?;
    let budget = budget.clone();
    let triggers = HookTriggers::new().every_nth_instruction(STRIDE);
    lua.set_global_hook(triggers, move |lua, _| {
        budget.charge(STRIDE.into()).map_err(|used_up| {
            budget.stopped_at.set(lines(lua).first().copied());
            mlua::Error::external(used_up)
        })?;
        Ok(VmState::Continue)
    })?;
    lua.set_memory_limit(limits.memory_bytes)?;
    Ok(lua)
}

/// Wraps `library[name]` so that `check` can refuse its arguments, and charges its values and results.
fn guard(
    lua: &Lua,
    library: &Table,
    name: &'static str,
    budget: &Budget,
    check: impl Fn(&MultiValue) -> mlua::Result<()> + 'static,
) -> mlua::Result<()> {
    let original: Function = library.raw_get(name)?;
    let budget = budget.clone();
    let wrapped = lua.create_function(move |_, args: MultiValue| {
        budget.charge_values(&args, 0)?;
        check(&args)?;
        let results: MultiValue = original.call(args).map_err(|error| named(error, name))?;
        let strings = results.iter().filter_map(Value::as_string);
        let bytes = strings.map(|text| text.as_bytes().len() as u64).sum();
        budget.charge_values(&results, bytes)?;
        Ok(results)
    })?;
    library.raw_set(name, wrapped)
}

/// Lua finds no name of a function that it does not call itself.
fn named(error: mlua::Error, name: &str) -> mlua::Error {
    match error {
        mlua::Error::RuntimeError(text) => {
            mlua::Error::RuntimeError(text.replacen("to '?'", &format!("to '{name}'"), 1))
        }
        error => error,
    }
}

/// Charges functions for the length of their arguments.
fn guard_by_arguments(
    lua: &Lua,
    library: &Table,
    names: &[&'static str],
    budget: &Budget,
) -> mlua::Result<()> {
    for name in names {
        let own = budget.clone();
        guard(lua, library, name, budget, move |args| {
            own.charge_bytes(args.iter().map(|value| length(Some(value))).sum())
        })?;
    }
    Ok(())
}

fn refuse(what: impl Into<String>) -> mlua::Error {
    mlua::Error::RuntimeError(what.into())
}

/// Replaces `setmetatable` by one that copies the metatable, so that a script cannot change it after
/// the check. `getmetatable` returns the original.
fn guard_metatables(lua: &Lua, globals: &Table) -> mlua::Result<()> {
    let set = lua.create_function(|lua, (table, meta): (Table, Value)| {
        if table
            .metatable()
            .is_some_and(|meta| meta.contains_key("__metatable").unwrap_or(true))
        {
            return Err(refuse("setmetatable: the table has a metatable already"));
        }
        let meta = match meta {
            Value::Table(meta) => meta,
            Value::Nil => return Ok(table),
            _ => return Err(refuse("setmetatable: expected a table or nil")),
        };
        let copy = lua.create_table()?;
        for pair in meta.pairs::<Value, Value>() {
            let (name, value) = pair?;
            copy.raw_set(name, value)?;
        }
        for (name, what) in [("__gc", "finalizers"), ("__close", "closed variables")] {
            if !copy.raw_get::<Value>(name)?.is_nil() {
                return Err(refuse(format!(
                    "setmetatable: {what} ({name}) are not supported"
                )));
            }
        }
        if !copy.contains_key("__metatable")? {
            copy.raw_set("__metatable", meta)?;
        }
        table.set_metatable(Some(copy))?;
        Ok(table)
    })?;
    globals.raw_set("setmetatable", set)?;
    if let Some(meta) = lua.type_metatable::<mlua::LuaString>() {
        meta.raw_set("__metatable", false)?;
    }
    Ok(())
}

fn guard_strings(lua: &Lua, string: &Table, budget: &Budget) -> mlua::Result<()> {
    string.raw_set("dump", Value::Nil)?;
    for name in ["find", "match", "gmatch", "gsub"] {
        let own = budget.clone();
        let check = move |args: &MultiValue| {
            let plain = name == "find"
                && args
                    .get(3)
                    .is_some_and(|plain| !matches!(plain, Value::Nil | Value::Boolean(false)));
            let lengths = [args.front(), args.get(1)].map(text);
            // A plain search compares the whole text at each place, in the worst case.
            let steps = match plain {
                true => (lengths[0].len() as u64).saturating_mul(lengths[1].len() as u64),
                false => pattern_steps(lengths[0].len(), &lengths[1]),
            };
            if steps > MAX_PATTERN_STEPS {
                return Err(refuse(format!(
                    "string.{name}: the search could take {steps} steps on {} bytes, but the maximum is \
                     {MAX_PATTERN_STEPS}: use fewer repetitions or a shorter string",
                    lengths[0].len()
                )));
            }
            own.charge_bytes(steps)
        };
        guard(lua, string, name, budget, check)?;
    }
    let whole = ["upper", "lower", "reverse", "format", "pack", "packsize"];
    guard_by_arguments(lua, string, &whole, budget)?;
    // They read a part of a string: the part is their result.
    for name in ["sub", "byte", "char"] {
        guard(lua, string, name, budget, |_| Ok(()))?;
    }
    let own = budget.clone();
    let check = move |args: &MultiValue| own.charge_bytes(length(args.front()));
    guard(lua, string, "unpack", budget, check)?;
    let own = budget.clone();
    let check = move |args: &MultiValue| {
        let times = args.get(1).and_then(Value::as_integer).unwrap_or(0);
        let each = length(args.front()).saturating_add(length(args.get(2)));
        own.charge_bytes(times.max(0).cast_unsigned().saturating_mul(each))
    };
    guard(lua, string, "rep", budget, check)
}

fn length(value: Option<&Value>) -> u64 {
    match value {
        Some(Value::String(text)) => text.as_bytes().len() as u64,
        value => text(value).len() as u64,
    }
}

fn text(value: Option<&Value>) -> Vec<u8> {
    match value {
        Some(Value::String(text)) => text.as_bytes().to_vec(),
        Some(Value::Integer(number)) => number.to_string().into_bytes(),
        Some(Value::Number(number)) => number.to_string().into_bytes(),
        _ => Vec::new(),
    }
}

/// Worst-case steps of a match: each repetition can have any length at each position of the text. Then
/// each single item is compared, and each set is read, which is shorter than the pattern.
fn pattern_steps(length: usize, pattern: &[u8]) -> u64 {
    let length = length as u64 + 1;
    let mut steps = length;
    let mut items: u64 = 0;
    let mut bytes = pattern.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'%' => {
                items += 1;
                // %b and back references read further. Other escaped characters match themselves.
                if matches!(bytes.next(), Some(b'b' | b'0'..=b'9')) {
                    steps = steps.saturating_mul(length);
                }
            }
            b'*' | b'+' | b'-' => {
                items = items.saturating_sub(1);
                steps = steps.saturating_mul(length);
            }
            b'?' => steps = steps.saturating_mul(2),
            b'(' | b')' => {}
            _ => items += 1,
        }
    }
    if pattern.contains(&b'[') {
        items = pattern.len() as u64;
    }
    steps.saturating_mul(items.max(1))
}

/// Bounds the loops of `table`. A metatable could define `#` and `__index` without a bound.
fn guard_tables(lua: &Lua, table: &Table, budget: &Budget) -> mlua::Result<()> {
    for name in ["concat", "insert", "move", "remove", "sort", "unpack"] {
        let own = budget.clone();
        let check = move |args: &MultiValue| {
            let mut elements = 0;
            for value in args {
                if let Value::Table(table) = value {
                    if table.metatable().is_some() {
                        return Err(refuse(format!(
                            "table.{name}: the table has a metatable: copy the table first"
                        )));
                    }
                    elements = elements.max(i64::try_from(table.raw_len()).unwrap_or(i64::MAX));
                }
            }
            let range = match name {
                "move" => range(args, 1, 2, 0),
                "unpack" => range(args, 1, 2, elements),
                "concat" => range(args, 2, 3, elements),
                _ => elements,
            };
            if range.max(elements) > MAX_ELEMENTS {
                return Err(refuse(format!(
                    "table.{name}: the maximum is {MAX_ELEMENTS} elements"
                )));
            }
            // `insert` and `remove` at the end move nothing.
            let moved = match (name, args.len()) {
                ("insert", 2) | ("remove", 1) => 1,
                _ => range,
            };
            own.charge(moved.max(0).cast_unsigned())
                .map_err(mlua::Error::external)?;
            match (name, args.front(), args.get(1)) {
                ("sort", Some(Value::Table(table)), None | Some(Value::Nil)) => {
                    own.charge_bytes(sort_bytes(table)?)
                }
                _ => Ok(()),
            }
        };
        guard(lua, table, name, budget, check)?;
    }
    Ok(())
}

/// Bytes that sorting without a function compares: each element about twice in each round of halving.
fn sort_bytes(table: &Table) -> mlua::Result<u64> {
    let mut bytes = 0;
    for index in 1..=table.raw_len() {
        let value: Value = table.raw_get(index)?;
        bytes += BYTES_AN_INSTRUCTION + value.as_string().map_or(0, |_| length(Some(&value)));
    }
    let rounds = table.raw_len().checked_ilog2().unwrap_or(0) + 1;
    Ok(bytes.saturating_mul(2 * u64::from(rounds)))
}

/// The number of elements from argument `first` (default 1) to `last` (default `length`).
fn range(args: &MultiValue, first: usize, last: usize, length: i64) -> i64 {
    let number = |index: usize, default| match args.get(index) {
        Some(Value::Integer(number)) => *number,
        Some(Value::Number(number)) => *number as i64,
        Some(Value::String(_)) => i64::MAX,
        _ => default,
    };
    number(last, length)
        .saturating_sub(number(first, 1))
        .saturating_add(1)
}

/// Seeds `math.random`, so that every run has the same numbers.
fn fix_random(lua: &Lua, math: &Table, budget: &Budget, seed: u64) -> mlua::Result<()> {
    let randomseed: Function = math.raw_get("randomseed")?;
    randomseed.call::<()>(seed.cast_signed())?;
    let check = |args: &MultiValue| match args.front() {
        Some(Value::Integer(_) | Value::Number(_)) => Ok(()),
        _ => Err(refuse(
            "math.randomseed: expected a number, so that runs are repeatable",
        )),
    };
    guard(lua, math, "randomseed", budget, check)
}
