//! Messages and file descriptors over a Unix stream socket (`SOCK_STREAM`).
//!
//! No call blocks. A partial message stays in the buffer until the rest arrives, and delays nobody but its sender.

use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::cmsg_space;
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendFlags, recvmsg, send,
};
use thiserror::Error;

use crate::error::MessageError;
use crate::message::{HEADER_SIZE, Header, Message, PAYLOAD_MAX, Reply, TABLE_MAX};

/// The reason why the connection ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum ConnectionError {
    /// The front-end closed the socket, or died.
    #[error("the peer closed the connection")]
    Closed,
    /// The front-end does not read its replies, and the send buffer of the socket is full.
    #[error("the peer does not read its replies")]
    NotReading,
    /// The front-end sent an invalid message.
    #[error(transparent)]
    InvalidMessage(#[from] MessageError),
    /// A system call failed.
    #[error("{0}")]
    Failed(Errno),
}

/// A complete message.
#[derive(Debug)]
pub struct Received {
    /// The decoded message.
    pub message: Message,
    /// True if the sender waits for a reply, even to a request that has none.
    pub needs_reply: bool,
    /// The accompanying file descriptors: as many as the message requires.
    pub fds: Vec<OwnedFd>,
}

/// A connected socket.
#[derive(Debug)]
pub struct Connection {
    socket: OwnedFd,
    /// The part of the next message that has arrived: header and payload.
    bytes: [u8; HEADER_SIZE + PAYLOAD_MAX],
    size: usize,
    header: Option<Header>,
    fds: Vec<OwnedFd>,
}

impl Connection {
    /// Takes ownership of a connected socket of type `SOCK_STREAM`.
    pub fn new(socket: OwnedFd) -> Connection {
        Connection {
            socket,
            bytes: [0; HEADER_SIZE + PAYLOAD_MAX],
            size: 0,
            header: None,
            fds: Vec::new(),
        }
    }

    /// Sends a reply.
    ///
    /// # Errors
    /// [`ConnectionError`]
    pub fn send(&self, reply: &Reply) -> Result<(), ConnectionError> {
        let bytes = reply.encode();
        match send(&self.socket, &bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
            Ok(size) if size == bytes.len() => Ok(()),
            // A partial reply cannot be completed later, so it counts as not sent.
            Ok(_) | Err(Errno::AGAIN) => Err(ConnectionError::NotReading),
            Err(Errno::PIPE | Errno::CONNRESET) => Err(ConnectionError::Closed),
            Err(error) => Err(ConnectionError::Failed(error)),
        }
    }

    /// Returns the next message, or `None` until all of it has arrived.
    ///
    /// # Errors
    /// [`ConnectionError`]
    pub fn receive(&mut self) -> Result<Option<Received>, ConnectionError> {
        let header = match self.header {
            Some(header) => header,
            None => {
                if !self.fill(HEADER_SIZE)? {
                    return Ok(None);
                }
                let (bytes, _) = self.bytes.split_first_chunk().ok_or(MessageError::Short)?;
                let header = Header::decode(*bytes)?;
                self.header = Some(header);
                header
            }
        };
        let end = HEADER_SIZE + header.size;
        if !self.fill(end)? {
            return Ok(None);
        }
        let payload = self.bytes.get(HEADER_SIZE..end).ok_or(MessageError::Short)?;
        let message = Message::decode(header.request, payload)?;
        let fds = core::mem::take(&mut self.fds);
        if fds.len() != message.fds() {
            return Err(ConnectionError::InvalidMessage(MessageError::Fds {
                request: header.request,
                fds: fds.len(),
                expected: message.fds(),
            }));
        }
        self.header = None;
        self.size = 0;
        Ok(Some(Received {
            message,
            needs_reply: header.needs_reply,
            fds,
        }))
    }

