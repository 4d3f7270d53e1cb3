//! The engine: events in, actions out.

use std::collections::{BTreeMap, BTreeSet};

use millrace_types::{Duration, Time};

use crate::SwitchId;
use crate::change::{Change, ChangeId, Order, Phase, Resource, Resume, Verification};
use crate::content::{Content, Entries};
use crate::drift::Drifted;
use crate::event::{Action, ChangeStatus, Event, Mode, Notice, SwitchStatus};
use crate::settings::Settings;
use crate::switch::{Dumping, Session, Switch};

/// The engine: the changes in progress, and the reconciliation of all switches of an exchange.
#[derive(Debug)]
pub struct Engine<E: Entries> {
    pub(crate) settings: Settings,
    pub(crate) mode: Mode,
    pub(crate) adopted: bool,
    pub(crate) swept: bool,
    pub(crate) revision: u64,
    /// The revision of the database at the start, or a later one that an operator has resolved. If a switch has a later
    /// marker, and this engine did not send it, the switch has content that the database does not know.
    pub(crate) known_revision: u64,
    pub(crate) switches: BTreeMap<SwitchId, Switch<E>>,
    pub(crate) changes: BTreeMap<ChangeId, Change<E>>,
    last_writer: BTreeMap<Resource<E::Key>, ChangeId>,
    commits: u64,
    random: u64,
}

impl<E: Entries> Engine<E> {
    /// Returns an engine for switches whose content should be `plan`. The plan contains no change in
    /// progress. `revision` is the database's newest; `adopted` is true if an operator chose
    /// [`Resolution::Adopt`] earlier.
    pub fn new(
        settings: Settings,
        plan: BTreeMap<SwitchId, Content<E>>,
        revision: u64,
        adopted: bool,
    ) -> Engine<E> {
        let switches = plan
            .into_iter()
            .map(|(switch, content)| (switch, Switch::new(content)))
            .collect();
        Engine {
            settings,
            mode: Mode::Normal,
            adopted,
            swept: false,
            revision,
            known_revision: revision,
            switches,
            changes: BTreeMap::new(),
            last_writer: BTreeMap::new(),
            commits: 0,
            random: settings.seed,
        }
    }

    /// Handles an event. Returns the actions to execute, in order.
    pub fn handle(&mut self, event: Event<E>, now: Time) -> Vec<Action<E>> {
        let mut actions = Vec::new();
        match event {
            Event::Accepted(order, resume) => self.accept(order, resume, now),
            Event::Connected { switch, session } => {
                let entry = self
                    .switches
                    .entry(switch)
                    .or_insert_with(|| Switch::new(Content::<E>::new()));
                entry.forget();
                entry.session = Some(session);
                entry.dump_wanted = true;
                entry.heard = now;
            }
            Event::Disconnected { switch, session } => {
                if let Some(entry) = self.connected(switch, session) {
                    entry.forget();
                    entry.session = None;
                }
            }
            Event::Dumped {
                switch,
                session,
                content,
            } => self.dumped(switch, session, content, now, &mut actions),
            Event::Committed {
                switch,
                session,
                commit,
            } => {
                if let Some(entry) = self.connected(switch, session)
                    && entry
                        .in_flight
                        .as_ref()
                        .is_some_and(|flight| flight.number == commit)
                {
                    entry.heard = now;
                    entry.committed();
                    if entry.known && entry.differs.is_empty() {
                        actions.push(Action::Notify(Notice::InSync { switch }));
                    }
                }
            }
            Event::Refused {
                switch,
                session,
                commit,
                reason,
                partly,
            } => {
                self.refused(switch, session, commit, &reason, now, &mut actions);
                // The switch's content is now unknown; `isolated` still holds the parts of the commit to send one by one.
                if partly && let Some(entry) = self.connected(switch, session) {
                    entry.known = false;
                    entry.differs.clear();
                    entry.dump_wanted = true;
                    if let Some(dumping) = &mut entry.dumping {
                        dumping.is_invalid = true;
                    }
                }
            }
            Event::Verified { change, result } => self.verified(change, result, now, &mut actions),
            Event::ForeignChange { switch, session } => {
                let pause = self.settings.foreign_resync_min;
                if let Some(entry) = self.connected(switch, session) {
                    if let Some(dumping) = &mut entry.dumping {
                        dumping.is_outdated = true;
                    }
                    let earliest = entry.last_dump.map_or(now, |last| now.max(last + pause));
                    entry.next_dump = entry.next_dump.min(earliest);
                }
            }
            Event::Delay { switch, delay } => {
                if let Some(entry) = self.switches.get_mut(&switch) {
                    entry.delay = delay;
                }
            }
            Event::Added(switch) => {
                self.switches
                    .entry(switch)
                    .or_insert_with(|| Switch::new(Content::<E>::new()));
            }
            Event::Retired { switch, is_retired } => {
                if let Some(entry) = self.switches.get_mut(&switch) {
                    entry.is_retired = is_retired;
                }
            }
            Event::Lapsed { switch, keys } => {
                if let Some(entry) = self.switches.get_mut(&switch) {
                    for key in &keys {
                        if !entry.owners.contains_key(key) {
                            entry.intend(key, None);
                        }
                    }
                }
            }
            Event::Resolved(resolution) => self.resolved(resolution),
            Event::Tick => {}
        }
        self.advance(now, &mut actions);
        actions
    }

