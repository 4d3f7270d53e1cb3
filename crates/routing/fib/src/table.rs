//! The routes of one VRF and one address family.
//!
//! ```text
//!   few routes (at most 4,096)          many routes
//!
//!   root ──> node ──> node ...          direct table: an entry for each /24 of a range ──> node ──> ...
//!                                       rest: the root of a tree, for the addresses outside of the range
//! ```
//!
//! The range of IPv4 is all of it: a lookup takes one load, or one more for addresses with routes longer than /24
//! (DIR-24-8). The range of IPv6 is 2000::/3, to which all global unicast addresses belong.
//!
//! A table grows once: the writer copies the entries of the tree, publishes the direct table, and retires the tree.

use core::sync::atomic::{AtomicU32, Ordering::Acquire, Ordering::Release};
use std::sync::OnceLock;

use crate::arena::{Allocator, Block, Full, Lines};
use crate::node::{self, Entry, Runs, STRIDE, Span, segment_start};
use crate::prefix::mask;
use crate::{Family, Prefix};

/// The maximum number of routes of a table without direct table.
const SMALL: usize = 4096;
/// The number of address bits that lead to an entry of the direct table.
const DIRECT_BITS: u8 = 24;

/// The entries that readers see.
#[derive(Debug)]
pub(crate) struct Table {
    /// The entry of all addresses, while the table is small.
    root: AtomicU32,
    direct: OnceLock<Direct>,
}

#[derive(Debug)]
pub(crate) struct Direct {
    entries: Box<[AtomicU32]>,
    /// The entry of all addresses outside of the range.
    rest: AtomicU32,
}

/// Returns the addresses that a direct table covers.
fn range(family: Family) -> Prefix {
    match family {
        Family::V4 => Prefix::default_route(Family::V4),
        Family::V6 => Prefix::of_bits(Family::V6, 0x2 << 124, 3),
    }
}

impl Table {
    pub(crate) fn new() -> Table {
        Table {
            root: AtomicU32::new(0),
            direct: OnceLock::new(),
        }
    }

    #[inline(always)]
    pub(crate) fn direct(&self) -> Option<&Direct> {
        self.direct.get()
    }

    /// Returns the entry of all addresses; of a small table only.
    #[inline(always)]
    pub(crate) fn root(&self) -> Entry {
        Entry(self.root.load(Acquire))
    }
}

/// A change of one route.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Change {
    /// The route has this group from now on.
    Set(u32),
    /// The route goes; the route that covers it has this length and this group (0 and 0: there is none).
    Clear { cover_len: u8, cover_group: u32 },
}

impl Change {
    /// Returns the new value of an entry that the prefix covers. `base` is the number of address bits at which depths
    /// count from 0, `depth` that of the changed route, `inherited` the group of depth 0.
    fn apply(self, leaf: Entry, base: u8, depth: u8, inherited: u32) -> Entry {
        match self {
            Change::Set(group) if leaf.depth() <= depth => Entry::leaf(depth, group),
            Change::Clear {
                cover_len,
                cover_group,
            } if leaf.depth() == depth => {
                if cover_len > base {
                    Entry::leaf(cover_len - base, cover_group)
                } else {
                    Entry::leaf(0, if base == 0 { cover_group } else { inherited })
                }
            }
            Change::Set(_) | Change::Clear { .. } => leaf,
        }
    }
}

/// The writer's means: the lines, which of them are free, and which will be.
pub(crate) struct Means<'a> {
    pub(crate) memory: &'a Lines,
    pub(crate) allocator: &'a mut Allocator,
    pub(crate) retired: &'a mut Vec<Block>,
}

