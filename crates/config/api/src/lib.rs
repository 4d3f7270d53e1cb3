//! The REST interface of the switch.
//!
//! - [`view`]: the JSON of the interface as Rust values.
//! - `server` (feature `server`): serves the store and a running switch (trait `Live`).
//! - `client` (feature `client`): a blocking client.
//! - `fake` (feature `fake`): a switch of fixed values and a server for it, for tests.

#![forbid(unsafe_code)]

#[cfg(feature = "client")]
pub mod client;
#[cfg(feature = "fake")]
pub mod fake;
#[cfg(feature = "server")]
pub mod server;
pub mod view;

/// The file in the daemon's state directory with the bearer token that the daemon generates if a TCP address is
/// configured without a token.
pub const TOKEN_FILE: &str = "api-token";
