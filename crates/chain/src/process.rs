//! Functions in processes of their own: started, watched, fed over a window of shared memory, and ended.
//!
//! The lane keeps every packet that it gives, in order, until the answer is there or the process is gone; what goes over
//! is a copy (class `isolated`), or the place of the packet in memory that the process maps, too (class `ring`). A thread waits for the end of each process, so that death is known at once; a heartbeat tells of one that
//! hangs.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Read as _};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use arrayvec::ArrayVec;
use millrace_datapath::io::Burst;
use millrace_flow::classify::BURST;
use millrace_nf::shm::{Answer, Lie, SwitchEnd};
use millrace_nf::{Counters, Description, Direction, Kind, SettingError, Setup, Verdict};
use millrace_types::{Duration, Time};
use millrace_wire::Packet;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, SysconfVar, sysconf};

use crate::hop::{IN_FLIGHT_MAX, Remote};
use crate::plan::{Class, HopPlan};

/// Bytes of a packet's first segment: the longest frame and some tags. What is longer is dropped.
const PACKET_SIZE: usize = 9728;
/// A process that shows no life for so long hangs.
const SILENCE: Duration = Duration::from_secs(2);
/// One that begins has more time, which it needs where many begin at once.
const BEGINNING: Duration = Duration::from_secs(10);
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
    /// Whether this side has ended it.
    is_unwanted: AtomicBool,
    /// How it ended: before `is_dead` is so.
    status: OnceLock<ExitStatus>,
    /// Milliseconds in which it could have shown life: see [`Process::look`].
    chances: AtomicU64,
    looked: Mutex<Looked>,
}

/// When a process was looked at last, and the milliseconds that it had run for by then.
#[derive(Debug, Clone, Copy, Default)]
struct Looked {
    at: Option<Time>,
    ran: u64,
}

impl Process {
    fn new(pid: u32) -> Process {
        Process {
            pid: AtomicU64::new(pid.into()),
            is_dead: AtomicBool::new(false),
            is_unwanted: AtomicBool::new(false),
            status: OnceLock::new(),
            chances: AtomicU64::new(0),
            looked: Mutex::default(),
        }
    }

    /// Sees how long it had the chance to show life. One that could run and was not let, as others took all cores, does
    /// not hang: of that time only what it ran for counts. Reads files, and so is the control side's.
    pub(crate) fn look(&self, now: Time) {
        let mut looked = self.looked.lock().unwrap_or_else(PoisonError::into_inner);
        if looked.at.is_some_and(|at| now.since(at) < LOOK) {
            return;
        }
        let Some((is_runnable, ran)) = run_time(self.pid()) else {
            // It has just ended, which is known in another way.
            return;
        };
        let elapsed = looked.at.map_or(0, |at| millis(now.since(at)));
        let chance = match is_runnable {
            true => elapsed.min(ran.saturating_sub(looked.ran)),
            false => elapsed,
        };
        self.chances.fetch_add(chance, Ordering::Relaxed);
        *looked = Looked { at: Some(now), ran };
    }

