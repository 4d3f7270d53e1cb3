//! A trie of prefixes with values, for longest-prefix match over a burst.
//!
//! The trie is a *tree bitmap* (Eatherton, Varghese and Dittia, "Tree Bitmap: Hardware/Software IP Lookups with
//! Incremental Updates", 2004) with strides of six bits below a root of sixteen. A node has one bit for each of the 63
//! prefixes that end in it, and one bit for each of its 64 possible children. Existing values and children are stored
//! contiguously, so that a population count is their index. An IPv4 address visits at most three nodes of 24 bytes. An
//! update changes one node and moves at most 64 values. There is no leaf pushing except in the root, where a prefix
//! shorter than sixteen bits covers many entries.

use std::collections::BTreeMap;

use super::BURST;
use super::simd::prefetch;

/// The number of bits of the root's index.
const ROOT: u32 = 16;

/// The number of bits of the address in one node.
const STRIDE: u32 = 6;

/// For each six bits of an address, the set of the prefixes of up to five bits that cover them. Bit `2^len - 1 + v`
/// stands for the prefix of `len` bits with value `v`.
const COVERING: [u64; 64] = {
    let mut masks = [0; 64];
    let mut value = 0;
    while value < 64 {
        let mut len = 0;
        while len < STRIDE {
            masks[value] |= 1u64 << ((1 << len) - 1 + (value >> (STRIDE - len)));
            len += 1;
        }
        value += 1;
    }
    masks
};

/// Blocks of one to 64 items in one vector; the capacity of a block is a power of two.
#[derive(Clone, Debug)]
struct Arena<T> {
    items: Vec<T>,
    free: [Vec<u32>; 7],
}

impl<T: Copy + Default> Arena<T> {
    fn new() -> Arena<T> {
        Arena {
            items: Vec::new(),
            free: Default::default(),
        }
    }

    /// Returns the size class of blocks with at least `len` items; `len` is not zero.
    fn class(len: u32) -> usize {
        len.next_power_of_two().trailing_zeros() as usize
    }

    /// Inserts an item into the block at `base`, which has `len` items, and returns the new base.
    fn insert(&mut self, base: u32, len: u32, at: u32, item: T) -> u32 {
        let base = match len {
            0 => self.take(0),
            _ if len.is_power_of_two() => {
                let moved = self.take(Self::class(len) + 1);
                self.items
                    .copy_within(base as usize..(base + len) as usize, moved as usize);
                self.free[Self::class(len)].push(base);
                moved
            }
            _ => base,
        };
        let block = &mut self.items[base as usize..=(base + len) as usize];
        block.copy_within(at as usize..len as usize, at as usize + 1);
        block[at as usize] = item;
        base
    }

    /// Removes an item from the block at `base`, which has `len` items, and returns the new base.
    fn remove(&mut self, base: u32, len: u32, at: u32) -> u32 {
        self.items.copy_within(
            (base + at + 1) as usize..(base + len) as usize,
            (base + at) as usize,
        );
        let left = len - 1;
        if left == 0 {
            self.free[0].push(base);
            return 0;
        }
        if !left.is_power_of_two() {
            return base;
        }
        let moved = self.take(Self::class(left));
        self.items
            .copy_within(base as usize..(base + left) as usize, moved as usize);
        self.free[Self::class(len)].push(base);
        moved
    }

    fn take(&mut self, class: usize) -> u32 {
        self.free[class].pop().unwrap_or_else(|| {
            let base = self.items.len();
            self.items.resize(base + (1 << class), T::default());
            base as u32
        })
    }

    fn heap_size(&self) -> usize {
        let free: usize = self.free.iter().map(Vec::capacity).sum();
        self.items.capacity() * size_of::<T>() + free * 4
    }
}

#[derive(Clone, Copy, Default, Debug)]
struct Node {
    /// The prefixes that end in this node.
    prefix_bitmap: u64,
    /// The children, by the next six bits.
    child_bitmap: u64,
    /// The index of the first value.
    values: u32,
    /// The index of the first child.
    children: u32,
}

impl Node {
    fn is_empty(&self) -> bool {
        self.prefix_bitmap == 0 && self.child_bitmap == 0
    }
}

/// Returns the number of bits of `word` below `bit`.
#[inline(always)]
const fn below(word: u64, bit: u32) -> u32 {
    (word & ((1 << bit) - 1)).count_ones()
}

/// Nonzero values by prefixes of up to 128 bits.
#[derive(Clone, Debug)]
pub(super) struct Trie {
    /// For each value of the first sixteen bits, the index of the node plus one, or zero.
    root: Box<[u32]>,
    /// For each value of the first sixteen bits, the value of the longest prefix shorter than sixteen bits; empty if
    /// there is no such prefix.
    covered: Vec<u64>,
    /// The prefixes shorter than sixteen bits, by length and bits.
    short: BTreeMap<(u32, u16), u64>,
    nodes: Arena<Node>,
    values: Arena<u64>,
    len: usize,
}

