//! `millrace-generator` alongside a switch. The generator is a process of its own, controlled by lines on its standard
//! input.
//!
//! ```text
//!              +--------- memif: port 1 -------->  +--------+
//!  generator --+                                   | switch |
//!              +<-------- memif: ports 2, 3 -----  +--------+
//! ```
//!
//! The switch has the server end of each memif ([`Load::memif`] is the socket) and keeps running while generators are
//! started and ended.
//!
//! On two cores the generator shares a core with the control plane of the switch. It has the core to itself as long as
//! the control plane is idle. Where the control plane works ([`crate::experiments::updates`]), the generator has
//! real-time priority and sleeps regularly, with and without load on the control plane.

pub mod feed;
pub mod report;
pub mod search;
pub(crate) mod test_bed;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::peer::{Load, Peer, PeerError, Resources};
use crate::workload::Sink;
use millrace_process::{ProcessError, Running, command_line, is_installed, program_path, run_tool};
pub use report::{Counters, End, Latency, Report};

/// The time limit for the generator to read its packets, to open its devices, and for links to come up.
const START: Duration = Duration::from_secs(60);
/// The time limit for the report after the end of a run. It allows for the last packets and for a busy
/// machine.
const END: Duration = Duration::from_secs(15);
/// The real-time priority of the generator: above normal processes, below the threads of the kernel.
const PRIORITY: &str = "10";

/// The huge pages of a generator in MiB: its pool and EAL.
const GENERATOR_MIB: u64 = 160;

/// The name of the thread of the generator that polls.
const LOOP: &str = "generator";

/// The scheduling of the generator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheduling {
    /// The scheduling of the other programs of the bench. The generator is precise if no other thread needs
    /// the core.
    Normal,
    /// SCHED_FIFO (sched(7)), with regular sleeps, whether another thread needs the core or not.
    Fifo {
        /// The period of the sleeps in microseconds.
        every_us: u32,
        /// The duration of a sleep in microseconds.
        for_us: u32,
    },
}

/// The links between a generator and a switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wiring {
    /// The generator sends into port 1, and receives from the sinks.
    OneWay,
    /// The generator sends into any of the three ports, and receives from all of them.
    EveryPort,
}

/// A range of the packets, and the port into which they are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PacketRange {
    /// The number of the port, from 1. With [`Wiring::OneWay`] only 1 is possible.
    pub port: u32,
    /// The index of the first packet in the file, from 0.
    pub first: usize,
    /// The number of packets.
    pub len: usize,
}

/// A generator that is connected to a switch. Dropping the value ends it.
#[derive(Debug)]
pub struct Generator {
    running: Running,
    command: String,
    seen: usize,
}

/// Returns the path of the generator: the value of `MILLRACE_GENERATOR`, or beside this program, or one folder up
/// (examples, tests).
pub fn program() -> PathBuf {
    program_path("millrace-generator", "MILLRACE_GENERATOR")
}

/// Returns the devargs of the generator's end of the memif of a port.
fn memif(device: u32, port: u32, socket: &Path, scheduling: Scheduling) -> String {
    // The client determines the size of the rings: 2^10 packets, and 2^12 if the generator sleeps and packets have to
    // be queued.
    let size = if scheduling == Scheduling::Normal { 10 } else { 12 };
    format!(
        "net_memif{device},role=client,id={port},socket={},socket-abstract=no,rsize={size}",
        socket.display()
    )
}

/// Gives the polling thread real-time priority. The other threads keep theirs, as they wait for each other at the
/// start.
fn set_fifo_priority(pid: u32) -> Result<(), ProcessError> {
    let tasks = PathBuf::from(format!("/proc/{pid}/task"));
    let entries = fs::read_dir(&tasks).map_err(ProcessError::file(&tasks))?;
    for task in entries.flatten() {
        let name = fs::read_to_string(task.path().join("comm")).unwrap_or_default();
        if name.trim() == LOOP {
            let mut command = Command::new("chrt");
            command.args(["--fifo", "--pid", PRIORITY]).arg(task.file_name());
            run_tool(&mut command)?;
        }
    }
    Ok(())
}

