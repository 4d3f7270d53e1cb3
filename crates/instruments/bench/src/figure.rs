//! What is measured besides rates of packets, as data: quantities, their units, and what is wanted of
//! Millrace.

use std::fmt;

use crate::record::Record;
use millrace_report::stats::Summary;

/// What is wanted of a quantity.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Bound {
    /// No more than this.
    AtMost(f64),
    /// No less than this.
    AtLeast(f64),
    /// None at all, in any round: the most of all rounds counts, and not their median.
    Never,
    /// Nothing: it is there to be read.
    None,
}

/// A quantity.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Quantity {
    /// The case that it belongs to.
    pub case: &'static str,
    /// Its name.
    pub name: &'static str,
    /// What it is, in words.
    pub title: &'static str,
    /// Its unit.
    pub unit: &'static str,
    /// What is wanted of Millrace.
    pub bound: Bound,
}

impl Quantity {
    /// What was measured of it for a system.
    pub(crate) fn values(&self, records: &[Record], of_system: &str) -> Vec<f64> {
        let value = |record: &Record| match record {
            Record::Figure {
                case,
                system,
                quantity,
                value,
                ..
            } if case == self.case && system == of_system && quantity == self.name => Some(*value),
            _ => None,
        };
        records.iter().filter_map(value).collect()
    }

    /// What many rounds say together; `None` if there were none.
    pub fn sum_up(&self, values: &[f64]) -> Option<f64> {
        let summary = Summary::of(values)?;
        Some(match self.bound {
            Bound::Never => summary.max,
            Bound::AtMost(_) | Bound::AtLeast(_) | Bound::None => summary.median,
        })
    }

    /// Whether a value is as wanted; `None` where nothing is.
    pub fn met(&self, value: f64) -> Option<bool> {
        match self.bound {
            Bound::AtMost(most) => Some(value <= most),
            Bound::AtLeast(least) => Some(value >= least),
            Bound::Never => Some(value <= 0.0),
            Bound::None => None,
        }
    }

    /// What is wanted, in words: `at most 6 s`.
    pub fn target(&self) -> Option<String> {
        let unit = self.unit;
        match self.bound {
            Bound::AtMost(most) => Some(format!("at most {most} {unit}")),
            Bound::AtLeast(least) => Some(format!("at least {least} {unit}")),
            Bound::Never => Some(format!("no {unit} in any round")),
            Bound::None => None,
        }
        .map(|text| text.trim_end().to_owned())
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.case, self.name)
    }
}

/// A million entries come and go.
pub const INSTALL: &str = "install-1m";
/// Entries change while packets of others pass.
pub const UPDATES: &str = "updates-100k";
/// A table grows while packets pass.
pub const GROW: &str = "grow-500k";
/// Frames between hosts over veth pairs.
pub const VETH: &str = "veth";
/// The highest rate without loss.
pub const RATE: &str = "rate";
/// How long packets take.
pub const LATENCY: &str = "latency";
/// A learning bridge.
pub const BRIDGE: &str = "bridge";
/// Whether rates are held, and how long urgent packets wait.
pub const QOS: &str = "qos";

/// Virtual machines behind the ports of a switch.
pub const GUESTS: &str = "guests";

const fn quantity(
    case: &'static str,
    name: &'static str,
    title: &'static str,
    unit: &'static str,
    bound: Bound,
) -> Quantity {
    Quantity {
        case,
        name,
        title,
        unit,
        bound,
    }
}

