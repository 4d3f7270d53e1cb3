//! Faults of a device, as drivers of real NICs have had them: what a switch must survive.

use std::collections::{BTreeMap, VecDeque};

use millrace_nic::completion::flag;
use millrace_nic::key::{self, Key, layer};
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
    /// Every third entry is refused.
    RandomRefusals,
    /// Entries are refused while there are two.
    FewRows,
    /// Removals of entries are refused.
    RefusedRemovals,
    /// A command takes about 100 ms.
    SlowCommands,
    /// Commands that write or clear rows are completed twice.
    DoubleAnswers,
    /// Entries compare all bits except those of the source MAC address.
    IgnoredSourceMac,
    /// Entries compare all bits except those of the source port.
    IgnoredSourcePort,
    /// Entries do not tell fragments from whole packets.
    IgnoredFragments,
    /// Fences are confirmed and never come.
    LostFences,
    /// Fences come before the last packets that have the mark of a removed entry.
    EarlyFences,
    /// Fences come 64 packets late.
    LateFences,
    /// Hashes change from packet to packet.
    WrongHashes,
    /// Every second packet goes to another queue than that of its bucket.
    WrongQueues,
    /// A completion names a buffer that is not the device's.
    WrongBuffers,
    /// A completion has a length that no buffer has.
    WrongLengths,
}

/// Number of packets by which removals, or fences, are delayed.
const DELAY_FRAMES: u32 = 64;
/// Polls of an idle device in 100 ms: `millrace-nic` sleeps 50 us between two.
const SLOW_POLLS: u32 = 2_000;
/// Every so many packets, a completion is invalid.
const INVALID_INTERVAL: u32 = 512;
/// Number of entries that a device with [`Fault::FewRows`] takes.
const FEW_ROWS: usize = 2;

impl Fault {
    /// All faults with their names.
    pub const ALL: [(&'static str, Fault); 20] = [
        ("wrong-marks", Fault::WrongMarks),
        ("lost-marks", Fault::LostMarks),
        ("kept-rows", Fault::KeptRows),
        ("ignored-rows", Fault::IgnoredRows),
        ("refused-rows", Fault::RefusedRows),
        ("random-refusals", Fault::RandomRefusals),
        ("few-rows", Fault::FewRows),
        ("refused-removals", Fault::RefusedRemovals),
        ("slow-commands", Fault::SlowCommands),
        ("double-answers", Fault::DoubleAnswers),
        ("ignored-source-mac", Fault::IgnoredSourceMac),
        ("ignored-source-port", Fault::IgnoredSourcePort),
        ("ignored-fragments", Fault::IgnoredFragments),
        ("lost-fences", Fault::LostFences),
        ("early-fences", Fault::EarlyFences),
        ("late-fences", Fault::LateFences),
        ("wrong-hashes", Fault::WrongHashes),
        ("wrong-queues", Fault::WrongQueues),
        ("wrong-buffers", Fault::WrongBuffers),
        ("wrong-lengths", Fault::WrongLengths),
    ];

    /// Returns the fault with a name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Fault> {
        Fault::ALL
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, fault)| *fault)
    }

    /// Returns the bits of the key that the device does not compare, by words.
    fn ignored_bits(self) -> [u64; key::WORDS] {
        let name = match self {
            Fault::IgnoredSourceMac => "eth_src",
            Fault::IgnoredSourcePort => "l4_src",
            Fault::IgnoredFragments => "layers",
            _ => return [0; key::WORDS],
        };
        let mut bytes = [0; key::SIZE];
        let value = match self {
            Fault::IgnoredFragments => layer::FRAGMENT_LATER.into(),
            _ => u64::MAX,
        };
        for field in key::FIELDS.iter().filter(|field| field.name == name) {
            field.write(&mut bytes, value);
        }
        core::array::from_fn(|word| u64::from_le_bytes(core::array::from_fn(|byte| bytes[8 * word + byte])))
    }
}

/// An effect that comes later than the device said.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Delayed {
    /// The removal of an entry.
    Command([u8; command::SIZE]),
    Fence(Completion),
}