    /// Returns the time at which [`Event::Tick`] is due, unless another event arrives earlier.
    pub fn deadline(&self) -> Option<Time> {
        let mut earliest: Option<Time> = None;
        let mut consider = |time: Time| earliest = Some(earliest.map_or(time, |earliest| earliest.min(time)));
        for change in self.changes.values().filter(|_| self.mode == Mode::Normal) {
            if matches!(change.phase, Phase::Flipped | Phase::Reverting) && change.waiting.is_empty() {
                consider(change.drain_until.unwrap_or(change.since));
            }
            if let (Phase::Planned, Some(max), Verification::Asked(since)) =
                (change.phase, self.settings.verification, change.verification)
            {
                consider(since + max);
            }
            if !change.waiting.is_empty() && !change.silence_reported {
                consider(change.since + self.settings.answer_timeout);
            }
        }
        for switch in self.switches.values().filter(|switch| switch.session.is_some()) {
            if switch.dumping.is_none() {
                consider(switch.next_dump);
            }
            let may_commit = self.mode == Mode::Normal && switch.known && switch.in_flight.is_none();
            if may_commit && !switch.differs.is_empty() {
                consider(
                    switch
                        .next_commit
                        .max(switch.sendable_from().unwrap_or(Time::ZERO)),
                );
            }
        }
        earliest
    }

