//! The MAC table as workers read it: the port of each MAC address.
//!
//! Workers look up addresses, and record the time of an address's last packet with one relaxed store. The
//! control side decides which addresses are learned, moved, aged out or flushed, and sends
//! [`Op`](crate::Op)s.

use core::hash::Hasher;
use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use hashbrown::HashTable;
use millrace_types::{Duration, Mac, PortNo, Time, Vid};
use siphasher::sip::SipHasher13;

/// The key of the MAC table: an address in a VLAN.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FdbKey {
    /// The VLAN, zero for none.
    pub vid: Vid,
    /// The address.
    pub mac: Mac,
}

/// An entry of the MAC table.
#[derive(Debug)]
pub struct FdbEntry {
    /// The address and its VLAN.
    pub key: FdbKey,
    pub port: PortNo,
    /// True if the entry was set by configuration: it does not age, and no packet moves it (IEEE 802.1Q-2018,
    /// section 8.8.1).
    pub is_static: bool,
    last_seen: AtomicU64,
}

impl FdbEntry {
    /// The resolution of [`FdbEntry::last_seen`]: a worker writes only if the value is older, so that the cache line
    /// is shared for reading most of the time.
    pub const RESOLUTION: Duration = Duration::from_secs(1);

    /// Returns an entry whose address is seen now.
    pub fn new(key: FdbKey, port: PortNo, now: Time) -> FdbEntry {
        FdbEntry {
            key,
            port,
            is_static: false,
            last_seen: AtomicU64::new(now.nanos()),
        }
    }

    /// Returns a static entry.
    pub fn new_static(key: FdbKey, port: PortNo, now: Time) -> FdbEntry {
        FdbEntry {
            is_static: true,
            ..FdbEntry::new(key, port, now)
        }
    }

    /// Returns the time of the last packet from the address.
    pub fn last_seen(&self) -> Time {
        Time::from_nanos(self.last_seen.load(Ordering::Relaxed))
    }

    #[inline]
    pub(crate) fn refresh(&self, now: Time) {
        if now.since(self.last_seen()) >= Self::RESOLUTION {
            self.last_seen.store(now.nanos(), Ordering::Relaxed);
        }
    }
}

/// The MAC table of one bridge.
#[derive(Clone, Debug)]
pub(crate) struct Fdb {
    entries: HashTable<Arc<FdbEntry>>,
    seed: u64,
}

impl Fdb {
    pub(crate) fn new(seed: u64) -> Fdb {
        Fdb {
            entries: HashTable::new(),
            seed,
        }
    }

    /// Returns the hash of an address. The hash is keyed, because senders of packets choose the addresses.
    #[inline]
    pub(crate) fn hash(seed: u64, key: FdbKey) -> u64 {
        let mut hasher = SipHasher13::new_with_keys(seed, !seed);
        hasher.write_u64(u64::from(key.vid.raw()) << 48 | key.mac.to_u64());
        hasher.finish()
    }

    #[inline]
    pub(crate) fn lookup(&self, key: FdbKey) -> Option<&FdbEntry> {
        let is_it = |entry: &Arc<FdbEntry>| entry.key == key;
        self.entries
            .find(Self::hash(self.seed, key), is_it)
            .map(|entry| &**entry)
    }

    /// Adds or replaces an entry.
    pub(crate) fn insert(&mut self, entry: Arc<FdbEntry>) -> Option<Arc<FdbEntry>> {
        let (seed, key) = (self.seed, entry.key);
        let is_it = |found: &Arc<FdbEntry>| found.key == key;
        let rehash = |found: &Arc<FdbEntry>| Self::hash(seed, found.key);
        match self.entries.entry(Self::hash(seed, key), is_it, rehash) {
            hashbrown::hash_table::Entry::Occupied(mut found) => {
                Some(core::mem::replace(found.get_mut(), entry))
            }
            hashbrown::hash_table::Entry::Vacant(vacant) => {
                vacant.insert(entry);
                None
            }
        }
    }

    pub(crate) fn remove(&mut self, key: FdbKey) -> Option<Arc<FdbEntry>> {
        let is_it = |found: &Arc<FdbEntry>| found.key == key;
        let found = self.entries.find_entry(Self::hash(self.seed, key), is_it).ok()?;
        Some(found.remove().0)
    }

    pub(crate) fn clear(&mut self) {
        self.entries.clear();
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_found_by_vlan_and_moves() {
        let key = |vid| FdbKey {
            vid: Vid::new(vid).unwrap(),
            mac: Mac([2, 0, 0, 0, 0, 1]),
        };
        let at = |vid, port| Arc::new(FdbEntry::new(key(vid), PortNo::from_raw(port), Time::ZERO));
        let mut fdb = Fdb::new(7);
        assert!(fdb.insert(at(1, 1)).is_none());
        assert!(fdb.insert(at(2, 2)).is_none());
        assert_eq!(fdb.insert(at(1, 3)).unwrap().port, PortNo::from_raw(1));
        assert_eq!(fdb.lookup(key(1)).unwrap().port, PortNo::from_raw(3));
        assert_eq!(fdb.remove(key(2)).unwrap().port, PortNo::from_raw(2));
        assert!(fdb.lookup(key(2)).is_none());
        assert_eq!(fdb.len(), 1);
    }

    #[test]
    fn a_refresh_writes_once_a_second_at_most() {
        let key = FdbKey {
            vid: Vid::default(),
            mac: Mac::ZERO,
        };
        let entry = FdbEntry::new(key, PortNo::from_raw(1), Time::from_secs(5));
        entry.refresh(Time::from_millis(5999));
        assert_eq!(entry.last_seen(), Time::from_secs(5));
        entry.refresh(Time::from_millis(6000));
        assert_eq!(entry.last_seen(), Time::from_secs(6));
    }
}
