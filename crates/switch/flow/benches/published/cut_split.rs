//! CutSplit (Li, Li, Li and Xie, "CutSplit: a decision-tree combining cutting and splitting for scalable packet
//! classification", INFOCOM 2018).
//!
//! Rules are partitioned by their *small* addresses (a prefix of 16 bits or more): both addresses, the
//! source, the destination, or none. Each of the first three parts gets a tree whose nodes are cut into equal
//! children (FiCuts: 64 children, or 8 by 8) down to the size of a small address: such cuts repeat hardly any
//! rule. Below that size, and for rules without a small address, nodes are split in two (HyperSplit, Qi et
//! al., INFOCOM 2009: in the field with the fewest rules in each segment, at the weighted median). A node
//! with at most eight rules becomes a leaf.
//!
//! Layout: nodes of twelve bytes in one array, children side by side, leaves inside it; a leaf's rules are indices,
//! highest rank first. A rule that covers its node hides all lower ones. Trees are searched in the order of their
//! highest priorities. There are no updates: the paper rebuilds.

use crate::rule::{
    ADDRESSES, FIELDS, NonPrefixRules, Packet, PublishedClassifier, Range, Rule5, WHOLE, limit, values,
};

/// The maximum number of rules of a leaf ("binth").
const LEAF_MAX: usize = 8;

/// The minimum length in bits of a small prefix.
const SMALL_BITS: u32 = 16;

/// The number of bits by which a node is cut.
const CUT_BITS: u32 = 6;

/// The maximum number of nodes, and of rule indices in leaves; a tree that exceeds it is given up.
const SIZE_MAX: usize = 1 << 26;

#[derive(Clone, Copy)]
enum Kind {
    /// The node is a leaf with `value` rules, from index `first` on.
    Leaf,
    /// The child is `first` for values up to `value`, otherwise the child after it.
    Split,
    /// The child is chosen by the six bits above `shift`.
    Cut,
    /// The child is chosen by the three bits above `shift` of each address.
    CutBoth,
}

#[derive(Clone, Copy)]
struct Node {
    kind: Kind,
    field: u8,
    shift: u8,
    value: u32,
    first: u32,
}

const EMPTY: Node = Node {
    kind: Kind::Leaf,
    field: 0,
    shift: 0,
    value: 0,
    first: 0,
};

type Box5 = [Range; FIELDS];

pub(crate) struct CutSplit {
    rules: Vec<Rule5>,
    nodes: Vec<Node>,
    /// The rules of all leaves.
    held: Vec<u32>,
    /// The trees' limits and roots, highest limit first.
    trees: Vec<(u64, u32)>,
    irregular: NonPrefixRules,
}

/// The state of the construction of a tree.
struct Builder {
    ranges: Vec<Box5>,
    nodes: Vec<Node>,
    held: Vec<u32>,
}

impl CutSplit {
    /// Returns the trees; `None` if they exceed [`SIZE_MAX`].
    pub(crate) fn new(rules: &[Rule5]) -> Option<CutSplit> {
        let (irregular, mut plain): (Vec<Rule5>, Vec<Rule5>) =
            rules.iter().partition(|rule| rule.ranges().is_none());
        plain.sort_by_key(|rule| core::cmp::Reverse(rule.rank));
        let mut builder = Builder {
            ranges: plain.iter().filter_map(Rule5::ranges).collect(),
            nodes: Vec::new(),
            held: Vec::new(),
        };
        // The parts by small addresses: bit 0 for the source, bit 1 for the destination.
        let mut parts: [Vec<u32>; 4] = Default::default();
        for (rule, own) in builder.ranges.iter().enumerate() {
            let small =
                ADDRESSES.map(|side| usize::from(own[side].hi - own[side].lo <= u32::MAX >> SMALL_BITS));
            parts[small[0] | small[1] << 1].push(rule as u32);
        }
        let mut trees = Vec::new();
        for (small, part) in parts.iter().enumerate() {
            let Some(first) = part.first() else { continue };
            let root = builder.nodes.len() as u32;
            builder.nodes.push(EMPTY);
            if small == 0 {
                builder.split(root, &WHOLE, part)?;
            } else {
                builder.cut(root, &WHOLE, part, (small, 32))?;
            }
            trees.push((limit(plain[*first as usize].priority()), root));
        }
        trees.sort_by_key(|(limit, _)| core::cmp::Reverse(*limit));
        let mut remainder = NonPrefixRules::default();
        irregular.iter().for_each(|rule| remainder.insert(rule));
        builder.nodes.shrink_to_fit();
        builder.held.shrink_to_fit();
        Some(CutSplit {
            rules: plain,
            nodes: builder.nodes,
            held: builder.held,
            trees,
            irregular: remainder,
        })
    }
}

impl Builder {
    /// Returns the rules of `among` that overlap a box and are not hidden by a rule that covers the box.
    fn reaching(&self, bounds: &Box5, among: &[u32]) -> Vec<u32> {
        let mut kept = Vec::new();
        for rule in among {
            let own = &self.ranges[*rule as usize];
            let sides = || own.iter().zip(bounds);
            if sides().all(|(own, side)| own.overlaps(*side)) {
                kept.push(*rule);
                if sides().all(|(own, side)| own.contains(*side)) {
                    break;
                }
            }
        }
        kept
    }

    fn leaf(&mut self, node: u32, rules: &[u32]) -> Option<()> {
        self.nodes[node as usize] = Node {
            value: rules.len() as u32,
            first: self.held.len() as u32,
            ..EMPTY
        };
        self.held.extend_from_slice(rules);
        (self.held.len() + self.nodes.len() < SIZE_MAX).then_some(())
    }

    fn children(&mut self, count: u32) -> u32 {
        let first = self.nodes.len();
        self.nodes.resize(first + count as usize, EMPTY);
        first as u32
    }

