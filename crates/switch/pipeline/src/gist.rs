//! What most packets need to know of their flow entry, in sixteen bytes.
//!
//! An entry is an allocation of its own with two more behind it. With many entries each of these is a visit to
//! far memory, and a packet that only leaves by a port, or gets new MAC addresses and leaves, need not make it:
//! the gist of its entry stands in an array, by slot, and tells all.

use millrace_flow::{Action, Field, SetField};
use millrace_types::{Mac, PortNo, TableId};

use crate::FlowEntry;

/// What is to be done with a packet that matched, if its action set is empty and no queue was chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Kind {
    /// There is no entry.
    Vacant,
    /// Nothing: it is dropped.
    Drop,
    /// It gets the MAC addresses of the gist, if there are any, and leaves through the port of the gist, which is
    /// an ordinary one.
    Output,
    /// It gets the rewrite of the gist, and leaves through the port of the gist. Packets that the rewrite does not
    /// take are handled as for [`Kind::Change`].
    Rewrite,
    /// The actions of the entry before the last change it, and then it leaves through one ordinary port, that of the
    /// last action.
    Change,
    /// It goes on to the table of the gist, and that is all.
    Goto,
    /// Whatever the entry says.
    Run,
}

/// The kinds of some gists.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Kinds(u32);

impl Kinds {
    const fn of(kind: Kind) -> u32 {
        1 << kind as u32
    }

    /// Adds one.
    #[inline(always)]
    pub(crate) fn add(&mut self, kind: Kind) {
        self.0 |= Kinds::of(kind);
    }

    /// Returns whether there is no other kind.
    #[inline(always)]
    pub(crate) fn are_all(self, kind: Kind) -> bool {
        self.0 & !Kinds::of(kind) == 0
    }

    /// Returns whether every packet leaves through a port of its gist, perhaps rewritten.
    #[inline(always)]
    pub(crate) fn all_leave(self) -> bool {
        self.0 & !(Kinds::of(Kind::Output) | Kinds::of(Kind::Rewrite)) == 0
    }

    /// Whether there is this kind.
    #[inline(always)]
    pub(crate) fn has(self, kind: Kind) -> bool {
        self.0 & Kinds::of(kind) != 0
    }

    /// Whether one of the entries must be looked at.
    #[inline(always)]
    pub(crate) fn need_entries(self) -> bool {
        self.has(Kind::Change) || self.has(Kind::Run)
    }
}

/// See the beginning of this file. Aligned, so that it never lies across two cache lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(align(16))]
pub(crate) struct Gist {
    kind: Kind,
    flags: u8,
    /// Or table.
    port: u16,
    eth_dst: [u8; 6],
    eth_src: [u8; 6],
}

const SETS_DST: u8 = 1 << 0;
const SETS_SRC: u8 = 1 << 1;
const IS_NO_MATCH: u8 = 1 << 2;

impl Gist {
    /// That of no entry.
    pub(crate) const VACANT: Gist = Gist {
        kind: Kind::Vacant,
        flags: IS_NO_MATCH,
        port: 0,
        eth_dst: [0; 6],
        eth_src: [0; 6],
    };

    /// The gist of an entry.
    pub(crate) fn of(entry: &FlowEntry) -> Gist {
        let mut gist = Gist {
            kind: Kind::Run,
            flags: if entry.is_table_miss() { IS_NO_MATCH } else { 0 },
            ..Gist::VACANT
        };
        if entry.meter().is_some() {
            return gist;
        }
        if let Some(table) = entry.goto_table() {
            let does_more = entry.clears_actions() || entry.write_metadata().is_some();
            if !does_more && entry.actions().is_empty() {
                gist.kind = Kind::Goto;
                gist.port = table.0.into();
            }
            return gist;
        }
        match entry.actions() {
            [] => gist.kind = Kind::Drop,
            // Written actions are executed in another order than they are written in, if there are several.
            [changes @ .., Action::Output { port, .. }]
                if port.is_ordinary()
                    && (changes.is_empty() || entry.write_actions().is_empty())
                    && changes.iter().all(Action::changes_packet) =>
            {
                gist.kind = Kind::Change;
                if let Ok(port) = u16::try_from(port.raw())
                    && changes.iter().all(|change| gist.note(change))
                {
                    gist.kind = Kind::Output;
                    gist.port = port;
                }
            }
            _ => {}
        }
        gist
    }

    /// That of an entry that does nothing: the packet is dropped.
    pub(crate) fn drop() -> Gist {
        Gist {
            kind: Kind::Drop,
            flags: 0,
            ..Gist::VACANT
        }
    }

    /// Has the packet leave through an ordinary port.
    pub(crate) fn output(&mut self, port: u16) {
        self.kind = Kind::Output;
        self.port = port;
    }

    /// Replaces the changes of a [`Kind::Change`] by the rewrite of this index.
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

    /// All of it.
    pub(crate) fn words(&self) -> [u64; 2] {
        let [p, q] = self.port.to_le_bytes();
        let [a, b, c, d, e, f] = self.eth_dst;
        let [g, h, i, j, k, l] = self.eth_src;
        [
            u64::from_le_bytes([self.kind as u8, self.flags, p, q, a, b, c, d]),
            u64::from_le_bytes([e, f, g, h, i, j, k, l]),
        ]
    }

