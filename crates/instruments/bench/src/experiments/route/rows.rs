//! The rows, their gates, and the programs that print them (docs/gates.md, "The router").

use super::recorder::RunLength;
use crate::gated::Gate;
use crate::gated::recorder::{Case, case};

/// A row that a program prints.
#[derive(Debug, Clone, Copy)]
pub(super) struct Row {
    /// The gate's identifier in docs/gates.md.
    id: &'static str,
    /// The name of the line.
    pub(super) line: &'static str,
    gate: Gate,
    unit: &'static str,
}

const fn row(id: &'static str, line: &'static str, gate: Gate, unit: &'static str) -> Row {
    Row { id, line, gate, unit }
}

impl Row {
    pub(super) fn case(&self, asked: &str) -> Case {
        case(format!("{} {}", self.id, self.line), asked, self.gate, self.unit)
    }
}

/// A program that prints rows.
#[derive(Debug, Clone, Copy)]
pub(super) struct Program {
    pub(super) name: &'static str,
    /// True if it takes the numbers of routes as arguments; the others have the number of rounds.
    takes_routes: bool,
    /// The command that builds it.
    pub(super) build: &'static str,
    pub(super) rows: &'static [Row],
}

impl Program {
    /// Returns the arguments.
    pub(super) fn arguments(&self, length: RunLength) -> Vec<String> {
        match self.takes_routes {
            true => vec![length.routes_v4.to_string(), length.routes_v6.to_string()],
            false => vec!["1".to_owned()],
        }
    }

    /// Returns the setting of the rows in words.
    pub(super) fn asked(&self, length: RunLength) -> String {
        match self.takes_routes {
            true => format!("{} IPv4 and {} IPv6 routes", length.routes_v4, length.routes_v6),
            false => "one worker, 64 bytes, 10,000 routes".to_owned(),
        }
    }
}

/// The time of a lookup in nanoseconds, on one core.
const LOOKUP: Gate = Gate::AtMost(25.0);
/// Routes per second, from a decoded stream into the FIB.
const PROGRAMMING: Gate = Gate::AtLeast(400_000.0);
/// Changes per second that are sustained.
const CHANGES: Gate = Gate::AtLeast(100_000.0);

pub(super) const PROGRAMS: [Program; 3] = [
    Program {
        name: "lookup",
        takes_routes: true,
        build: "cargo build --release -p millrace-fib --examples",
        rows: &[
            row("R1", "IPv4 lookup, random", LOOKUP, "ns"),
            row("R1", "IPv4 lookup, Zipf", LOOKUP, "ns"),
            row("R1", "IPv6 lookup, random", LOOKUP, "ns"),
            row("R1", "IPv6 lookup, Zipf", LOOKUP, "ns"),
            row("R2", "IPv4 routes inserted", PROGRAMMING, "routes/s"),
            row("R2", "IPv6 routes inserted", PROGRAMMING, "routes/s"),
            row("R2", "IPv4 routes changed", CHANGES, "changes/s"),
            row("R2", "IPv6 routes changed", CHANGES, "changes/s"),
        ],
    },
    Program {
        name: "feed",
        takes_routes: true,
        build: "cargo build --release -p millrace-rib --examples",
        rows: &[
            row("R3", "RIB and FIB, routes programmed", PROGRAMMING, "routes/s"),
            row("R3", "RIB and FIB, routes moved", CHANGES, "changes/s"),
            row("R3", "RIB and FIB, memory", Gate::AtMost(400.0), "MiB"),
        ],
    },
    Program {
        name: "rates",
        takes_routes: false,
        build: "cargo build --release -p millrace-router --examples",
        rows: &[
            row(
                "R4",
                "rate of routing / rate of NORMAL to 10,000 hosts",
                Gate::AtLeast(0.8),
                "",
            ),
            row(
                "R4",
                "rate of routing / rate of NORMAL to one host",
                Gate::None,
                "",
            ),
            row("R4", "routed by 10,000 routes", Gate::None, "ns"),
            row("R4", "bridged to 10,000 hosts", Gate::None, "ns"),
            row("R4", "bridged to one host", Gate::None, "ns"),
        ],
    },
];

/// Rows of the design that this experiment does not measure, with the reason.
pub(super) const UNMEASURED: [(&str, &str); 3] = [
    (
        "R5 beside the kernel's forwarding over veth",
        "both sides spend most of the time in the kernel's veth; `demo/routing.py` compares what they forward",
    ),
    (
        "R6 beside dpdk-l3fwd",
        "Debian ships no binary of it; its source is in dpdk-doc, which scripts/setup.sh does not install",
    ),
    (
        "R7 convergence at a full table",
        "`demo/routing.py` prints the gap of a link that is cut, with small tables",
    ),
];
