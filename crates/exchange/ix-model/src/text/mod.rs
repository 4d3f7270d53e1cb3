//! The exchange as TOML, with names instead of identifiers, so that it can be kept in version control.
//!
//! [`export`] writes everything that people order. It leaves out identifiers, numbers, generations, secrets of service
//! keys and waiting approvals: they belong to the running exchange. [`parse`] reads a text *for* an exchange: objects
//! that have their name there keep identifier and numbers, new ones get theirs, absent ones are removed. So the text of
//! an exchange, read for the same exchange, changes nothing.
//!
//! Names: sites, switches, trunks, accounts, users and policies have theirs; connections and services are
//! `account/name`; ports are `switch:number`.

mod form;
mod read;
#[cfg(test)]
mod tests;
mod write;

use thiserror::Error;

pub use read::parse;
pub use write::export;

/// A text that is no exchange.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("line {line}: {key}: {message}")]
pub struct TextError {
    /// The line, from 1.
    pub line: usize,
    /// The key, such as `service.end.connection`.
    pub key: String,
    /// The reason in words.
    pub message: String,
}
