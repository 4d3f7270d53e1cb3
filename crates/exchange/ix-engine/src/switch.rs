//! One switch: the content that it should have, where it differs, and the operation in flight.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use millrace_types::{Duration, Time};

use crate::change::ChangeId;
use crate::content::{Content, Delta, Entries, Modification};
use crate::drift::{Drift, Drifted};

/// The longest delay before a refused change, repair or entry of a repair is tried again.
pub(crate) const RETRY_MAX: Duration = Duration::from_secs(60);
/// The number of refusals of repairs after which the next repair waits.
const REFUSALS_MAX: u32 = 32;

/// The number of a connection of a switch; a later connection has a larger number.
pub type Session = u64;

/// The engine's knowledge of a switch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SyncState {
    /// The switch is not connected.
    Disconnected,
    /// The switch is connected; its content is not known yet.
    Unknown,
    /// The content is known; `differing` entries are not as they should be.
    Known {
        /// The number of entries that a commit will change.
        differing: usize,
    },
}

/// A commit that the switch has not answered.
#[derive(Debug)]
pub(crate) struct InFlight<E: Entries> {
    pub(crate) number: u64,
    /// The value of each key after the commit.
    pub(crate) values_after: BTreeMap<E::Key, Option<E::Value>>,
    /// The changes whose entries the commit contains; `None` stands for the repair of differences that belong
    /// to no change.
    pub(crate) parts: BTreeSet<Option<ChangeId>>,
}

/// A dump that the switch has not answered.
#[derive(Debug)]
pub(crate) struct Dumping<E: Entries> {
    /// The keys that commits have changed since the dump began. The dump does not give their values.
    pub(crate) changed_during_dump: BTreeSet<E::Key>,
    /// True if a commit was executed in part during the dump. Neither the commit's answer nor the dump then
    /// gives the values of the keys that the commit changes.
    pub(crate) is_invalid: bool,
    /// True if others have changed entries during the dump. The dump may be older than their changes.
    pub(crate) is_outdated: bool,
}

/// The state of one switch in the engine: its intended content, the known differences, and the work in progress.
#[derive(Debug)]
pub(crate) struct Switch<E: Entries> {
    /// The content that the switch should have now.
    pub(crate) intended: Content<E>,
    /// The value at the switch, for each key that is known to differ; `None` if the switch has no such entry.
    pub(crate) differs: BTreeMap<E::Key, Option<E::Value>>,
    /// The entries that are not intended but kept, as of the last dump.
    pub(crate) kept: Content<E>,
    /// For each key, the change whose current phase sets its value.
    pub(crate) owners: BTreeMap<E::Key, ChangeId>,
    pub(crate) session: Option<Session>,
    /// True if the switch was taken out of service: it is not expected to return.
    pub(crate) is_retired: bool,
    /// False until the first complete dump of a session.
    pub(crate) known: bool,
    pub(crate) in_flight: Option<InFlight<E>>,
    pub(crate) dumping: Option<Dumping<E>>,
    /// True if a dump is needed at once.
    pub(crate) dump_wanted: bool,
    pub(crate) next_dump: Time,
    pub(crate) last_dump: Option<Time>,
    pub(crate) next_commit: Time,
    /// The parts of a refused commit that are to be sent one by one.
    pub(crate) isolated: VecDeque<Option<ChangeId>>,
    /// The parts that wait after refusals, each with the time of the next attempt and the delay before that attempt.
    pub(crate) refused: BTreeMap<Option<ChangeId>, (Time, Duration)>,
    /// The largest number of entries of the next repair; `None` unless the switch has refused a repair.
    repair_len: Option<usize>,
    /// The entries of the repair that the switch refused alone. They wait until the others are sent.
    set_aside: BTreeSet<E::Key>,
    /// The earliest time at which the entries set aside are tried again, and the delay before that time.
    next_aside: Option<(Time, Duration)>,
    /// The number of refusals of repairs since the last wait.
    refusals: u32,
    /// The foreign entries that the last dump had, without those that commits have changed since.
    pub(crate) foreign: BTreeSet<E::Key>,
    /// The revision of the newest marker that this engine has sent.
    pub(crate) marked: u64,
    /// The largest one-way delay to the other switches, as OAM measured it.
    pub(crate) delay: Duration,
    /// The time of the last answer, or of the connection.
    pub(crate) heard: Time,
}

