//! Limits of the connections of a listener.
//!
//! Any host that reaches a listener can open a thousand connections and stay silent, send half a message, or read
//! nothing. All listeners of the project that accept connections use the rule of this crate ([`Admission`]): a
//! connection that has not identified itself may always be replaced by a newer one, so it never locks others out.
//! It uses no place of the connections that have.
//!
//! The crate opens no socket. `admission` needs only the standard library; the feature `tokio` adds evictions as
//! futures, the feature `http` serves HTTP/1.1 on one connection with time limits.

#![forbid(unsafe_code)]

mod admission;
#[cfg(feature = "tokio")]
mod eviction;
#[cfg(feature = "http")]
pub mod http;
mod source;
#[cfg(feature = "http")]
mod write_timeout;

pub use admission::{Admission, Busy, Connection, EstablishError, Limits};
#[cfg(feature = "tokio")]
pub use eviction::Eviction;
pub use source::Source;
#[cfg(feature = "http")]
pub use write_timeout::WriteTimeout;
