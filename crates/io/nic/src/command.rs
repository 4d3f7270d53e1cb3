//! Commands of the driver, 64 bytes each, and their completions, 16 bytes each.
//!
//! A command is a token in the stream of packets: it takes effect after all packets that arrived before it and before all
//! that arrive after it. Completions come in the order of commands. A command with a status other than OK changes nothing.
//!
//! A key and a mask have 64 bytes, so they are staged in two halves before the command that uses them. The staged words stay
//! until they are staged again.

use crate::bits::{BitField, field};
use crate::command_completion::Status;
use crate::counter::Counter;
use crate::key::{self, Key, TERNARY_WORDS};
use crate::{BANKS_MAX, BUCKETS, FORMS, PORTS_MAX, QUEUES_MAX, WAYS};

/// Size of a command in bytes.
pub const SIZE: usize = 64;
/// Maximum number of buckets that one SET_BUCKETS writes.
pub const BUCKETS_LEN_MAX: usize = 48;

/// The fields of a command. Which of them a command uses is in [`OPCODES`]; the others are 0 and ignored.
pub const FIELDS: [BitField; 14] = [
    field("opcode", 0, 8, "The command: OP_*."),
    field(
        "select",
        8,
        8,
        "Half of the staged words, way, port, number of buckets, counter, or half of a drop counter.",
    ),
    field("first", 16, 16, "First bucket, or the queue of a counter."),
    field("tag", 32, 32, "Number that the completion returns."),
    field(
        "index",
        64,
        32,
        "Row, rule, mask bank, or the number of a fence or of a drop counter.",
    ),
    field(
        "form",
        96,
        4,
        "Form of a row or a port, 1 to 15; of a port 0 as well.",
    ),
    field("fenced", 104, 1, "COMMIT also sends a fence."),
    field(
        "mark",
        128,
        32,
        "Mark of matching packets; 0 means no mark. With `drop`, the number of the drop counter.",
    ),
    field(
        "queue",
        160,
        5,
        "Queue of matching packets, if `override` is set.",
    ),
    field(
        "override",
        165,
        1,
        "The queue of the entry replaces that of the bucket.",
    ),
    field("drop", 166, 1, "Matching packets are dropped and counted."),
    field("class", 168, 4, "Class of matching packets, 0 to 15."),
    field("words", 256, 256, "Half of the staged words."),
    field("queues", 128, 384, "Queues of up to 48 buckets, one byte each."),
];

/// A command: opcode, name, the fields that it uses, effect.
pub type Opcode = (u8, &'static str, &'static str, &'static str);

/// All commands.
pub const OPCODES: [Opcode; 12] = [
    (op::NOP, "NOP", "", "No effect."),
    (
        op::STAGE,
        "STAGE",
        "select, words",
        "Replaces words 0 to 3 (select 0) or 4 to 7 (select 1) of the staged words.",
    ),
    (
        op::WRITE_ROW,
        "WRITE_ROW",
        "select, index, form, mark, queue, override, drop, class",
        "Writes row `index` of way `select` of the exact table, with the staged words as masked key. RANGE for form 0 too.",
    ),
    (
        op::CLEAR_ROW,
        "CLEAR_ROW",
        "select, index",
        "Makes row `index` of way `select` invalid.",
    ),
    (
        op::WRITE_TERNARY,
        "WRITE_TERNARY",
        "index, mark, queue, override, drop, class",
        "Writes rule `index` of the ternary table: staged words 0 to 3 are its value, 4 to 7 its mask.",
    ),
    (
        op::CLEAR_TERNARY,
        "CLEAR_TERNARY",
        "index",
        "Makes rule `index` invalid.",
    ),
    (
        op::SET_MASK,
        "SET_MASK",
        "select, index, form",
        "Writes the staged words to mask bank `index`, and gives port `select` this bank and this form. With form 0 the port has no lookups in the exact table.",
    ),
    (
        op::SET_BUCKETS,
        "SET_BUCKETS",
        "select, first, queues",
        "Writes the queues of `select` (1 to 48) buckets from `first` to the shadow copy of the bucket table.",
    ),
    (
        op::COMMIT,
        "COMMIT",
        "fenced, index",
        "Exchanges the copies of the bucket table; the shadow copy then holds the former one. If `fenced` is set, sends fence `index` as FENCE does.",
    ),
    (
        op::FENCE,
        "FENCE",
        "index",
        "Puts a completion with the flag fence and the number `index` into each queue, in order with packets. BUSY if one queue has no free completion.",
    ),
    (
        op::READ_COUNT,
        "READ_COUNT",
        "select, first",
        "Returns the counter `select` (COUNT_*), of queue `first` where there is one for each queue; 0 for a queue that the device does not have.",
    ),
    (
        op::READ_DROPS,
        "READ_DROPS",
        "select, index",
        "Returns the number of packets (select 0) or bytes (select 1) that drop counter `index` has counted. UNKNOWN for a device without drop counters.",
    ),
];

/// Numbers of commands.
#[allow(missing_docs, reason = "OPCODES documents each")]
pub mod op {
    pub const NOP: u8 = 0;
    pub const STAGE: u8 = 1;
    pub const WRITE_ROW: u8 = 2;
    pub const CLEAR_ROW: u8 = 3;
    pub const WRITE_TERNARY: u8 = 4;
    pub const CLEAR_TERNARY: u8 = 5;
    pub const SET_MASK: u8 = 6;
    pub const SET_BUCKETS: u8 = 7;
    pub const COMMIT: u8 = 8;
    pub const FENCE: u8 = 9;
    pub const READ_COUNT: u8 = 10;
    pub const READ_DROPS: u8 = 11;
}

/// The action of an entry on packets that match. Where several entries match, the ternary rule with the lowest index decides,
/// then the exact row; without either, the bucket decides about the queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Action {
    /// The mark; 0 means no mark. With `drop`, the number of the drop counter.
    pub mark: u32,
    /// The queue, if it is not that of the bucket.
    pub queue: Option<u8>,
    /// True if the packet is dropped and counted.
    pub drop: bool,
    /// The class, 0 to 15.
    pub class: u8,
}

