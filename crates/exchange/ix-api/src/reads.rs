//! Records in the audit chain when the exchange's staff read members' data. Each person gets at most one
//! entry an hour for each object and for each collection. The page reads lists every few seconds, and an
//! entry for each read would bury all other entries.

use std::collections::HashMap;
use std::time::Duration;

use millrace_ix_model::UserId;
use millrace_types::Time;
use parking_lot::Mutex;

/// The time in which further reads of the same object by the same person add no entry.
const REPEATED: Duration = Duration::from_secs(3600);
/// The maximum number of reads that are remembered. If more are recent, all are forgotten, and later reads
/// are recorded again.
const REMEMBERED: usize = 10_000;

/// The collections that contain members' data, in both versions of the API.
pub(crate) const COLLECTIONS: [&str; 26] = [
    "accounts",
    "bgp-sessions",
    "changes",
    "configs",
    "connections",
    "contacts",
    "cross-connects",
    "events",
    "exports",
    "filters",
    "groups",
    "ips",
    "macs",
    "matrix",
    "member-joining-rules",
    "network-feature-configs",
    "network-service-configs",
    "network-services",
    "overview",
    "port-reservations",
    "ports",
    "role-assignments",
    "service-keys",
    "services",
    "users",
    "webhooks",
];

/// The reads in the last hour, with their times.
#[derive(Debug, Default)]
pub(crate) struct Reads(Mutex<HashMap<(UserId, String), Time>>);

impl Reads {
    /// Returns true if a read must be recorded, and remembers the read.
    pub(crate) fn is_new(&self, user: UserId, object: &str, now: Time) -> bool {
        let mut seen = self.0.lock();
        let key = (user, object.to_owned());
        if seen.get(&key).is_some_and(|last| now.since(*last) < REPEATED) {
            return false;
        }
        if seen.len() >= REMEMBERED {
            seen.retain(|_, last| now.since(*last) < REPEATED);
            if seen.len() >= REMEMBERED {
                seen.clear();
            }
        }
        seen.insert(key, now);
        true
    }

    pub(crate) fn forget(&self, user: UserId, object: &str) {
        let mut seen = self.0.lock();
        seen.remove(&(user, object.to_owned()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_is_noted_once_an_hour_for_each_person_and_object() {
        let reads = Reads::default();
        let at = |seconds| Time::ZERO + Duration::from_secs(seconds);
        assert!(reads.is_new(UserId(1), "sv-7", at(0)));
        assert!(!reads.is_new(UserId(1), "sv-7", at(3599)));
        assert!(reads.is_new(UserId(2), "sv-7", at(1)));
        assert!(reads.is_new(UserId(1), "sv-8", at(1)));
        assert!(reads.is_new(UserId(1), "sv-7", at(3600)));
        reads.forget(UserId(1), "sv-7");
        assert!(reads.is_new(UserId(1), "sv-7", at(3601)));
    }
}
