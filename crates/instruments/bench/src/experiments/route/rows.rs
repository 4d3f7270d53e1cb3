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

/// The form of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// An example that takes the numbers of routes.
    Table,
    /// An example that takes the number of rounds.
    Rates,
    /// A script in `tests/interop` that takes the numbers of routes, and starts a router. It runs once.
    Script,
    /// A script in `tests/interop` that starts a router and another program in turn, in rounds of its own. It runs once.
    Turns,
}

/// A program that prints rows.
#[derive(Debug, Clone, Copy)]
pub(super) struct Program {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    /// The remedy if it cannot run.
    pub(super) remedy: &'static str,
    pub(super) rows: &'static [Row],
}

impl Program {
    /// Returns true if it is a script in `tests/interop`.
    pub(super) fn is_script(&self) -> bool {
        matches!(self.kind, Kind::Script | Kind::Turns)
    }

    /// Returns the arguments.
    pub(super) fn arguments(&self, length: RunLength) -> Vec<String> {
        match self.kind {
            Kind::Table | Kind::Script => vec![length.routes_v4.to_string(), length.routes_v6.to_string()],
            Kind::Rates => vec!["1".to_owned()],
            Kind::Turns => Vec::new(),
        }
    }

    /// Returns the setting of the rows in words.
    pub(super) fn asked(&self, length: RunLength) -> String {
        let table = format!("{} IPv4 and {} IPv6 routes", length.routes_v4, length.routes_v6);
        match self.kind {
            Kind::Table => table,
            Kind::Rates => "one worker, 64 bytes, 10,000 routes".to_owned(),
            Kind::Script => format!("a running router, {table}"),
            Kind::Turns => "a running router, 64 bytes, 65,536 routes, in turn".to_owned(),
        }
    }
}

/// The time of a lookup in nanoseconds, on one core.
const LOOKUP: Gate = Gate::AtMost(25.0);
/// Routes per second, from a decoded stream into the FIB.
const PROGRAMMING: Gate = Gate::AtLeast(400_000.0);
/// Changes per second beside forwarding, which the program asks for: the machine may sleep a little longer.
const CHANGES_BESIDE: Gate = Gate::AtLeast(95_000.0);
/// Changes per second that are sustained.
const CHANGES: Gate = Gate::AtLeast(100_000.0);

pub(super) const PROGRAMS: [Program; 5] = [
    Program {
        name: "lookup",
        kind: Kind::Table,
        remedy: "cargo build --release -p millrace-fib --examples",
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
        kind: Kind::Table,
        remedy: "cargo build --release -p millrace-rib --examples",
        rows: &[
            row("R3", "RIB and FIB, routes programmed", PROGRAMMING, "routes/s"),
            row("R3", "RIB and FIB, routes moved", CHANGES, "changes/s"),
            row("R3", "RIB and FIB, memory", Gate::AtMost(400.0), "MiB"),
        ],
    },
    Program {
        name: "rates",
        kind: Kind::Rates,
        remedy: "cargo build --release -p millrace-router --examples",
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
            row("R4", "routed while routes change", Gate::None, "ns"),
            row("R4", "bridged to 10,000 hosts", Gate::None, "ns"),
            row("R4", "bridged to one host", Gate::None, "ns"),
            row(
                "R9",
                "rate of routing while routes change / rate of routing",
                Gate::AtLeast(0.97),
                "",
            ),
            row(
                "R9",
                "routes changed while packets are routed",
                CHANGES_BESIDE,
                "changes/s",
            ),
        ],
    },
    Program {
        name: "live_routes.py",
        kind: Kind::Script,
        remedy: "run it as root in the folder of the sources, or give --sources; scripts/setup.sh installs what it needs",
        rows: &[
            row(
                "R5",
                "rate over veth / rate of the kernel",
                Gate::AtLeast(10.0),
                "",
            ),
            row("R5", "packets over veth by the router", Gate::None, "packets/s"),
            row("R5", "packets over veth by the kernel", Gate::None, "packets/s"),
            row(
                "R7",
                "convergence, the port of half of a group goes down",
                Gate::AtMost(10.0),
                "ms",
            ),
            row(
                "R7",
                "convergence, the group of all routes is replaced",
                Gate::AtMost(20.0),
                "ms",
            ),
            row(
                "R8",
                "live table, routes taken over from the kernel",
                Gate::None,
                "routes/s",
            ),
            row(
                "R8",
                "show routes, longest page of 10,000 by REST",
                Gate::AtMost(250.0),
                "ms",
            ),
            row("R8", "show routes, all pages by REST", Gate::None, "s"),
            row("R8", "show routes, all by the command line", Gate::None, "s"),
            row(
                "R8",
                "show routes, first line by the command line",
                Gate::None,
                "ms",
            ),
        ],
    },
    Program {
        name: "beside_l3fwd.py",
        kind: Kind::Turns,
        remedy: "run it as root in the folder of the sources, or give --sources; scripts/setup.sh l3fwd builds l3fwd",
        rows: &[
            row(
                "R6",
                "rate of routing / rate of dpdk-l3fwd",
                Gate::AtLeast(0.9),
                "",
            ),
            row("R6", "packets routed by 65,536 routes", Gate::None, "packets/s"),
            row("R6", "packets routed by l3fwd", Gate::None, "packets/s"),
        ],
    },
];