/// Returns the path of the memif socket of a switch in this directory.
pub fn socket(dir: &Path) -> PathBuf {
    dir.join("memif.sock")
}

/// Returns the load of a switch whose packets come from a generator over this socket: it needs buffers only for the
/// packets in transit.
fn wired(load: &Load, socket: PathBuf) -> Load {
    Load {
        packets_len: 0,
        memif: Some(socket),
        ..load.clone()
    }
}

/// Returns the huge pages that a switch with this load and its generator need, in MiB.
pub(crate) fn memory_mib(peer: &dyn Peer, load: &Load) -> u64 {
    let under_way = Load {
        packets_len: 0,
        ..load.clone()
    };
    peer.memory_mib(&under_way) + GENERATOR_MIB
}

impl Generator {
    /// Starts a generator for the packets of `load` alongside a running switch, with [`Wiring::OneWay`], and waits for
    /// its links. It is connected to the sinks that the switch has: testpmd has one.
    ///
    /// # Errors
    /// The generator is not installed or does not start, or the switch does not accept its links.
    pub fn start(
        resources: &Resources,
        load: &Load,
        peer: &dyn Peer,
        scheduling: Scheduling,
    ) -> Result<Generator, PeerError> {
        Generator::start_wired(resources, load, peer, scheduling, Wiring::OneWay)
    }

    /// Starts a generator as [`Generator::start`] does, with the given wiring.
    ///
    /// # Errors
    /// The errors of [`Generator::start`].
    pub fn start_wired(
        resources: &Resources,
        load: &Load,
        peer: &dyn Peer,
        scheduling: Scheduling,
        wiring: Wiring,
    ) -> Result<Generator, PeerError> {
        let program = program();
        if !is_installed(&program.to_string_lossy()) {
            return Err(PeerError::Unsupported {
                system: "millrace-generator",
                reason: format!(
                    "it does not exist at {}. To fix it: cargo build --release -p millrace-generator",
                    program.display()
                ),
            });
        }
        let (Some(socket), Some(packets)) = (&load.memif, load.ingress.first()) else {
            return Err(PeerError::Unsupported {
                system: peer.name(),
                reason: "its load has no memif for the generator".to_owned(),
            });
        };
        let mut command = Command::new(&program);
        if let Scheduling::Fifo { every_us, for_us } = scheduling {
            command.arg("--sleep").arg(format!("{every_us},{for_us}"));
            // Only a gap longer than two sleeps counts as an absence.
            command.arg("--absence-us").arg((2 * for_us + 30).to_string());
        }
        command.args(["--core", &resources.control_core.to_string()]);
        command.arg("--tx").arg(memif(0, 1, socket, scheduling));
        let sinks = if peer.applies_rules() {
            &Sink::ALL[..]
        } else {
            &Sink::ALL[..1]
        };
        if wiring == Wiring::EveryPort {
            command.arg("--rx").arg(memif(0, 1, socket, scheduling));
        }
        for (device, sink) in (1..).zip(sinks) {
            let memif = memif(device, sink.port(), socket, scheduling);
            command.arg("--rx").arg(&memif);
            if wiring == Wiring::EveryPort {
                command.arg("--tx").arg(&memif);
            }
        }
        if peer.sends_by_thread() {
            // On two cores, these are the queues of the forwarding thread and of the thread for everything
            // else.
            command.args(["--rx-queues", "2"]);
        }
        command.arg("--packets").arg(packets);
        command.args(["--interval", "0", "--log", "error"]);
        if resources.huge_pages_mib == 0 {
            command.args(["--huge-pages", "off"]);
        }
        let log = resources.dir.join("generator.log");
        let running = Running::start("millrace-generator", &command, resources.nice, &log)?;
        let mut generator = Generator {
            running,
            command: command_line(&command),
            seen: 0,
        };
        while !matches!(generator.next("its links", START)?, Report::Link { up: true }) {}
        if let Scheduling::Fifo { .. } = scheduling {
            set_fifo_priority(generator.running.pid())?;
        }
        Ok(generator)
    }

