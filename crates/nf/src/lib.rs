//! What a network function is: a burst in, a verdict for each packet out.
//!
//! The whole API on one page:
//!
//! ```
//! use millrace_nf::{Buffer, Context, Function, Verdict};
//!
//! /// Drops what is longer than a limit.
//! struct Short(usize);
//!
//! impl Function for Short {
//!     fn process(&mut self, _: &Context, burst: &mut [&mut dyn Buffer], verdicts: &mut [Verdict]) {
//!         for (packet, verdict) in burst.iter().zip(verdicts) {
//!             if packet.len() > self.0 {
//!                 *verdict = Verdict::Drop;
//!             }
//!         }
//!     }
//! }
//! ```
//!
//! A function is not told whether it runs in the switch's worker or in a process of its own. What it needs from the
//! outside it is given when it is made ([`Setup`]); what it tells goes into [`Counters`] and an [`Outbox`].

#![deny(unsafe_code)]

mod counters;
mod function;
mod kind;
mod outbox;
mod settings;
pub mod shm;

pub use counters::Counters;
pub use function::{Buffer, Context, Direction, Function, Verdict};
pub use kind::{Access, Catalogue, Kind, MakeError, Setup};
pub use outbox::Outbox;
pub use settings::{SettingError, Settings};
