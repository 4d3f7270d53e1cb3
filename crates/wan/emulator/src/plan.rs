//! From a configuration to the two halves: which memory is needed, and whether what is given suffices.

use std::sync::Arc;

use millrace_types::Time;
use thiserror::Error;

use crate::config::{ConfigError, DirectionConfig, Seed, Toward};
use crate::controller::{Controller, Mailbox};
use crate::model::{Direction, DirectionModel};
use crate::receiver::Receiver;
use crate::ring::records::{MAX_FRAME, MAX_UNITS, Memory, UNIT, ring};
use crate::sender::Sender;
use crate::sources::Sources;
use crate::stats::Counters;
use crate::text::ByteSize;

/// A valid configuration with the memory that it needs.
#[derive(Debug)]
pub struct Plan {
    model: DirectionModel,
    seed: Seed,
    toward: Toward,
    memory_size: usize,
}

/// The error for a direction that cannot be had.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PlanError {
    /// A setting is not valid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Nobody knows how many bytes will be on their way.
    #[error(
        "memory: a path with delay and without rate may hold any number of bytes; to fix it: set `memory`, such as `256MiB` \
         (bytes per second × longest delay × 1.25), or `rate`"
    )]
    NeedsMemory,
    /// There is less memory than frames may need.
    #[error(
        "memory: {given} bytes are given, and rate × (longest delay + queue) needs {needed}; to fix it: give {} MiB, or lower the \
         rate, the delay, its jitter or the queue",
        needed.div_ceil(1 << 20)
    )]
    MemoryShort {
        /// Bytes.
        needed: usize,
        /// Bytes.
        given: usize,
    },
    /// The memory has more units than a link can name.
    #[error(
        "memory: {needed} bytes are needed, and 64 GiB are the most for a direction; expected a lower rate, delay or queue"
    )]
    TooMuch {
        /// Bytes.
        needed: u64,
    },
    /// The number of classes cannot change under traffic.
    #[error("class: there are {expected}, and the change has {given}; to fix it: create the emulator again")]
    ClassesChanged {
        /// The number of classes since the start.
        expected: usize,
        /// The number of classes of the change.
        given: usize,
    },
}

/// The memory of a path that holds frames for no time: they wait only for the receiver.
const WITHOUT_DELAY: u64 = 4 << 20;

/// Returns the bytes that a model needs; `None` if nobody knows. More than a direction may have is as much as it may.
pub(crate) fn memory_needed(model: &DirectionModel) -> Option<usize> {
    let records = model.record_bytes()?;
    // The ring's end may be padded, and a frame is stored before the receiver takes one.
    let slack = 4 * MAX_FRAME as u64 + WITHOUT_DELAY / 4;
    Some(usize::try_from(records.saturating_add(slack)).unwrap_or(usize::MAX))
}

impl Plan {
    /// Returns the plan of a direction.
    ///
    /// # Errors
    /// [`PlanError`] if a setting is not valid, or if `memory` is missing or less than what is needed.
    pub fn new(
        config: &DirectionConfig,
        seed: Seed,
        toward: Toward,
        sources: &dyn Sources,
    ) -> Result<Plan, PlanError> {
        let model = DirectionModel::compile(config, sources)?;
        let memory_size = match (config.memory, memory_needed(&model)) {
            (None, None) => return Err(PlanError::NeedsMemory),
            (None, Some(needed)) => needed,
            (Some(ByteSize(given)), needed) => {
                let given = usize::try_from(given).unwrap_or(usize::MAX);
                let needed = needed.unwrap_or(WITHOUT_DELAY as usize);
                if given < needed {
                    return Err(PlanError::MemoryShort { needed, given });
                }
                given
            }
        };
        if memory_size / UNIT > MAX_UNITS {
            let needed = memory_size as u64;
            return Err(PlanError::TooMuch { needed });
        }
        Ok(Plan {
            model,
            seed,
            toward,
            memory_size: memory_size.next_multiple_of(UNIT),
        })
    }

    /// Returns the bytes of memory that [`Self::start`] needs.
    pub fn memory_size(&self) -> usize {
        self.memory_size
    }

    /// Returns the two halves and the control side. `now` is the time at which schedules and traces begin.
    ///
    /// # Errors
    /// [`PlanError::MemoryShort`] if the memory is smaller than [`Self::memory_size`].
    pub fn start<M: Memory>(
        self,
        memory: M,
        now: Time,
    ) -> Result<(Sender<M>, Receiver<M>, Controller), PlanError> {
        let given = memory.words().len() * 8;
        if given < self.memory_size {
            return Err(PlanError::MemoryShort {
                needed: self.memory_size,
                given,
            });
        }
        let keeps_order = self.model.keeps_order();
        let direction = Direction::with_model(self.model, self.seed, self.toward, now);
        let paths = direction.len();
        let (mut writer, reader) = ring(memory);
        if !keeps_order {
            writer.reorder();
        }
        let memory_size = writer.size();
        let counters = Arc::new(Counters::new(memory_size));
        let mailbox = Arc::new(Mailbox::new());
        let controller = Controller {
            counters: Arc::clone(&counters),
            mailbox: Arc::clone(&mailbox),
            paths,
            memory_size,
        };
        let receiver = Receiver::new(reader, now, Arc::clone(&counters));
        Ok((
            Sender::new(direction, writer, counters, mailbox),
            receiver,
            controller,
        ))
    }
}
