//! The way of a packet through the tables, remembered: which entries it met, and what they do to it in sum.
//!
//! Which entries a packet meets follows from its key alone, if no action on the way changes the packet so that
//! fields come to light which the key does not have (a label popped, a protocol changed). Ways with such actions
//! are not remembered. What a VLAN tag says that is pushed on the way follows from the key, and where a packet has
//! one tag, no other comes to light when that is popped.

use millrace_flow::classify::{KEPT_MAX, Slot};
use millrace_flow::{Action, Field};
use millrace_types::{PortNo, Vid};
use millrace_wire::checksum::Change;
use millrace_wire::{EtherType, Packet, ethernet, vlan};

use super::header::{Effect, outer_tci, pop_tag, push_vlan, set_outer_vid};
use crate::FlowEntry;
use crate::gist::{Gist, Kind};

/// Entries on one path, at most.
pub(crate) const STEPS_MAX: usize = 2 * (KEPT_MAX - HEAD);

/// Words before those of the slots.
const HEAD: usize = 3;

/// How many words a path through so many tables takes.
pub(crate) fn words(tables: usize) -> usize {
    HEAD + tables.clamp(1, STEPS_MAX).div_ceil(2)
}

/// How many entries there may be on a path that has so many words.
pub(crate) fn steps(words: usize) -> usize {
    2 * words.saturating_sub(HEAD)
}

/// Bytes of a VLAN tag.
const TAG_SIZE: i64 = vlan::SIZE as i64;

/// Set the VLAN identifier, if there is a tag.
const SETS_VID: u8 = 1 << 0;
/// Decrement the TTL, which must not run out.
const DEC_TTL: u8 = 1 << 1;
/// The sum does not say everything: execute the entries one after the other.
const REPLAY: u8 = 1 << 2;
/// Push a VLAN tag, before its identifier is set.
const PUSHES_TAG: u8 = 1 << 3;
/// It is a service tag (0x88a8), and no customer tag (0x8100).
const IS_SERVICE: u8 = 1 << 4;
/// Pop the outermost VLAN tag, if there is one.
const POPS_TAG: u8 = 1 << 5;

/// The path is that of packets with one VLAN tag.
const ONE_TAG: u8 = 1 << 6;
/// The path, or the sum, depends on more than the key; see [`Path::holds_for`].
const DEPENDS: u8 = 1 << 7;

/// Steps of a path at which a packet is longer or shorter than it came, and counts as that; a bit each.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Lengths {
    /// It has a tag that was pushed on the way.
    longer: u32,
    /// Its tag was popped on the way.
    shorter: u32,
}

/// The bits of a slot's half of a word that say so, as tags more or less: 0, 1 or -1.
const TAGS_SHIFT: u32 = 30;

/// What entries do to a packet in sum.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Sum {
    /// [`Kind::Output`], [`Kind::Drop`] or [`Kind::Rewrite`].
    pub(crate) gist: Gist,
    vid: u16,
    flags: u8,
}

/// A path, as it is kept in a cache.
///
/// The gist is in two words. The third has the number of entries in bits 0 to 7, then the shape, the flags, and the VLAN
/// identifier in bits 24 to 35; from bit 36 on the epoch of the shape. All other words have two slots
/// of 30 bits each.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Path<'a>(pub(crate) &'a [u64; KEPT_MAX]);

const SHAPE_SHIFT: u32 = 8;
const FLAGS_SHIFT: u32 = 16;
const VID_SHIFT: u32 = 24;
const EPOCH_SHIFT: u32 = 36;

/// Epochs that a path can tell from each other.
pub(crate) const EPOCHS: u64 = 1 << (u64::BITS - EPOCH_SHIFT);

