//! The driver's side of the rings. Every number that the device writes is read once and checked.

use core::sync::atomic::Ordering;

use millrace_memif::region::{Buffer, RingMemory};

use crate::command::{self, Command};
use crate::command_completion::CommandCompletion;
use crate::completion::{Completion, flag};
use crate::memory::{COMMANDS, Memory, MemoryError};
use crate::{BUCKETS, Config, FENCE_RESERVE, command_completion, completion};

/// A rule of the interface that the device has violated. Its driver then uses it no more.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Violation {
    /// A completion names a buffer that the device does not have.
    #[error("a completion names buffer {0}, which the device does not have")]
    Buffer(u16),
    /// A completion has a length that no buffer holds.
    #[error("a completion has length {0}, which no buffer holds")]
    Length(u16),
    /// A completion has a bucket above 1,023.
    #[error("a completion has bucket {0}, expected at most 1,023")]
    Bucket(u16),
    /// The consumer's index of a ring is past the producer's.
    #[error("an index of a ring is {0}, past all that was produced")]
    Index(u16),
    /// The completion of a command has an unknown status, or the tag of another.
    #[error("a command has a completion that is not its own")]
    Command,
}

/// A driver of a device whose memory is mapped: its queues go to workers.
#[derive(Debug)]
pub struct Driver {
    pub memory: Memory,
    /// The command ring.
    pub commands: Commands,
    /// The receive queues.
    pub receivers: Vec<Receiver>,
    /// The transmit queues.
    pub senders: Vec<Sender>,
}

impl Driver {
    /// Configures and enables the device, which is disabled, and gives its queues all buffers.
    ///
    /// # Errors
    /// [`MemoryError`]
    pub fn start(memory: Memory, config: &Config) -> Result<Driver, MemoryError> {
        for (offset, value) in config.registers() {
            memory.write_at(offset, value);
        }
        let [commands, completions] = memory.command_rings()?;
        clear(&commands);
        clear(&completions);
        let (mut receivers, mut senders) = (Vec::new(), Vec::new());
        for queue in 0..memory.layout().capabilities.queues {
            let rings = memory.queue_rings(queue)?;
            for ring in [&rings.buffers, &rings.completions, &rings.transmit] {
                clear(ring);
            }
            let mut receiver = Receiver {
                memory: memory.clone(),
                queue,
                buffers: rings.buffers,
                posted: 0,
                completions: rings.completions,
                taken: 0,
                len: memory.layout().ring_len(),
                owned: vec![false; memory.layout().ring_len().into()],
            };
            // Frames take a completion each, and four are for fences.
            (0..memory.layout().ring_len() - FENCE_RESERVE as u16).for_each(|buffer| receiver.post(buffer));
            receiver.publish();
            receivers.push(receiver);
            senders.push(Sender {
                memory: memory.clone(),
                queue,
                ring: rings.transmit,
                head: 0,
            });
        }
        memory.write_register("CONTROL", 0, 1);
        Ok(Driver {
            commands: Commands {
                ring: commands,
                completions,
                submitted: 0,
                taken: 0,
            },
            memory,
            receivers,
            senders,
        })
    }
}

/// Writes zeros to the indices and descriptors of a ring.
fn clear(ring: &RingMemory) {
    for index in 0..ring.descriptors() {
        for word in ring.descriptor(index) {
            word.store(0, Ordering::Relaxed);
        }
    }
    ring.head().store(0, Ordering::Release);
    ring.tail().store(0, Ordering::Release);
}

/// The driver's side of the command ring.
#[derive(Debug)]
pub struct Commands {
    ring: RingMemory,
    completions: RingMemory,
    submitted: u16,
    taken: u16,
}

impl Commands {
    /// Returns the number of commands that can be submitted now.
    #[must_use]
    pub fn room(&self) -> u16 {
        COMMANDS - self.submitted.wrapping_sub(self.taken).min(COMMANDS)
    }

