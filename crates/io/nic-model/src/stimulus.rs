//! Seeded records: the input with which a simulator of the RTL and the model are compared.

use millrace_nic::config::Tpid;
use millrace_nic::hash::rows;
use millrace_nic::key::Key;
use millrace_nic::record::{COMPLETIONS, Input};
use millrace_nic::register::Tunnel;
use millrace_nic::{Action, BUCKETS, Capabilities, Command, Config, Counter, HashKeys, command};

use crate::frames::{self, Random};
use crate::parser::parse;

/// Number of frames after which all queues get buffers and completions back.
const ROUND: usize = 64;
/// Bits of the stall of a frame: idle cycles between its beats, and a last beat without bytes.
const PAUSES: u16 = 1 << 15;
const EMPTY_END: u16 = 1 << 14;
/// Number of frames between two resets, on average.
const RESETS: usize = 4000;
/// Number of different frames that entries are made for.
const KNOWN: usize = 24;

/// Returns the records that configure a device, give its queues buffers, and enable it.
#[must_use]
pub fn prologue(capabilities: &Capabilities, config: &Config) -> Vec<Input> {
    let mut records: Vec<Input> = config
        .registers()
        .into_iter()
        .map(|(offset, value)| Input::Config { offset, value })
        .collect();
    records.push(Input::control(1));
    records.extend((0..capabilities.queues).map(|queue| Input::Buffers {
        queue,
        buffers: (0..ROUND as u16).collect(),
    }));
    records
}

/// EtherTypes that a tag may have: those of tags, and those of other headers, which then are tags.
const TPIDS: [u16; 10] = [
    0x8100, 0x88a8, 0x9100, 0x0100, 0x0800, 0x0806, 0x6558, 0x86dd, 0x8847, 0x88e7,
];

/// Returns the switch's configuration, or one of three times one with any tags and tunnels.
fn config(random: &mut Random) -> Config {
    let mut config = Config::new(HashKeys::new(random.bits()));
    if random.once_in(3) {
        config.tpids = core::array::from_fn(|_| {
            (!random.once_in(4)).then(|| Tpid {
                value: random.pick(&TPIDS),
                openflow: random.once_in(2),
            })
        });
        let kinds = [Tunnel::Vxlan, Tunnel::Geneve, Tunnel::GtpU, Tunnel::Mpls];
        config.tunnels = core::array::from_fn(|_| {
            let port = random.pick(&[2152, 4789, 6081, 6635, 8472, 0]);
            (!random.once_in(4)).then(|| (port, random.pick(&kinds)))
        });
    }
    config
}

/// A seeded stream of records: frames of every header chain and their mutations, commands between any two of them, stalls,
/// buffers that run out, and bits that flip.
#[derive(Debug)]
pub struct Stimulus {
    random: Random,
    capabilities: Capabilities,
    config: Config,
    masks: [Key; 4],
    known: Vec<Vec<u8>>,
    tag: u32,
    since_round: usize,
}

impl Stimulus {
    /// Returns the stream of a seed.
    #[must_use]
    pub fn new(seed: u64, capabilities: Capabilities) -> Stimulus {
        let mut random = Random::new(seed);
        let mut masks = [Key::ALL; 4];
        // A five-tuple, and two masks of any bits.
        masks[1] = Key([
            0xffff << 48,
            0,
            0,
            u64::MAX,
            0,
            u64::MAX,
            0x00ff_0000_ffff_ffff,
            0,
        ]);
        for mask in &mut masks[2..] {
            mask.0 = core::array::from_fn(|_| random.bits() & random.bits());
        }
        let known = (0..KNOWN).map(|_| frames::mutated(&mut random)).collect();
        Stimulus {
            config: config(&mut random),
            random,
            capabilities,
            masks,
            known,
            tag: 0,
            since_round: 0,
        }
    }

    /// Returns the records before all others.
    #[must_use]
    pub fn prologue(&self) -> Vec<Input> {
        prologue(&self.capabilities, &self.config)
    }

    /// Adds the next records: a frame, and what goes before it.
    pub fn next(&mut self, out: &mut Vec<Input>) {
        if self.random.once_in(RESETS) {
            // The driver resets the device, and gives it other keys. What is inside would be lost at any place.
            out.extend([Input::Sync { number: self.tag }, Input::control(0)]);
            self.config = config(&mut self.random);
            out.extend(self.prologue());
            self.since_round = 0;
        }
        self.since_round += 1;
        if self.since_round >= ROUND && self.random.once_in(4) {
            self.since_round = 0;
            self.give_back(out);
        }
        while self.random.once_in(4) {
            self.command(out);
        }
        if self.random.once_in(40) {
            out.push(Input::Stall {
                queue: self.random.below(self.capabilities.queues.into()) as u8,
                cycles: self.random.below(400) as u16,
            });
        }
        if self.random.once_in(100) {
            out.push(Input::Flip {
                way: self.random.below(4) as u8,
                row: self.random.below(1 << self.capabilities.row_bits) as u32,
                bit: self.random.below(576) as u16,
            });
        }
        let known = self.random.below(self.known.len());
        let mut bytes = match self.random.below(3) {
            _ if self.random.once_in(200) => vec![0x5a; self.random.pick(&[1, 13, 9601, 9700])],
            0 => frames::mutated(&mut self.random),
            _ => self.known[known].clone(),
        };
        let mut stall = if self.random.once_in(3) {
            self.random.below(60) as u16
        } else {
            0
        };
        if self.random.once_in(8) {
            stall |= PAUSES;
        }
        if self.random.once_in(8) {
            // A frame that fills its beats; the head ends with one of them if it has 128 bytes.
            stall |= EMPTY_END;
            let size = bytes.len().next_multiple_of(self.random.pick(&[16, 64, 128]));
            bytes.resize(size, 0);
        }
        out.push(Input::Frame {
            port: self.random.below(self.capabilities.ports.into()) as u8,
            bad_fcs: self.random.once_in(60),
            stall,
            bytes,
        });
    }