/// A device's faults, and what it remembers for them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Faults {
    pub(crate) fault: Option<Fault>,
    /// The mark of the entry that was written last.
    written: u32,
    /// The mark of the last entry that was written with another mark than `written`.
    written_before: u32,
    staged: [u64; key::WORDS],
    mask: [u64; key::WORDS],
    /// Keys and marks of the entries, by way and row.
    rows: BTreeMap<(u8, u32), ([u64; key::WORDS], u32)>,
    writes: u32,
    frames: u32,
    polls: u32,
    /// Effects, with the number of the frame before which they come.
    delayed: VecDeque<(u32, Delayed)>,
}

impl Faults {
    /// Returns the most commands that this poll takes, `max` without a fault.
    pub(crate) fn commands_max(&mut self, max: usize) -> usize {
        self.polls = self.polls.wrapping_add(1);
        match self.fault {
            Some(Fault::SlowCommands) => usize::from(self.polls.is_multiple_of(SLOW_POLLS)),
            _ => max,
        }
    }

    /// Returns the mark that a device with a field ignored puts beside a packet with a key; `None` without such a fault.
    pub(crate) fn mark_of(&self, key: impl FnOnce() -> Key) -> Option<u32> {
        let ignored = self.fault?.ignored_bits();
        if ignored == [0; key::WORDS] {
            return None;
        }
        let masked = key().masked(&Key(self.mask));
        let is_found = |held: &[u64; key::WORDS]| {
            let words = held.iter().zip(masked.0).zip(ignored);
            words.fold(0, |sum, ((held, word), ignored)| sum | (held ^ word) & !ignored) == 0
        };
        let (_, mark) = self.rows.values().find(|(held, _)| is_found(held))?;
        Some(*mark)
    }

    /// Returns the completion of a command that the device only pretends to execute; `None` if it executes it.
    pub(crate) fn pretended(&mut self, bytes: &[u8; command::SIZE]) -> Option<CommandCompletion> {
        let (tag, command) = Command::parse(bytes);
        let command = command.ok()?;
        if let Command::WriteRow {
            action: Action { mark, .. },
            ..
        } = command
        {
            self.writes = self.writes.wrapping_add(1);
            if mark != self.written {
                (self.written_before, self.written) = (self.written, mark);
            }
        }
        let status = match (self.fault, &command) {
            (Some(Fault::EarlyFences), Command::ClearRow { .. }) => {
                self.delay(Delayed::Command(*bytes));
                Some(Status::Ok)
            }
            (Some(Fault::KeptRows), Command::ClearRow { .. })
            | (Some(Fault::IgnoredRows), Command::WriteRow { .. })
            | (Some(Fault::LostFences), Command::Fence { .. }) => Some(Status::Ok),
            (Some(Fault::RefusedRows), Command::WriteRow { .. })
            | (Some(Fault::RefusedRemovals), Command::ClearRow { .. }) => Some(Status::Range),
            (Some(Fault::RandomRefusals), Command::WriteRow { .. }) if self.writes.is_multiple_of(3) => {
                Some(Status::Range)
            }
            (Some(Fault::FewRows), Command::WriteRow { .. }) if self.rows.len() >= FEW_ROWS => {
                Some(Status::Range)
            }
            _ => None,
        };
        if status.is_none_or(|status| status == Status::Ok) {
            match command {
                Command::Stage { upper, words } => {
                    let at = if upper { 4 } else { 0 };
                    self.staged[at..at + 4].copy_from_slice(&words);
                }
                Command::SetMask { .. } => self.mask = self.staged,
                Command::WriteRow { way, row, action, .. } => {
                    self.rows.insert((way, row), (self.staged, action.mark));
                }
                Command::ClearRow { way, row } => {
                    self.rows.remove(&(way, row));
                }
                _ => {}
            }
        }
        status.map(|status| CommandCompletion {
            tag,
            status,
            phase: false,
            value: 0,
        })
    }

    /// Returns true if a command is completed twice.
    pub(crate) fn answers_twice(&self, bytes: &[u8; command::SIZE]) -> bool {
        let is_of_rows = matches!(
            Command::parse(bytes).1,
            Ok(Command::WriteRow { .. } | Command::ClearRow { .. })
        );
        self.fault == Some(Fault::DoubleAnswers) && is_of_rows
    }

