//! The driver's end of the vhost-user socket, which it uses before packets flow.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use rustix::cmsg_space;
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType, connect, recv, sendmsg, socket_with,
};

use super::DriverError;
use crate::message::{Message, Reply};

/// The longest time in which the device must answer, or read a message.
const TIMEOUT: Duration = Duration::from_secs(5);

/// A socket connected to a device.
#[derive(Debug)]
pub(super) struct Connection {
    socket: OwnedFd,
}

impl Connection {
    /// Connects to the device that listens at `path`.
    pub(super) fn connect(path: &Path) -> Result<Connection, DriverError> {
        let failed = |error: Errno| DriverError::Connect {
            path: path.to_owned(),
            source: error.into(),
        };
        let socket = socket_with(
            AddressFamily::UNIX,
            SocketType::STREAM,
            SocketFlags::CLOEXEC,
            None,
        )
        .map_err(failed)?;
        connect(&socket, &SocketAddrUnix::new(path).map_err(failed)?).map_err(failed)?;
        for direction in [Timeout::Recv, Timeout::Send] {
            set_socket_timeout(&socket, direction, Some(TIMEOUT)).map_err(failed)?;
        }
        Ok(Connection { socket })
    }

    pub(super) fn send(&self, message: &Message, fds: &[BorrowedFd<'_>]) -> Result<(), DriverError> {
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(fds));
        }
        let bytes = message.encode(false);
        match sendmsg(
            &self.socket,
            &[IoSlice::new(&bytes)],
            &mut control,
            SendFlags::NOSIGNAL,
        ) {
            Ok(size) if size == bytes.len() => Ok(()),
            Ok(_) | Err(Errno::AGAIN) => Err(DriverError::NotReading),
            Err(Errno::PIPE | Errno::CONNRESET) => Err(DriverError::Closed),
            Err(error) => Err(DriverError::Connection(error.into())),
        }
    }

    /// Sends a request and returns the number in its reply.
    pub(super) fn request(&self, message: &Message) -> Result<u64, DriverError> {
        self.send(message, &[])?;
        let mut bytes = [0; Reply::SIZE];
        let mut filled = 0;
        while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match recv(&self.socket, rest, RecvFlags::empty()) {
                Ok((0, _)) => return Err(DriverError::Closed),
                Ok((size, _)) => filled += size,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Err(DriverError::NotReading),
                Err(Errno::CONNRESET) => return Err(DriverError::Closed),
                Err(error) => return Err(DriverError::Connection(error.into())),
            }
        }
        Reply::decode(message.request(), bytes).map_err(DriverError::Reply)
    }

    /// Returns true while the device holds the connection open.
    pub(super) fn is_open(&self) -> bool {
        let mut byte = [0; 1];
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        match recv(&self.socket, &mut byte, flags) {
            Ok((0, _)) => false,
            Ok(_) => true,
            Err(error) => matches!(
                error.kind(),
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
            ),
        }
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
