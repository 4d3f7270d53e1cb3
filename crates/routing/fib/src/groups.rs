//! Next-hop groups and next hops of all VRFs.
//!
//! ```text
//! route ── group number ──> group word ──> next hop               a group with one member
//!                                     └──> cells ──> next hop     a group with several
//! ```
//!
//! A group word:
//!
//! ```text
//!   63        56 55        40 39       32 31                            0
//!  | unused     | members    | log2 cells | next hop, or line of the cells |
//! ```
//!
//! `members` is 0 for a group that does not exist. A block of cells holds the next hop of each cell, and behind them that
//! of each member.

use core::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use std::sync::Arc;

use crate::arena::{Allocator, Block, Full, LINE_LEN, Lines, read, write};
use crate::cells::{self, MEMBERS_MAX, Member};
use crate::chunks::{Chunks, INDEX_MAX};
use crate::{NextHop, NextHopSpec};

/// The number of cells that a flow tries before it searches all members in turn.
const TRIES: u32 = 16;

/// The number of a next-hop group: 24 bits; 0 is "no route".
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct GroupId(pub(crate) u32);

impl GroupId {
    /// No route.
    pub const NONE: GroupId = GroupId(0);

    /// Returns true for "no route".
    #[inline]
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }

    /// Returns the number, from 0 to 2^24 - 1.
    #[inline]
    pub const fn number(self) -> u32 {
        self.0
    }
}

/// The number of a next hop: 24 bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NextHopId(pub(crate) u32);

impl NextHopId {
    /// Returns the number, from 0 to 2^24 - 1.
    #[inline]
    pub const fn number(self) -> u32 {
        self.0
    }
}

/// The memory that all readers share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) lines: Lines,
    groups: Chunks<AtomicU64>,
    next_hops: Chunks<NextHop>,
}

impl Shared {
    pub(crate) fn new() -> Shared {
        Shared {
            lines: Lines::new(),
            groups: Chunks::new(),
            next_hops: Chunks::new(),
        }
    }

    pub(crate) fn next_hop(&self, id: NextHopId) -> Option<&NextHop> {
        self.next_hops.get(id.0)
    }

    pub(crate) fn size(&self) -> usize {
        self.lines.size() + self.groups.size() + self.next_hops.size()
    }
}

/// The next-hop groups and next hops of all VRFs, as workers read them. Cloning is cheap.
#[derive(Clone, Debug)]
pub struct NextHops {
    pub(crate) shared: Arc<Shared>,
}

/// A group word.
#[derive(Clone, Copy)]
struct Word(u64);

impl Word {
    fn new(members: usize, log2: u32, at: u32) -> Word {
        Word((members as u64) << 40 | u64::from(log2) << 32 | u64::from(at))
    }

    #[inline(always)]
    fn members(self) -> usize {
        (self.0 >> 40) as usize
    }

    #[inline(always)]
    fn log2(self) -> u32 {
        (self.0 >> 32) as u32 & 0xff
    }

    /// Returns the next hop of a group with one member, or the line of the cells.
    #[inline(always)]
    fn at(self) -> u32 {
        self.0 as u32
    }
}

impl NextHops {
    /// Returns the next hop of a flow: the member of the group that its hash selects. A flow keeps its member while the
    /// group does. None for [`GroupId::NONE`].
    #[inline]
    pub fn member(&self, group: GroupId, flow_hash: u64) -> Option<&NextHop> {
        let word = self.word(group)?;
        if word.members() == 1 {
            return self.shared.next_hops.get(word.at());
        }
        self.next_hop_of_cell(word, flow_hash)
    }

    /// Returns the next hop of a flow among the members for which `is_live` holds: a flow whose member is dead goes to
    /// another, and no other flow moves. If none is live, returns the member that [`NextHops::member`] returns. The hash is
    /// computed for groups with several members only.
    #[inline]
    pub fn live_member(
        &self,
        group: GroupId,
        flow_hash: impl FnOnce() -> u64,
        mut is_live: impl FnMut(&NextHop) -> bool,
    ) -> Option<&NextHop> {
        let word = self.word(group)?;
        if word.members() == 1 {
            return self.shared.next_hops.get(word.at());
        }
        let flow_hash = flow_hash();
        let mut hash = flow_hash;
        for _ in 0..TRIES {
            let next_hop = self.next_hop_of_cell(word, hash)?;
            if is_live(next_hop) {
                return Some(next_hop);
            }
            hash = cells::next(hash);
        }
        self.any_live(word, flow_hash, is_live)
    }

    /// Returns a next hop by its number, for displays.
    pub fn next_hop(&self, id: NextHopId) -> Option<&NextHop> {
        self.shared.next_hops.get(id.0)
    }

    /// Returns the numbers of a group's next hops, for displays.
    pub fn members(&self, group: GroupId) -> Vec<NextHopId> {
        let Some(word) = self.word(group) else {
            return Vec::new();
        };
        if word.members() == 1 {
            return vec![NextHopId(word.at())];
        }
        let first = 1 << word.log2();
        (0..word.members())
            .map(|at| NextHopId(read(&self.shared.lines, word.at(), first + at)))
            .collect()
    }

    #[inline(always)]
    fn word(&self, group: GroupId) -> Option<Word> {
        let word = Word(self.shared.groups.get(group.0)?.load(Acquire));
        (word.members() > 0).then_some(word)
    }

