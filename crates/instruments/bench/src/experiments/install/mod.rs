//! The experiment `install`: a million entries. It measures the duration of their installation by
//! `ovs-ofctl`, their memory, the duration of their deletion, and the effect on echo requests and packets
//! while all entries time out.
//!
//! While entries time out, echo requests are sent over a connection of their own, and packets of one flow pass through
//! the switch into a capture file in memory. The file is checked and truncated every millisecond: a pause in
//! forwarding is the time for which it stays empty. A late wake-up of the checking thread does not count as a pause.

pub(crate) mod quantities;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::figure;
use crate::hugepages::HugePages;
use crate::peer::channel::Channel;
use crate::peer::{Forwarding, Load, Peer, PeerError, Resources, ofctl};
use crate::run::{RoundError, Run, RunError, replenish_huge_pages};
use crate::workload::{Shape, Sizes, Workload};
use millrace_process::{ProcessError, pause, resident_memory, run_tool};
use quantities::INSTALL;

/// The expected duration of the experiment.
pub const ESTIMATE: Duration = Duration::from_secs(100);

/// The number of entries.
const ENTRIES: usize = 1_000_000;
/// The idle timeout: longer than the installation takes.
const IDLE_TIMEOUT: Duration = Duration::from_secs(15);
/// The time limit for the removal of the last entry after the timeout.
const EXPIRY: Duration = Duration::from_secs(60);
/// The pause after a process has allocated or freed much memory.
const SETTLE_TIME: Duration = Duration::from_secs(1);
const SEED: u64 = 7;

struct Files {
    one: PathBuf,
    million: PathBuf,
    idle: PathBuf,
    packets: PathBuf,
    packets_len: usize,
}

/// Measures these systems. The failure of a system is recorded, and the others continue.
///
/// # Errors
/// [`RunError`].
pub fn run(run: &mut Run<'_>, peers: &[Box<dyn Peer>]) -> Result<(), RunError> {
    run.progress(&format!("{INSTALL}: 1,000,000 entries come, time out and go"));
    let files = Files::write(run)?;
    for peer in peers {
        // Only Millrace is measured in several rounds, because each of its rounds takes a fraction of a
        // second.
        let ours = peer.name() == "millrace";
        let rounds = if ours { run.length.rounds.min(3) } else { 1 };
        let mut outcome = (0..rounds).try_for_each(|round| add_and_delete(run, peer.as_ref(), round, &files));
        if ours && outcome.is_ok() {
            outcome = time_out(run, peer.as_ref(), &files);
        }
        match outcome {
            Ok(()) => {}
            Err(RoundError::Peer(error)) => run.failed(INSTALL, peer.name(), &error)?,
            Err(RoundError::Run(error)) => return Err(error),
        }
    }
    Ok(())
}

impl Files {
    /// Writes the flow entries, with and without timeouts, and the packets.
    fn write(run: &Run<'_>) -> Result<Files, RunError> {
        let dir = run.resources(INSTALL, 1, 0).dir;
        fs::create_dir_all(&dir).map_err(RunError::file(&dir))?;
        let write = |name: &str, text: &str| {
            let path = dir.join(name);
            fs::write(&path, text).map_err(RunError::file(&path))?;
            Ok::<PathBuf, RunError>(path)
        };
        let one = Workload::new(Shape::OneRule, SEED);
        let million = Workload::new(Shape::Exact(ENTRIES), SEED);
        let timeout = format!("idle_timeout={},", IDLE_TIMEOUT.as_secs());
        // The entry of the flow that packets use is kept.
        let mut idle = String::with_capacity(million.lines().len() + ENTRIES * timeout.len());
        for line in million.lines().lines() {
            idle.push_str(&timeout);
            idle.push_str(line);
            idle.push('\n');
        }
        idle.push_str(one.lines());
        let packets = dir.join("packets.pcap");
        Ok(Files {
            one: write("one", one.lines())?,
            million: write("million", million.lines())?,
            idle: write("idle", &idle)?,
            packets_len: one
                .write_packets(&packets, &Sizes::SMALLEST, SEED)
                .map_err(RunError::file(&packets))?,
            packets,
        })
    }
}