    /// Returns the gist of [`Gist::words`], if its kind is [`Kind::Drop`], [`Kind::Output`] or [`Kind::Rewrite`].
    #[inline(always)]
    pub(crate) fn from_words([low, high]: [u64; 2]) -> Gist {
        let [kind, flags, p, q, a, b, c, d] = low.to_le_bytes();
        let [e, f, g, h, i, j, k, l] = high.to_le_bytes();
        Gist {
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

    /// Notes a change, if it is one that has a place here.
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

    /// What to do.
    #[inline(always)]
    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    /// Whether the entry must be looked at.
    #[inline(always)]
    pub(crate) fn needs_entry(&self) -> bool {
        matches!(self.kind, Kind::Change | Kind::Run)
    }

    /// Whether a packet that meets the entry counts as matched: section 5.4 does not count table-miss entries.
    #[inline(always)]
    pub(crate) fn is_match(&self) -> bool {
        self.flags & IS_NO_MATCH == 0
    }

    /// The port of [`Kind::Output`].
    #[inline(always)]
    pub(crate) fn port(&self) -> PortNo {
        PortNo::from_raw(self.port.into())
    }

    /// The table of [`Kind::Goto`].
    #[inline(always)]
    pub(crate) fn table(&self) -> TableId {
        TableId(self.port as u8)
    }

    /// Whether there are MAC addresses to be written.
    #[inline(always)]
    pub(crate) fn rewrites(&self) -> bool {
        self.flags & (SETS_DST | SETS_SRC) != 0
    }

    /// Writes the MAC addresses into a packet that has a whole Ethernet header.
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
    use millrace_flow::{Instructions, Match};
    use millrace_types::{GroupId, Priority, QueueId};

    fn gist_at(priority: u16, instructions: Instructions) -> Gist {
        Gist::of(&FlowEntry::new(FlowEntryParts {
            priority: Priority(priority),
            instructions,
            ..FlowEntryParts::default()
        }))
    }

    fn gist(instructions: Instructions) -> Gist {
        gist_at(1, instructions)
    }

    fn set(field: Field, value: u128) -> Action {
        Action::SetField(SetField::new(field, value).unwrap())
    }

    #[test]
    fn a_gist_takes_a_quarter_of_a_cache_line() {
        assert_eq!((size_of::<Gist>(), align_of::<Gist>()), (16, 16));
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
            let gist = gist(instructions);
            assert_eq!((gist.kind(), gist.port()), (Kind::Output, port));
        }
        let goes_on = Instructions {
            apply_actions: Some(output),
            ..Instructions::goto(TableId(1))
        };
        assert_eq!(gist(goes_on).kind(), Kind::Run);
        assert_eq!(gist(Instructions::default()).kind(), Kind::Drop);
        let normal = Instructions::apply([Action::output(PortNo::NORMAL)]);
        assert_eq!(gist(normal).kind(), Kind::Run);
        let far = Instructions::apply([Action::output(PortNo::from_raw(70_000))]);
        assert_eq!(gist(far).kind(), Kind::Change);
    }

    #[test]
    fn changes_and_then_one_output_are_a_short_cut_where_they_are_applied() {
        let output = Action::output(PortNo::from_raw(7));
        let changes = [Action::DecNwTtl, Action::PopVlan, output];
        assert_eq!(gist(Instructions::apply(changes)).kind(), Kind::Change);
        let write = Instructions {
            write_actions: Some(changes.into()),
            ..Instructions::default()
        };
        assert_eq!(gist(write).kind(), Kind::Run);
        for actions in [
            vec![output, Action::PopVlan],
            vec![output, output],
            vec![Action::SetQueue(QueueId(1)), output],
            vec![Action::Group(GroupId(1)), output],
            vec![Action::PopVlan, Action::output(PortNo::IN_PORT)],
        ] {
            assert_eq!(gist(Instructions::apply(actions)).kind(), Kind::Run);
        }
    }

    #[test]
    fn mac_addresses_are_in_the_gist_and_the_last_one_counts() {
        let output = Action::output(PortNo::from_raw(7));
        let mut head = [9; 20];
        gist(Instructions::apply([output])).rewrite(&mut head);
        assert_eq!(head, [9; 20]);
        let both = gist(Instructions::apply([
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
        assert_eq!(gist(more).kind(), Kind::Change);
    }

    #[test]
    fn only_a_bare_goto_is_a_short_cut() {
        let bare = gist(Instructions::goto(TableId(200)));
        assert_eq!((bare.kind(), bare.table()), (Kind::Goto, TableId(200)));
        let with_metadata = Instructions {
            write_metadata: Some((1, 1)),
            ..Instructions::goto(TableId(2))
        };
        assert_eq!(gist(with_metadata).kind(), Kind::Run);
        let clearing = Instructions {
            clear_actions: true,
            ..Instructions::goto(TableId(2))
        };
        assert_eq!(gist(clearing).kind(), Kind::Run);
    }

    #[test]
    fn a_table_miss_entry_is_known_as_one() {
        let output = Instructions::apply([Action::output(PortNo::from_raw(7))]);
        assert!(!gist_at(0, output.clone()).is_match());
        assert!(gist_at(1, output).is_match());
        assert!(!Gist::VACANT.is_match());
        assert!(Match::any().is_any());
    }
}
