//! The errors of EAL's start, each with the next step for the operator.

use std::fmt;

use crate::Errno;
use crate::affinity::{CoreId, ThreadError, list};
use crate::hugepages::HugePagesError;

/// A DPDK release: year and month.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    /// The last two digits of the year.
    pub year: u32,
    pub month: u32,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:02}", self.year, self.month)
    }
}

/// The error of [`Eal::init`](crate::Eal::init).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EalError {
    /// EAL was already started in this process.
    #[error(
        "EAL is up already in this process. To fix it: start it once, and pass the token on (Eal::current)"
    )]
    AlreadyUp,
    /// An earlier start in this process failed inside DPDK.
    #[error(
        "EAL failed to start before, and DPDK cannot try again in the same process. To fix it: mend the cause of the \
             first error, and start the program again"
    )]
    FailedBefore,
    /// The DPDK libraries are of another release than the headers.
    #[error(
        "Millrace was built for DPDK {built} and runs with DPDK {running}. To fix it: install DPDK {built} \
         (apt-get install libdpdk-dev), or build Millrace again on this machine"
    )]
    Version {
        /// The release that Millrace was built for.
        built: Version,
        /// The release of the libraries.
        running: Version,
    },
    /// The core does not exist, or the process may not use it.
    #[error(
        "core {core} cannot be used; this process may use {}. To fix it: name one of these, or widen the process's \
         cpuset (systemd: AllowedCPUs=, containers: --cpuset-cpus)", list(.allowed)
    )]
    Core {
        /// The requested core.
        core: CoreId,
        /// The cores that the process may use.
        allowed: Vec<CoreId>,
    },
    /// The set of available cores cannot be read.
    #[error("the system does not tell which cores this process may use. To fix it: mount /proc and /sys")]
    NoCore,
    /// The prefix is not valid as a file name.
    #[error("{0:?} cannot be a file prefix. To fix it: 1 to 32 ASCII letters, digits, '_' or '-'")]
    FilePrefix(String),
    /// The configured memory is less than EAL itself needs.
    #[error("{memory_mib} MiB are too little for EAL. To fix it: give it 32 MiB or more, 512 for a switch")]
    TooLittleMemory {
        /// The requested memory in MiB.
        memory_mib: u32,
    },
    /// Huge pages were required and are not available.
    #[error("huge pages are required: {0}")]
    HugePages(#[source] HugePagesError),
    /// A thread for EAL cannot be started.
    #[error(transparent)]
    Thread(#[from] ThreadError),
    /// The thread that starts EAL panicked.
    #[error(
        "the thread dpdk-init, which starts EAL, panicked. To fix it: report the message of the panic (standard error) as a \
         defect of Millrace, and start the program again"
    )]
    Panicked,
    /// The log cannot be redirected.
    #[error("cannot redirect DPDK's log: {0}. To fix it: free some memory, or raise the limit on open files")]
    Log(Errno),
    /// The process lacks a permission that EAL needs.
    #[error(
        "EAL may not start: {errno} ({detail}). To fix it: run as root; or without huge pages and with virtual devices \
         only, for which CAP_NET_ADMIN, CAP_NET_RAW and CAP_IPC_LOCK suffice"
    )]
    Permission {
        /// The error that DPDK returned.
        errno: Errno,
        /// The messages that DPDK logged.
        detail: String,
    },
    /// The memory cannot be allocated.
    #[error(
        "EAL cannot have {memory_mib} MiB{}: {detail}. To fix it: ask for less memory, end other programs, raise the \
         container's memory or hugetlb limit{}",
        if *.huge_pages { " of huge pages" } else { "" },
        if *.huge_pages { ", or run without huge pages" } else { "" }
    )]
    Memory {
        /// The requested memory in MiB.
        memory_mib: u32,
        /// True if huge pages were requested.
        huge_pages: bool,
        /// The messages that DPDK logged.
        detail: String,
    },
    /// Another process uses the prefix.
    #[error(
        "another DPDK process uses the file prefix {prefix:?} ({detail}). To fix it: end it, or give this one another \
         file prefix"
    )]
    PrefixInUse {
        prefix: String,
        /// The messages that DPDK logged.
        detail: String,
    },
    /// The processor lacks instructions that this DPDK build uses.
    #[error(
        "DPDK does not run on this machine: {detail}. To fix it: install a DPDK that was built for this processor"
    )]
    Machine {
        /// The messages that DPDK logged.
        detail: String,
    },
    /// Any other failure.
    #[error(
        "EAL does not start: {errno} ({detail}). To fix it: run again with log level debug; the cause is in the lines \
             with target dpdk"
    )]
    Other {
        /// The error that DPDK returned.
        errno: Errno,
        /// The messages that DPDK logged.
        detail: String,
    },
}
