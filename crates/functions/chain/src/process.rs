//! Functions in processes: starts them, exchanges packets with them over a window of shared memory, watches and ends them.
//!
//! The lane holds every packet that it gives to a process, in order, until the process has answered or ended. The process
//! gets a copy (class `isolated`), or the address of the packet in memory that it also maps (class `ring`). A thread waits
//! for the end of each process, so that it is known at once. A heartbeat shows that a process does not hang.

mod describe;
mod memory;
mod output;
mod users;
mod watch;

use core::slice;
use core::sync::atomic::Ordering;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use arrayvec::ArrayVec;
use millrace_datapath::io::Burst;
use millrace_flow::classify::BURST;
use millrace_nf::shm::{Answer, PacketLocation, ProtocolViolation, SwitchEnd};
use millrace_nf::{Counters, Direction, Setup, Verdict};
use millrace_types::{Duration, Time};
use millrace_wire::Packet;

pub(crate) use describe::describe;
use memory::{MappedRange, merged, shared_memory};
use output::last_words;
use users::UserId;
pub use users::{UserIds, use_user_ids};
pub(crate) use watch::Process;
use watch::{POLL_INTERVAL, millis};

use crate::cgroup::{self, Group, Limit};
use crate::hop::{IN_FLIGHT_MAX, Remote};
use crate::in_flight::InFlight;
use crate::plan::{Class, HopPlan};

/// Size limit of a packet's first segment, in bytes: the longest frame with tags. Longer packets are dropped.
const PACKET_SIZE: usize = 9728;
/// A process without a heartbeat for this time hangs.
const SILENCE: Duration = Duration::from_secs(2);
/// Time limit of the first heartbeat. It is longer, because many processes may start at once.
const BEGINNING: Duration = Duration::from_secs(10);
/// The name of windows, as /proc/PID/maps shows them.
const WINDOW: &str = "millrace-window";
/// The program that runs functions.
const PROGRAM: &str = "millrace-nf";

/// Returns the path of the program that runs functions: the one that MILLRACE_NF names, else the one beside this
/// program, else the one on `PATH`.
pub fn nf_program() -> PathBuf {
    if let Some(path) = std::env::var_os("MILLRACE_NF") {
        return path.into();
    }
    let beside = std::env::current_exe().ok();
    let beside = beside.and_then(|path| Some(path.parent()?.join(PROGRAM)));
    // Looked up here, as the program is started without environment variables.
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&folders).map(|folder| folder.join(PROGRAM));
    let mut found = beside.into_iter().chain(on_path).filter(|path| path.exists());
    found.next().unwrap_or_else(|| PROGRAM.into())
}

/// The lane's side of a process.
pub(crate) struct Isolated<P> {
    end: SwitchEnd,
    process: Arc<Process>,
    /// The packets that the process has.
    held: InFlight<P>,
    counters: Counters,
    /// The last heartbeat, and [`Process::chances`] when it was seen first.
    heartbeat: (u64, Option<u64>),
    next_look: Time,
    violation: Option<ProtocolViolation>,
    /// For class `ring`, the address ranges that the process has mapped.
    shared: Option<Vec<(u64, u64)>>,
    /// The file of the window, which the process opens by `/proc/PID/fd`.
    _window: OwnedFd,
}