    /// Gives most queues buffers and completions; the others run out.
    fn give_back(&mut self, out: &mut Vec<Input>) {
        for queue in 0..self.capabilities.queues {
            if self.random.once_in(6) {
                continue;
            }
            // Some queues run out of completions, so that fences find their reserve in use.
            let most = if self.random.once_in(12) { COMPLETIONS } else { 9 };
            let number = self.random.below(most) as u16;
            out.push(Input::Take { queue, number });
            let first = self.random.bits() as u16;
            let buffers = (0..ROUND as u16)
                .map(|number| first.wrapping_add(number))
                .collect();
            out.push(Input::Buffers { queue, buffers });
        }
    }

    fn push(&mut self, command: &Command, out: &mut Vec<Input>) {
        self.tag = self.tag.wrapping_add(1);
        let mut bytes = command.to_bytes(self.tag);
        if self.random.once_in(100) {
            // Any byte may be wrong, too; not the words and the queues, where any value is right.
            bytes[self.random.below(16)] = self.random.bits() as u8;
        }
        let stall = if self.random.once_in(4) {
            self.random.below(30) as u16
        } else {
            0
        };
        out.push(Input::Command { stall, bytes });
    }

    fn action(&mut self) -> Action {
        Action {
            mark: self.random.bits() as u32 >> self.random.below(20),
            queue: self.random.once_in(3).then(|| self.random.below(32) as u8),
            drop: self.random.once_in(12),
            class: self.random.below(16) as u8,
        }
    }

    fn command(&mut self, out: &mut Vec<Input>) {
        let form = 1 + self.random.below(4) as u8;
        let mask = self.masks[usize::from(form - 1)];
        let known = self.random.below(self.known.len());
        let port = self.random.below(self.capabilities.ports.into()) as u8;
        let key = parse(&self.known[known], port, &self.config).key;
        let commands = match self.random.below(13) {
            0 => {
                let bank = (form - 1) % self.capabilities.banks;
                let form = if self.random.once_in(8) { 0 } else { form };
                let mut commands = Command::stage(&mask).to_vec();
                commands.push(Command::SetMask { port, bank, form });
                commands
            }
            1..=4 => self.row(&key.masked(&mask), form),
            5 => self.rule(&key),
            6 => vec![Command::ClearTernary {
                rule: self.random.below(usize::from(self.capabilities.rules) + 1) as u32,
            }],
            7 => {
                let len = 1 + self.random.below(command::BUCKETS_LEN_MAX);
                let first = self.random.below(BUCKETS - len + 1) as u16;
                let queues = (0..len).map(|_| self.random.below(32) as u8).collect();
                vec![Command::SetBuckets { first, queues }]
            }
            8 => vec![Command::Commit {
                fence: self.random.once_in(2).then(|| self.random.bits() as u32),
            }],
            9 => vec![Command::Fence {
                number: self.random.bits() as u32,
            }],
            10 => {
                let (counter, ..) = Counter::ALL[self.random.below(Counter::ALL.len())];
                vec![Command::ReadCount {
                    counter,
                    queue: self.random.below(32) as u16,
                }]
            }
            11 => vec![Command::ReadDrops {
                half: self.random.below(3) as u8,
                counter: self.random.bits() as u32 >> self.random.below(32),
            }],
            _ => vec![Command::Nop],
        };
        for command in commands {
            self.push(&command, out);
        }
    }

    /// Returns the commands that write or clear the row of a masked key in any way.
    fn row(&mut self, masked: &Key, form: u8) -> Vec<Command> {
        let way = self.random.below(4);
        let places = rows(self.config.keys.table(masked), self.capabilities.row_bits.into());
        let (way, row) = (way as u8, places[way] as u32);
        if self.random.once_in(3) {
            return vec![Command::ClearRow { way, row }];
        }
        let mut commands = Command::stage(masked).to_vec();
        let action = self.action();
        commands.push(Command::WriteRow {
            way,
            row,
            form,
            action,
        });
        commands
    }

    /// Returns the commands that write a rule for a key under any mask.
    fn rule(&mut self, key: &Key) -> Vec<Command> {
        let mask = core::array::from_fn(|_| self.random.bits() & self.random.bits() & self.random.bits());
        let mut commands = Command::stage_ternary(key.ternary(), mask).to_vec();
        commands.push(Command::WriteTernary {
            rule: self.random.below(self.capabilities.rules.into()) as u32,
            action: self.action(),
        });
        commands
    }
}
