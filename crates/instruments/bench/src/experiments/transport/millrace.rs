//! `millrace send` to `millrace receive`, over the test bed.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use millrace_process::{ProcessError, Running, pause};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use super::error::{TransportBenchError, output};
use super::files::differences;
use super::test_bed::{SENDER, TestBed, address, host};
use crate::usage::{children_s, peak_memory};

/// The time limit until a receiver has printed its ticket.
const LISTENS: Duration = Duration::from_secs(10);
/// The time limit of a transfer.
const TRANSFER: Duration = Duration::from_secs(600);
/// The interval of progress events (`progress.rs` of the courier).
const PROGRESS_S: f64 = 0.5;

/// A running receiver.
pub(super) struct Receiver {
    pub(super) running: Running,
    pub(super) ticket: String,
    pub(super) directory: PathBuf,
    address: String,
}

impl Receiver {
    /// Starts `millrace receive --once` in the host of a receiver.
    pub(super) fn start(
        test_bed: &TestBed,
        index: usize,
        directory: &Path,
        options: &[&str],
    ) -> Result<Receiver, TransportBenchError> {
        let address = address(index);
        let listen = format!("{address}:7800");
        let identity = directory.with_extension("identity");
        let mut argv = vec![test_bed.program(), "--json", "receive"];
        let (directory_text, identity_text) = (text(directory)?, text(&identity)?);
        argv.extend([
            directory_text,
            "--once",
            "--listen",
            &listen,
            "--address",
            &address,
            "--identity",
            identity_text,
        ]);
        argv.extend(options);
        let mut running = test_bed.start("millrace receive", &host(index), &argv)?;
        let ticket = running.wait_for("its ticket", LISTENS, |running| {
            let ticket = |event: Value| event.get("ticket")?.as_str().map(str::to_owned);
            Ok(events(&running.log()).find_map(ticket))
        })?;
        Ok(Receiver {
            running,
            ticket,
            directory: directory.to_owned(),
            address: listen,
        })
    }

    /// Returns the address and port. Events name the receiver by them.
    pub(super) fn address(&self) -> &str {
        &self.address
    }

    /// Sends a signal to the process.
    pub(super) fn signal(&self, signal: Signal) {
        if let Ok(pid) = i32::try_from(self.running.pid()) {
            // A receiver that has ended needs no signal.
            let _ended = kill(Pid::from_raw(pid), signal);
        }
    }
}

/// The result of a transfer to one receiver.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Delivered {
    /// Seconds from the receiver's consent to its receipt.
    pub(super) seconds: f64,
    /// Payload in bytes that the receiver got, without repairs and without bytes that it had before.
    pub(super) bytes: f64,
    /// Payload in bit/s after the ramp, to be compared with tools that report intervals.
    pub(super) steady_bps: f64,
}

/// The result of a transfer.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Outcome {
    /// The receivers' results, in their order; `None` for one that did not get everything.
    pub(super) delivered: Vec<Option<Delivered>>,
    /// Seconds from the start of the sender to its exit, to be compared with the duration of other programs: connection
    /// set-up, offer and ramp are included.
    pub(super) seconds: f64,
    /// The processor time of the sender, and of all receivers.
    pub(super) cpu_s: [f64; 2],
    /// The largest resident memory of the sender, and of any receiver, in bytes.
    pub(super) peak: [f64; 2],
    /// Bytes of frames that came back to the sender, and that left it.
    pub(super) frames: [f64; 2],
    /// Bytes that the receivers had already before the transfer.
    pub(super) present: f64,
    /// Bytes that differ from the source at the receivers that got everything.
    pub(super) different: u64,
}

impl Outcome {
    /// Returns the receivers that got everything.
    pub(super) fn complete(&self) -> impl Iterator<Item = Delivered> + '_ {
        self.delivered.iter().flatten().copied()
    }

    /// Returns the payload to each receiver in bit/s over the whole time of the sender; `bytes` is the size of the source.
    pub(super) fn average_bps(&self, bytes: f64) -> f64 {
        bytes * 8.0 / self.seconds.max(1e-9)
    }
}

