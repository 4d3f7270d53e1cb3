//! Summaries of action lists: the part of a flow entry that most packets need, in sixteen bytes.
//!
//! A flow entry is one allocation that points to two more. In a large table, an access to each of these is a
//! cache miss. A packet that is only output, or gets new MAC addresses and is output, does not need the
//! entry: the summary of the entry is in an array, by slot.
//!
//! ```text
//! byte   0      1       2      4                10               16
//!        +------+-------+------+----------------+----------------+
//!        | kind | flags | port | eth_dst        | eth_src        |   Output, Drop
//!        |      |       | port | rewrite index  |                |   Rewrite
//!        |      |       | table|                |                |   Goto
//!        +------+-------+------+----------------+----------------+
//! ```

use millrace_flow::{Action, Field, SetField};
use millrace_types::{Mac, PortNo, TableId};

use crate::FlowEntry;

/// The treatment of a packet that matches an entry, if its action set is empty and it has no queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Kind {
    /// The slot has no entry.
    Vacant,
    /// The packet is dropped.
    Drop,
    /// The packet gets the MAC addresses of the summary, if any, and is output to the summary's port, an ordinary one.
    Output,
    /// The packet gets the rewrite of the summary and is output to the summary's port. A packet to which the
    /// rewrite does not apply is handled as for [`Kind::Change`].
    Rewrite,
    /// All actions of the entry but the last change the packet; the last outputs it to an ordinary port.
    Change,
    /// The packet goes to the table of the summary, and the entry does nothing else.
    Goto,
    /// The instructions of the entry must be executed.
    Run,
}

/// The set of the kinds of a burst's summaries.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Kinds(u32);

impl Kinds {
    const fn of(kind: Kind) -> u32 {
        1 << kind as u32
    }

    /// Adds a kind.
    #[inline(always)]
    pub(crate) fn add(&mut self, kind: Kind) {
        self.0 |= Kinds::of(kind);
    }

    /// Returns true if there is no other kind.
    #[inline(always)]
    pub(crate) fn are_all(self, kind: Kind) -> bool {
        self.0 & !Kinds::of(kind) == 0
    }

    /// Returns true if every packet leaves through a port of its summary, perhaps rewritten.
    #[inline(always)]
    pub(crate) fn all_leave(self) -> bool {
        self.0 & !(Kinds::of(Kind::Output) | Kinds::of(Kind::Rewrite)) == 0
    }

    /// Returns true if the set has this kind.
    #[inline(always)]
    pub(crate) fn has(self, kind: Kind) -> bool {
        self.0 & Kinds::of(kind) != 0
    }

    /// Returns true if some entry must be read.
    #[inline(always)]
    pub(crate) fn need_entries(self) -> bool {
        self.has(Kind::Change) || self.has(Kind::Run)
    }
}

/// The summary of one entry, as drawn above. The alignment keeps it within one cache line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(align(16))]
pub(crate) struct ActionSummary {
    kind: Kind,
    flags: u8,
    /// The output port, or the table of [`Kind::Goto`].
    port: u16,
    eth_dst: [u8; 6],
    eth_src: [u8; 6],
}

const SETS_DST: u8 = 1 << 0;
const SETS_SRC: u8 = 1 << 1;
const IS_NO_MATCH: u8 = 1 << 2;

impl ActionSummary {
    /// The summary of a slot without an entry.
    pub(crate) const VACANT: ActionSummary = ActionSummary {
        kind: Kind::Vacant,
        flags: IS_NO_MATCH,
        port: 0,
        eth_dst: [0; 6],
        eth_src: [0; 6],
    };

    /// Returns the summary of an entry.
    pub(crate) fn of(entry: &FlowEntry) -> ActionSummary {
        let mut summary = ActionSummary {
            kind: Kind::Run,
            flags: if entry.is_table_miss() { IS_NO_MATCH } else { 0 },
            ..ActionSummary::VACANT
        };
        if entry.meter().is_some() {
            return summary;
        }
        if let Some(table) = entry.goto_table() {
            let does_more = entry.clears_actions() || entry.write_metadata().is_some();
            if !does_more && entry.actions().is_empty() {
                summary.kind = Kind::Goto;
                summary.port = table.0.into();
            }
            return summary;
        }
        match entry.actions() {
            [] => summary.kind = Kind::Drop,
            // An action set is executed in an order of its own (OpenFlow 1.3.5, section 5.10), so only one action may
            // be written.
            [changes @ .., Action::Output { port, .. }]
                if port.is_ordinary()
                    && (changes.is_empty() || entry.write_actions().is_empty())
                    && changes.iter().all(Action::changes_packet) =>
            {
                summary.kind = Kind::Change;
                if let Ok(port) = u16::try_from(port.raw())
                    && changes.iter().all(|change| summary.note(change))
                {
                    summary.kind = Kind::Output;
                    summary.port = port;
                }
            }
            _ => {}
        }
        summary
    }

