//! A vhost-user front-end and virtio-net driver that forwards frames without copying them.
//!
//! A network function behind a vhost-user port takes frames, inspects them and sends them back. The buffer in which a
//! frame arrived is the buffer in which it leaves.
//!
//! # Cache lines
//! When two processors work on the same frame, each cache line that one has written and the other needs costs 50 ns
//! between neighbouring cores, and three times that across a chip. The driver therefore avoids repeated writes:
//! * A buffer keeps its descriptor, in either ring. While frames return in order and with the same length, no
//!   descriptor changes ([`ring`]).
//! * The virtio-net header has a separate cache line in front of the frame, and keeps its content.
//! * Lines that will be written are prefetched for writing one burst ahead.
//!
//! The remaining traffic is the frame itself and a part of the used ring.
//!
//! # Trust
//! The driver trusts the device with its memory, which holds only frames that the device has seen. It checks the
//! rings, and a [`DeviceViolation`] ends the connection.

mod buffer;
mod connection;
mod error;
mod ring;

use core::ops::Range;
use core::sync::atomic::{Ordering, fence};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use arrayvec::ArrayVec;
use rustix::event::{EventfdFlags, eventfd};

pub use buffer::{BUFFER, FRAME_AT, FRAME_MAX};
pub use error::{DeviceViolation, DriverError};

use crate::Features;
use crate::memory::OwnMemory;
use crate::message::{Message, RingMessage};
use buffer::HEADER;
use connection::Connection;
use ring::Ring;

/// The largest number of frames in a burst.
pub const BURST: usize = 64;
/// Ring numbers: the driver receives through ring 0 and sends through ring 1.
const RECEIVE: u32 = 0;
const SEND: u32 = 1;
/// `VIRTQ_DESC_F_WRITE`: the device writes to the buffer.
const WRITE: u16 = 2;

/// Received frames, in consecutive buffers.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// The index of the first buffer.
    first: u16,
    /// The size of each frame in bytes, without header.
    sizes: ArrayVec<u16, BURST>,
}

impl Batch {
    /// Returns the size of each frame in bytes, without header.
    #[must_use]
    pub fn sizes(&self) -> &[u16] {
        &self.sizes
    }

    /// Returns the indices of the buffers.
    fn buffers(&self) -> Range<u16> {
        self.first..self.first + self.sizes.len() as u16
    }
}

/// A connected driver with one queue pair.
#[derive(Debug)]
pub struct Driver {
    connection: Connection,
    kick: OwnedFd,
    own: OwnMemory,
    receive: Ring,
    send: Ring,
    /// The number of buffers, which is also the number of descriptors of each ring.
    len: u16,
    /// Offset of the first buffer.
    buffers: usize,
    /// True if `VIRTIO_F_IN_ORDER` was negotiated.
    is_in_order: bool,
    /// The used index up to which received frames were taken. This index and the others wrap at 65,536.
    taken: u16,
    /// The index up to which buffers were returned to the receive ring.
    returned: u16,
    /// The index up to which frames were sent.
    sent: u16,
    /// The index up to which the device has used sent frames.
    used: u16,
    /// The index up to which the device was notified of sent frames.
    notified: u16,
    /// The buffer of each entry of the send ring.
    in_place: Vec<u16>,
    /// True for each buffer that holds a frame.
    is_held: Vec<bool>,
}