    /// Returns the fence that comes now, if it is not delayed.
    pub(crate) fn fence(&mut self, fence: Completion) -> Option<Completion> {
        if self.fault != Some(Fault::LateFences) {
            return Some(fence);
        }
        self.delay(Delayed::Fence(fence));
        None
    }

    fn delay(&mut self, delayed: Delayed) {
        let at = self.frames.wrapping_add(DELAY_FRAMES);
        self.delayed.push_back((at, delayed));
    }

    /// Returns the next delayed effect that comes now.
    pub(crate) fn due(&mut self) -> Option<Delayed> {
        let (at, _) = self.delayed.front()?;
        let delays = matches!(self.fault, Some(Fault::EarlyFences | Fault::LateFences));
        // Numbers are modulo 2^32.
        if delays && self.frames.wrapping_sub(*at) >= 1 << 31 {
            return None;
        }
        self.delayed.pop_front().map(|(_, delayed)| delayed)
    }

    /// Forgets everything about a driver that is gone.
    pub(crate) fn forget(&mut self) {
        *self = Faults {
            fault: self.fault,
            ..Faults::default()
        };
    }

    /// Returns the queue to which a frame goes instead of its own, one of `queues`.
    pub(crate) fn redirect(&self, queue: u8, queues: u8) -> u8 {
        match self.fault {
            Some(Fault::WrongQueues) if self.frames.is_multiple_of(2) => (queue + 1) % queues.max(1),
            _ => queue,
        }
    }

