//! Tests of plans in the pipeline of the switch, against an oracle that shares no code with the planner.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod carried;
mod changes;
mod circuits;
mod fabric;
mod filters;
mod frames;
mod lan_corners;
mod lan_oracle;
mod lan_world;
mod lans;
mod large_lan;
mod multipoint_changes;
mod oracle;
mod rates;
mod worked_example;
mod world;
