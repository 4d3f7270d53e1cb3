//! The completion of a command, 16 bytes. Completions come in the order of the commands.

use crate::bits::{BitField, field};

/// Size of the completion of a command in bytes.
pub const SIZE: usize = 16;

/// The status of a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u16)]
pub enum Status {
    /// The command took effect.
    Ok = 0,
    /// There is no such command.
    Unknown = 1,
    /// A field is out of the device's range.
    Range = 2,
    /// A queue has no free completion for a fence; try again.
    Busy = 3,
}

impl Status {
    /// All statuses, in the order of their numbers.
    pub const ALL: [(Status, &'static str, &'static str); 4] = [
        (Status::Ok, "OK", "The command took effect."),
        (Status::Unknown, "UNKNOWN", "There is no such command."),
        (Status::Range, "RANGE", "A field is out of the device's range."),
        (
            Status::Busy,
            "BUSY",
            "A queue has no free completion for a fence; try again.",
        ),
    ];
}

/// The fields of the completion of a command.
pub const FIELDS: [BitField; 4] = [
    field("tag", 0, 32, "Tag of the command."),
    field("status", 32, 16, "STATUS_*."),
    field(
        "flags",
        48,
        16,
        "Bit 0: the phase, which is 1 in the first pass through the ring.",
    ),
    field(
        "value",
        64,
        64,
        "The counter that READ_COUNT or READ_DROPS asks for; otherwise 0.",
    ),
];

/// The answer of a device to one command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CommandCompletion {
    /// The tag of the command.
    pub tag: u32,
    pub status: Status,
    /// The phase of the ring.
    pub phase: bool,
    /// The counter that READ_COUNT or READ_DROPS asks for; otherwise 0.
    pub value: u64,
}

impl CommandCompletion {
    /// Returns the completion that is in `bytes`; `None` for an unknown status.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; SIZE]) -> Option<CommandCompletion> {
        let [tag, status, flags, value] = FIELDS.map(|field| field.read(bytes));
        let (status, ..) = Status::ALL.get(status as usize)?;
        Some(CommandCompletion {
            tag: tag as u32,
            status: *status,
            phase: flags & 1 == 1,
            value,
        })
    }

    /// Returns the bytes of the completion.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; SIZE] {
        let mut bytes = [0; SIZE];
        let values = [self.tag.into(), self.status as u64, self.phase.into(), self.value];
        for (field, value) in FIELDS.iter().zip(values) {
            field.write(&mut bytes, value);
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_completion_of_a_command_is_its_bytes(tag: u32, status in 0..4_usize, phase: bool, value: u64) {
            let completion = CommandCompletion { tag, status: Status::ALL[status].0, phase, value };
            prop_assert_eq!(CommandCompletion::from_bytes(&completion.to_bytes()), Some(completion));
        }
    }
}
