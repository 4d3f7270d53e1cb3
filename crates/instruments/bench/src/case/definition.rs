//! The definition of a case: the workload that is offered, the systems that take part, and the targets of Millrace.

use crate::workload::{PACKETS_MIN, Shape};

/// The rate that a target refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Baseline {
    /// Open vSwitch with DPDK, in the better of its configurations.
    Ovs,
    /// Open vSwitch with DPDK as shipped.
    OvsShipped,
    /// Open vSwitch with DPDK, tuned.
    OvsTuned,
    /// testpmd with the same packets.
    Testpmd,
    /// Millrace in another case of the same run.
    Own(&'static str),
    /// An earlier build of Millrace in the same case of the same run (`--before`).
    Before,
}

/// A ratio of rates that Millrace must reach.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Target {
    /// The denominator of the ratio.
    pub baseline: Baseline,
    /// The smallest ratio that meets the target.
    pub at_least: f64,
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ratio = self.at_least;
        match self.baseline {
            Baseline::Ovs => write!(f, "{ratio}x ovs-dpdk"),
            Baseline::OvsShipped => write!(f, "{ratio}x ovs-dpdk as shipped"),
            Baseline::OvsTuned => write!(f, "{ratio}x ovs-dpdk tuned"),
            Baseline::Testpmd => write!(f, "{ratio} of testpmd io"),
            Baseline::Own(case) => write!(f, "{ratio} of our {case}"),
            Baseline::Before => write!(f, "{ratio} of the build before"),
        }
    }
}

/// The source of the packets for the system under test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PacketSource {
    /// The driver `net_pcap` of DPDK replays the packets within the system.
    Replay,
    /// A generator sends the packets over memif and counts those that return. Used if the packets do not fit
    /// into the pool of a system.
    Generator,
}

/// The target of every case that an earlier build was measured in as well.
pub(crate) const NO_SLOWER: Target = target(Baseline::Before, 0.95);

/// A case: one row of the table for each system.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Case {
    /// The name on the command line.
    pub name: &'static str,
    /// The title in the report.
    pub title: &'static str,
    /// The rules and packets.
    pub shape: Shape,
    /// The smallest number of packets in a file; flows are repeated to reach it.
    pub packets_min: usize,
    /// The source of the packets.
    pub source: PacketSource,
    /// The number of forwarding threads, each with an ingress port of its own.
    pub workers: usize,
    /// The systems that take part by default.
    pub systems: &'static [&'static str],
    /// The case of Millrace that `ratio_self` refers to.
    pub own: &'static str,
    /// The targets of Millrace.
    pub targets: &'static [Target],
}

impl Case {
    /// Returns the approximate numbers of rules and packets.
    pub fn lens(&self) -> (usize, usize) {
        let (rules, flows) = self.shape.lens();
        (rules, flows.max(self.packets_min))
    }

    /// Returns true if a target refers to testpmd.
    pub fn is_against_testpmd(&self) -> bool {
        self.targets
            .iter()
            .any(|target| target.baseline == Baseline::Testpmd)
    }
}

/// A group of cases that are measured by one command.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Experiment {
    /// The name on the command line.
    pub name: &'static str,
    /// The question that the experiment answers.
    pub title: &'static str,
    /// The cases, in the order of the table.
    pub cases: &'static [Case],
}

pub(super) const fn target(baseline: Baseline, at_least: f64) -> Target {
    Target { baseline, at_least }
}

pub(super) const ONE_RULE: &str = "one-rule";

pub(super) const ALL: &[&str] = &["testpmd-io", "millrace", "ovs-dpdk", "ovs-dpdk-tuned"];
/// The systems of cases that leave out Open vSwitch as shipped: its measurement takes minutes and shows
/// little.
pub(super) const BEST: &[&str] = &["testpmd-io", "millrace", "ovs-dpdk-tuned"];
pub(super) const SWITCHES: &[&str] = &["millrace", "ovs-dpdk", "ovs-dpdk-tuned"];
/// The systems with and without the cache of traversals.
pub(super) const BY_TABLES: &[&str] = &["millrace", "millrace-no-cache", "ovs-dpdk", "ovs-dpdk-tuned"];

/// The defaults of a case.
pub(super) const DEFAULT: Case = Case {
    name: "",
    title: "",
    shape: Shape::OneRule,
    packets_min: PACKETS_MIN,
    source: PacketSource::Replay,
    workers: 1,
    systems: ALL,
    own: ONE_RULE,
    targets: &[],
};
