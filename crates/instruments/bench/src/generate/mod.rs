//! `millrace-generator` beside a switch: packets go over memif to the switch's port 1, and come back from its
//! sinks, port 2 and 3. The generator is a process of its own, told what to do by lines on its standard input.
//!
//! The switch has the server's end of each memif (its [`Load::memif`] is the socket) and stays up; a
//! generator comes and goes.
//!
//! On a machine of two cores the generator shares its core with the switch's control plane. It is alone there
//! as long as nobody talks to the switch; where somebody does ([`updates`]) it has precedence over all, and
//! sleeps regularly, in quiet and in busy runs alike.

pub mod feed;
pub mod report;
pub mod search;
pub(crate) mod test_bed;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::peer::{Load, Peer, PeerError, Site};
use crate::workload::Sink;
use millrace_process::{ProcessError, Running, beside, in_path, shown, tool};
pub use report::{Counters, End, Latency, Report};

/// How long the generator may take to read its packets and open its devices, and links to come up.
const START: Duration = Duration::from_secs(60);
/// How long after its end a run may take to be reported: the last packets, and a machine that is busy.
const END: Duration = Duration::from_secs(15);
/// The real-time priority of a generator that has precedence: above everything usual, below the kernel's.
const PRIORITY: &str = "10";

/// What a generator takes of huge pages, MiB: its pool and EAL.
const GENERATOR_MIB: u64 = 160;

/// The thread of the generator that polls.
const LOOP: &str = "generator";

/// How the generator shares its core.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Share {
    /// As any program of the bench: precise where nobody else wants the core.
    Usual,
    /// First in line, and asleep for a part of the time whether somebody else wants the core or not.
    Ahead {
        /// How often it sleeps, microseconds.
        every_us: u32,
        /// For how long, microseconds.
        for_us: u32,
    },
}

/// How a generator is wired to a switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wiring {
    /// It sends into port 1, and receives from the sinks.
    OneWay,
    /// It sends into any port of the three, and receives from all of them.
    EveryPort,
}

/// Some of the packets, and where they are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Portion {
    /// The port, from 1. With [`Wiring::OneWay`] there is no other than 1.
    pub port: u32,
    /// The place of the first packet in the file, from 0.
    pub first: usize,
    /// How many packets.
    pub len: usize,
}

/// A generator that is connected to a switch; dropping it ends it.
#[derive(Debug)]
pub struct Generator {
    running: Running,
    command: String,
    seen: usize,
}

/// Where the generator is: named by `MILLRACE_GENERATOR`, or beside this program, or one folder up (examples,
/// tests).
pub fn program() -> PathBuf {
    beside("millrace-generator", "MILLRACE_GENERATOR")
}

/// Returns the devargs of the generator's end of the memif of a switch's port.
fn memif(device: u32, port: u32, socket: &Path, share: Share) -> String {
    // The client decides how many packets a ring holds: 2^10, unless the generator is away for a part of the
    // time and packets have to wait.
    let size = if share == Share::Usual { 10 } else { 12 };
    format!(
        "net_memif{device},role=client,id={port},socket={},socket-abstract=no,rsize={size}",
        socket.display()
    )
}

/// Gives the poll loop precedence on its core. Not the whole process: while it starts, its threads wait for
/// each other.
fn first_in_line(pid: u32) -> Result<(), ProcessError> {
    let tasks = PathBuf::from(format!("/proc/{pid}/task"));
    let entries = fs::read_dir(&tasks).map_err(ProcessError::file(&tasks))?;
    for task in entries.flatten() {
        let name = fs::read_to_string(task.path().join("comm")).unwrap_or_default();
        if name.trim() == LOOP {
            let mut command = Command::new("chrt");
            command.args(["--fifo", "--pid", PRIORITY]).arg(task.file_name());
            tool(&mut command)?;
        }
    }
    Ok(())
}

/// Returns the socket of a switch in this directory.
pub fn socket(dir: &Path) -> PathBuf {
    dir.join("memif.sock")
}

