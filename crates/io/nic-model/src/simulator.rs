//! The model behind records: what a simulator of the RTL must put out for the same input.

use std::collections::BTreeMap;

use millrace_nic::record::{COMPLETIONS, Input, Output};
use millrace_nic::register::by_name;
use millrace_nic::{Capabilities, Config, Counter};

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

    /// Takes a record, and adds what the device puts out. A device that is not enabled takes CONFIG only.
    pub fn take(&mut self, input: &Input, out: &mut Vec<Output>) {
        if let Input::Config { offset, value } = input {
            return self.configure(*offset, *value);
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
                out.push(match outcome {
                    Outcome::Received { queue, completion } => Output::Completion {
                        queue,
                        bytes: completion.to_bytes(),
                    },
                    Outcome::Dropped { counter, queue } => Output::Drop {
                        counter: counter as u8,
                        queue,
                    },
                });
            }
            Input::Command { bytes, .. } => {
                let (completion, fence) = model.command(bytes);
                if let Some(fence) = fence {
                    let bytes = fence.to_bytes();
                    out.extend(
                        (0..self.capabilities.queues).map(|queue| Output::Completion { queue, bytes }),
                    );
                }
                out.push(Output::Command {
                    bytes: completion.to_bytes(),
                });
            }
            Input::Buffers { queue, buffers } => {
                buffers
                    .iter()
                    .for_each(|buffer| model.post(*queue, *buffer, COMPLETIONS));
            }
            Input::Take { queue, number } => model.take(*queue, usize::from(*number), COMPLETIONS),
            Input::Flip { way, row, bit } => model.flip(*way, *row, *bit),
            Input::End => out.extend(counts(model, self.capabilities.queues)),
            Input::Stall { .. } | Input::Config { .. } => {}
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