/// Starts a process for a function.
///
/// # Errors
/// The kernel's error, with the path of the program.
pub(crate) fn start<P: Packet>(
    program: &Path,
    plan: &HopPlan,
    setup: &Setup,
) -> io::Result<(Isolated<P>, Arc<Process>)> {
    let function = plan.function.as_str();
    let shared = match plan.class {
        Class::Ring => Some(shared_memory(&P::shared_memory())?),
        Class::Inline | Class::Isolated => None,
    };
    let (end, window) = match shared {
        Some(_) => SwitchEnd::create_shared(WINDOW, IN_FLIGHT_MAX)?,
        None => SwitchEnd::create(WINDOW, IN_FLIGHT_MAX, PACKET_SIZE)?,
    };
    let path = format!("/proc/{}/fd/{}", std::process::id(), window.as_raw_fd());
    let user = users::allocate()?;
    let mut command = command(program, plan, user.as_ref());
    command
        .arg("--window")
        .arg(path)
        .args(["--seed", &setup.seed.to_string()])
        .args(["--zero-unix-millis", &setup.zero_unix_millis.to_string()])
        .args(["--nice", &nice(plan.weight).to_string()])
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    for MappedRange { start, end, offset } in shared.iter().flatten() {
        // A process that may trace this one can open the file (proc(5)). `millrace-nf` opens it before it drops that right.
        let file = format!("/proc/{}/map_files/{start:x}-{end:x}", std::process::id());
        let text = format!("{start}:{}:{offset}:{file}", end - start);
        command.args(["--memory", &text]);
    }
    let (group, mut limits) = cgroup::for_function(plan);
    let mut child = command
        .spawn()
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", program.display())))?;
    release(&mut child, &group, &mut limits);
    let errors = child.stderr.take();
    for limit in limits.iter().filter(|limit| !limit.problem.is_empty()) {
        tracing::warn!(%function, limit = limit.name, by = limit.by, why = %limit.problem, "no control group enforces a limit");
    }
    let process = match Process::of(&child, limits) {
        Ok(process) => Arc::new(process),
        Err(error) => {
            child.kill()?;
            child.wait()?;
            return Err(error);
        }
    };
    lock(&LIVE).push(Arc::clone(&process));
    let watched = Arc::clone(&process);
    let name = function.to_owned();
    let waiting = std::thread::Builder::new().name("nf-wait".to_owned());
    let body = move || {
        wait(child, errors, group, &watched, &name);
        // The user id is free again once the process has been waited for.
        drop(user);
    };
    let waiting = waiting.spawn(body);
    if let Err(error) = waiting {
        process.kill();
        lock(&LIVE).retain(|live| !Arc::ptr_eq(live, &process));
        return Err(error);
    }
    let isolated = Isolated {
        end,
        process: Arc::clone(&process),
        held: InFlight::new(),
        counters: setup.counters.clone(),
        heartbeat: (0, None),
        next_look: Time::ZERO,
        violation: None,
        shared: shared.as_deref().map(merged),
        _window: window,
    };
    Ok((isolated, process))
}

/// Waits for the end of a process, and records its exit status and the last lines of its standard error.
fn wait(mut child: Child, errors: Option<ChildStderr>, group: Group, process: &Arc<Process>, function: &str) {
    let words = errors.map(last_words).unwrap_or_default();
    let status = child.wait();
    if group.has_killed() {
        process.had_no_memory.store(true, Ordering::Release);
    }
    if let Ok(status) = &status {
        let _first = process.status.set(*status);
    }
    let status = status.map_or_else(|error| error.to_string(), |status| status.to_string());
    tracing::info!(%function, pid = process.pid(), %status, stderr = %words, "process of a function ended");
    let _first = process.words.set(words);
    process.is_dead.store(true, Ordering::Release);
    drop(group);
    lock(&LIVE).retain(|live| !Arc::ptr_eq(live, process));
}

/// Processes that have not ended, or whose groups are not removed yet.
static LIVE: Mutex<Vec<Arc<Process>>> = Mutex::new(Vec::new());
/// Time limit for the end of all processes.
const END: std::time::Duration = std::time::Duration::from_secs(2);
/// Interval at which their end is polled.
const END_POLL: std::time::Duration = std::time::Duration::from_millis(5);

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Ends the processes of all functions, and waits until their control groups are removed, for two seconds at most. The
/// daemon calls this before it exits; the next one removes groups that are left.
pub fn end_processes() {
    for process in lock(&LIVE).iter() {
        process.kill();
    }
    let began = Instant::now();
    while !lock(&LIVE).is_empty() && began.elapsed() < END {
        std::thread::sleep(END_POLL);
    }
}

/// Moves a new process, which waits for the end of its standard input, into its group, and closes that input.
fn release(child: &mut Child, group: &Group, limits: &mut [Limit]) {
    group.join(child.id(), limits);
    drop(child.stdin.take());
}