impl Driver {
    /// Connects to the switch that listens at `path`, with rings of `len` descriptors, a power of two. Blocks until
    /// the switch has answered.
    ///
    /// # Errors
    /// [`DriverError`]
    pub fn connect(path: &Path, len: u16) -> Result<Driver, DriverError> {
        if len < 2 || !len.is_power_of_two() {
            return Err(DriverError::Length { len });
        }
        let ring_size = ring::size(len);
        let buffers = (2 * ring_size).next_multiple_of(1 << 12);
        let own = OwnMemory::create(buffers, usize::from(len) * BUFFER).map_err(DriverError::Memory)?;
        let (receive, send) = (Ring::new(&own, 0, len)?, Ring::new(&own, ring_size, len)?);
        for entry in 0..len {
            let at = own.address(buffers + usize::from(entry) * BUFFER + FRAME_AT - HEADER);
            receive.describe(entry, at, (HEADER + FRAME_MAX) as u32, WRITE);
        }
        receive.offer(len);
        let kick = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let mut driver = Driver {
            connection: Connection::connect(path)?,
            kick: kick.map_err(|error| DriverError::Connection(error.into()))?,
            own,
            receive,
            send,
            len,
            buffers,
            is_in_order: false,
            taken: 0,
            returned: 0,
            sent: 0,
            used: 0,
            notified: 0,
            in_place: vec![0; len.into()],
            is_held: vec![false; len.into()],
        };
        driver.negotiate()?;
        Ok(driver)
    }

    /// Negotiates features and announces memory and rings.
    fn negotiate(&mut self) -> Result<(), DriverError> {
        let line = &self.connection;
        let offered = Features::from_bits(line.request(&Message::GetFeatures)?);
        if !offered.contains(Features::VERSION_1) {
            return Err(DriverError::Features {
                offered: offered.bits(),
                expected: Features::VERSION_1.bits(),
            });
        }
        let wanted = Features::VERSION_1 | Features::IN_ORDER | Features::PROTOCOL_FEATURES;
        let features = offered & wanted;
        self.is_in_order = features.contains(Features::IN_ORDER);
        let can_enable = features.contains(Features::PROTOCOL_FEATURES);
        if can_enable {
            line.request(&Message::GetProtocolFeatures)?;
            line.send(&Message::SetProtocolFeatures(0), &[])?;
        }
        line.send(&Message::SetOwner, &[])?;
        line.send(&Message::SetFeatures(features.bits()), &[])?;
        line.send(&Message::SetMemory(vec![self.own.region()]), &[self.own.as_fd()])?;
        for (number, ring) in [(RECEIVE, &self.receive), (SEND, &self.send)] {
            for message in [
                RingMessage::Size(self.len.into()),
                RingMessage::Base(0),
                RingMessage::Addresses(ring.addresses()),
                RingMessage::Call { has_fd: false },
            ] {
                line.send(&Message::Ring(number, message), &[])?;
            }
            let kick = Message::Ring(number, RingMessage::Kick { has_fd: true });
            line.send(&kick, &[self.kick.as_fd()])?;
        }
        if can_enable {
            for number in [RECEIVE, SEND] {
                line.send(&Message::Ring(number, RingMessage::Enable(true)), &[])?;
            }
        }
        Ok(())
    }