    /// Submits a command. Returns false if the ring is full.
    pub fn submit(&mut self, command: &Command) -> bool {
        if self.room() == 0 {
            return false;
        }
        let bytes = command.to_bytes(self.submitted.into());
        for (at, chunk) in (0..).zip(bytes.as_chunks::<16>().0) {
            let words = chunk.as_chunks::<8>().0;
            let descriptor = self
                .ring
                .descriptor(self.submitted.wrapping_mul(4).wrapping_add(at));
            for (to, word) in descriptor.iter().zip(words) {
                to.store(u64::from_le_bytes(*word), Ordering::Relaxed);
            }
        }
        self.submitted = self.submitted.wrapping_add(1);
        self.ring.head().store(self.submitted, Ordering::Release);
        true
    }

    /// Returns the completion of the oldest command, if there is one.
    ///
    /// # Errors
    /// [`Violation::Command`]
    pub fn poll(&mut self) -> Result<Option<CommandCompletion>, Violation> {
        if self.submitted == self.taken {
            return Ok(None);
        }
        let [first, second] = self.completions.descriptor(self.taken);
        let first = first.load(Ordering::Acquire);
        let phase = phase(self.taken, self.completions.descriptors());
        if (first >> 48 & 1 == 1) != phase {
            return Ok(None);
        }
        let mut bytes = [0; command_completion::SIZE];
        bytes[..8].copy_from_slice(&first.to_le_bytes());
        bytes[8..].copy_from_slice(&second.load(Ordering::Relaxed).to_le_bytes());
        let completion = CommandCompletion::from_bytes(&bytes)
            .filter(|completion| completion.tag == u32::from(self.taken));
        self.taken = self.taken.wrapping_add(1);
        self.completions.tail().store(self.taken, Ordering::Release);
        completion.ok_or(Violation::Command).map(Some)
    }
}

/// Returns the phase bit of entry `index` of a ring with `len` entries, a power of two: 1 in the first pass.
pub(crate) fn phase(index: u16, len: u16) -> bool {
    index & len == 0
}

/// An entry of a receive queue.
#[derive(Debug)]
pub enum Entry<'a> {
    Frame {
        /// The completion, whose buffer, length and bucket are checked.
        completion: Completion,
        /// The bytes of the frame, which the device may still change.
        bytes: Buffer<'a>,
    },
    /// A fence, with its number.
    Fence(u32),
}

/// The driver's side of a receive queue.
#[derive(Debug)]
pub struct Receiver {
    memory: Memory,
    queue: u8,
    buffers: RingMemory,
    posted: u16,
    completions: RingMemory,
    taken: u16,
    /// Number of completions of the ring.
    len: u16,
    /// True for each buffer that the device has.
    owned: Vec<bool>,
}

impl Receiver {
    fn post(&mut self, buffer: u16) {
        let [first, _] = self.buffers.descriptor(self.posted);
        first.store(buffer.into(), Ordering::Relaxed);
        self.posted = self.posted.wrapping_add(1);
        if let Some(owned) = self.owned.get_mut(usize::from(buffer)) {
            *owned = true;
        }
    }

    fn publish(&self) {
        self.completions.tail().store(self.taken, Ordering::Release);
        self.buffers.head().store(self.posted, Ordering::Release);
    }

    /// Returns the number of entries that are there, at most `max`.
    #[inline]
    #[must_use]
    pub fn ready(&self, max: usize) -> usize {
        (0..self.len.min(max as u16))
            .take_while(|at| {
                let index = self.taken.wrapping_add(*at);
                let flags = self.completions.descriptor(index.wrapping_mul(2))[1].load(Ordering::Acquire);
                (flags >> 48 & u64::from(flag::PHASE) == 1) == phase(index, self.len)
            })
            .count()
    }

