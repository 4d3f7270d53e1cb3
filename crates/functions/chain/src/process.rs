//! Functions in processes of their own: started, watched, fed over a window of shared memory, and ended.
//!
//! The lane keeps every packet that it gives, in order, until the answer is there or the process is gone; what goes over
//! is a copy (class `isolated`), or the place of the packet in memory that the process maps, too (class `ring`). A thread
//! waits for the end of each process, so that death is known at once; a heartbeat tells of one that hangs.

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
use millrace_nf::shm::{Answer, Lie, Place, SwitchEnd};
use millrace_nf::{Counters, Direction, Setup, Verdict};
use millrace_types::{Duration, Time};
use millrace_wire::Packet;

pub(crate) use describe::describe;
use memory::{Part, shared_memory, spans};
use output::last_words;
use users::UserId;
pub use users::{UserIds, use_user_ids};
pub(crate) use watch::Process;
use watch::{LOOK, millis};

use crate::cgroup::{self, Group, Limit};
use crate::held::Held;
use crate::hop::{IN_FLIGHT_MAX, Remote};
use crate::plan::{Class, HopPlan};

/// Bytes of a packet's first segment: the longest frame and some tags. What is longer is dropped.
const PACKET_SIZE: usize = 9728;
/// A process that shows no life for so long hangs.
const SILENCE: Duration = Duration::from_secs(2);
/// One that begins has more time, which it needs where many begin at once.
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
    /// What is with the process.
    held: Held<P>,
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
    for Part { start, end, offset } in shared.iter().flatten() {
        // The file is opened by whoever may look into this process; see proc(5).
        let file = format!("/proc/{}/map_files/{start:x}-{end:x}", std::process::id());
        let text = format!("{start}:{}:{offset}:{file}", end - start);
        command.args(["--memory", &text]);
    }
    let (group, mut limits) = cgroup::for_function(plan);
    let mut child = command
        .spawn()
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", program.display())))?;
    let_in(&mut child, &group, &mut limits);
    let errors = child.stderr.take();
    for limit in limits.iter().filter(|limit| !limit.problem.is_empty()) {
        tracing::warn!(%function, limit = limit.name, by = limit.by, why = %limit.problem, "no control group holds a limit");
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
        // Only now may another process have it.
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
        held: Held::new(),
        counters: setup.counters.clone(),
        heartbeat: (0, None),
        next_look: Time::ZERO,
        lie: None,
        shared: shared.as_deref().map(spans),
        _window: window,
    };
    Ok((isolated, process))
}

/// Waits for the end of a process, and keeps what it wrote to standard error last: it says why it ended.
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

/// Processes that have not ended, or whose groups are still there.
static LIVE: Mutex<Vec<Arc<Process>>> = Mutex::new(Vec::new());
/// How long the end of all of them is waited for.
const END: std::time::Duration = std::time::Duration::from_secs(2);
const END_LOOK: std::time::Duration = std::time::Duration::from_millis(5);

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Ends the processes of all functions, and waits until nothing of them is left, their control groups neither. For the
/// end of the switch; what is left after two seconds, the next one removes.
pub fn end_processes() {
    for process in lock(&LIVE).iter() {
        process.kill();
    }
    let began = Instant::now();
    while !lock(&LIVE).is_empty() && began.elapsed() < END {
        std::thread::sleep(END_LOOK);
    }
}

