//! Rows T3, T4 and T5 of docs/gates.md: three receivers compared with multicast, ten receivers, and one that stops.

use super::super::error::TransportBenchError;
use super::super::files;
use super::super::library_peers::LibraryPeer;
use super::super::peers;
use super::super::recorder::Recorder;
use super::super::test_bed::PathSettings;
use super::{Live, Transfer, megabits, ramp_s};
use crate::file_error::file;
use crate::gated::Gate;
use crate::gated::recorder::case;
use millrace_process::is_installed;
use nix::sys::signal::Signal;

impl Live {
    /// Measures row T3: three receivers compared with uftp, NORM and PGM.
    pub(super) fn multicast(
        &mut self,
        recorder: &mut Recorder<'_>,
        round: usize,
    ) -> Result<(), TransportBenchError> {
        let link = self.test_bed.link_bps;
        // In the first case, the link does not limit the rate. In the second case, each site gets a third of
        // the link's rate: three unicast streams fill the link, and multicast, which crosses the link once,
        // sends at that third.
        let lossy = PathSettings::new(100.0, 1.0);
        let cells = [
            (
                PathSettings::new(0.2, 0.0),
                10e9,
                -1,
                3.0,
                Some(6.0),
                "flat out, no loss",
            ),
            (
                lossy,
                link,
                (link / 3e3) as i64,
                1.2,
                None,
                "told the rate of a site (link / 3), RTT 100 ms, loss 1 %",
            ),
        ];
        for (path, link_bps, rate_kbps, gate, target, name) in cells {
            let row = case(
                format!("T3 live: goodput of each / uftp's, 3 receivers, {name}"),
                megabits(link_bps),
                Gate::AtLeast(gate),
                "",
            );
            let row = row.with_target(target);
            if !is_installed("uftp") {
                let reason = "uftp is not there. To fix it: scripts/setup.sh peers";
                recorder.missing(&row, reason)?;
                continue;
            }
            self.test_bed.link_bps = link_bps;
            let seconds = recorder.length.seconds as f64 + ramp_s(&path) / 2.0;
            let bytes = (link / 8.0 * seconds / 3.0) as u64;
            let result = (|| {
                let outcome = self.transfer_bytes(recorder, round, &path, 3, &[], bytes)?;
                let ours = outcome.average_bps(bytes as f64);
                let directory = self.test_bed.directory("uftp")?;
                let source = directory.join("source");
                files::write(&source, bytes, round as u64)?;
                let theirs = peers::uftp(&self.test_bed, &source, 3, rate_kbps);
                let _removed = std::fs::remove_dir_all(&directory);
                self.beside(recorder, round, &path, ("uftp", 3), theirs, &row, ours)
            })();
            self.test_bed.link_bps = link;
            result?;
        }
        self.multicast_libraries(recorder, round)
    }

    /// Measures row T3 for libraries: NORM and PGM at a given rate, and NORM with its congestion control.
    fn multicast_libraries(
        &mut self,
        recorder: &mut Recorder<'_>,
        round: usize,
    ) -> Result<(), TransportBenchError> {
        let link = self.test_bed.link_bps;
        let lossy = PathSettings::new(100.0, 1.0);
        let site = "told the rate of a site (link / 3), RTT 100 ms, loss 1 %";
        let cells = [
            (LibraryPeer::Norm, &lossy, Some(link / 3.0), 1.2, site),
            (LibraryPeer::Pgm, &lossy, Some(link / 3.0), 1.2, site),
            (
                LibraryPeer::Norm,
                &lossy,
                None,
                20.0,
                "its congestion control, RTT 100 ms, loss 1 %",
            ),
        ];
        for (peer, path, rate_bps, gate, name) in cells {
            let row = case(
                format!(
                    "T3 live: goodput of each / {}'s, 3 receivers, {name}",
                    peer.name()
                ),
                self.link(),
                Gate::AtLeast(gate),
                "",
            );
            if let Some(reason) = peer.obstacle() {
                recorder.missing(&row, &reason)?;
                continue;
            }
            let seconds = recorder.length.seconds as f64 + ramp_s(path) / 2.0;
            // The peer's congestion control reaches about a twentieth of the rate. It sends a twentieth of
            // the bytes, so that the row ends in time.
            let share = if rate_bps.is_some() { 1.0 } else { 1.0 / 20.0 };
            let bytes = link / 8.0 * seconds / 3.0;
            let outcome = self.transfer_bytes(recorder, round, path, 3, &[], bytes as u64)?;
            let ours = outcome.average_bps(bytes);
            let directory = self.test_bed.directory(peer.name())?;
            let source = directory.join("source");
            files::write(&source, (bytes * share) as u64, round as u64)?;
            let theirs = peer.transfer(&self.test_bed, &source, 3, rate_bps);
            let _removed = std::fs::remove_dir_all(&directory);
            self.beside(recorder, round, path, (peer.name(), 3), theirs, &row, ours)?;
        }
        Ok(())
    }

