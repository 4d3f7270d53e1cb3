//! Rows that are measured over the test bed. Cases of a row that need the same path share it. The failure of
//! a row is recorded, and the other rows continue.

mod costs;
mod dynamics;
mod goodput;
mod group;
mod robust;

use super::arguments::{Experiment, RowNumber};
use super::calibrate::calibrate;
use super::error::TransportBenchError;
use super::files;
use super::millrace::{Outcome, Receiver, Transfer};
use super::record::Transferred;
use super::recorder::Recorder;
use super::test_bed::{PathSettings, TestBed, obstacle};
use crate::gated::recorder::left_out;

/// The highest rate of the link, in bit/s.
const LINK_MAX_BPS: f64 = 1e9;
/// The ratio of a packet's payload to its Ethernet frame with check sequence.
const PAYLOAD_SHARE: f64 = 1_424.0 / 1_514.0;
/// The number of round trips of the ramp (row T7 of docs/gates.md).
const RAMP_RTTS: f64 = 18.0;

/// Measures the live rows.
pub(super) fn measure(
    experiment: &Experiment,
    recorder: &mut Recorder<'_>,
) -> Result<(), TransportBenchError> {
    let rows = &experiment.rows;
    if rows.is_empty() {
        return Ok(());
    }
    let missing = |recorder: &mut Recorder<'_>, reason: &str| {
        rows.iter()
            .try_for_each(|row| recorder.missing(&left_out(format!("{row:?} live"), ""), reason))
    };
    if let Some(reason) = obstacle(&experiment.program) {
        return missing(recorder, &reason);
    }
    let mut live = match Live::up(experiment, recorder) {
        Ok(live) => live,
        Err(error) if error.ends_the_run() => return Err(error),
        Err(error) => return missing(recorder, &error.to_string()),
    };
    for row in rows.iter().copied() {
        (recorder.progress)(&format!("{row:?}, live"));
        // Rows that consist of many transfers, or that check a fixed limit, are measured once.
        let rounds = match row {
            RowNumber::T10 | RowNumber::T11 | RowNumber::T12 | RowNumber::T13 | RowNumber::T15 => 1,
            _ => recorder.length.rounds,
        };
        let first = recorder.recorded();
        for round in 0..rounds {
            match live.row(experiment, recorder, row, round) {
                Ok(()) => {}
                Err(error) if error.ends_the_run() => return Err(error),
                Err(error @ TransportBenchError::File { .. }) => return Err(error),
                Err(error) => {
                    row_failed(recorder, row, (first, rounds), &error.to_string())?;
                    break;
                }
            }
        }
    }
    Ok(())
}

/// Records that a round of a row failed. Cases of the row, whose records begin at `first`, may have fewer values than
/// `rounds`, and further cases may be left out.
fn row_failed(
    recorder: &mut Recorder<'_>,
    row: RowNumber,
    (first, rounds): (usize, usize),
    reason: &str,
) -> Result<(), TransportBenchError> {
    recorder.incomplete_from(first, rounds, reason)?;
    recorder.missing(&left_out(format!("{row:?} live"), ""), reason)
}

/// The test bed with its calibrated link.
struct Live {
    test_bed: TestBed,
}

impl Live {
    fn up(experiment: &Experiment, recorder: &mut Recorder<'_>) -> Result<Live, TransportBenchError> {
        let mut test_bed = TestBed::up(&experiment.program, experiment.core)?;
        let link = match experiment.link_bps {
            Some(bps) => bps as f64,
            None => (calibrate(&mut test_bed, recorder.progress)? / 2.0).min(LINK_MAX_BPS),
        };
        (recorder.progress)(&format!("  the link has {:.0} Mbit/s", link / 1e6));
        test_bed.link_bps = link;
        Ok(Live { test_bed })
    }

