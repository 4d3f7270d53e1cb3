//! Liveness of ports, without IO, clock and randomness.
//!
//! ```text
//!   received frames ──► bfd::Session ─┐
//!                       ccm::Mep ─────┴─► up? ──► WaitToRestore ──► live bit of the port
//!   link of the device ─────────────────► up? ──► Damping ────────► link state of the port
//! ```

#![forbid(unsafe_code)]

pub mod bfd;
pub mod ccm;
mod damping;
mod restore;

pub use damping::{Damping, DampingSettings};
pub use restore::WaitToRestore;
