//! The rights of a function's process, which it drops in two steps until it can only compute.
//!
//! The process starts as the switch's user. Before the function's first instruction, which may be in the
//! initialiser of a shared object, the process changes to a separate user without capabilities. It can gain
//! no capability, and may only make system calls that read and map files. Before it receives a packet, it
//! also loses the right to open files. The kernel refuses every other call with EPERM, so that a function
//! that makes one can continue.
//!
//! For calls that could do more than read and map files, the filter also checks the arguments:
//!
//! | call | allowed while loading |
//! | --- | --- |
//! | `openat` | to read; no `O_CREAT`, `O_TRUNC`, `O_APPEND`, `O_TMPFILE`: the kernel obeys them with `O_RDONLY`, too |
//! | `open`, `creat`, `openat2` | never: the first two are for old programs, and no filter can read the structure of the last |
//! | `prlimit64` | of the process itself (pid 0): the limits of others of its user could end them |
//! | `write` | standard output and standard error |
//!
//! A filter applies to one thread. A function with a shared value, such as rules, has a second thread, which
//! compiles values. The second thread has two more rights than the function's thread: it may read the file of
//! the source, and make memory executable.

use std::collections::BTreeMap;
use std::os::fd::RawFd;

use anyhow::{Context, Result};
use nix::libc;
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::Signal;
use nix::unistd::{Gid, Uid, setgid, setgroups, setuid};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};

/// System calls that a function may always make: they manage memory, sleep, read the clock, and end the process.
const ALWAYS: &[libc::c_long] = &[
    libc::SYS_brk,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_futex,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_getrandom,
    libc::SYS_gettid,
    libc::SYS_madvise,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_nanosleep,
    libc::SYS_restart_syscall,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_yield,
    libc::SYS_sigaltstack,
];

/// Additional system calls for the time of loading: those that read files and map them.
const LOADING: &[libc::c_long] = &[
    libc::SYS_close,
    libc::SYS_fstat,
    libc::SYS_lseek,
    libc::SYS_newfstatat,
    libc::SYS_prctl,
    libc::SYS_pread64,
    libc::SYS_read,
    libc::SYS_readlink,
    libc::SYS_seccomp,
    libc::SYS_setrlimit,
    libc::SYS_statx,
];

/// Flags of openat(2) that must be zero, as in `O_RDONLY`. `O_TMPFILE` includes `O_DIRECTORY`, which is allowed.
const OPEN_MASK: u64 = (libc::O_ACCMODE
    | libc::O_CREAT
    | libc::O_TRUNC
    | libc::O_APPEND
    | (libc::O_TMPFILE & !libc::O_DIRECTORY)) as u64;

/// The file descriptors for the description (standard output) and for errors (standard error).
const OUTPUTS: [RawFd; 2] = [1, 2];

/// Size limit of the file that a description is written to, in bytes. It exceeds the longest description.
const DESCRIPTION_SIZE_MAX: u64 = 64 << 10;

/// Code generation at run time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CodeGeneration {
    /// No memory may become executable.
    None,
    /// A WebAssembly module is compiled to executable memory.
    Compiles,
}

/// The source of the function's packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PacketSource {
    /// There are no packets: the process only prints the function's description.
    None,
    /// The parent process, by a window of shared memory.
    Window,
    /// A vhost-user socket.
    Socket {
        /// The file descriptor of the socket.
        socket: RawFd,
        /// The file descriptor that kicks the device.
        kick: RawFd,
    },
}