    /// Ends it at once.
    pub(crate) fn kill(&self) {
        self.is_unwanted.store(true, Ordering::Release);
        if !self.is_dead.load(Ordering::Acquire)
            && let Ok(pid) = i32::try_from(self.pid.load(Ordering::Acquire))
        {
            // Gone already: the waiting thread will say so.
            let _gone = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
    }

    /// Whether somebody else has killed it, for no fault of its own.
    pub(crate) fn was_killed(&self) -> bool {
        let signal = self.status.get().and_then(ExitStatusExt::signal);
        !self.is_unwanted.load(Ordering::Acquire) && signal == Some(Signal::SIGKILL as i32)
    }

    /// Its number.
    pub(crate) fn pid(&self) -> u32 {
        self.pid.load(Ordering::Acquire) as u32
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Whether a process runs or waits for a core, and how many milliseconds it has run for (`/proc/PID/stat`, proc(5)).
fn run_time(pid: u32) -> Option<(bool, u64)> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field, the command in parentheses, may itself hold spaces and parentheses.
    let (_, after) = stat.rsplit_once(") ")?;
    let fields: Vec<&str> = after.split(' ').collect();
    let ticks: u64 = fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?;
    let per_second = sysconf(SysconfVar::CLK_TCK).ok()??;
    Some((
        fields[0] == "R",
        ticks * 1000 / u64::try_from(per_second).ok()?.max(1),
    ))
}

/// Memory of this process that another one can map: a line of `/proc/self/maps`.
struct Part {
    start: u64,
    end: u64,
    offset: u64,
}

/// What windows are called, in the list of what is mapped.
const WINDOW: &str = "millrace-window";

/// Parts that are written to and shared, and long enough to hold packets: those of DPDK.
///
/// # Errors
/// There are none, or another process could not map them; and what to do.
fn shared_memory() -> io::Result<Vec<Part>> {
    let maps = std::fs::read_to_string("/proc/self/maps")?;
    let parts: Vec<Part> = maps.lines().filter_map(part_of).collect();
    let Some(Part { start, end, .. }) = parts.first() else {
        return Err(io::Error::other(
            "class ring needs packets in DPDK's memory: start millraced with DPDK, or use class isolated",
        ));
    };
    match std::fs::File::open(format!("/proc/self/map_files/{start:x}-{end:x}")) {
        Ok(_) => Ok(parts),
        Err(error) => Err(io::Error::new(
            error.kind(),
            format!(
                "class ring needs the right to open /proc/PID/map_files ({error}): start millraced as root or with \
                 CAP_SYS_ADMIN, or use class isolated"
            ),
        )),
    }
}

/// Parts that lie side by side, taken together: each huge page is a part of its own, and hundreds of them a span or two,
/// so that it costs nothing to see that a packet is within reach.
fn spans(parts: &[Part]) -> Vec<(u64, u64)> {
    let mut spans: Vec<(u64, u64)> = Vec::new();
    for part in parts {
        match spans.last_mut() {
            Some((_, end)) if *end == part.start => *end = part.end,
            _ => spans.push((part.start, part.end)),
        }
    }
    spans
}

/// Least bytes of a part: a huge page.
const PART_MIN: u64 = 2 << 20;

/// `START-END rw-s OFFSET DEV INODE PATH`, numbers in hex (proc(5)).
fn part_of(line: &str) -> Option<Part> {
    if line.contains(WINDOW) {
        return None;
    }
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
    held: VecDeque<P>,
    /// Which way so many of them in a row go.
    ways: VecDeque<(Direction, usize)>,
    counters: Counters,
    /// The last heartbeat, and the chances of another that there had been when it was seen first.
    heartbeat: (u64, Option<u64>),
    next_look: Time,
    lie: Option<Lie>,
    /// Whether packets stay where they are: then, from where to where the process can reach.
    shared: Option<Vec<(u64, u64)>>,
    /// Until the process is there. The window is its only way in, and is closed then.
    _window: OwnedFd,
}

/// Starts a process for a function.
///
/// # Errors
/// What the kernel says, and where the program was looked for.
pub(crate) fn start<P: Packet>(
    program: &Path,
    plan: &HopPlan,
    setup: &Setup,
) -> io::Result<(Isolated<P>, Arc<Process>)> {
    let function = plan.function.as_str();
    let shared = match plan.class {
        Class::Ring => Some(shared_memory()?),
        Class::Inline | Class::Isolated => None,
    };
    let (end, window) = match shared {
        Some(_) => SwitchEnd::create_shared(WINDOW, IN_FLIGHT_MAX)?,
        None => SwitchEnd::create(WINDOW, IN_FLIGHT_MAX, PACKET_SIZE)?,
    };
    let path = format!("/proc/{}/fd/{}", std::process::id(), window.as_raw_fd());
    let mut command = command(program, plan);
    command
        .arg("--window")
        .arg(path)
        .args(["--seed", &setup.seed.to_string()])
        .args(["--zero-unix-millis", &setup.zero_unix_millis.to_string()])
        .args(["--nice", &nice(plan.weight).to_string()])
        .stdout(Stdio::null());
    for Part { start, end, offset } in shared.iter().flatten() {
        // The file is opened by whoever may look into this process; see proc(5).
        let file = format!("/proc/{}/map_files/{start:x}-{end:x}", std::process::id());
        let text = format!("{start}:{}:{offset}:{file}", end - start);
        command.args(["--memory", &text]);
    }
    let mut child = command
        .spawn()
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", program.display())))?;
    let process = Arc::new(Process::new(child.id()));
    let watched = Arc::clone(&process);
    let name = function.to_owned();
    std::thread::Builder::new().name("nf-wait".to_owned()).spawn(move || {
        let status = child.wait();
        if let Ok(status) = &status {
            let _first = watched.status.set(*status);
        }
        watched.is_dead.store(true, Ordering::Release);
        tracing::info!(function = %name, pid = watched.pid(), status = ?status.ok().map(|status| status.to_string()), "a function's process has ended");
    })?;
    let isolated = Isolated {
        end,
        process: Arc::clone(&process),
        held: VecDeque::with_capacity(IN_FLIGHT_MAX),
        ways: VecDeque::with_capacity(IN_FLIGHT_MAX),
        counters: setup.counters.clone(),
        heartbeat: (0, None),
        next_look: Time::ZERO,
        lie: None,
        shared: shared.as_deref().map(spans),
        _window: window,
    };
    Ok((isolated, process))
}

/// The program, with what it is to run and may use.
fn command(program: &Path, plan: &HopPlan) -> Command {
    let mut command = Command::new(program);
    command.args(["--function", &plan.function]).stdin(Stdio::null());
    if nix::unistd::Uid::effective().is_root() {
        command.args(["--user", &NOBODY.to_string()]);
    }
    if let Some(bytes) = plan.limits.memory {
        command.args(["--memory-limit", &bytes.to_string()]);
    }
    if let Some(fuel) = plan.limits.fuel {
        command.args(["--fuel", &fuel.to_string()]);
    }
    for text in plan.settings.texts() {
        command.args(["--setting", &text]);
    }
    command
}

/// The niceness that gives a process a share: each step is a factor of 1.25 (sched(7)).
fn nice(weight: u16) -> i32 {
    let steps = (f64::from(weight.max(1)) / f64::from(HopPlan::WEIGHT)).ln() / 1.25_f64.ln();
    (-steps.round() as i32).clamp(-20, 19)
}

/// How long a function may take to say what it is.
const DESCRIBE: std::time::Duration = std::time::Duration::from_secs(5);
/// How often is looked whether it has.
const DESCRIBE_LOOK: std::time::Duration = std::time::Duration::from_millis(5);
/// Bytes of what it says that are read.
const DESCRIBE_MAX: u64 = 64 << 10;

/// What was described already, by the text: a kind stays for as long as the program.
static DESCRIBED: Mutex<BTreeMap<String, &'static Kind>> = Mutex::new(BTreeMap::new());

/// Has a function that only its process may load say what it is, and be made with its settings, in a process that has no
/// more rights than the one that will run it.
///
/// # Errors
/// What is wrong with it, in its own words.
pub(crate) fn describe(program: &Path, plan: &HopPlan) -> Result<&'static Kind, String> {
    let mut command = command(program, plan);
    command
        .arg("--describe")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let failed = |error: io::Error| format!("{}: {error}", program.display());
    let mut child = command.spawn().map_err(failed)?;
    let began = std::time::Instant::now();
    let status = loop {
        match child.try_wait().map_err(failed)? {
            Some(status) => break status,
            None if began.elapsed() < DESCRIBE => std::thread::sleep(DESCRIBE_LOOK),
            None => {
                child.kill().map_err(failed)?;
                child.wait().map_err(failed)?;
                return Err(format!("it does not say within {DESCRIBE:?} what it is"));
            }
        }
    };
    let (mut text, mut problem) = (String::new(), String::new());
    let both = [
        (
            child
                .stdout
                .take()
                .map(|pipe| Box::new(pipe) as Box<dyn io::Read>),
            &mut text,
        ),
        (
            child
                .stderr
                .take()
                .map(|pipe| Box::new(pipe) as Box<dyn io::Read>),
            &mut problem,
        ),
    ];
    for (pipe, said) in both {
        if let Some(pipe) = pipe {
            let mut bytes = Vec::new();
            let _as_much_as_came = pipe.take(DESCRIBE_MAX).read_to_end(&mut bytes);
            *said = String::from_utf8_lossy(&bytes).into_owned();
        }
    }
    if !status.success() {
        let problem = problem.lines().last().unwrap_or_default();
        let problem = problem.strip_prefix("millrace-nf: ").unwrap_or(problem);
        let text: String = problem.chars().filter(|c| !c.is_control()).take(300).collect();
        return Err(match text.is_empty() {
            true => format!("it cannot say what it is: {status}"),
            false => text,
        });
    }
    let description = Description::parse(&text).map_err(|error| error.to_string())?;
    let mut described = DESCRIBED.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(described.entry(text).or_insert_with(|| {
        description.into_kind(Box::new(|_| {
            Err(SettingError::Refused {
                reason: "it is loaded by its process alone".to_owned(),
            })
        }))
    }))
}

impl<P: Packet> Isolated<P> {
    /// Notes that so many packets more that are held go one way.
    #[inline]
    fn held_more(&mut self, direction: Direction, packets: usize) {
        match self.ways.back_mut() {
            Some((way, run)) if *way == direction => *run += packets,
            _ if packets == 0 => {}
            // No more of these than of packets: there is room.
            _ => self.ways.push_back((direction, packets)),
        }
    }

