//! The device's side of the rings. Every number that the driver writes is read once and checked; a wrong one is ignored and
//! counted, since a device has nobody to tell.

use core::sync::atomic::Ordering;

use millrace_memif::region::RingMemory;

use crate::command;
use crate::command_completion::CommandCompletion;
use crate::completion::{Completion, flag};
use crate::driver::phase;
use crate::memory::{COMMANDS, Memory, MemoryError, QueueRings};

/// The device's side of the memory.
#[derive(Debug)]
pub struct Device {
    memory: Memory,
    commands: RingMemory,
    command_completions: RingMemory,
    /// Number of commands taken, which is that of completions written.
    taken: u16,
    queues: Vec<Queue>,
    /// Number of entries of the driver that were wrong.
    violations: u64,
}

#[derive(Debug)]
struct Queue {
    rings: QueueRings,
    /// Free buffers taken.
    taken: u16,
    /// Completions written, and the index up to which the driver has read them.
    written: u16,
    read: u16,
    /// Frames sent.
    sent: u16,
}

impl Device {
    /// Returns the device's side of memory that [`Memory::create`] made.
    ///
    /// # Errors
    /// [`MemoryError`]
    pub fn new(memory: Memory) -> Result<Device, MemoryError> {
        let [commands, command_completions] = memory.command_rings()?;
        let queues = 0..memory.layout().capabilities.queues;
        let queues = queues.map(|queue| {
            Ok(Queue {
                rings: memory.queue_rings(queue)?,
                taken: 0,
                written: 0,
                read: 0,
                sent: 0,
            })
        });
        Ok(Device {
            queues: queues.collect::<Result<_, _>>()?,
            memory,
            commands,
            command_completions,
            taken: 0,
            violations: 0,
        })
    }

    /// Returns the memory.
    #[must_use]
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Returns the number of wrong entries and indices of the driver so far.
    #[must_use]
    pub fn violations(&self) -> u64 {
        self.violations
    }

    /// Begins again at index 0 of all rings, which the driver clears before it enables the device again.
    pub fn reset(&mut self) {
        self.taken = 0;
        for queue in &mut self.queues {
            (queue.taken, queue.written, queue.read, queue.sent) = (0, 0, 0, 0);
        }
    }

    /// Returns the next command, if there is one, and room for its completion; [`Self::complete_command`] follows it.
    pub fn next_command(&mut self) -> Option<[u8; command::SIZE]> {
        let waiting = self
            .commands
            .head()
            .load(Ordering::Acquire)
            .wrapping_sub(self.taken);
        if waiting == 0 {
            return None;
        }
        let read = self.command_completions.tail().load(Ordering::Acquire);
        let unread = self.taken.wrapping_sub(read);
        let completions = self.command_completions.descriptors();
        if waiting > COMMANDS || unread > completions {
            self.violations += 1;
            return None;
        }
        if unread == completions {
            return None;
        }
        let mut bytes = [0; command::SIZE];
        for (at, chunk) in (0..).zip(bytes.as_chunks_mut::<16>().0) {
            let descriptor = self
                .commands
                .descriptor(self.taken.wrapping_mul(4).wrapping_add(at));
            for (to, word) in chunk.as_chunks_mut::<8>().0.iter_mut().zip(descriptor) {
                *to = word.load(Ordering::Relaxed).to_le_bytes();
            }
        }
        Some(bytes)
    }

    /// Writes the completion of the command that was taken last.
    pub fn complete_command(&mut self, completion: CommandCompletion) {
        let phase = phase(self.taken, self.command_completions.descriptors());
        let bytes = CommandCompletion { phase, ..completion }.to_bytes();
        let [first, second] = self.command_completions.descriptor(self.taken);
        let word = |at: usize| u64::from_le_bytes(core::array::from_fn(|byte| bytes[at + byte]));
        second.store(word(8), Ordering::Relaxed);
        first.store(word(0), Ordering::Release);
        self.taken = self.taken.wrapping_add(1);
        self.commands.tail().store(self.taken, Ordering::Release);
    }