/// Returns the events of a log, and skips its other lines.
fn events(log: &str) -> impl Iterator<Item = Value> + '_ {
    log.lines()
        .filter(|line| line.starts_with('{'))
        .filter_map(|line| serde_json::from_str(line).ok())
}

/// Returns the rates of a peer's progress events in bit/s.
pub(super) fn rates(log: &str, peer: &str) -> Vec<f64> {
    events(log)
        .filter(|event| event["event"] == "progress" && event["peer"].as_str() == Some(peer))
        .filter_map(|event| event["rate_bps"].as_f64())
        .collect()
}

/// Returns the bytes that a sender's log last reported as verified.
pub(super) fn verified_bytes(log: &str) -> f64 {
    events(log)
        .filter_map(|event| event["verified"].as_f64())
        .last()
        .unwrap_or(0.0)
}

fn text(path: &Path) -> Result<&str, TransportBenchError> {
    path.to_str()
        .ok_or_else(|| output("millrace", "a path is not UTF-8"))
}

/// A function that is called every 20 ms with the seconds since the start and the receivers. The transfer ends when the
/// function returns true.
pub(super) type Watch<'a> = &'a mut dyn FnMut(f64, &[Receiver]) -> Result<bool, TransportBenchError>;

/// The settings of a transfer.
pub(super) struct Transfer<'a> {
    /// A file or directory.
    pub(super) source: &'a Path,
    /// The duration of the ramp in seconds; the steady rate leaves it out.
    pub(super) ramp_s: f64,
    /// Options of `millrace send`.
    pub(super) options: &'a [&'a str],
    /// True if all receivers must get everything.
    pub(super) all: bool,
}

