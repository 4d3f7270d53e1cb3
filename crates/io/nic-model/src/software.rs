//! A NIC in software: the model behind the rings that a driver shares.
//!
//! Commands and frames take effect in the order in which the caller passes them: it calls [`SoftwareNic::poll`] between
//! bursts of frames, as the sequencer of the hardware puts commands between frames.

use millrace_nic::completion::flag;
use millrace_nic::device::Device;
use millrace_nic::memory::{Memory, MemoryError};
use millrace_nic::record::{Input, Output};
use millrace_nic::{Command, Config, Counter, Status};

use crate::device::{Model, Outcome};
use crate::fault::{Delayed, Fault, Faults};
use crate::simulator::{of_command, of_frame};
use crate::twin::{Twin, differences};

/// The most commands that one call of [`SoftwareNic::poll`] takes.
const COMMANDS_MAX: usize = 64;

/// A NIC in software, between a driver and a wire.
#[derive(Debug)]
pub struct SoftwareNic {
    device: Device,
    /// `None` until the driver enables the device.
    model: Option<Model>,
    /// The counters in the registers COUNT and NO_BUFFER.
    shown: Vec<u64>,
    /// The driver has set its buckets.
    has_buckets: bool,
    /// The driver has disabled the device, which still sends what it was given.
    is_ending: bool,
    /// The queue whose frames are sent next.
    next_queue: u8,
    faults: Faults,
    beside: Option<Beside>,
}

/// A twin of the model.
#[derive(Debug)]
struct Beside {
    twin: Box<dyn Twin>,
    /// The first difference, or the reason why the twin does not answer.
    failure: Option<String>,
}

impl Beside {
    /// Gives the twin what the model got, and compares what it puts out.
    fn run(&mut self, inputs: &[Input], expected: &[Output]) {
        if self.failure.is_some() || inputs.is_empty() {
            return;
        }
        self.failure = match self.twin.run(inputs) {
            Ok(found) => {
                let found = differences(expected, &found);
                (!found.is_empty()).then(|| found.join("\n"))
            }
            Err(reason) => Some(reason),
        };
    }
}

impl SoftwareNic {
    /// Returns a device that is not enabled, in memory that [`Memory::create`] made.
    ///
    /// # Errors
    /// [`MemoryError`]
    pub fn new(memory: Memory) -> Result<SoftwareNic, MemoryError> {
        Ok(SoftwareNic {
            device: Device::new(memory)?,
            model: None,
            shown: Vec::new(),
            has_buckets: false,
            is_ending: false,
            next_queue: 0,
            faults: Faults::default(),
            beside: None,
        })
    }

    /// Compares the model with a twin from now on. The device must have no fault, 32 queues, as the twin has, and rings of
    /// [`COMPLETIONS`](millrace_nic::record::COMPLETIONS) entries.
    #[must_use]
    pub fn with_twin(mut self, twin: Box<dyn Twin>) -> SoftwareNic {
        self.beside = Some(Beside { twin, failure: None });
        self
    }

    /// Returns the first difference between the model and its twin; `None` if there was none, or if there is no twin.
    #[must_use]
    pub fn difference(&self) -> Option<&str> {
        self.beside.as_ref()?.failure.as_deref()
    }

    /// Sets the fault of the device from now on, or ends it.
    pub fn set_fault(&mut self, fault: Option<Fault>) {
        self.faults.fault = fault;
    }

    /// Returns the model, while the device is enabled.
    #[must_use]
    pub fn model(&self) -> Option<&Model> {
        self.model.as_ref()
    }

    /// Returns true from the first COMMIT on, until the device is disabled. Frames before it would all go to queue 0, and those
    /// after it might overtake them.
    #[must_use]
    pub fn has_buckets(&self) -> bool {
        self.has_buckets
    }

    /// Returns the number of wrong entries and indices of the driver so far.
    #[must_use]
    pub fn violations(&self) -> u64 {
        self.device.violations()
    }

    /// Takes buffers, read completions and commands of the driver. Returns the number of commands.
    pub fn poll(&mut self) -> usize {
        let memory = self.device.memory();
        let layout = *memory.layout();
        let len = usize::from(layout.ring_len());
        let is_enabled = memory.read_register("CONTROL", 0) & 1 == 1;
        if !is_enabled {
            if self.model.take().is_some() {
                self.disable();
            }
            if self.is_ending && !self.device.has_transmit() {
                self.is_ending = false;
                self.device.reset();
                self.device.memory().write_register("STATUS", 0, 0);
            }
            self.faults.forget();
            return 0;
        }
        self.is_ending = false;
        self.release();
        let memory = self.device.memory();
        let mut inputs = Vec::new();
        let model = self.model.get_or_insert_with(|| {
            let config = Config::from_registers(|offset| memory.read_at(offset));
            let registers = config.registers().into_iter();
            inputs.extend(registers.map(|(offset, value)| Input::Config { offset, value }));
            inputs.push(Input::control(1));
            // Keys are secret: nobody reads them again.
            for (name, len) in [("HASH_KEY", 12), ("TABLE_KEY", 16)] {
                (0..len).for_each(|at| memory.write_register(name, at, 0));
            }
            Model::new(layout.capabilities, config, len)
        });
        memory.write_register("STATUS", 0, 1);
        for queue in 0..layout.capabilities.queues {
            let read = self.device.take_read(queue);
            model.take(queue, read, len);
            let mut buffers = Vec::new();
            self.device.take_buffers(queue, |buffer| {
                model.post(queue, buffer, len);
                if self.beside.is_some() {
                    buffers.push(buffer);
                }
            });
            if read > 0 {
                let number = u16::try_from(read).unwrap_or(u16::MAX);
                inputs.push(Input::Take { queue, number });
            }
            if !buffers.is_empty() {
                inputs.push(Input::Buffers { queue, buffers });
            }
        }
        if let Some(beside) = &mut self.beside {
            beside.run(&inputs, &[]);
        }
        let mut commands = 0;
        let max = self.faults.commands_max(COMMANDS_MAX);
        while commands < max
            && let Some(bytes) = self.device.next_command()
        {
            let (completion, fence) = match self.faults.pretended(&bytes) {
                Some(completion) => (completion, None),
                None => model.command(&bytes),
            };
            let is_commit = matches!(Command::parse(&bytes), (_, Ok(Command::Commit { .. })));
            self.has_buckets |= is_commit && completion.status == Status::Ok;
            let memory = self.device.memory();
            memory.write_register("GENERATION", 0, model.generation());
            if let Some(beside) = &mut self.beside {
                let expected: Vec<Output> =
                    of_command(completion, fence, layout.capabilities.queues).collect();
                beside.run(&[Input::Command { stall: 0, bytes }], &expected);
            }
            if let Some(fence) = fence.and_then(|fence| self.faults.fence(fence)) {
                (0..layout.capabilities.queues).for_each(|queue| self.device.complete(queue, &fence, &[]));
            }
            self.device.complete_command(completion);
            if self.faults.answers_twice(&bytes) {
                self.device.complete_command(completion);
            }
            commands += 1;
        }
        self.show_counters();
        commands
    }

