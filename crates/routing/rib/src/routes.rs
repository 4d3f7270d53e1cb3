//! The routes of a VRF, by prefix: all that the kernel or FPM has, and which of them the FIB has.

use std::collections::{BinaryHeap, HashMap};
use std::hash::Hash;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use millrace_fib::{Family, GroupId, Prefix};

use crate::event::{RouteKind, Source};
use crate::hops::SetId;

/// A route of a prefix.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Record {
    /// The next hops.
    pub(crate) set: SetId,
    pub(crate) metric: u32,
    /// The number of the preferred source address; 0: none.
    pub(crate) source_address: u32,
    pub(crate) protocol: u8,
    pub(crate) kind: RouteKind,
    pub(crate) origin: Origin,
    /// The dump or replay that named the route last.
    pub(crate) generation: u8,
}

/// The table and the source that have a route.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Origin {
    /// The kernel's table `local`, which is asked before all others.
    LocalTable,
    /// The VRF's table, by netlink.
    Kernel,
    Fpm,
}

impl Origin {
    pub(crate) fn source(self) -> Source {
        match self {
            Origin::LocalTable | Origin::Kernel => Source::Kernel,
            Origin::Fpm => Source::Fpm,
        }
    }
}

/// The routes of one prefix.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Entry {
    /// In the order in which the kernel asks them, among those of one table and metric.
    records: Records,
    /// The group that the FIB has for this prefix.
    pub(crate) installed: GroupId,
    /// The group under which [`Tally`] has this prefix; none if it has not.
    pub(crate) counted: GroupId,
}

/// The numbers of a VRF's prefixes that the FIB has and a route is of, by family, and of those that each group has. Kept with
/// each change, because those who read them often must not wait for a walk over a million prefixes.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) prefixes: [usize; 2],
    groups: HashMap<GroupId, u32>,
}

impl Tally {
    /// Returns the number of groups with prefixes.
    pub(crate) fn groups_len(&self) -> usize {
        self.groups.len()
    }

    /// Notes the present group of an entry of a family.
    fn note(&mut self, family: Family, entry: &mut Entry) {
        let now = if entry.is_empty() {
            GroupId::NONE
        } else {
            entry.installed
        };
        let before = core::mem::replace(&mut entry.counted, now);
        if before == now {
            return;
        }
        if !before.is_none() {
            self.prefixes[family as usize] -= 1;
            if let Some(count) = self.groups.get_mut(&before) {
                *count -= 1;
                if *count == 0 {
                    self.groups.remove(&before);
                }
            }
        }
        if !now.is_none() {
            self.prefixes[family as usize] += 1;
            *self.groups.entry(now).or_default() += 1;
        }
    }
}

/// Most prefixes have one route.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
enum Records {
    #[default]
    None,
    One(Record),
    Many(Vec<Record>),
}

impl Entry {
    pub(crate) fn records(&self) -> &[Record] {
        match &self.records {
            Records::None => &[],
            Records::One(record) => core::slice::from_ref(record),
            Records::Many(records) => records,
        }
    }

    pub(crate) fn records_mut(&mut self) -> &mut [Record] {
        match &mut self.records {
            Records::None => &mut [],
            Records::One(record) => core::slice::from_mut(record),
            Records::Many(records) => records,
        }
    }

    /// Returns the route that packets take: of those that are usable, the one of the table that is asked first, with the
    /// lowest metric, and the first of those.
    pub(crate) fn best(&self, is_usable: impl Fn(&Record) -> bool) -> Option<&Record> {
        let rank = |record: &&Record| {
            (
                record.origin == Origin::LocalTable,
                core::cmp::Reverse(record.metric),
            )
        };
        // Of several maxima, `max_by_key` returns the last.
        self.records()
            .iter()
            .rev()
            .filter(|record| is_usable(record))
            .max_by_key(rank)
    }