/// Installs and deletes the entries without packets.
fn add_and_delete(run: &mut Run<'_>, peer: &dyn Peer, round: usize, files: &Files) -> Result<(), RoundError> {
    let load = Load {
        flows: files.one.clone(),
        flows_len: 1,
        ingress: Vec::new(),
        packets_len: 0,
        first_sink: None,
        memif: None,
    };
    let reserved = ReservedResources::new(run, peer, INSTALL, round, &load)?;
    let mut running = peer.start(&reserved.resources, &load)?;
    pause(SETTLE_TIME)?;
    let Some(target) = running.target() else {
        return Ok(());
    };
    let mut figure = |name: &str, value: f64| match figure::find(INSTALL, name) {
        Some(quantity) => run.figure(peer.name(), round, quantity, value),
        None => Ok(()),
    };
    let (before, start) = (resident_memory(running.pid()).unwrap_or(0), Instant::now());
    ofctl::add_flows(&target, &files.million, reserved.resources.nice)?;
    figure("install", start.elapsed().as_secs_f64())?;
    check_entries(running.as_mut(), &target, ENTRIES + 1)?;
    let grown = resident_memory(running.pid()).unwrap_or(0).saturating_sub(before);
    figure("memory", grown as f64 / ENTRIES as f64)?;
    pause(SETTLE_TIME)?;
    let start = Instant::now();
    run_tool(&mut ofctl::command("del-flows", &target))?;
    figure("delete", start.elapsed().as_secs_f64())?;
    check_entries(running.as_mut(), &target, 0)?;
    Ok(())
}

/// Lets all entries time out while packets pass.
fn time_out(run: &mut Run<'_>, peer: &dyn Peer, files: &Files) -> Result<(), RoundError> {
    let dir = tempfile::Builder::new()
        .prefix("millrace-bench.")
        .tempdir_in("/dev/shm")
        .map_err(RunError::file(Path::new("/dev/shm")))?;
    let capture = Capture {
        path: dir.path().join("out.pcap"),
        _dir: dir,
    };
    let load = Load {
        flows: files.idle.clone(),
        flows_len: ENTRIES + 1,
        ingress: vec![files.packets.clone()],
        packets_len: files.packets_len,
        first_sink: Some(format!("net_pcap2,tx_pcap={}", capture.path.display())),
        memif: None,
    };
    let reserved = ReservedResources::new(run, peer, INSTALL, 0, &load)?;
    let mut running = peer.start(&reserved.resources, &load)?;
    let Some(target) = running.target() else {
        return Ok(());
    };
    let echoes = Observer::start(move |stop| longest_echo(&target, stop));
    let gaps = Observer::start(move |stop| {
        let start = Instant::now();
        let sleep = || std::thread::sleep(Duration::from_millis(1));
        Ok(longest_gap(stop, || start.elapsed(), sleep, || capture.take()))
    });
    let (seconds, [echo, gap]) = observed([echoes, gaps], || wait_for_expiry(running.as_mut()))?;
    for (name, value) in [
        ("expire", seconds),
        ("expire-echo", echo.as_secs_f64() * 1e3),
        ("expire-gap", gap.as_secs_f64() * 1e3),
    ] {
        if let Some(quantity) = figure::find(INSTALL, name) {
            run.figure(peer.name(), 0, quantity, value)?;
        }
    }
    Ok(())
}

/// The resources of a system with its huge pages. Dropping the value releases the pages.
pub(crate) struct ReservedResources {
    pub(crate) resources: Resources,
    _pages: [Option<HugePages>; 2],
}

impl ReservedResources {
    /// Reserves huge pages for a load and creates the directory of the system.
    pub(crate) fn new(
        run: &mut Run<'_>,
        peer: &dyn Peer,
        case: &str,
        round: usize,
        load: &Load,
    ) -> Result<ReservedResources, RoundError> {
        let (mib, pages) = run.huge_pages(peer.memory_mib(load)).unzip();
        let name = format!("{case}/{}.{}.{round}", peer.name(), load.flows_len);
        // Other load hardly affects these figures, and the tools run at the default level, too.
        let resources = Resources {
            nice: 0,
            ..run.resources(&name, 1, mib.unwrap_or(0))
        };
        fs::create_dir_all(&resources.dir).map_err(RunError::file(&resources.dir))?;
        let more = replenish_huge_pages(&resources)?;
        Ok(ReservedResources {
            resources,
            _pages: [pages, more],
        })
    }
}

/// Returns an error unless the switch has `entries` entries.
fn check_entries(running: &mut dyn Forwarding, target: &str, entries: usize) -> Result<(), PeerError> {
    let active = ofctl::active(target)?;
    if active == entries as u64 {
        return Ok(());
    }
    Err(PeerError::Unreadable {
        system: "the switch",
        what: "the number of flow entries is wrong",
        text: format!("expected {entries}, it has {active}\n{}", running.tail()),
    })
}

/// Returns the seconds between the removal of the first entry and that of the last.
fn wait_for_expiry(running: &mut dyn Forwarding) -> Result<f64, PeerError> {
    let Some(target) = running.target() else {
        return Ok(0.0);
    };
    let start = Instant::now();
    let mut first = None;
    loop {
        let active = ofctl::active(&target)?;
        if active <= ENTRIES as u64 {
            first.get_or_insert_with(Instant::now);
        }
        if active <= 1 {
            return Ok(first.map_or(0.0, |first: Instant| first.elapsed().as_secs_f64()));
        }
        if start.elapsed() > IDLE_TIMEOUT + EXPIRY {
            return Err(ProcessError::TimedOut {
                program: "the switch".to_owned(),
                awaited: format!("the removal of all entries ({active} are left)"),
                within: IDLE_TIMEOUT + EXPIRY,
                tail: running.tail(),
            }
            .into());
        }
        pause(Duration::from_millis(100))?;
    }
}