/// A prefix: the bits, from the highest one on, and their number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Prefix {
    pub(super) bits: u128,
    pub(super) len: u32,
}

impl Prefix {
    /// Returns the six bits from bit `depth` on, counted from the highest one.
    #[inline(always)]
    fn step(bits: u128, depth: u32) -> u32 {
        // The bits beyond the lowest one are zeros.
        (bits << depth >> (128 - STRIDE)) as u32
    }

    /// Returns the bit of this prefix in `prefix_bitmap` of a node at `depth`.
    fn end(self, depth: u32) -> u32 {
        let len = self.len - depth;
        (1 << len) - 1 + (Self::step(self.bits, depth) >> (STRIDE - len))
    }

    fn root(self) -> usize {
        (self.bits >> (128 - ROOT)) as usize
    }
}

impl Trie {
    /// Returns an empty trie.
    pub(super) fn new() -> Trie {
        Trie {
            root: vec![0; 1 << ROOT].into_boxed_slice(),
            covered: Vec::new(),
            short: BTreeMap::new(),
            nodes: Arena::new(),
            values: Arena::new(),
            len: 0,
        }
    }

    /// Returns the number of prefixes.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Returns the node that the prefix ends in and its depth, if there is such a node.
    fn node(&self, prefix: Prefix) -> Option<(usize, u32)> {
        let mut node = self.root[prefix.root()].checked_sub(1)? as usize;
        let mut depth = ROOT;
        while prefix.len >= depth + STRIDE {
            let held = &self.nodes.items[node];
            let step = Prefix::step(prefix.bits, depth);
            if held.child_bitmap >> step & 1 == 0 {
                return None;
            }
            node = (held.children + below(held.child_bitmap, step)) as usize;
            depth += STRIDE;
        }
        Some((node, depth))
    }

    fn value_mut(&mut self, prefix: Prefix) -> Option<&mut u64> {
        let (node, depth) = self.node(prefix)?;
        let (node, end) = (self.nodes.items[node], prefix.end(depth));
        if node.prefix_bitmap >> end & 1 == 0 {
            return None;
        }
        self.values
            .items
            .get_mut((node.values + below(node.prefix_bitmap, end)) as usize)
    }

    /// Returns the value of exactly this prefix.
    pub(super) fn value(&self, prefix: Prefix) -> Option<u64> {
        if prefix.len < ROOT {
            return self.short.get(&(prefix.len, prefix.root() as u16)).copied();
        }
        let (node, depth) = self.node(prefix)?;
        let (node, end) = (&self.nodes.items[node], prefix.end(depth));
        let there = node.prefix_bitmap >> end & 1 == 1;
        there.then(|| self.values.items[(node.values + below(node.prefix_bitmap, end)) as usize])
    }

    /// Sets the value of a prefix, which may be new.
    pub(super) fn insert(&mut self, prefix: Prefix, value: u64) {
        if prefix.len < ROOT {
            let old = self.short.insert((prefix.len, prefix.root() as u16), value);
            self.len += usize::from(old.is_none());
            self.cover(prefix, value);
            return;
        }
        if let Some(held) = self.value_mut(prefix) {
            *held = value;
            return;
        }
        self.len += 1;
        let place = &mut self.root[prefix.root()];
        if *place == 0 {
            *place = self.nodes.insert(0, 0, 0, Node::default()) + 1;
        }
        let mut node = *place as usize - 1;
        let mut depth = ROOT;
        while prefix.len >= depth + STRIDE {
            let mut held = self.nodes.items[node];
            let step = Prefix::step(prefix.bits, depth);
            let at = below(held.child_bitmap, step);
            if held.child_bitmap >> step & 1 == 0 {
                let len = held.child_bitmap.count_ones();
                held.children = self.nodes.insert(held.children, len, at, Node::default());
                held.child_bitmap |= 1 << step;
                self.nodes.items[node] = held;
            }
            node = (held.children + at) as usize;
            depth += STRIDE;
        }
        let held = &mut self.nodes.items[node];
        let end = prefix.end(depth);
        let (at, len) = (below(held.prefix_bitmap, end), held.prefix_bitmap.count_ones());
        held.values = self.values.insert(held.values, len, at, value);
        held.prefix_bitmap |= 1 << end;
    }