/// All of them, in the order of the table.
pub const QUANTITIES: &[Quantity] = &[
    quantity(
        INSTALL,
        "install",
        "ovs-ofctl --bundle add-flows of 1,000,000 entries",
        "s",
        Bound::AtMost(6.0),
    ),
    quantity(
        INSTALL,
        "memory",
        "growth of the process for an entry, huge pages included",
        "B/entry",
        Bound::AtMost(400.0),
    ),
    quantity(
        INSTALL,
        "delete",
        "ovs-ofctl del-flows of all, with its barrier",
        "s",
        Bound::AtMost(1.0),
    ),
    quantity(
        INSTALL,
        "expire",
        "from the first entry that times out to the last",
        "s",
        Bound::None,
    ),
    quantity(
        INSTALL,
        "expire-echo",
        "longest echo round trip while all entries time out",
        "ms",
        Bound::AtMost(50.0),
    ),
    quantity(
        INSTALL,
        "expire-gap",
        "longest pause in forwarding while all entries time out",
        "ms",
        Bound::AtMost(50.0),
    ),
    quantity(
        GROW,
        "flow-mods",
        "flow_mods a second into a table that grows to 500,000 entries, a barrier every 1,000",
        "/s",
        Bound::AtLeast(100_000.0),
    ),
    quantity(
        GROW,
        "last-fifth",
        "the same for the last 100,000",
        "/s",
        Bound::AtLeast(100_000.0),
    ),
    quantity(
        GROW,
        "barrier",
        "longest time between two barrier replies",
        "ms",
        Bound::None,
    ),
    quantity(
        GROW,
        "throughput",
        "packets a second meanwhile, relative to quiet",
        "",
        Bound::None,
    ),
    quantity(
        UPDATES,
        "flow-mods",
        "flow_mods a second that were taken while the generator measured",
        "/s",
        Bound::AtLeast(9_900.0),
    ),
    quantity(
        UPDATES,
        "lost",
        "packets that were offered during the updates and did not come back",
        "packets",
        Bound::Never,
    ),
    quantity(
        UPDATES,
        "quiet-lost",
        "packets that were offered while nothing changed and did not come back",
        "packets",
        Bound::None,
    ),
    quantity(
        UPDATES,
        "throughput",
        "packets a second flat out during the updates, relative to quiet",
        "",
        Bound::AtLeast(0.9),
    ),
    quantity(
        UPDATES,
        "p99.9",
        "99.9th percentile of latency during the updates, relative to quiet",
        "",
        Bound::AtMost(2.0),
    ),
    quantity(
        UPDATES,
        "quiet-p99.9",
        "the same while nothing changes",
        "us",
        Bound::None,
    ),
    quantity(
        UPDATES,
        "busy-p99.9",
        "99.9th percentile of latency during the updates",
        "us",
        Bound::None,
    ),
    quantity(
        GUESTS,
        "pair",
        "one TCP stream from a virtual machine to another on the same switch",
        "Mbit/s",
        Bound::None,
    ),
    quantity(
        GUESTS,
        "pair-switches",
        "context switches of the switch's threads a second, meanwhile",
        "1/s",
        Bound::None,
    ),
    quantity(
        GUESTS,
        "pair-frame",
        "bytes of a frame that the sending machine gave to the switch, on average",
        "B",
        Bound::None,
    ),
    quantity(
        GUESTS,
        "host",
        "one TCP stream from a virtual machine to a host on a link",
        "Mbit/s",
        Bound::None,
    ),
    quantity(
        GUESTS,
        "host-switches",
        "context switches of the switch's threads a second, meanwhile",
        "1/s",
        Bound::None,
    ),
    quantity(
        GUESTS,
        "host-frame",
        "bytes of a frame that the sending machine gave to the switch, on average",
        "B",
        Bound::None,
    ),
    quantity(
        VETH,
        "64",
        "64-byte frames a second that arrived, over veth pairs",
        "kpps",
        Bound::None,
    ),
    quantity(
        VETH,
        "64-sent",
        "64-byte frames a second that were sent",
        "kpps",
        Bound::None,
    ),
    quantity(
        VETH,
        "1518",
        "1518-byte frames a second that arrived, over veth pairs",
        "kpps",
        Bound::None,
    ),
    quantity(
        VETH,
        "1518-sent",
        "1518-byte frames a second that were sent",
        "kpps",
        Bound::None,
    ),
    quantity(
        RATE,
        "64",
        "highest rate without loss, 64-byte frames",
        "Mpps",
        Bound::None,
    ),
    quantity(
        RATE,
        "128",
        "highest rate without loss, 128-byte frames",
        "Mpps",
        Bound::None,
    ),
    quantity(
        RATE,
        "256",
        "highest rate without loss, 256-byte frames",
        "Mpps",
        Bound::None,
    ),
    quantity(
        RATE,
        "512",
        "highest rate without loss, 512-byte frames",
        "Mpps",
        Bound::None,
    ),
    quantity(
        RATE,
        "1024",
        "highest rate without loss, 1024-byte frames",
        "Mpps",
        Bound::None,
    ),
    quantity(
        RATE,
        "1280",
        "highest rate without loss, 1280-byte frames",
        "Mpps",
        Bound::None,
    ),
    quantity(
        RATE,
        "1518",
        "highest rate without loss, 1518-byte frames",
        "Mpps",
        Bound::None,
    ),
    quantity(
        RATE,
        "imix",
        "highest rate without loss, IMIX (7 of 64, 4 of 594, 1 of 1518 bytes)",
        "Mpps",
        Bound::None,
    ),
    quantity(
        BRIDGE,
        "table-size",
        "MAC addresses that the bridge is configured to hold",
        "addresses",
        Bound::None,
    ),
    quantity(
        BRIDGE,
        "capacity",
        "MAC addresses that are held, none of them flooded (RFC 2889, section 5.7)",
        "addresses",
        Bound::None,
    ),
    quantity(
        BRIDGE,
        "learning",
        "highest rate of new MAC addresses of which 8,000 are all learned (RFC 2889, section 5.8)",
        "/s",
        Bound::None,
    ),
    quantity(
        BRIDGE,
        "broadcast",
        "highest rate of 64-byte broadcast frames that all come out of both other ports (RFC 2889, section 5.10)",
        "Mpps",
        Bound::None,
    ),
    quantity(
        BRIDGE,
        "right",
        "64-byte frames to a known address that are forwarded",
        "%",
        Bound::None,
    ),
    quantity(
        BRIDGE,
        "runts",
        "63-byte frames that are forwarded, of which a link of Ethernet has none (RFC 2889, section 5.9)",
        "%",
        Bound::None,
    ),
    quantity(
        BRIDGE,
        "oversized",
        "1600-byte frames that are forwarded between ports of an MTU of 1500 (RFC 2889, section 5.9)",
        "%",
        Bound::None,
    ),
    quantity(
        LATENCY,
        "10%-p50",
        "median latency at 10 % of the highest rate without loss",
        "us",
        Bound::None,
    ),
    quantity(
        LATENCY,
        "10%-p90",
        "90th percentile of latency at 10 % of the highest rate without loss",
        "us",
        Bound::None,
    ),
    quantity(
        LATENCY,
        "10%-p99",
        "99th percentile of latency at 10 % of the highest rate without loss",
        "us",
        Bound::None,
    ),
    quantity(
        LATENCY,
        "10%-p99.9",
        "99.9th percentile of latency at 10 % of the highest rate without loss",
        "us",
        Bound::None,
    ),
    quantity(
        LATENCY,
        "10%-p99.99",
        "99.99th percentile of latency at 10 % of the highest rate without loss",
        "us",
        Bound::None,
    ),
    quantity(
        LATENCY,
        "10%-max",
        "greatest latency at 10 % of the highest rate without loss",
        "us",
        Bound::None,
    ),
    quantity(
        LATENCY,
        "50%-p50",
        "median latency at 50 % of the highest rate without loss",
        "us",
        Bound::None,
    ),
    quantity(
        LATENCY,
        "50%-p90",
        "90th percentile of latency at 50 % of the highest rate without loss",
        "us",
        Bound::None,
    ),
    quantity(
        LATENCY,
        "50%-p99",
        "99th percentile of latency at 50 % of the highest rate without loss",
        "us",
        Bound::None,
    ),
    quantity(
        LATENCY,
        "50%-p99.9",
        "99.9th percentile of latency at 50 % of the highest rate without loss",
        "us",
        Bound::None,
    ),
    quantity(
        LATENCY,
        "50%-p99.99",
        "99.99th percentile of latency at 50 % of the highest rate without loss",
        "us",
        Bound::None,
    ),
    quantity(
        LATENCY,
        "50%-max",
        "greatest latency at 50 % of the highest rate without loss",
        "us",
        Bound::None,
    ),
    quantity(
        LATENCY,
        "90%-p50",
        "median latency at 90 % of the highest rate without loss",
        "us",
        Bound::None,
    ),
    quantity(
        LATENCY,
        "90%-p90",
        "90th percentile of latency at 90 % of the highest rate without loss",
        "us",
        Bound::None,
    ),
    quantity(
        LATENCY,
        "90%-p99",
        "99th percentile of latency at 90 % of the highest rate without loss",
        "us",
        Bound::None,
    ),
    quantity(
        LATENCY,
        "90%-p99.9",
        "99.9th percentile of latency at 90 % of the highest rate without loss",
        "us",
        Bound::None,
    ),
    quantity(
        LATENCY,
        "90%-p99.99",
        "99.99th percentile of latency at 90 % of the highest rate without loss",
        "us",
        Bound::None,
    ),
    quantity(
        LATENCY,
        "90%-max",
        "greatest latency at 90 % of the highest rate without loss",
        "us",
        Bound::None,
    ),
    quantity(
        QOS,
        "meter-error",
        "the farthest that a meter was from its rate, any rate, size and number of workers",
        "%",
        Bound::AtMost(1.0),
    ),
    quantity(
        QOS,
        "shaper-error",
        "the farthest that a shaper was from its rate, any rate, size and number of workers",
        "%",
        Bound::AtMost(2.0),
    ),
    quantity(
        QOS,
        "alone-p50",
        "median latency of urgent packets while nothing else wants the port",
        "us",
        Bound::None,
    ),
    quantity(
        QOS,
        "alone-p99",
        "99th percentile of latency of urgent packets while nothing else wants the port",
        "us",
        Bound::None,
    ),
    quantity(
        QOS,
        "alone-max",
        "greatest latency of urgent packets while nothing else wants the port",
        "us",
        Bound::None,
    ),
    quantity(
        QOS,
        "priority-p50",
        "median latency of urgent packets while the port is flooded and they have strict priority",
        "us",
        Bound::None,
    ),
    quantity(
        QOS,
        "priority-p99",
        "99th percentile of latency of urgent packets while the port is flooded and they have strict priority",
        "us",
        Bound::AtMost(1000.0),
    ),
    quantity(
        QOS,
        "priority-max",
        "greatest latency of urgent packets while the port is flooded and they have strict priority",
        "us",
        Bound::None,
    ),
    quantity(
        QOS,
        "same-p50",
        "median latency of urgent packets while the port is flooded and they wait with all others",
        "us",
        Bound::None,
    ),
    quantity(
        QOS,
        "same-p99",
        "99th percentile of latency of urgent packets while the port is flooded and they wait with all others",
        "us",
        Bound::None,
    ),
    quantity(
        QOS,
        "same-max",
        "greatest latency of urgent packets while the port is flooded and they wait with all others",
        "us",
        Bound::None,
    ),
];

