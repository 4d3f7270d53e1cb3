//! The model behind records: what a simulator of the RTL must put out for the same input.

use std::collections::BTreeMap;

use millrace_nic::record::{COMPLETIONS, Input, Output};
use millrace_nic::register::by_name;
use millrace_nic::{Capabilities, CommandCompletion, Completion, Config, Counter};

use crate::device::{Model, Outcome};

/// A model that takes and gives records.
#[derive(Debug)]
pub struct Simulator {
    capabilities: Capabilities,
    registers: BTreeMap<u16, u32>,
    model: Option<Model>,
}

impl Simulator {
    /// Returns a device of these sizes that is not enabled.
    #[must_use]
    pub fn new(capabilities: Capabilities) -> Simulator {
        Simulator {
            capabilities,
            registers: BTreeMap::new(),
            model: None,
        }
    }

    /// Returns the model, once the device is enabled.
    #[must_use]
    pub fn model(&self) -> Option<&Model> {
        self.model.as_ref()
    }

    /// Takes a record, and adds what the device puts out. A device that is not enabled takes CONFIG and SYNC
    /// only.
    pub fn take(&mut self, input: &Input, out: &mut Vec<Output>) {
        match input {
            Input::Config { offset, value } => return self.configure(*offset, *value),
            Input::Sync { number } => return out.push(Output::Synced { number: *number }),
            _ => {}
        }
        let Some(model) = &mut self.model else { return };
        match input {
            Input::Frame {
                port, bad_fcs, bytes, ..
            } => {
                let outcome = if *bad_fcs {
                    model.damaged_frame()
                } else {
                    model.frame(*port, bytes, 0)
                };
                out.push(of_frame(&outcome));
            }
            Input::Command { bytes, .. } => {
                let (completion, fence) = model.command(bytes);
                out.extend(of_command(completion, fence, self.capabilities.queues));
            }
            Input::Buffers { queue, buffers } => {
                buffers
                    .iter()
                    .for_each(|buffer| model.post(*queue, *buffer, COMPLETIONS));
            }
            Input::Take { queue, number } => model.take(*queue, usize::from(*number), COMPLETIONS),
            Input::Flip { way, row, bit } => model.flip(*way, *row, *bit),
            Input::End => out.extend(counts(model, self.capabilities.queues)),
            Input::Stall { .. } | Input::Config { .. } | Input::Sync { .. } => {}
        }
    }

    fn configure(&mut self, offset: u16, value: u32) {
        let control = by_name("CONTROL").map_or(0, |register| register.offset as u16);
        if offset != control {
            self.registers.insert(offset, value);
            return;
        }
        let config =
            Config::from_registers(|offset| self.registers.get(&offset).copied().unwrap_or_default());
        let is_enabled = value & 1 == 1;
        match (is_enabled, &self.model) {
            (true, None) => self.model = Some(Model::new(self.capabilities, config, COMPLETIONS)),
            (false, _) => self.model = None,
            (true, Some(_)) => {}
        }
    }
}

/// Returns the record of a frame. Its time is 0.
pub(crate) fn of_frame(outcome: &Outcome) -> Output {
    match outcome {
        Outcome::Received { queue, completion } => Output::Completion {
            queue: *queue,
            bytes: Completion {
                time: 0,
                ..*completion
            }
            .to_bytes(),
        },
        Outcome::Dropped { counter, queue } => Output::Drop {
            counter: *counter as u8,
            queue: *queue,
        },
    }
}

/// Returns the records of a command: those of its fence in each queue, and its completion.
pub(crate) fn of_command(
    completion: CommandCompletion,
    fence: Option<Completion>,
    queues: u8,
) -> impl Iterator<Item = Output> {
    let fence = fence.map(|fence| fence.to_bytes());
    let fences = (0..queues).filter_map(move |queue| Some(Output::Completion { queue, bytes: fence? }));
    fences.chain([Output::Command {
        bytes: completion.to_bytes(),
    }])
}

fn counts(model: &Model, queues: u8) -> Vec<Output> {
    let count = |counter: Counter, queue: u8| Output::Count {
        counter: counter as u8,
        queue,
        value: model.count(counter, queue.into()),
    };
    let of_queues = |counter: Counter| if counter.is_of_queue() { queues } else { 1 };
    let all = Counter::ALL.iter().map(|(counter, ..)| *counter);
    all.flat_map(|counter| (0..of_queues(counter)).map(move |queue| count(counter, queue)))
        .collect()
}
