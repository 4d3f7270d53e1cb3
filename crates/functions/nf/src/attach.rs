//! Attached functions: a process that an operator starts gets its window over a Unix socket of the switch.
//!
//! ```text
//!  process                          switch (hop with function = "attached:PATH")
//!     │  connect PATH (SOCK_SEQPACKET)  │
//!     │  hello: instance, counters ───▶ │
//!     │ ◀─── memory, with descriptor    │  one for each part of packet memory (class `ring`)
//!     │ ◀─── window, with descriptor    │  or refused, with the reason
//!     │  packets through the window     │
//!     │  (end of either side closes)    │
//! ```
//!
//! The connection stays open while the function is attached. When it closes, the switch knows at once that the process has
//! ended, or the process knows that the switch has ended or detached it. A process that attaches again gets a new window.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::cmsg_space;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recv, recvmsg,
    sendmsg, socket_with,
};
use thiserror::Error;

use crate::function::Function;
use crate::kind::Setup;
use crate::shm::{FunctionEnd, PacketMemory};

/// Maximum size of a message, in bytes.
pub const MESSAGE_SIZE_MAX: usize = 4096;
/// Maximum number of counters of an attached function.
pub const ATTACHED_COUNTERS_MAX: usize = 64;
/// The first bytes of each message: the protocol and its version.
const MAGIC: [u8; 8] = *b"mratt\0\0\x01";
/// The number in a hello that leaves the choice of the instance to the switch.
const ANY: u32 = u32::MAX;

const HELLO: u8 = 1;
const MEMORY: u8 = 2;
const WINDOW: u8 = 3;
const REFUSED: u8 = 4;

/// A message of the protocol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AttachMessage {
    /// The process asks for the window of an instance of the hop, and names its counters. Without a number it
    /// asks for any instance.
    Hello {
        /// The number of the instance, over all lanes.
        instance: Option<u32>,
        /// The names of the function's counters.
        counters: Vec<String>,
    },
    /// The switch passes a part of packet memory.
    Memory {
        /// The address at which the process maps the memory.
        address: u64,
        /// The size, in bytes.
        size: u64,
        /// The offset in the file.
        offset: u64,
    },
    /// The switch passes the window.
    Window {
        /// The number of the instance.
        instance: u32,
    },
    /// The switch refuses, with the reason.
    Refused(String),
}

/// The reason why a message is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum AttachMessageError {
    /// The bytes are not a message of this version.
    #[error("not a message of this version: both sides must be of one version of Millrace")]
    Version,
    /// The type is unknown, or the content does not suit it.
    #[error("an invalid message of type {0}")]
    Content(u8),
}

