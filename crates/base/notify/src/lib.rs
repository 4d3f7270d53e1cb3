//! Messages of a daemon to the service manager (sd_notify(3)): one datagram each, to the socket that `NOTIFY_SOCKET` names.

#![forbid(unsafe_code)]

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// A state of a daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// The start is complete. `systemctl start` and `restart` of a unit with `Type=notify` return now.
    Ready,
    /// The daemon ends.
    Stopping,
}

impl State {
    const fn message(self) -> &'static str {
        match self {
            State::Ready => "READY=1",
            State::Stopping => "STOPPING=1",
        }
    }
}

/// Tells the service manager, if there is one, that the daemon has this state.
///
/// # Errors
/// The socket that `NOTIFY_SOCKET` names does not exist, or does not take the message.
pub fn notify(state: State) -> io::Result<()> {
    std::env::var_os("NOTIFY_SOCKET").map_or(Ok(()), |socket| send(&socket, state))
}

/// Sends a message to a socket: a path, or a name of the abstract namespace after `@`.
fn send(socket: &OsStr, state: State) -> io::Result<()> {
    let address = match socket.as_encoded_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(socket),
    }?;
    UnixDatagram::unbound()?.send_to_addr(state.message().as_bytes(), &address)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(socket: &UnixDatagram) -> String {
        let mut bytes = [0; 64];
        let size = socket.recv(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes[..size]).into_owned()
    }

    #[test]
    fn a_state_is_one_datagram_to_the_socket() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        send(path.as_os_str(), State::Ready).unwrap();
        send(path.as_os_str(), State::Stopping).unwrap();
        assert_eq!(received(&socket), "READY=1");
        assert_eq!(received(&socket), "STOPPING=1");
    }

    #[test]
    fn a_name_after_an_at_sign_is_in_the_abstract_namespace() {
        let name = format!("millrace-notify-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let socket = UnixDatagram::bind_addr(&address).unwrap();
        send(OsStr::new(&format!("@{name}")), State::Ready).unwrap();
        assert_eq!(received(&socket), "READY=1");
    }

    #[test]
    fn a_socket_that_is_gone_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        assert!(send(directory.path().join("gone").as_os_str(), State::Ready).is_err());
    }
}
