//! The other side: a driver whose frames stay where they are.
//!
//! A network function behind the vhost-user port of any switch takes frames, looks at them and sends them back. Here
//! that costs no copy: the buffer that a frame came in is what it leaves in.
//!
//! # Which lines change hands
//! Two processors that work on the same frame pay for each line of the cache that one of them has written and the other one
//! wants: 50 ns between neighbours, three times that across a chip. So nothing is written twice:
//! * A buffer has its descriptor for ever, in either ring; where frames go back in the order in which they came, and are as
//!   long as those before them, no descriptor changes ([`ring`]).
//! * The header lies in a line of its own in front of the frame, and says what it said the last time.
//! * What will be written is asked for before it is written, a burst ahead.
//!
//! So what remains is the frame itself, and a part of the used ring.
//!
//! # Whom it trusts
//! The device. It may write to any of the memory, which holds frames that it has seen anyhow, and nothing else. What it says
//! about rings is checked, and a [`Fault`] ends the connection.

mod line;
mod ring;

use core::ops::Range;
use core::sync::atomic::{Ordering, fence};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use arrayvec::ArrayVec;
use rustix::event::{EventfdFlags, eventfd};
use thiserror::Error;

use crate::memory::Own;
use crate::message::{Message, RingMessage};
use crate::{Features, Refusal};
use line::Line;
use ring::Ring;

/// Frames of a burst, at most.
pub const BURST: usize = 64;
/// Bytes of the header in front of each frame.
const HEADER: usize = 12;
/// Where a frame lies in its buffer when it comes: there is room in front of it.
pub const FRAME_AT: usize = 128;
/// Bytes from a buffer to the next: an odd number of lines, as a power of two has all frames meet in a few sets of the
/// caches.
pub const BUFFER: usize = 35 * 64;
/// Bytes of the longest frame.
pub const FRAME_MAX: usize = BUFFER - FRAME_AT;
/// The rings: frames come in the first one, and go in the other one.
const RECEIVE: u32 = 0;
const SEND: u32 = 1;
/// `VIRTQ_DESC_F_WRITE`: the device writes to the buffer.
const WRITE: u16 = 2;

