//! The rows and their gates (docs/gates.md, "The classifying NIC").

use crate::gated::Gate;
use crate::gated::recorder::{Case, case};

/// A row that the example prints.
#[derive(Debug, Clone, Copy)]
pub(super) struct Row {
    /// The gate's identifier in docs/gates.md.
    id: &'static str,
    /// The name of the line.
    pub(super) line: &'static str,
    gate: Gate,
}

impl Row {
    pub(super) fn case(&self) -> Case {
        let asked = "measured, one worker, 10,000 flows, ideal device, no I/O";
        case(format!("{} {}", self.id, self.line), asked, self.gate, "")
    }
}

const fn row(id: &'static str, line: &'static str, least: f64) -> Row {
    Row {
        id,
        line,
        gate: Gate::AtLeast(least),
    }
}

/// The ratios of a packet's time without marks and with.
pub(super) const ROWS: [Row; 6] = [
    row("N11", "exact-10k: off / verify", 1.05),
    row("N11", "exact-10k: off / trust", 1.25),
    row("N11", "E10, one flow: off / verify", 1.05),
    row("N11", "E10, one flow: off / trust", 1.25),
    row("N12", "mean of QinQ, MPLS, PBB, GRE, VXLAN: off / verify", 1.15),
    row("N12", "mean of QinQ, MPLS, PBB, GRE, VXLAN: off / trust", 1.6),
];

/// The cases of the example.
pub(super) const CASES: [&str; 9] = [
    "exact-10k",
    "E10, one flow",
    "E10, 10,000 flows",
    "QinQ",
    "MPLS",
    "PBB",
    "GRE",
    "VXLAN",
    "IPv6",
];

/// Returns the rows with gates.
pub(super) fn all_rows() -> impl Iterator<Item = Case> {
    ROWS.iter().map(Row::case)
}

/// Bytes of preamble and inter-frame gap, and of the frame check sequence that frames here lack, are on the wire beside a frame
/// (IEEE 802.3-2022, section 4.4.2); the published result counts frames with their FCS, so 20 bytes are added.
pub(super) const WIRE_OVERHEAD: f64 = 20.0;

/// Returns the smallest frame in bytes, with FCS, at which packets of `nanos` each on each of `workers` fill a link; 64 at
/// least.
pub(super) fn smallest_frame(nanos: f64, workers: u32, gigabits: u32) -> f64 {
    let packets_per_nano = f64::from(workers) / nanos;
    let bits = f64::from(gigabits) / packets_per_nano;
    (bits / 8.0 - WIRE_OVERHEAD).ceil().max(64.0)
}

/// The lines whose rates are modelled for more workers than one.
pub(super) const MODELLED: [&str; 4] = [
    "exact-10k: off",
    "exact-10k: trust",
    "E10, one flow: off",
    "E10, one flow: trust",
];

/// Returns by how many per cent the modelled rate of two workers, twice that of one, differs from the sum of measured rates.
pub(super) fn model_error(one: f64, two: [f64; 2]) -> f64 {
    let measured: f64 = two.iter().map(|nanos| 1.0 / nanos).sum();
    (2.0 / one / measured - 1.0).abs() * 100.0
}

/// The time that a worker takes to hand off a packet, in nanoseconds: the middle of what docs/scaling.md has.
pub(super) const HANDOFF_NANOS: f64 = 70.0;

/// Returns the rate of two workers with a queue each, divided by that of two workers of which one receives everything and hands
/// off a share, so that both are full. A packet takes `nanos`.
///
/// With share s, the first worker takes s h + (1 - s) t for a packet of the port, the second s t. They are equal at
/// s = t / (2 t - h), and a packet takes t^2 / (2 t - h) then.
pub(super) fn dispatch_gain(nanos: f64) -> f64 {
    if nanos <= HANDOFF_NANOS {
        // Nothing is handed off that costs less than the hand-off.
        return 2.0;
    }
    2.0 * nanos / (2.0 * nanos - HANDOFF_NANOS)
}

/// Rows of the design that this experiment does not measure, with the reason.
pub(super) const UNMEASURED: [(&str, &str); 1] = [(
    "N14 two queues by dispatch against one queue",
    "it needs three free cores: the device, and two workers",
)];