    /// Measures row T4: ten receivers compared with one.
    pub(super) fn ten_receivers(
        &self,
        recorder: &mut Recorder<'_>,
        round: usize,
    ) -> Result<(), TransportBenchError> {
        let path = PathSettings::new(50.0, 1.0);
        let one = self.transfer(recorder, round, &path, 1, &[])?;
        let ten = self.transfer(recorder, round, &path, 10, &[])?;
        let rates: Vec<f64> = ten.complete().map(|each| 1.0 / each.seconds).collect();
        let mean = rates.iter().sum::<f64>() / rates.len().max(1) as f64;
        let slowest = rates.iter().copied().fold(f64::INFINITY, f64::min);
        let asked = format!("{}, RTT 50 ms, loss 1 %", self.link());
        let row = case(
            "T4 live: slowest / mean of 10 receivers",
            &asked,
            Gate::AtLeast(0.9),
            "",
        );
        recorder.value(&row, round, slowest / mean)?;
        let per_byte = |outcome: &super::Outcome| {
            let bytes: f64 = outcome.complete().map(|each| each.bytes).sum();
            outcome.cpu_s[0] / bytes.max(1.0)
        };
        let row = case(
            "T4 live: sender's CPU per delivered GB, 10 receivers / 1",
            &asked,
            Gate::AtMost(0.7),
            "",
        );
        recorder.value(&row.target(0.55), round, per_byte(&ten) / per_byte(&one))
    }

    /// Measures row T5: two receivers, alone and together with one that is stopped by SIGSTOP at a third of the time. Each
    /// receiver gets a quarter of the link's rate, so that the share of the third one changes nothing for the others.
    pub(super) fn straggler(
        &self,
        recorder: &mut Recorder<'_>,
        round: usize,
    ) -> Result<(), TransportBenchError> {
        let path = PathSettings::new(50.0, 0.5);
        let policy = format!("fixed:{:.0}bps", self.test_bed.link_bps / 4.0);
        let options = ["--policy", &policy];
        let bytes = (self.test_bed.link_bps / 4.0 / 8.0 * recorder.length.seconds as f64) as u64;
        let without = self.transfer_bytes(recorder, round, &path, 2, &options, bytes)?;
        let last = |outcome: &super::Outcome| {
            let others = outcome.delivered[..2].iter().flatten();
            others.map(|each| each.seconds).fold(0.0, f64::max)
        };
        let baseline = last(&without);
        let directory = self.test_bed.directory("straggler")?;
        let source = directory.join("source");
        files::write(&source, bytes, round as u64)?;
        let receivers = self.receivers(&directory, 3, &[])?;
        let transfer = Transfer {
            source: &source,
            ramp_s: 0.0,
            options: &options,
            all: false,
        };
        let mut stopped = false;
        let outcome = transfer.run(&self.test_bed, receivers, &mut |elapsed, receivers| {
            if elapsed >= baseline / 3.0 && !stopped {
                receivers[2].signal(Signal::SIGSTOP);
                stopped = true;
            }
            let ends = elapsed >= 2.0 * baseline + 5.0;
            if ends {
                // A stopped process takes no SIGTERM.
                receivers[2].signal(Signal::SIGCONT);
            }
            Ok(ends)
        })?;
        std::fs::remove_dir_all(&directory).map_err(file(&directory))?;
        let row = case(
            "T5 live: time of two receivers beside one that stops / without",
            format!("{} / 4 to each, RTT 50 ms, loss 0.5 %", self.link()),
            Gate::AtMost(1.03),
            "",
        );
        if outcome.delivered[..2].contains(&None) {
            return recorder.missing(&row, "the others did not get everything");
        }
        recorder.value(&row, round, last(&outcome) / baseline)
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::RunLength;
    use super::super::super::record::TransportRecord;
    use super::super::super::test_bed::{TestBed, obstacle};
    use super::*;
    use crate::gated::recorder::{GatedRecord as _, rows_of};
    use crate::record::Log;

    #[test]
    fn a_receiver_that_stops_is_compared_with_two_receivers_and_not_with_three() {
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
        let length = RunLength {
            seconds: 1,
            ..RunLength::QUICK
        };
        let mut recorder = Recorder::new(length, &mut log, &mut progress);
        live.straggler(&mut recorder, 0).unwrap();
        let baselines: Vec<usize> = log
            .records()
            .iter()
            .filter_map(|record| match TransportRecord::of(record)? {
                TransportRecord::Transferred(transferred) => Some(transferred.receivers),
                _ => None,
            })
            .collect();
        assert_eq!(baselines, [2]);
        let rows = rows_of::<TransportRecord>(log.records());
        assert!(rows[0].reached.is_some(), "{rows:?}");
    }
}
