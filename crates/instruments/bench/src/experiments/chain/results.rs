//! The points of a run, printed and recorded as they are measured, with ratios to other points of the same round.

use std::collections::HashMap;
use std::io::Write as _;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use millrace_report::stats::Summary;

use super::error::{ChainBenchError, failed};
use super::plan::GAP_SIZE;
use super::record::Point;
use crate::experiments::guests::System;
use crate::machine::Machine;
use crate::record::{Log, Record};

/// The names of Open vSwitch in the results: with functions that use DPDK's virtio driver, and with functions that use
/// ours.
pub(super) const OVS: &str = "ovs-virtio-user";
pub(super) const OVS_VHOST: &str = "ovs-vhost";

/// Returns the name of the system that a kind is compared with.
pub(super) fn peer_of(kind: &str) -> &'static str {
    match kind {
        "vhost" | OVS_VHOST => OVS_VHOST,
        kind if kind.contains("guest") => System::OvsDpdk.chain(),
        _ => OVS,
    }
}

/// The points measured so far.
pub(super) struct Results {
    json: bool,
    pub(super) log: Log,
    /// The number of rounds after this one.
    pub(super) rounds_left: u16,
    /// The rates measured so far, by kind, length and frame size.
    rates: HashMap<(&'static str, u16, u16), Vec<f64>>,
    /// The length that ratios refer to, by kind and frame size: the first one measured.
    reference_lengths: HashMap<(&'static str, u16), u16>,
}

impl Results {
    /// Starts a run whose records go to the folder `out`.
    pub(super) fn begin(
        experiment: &str,
        out: &Path,
        quick: bool,
        json: bool,
    ) -> Result<Results, ChainBenchError> {
        std::fs::create_dir_all(out).map_err(failed(out))?;
        let path = out.join(format!("{experiment}.jsonl"));
        let mut log = Log::create(&path).map_err(failed(&path))?;
        let started = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_secs());
        log.add(Record::Run {
            experiment: experiment.to_owned(),
            started,
            quick,
            machine: Box::new(Machine::describe(0)),
            command: std::env::args().collect::<Vec<_>>().join(" "),
        })
        .map_err(failed(&path))?;
        let results = Results {
            json,
            log,
            rounds_left: 0,
            rates: HashMap::new(),
            reference_lengths: HashMap::new(),
        };
        if !json {
            results.print(&format!(
                "{:15} {:>6} {:>6} {:>9} {:>9} {:>9} {:>9}",
                "kind", "length", "frame", "Mpps", "Gbit/s", "of one", "of OVS"
            ))?;
        }
        Ok(results)
    }

    fn print(&self, line: &str) -> Result<(), ChainBenchError> {
        writeln!(std::io::stdout().lock(), "{line}").map_err(failed(Path::new("standard output")))
    }

    /// Returns the median of the ratios of two rates. Each ratio is of one round, so that both rates were measured
    /// within a short time: a disturbance of some seconds affects both.
    fn ratio(&self, of: (&'static str, u16, u16), to: (&'static str, u16, u16)) -> Option<f64> {
        let pairs = self.rates.get(&of)?.iter().zip(self.rates.get(&to)?);
        let ratios: Vec<f64> = pairs.map(|(of, to)| of / to).collect();
        Summary::of(&ratios).map(|summary| summary.median)
    }

    /// Adds the rate of one round. In the last round, prints and records the median.
    pub(super) fn add(
        &mut self,
        kind: &'static str,
        length: u16,
        frame: u16,
        rate: f64,
    ) -> Result<(), ChainBenchError> {
        let rates = self.rates.entry((kind, length, frame)).or_default();
        rates.push(rate);
        if self.rounds_left != 0 {
            return Ok(());
        }
        let rate = Summary::of(rates).map_or(rate, |summary| summary.median);
        let of = (kind, length, frame);
        let one = *self.reference_lengths.entry((kind, frame)).or_insert(length);
        let point = Point {
            kind: kind.to_owned(),
            length,
            frame,
            mpps: rate / 1e6,
            gbps: rate * f64::from(frame + GAP_SIZE) * 8.0 / 1e9,
            ratio_one_hop: self.ratio(of, (kind, one, frame)).unwrap_or(1.0),
            ratio_ovs: self.ratio(of, (peer_of(kind), length, frame)),
        };
        let path = self.log.path().to_owned();
        self.log
            .add(Record::Chain(Box::new(point.clone())))
            .map_err(failed(&path))?;
        self.print(&match self.json {
            true => serde_json::to_string(&point).unwrap_or_default(),
            false => format!(
                "{:15} {:>6} {:>6} {:>9.3} {:>9.3} {:>9.2} {:>9}",
                point.kind,
                length,
                frame,
                point.mpps,
                point.gbps,
                point.ratio_one_hop,
                point
                    .ratio_ovs
                    .map_or_else(String::new, |ratio| format!("{ratio:.2}"))
            ),
        })
    }
}
