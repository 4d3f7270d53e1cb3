//! Cached traversals of the pipeline: the entries that a packet meets in all tables, and their combined actions.
//!
//! The entries that a packet meets follow from its key, unless an earlier action uncovers fields that the key
//! does not have (a popped label, a changed protocol). Traversals with such actions are not cached. The
//! fields of a pushed VLAN tag follow from the key. A popped VLAN tag uncovers no other if the packet has
//! only one tag.

use millrace_flow::classify::{KEPT_MAX, Slot};
use millrace_flow::{Action, Field};
use millrace_types::{PortNo, Vid};
use millrace_wire::rewrite::{self, TtlOffset};
use millrace_wire::{EtherType, Packet, ethernet, vlan};

use super::header::{Effect, pop_tag, push_vlan};
use crate::FlowEntry;
use crate::action_summary::{ActionSummary, Kind};

/// The maximum number of entries in one traversal.
pub(crate) const STEPS_MAX: usize = 2 * (KEPT_MAX - HEAD);

/// The number of words before the slots.
const HEAD: usize = 3;

/// Returns the number of words that a traversal of this many tables takes.
pub(crate) fn words(tables: usize) -> usize {
    HEAD + tables.clamp(1, STEPS_MAX).div_ceil(2)
}

/// Returns the maximum number of entries in a traversal that takes this many words.
pub(crate) fn steps(words: usize) -> usize {
    2 * words.saturating_sub(HEAD)
}

/// The size of a VLAN tag, bytes.
const TAG_SIZE: i64 = vlan::SIZE as i64;

/// Flag: set the VLAN identifier, if there is a tag.
const SETS_VID: u8 = 1 << 0;
/// Flag: decrement the TTL or hop limit, which must be more than one.
const DEC_TTL: u8 = 1 << 1;
/// Flag: the actions cannot be combined; the entries are executed one after the other.
const REPLAY: u8 = 1 << 2;
/// Flag: push a VLAN tag, before its identifier is set.
const PUSHES_TAG: u8 = 1 << 3;
/// Flag: the pushed tag is a service tag (0x88a8) instead of a customer tag (0x8100).
const IS_SERVICE: u8 = 1 << 4;
/// Flag: pop the outermost VLAN tag, if there is one.
const POPS_TAG: u8 = 1 << 5;

/// Flag: the traversal is valid for packets with exactly one VLAN tag.
const ONE_TAG: u8 = 1 << 6;
/// Flag: the key alone does not decide if the traversal applies; [`Traversal::holds_for`] does.
const DEPENDS: u8 = 1 << 7;

/// The steps of a traversal, one bit each, that count a packet with another size than it had on arrival.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct SizeChanges {
    /// Steps at which the packet has a tag that an earlier step pushed.
    longer: u32,
    /// Steps at which the packet lacks a tag that an earlier step popped.
    shorter: u32,
}

/// Shift of the two bits beside a slot that hold the difference in tags: 0, 1 or -1.
const TAGS_SHIFT: u32 = 30;

/// The combined actions of the entries of a traversal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CombinedActions {
    /// The kind is [`Kind::Output`], [`Kind::Drop`] or [`Kind::Rewrite`].
    pub(crate) summary: ActionSummary,
    vid: u16,
    flags: u8,
}

/// A traversal as the words of a cache entry.
///
/// ```text
/// word 0, 1   the action summary
/// word 2      63                36 35     24 23   16 15    8 7          0
///            +--------------------+---------+-------+-------+------------+
///            | epoch of tables    | VLAN id | flags |tables | entries    |
///            +--------------------+---------+-------+-------+------------+
/// word 3...   two slots of 30 bits, each below 2 bits of difference in tags
/// ```
#[derive(Clone, Copy, Debug)]
pub(crate) struct Traversal<'a>(pub(crate) &'a [u64; KEPT_MAX]);

const TABLES_SHIFT: u32 = 8;
const FLAGS_SHIFT: u32 = 16;
const VID_SHIFT: u32 = 24;
const EPOCH_SHIFT: u32 = 36;

