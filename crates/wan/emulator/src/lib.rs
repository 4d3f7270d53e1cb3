//! A software emulation of a wide-area path: its effect on each frame, and the memory in which frames wait.
//!
//! [`Path`] and [`Direction`] are the model in virtual time: a frame and its arrival go in, its outcomes come
//! out. A simulator needs only these. In a forwarding program, two threads divide the work. A sender offers
//! frames to the model and writes the frames that arrive into a ring of memory. A receiver takes each frame
//! from the ring when the frame is due.
//!
//! The crate has no input or output: time, seeds and the contents of files are arguments, and the caller
//! provides the memory.

#![forbid(unsafe_code)]

mod config;
mod controller;
mod distribution;
mod histogram;
mod icmp_errors;
mod math;
mod memory;
mod model;
pub mod netem;
mod plan;
mod preset;
mod random;
mod receiver;
mod ring;
mod scenario;
mod sender;
mod sources;
mod stats;
pub mod tables;
mod text;
pub mod too_big;

pub use config::{
    Background, Bypass, ClassConfig, ConfigError, Correlation, Corrupt, CorruptAction, DelayConfig, Depth,
    DirectionConfig, DirectionId, Distribution, Duplicate, Errors, FourState, Framing, GilbertElliott,
    Jitter, Key, Loss, LossConfig, Order, Outage, OverMtu, PathConfig, Queue, Rate, Red, Reorder, Shift,
};
pub use controller::Controller;
pub use histogram::HistogramSnapshot;
pub use icmp_errors::IcmpErrors;
pub use memory::PlanError;
pub use model::{Direction, DirectionModel, DropReason, Flips, Outcome, Outcomes, Path, PathModel, Release};
pub use plan::{Halves, Plan};
pub use preset::{PRESETS, Preset, preset};
pub use random::Seed;
pub use receiver::{Frame, Receiver};
pub use ring::records::{Memory, heap_memory};
pub use scenario::{Scenario, ScenarioError, Step};
pub use sender::Sender;
pub use sources::{NoSources, Sources};
pub use stats::{LATE_NANOS, Stats};
pub use text::{BitErrorRate, BitErrorRateError, ByteSize, Grammar, Interval, Probability, TextError};