    /// Notes that so many packets fewer are held, of the oldest way.
    #[inline]
    fn held_less(&mut self, packets: usize) {
        if let Some((_, run)) = self.ways.front_mut() {
            *run = run.saturating_sub(packets);
            if *run == 0 {
                self.ways.pop_front();
            }
        }
    }

    /// Takes so many packets back whose answers are there.
    fn take_back(&mut self, most: usize, burst: &mut Burst<P>, verdicts: &mut ArrayVec<Verdict, BURST>) {
        let is_shared = self.shared.is_some();
        while burst.len() < most {
            let same = match is_shared {
                true => self.end.as_they_were(most - burst.len()),
                // Their bytes are to be fetched.
                false => 0,
            };
            if same != 0 {
                burst.extend(self.held.drain(..same.min(self.held.len())));
                verdicts.extend(core::iter::repeat_n(Verdict::Next, same));
                self.end.take(same);
                continue;
            }
            let Some(packet) = self.held.front_mut() else {
                break;
            };
            let answer = match self.end.answer(packet.head().len()) {
                Ok(answer) => answer,
                Err(lie) => {
                    self.lie = Some(lie);
                    break;
                }
            };
            // One that became what it cannot be goes nowhere.
            verdicts.push(match carry_out(&self.end, &answer, packet, is_shared) {
                true => answer.verdict,
                false => Verdict::Drop,
            });
            self.end.take(1);
            burst.extend(self.held.pop_front());
        }
        self.held_less(burst.len());
    }

