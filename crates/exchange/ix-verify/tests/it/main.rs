//! The verifier against plans, against the pipeline of the switch, and against faults.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    dead_code,
    reason = "a test fails by panicking; the worlds are those of the planner's tests, which use all of their functions"
)]

#[path = "../../../ix-plan/tests/it/fabric.rs"]
mod fabric;
#[path = "../../../ix-plan/tests/it/frames.rs"]
mod frames;
#[path = "../../../ix-plan/tests/it/lan_world.rs"]
mod lan_world;
#[path = "../../../ix-plan/tests/it/oracle.rs"]
mod oracle;
#[path = "../../../ix-plan/tests/it/world.rs"]
mod world;

mod deeds;
mod effects;
mod faults;
mod right;
mod support;