/// Drops the rights that loading a function does not need: to act as the switch's user, to gain privileges,
/// to start processes, to write files, and to make most system calls.
pub(crate) fn before_loading(user: Option<u32>, memory: Option<u64>, source: PacketSource) -> Result<()> {
    nix::sys::prctl::set_no_new_privs()?;
    setrlimit(Resource::RLIMIT_CORE, 0, 0)?;
    match source {
        // The standard output may be a file.
        PacketSource::None => setrlimit(Resource::RLIMIT_FSIZE, DESCRIPTION_SIZE_MAX, DESCRIPTION_SIZE_MAX)?,
        PacketSource::Window => setrlimit(Resource::RLIMIT_FSIZE, 0, 0)?,
        PacketSource::Socket { .. } => {}
    }
    if let Some(bytes) = memory {
        setrlimit(Resource::RLIMIT_DATA, bytes, bytes).context("memory limit")?;
    }
    if let Some(user) = user {
        setgroups(&[])?;
        setgid(Gid::from_raw(user))?;
        setuid(Uid::from_raw(user))?;
    }
    setrlimit(Resource::RLIMIT_NPROC, 0, 0)?;
    let mut calls = common(CodeGeneration::Compiles, source)?;
    calls.extend(LOADING.iter().map(|call| (*call, Vec::new())));
    calls.insert(libc::SYS_openat, vec![only(2, OPEN_MASK, libc::O_RDONLY as u64)?]);
    calls.insert(libc::SYS_prlimit64, vec![only(0, u64::from(u32::MAX), 0)?]);
    enforce(calls)
}

/// Drops the rights that a loaded function does not need.
pub(crate) fn before_running(code: CodeGeneration, source: PacketSource) -> Result<()> {
    setrlimit(Resource::RLIMIT_NOFILE, 3, 3)?;
    if source == PacketSource::Window {
        // The kernel kills the process when the switch ends: a function that hangs would not notice the end.
        nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
    }
    enforce(common(code, source)?)
}

/// Drops the rights that the compiler thread does not need. The thread keeps the rights to read the open file
/// descriptor `source` and to generate code.
pub(crate) fn before_compiling(source: RawFd) -> Result<()> {
    let mut calls = common(CodeGeneration::Compiles, PacketSource::Window)?;
    calls.insert(
        libc::SYS_pread64,
        vec![only(0, u64::from(u32::MAX), u64::from(source.unsigned_abs()))?],
    );
    enforce(calls)
}

/// Allowed system calls with rules for their arguments. A call must match one of its rules; a call without
/// rules may have any arguments.
type Calls = BTreeMap<libc::c_long, Vec<SeccompRule>>;

/// Returns a rule that requires `argument & mask == bits` for the lower 32 bits of the argument with this
/// index.
fn only(argument: u8, mask: u64, bits: u64) -> Result<SeccompRule> {
    let operator = SeccompCmpOp::MaskedEq(mask);
    let condition = SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, bits)?;
    Ok(SeccompRule::new(vec![condition])?)
}

/// Returns the calls that every filter allows, with their rules.
fn common(code: CodeGeneration, source: PacketSource) -> Result<Calls> {
    let mut calls: Calls = ALWAYS.iter().map(|call| (*call, Vec::new())).collect();
    let on_fd = |fd: RawFd| only(0, u64::from(u32::MAX), u64::from(fd.unsigned_abs()));
    let mut outputs = OUTPUTS.to_vec();
    if let PacketSource::Socket { socket, kick } = source {
        outputs.push(kick);
        calls.insert(libc::SYS_recvfrom, vec![on_fd(socket)?]);
    }
    let outputs = outputs.into_iter().map(on_fd).collect::<Result<_>>()?;
    calls.insert(libc::SYS_write, outputs);
    for call in [libc::SYS_mmap, libc::SYS_mprotect] {
        let rules = match code {
            CodeGeneration::Compiles => Vec::new(),
            CodeGeneration::None => vec![only(2, libc::PROT_EXEC as u64, 0)?],
        };
        calls.insert(call, rules);
    }
    Ok(calls)
}

/// Rejects all other calls for the rest of the process's life. A call must pass all filters of the process.
fn enforce(calls: Calls) -> Result<()> {
    let refuse = SeccompAction::Errno(libc::EPERM as u32);
    let architecture = std::env::consts::ARCH.try_into()?;
    let filter = SeccompFilter::new(calls, refuse, SeccompAction::Allow, architecture)?;
    let program: BpfProgram = filter.try_into()?;
    seccompiler::apply_filter(&program).context("the seccomp filter cannot be installed")
}
