//! Changes of an exchange in phases, and reconciliation of its switches, without IO and without a clock.
//!
//! ```text
//!  orders ----\                                /----> Journal   (durable before the next action runs)
//!  dumps  -----+--> Engine::handle(event, now) -----> Commit    one atomic bundle and a barrier, one at a time a switch
//!  replies ---/        ^                       \----> Dump, RollBack, Release, Notify
//!                      +-- Engine::deadline(): the time of the next Tick
//! ```
//!
//! **Whole states.** For each switch the engine holds the content that the switch should have now: the plan, with the
//! phases of changes under way applied. It also holds where the switch is known to differ. Changes and reconciliation only
//! move these two; a commit is always "make what differs equal". There is no list of operations to undo or replay.
//!
//! **Phases.** Between switches the wire id is the version, so a change is one of these at a time:
//!
//! ```text
//! accepted --> planned ------> staged ------> flipped -----> drained ------> cleaned
//!              new entries     ingress uses   frames of the  old entries
//!              go in           the new ones   old way end    are removed
//!    ^            |                (from here only forward)
//!    +--restart---+--refused--> rolled_back
//! ```
//!
//! A state is journalled before the engine sends what it stands for. After a crash, a change before `staged` starts
//! again from `accepted`, and one from `staged` on goes forward.
//!
//! **Independence.** A change waits only for earlier changes that touch the same entries or objects, and for the
//! switches that it touches itself. It begins when the earlier ones are drained, and ends after them: a switch that does
//! not answer holds back the removal of old entries, and no change that does not touch it.

#![forbid(unsafe_code)]

mod change;
mod content;
mod engine;
mod event;
mod reconciliation;
mod refusal;
mod settings;
mod switch;

pub use change::{ChangeId, Order, Phase, Resume};
pub use content::{Content, Delta, Entries, Modification, difference};
pub use engine::Engine;
pub use event::{Action, ChangeStatus, Event, Mode, Notice, Resolution, SwitchStatus};
pub use settings::{ForeignPolicy, Settings};
pub use switch::{Session, SyncState};

/// A switch of the exchange, by the number of its identifier.
pub type SwitchId = u32;
