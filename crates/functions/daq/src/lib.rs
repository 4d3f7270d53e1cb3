//! Snort on Millrace's rings: modules for libdaq, the library by which Snort gets its packets.
//!
//! ```text
//!  Snort ── libdaq ── v2 or v3 ── Session ── window of an attached function ── lane of a chain
//!                     (C calls)   (safe)
//! ```
//!
//! The declarations of both interfaces were written from their facts: names, order and types of fields. No code of libdaq or
//! Snort is in this crate, and nothing of them is linked: a module is found by its exported symbol, `DAQ_MODULE_DATA`.

#![deny(unsafe_code)] // except in `v2`, `v3` and `c`

mod c;
mod options;
mod session;
pub mod v2;
pub mod v3;

pub use options::{Options, OptionsError};
pub use session::{Packet, Session, SessionError};

/// The verdict of Snort on a packet, as both interfaces number it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SnortVerdict {
    /// The packet is forwarded.
    Pass,
    /// The packet is dropped.
    Block,
    /// The packet is forwarded with the bytes that Snort has changed.
    Replace,
    /// The packet and later packets of its flow are forwarded; Snort does not see the later ones.
    Whitelist,
    /// The packet and later packets of its flow are dropped; Snort does not see the later ones.
    Blacklist,
    /// As `Whitelist`.
    Ignore,
    /// The packet is offered again later (libdaq 2 only).
    Retry,
}

impl SnortVerdict {
    /// The number of verdicts.
    pub const LEN: usize = 7;

    /// Returns the verdict for its number, or `None` for other numbers.
    pub fn from_raw(raw: i32) -> Option<SnortVerdict> {
        Some(match raw {
            0 => SnortVerdict::Pass,
            1 => SnortVerdict::Block,
            2 => SnortVerdict::Replace,
            3 => SnortVerdict::Whitelist,
            4 => SnortVerdict::Blacklist,
            5 => SnortVerdict::Ignore,
            6 => SnortVerdict::Retry,
            _ => return None,
        })
    }
}