    /// Puts a packet, or where it is, into the window.
    #[inline]
    fn tell(&mut self, packet: &P, direction: Direction) -> bool {
        let head = packet.head();
        let Some(spans) = &self.shared else {
            return self.end.give(head, packet.len(), direction);
        };
        let Some((address, headroom)) = packet.shared_place() else {
            return false;
        };
        // A buffer of memory that was taken after the process began is not within its reach.
        let end = address + head.len() as u64;
        let is_within = |(from, to): &(u64, u64)| address - headroom as u64 >= *from && end <= *to;
        spans.iter().any(is_within)
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
                self.held.push_back(packet);
                self.held_more(direction, 1);
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
            Err(lie) => {
                self.lie = Some(lie);
                return None;
            }
        };
        let (direction, run) = *self.ways.front()?;
        self.take_back(done.min(run).min(BURST), burst, verdicts);
        (!burst.is_empty()).then_some(direction)
    }

    fn reclaim(&mut self, burst: &mut Burst<P>) -> Option<Direction> {
        // One that still runs may still write: only the dead give up what is shared.
        if self.shared.is_some() && !self.process.is_dead.load(Ordering::Acquire) {
            return None;
        }
        let (direction, run) = *self.ways.front()?;
        let reclaimed = run.min(burst.remaining_capacity()).min(self.held.len());
        burst.extend(self.held.drain(..reclaimed));
        self.held_less(reclaimed);
        Some(direction)
    }

    fn hold(&mut self, direction: Direction, burst: &mut Burst<P>) {
        // There is room: no more packets are in the lane than one process has room for.
        self.held_more(direction, burst.len());
        self.held.extend(burst.drain(..));
    }

    fn in_flight(&self) -> usize {
        self.held.len()
    }

    fn is_alive(&mut self, now: Time) -> bool {
        if self.lie.is_some() || self.process.is_dead.load(Ordering::Relaxed) {
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
        let chances = self.process.chances.load(Ordering::Relaxed);
        match self.heartbeat {
            (last, Some(since)) if beats == last => {
                let silence = if beats == 0 { BEGINNING } else { SILENCE };
                chances - since < millis(silence)
            }
            _ => {
                self.heartbeat = (beats, Some(chances));
                true
            }
        }
    }

    fn failure(&self) -> String {
        if let Some(lie) = &self.lie {
            return format!("its process lied: {lie}");
        }
        match self.process.status.get() {
            Some(status) => format!("its process ended: {status}"),
            None if self.process.is_dead.load(Ordering::Acquire) => "its process ended".to_owned(),
            None => "its process showed no life".to_owned(),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn huge_pages_side_by_side_are_one_span() {
        let part = |start: u64, end: u64| Part {
            start,
            end,
            offset: 0,
        };
        let parts = [part(0, 2), part(2, 4), part(4, 6), part(8, 10)];
        assert_eq!(spans(&parts), [(0, 6), (8, 10)]);
        assert_eq!(spans(&[]), []);
    }

    #[test]
    fn only_shared_memory_that_is_written_to_is_a_part() {
        let line = "140000000-140200000 rw-s 00200000 00:0f 77 /memfd:memseg (deleted)";
        let part = part_of(line).map(|part| (part.start, part.end, part.offset));
        assert_eq!(part, Some((0x1_4000_0000, 0x1_4020_0000, 0x20_0000)));
        assert!(part_of(&line.replace("rw-s", "rw-p")).is_none());
        assert!(part_of("140000000-140001000 rw-s 0 00:0f 77 /dev/zero").is_none());
    }
}
