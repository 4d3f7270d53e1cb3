//! The REST API of an exchange, its sign-in, its event stream, and the web page that it serves.
//!
//! ```text
//!  request --> guard (Host, origin, headers) --> Principal (session or API key) --> Access<K> (permission table)
//!                                                                                     |
//!   page <-- files built from portal/                      view <-- render <-- Snapshot    orders --> Engine
//! ```
//! This crate contains no permissions: a table in `millrace-ix-model` defines all of them.
//! [`Engine`](engine::Engine) is the running exchange.

#![forbid(unsafe_code)]
#![allow(
    clippy::result_large_err,
    reason = "a problem is the answer to a request: a handler makes one at most"
)]

mod access;
mod app;
pub mod counters;
mod cross_connects;
#[cfg(feature = "demo")]
pub mod demo;
pub mod engine;
mod events;
mod guard;
mod idempotency;
mod index;
mod kept;
mod mail;
mod media;
mod metrics;
mod names;
mod notices;
pub mod observed;
mod oidc;
mod openapi;
mod page;
mod problem;
mod reads;
mod refusal;
mod render;
mod request;
pub mod route_servers;
mod routes;
mod samples;
pub mod series;
mod serve;
pub mod service;
pub mod session;
mod start;
mod streams;
mod strict;
mod translate;
mod v2;
pub mod view;
mod webhooks;

pub use app::{App, SetCredentialError, Settings};
pub use kept::KeptChanges;
pub use mail::{MailError, MailSettings};
pub use oidc::OidcSettings;
pub use page::Page;
pub use problem::{InvalidValue, Problem, ProblemKind};
pub use route_servers::RouteServer;
pub use routes::openapi_json;
pub use serve::{Limits, router, serve};
pub use v2::openapi_json as ix_openapi_json;
