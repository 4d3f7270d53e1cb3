//! Faults of a device, as drivers of real NICs have had them: what a switch must survive.

use millrace_nic::completion::flag;
use millrace_nic::{Action, Command, CommandCompletion, Completion, Status, command};

/// A fault of a device.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Fault {
    /// A packet has the mark of another entry.
    WrongMarks,
    /// Packets have no marks, although entries with marks were accepted.
    LostMarks,
    /// An entry is still there after its removal was confirmed.
    KeptRows,
    /// An entry is not there after it was confirmed.
    IgnoredRows,
    /// Entries are refused.
    RefusedRows,
    /// Fences are confirmed and never come.
    LostFences,
    /// Hashes change from packet to packet.
    WrongHashes,
}

impl Fault {
    /// All faults with their names.
    pub const ALL: [(&'static str, Fault); 7] = [
        ("wrong-marks", Fault::WrongMarks),
        ("lost-marks", Fault::LostMarks),
        ("kept-rows", Fault::KeptRows),
        ("ignored-rows", Fault::IgnoredRows),
        ("refused-rows", Fault::RefusedRows),
        ("lost-fences", Fault::LostFences),
        ("wrong-hashes", Fault::WrongHashes),
    ];

    /// Returns the fault with a name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Fault> {
        Fault::ALL
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, fault)| *fault)
    }
}

/// A device's faults, and what it remembers for them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Faults {
    pub(crate) fault: Option<Fault>,
    /// A mark of an entry that was written.
    written: u32,
    /// Another one.
    written_before: u32,
    frames: u32,
}

impl Faults {
    /// Returns the completion of a command that the device only pretends to execute; `None` if it executes it.
    pub(crate) fn pretended(&mut self, bytes: &[u8; command::SIZE]) -> Option<CommandCompletion> {
        let (tag, command) = Command::parse(bytes);
        let command = command.ok()?;
        if let Command::WriteRow {
            action: Action { mark, .. },
            ..
        } = command
            && mark != self.written
        {
            (self.written_before, self.written) = (self.written, mark);
        }
        let status = match (self.fault?, command) {
            (Fault::KeptRows, Command::ClearRow { .. })
            | (Fault::IgnoredRows, Command::WriteRow { .. })
            | (Fault::LostFences, Command::Fence { .. }) => Status::Ok,
            (Fault::RefusedRows, Command::WriteRow { .. }) => Status::Range,
            _ => return None,
        };
        Some(CommandCompletion {
            tag,
            status,
            phase: false,
            value: 0,
        })
    }

    /// Changes the completion of a frame.
    pub(crate) fn distort(&mut self, completion: &mut Completion) {
        let Some(fault) = self.fault else { return };
        self.frames = self.frames.wrapping_add(1);
        match fault {
            // Every second packet, so that the right mark and the wrong one alternate.
            Fault::WrongMarks if self.frames.is_multiple_of(2) && completion.has(flag::MARK) => {
                let other = match completion.mark == self.written {
                    true => self.written_before,
                    false => self.written,
                };
                if other != 0 {
                    completion.mark = other;
                }
            }
            Fault::LostMarks => {
                completion.flags &= !flag::MARK;
                completion.mark = 0;
            }
            Fault::WrongHashes => completion.hash = completion.hash.wrapping_add(self.frames << 22),
            _ => {}
        }
    }
}
