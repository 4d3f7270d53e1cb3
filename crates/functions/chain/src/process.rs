//! Functions in processes: starts them, exchanges packets with them over a window of shared memory, watches and ends them.
//!
//! The lane holds every packet that it gives to a process, in order, until the process has answered or ended.
//! The process gets a copy (class `isolated`), or the address of the packet in memory that it also maps
//! (class `ring`). A thread waits for the end of each process, so that the switch notices the end at once. A
//! heartbeat shows that a process does not hang.

mod attached;
mod describe;
mod memory;
mod output;
mod users;
mod watch;
mod window;

use core::sync::atomic::Ordering;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

use millrace_nf::{Setup, SourceFile};
use millrace_wire::Packet;
use parking_lot::Mutex;

pub(crate) use attached::{ATTACHED, AttachPoint, Unattached, unattached};
pub(crate) use describe::describe;
use memory::MappedRange;
use output::last_words;
use users::UserId;
pub use users::{UserIds, use_user_ids};
pub(crate) use watch::Process;
use window::{Isolated, Window};

use crate::cgroup::{self, Group, Limit};
use crate::plan::HopPlan;

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
    // The path is looked up here, because the program is started without environment variables.
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&folders).map(|folder| folder.join(PROGRAM));
    let mut found = beside.into_iter().chain(on_path).filter(|path| path.exists());
    found.next().unwrap_or_else(|| PROGRAM.into())
}

/// Starts a process for a function, which reads the source of its shared value from `source`.
///
/// # Errors
/// The kernel's error, or a message if no user id can be allocated.
pub(crate) fn start<P: Packet>(
    program: &Path,
    plan: &HopPlan,
    setup: &Setup,
    source: Option<&SourceFile>,
) -> io::Result<(Isolated<P>, Arc<Process>)> {
    let function = plan.function.as_str();
    let window = Window::create::<P>(plan.class)?;
    let path = format!("/proc/{}/fd/{}", std::process::id(), window.file.as_raw_fd());
    let user = users::allocate()?;
    let mut command = command(program, plan, user.as_ref());
    command
        .arg("--window")
        .arg(path)
        .args(["--nice", &nice(plan.weight).to_string()])
        .args(["--number", &setup.instance.to_string()])
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    if let Some(source) = source {
        command.arg("--source").arg(source.path());
    }
    for MappedRange { start, end, offset } in window.shared.iter().flatten() {
        // A process that may trace this one can open the file (proc(5)). `millrace-nf` opens it before it drops that right.
        let file = format!("/proc/{}/map_files/{start:x}-{end:x}", std::process::id());
        let text = format!("{start}:{}:{offset}:{file}", end - start);
        command.args(["--memory", &text]);
    }
    let (group, mut limits) = cgroup::for_function(plan, source.is_some());
    let mut child = command
        .spawn()
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", program.display())))?;
    release(&mut child, &group, &mut limits, Some(setup.seed));
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
    LIVE.lock().push(Arc::clone(&process));
    let watched = Arc::clone(&process);
    let name = function.to_owned();
    let waiting = std::thread::Builder::new().name("nf-wait".to_owned());
    // The thread receives the child after its start. If it cannot be started, this function waits for the child.
    let (sender, receiver) = std::sync::mpsc::channel();
    let body = move || {
        let Ok((child, errors, group, user)) = receiver.recv() else {
            return;
        };
        wait(child, errors, group, &watched, &name);
        // The user id is free again once the process has been waited for.
        drop(user);
    };
    let waiting = waiting.spawn(body);
    if let Err(error) = waiting {
        process.kill();
        let _ended = child.wait();
        LIVE.lock().retain(|live| !Arc::ptr_eq(live, &process));
        return Err(error);
    }
    let _received = sender.send((child, errors, group, user));
    Ok((Isolated::new(window, Arc::clone(&process), setup), process))
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
    LIVE.lock().retain(|live| !Arc::ptr_eq(live, process));
}

/// Processes that have not ended, or whose groups are not removed yet.
static LIVE: Mutex<Vec<Arc<Process>>> = Mutex::new(Vec::new());
/// Time limit for the end of all processes.
const END: std::time::Duration = std::time::Duration::from_secs(2);
/// Interval at which the end of the processes is polled.
const END_POLL: std::time::Duration = std::time::Duration::from_millis(5);

/// Ends the processes of all functions, and waits until their control groups are removed, for two seconds at
/// most. The daemon calls this before it exits; the next daemon removes the groups that remain.
pub fn end_processes() {
    for process in LIVE.lock().iter() {
        process.kill();
    }
    let began = Instant::now();
    while !LIVE.lock().is_empty() && began.elapsed() < END {
        std::thread::sleep(END_POLL);
    }
}

/// Moves a new process, which waits for the end of its standard input, into its group, and closes that input. The key
/// of the hash tables is passed over this input, because every user can read the arguments of a process (proc(5)).
fn release(child: &mut Child, group: &Group, limits: &mut [Limit], seed: Option<u64>) {
    group.join(child.id(), limits);
    if let (Some(mut input), Some(seed)) = (child.stdin.take(), seed) {
        // A process that has ended does not read it.
        let _ended = writeln!(input, "{seed}");
    }
}

/// Returns the command that runs a function, with its limits and an empty environment. The process begins to
/// run the function once its standard input is closed.
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
