//! Transfers between a source and a sink: in the crash model, with forged bytes, and on Linux.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::single_range_in_vec_init,
    reason = "a test program"
)]

mod crash;
mod damage;
mod delta;
mod hostile;
mod integrity;
mod linux;
mod sizes;
mod stale;
mod support;