/// Puts a process that has just begun, and waits, into its group, and has it go on.
fn let_in(child: &mut Child, group: &Group, limits: &mut [Limit]) {
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

/// The niceness that gives a process a share: each step is a factor of 1.25 (sched(7)).
fn nice(weight: u16) -> i32 {
    let steps = (f64::from(weight.max(1)) / f64::from(HopPlan::WEIGHT)).ln() / 1.25_f64.ln();
    (-steps.round() as i32).clamp(-20, 19)
}

impl<P: Packet> Isolated<P> {
    /// Takes so many packets back whose answers are there, of one way.
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
            true => self.end.as_they_were(burst.len()),
            // Their bytes are to be fetched.
            false => 0,
        };
        verdicts.extend(core::iter::repeat_n(Verdict::Next, same));
        for behind in same..burst.len() {
            let packet = &mut burst[behind];
            let answer = match self.end.answer(behind, packet.head().len()) {
                Ok(answer) => answer,
                Err(lie) => {
                    self.lie = Some(lie);
                    self.held.put_back(direction, burst.drain(behind..).collect());
                    break;
                }
            };
            // One that became what it cannot be goes nowhere.
            verdicts.push(match carry_out(&self.end, &answer, packet, is_shared) {
                true => answer.verdict,
                false => Verdict::Drop,
            });
        }
        self.end.take(burst.len());
    }

    /// Gives what follows the first packet that could not be told of, which others have been before; what cannot be told
    /// of stays in `burst`.
    #[cold]
    fn give_some(&mut self, direction: Direction, told: usize, burst: &mut Burst<P>) {
        let (mut given, mut refused) = (Burst::new(), Burst::new());
        for (place, packet) in burst.drain(..).enumerate() {
            match place < told || place > told && self.tell(slice::from_ref(&packet), direction) == 1 {
                true => given.push(packet),
                false => refused.push(packet),
            }
        }
        self.held.push(direction, &mut given);
        *burst = refused;
    }

    /// Puts packets, or where they are, into the window. Returns how many: up to one for which that cannot be.
    #[inline]
    fn tell(&mut self, packets: &[P], direction: Direction) -> usize {
        match &self.shared {
            None => {
                let given = |packet: &&P| self.end.give(packet.head(), packet.len(), direction);
                packets.iter().take_while(given).count()
            }
            Some(spans) => {
                let places = packets.iter().map_while(|packet| place_of(packet, spans));
                self.end.give_shared(places, direction)
            }
        }
    }
}

/// Where a packet is, if that is within the reach of the process: not a buffer of memory that was taken after it began.
#[inline]
fn place_of<P: Packet>(packet: &P, spans: &[(u64, u64)]) -> Option<Place> {
    let (address, headroom) = packet.shared_place()?;
    let head_size = packet.head().len();
    let (start, end) = (address - headroom as u64, address + head_size as u64);
    let is_within = spans.iter().any(|(from, to)| start >= *from && end <= *to);
    is_within.then(|| Place {
        address,
        headroom,
        head_size,
        size: packet.len(),
    })
}

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
        let told = self.tell(burst, direction);
        if told != burst.len() {
            self.give_some(direction, told, burst);
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
        let (direction, _) = self.held.way()?;
        (self.answered() != 0).then_some(direction)
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
        let (direction, _) = self.held.way()?;
        self.take_back(direction, done, burst, verdicts);
        (!burst.is_empty()).then_some(direction)
    }

    fn reclaim(&mut self, burst: &mut Burst<P>) -> Option<Direction> {
        // One that still runs may still write: only the dead give up what is shared.
        if !self.is_gone() {
            return None;
        }
        let (direction, _) = self.held.way()?;
        self.held.take(BURST, burst);
        self.end.take(burst.len());
        Some(direction)
    }

    fn hold(&mut self, direction: Direction, burst: &mut Burst<P>) {
        // There is room: no more packets are in the lane than one process has room for.
        self.held.push(direction, burst);
    }

    fn show(&mut self, direction: Direction, packets: &[P], which: u64) -> u64 {
        let mut shown = 0;
        for (place, packet) in packets.iter().enumerate() {
            if which & 1 << place != 0 {
                shown |= (self.tell(slice::from_ref(packet), direction) as u64) << place;
            }
        }
        self.end.publish();
        shown
    }

    #[inline]
    fn answered(&mut self) -> usize {
        if self.lie.is_some() {
            return 0;
        }
        self.end.done().unwrap_or_else(|lie| {
            self.lie = Some(lie);
            0
        })
    }

    fn opinions(&mut self, most: usize, verdicts: &mut ArrayVec<Verdict, BURST>) -> usize {
        let same = self.end.as_they_were(most);
        if same == most {
            return most;
        }
        verdicts.extend(core::iter::repeat_n(Verdict::Next, same));
        for behind in same..most {
            match self.end.verdict(behind) {
                Ok(verdict) => verdicts.push(verdict),
                Err(lie) => {
                    self.lie = Some(lie);
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
        // What it is shown is held elsewhere.
        self.held.len().max(self.end.in_flight())
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

    fn has_begun(&self) -> bool {
        self.heartbeat.0 != 0
    }

    fn failure(&self) -> String {
        if let Some(lie) = &self.lie {
            return format!("its process lied: {lie}");
        }
        match self.process.status.get() {
            Some(_) if self.process.had_no_memory.load(Ordering::Acquire) => {
                "its process had more memory than `memory_mib`, and was killed".to_owned()
            }
            Some(status) => match self.process.words.get().filter(|words| !words.is_empty()) {
                Some(words) => format!("its process ended: {status}: {words}"),
                None => format!("its process ended: {status}"),
            },
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