impl Means<'_> {
    /// Makes a node; returns the link to it.
    fn make(&mut self, runs: &Runs, inherited: Entry) -> Result<Entry, Full> {
        let block = self.allocator.allocate(self.memory, runs.lines())?;
        runs.fill(self.memory, block.line, inherited);
        Ok(Entry::link(runs.form(), block.line))
    }

    fn retire(&mut self, line: u32, runs: &Runs) {
        self.retired.push(Block {
            line,
            lines: runs.lines(),
        });
    }

    /// Retires a node and all below it.
    fn retire_tree(&mut self, entry: Entry) {
        if entry.is_link() {
            let runs = Runs::read(self.memory, entry);
            for (_, _, below) in runs.iter() {
                self.retire_tree(below);
            }
            self.retire(entry.line(), &runs);
        }
    }

    /// Makes the nodes for a route that is longer than `base`, where there was a leaf.
    fn grow(&mut self, leaf: Entry, base: u8, prefix: &Prefix, group: u32) -> Result<Entry, Full> {
        let span = Span::at(prefix.family(), base);
        let all = Runs::new(span, Entry::leaf(0, leaf.group()));
        let (first, last) = keys_of(prefix, base, span);
        let end = span.end(base);
        let new = if prefix.len() > end {
            self.grow(Entry::leaf(0, leaf.group()), end, prefix, group)?
        } else {
            Entry::leaf(prefix.len() - base, group)
        };
        self.make(&all.changed(first, last, |_| new), leaf)
    }

    /// Changes what an entry leads to, by a route that is longer than `base`, the number of address bits that lead to the
    /// entry. `above` is the number of bits at which depths of leaves beside the entry count from 0. Returns the entry's new
    /// value.
    fn change(
        &mut self,
        entry: Entry,
        above: u8,
        base: u8,
        prefix: &Prefix,
        change: Change,
    ) -> Result<Entry, Full> {
        if !entry.is_link() {
            return match change {
                Change::Set(group) => self.grow(entry, base, prefix, group),
                Change::Clear { .. } => Ok(entry),
            };
        }
        if let Change::Clear {
            cover_len,
            cover_group,
        } = change
            && cover_len <= base
        {
            // The cover of the route is what the node inherits. See `split`: until now, the node may not have known it.
            let leaf = Entry::leaf(cover_len.saturating_sub(above), cover_group);
            if node::inherited(self.memory, entry) != leaf {
                node::inherit(self.memory, entry, leaf);
            }
        }
        let line = entry.line();
        let before = Runs::read(self.memory, entry);
        let inherited = node::inherited(self.memory, entry);
        let span = before.span();
        let (first, last) = keys_of(prefix, base, span);
        let end = span.end(base);
        let after = if prefix.len() > end {
            let below = before.get(first);
            let new = self.change(below, base, end, prefix, change)?;
            if new == below {
                return Ok(entry);
            }
            before.changed(first, last, |_| new)
        } else {
            let depth = prefix.len() - base;
            before.changed(first, last, |below| {
                self.cover(below, |leaf| change.apply(leaf, base, depth, inherited.group()))
            })
        };
        if after.is_inherited_only() {
            self.retire(line, &before);
            return Ok(inherited);
        }
        if after.store_in_place(self.memory, line, &before) {
            return Ok(entry);
        }
        let new = if after.is_too_long() {
            self.split(&after, base, first, inherited)?
        } else {
            self.make(&after, inherited)?
        };
        self.retire(line, &before);
        Ok(new)
    }

    /// Makes a node of the form `Byte` of the runs of a segment that are too many for one node, and nodes for the rest of the
    /// segment below it. `key` is any key of the node.
    ///
    /// A new node inherits the longest route that leads to all its keys, as its leaves show. If longer routes hide that route
    /// from all its keys, the node does not know it, and records a shorter one, which no lookup finds. The route matters
    /// when one of those that hide it goes; its removal says what covered it ([`Means::change`]).
    fn split(&mut self, runs: &Runs, base: u8, key: u32, inherited: Entry) -> Result<Entry, Full> {
        let done = base - segment_start(base);
        let shift = u32::from(32 - done - STRIDE);
        let node = key & !u32::MAX.checked_shr(u32::from(done)).unwrap_or(0);
        let mut all = Runs::empty(Span::Byte);
        for byte in 0..=0xff {
            let (first, last) = (node | byte << shift, node | byte << shift | ((1 << shift) - 1));
            let inside = || {
                let overlaps = |(start, end, _): &(u32, u32, Entry)| *start <= last && *end >= first;
                runs.iter().filter(overlaps)
            };
            let only = runs.get(first);
            let is_one = inside().count() == 1;
            if is_one && (shift == 0 || !only.is_link() && only.depth() <= STRIDE) {
                all.push(byte, only);
                continue;
            }
            // The leaf that the new node inherits, and its runs. Keys that do not lead to it have the inherited leaf.
            let mut leaf = Entry::leaf(0, inherited.group());
            for (_, _, entry) in inside() {
                let own = self.leaf_of(entry);
                if own.depth() <= STRIDE && own.depth() >= leaf.depth() {
                    leaf = own;
                }
            }
            let outside = Entry::leaf(0, leaf.group());
            let mut below = Runs::empty(Span::Segment);
            if first > 0 {
                below.push(0, outside);
            }
            for (start, _, entry) in inside() {
                let own = self.leaf_of(entry);
                let deeper = Entry::leaf(own.depth().saturating_sub(STRIDE), own.group());
                if entry.is_link() {
                    node::record_inherited(self.memory, entry, deeper);
                    below.push(start.max(first), entry);
                } else {
                    below.push(start.max(first), deeper);
                }
            }
            if last < u32::MAX {
                below.push(last + 1, outside);
            }
            let link = if below.is_too_long() {
                self.split(&below, base + STRIDE, first, leaf)?
            } else {
                self.make(&below, leaf)?
            };
            all.push(byte, link);
        }
        self.make(&all, inherited)
    }

    /// Returns a leaf, or the leaf that the node of a link inherits.
    fn leaf_of(&self, entry: Entry) -> Entry {
        if entry.is_link() {
            node::inherited(self.memory, entry)
        } else {
            entry
        }
    }

    /// Changes an entry that a route covers: a leaf by value, a link by the leaf that its node inherits.
    fn cover(&self, entry: Entry, change: impl FnOnce(Entry) -> Entry) -> Entry {
        if !entry.is_link() {
            return change(entry);
        }
        let before = node::inherited(self.memory, entry);
        let after = change(before);
        if after != before {
            node::inherit(self.memory, entry, after);
        }
        entry
    }

    /// Changes a root: the entry of all addresses.
    fn change_root(&mut self, root: &AtomicU32, prefix: &Prefix, change: Change) -> Result<(), Full> {
        let before = Entry(root.load(Acquire));
        let after = if prefix.len() == 0 {
            self.cover(before, |leaf| change.apply(leaf, 0, 0, 0))
        } else {
            self.change(before, 0, 0, prefix, change)?
        };
        if after != before {
            root.store(after.0, Release);
        }
        Ok(())
    }

    /// Copies a node and all below it; `inherited` is the leaf of the entry above the copy.
    fn copy(&mut self, link: Entry, inherited: Entry) -> Result<Entry, Full> {
        let runs = Runs::read(self.memory, link);
        let mut copy = runs.clone();
        for (first, last, below) in runs.iter() {
            if below.is_link() {
                let leaf = node::inherited(self.memory, below);
                let new = self.copy(below, leaf)?;
                copy = copy.changed(first, last, |_| new);
            }
        }
        self.make(&copy, inherited)
    }
}

