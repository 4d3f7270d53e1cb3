//! The rights that the process drops once it listens and has read its files: what remains is to talk over sockets, and to read the
//! users and groups of the machine.
//!
//! | layer | leaves |
//! | --- | --- |
//! | `no_new_privs`, no capabilities | |
//! | Landlock | reading below /etc, /usr/lib, /lib, /proc and /sys; no writing, but to `etcd.state` if etcd is followed; no binding to TCP ports |
//! | seccomp | the system calls of sockets, threads, memory, time, and reading files; all others fail with EPERM |
//!
//! Kernels without Landlock, or with an older version of it, enforce what they have; the log says so.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};
use landlock::{
    ABI, Access as _, AccessFs, AccessNet, CompatLevel, Compatible as _, PathBeneath, PathFd, Ruleset,
    RulesetAttr as _, RulesetCreatedAttr as _, RulesetStatus,
};
use nix::libc;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};

/// The version of Landlock whose rights are named.
const VERSION: ABI = ABI::V4;
/// Folders with what the C library reads to look a user up.
const READABLE: &[&str] = &[
    "/etc",
    "/usr/lib",
    "/lib",
    "/lib64",
    "/proc",
    "/sys",
    "/run/systemd/userdb",
];

/// System calls that the process makes after its start.
const CALLS: &[libc::c_long] = &[
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_bind,
    libc::SYS_brk,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_clone,
    libc::SYS_clone3,
    libc::SYS_close,
    libc::SYS_connect,
    libc::SYS_dup,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_wait,
    libc::SYS_eventfd2,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_fcntl,
    libc::SYS_fdatasync,
    libc::SYS_fstat,
    libc::SYS_fsync,
    libc::SYS_ftruncate,
    libc::SYS_futex,
    libc::SYS_getdents64,
    libc::SYS_getegid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getpeername,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_getrandom,
    libc::SYS_getsockname,
    libc::SYS_getsockopt,
    libc::SYS_gettid,
    libc::SYS_getuid,
    libc::SYS_ioctl,
    libc::SYS_listen,
    libc::SYS_lseek,
    libc::SYS_madvise,
    libc::SYS_membarrier,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_nanosleep,
    libc::SYS_newfstatat,
    libc::SYS_openat,
    libc::SYS_poll,
    libc::SYS_ppoll,
    libc::SYS_prctl,
    libc::SYS_pread64,
    libc::SYS_read,
    libc::SYS_readlink,
    libc::SYS_readv,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_rename,
    libc::SYS_renameat2,
    libc::SYS_restart_syscall,
    libc::SYS_rseq,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_yield,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_set_robust_list,
    libc::SYS_setsockopt,
    libc::SYS_shutdown,
    libc::SYS_sigaltstack,
    libc::SYS_socket,
    libc::SYS_socketpair,
    libc::SYS_statx,
    libc::SYS_tgkill,
    // Landlock admits it in the folder of the state alone.
    libc::SYS_unlink,
    libc::SYS_write,
    libc::SYS_writev,
];

/// Drops the rights, for this thread and those that it starts. `writable` is the folder in which it goes on writing, if any.
pub(crate) fn enter(writable: Option<&Path>) -> Result<()> {
    // The C library loads what it needs to look users up before memory can no longer become executable.
    let _ = nix::unistd::User::from_uid(nix::unistd::Uid::from_raw(u32::MAX - 1));
    let _ = nix::unistd::Group::from_name("millrace-mgmt");
    nix::sys::prctl::set_no_new_privs()?;
    nix::sys::resource::setrlimit(nix::sys::resource::Resource::RLIMIT_CORE, 0, 0)?;
    files(writable)?;
    calls()
}

fn files(writable: Option<&Path>) -> Result<()> {
    let read = AccessFs::from_read(VERSION);
    let ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(VERSION))?
        .handle_access(AccessNet::BindTcp)?;
    let mut created = ruleset.create()?;
    for folder in READABLE {
        if let Ok(opened) = PathFd::new(folder) {
            created = created.add_rule(PathBeneath::new(opened, read))?;
        }
    }
    if let Some(folder) = writable {
        let opened = PathFd::new(folder).with_context(|| folder.display().to_string())?;
        created = created.add_rule(PathBeneath::new(
            opened,
            read | AccessFs::WriteFile | AccessFs::Truncate | AccessFs::MakeReg | AccessFs::RemoveFile,
        ))?;
    }
    let status = created.restrict_self()?;
    match status.ruleset {
        RulesetStatus::FullyEnforced => {}
        RulesetStatus::PartiallyEnforced => tracing::info!("Landlock: the kernel enforces a part"),
        RulesetStatus::NotEnforced => tracing::warn!("Landlock: the kernel does not have it"),
    }
    Ok(())
}

fn calls() -> Result<()> {
    let only = |argument: u8, mask: u64, bits: u64| -> Result<SeccompRule> {
        let operator = SeccompCmpOp::MaskedEq(mask);
        let condition = SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, bits)?;
        Ok(SeccompRule::new(vec![condition])?)
    };
    let mut calls: BTreeMap<libc::c_long, Vec<SeccompRule>> =
        CALLS.iter().map(|call| (*call, Vec::new())).collect();
    let executable = u64::from(libc::PROT_EXEC.unsigned_abs());
    for call in [libc::SYS_mmap, libc::SYS_mprotect] {
        calls.insert(call, vec![only(2, executable, 0)?]);
    }
    // The limits of this process alone.
    calls.insert(libc::SYS_prlimit64, vec![only(0, u64::from(u32::MAX), 0)?]);
    let refuse = SeccompAction::Errno(libc::EPERM.unsigned_abs());
    let filter = SeccompFilter::new(
        calls,
        refuse,
        SeccompAction::Allow,
        std::env::consts::ARCH.try_into()?,
    )?;
    let program: BpfProgram = filter.try_into()?;
    seccompiler::apply_filter(&program).context("the seccomp filter cannot be installed")
}
