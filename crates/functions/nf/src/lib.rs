//! The interface of a network function: it gets a burst of packets, and returns a verdict for each.
//!
//! A complete function:
//!
//! ```
//! use millrace_nf::{Buffer, Context, Function, Verdict};
//!
//! /// Drops packets that are longer than a limit.
//! struct LengthLimit(usize);
//!
//! impl Function for LengthLimit {
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
//! The same function runs in the switch's worker and in a process of its own. It gets its settings when it is created
//! ([`Setup`]), and reports through [`Counters`] and an [`Outbox`].

#![deny(unsafe_code)]

#[cfg(unix)]
pub mod attach;
mod buffer;
mod burst;
mod counters;
mod describe;
mod effects;
pub mod flow;
mod function;
#[cfg(target_arch = "wasm32")]
pub mod guest;
mod kind;
mod outbox;
#[cfg(unix)]
mod rounds;
mod settings;
mod shared;
#[cfg(unix)]
pub mod shm;
mod slot;
#[cfg(unix)]
mod source_file;
pub mod table;

pub use buffer::Buffer;
pub use burst::{BURST, Context, Direction, Verdict};
pub use counters::Counters;
pub use describe::{Description, DescriptionError};
pub use effects::{Effects, SENT_MAX, SENT_SIZE_MAX, Sending, Shun, ShunAction, ShunnedFlow};
pub use function::{Function, give_up, reason_of};
pub use kind::{Access, Catalogue, Constructor, Kind, Limits, Loader, MakeError, Setup, Spread};
pub use outbox::Outbox;
#[cfg(unix)]
pub use rounds::{Round, Rounds};
pub use settings::{SettingError, Settings};
pub use shared::{
    Compiled, Formatter, FormatterConstructor, InputFile, NewValue, SharedKind, SharedValue, Source, Values,
};
pub use slot::Slot;
#[cfg(unix)]
pub use source_file::{SOURCE_MAX, SourceFile, SourceHead, SourceReader};

/// Exports a kind of function from a crate of type `cdylib`. Built for wasm32-unknown-unknown, the crate becomes a module for
/// a hop with `function = "wasm:PATH"`. For other targets the macro expands to nothing.
#[macro_export]
macro_rules! export {
    ($kind:path) => {
        #[cfg(target_arch = "wasm32")]
        #[allow(unsafe_code, reason = "names that the switch knows")]
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
