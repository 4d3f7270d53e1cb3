//! The daemon of transfers, `millrace courier serve`: it receives for many senders at once and serves files to those who may read.
//!
//! ```text
//!   courier.toml ── load, SIGHUP ──> Grants ── implements Access ──> millrace_courier::Session::serve
//!                                      │ one Grant for each [[grant]]: directory, keys, verbs, limits
//!                                      │    Ledger: what the directory holds, and what transfers have reserved
//!                                      v
//!                 metrics, status over HTTP        audit.jsonl: one line for each transfer
//! ```
//!
//! The files depend on each other in one direction: `serve` starts `http` and makes `grants`, which use `quota`, `config`,
//! `activity` and `audit`.

#![forbid(unsafe_code)]

mod activity;
mod audit;
mod config;
mod grants;
mod http;
mod metrics;
mod quota;
mod serve;
mod size;
mod transfer;

pub use config::{Config, ConfigError, GrantConfig, Verb};
pub use http::{StatusError, read_status};
pub use serve::{ServeError, Serving, serve};
