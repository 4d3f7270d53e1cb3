//! What a function's process may do: less and less, until it may only compute.
//!
//! It begins as the switch's user. Before the function's first instruction, which may be in the initialiser of a shared
//! object, it changes to a user of its own without capabilities, can gain none, and may make no system call but those that
//! read files and map them. Before it sees a packet it loses the right to open files, too. The kernel refuses every other
//! call with EPERM, so that a function that tries one goes on without it.
//!
//! The filter compares the arguments of calls that could do more than that:
//!
//! | call | allowed while loading |
//! | --- | --- |
//! | `openat` | to read; no `O_CREAT`, `O_TRUNC`, `O_APPEND`, `O_TMPFILE`: the kernel obeys them with `O_RDONLY`, too |
//! | `open`, `creat`, `openat2` | never: the first two are for old programs, and no filter can read the structure of the last |
//! | `prlimit64` | of the process itself (pid 0): the limits of others of its user could end them |
//! | `write` | standard output and standard error |

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

/// What every function does, from beginning to end: take and give memory, sleep, look at the clock, end.
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

/// Calls that loading a function takes besides: those that read files and map them.
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

/// Flags of openat(2) that must have the value of `O_RDONLY`, zero. `O_TMPFILE` contains `O_DIRECTORY`, which reads.
const OPEN_MASK: u64 = (libc::O_ACCMODE
    | libc::O_CREAT
    | libc::O_TRUNC
    | libc::O_APPEND
    | (libc::O_TMPFILE & !libc::O_DIRECTORY)) as u64;

/// Descriptors for errors and descriptions.
const OUTPUTS: [RawFd; 2] = [1, 2];

/// Bytes of a file that a function's description may fill: no description is longer.
const DESCRIPTION: u64 = 64 << 10;

/// What a function is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Needs {
    /// Memory.
    Memory,
    /// Memory that it fills with instructions: a module is compiled.
    Code,
}

/// Who gives it packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Giver {
    /// Nobody: it only says what it is.
    Nobody,
    /// The switch that started it, through memory.
    Parent,
    /// A switch at the other end of a socket, which is woken through a file.
    Switch {
        /// The number of the socket.
        line: RawFd,
        /// That of the other file.
        wake: RawFd,
    },
}

/// Rights that are given up before the function is loaded: those of the user, those to become more, those to have more
/// files and processes, and most of the system calls.
pub(crate) fn before_loading(user: Option<u32>, memory: Option<u64>, giver: Giver) -> Result<()> {
    nix::sys::prctl::set_no_new_privs()?;
    setrlimit(Resource::RLIMIT_CORE, 0, 0)?;
    match giver {
        // Its standard output may be a file.
        Giver::Nobody => setrlimit(Resource::RLIMIT_FSIZE, DESCRIPTION, DESCRIPTION)?,
        Giver::Parent => setrlimit(Resource::RLIMIT_FSIZE, 0, 0)?,
        Giver::Switch { .. } => {}
    }
    if let Some(bytes) = memory {
        setrlimit(Resource::RLIMIT_DATA, bytes, bytes).context("the limit of memory")?;
    }
    if let Some(user) = user {
        setgroups(&[])?;
        setgid(Gid::from_raw(user))?;
        setuid(Uid::from_raw(user))?;
    }
    setrlimit(Resource::RLIMIT_NPROC, 0, 0)?;
    let mut calls = common(Needs::Code, giver)?;
    calls.extend(LOADING.iter().map(|call| (*call, Vec::new())));
    calls.insert(libc::SYS_openat, vec![only(2, OPEN_MASK, libc::O_RDONLY as u64)?]);
    calls.insert(libc::SYS_prlimit64, vec![only(0, u64::from(u32::MAX), 0)?]);
    enforce(calls)
}

/// Rights that are given up before the function sees a packet.
pub(crate) fn before_running(needs: Needs, giver: Giver) -> Result<()> {
    setrlimit(Resource::RLIMIT_NOFILE, 3, 3)?;
    if giver == Giver::Parent {
        // One that hangs would not see that its switch is gone.
        nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
    }
    enforce(common(needs, giver)?)
}

type Calls = BTreeMap<libc::c_long, Vec<SeccompRule>>;

/// Returns a rule that an argument has exactly these bits of a mask. The lower 32 bits of the argument count.
fn only(argument: u8, mask: u64, bits: u64) -> Result<SeccompRule> {
    let operator = SeccompCmpOp::MaskedEq(mask);
    let condition = SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, bits)?;
    Ok(SeccompRule::new(vec![condition])?)
}

fn common(needs: Needs, giver: Giver) -> Result<Calls> {
    let mut calls: Calls = ALWAYS.iter().map(|call| (*call, Vec::new())).collect();
    let file = |number: RawFd| only(0, u64::from(u32::MAX), u64::from(number.unsigned_abs()));
    let mut outputs = OUTPUTS.to_vec();
    if let Giver::Switch { line, wake } = giver {
        outputs.push(wake);
        calls.insert(libc::SYS_recvfrom, vec![file(line)?]);
    }
    let outputs = outputs.into_iter().map(file).collect::<Result<_>>()?;
    calls.insert(libc::SYS_write, outputs);
    for call in [libc::SYS_mmap, libc::SYS_mprotect] {
        let rules = match needs {
            Needs::Code => Vec::new(),
            Needs::Memory => vec![only(2, libc::PROT_EXEC as u64, 0)?],
        };
        calls.insert(call, rules);
    }
    Ok(calls)
}

/// Refuses all other calls, from here on and for ever. Filters add up: a later one allows nothing that an earlier refuses.
fn enforce(calls: Calls) -> Result<()> {
    let refuse = SeccompAction::Errno(libc::EPERM as u32);
    let architecture = std::env::consts::ARCH.try_into()?;
    let filter = SeccompFilter::new(calls, refuse, SeccompAction::Allow, architecture)?;
    let program: BpfProgram = filter.try_into()?;
    seccompiler::apply_filter(&program).context("the filter of system calls")
}
