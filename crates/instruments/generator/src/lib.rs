//! A packet generator: sends packets at a rate, receives them again, and reports loss, latency, duplicates, order and
//! corruption. One thread on its own core does both, over any DPDK device.
//!
//! Packets come from a capture file or a [`pattern`]; [`templates`] holds them. Each gets a [`stamp`] with run,
//! sequence number and time. The [`engine`] sends packets when they are due ([`pace`]), and passes received ones to
//! [`track`] (loss, duplicates, order) and [`latency`]. [`control`] parses commands, [`report`] defines the output,
//! and [`program`] connects all of them.

#![forbid(unsafe_code)]

pub mod args;
pub mod control;
mod device;
pub mod engine;
pub mod latency;
pub mod messages;
pub mod pace;
pub mod pattern;
pub mod program;
pub mod reflect;
pub mod report;
mod run;
pub mod settings;
pub mod stamp;
pub mod templates;
pub mod track;

pub use device::DeviceError;
