//! The sFlow collector of an exchange: it turns the switches' samples into rates of members, top flows, and
//! suggested filters against an attack.
//!
//! ```text
//!  datagrams --> Collector --> Observation: who, to whom, headers, weight
//!                    |            |-> rates       by (service, end in, end out), 30 s          bounded by a limit of keys
//!                    |            |-> top flows   space-saving sketch, two windows of 30 s     bounded
//!                    |            |-> minutes     by destination, one hour                     bounded
//!                    |            |-> recent      ring of the last observations                bounded
//!                    |            `-> history     a random choice of older ones, by end        bounded
//!                    |                               |
//!                    |   page "under attack" <-- attack() <-- suggest(): pure
//!                    `-> counters of ports --> rates of trunks
//! ```
//!
//! [`Shared`] is the collector that a thread of [`Receiver`] feeds. Everything else is pure: time is an argument.

#![forbid(unsafe_code)]

mod analysis;
mod collector;
mod history;
mod matching;
mod matrix;
mod minutes;
mod observation;
mod parties;
mod random;
mod rates;
mod receiver;
mod shared;
mod sketch;
mod suggest;
mod totals;
mod trunks;

pub use analysis::{Attack, Minute, Share};
pub use collector::Collector;
pub use matching::matches;
pub use matrix::Pair;
pub use observation::{Ends, Observation};
pub use rates::{PeerRate, TargetRate, TopFlow, Traffic};
pub use receiver::{ListenError, Receiver, Settings};
pub use shared::Shared;
pub use suggest::{Suggestion, Window, suggest};
pub use totals::{Family, Totalled};