    /// Ends what the driver has disabled.
    fn disable(&mut self) {
        if let Some(beside) = &mut self.beside {
            beside.run(&[Input::control(0)], &[]);
        }
        (self.has_buckets, self.is_ending) = (false, true);
        self.show_counters();
        self.device.memory().write_register("GENERATION", 0, 0);
    }

    /// Writes the counters that have changed to the registers COUNT and NO_BUFFER.
    fn show_counters(&mut self) {
        let memory = self.device.memory();
        let of_device = Counter::ALL.iter().map(|(counter, ..)| *counter);
        let of_device = of_device.filter(|counter| !counter.is_of_queue());
        let of_device = of_device.map(|counter| ("COUNT", counter as u16, counter));
        let of_queues = 0..u16::from(memory.layout().capabilities.queues);
        let of_queues = of_queues.map(|queue| ("NO_BUFFER", queue, Counter::NoBuffer));
        for (number, (register, at, counter)) in of_device.chain(of_queues).enumerate() {
            if number == self.shown.len() {
                self.shown.push(0);
            }
            let shown = &mut self.shown[number];
            let value = self.model.as_ref().map_or(0, |model| model.count(counter, at));
            if *shown != value {
                *shown = value;
                let at = 2 * usize::from(at);
                memory.write_register(register, at, value as u32);
                memory.write_register(register, at + 1, (value >> 32) as u32);
            }
        }
    }

    /// Executes what faults have delayed until now.
    fn release(&mut self) {
        let queues = self.device.memory().layout().capabilities.queues;
        while let (Some(model), Some(delayed)) = (&mut self.model, self.faults.due()) {
            match delayed {
                Delayed::Command(bytes) => {
                    model.command(&bytes);
                }
                Delayed::Fence(fence) => {
                    (0..queues).for_each(|queue| self.device.complete(queue, &fence, &[]));
                }
            }
        }
    }

    /// Takes a frame from the wire at a port; `time` is that of the completion. Returns the queue that received it.
    pub fn receive(&mut self, port: u8, frame: &[u8], time: u32) -> Option<u8> {
        self.release();
        let model = self.model.as_mut()?;
        // No buffer holds the rest of a longer frame: it is counted as one of a wrong length, here as one of a byte.
        let is_too_long = frame.len() > self.device.memory().layout().buffer_size as usize;
        let frame = if is_too_long { &[0] } else { frame };
        let (faults, queues) = (&self.faults, model.capabilities().queues);
        let other_mark = faults.mark_of(|| model.classify(port, frame).parsed.key);
        let outcome = model.frame_to(port, frame, time, |queue| faults.redirect(queue, queues));
        if let Some(beside) = &mut self.beside {
            let input = Input::Frame {
                port,
                bad_fcs: false,
                stall: 0,
                bytes: frame.to_vec(),
            };
            beside.run(&[input], &[of_frame(&outcome)]);
        }
        match outcome {
            Outcome::Received {
                queue,
                mut completion,
            } => {
                if let Some(mark) = other_mark {
                    (completion.mark, completion.flags) = (mark, completion.flags | flag::MARK);
                }
                self.faults.distort(&mut completion);
                self.device.complete(queue, &completion, frame);
                Some(queue)
            }
            Outcome::Dropped { .. } => None,
        }
    }

    /// Calls `send` with up to `max` frames that the driver has sent until it disables the device, from each queue in turn.
    /// Returns their number.
    pub fn transmit(&mut self, max: usize, buffer: &mut Vec<u8>, mut send: impl FnMut(&[u8])) -> usize {
        if self.model.is_none() && !self.is_ending {
            return 0;
        }
        let queues = self.device.memory().layout().capabilities.queues;
        let (mut frames, mut empty) = (0, 0);
        while frames < max && empty < queues {
            if self.device.next_transmit(self.next_queue, buffer) {
                send(buffer);
                (frames, empty) = (frames + 1, 0);
            } else {
                empty += 1;
                self.next_queue = (self.next_queue + 1) % queues;
            }
        }
        // The next call begins with another queue, so that none waits for ever.
        self.next_queue = (self.next_queue + 1) % queues;
        frames
    }
}
