//! Functions in processes of their own: started, watched, fed over a window of shared memory, and ended.
//!
//! The lane keeps every packet that it gives, in order, until the answer is there or the process is gone; what goes over
//! is a copy (class `isolated`), or the place of the packet in memory that the process maps, too (class `ring`). A thread waits for the end of each process, so that death is known at once; a heartbeat tells of one that
//! hangs.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use arrayvec::ArrayVec;
use millrace_datapath::io::Burst;
use millrace_flow::classify::BURST;
use millrace_nf::shm::{Answer, SwitchEnd};
use millrace_nf::{Counters, Direction, Setup, Verdict};
use millrace_types::{Duration, Time};
use millrace_wire::Packet;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::hop::{IN_FLIGHT_MAX, Remote};
use crate::plan::Class;

/// Bytes of a packet's first segment: the longest frame and some tags. What is longer is dropped.
const PACKET_SIZE: usize = 9728;
/// A process that shows no life for so long hangs.
const SILENCE: Duration = Duration::from_secs(2);
/// How often counters and the heartbeat are looked at.
const LOOK: Duration = Duration::from_millis(100);

/// Where the program is that runs functions: beside this one, unless MILLRACE_NF says otherwise.
pub fn nf_program() -> PathBuf {
    if let Some(path) = std::env::var_os("MILLRACE_NF") {
        return path.into();
    }
    let beside = std::env::current_exe().ok();
    let beside = beside.and_then(|path| Some(path.parent()?.join("millrace-nf")));
    beside
        .filter(|path| path.exists())
        .unwrap_or_else(|| "millrace-nf".into())
}

/// What is known of a process, by all who have to do with it.
#[derive(Debug)]
pub(crate) struct Process {
    pid: AtomicU64,
    is_dead: AtomicBool,
}