    fn row(
        &mut self,
        experiment: &Experiment,
        recorder: &mut Recorder<'_>,
        row: RowNumber,
        round: usize,
    ) -> Result<(), TransportBenchError> {
        match row {
            RowNumber::T1 => self.goodput(recorder, round),
            RowNumber::T2 => self.rivals(recorder, round),
            RowNumber::T3 => self.multicast(recorder, round),
            RowNumber::T4 => self.ten_receivers(recorder, round),
            RowNumber::T5 => {
                self.straggler(recorder, round)?;
                self.late_joiner(recorder, round)
            }
            RowNumber::T6 => self.costs(recorder, round),
            RowNumber::T7 => self.ramp(recorder, round),
            RowNumber::T8 => {
                self.fairness(recorder, round)?;
                self.shares(recorder, round)
            }
            RowNumber::T9 => self.policers(recorder, round),
            RowNumber::T10 => self.small_files(recorder, round),
            RowNumber::T11 => self.kills(recorder, round),
            RowNumber::T12 => self.bit_errors(recorder, round),
            RowNumber::T13 => self.unknown_peers(recorder, round),
            RowNumber::T14 => self.receive_path(experiment, recorder, round),
            RowNumber::T15 => self.memory(recorder, round),
        }
    }

    /// Returns the rate of the link in words.
    fn link(&self) -> String {
        megabits(self.test_bed.link_bps)
    }

    /// Returns the highest rate of payload that the link carries at this loss, in bit/s.
    fn ideal_bps(&self, loss: f64) -> f64 {
        self.test_bed.link_bps * PAYLOAD_SHARE * (1.0 - loss)
    }

    /// Sends a file to receivers over a path. At the rate of the link, the file takes the time of the run
    /// length, in addition to the ramp.
    fn transfer(
        &self,
        recorder: &mut Recorder<'_>,
        round: usize,
        path: &PathSettings,
        receivers: usize,
        options: &[&str],
    ) -> Result<Outcome, TransportBenchError> {
        let ramp_s = ramp_s(path);
        let seconds = recorder.length.seconds as f64;
        let bytes = self.test_bed.link_bps / 8.0 * (ramp_s / 2.0 + seconds) / receivers as f64;
        self.transfer_bytes(recorder, round, path, receivers, options, bytes as u64)
    }

    fn transfer_bytes(
        &self,
        recorder: &mut Recorder<'_>,
        round: usize,
        path: &PathSettings,
        receivers: usize,
        options: &[&str],
        bytes: u64,
    ) -> Result<Outcome, TransportBenchError> {
        self.test_bed.set_path(path)?;
        let directory = self.test_bed.directory("transfer")?;
        let source = directory.join("source");
        files::write(&source, bytes, round as u64)?;
        let started = self.receivers(&directory, receivers, &[])?;
        let transfer = Transfer {
            source: &source,
            ramp_s: ramp_s(path),
            options,
            all: true,
        };
        let outcome = transfer.run(&self.test_bed, started, &mut |_, _| Ok(false))?;
        recorder.transferred(&transferred(&self.test_bed, path, round, bytes, &outcome))?;
        let _removed = std::fs::remove_dir_all(&directory);
        Ok(outcome)
    }

    /// Starts receivers, each with a directory below `parent`.
    fn receivers(
        &self,
        parent: &std::path::Path,
        count: usize,
        options: &[&str],
    ) -> Result<Vec<Receiver>, TransportBenchError> {
        (0..count)
            .map(|index| {
                let directory = parent.join(format!("r{index}"));
                std::fs::create_dir_all(&directory).map_err(crate::file_error::file(&directory))?;
                Receiver::start(&self.test_bed, index, &directory, options)
            })
            .collect()
    }
}

/// Returns a rate in words.
fn megabits(bps: f64) -> String {
    format!("{:.0} Mbit/s", bps / 1e6)
}

/// Returns the duration of the ramp in seconds.
fn ramp_s(path: &PathSettings) -> f64 {
    1.0 + RAMP_RTTS * path.rtt_ms / 1e3
}

/// Returns the record of a transfer by Millrace.
fn transferred(
    test_bed: &TestBed,
    path: &PathSettings,
    round: usize,
    bytes: u64,
    outcome: &Outcome,
) -> Transferred {
    let count = outcome.complete().count();
    let mean = |value: fn(super::millrace::Delivered) -> f64| {
        outcome.complete().map(value).sum::<f64>() / count.max(1) as f64
    };
    Transferred {
        system: "millrace".to_owned(),
        round,
        rtt_ms: path.rtt_ms,
        loss: path.forward.clone(),
        receivers: count,
        link_bps: test_bed.link_bps,
        goodput_bps: mean(|delivered| delivered.steady_bps),
        bytes: bytes as f64 * count as f64,
        seconds: mean(|delivered| delivered.seconds),
        cpu_s: outcome.cpu_s,
        frames: outcome.frames,
    }
}

