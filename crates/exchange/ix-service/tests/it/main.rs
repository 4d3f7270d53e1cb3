//! The core of an exchange with model, planner and database, against model switches in virtual time.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod announcements;
mod answers;
mod confirmations;
mod crash;
mod dry_runs;
mod engines;
mod failures;
mod links;
mod orders;
mod quarantine;
mod random_orders;
mod retired;
mod retries;
mod text_fields;
mod texts;
mod validity;
mod verification;
mod world;