/// A command whose fields are in the ranges of every device. A device may still refuse a row, a rule, a bank, a port or a
/// queue that it does not have.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "FIELDS and OPCODES document each")]
pub enum Command {
    Nop,
    Stage {
        upper: bool,
        words: [u64; key::WORDS / 2],
    },
    WriteRow {
        way: u8,
        row: u32,
        form: u8,
        action: Action,
    },
    ClearRow {
        way: u8,
        row: u32,
    },
    WriteTernary {
        rule: u32,
        action: Action,
    },
    ClearTernary {
        rule: u32,
    },
    SetMask {
        port: u8,
        bank: u8,
        form: u8,
    },
    SetBuckets {
        first: u16,
        queues: Vec<u8>,
    },
    Commit {
        fence: Option<u32>,
    },
    Fence {
        number: u32,
    },
    ReadCount {
        counter: Counter,
        queue: u16,
    },
    /// `half` is 0 for packets and 1 for bytes; others are out of range.
    ReadDrops {
        half: u8,
        counter: u32,
    },
}

/// Positions in [`FIELDS`].
#[derive(Clone, Copy)]
enum At {
    Opcode,
    Select,
    First,
    Tag,
    Index,
    Form,
    Fenced,
    Mark,
    Queue,
    Override,
    Drop,
    Class,
}

fn read(bytes: &[u8; SIZE], at: At) -> u64 {
    FIELDS[at as usize].read(bytes)
}

fn write(bytes: &mut [u8; SIZE], at: At, value: u64) {
    FIELDS[at as usize].write(bytes, value);
}

impl Command {
    /// Returns the two commands that stage a key or a mask.
    #[must_use]
    pub fn stage(key: &Key) -> [Command; 2] {
        let [a, b, c, d, e, f, g, h] = key.0;
        [[a, b, c, d], [e, f, g, h]].map({
            let mut upper = false;
            move |words| Command::Stage {
                upper: core::mem::replace(&mut upper, true),
                words,
            }
        })
    }

    /// Returns the two commands that stage a rule of the ternary table.
    #[must_use]
    pub fn stage_ternary(value: [u64; TERNARY_WORDS], mask: [u64; TERNARY_WORDS]) -> [Command; 2] {
        [
            Command::Stage {
                upper: false,
                words: value,
            },
            Command::Stage {
                upper: true,
                words: mask,
            },
        ]
    }

    /// Returns the tag of a command, and the command.
    ///
    /// # Errors
    /// Returns the tag, and [`Status::Unknown`] or [`Status::Range`].
    pub fn parse(bytes: &[u8; SIZE]) -> (u32, Result<Command, Status>) {
        (read(bytes, At::Tag) as u32, Self::parse_fields(bytes))
    }