/// The load of a switch whose packets are in a generator's memory and come by this socket: it needs buffers for those under
/// way only.
fn wired(load: &Load, socket: PathBuf) -> Load {
    Load {
        packets_len: 0,
        memif: Some(socket),
        ..load.clone()
    }
}

/// What a switch with such a load takes of huge pages, together with its generator, MiB.
pub(crate) fn memory_mib(peer: &dyn Peer, load: &Load) -> u64 {
    let under_way = Load {
        packets_len: 0,
        ..load.clone()
    };
    peer.memory_mib(&under_way) + GENERATOR_MIB
}

impl Generator {
    /// Starts one beside a switch that is up, for the packets of `load`, wired one way, and waits for its links.
    /// Of the sinks it has those that the switch has: testpmd has one.
    ///
    /// # Errors
    /// It is not installed, or does not start, or the switch does not answer.
    pub fn start(site: &Site, load: &Load, peer: &dyn Peer, share: Share) -> Result<Generator, PeerError> {
        Generator::start_wired(site, load, peer, share, Wiring::OneWay)
    }

    /// As [`Generator::start`], wired as said.
    ///
    /// # Errors
    /// As [`Generator::start`].
    pub fn start_wired(
        site: &Site,
        load: &Load,
        peer: &dyn Peer,
        share: Share,
        wiring: Wiring,
    ) -> Result<Generator, PeerError> {
        let program = program();
        if !in_path(&program.to_string_lossy()) {
            return Err(PeerError::Unsuited {
                system: "millrace-generator",
                reason: format!(
                    "it is not at {}. To fix it: cargo build --release -p millrace-generator",
                    program.display()
                ),
            });
        }
        let (Some(socket), Some(packets)) = (&load.memif, load.ingress.first()) else {
            return Err(PeerError::Unsuited {
                system: peer.name(),
                reason: "it is not wired to a generator".to_owned(),
            });
        };
        let mut command = Command::new(&program);
        if let Share::Ahead { every_us, for_us } = share {
            command.arg("--sleep").arg(format!("{every_us},{for_us}"));
            // A sleep is no absence; what is longer than two of them is.
            command.arg("--absence-us").arg((2 * for_us + 30).to_string());
        }
        command.args(["--core", &site.control_core.to_string()]);
        command.arg("--tx").arg(memif(0, 1, socket, share));
        let sinks = if peer.applies_rules() {
            &Sink::ALL[..]
        } else {
            &Sink::ALL[..1]
        };
        if wiring == Wiring::EveryPort {
            command.arg("--rx").arg(memif(0, 1, socket, share));
        }
        for (device, sink) in (1..).zip(sinks) {
            let memif = memif(device, sink.port(), socket, share);
            command.arg("--rx").arg(&memif);
            if wiring == Wiring::EveryPort {
                command.arg("--tx").arg(&memif);
            }
        }
        if peer.sends_by_thread() {
            // On a machine of two cores: the thread that forwards, and the one that does everything else.
            command.args(["--rx-queues", "2"]);
        }
        command.arg("--packets").arg(packets);
        command.args(["--interval", "0", "--log", "error"]);
        if site.huge_pages_mib == 0 {
            command.args(["--huge-pages", "off"]);
        }
        let log = site.dir.join("generator.log");
        let running = Running::start("millrace-generator", &command, site.nice, &log)?;
        let mut generator = Generator {
            running,
            command: shown(&command),
            seen: 0,
        };
        while !matches!(generator.next("its links", START)?, Report::Link { up: true }) {}
        if let Share::Ahead { .. } = share {
            first_in_line(generator.running.pid())?;
        }
        Ok(generator)
    }

    /// Returns the command that started it, as a person would type it.
    pub fn command(&self) -> &str {
        &self.command
    }

