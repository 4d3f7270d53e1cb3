//! The rows and their gates (docs/gates.md, "The exchange").

use super::recorder::RunLength;
use crate::gated::Gate;
use crate::gated::recorder::{Case, case};

/// The share of the asked load and changes that the run must reach.
const REACHED: f64 = 0.95;
/// Gate A31, in ms.
const ORDER_P95_MS: f64 = 150.0;
/// The bound from an order to its frames (exchange.md, A2), in ms.
const IN_PLACE_P95_MS: f64 = 1000.0;
/// Gate A5, in ms.
const GAP_MS: f64 = 150.0;
/// Memory is flat within 1 %.
const FLAT: f64 = 1.01;

/// Returns the line of each row in the output of the script, and the row.
pub(super) fn rows(length: &RunLength) -> Vec<(&'static str, Case)> {
    let asked = format!("{} s, {} tenants", length.seconds, length.tenants);
    let load = REACHED * f64::from(length.rate_mbps);
    let changes = REACHED * f64::from(length.changes);
    let none = Gate::None;
    let zero = Gate::Exactly(0.0);
    let mut rows = vec![
        ("A38", "frames at a wrong tenant", zero, "frames"),
        (
            "A38",
            "frames lost of circuits that nobody changed",
            none,
            "frames",
        ),
        // The machine of a run is not the product; the rows have both, and the log has what happened then.
        (
            "A38",
            "frames lost at a ring whose reader the machine did not run",
            none,
            "frames",
        ),
        ("A38", "frames lost otherwise", zero, "frames"),
        ("A38", "moments of loss", none, ""),
        ("A38", "worker that did not run, longest", none, "ms"),
        ("A38", "sender that did not run, longest", none, "ms"),
        ("A38", "receiver that did not run, longest", none, "ms"),
        (
            "A38",
            "frames of circuits that nobody changed, twice or out of order",
            zero,
            "frames",
        ),
        ("A38", "switches that ended", zero, ""),
        ("A38", "ends of the engine that nobody ordered", zero, ""),
        ("A38", "load, mean", Gate::AtLeast(load), "Mbit/s"),
        ("A38", "load, highest interval", none, "Mbit/s"),
        ("A38", "frames of circuits that nobody changed", none, "frames"),
        ("A38", "changes accepted a second", Gate::AtLeast(changes), "1/s"),
        ("A38", "changes refused", none, ""),
        ("A38", "answers 5xx", zero, ""),
        ("A31", "orders by the API, p95", Gate::AtMost(ORDER_P95_MS), "ms"),
        ("A31", "orders by the API, p99", none, "ms"),
        (
            "A38",
            "from accepted to in place, p95",
            Gate::AtMost(IN_PLACE_P95_MS),
            "ms",
        ),
        ("A38", "changes rolled back", zero, ""),
        ("A38", "filters that came or went", none, ""),
        ("A38", "kills of the engine", none, ""),
        ("A38", "engine ready after a kill, slowest", none, "s"),
        ("A38", "cuts of a trunk", none, ""),
        ("A38", "frames lost at cuts", none, "frames"),
        ("A5", "gap at a cut, longest", Gate::AtMost(GAP_MS), "ms"),
        ("A38", "audit chain intact", Gate::Exactly(1.0), ""),
    ];
    if length.seconds >= RunLength::MEMORY_FROM_S {
        rows.extend([
            (
                "A38",
                "memory of a switch, late over early",
                Gate::AtMost(FLAT),
                "",
            ),
            (
                "A38",
                "memory of the engine, late over early",
                Gate::AtMost(FLAT),
                "",
            ),
        ]);
    }
    let row = |(id, line, gate, unit): (&str, &'static str, _, _)| {
        (line, case(format!("{id} {line}"), asked.clone(), gate, unit))
    };
    rows.into_iter().map(row).collect()
}
