//! Failed sign-ins in the audit chain: one entry a minute at most, because an attacker chooses their number and an entry
//! stays for ever.
//!
//! ```text
//!   first failure           --> entry at once: name, address
//!   failures of the minute  --> one entry at its end: count, and the names and networks with the most failures
//! ```

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use millrace_types::Time;
use parking_lot::Mutex;
use serde_json::{Map, Value, json};

use super::attempts::network;

/// The shortest time between two entries.
const EVERY: Duration = Duration::from_secs(60);
/// The largest number of different names, and of different networks, that are counted apart in a minute.
const COUNTED_MAX: usize = 1_000;
/// The largest number of names, and of networks, in one entry.
const NAMED_MAX: usize = 20;

/// A sign-in that failed.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    /// The name that the person gave; `None` if a provider of OpenID Connect signs in.
    pub(crate) name: Option<String>,
    pub(crate) address: IpAddr,
    /// Further members of an entry of its own.
    pub(crate) detail: Map<String, Value>,
}

/// The next step after a failure.
#[derive(Debug, PartialEq)]
pub(crate) enum Next {
    /// Write an entry with this detail now.
    Record(Value),
    /// Call [`Failures::take`] after this time.
    Wait(Duration),
    /// Another failure of this minute waits already.
    Counted,
}

/// The failures that are not in the chain yet.
#[derive(Debug, Default)]
pub(crate) struct Failures {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    last: Option<Time>,
    count: u64,
    names: HashMap<String, u64>,
    networks: HashMap<IpAddr, u64>,
}

impl Failures {
    /// Adds a failure.
    pub(crate) fn add(&self, failure: Failure, now: Time) -> Next {
        let mut state = self.state.lock();
        let age = state.last.map(|last| now.since(last));
        if state.count == 0 && age.is_none_or(|age| age >= EVERY) {
            state.last = Some(now);
            let mut detail = failure.detail;
            detail.extend(failure.name.map(|name| ("name".to_owned(), json!(name))));
            detail.insert("address".to_owned(), json!(failure.address.to_string()));
            return Next::Record(Value::Object(detail));
        }
        state.count += 1;
        let State { names, networks, .. } = &mut *state;
        if let Some(name) = failure.name {
            count(names, name);
        }
        count(networks, network(failure.address));
        match (state.count, age) {
            (1, Some(age)) => Next::Wait(EVERY.saturating_sub(age)),
            _ => Next::Counted,
        }
    }

    /// Returns the detail of one entry for all failures since the last entry; `None` if there are none.
    pub(crate) fn take(&self, now: Time) -> Option<Value> {
        let mut state = self.state.lock();
        let State {
            count,
            names,
            networks,
            ..
        } = std::mem::take(&mut *state);
        state.last = Some(now);
        (count > 0).then(|| json!({ "count": count, "names": most(names), "networks": most(networks) }))
    }
}

/// Counts a key, unless too many others are counted.
fn count<K: std::hash::Hash + Eq>(counts: &mut HashMap<K, u64>, key: K) {
    if counts.len() < COUNTED_MAX || counts.contains_key(&key) {
        *counts.entry(key).or_default() += 1;
    }
}

/// Returns the keys with the most failures, and their numbers.
fn most<K: ToString>(counts: HashMap<K, u64>) -> Map<String, Value> {
    let mut all: Vec<(u64, String)> = counts
        .into_iter()
        .map(|(key, count)| (count, key.to_string()))
        .collect();
    all.sort_by(|one, two| two.0.cmp(&one.0).then_with(|| one.1.cmp(&two.1)));
    let named = all.into_iter().take(NAMED_MAX);
    named.map(|(count, key)| (key, json!(count))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Time {
        Time::ZERO + Duration::from_secs(seconds)
    }

    fn failure(name: &str, address: &str) -> Failure {
        Failure {
            name: Some(name.to_owned()),
            address: address.parse().unwrap(),
            detail: Map::new(),
        }
    }

    #[test]
    fn a_flood_of_failures_is_one_entry_a_minute_with_their_number() {
        let failures = Failures::default();
        let first = failures.add(failure("ann", "192.0.2.1"), at(0));
        assert_eq!(
            first,
            Next::Record(json!({ "name": "ann", "address": "192.0.2.1" }))
        );
        assert_eq!(
            failures.add(failure("ann", "192.0.2.1"), at(10)),
            Next::Wait(Duration::from_secs(50))
        );
        for number in 0..5_000 {
            let name = format!("user {number}");
            let next = failures.add(failure(&name, &format!("2001:db8:{:x}::1", number % 3)), at(30));
            assert_eq!(next, Next::Counted);
        }
        failures.add(failure("ann", "192.0.2.1"), at(31));
        let entry = failures.take(at(60)).unwrap();
        assert_eq!(entry["count"], 5_002);
        assert_eq!(entry["names"]["ann"], 2);
        assert_eq!(entry["names"].as_object().unwrap().len(), NAMED_MAX);
        assert_eq!(entry["networks"]["2001:db8:1::"], 1_667);
        assert!(entry.to_string().len() < 1_000);
        assert_eq!(failures.take(at(61)), None);
    }

    #[test]
    fn a_failure_after_a_quiet_minute_is_recorded_at_once() {
        let failures = Failures::default();
        assert!(matches!(
            failures.add(failure("a", "192.0.2.1"), at(0)),
            Next::Record(_)
        ));
        assert!(matches!(
            failures.add(failure("b", "192.0.2.1"), at(60)),
            Next::Record(_)
        ));
        assert_eq!(
            failures.add(failure("c", "192.0.2.1"), at(61)),
            Next::Wait(Duration::from_secs(59))
        );
        // The timer is late. The failure joins those that wait.
        assert_eq!(failures.add(failure("d", "192.0.2.1"), at(130)), Next::Counted);
        assert_eq!(failures.take(at(131)).unwrap()["count"], 2);
        assert_eq!(
            failures.add(failure("e", "192.0.2.1"), at(132)),
            Next::Wait(Duration::from_secs(59))
        );
    }
}
