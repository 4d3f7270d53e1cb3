//! The control channel: messages over a Unix socket of type `SOCK_SEQPACKET`, each with at most one file descriptor. No call
//! blocks.

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

use crate::error::MessageError;
use crate::message::{MESSAGE_SIZE, Message};

/// The reason why the connection ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum ConnectionError {
    /// The peer closed the socket, or its process ended.
    #[error("the peer closed the connection")]
    Closed,
    /// The peer does not read its messages, and the send buffer of the socket is full.
    #[error("the peer does not read its messages")]
    NotReading,
    /// The peer sent an invalid message.
    #[error(transparent)]
    InvalidMessage(#[from] MessageError),
    /// A system call failed.
    #[error("{0}")]
    Failed(Errno),
}

/// A connected socket.
#[derive(Debug)]
pub struct Connection {
    socket: OwnedFd,
}

impl Connection {
    /// Uses a connected socket of type `SOCK_SEQPACKET`.
    pub fn new(socket: OwnedFd) -> Connection {
        Connection { socket }
    }

    /// Sends a message with an optional file descriptor.
    ///
    /// # Errors
    /// [`ConnectionError`]
    pub fn send(&self, message: &Message, file: Option<BorrowedFd<'_>>) -> Result<(), ConnectionError> {
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
            Err(Errno::AGAIN) => Err(ConnectionError::NotReading),
            Err(Errno::PIPE | Errno::CONNRESET) => Err(ConnectionError::Closed),
            Err(error) => Err(ConnectionError::Failed(error)),
        }
    }

    /// Returns the next message with its file descriptor, or `None` if no message has arrived. Further descriptors of the
    /// message are closed.
    ///
    /// # Errors
    /// [`ConnectionError`]
    pub fn receive(&self) -> Result<Option<(Message, Option<OwnedFd>)>, ConnectionError> {
        let mut bytes = [0; MESSAGE_SIZE];
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(4))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        // MSG_TRUNC returns the full size of a message that does not fit.
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC | RecvFlags::TRUNC;
        let size = match recvmsg(
            &self.socket,
            &mut [IoSliceMut::new(&mut bytes)],
            &mut control,
            flags,
        ) {
            Ok(received) => received.bytes,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(None),
            Err(Errno::CONNRESET) => return Err(ConnectionError::Closed),
            Err(error) => return Err(ConnectionError::Failed(error)),
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
            return Err(ConnectionError::Closed);
        }
        let message = match bytes.get(..size) {
            Some(bytes) => Message::decode(bytes)?,
            None => return Err(MessageError::MessageSize { size }.into()),
        };
        Ok(Some((message, file)))
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, send, socketpair};

    use super::*;

    fn pair() -> (Connection, Connection) {
        let (a, b) = socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )
        .unwrap();
        (Connection::new(a), Connection::new(b))
    }

    #[test]
    fn messages_arrive_whole_in_order_and_with_their_file_descriptors() {
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
        assert_eq!(b.receive().unwrap_err(), ConnectionError::Closed);
        assert_eq!(b.send(&Message::Ack, None), Err(ConnectionError::Closed));
    }

    #[test]
    fn messages_of_another_size_are_rejected() {
        let (a, b) = pair();
        for size in [1, 127, 129, 4000] {
            send(&a, &vec![0; size], SendFlags::empty()).unwrap();
            let refused = ConnectionError::InvalidMessage(MessageError::MessageSize { size });
            assert_eq!(b.receive().unwrap_err(), refused);
        }
    }

    #[test]
    fn sending_to_a_peer_that_reads_nothing_fails_without_blocking() {
        let (a, _b) = pair();
        let error = (0..100_000).find_map(|_| a.send(&Message::Ack, None).err());
        assert_eq!(error, Some(ConnectionError::NotReading));
    }
}
