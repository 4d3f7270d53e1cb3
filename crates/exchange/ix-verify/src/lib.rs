//! Proofs about an exchange from the entries that its switches report. Nothing here is shared with the planner: a fault of
//! the planner is therefore no fault of the proof.
//!
//! ```text
//!  entries, groups as switches report them --> content --\
//!                                                         +--> trace: ways of sets of frames --> check: V1 to V6
//!  ports, trunks, ends, addresses, owners ---> register --/                                 \--> dead: V7
//!                                                                                            \-> effect: dry run
//! ```
//! The verifier reads the register from the model of the exchange: what was sold, and to whom. It knows the layout of neither
//! metadata nor tables; it executes what the entries say.

#![forbid(unsafe_code)]

mod check;
mod content;
mod dead;
mod delivery;
mod effect;
mod frames;
mod group;
mod lan;
mod property;
mod reader;
mod register;
mod space;
mod trace;
pub mod words;

pub use check::Checker;
pub use content::{Content, FlowEntry, GroupEntry, GroupType};
pub use effect::{Effect, Followed, effects, follow};
pub use frames::{Frames, Tag};
pub use property::{Finding, Property};
pub use reader::Reader;
pub use register::Register;
pub use space::{Cube, Space, Var};
pub use trace::{Fabric, Outcome, SwitchNumber, Way, Why, Wire};

/// Returns the ways of frames that enter by a port of a member. The frames of filters are followed as they are filtered, and
/// as if there were no filter.
pub fn ways(
    fabric: &Fabric,
    register: &Register,
    switch: SwitchNumber,
    port: u32,
    frames: Frames,
) -> Vec<Way> {
    Checker::new(fabric, register).ways(switch, port, frames)
}