    /// Returns the settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Returns the mode.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Returns the revision of the newest change, or of the newest marker that an operator has resolved if it
    /// is higher.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Returns the changes in progress, oldest first.
    pub fn changes(&self) -> impl Iterator<Item = ChangeStatus> + '_ {
        self.changes.iter().map(|(id, change)| ChangeStatus {
            change: *id,
            phase: change.phase,
            switches: change.waiting.iter().copied().collect(),
            changes: change.waits_for().collect(),
        })
    }

    /// Returns the entries that changes in progress add, as long as frames do not use them: before all switches have
    /// confirmed the flip, and while the change is taken back.
    pub fn unused_entries(&self) -> impl Iterator<Item = (&E::Key, &E::Value)> {
        let is_used = |phase: Phase| matches!(phase, Phase::Flipped | Phase::Drained | Phase::Cleaned);
        let changes = self.changes.values().filter(move |change| !is_used(change.phase));
        let deltas = changes.flat_map(|change| [&change.order.stage, &change.order.flip]);
        let entries = deltas.flat_map(BTreeMap::values).flatten();
        entries.filter_map(|(key, values)| match values {
            (None, Some(added)) => Some((key, added)),
            _ => None,
        })
    }

    /// Returns the state of each switch.
    pub fn switches(&self) -> impl Iterator<Item = (SwitchId, SwitchStatus)> + '_ {
        self.switches.iter().map(|(id, switch)| {
            let status = SwitchStatus {
                state: switch.state(),
                entries: switch.intended.len(),
                foreign: switch.foreign.len(),
                last_dump: switch.last_dump,
            };
            (*id, status)
        })
    }

    /// Returns the content that a switch should have now, including changes in progress.
    pub fn intended(&self, switch: SwitchId) -> Option<&Content<E>> {
        self.switches.get(&switch).map(|switch| &switch.intended)
    }

    /// Returns the entries of a switch that are known to differ, each with the value that the switch has.
    pub fn differing(&self, switch: SwitchId) -> Option<&BTreeMap<E::Key, Option<E::Value>>> {
        self.switches.get(&switch).map(|switch| &switch.differs)
    }

    /// Returns the entries of a switch that are known to differ from the plan and belong to no change in progress.
    pub fn drifted(&self, switch: SwitchId) -> impl Iterator<Item = Drifted<E::Key>> + '_ {
        let found = self.switches.get(&switch).into_iter();
        found.flat_map(Switch::drifted)
    }

    /// Returns true if an operator chose [`Resolution::Adopt`](crate::Resolution::Adopt) and has
    /// not chosen [`Resolution::Enforce`](crate::Resolution::Enforce) since.
    pub fn is_adopted(&self) -> bool {
        self.adopted
    }

    /// Returns the entries of a switch that are not intended but kept, as of the last dump.
    pub fn kept(&self, switch: SwitchId) -> Option<&Content<E>> {
        self.switches.get(&switch).map(|switch| &switch.kept)
    }

    /// Returns the number of the newest connection of a switch, if it has not ended.
    pub fn session(&self, switch: SwitchId) -> Option<Session> {
        self.switches.get(&switch)?.session
    }

    /// Returns true if a switch was taken out of service.
    pub fn is_retired(&self, switch: SwitchId) -> bool {
        self.switches.get(&switch).is_some_and(|switch| switch.is_retired)
    }

    /// Returns true if a connection is the newest one of its switch, and has not ended.
    pub fn is_session(&self, switch: SwitchId, session: Session) -> bool {
        let found = self.switches.get(&switch);
        found.is_some_and(|entry| entry.session == Some(session))
    }

    pub(crate) fn connected(&mut self, switch: SwitchId, session: Session) -> Option<&mut Switch<E>> {
        self.switches
            .get_mut(&switch)
            .filter(|entry| entry.session == Some(session))
    }

    /// Adds a change, after earlier changes that use the same resources. The next event begins the change.
    /// Callers must therefore add all changes of a group before that event.
    pub fn accept(&mut self, order: Order<E>, resume: Resume, now: Time) {
        self.revision = self.revision.max(order.revision);
        let id = order.change;
        let mut change = Change {
            order,
            phase: Phase::Accepted,
            predecessors: BTreeSet::new(),
            drained_predecessors: BTreeSet::new(),
            waiting: BTreeSet::new(),
            verification: Verification::Open,
            drain_until: None,
            refusal: None,
            since: now,
            silence_reported: false,
        };
        let writes = change.writes();
        let earlier = change.order.references.union(&change.order.follows);
        let earlier: Vec<_> = earlier.cloned().map(Resource::Object).collect();
        for resource in writes.iter().cloned().chain(earlier) {
            let Some(earlier) = self.last_writer.get(&resource).filter(|earlier| **earlier != id) else {
                continue;
            };
            let found = self.changes.get(earlier);
            if found.is_some_and(|earlier| earlier.phase == Phase::Drained) {
                change.drained_predecessors.insert(*earlier);
            } else {
                change.predecessors.insert(*earlier);
            }
        }
        for resource in writes {
            self.last_writer.insert(resource, id);
        }
        self.changes.insert(id, change);
        if resume != Resume::Start {
            self.resume(id, resume, now);
        }
    }

    /// Restores the phase of a change that may have flipped before a restart. The entries of its completed
    /// phases become intended at once.
    fn resume(&mut self, id: ChangeId, resume: Resume, now: Time) {
        let last = match resume {
            Resume::Start => return,
            Resume::Flip => Phase::Staged,
            Resume::Drain => Phase::Flipped,
            Resume::Clean => Phase::Drained,
        };
        for phase in [Phase::Planned, Phase::Staged, Phase::Flipped, Phase::Drained] {
            if phase <= last {
                self.enter(id, phase, now);
            }
        }
    }

    /// Moves a change to a phase. The entries of the phase become intended.
    pub(crate) fn enter(&mut self, id: ChangeId, phase: Phase, now: Time) {
        let Some(change) = self.changes.get_mut(&id) else {
            return;
        };
        release_keys(change, &mut self.switches);
        change.phase = phase;
        change.since = now;
        change.silence_reported = false;
        change.waiting.clear();
        if phase == Phase::Flipped {
            let delays = self.switches.values().map(|switch| switch.delay);
            let wait = self.settings.drain_min.max(delays.max().unwrap_or_default() * 2);
            let has_old_frames = !change.order.clean.is_empty();
            change.drain_until = Some(if has_old_frames { now + wait } else { now });
        }
        let is_reversed = change.is_reversed();
        for (number, delta) in change.deltas().into_iter().flatten() {
            let switch = self
                .switches
                .entry(*number)
                .or_insert_with(|| Switch::new(Content::<E>::new()));
            for (key, (before, after)) in delta {
                switch.owners.insert(key.clone(), id);
                switch.intend(
                    key,
                    if is_reversed {
                        before.as_ref()
                    } else {
                        after.as_ref()
                    },
                );
            }
        }
        let waiting = change.needed().flat_map(BTreeMap::keys).copied().collect();
        change.waiting = waiting;
        if phase == Phase::Drained {
            // All ingress switches use the new entries. A switch that does not answer delays only the removal of the old
            // entries, not later changes.
            for later in self.changes.values_mut() {
                if later.predecessors.remove(&id) {
                    later.drained_predecessors.insert(id);
                }
            }
        }
    }

    /// Removes a change. Changes that waited for it now wait for its remaining predecessors.
    pub(crate) fn forget(&mut self, id: ChangeId) {
        let Some(change) = self.changes.remove(&id) else {
            return;
        };
        release_keys(&change, &mut self.switches);
        let earlier = change.predecessors.union(&change.drained_predecessors);
        let earlier: Vec<_> = earlier
            .filter_map(|earlier| Some((*earlier, self.changes.get(earlier)?.writes())))
            .collect();
        for resource in change.writes() {
            if self.last_writer.get(&resource) != Some(&id) {
                continue;
            }
            match earlier.iter().rfind(|(_, writes)| writes.contains(&resource)) {
                Some((writer, _)) => self.last_writer.insert(resource, *writer),
                None => self.last_writer.remove(&resource),
            };
        }
        for other in self.changes.values_mut() {
            if other.predecessors.remove(&id) {
                other.predecessors.extend(&change.predecessors);
                other.drained_predecessors.extend(&change.drained_predecessors);
            }
            other.drained_predecessors.remove(&id);
        }
    }

    /// Moves changes to their next phases, then starts the dumps and commits that are due.
    fn advance(&mut self, now: Time, actions: &mut Vec<Action<E>>) {
        if self.mode == Mode::Normal {
            while self.step_changes(now, actions) {}
            let adopted = self.adopted;
            let is_swept = |switch: &Switch<E>| {
                switch.is_absent() || (switch.is_swept() && (!adopted || switch.kept.is_empty()))
            };
            if !self.swept && self.switches.values().all(is_swept) {
                self.swept = true;
                actions.push(Action::Swept);
            }
        }
        for (number, switch) in &mut self.switches {
            let Some(session) = switch.session else {
                continue;
            };
            let is_free = switch.dumping.is_none() && (switch.known || switch.in_flight.is_none());
            if is_free && (switch.dump_wanted || now >= switch.next_dump) {
                let in_flight = switch.in_flight.as_ref();
                let changed = in_flight
                    .map(|flight| flight.values_after.keys().cloned().collect())
                    .unwrap_or_default();
                switch.dumping = Some(Dumping {
                    changed_during_dump: changed,
                    is_invalid: false,
                    is_outdated: false,
                });
                switch.dump_wanted = false;
                actions.push(Action::Dump {
                    switch: *number,
                    session,
                });
            }
            if self.mode != Mode::Normal || now < switch.next_commit {
                continue;
            }
            if let Some(modifications) = switch.begin_commit(self.commits + 1, self.revision, now) {
                self.commits += 1;
                switch.next_commit = now + self.settings.coalesce;
                actions.push(Action::Commit {
                    switch: *number,
                    session,
                    commit: self.commits,
                    modifications,
                });
            }
        }
    }

    /// Moves each change one phase if it can; returns true if one moved.
    fn step_changes(&mut self, now: Time, actions: &mut Vec<Action<E>>) -> bool {
        let ids: Vec<ChangeId> = self.changes.keys().copied().collect();
        let mut moved = false;
        for id in ids {
            moved |= self.step(id, now, actions);
        }
        moved
    }

    fn step(&mut self, id: ChangeId, now: Time, actions: &mut Vec<Action<E>>) -> bool {
        let Some(change) = self.changes.get_mut(&id) else {
            return false;
        };
        let mut waiting = std::mem::take(&mut change.waiting);
        waiting.retain(|number| {
            let mut deltas = change.needed().filter_map(|phase| phase.get(number));
            let switch = self.switches.get(number);
            !deltas.all(|delta| switch.is_some_and(|switch| switch.is_absent() || switch.has(delta)))
        });
        change.waiting = waiting;
        if !change.waiting.is_empty() {
            if !change.silence_reported && now >= change.since + self.settings.answer_timeout {
                change.silence_reported = true;
                let switches = change.waiting.iter().copied().collect();
                actions.push(Action::Notify(Notice::Waiting { change: id, switches }));
            }
            return false;
        }
        if change.phase == Phase::Planned && !self.is_verified(id, now, actions) {
            return self
                .changes
                .get(&id)
                .is_some_and(|change| change.phase != Phase::Planned);
        }
        let Some(change) = self.changes.get_mut(&id) else {
            return false;
        };
        let next = match change.phase {
            Phase::Accepted if !change.predecessors.is_empty() => return false,
            Phase::Accepted if change.order.is_empty() && change.drained_predecessors.is_empty() => {
                Phase::Cleaned
            }
            Phase::Accepted if change.order.is_empty() => return false,
            Phase::Accepted => Phase::Planned,
            Phase::Planned => Phase::Staged,
            Phase::Staged => Phase::Flipped,
            Phase::Flipped if change.drain_until.is_some_and(|until| now < until) => return false,
            Phase::Flipped => Phase::Drained,
            // A restart plans the open changes one after the other: a later one stays open as long as an earlier one.
            Phase::Drained if !change.drained_predecessors.is_empty() => return false,
            Phase::Drained => Phase::Cleaned,
            Phase::Reverting => return self.end_revert(id, now, actions),
            Phase::RolledBack | Phase::Cleaned => {
                self.forget(id);
                actions.push(Action::Release(id));
                return true;
            }
        };
        actions.push(Action::Journal {
            change: id,
            phase: next,
        });
        self.enter(id, next, now);
        true
    }

    /// Returns `duration`, longer or shorter by up to a sixth.
    pub(crate) fn jittered(&mut self, duration: Duration) -> Duration {
        // SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.random;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let share = u32::try_from((word >> 32) % 333).unwrap_or(0);
        duration * (833 + share) / 1000
    }
}

/// Removes a change as the owner of the keys of its current phase.
fn release_keys<E: Entries>(change: &Change<E>, switches: &mut BTreeMap<SwitchId, Switch<E>>) {
    for (number, delta) in change.deltas().into_iter().flatten() {
        let Some(switch) = switches.get_mut(number) else {
            continue;
        };
        for key in delta.keys() {
            if switch.owners.get(key) == Some(&change.order.change) {
                switch.owners.remove(key);
            }
        }
    }
}
