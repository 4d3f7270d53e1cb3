//! Messages and files over a Unix socket that keeps no bounds between messages (`SOCK_STREAM`). Never waits: half a message
//! stays until the rest comes, and holds up nobody but its sender.

use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::cmsg_space;
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendFlags, recvmsg, send,
};
use thiserror::Error;

use crate::message::{HEADER_SIZE, Header, Message, PAYLOAD_MAX, Reply, TABLE_MAX};
use crate::refusal::Refusal;

/// Why nothing comes or goes any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum LineError {
    /// The driver's side has closed it, or died.
    #[error("the peer is gone")]
    Closed,
    /// It does not read what it is told.
    #[error("the peer does not listen")]
    Deaf,
    /// What came is no message.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// What the kernel says.
    #[error("{0}")]
    Failed(Errno),
}

/// A message that came whole.
#[derive(Debug)]
pub struct Received {
    /// What it says.
    pub message: Message,
    /// Whether an answer is waited for, whatever the message is.
    pub needs_reply: bool,
    /// The files that came along: as many as the message has.
    pub files: Vec<OwnedFd>,
}

/// A connected socket.
#[derive(Debug)]
pub struct Line {
    socket: OwnedFd,
    /// What has come of the next message: its header, and its payload.
    bytes: [u8; HEADER_SIZE + PAYLOAD_MAX],
    size: usize,
    header: Option<Header>,
    files: Vec<OwnedFd>,
}

impl Line {
    /// Over a socket of type `SOCK_STREAM`.
    pub fn new(socket: OwnedFd) -> Line {
        Line {
            socket,
            bytes: [0; HEADER_SIZE + PAYLOAD_MAX],
            size: 0,
            header: None,
            files: Vec::new(),
        }
    }

    /// Sends an answer.
    ///
    /// # Errors
    /// [`LineError`]
    pub fn send(&self, reply: &Reply) -> Result<(), LineError> {
        let bytes = reply.encode();
        match send(&self.socket, &bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
            Ok(size) if size == bytes.len() => Ok(()),
            // Part of an answer is none.
            Ok(_) | Err(Errno::AGAIN) => Err(LineError::Deaf),
            Err(Errno::PIPE | Errno::CONNRESET) => Err(LineError::Closed),
            Err(error) => Err(LineError::Failed(error)),
        }
    }

    /// The next message; none while it has not come whole.
    ///
    /// # Errors
    /// [`LineError`]
    pub fn receive(&mut self) -> Result<Option<Received>, LineError> {
        let header = match self.header {
            Some(header) => header,
            None => {
                if !self.fill(HEADER_SIZE)? {
                    return Ok(None);
                }
                let (bytes, _) = self.bytes.split_first_chunk().ok_or(Refusal::Short)?;
                let header = Header::decode(*bytes)?;
                self.header = Some(header);
                header
            }
        };
        let end = HEADER_SIZE + header.size;
        if !self.fill(end)? {
            return Ok(None);
        }
        let payload = self.bytes.get(HEADER_SIZE..end).ok_or(Refusal::Short)?;
        let message = Message::decode(header.request, payload)?;
        let files = core::mem::take(&mut self.files);
        if files.len() != message.files() {
            return Err(LineError::Refused(Refusal::Files {
                request: header.request,
                files: files.len(),
                expected: message.files(),
            }));
        }
        self.header = None;
        self.size = 0;
        Ok(Some(Received {
            message,
            needs_reply: header.needs_reply,
            files,
        }))
    }

    /// Reads until there are so many bytes of the message. Whether there are.
    fn fill(&mut self, end: usize) -> Result<bool, LineError> {
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
                Err(Errno::CONNRESET) => return Err(LineError::Closed),
                Err(error) => return Err(LineError::Failed(error)),
            };
            for message in control.drain() {
                if let RecvAncillaryMessage::ScmRights(files) = message {
                    self.files.extend(files);
                }
            }
            if received.bytes == 0 {
                return Err(LineError::Closed);
            }
            self.size += received.bytes;
            if self.files.len() > TABLE_MAX || received.flags.contains(ReturnFlags::CTRUNC) {
                return Err(LineError::Refused(Refusal::TooManyFiles));
            }
        }
        Ok(true)
    }
}

impl AsFd for Line {
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
    use crate::memory::Span;
    use crate::message::RingMessage;

    fn pair() -> (OwnedFd, Line) {
        let (a, b) = socketpair(
            AddressFamily::UNIX,
            SocketType::STREAM,
            SocketFlags::CLOEXEC,
            None,
        )
        .unwrap();
        (a, Line::new(b))
    }

    fn say(to: &OwnedFd, bytes: &[u8], files: usize) {
        let file = std::fs::File::open("/dev/null").unwrap();
        let files = vec![file.as_fd(); files];
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(32))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !files.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(&files));
        }
        let sent = sendmsg(to, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL).unwrap();
        assert_eq!(sent, bytes.len());
    }

    fn memory(regions: usize) -> Message {
        let span = Span {
            guest: 0,
            size: 4096,
            user: 0,
            offset: 0,
        };
        Message::SetMemory(vec![span; regions])
    }

    #[test]
    fn messages_come_whole_and_in_order_however_they_were_cut() {
        let (ours, mut line) = pair();
        let said = [
            (Message::SetOwner, 0),
            (memory(2), 2),
            (Message::Ring(1, RingMessage::Kick { has_file: true }), 1),
            (Message::SetFeatures(7), 0),
        ];
        for (message, files) in &said {
            let bytes = message.encode(true);
            for (at, byte) in bytes.iter().enumerate() {
                assert!(line.receive().unwrap().is_none());
                say(&ours, &[*byte], if at == 0 { *files } else { 0 });
            }
            let received = line.receive().unwrap().unwrap();
            assert_eq!((&received.message, received.files.len()), (message, *files));
            assert!(received.needs_reply);
        }
        for (message, files) in &said {
            say(&ours, &message.encode(false), *files);
        }
        for (message, files) in &said {
            let received = line.receive().unwrap().unwrap();
            assert_eq!((&received.message, received.files.len()), (message, *files));
        }
        assert!(line.receive().unwrap().is_none());
        drop(ours);
        assert_eq!(line.receive().unwrap_err(), LineError::Closed);
    }

    #[test]
    fn files_are_as_many_as_the_message_has() {
        for (message, files) in [
            (memory(2), 1),
            (memory(1), 2),
            (memory(1), 0),
            (Message::SetOwner, 1),
            (Message::Ring(0, RingMessage::Call { has_file: true }), 0),
            (Message::Ring(0, RingMessage::Call { has_file: false }), 1),
        ] {
            let (ours, mut line) = pair();
            say(&ours, &message.encode(false), files);
            let refused = Refusal::Files {
                request: message.request(),
                files,
                expected: message.files(),
            };
            assert_eq!(line.receive().unwrap_err(), LineError::Refused(refused));
        }
        let (ours, mut line) = pair();
        say(&ours, &memory(8).encode(false), 20);
        let refused = LineError::Refused(Refusal::TooManyFiles);
        assert_eq!(line.receive().unwrap_err(), refused);
    }

    #[test]
    fn a_driver_that_reads_nothing_is_not_waited_for() {
        let (_ours, line) = pair();
        let reply = Reply::number(1, 0);
        let deaf = (0..100_000).find_map(|_| line.send(&reply).err());
        assert_eq!(deaf, Some(LineError::Deaf));
    }
}
