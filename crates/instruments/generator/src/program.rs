//! The program: reads commands, starts the poll loop, prints its reports.
//!
//! It has three threads besides the poll loop: one reads standard input, one waits for signals, one forwards reports;
//! the calling thread waits for their events and polls the links. None of them runs while nothing happens.

use std::io::{self, BufRead, Write};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use millrace_dpdk::{CoreId, Port, clock, thread};
use nix::sys::signal::{SigSet, Signal};
use thiserror::Error;

use crate::args::Args;
use crate::control::{Command, Selection};
use crate::device::{self, DeviceError};
use crate::engine::Engine;
use crate::messages::{EngineCommand, IntervalLatencies, Progress};
use crate::reflect::{ReflectMode, reflect};
use crate::report::{End, Interval, Ready, Report};
use crate::settings::Settings;
use crate::templates::{TemplateError, Templates};

/// The interval of link polls.
const LINK_POLL_INTERVAL: Duration = Duration::from_millis(50);
/// The longest wait for the links of a run that `--rate` starts.
const LINK_WAIT: Duration = Duration::from_secs(10);
/// The number of reports that can wait for the reporter.
const PROGRESS_CAPACITY: usize = 4;

/// An error that ends the generator.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ProgramError {
    /// The packets cannot be built.
    #[error(transparent)]
    Templates(#[from] TemplateError),
    /// The devices cannot be started.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// Standard output cannot be written.
    #[error("standard output: {0}")]
    Output(#[from] io::Error),
    /// A thread cannot be started.
    #[error("cannot start a thread: {0}")]
    Thread(#[source] io::Error),
    /// The poll loop panicked.
    #[error("the poll loop panicked: see the message above")]
    Loop,
    /// The peer of a device is missing.
    #[error("{device}: its link did not come up within {} s. To fix it: start the other end (a memif needs one server and one client)", LINK_WAIT.as_secs())]
    NoLink {
        /// The name of the device.
        device: String,
    },
}

enum Event {
    Line(String),
    End,
    Progress(Progress),
}

/// The number of devices and packets that a run can use.
struct Limits {
    devices: usize,
    packets: usize,
}

impl Limits {
    /// Returns the reason why a selection cannot be sent, or `None`.
    fn error_of(&self, selection: &Selection) -> Option<String> {
        let Limits { devices, packets } = self;
        if selection.tx >= *devices {
            let tx = selection.tx;
            return Some(format!(
                "tx={tx}: expected less than {devices}, the number of devices that send"
            ));
        }
        let wanted = selection
            .packets
            .as_ref()
            .filter(|wanted| wanted.end > *packets)?;
        let (first, len) = (wanted.start, wanted.len());
        Some(format!(
            "packets={first}+{len}: there are {packets} packets, numbered from 0"
        ))
    }
}

/// Runs the program until `quit`, the end of standard input, or a signal.
///
/// # Errors
/// [`ProgramError`].
pub fn run(args: &Args) -> Result<(), ProgramError> {
    let templates = Arc::new(match &args.packets {
        Some(path) => Templates::from_pcap(path)?,
        None => Templates::from_pattern(&args.pattern())?,
    });
    let (events, inbox) = mpsc::channel();
    // Signals are blocked before any other thread starts, because threads inherit the mask.
    let signals = block_signals();
    let devices = device::open(args, templates.size_max())?;
    let (eal, ports) = (devices.eal, devices.ports);
    let (commands, loop_commands) = mpsc::channel();
    let (progress_sender, progress) = mpsc::sync_channel(PROGRESS_CAPACITY);
    let ready = Ready {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        packets: templates.len(),
        flows: templates.flows(),
        stampable: templates.stampable(),
        tx: devices
            .tx
            .first()
            .map_or_else(String::new, |tx| tx.port_name().to_owned()),
        rx: devices
            .rx
            .iter()
            .step_by(usize::from(args.rx_queues))
            .map(|rx| rx.port_name().to_owned())
            .collect(),
        huge_pages: eal.has_huge_pages(),
    };
    let limits = Limits {
        devices: devices.tx.len(),
        packets: templates.len(),
    };
    let engine = Engine {
        tx: devices.tx,
        rx: devices.rx,
        rx_queues: usize::from(args.rx_queues),
        pool: devices.pool,
        templates,
        settings: settings(args),
        hz: clock::tsc_hz(eal),
        seed: std::process::id() as u16,
        commands: loop_commands,
        progress: progress_sender,
    };
    let mode = args.reflect.then_some(match args.swap {
        true => ReflectMode::SwapMacs,
        false => ReflectMode::Unchanged,
    });
    let unused = devices.unused;
    let worker = thread::spawn(eal, "generator", CoreId(args.core), move || {
        let _kept = unused;
        match mode {
            Some(mode) => reflect(engine.rx, engine.tx, mode, &engine.commands),
            None => engine.run(),
        }
    })
    .map_err(DeviceError::from)?;
    watch_signals(signals, events.clone())?;
    forward_progress(progress, events.clone())?;
    if args.rate.is_none() {
        read_lines(events)?;
    }
    let mut reporter = Reporter::default();
    print(&Report::Ready(ready))?;
    let outcome = match (args.rate, args.seconds) {
        (Some(rate), length) => wait_for_links(&ports).and_then(|()| {
            let _ = commands.send(EngineCommand::Start(rate, length, Selection::default()));
            process_events(&inbox, &commands, &ports, &limits, &mut reporter, true)
        }),
        _ => process_events(&inbox, &commands, &ports, &limits, &mut reporter, false),
    };
    // The send fails if the loop panicked; `join` reports that.
    let _ = commands.send(EngineCommand::Quit);
    let joined = worker.join();
    drop(ports);
    eal.unmount_hugetlbfs();
    outcome?;
    joined.map_err(|_| ProgramError::Loop)
}

fn settings(args: &Args) -> Settings {
    Settings {
        depth: u64::from(args.depth),
        interval: args.interval,
        absence: Duration::from_micros(args.absence_us.into()),
        drain: Duration::from_millis(args.drain_ms.into()),
        sleep: args.sleep,
        stamp_every: u64::from(args.stamp_every),
        verify: !args.no_verify,
    }
}

/// Processes events until the program must end or, if `once` is true, until the first run has ended.
fn process_events(
    inbox: &Receiver<Event>,
    commands: &Sender<EngineCommand>,
    ports: &[Port],
    limits: &Limits,
    reporter: &mut Reporter,
    once: bool,
) -> Result<(), ProgramError> {
    let mut were_up = false;
    loop {
        let are_up = first_down(ports).is_none();
        if are_up != were_up {
            print(&Report::Link { up: are_up })?;
            were_up = are_up;
        }
        let event = match inbox.recv_timeout(LINK_POLL_INTERVAL) {
            Ok(event) => event,
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        };
        let command = match event {
            Event::Progress(progress) => {
                let is_end = progress.is_end;
                print(&reporter.report(&progress))?;
                if is_end && once {
                    return Ok(());
                }
                continue;
            }
            Event::End => return Ok(()),
            Event::Line(line) => match line.parse() {
                Ok(Command::Quit) => return Ok(()),
                Ok(Command::Stop) => EngineCommand::Stop,
                Ok(Command::Start {
                    rate,
                    length,
                    selection,
                }) => {
                    let refused = first_down(ports)
                        .map(|device| format!("{device}: its link is down: start the other end first"))
                        .or_else(|| limits.error_of(&selection));
                    if let Some(message) = refused {
                        print(&Report::Error { message })?;
                        continue;
                    }
                    EngineCommand::Start(rate, length, selection)
                }
                Err(error) => {
                    print(&Report::Error {
                        message: error.to_string(),
                    })?;
                    continue;
                }
            },
        };
        commands.send(command).map_err(|_| ProgramError::Loop)?;
    }
}

/// Returns the first device whose link is down. A device without link state counts as up.
fn first_down(ports: &[Port]) -> Option<&str> {
    ports
        .iter()
        .find(|port| port.link().is_ok_and(|link| !link.up))
        .map(Port::name)
}

fn wait_for_links(ports: &[Port]) -> Result<(), ProgramError> {
    let start = Instant::now();
    while let Some(device) = first_down(ports) {
        if start.elapsed() > LINK_WAIT {
            return Err(ProgramError::NoLink {
                device: device.to_owned(),
            });
        }
        std::thread::sleep(LINK_POLL_INTERVAL);
    }
    Ok(())
}

fn print(report: &Report) -> io::Result<()> {
    let mut line = serde_json::to_string(report)?;
    line.push('\n');
    let mut out = io::stdout().lock();
    out.write_all(line.as_bytes())?;
    out.flush()
}

/// The state of a run at its last report.
#[derive(Clone, Copy, Default)]
struct LastReport {
    /// The time since the start of the run.
    seconds: f64,
    sent: u64,
    received: u64,
}

/// Converts progress to reports, and sums the latencies of a run.
#[derive(Default)]
struct Reporter {
    /// The number of the run of the latest progress.
    run: u64,
    sum: IntervalLatencies,
    last: LastReport,
}

impl Reporter {
    fn report(&mut self, progress: &Progress) -> Report {
        // A `start` during a run ends that run without a last report.
        if progress.run != self.run {
            *self = Reporter {
                run: progress.run,
                ..Reporter::default()
            };
        }
        self.sum.all.add(&progress.latencies.all);
        self.sum.attended.add(&progress.latencies.attended);
        let counters = progress.counters;
        if !progress.is_end {
            let last = self.last;
            self.last = LastReport {
                seconds: progress.seconds,
                sent: counters.sent,
                received: counters.received,
            };
            let passed = progress.seconds - last.seconds;
            let rate = |count: u64| if passed > 0.0 { count as f64 / passed } else { 0.0 };
            return Report::Interval(Interval {
                run: progress.run,
                at_s: progress.seconds,
                tx_pps: rate(counters.sent.saturating_sub(last.sent)),
                rx_pps: rate(counters.received.saturating_sub(last.received)),
                latency: progress.latencies.all.summary(),
                counters,
            });
        }
        let rate = |count: u64| count as f64 / progress.seconds.max(1e-9);
        let report = Report::End(End {
            run: progress.run,
            rate: progress.rate,
            seconds: progress.seconds,
            tx_pps: rate(counters.sent),
            rx_pps: rate(counters.received),
            lost: (counters.sent + counters.refused).saturating_sub(counters.received),
            counters,
            latency: self.sum.all.summary(),
            latency_attended: self.sum.attended.summary(),
            histogram: self.sum.all.bars(),
            histogram_attended: self.sum.attended.bars(),
        });
        *self = Reporter::default();
        report
    }
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), ProgramError> {
    let thread = std::thread::Builder::new().name(name.to_owned()).spawn(work);
    thread.map(drop).map_err(ProgramError::Thread)
}

fn read_lines(events: Sender<Event>) -> Result<(), ProgramError> {
    spawn("commands", move || {
        for line in io::stdin().lock().lines().map_while(Result::ok) {
            if !line.trim().is_empty() && events.send(Event::Line(line)).is_err() {
                return;
            }
        }
        // The parent process has closed standard input.
        let _ = events.send(Event::End);
    })
}

fn forward_progress(progress: Receiver<Progress>, events: Sender<Event>) -> Result<(), ProgramError> {
    spawn("progress", move || {
        for progress in progress {
            if events.send(Event::Progress(progress)).is_err() {
                return;
            }
        }
        let _ = events.send(Event::End);
    })
}

/// Blocks the signals that end the program, so that it closes devices, removes sockets and frees huge pages first.
fn block_signals() -> Option<SigSet> {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGINT);
    signals.add(Signal::SIGTERM);
    // Signals that cannot be blocked end the program at once.
    signals.thread_block().ok().map(|()| signals)
}

fn watch_signals(signals: Option<SigSet>, events: Sender<Event>) -> Result<(), ProgramError> {
    let Some(signals) = signals else {
        return Ok(());
    };
    spawn("signals", move || {
        if signals.wait().is_ok() {
            let _ = events.send(Event::End);
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Counters;

    #[test]
    fn a_run_that_replaces_another_reports_its_own_latencies_and_rates() {
        let progress = |run, seconds, sent, ns, is_end| {
            let mut latencies = Box::<IntervalLatencies>::default();
            latencies.all.record(ns);
            latencies.attended.record(ns);
            let counters = Counters {
                sent,
                ..Counters::default()
            };
            Progress {
                run,
                rate: None,
                seconds,
                counters,
                latencies,
                is_end,
            }
        };
        let mut reporter = Reporter::default();
        reporter.report(&progress(1, 4.0, 4_000, 1_000_000, false));
        let Report::Interval(interval) = reporter.report(&progress(2, 1.0, 500, 100, false)) else {
            panic!("an interval");
        };
        assert_eq!((interval.run, interval.tx_pps), (2, 500.0));
        let Report::End(end) = reporter.report(&progress(2, 2.0, 1_000, 100, true)) else {
            panic!("an end");
        };
        for latency in [end.latency, end.latency_attended] {
            assert_eq!((latency.count, latency.max_ns), (2, 100));
        }
        // A run that starts after the end of another run has only its own latencies, too.
        let Report::End(end) = reporter.report(&progress(3, 1.0, 10, 200, true)) else {
            panic!("an end");
        };
        assert_eq!((end.run, end.latency.count), (3, 1));
    }
}