impl<E: Entries> Switch<E> {
    pub(crate) fn new(intended: Content<E>) -> Switch<E> {
        Switch {
            intended,
            differs: BTreeMap::new(),
            kept: Content::<E>::new(),
            owners: BTreeMap::new(),
            session: None,
            is_retired: false,
            known: false,
            in_flight: None,
            dumping: None,
            dump_wanted: false,
            next_dump: Time::ZERO,
            last_dump: None,
            next_commit: Time::ZERO,
            isolated: VecDeque::new(),
            refused: BTreeMap::new(),
            repair_len: None,
            set_aside: BTreeSet::new(),
            next_aside: None,
            refusals: 0,
            foreign: BTreeSet::new(),
            marked: 0,
            delay: Duration::ZERO,
            heard: Time::ZERO,
        }
    }

    pub(crate) fn state(&self) -> SyncState {
        match (self.session, self.known) {
            (None, _) => SyncState::Disconnected,
            (Some(_), false) => SyncState::Unknown,
            (Some(_), true) => SyncState::Known {
                differing: self.differs.len(),
            },
        }
    }

    /// Returns true if nothing waits for the switch: it is out of service and not connected. If it connects after
    /// all, the comparison of its first dump makes it equal to the plan.
    pub(crate) fn is_absent(&self) -> bool {
        self.is_retired && self.session.is_none()
    }

    /// Returns true if the switch is known to have only entries of the plan and of changes in progress.
    pub(crate) fn is_swept(&self) -> bool {
        self.known && self.differs.keys().all(|key| self.owners.contains_key(key))
    }