/// Returns the quantity of that name in a case.
pub fn find(case: &str, name: &str) -> Option<&'static Quantity> {
    QUANTITIES
        .iter()
        .find(|quantity| quantity.case == case && quantity.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_decides_whether_a_value_is_as_wanted() {
        let install = find(INSTALL, "install").unwrap();
        assert_eq!((install.met(6.0), install.met(6.1)), (Some(true), Some(false)));
        assert_eq!(install.target().as_deref(), Some("at most 6 s"));
        let throughput = find(UPDATES, "throughput").unwrap();
        assert_eq!(
            (throughput.met(0.95), throughput.met(0.8)),
            (Some(true), Some(false))
        );
        assert_eq!(throughput.target().as_deref(), Some("at least 0.9"));
        assert_eq!(find(INSTALL, "expire").unwrap().met(1.0), None);
    }

    #[test]
    fn what_may_never_happen_is_judged_by_the_worst_round() {
        let lost = find(UPDATES, "lost").unwrap();
        let rounds = [0.0, 0.0, 0.0, 7.0, 0.0];
        assert_eq!(lost.sum_up(&rounds), Some(7.0));
        assert_eq!(lost.met(7.0), Some(false));
        assert_eq!(lost.target().as_deref(), Some("no packets in any round"));
        assert_eq!(find(UPDATES, "throughput").unwrap().sum_up(&rounds), Some(0.0));
        assert_eq!(lost.sum_up(&[]), None);
    }

    #[test]
    fn a_case_has_each_quantity_once() {
        for (place, quantity) in QUANTITIES.iter().enumerate() {
            let same = |other: &Quantity| (other.case, other.name) == (quantity.case, quantity.name);
            assert_eq!(QUANTITIES.iter().position(same), Some(place));
        }
    }
}
