//! Tests of sFlow datagrams: encoding, parsing, and decoding by tshark.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod round_trip;
mod tshark;
