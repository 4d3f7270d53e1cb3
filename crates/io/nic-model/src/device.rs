//! The device: it takes frames and commands in one order, as the sequencer of the hardware does, and gives frames to queues.

use std::collections::{BTreeMap, VecDeque};

use millrace_nic::completion::flag;
use millrace_nic::config::DROPS_MAX;
use millrace_nic::key::Key;
use millrace_nic::{
    Action, BUCKETS, Capabilities, Command, CommandCompletion, Completion, Config, Counter, FENCE_RESERVE,
    FRAME_SIZE_MAX, FRAME_SIZE_MIN, PORTS_MAX, Status, command,
};

use crate::parser::{Parsed, parse};
use crate::table::{Buckets, Exact, Row, Rule};

/// Number of bits by which a hash is shifted right to get its bucket.
const BUCKET_SHIFT: u32 = u64::BITS - BUCKETS.trailing_zeros();

/// A frame after the tables.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Classified {
    /// The result of the parser.
    pub parsed: Parsed,
    /// The action of the entry that matches.
    pub action: Action,
    /// The bucket, below 1,024.
    pub bucket: u16,
    pub queue: u8,
    /// Number of rows with wrong parity that were read.
    pub parity: u64,
}

/// The result of a frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// A queue received the frame.
    Received {
        queue: u8,
        /// The completion, with phase 0.
        completion: Completion,
    },
    /// The frame was dropped and counted.
    Dropped {
        counter: Counter,
        /// The queue; 0 where the counter is not of a queue.
        queue: u8,
    },
}

/// A queue as the dispatcher sees it.
#[derive(Clone, Debug, Default)]
struct Queue {
    buffers: VecDeque<u16>,
    completions: usize,
    no_buffer: u64,
    received: u64,
}

/// Mask bank and form of a port.
#[derive(Clone, Copy, Debug, Default)]
struct PortForm {
    bank: u8,
    form: u8,
}

/// The model of a device.
#[derive(Clone, Debug)]
pub struct Model {
    capabilities: Capabilities,
    config: Config,
    exact: Exact,
    rules: BTreeMap<u32, Rule>,
    banks: Vec<Key>,
    ports: [PortForm; PORTS_MAX],
    buckets: Buckets,
    staged: [u64; 8],
    generation: u32,
    queues: Vec<Queue>,
    counters: [u64; 6],
    /// Packets and bytes of each drop counter.
    drops: Vec<[u64; 2]>,
}

impl Model {
    /// Returns an empty device whose queues have no buffers, and `completions` free completions each.
    #[must_use]
    pub fn new(capabilities: Capabilities, config: Config, completions: usize) -> Model {
        let queue = Queue {
            completions,
            ..Queue::default()
        };
        Model {
            exact: Exact::new(&capabilities),
            rules: BTreeMap::new(),
            banks: vec![Key::default(); capabilities.banks.into()],
            ports: [PortForm::default(); PORTS_MAX],
            buckets: Buckets::new(),
            staged: [0; 8],
            generation: 0,
            queues: vec![queue; capabilities.queues.into()],
            counters: [0; 6],
            drops: vec![[0; 2]; capabilities.drops.min(DROPS_MAX) as usize],
            capabilities,
            config,
        }
    }

    /// Returns the sizes of the device.
    #[must_use]
    pub fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    /// Returns the number of table changes so far.
    #[must_use]
    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// Returns the result of the tables for a frame of a port.
    #[must_use]
    pub fn classify(&self, port: u8, frame: &[u8]) -> Classified {
        let parsed = parse(frame, port, &self.config);
        let PortForm { bank, form } = self.ports[usize::from(port) % PORTS_MAX];
        let (mut exact, mut parity) = (None, 0);
        if form != 0 && parsed.complete {
            let mask = self.banks.get(usize::from(bank)).copied().unwrap_or_default();
            (exact, parity) = self
                .exact
                .find(&parsed.key.masked(&mask), form, &self.config.keys);
            exact = exact.filter(|_| !parsed.truncated);
        }
        let key = parsed.key.ternary();
        let rule = self.rules.values().find(|rule| rule.matches(&key));
        let action = rule.map(|rule| rule.action).or(exact).unwrap_or_default();
        let bucket = parsed.hash >> BUCKET_SHIFT;
        let queue = action
            .queue
            .unwrap_or_else(|| self.buckets.queue(bucket as usize));
        Classified {
            action,
            bucket: bucket as u16,
            queue: if queue < self.capabilities.queues {
                queue
            } else {
                0
            },
            parity,
            parsed,
        }
    }