    /// Stores `value` in every root entry below this prefix, except entries that a longer one of the short prefixes
    /// covers.
    fn cover(&mut self, prefix: Prefix, value: u64) {
        if self.short.is_empty() {
            self.covered = Vec::new();
            return;
        }
        self.covered.resize(1 << ROOT, 0);
        let (from, count) = (prefix.root(), 1usize << (ROOT - prefix.len));
        let mut longer = vec![false; count];
        for len in prefix.len + 1..ROOT {
            let (first, last) = (from as u16, (from + count - 1) as u16);
            for ((_, bits), _) in self.short.range((len, first)..=(len, last)) {
                longer[usize::from(*bits) - from..][..1 << (ROOT - len)].fill(true);
            }
        }
        for (covered, longer) in self.covered[from..].iter_mut().zip(longer) {
            *covered = if longer { *covered } else { value };
        }
    }

    /// Removes a prefix.
    pub(super) fn remove(&mut self, prefix: Prefix) -> Option<u64> {
        let value = self.value(prefix)?;
        self.len -= 1;
        if prefix.len < ROOT {
            self.short.remove(&(prefix.len, prefix.root() as u16));
            let shorter = (0..prefix.len).rev().find_map(|len| {
                let bits = prefix.root() as u16 & !(u16::MAX.checked_shr(len).unwrap_or(0));
                self.short.get(&(len, bits)).copied()
            });
            self.cover(prefix, shorter.unwrap_or(0));
            return Some(value);
        }
        // The nodes on the path: the index of each, and the number of children before the next node.
        let mut way = Vec::new();
        let mut node = (self.root[prefix.root()] - 1) as usize;
        let mut depth = ROOT;
        while prefix.len >= depth + STRIDE {
            let held = &self.nodes.items[node];
            let step = Prefix::step(prefix.bits, depth);
            way.push((node, step));
            node = (held.children + below(held.child_bitmap, step)) as usize;
            depth += STRIDE;
        }
        let held = &mut self.nodes.items[node];
        let end = prefix.end(depth);
        let (at, len) = (below(held.prefix_bitmap, end), held.prefix_bitmap.count_ones());
        held.values = self.values.remove(held.values, len, at);
        held.prefix_bitmap &= !(1 << end);
        let mut empty = held.is_empty();
        for (parent, step) in way.into_iter().rev() {
            if !empty {
                return Some(value);
            }
            let mut held = self.nodes.items[parent];
            let (at, len) = (below(held.child_bitmap, step), held.child_bitmap.count_ones());
            held.children = self.nodes.remove(held.children, len, at);
            held.child_bitmap &= !(1 << step);
            self.nodes.items[parent] = held;
            empty = held.is_empty();
        }
        if empty {
            let place = &mut self.root[prefix.root()];
            self.nodes.remove(*place - 1, 1, 0);
            *place = 0;
        }
        Some(value)
    }

    /// Calls `visit` with every prefix.
    pub(super) fn each(&self, mut visit: impl FnMut(Prefix, u64)) {
        for ((len, bits), value) in &self.short {
            let bits = u128::from(*bits) << (128 - ROOT);
            visit(Prefix { bits, len: *len }, *value);
        }
        let mut left: Vec<(u32, u128, u32)> = Vec::new();
        for (place, held) in self.root.iter().enumerate().filter(|(_, held)| **held != 0) {
            left.push((held - 1, (place as u128) << (128 - ROOT), ROOT));
            while let Some((node, bits, depth)) = left.pop() {
                let node = &self.nodes.items[node as usize];
                for (at, end) in ones(node.prefix_bitmap).enumerate() {
                    let len = (end + 1).ilog2();
                    let more = u128::from(end + 1 - (1 << len)) << (127 - len) << 1 >> depth;
                    let prefix = Prefix {
                        bits: bits | more,
                        len: depth + len,
                    };
                    visit(prefix, self.values.items[node.values as usize + at]);
                }
                for (at, step) in ones(node.child_bitmap).enumerate() {
                    let more = u128::from(step) << (128 - STRIDE) >> depth;
                    left.push((node.children + at as u32, bits | more, depth + STRIDE));
                }
            }
        }
    }