    /// Returns the summary of an entry without actions, which drops packets.
    pub(crate) fn drop() -> ActionSummary {
        ActionSummary {
            kind: Kind::Drop,
            flags: 0,
            ..ActionSummary::VACANT
        }
    }

    /// Sets the kind to [`Kind::Output`] with an ordinary port.
    pub(crate) fn output(&mut self, port: u16) {
        self.kind = Kind::Output;
        self.port = port;
    }

    /// Replaces the changes of a [`Kind::Change`] by the rewrite with this index.
    pub(crate) fn set_rewrite(&mut self, index: u32, port: u16) {
        self.kind = Kind::Rewrite;
        self.port = port;
        let [a, b, c, d] = index.to_le_bytes();
        self.eth_dst = [a, b, c, d, 0, 0];
        self.eth_src = [0; 6];
        self.flags &= IS_NO_MATCH;
    }

    /// Returns the index of the rewrite of [`Kind::Rewrite`].
    #[inline(always)]
    pub(crate) fn rewrite_index(&self) -> u32 {
        let [a, b, c, d, ..] = self.eth_dst;
        u32::from_le_bytes([a, b, c, d])
    }

    /// Returns the summary as two words.
    pub(crate) fn words(&self) -> [u64; 2] {
        let [p, q] = self.port.to_le_bytes();
        let [a, b, c, d, e, f] = self.eth_dst;
        let [g, h, i, j, k, l] = self.eth_src;
        [
            u64::from_le_bytes([self.kind as u8, self.flags, p, q, a, b, c, d]),
            u64::from_le_bytes([e, f, g, h, i, j, k, l]),
        ]
    }

    /// Returns the summary from the result of [`ActionSummary::words`]. The summary must be of
    /// [`Kind::Drop`], [`Kind::Output`] or [`Kind::Rewrite`].
    #[inline(always)]
    pub(crate) fn from_words([low, high]: [u64; 2]) -> ActionSummary {
        let [kind, flags, p, q, a, b, c, d] = low.to_le_bytes();
        let [e, f, g, h, i, j, k, l] = high.to_le_bytes();
        ActionSummary {
            kind: match kind {
                kind if kind == Kind::Output as u8 => Kind::Output,
                kind if kind == Kind::Rewrite as u8 => Kind::Rewrite,
                _ => Kind::Drop,
            },
            flags,
            port: u16::from_le_bytes([p, q]),
            eth_dst: [a, b, c, d, e, f],
            eth_src: [g, h, i, j, k, l],
        }
    }

    /// Adds a change of the packet. Returns false if the summary cannot express it.
    pub(crate) fn note(&mut self, change: &Action) -> bool {
        let Action::SetField(set) = change else {
            return false;
        };
        self.note_field(*set)
    }

    fn note_field(&mut self, set: SetField) -> bool {
        let mac = Mac::from_u64(set.value() as u64).0;
        match set.field() {
            Field::EthDst => (self.eth_dst, self.flags) = (mac, self.flags | SETS_DST),
            Field::EthSrc => (self.eth_src, self.flags) = (mac, self.flags | SETS_SRC),
            _ => return false,
        }
        true
    }

    /// Returns the kind.
    #[inline(always)]
    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns true if the entry must be read.
    #[inline(always)]
    pub(crate) fn needs_entry(&self) -> bool {
        matches!(self.kind, Kind::Change | Kind::Run)
    }

    /// Returns true if a packet that meets the entry counts as matched: table-miss entries do not count (OpenFlow
    /// 1.3.5, section 5.4).
    #[inline(always)]
    pub(crate) fn is_match(&self) -> bool {
        self.flags & IS_NO_MATCH == 0
    }

    /// Returns the port of [`Kind::Output`] and [`Kind::Rewrite`].
    #[inline(always)]
    pub(crate) fn port(&self) -> PortNo {
        PortNo::from_raw(self.port.into())
    }

    /// Returns the table of [`Kind::Goto`].
    #[inline(always)]
    pub(crate) fn table(&self) -> TableId {
        TableId(self.port as u8)
    }

    /// Returns true if the summary sets MAC addresses.
    #[inline(always)]
    pub(crate) fn rewrites(&self) -> bool {
        self.flags & (SETS_DST | SETS_SRC) != 0
    }