    /// Takes a frame of a port.
    pub fn frame(&mut self, port: u8, frame: &[u8], time: u32) -> Outcome {
        self.frame_to(port, frame, time, |queue| queue)
    }

    /// Takes a frame of a port; `redirect` returns the queue that a faulty device takes for the right one.
    pub(crate) fn frame_to(
        &mut self,
        port: u8,
        frame: &[u8],
        time: u32,
        redirect: impl FnOnce(u8) -> u8,
    ) -> Outcome {
        if !(FRAME_SIZE_MIN..=FRAME_SIZE_MAX).contains(&frame.len()) {
            return self.dropped(Counter::BadLength);
        }
        self.counters[Counter::Frames as usize] += 1;
        let classified = self.classify(port, frame);
        self.counters[Counter::Parity as usize] += classified.parity;
        let Classified { action, queue, .. } = classified;
        let queue = redirect(queue);
        if action.drop {
            if let Some([packets, bytes]) = self.drops.get_mut(action.mark as usize) {
                *packets += 1;
                *bytes += frame.len() as u64;
            }
            return self.dropped(Counter::Dropped);
        }
        let to = &mut self.queues[usize::from(queue)];
        let buffer = if to.completions > FENCE_RESERVE {
            to.buffers.pop_front()
        } else {
            None
        };
        let Some(buffer) = buffer else {
            to.no_buffer += 1;
            return Outcome::Dropped {
                counter: Counter::NoBuffer,
                queue,
            };
        };
        to.completions -= 1;
        to.received += 1;
        Outcome::Received {
            queue,
            completion: Completion {
                buffer,
                length: frame.len() as u16,
                time,
                ..self.completion(&classified)
            },
        }
    }

    /// Returns the completion of a frame, without buffer, length and time.
    #[must_use]
    pub fn completion(&self, classified: &Classified) -> Completion {
        let Classified {
            parsed,
            action,
            bucket,
            ..
        } = classified;
        let flags = [
            (flag::HASH, true),
            (flag::MARK, action.mark != 0),
            (flag::COMPLETE, parsed.complete),
            (flag::IP_CHECKSUM, parsed.ip_checksum),
            (flag::TRUNCATED, parsed.truncated),
        ];
        let half = |offset: usize| (offset / 2) as u8;
        Completion {
            mark: action.mark,
            hash: (parsed.hash >> 32) as u32,
            bucket: *bucket,
            flags: flags
                .iter()
                .filter(|(_, is_set)| *is_set)
                .fold(0, |flags, (flag, _)| flags | flag),
            generation: self.generation,
            l3: half(parsed.l3),
            l4: half(parsed.l4),
            inner_l3: half(parsed.inner_l3),
            inner_l4: half(parsed.inner_l4),
            kind: parsed.kind,
            tags: parsed.tags,
            labels: parsed.labels,
            class: action.class,
            ..Completion::default()
        }
    }

    /// Takes a frame with a wrong FCS.
    pub fn damaged_frame(&mut self) -> Outcome {
        self.dropped(Counter::BadFcs)
    }

    fn dropped(&mut self, counter: Counter) -> Outcome {
        if let Some(count) = self.counters.get_mut(counter as usize) {
            *count += 1;
        }
        Outcome::Dropped { counter, queue: 0 }
    }

    /// Takes a command. Returns its completion, with phase 0, and the completion of a fence for each queue.
    pub fn command(&mut self, bytes: &[u8; command::SIZE]) -> (CommandCompletion, Option<Completion>) {
        let (tag, command) = Command::parse(bytes);
        let result = command.and_then(|command| self.apply(command));
        let (status, (value, fence)) = match result {
            Ok(effect) => (Status::Ok, effect),
            Err(status) => (status, (0, None)),
        };
        let completion = CommandCompletion {
            tag,
            status,
            phase: false,
            value,
        };
        (completion, fence)
    }