impl<'a> Path<'a> {
    /// What to keep of a path through these entries, of which `shape` says the tables, in the `epoch` of that.
    pub(crate) fn encode(
        (sum, lengths): &(Sum, Lengths),
        (shape, epoch): (u8, u64),
        slots: &[Slot],
    ) -> [u64; KEPT_MAX] {
        let mut words = [0; KEPT_MAX];
        [words[0], words[1]] = sum.gist.words();
        words[2] = slots.len().min(STEPS_MAX) as u64
            | u64::from(shape) << SHAPE_SHIFT
            | u64::from(sum.flags) << FLAGS_SHIFT
            | u64::from(sum.vid & 0xfff) << VID_SHIFT
            | epoch << EPOCH_SHIFT;
        for (i, slot) in slots.iter().take(STEPS_MAX).enumerate() {
            let is_in = |steps: u32| (steps >> i & 1) as i32;
            let tags = is_in(lengths.longer) - is_in(lengths.shorter);
            let half = slot.index() as u32 | (tags << TAGS_SHIFT) as u32;
            words[HEAD + i / 2] |= u64::from(half) << (32 * (i % 2));
        }
        words
    }

    /// What the entries do in sum.
    #[inline(always)]
    pub(crate) fn sum(self) -> Sum {
        Sum {
            gist: Gist::from_words([self.0[0], self.0[1]]),
            vid: (self.0[2] >> VID_SHIFT) as u16 & 0xfff,
            flags: self.flags(),
        }
    }

    #[inline(always)]
    fn flags(self) -> u8 {
        (self.0[2] >> FLAGS_SHIFT) as u8
    }

    /// In which epoch of its shape it was found.
    #[inline(always)]
    pub(crate) fn epoch(self) -> u64 {
        self.0[2] >> EPOCH_SHIFT
    }

    /// The number of its shape.
    #[inline(always)]
    pub(crate) fn shape(self) -> u8 {
        (self.0[2] >> SHAPE_SHIFT) as u8
    }

    /// Whether the entries are to be executed one after the other.
    #[inline(always)]
    pub(crate) fn is_replayed(self) -> bool {
        self.flags() & REPLAY != 0
    }

    /// Whether the key alone does not say that it is this packet's path, and its sum; [`Path::holds_for`] does.
    #[inline(always)]
    pub(crate) fn depends(self) -> bool {
        self.flags() & DEPENDS != 0
    }

    /// Whether it is the path of a packet with its key, and its sum can be told: a TTL to be decremented must be there,
    /// and not run out.
    #[inline(always)]
    pub(crate) fn holds_for(self, head: &[u8], is_ip: bool) -> bool {
        let flags = self.flags();
        let decrements = flags & (DEC_TTL | REPLAY) == DEC_TTL;
        (!decrements || is_ip && ttl(head).is_some()) && (flags & ONE_TAG == 0 || has_one_tag(head))
    }

    /// How many entries there are.
    #[inline(always)]
    pub(crate) fn len(self) -> usize {
        (self.0[2] & 0xff) as usize
    }

    /// Returns the kind of the sum; [`Kind::Run`] where a packet is not changed in the loop over the whole burst.
    #[inline(always)]
    pub(crate) fn kind(self) -> Kind {
        let kind = self.sum().gist.kind();
        if self.flags() & (REPLAY | PUSHES_TAG | POPS_TAG) != 0 || kind == Kind::Rewrite {
            Kind::Run
        } else {
            kind
        }
    }

    /// Visits the slots of all entries but the first, each with how long a packet of `size` bytes is there.
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

    /// The slot of an entry.
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

impl Sum {
    /// What these entries do one after the other; `None` if that is not to be remembered.
    pub(crate) fn of(entries: &[&FlowEntry]) -> Option<(Sum, Lengths)> {
        let mut sum = Sum {
            gist: Gist::drop(),
            vid: 0,
            flags: 0,
        };
        let mut written = None;
        let (mut tags, mut lengths) = (Tags::AsTheyCame, Lengths::default());
        let (last, before) = entries.split_last()?;
        for (step, entry) in before.iter().enumerate() {
            entry.goto_table()?;
            let mut actions = entry.apply_actions().iter();
            // A meter may remark a packet, which later tables look at.
            if entry.meter().is_some() || actions.any(|action| hides(action, &mut tags)) {
                return None;
            }
            lengths.longer |= u32::from(tags == Tags::Pushed) << (step + 1);
            lengths.shorter |= u32::from(tags == Tags::Popped) << (step + 1);
            sum.add(entry, entry.apply_actions(), &mut written);
        }
        if last.goto_table().is_some() {
            return None;
        }
        let (changes, output) = match last.apply_actions() {
            [changes @ .., Action::Output { port, .. }] => (changes, Some(*port)),
            changes => (changes, None),
        };
        sum.add(last, changes, &mut written);
        match (output, written) {
            (None, None) => {}
            (Some(port), None) | (None, Some(port)) => match u16::try_from(port.raw()) {
                Ok(number) if port.is_ordinary() => sum.gist.output(number),
                _ => sum.flags |= REPLAY,
            },
            (Some(_), Some(_)) => sum.flags |= REPLAY,
        }
        if lengths.shorter != 0 {
            sum.flags |= ONE_TAG;
        }
        if lengths.shorter != 0 || sum.flags & (DEC_TTL | REPLAY) == DEC_TTL {
            sum.flags |= DEPENDS;
        }
        Some((sum, lengths))
    }