    /// Returns true while the switch holds the connection open. Costs a system call.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.connection.is_open()
    }

    /// Returns the file descriptors that the driver needs while it runs: the socket, and the kick event.
    #[must_use]
    pub fn fds(&self) -> [BorrowedFd<'_>; 2] {
        [self.connection.as_fd(), self.kick.as_fd()]
    }

    fn buffer(&self, number: u16) -> usize {
        self.buffers + usize::from(number) * BUFFER
    }

    /// Takes the received frames, at most one burst. The caller must send or drop each of them.
    ///
    /// # Errors
    /// [`DeviceViolation`]; the connection must not be used again.
    #[inline]
    pub fn receive(&mut self) -> Result<Batch, DeviceViolation> {
        let lent = self.len - self.taken.wrapping_sub(self.returned);
        let waiting = self
            .receive
            .poll_index(self.taken, lent)?
            .wrapping_sub(self.taken);
        let first = self.receive.entry(self.taken);
        // Consecutive buffers, up to the end of the ring.
        let count = waiting.min(BURST as u16).min(self.len - first);
        let mut batch = Batch {
            first,
            sizes: ArrayVec::new(),
        };
        // The prefetched range extends one burst further.
        self.receive
            .prefetch_entries(self.taken, waiting.min(2 * BURST as u16));
        for number in 0..waiting.min(2 * BURST as u16) {
            let entry = self.receive.entry(self.taken.wrapping_add(number));
            self.own.prefetch_to_write(self.buffer(entry) + FRAME_AT);
        }
        for entry in first..first + count {
            let used = self.receive.used(entry);
            if used.id != u32::from(entry) {
                return Err(DeviceViolation::Order {
                    found: used.id,
                    expected: entry,
                });
            }
            let size = (used.size as usize).checked_sub(HEADER);
            let Some(size) = size.filter(|size| *size <= FRAME_MAX) else {
                return Err(DeviceViolation::Size { size: used.size });
            };
            batch.sizes.push(size as u16);
            self.is_held[usize::from(entry)] = true;
        }
        self.taken = self.taken.wrapping_add(count);
        Ok(batch)
    }

    /// Returns the buffers of the frames, [`BUFFER`] bytes each; a frame begins at [`FRAME_AT`].
    #[inline]
    pub fn buffers(&mut self, batch: &Batch) -> core::slice::ChunksExactMut<'_, u8> {
        let at = self.buffer(batch.first);
        let bytes = self.own.borrow(at, batch.sizes.len() * BUFFER);
        bytes.unwrap_or_default().chunks_exact_mut(BUFFER)
    }

    /// Sends frames of a batch, each given by its place in the buffer. Drops frames that are `None`, and those without
    /// headroom for the virtio-net header.
    #[inline]
    pub fn send(&mut self, batch: &Batch, frames: impl IntoIterator<Item = Option<Range<usize>>>) {
        for (number, frame) in batch.buffers().zip(frames) {
            let fits =
                |frame: &Range<usize>| (HEADER..=frame.end).contains(&frame.start) && frame.end <= BUFFER;
            match frame.filter(fits) {
                Some(frame) => self.send_one(number, frame.start, frame.len()),
                None => self.is_held[usize::from(number)] = false,
            }
        }
    }

    #[inline(always)]
    fn send_one(&mut self, number: u16, start: usize, size: usize) {
        let at = self.buffer(number) + start - HEADER;
        if start != FRAME_AT
            && let Some(header) = self.own.borrow(at, HEADER)
        {
            header.fill(0);
        }
        let entry = self.send.entry(self.sent);
        let address = self.own.address(at);
        self.send.describe(entry, address, (HEADER + size) as u32, 0);
        self.in_place[usize::from(entry)] = number;
        self.sent = self.sent.wrapping_add(1);
    }

    /// Makes the sent frames visible to the device, and returns free buffers to it.
    ///
    /// # Errors
    /// [`DeviceViolation`]; the connection must not be used again.
    #[inline]
    pub fn flush(&mut self) -> Result<(), DeviceViolation> {
        let has_sent = self.notified != self.sent;
        if has_sent {
            self.send.offer(self.sent);
            self.notified = self.sent;
        }
        let used_index = self
            .send
            .poll_index(self.used, self.sent.wrapping_sub(self.used))?;
        while self.used != used_index {
            let entry = self.send.entry(self.used);
            let used = self.send.used(self.used);
            if !self.is_in_order && used.id != u32::from(entry) {
                return Err(DeviceViolation::Order {
                    found: used.id,
                    expected: entry,
                });
            }
            let number = self.in_place[usize::from(entry)];
            self.is_held[usize::from(number)] = false;
            self.used = self.used.wrapping_add(1);
        }
        let before = self.returned;
        while self.returned != self.taken && !self.is_held[usize::from(self.receive.entry(self.returned))] {
            self.returned = self.returned.wrapping_add(1);
        }
        let has_buffers = before != self.returned;
        if has_buffers {
            self.receive.offer(self.returned.wrapping_add(self.len));
        }
        if !has_sent && !has_buffers {
            return Ok(());
        }
        // The device sets its flag and then checks the index again; the driver writes the index and then checks the
        // flag. The fence orders the two on this side, so that no kick is lost.
        fence(Ordering::SeqCst);
        if (has_sent && self.send.wants_kick()) || (has_buffers && self.receive.wants_kick()) {
            // The write fails only if the counter would overflow, and then the device has a kick pending.
            let _told = rustix::io::write(&self.kick, &1_u64.to_ne_bytes());
        }
        Ok(())
    }
}
