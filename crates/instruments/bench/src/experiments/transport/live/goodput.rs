//! Gates T1, T2 and T8 (docs/gates.md): goodput over the grid of loss and round-trip time, goodput compared with
//! other transports, and harm.

use super::super::error::TransportBenchError;
use super::super::library_peers::LibraryPeer;
use super::super::peers::{self, Background, PeerResult};
use super::super::record::Transferred;
use super::super::recorder::Recorder;
use super::super::test_bed::PathSettings;
use super::{Live, ramp_s};
use crate::gated::Gate;
use crate::gated::recorder::case;
use millrace_process::is_installed;

/// The grid of loss in percent.
const LOSSES: [f64; 5] = [0.0, 0.1, 0.5, 1.0, 2.0];
/// The grid of round-trip times in milliseconds.
const RTTS: [f64; 6] = [0.2, 10.0, 50.0, 100.0, 200.0, 400.0];

/// Returns the gate of T1 for a loss in percent.
fn gate(loss: f64) -> f64 {
    if loss < 2.0 { 0.95 } else { 0.93 }
}

impl Live {
    /// Measures row T1: goodput over the grid of loss and round-trip time.
    pub(super) fn goodput(
        &self,
        recorder: &mut Recorder<'_>,
        round: usize,
    ) -> Result<(), TransportBenchError> {
        let mut cells: Vec<(PathSettings, f64, f64, usize)> = Vec::new();
        let (rtts, losses): (&[f64], &[f64]) = match recorder.length.quick {
            true => (&[50.0], &[0.0, 1.0, 2.0]),
            false => (&RTTS, &LOSSES),
        };
        for rtt_ms in rtts {
            for loss in losses {
                let path = PathSettings::new(*rtt_ms, *loss);
                cells.push((path, loss / 100.0, gate(*loss), 1));
            }
        }
        if !recorder.length.quick {
            let forward = |rtt_ms, forward: &str| PathSettings {
                rtt_ms,
                forward: forward.to_owned(),
            };
            cells.push((forward(50.0, "loss=ge:1%,burst=8"), 0.01, 0.90, 1));
            cells.push((forward(50.0, "jitter=5ms,normal order=reordering"), 0.0, 0.90, 1));
        }
        for receivers in [3, 10] {
            cells.push((PathSettings::new(50.0, 1.0), 0.01, 0.95, receivers));
        }
        for (path, loss, gate, receivers) in cells {
            let outcome = self.transfer(recorder, round, &path, receivers, &[])?;
            let goodput: f64 = outcome.complete().map(|each| each.steady_bps).sum();
            let settings = match path.forward.as_str() {
                "" => "no loss",
                settings => settings,
            };
            let name = format!(
                "T1 live: goodput / Ideal, {receivers} receiver{}, RTT {} ms, {settings}",
                if receivers == 1 { "" } else { "s" },
                path.rtt_ms
            );
            let case = case(name, self.link(), Gate::AtLeast(gate), "").target(0.974);
            recorder.value(&case, round, goodput / self.ideal_bps(loss))?;
        }
        Ok(())
    }

