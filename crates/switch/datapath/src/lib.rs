//! Workers that move packets, and the devices that packets come from and go to.
//!
//! - [`Datapath`] starts the workers and creates [`Bridge`]s.
//! - A [`Bridge`] is the control side's handle of one bridge: it adds and removes ports, publishes changes of the
//!   tables that workers read, and receives the workers' events.
//! - [`io`] has the devices: memory, links, capture files, and DPDK devices with the feature `dpdk`.
//! - [`service`] has the other work of workers: chains of network functions.
//! - [`publish`] has the left-right copies, by which workers see changes without waiting.
//!
//! A worker takes no lock, allocates nothing in steady state, logs nothing and never waits for the control
//! side; `worker` describes its state and the path of a burst. The crate is generic over the
//! [`Backend`](io::Backend) and so over the packet buffer: the whole switch runs on heap buffers, in tests
//! and without root, as on mbufs.

#![deny(unsafe_code)]

mod bridge;
mod capture;
mod counters;
mod datapath;
mod diverting;
mod egress;
mod events;
mod handoff;
mod idle;
pub mod io;
mod lag;
pub mod offload;
mod pipeline;
pub mod publish;
mod sampling;
pub mod schedule;
mod scheduled;
mod segmentation;
pub mod service;
pub mod spread;
mod stepper;
mod tx_port;
mod worker;

pub use bridge::{AddPortError, Bridge, BridgeError, BridgeSetup};
pub use capture::{CAPTURES_MAX, CaptureFilter};
pub use counters::{PortStats, WorkerStats};
pub use datapath::{Datapath, StartError, TIME_AT_START, Workers, usable_cores};
pub use events::{CapturedPacket, Direction};
pub use idle::{Idle, POLL_BEFORE_DUE, SLEEP_MAX};
pub use lag::LagRole;
pub use sampling::{
    DiscardedPacket, SAMPLE_HEADER_MAX, SampleOutcome, SampleRemainder, SampledHeader, SampledPacket,
    SamplingPlan,
};
pub use spread::Spread;
pub use stepper::Stepper;
