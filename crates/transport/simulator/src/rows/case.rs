//! A measured case: its size, its gate, its value, and the reason why it could not be measured.

use crate::AuditError;
use millrace_wan_emulator::ConfigError;

/// The gate of a case.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Gate {
    /// The value must be at least this.
    AtLeast(f64),
    /// The value must be at most this.
    AtMost(f64),
}

impl Gate {
    /// Returns true if a value passes the gate.
    pub fn met(self, value: f64) -> bool {
        match self {
            Gate::AtLeast(least) => value >= least,
            Gate::AtMost(most) => value <= most,
        }
    }
}

/// A case that was measured.
#[derive(Clone, PartialEq, Debug)]
pub struct Measured {
    /// The row and the quantity: `T1 goodput / Ideal, RTT 100 ms, loss 2 %`.
    pub case: String,
    /// The path and the duration.
    pub conditions: String,
    /// The gate, as docs/gates.md has it.
    pub gate: Gate,
    /// The target beyond the gate, if the table has one.
    pub target: Option<f64>,
    /// The value.
    pub reached: f64,
    /// The unit of the value; empty for a ratio.
    pub unit: &'static str,
    /// Packets that the case moved.
    pub packets: u64,
}

impl Measured {
    /// Returns true if the value passes the gate.
    pub fn met(&self) -> bool {
        self.gate.met(self.reached)
    }
}

/// The number of cases and their length.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Size {
    /// A part of the grid, and short runs: all parts move less than 2·10^7 packets.
    Short,
    /// The whole grid.
    Full,
}

/// The reason why a case could not be measured.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum RowError {
    /// A setting of a path is not valid, which is a defect of this crate.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A balance does not hold.
    #[error(transparent)]
    Audit(#[from] AuditError),
    /// A session broke a bound, or a file differs.
    #[error("{case}: {problem}")]
    Session { case: String, problem: String },
    /// An awaited event did not occur in time.
    #[error("{case}: nothing within {seconds} s of virtual time")]
    Never {
        case: String,
        /// The time limit in seconds.
        seconds: u64,
    },
}