    /// Calls `found` with the index of each address and the value of its longest prefix, or zero.
    #[inline(always)]
    pub(super) fn search(&self, addresses: &[u128; BURST], len: usize, mut found: impl FnMut(usize, u64)) {
        let place = |address: u128| (address >> (128 - ROOT)) as usize;
        for address in &addresses[..len] {
            prefetch(&self.root, place(*address));
        }
        // `numbers` and `nodes` list the addresses that have further nodes, and these nodes. `values` has the
        // index of each address's value so far.
        let (mut numbers, mut nodes, mut left) = ([0u8; BURST], [0u32; BURST], 0);
        let mut values = [u32::MAX; BURST];
        for (number, address) in addresses[..len].iter().enumerate() {
            let held = self.root[place(*address)];
            let node = held.wrapping_sub(1);
            prefetch(&self.nodes.items, node as usize);
            numbers[left % BURST] = number as u8;
            nodes[left % BURST] = node;
            left += usize::from(held != 0);
        }
        let mut depth = ROOT;
        while left > 0 {
            let count = left;
            left = 0;
            for at in 0..count {
                let number = usize::from(numbers[at]) % BURST;
                let node = &self.nodes.items[nodes[at] as usize];
                let step = Prefix::step(addresses[number], depth);
                let ends = node.prefix_bitmap & COVERING[step as usize % 64];
                let longest = 63 - (ends | 1).leading_zeros();
                let value = node.values + below(node.prefix_bitmap, longest);
                values[number] = if ends != 0 { value } else { values[number] };
                let child = node.children + below(node.child_bitmap, step);
                prefetch(&self.nodes.items, child as usize);
                numbers[left % BURST] = number as u8;
                nodes[left % BURST] = child;
                left += (node.child_bitmap >> step & 1) as usize;
            }
            depth += STRIDE;
        }
        for value in &values[..len] {
            prefetch(&self.values.items, *value as usize);
        }
        for number in 0..len {
            let value = self.values.items.get(values[number] as usize);
            let value = value.or_else(|| self.covered.get(place(addresses[number])));
            found(number, value.copied().unwrap_or(0));
        }
    }

    /// Returns the size in bytes of the heap memory in use.
    pub(super) fn heap_size(&self) -> usize {
        self.root.len() * 4
            + self.covered.capacity() * 8
            + self.short.len() * size_of::<((u32, u16), u64)>()
            + self.nodes.heap_size()
            + self.values.heap_size()
    }
}

/// Returns the indices of the set bits, lowest first.
fn ones(mut word: u64) -> impl Iterator<Item = u32> {
    core::iter::from_fn(move || {
        let bit = (word != 0).then(|| word.trailing_zeros())?;
        word &= word - 1;
        Some(bit)
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use millrace_types::split_mix::next as split_mix;

    fn cut(bits: u128, len: u32) -> Prefix {
        let bits = if len == 0 {
            0
        } else {
            bits >> (128 - len) << (128 - len)
        };
        Prefix { bits, len }
    }

    /// Returns random prefixes that nest, up to `widest` bits.
    fn prefix(state: &mut u64, widest: u32) -> Prefix {
        let few = u128::from(split_mix(state) % 5) << 125;
        let random = u128::from(split_mix(state)) << 64 | u128::from(split_mix(state));
        let keep = split_mix(state) as u32 % (widest + 1);
        let bits = few | if keep == 0 { 0 } else { random << (128 - keep) } >> (split_mix(state) % 24);
        cut(bits, split_mix(state) as u32 % (widest + 1))
    }

    #[test]
    fn the_longest_prefix_is_found_through_random_updates() {
        for (seed, widest) in [(1, 32), (2, 128), (3, 20), (4, 64), (5, 15), (6, 33)] {
            let (mut state, mut trie, mut all) = (seed, Trie::new(), HashMap::new());
            for round in 1..600u64 {
                let prefix = prefix(&mut state, widest);
                if !split_mix(&mut state).is_multiple_of(3) {
                    trie.insert(prefix, round);
                    all.insert((prefix.len, prefix.bits), round);
                } else if let Some((len, bits)) = all.keys().next().copied() {
                    assert_eq!(trie.remove(Prefix { bits, len }), all.remove(&(len, bits)));
                }
                assert_eq!(trie.len(), all.len());
                if round % 20 != 0 {
                    continue;
                }
                let mut addresses = [0; BURST];
                addresses.fill_with(|| self::prefix(&mut state, 128).bits);
                for (held, address) in all.keys().zip(&mut addresses).take(50) {
                    *address = held.1 | u128::from(split_mix(&mut state)) >> (held.0 / 2);
                }
                trie.search(&addresses, BURST, |number, value| {
                    let matching = |len: &u32| all.get(&(*len, cut(addresses[number], *len).bits));
                    let longest = (0..=128).rev().find_map(|len| matching(&len));
                    assert_eq!(value, longest.copied().unwrap_or(0), "{:x}", addresses[number]);
                });
                let mut seen = HashMap::new();
                trie.each(|prefix, value| assert!(seen.insert((prefix.len, prefix.bits), value).is_none()));
                assert_eq!(seen, all);
            }
            for ((len, bits), value) in all {
                assert_eq!(trie.value(Prefix { bits, len }), Some(value));
                assert_eq!(trie.remove(Prefix { bits, len }), Some(value));
            }
            assert!(trie.root.iter().all(|place| *place == 0) && trie.covered.is_empty());
        }
    }
}