#[cfg(test)]
mod tests {
    use super::super::{TransportRecord, peers};
    use super::*;
    use crate::gated::Gate;
    use crate::gated::recorder::{case, rows_of};
    use crate::record::Log;

    #[test]
    fn a_case_keeps_its_verdict_only_if_it_was_measured_in_all_rounds_of_a_row_that_fails() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = Log::create(&dir.path().join("transport.jsonl")).unwrap();
        let mut progress = |_: &str| {};
        let mut recorder = Recorder::new(super::super::RunLength::QUICK, &mut log, &mut progress);
        let row = |name: &str| case(name, "100 Mbit/s", Gate::AtLeast(0.95), "");
        recorder.value(&row("T1 goodput, RTT 50 ms"), 0, 0.99).unwrap();
        recorder.value(&row("T10 live: files"), 0, 0.99).unwrap();
        let first = recorder.recorded();
        for (name, round) in [
            ("T1 live: goodput, RTT 50 ms", 0),
            ("T1 live: goodput, RTT 100 ms", 0),
            ("T1 live: goodput, RTT 50 ms", 1),
        ] {
            recorder.value(&row(name), round, 0.99).unwrap();
        }
        row_failed(&mut recorder, RowNumber::T1, (first, 2), "the sender has ended").unwrap();
        let rows = rows_of::<TransportRecord>(log.records());
        let verdicts: Vec<_> = rows
            .iter()
            .map(|row| (row.case.as_str(), row.met, row.reason.is_some()))
            .collect();
        assert_eq!(
            verdicts,
            [
                ("T1 goodput, RTT 50 ms", Some(true), false),
                ("T1 live: goodput, RTT 50 ms", Some(true), false),
                ("T1 live: goodput, RTT 100 ms", Some(false), true),
                ("T1 live", None, true),
                ("T10 live: files", Some(true), false),
            ]
        );
        // The cases that are left out have gates.
        let lead = crate::gated::section::lead(&rows);
        assert_eq!(lead, "3 of 5 gates are met, 1 not measured.");
    }

    #[test]
    fn a_file_crosses_a_lossy_path_beside_a_stream_of_cubic_and_its_costs_are_counted() {
        let program = millrace_process::program_path("millrace", "MILLRACE");
        if let Some(reason) = obstacle(&program) {
            eprintln!("skipped: {reason}");
            return;
        }
        let mut test_bed = TestBed::up(&program, 1).unwrap();
        test_bed.link_bps = 20e6;
        let live = Live { test_bed };
        let dir = tempfile::tempdir().unwrap();
        let mut log = Log::create(&dir.path().join("transport.jsonl")).unwrap();
        let mut progress = |_: &str| {};
        let mut recorder = Recorder::new(super::super::RunLength::QUICK, &mut log, &mut progress);
        let path = PathSettings::new(40.0, 2.0);
        let outcome = live
            .transfer_bytes(&mut recorder, 0, &path, 2, &[], 2_000_000)
            .unwrap();
        assert_eq!(outcome.complete().count(), 2);
        assert!(outcome.complete().all(|each| each.bytes == 2e6));
        // The time of the sender's process includes its start and the handshake.
        assert!(
            outcome.complete().all(|each| each.seconds < outcome.seconds),
            "{outcome:?}"
        );
        assert_eq!(outcome.average_bps(2e6), 16e6 / outcome.seconds);
        assert!(outcome.cpu_s[0] > 0.0 && outcome.cpu_s[1] > 0.0, "{outcome:?}");
        // Both receivers' bytes left the sender, and feedback came back.
        assert!(outcome.frames[1] > 4e6 && outcome.frames[0] > 1e3, "{outcome:?}");
        assert!(outcome.peak.iter().all(|bytes| *bytes > 1e6), "{outcome:?}");
        let cubic = peers::tcp(&live.test_bed, 0, "cubic", 1, (1, 2)).unwrap();
        assert!(cubic.goodput_bps < 19e6 && cubic.bytes > 1e5, "{cubic:?}");
        assert_eq!(log.records().len(), 1);
    }
}
