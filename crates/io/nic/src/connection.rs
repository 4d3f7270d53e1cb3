//! The socket over which a device passes its memory to a driver. No call blocks.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use rustix::cmsg_space;
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};

use crate::register::VERSION;

/// The first bytes of the message.
const MAGIC: [u8; 4] = *b"MRNC";
/// Size of the message in bytes: "MRNC" and the version.
const MESSAGE_SIZE: usize = 8;

/// The state of a connection, as its driver finds it.
#[derive(Debug)]
pub enum Received {
    /// Nothing has arrived.
    Nothing,
    /// The device passes its memory.
    Memory(OwnedFd),
    /// The other side has closed the connection.
    Closed,
    /// Something else has arrived.
    Other,
}

/// Passes the memory file to a driver.
///
/// # Errors
/// The kernel's error.
pub fn send_memory(socket: impl AsFd, file: impl AsFd) -> Result<(), Errno> {
    let mut message = [0; MESSAGE_SIZE];
    message[..4].copy_from_slice(&MAGIC);
    message[4..].copy_from_slice(&VERSION.to_le_bytes());
    let files = [file.as_fd()];
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&files));
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    sendmsg(socket, &[IoSlice::new(&message)], &mut control, flags).map(|_| ())
}

/// Returns what has arrived. Further descriptors of a message are closed.
#[must_use]
pub fn receive(socket: impl AsFd) -> Received {
    let mut bytes = [0; MESSAGE_SIZE];
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(4))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC | RecvFlags::TRUNC;
    let size = match recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags) {
        Ok(received) => received.bytes,
        Err(Errno::AGAIN | Errno::INTR) => return Received::Nothing,
        Err(_) => return Received::Closed,
    };
    let mut file = None;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(files) = message {
            for one in files {
                file.get_or_insert(one);
            }
        }
    }
    match file {
        _ if size == 0 => Received::Closed,
        Some(file) if size == MESSAGE_SIZE && bytes[..4] == MAGIC => Received::Memory(file),
        _ => Received::Other,
    }
}