    /// Takes entries while `take` returns true, which copies the frame. Returns the number of entries.
    ///
    /// # Errors
    /// [`Violation`]; the queue must not be used any more then.
    #[inline]
    pub fn receive(&mut self, mut take: impl FnMut(Entry<'_>) -> bool) -> Result<usize, Violation> {
        let mut entries = 0;
        let result = loop {
            match self.next(&mut take) {
                Ok(true) => entries += 1,
                Ok(false) => break Ok(entries),
                Err(violation) => break Err(violation),
            }
        };
        if entries != 0 {
            self.publish();
        }
        result
    }

    #[inline]
    fn next(&mut self, take: &mut impl FnMut(Entry<'_>) -> bool) -> Result<bool, Violation> {
        let at = self.taken.wrapping_mul(2);
        let ([first, flags], [third, fourth]) = (
            self.completions.descriptor(at),
            self.completions.descriptor(at.wrapping_add(1)),
        );
        // The device writes the word with the phase last.
        let second = flags.load(Ordering::Acquire);
        if (second >> 48 & u64::from(flag::PHASE) == 1) != phase(self.taken, self.len) {
            return Ok(false);
        }
        let words = [
            first.load(Ordering::Relaxed),
            second,
            third.load(Ordering::Relaxed),
            fourth.load(Ordering::Relaxed),
        ];
        let mut bytes = [0; completion::SIZE];
        for (to, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(words) {
            *to = word.to_le_bytes();
        }
        let completion = Completion::from_bytes(&bytes);
        if completion.has(flag::FENCE) {
            let taken = take(Entry::Fence(completion.mark));
            self.taken = self.taken.wrapping_add(u16::from(taken));
            return Ok(taken);
        }
        let Completion {
            buffer,
            length,
            bucket,
            ..
        } = completion;
        if self.owned.get(usize::from(buffer)) != Some(&true) {
            return Err(Violation::Buffer(buffer));
        }
        if usize::from(bucket) >= BUCKETS {
            return Err(Violation::Bucket(bucket));
        }
        let bytes = self
            .memory
            .rx_buffer(self.queue, buffer, length.into())
            .ok_or(Violation::Length(length))?;
        if !take(Entry::Frame { completion, bytes }) {
            return Ok(false);
        }
        self.taken = self.taken.wrapping_add(1);
        self.post(buffer);
        Ok(true)
    }
}

/// The driver's side of a transmit queue. Buffer n belongs to entry n of the ring.
#[derive(Debug)]
pub struct Sender {
    memory: Memory,
    queue: u8,
    ring: RingMemory,
    head: u16,
}

impl Sender {
    /// Returns the number of frames that can be sent now.
    ///
    /// # Errors
    /// [`Violation::Index`]
    #[inline]
    pub fn room(&self) -> Result<u16, Violation> {
        let tail = self.ring.tail().load(Ordering::Acquire);
        let used = self.head.wrapping_sub(tail);
        let len = self.ring.descriptors();
        if used > len {
            Err(Violation::Index(tail))
        } else {
            Ok(len - used)
        }
    }

    /// Returns the longest frame in bytes.
    #[must_use]
    pub fn frame_size(&self) -> usize {
        self.memory.layout().buffer_size as usize
    }

    /// Sends a frame, for which there is room ([`Self::room`]). Returns false if it is too long.
    #[inline]
    pub fn send<'a>(&mut self, size: usize, slices: impl Iterator<Item = &'a [u8]>) -> bool {
        let slot = self.head & (self.ring.descriptors() - 1);
        let Some(buffer) = self.memory.tx_buffer(self.queue, slot, size) else {
            return false;
        };
        buffer.write_slices(slices);
        self.ring.descriptor(self.head)[0].store(size as u64, Ordering::Relaxed);
        self.head = self.head.wrapping_add(1);
        true
    }

    /// Gives the device the frames that were sent.
    #[inline]
    pub fn publish(&self) {
        self.ring.head().store(self.head, Ordering::Release);
    }
}

const _: () = assert!(command::SIZE == 64, "four descriptors");