    /// Returns the sum of entries of which the last has this gist. Where that is a [`Kind::Rewrite`] and the entries
    /// before have no actions, the rewrite is the sum: nothing needs to be replayed.
    pub(crate) fn with_last(self, entries: &[&FlowEntry], gist: Gist) -> Sum {
        let is_idle = |entry: &&FlowEntry| entry.actions().is_empty() && entry.meter().is_none();
        match entries.split_last() {
            Some((_, before)) if gist.kind() == Kind::Rewrite && before.iter().all(is_idle) => Sum {
                gist,
                vid: 0,
                flags: 0,
            },
            _ => self,
        }
    }

    /// Whether the path may be kept that was noted for a packet, which came with one VLAN tag or not.
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
                change if self.gist.note(change) => {}
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
        // A tag that was changed, or uncovered, is copied.
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

    /// Does all this to a packet, but for sending it, and for what [`Sum::change_tags`] does then. One with a TTL to
    /// decrement was found to have it by [`ttl`].
    #[inline(always)]
    pub(crate) fn apply(&self, head: &mut [u8]) {
        if self.flags != 0 {
            if self.flags & DEC_TTL != 0
                && let Some(at) = ttl(head)
            {
                dec_ttl(head, at);
            }
            if self.flags & (SETS_VID | PUSHES_TAG) == SETS_VID {
                set_outer_vid(head, self.vid);
            }
        }
        if self.gist.rewrites() {
            self.gist.rewrite(head);
        }
    }

    /// Pushes or pops a tag. Only where [`Path::kind`] is [`Kind::Run`], there is one.
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
            if outer_tci(packet.head()).is_some() {
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
            set_outer_vid(packet.head_mut(), self.vid);
        }
        effect
    }
}

/// What has become of a packet's VLAN tags on the way.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tags {
    AsTheyCame,
    /// There is one more.
    Pushed,
    /// There was one, which is gone.
    Popped,
}