    fn parse_fields(bytes: &[u8; SIZE]) -> Result<Command, Status> {
        let (select, index) = (read(bytes, At::Select) as u8, read(bytes, At::Index) as u32);
        let (first, form) = (read(bytes, At::First) as u16, read(bytes, At::Form) as u8);
        let action = || Action {
            mark: read(bytes, At::Mark) as u32,
            queue: (read(bytes, At::Override) == 1).then(|| read(bytes, At::Queue) as u8),
            drop: read(bytes, At::Drop) == 1,
            class: read(bytes, At::Class) as u8,
        };
        let below = |limit: usize, number: u32| {
            if (number as usize) < limit {
                Ok(())
            } else {
                Err(Status::Range)
            }
        };
        match read(bytes, At::Opcode) as u8 {
            op::NOP => Ok(Command::Nop),
            op::STAGE => {
                below(2, select.into())?;
                let mut words = [0; key::WORDS / 2];
                for (word, bytes) in words.iter_mut().zip(bytes[32..].as_chunks::<8>().0) {
                    *word = u64::from_le_bytes(*bytes);
                }
                Ok(Command::Stage {
                    upper: select == 1,
                    words,
                })
            }
            op::WRITE_ROW => {
                below(WAYS, select.into())?;
                if form == 0 {
                    return Err(Status::Range);
                }
                Ok(Command::WriteRow {
                    way: select,
                    row: index,
                    form,
                    action: action(),
                })
            }
            op::CLEAR_ROW => {
                below(WAYS, select.into())?;
                Ok(Command::ClearRow {
                    way: select,
                    row: index,
                })
            }
            op::WRITE_TERNARY => Ok(Command::WriteTernary {
                rule: index,
                action: action(),
            }),
            op::CLEAR_TERNARY => Ok(Command::ClearTernary { rule: index }),
            op::SET_MASK => {
                below(PORTS_MAX, select.into())?;
                below(BANKS_MAX, index)?;
                Ok(Command::SetMask {
                    port: select,
                    bank: index as u8,
                    form,
                })
            }
            op::SET_BUCKETS => {
                below(BUCKETS_LEN_MAX, u32::from(select).wrapping_sub(1))?;
                let len = usize::from(select);
                below(BUCKETS - len + 1, first.into())?;
                let queues = bytes[16..16 + len].to_vec();
                if queues.iter().any(|queue| usize::from(*queue) >= QUEUES_MAX) {
                    return Err(Status::Range);
                }
                Ok(Command::SetBuckets { first, queues })
            }
            op::COMMIT => Ok(Command::Commit {
                fence: (read(bytes, At::Fenced) == 1).then_some(index),
            }),
            op::FENCE => Ok(Command::Fence { number: index }),
            op::READ_COUNT => {
                let counter = Counter::from_number(select).ok_or(Status::Range)?;
                if counter.is_of_queue() {
                    below(QUEUES_MAX, first.into())?;
                }
                Ok(Command::ReadCount {
                    counter,
                    queue: first,
                })
            }
            // Devices without drop counters do not know the command, whatever it asks for: the device checks the fields.
            op::READ_DROPS => Ok(Command::ReadDrops {
                half: select,
                counter: index,
            }),
            _ => Err(Status::Unknown),
        }
    }

