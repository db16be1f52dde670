//! Instructions of custom policies in the native runtime: every operation as in RFC 9669, and no object
//! makes the machine panic, hang, or leave its memory.

mod generated;
mod hostile;
mod object;
mod operations;

use fairpath_core::sched::{Custom, Function, Meta};
use fairpath_policy::{Author, Fault, Machine, Watch};

/// The state that a policy may change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct State {
    flow: [u64; 8],
    class: [u64; 16],
    global: [u64; 8],
    call: [u64; 16],
}

/// Runs RANK_ENQUEUE of an object once, interpreted and compiled: both must do the same.
fn run(object: &[u8], packet: &Meta, state: &mut State) -> Result<u64, Box<Fault>> {
    let author = Author::parse(object).unwrap_or_else(|problems| panic!("{problems:?}"));
    let mut compiled = state.clone();
    let machine = author.compiled().expect("this processor is supported");
    assert!(machine.is_compiled());
    let answer = run_machine(machine, packet, &mut compiled);
    let wanted = run_machine(author.machine(), packet, state);
    assert_eq!(answer, wanted, "compiled, and interpreted");
    assert_eq!(compiled, *state, "compiled, and interpreted");
    wanted
}

fn run_machine(mut machine: Machine, packet: &Meta, state: &mut State) -> Result<u64, Box<Fault>> {
    let watch: Watch = machine.watch();
    let State {
        flow,
        class,
        global,
        call,
    } = state;
    let value = machine.call(Function::RankEnqueue, packet, flow, class, global, call);
    watch
        .fault()
        .cloned()
        .map_or(Ok(value), |fault| Err(fault.into()))
}

/// Runs instructions on an empty packet and empty state.
fn run_text(text: &[u64]) -> Result<u64, Box<Fault>> {
    run(
        &object::object(text),
        &Meta::default(),
        &mut State::default(),
    )
}

/// The same, interpreted only.
fn interpret(text: &[u64]) -> Result<u64, Box<Fault>> {
    let author = Author::parse(&object::object(text));
    let author = author.unwrap_or_else(|problems| panic!("{problems:?}"));
    run_machine(author.machine(), &Meta::default(), &mut State::default())
}