impl Transfer<'_> {
    /// Starts the sender.
    pub(super) fn start(
        &self,
        test_bed: &TestBed,
        receivers: &[Receiver],
    ) -> Result<Running, TransportBenchError> {
        let mut argv = vec![test_bed.program(), "--json", "send", text(self.source)?];
        argv.extend(receivers.iter().map(|receiver| receiver.ticket.as_str()));
        argv.extend(self.options);
        test_bed.start("millrace send", SENDER, &argv)
    }

    /// Sends to receivers until the sender ends or `watch` returns true. Ends the receivers after the sender,
    /// and returns the results. Fails if a receiver that got everything has other bytes than the source.
    pub(super) fn run(
        &self,
        test_bed: &TestBed,
        receivers: Vec<Receiver>,
        watch: Watch<'_>,
    ) -> Result<Outcome, TransportBenchError> {
        let outcome = self.run_and_count(test_bed, receivers, watch)?;
        match outcome.different {
            0 => Ok(outcome),
            different => Err(output("millrace send", format!("{different} bytes differ"))),
        }
    }

    /// Sends like [`Transfer::run`], and counts the bytes that differ.
    pub(super) fn run_and_count(
        &self,
        test_bed: &TestBed,
        mut receivers: Vec<Receiver>,
        watch: Watch<'_>,
    ) -> Result<Outcome, TransportBenchError> {
        let mut outcome = Outcome::default();
        let before = (children_s(), test_bed.frames()?);
        let start = Instant::now();
        let mut sender = self.start(test_bed, &receivers)?;
        loop {
            let peaks = |pids: &mut dyn Iterator<Item = u32>| {
                pids.filter_map(peak_memory).max().unwrap_or_default() as f64
            };
            outcome.peak[0] = outcome.peak[0].max(peaks(&mut std::iter::once(sender.pid())));
            let mut pids = receivers.iter().map(|receiver| receiver.running.pid());
            outcome.peak[1] = outcome.peak[1].max(peaks(&mut pids));
            match sender.check() {
                Ok(()) => {}
                Err(ProcessError::Ended { status, tail, .. }) => {
                    if self.all && !status.ends_with("status: 0") {
                        return Err(output("millrace send", format!("{status}: {tail}")));
                    }
                    break;
                }
                Err(error) => return Err(error.into()),
            }
            if watch(start.elapsed().as_secs_f64(), &receivers)? {
                break;
            }
            if start.elapsed() > TRANSFER {
                return Err(output(
                    "millrace send",
                    format!("still running: {}", sender.tail()),
                ));
            }
            pause(Duration::from_millis(20))?;
        }
        outcome.seconds = start.elapsed().as_secs_f64();
        let log = sender.log();
        drop(sender);
        let after = (children_s(), test_bed.frames()?);
        outcome.cpu_s[0] = after.0 - before.0;
        outcome.frames = std::array::from_fn(|index| after.1[index] - before.1[index]);
        outcome.present = events(&log).filter_map(|event| event["present"].as_f64()).sum();
        // After one receiver has everything, the others get more of the link. Rates are therefore compared
        // while all receivers run.
        let common = receivers
            .iter()
            .map(|receiver| rates(&log, &receiver.address).len())
            .min();
        outcome.delivered = receivers
            .iter()
            .map(|receiver| self.delivered(&log, &receiver.address, common.unwrap_or_default()))
            .collect();
        if self.all && outcome.delivered.contains(&None) {
            return Err(output(
                "millrace send",
                "its log has no delivery to one of the receivers",
            ));
        }
        for receiver in &mut receivers {
            if self.all {
                receiver.running.finish()?;
            }
        }
        let name = self.source.file_name().unwrap_or_default();
        let targets: Vec<PathBuf> = receivers
            .iter()
            .map(|receiver| receiver.directory.join(name))
            .collect();
        drop(receivers);
        outcome.cpu_s[1] = children_s() - after.0;
        for (target, delivered) in targets.iter().zip(&outcome.delivered) {
            if delivered.is_some() {
                outcome.different += differences(self.source, target)?;
            }
        }
        Ok(outcome)
    }

    /// Returns the result of one receiver from the sender's log. Its steady rate is the mean over the progress
    /// events after the ramp, among the first `common` events.
    fn delivered(&self, log: &str, peer: &str, common: usize) -> Option<Delivered> {
        let of_peer = |event: &Value| event["peer"].as_str() == Some(peer);
        let mine: Vec<Value> = events(log).filter(of_peer).collect();
        let done = mine
            .iter()
            .find(|event| event["event"] == "done" && event["outcome"] == "delivered")?;
        let seconds = done["seconds"].as_f64()?;
        let accepted = mine.iter().find(|event| event["event"] == "accepted")?;
        let bytes = accepted["bytes"].as_f64()? - accepted["present"].as_f64()?;
        let rates = rates(log, peer);
        let skip = (self.ramp_s / PROGRESS_S).ceil() as usize;
        // The last interval is left out, because part of it is after the end.
        let end = common.min(rates.len()).saturating_sub(1);
        let steady = rates.get(skip..end).unwrap_or_default();
        let steady_bps = match steady {
            [] => bytes * 8.0 / seconds,
            steady => steady.iter().sum::<f64>() / steady.len() as f64,
        };
        Some(Delivered {
            seconds,
            bytes,
            steady_bps,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_steady_rate_leaves_out_the_ramp_and_the_last_interval() {
        let progress = |rate: u64| {
            format!(
                "{{\"event\":\"progress\",\"peer\":\"a:1\",\"verified\":0,\"bytes\":1000,\"rate_bps\":{rate}}}\n"
            )
        };
        let mut log =
            "noise\n{\"event\":\"accepted\",\"peer\":\"a:1\",\"bytes\":1000,\"present\":100}\n".to_owned();
        for rate in [1, 50, 100, 110, 3] {
            log += &progress(rate);
        }
        log += "{\"event\":\"done\",\"peer\":\"a:1\",\"outcome\":\"delivered\",\"bytes\":1010,\"seconds\":2.5}\n";
        let transfer = Transfer {
            source: Path::new("/x"),
            ramp_s: 1.0,
            options: &[],
            all: true,
        };
        let delivered = transfer.delivered(&log, "a:1", 9).unwrap();
        // Repairs, which `done` counts, are not delivered.
        assert_eq!((delivered.steady_bps, delivered.bytes), (105.0, 900.0));
        // The second receiver ended earlier.
        assert_eq!(transfer.delivered(&log, "a:1", 4).unwrap().steady_bps, 100.0);
        assert_eq!(transfer.delivered(&log, "b:1", 9), None);
    }
}