/// The number of epochs that a traversal can tell apart.
pub(crate) const EPOCHS: u64 = 1 << (u64::BITS - EPOCH_SHIFT);

impl<'a> Traversal<'a> {
    /// Returns the words of a traversal. `sequence` is the index of its table sequence, and `epoch`
    /// the epoch of that sequence.
    pub(crate) fn encode(
        (combined, lengths): &(CombinedActions, SizeChanges),
        (sequence, epoch): (u8, u64),
        slots: &[Slot],
    ) -> [u64; KEPT_MAX] {
        let mut words = [0; KEPT_MAX];
        [words[0], words[1]] = combined.summary.words();
        words[2] = slots.len().min(STEPS_MAX) as u64
            | u64::from(sequence) << TABLES_SHIFT
            | u64::from(combined.flags) << FLAGS_SHIFT
            | u64::from(combined.vid & 0xfff) << VID_SHIFT
            | epoch << EPOCH_SHIFT;
        for (i, slot) in slots.iter().take(STEPS_MAX).enumerate() {
            let is_in = |steps: u32| (steps >> i & 1) as i32;
            let tags = is_in(lengths.longer) - is_in(lengths.shorter);
            let half = slot.index() as u32 | (tags << TAGS_SHIFT) as u32;
            words[HEAD + i / 2] |= u64::from(half) << (32 * (i % 2));
        }
        words
    }

    /// Returns the combined actions.
    #[inline(always)]
    pub(crate) fn combined_actions(self) -> CombinedActions {
        CombinedActions {
            summary: ActionSummary::from_words([self.0[0], self.0[1]]),
            vid: (self.0[2] >> VID_SHIFT) as u16 & 0xfff,
            flags: self.flags(),
        }
    }

    #[inline(always)]
    fn flags(self) -> u8 {
        (self.0[2] >> FLAGS_SHIFT) as u8
    }

    /// Returns the epoch that its table sequence had when the traversal was recorded.
    #[inline(always)]
    pub(crate) fn epoch(self) -> u64 {
        self.0[2] >> EPOCH_SHIFT
    }

    /// Returns the index of the table sequence of the traversal.
    #[inline(always)]
    pub(crate) fn table_sequence(self) -> u8 {
        (self.0[2] >> TABLES_SHIFT) as u8
    }

    /// Returns true if the entries must be executed one after the other.
    #[inline(always)]
    pub(crate) fn is_replayed(self) -> bool {
        self.flags() & REPLAY != 0
    }

    /// Returns true if the key alone does not decide if the traversal holds for a packet; see
    /// [`Traversal::holds_for`].
    #[inline(always)]
    pub(crate) fn depends(self) -> bool {
        self.flags() & DEPENDS != 0
    }

    /// Returns true if the traversal holds for a packet that has its key, and its combined actions can be
    /// applied. An action that decrements a TTL needs a TTL of more than one.
    #[inline(always)]
    pub(crate) fn holds_for(self, head: &[u8], is_ip: bool) -> bool {
        let flags = self.flags();
        let decrements = flags & (DEC_TTL | REPLAY) == DEC_TTL;
        (!decrements || is_ip && TtlOffset::find(head).is_some())
            && (flags & ONE_TAG == 0 || has_one_tag(head))
    }

    /// Returns the number of entries.
    #[inline(always)]
    pub(crate) fn len(self) -> usize {
        (self.0[2] & 0xff) as usize
    }

    /// Returns the kind of the combined actions; [`Kind::Run`] where the loop over the whole burst does not apply
    /// them.
    #[inline(always)]
    pub(crate) fn kind(self) -> Kind {
        let kind = self.combined_actions().summary.kind();
        if self.flags() & (REPLAY | PUSHES_TAG | POPS_TAG) != 0 || kind == Kind::Rewrite {
            Kind::Run
        } else {
            kind
        }
    }