/// Whether an action changes what fields are found in the packet, or by it something else than the packet goes on.
fn hides(action: &Action, tags: &mut Tags) -> bool {
    match action {
        Action::SetField(set) => matches!(
            set.field(),
            Field::EthType | Field::IpProto | Field::MplsBos | Field::Icmpv6Type | Field::Icmpv6Code
        ),
        Action::PushVlan(_) => core::mem::replace(tags, Tags::Pushed) != Tags::AsTheyCame,
        Action::PopVlan => {
            let (next, hides) = match *tags {
                Tags::AsTheyCame => (Tags::Popped, false),
                Tags::Pushed => (Tags::AsTheyCame, false),
                Tags::Popped => (Tags::Popped, true),
            };
            *tags = next;
            hides
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

/// Whether a packet has exactly one VLAN tag, and something behind it.
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

/// Bytes from the beginning of an IPv4 header (RFC 791, section 3.1).
const TTL: usize = 8;
const IPV4_SIZE: usize = 20;

/// Where the TTL is in an IPv4 packet with at most one tag, if it may be decremented. The packet is known to have a
/// whole IP header, if it has one.
#[inline(always)]
pub(crate) fn ttl(head: &[u8]) -> Option<usize> {
    let kind = head.get(12..14)?;
    let (kind, l3) = if kind == EtherType::VLAN.0.to_be_bytes() {
        (head.get(16..18)?, ethernet::SIZE + vlan::SIZE)
    } else {
        (kind, ethernet::SIZE)
    };
    let header: &[u8; IPV4_SIZE] = head.get(l3..)?.first_chunk()?;
    let is_plain = kind == EtherType::IPV4.0.to_be_bytes() && header[0] >> 4 == 4;
    (is_plain && header[TTL] > 1).then_some(l3 + TTL)
}

#[inline(always)]
fn dec_ttl(head: &mut [u8], at: usize) {
    let Some([ttl, proto, high, low]) = head.get_mut(at..).and_then(<[u8]>::first_chunk_mut::<4>) else {
        return;
    };
    let old = u16::from_be_bytes([*ttl, *proto]);
    *ttl -= 1;
    let change = Change::of16(old, u16::from_be_bytes([*ttl, *proto]));
    [*high, *low] = change.apply(u16::from_be_bytes([*high, *low])).to_be_bytes();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FlowEntryParts;
    use millrace_flow::{Instructions, SetField};
    use millrace_types::TableId;

    /// The sum of entries that apply these actions, each but the last with a goto.
    fn sum(steps: &[&[Action]]) -> Option<(Sum, Lengths)> {
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
        Sum::of(&entries.iter().collect::<Vec<_>>())
    }

    const PUSH: Action = Action::PushVlan(EtherType::VLAN);
    const POP: Action = Action::PopVlan;
    const OUT: Action = Action::output(PortNo::from_raw(7));

    fn vid(vid: u128) -> Action {
        Action::SetField(SetField::new(Field::VlanVid, 0x1000 | vid).unwrap())
    }

    #[test]
    fn a_tag_that_is_pushed_and_popped_leaves_nothing_but_longer_counts() {
        let (cancelled, lengths) = sum(&[&[PUSH, vid(100)], &[], &[POP, OUT]]).unwrap();
        let (plain, _) = sum(&[&[OUT]]).unwrap();
        assert_eq!((cancelled.gist, cancelled.flags), (plain.gist, 0));
        let slots = [3, 4, 5].map(Slot::new);
        let words = Path::encode(&(cancelled, lengths), (0, 0), &slots);
        let mut visits = Vec::new();
        Path(&words).each_after_first(60, |slot, size| visits.push((slot, size)));
        assert_eq!(visits, [(slots[1], 64), (slots[2], 64)]);
        assert_eq!(Path(&words).kind(), Kind::Output);
    }

    #[test]
    fn a_tag_that_stays_or_goes_is_in_the_sum() {
        let (pushed, _) = sum(&[&[PUSH, vid(5)], &[OUT]]).unwrap();
        assert_eq!((pushed.flags, pushed.vid), (PUSHES_TAG | SETS_VID, 5));
        let (popped, _) = sum(&[&[vid(5)], &[POP, OUT]]).unwrap();
        assert_eq!(popped.flags, POPS_TAG);
    }

    #[test]
    fn a_tag_popped_on_the_way_is_the_only_one() {
        let (popped, lengths) = sum(&[&[POP], &[], &[OUT]]).unwrap();
        assert!(popped.is_for(true) && !popped.is_for(false));
        let slots = [3, 4, 5].map(Slot::new);
        let words = Path::encode(&(popped, lengths), (0, 0), &slots);
        let path = Path(&words);
        let mut visits = Vec::new();
        path.each_after_first(64, |slot, size| visits.push((slot, size)));
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
                path.depends() && path.holds_for(&tagged(kinds), true),
                holds,
                "{kinds:x?}"
            );
        }
    }

    #[test]
    fn what_a_sum_does_not_say_is_replayed_and_what_comes_to_light_not_remembered() {
        for steps in [
            [&[vid(5), PUSH][..], &[OUT]],
            [&[PUSH, vid(5)], &[PUSH, OUT]],
            [&[], &[POP, POP, OUT]],
            [&[], &[POP, vid(5), OUT]],
            [&[], &[Action::PushVlan(EtherType::PBB), OUT]],
        ] {
            let (sum, _) = sum(&steps).unwrap();
            assert!(sum.flags & REPLAY != 0, "{steps:?}");
        }
        for steps in [
            [&[POP, POP][..], &[OUT]],
            [&[POP, PUSH], &[OUT]],
            [&[PUSH, PUSH], &[OUT]],
            [&[Action::PopPbb], &[OUT]],
        ] {
            assert!(sum(&steps).is_none(), "{steps:?}");
        }
    }
}
