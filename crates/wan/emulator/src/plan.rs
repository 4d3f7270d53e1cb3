//! Compiles a configuration into the two halves, and checks that the memory suffices.

use std::sync::Arc;

use millrace_types::Time;

use crate::config::{DirectionConfig, DirectionId};
use crate::controller::{Controller, Mailbox};
use crate::icmp_errors::{IcmpErrors, icmp_errors};
use crate::memory::{PlanError, WITHOUT_DELAY, memory_needed};
use crate::model::{Direction, DirectionModel};
use crate::random::Seed;
use crate::receiver::Receiver;
use crate::ring::records::{MAX_UNITS, Memory, UNIT, ring};
use crate::sender::Sender;
use crate::sources::Sources;
use crate::stats::Counters;
use crate::text::ByteSize;

/// A valid configuration with the memory that it needs.
#[derive(Debug)]
pub struct Plan {
    model: DirectionModel,
    seed: Seed,
    toward: DirectionId,
    memory_size: usize,
}

/// The parts of a direction, one thread for each. Any thread may have a clone of the controller.
pub struct Halves<M> {
    /// The half for frames that enter.
    pub sender: Sender<M>,
    /// The half for frames that leave.
    pub receiver: Receiver<M>,
    /// Answers to packets over the MTU, for the end where frames enter.
    pub icmp_errors: IcmpErrors,
    /// The control side.
    pub controller: Controller,
}

impl Plan {
    /// Returns the plan of a direction.
    ///
    /// # Errors
    /// [`PlanError`] if a setting is not valid, or if `memory` is missing or too small.
    pub fn new(
        config: &DirectionConfig,
        seed: Seed,
        toward: DirectionId,
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
    pub fn start<M: Memory>(self, memory: M, now: Time) -> Result<Halves<M>, PlanError> {
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
        let (writing, icmp_errors) = icmp_errors();
        Ok(Halves {
            sender: Sender::new(direction, writer, counters, mailbox, writing),
            receiver,
            icmp_errors,
            controller,
        })
    }
}