/// Returns the command that runs a function, with its limits and an empty environment. It begins once its standard input
/// is closed.
fn command(program: &Path, plan: &HopPlan, user: Option<&UserId>) -> Command {
    let mut command = Command::new(program);
    command
        .env_clear()
        .args(["--wait", "--function", &plan.function])
        .stdin(Stdio::piped());
    if let Some(user) = user {
        command.args(["--user", &user.raw().to_string()]);
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

/// Returns the niceness for a weight. Each step is a factor of 1.25 (sched(7)).
fn nice(weight: u16) -> i32 {
    let steps = (f64::from(weight.max(1)) / f64::from(HopPlan::WEIGHT)).ln() / 1.25_f64.ln();
    (-steps.round() as i32).clamp(-20, 19)
}

impl<P: Packet> Isolated<P> {
    /// Takes back packets of one direction, `most` at most, all of which are answered.
    fn take_back(
        &mut self,
        direction: Direction,
        most: usize,
        burst: &mut Burst<P>,
        verdicts: &mut ArrayVec<Verdict, BURST>,
    ) {
        self.held.take(most, burst);
        let is_shared = self.shared.is_some();
        let same = match is_shared {
            true => self.end.unchanged(burst.len()),
            // The bytes of all copies must be read.
            false => 0,
        };
        verdicts.extend(core::iter::repeat_n(Verdict::Next, same));
        for behind in same..burst.len() {
            let packet = &mut burst[behind];
            let answer = match self.end.answer(behind, packet.head().len()) {
                Ok(answer) => answer,
                Err(violation) => {
                    self.violation = Some(violation);
                    self.held.put_back(direction, burst.drain(behind..).collect());
                    break;
                }
            };
            // A packet whose buffer cannot hold the result is dropped.
            verdicts.push(match apply(&self.end, &answer, packet, is_shared) {
                true => answer.verdict,
                false => Verdict::Drop,
            });
        }
        self.end.take(burst.len());
    }

    /// Gives the packets behind one that cannot be described, `described` having been given before it. Packets that cannot
    /// be described stay in `burst`.
    #[cold]
    fn give_some(&mut self, direction: Direction, described: usize, burst: &mut Burst<P>) {
        let (mut given, mut refused) = (Burst::new(), Burst::new());
        for (index, packet) in burst.drain(..).enumerate() {
            match index < described
                || index > described && self.describe(slice::from_ref(&packet), direction) == 1
            {
                true => given.push(packet),
                false => refused.push(packet),
            }
        }
        self.held.push(direction, &mut given);
        *burst = refused;
    }

    /// Writes packets, or their locations, to the window. Returns how many: it stops at the first that does not fit.
    #[inline]
    fn describe(&mut self, packets: &[P], direction: Direction) -> usize {
        match &self.shared {
            None => {
                let given = |packet: &&P| self.end.give_packet(*packet, direction);
                packets.iter().take_while(given).count()
            }
            Some(areas) => {
                let locations = packets.iter().map_while(|packet| location_of(packet, areas));
                self.end.give_shared(locations, direction)
            }
        }
    }
}

/// Returns the location of a packet if the process has mapped it. Memory that EAL takes after the process was started is not
/// mapped.
#[inline]
fn location_of<P: Packet>(packet: &P, areas: &[(u64, u64)]) -> Option<PacketLocation> {
    let (address, headroom) = packet.shared_address()?;
    let head_size = packet.head().len();
    let (start, end) = (address - headroom as u64, address + head_size as u64);
    let is_within = areas.iter().any(|(from, to)| start >= *from && end <= *to);
    is_within.then(|| PacketLocation {
        address,
        headroom,
        head_size,
        size: packet.len(),
    })
}

/// Applies an answer to a packet. Returns false if the packet's buffer cannot hold the result.
fn apply<P: Packet>(end: &SwitchEnd, answer: &Answer, packet: &mut P, shared: bool) -> bool {
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
        let described = self.describe(burst, direction);
        if described != burst.len() {
            self.give_some(direction, described, burst);
        } else {
            self.held.push(direction, burst);
        }
        self.end.publish();
    }

    fn copies(&self) -> bool {
        self.shared.is_none()
    }

    fn expect(&self, packets: usize) {
        self.end.expect(packets);
    }

    fn expect_done(&self) {
        self.end.expect_done();
    }

    fn ready(&mut self) -> Option<Direction> {
        let (direction, _) = self.held.first_run()?;
        (self.answered() != 0).then_some(direction)
    }

    fn take(&mut self, burst: &mut Burst<P>, verdicts: &mut ArrayVec<Verdict, BURST>) -> Option<Direction> {
        let done = match self.end.done() {
            Ok(0) => return None,
            Ok(done) => done,
            Err(violation) => {
                self.violation = Some(violation);
                return None;
            }
        };
        let (direction, _) = self.held.first_run()?;
        self.take_back(direction, done, burst, verdicts);
        (!burst.is_empty()).then_some(direction)
    }

    fn reclaim(&mut self, burst: &mut Burst<P>) -> Option<Direction> {
        // A process of class `ring` may write to packets until it has ended.
        if !self.is_gone() {
            return None;
        }
        let (direction, _) = self.held.first_run()?;
        self.held.take(BURST, burst);
        self.end.take(burst.len());
        Some(direction)
    }

    fn hold(&mut self, direction: Direction, burst: &mut Burst<P>) {
        // A lane has at most as many packets as one process has room for.
        self.held.push(direction, burst);
    }

    fn show(&mut self, direction: Direction, packets: &[P], which: u64) -> u64 {
        let mut shown = 0;
        for (index, packet) in packets.iter().enumerate() {
            if which & 1 << index != 0 {
                shown |= (self.describe(slice::from_ref(packet), direction) as u64) << index;
            }
        }
        self.end.publish();
        shown
    }

    #[inline]
    fn answered(&mut self) -> usize {
        if self.violation.is_some() {
            return 0;
        }
        self.end.done().unwrap_or_else(|violation| {
            self.violation = Some(violation);
            0
        })
    }

    fn verdicts(&mut self, most: usize, verdicts: &mut ArrayVec<Verdict, BURST>) -> usize {
        let same = self.end.unchanged(most);
        if same == most {
            return most;
        }
        verdicts.extend(core::iter::repeat_n(Verdict::Next, same));
        for behind in same..most {
            match self.end.verdict(behind) {
                Ok(verdict) => verdicts.push(verdict),
                Err(violation) => {
                    self.violation = Some(violation);
                    break;
                }
            }
        }
        verdicts.len()
    }

    fn forget(&mut self, packets: usize) {
        self.end.take(packets);
    }

    fn is_gone(&self) -> bool {
        self.shared.is_none() || self.process.is_dead.load(Ordering::Acquire)
    }

    fn in_flight(&self) -> usize {
        // The group holds the packets that are only shown.
        self.held.len().max(self.end.in_flight())
    }

    fn is_alive(&mut self, now: Time) -> bool {
        if self.violation.is_some() || self.process.is_dead.load(Ordering::Relaxed) {
            return false;
        }
        if now < self.next_look {
            return true;
        }
        self.next_look = now + POLL_INTERVAL;
        for index in 0..self.counters.len() {
            self.counters.set(index, self.end.counter(index));
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

    fn has_begun(&self) -> bool {
        self.heartbeat.0 != 0
    }

    fn failure(&self) -> String {
        if let Some(violation) = &self.violation {
            return format!("its process violated the protocol: {violation}");
        }
        match self.process.status.get() {
            Some(_) if self.process.had_no_memory.load(Ordering::Acquire) => {
                "its process exceeded `memory_mib`, and was killed".to_owned()
            }
            Some(status) => match self.process.words.get().filter(|words| !words.is_empty()) {
                Some(words) => format!("its process ended: {status}: {words}"),
                None => format!("its process ended: {status}"),
            },
            None if self.process.is_dead.load(Ordering::Acquire) => "its process ended".to_owned(),
            None => "its process sent no heartbeat".to_owned(),
        }
    }
}

impl<P> Drop for Isolated<P> {
    /// Ends the process. The control side drops all objects that a lane has replaced.
    fn drop(&mut self) {
        self.end.stop();
        self.process.kill();
    }
}
