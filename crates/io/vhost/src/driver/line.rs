//! What a driver says to a device, before packets flow.

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

/// How long the device may take to answer, or to hear.
const BOUND: Duration = Duration::from_secs(5);

/// A socket to a device.
#[derive(Debug)]
pub(super) struct Line {
    socket: OwnedFd,
}

impl Line {
    /// To whoever listens at a path.
    pub(super) fn connect(path: &Path) -> Result<Line, DriverError> {
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
            set_socket_timeout(&socket, direction, Some(BOUND)).map_err(failed)?;
        }
        Ok(Line { socket })
    }

    pub(super) fn say(&self, message: &Message, files: &[BorrowedFd<'_>]) -> Result<(), DriverError> {
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !files.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(files));
        }
        let bytes = message.encode(false);
        match sendmsg(
            &self.socket,
            &[IoSlice::new(&bytes)],
            &mut control,
            SendFlags::NOSIGNAL,
        ) {
            Ok(size) if size == bytes.len() => Ok(()),
            Ok(_) | Err(Errno::AGAIN) => Err(DriverError::Deaf),
            Err(Errno::PIPE | Errno::CONNRESET) => Err(DriverError::Closed),
            Err(error) => Err(DriverError::Line(error.into())),
        }
    }

    /// Says something that has a number for an answer.
    pub(super) fn ask(&self, message: &Message) -> Result<u64, DriverError> {
        self.say(message, &[])?;
        let mut bytes = [0; Reply::SIZE];
        let mut filled = 0;
        while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match recv(&self.socket, rest, RecvFlags::empty()) {
                Ok((0, _)) => return Err(DriverError::Closed),
                Ok((size, _)) => filled += size,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Err(DriverError::Deaf),
                Err(Errno::CONNRESET) => return Err(DriverError::Closed),
                Err(error) => return Err(DriverError::Line(error.into())),
            }
        }
        Reply::decode(message.request(), bytes).map_err(DriverError::Reply)
    }

    /// Whether the other end is there.
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

impl AsFd for Line {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