    /// Calls `visit` for each entry but the first, with the bytes that the entry counts for a packet of
    /// `size` bytes.
    #[inline(always)]
    pub(crate) fn each_after_first(self, size: u64, mut visit: impl FnMut(Slot, u64)) {
        (1..self.len()).for_each(|step| {
            let tags = self.half(step) as i32 >> TAGS_SHIFT;
            visit(
                self.slot(step),
                size.wrapping_add_signed(i64::from(tags) * TAG_SIZE),
            );
        });
    }

    /// Returns the slot of an entry.
    #[inline(always)]
    pub(crate) fn slot(self, step: usize) -> Slot {
        Slot::new(self.half(step) & !(u32::MAX << TAGS_SHIFT))
    }

    #[inline(always)]
    fn half(self, step: usize) -> u32 {
        let word = self.0[(HEAD + step / 2) % KEPT_MAX];
        (word >> (32 * (step % 2))) as u32
    }
}

impl CombinedActions {
    /// Returns the combined actions of entries that a packet meets in this order; `None` if the traversal cannot be
    /// cached.
    pub(crate) fn of(entries: &[&FlowEntry]) -> Option<(CombinedActions, SizeChanges)> {
        let mut combined = CombinedActions {
            summary: ActionSummary::drop(),
            vid: 0,
            flags: 0,
        };
        let mut written = None;
        let (mut tags, mut lengths) = (Tags::AsTheyCame, SizeChanges::default());
        let (last, before) = entries.split_last()?;
        for (step, entry) in before.iter().enumerate() {
            entry.goto_table()?;
            let mut actions = entry.apply_actions().iter();
            // A meter may remark a packet, and later tables match the result.
            if entry.meter().is_some() || actions.any(|action| makes_key_unknown(action, &mut tags)) {
                return None;
            }
            lengths.longer |= u32::from(tags == Tags::Pushed) << (step + 1);
            lengths.shorter |= u32::from(tags == Tags::Popped) << (step + 1);
            combined.add(entry, entry.apply_actions(), &mut written);
        }
        if last.goto_table().is_some() {
            return None;
        }
        let (changes, output) = match last.apply_actions() {
            [changes @ .., Action::Output { port, .. }] => (changes, Some(*port)),
            changes => (changes, None),
        };
        combined.add(last, changes, &mut written);
        match (output, written) {
            (None, None) => {}
            (Some(port), None) | (None, Some(port)) => match u16::try_from(port.raw()) {
                Ok(number) if port.is_ordinary() => combined.summary.output(number),
                _ => combined.flags |= REPLAY,
            },
            (Some(_), Some(_)) => combined.flags |= REPLAY,
        }
        if lengths.shorter != 0 {
            combined.flags |= ONE_TAG;
        }
        if lengths.shorter != 0 || combined.flags & (DEC_TTL | REPLAY) == DEC_TTL {
            combined.flags |= DEPENDS;
        }
        Some((combined, lengths))
    }

    /// Returns the rewrite of the last entry if these actions would be replayed, its summary is a [`Kind::Rewrite`], and the
    /// earlier entries have neither actions nor a meter; otherwise returns these combined actions unchanged. Combined
    /// actions lie in the traversal itself, a rewrite in a cache line of its own, which is cold if there are many entries.
    pub(crate) fn with_last(self, entries: &[&FlowEntry], summary: ActionSummary) -> CombinedActions {
        let is_idle = |entry: &&FlowEntry| entry.actions().is_empty() && entry.meter().is_none();
        match entries.split_last() {
            Some((_, before))
                if self.flags & REPLAY != 0
                    && summary.kind() == Kind::Rewrite
                    && before.iter().all(is_idle) =>
            {
                CombinedActions {
                    summary,
                    vid: 0,
                    flags: 0,
                }
            }
            _ => self,
        }
    }

    /// Returns true if the traversal may be cached: a traversal that is valid only for packets with exactly one VLAN
    /// tag must have been recorded for such a packet (`has_one_tag`).
    pub(crate) fn is_for(&self, has_one_tag: bool) -> bool {
        self.flags & ONE_TAG == 0 || has_one_tag
    }

