//! The gates T1 to T15 of docs/gates.md, and the arguments of a run.

use std::path::PathBuf;

use clap::ValueEnum;

/// A gate of docs/gates.md.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[non_exhaustive]
pub enum RowNumber {
    /// Goodput over what the path can carry
    T1,
    /// Goodput beside TCP and other transports
    T2,
    /// Three receivers beside multicast tools
    T3,
    /// Ten receivers
    T4,
    /// Stragglers and late joiners
    T5,
    /// Processor time and feedback
    T6,
    /// The ramp
    T7,
    /// Fairness, queue, harm
    T8,
    /// Policers, random loss, cut paths
    T9,
    /// Many small files
    T10,
    /// SIGKILL at random moments
    T11,
    /// Bit errors that no checksum shows
    T12,
    /// Unknown peers
    T13,
    /// The receive path (E8)
    T14,
    /// Memory
    T15,
}

impl RowNumber {
    /// Returns the number: 1 for T1.
    pub fn number(self) -> u8 {
        self as u8 + 1
    }
}

/// The arguments of the experiment.
pub struct Experiment {
    /// The rows to measure.
    pub rows: Vec<RowNumber>,
    /// The path of `millrace`.
    pub program: PathBuf,
    /// The path of the example that measures receive paths.
    pub receive_path: PathBuf,
    /// True if live rows are measured, where the machine can.
    pub live: bool,
    /// The rate of the emulated link in bit/s; `None` to calibrate.
    pub link_bps: Option<u64>,
    /// The core of the emulator.
    pub core: usize,
}
