//! The API over an exchange in memory.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod accounts;
mod calendars;
mod desk;
mod document;
mod effects;
mod engine;
mod events;
mod fabric;
mod idempotency;
mod ix_api;
mod kept;
mod oidc;
mod orders;
mod people;
mod permissions;
mod privacy;
mod public;
mod route_servers;
mod series;
mod sign_in;
mod strict;
mod support;
mod tenants;
mod webhooks;
