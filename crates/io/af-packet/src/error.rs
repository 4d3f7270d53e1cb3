//! The errors of opening an interface.

use rustix::io::Errno;
use thiserror::Error;

/// The error of opening an interface.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum OpenError {
    /// This network namespace has no interface of that name.
    #[error("there is no interface `{interface}` in this network namespace")]
    Missing {
        /// The name.
        interface: String,
    },
    /// The process may not open packet sockets.
    #[error("this process may not open packet sockets: CAP_NET_RAW is missing")]
    Permission,
    /// The interface does not carry Ethernet frames.
    #[error("`{interface}` carries no Ethernet frames (its type is {kind} of linux/if_arp.h, expected 1)")]
    NotEthernet {
        /// The name.
        interface: String,
        /// `ARPHRD_*`.
        kind: u16,
    },
    /// The kernel rejects a step.
    #[error("the kernel refuses {step} on `{interface}`: {error}")]
    Refused {
        /// The name.
        interface: String,
        /// The step, in the kernel's terms.
        step: &'static str,
        error: Errno,
    },
}
