//! The API over an exchange in memory.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod accounts;
mod document;
mod engine;
mod events;
mod fabric;
mod idempotency;
mod ix_api;
mod oidc;
mod orders;
mod permissions;
mod privacy;
mod route_servers;
mod sign_in;
mod strict;
mod support;
mod webhooks;