    /// Returns the bytes of the command with a tag.
    #[must_use]
    pub fn to_bytes(&self, tag: u32) -> [u8; SIZE] {
        let mut bytes = [0; SIZE];
        let to = &mut bytes;
        write(to, At::Tag, tag.into());
        match self {
            Command::Nop => write(to, At::Opcode, op::NOP.into()),
            Command::Stage { upper, words } => {
                write(to, At::Opcode, op::STAGE.into());
                write(to, At::Select, (*upper).into());
                for (to, word) in to[32..].as_chunks_mut::<8>().0.iter_mut().zip(words) {
                    *to = word.to_le_bytes();
                }
            }
            Command::WriteRow {
                way,
                row,
                form,
                action,
            } => {
                write(to, At::Opcode, op::WRITE_ROW.into());
                write(to, At::Select, (*way).into());
                write(to, At::Index, (*row).into());
                debug_assert!((1..FORMS).contains(&usize::from(*form)), "form {form}");
                write(to, At::Form, (*form).into());
                action.write(to);
            }
            Command::ClearRow { way, row } => {
                write(to, At::Opcode, op::CLEAR_ROW.into());
                write(to, At::Select, (*way).into());
                write(to, At::Index, (*row).into());
            }
            Command::WriteTernary { rule, action } => {
                write(to, At::Opcode, op::WRITE_TERNARY.into());
                write(to, At::Index, (*rule).into());
                action.write(to);
            }
            Command::ClearTernary { rule } => {
                write(to, At::Opcode, op::CLEAR_TERNARY.into());
                write(to, At::Index, (*rule).into());
            }
            Command::SetMask { port, bank, form } => {
                write(to, At::Opcode, op::SET_MASK.into());
                write(to, At::Select, (*port).into());
                write(to, At::Index, (*bank).into());
                write(to, At::Form, (*form).into());
            }
            Command::SetBuckets { first, queues } => {
                write(to, At::Opcode, op::SET_BUCKETS.into());
                let len = queues.len().min(BUCKETS_LEN_MAX);
                write(to, At::Select, len as u64);
                write(to, At::First, (*first).into());
                to[16..16 + len].copy_from_slice(&queues[..len]);
            }
            Command::Commit { fence } => {
                write(to, At::Opcode, op::COMMIT.into());
                write(to, At::Fenced, fence.is_some().into());
                write(to, At::Index, fence.unwrap_or_default().into());
            }
            Command::Fence { number } => {
                write(to, At::Opcode, op::FENCE.into());
                write(to, At::Index, (*number).into());
            }
            Command::ReadCount { counter, queue } => {
                write(to, At::Opcode, op::READ_COUNT.into());
                write(to, At::Select, *counter as u64);
                write(to, At::First, (*queue).into());
            }
            Command::ReadDrops { half, counter } => {
                write(to, At::Opcode, op::READ_DROPS.into());
                write(to, At::Select, (*half).into());
                write(to, At::Index, (*counter).into());
            }
        }
        bytes
    }

    /// Returns true if the command changes a table, and so the generation of completions.
    #[must_use]
    pub const fn changes_tables(&self) -> bool {
        matches!(
            self,
            Command::WriteRow { .. }
                | Command::ClearRow { .. }
                | Command::WriteTernary { .. }
                | Command::ClearTernary { .. }
                | Command::SetMask { .. }
                | Command::Commit { .. }
        )
    }
}

impl Action {
    fn write(&self, to: &mut [u8; SIZE]) {
        write(to, At::Mark, self.mark.into());
        write(to, At::Queue, self.queue.unwrap_or_default().into());
        write(to, At::Override, self.queue.is_some().into());
        write(to, At::Drop, self.drop.into());
        write(to, At::Class, self.class.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_bytes_are_a_command_or_have_a_status(mut bytes: [u8; SIZE], opcode in 0..13_u8, tag: u32) {
            bytes[0] = opcode;
            bytes[1] %= 60;
            if let (_, Ok(command)) = Command::parse(&bytes) {
                prop_assert_eq!(Command::parse(&command.to_bytes(tag)), (tag, Ok(command)));
            }
        }
    }

    #[test]
    fn a_command_out_of_range_is_refused_and_keeps_its_tag() {
        for (command, at, value) in [
            (
                Command::WriteRow {
                    way: 0,
                    row: 0,
                    form: 1,
                    action: Action::default(),
                },
                At::Select,
                WAYS as u64,
            ),
            (
                Command::WriteRow {
                    way: 0,
                    row: 0,
                    form: 1,
                    action: Action::default(),
                },
                At::Form,
                0,
            ),
            (
                Command::SetMask {
                    port: 0,
                    bank: 0,
                    form: 1,
                },
                At::Select,
                PORTS_MAX as u64,
            ),
            (
                Command::SetBuckets {
                    first: 0,
                    queues: vec![0],
                },
                At::First,
                BUCKETS as u64,
            ),
            (
                Command::SetBuckets {
                    first: 0,
                    queues: vec![0],
                },
                At::Select,
                0,
            ),
            (
                Command::SetBuckets {
                    first: 0,
                    queues: vec![0],
                },
                At::Select,
                49,
            ),
            (
                Command::ReadCount {
                    counter: Counter::Frames,
                    queue: 0,
                },
                At::Select,
                8,
            ),
        ] {
            let mut bytes = command.to_bytes(7);
            write(&mut bytes, at, value);
            assert_eq!(Command::parse(&bytes), (7, Err(Status::Range)), "{command:?}");
        }
        assert_eq!(Command::parse(&[0xff; SIZE]).1, Err(Status::Unknown));
    }
}