    pub(crate) fn insert(&mut self, at: usize, record: Record) {
        self.records = match core::mem::take(&mut self.records) {
            Records::None => Records::One(record),
            Records::One(one) => Records::Many(if at == 0 {
                vec![record, one]
            } else {
                vec![one, record]
            }),
            Records::Many(mut records) => {
                records.insert(at.min(records.len()), record);
                Records::Many(records)
            }
        };
    }

    pub(crate) fn remove(&mut self, at: usize) -> Option<Record> {
        match &mut self.records {
            Records::One(record) if at == 0 => {
                let record = *record;
                self.records = Records::None;
                Some(record)
            }
            Records::Many(records) if at < records.len() => {
                let record = records.remove(at);
                match records.as_slice() {
                    [] => self.records = Records::None,
                    [one] => self.records = Records::One(*one),
                    _ => {}
                }
                Some(record)
            }
            _ => None,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.records().is_empty()
    }
}

/// A prefix of one family, as small as it can be.
trait Key: Copy + Eq + Hash {
    fn of(prefix: &Prefix) -> Self;
    fn prefix(self) -> Prefix;
}

/// Address and length.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Key4(u64);

impl Key for Key4 {
    fn of(prefix: &Prefix) -> Key4 {
        Key4((prefix.bits() >> 96) as u64 | u64::from(prefix.len()) << 32)
    }

    fn prefix(self) -> Prefix {
        let address = IpAddr::V4(Ipv4Addr::from_bits(self.0 as u32));
        Prefix::new(address, (self.0 >> 32) as u8).unwrap_or(Prefix::default_route(Family::V4))
    }
}

/// High and low half of the address, and length: without the alignment of 128-bit numbers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Key6(u64, u64, u8);

impl Key for Key6 {
    fn of(prefix: &Prefix) -> Key6 {
        Key6((prefix.bits() >> 64) as u64, prefix.bits() as u64, prefix.len())
    }

    fn prefix(self) -> Prefix {
        let address = IpAddr::V6(Ipv6Addr::from_bits(u128::from(self.0) << 64 | u128::from(self.1)));
        Prefix::new(address, self.2).unwrap_or(Prefix::default_route(Family::V6))
    }
}

#[derive(Debug)]
struct Table<K> {
    entries: HashMap<K, Entry>,
    /// The number of entries by length.
    lengths: [u32; 129],
}

impl<K: Key> Default for Table<K> {
    fn default() -> Table<K> {
        Table {
            entries: HashMap::new(),
            lengths: [0; 129],
        }
    }
}

impl<K: Key> Table<K> {
    fn entry(&mut self, prefix: &Prefix) -> &mut Entry {
        let lengths = &mut self.lengths[usize::from(prefix.len())];
        self.entries.entry(K::of(prefix)).or_insert_with(|| {
            *lengths += 1;
            Entry::default()
        })
    }

    fn remove(&mut self, prefix: &Prefix) {
        if self.entries.remove(&K::of(prefix)).is_some() {
            self.lengths[usize::from(prefix.len())] -= 1;
        }
    }

    /// Returns the longest entry of at most `len` bits around a prefix for which `want` holds.
    fn longest(
        &self,
        prefix: &Prefix,
        len: u8,
        mut want: impl FnMut(&Entry) -> bool,
    ) -> Option<(Prefix, &Entry)> {
        (0..=len)
            .rev()
            .filter(|len| self.lengths[usize::from(*len)] > 0)
            .find_map(|len| {
                let prefix = prefix.shortened(len);
                let entry = self.entries.get(&K::of(&prefix))?;
                want(entry).then_some((prefix, entry))
            })
    }

    fn iter(&self) -> impl Iterator<Item = (Prefix, &Entry)> {
        self.entries.iter().map(|(key, entry)| (key.prefix(), entry))
    }

