//! Datagrams there and back, and tshark as their judge, in one program.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod round_trip;
mod tshark;