    /// Returns the command line of the generator.
    pub fn command(&self) -> &str {
        &self.command
    }

    /// Returns the next report of the generator.
    fn next(&mut self, what: &str, within: Duration) -> Result<Report, PeerError> {
        let seen = self.seen;
        let line = self.running.wait_for(what, within, |running| {
            let log = running.log();
            // A line without a line feed is still being written.
            let mut lines = log.split_inclusive('\n').filter(|line| line.ends_with('\n'));
            Ok(lines.nth(seen).map(str::to_owned))
        })?;
        self.seen += 1;
        match serde_json::from_str(&line) {
            Ok(Report::Error { message }) => Err(PeerError::Unreadable {
                system: "millrace-generator",
                what: "it rejected a command",
                text: message,
            }),
            Ok(report) => Ok(report),
            Err(_) => Err(PeerError::Unreadable {
                system: "millrace-generator",
                what: "a line is not a report",
                text: line,
            }),
        }
    }

    /// Offers `rate` packets per second (`None`: full rate) for `length`, and waits until the last packets return.
    ///
    /// # Errors
    /// The generator has ended, or its link is down.
    pub fn run(&mut self, rate: Option<f64>, length: Duration) -> Result<End, PeerError> {
        self.begin(rate, Some(length))?;
        self.end(length)
    }

    /// Starts a run as [`Generator::run`] does and returns at once. [`Generator::end`] waits for the end,
    /// [`Generator::stop`] ends the run.
    ///
    /// # Errors
    /// The generator has ended.
    pub fn begin(&mut self, rate: Option<f64>, length: Option<Duration>) -> Result<(), PeerError> {
        let rate = rate.map_or_else(|| "flat".to_owned(), |rate| format!("{rate:.3}"));
        let length = length.map_or_else(String::new, |length| format!("{:.3}", length.as_secs_f64()));
        Ok(self.running.write_line(format!("start {rate} {length}").trim())?)
    }

    /// Sends each packet of a range once at this rate, and waits until the last packets return. With a length, the
    /// range is repeated for that time.
    ///
    /// # Errors
    /// The generator has ended, its link is down, or it has no such packets.
    pub fn send(
        &mut self,
        rate: Option<f64>,
        length: Option<Duration>,
        portion: PacketRange,
    ) -> Result<End, PeerError> {
        let PacketRange { port, first, len } = portion;
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
    /// The generator has ended, or its link is down.
    pub fn end(&mut self, length: Duration) -> Result<End, PeerError> {
        loop {
            match self.next("the end of the run", length + END)? {
                Report::End(end) => return Ok(*end),
                Report::Link { up: false } => {
                    return Err(PeerError::Process(ProcessError::Ended {
                        program: "the switch".to_owned(),
                        status: "its memif is closed".to_owned(),
                        tail: self.running.tail(),
                    }));
                }
                _ => {}
            }
        }
    }

    /// Ends the generator, so that another one can use its links.
    ///
    /// # Errors
    /// SIGINT or SIGTERM was received.
    pub fn finish(&mut self) -> Result<(), PeerError> {
        // The generator may have ended already.
        let _ = self.running.write_line("quit");
        let start = std::time::Instant::now();
        while self.running.check().is_ok() && start.elapsed() < END {
            millrace_process::pause(Duration::from_millis(20))?;
        }
        Ok(())
    }

    /// Ends a run without a length.
    ///
    /// # Errors
    /// The generator has ended.
    pub fn stop(&mut self) -> Result<End, PeerError> {
        self.running.write_line("stop")?;
        self.end(Duration::ZERO)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generators_end_of_a_memif_has_the_identifier_of_the_port() {
        let socket = socket(Path::new("/run/x"));
        assert_eq!(
            memif(2, 3, &socket, Scheduling::Normal),
            "net_memif2,role=client,id=3,socket=/run/x/memif.sock,socket-abstract=no,rsize=10"
        );
    }
}
