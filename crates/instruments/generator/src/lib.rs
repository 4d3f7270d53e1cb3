//! Sends packets at a rate, receives them again, and says what became of them: lost, late, twice, out of order,
//! changed. One thread does both on a core of its own, over any DPDK device.
//!
//! Packets come from a capture file or a [`pattern`]; [`templates`] holds them. Each gets a [`stamp`]: run,
//! number, time. The [`engine`] offers them when the [`pace`] says so, and gives what arrives to [`track`]
//! (which came, and in what order) and [`latency`] (how long they took). [`control`] is what it is told,
//! [`report`] what it says; [`program`] puts it together.

#![forbid(unsafe_code)]

pub mod args;
pub mod control;
mod device;
pub mod engine;
pub mod latency;
pub mod pace;
pub mod pattern;
pub mod program;
pub mod reflect;
pub mod report;
pub mod stamp;
pub mod templates;
pub mod track;

pub use device::DeviceError;
