//! The way of a packet through the tables, remembered: which entries it met, and what they do to it in sum.
//!
//! Which entries a packet meets follows from its key alone, if no action on the way changes the packet so that
//! fields come to light which the key does not have (a tag popped, a protocol changed). Ways with such actions
//! are not remembered.

use millrace_flow::classify::{KEPT_MAX, Slot};
use millrace_flow::{Action, Field};
use millrace_types::{PortNo, Vid};
use millrace_wire::checksum::Change;
use millrace_wire::{EtherType, ethernet, vlan};

use super::header::set_outer_vid;
use crate::gist::{Gist, Kind};
use crate::{FlowEntry, Forwarding};

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

/// Set the VLAN identifier, if there is a tag.
const SETS_VID: u8 = 1 << 0;
/// Decrement the TTL, which must not run out.
const DEC_TTL: u8 = 1 << 1;
/// The sum does not say everything: execute the entries one after the other.
const REPLAY: u8 = 1 << 2;

/// What entries do to a packet in sum.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Sum {
    /// [`Kind::Output`] or [`Kind::Drop`].
    pub(crate) gist: Gist,
    vid: u16,
    flags: u8,
}

/// A path, as it is kept in a cache.
///
/// The gist is in two words. The third has the number of entries in bits 0 to 7, then the shape, the flags, and the VLAN
/// identifier in bits 24 to 35; from bit 36 on the epoch of the shape. All other words have two slots each.
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
    pub(crate) fn encode(sum: &Sum, (shape, epoch): (u8, u64), slots: &[Slot]) -> [u64; KEPT_MAX] {
        let mut words = [0; KEPT_MAX];
        [words[0], words[1]] = sum.gist.words();
        words[2] = slots.len().min(STEPS_MAX) as u64
            | u64::from(shape) << SHAPE_SHIFT
            | u64::from(sum.flags) << FLAGS_SHIFT
            | u64::from(sum.vid & 0xfff) << VID_SHIFT
            | epoch << EPOCH_SHIFT;
        for (i, slot) in slots.iter().take(STEPS_MAX).enumerate() {
            words[HEAD + i / 2] |= (slot.index() as u64) << (32 * (i % 2));
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

    /// Whether its sum can be told for any packet. If not, it depends on whether this packet has a TTL that does not
    /// run out.
    #[inline(always)]
    pub(crate) fn needs_ttl(self) -> bool {
        self.flags() & (DEC_TTL | REPLAY) == DEC_TTL
    }

    /// How many entries there are.
    #[inline(always)]
    pub(crate) fn len(self) -> usize {
        (self.0[2] & 0xff) as usize
    }

    /// What becomes of a packet on it; what is done for it packet by packet is [`Kind::Run`].
    #[inline(always)]
    pub(crate) fn kind(self) -> Kind {
        if self.is_replayed() {
            Kind::Run
        } else {
            self.sum().gist.kind()
        }
    }

    /// Visits the slots of all entries but the first.
    #[inline(always)]
    pub(crate) fn each_after_first(self, mut visit: impl FnMut(Slot)) {
        (1..self.len()).for_each(|step| visit(self.slot(step)));
    }

    /// The slot of an entry.
    #[inline(always)]
    pub(crate) fn slot(self, step: usize) -> Slot {
        let word = self.0[(HEAD + step / 2) % KEPT_MAX];
        Slot::new((word >> (32 * (step % 2))) as u32)
    }
}

impl Sum {
    /// What the entries at these slots do one after the other; `None` if that is not to be remembered.
    pub(crate) fn of(fwd: &Forwarding, slots: &[Slot]) -> Option<Sum> {
        let mut sum = Sum {
            gist: Gist::drop(),
            vid: 0,
            flags: 0,
        };
        let mut written = None;
        let (last, before) = slots.split_last()?;
        for slot in before {
            let entry = fwd.entry(*slot)?;
            entry.goto_table()?;
            // A meter may remark a packet, which later tables look at.
            if entry.meter().is_some() || entry.apply_actions().iter().any(hides) {
                return None;
            }
            sum.add(entry, entry.apply_actions(), &mut written);
        }
        let entry = fwd.entry(*last)?;
        if entry.goto_table().is_some() {
            return None;
        }
        let (changes, output) = match entry.apply_actions() {
            [changes @ .., Action::Output { port, .. }] => (changes, Some(*port)),
            changes => (changes, None),
        };
        sum.add(entry, changes, &mut written);
        match (output, written) {
            (None, None) => {}
            (Some(port), None) | (None, Some(port)) => match u16::try_from(port.raw()) {
                Ok(number) if port.is_ordinary() => sum.gist.output(number),
                _ => sum.flags |= REPLAY,
            },
            (Some(_), Some(_)) => sum.flags |= REPLAY,
        }
        Some(sum)
    }

    fn add(&mut self, entry: &FlowEntry, changes: &[Action], written: &mut Option<PortNo>) {
        if entry.meter().is_some() {
            self.flags |= REPLAY;
        }
        for change in changes {
            match change {
                Action::SetField(set) if set.field() == Field::VlanVid => {
                    self.vid = Vid::from_tci(set.value() as u16).raw();
                    self.flags |= SETS_VID;
                }
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

    /// Does all this to a packet, but for sending it. One with a TTL to decrement was found to have it by [`ttl`].
    #[inline(always)]
    pub(crate) fn apply(&self, head: &mut [u8]) {
        if self.flags != 0 {
            if self.flags & DEC_TTL != 0
                && let Some(at) = ttl(head)
            {
                dec_ttl(head, at);
            }
            if self.flags & SETS_VID != 0 {
                set_outer_vid(head, self.vid);
            }
        }
        if self.gist.rewrites() {
            self.gist.rewrite(head);
        }
    }
}

/// Whether an action changes what fields are found in the packet, or by it something else than the packet goes on.
fn hides(action: &Action) -> bool {
    match action {
        Action::SetField(set) => matches!(
            set.field(),
            Field::EthType | Field::IpProto | Field::MplsBos | Field::Icmpv6Type | Field::Icmpv6Code
        ),
        Action::PushVlan(_)
        | Action::PopVlan
        | Action::PushMpls(_)
        | Action::PopMpls(_)
        | Action::PushPbb(_)
        | Action::PopPbb
        | Action::Group(_) => true,
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