    #[inline(always)]
    fn next_hop_of_cell(&self, word: Word, hash: u64) -> Option<&NextHop> {
        let cell = hash as usize & ((1 << word.log2()) - 1);
        self.shared
            .next_hops
            .get(read(&self.shared.lines, word.at(), cell))
    }

    /// Returns the live member with the highest score for a hash (rendezvous hashing: only the flows of a member that
    /// dies move).
    #[cold]
    fn any_live(&self, word: Word, hash: u64, mut is_live: impl FnMut(&NextHop) -> bool) -> Option<&NextHop> {
        // 2^64 divided by the golden ratio: neighbouring numbers differ in the high bits, too.
        const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
        let first = 1 << word.log2();
        (0..word.members())
            .map(|at| read(&self.shared.lines, word.at(), first + at))
            .filter_map(|number| Some((number, self.shared.next_hops.get(number)?)))
            .filter(|(_, next_hop)| is_live(next_hop))
            .max_by_key(|(number, _)| cells::next(hash ^ u64::from(*number).wrapping_mul(SPREAD)))
            .map(|(_, next_hop)| next_hop)
            .or_else(|| self.next_hop_of_cell(word, hash))
    }
}

/// The numbers of one kind that are in use.
#[derive(Debug)]
struct Numbers {
    next: u32,
    free: Vec<u32>,
    used: u32,
}

impl Numbers {
    fn take(&mut self) -> Result<u32, Full> {
        let number = match self.free.pop() {
            Some(number) => number,
            None if self.next > INDEX_MAX => return Err(Full { lines: self.used }),
            None => {
                self.next += 1;
                self.next - 1
            }
        };
        self.used += 1;
        Ok(number)
    }

    fn free(&mut self, number: u32) {
        self.used -= 1;
        self.free.push(number);
    }
}

/// The writer's side of groups and next hops.
#[derive(Debug)]
pub(crate) struct Groups {
    groups: Numbers,
    next_hops: Numbers,
}

impl Groups {
    pub(crate) fn new() -> Groups {
        // Group 0 is "no route".
        let numbers = || Numbers {
            next: 1,
            free: Vec::new(),
            used: 0,
        };
        Groups {
            groups: numbers(),
            next_hops: numbers(),
        }
    }

    pub(crate) fn add_next_hop(&mut self, shared: &Shared, spec: &NextHopSpec) -> Result<NextHopId, Full> {
        let number = self.next_hops.take()?;
        shared.next_hops.make(number);
        if let Some(line) = shared.next_hops.get(number) {
            line.store(spec);
            line.take_used();
        }
        Ok(NextHopId(number))
    }

    pub(crate) fn free_next_hop(&mut self, number: NextHopId) {
        self.next_hops.free(number.0);
    }

    pub(crate) fn add_group(&mut self, shared: &Shared) -> Result<GroupId, Full> {
        let number = self.groups.take()?;
        shared.groups.make(number);
        Ok(GroupId(number))
    }

    pub(crate) fn free_group(&mut self, number: GroupId) {
        self.groups.free(number.0);
    }

    /// Returns the number of groups.
    pub(crate) fn group_count(&self) -> u32 {
        self.groups.used
    }

    /// Returns the number of next hops.
    pub(crate) fn next_hop_count(&self) -> u32 {
        self.next_hops.used
    }
}

/// Replaces the members of a group; workers see the old ones or the new ones. Returns the block that the group had.
pub(crate) fn set_members(
    shared: &Shared,
    allocator: &mut Allocator,
    group: GroupId,
    members: &[(NextHopId, u32)],
) -> Result<Option<Block>, Full> {
    let Some(place) = shared.groups.get(group.0) else {
        return Ok(None);
    };
    let before = Word(place.load(Relaxed));
    let mut merged: Vec<Member> = Vec::with_capacity(members.len());
    for (next_hop, weight) in members {
        let weight = (*weight).max(1);
        match merged.iter().position(|member| member.next_hop == next_hop.0) {
            Some(at) => merged[at].weight = merged[at].weight.saturating_add(weight),
            None if merged.len() < MEMBERS_MAX => merged.push(Member {
                next_hop: next_hop.0,
                weight,
            }),
            None => {}
        }
    }
    let after = match merged.as_slice() {
        [] => Word(0),
        [one] => Word::new(1, 0, one.next_hop),
        several => {
            let cells = cells::assign(several, &cells_of(shared, before));
            let words = cells.len() + several.len();
            let block = allocator.allocate(&shared.lines, words.div_ceil(LINE_LEN) as u32)?;
            let numbers = cells
                .iter()
                .copied()
                .chain(several.iter().map(|member| member.next_hop));
            for (at, number) in numbers.enumerate() {
                write(&shared.lines, block.line, at, number);
            }
            Word::new(several.len(), cells.len().trailing_zeros(), block.line)
        }
    };
    place.store(after.0, Release);
    Ok((before.members() > 1).then(|| Block {
        line: before.at(),
        lines: ((1usize << before.log2()) + before.members()).div_ceil(LINE_LEN) as u32,
    }))
}

/// Returns the cells of a group: none if it has no member, or one.
fn cells_of(shared: &Shared, word: Word) -> Vec<u32> {
    if word.members() < 2 {
        return Vec::new();
    }
    (0..1 << word.log2())
        .map(|at| read(&shared.lines, word.at(), at))
        .collect()
}
