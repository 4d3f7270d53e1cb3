//! One owner for each interface of the kernel: a switch and an emulated path at one interface would forward each frame
//! twice.
//!
//! The owner listens on a Unix socket with an abstract name (unix(7)) that contains the index of the interface. Such a
//! name belongs to the network namespace, as the interface does; the kernel removes it with the process, however that
//! ends, and tells others who listens. An interface keeps its index when it is renamed.

use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};

use nix::net::if_::if_nametoindex;
use rustix::net::sockopt::socket_peercred;

use super::{DeviceSpec, OpenError};

/// The maximum length of a command line in an error, in characters.
const COMMAND_LEN_MAX: usize = 120;

/// The ownership of an interface, until it is dropped.
#[must_use]
#[derive(Debug, Default)]
pub(super) struct Owned {
    /// The index of the interface.
    index: Option<u32>,
    _socket: Option<UnixListener>,
}

impl Owned {
    /// Returns true if this is the ownership of the interface with an index.
    pub(super) fn is_of(&self, index: u32) -> bool {
        self.index == Some(index)
    }
}

/// Returns the interface of the kernel behind a device; `None` for a device that the kernel does not have.
pub fn kernel_interface(spec: &DeviceSpec) -> Option<&str> {
    match spec {
        DeviceSpec::Kernel(name) | DeviceSpec::Tap(name) => Some(name),
        DeviceSpec::Vdev(devargs) => devargs
            .split(',')
            .find_map(|argument| argument.strip_prefix("iface=")),
        _ => None,
    }
}

/// Becomes the owner of the interface behind a device. A device without an interface, and an interface that does not
/// exist, have no owner: the error of their opening names them.
///
/// # Errors
/// [`OpenError::Busy`] if another process, or another port of this one, owns the interface.
pub(super) fn own(spec: &DeviceSpec) -> Result<Owned, OpenError> {
    let index = kernel_interface(spec).and_then(|name| if_nametoindex(name).ok());
    let Some(index) = index else {
        return Ok(Owned::default());
    };
    let bind = || -> io::Result<UnixListener> { UnixListener::bind_addr(&address(index)?) };
    let without_socket = Owned {
        index: Some(index),
        _socket: None,
    };
    match bind() {
        Ok(socket) => Ok(Owned {
            index: Some(index),
            _socket: Some(socket),
        }),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => match owner(index) {
            Owner::Trusted(owner) => Err(OpenError::Busy {
                device: spec.to_string(),
                reason: format!("{owner} forwards its frames, and each frame would be sent twice"),
                next_step: "end that process, or name another interface".to_owned(),
            }),
            Owner::Untrusted(uid) => {
                tracing::warn!(device = %spec, uid, "a user without rights holds the name of the interface's owner: other \
                    programs of Millrace are not kept from this interface");
                Ok(without_socket)
            }
        },
        Err(error) => {
            tracing::warn!(device = %spec, %error, "other programs of Millrace are not kept from this interface");
            Ok(without_socket)
        }
    }
}

fn address(index: u32) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("millrace-interface-{index}"))
}

/// The process that owns an interface.
enum Owner {
    /// A process of root or of this user, as a text.
    Trusted(String),
    /// The user id of another user, who may not keep this process from an interface.
    Untrusted(u32),
}

fn owner(index: u32) -> Owner {
    let found = address(index)
        .and_then(|address| UnixStream::connect_addr(&address))
        .and_then(|stream| Ok(socket_peercred(&stream)?));
    let Ok(peer) = found else {
        return Owner::Trusted("another process".to_owned());
    };
    if !peer.uid.is_root() && peer.uid != rustix::process::geteuid() {
        return Owner::Untrusted(peer.uid.as_raw());
    }
    if peer.pid == rustix::process::getpid() {
        return Owner::Trusted("another port of this process".to_owned());
    }
    let pid = peer.pid.as_raw_nonzero();
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words = line
        .split(|byte| *byte == 0)
        .map(|word| String::from_utf8_lossy(word));
    let line = words.collect::<Vec<_>>().join(" ");
    let line: String = line.trim_end().chars().take(COMMAND_LEN_MAX).collect();
    Owner::Trusted(format!("process {pid} ({line})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_has_one_owner_under_all_its_names_until_that_ends() {
        // The interface exists in each network namespace, and no switch has it as a port.
        let kernel = DeviceSpec::Kernel("lo".to_owned());
        let devargs = DeviceSpec::Vdev("net_af_xdp0,iface=lo".to_owned());
        let owned = own(&kernel).unwrap();
        let error = own(&devargs).unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, OpenError::Busy { .. }), "{text}");
        assert!(text.contains("another port of this process"), "{text}");
        drop(owned);
        let _owned = own(&devargs).unwrap();
    }

    #[test]
    fn an_interface_that_does_not_exist_has_no_owner() {
        let absent = DeviceSpec::Kernel("mr-absent".to_owned());
        let _first = own(&absent).unwrap();
        let _second = own(&absent).unwrap();
    }
}
