//! The program: reads commands, starts the poll loop, prints what it says.
//!
//! Three threads: one reads standard input, one waits for signals, and the calling one waits for both, for the
//! loop's notes, and for links. None of them does anything while nothing happens.

use std::io::{self, BufRead, Write};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use millrace_dpdk::{CoreId, Port, clock, thread};
use nix::sys::signal::{SigSet, Signal};
use thiserror::Error;

use crate::args::Args;
use crate::control::{Command, Portion};
use crate::device::{self, DeviceError};
use crate::engine::{Engine, Note, Order, Parts, Settings};
use crate::reflect::{Manner, reflect};
use crate::report::{End, Interval, Ready, Report};
use crate::templates::{TemplateError, Templates};

/// How often links are looked at.
const LINK_TICK: Duration = Duration::from_millis(50);
/// How long a run that starts by itself waits for links.
const LINK_WAIT: Duration = Duration::from_secs(10);
/// Notes that the loop may be ahead of the printer.
const NOTES: usize = 4;

/// Why the program ends before its end.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ProgramError {
    /// There are no packets.
    #[error(transparent)]
    Templates(#[from] TemplateError),
    /// There are no devices.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// Nobody reads.
    #[error("standard output: {0}")]
    Output(#[from] io::Error),
    /// A thread does not start.
    #[error("cannot start a thread: {0}")]
    Thread(#[source] io::Error),
    /// The poll loop died.
    #[error("the poll loop has ended unexpectedly")]
    Loop,
    /// The other end of a device is not there.
    #[error("{device}: its link did not come up within {} s. To fix it: start the other end (a memif needs one server and one client)", LINK_WAIT.as_secs())]
    NoLink {
        /// The device.
        device: String,
    },
}

enum Event {
    Line(String),
    End,
    Note(Note),
}

/// What there is to send, and to send it by.
struct Limits {
    devices: usize,
    packets: usize,
}

impl Limits {
    /// Why a portion cannot be sent.
    fn refuse(&self, portion: &Portion) -> Option<String> {
        let Limits { devices, packets } = self;
        if portion.tx >= *devices {
            let tx = portion.tx;
            return Some(format!(
                "tx={tx}: expected less than {devices}, the number of devices that send"
            ));
        }
        let wanted = portion.packets.as_ref().filter(|wanted| wanted.end > *packets)?;
        let (first, len) = (wanted.start, wanted.len());
        Some(format!(
            "packets={first}+{len}: there are {packets} packets, the first of which is number 0"
        ))
    }
}

/// Does what the command line says, until told to quit.
///
/// # Errors
/// [`ProgramError`].
pub fn run(args: &Args) -> Result<(), ProgramError> {
    let templates = Arc::new(match &args.packets {
        Some(path) => Templates::from_pcap(path)?,
        None => Templates::from_pattern(&args.pattern())?,
    });
    let (events, inbox) = mpsc::channel();
    // Before any other thread is started: they inherit what is blocked.
    let signals = block_signals();
    let devices = device::open(args, templates.size_max())?;
    let (eal, ports) = (devices.eal, devices.ports);
    let (orders, loop_orders) = mpsc::channel();
    let (note_sender, notes) = mpsc::sync_channel(NOTES);
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
        orders: loop_orders,
        notes: note_sender,
    };
    let manner = args.reflect.then_some(match args.swap {
        true => Manner::Swapped,
        false => Manner::AsItCame,
    });
    let unused = devices.unused;
    let worker = thread::spawn(eal, "generator", CoreId(args.core), move || {
        let _kept = unused;
        match manner {
            Some(manner) => reflect(engine.rx, engine.tx, manner, &engine.orders),
            None => engine.run(),
        }
    })
    .map_err(DeviceError::from)?;
    watch_signals(signals, events.clone())?;
    forward_notes(notes, events.clone())?;
    if args.rate.is_none() {
        read_lines(events)?;
    }
    let mut printer = Printer::default();
    print(&Report::Ready(ready))?;
    let outcome = match (args.rate, args.seconds) {
        (Some(rate), length) => wait_for_links(&ports).and_then(|()| {
            let _ = orders.send(Order::Start(rate, length, Portion::default()));
            follow(&inbox, &orders, &ports, &limits, &mut printer, true)
        }),
        _ => follow(&inbox, &orders, &ports, &limits, &mut printer, false),
    };
    // The loop may have died, in which case joining it says so.
    let _ = orders.send(Order::Quit);
    let joined = worker.join();
    drop(ports);
    eal.give_back();
    outcome?;
    joined.map_err(|_| ProgramError::Loop)
}

fn settings(args: &Args) -> Settings {
    Settings {
        depth: u64::from(args.depth),
        interval: args.interval,
        absence: Duration::from_micros(args.absence_us.into()),
        drain: Duration::from_millis(args.drain_ms.into()),
        rest: args.rest,
        stamp_every: u64::from(args.stamp_every),
        verify: !args.no_verify,
    }
}

/// Until told to quit, or after the first run.
fn follow(
    inbox: &Receiver<Event>,
    orders: &Sender<Order>,
    ports: &[Port],
    limits: &Limits,
    printer: &mut Printer,
    once: bool,
) -> Result<(), ProgramError> {
    let mut were_up = false;
    loop {
        let are_up = down(ports).is_none();
        if are_up != were_up {
            print(&Report::Link { up: are_up })?;
            were_up = are_up;
        }
        let event = match inbox.recv_timeout(LINK_TICK) {
            Ok(event) => event,
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        };
        let order = match event {
            Event::Note(note) => {
                let is_end = note.is_end;
                print(&printer.report(&note))?;
                if is_end && once {
                    return Ok(());
                }
                continue;
            }
            Event::End => return Ok(()),
            Event::Line(line) => match line.parse() {
                Ok(Command::Quit) => return Ok(()),
                Ok(Command::Stop) => Order::Stop,
                Ok(Command::Start {
                    rate,
                    length,
                    portion,
                }) => {
                    let refused = down(ports)
                        .map(|device| format!("{device}: its link is down, so that nothing can be sent"))
                        .or_else(|| limits.refuse(&portion));
                    if let Some(message) = refused {
                        print(&Report::Error { message })?;
                        continue;
                    }
                    Order::Start(rate, length, portion)
                }
                Err(error) => {
                    print(&Report::Error {
                        message: error.to_string(),
                    })?;
                    continue;
                }
            },
        };
        orders.send(order).map_err(|_| ProgramError::Loop)?;
    }
}

/// The first device whose link is down. One that does not say is taken to be up.
fn down(ports: &[Port]) -> Option<&str> {
    ports
        .iter()
        .find(|port| port.link().is_ok_and(|link| !link.up))
        .map(Port::name)
}

fn wait_for_links(ports: &[Port]) -> Result<(), ProgramError> {
    let start = Instant::now();
    while let Some(device) = down(ports) {
        if start.elapsed() > LINK_WAIT {
            return Err(ProgramError::NoLink {
                device: device.to_owned(),
            });
        }
        std::thread::sleep(LINK_TICK);
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

/// From notes to reports: sums up the latencies of a run.
#[derive(Default)]
struct Printer {
    sum: Parts,
    last: (f64, u64, u64),
}

impl Printer {
    fn report(&mut self, note: &Note) -> Report {
        self.sum.all.add(&note.parts.all);
        self.sum.attended.add(&note.parts.attended);
        let counters = note.counters;
        if !note.is_end {
            let (then, sent, received) = self.last;
            self.last = (note.seconds, counters.sent, counters.received);
            let passed = note.seconds - then;
            let rate = |count: u64| if passed > 0.0 { count as f64 / passed } else { 0.0 };
            return Report::Interval(Interval {
                run: note.run,
                at_s: note.seconds,
                tx_pps: rate(counters.sent.saturating_sub(sent)),
                rx_pps: rate(counters.received.saturating_sub(received)),
                latency: note.parts.all.summary(),
                counters,
            });
        }
        let rate = |count: u64| count as f64 / note.seconds.max(1e-9);
        let report = Report::End(End {
            run: note.run,
            rate: note.rate,
            seconds: note.seconds,
            tx_pps: rate(counters.sent),
            rx_pps: rate(counters.received),
            lost: (counters.sent + counters.refused).saturating_sub(counters.received),
            counters,
            latency: self.sum.all.summary(),
            latency_attended: self.sum.attended.summary(),
            histogram: self.sum.all.bars(),
            histogram_attended: self.sum.attended.bars(),
        });
        *self = Printer::default();
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
        // Whoever started this has gone.
        let _ = events.send(Event::End);
    })
}

fn forward_notes(notes: Receiver<Note>, events: Sender<Event>) -> Result<(), ProgramError> {
    spawn("notes", move || {
        for note in notes {
            if events.send(Event::Note(note)).is_err() {
                return;
            }
        }
        let _ = events.send(Event::End);
    })
}

/// What ends the program in order: devices are closed, sockets removed, huge pages given back.
fn block_signals() -> Option<SigSet> {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGINT);
    signals.add(Signal::SIGTERM);
    // Where they cannot be blocked they end the program at once, as usual.
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
