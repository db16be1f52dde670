//! Instructions of custom policies in the native runtime: every operation as in RFC 9669, and no object
//! makes the machine panic, hang, or leave its memory.

mod hostile;
mod object;
mod operations;

use fairpath_core::sched::{Custom, Function, Meta};
use fairpath_policy::{Author, Fault, Watch};

/// The state that a policy may change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct State {
    flow: [u64; 8],
    class: [u64; 16],
    global: [u64; 8],
    call: [u64; 16],
}

/// Runs RANK_ENQUEUE of an object once.
fn run(object: &[u8], packet: &Meta, state: &mut State) -> Result<u64, Box<Fault>> {
    let author = Author::parse(object).unwrap_or_else(|problems| panic!("{problems:?}"));
    let mut machine = author.machine();
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