    /// Changes the completion of a frame.
    pub(crate) fn distort(&mut self, completion: &mut Completion) {
        self.frames = self.frames.wrapping_add(1);
        let Some(fault) = self.fault else { return };
        let is_invalid = self.frames.is_multiple_of(INVALID_INTERVAL);
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
            Fault::WrongBuffers if is_invalid => completion.buffer = u16::MAX,
            Fault::WrongLengths if is_invalid => completion.length = u16::MAX,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faulty(fault: Fault) -> Faults {
        Faults {
            fault: Some(fault),
            ..Faults::default()
        }
    }

    fn write(row: u32) -> [u8; command::SIZE] {
        let action = Action {
            mark: 16 + row,
            ..Action::default()
        };
        let command = Command::WriteRow {
            way: 0,
            row,
            form: 1,
            action,
        };
        command.to_bytes(row)
    }

    fn clear(row: u32) -> [u8; command::SIZE] {
        Command::ClearRow { way: 0, row }.to_bytes(row)
    }

    fn status(faults: &mut Faults, bytes: &[u8; command::SIZE]) -> Option<Status> {
        faults.pretended(bytes).map(|completion| completion.status)
    }

    #[test]
    fn each_fault_has_a_name_of_its_own() {
        for (name, fault) in Fault::ALL {
            assert_eq!(Fault::from_name(name), Some(fault));
        }
        let all: std::collections::HashSet<Fault> = Fault::ALL.iter().map(|(_, fault)| *fault).collect();
        assert_eq!(all.len(), Fault::ALL.len());
    }

    #[test]
    fn a_device_with_few_rows_refuses_the_third_until_one_is_removed() {
        let mut few = faulty(Fault::FewRows);
        assert_eq!([write(1), write(2)].map(|row| status(&mut few, &row)), [None; 2]);
        assert_eq!(status(&mut few, &write(3)), Some(Status::Range));
        assert_eq!(status(&mut few, &clear(1)), None);
        assert_eq!(status(&mut few, &write(3)), None);
    }

    #[test]
    fn random_refusals_hit_every_third_entry() {
        let mut random = faulty(Fault::RandomRefusals);
        let refused = (0..9).filter(|row| status(&mut random, &write(*row)).is_some());
        assert_eq!(refused.collect::<Vec<_>>(), [2, 5, 8]);
    }

    #[test]
    fn a_device_that_refuses_removals_takes_entries() {
        let mut removals = faulty(Fault::RefusedRemovals);
        assert_eq!(status(&mut removals, &write(1)), None);
        assert_eq!(status(&mut removals, &clear(1)), Some(Status::Range));
    }

    #[test]
    fn a_slow_device_takes_one_command_in_its_number_of_polls() {
        let mut slow = faulty(Fault::SlowCommands);
        let taken: usize = (0..3 * SLOW_POLLS).map(|_| slow.commands_max(64)).sum();
        assert_eq!(taken, 3);
    }

    #[test]
    fn commands_for_rows_are_completed_twice_and_others_once() {
        let double = faulty(Fault::DoubleAnswers);
        assert!(double.answers_twice(&write(1)) && !double.answers_twice(&Command::Nop.to_bytes(1)));
    }

    #[test]
    fn a_device_that_ignores_a_field_marks_packets_that_differ_in_it_and_no_others() {
        let key = |name: &str, value| {
            let mut bytes = [0; key::SIZE];
            let fields = key::FIELDS.iter().filter(|field| field.name == name);
            fields.for_each(|field| field.write(&mut bytes, value));
            Key(core::array::from_fn(|word| {
                u64::from_le_bytes(core::array::from_fn(|byte| bytes[8 * word + byte]))
            }))
        };
        let marked = |fault, packet: Key| {
            let mut faults = faulty(fault);
            let whole = Command::stage(&Key([u64::MAX; key::WORDS]));
            let set = Command::SetMask {
                port: 0,
                bank: 0,
                form: 1,
            };
            for command in whole
                .iter()
                .chain([&set])
                .chain(&Command::stage(&key("eth_src", 7)))
            {
                assert_eq!(status(&mut faults, &command.to_bytes(0)), None);
            }
            assert_eq!(status(&mut faults, &write(1)), None);
            faults.mark_of(|| packet)
        };
        assert_eq!(marked(Fault::IgnoredSourceMac, key("eth_src", 9)), Some(17));
        assert_eq!(marked(Fault::IgnoredSourceMac, key("l4_src", 9)), None);
        assert_eq!(marked(Fault::IgnoredSourcePort, key("eth_src", 9)), None);
        let mut fragment = key("layers", layer::FRAGMENT_LATER.into());
        fragment.0[1] = 7;
        assert_eq!(marked(Fault::IgnoredFragments, fragment), Some(17));
        assert_eq!(marked(Fault::IgnoredSourcePort, fragment), None);
        assert_eq!(marked(Fault::WrongMarks, key("eth_src", 7)), None);
    }

    #[test]
    fn a_late_fence_comes_after_64_packets() {
        let mut completion = Completion::fence(7, 1);
        let mut late = faulty(Fault::LateFences);
        assert_eq!(late.fence(completion), None);
        (0..DELAY_FRAMES - 1).for_each(|_| late.distort(&mut completion));
        assert!(late.due().is_none());
        late.distort(&mut completion);
        assert!(matches!(late.due(), Some(Delayed::Fence(fence)) if fence.has(flag::FENCE)));
        assert!(late.due().is_none());
    }

    #[test]
    fn a_delayed_removal_comes_when_the_fault_ends() {
        let mut early = faulty(Fault::EarlyFences);
        assert_eq!(status(&mut early, &clear(4)), Some(Status::Ok));
        assert!(early.due().is_none());
        early.fault = None;
        assert!(matches!(early.due(), Some(Delayed::Command(bytes)) if bytes == clear(4)));
    }

    #[test]
    fn one_completion_in_512_is_invalid() {
        let buffers = |fault| {
            let mut faults = faulty(fault);
            let invalid = (0..1024).filter(|_| {
                let mut completion = Completion::fence(0, 0);
                faults.distort(&mut completion);
                completion.buffer == u16::MAX || completion.length == u16::MAX
            });
            invalid.count()
        };
        assert_eq!(
            [Fault::WrongBuffers, Fault::WrongLengths, Fault::LostMarks].map(buffers),
            [2, 2, 0]
        );
    }

    #[test]
    fn every_second_frame_goes_to_the_next_queue() {
        let mut queues = faulty(Fault::WrongQueues);
        let found = [0, 1, 2, 3].map(|_| {
            let queue = queues.redirect(3, 4);
            queues.distort(&mut Completion::fence(0, 0));
            queue
        });
        assert_eq!(found, [0, 3, 0, 3]);
    }
}