    fn add(&mut self, entry: &FlowEntry, changes: &[Action], written: &mut Option<PortNo>) {
        if entry.meter().is_some() {
            self.flags |= REPLAY;
        }
        for change in changes {
            match change {
                Action::SetField(set) if set.field() == Field::VlanVid && self.flags & POPS_TAG == 0 => {
                    self.vid = Vid::from_tci(set.value() as u16).raw();
                    self.flags |= SETS_VID;
                }
                Action::PushVlan(ether_type) => self.push_tag(*ether_type),
                Action::PopVlan => self.pop_tag(),
                Action::DecNwTtl if self.flags & DEC_TTL == 0 => self.flags |= DEC_TTL,
                change if self.summary.note(change) => {}
                _ => self.flags |= REPLAY,
            }
        }
        if entry.clears_actions() {
            *written = None;
        }
        for action in entry.write_actions() {
            match action {
                Action::Output { port, .. } => *written = Some(*port),
                _ => self.flags |= REPLAY,
            }
        }
    }

    fn push_tag(&mut self, ether_type: EtherType) {
        // push_vlan copies the outermost tag, which here was changed or uncovered.
        if self.flags & (SETS_VID | PUSHES_TAG | POPS_TAG) != 0 {
            self.flags |= REPLAY;
            return;
        }
        match ether_type {
            EtherType::VLAN => self.flags |= PUSHES_TAG,
            EtherType::QINQ => self.flags |= PUSHES_TAG | IS_SERVICE,
            _ => self.flags |= REPLAY,
        }
    }

    fn pop_tag(&mut self) {
        if self.flags & POPS_TAG != 0 {
            self.flags |= REPLAY;
        } else if self.flags & PUSHES_TAG != 0 {
            self.flags &= !(PUSHES_TAG | IS_SERVICE | SETS_VID);
        } else {
            self.flags = self.flags & !SETS_VID | POPS_TAG;
        }
    }

    /// Applies the combined actions to a packet, except for the output and for [`CombinedActions::change_tags`], which follows.
    /// If a TTL is decremented, [`TtlOffset::find`] has found it.
    #[inline(always)]
    pub(crate) fn apply(&self, head: &mut [u8]) {
        if self.flags != 0 {
            if self.flags & DEC_TTL != 0
                && let Some(ttl) = TtlOffset::find(head)
            {
                ttl.decrement(head);
            }
            if self.flags & (SETS_VID | PUSHES_TAG) == SETS_VID {
                rewrite::vlan_vid(head, Vid::from_tci(self.vid));
            }
        }
        if self.summary.rewrites() {
            self.summary.rewrite(head);
        }
    }

    /// Pushes or pops the tag. Only traversals of the kind [`Kind::Run`] push or pop one.
    #[inline(always)]
    pub(crate) fn change_tags<P: Packet>(&self, packet: &mut P) -> Effect {
        if self.flags & (PUSHES_TAG | POPS_TAG) == 0 {
            return Effect::Done;
        }
        self.change_tag(packet)
    }

    #[inline(never)]
    fn change_tag<P: Packet>(&self, packet: &mut P) -> Effect {
        if self.flags & POPS_TAG != 0 {
            if rewrite::vlan_tci(packet.head()).is_some() {
                pop_tag(packet);
            }
            return Effect::Done;
        }
        let ether_type = match self.flags & IS_SERVICE != 0 {
            true => EtherType::QINQ,
            false => EtherType::VLAN,
        };
        let effect = push_vlan(packet, ether_type);
        if self.flags & SETS_VID != 0 {
            rewrite::vlan_vid(packet.head_mut(), Vid::from_tci(self.vid));
        }
        effect
    }
}

/// The VLAN tags of a packet at a step of the traversal, compared with the tags on arrival.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tags {
    AsTheyCame,
    /// The packet has one more tag.
    Pushed,
    /// The outermost tag was removed.
    Popped,
}

