//! The points of a run, printed and recorded as they are measured, with ratios to other points of the same round.

use std::collections::HashMap;
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

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

/// A kind, a length and a frame size.
type Key = (&'static str, u16, u16);

/// The points measured so far.
pub(super) struct Results {
    experiment: String,
    json: bool,
    pub(super) log: Log,
    /// The number of rounds after this one.
    pub(super) rounds_left: u16,
    /// The rates measured so far, by kind, length and frame size.
    rates: HashMap<Key, Vec<f64>>,
    /// The points whose medians are not recorded yet, in the order of measurement.
    unrecorded: Vec<Key>,
    /// The length that ratios refer to, by kind and frame size: the first one measured.
    reference_lengths: HashMap<(&'static str, u16), u16>,
    /// The kinds that failed: they are not measured in later rounds.
    failed: Vec<&'static str>,
    first_error: Option<ChainBenchError>,
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
            experiment: experiment.to_owned(),
            json,
            log,
            rounds_left: 0,
            rates: HashMap::new(),
            unrecorded: Vec::new(),
            reference_lengths: HashMap::new(),
            failed: Vec::new(),
            first_error: None,
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
    fn ratio(&self, of: Key, to: Key) -> Option<f64> {
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
        let of = (kind, length, frame);
        let rates = self.rates.entry(of).or_default();
        if rates.is_empty() {
            self.unrecorded.push(of);
        }
        rates.push(rate);
        match self.rounds_left {
            0 => self.record(of),
            _ => Ok(()),
        }
    }

    /// Measures a kind, unless it failed in an earlier round. A failure is recorded, and the other kinds continue.
    ///
    /// # Errors
    /// [`ChainBenchError`]: SIGINT was received, or the records cannot be written.
    pub(super) fn measure(
        &mut self,
        kind: &'static str,
        measure: impl FnOnce(&mut Results) -> Result<(), ChainBenchError>,
    ) -> Result<(), ChainBenchError> {
        if self.failed.contains(&kind) {
            return Ok(());
        }
        let Err(error) = measure(self) else {
            return Ok(());
        };
        // An interrupt also ends tools, whose failure must not hide it.
        millrace_process::pause(Duration::ZERO)?;
        eprintln!("{kind}: {error}");
        self.failed.push(kind);
        let path = self.log.path().to_owned();
        let record = Record::Failed {
            case: self.experiment.clone(),
            system: kind.to_owned(),
            quantity: None,
            reason: error.to_string(),
        };
        self.log.add(record).map_err(failed(&path))?;
        self.first_error.get_or_insert(error);
        Ok(())
    }

    /// Ends a run with this outcome. Prints and records the medians of the points that were not measured in
    /// the last round.
    ///
    /// # Errors
    /// [`ChainBenchError`]: that of the run, or of the first kind that failed.
    pub(super) fn finish(mut self, outcome: Result<(), ChainBenchError>) -> Result<(), ChainBenchError> {
        for of in self.unrecorded.clone() {
            self.record(of)?;
        }
        outcome?;
        self.first_error.map_or(Ok(()), Err)
    }

    /// Prints and records the median of a point.
    fn record(&mut self, of @ (kind, length, frame): Key) -> Result<(), ChainBenchError> {
        self.unrecorded.retain(|other| *other != of);
        let rates = self.rates.get(&of).and_then(|rates| Summary::of(rates));
        let Some(rate) = rates.map(|rates| rates.median) else {
            return Ok(());
        };
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record;

    fn no_packets() -> ChainBenchError {
        ChainBenchError::NoPackets {
            length: 2,
            kind: "ring",
            reason: "its hops do not start".to_owned(),
            log: String::new(),
        }
    }

    #[test]
    fn the_rounds_before_a_failure_are_recorded() {
        let dir = tempfile::tempdir().unwrap();
        let mut results = Results::begin("chain", dir.path(), true, true).unwrap();
        for (left, rate) in [(2, 1e6), (1, 3e6)] {
            results.rounds_left = left;
            results
                .measure("inline", |results| results.add("inline", 1, 64, rate))
                .unwrap();
            let ring = |results: &mut Results| {
                results.add("ring", 1, 64, rate)?;
                Err(no_packets())
            };
            results.measure("ring", ring).unwrap();
        }
        let interrupted = Err(millrace_process::ProcessError::Interrupted.into());
        let ended = results.finish(interrupted).unwrap_err();
        assert!(matches!(ended, ChainBenchError::Process(_)), "{ended}");
        let records = record::read(&dir.path().join("chain.jsonl")).unwrap();
        let points: Vec<(&str, f64)> = records
            .iter()
            .filter_map(|record| match record {
                Record::Chain(point) => Some((point.kind.as_str(), point.mpps)),
                _ => None,
            })
            .collect();
        // The kind that failed in the first round was not measured in the second one.
        assert_eq!(points, [("inline", 2.0), ("ring", 1.0)]);
        let reason = record::failure(&records, "chain", "ring", None).unwrap();
        assert!(reason.contains("its hops do not start"), "{reason}");
    }

    #[test]
    fn a_run_in_which_a_kind_failed_ends_with_its_error_and_has_each_point_once() {
        let dir = tempfile::tempdir().unwrap();
        let mut results = Results::begin("chain", dir.path(), true, true).unwrap();
        results.measure("ring", |_| Err(no_packets())).unwrap();
        results
            .measure("inline", |results| results.add("inline", 1, 64, 1e6))
            .unwrap();
        let error = results.finish(Ok(())).unwrap_err();
        assert!(error.to_string().contains("its hops do not start"), "{error}");
        let records = record::read(&dir.path().join("chain.jsonl")).unwrap();
        let points = records.iter().filter(|record| matches!(record, Record::Chain(_)));
        assert_eq!(points.count(), 1);
    }
}