impl AttachMessage {
    /// Returns the bytes of the message.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        match self {
            AttachMessage::Hello { instance, counters } => {
                bytes.push(HELLO);
                bytes.extend(instance.unwrap_or(ANY).to_le_bytes());
                bytes.extend(counters.join("\n").into_bytes());
            }
            AttachMessage::Memory {
                address,
                size,
                offset,
            } => {
                bytes.push(MEMORY);
                for number in [address, size, offset] {
                    bytes.extend(number.to_le_bytes());
                }
            }
            AttachMessage::Window { instance } => {
                bytes.push(WINDOW);
                bytes.extend(instance.to_le_bytes());
            }
            AttachMessage::Refused(reason) => {
                bytes.push(REFUSED);
                bytes.extend(reason.bytes());
            }
        }
        bytes.truncate(MESSAGE_SIZE_MAX);
        bytes
    }

    /// Parses a message.
    ///
    /// # Errors
    /// [`AttachMessageError`].
    pub fn decode(bytes: &[u8]) -> Result<AttachMessage, AttachMessageError> {
        let body = bytes.strip_prefix(&MAGIC).ok_or(AttachMessageError::Version)?;
        let (kind, body) = body.split_first().ok_or(AttachMessageError::Version)?;
        let wrong = AttachMessageError::Content(*kind);
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).map_err(|_| wrong);
        match *kind {
            HELLO => {
                let (instance, names) = body.split_first_chunk().ok_or(wrong)?;
                let instance = u32::from_le_bytes(*instance);
                let names = text(names)?;
                let counters: Vec<String> = names.split_terminator('\n').map(str::to_owned).collect();
                let is_name = |name: &String| {
                    (1..=32).contains(&name.len())
                        && name
                            .bytes()
                            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
                };
                // Two counters with one name would be two samples of one metric, for which Prometheus refuses the whole page.
                let is_unique = |name: &String| counters.iter().filter(|other| *other == name).count() == 1;
                let is_valid = |name: &String| is_name(name) && is_unique(name);
                match counters.len() <= ATTACHED_COUNTERS_MAX && counters.iter().all(is_valid) {
                    true => Ok(AttachMessage::Hello {
                        instance: (instance != ANY).then_some(instance),
                        counters,
                    }),
                    false => Err(wrong),
                }
            }
            MEMORY => {
                let body: &[u8; 24] = body.try_into().map_err(|_| wrong)?;
                let number = |at: usize| {
                    let bytes = body.get(at..).and_then(|rest| rest.first_chunk());
                    u64::from_le_bytes(bytes.copied().unwrap_or_default())
                };
                Ok(AttachMessage::Memory {
                    address: number(0),
                    size: number(8),
                    offset: number(16),
                })
            }
            WINDOW => {
                let instance: &[u8; 4] = body.try_into().map_err(|_| wrong)?;
                Ok(AttachMessage::Window {
                    instance: u32::from_le_bytes(*instance),
                })
            }
            REFUSED => Ok(AttachMessage::Refused(text(body)?)),
            _ => Err(wrong),
        }
    }

    /// Sends the message with an optional file descriptor. It does not block.
    ///
    /// # Errors
    /// The kernel's error; `EAGAIN` if the peer does not read.
    pub fn send(&self, socket: impl AsFd, file: Option<BorrowedFd<'_>>) -> Result<(), Errno> {
        let bytes = self.encode();
        let files: Vec<BorrowedFd<'_>> = file.into_iter().collect();
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !files.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(&files));
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        sendmsg(socket, &[IoSlice::new(&bytes)], &mut control, flags).map(drop)
    }

    /// Receives a message with its file descriptor; `None` if none has arrived. It does not block.
    ///
    /// # Errors
    /// The kernel's error, `ECONNRESET` if the peer has closed the connection, or `EPROTO` for an invalid message.
    pub fn receive(socket: impl AsFd) -> Result<Option<(AttachMessage, Option<OwnedFd>)>, Errno> {
        let mut bytes = [0; MESSAGE_SIZE_MAX];
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(2))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let received = recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags);
        let size = match received {
            Ok(received) => received.bytes,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut file = None;
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(files) = message {
                // Further descriptors are closed.
                files.for_each(|one| {
                    file.get_or_insert(one);
                });
            }
        }
        if size == 0 {
            return Err(Errno::CONNRESET);
        }
        let message = AttachMessage::decode(&bytes[..size.min(MESSAGE_SIZE_MAX)]);
        Ok(Some((message.map_err(|_| Errno::PROTO)?, file)))
    }
}