    /// Returns the value of the command, and the completion of its fence.
    fn apply(&mut self, command: Command) -> Result<(u64, Option<Completion>), Status> {
        let changes_tables = command.changes_tables();
        let mut effect = (0, None);
        let mut fence = None;
        match command {
            Command::Nop => {}
            Command::Stage { upper, words } => {
                let at = if upper { 4 } else { 0 };
                self.staged[at..at + 4].copy_from_slice(&words);
            }
            Command::WriteRow {
                way,
                row,
                form,
                action,
            } => {
                let key = Key(self.staged);
                *self.exact.row(way, row).ok_or(Status::Range)? = Row::new(form, &key, &action);
            }
            Command::ClearRow { way, row } => *self.exact.row(way, row).ok_or(Status::Range)? = Row::EMPTY,
            Command::WriteTernary { rule, action } => {
                self.check_rule(rule)?;
                let [a, b, c, d, e, f, g, h] = self.staged;
                let (value, mask) = ([a, b, c, d], [e, f, g, h]);
                self.rules.insert(rule, Rule { value, mask, action });
            }
            Command::ClearTernary { rule } => {
                self.check_rule(rule)?;
                self.rules.remove(&rule);
            }
            Command::SetMask { port, bank, form } => {
                if port >= self.capabilities.ports {
                    return Err(Status::Range);
                }
                *self.banks.get_mut(usize::from(bank)).ok_or(Status::Range)? = Key(self.staged);
                self.ports[usize::from(port)] = PortForm { bank, form };
            }
            Command::SetBuckets { first, queues } => {
                let first = usize::from(first);
                self.buckets.shadow()[first..first + queues.len()].copy_from_slice(&queues);
            }
            Command::Commit { fence: number } => {
                if let Some(number) = number {
                    self.take_fences()?;
                    fence = Some(number);
                }
                self.buckets.commit();
            }
            Command::Fence { number } => {
                self.take_fences()?;
                fence = Some(number);
            }
            Command::ReadCount { counter, queue } => effect.0 = self.count(counter, queue),
            Command::ReadDrops { .. } if self.drops.is_empty() => return Err(Status::Unknown),
            Command::ReadDrops { half, counter } => {
                let halves = self.drops.get(counter as usize).ok_or(Status::Range)?;
                effect.0 = *halves.get(usize::from(half)).ok_or(Status::Range)?;
            }
        }
        self.generation = self.generation.wrapping_add(changes_tables.into());
        effect.1 = fence.map(|number| Completion::fence(number, self.generation));
        Ok(effect)
    }

    fn check_rule(&self, rule: u32) -> Result<(), Status> {
        if rule < u32::from(self.capabilities.rules) {
            Ok(())
        } else {
            Err(Status::Range)
        }
    }

    /// Takes one completion of each queue.
    fn take_fences(&mut self) -> Result<(), Status> {
        if self.queues.iter().any(|queue| queue.completions == 0) {
            return Err(Status::Busy);
        }
        self.queues.iter_mut().for_each(|queue| queue.completions -= 1);
        Ok(())
    }

    /// Returns a counter; of a queue where there is one for each.
    #[must_use]
    pub fn count(&self, counter: Counter, queue: u16) -> u64 {
        let queue = self.queues.get(usize::from(queue));
        match counter {
            Counter::NoBuffer => queue.map_or(0, |queue| queue.no_buffer),
            Counter::Received => queue.map_or(0, |queue| queue.received),
            _ => self.counters.get(counter as usize).copied().unwrap_or_default(),
        }
    }

    /// Posts a free buffer to a queue that holds fewer than `max`.
    pub fn post(&mut self, queue: u8, buffer: u16, max: usize) {
        if let Some(queue) = self.queues.get_mut(usize::from(queue))
            && queue.buffers.len() < max
        {
            queue.buffers.push_back(buffer);
        }
    }

    /// Frees completions of a queue, up to `max` free ones.
    pub fn take(&mut self, queue: u8, number: usize, max: usize) {
        if let Some(queue) = self.queues.get_mut(usize::from(queue)) {
            queue.completions = queue.completions.saturating_add(number).min(max);
        }
    }

    /// Inverts one bit of a row, as radiation does.
    pub fn flip(&mut self, way: u8, row: u32, bit: u16) {
        self.exact.flip(way, row, bit);
    }
}
