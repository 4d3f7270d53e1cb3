//! A function behind a vhost-user port: of Millrace, of Open vSwitch, of any switch that polls.
//!
//! What the switch sends there goes through the function and back, but for what is dropped. The switch steers, by whatever it
//! steers with; verdicts that name a hop or a port are for chains, and mean the same as the next one here. Frames stay
//! in the buffer that they came in ([`millrace_vhost::driver`]).

use std::io::{self, Write as _};
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use arrayvec::ArrayVec;
use millrace_nf::{Context, Function, Rounds, Slot, Verdict};
use millrace_types::Time;
use millrace_vhost::driver::{BURST, Driver, DriverError, FRAME_AT};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

use crate::rights::{self, Giver};
use crate::{Options, be_prompt, check, load};

/// How long until the next try to connect.
const AGAIN: Duration = Duration::from_millis(100);

/// Runs the function until the switch ends.
pub(crate) fn run(options: &Options, socket: &Path) -> Result<()> {
    // Now, and not when a switch has come.
    check(options)?;
    if let Some(core) = options.core {
        let mut cores = CpuSet::new();
        cores.set(core)?;
        sched_setaffinity(Pid::from_raw(0), &cores).with_context(|| format!("--core {core}"))?;
    }
    be_prompt(options.nice);
    let driver = connect(socket, options.descriptors)?;
    let [line, wake] = driver.fds().map(|file| file.as_raw_fd());
    let giver = Giver::Switch { line, wake };
    let (_, mut function, _setup) = load(options, giver)?;
    let rights = rights::before_running(options.needs(), giver);
    rights.context("rights that are not needed cannot be given up")?;
    writeln!(io::stdout(), "connected to {}", socket.display()).context("standard output")?;
    let mut process = Process {
        share: u32::from(options.descriptors / 4),
        driver,
    };
    process.serve(&mut *function)
}

/// Tries until somebody listens. Whoever listens and is no such switch is not tried again.
fn connect(socket: &Path, descriptors: u16) -> Result<Driver> {
    let mut has_told = false;
    loop {
        match Driver::connect(socket, descriptors) {
            Ok(driver) => return Ok(driver),
            Err(error @ DriverError::Connect { .. }) => {
                if !has_told {
                    eprintln!("millrace-nf: {error}; waiting for a switch");
                }
                has_told = true;
                std::thread::sleep(AGAIN);
            }
            Err(error) => return Err(error.into()),
        }
    }
}

struct Process {
    driver: Driver,
    /// Frames after which others have the core though there are more: the queue of the next function on it is full then,
    /// and what is sent beyond that is lost.
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
                    bail!("the switch is gone");
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

    /// Frames that waited, a burst at most, on their way back. Returns how many there were.
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
            let verdicts = Slot::process(&mut slots, function, &context);
            let frames: ArrayVec<Option<(usize, usize)>, BURST> = (slots.iter().zip(&verdicts))
                .map(|(slot, verdict)| (*verdict != Verdict::Drop).then(|| slot.bounds()))
                .collect();
            drop(slots);
            self.driver.send(&row, frames);
        }
        self.driver.flush()?;
        Ok(sizes.len() as u32)
    }
}
