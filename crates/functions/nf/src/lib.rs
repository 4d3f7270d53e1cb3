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
mod describe;
mod function;
#[cfg(target_arch = "wasm32")]
pub mod guest;
mod kind;
mod outbox;
#[cfg(unix)]
mod rounds;
mod settings;
#[cfg(unix)]
pub mod shm;
mod slot;

pub use counters::Counters;
pub use describe::{Description, DescriptionError};
pub use function::{Buffer, Context, Direction, Function, Verdict, give_up, reason_of};
pub use kind::{Access, Catalogue, Kind, Limits, Loader, Make, MakeError, Setup};
pub use outbox::Outbox;
#[cfg(unix)]
pub use rounds::{Round, Rounds};
pub use settings::{SettingError, Settings};
pub use slot::{BURST, Slot};

/// Makes a library of the crate that says this: of type `cdylib`, for wasm32-unknown-unknown, a module that a hop with
/// `function = "wasm:PATH"` runs. For other targets it is nothing.
#[macro_export]
macro_rules! export {
    ($kind:path) => {
        #[cfg(target_arch = "wasm32")]
        #[allow(unsafe_code, missing_docs, reason = "names that the switch knows")]
        mod exports {
            use $crate::guest;

            static KIND: $crate::Kind = $kind;

            #[unsafe(no_mangle)]
            pub extern "C" fn millrace_nf_describe() -> u64 {
                guest::describe(&KIND)
            }
            #[unsafe(no_mangle)]
            pub extern "C" fn millrace_nf_text(size: u32) -> u32 {
                guest::text(size)
            }
            #[unsafe(no_mangle)]
            pub extern "C" fn millrace_nf_make(size: u32, seed: u64, zero_unix_millis: u64) -> u64 {
                guest::make(&KIND, size, seed, zero_unix_millis)
            }
            #[unsafe(no_mangle)]
            pub extern "C" fn millrace_nf_room(size: u32) -> u32 {
                guest::room(size)
            }
            #[unsafe(no_mangle)]
            pub extern "C" fn millrace_nf_counters() -> u32 {
                guest::counters()
            }
            #[unsafe(no_mangle)]
            pub extern "C" fn millrace_nf_process(packets: u32, now: u64, direction: u32) {
                guest::process(packets, now, direction)
            }
            #[unsafe(no_mangle)]
            pub extern "C" fn millrace_nf_tick(now: u64) {
                guest::tick(now)
            }
        }
    };
}