    /// Measures row T2: goodput compared with other transports on the same path.
    pub(super) fn rivals(
        &self,
        recorder: &mut Recorder<'_>,
        round: usize,
    ) -> Result<(), TransportBenchError> {
        let mut paths = vec![(PathSettings::new(100.0, 1.0), 50.0)];
        if !recorder.length.quick {
            paths.push((PathSettings::new(400.0, 2.0), 500.0));
        }
        for (path, factor) in paths {
            let ours = self.transfer(recorder, round, &path, 1, &[])?;
            let ours = ours.complete().map(|each| each.steady_bps).sum::<f64>();
            let place = format!("RTT {} ms, {}", path.rtt_ms, path.forward);
            let lengths = (ramp_s(&path).ceil() as u64, recorder.length.seconds);
            for (control, streams, gate, target) in [
                ("cubic", 1, Gate::AtLeast(factor), None),
                ("cubic", 8, Gate::None, None),
                ("bbr", 1, Gate::AtLeast(0.98), Some(1.02)),
                ("bbr", 8, Gate::AtLeast(0.98), Some(1.02)),
            ] {
                let system = format!("iperf3 {control} x{streams}");
                let result = peers::tcp(&self.test_bed, 0, control, streams, lengths);
                let row = case(
                    format!("T2 live: goodput / {system}, {place}"),
                    self.link(),
                    gate,
                    "",
                );
                let row = row.with_target(target);
                self.beside(recorder, round, &path, (&system, 1), result, &row, ours)?;
            }
            let directory = self.test_bed.directory("srt-source")?;
            let source = directory.join("source");
            let seconds = recorder.length.seconds as f64 + ramp_s(&path) / 2.0;
            let bytes = (self.test_bed.link_bps / 8.0 * seconds) as u64 / 8;
            super::files::write(&source, bytes, round as u64)?;
            // The durations of these systems include connection set-up and ramp, so ours is that of the sender's process,
            // over the same bytes.
            let ours = self.transfer_bytes(recorder, round, &path, 1, &[], bytes)?;
            let ours = ours.average_bps(bytes as f64);
            let row = case(
                format!("T2 live: goodput / SRT, {place}"),
                self.link(),
                Gate::AtLeast(1.2),
                "",
            );
            if is_installed("srt-file-transmit") {
                let result = peers::srt(&self.test_bed, &source);
                self.beside(recorder, round, &path, ("srt", 1), result, &row, ours)?;
            } else {
                let reason = "srt-file-transmit is not there. To fix it: scripts/setup.sh peers";
                recorder.missing(&row, reason)?;
            }
            for peer in [LibraryPeer::Udt, LibraryPeer::Quinn] {
                let row = case(
                    format!("T2 live: goodput / {}, {place}", peer.name()),
                    self.link(),
                    Gate::AtLeast(1.2),
                    "",
                );
                match peer.obstacle() {
                    Some(reason) => recorder.missing(&row, &reason)?,
                    None => {
                        let result = peer.transfer(&self.test_bed, &source, 1, None);
                        self.beside(recorder, round, &path, (peer.name(), 1), result, &row, ours)?;
                    }
                }
            }
            let _removed = std::fs::remove_dir_all(&directory);
        }
        Ok(())
    }

    /// Records a peer's transfer, and the ratio of Millrace's goodput to the peer's. If the transfer failed,
    /// records a row without a value.
    #[allow(clippy::too_many_arguments, reason = "one row, its place and its two systems")]
    pub(super) fn beside(
        &self,
        recorder: &mut Recorder<'_>,
        round: usize,
        path: &PathSettings,
        (system, receivers): (&str, usize),
        result: Result<PeerResult, TransportBenchError>,
        row: &crate::gated::recorder::Case,
        ours: f64,
    ) -> Result<(), TransportBenchError> {
        let result = match result {
            Ok(result) => result,
            Err(error) if error.ends_the_run() => return Err(error),
            Err(error) => return recorder.missing(row, &error.to_string()),
        };
        recorder.transferred(&Transferred {
            system: system.to_owned(),
            round,
            rtt_ms: path.rtt_ms,
            loss: path.forward.clone(),
            receivers,
            link_bps: self.test_bed.link_bps,
            goodput_bps: result.goodput_bps,
            bytes: result.bytes,
            seconds: result.seconds,
            cpu_s: result.cpu_s,
            frames: result.frames,
        })?;
        recorder.value(row, round, ours / result.goodput_bps.max(1.0))
    }