/// The reason why a function cannot attach.
#[derive(Debug, Error)]
pub enum AttachError {
    /// No switch listens, or access is denied.
    #[error("{}: {error}: the switch needs a hop with function = \"attached:{}\", and this process its rights", path.display(), path.display())]
    Connect {
        /// The path of the socket.
        path: PathBuf,
        /// The kernel's error.
        error: io::Error,
    },
    /// The switch refuses.
    #[error("the switch refuses: {0}")]
    Refused(String),
    /// The switch violated the protocol, or sent nothing in time.
    #[error("{what}")]
    Protocol {
        /// The violation in words.
        what: String,
    },
    /// The window or packet memory cannot be mapped.
    #[error("the window cannot be mapped: {0}")]
    Map(#[from] io::Error),
}

/// A function that is attached to a switch. Dropping it detaches the function.
#[derive(Debug)]
pub struct Attachment {
    socket: OwnedFd,
    /// The number of the instance, over all lanes.
    pub instance: u32,
    /// The window.
    pub end: FunctionEnd,
}

impl Attachment {
    /// Attaches this process to the hop with the socket at `path`, as `instance` or as any free instance.
    /// `counters` are the names of the function's counters. Waits for the switch for `limit` at most.
    ///
    /// # Errors
    /// [`AttachError`].
    pub fn new(
        path: &Path,
        instance: Option<u32>,
        counters: &[&str],
        limit: Duration,
    ) -> Result<Attachment, AttachError> {
        let deadline = Instant::now() + limit;
        let failed = |error: Errno| AttachError::Connect {
            path: path.to_owned(),
            error: error.into(),
        };
        let socket = socket_with(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        );
        let socket = socket.map_err(failed)?;
        let address = SocketAddrUnix::new(path).map_err(failed)?;
        connect(&socket, &address).map_err(failed)?;
        let hello = AttachMessage::Hello {
            instance,
            counters: counters.iter().map(|name| (*name).to_owned()).collect(),
        };
        hello.send(&socket, None).map_err(failed)?;
        let mut memory = PacketMemory::default();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(AttachError::Protocol {
                    what: format!("{}: the switch does not answer", path.display()),
                });
            }
            wait(&socket, left).map_err(failed)?;
            let message = AttachMessage::receive(&socket).map_err(failed)?;
            match message {
                None => {}
                Some((
                    AttachMessage::Memory {
                        address,
                        size,
                        offset,
                    },
                    Some(file),
                )) => memory.map(&File::from(file), address as usize, size as usize, offset)?,
                Some((AttachMessage::Window { instance }, Some(file))) => {
                    let end = FunctionEnd::open(&File::from(file))?.with_memory(memory);
                    return Ok(Attachment {
                        socket,
                        instance,
                        end,
                    });
                }
                Some((AttachMessage::Refused(reason), _)) => return Err(AttachError::Refused(reason)),
                Some((other, _)) => {
                    return Err(AttachError::Protocol {
                        what: format!("the switch sent {other:?} without what belongs to it"),
                    });
                }
            }
        }
    }

    /// Returns true if the switch still has the function attached.
    pub fn is_attached(&self) -> bool {
        !self.end.is_stopped() && is_open(&self.socket)
    }

    /// Returns the connection and the window, for a caller with a poll loop of its own. The function is detached when the
    /// connection is dropped.
    pub fn into_parts(self) -> (AttachedSocket, FunctionEnd) {
        (AttachedSocket(self.socket), self.end)
    }

    /// Returns the connection. When it closes, each side knows that the other has ended.
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Sets whether the function writes to packets, which is true by default.
    pub fn set_writes(&mut self, writes: bool) {
        self.end.set_writes(writes);
    }

    /// Runs the function that was created with `setup` until the switch detaches it, or until `goes_on`, which is called ten
    /// times a second, returns false.
    pub fn run(&mut self, function: &mut dyn Function, setup: &Setup, mut goes_on: impl FnMut() -> bool) {
        let socket = &self.socket;
        self.end.run(function, setup, || is_open(socket) && goes_on());
    }
}

/// The connection of an attached function.
#[derive(Debug)]
pub struct AttachedSocket(OwnedFd);

impl AttachedSocket {
    /// Returns true if the switch has not closed the connection.
    pub fn is_open(&self) -> bool {
        is_open(&self.0)
    }
}

/// Returns true if the switch has sent nothing, not even the end of the connection. The one system call is recvfrom(2), which the
/// system call filter permits to a function.
fn is_open(socket: &OwnedFd) -> bool {
    let flags = RecvFlags::DONTWAIT | RecvFlags::PEEK;
    matches!(
        recv(socket, &mut [0_u8; 1], flags),
        Err(Errno::AGAIN | Errno::INTR)
    )
}

/// Waits until a message arrives, or the time is over.
fn wait(socket: &OwnedFd, time: Duration) -> Result<(), Errno> {
    let time = Timespec {
        tv_sec: time.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: time.subsec_nanos().into(),
    };
    match poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&time)) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_decode_to_what_was_encoded_and_any_bytes_are_refused_or_decoded() {
        let messages = [
            AttachMessage::Hello {
                instance: Some(3),
                counters: vec!["passed".to_owned(), "blocked".to_owned()],
            },
            AttachMessage::Hello {
                instance: None,
                counters: Vec::new(),
            },
            AttachMessage::Memory {
                address: 1 << 40,
                size: 4096,
                offset: 7,
            },
            AttachMessage::Window { instance: 1 },
            AttachMessage::Refused("no".to_owned()),
        ];
        for message in messages {
            let bytes = message.encode();
            assert_eq!(AttachMessage::decode(&bytes), Ok(message));
            for end in 0..bytes.len() {
                let _shorter = AttachMessage::decode(&bytes[..end]);
            }
        }
        let other = [&MAGIC[..7], &[2, WINDOW, 0, 0, 0, 0]].concat();
        assert_eq!(AttachMessage::decode(&other), Err(AttachMessageError::Version));
        let bad = |counters: &[&str]| {
            let hello = AttachMessage::Hello {
                instance: None,
                counters: counters.iter().map(|name| (*name).to_owned()).collect(),
            };
            AttachMessage::decode(&hello.encode())
        };
        assert!(bad(&["a b"]).is_err());
        assert!(bad(&[""; 2]).is_err());
        assert!(bad(&["twice", "other", "twice"]).is_err());
        assert!(bad(&["x"; ATTACHED_COUNTERS_MAX + 1]).is_err());
    }
}