/// Returns the first and the last key that a prefix covers in a node below `base` address bits.
fn keys_of(prefix: &Prefix, base: u8, span: Span) -> (u32, u32) {
    let (start, size) = match span {
        Span::Byte => (base, STRIDE),
        Span::Segment => (segment_start(base), 32),
    };
    let key = (prefix.bits() << start >> (128 - u32::from(size))) as u32;
    let fixed = (prefix.len() - start).min(size);
    let rest = u32::MAX.checked_shr(32 - u32::from(size - fixed)).unwrap_or(0);
    (key, key | rest)
}

impl Direct {
    /// Returns an entry of the range; "no route" if there is none of this number.
    #[inline(always)]
    pub(crate) fn entry(&self, position: usize) -> Entry {
        self.entries
            .get(position)
            .map_or(Entry::NO_ROUTE, |entry| Entry(entry.load(Acquire)))
    }

    /// Returns the entry of all addresses outside of the range.
    #[inline(always)]
    pub(crate) fn rest(&self) -> Entry {
        Entry(self.rest.load(Acquire))
    }

    /// Returns the positions of the entries that a prefix covers; none outside of the range.
    fn positions(family: Family, prefix: &Prefix) -> core::ops::Range<usize> {
        let range = range(family);
        if range.covers(prefix) {
            let position = |bits: u128| ((bits & !mask(range.len())) >> (128 - DIRECT_BITS)) as usize;
            let first = position(prefix.bits());
            let len = 1 << DIRECT_BITS.saturating_sub(prefix.len());
            return first..first + len;
        }
        if prefix.covers(&range) {
            0..1 << (DIRECT_BITS - range.len())
        } else {
            0..0
        }
    }

