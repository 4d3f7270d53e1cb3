//! A function behind a vhost-user port of Millrace, Open vSwitch or any other switch that polls.
//!
//! The function processes the packets that the switch sends to the port, and sends back those that it does
//! not drop. The switch does the steering, so all verdicts other than *drop* forward the packet. Frames stay
//! in their receive buffer ([`millrace_vhost::driver`]).

use std::io::{self, Write as _};
use std::ops::Range;
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use arrayvec::ArrayVec;
use millrace_nf::{Context, Effects, Function, Rounds, Slot, Verdict};
use millrace_types::Time;
use millrace_vhost::driver::{BURST, Driver, DriverError, FRAME_AT};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

use crate::function::{check, load, set_scheduling};
use crate::options::Options;
use crate::sandbox::{self, PacketSource};

/// The pause between two attempts to connect.
const RETRY: Duration = Duration::from_millis(100);

/// Runs the function until the switch closes the connection.
pub(crate) fn run(options: &Options, socket: &Path) -> Result<()> {
    // The check comes before the connection, so that errors are reported even if no switch listens.
    check(options)?;
    if let Some(core) = options.core {
        let mut cores = CpuSet::new();
        cores.set(core)?;
        sched_setaffinity(Pid::from_raw(0), &cores).with_context(|| format!("--core {core}"))?;
    }
    set_scheduling(options.nice);
    let driver = connect(socket, options.descriptors)?;
    let [socket_fd, kick] = driver.fds().map(|file| file.as_raw_fd());
    let source = PacketSource::Socket {
        socket: socket_fd,
        kick,
    };
    let (_, mut function, _setup) = load(options, source)?;
    let sandbox = sandbox::before_running(options.code_generation(), source);
    sandbox.context("the rights of this process cannot be dropped")?;
    writeln!(io::stdout(), "connected to {}", socket.display()).context("standard output")?;
    let mut process = Process {
        share: u32::from(options.descriptors / 4),
        driver,
        effects: Effects::refusing(),
    };
    process.serve(&mut *function)
}

/// Connects to the switch, and retries until it listens. An incompatible switch is an error.
fn connect(socket: &Path, descriptors: u16) -> Result<Driver> {
    let mut is_logged = false;
    loop {
        match Driver::connect(socket, descriptors) {
            Ok(driver) => return Ok(driver),
            Err(error @ DriverError::Connect { .. }) => {
                if !is_logged {
                    eprintln!("millrace-nf: {error}; waiting for a switch");
                }
                is_logged = true;
                std::thread::sleep(RETRY);
            }
            Err(error) => return Err(error.into()),
        }
    }
}

struct Process {
    driver: Driver,
    /// Effects that this process cannot carry out.
    effects: Effects,
    /// The number of consecutive frames after which the process yields: a quarter of the ring. The queue of
    /// the next function on the core is full by then, and further frames would be lost.
    share: u32,
}

impl Process {
    fn serve(&mut self, function: &mut dyn Function) -> Result<()> {
        let (mut rounds, mut in_turn) = (Rounds::new(), 0);
        loop {
            let round = rounds.begin();
            if round.ticks {
                function.tick(round.now);
                if !self.driver.is_connected() {
                    bail!("the switch has closed the connection");
                }
            }
            let found = self.burst(function, round.now)?;
            rounds.end(found != 0);
            in_turn += found;
            if in_turn >= self.share {
                in_turn = 0;
                std::thread::yield_now();
            }
        }
    }

    /// Passes one burst of received frames to the function, and sends them back. Returns the number of
    /// frames.
    fn burst(&mut self, function: &mut dyn Function, now: Time) -> Result<u32> {
        let row = self.driver.receive()?;
        let sizes = row.sizes();
        if !sizes.is_empty() {
            let mut slots = ArrayVec::<Slot<'_>, BURST>::new();
            for (place, size) in self.driver.buffers(&row).zip(sizes) {
                let size = usize::from(*size);
                slots.push(Slot::new(place, FRAME_AT, size, size));
            }
            let context = Context {
                now,
                ..Context::default()
            };
            let verdicts = Slot::process(&mut slots, function, &context, &mut self.effects);
            let frames: ArrayVec<Option<Range<usize>>, BURST> = (slots.iter().zip(&verdicts))
                .map(|(slot, verdict)| (*verdict != Verdict::Drop).then(|| slot.bounds()))
                .collect();
            drop(slots);
            self.driver.send(&row, frames);
        }
        self.driver.flush()?;
        Ok(sizes.len() as u32)
    }
}