    /// Returns the next report.
    fn next(&mut self, what: &str, within: Duration) -> Result<Report, PeerError> {
        let seen = self.seen;
        let line = self.running.wait_for(what, within, |running| {
            let log = running.log();
            // A line without its end is still being written.
            let mut lines = log.split_inclusive('\n').filter(|line| line.ends_with('\n'));
            Ok(lines.nth(seen).map(str::to_owned))
        })?;
        self.seen += 1;
        match serde_json::from_str(&line) {
            Ok(Report::Error { message }) => Err(PeerError::Unreadable {
                system: "millrace-generator",
                what: "it cannot do what it was told",
                text: message,
            }),
            Ok(report) => Ok(report),
            Err(_) => Err(PeerError::Unreadable {
                system: "millrace-generator",
                what: "a line that is no report",
                text: line,
            }),
        }
    }

    /// Offers `rate` packets a second (`None`: flat out) for this long, and waits until the last are back.
    ///
    /// # Errors
    /// It has ended, or its link is down.
    pub fn run(&mut self, rate: Option<f64>, length: Duration) -> Result<End, PeerError> {
        self.begin(rate, Some(length))?;
        self.end(length)
    }

    /// As [`Generator::run`], but does not wait: [`Generator::end`] does, or [`Generator::stop`] ends it.
    ///
    /// # Errors
    /// It has ended.
    pub fn begin(&mut self, rate: Option<f64>, length: Option<Duration>) -> Result<(), PeerError> {
        let rate = rate.map_or_else(|| "flat".to_owned(), |rate| format!("{rate:.3}"));
        let length = length.map_or_else(String::new, |length| format!("{:.3}", length.as_secs_f64()));
        Ok(self.running.write_line(format!("start {rate} {length}").trim())?)
    }

    /// Offers each packet of a portion once at this rate, and waits until the last are back; with a length, over and
    /// over for that long.
    ///
    /// # Errors
    /// It has ended, or its link is down, or it has no such packets.
    pub fn send(
        &mut self,
        rate: Option<f64>,
        length: Option<Duration>,
        portion: Portion,
    ) -> Result<End, PeerError> {
        let Portion { port, first, len } = portion;
        let device = port.saturating_sub(1);
        let speed = rate.map_or_else(|| "flat".to_owned(), |rate| format!("{rate:.3}"));
        let seconds = length.map_or_else(String::new, |length| format!(" {:.3}", length.as_secs_f64()));
        let line = format!("start {speed}{seconds} tx={device} packets={first}+{len}");
        self.running.write_line(&line)?;
        let once = Duration::from_secs_f64(len as f64 / rate.unwrap_or(1e6).max(1.0));
        self.end(length.unwrap_or(once))
    }

    /// Waits for the end of a run of this length.
    ///
    /// # Errors
    /// It has ended, or its link is down.
    pub fn end(&mut self, length: Duration) -> Result<End, PeerError> {
        loop {
            match self.next("the end of the run", length + END)? {
                Report::End(end) => return Ok(*end),
                Report::Link { up: false } => {
                    return Err(PeerError::Process(ProcessError::Ended {
                        program: "the switch".to_owned(),
                        status: "its memif is gone".to_owned(),
                        tail: self.running.tail(),
                    }));
                }
                _ => {}
            }
        }
    }

    /// Ends it, so that another can take its place.
    ///
    /// # Errors
    /// The person at the keyboard wants to stop.
    pub fn finish(&mut self) -> Result<(), PeerError> {
        // It may have ended by itself.
        let _ = self.running.write_line("quit");
        let start = std::time::Instant::now();
        while self.running.check().is_ok() && start.elapsed() < END {
            millrace_process::pause(Duration::from_millis(20))?;
        }
        Ok(())
    }

    /// Ends a run that has no length.
    ///
    /// # Errors
    /// It has ended.
    pub fn stop(&mut self) -> Result<End, PeerError> {
        self.running.write_line("stop")?;
        self.end(Duration::ZERO)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_of_a_memif_name_it_alike() {
        let socket = socket(Path::new("/run/x"));
        assert_eq!(
            memif(2, 3, &socket, Share::Usual),
            "net_memif2,role=client,id=3,socket=/run/x/memif.sock,socket-abstract=no,rsize=10"
        );
    }
}