/// Returns true if the key of a packet after this action cannot be derived from its first key.
fn makes_key_unknown(action: &Action, tags: &mut Tags) -> bool {
    match action {
        // An SCTP port is set only in unfragmented packets, but a first fragment has the same key as such a
        // packet.
        Action::SetField(set) => matches!(
            set.field(),
            Field::EthType
                | Field::IpProto
                | Field::MplsBos
                | Field::Icmpv6Type
                | Field::Icmpv6Code
                | Field::SctpSrc
                | Field::SctpDst
        ),
        Action::PushVlan(_) => core::mem::replace(tags, Tags::Pushed) != Tags::AsTheyCame,
        Action::PopVlan => {
            let (next, is_unknown) = match *tags {
                Tags::AsTheyCame => (Tags::Popped, false),
                Tags::Pushed => (Tags::AsTheyCame, false),
                Tags::Popped => (Tags::Popped, true),
            };
            *tags = next;
            is_unknown
        }
        Action::PushMpls(_) | Action::PopMpls(_) | Action::PushPbb(_) | Action::PopPbb | Action::Group(_) => {
            true
        }
        Action::Output { .. }
        | Action::SetQueue(_)
        | Action::SetMplsTtl(_)
        | Action::DecMplsTtl
        | Action::SetNwTtl(_)
        | Action::DecNwTtl
        | Action::CopyTtlOut
        | Action::CopyTtlIn => false,
    }
}

