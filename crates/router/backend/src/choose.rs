//! Which back end: what was named, or the best for what is asked, and the reason.

pub mod impairment;
pub mod shaper;

use crate::Via;

/// A back end, why it is this one, and what trees for it must be like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The back end.
    pub via: Via,
    /// Why, for people.
    pub reason: String,
    /// Packets can be marked (CE).
    pub marks: bool,
    /// Packets of the stack through the same interfaces can only be charged.
    pub stack: bool,
}

/// The properties of a back end.
pub fn traits(via: Via) -> Choice {
    let description = via.description();
    Choice {
        via,
        reason: String::new(),
        marks: description.marks,
        stack: description.stack,
    }
}