    /// Cuts a node (FiCuts); `left` is the number of bits of the small addresses that are not cut yet.
    fn cut(&mut self, node: u32, bounds: &Box5, rules: &[u32], (small, left): (usize, u32)) -> Option<()> {
        if rules.len() <= LEAF_MAX {
            return self.leaf(node, rules);
        }
        let both = small == 3;
        let bits = if both { CUT_BITS / 2 } else { CUT_BITS };
        if left < 32 - SMALL_BITS + bits {
            return self.split(node, bounds, rules);
        }
        let (shift, field) = (left - bits, small >> 1 & usize::from(!both));
        let first = self.children(1 << CUT_BITS);
        self.nodes[node as usize] = Node {
            kind: if both { Kind::CutBoth } else { Kind::Cut },
            field: field as u8,
            shift: shift as u8,
            value: 0,
            first,
        };
        for child in 0..1u32 << CUT_BITS {
            let mut inside = *bounds;
            let mut narrow = |field: usize, part: u32| {
                let lo = bounds[field].lo + (part << shift);
                inside[field] = Range {
                    lo,
                    hi: lo + ((1 << shift) - 1),
                };
            };
            if both {
                narrow(0, child >> 3);
                narrow(1, child & 7);
            } else {
                narrow(field, child);
            }
            let reaching = self.reaching(&inside, rules);
            self.cut(first + child, &inside, &reaching, (small, shift))?;
        }
        Some(())
    }

    /// Splits a node in two (HyperSplit).
    fn split(&mut self, node: u32, bounds: &Box5, rules: &[u32]) -> Option<()> {
        let chosen = (rules.len() > LEAF_MAX).then(|| self.place(bounds, rules));
        let Some((field, value)) = chosen.flatten() else {
            return self.leaf(node, rules);
        };
        let first = self.children(2);
        self.nodes[node as usize] = Node {
            kind: Kind::Split,
            field: field as u8,
            shift: 0,
            value,
            first,
        };
        let (mut lower, mut upper) = (*bounds, *bounds);
        lower[field].hi = value;
        upper[field].lo = value + 1;
        let reaching = self.reaching(&lower, rules);
        self.split(first, &lower, &reaching)?;
        let reaching = self.reaching(&upper, rules);
        self.split(first + 1, &upper, &reaching)
    }

    /// Returns the field and value of a split: the field whose segments have fewest rules on average, at the median of
    /// rules.
    fn place(&self, bounds: &Box5, rules: &[u32]) -> Option<(usize, u32)> {
        let mut best: Option<(f64, usize, u32)> = None;
        for (field, side) in bounds.iter().enumerate() {
            // The values at which the number of rules changes, and the differences.
            let mut changes: Vec<(u32, i32)> = Vec::with_capacity(2 * rules.len());
            for rule in rules {
                let own = self.ranges[*rule as usize][field];
                changes.push((own.lo.max(side.lo), 1));
                if own.hi < side.hi {
                    changes.push((own.hi + 1, -1));
                }
            }
            changes.sort_unstable();
            let mut segments: Vec<(u32, i32)> = vec![(side.lo, 0)];
            let mut inside = 0;
            for (start, change) in changes {
                inside += change;
                match segments.last_mut() {
                    Some(last) if last.0 == start => last.1 = inside,
                    _ => segments.push((start, inside)),
                }
            }
            let total: i64 = segments.iter().map(|(_, inside)| i64::from(*inside)).sum();
            let mean = total as f64 / segments.len() as f64;
            if segments.len() < 2 || best.is_some_and(|(least, ..)| least <= mean) {
                continue;
            }
            let mut sum = 0;
            let reached = |(_, inside): &(u32, i32)| {
                sum += i64::from(*inside);
                2 * sum >= total
            };
            let median = segments.iter().position(reached).unwrap_or(0);
            // The split is at the end of the median segment, or at the beginning of it if it is the last
            // segment.
            let behind = (median + 1).min(segments.len() - 1);
            best = Some((mean, field, segments[behind].0 - 1));
        }
        best.map(|(_, field, value)| (field, value))
    }
}

impl PublishedClassifier for CutSplit {
    #[inline(always)]
    fn lookup(&self, packet: Packet) -> u64 {
        let values = values(packet);
        let mut best = 0;
        for (limit, root) in &self.trees {
            if best >= *limit {
                break;
            }
            let mut node = self.nodes[*root as usize];
            loop {
                let value = values[usize::from(node.field)];
                let child = match node.kind {
                    Kind::Leaf => break,
                    Kind::Split => u32::from(value > node.value),
                    Kind::Cut => value >> node.shift & 63,
                    Kind::CutBoth => (values[0] >> node.shift & 7) << 3 | values[1] >> node.shift & 7,
                };
                node = self.nodes[(node.first + child) as usize];
            }
            let held = &self.held[node.first as usize..][..node.value as usize];
            for rule in held.iter().map(|rule| &self.rules[*rule as usize]) {
                if rule.rank <= best {
                    break;
                }
                if rule.matches(packet) {
                    best = rule.rank;
                    break;
                }
            }
        }
        self.irregular.lookup(packet, best)
    }

    fn heap_size(&self) -> usize {
        self.rules.capacity() * size_of::<Rule5>()
            + self.nodes.capacity() * size_of::<Node>()
            + self.held.capacity() * 4
            + self.irregular.heap_size()
    }

    fn structure(&self) -> String {
        format!(
            "{} trees, {} nodes, {} held",
            self.trees.len(),
            self.nodes.len(),
            self.held.len()
        )
    }

    fn insert(&mut self, _: &Rule5) -> bool {
        false
    }

    fn remove(&mut self, _: &Rule5) -> bool {
        false
    }
}