    /// Calls `post` with each free buffer that the driver has posted to a queue.
    pub fn take_buffers(&mut self, queue: u8, mut post: impl FnMut(u16)) {
        let len = self.memory.layout().ring_len();
        let Some(state) = self.queues.get_mut(usize::from(queue)) else {
            return;
        };
        let waiting = state
            .rings
            .buffers
            .head()
            .load(Ordering::Acquire)
            .wrapping_sub(state.taken);
        if waiting > len {
            self.violations += 1;
            return;
        }
        for _ in 0..waiting {
            let buffer = state.rings.buffers.descriptor(state.taken)[0].load(Ordering::Relaxed) as u16;
            state.taken = state.taken.wrapping_add(1);
            if buffer < len {
                post(buffer);
            } else {
                self.violations += 1;
            }
        }
        state.rings.buffers.tail().store(state.taken, Ordering::Release);
    }

    /// Returns the number of completions that the driver has read since the last call.
    pub fn take_read(&mut self, queue: u8) -> usize {
        let Some(state) = self.queues.get_mut(usize::from(queue)) else {
            return 0;
        };
        let read = state.rings.completions.tail().load(Ordering::Acquire);
        let (new, outstanding) = (
            read.wrapping_sub(state.read),
            state.written.wrapping_sub(state.read),
        );
        if new > outstanding {
            self.violations += 1;
            return 0;
        }
        state.read = read;
        new.into()
    }

    /// Writes a completion, and the bytes of its frame. The queue has a free completion.
    pub fn complete(&mut self, queue: u8, completion: &Completion, frame: &[u8]) {
        let len = self.memory.layout().ring_len();
        let Some(state) = self.queues.get_mut(usize::from(queue)) else {
            return;
        };
        if let Some(buffer) = self.memory.rx_buffer(queue, completion.buffer, frame.len())
            && !completion.has(flag::FENCE)
        {
            buffer.write(frame);
        }
        let phase = if phase(state.written, len) { flag::PHASE } else { 0 };
        let bytes = Completion {
            flags: completion.flags & !flag::PHASE | phase,
            ..*completion
        }
        .to_bytes();
        let word = |at: usize| u64::from_le_bytes(core::array::from_fn(|byte| bytes[at + byte]));
        let at = state.written.wrapping_mul(2);
        let ([first, second], [third, fourth]) = (
            state.rings.completions.descriptor(at),
            state.rings.completions.descriptor(at.wrapping_add(1)),
        );
        first.store(word(0), Ordering::Relaxed);
        third.store(word(16), Ordering::Relaxed);
        fourth.store(word(24), Ordering::Relaxed);
        second.store(word(8), Ordering::Release);
        state.written = state.written.wrapping_add(1);
    }

    /// Returns true if the driver has sent frames that are not taken.
    #[must_use]
    pub fn has_transmit(&self) -> bool {
        self.queues.iter().any(|queue| {
            let ring = &queue.rings.transmit;
            let waiting = ring.head().load(Ordering::Acquire).wrapping_sub(queue.sent);
            (1..=ring.descriptors()).contains(&waiting)
        })
    }

    /// Copies the next frame that the driver sends by a queue to `frame`, and returns true, if there is one.
    pub fn next_transmit(&mut self, queue: u8, frame: &mut Vec<u8>) -> bool {
        frame.clear();
        let Some(state) = self.queues.get_mut(usize::from(queue)) else {
            return false;
        };
        let ring = &state.rings.transmit;
        let waiting = ring.head().load(Ordering::Acquire).wrapping_sub(state.sent);
        if waiting == 0 {
            return false;
        }
        if waiting > ring.descriptors() {
            self.violations += 1;
            return false;
        }
        let size = ring.descriptor(state.sent)[0].load(Ordering::Relaxed) as usize;
        let slot = state.sent & (ring.descriptors() - 1);
        let buffer = self.memory.tx_buffer(queue, slot, size);
        let is_sent = buffer.is_some();
        match buffer {
            Some(buffer) => {
                frame.resize(size, 0);
                buffer.read(frame);
            }
            None => self.violations += 1,
        }
        state.sent = state.sent.wrapping_add(1);
        ring.tail().store(state.sent, Ordering::Release);
        is_sent
    }
}