    /// Returns the entries that are known to differ from the plan and belong to no change in progress.
    pub(crate) fn drifted(&self) -> impl Iterator<Item = Drifted<E::Key>> + '_ {
        let own = self
            .differs
            .iter()
            .filter(|(key, _)| !self.owners.contains_key(*key));
        own.map(|(key, has)| Drifted {
            key: key.clone(),
            drift: match (has.is_some(), self.intended.contains_key(key)) {
                (true, true) => Drift::Changed,
                (true, false) => Drift::Added,
                (false, _) => Drift::Removed,
            },
        })
    }

    /// Discards all knowledge of the content. The next dump gives it again.
    pub(crate) fn forget(&mut self) {
        self.known = false;
        self.differs.clear();
        self.kept.clear();
        self.in_flight = None;
        self.dumping = None;
        self.isolated.clear();
        self.refused.clear();
        self.end_split();
    }

    /// Sets the value that a key should have.
    pub(crate) fn intend(&mut self, key: &E::Key, value: Option<&E::Value>) {
        let before = match value {
            Some(value) => self.intended.insert(key.clone(), value.clone()),
            None => self.intended.remove(key),
        };
        self.set_aside.remove(key);
        if !self.known {
            return;
        }
        // A key of the commit in flight stays in `differs` until the answer gives its value.
        let in_flight = self
            .in_flight
            .as_ref()
            .is_some_and(|commit| commit.values_after.contains_key(key));
        let kept = self.kept.remove(key).map(Some);
        let confirmed = self.differs.remove(key).or(kept).unwrap_or(before);
        if confirmed.as_ref() != value || in_flight {
            self.differs.insert(key.clone(), confirmed);
        }
    }

    /// Records the value that a key has at the switch.
    fn confirm(&mut self, key: E::Key, value: Option<E::Value>) {
        if self.intended.get(&key) == value.as_ref() {
            self.differs.remove(&key);
        } else {
            self.differs.insert(key, value);
        }
    }

    /// Returns true if the switch is known to have the intended value of all keys of `delta`.
    pub(crate) fn has(&self, delta: &Delta<E>) -> bool {
        self.known && delta.keys().all(|key| !self.differs.contains_key(key))
    }

    /// Reduces `kept` to the entries that `keep` selects; the others become differing entries.
    pub(crate) fn keep_only(&mut self, keep: impl Fn(&E::Key, &E::Value) -> bool) {
        for (key, value) in std::mem::take(&mut self.kept) {
            if keep(&key, &value) {
                self.kept.insert(key, value);
            } else {
                self.differs.insert(key, Some(value));
            }
        }
    }

    /// Compares a complete dump with the intended content. Entries that are not intended stay in the switch if
    /// `keep` selects them, and otherwise differ. Returns the keys of all entries that are not intended.
    pub(crate) fn compare(
        &mut self,
        have: &Content<E>,
        keep: impl Fn(&E::Key, &E::Value) -> bool,
    ) -> Vec<E::Key> {
        let changed = self
            .dumping
            .take()
            .map(|dumping| dumping.changed_during_dump)
            .unwrap_or_default();
        let (marker, _) = E::marker(0);
        if !changed.contains(&marker) {
            match have.get(&marker) {
                Some(value) => self.intended.insert(marker, value.clone()),
                None => self.intended.remove(&marker),
            };
        }
        // Keys that a commit changed during the dump get their values from the commit's answer, not from the
        // dump.
        let mut differs: BTreeMap<_, _> = std::mem::take(&mut self.differs)
            .into_iter()
            .filter(|(key, _)| changed.contains(key))
            .collect();
        let mut unexpected = Vec::new();
        let mut kept = Content::<E>::new();
        for (key, (has, wanted)) in crate::content::difference::<E>(have, &self.intended) {
            if changed.contains(&key) {
                continue;
            }
            // An entry that a change in progress removes belongs to the exchange, even if `keep` would select it.
            if let (Some(has), None, false) = (&has, &wanted, self.owners.contains_key(&key)) {
                unexpected.push(key.clone());
                if keep(&key, has) {
                    kept.insert(key, has.clone());
                    continue;
                }
            }
            differs.insert(key, has);
        }
        self.differs = differs;
        self.kept = kept;
        self.known = true;
        self.end_split();
        unexpected
    }

    /// Returns the part to which a key belongs: a change, or `None` for the repair.
    fn part(&self, key: &E::Key) -> Option<ChangeId> {
        self.owners.get(key).copied()
    }

    /// Returns the entries of a split repair that the switch can execute now. Entries that refer to a differing
    /// entry, and deletions of entries that a differing entry still uses, must wait. Deletions come first, because
    /// they make room.
    fn ready(&self) -> impl Iterator<Item = &E::Key> {
        let used: BTreeSet<E::Key> = self.differs.values().flatten().flat_map(E::references).collect();
        let repair = self.differs.keys().filter(|key| self.part(key).is_none());
        let (others, deletions): (Vec<_>, Vec<_>) = repair
            .filter(|key| !self.set_aside.contains(*key))
            .partition(|key| self.intended.contains_key(*key));
        let others = others.into_iter().filter(move |key| {
            let references = self.intended.get(*key).map(E::references).unwrap_or_default();
            !references.iter().any(|other| self.differs.contains_key(other))
        });
        let deletions = deletions.into_iter().filter(move |key| !used.contains(*key));
        deletions.chain(others)
    }

    /// Returns true if all entries of the repair that could be sent are set aside.
    fn only_set_aside(&self) -> bool {
        !self.set_aside.is_empty() && self.ready().next().is_none()
    }

    /// Returns the time from which a part may be sent; `None` if it may be sent now.
    fn held_until(&self, part: Option<ChangeId>) -> Option<Time> {
        let until = self.refused.get(&part).map(|(until, _)| *until);
        if part.is_none() && self.only_set_aside() {
            until.max(self.next_aside.map(|(until, _)| until))
        } else {
            until
        }
    }

    /// Returns the earliest time at which a differing part may be sent, if all differing parts are held back.
    pub(crate) fn sendable_from(&self) -> Option<Time> {
        let parts: BTreeSet<_> = self.differs.keys().map(|key| self.part(key)).collect();
        let times = parts.iter().map(|part| self.held_until(*part));
        times.min().flatten()
    }

    /// Records that the switch refused a commit with only these entries of the repair. The next commit has half as
    /// many; an entry that is refused alone is set aside. Returns true for such an entry.
    pub(crate) fn split_repair(&mut self, keys: Vec<E::Key>, retry: Duration, now: Time) -> bool {
        let doubled = |delay: Duration| (delay * 2).min(RETRY_MAX);
        let is_single = keys.len() <= 1;
        self.repair_len = Some((keys.len() / 2).max(1));
        if is_single {
            let is_first = self.set_aside.is_empty();
            let delay = match self.next_aside {
                Some((_, delay)) if is_first => doubled(delay),
                Some((_, delay)) => delay,
                None => retry,
            };
            self.next_aside = Some((now + delay, delay));
            self.set_aside.extend(keys);
            self.dump_wanted |= is_first;
        }
        self.refusals += 1;
        if self.refusals >= REFUSALS_MAX {
            self.refusals = 0;
            let delay = self
                .refused
                .get(&None)
                .map_or(retry, |(_, delay)| doubled(*delay));
            self.refused.insert(None, (now + delay, delay));
        }
        is_single
    }

    /// Forgets the entries set aside that no longer differ. Ends the split if no difference of the repair is left: the
    /// next repair is sent as a whole.
    fn end_split(&mut self) {
        if self.repair_len.is_none() {
            return;
        }
        self.set_aside.retain(|key| self.differs.contains_key(key));
        if self.differs.keys().all(|key| self.owners.contains_key(key)) {
            self.repair_len = None;
            self.set_aside.clear();
            self.next_aside = None;
            self.refusals = 0;
        }
    }

    /// Begins a commit with this number from the differing entries. Returns `None` if nothing may be sent
    /// now.
    pub(crate) fn begin_commit(
        &mut self,
        number: u64,
        revision: u64,
        now: Time,
    ) -> Option<Vec<Modification<E::Key, E::Value>>> {
        if !self.known || self.in_flight.is_some() || self.differs.is_empty() {
            return None;
        }
        if self.next_aside.is_some_and(|(until, _)| now >= until) && self.only_set_aside() {
            self.set_aside.clear();
        }
        let is_held_back =
            |switch: &Switch<E>, part| switch.held_until(part).is_some_and(|until| now < until);
        let holds_repair = is_held_back(self, None);
        while let Some(part) = self.isolated.front() {
            let held_back = match part {
                None => holds_repair,
                Some(_) => is_held_back(self, *part),
            };
            if !held_back && self.differs.keys().any(|key| self.part(key) == *part) {
                break;
            }
            self.isolated.pop_front();
        }
        let single = self.isolated.front().copied();
        // If no entry is ready although none is set aside, entries refer to each other in a cycle, and all are sent.
        let repair: Option<BTreeSet<E::Key>> = self
            .repair_len
            .map(|len| self.ready().take(len).cloned().collect())
            .filter(|keys: &BTreeSet<E::Key>| !keys.is_empty());
        let mut parts = BTreeSet::new();
        let mut to = BTreeMap::new();
        let mut modifications = Vec::new();
        for (key, has) in &self.differs {
            let part = self.part(key);
            let held_back = match part {
                None => holds_repair || repair.as_ref().is_some_and(|keys| !keys.contains(key)),
                Some(_) => is_held_back(self, part),
            };
            if held_back || single.is_some_and(|single| single != part) {
                continue;
            }
            let wanted = self.intended.get(key).cloned();
            parts.insert(part);
            to.insert(key.clone(), wanted.clone());
            modifications.push(Modification {
                key: key.clone(),
                from: has.clone(),
                to: wanted,
            });
        }
        if modifications.is_empty() {
            return None;
        }
        self.marked = self.marked.max(revision);
        let (key, marker) = E::marker(revision);
        if !to.contains_key(&key) && self.intended.get(&key) != Some(&marker) {
            let from = match self.differs.get(&key) {
                Some(has) => has.clone(),
                None => self.intended.get(&key).cloned(),
            };
            self.intended.insert(key.clone(), marker.clone());
            self.differs.insert(key.clone(), from.clone());
            to.insert(key.clone(), Some(marker.clone()));
            modifications.push(Modification {
                key,
                from,
                to: Some(marker),
            });
        }
        if let Some(dumping) = &mut self.dumping {
            dumping.changed_during_dump.extend(to.keys().cloned());
        }
        self.in_flight = Some(InFlight {
            number,
            values_after: to,
            parts,
        });
        Some(modifications)
    }

    /// Records that the commit in flight was refused as a whole. Returns its parts and its keys.
    pub(crate) fn refused(&mut self) -> (BTreeSet<Option<ChangeId>>, Vec<E::Key>) {
        let Some(InFlight {
            values_after: to,
            parts,
            ..
        }) = self.in_flight.take()
        else {
            return (BTreeSet::new(), Vec::new());
        };
        let keys: Vec<E::Key> = to.into_keys().collect();
        for key in &keys {
            if let Some(has) = self.differs.remove(key) {
                self.confirm(key.clone(), has);
            }
        }
        (parts, keys)
    }

    /// Records that the commit in flight was executed.
    pub(crate) fn committed(&mut self) {
        let Some(InFlight {
            values_after: to,
            parts,
            ..
        }) = self.in_flight.take()
        else {
            return;
        };
        if parts.contains(&None) {
            self.repair_len = self.repair_len.map(|len| len.saturating_mul(2));
        }
        for part in parts {
            self.refused.remove(&part);
        }
        for (key, value) in to {
            self.foreign.remove(&key);
            self.confirm(key, value);
        }
        self.end_split();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Entries with a number; the value has the numbers of the entries to which the entry refers.
    #[derive(Debug)]
    enum Linked {}

    impl Entries for Linked {
        type Key = u32;
        type Value = Vec<u32>;

        fn marker(_: u64) -> (u32, Vec<u32>) {
            (0, Vec::new())
        }

        fn revision(_: &u32, _: &Vec<u32>) -> Option<u64> {
            None
        }

        fn is_ours(_: &u32, _: &Vec<u32>) -> bool {
            true
        }

        fn references(value: &Vec<u32>) -> Vec<u32> {
            value.clone()
        }
    }

    const RETRY: Duration = Duration::from_secs(1);

    /// Returns a switch that has only the marker.
    fn empty(intended: Content<Linked>) -> Switch<Linked> {
        let mut switch = Switch::new(intended);
        switch.compare(&BTreeMap::from([(0, Vec::new())]), |_, _| false);
        switch
    }

    /// Sends repairs until all are held back. The switch refuses each commit with an entry of `refuses`. Returns the
    /// entries of each commit, with true if the switch executed it.
    fn repair(switch: &mut Switch<Linked>, refuses: &[u32], now: Time) -> Vec<(Vec<u32>, bool)> {
        let mut sent = Vec::new();
        while let Some(modifications) = switch.begin_commit(1, 0, now) {
            let keys: Vec<u32> = modifications.into_iter().map(|change| change.key).collect();
            let is_refused = keys.iter().any(|key| refuses.contains(key));
            sent.push((keys, !is_refused));
            if is_refused {
                let (_, keys) = switch.refused();
                switch.split_repair(keys, RETRY, now);
            } else {
                switch.committed();
            }
        }
        sent
    }

    #[test]
    fn an_entry_is_not_sent_before_a_refused_one_to_which_it_refers() {
        let intended = [(0, vec![]), (1, vec![]), (2, vec![1]), (3, vec![])];
        let mut switch = empty(BTreeMap::from(intended));
        let now = Time::from_secs(5);
        let expected = [(vec![1, 2, 3], false), (vec![1], false), (vec![3], true)];
        assert_eq!(repair(&mut switch, &[1], now), expected);
        assert_eq!(switch.sendable_from(), Some(now + RETRY));
        let expected = [(vec![1], true), (vec![2], true)];
        assert_eq!(repair(&mut switch, &[], now + RETRY), expected);
        assert!(switch.differs.is_empty() && switch.repair_len.is_none());
    }

    #[test]
    fn a_full_switch_is_asked_a_bounded_number_of_times_and_gets_its_deletions_first() {
        let mut switch = empty((0..1000).map(|key| (key, vec![])).collect());
        switch.differs.insert(2000, Some(vec![2001]));
        switch.differs.insert(2001, Some(vec![]));
        let refuses: Vec<u32> = (1..1000).collect();
        let now = Time::from_secs(5);
        let sent = repair(&mut switch, &refuses, now);
        assert_eq!(sent.iter().filter(|(_, executed)| !executed).count(), 32);
        assert!(!switch.differs.contains_key(&2000) && !switch.differs.contains_key(&2001));
        assert_eq!(switch.sendable_from(), Some(now + RETRY));
    }
}
