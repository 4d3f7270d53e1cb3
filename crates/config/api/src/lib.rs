//! The REST interface of the switch.
//!
//! - [`view`]: what the switch shows of itself, as Rust values with a JSON form.
//! - `server` (feature `server`): serves the store and a running switch, which it knows as the trait
//!   `Live`.
//! - `client` (feature `client`): asks a server, blocking.
//! - `fake` (feature `fake`): a switch of fixed values and a server of it, for tests.

#![forbid(unsafe_code)]

#[cfg(feature = "client")]
pub mod client;
#[cfg(feature = "fake")]
pub mod fake;
#[cfg(feature = "server")]
pub mod server;
pub mod view;

/// The file in the daemon's state directory with the bearer token that it generates where a TCP address is served and
/// no token is configured.
pub const TOKEN_FILE: &str = "api-token";