    /// Reads until `end` bytes of the message are in the buffer. Returns false if fewer have arrived.
    fn fill(&mut self, end: usize) -> Result<bool, ConnectionError> {
        while self.size < end {
            let Some(room) = self.bytes.get_mut(self.size..end) else {
                return Ok(false);
            };
            let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(TABLE_MAX))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
            let received = match recvmsg(&self.socket, &mut [IoSliceMut::new(room)], &mut control, flags) {
                Ok(received) => received,
                Err(Errno::AGAIN | Errno::INTR) => return Ok(false),
                Err(Errno::CONNRESET) => return Err(ConnectionError::Closed),
                Err(error) => return Err(ConnectionError::Failed(error)),
            };
            for message in control.drain() {
                if let RecvAncillaryMessage::ScmRights(fds) = message {
                    self.fds.extend(fds);
                }
            }
            if received.bytes == 0 {
                return Err(ConnectionError::Closed);
            }
            self.size += received.bytes;
            if self.fds.len() > TABLE_MAX || received.flags.contains(ReturnFlags::CTRUNC) {
                return Err(ConnectionError::InvalidMessage(MessageError::TooManyFds));
            }
        }
        Ok(true)
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::io::IoSlice;

    use rustix::net::{
        AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SocketFlags, SocketType, sendmsg,
        socketpair,
    };

    use super::*;
    use crate::memory::MemoryRegion;
    use crate::message::RingMessage;

    fn pair() -> (OwnedFd, Connection) {
        let (a, b) = socketpair(
            AddressFamily::UNIX,
            SocketType::STREAM,
            SocketFlags::CLOEXEC,
            None,
        )
        .unwrap();
        (a, Connection::new(b))
    }

    fn say(to: &OwnedFd, bytes: &[u8], fds: usize) {
        let file = std::fs::File::open("/dev/null").unwrap();
        let fds = vec![file.as_fd(); fds];
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(32))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(&fds));
        }
        let sent = sendmsg(to, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL).unwrap();
        assert_eq!(sent, bytes.len());
    }

    fn memory(regions: usize) -> Message {
        let region = MemoryRegion {
            guest: 0,
            size: 4096,
            user: 0,
            offset: 0,
        };
        Message::SetMemory(vec![region; regions])
    }

    #[test]
    fn messages_come_whole_and_in_order_however_they_were_cut() {
        let (ours, mut line) = pair();
        let said = [
            (Message::SetOwner, 0),
            (memory(2), 2),
            (Message::Ring(1, RingMessage::Kick { has_fd: true }), 1),
            (Message::SetFeatures(7), 0),
        ];
        for (message, fds) in &said {
            let bytes = message.encode(true);
            for (at, byte) in bytes.iter().enumerate() {
                assert!(line.receive().unwrap().is_none());
                say(&ours, &[*byte], if at == 0 { *fds } else { 0 });
            }
            let received = line.receive().unwrap().unwrap();
            assert_eq!((&received.message, received.fds.len()), (message, *fds));
            assert!(received.needs_reply);
        }
        for (message, fds) in &said {
            say(&ours, &message.encode(false), *fds);
        }
        for (message, fds) in &said {
            let received = line.receive().unwrap().unwrap();
            assert_eq!((&received.message, received.fds.len()), (message, *fds));
        }
        assert!(line.receive().unwrap().is_none());
        drop(ours);
        assert_eq!(line.receive().unwrap_err(), ConnectionError::Closed);
    }

    #[test]
    fn files_are_as_many_as_the_message_has() {
        for (message, fds) in [
            (memory(2), 1),
            (memory(1), 2),
            (memory(1), 0),
            (Message::SetOwner, 1),
            (Message::Ring(0, RingMessage::Call { has_fd: true }), 0),
            (Message::Ring(0, RingMessage::Call { has_fd: false }), 1),
        ] {
            let (ours, mut line) = pair();
            say(&ours, &message.encode(false), fds);
            let refused = MessageError::Fds {
                request: message.request(),
                fds,
                expected: message.fds(),
            };
            assert_eq!(
                line.receive().unwrap_err(),
                ConnectionError::InvalidMessage(refused)
            );
        }
        let (ours, mut line) = pair();
        say(&ours, &memory(8).encode(false), 20);
        let refused = ConnectionError::InvalidMessage(MessageError::TooManyFds);
        assert_eq!(line.receive().unwrap_err(), refused);
    }

    #[test]
    fn a_driver_that_reads_nothing_is_not_waited_for() {
        let (_ours, line) = pair();
        let reply = Reply::number(1, 0);
        let deaf = (0..100_000).find_map(|_| line.send(&reply).err());
        assert_eq!(deaf, Some(ConnectionError::NotReading));
    }
}