    /// Writes the MAC addresses into a packet, if it has a whole Ethernet header.
    #[inline(always)]
    pub(crate) fn rewrite(&self, head: &mut [u8]) {
        let Some(header) = head.first_chunk_mut::<{ millrace_wire::ethernet::SIZE }>() else {
            return;
        };
        if self.flags & SETS_DST != 0 {
            header[..6].copy_from_slice(&self.eth_dst);
        }
        if self.flags & SETS_SRC != 0 {
            header[6..12].copy_from_slice(&self.eth_src);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FlowEntryParts;
    use millrace_flow::{Instructions, Match, WriteMetadata};
    use millrace_types::{GroupId, Priority, QueueId};

    fn summary_at(priority: u16, instructions: Instructions) -> ActionSummary {
        ActionSummary::of(&FlowEntry::new(FlowEntryParts {
            priority: Priority(priority),
            instructions,
            ..FlowEntryParts::default()
        }))
    }

    fn summary(instructions: Instructions) -> ActionSummary {
        summary_at(1, instructions)
    }

    fn set(field: Field, value: u128) -> Action {
        Action::SetField(SetField::new(field, value).unwrap())
    }

    #[test]
    fn an_action_summary_takes_a_quarter_of_a_cache_line() {
        assert_eq!(
            (size_of::<ActionSummary>(), align_of::<ActionSummary>()),
            (16, 16)
        );
    }

    #[test]
    fn a_single_output_is_a_short_cut_whichever_list_it_is_in() {
        let port = PortNo::from_raw(7);
        let output: Box<[Action]> = [Action::output(port)].into();
        let write = Instructions {
            write_actions: Some(output.clone()),
            ..Instructions::default()
        };
        for instructions in [Instructions::apply(output.clone()), write] {
            let summary = summary(instructions);
            assert_eq!((summary.kind(), summary.port()), (Kind::Output, port));
        }
        let goes_on = Instructions {
            apply_actions: Some(output),
            ..Instructions::goto(TableId(1))
        };
        assert_eq!(summary(goes_on).kind(), Kind::Run);
        assert_eq!(summary(Instructions::default()).kind(), Kind::Drop);
        let normal = Instructions::apply([Action::output(PortNo::NORMAL)]);
        assert_eq!(summary(normal).kind(), Kind::Run);
        let far = Instructions::apply([Action::output(PortNo::from_raw(70_000))]);
        assert_eq!(summary(far).kind(), Kind::Change);
    }

    #[test]
    fn changes_and_then_one_output_are_a_short_cut_where_they_are_applied() {
        let output = Action::output(PortNo::from_raw(7));
        let changes = [Action::DecNwTtl, Action::PopVlan, output];
        assert_eq!(summary(Instructions::apply(changes)).kind(), Kind::Change);
        let write = Instructions {
            write_actions: Some(changes.into()),
            ..Instructions::default()
        };
        assert_eq!(summary(write).kind(), Kind::Run);
        for actions in [
            vec![output, Action::PopVlan],
            vec![output, output],
            vec![Action::SetQueue(QueueId(1)), output],
            vec![Action::Group(GroupId(1)), output],
            vec![Action::PopVlan, Action::output(PortNo::IN_PORT)],
        ] {
            assert_eq!(summary(Instructions::apply(actions)).kind(), Kind::Run);
        }
    }

    #[test]
    fn mac_addresses_are_in_the_summary_and_the_last_one_counts() {
        let output = Action::output(PortNo::from_raw(7));
        let mut head = [9; 20];
        summary(Instructions::apply([output])).rewrite(&mut head);
        assert_eq!(head, [9; 20]);
        let both = summary(Instructions::apply([
            set(Field::EthDst, 5),
            set(Field::EthSrc, 2),
            set(Field::EthDst, 1),
            output,
        ]));
        assert_eq!(both.kind(), Kind::Output);
        both.rewrite(&mut head);
        assert_eq!(head[..14], [0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 2, 9, 9]);
        let mut short = [9; 13];
        both.rewrite(&mut short);
        assert_eq!(short, [9; 13]);
        let more = Instructions::apply([set(Field::EthDst, 1), Action::DecNwTtl, output]);
        assert_eq!(summary(more).kind(), Kind::Change);
    }

    #[test]
    fn only_a_bare_goto_is_a_short_cut() {
        let bare = summary(Instructions::goto(TableId(200)));
        assert_eq!((bare.kind(), bare.table()), (Kind::Goto, TableId(200)));
        let with_metadata = Instructions {
            write_metadata: Some(WriteMetadata { value: 1, mask: 1 }),
            ..Instructions::goto(TableId(2))
        };
        assert_eq!(summary(with_metadata).kind(), Kind::Run);
        let clearing = Instructions {
            clear_actions: true,
            ..Instructions::goto(TableId(2))
        };
        assert_eq!(summary(clearing).kind(), Kind::Run);
    }

    #[test]
    fn a_table_miss_entry_is_known_as_one() {
        let output = Instructions::apply([Action::output(PortNo::from_raw(7))]);
        assert!(!summary_at(0, output.clone()).is_match());
        assert!(summary_at(1, output).is_match());
        assert!(!ActionSummary::VACANT.is_match());
        assert!(Match::any().is_any());
    }
}