    fn change(&self, means: &mut Means<'_>, prefix: &Prefix, change: Change) -> Result<(), Full> {
        let family = prefix.family();
        let range = range(family);
        for position in Self::positions(family, prefix) {
            let before = Entry(self.entries[position].load(Acquire));
            let after = if prefix.len() > DIRECT_BITS {
                means.change(before, 0, DIRECT_BITS, prefix, change)?
            } else {
                means.cover(before, |leaf| change.apply(leaf, 0, prefix.len(), 0))
            };
            if after != before {
                self.entries[position].store(after.0, Release);
            }
        }
        if !range.covers(prefix) {
            means.change_root(&self.rest, prefix, change)?;
        }
        Ok(())
    }

    /// Copies a tree.
    fn of_tree(means: &mut Means<'_>, family: Family, root: Entry) -> Result<Direct, Full> {
        let len = 1 << (DIRECT_BITS - range(family).len());
        let direct = Direct {
            entries: (0..len).map(|_| AtomicU32::new(0)).collect(),
            rest: AtomicU32::new(0),
        };
        direct.copy(means, family, root, Prefix::default_route(family), root)?;
        if family == Family::V6 {
            let rest = if root.is_link() {
                let leaf = node::inherited(means.memory, root);
                let runs = Runs::read(means.memory, root);
                let mut copy = runs.changed(0x20, 0x3f, |_| Entry::leaf(0, leaf.group()));
                for (first, last, below) in copy.clone().iter() {
                    if below.is_link() {
                        let inherited = node::inherited(means.memory, below);
                        let new = means.copy(below, inherited)?;
                        copy = copy.changed(first, last, |_| new);
                    }
                }
                if copy.is_inherited_only() {
                    leaf
                } else {
                    means.make(&copy, leaf)?
                }
            } else {
                root
            };
            direct.rest.store(rest.0, Release);
        }
        Ok(direct)
    }

    /// Copies what the tree says of the addresses of `at`: `entry`, and the leaf that holds where `entry` is a link, whose
    /// depth is the length of its route.
    fn copy(
        &self,
        means: &mut Means<'_>,
        family: Family,
        entry: Entry,
        at: Prefix,
        leaf: Entry,
    ) -> Result<(), Full> {
        if entry.is_link() && at.len() < DIRECT_BITS {
            let inherited = if at.len() == 0 {
                node::inherited(means.memory, entry)
            } else {
                leaf
            };
            let runs = Runs::read(means.memory, entry);
            for (first, last, below) in runs.iter() {
                let own = if below.is_link() {
                    node::inherited(means.memory, below)
                } else {
                    below
                };
                let own = match own.depth() {
                    0 => inherited,
                    depth => Entry::leaf(at.len() + depth, own.group()),
                };
                for byte in first..=last {
                    let bits = at.bits() | u128::from(byte) << (120 - u32::from(at.len()));
                    let at = Prefix::of_bits(family, bits, at.len() + STRIDE);
                    if !Self::positions(family, &at).is_empty() {
                        self.copy(means, family, below, at, own)?;
                    }
                }
            }
            return Ok(());
        }
        let value = if entry.is_link() {
            means.copy(entry, leaf)?
        } else {
            leaf
        };
        for position in Self::positions(family, &at) {
            self.entries[position].store(value.0, Release);
        }
        Ok(())
    }
}

/// Changes a route of a table; `routes` is the number of its routes after the change.
pub(crate) fn change(
    table: &Table,
    means: &mut Means<'_>,
    prefix: &Prefix,
    change: Change,
    routes: usize,
) -> Result<(), Full> {
    if let Some(direct) = table.direct.get() {
        return direct.change(means, prefix, change);
    }
    means.change_root(&table.root, prefix, change)?;
    if routes > SMALL {
        let root = table.root();
        let direct = Direct::of_tree(means, prefix.family(), root)?;
        // The table has one writer: nobody else can have set it.
        let _ = table.direct.set(direct);
        means.retire_tree(root);
    }
    Ok(())
}

/// Retires all nodes of a table.
pub(crate) fn retire(table: &Table, means: &mut Means<'_>) {
    match table.direct.get() {
        Some(direct) => {
            means.retire_tree(Entry(direct.rest.load(Acquire)));
            for entry in &direct.entries {
                means.retire_tree(Entry(entry.load(Acquire)));
            }
        }
        None => means.retire_tree(table.root()),
    }
}

/// Returns the memory of a table without its nodes, in bytes.
pub(crate) fn size(table: &Table) -> usize {
    table
        .direct
        .get()
        .map_or(0, |direct| size_of_val(&*direct.entries))
}
