//! The client against answers of a real BIRD, and against bytes that no BIRD would send.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod conversation;
mod hostile;