/// Why there are no frames.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DriverError {
    /// Nobody listens, or not to us.
    #[error("{}: {source}", .path.display())]
    Connect {
        /// The socket.
        path: PathBuf,
        /// What the kernel says.
        source: io::Error,
    },
    /// The number of descriptors.
    #[error("a ring of {len} descriptors; expected a power of two from 2 to 32768")]
    Length {
        /// How many were asked for.
        len: u16,
    },
    /// No memory, or no file.
    #[error("no memory for rings and frames: {0}")]
    Memory(#[source] Refusal),
    /// The socket fails.
    #[error("the socket of the switch: {0}")]
    Line(#[source] io::Error),
    /// The device has closed the socket.
    #[error("the switch has closed the connection")]
    Closed,
    /// It does not answer in time, or does not read what it is told.
    #[error("the switch does not answer")]
    Deaf,
    /// What it answers is no answer.
    #[error("an answer of the switch: {0}")]
    Reply(#[source] Refusal),
    /// It is of another kind.
    #[error("the switch offers features {offered:#x}; expected {expected:#x} among them (virtio 1.0)")]
    Features {
        /// What it offers.
        offered: u64,
        /// What is needed.
        expected: u64,
    },
}

/// What a device does that it may not.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum Fault {
    /// It gives back more than it has.
    #[error("the switch gives back buffers {from} to {to} of a ring; it had {lent}")]
    Index {
        /// The first.
        from: u16,
        /// Behind the last.
        to: u16,
        /// How many it had.
        lent: u16,
    },
    /// It does not keep the order.
    #[error("the switch gives back buffer {found}; expected {expected}, as it was given before")]
    Order {
        /// Which it gave back.
        found: u32,
        /// Which it should have.
        expected: u16,
    },
    /// A frame that is longer than its buffer, or not even a header.
    #[error("a frame of {size} bytes, header included; expected 12 to {}", HEADER + FRAME_MAX)]
    Size {
        /// How long it is said to be.
        size: u32,
    },
}

/// Frames that came, in buffers that lie side by side.
#[derive(Clone, Debug, Default)]
pub struct Row {
    /// The buffer of the first one.
    first: u16,
    /// Bytes of each, without header.
    sizes: ArrayVec<u16, BURST>,
}

impl Row {
    /// Bytes of each frame, without header.
    #[must_use]
    pub fn sizes(&self) -> &[u16] {
        &self.sizes
    }

    /// Which of all buffers they are in.
    fn buffers(&self) -> Range<u16> {
        self.first..self.first + self.sizes.len() as u16
    }
}

/// A connected driver, by one pair of rings.
#[derive(Debug)]
pub struct Driver {
    line: Line,
    kick: OwnedFd,
    own: Own,
    receive: Ring,
    send: Ring,
    /// Buffers, and descriptors of each ring.
    len: u16,
    /// Where buffers begin.
    buffers: usize,
    /// Whether the device has promised to keep the order.
    is_in_order: bool,
    /// Frames that were taken. This and the others run freely, modulo 65,536.
    taken: u16,
    /// Up to where buffers are the receiving ring's again.
    back: u16,
    /// Frames that were sent.
    sent: u16,
    /// Frames of those that the device is done with.
    gone: u16,
    /// Up to where the device was told.
    told: u16,
    /// The buffer of each frame in the sending ring.
    in_place: Vec<u16>,
    /// Whether a buffer holds a frame.
    is_held: Vec<bool>,
}

impl Driver {
    /// Connects to the switch that listens at `path`, with rings of `len` descriptors, a power of two. Waits until it has
    /// answered.
    ///
    /// # Errors
    /// [`DriverError`]
    pub fn connect(path: &Path, len: u16) -> Result<Driver, DriverError> {
        if len < 2 || !len.is_power_of_two() {
            return Err(DriverError::Length { len });
        }
        let ring_size = ring::size(len);
        let buffers = (2 * ring_size).next_multiple_of(1 << 12);
        let own = Own::create(buffers, usize::from(len) * BUFFER).map_err(DriverError::Memory)?;
        let (receive, send) = (Ring::new(&own, 0, len)?, Ring::new(&own, ring_size, len)?);
        for place in 0..len {
            let at = own.address(buffers + usize::from(place) * BUFFER + FRAME_AT - HEADER);
            receive.describe(place, at, (HEADER + FRAME_MAX) as u32, WRITE);
        }
        receive.offer(len);
        let kick = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let mut driver = Driver {
            line: Line::connect(path)?,
            kick: kick.map_err(|error| DriverError::Line(error.into()))?,
            own,
            receive,
            send,
            len,
            buffers,
            is_in_order: false,
            taken: 0,
            back: 0,
            sent: 0,
            gone: 0,
            told: 0,
            in_place: vec![0; len.into()],
            is_held: vec![false; len.into()],
        };
        driver.introduce()?;
        Ok(driver)
    }

    /// Says where everything is.
    fn introduce(&mut self) -> Result<(), DriverError> {
        let line = &self.line;
        let offered = Features::from_bits(line.ask(&Message::GetFeatures)?);
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
            line.ask(&Message::GetProtocolFeatures)?;
            line.say(&Message::SetProtocolFeatures(0), &[])?;
        }
        line.say(&Message::SetOwner, &[])?;
        line.say(&Message::SetFeatures(features.bits()), &[])?;
        line.say(&Message::SetMemory(vec![self.own.span()]), &[self.own.as_fd()])?;
        for (number, ring) in [(RECEIVE, &self.receive), (SEND, &self.send)] {
            for message in [
                RingMessage::Size(self.len.into()),
                RingMessage::Base(0),
                RingMessage::Place(ring.addresses()),
                RingMessage::Call { has_file: false },
            ] {
                line.say(&Message::Ring(number, message), &[])?;
            }
            let kick = Message::Ring(number, RingMessage::Kick { has_file: true });
            line.say(&kick, &[self.kick.as_fd()])?;
        }
        if can_enable {
            for number in [RECEIVE, SEND] {
                line.say(&Message::Ring(number, RingMessage::Enable(true)), &[])?;
            }
        }
        Ok(())
    }

    /// Whether the switch is there still. A system call.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.line.is_open()
    }

    /// The files that it needs as long as it is there: the socket, and the one that wakes the device.
    #[must_use]
    pub fn files(&self) -> [BorrowedFd<'_>; 2] {
        [self.line.as_fd(), self.kick.as_fd()]
    }

    fn buffer(&self, number: u16) -> usize {
        self.buffers + usize::from(number) * BUFFER
    }

    /// Takes the frames that came, a burst at most. Each is to be sent or dropped.
    ///
    /// # Errors
    /// [`Fault`]; the connection is of no use any more.
    #[inline]
    pub fn receive(&mut self) -> Result<Row, Fault> {
        let lent = self.len - self.taken.wrapping_sub(self.back);
        let waiting = self.receive.look(self.taken, lent)?.wrapping_sub(self.taken);
        let first = self.receive.place(self.taken);
        // Side by side, up to the end of the ring.
        let count = waiting.min(BURST as u16).min(self.len - first);
        let mut row = Row {
            first,
            sizes: ArrayVec::new(),
        };
        // Those behind them are the next burst.
        self.receive.ask_for(self.taken, waiting.min(2 * BURST as u16));
        for number in 0..waiting.min(2 * BURST as u16) {
            let place = self.receive.place(self.taken.wrapping_add(number));
            self.own.prefetch_to_write(self.buffer(place) + FRAME_AT);
        }
        for place in first..first + count {
            let used = self.receive.used(place);
            if used.id != u32::from(place) {
                return Err(Fault::Order {
                    found: used.id,
                    expected: place,
                });
            }
            let size = (used.size as usize).checked_sub(HEADER);
            let Some(size) = size.filter(|size| *size <= FRAME_MAX) else {
                return Err(Fault::Size { size: used.size });
            };
            row.sizes.push(size as u16);
            self.is_held[usize::from(place)] = true;
        }
        self.taken = self.taken.wrapping_add(count);
        Ok(row)
    }

    /// The buffers of frames, each of [`BUFFER`] bytes; frames begin at [`FRAME_AT`].
    #[inline]
    pub fn buffers(&mut self, row: &Row) -> core::slice::ChunksExactMut<'_, u8> {
        let at = self.buffer(row.first);
        let bytes = self.own.lend(at, row.sizes.len() * BUFFER);
        bytes.unwrap_or_default().chunks_exact_mut(BUFFER)
    }

    /// Sends frames of a row back, each with where it begins in its buffer now and its size, and drops those that have
    /// none, or that have no room for a header in front of them.
    #[inline]
    pub fn send(&mut self, row: &Row, frames: impl IntoIterator<Item = Option<(usize, usize)>>) {
        for (number, frame) in row.buffers().zip(frames) {
            let fits = |(start, size): &(usize, usize)| {
                *start >= HEADER && start.checked_add(*size).is_some_and(|end| end <= BUFFER)
            };
            match frame.filter(fits) {
                Some((start, size)) => self.send_one(number, start, size),
                None => self.is_held[usize::from(number)] = false,
            }
        }
    }

    #[inline(always)]
    fn send_one(&mut self, number: u16, start: usize, size: usize) {
        let at = self.buffer(number) + start - HEADER;
        if start != FRAME_AT
            && let Some(header) = self.own.lend(at, HEADER)
        {
            header.fill(0);
        }
        let place = self.send.place(self.sent);
        let address = self.own.address(at);
        self.send.describe(place, address, (HEADER + size) as u32, 0);
        self.in_place[usize::from(place)] = number;
        self.sent = self.sent.wrapping_add(1);
    }

    /// Tells the device what was sent, and gives it buffers that are free again.
    ///
    /// # Errors
    /// [`Fault`]; the connection is of no use any more.
    #[inline]
    pub fn turn(&mut self) -> Result<(), Fault> {
        let has_sent = self.told != self.sent;
        if has_sent {
            self.send.offer(self.sent);
            self.told = self.sent;
        }
        let gone = self.send.look(self.gone, self.sent.wrapping_sub(self.gone))?;
        while self.gone != gone {
            let place = self.send.place(self.gone);
            let used = self.send.used(self.gone);
            if !self.is_in_order && used.id != u32::from(place) {
                return Err(Fault::Order {
                    found: used.id,
                    expected: place,
                });
            }
            let number = self.in_place[usize::from(place)];
            self.is_held[usize::from(number)] = false;
            self.gone = self.gone.wrapping_add(1);
        }
        let before = self.back;
        while self.back != self.taken && !self.is_held[usize::from(self.receive.place(self.back))] {
            self.back = self.back.wrapping_add(1);
        }
        let has_buffers = before != self.back;
        if has_buffers {
            self.receive.offer(self.back.wrapping_add(self.len));
        }
        if !has_sent && !has_buffers {
            return Ok(());
        }
        // It says that it sleeps, and then looks once more; we tell, and then look whether it sleeps.
        fence(Ordering::SeqCst);
        if (has_sent && self.send.is_asleep()) || (has_buffers && self.receive.is_asleep()) {
            // One that counts too far to be written to was woken already.
            let _told = rustix::io::write(&self.kick, &1_u64.to_ne_bytes());
        }
        Ok(())
    }
}
