//! Messages over a Unix socket that keeps their bounds (`SOCK_SEQPACKET`), each with at most one file. Never waits.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::cmsg_space;
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use thiserror::Error;

use crate::message::{MESSAGE_SIZE, Message};
use crate::refusal::Refusal;

/// Why nothing comes or goes any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum LineError {
    /// The peer has closed it, or died.
    #[error("the peer is gone")]
    Closed,
    /// The peer does not read what it is told.
    #[error("the peer does not listen")]
    Deaf,
    /// What came is no message.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// What the kernel says.
    #[error("{0}")]
    Failed(Errno),
}

/// A connected socket.
#[derive(Debug)]
pub struct Line {
    socket: OwnedFd,
}

impl Line {
    /// Over a socket of type `SOCK_SEQPACKET`.
    pub fn new(socket: OwnedFd) -> Line {
        Line { socket }
    }

    /// Sends a message, with a file.
    ///
    /// # Errors
    /// [`LineError`]
    pub fn send(&self, message: &Message, file: Option<BorrowedFd<'_>>) -> Result<(), LineError> {
        let bytes = message.encode();
        let files: Vec<BorrowedFd<'_>> = file.into_iter().collect();
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !files.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(&files));
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        match sendmsg(&self.socket, &[IoSlice::new(&bytes)], &mut control, flags) {
            Ok(_) => Ok(()),
            Err(Errno::AGAIN) => Err(LineError::Deaf),
            Err(Errno::PIPE | Errno::CONNRESET) => Err(LineError::Closed),
            Err(error) => Err(LineError::Failed(error)),
        }
    }

    /// The next message, and the file that came with it; none if none has come. Files that are too many are closed.
    ///
    /// # Errors
    /// [`LineError`]
    pub fn receive(&self) -> Result<Option<(Message, Option<OwnedFd>)>, LineError> {
        let mut bytes = [0; MESSAGE_SIZE];
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(4))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        // The whole size of a message that is longer.
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC | RecvFlags::TRUNC;
        let size = match recvmsg(
            &self.socket,
            &mut [IoSliceMut::new(&mut bytes)],
            &mut control,
            flags,
        ) {
            Ok(received) => received.bytes,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(None),
            Err(Errno::CONNRESET) => return Err(LineError::Closed),
            Err(error) => return Err(LineError::Failed(error)),
        };
        let mut file = None;
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(files) = message {
                for one in files {
                    file.get_or_insert(one);
                }
            }
        }
        if size == 0 {
            return Err(LineError::Closed);
        }
        let message = match bytes.get(..size) {
            Some(bytes) => Message::decode(bytes)?,
            None => return Err(Refusal::MessageSize { size }.into()),
        };
        Ok(Some((message, file)))
    }
}

impl AsFd for Line {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, send, socketpair};

    use super::*;

    fn pair() -> (Line, Line) {
        let (a, b) = socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )
        .unwrap();
        (Line::new(a), Line::new(b))
    }

    #[test]
    fn messages_come_whole_in_order_and_with_their_files() {
        let (a, b) = pair();
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        a.send(&Message::Ack, None).unwrap();
        a.send(&Message::disconnect(&"x"), Some(file.as_fd())).unwrap();
        assert!(matches!(b.receive(), Ok(Some((Message::Ack, None)))));
        let Ok(Some((_, Some(came)))) = b.receive() else {
            panic!()
        };
        let ino = |file: BorrowedFd<'_>| rustix::fs::fstat(file).unwrap().st_ino;
        assert_eq!(ino(came.as_fd()), ino(file.as_fd()));
        assert!(matches!(b.receive(), Ok(None)));
        drop(a);
        assert_eq!(b.receive().unwrap_err(), LineError::Closed);
        assert_eq!(b.send(&Message::Ack, None), Err(LineError::Closed));
    }

    #[test]
    fn what_is_too_short_or_too_long_is_refused() {
        let (a, b) = pair();
        for size in [1, 127, 129, 4000] {
            send(&a, &vec![0; size], SendFlags::empty()).unwrap();
            let refused = LineError::Refused(Refusal::MessageSize { size });
            assert_eq!(b.receive().unwrap_err(), refused);
        }
    }

    #[test]
    fn a_peer_that_reads_nothing_is_not_waited_for() {
        let (a, _b) = pair();
        let deaf = (0..100_000).find_map(|_| a.send(&Message::Ack, None).err());
        assert_eq!(deaf, Some(LineError::Deaf));
    }
}