/// Returns true if a packet has exactly one VLAN tag and an EtherType after it.
#[inline(always)]
pub(crate) fn has_one_tag(head: &[u8]) -> bool {
    let kind_at = |at: usize| -> Option<EtherType> {
        let bytes: &[u8; 2] = head.get(at..)?.first_chunk()?;
        Some(EtherType(u16::from_be_bytes(*bytes)))
    };
    let outer = ethernet::SIZE - 2;
    kind_at(outer).is_some_and(EtherType::is_vlan)
        && kind_at(outer + vlan::SIZE).is_some_and(|kind| !kind.is_vlan())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FlowEntryParts;
    use millrace_flow::compose::PacketText;
    use millrace_flow::{Instructions, SetField};
    use millrace_types::TableId;
    use millrace_wire::{Depth, Layers};

    /// Returns the combined actions of entries that apply these actions, each but the last with a goto.
    fn combine(steps: &[&[Action]]) -> Option<(CombinedActions, SizeChanges)> {
        let entries: Vec<FlowEntry> = (1..)
            .zip(steps)
            .map(|(next, actions)| {
                FlowEntry::new(FlowEntryParts {
                    instructions: Instructions {
                        apply_actions: Some((*actions).into()),
                        goto_table: (next < steps.len()).then_some(TableId(next as u8)),
                        ..Instructions::default()
                    },
                    ..FlowEntryParts::default()
                })
            })
            .collect();
        CombinedActions::of(&entries.iter().collect::<Vec<_>>())
    }

    const PUSH: Action = Action::PushVlan(EtherType::VLAN);
    const POP: Action = Action::PopVlan;
    const OUT: Action = Action::output(PortNo::from_raw(7));

    fn vid(vid: u128) -> Action {
        Action::SetField(SetField::new(Field::VlanVid, 0x1000 | vid).unwrap())
    }

    #[test]
    fn a_tag_that_is_pushed_and_popped_leaves_nothing_but_longer_counts() {
        let (cancelled, lengths) = combine(&[&[PUSH, vid(100)], &[], &[POP, OUT]]).unwrap();
        let (plain, _) = combine(&[&[OUT]]).unwrap();
        assert_eq!((cancelled.summary, cancelled.flags), (plain.summary, 0));
        let slots = [3, 4, 5].map(Slot::new);
        let words = Traversal::encode(&(cancelled, lengths), (0, 0), &slots);
        let mut visits = Vec::new();
        Traversal(&words).each_after_first(60, |slot, size| visits.push((slot, size)));
        assert_eq!(visits, [(slots[1], 64), (slots[2], 64)]);
        assert_eq!(Traversal(&words).kind(), Kind::Output);
    }

    #[test]
    fn actions_of_a_router_stay_in_the_traversal_and_hold_for_both_versions_of_ip() {
        let mac = Action::SetField(SetField::new(Field::EthDst, 2).unwrap());
        let entry = FlowEntry::new(FlowEntryParts {
            instructions: Instructions::apply([mac, Action::DecNwTtl, OUT]),
            ..FlowEntryParts::default()
        });
        let (combined, lengths) = CombinedActions::of(&[&entry]).unwrap();
        let mut summary = ActionSummary::of(&entry);
        summary.set_rewrite(9, 7);
        assert_eq!(combined.with_last(&[&entry], summary), combined);
        let words = Traversal::encode(&(combined, lengths), (0, 0), &[Slot::new(1)]);
        for text in ["udp,nw_dst=192.0.2.1", "udp6,ipv6_dst=2001:db8::1"] {
            for (ttl, holds) in [(64, true), (2, true), (1, false), (0, false)] {
                let packet: PacketText = format!("{text},nw_ttl={ttl}").parse().unwrap();
                let mut head = packet.frame().unwrap();
                assert_eq!(
                    Traversal(&words).holds_for(&head, true),
                    holds,
                    "{text}, TTL {ttl}"
                );
                if holds {
                    combined.apply(&mut head);
                    let layers = Layers::parse(&head, Depth::L3);
                    assert_eq!(rewrite::ip_ttl_of(&head, &layers), Some(ttl - 1));
                    assert_eq!(head[..6], [0, 0, 0, 0, 0, 2]);
                }
            }
        }
    }

    #[test]
    fn a_tag_that_stays_or_goes_is_in_the_combined_actions() {
        let (pushed, _) = combine(&[&[PUSH, vid(5)], &[OUT]]).unwrap();
        assert_eq!((pushed.flags, pushed.vid), (PUSHES_TAG | SETS_VID, 5));
        let (popped, _) = combine(&[&[vid(5)], &[POP, OUT]]).unwrap();
        assert_eq!(popped.flags, POPS_TAG);
    }

    #[test]
    fn a_tag_popped_on_the_way_is_the_only_one() {
        let (popped, lengths) = combine(&[&[POP], &[], &[OUT]]).unwrap();
        assert!(popped.is_for(true) && !popped.is_for(false));
        let slots = [3, 4, 5].map(Slot::new);
        let words = Traversal::encode(&(popped, lengths), (0, 0), &slots);
        let traversal = Traversal(&words);
        let mut visits = Vec::new();
        traversal.each_after_first(64, |slot, size| visits.push((slot, size)));
        assert_eq!(visits, [(slots[1], 60), (slots[2], 60)]);
        let tagged = |kinds: &[u16]| {
            let kinds = kinds
                .iter()
                .flat_map(|kind| [kind.to_be_bytes(), [0, 1]].concat());
            [0; 12].into_iter().chain(kinds).collect::<Vec<u8>>()
        };
        for (kinds, holds) in [
            (&[0x8100, 0x800][..], true),
            (&[0x88a8, 0x806], true),
            (&[0x8100, 0x8100, 0x800], false),
            (&[0x800, 0], false),
        ] {
            assert_eq!(
                traversal.depends() && traversal.holds_for(&tagged(kinds), true),
                holds,
                "{kinds:x?}"
            );
        }
    }

    #[test]
    fn what_combined_actions_do_not_say_is_replayed_and_what_comes_to_light_not_remembered() {
        for steps in [
            [&[vid(5), PUSH][..], &[OUT]],
            [&[PUSH, vid(5)], &[PUSH, OUT]],
            [&[], &[POP, POP, OUT]],
            [&[], &[POP, vid(5), OUT]],
            [&[], &[Action::PushVlan(EtherType::PBB), OUT]],
        ] {
            let (combined, _) = combine(&steps).unwrap();
            assert!(combined.flags & REPLAY != 0, "{steps:?}");
        }
        for steps in [
            [&[POP, POP][..], &[OUT]],
            [&[POP, PUSH], &[OUT]],
            [&[PUSH, PUSH], &[OUT]],
            [&[Action::PopPbb], &[OUT]],
        ] {
            assert!(combine(&steps).is_none(), "{steps:?}");
        }
    }
}