/// A thread that measures until it is stopped.
struct Observer {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<Duration, ProcessError>>,
}

impl Observer {
    fn start(
        observe: impl FnOnce(&AtomicBool) -> Result<Duration, ProcessError> + Send + 'static,
    ) -> Observer {
        let stop = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&stop);
        Observer {
            stop,
            thread: std::thread::spawn(move || observe(&seen)),
        }
    }

    fn end(self) -> Result<Duration, ProcessError> {
        self.stop.store(true, Ordering::Relaxed);
        match self.thread.join() {
            Ok(result) => result,
            Err(_) => Err(ProcessError::Interrupted),
        }
    }
}

/// Runs `wait`, then ends the observers, even if `wait` fails. Returns the result of `wait` and the results
/// of the observers.
fn observed<T>(
    observers: [Observer; 2],
    wait: impl FnOnce() -> Result<T, PeerError>,
) -> Result<(T, [Duration; 2]), PeerError> {
    let waited = wait();
    let [first, second] = observers.map(Observer::end);
    Ok((waited?, [first?, second?]))
}

fn longest_echo(target: &str, stop: &AtomicBool) -> Result<Duration, ProcessError> {
    let mut channel = Channel::connect(target)?;
    // The first echo waits for the connection to be set up.
    channel.echo()?;
    let mut longest = Duration::ZERO;
    while !stop.load(Ordering::Relaxed) {
        longest = longest.max(channel.echo()?);
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(longest)
}

/// The capture file that packets are written to.
struct Capture {
    path: PathBuf,
    _dir: tempfile::TempDir,
}

impl Capture {
    /// Returns true if the file grew since the last call, and truncates it.
    fn take(&self) -> bool {
        let written = fs::metadata(&self.path).is_ok_and(|metadata| metadata.len() > 0);
        if written && let Ok(file) = fs::OpenOptions::new().write(true).open(&self.path) {
            // The writer continues at its offset: the bytes before the offset become a hole.
            let _ = file.set_len(0);
        }
        written
    }
}

/// Returns the longest time for which `take` returned false, by the clock `now`. `sleep` is called between
/// two calls of `take`.
fn longest_gap(
    stop: &AtomicBool,
    now: impl Fn() -> Duration,
    mut sleep: impl FnMut(),
    mut take: impl FnMut() -> bool,
) -> Duration {
    let mut longest = Duration::ZERO;
    let mut empty_since: Option<Duration> = None;
    while !stop.load(Ordering::Relaxed) {
        if take() {
            empty_since = None;
        } else {
            let at = now();
            longest = longest.max(at - *empty_since.get_or_insert(at));
        }
        sleep();
    }
    longest
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::io::Write;

    #[test]
    fn observers_end_although_the_observed_fails() {
        let running = Arc::new(());
        let observer = || {
            let running = Arc::clone(&running);
            Observer::start(move |stop| {
                while !stop.load(Ordering::Relaxed) {
                    std::thread::yield_now();
                }
                drop(running);
                Ok(Duration::ZERO)
            })
        };
        let failed = || Err::<(), _>(PeerError::from(ProcessError::Interrupted));
        assert!(observed([observer(), observer()], failed).is_err());
        assert_eq!(Arc::strong_count(&running), 1);
    }

    #[test]
    fn a_pause_of_the_writer_is_as_long_as_the_file_stays_empty() {
        let dir = tempfile::tempdir().unwrap();
        let capture = Capture {
            path: dir.path().join("x"),
            _dir: dir,
        };
        let mut file = fs::File::create(&capture.path).unwrap();
        let (stop, millis) = (AtomicBool::new(false), Cell::new(0));
        let sleep = || {
            // The writer pauses from 12 to 212 ms. A check that is 500 ms late, while the writer wrote, is
            // not a pause.
            millis.set(millis.get() + if millis.get() == 215 { 500 } else { 1 });
            if !(13..212).contains(&millis.get()) {
                file.write_all(b"packet").unwrap();
            }
            stop.store(millis.get() >= 730, Ordering::Relaxed);
        };
        let now = || Duration::from_millis(millis.get());
        let longest = longest_gap(&stop, now, sleep, || capture.take());
        // The file is seen empty first at 13 and last at 211 ms.
        assert_eq!(longest, Duration::from_millis(198));
    }
}