impl Process {
    /// Ends it at once.
    pub(crate) fn kill(&self) {
        if !self.is_dead.load(Ordering::Acquire)
            && let Ok(pid) = i32::try_from(self.pid.load(Ordering::Acquire))
        {
            // Gone already: the waiting thread will say so.
            let _gone = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
    }

    /// Its number.
    pub(crate) fn pid(&self) -> u32 {
        self.pid.load(Ordering::Acquire) as u32
    }
}

/// Memory of this process that another one can map: a line of `/proc/self/maps`.
struct Part {
    start: u64,
    end: u64,
    offset: u64,
}

/// Parts that are written to and shared, and long enough to hold packets: those of DPDK.
fn shared_memory() -> io::Result<Vec<Part>> {
    let maps = std::fs::read_to_string("/proc/self/maps")?;
    Ok(maps.lines().filter_map(part_of).collect())
}

/// Least bytes of a part: a huge page.
const PART_MIN: u64 = 2 << 20;

/// `START-END rw-s OFFSET DEV INODE PATH`, numbers in hex (proc(5)).
fn part_of(line: &str) -> Option<Part> {
    let mut words = line.split_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let is_shared = words.next()? == "rw-s";
    let hex = |text: &str| u64::from_str_radix(text, 16).ok();
    let part = Part {
        start: hex(start)?,
        end: hex(end)?,
        offset: hex(words.next()?)?,
    };
    (is_shared && part.end - part.start >= PART_MIN).then_some(part)
}

/// The lane's side of a process.
pub(crate) struct Isolated<P> {
    end: SwitchEnd,
    process: Arc<Process>,
    /// What is with the process, the oldest first.
    held: VecDeque<(Direction, P)>,
    counters: Counters,
    /// The last heartbeat, and when it was seen first.
    heartbeat: (u64, Option<Time>),
    next_look: Time,
    lied: bool,
    /// Whether packets stay where they are: then, what the process can reach of it.
    shared: Option<Vec<Part>>,
    /// Until the process is there. The window is its only way in, and is closed then.
    _window: OwnedFd,
}

/// Starts a process for a function.
///
/// # Errors
/// What the kernel says, and where the program was looked for.
pub(crate) fn start<P: Packet>(
    program: &Path,
    function: &str,
    setup: &Setup,
    class: Class,
) -> io::Result<(Isolated<P>, Arc<Process>)> {
    let shared = match class {
        Class::Ring => Some(shared_memory()?),
        Class::Inline | Class::Isolated => None,
    };
    let (end, window) = match shared {
        Some(_) => SwitchEnd::create_shared(function, IN_FLIGHT_MAX)?,
        None => SwitchEnd::create(function, IN_FLIGHT_MAX, PACKET_SIZE)?,
    };
    let path = format!("/proc/{}/fd/{}", std::process::id(), window.as_raw_fd());
    let mut command = Command::new(program);
    command
        .arg("--window")
        .arg(path)
        .args(["--function", function])
        .args(["--seed", &setup.seed.to_string()])
        .args(["--zero-unix-millis", &setup.zero_unix_millis.to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    if nix::unistd::Uid::effective().is_root() {
        command.args(["--user", &NOBODY.to_string()]);
    }
    for Part { start, end, offset } in shared.iter().flatten() {
        // The file is opened by whoever may look into this process; see proc(5).
        let file = format!("/proc/{}/map_files/{start:x}-{end:x}", std::process::id());
        let text = format!("{start}:{}:{offset}:{file}", end - start);
        command.args(["--memory", &text]);
    }
    for text in setup.settings.texts() {
        command.args(["--setting", &text]);
    }
    let mut child = command
        .spawn()
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", program.display())))?;
    let process = Arc::new(Process {
        pid: AtomicU64::new(child.id().into()),
        is_dead: AtomicBool::new(false),
    });
    let watched = Arc::clone(&process);
    let name = function.to_owned();
    std::thread::Builder::new().name("nf-wait".to_owned()).spawn(move || {
        let status = child.wait();
        watched.is_dead.store(true, Ordering::Release);
        tracing::info!(function = %name, pid = watched.pid(), status = ?status.ok().map(|status| status.to_string()), "a function's process has ended");
    })?;
    let isolated = Isolated {
        end,
        process: Arc::clone(&process),
        held: VecDeque::with_capacity(IN_FLIGHT_MAX),
        counters: setup.counters.clone(),
        heartbeat: (0, None),
        next_look: Time::ZERO,
        lied: false,
        shared,
        _window: window,
    };
    Ok((isolated, process))
}

impl<P: Packet> Isolated<P> {
    /// Puts a packet, or where it is, into the window.
    #[inline]
    fn tell(&mut self, packet: &P, direction: Direction) -> bool {
        let head = packet.head();
        let Some(parts) = &self.shared else {
            return self.end.give(head, packet.len(), direction);
        };
        let Some((address, headroom)) = packet.shared_place() else {
            return false;
        };
        // A buffer of memory that was taken after the process began is not within its reach.
        let end = address + head.len() as u64;
        let is_within = |part: &Part| address - headroom as u64 >= part.start && end <= part.end;
        parts.iter().any(is_within)
            && self
                .end
                .give_shared((address, headroom), head.len(), packet.len(), direction)
    }
}

/// The user of no rights (65534 on Debian and others).
const NOBODY: u32 = 65_534;

/// Makes the packet what the answer says. Returns false if its buffer cannot become that.
fn carry_out<P: Packet>(end: &SwitchEnd, answer: &Answer, packet: &mut P, shared: bool) -> bool {
    let size = i64::try_from(packet.head().len()).unwrap_or(i64::MAX);
    if size + i64::from(answer.growth) != answer.size as i64 {
        return false;
    }
    match usize::try_from(answer.growth) {
        Ok(growth) => {
            if packet.prepend(growth).is_err() {
                return false;
            }
        }
        Err(_) => packet.trim_front(answer.growth.unsigned_abs() as usize),
    }
    if !shared {
        end.copy(answer, packet.head_mut());
    }
    true
}

impl<P: Packet> Remote<P> for Isolated<P> {
    fn give(&mut self, direction: Direction, burst: &mut Burst<P>) {
        let mut refused = Burst::new();
        for packet in burst.drain(..) {
            if self.tell(&packet, direction) {
                self.held.push_back((direction, packet));
            } else {
                refused.push(packet);
            }
        }
        self.end.publish();
        *burst = refused;
    }

    fn take(&mut self, burst: &mut Burst<P>, verdicts: &mut ArrayVec<Verdict, BURST>) -> Option<Direction> {
        let done = match self.end.done() {
            Ok(0) => return None,
            Ok(done) => done,
            Err(_) => {
                self.lied = true;
                return None;
            }
        };
        let direction = self.held.front()?.0;
        for _ in 0..done.min(BURST) {
            if self.held.front().is_none_or(|(way, _)| *way != direction) {
                break;
            }
            let Ok(answer) = self.end.answer() else {
                self.lied = true;
                break;
            };
            let Some((_, mut packet)) = self.held.pop_front() else {
                break;
            };
            // One that became what it cannot be goes nowhere.
            let verdict = match carry_out(&self.end, &answer, &mut packet, self.shared.is_some()) {
                true => answer.verdict,
                false => Verdict::Drop,
            };
            self.end.take();
            burst.push(packet);
            verdicts.push(verdict);
        }
        (!burst.is_empty()).then_some(direction)
    }

    fn reclaim(&mut self, burst: &mut Burst<P>) -> Option<Direction> {
        // One that still runs may still write: only the dead give up what is shared.
        if self.shared.is_some() && !self.process.is_dead.load(Ordering::Acquire) {
            return None;
        }
        let direction = self.held.front()?.0;
        while !burst.is_full() && self.held.front().is_some_and(|(way, _)| *way == direction) {
            burst.extend(self.held.pop_front().map(|(_, packet)| packet));
        }
        Some(direction)
    }

    fn in_flight(&self) -> usize {
        self.held.len()
    }

    fn is_alive(&mut self, now: Time) -> bool {
        if self.lied || self.process.is_dead.load(Ordering::Relaxed) {
            return false;
        }
        if now < self.next_look {
            return true;
        }
        self.next_look = now + LOOK;
        for place in 0..self.counters.len() {
            self.counters.set(place, self.end.counter(place));
        }
        let beats = self.end.heartbeat();
        let (last, since) = self.heartbeat;
        match since {
            Some(since) if beats == last => now.since(since) < SILENCE,
            _ => {
                self.heartbeat = (beats, Some(now));
                true
            }
        }
    }
}

impl<P> Drop for Isolated<P> {
    /// Dropped on the control side, as all that a lane leaves behind.
    fn drop(&mut self) {
        self.end.stop();
        self.process.kill();
    }
}
