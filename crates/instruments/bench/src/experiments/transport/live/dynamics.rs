//! Gates T5, T7, T8 and T9 (docs/gates.md), in which conditions change over time: a receiver that joins late, the
//! ramp, the shares of several flows, policers, and a path that loses most of its rate.

use std::fs::OpenOptions;
use std::io::Write;
use std::time::Duration;

use millrace_process::pause;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use super::super::error::{TransportBenchError, output};
use super::super::files;
use super::super::millrace::rates;
use super::super::recorder::Recorder;
use super::super::test_bed::{PathSettings, host};
use super::{Live, Transfer, ramp_s};
use crate::file_error::file;
use crate::gated::Gate;
use crate::gated::recorder::case;

/// The interval at which bytes that arrive are counted.
const SAMPLE_S: f64 = 0.1;
/// The largest number of bytes of the handshake. Later bytes are data.
const HANDSHAKE: f64 = 16_384.0;
/// The share of the rate at which the ramp ends.
const RAMPED: f64 = 0.9;
const RAMP_RTT_MS: f64 = 400.0;
/// The factor by which the rate of the path is reduced.
const CUT: f64 = 100.0;

impl Live {
    /// T5: two receivers, and one that joins after half of the time. Each receiver gets a quarter of the
    /// link's rate, so that the link does not limit them.
    pub(super) fn late_joiner(
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
            let seconds = outcome.complete().map(|each| each.seconds);
            seconds.fold(0.0, f64::max)
        };
        let baseline = last(&without);
        let directory = self.test_bed.directory("late")?;
        let (source, fifo) = (directory.join("source"), directory.join("targets"));
        files::write(&source, bytes, round as u64)?;
        mkfifo(&fifo, Mode::S_IRUSR | Mode::S_IWUSR)
            .map_err(std::io::Error::from)
            .map_err(file(&fifo))?;
        // The FIFO is opened in both directions, so that the sender need not wait for a writer.
        let mut targets = OpenOptions::new()
            .read(true)
            .write(true)
            .open(&fifo)
            .map_err(file(&fifo))?;
        let mut receivers = self.receivers(&directory, 3, &[])?;
        let late = receivers.pop();
        let fifo_text = fifo.to_string_lossy().into_owned();
        let transfer = Transfer {
            source: &source,
            ramp_s: 0.0,
            options: &[options[0], options[1], "--targets-from", &fifo_text],
            all: true,
        };
        let mut joined = false;
        let outcome = transfer.run(&self.test_bed, receivers, &mut |elapsed, _| {
            if let (true, false, Some(late)) = (elapsed >= baseline / 2.0, joined, &late) {
                writeln!(targets, "{}", late.ticket).map_err(file(&fifo))?;
                joined = true;
            }
            Ok(false)
        })?;
        if let Some(mut late) = late {
            late.running.finish()?;
            let different = files::differences(&source, &late.directory.join("source"))?;
            if different > 0 {
                return Err(output(
                    "millrace send",
                    format!("{different} bytes of the late receiver differ"),
                ));
            }
        }
        std::fs::remove_dir_all(&directory).map_err(file(&directory))?;
        let row = case(
            "T5 live: time of two receivers beside one that joins at half / without",
            format!("{} / 4 to each, RTT 50 ms, loss 0.5 %", self.link()),
            Gate::AtMost(1.03),
            "",
        );
        recorder.value(&row, round, last(&outcome) / baseline)
    }

    /// T7: round trips until 90 % of the rate arrives, without a known rate and with `--rate`.
    pub(super) fn ramp(&self, recorder: &mut Recorder<'_>, round: usize) -> Result<(), TransportBenchError> {
        let path = PathSettings::new(RAMP_RTT_MS, 0.0);
        let link = self.test_bed.link_bps;
        let packets = link * RAMP_RTT_MS / 1e3 / 8.0 / 1_500.0;
        let cold = (packets / 10.0).log2() + 3.0;
        let hint = format!("{:.0}bps", link * RAMPED);
        let cells: [(&str, f64, &[&str], f64); 2] = [
            ("cold", cold, &[], link),
            ("told the rate", 5.0, &["--rate", &hint], link * RAMPED),
        ];
        for (name, gate, options, rate) in cells {
            let row = case(
                format!("T7 live: ramp to 90 % of the rate, {name}, RTT {RAMP_RTT_MS} ms"),
                self.link(),
                Gate::AtMost(gate),
                "RTT",
            );
            match self.round_trips(round, &path, options, rate)? {
                Some(round_trips) => recorder.value(&row, round, round_trips)?,
                None => recorder.missing(&row, "the rate was not reached")?,
            }
        }
        Ok(())
    }

    /// Returns the round trips from the arrival of the first data until 90 % of a rate arrives.
    fn round_trips(
        &self,
        round: usize,
        path: &PathSettings,
        options: &[&str],
        rate_bps: f64,
    ) -> Result<Option<f64>, TransportBenchError> {
        self.test_bed.set_path(path)?;
        let directory = self.test_bed.directory("ramp")?;
        let source = directory.join("source");
        let bytes = self.test_bed.link_bps / 8.0 * ramp_s(path);
        files::write(&source, bytes as u64, round as u64)?;
        let receivers = self.receivers(&directory, 1, &[])?;
        let transfer = Transfer {
            source: &source,
            ramp_s: 0.0,
            options,
            all: false,
        };
        let first = self.test_bed.received(&host(0))?;
        let (mut begin, mut last, mut end) = (None, (0.0, first), None);
        transfer.run(&self.test_bed, receivers, &mut |elapsed, _| {
            if elapsed - last.0 < SAMPLE_S {
                return Ok(false);
            }
            let arrived = self.test_bed.received(&host(0))?;
            if arrived - first > HANDSHAKE {
                begin.get_or_insert(elapsed);
            }
            let arriving_bps = (arrived - last.1) * 8.0 / (elapsed - last.0);
            last = (elapsed, arrived);
            if begin.is_some() && arriving_bps >= RAMPED * rate_bps {
                end = Some(elapsed);
            }
            Ok(end.is_some())
        })?;
        let _removed = std::fs::remove_dir_all(&directory);
        // The data left the sender half a round trip before they arrived.
        let round_trips = |begin: f64, end: f64| (end - begin) / (path.rtt_ms / 1e3) + 0.5;
        Ok(begin.zip(end).map(|(begin, end)| round_trips(begin, end)))
    }

    /// T8: Jain's fairness index of several flows, each with a separate sender.
    pub(super) fn shares(
        &mut self,
        recorder: &mut Recorder<'_>,
        round: usize,
    ) -> Result<(), TransportBenchError> {
        let link = self.test_bed.link_bps;
        // The rate is halved, because up to sixteen processes share the cores of the hosts.
        self.test_bed.link_bps = link / 2.0;
        let result = [2_usize, 4, 8].into_iter().try_for_each(|count| {
            let rates = self.flow_rates(recorder, round, count)?;
            let (sum, squares) = rates.iter().fold((0.0, 0.0), |(sum, squares), rate| {
                (sum + rate, squares + rate * rate)
            });
            let row = case(
                format!("T8 live: Jain's index of {count} flows, RTT 50 ms"),
                self.link(),
                Gate::AtLeast(0.95),
                "",
            );
            recorder.value(&row, round, sum * sum / (count as f64 * squares).max(1.0))
        });
        self.test_bed.link_bps = link;
        result
    }

    /// Returns the mean rate of each of several concurrent flows, without its ramp.
    fn flow_rates(
        &self,
        recorder: &Recorder<'_>,
        round: usize,
        count: usize,
    ) -> Result<Vec<f64>, TransportBenchError> {
        let path = PathSettings::new(50.0, 0.0);
        self.test_bed.set_path(&path)?;
        let seconds = (2 * recorder.length.seconds).max(12) as f64;
        let directory = self.test_bed.directory("shares")?;
        let source = directory.join("source");
        // Each file is larger than the fair share of a flow, so that no flow ends before the others.
        let bytes = self.test_bed.link_bps / 8.0 * seconds * 2.0 / count as f64;
        files::write(&source, bytes as u64, round as u64)?;
        let receivers = self.receivers(&directory, count, &[])?;
        let transfer = Transfer {
            source: &source,
            ramp_s: 0.0,
            options: &[],
            all: false,
        };
        let mut senders = receivers
            .iter()
            .map(|receiver| transfer.start(&self.test_bed, std::slice::from_ref(receiver)))
            .collect::<Result<Vec<_>, _>>()?;
        pause(Duration::from_secs_f64(seconds))?;
        let mut found = Vec::new();
        for (sender, receiver) in senders.iter_mut().zip(&receivers) {
            sender.check()?;
            let rates = rates(&sender.log(), receiver.address());
            let steady = rates.get(rates.len() / 3..).unwrap_or_default();
            found.push(steady.iter().sum::<f64>() / steady.len().max(1) as f64);
        }
        drop((senders, receivers));
        let _removed = std::fs::remove_dir_all(&directory);
        Ok(found)
    }

    /// T9: a queue of one packet at half of the rate, 3 % of loss, and a path whose rate falls to a
    /// hundredth.
    pub(super) fn policers(
        &mut self,
        recorder: &mut Recorder<'_>,
        round: usize,
    ) -> Result<(), TransportBenchError> {
        let half = self.test_bed.link_bps / 2.0;
        let path = PathSettings {
            rtt_ms: 50.0,
            forward: format!("rate={half:.0}bps queue=1packets"),
        };
        let counters = || -> Result<[f64; 2], TransportBenchError> {
            Ok([self.test_bed.frames()?[1], self.test_bed.received(&host(0))?])
        };
        let before = counters()?;
        let outcome = self.transfer(recorder, round, &path, 1, &["--loss-tolerance", "5"])?;
        let after = counters()?;
        let goodput: f64 = outcome.complete().map(|each| each.steady_bps).sum();
        // A sender that shares its core sends in bursts, which a queue of one packet cannot hold. The gates
        // therefore apply only in virtual time.
        let asked = format!("{} / 2, RTT 50 ms; in virtual time: 0.9 and 5 %", self.link());
        let row = case(
            "T9 live: goodput / Ideal of half the rate, queue of one packet",
            &asked,
            Gate::None,
            "",
        );
        recorder.value(&row, round, goodput / (half * super::PAYLOAD_SHARE))?;
        let [sent, arrived] = std::array::from_fn(|index| after[index] - before[index]);
        let row = case(
            "T9 live: bytes lost in a queue of one packet",
            &asked,
            Gate::None,
            "%",
        );
        recorder.value(&row, round, 100.0 * (1.0 - arrived / sent.max(1.0)))?;

        let path = PathSettings::new(100.0, 3.0);
        let outcome = self.transfer(recorder, round, &path, 1, &[])?;
        let goodput: f64 = outcome.complete().map(|each| each.steady_bps).sum();
        let row = case(
            "T9 live: goodput / Ideal, RTT 100 ms, loss 3 %",
            self.link(),
            Gate::AtLeast(0.9),
            "",
        );
        recorder.value(&row, round, goodput / self.ideal_bps(0.03))?;
        self.cut(recorder, round)
    }

    /// T9: the rate of the path falls to a hundredth.
    fn cut(&mut self, recorder: &mut Recorder<'_>, round: usize) -> Result<(), TransportBenchError> {
        let path = PathSettings::new(50.0, 0.0);
        let link = self.test_bed.link_bps;
        self.test_bed.set_path(&path)?;
        let directory = self.test_bed.directory("cut")?;
        let source = directory.join("source");
        files::write(&source, (link / 8.0 * 10.0) as u64, round as u64)?;
        let receivers = self.receivers(&directory, 1, &[])?;
        let transfer = Transfer {
            source: &source,
            ramp_s: 0.0,
            options: &[],
            all: false,
        };
        let mut sender = transfer.start(&self.test_bed, &receivers)?;
        pause(Duration::from_secs(4))?;
        self.test_bed.link_bps = link / CUT;
        let set = self.test_bed.set_path(&path);
        self.test_bed.link_bps = link;
        set?;
        pause(Duration::from_secs_f64(1.0 + 5.0 * path.rtt_ms / 1e3))?;
        let counters = || -> Result<[f64; 2], TransportBenchError> {
            Ok([self.test_bed.frames()?[1], self.test_bed.received(&host(0))?])
        };
        let before = counters()?;
        pause(Duration::from_secs(3))?;
        let after = counters()?;
        sender.check()?;
        drop((sender, receivers));
        let _removed = std::fs::remove_dir_all(&directory);
        let [sent, arrived] = std::array::from_fn(|index| after[index] - before[index]);
        let row = case(
            "T9 live: bytes sent / that arrive, after the path was cut to a hundredth",
            format!("{}, RTT 50 ms, after 5 RTT and 1 s", self.link()),
            Gate::AtMost(2.0),
            "",
        );
        recorder.value(&row, round, sent / arrived.max(1.0))
    }
}