    /// Measures row T8: harm to CUBIC, relative to the harm of BBR, with a buffer of twice the
    /// bandwidth-delay product.
    pub(super) fn fairness(
        &self,
        recorder: &mut Recorder<'_>,
        round: usize,
    ) -> Result<(), TransportBenchError> {
        let path = PathSettings::new(50.0, 0.0);
        self.test_bed.set_path(&path)?;
        let seconds = (2 * recorder.length.seconds).max(12);
        let from = seconds as f64 / 3.0;
        let cubic = || Background::start(&self.test_bed, 0, "cubic", seconds);
        let alone = cubic()?.rate_from(from)?;
        let beside_bbr = {
            let first = cubic()?;
            let second = Background::start(&self.test_bed, 1, "bbr", seconds)?;
            let rate = first.rate_from(from)?;
            second.rate_from(from)?;
            rate
        };
        let beside_ours = {
            let directory = self.test_bed.directory("harm")?;
            let source = directory.join("source");
            let bytes = self.test_bed.link_bps / 8.0 * seconds as f64;
            super::files::write(&source, bytes as u64, round as u64)?;
            let started = self.receivers(&directory, 2, &[])?;
            let last = started.into_iter().skip(1).collect::<Vec<_>>();
            let first = cubic()?;
            let transfer = super::Transfer {
                source: &source,
                ramp_s: 0.0,
                options: &[],
                all: false,
            };
            let mut sender = transfer.start(&self.test_bed, &last)?;
            let rate = first.rate_from(from)?;
            // The transfer must still run when CUBIC has ended. It may have completed only if CUBIC got
            // almost nothing.
            if rate > alone / 10.0 {
                sender.check()?;
            }
            drop((sender, last));
            let _removed = std::fs::remove_dir_all(&directory);
            rate
        };
        let harm = |rate: f64| ((alone - rate) / alone).max(0.0);
        record_harm(recorder, &self.link(), round, [beside_bbr, beside_ours].map(harm))
    }
}

/// Records the harm to CUBIC by BBR and by Millrace in one round. The gate applies to the difference of the
/// two: both are from the same round, and the gate is the same in all rounds.
fn record_harm(
    recorder: &mut Recorder<'_>,
    link: &str,
    round: usize,
    [bbr, ours]: [f64; 2],
) -> Result<(), TransportBenchError> {
    let asked = format!("{link}, RTT 50 ms");
    for (what, gate, value) in [
        ("harm of BBR to CUBIC", Gate::None, bbr),
        ("harm to CUBIC", Gate::None, ours),
        ("harm to CUBIC, less that of BBR", Gate::AtMost(0.0), ours - bbr),
    ] {
        let row = case(format!("T8 live: {what}, buffer 2 BDP"), &asked, gate, "");
        recorder.value(&row, round, value)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::super::{RunLength, TransportRecord};
    use super::*;
    use crate::gated::recorder::rows_of;
    use crate::record::Log;

    #[test]
    fn harm_is_compared_with_that_of_bbr_in_the_same_round() {
        let met = |harms: [[f64; 2]; 3]| {
            let dir = tempfile::tempdir().unwrap();
            let mut log = Log::create(&dir.path().join("transport.jsonl")).unwrap();
            let mut progress = |_: &str| {};
            let mut recorder = Recorder::new(RunLength::QUICK, &mut log, &mut progress);
            for (round, harms) in harms.into_iter().enumerate() {
                record_harm(&mut recorder, "100 Mbit/s", round, harms).unwrap();
            }
            let rows = rows_of::<TransportRecord>(log.records());
            let judged: Vec<_> = rows.iter().filter(|row| !row.gate.is_empty()).collect();
            assert_eq!((rows.len(), judged.len()), (3, 1));
            (judged[0].rounds, judged[0].met)
        };
        // BBR does the least harm in the last round. Millrace does less harm than BBR in each round.
        assert_eq!(met([[0.9, 0.8], [0.9, 0.8], [0.3, 0.2]]), (3, Some(true)));
        // BBR does the most harm in the last round. Millrace does more harm than BBR in two rounds.
        assert_eq!(met([[0.3, 0.4], [0.3, 0.4], [0.9, 0.4]]), (3, Some(false)));
    }
}
