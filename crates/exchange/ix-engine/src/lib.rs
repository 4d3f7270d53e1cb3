//! Changes of an exchange in phases, and reconciliation of its switches, without IO and without a clock.
//!
//! ```text
//!  orders ----\                                /----> Journal   (durable before the next action runs)
//!  dumps  -----+--> Engine::handle(event, now) -----> Commit    one atomic bundle and a barrier, one at a time a switch
//!  replies ---/        ^                       \----> Dump, RollBack, Release, Notify
//!                      +-- Engine::deadline(): the time of the next Tick
//! ```
//!
//! **Whole states.** For each switch the engine holds the content that the switch should have now: the plan,
//! with the phases of changes in progress applied. It also holds the entries at which the switch is known to
//! differ. Changes and reconciliation modify only these two. A commit always makes differing entries equal
//! to the content that the switch should have. There is no list of operations to undo or replay.
//!
//! **Phases.** On trunks, the wire id identifies the version of a service's entries. A change passes through
//! these phases:
//!
//! ```text
//! accepted --> planned ------> staged ------> flipped -----> drained ------> cleaned
//!              new entries     ingress uses   frames of the  old entries
//!              go in           the new ones   old path end   are removed
//!    ^            |               |    (from here only forward)
//!    +--restart---+--refused------|--------------> rolled_back
//!                                 +--refused--> reverting --^
//!                                            ingress returns to the
//!                                            old ones, frames end
//! ```
//!
//! The engine journals a phase before it sends the entries of the phase. After a crash, a change that had not
//! reached `staged` starts again from `accepted`; a change that had reached `staged` continues forward.
//!
//! **Independence.** A change waits only for earlier changes that use the same entries or objects, and for the
//! switches that it changes. It begins when the earlier ones are drained, and ends after them: a switch that does
//! not answer holds back the removal of old entries, but no change of other switches.

#![forbid(unsafe_code)]

mod change;
mod content;
mod drift;
mod engine;
mod event;
mod reconciliation;
mod refusal;
mod settings;
mod switch;
mod verification;

pub use change::{ChangeId, Order, Phase, Resume, Scope};
pub use content::{Content, Delta, Entries, Modification, difference};
pub use drift::{Drift, Drifted};
pub use engine::Engine;
pub use event::{Action, ChangeStatus, Event, Mode, Notice, Resolution, SwitchStatus};
pub use settings::{ForeignPolicy, Settings};
pub use switch::{Session, SyncState};

/// A switch of the exchange, by the number of its identifier.
pub type SwitchId = u32;