    /// Returns the first prefixes for which `want` holds, in order, `count` at most. Each entry is looked at: a table of
    /// a million routes changes too often to be kept in order for the few who read it.
    fn first(&self, count: usize, want: &impl Fn(&Prefix, &Entry) -> bool) -> Vec<Prefix> {
        let mut found = BinaryHeap::new();
        for (prefix, entry) in self.iter() {
            let is_beyond = found.len() >= count && found.peek().is_none_or(|last| prefix >= *last);
            if !is_beyond && want(&prefix, entry) {
                found.push(prefix);
                if found.len() > count {
                    found.pop();
                }
            }
        }
        found.into_sorted_vec()
    }
}

/// The routes of both families.
#[derive(Debug, Default)]
pub(crate) struct Routes {
    four: Table<Key4>,
    six: Table<Key6>,
    tally: Tally,
}

impl Routes {
    pub(crate) fn len(&self) -> usize {
        self.four.entries.len() + self.six.entries.len()
    }

    pub(crate) fn get(&self, prefix: &Prefix) -> Option<&Entry> {
        match prefix.family() {
            Family::V4 => self.four.entries.get(&Key4::of(prefix)),
            Family::V6 => self.six.entries.get(&Key6::of(prefix)),
        }
    }

    pub(crate) fn get_mut(&mut self, prefix: &Prefix) -> Option<&mut Entry> {
        match prefix.family() {
            Family::V4 => self.four.entries.get_mut(&Key4::of(prefix)),
            Family::V6 => self.six.entries.get_mut(&Key6::of(prefix)),
        }
    }

    /// Returns the entry of a prefix, which is made if it is not there.
    pub(crate) fn entry(&mut self, prefix: &Prefix) -> &mut Entry {
        match prefix.family() {
            Family::V4 => self.four.entry(prefix),
            Family::V6 => self.six.entry(prefix),
        }
    }

    /// Counts a prefix as its entry is now, and removes the entry if it is no longer used. Called after each change of an
    /// entry.
    pub(crate) fn settle(&mut self, prefix: &Prefix) {
        let family = prefix.family();
        let entry = match family {
            Family::V4 => self.four.entries.get_mut(&Key4::of(prefix)),
            Family::V6 => self.six.entries.get_mut(&Key6::of(prefix)),
        };
        let Some(entry) = entry else {
            return;
        };
        self.tally.note(family, entry);
        if entry.is_empty() && entry.installed.is_none() {
            match family {
                Family::V4 => self.four.remove(prefix),
                Family::V6 => self.six.remove(prefix),
            }
        }
    }

    pub(crate) fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Returns the longest entry around a prefix, itself included, for which `want` holds.
    pub(crate) fn longest(
        &self,
        prefix: &Prefix,
        want: impl FnMut(&Entry) -> bool,
    ) -> Option<(Prefix, &Entry)> {
        match prefix.family() {
            Family::V4 => self.four.longest(prefix, prefix.len(), want),
            Family::V6 => self.six.longest(prefix, prefix.len(), want),
        }
    }

    /// Returns the group that addresses of a prefix have in the FIB without it, and the length of its route.
    pub(crate) fn cover(&self, prefix: &Prefix) -> Option<(u8, GroupId)> {
        let shorter = prefix.len().checked_sub(1)?;
        let want = |entry: &Entry| !entry.installed.is_none();
        let found = match prefix.family() {
            Family::V4 => self.four.longest(prefix, shorter, want),
            Family::V6 => self.six.longest(prefix, shorter, want),
        };
        found.map(|(prefix, entry)| (prefix.len(), entry.installed))
    }

    /// Returns the first prefixes after `after` for which `want` holds, in order, `count` at most.
    pub(crate) fn first(
        &self,
        after: Option<&Prefix>,
        count: usize,
        want: impl Fn(&Prefix, &Entry) -> bool,
    ) -> Vec<Prefix> {
        let want =
            |prefix: &Prefix, entry: &Entry| after.is_none_or(|after| prefix > after) && want(prefix, entry);
        // IPv4 comes before IPv6.
        let mut found = match after {
            Some(after) if after.family() == Family::V6 => Vec::new(),
            _ => self.four.first(count, &want),
        };
        if found.len() < count {
            found.extend(self.six.first(count - found.len(), &want));
        }
        found
    }

    /// Returns all entries, in no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Prefix, &Entry)> {
        self.four.iter().chain(self.six.iter())
    }
}
