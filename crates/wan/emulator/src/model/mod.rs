//! The effects of a path on frames, in virtual time.
//!
//! ```text
//! frame -> MTU -> link: queue, rate, background -> loss -> delay, order -> reorder -> duplicate -> corrupt -> outcomes
//! ```
//!
//! An outcome is a function of the seed, the configuration and the sequence of (arrival, frame). The model
//! needs no polling, and the frames of a burst are processed one by one.

mod background;
mod chance;
mod corrupt;
mod delay;
mod direction;
mod link;
mod loss;
mod opportunities;
mod outcome;
mod path;
mod queue;
mod renewal;

pub use corrupt::Flips;
pub use direction::{Direction, DirectionModel};
pub use outcome::{DropReason, Outcome, Outcomes, Release};
pub use path::{Path, PathModel};
