//! Workers that move packets, and the devices they move them between.
//!
//! - [`Datapath`] starts the workers and gives out [`Bridge`]s.
//! - A [`Bridge`] is the control side's hold on one bridge: ports come and go, what workers read is changed
//!   and published, and what workers tell is fetched.
//! - [`io`] are the devices: memory, links, capture files, and with the feature `dpdk` those of DPDK.
//! - [`service`] is what a worker does besides: chains of network functions.
//! - [`publish`] is how workers see changes without ever waiting.
//!
//! A worker takes no lock, allocates nothing in steady state, logs nothing and never waits for the control
//! side. The crate is generic over the [`Backend`](io::Backend) and so over the packet buffer: the whole
//! switch runs on the heap, in tests and without root, as it does on mbufs.

#![deny(unsafe_code)]

mod bridge;
mod capture;
mod counters;
mod cutting;
mod datapath;
mod egress;
mod events;
mod handoff;
mod idle;
pub mod io;
pub mod publish;
pub mod schedule;
pub mod service;
pub mod spread;
mod stepper;
mod turn;
mod worker;

pub use bridge::{AddPortError, Bridge, BridgeError, BridgeSetup};
pub use capture::{CAPTURES_MAX, CaptureFilter};
pub use counters::{PortStats, WorkerStats};
pub use datapath::{Datapath, StartError, Workers, usable_cores};
pub use events::{Direction, Tapped};
pub use idle::{Idle, POLL_BEFORE_DUE, SLEEP_MAX};
pub use spread::Spread;
pub use stepper::Stepper;
