//! The right of a master to write. One master has it at a time: whoever made the key `leader` under its lease.

use std::time::Duration;

use millrace_etcd::{Compare, Lease, Op, Txn};

use crate::keyspace::Keyspace;

/// The lease of a master, in seconds.
pub const LEASE_S: u64 = 10;

/// A master's right to write. Times are those of a monotonic clock, from any start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Leadership {
    /// The `create_revision` of the key `leader`: the epoch of what it writes.
    pub epoch: u64,
    /// The lease under which the key lives.
    pub lease: Lease,
    renewed: Duration,
}

impl Leadership {
    /// Returns the transaction that makes `name` the master if there is none. Its revision is the epoch.
    pub fn campaign(keys: &Keyspace, name: &str, lease: Lease) -> Txn {
        Txn {
            compare: vec![Compare::Created(keys.leader(), 0)],
            ops: vec![Op::Put(keys.leader(), name.as_bytes().to_vec(), Some(lease))],
        }
    }

    /// Returns the right of a campaign that succeeded with `epoch`. `sent` is the time at which the lease was asked for.
    pub fn new(epoch: u64, lease: Lease, sent: Duration) -> Leadership {
        Leadership {
            epoch,
            lease,
            renewed: sent,
        }
    }

    /// Records that the lease was renewed by a request that was sent at this time.
    pub fn renew(&mut self, sent: Duration) {
        self.renewed = self.renewed.max(sent);
    }

    /// Returns true if the lease should be renewed.
    pub fn is_due(&self, now: Duration) -> bool {
        now.saturating_sub(self.renewed) >= Duration::from_secs(LEASE_S) / 3
    }

    /// Returns true if the master may write: until two thirds of the lease are over since it was renewed. A write that is on its
    /// way then is refused by its condition.
    pub fn may_write(&self, now: Duration) -> bool {
        now.saturating_sub(self.renewed) < Duration::from_secs(LEASE_S) * 2 / 3
    }

    /// Returns the writes with the condition that this master is still the one.
    pub fn fenced(&self, keys: &Keyspace, mut txn: Txn) -> Txn {
        txn.compare.insert(0, Compare::Created(keys.leader(), self.epoch));
        txn
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_master_stops_at_two_thirds_of_its_lease_and_renews_at_one_third() {
        let mut master = Leadership::new(5, Lease(1), Duration::from_secs(100));
        let at = |tenths: u64| Duration::from_secs(100) + Duration::from_millis(100 * tenths);
        assert!(!master.is_due(at(33)) && master.is_due(at(34)));
        assert!(master.may_write(at(66)) && !master.may_write(at(67)));
        master.renew(at(60));
        assert!(master.may_write(at(126)) && !master.may_write(at(127)));
        // An answer that comes late does not shorten the right.
        master.renew(at(10));
        assert!(master.may_write(at(126)));
    }

    #[test]
    fn every_write_compares_the_key_of_the_leader() {
        let keys = Keyspace::new("/m/");
        let txn = Leadership::new(5, Lease(1), Duration::ZERO).fenced(&keys, Txn::default());
        assert_eq!(txn.compare, [Compare::Created("/m/leader".to_owned(), 5)]);
        let campaign = Leadership::campaign(&keys, "host", Lease(1));
        assert_eq!(campaign.compare, [Compare::Created("/m/leader".to_owned(), 0)]);
    }
}
