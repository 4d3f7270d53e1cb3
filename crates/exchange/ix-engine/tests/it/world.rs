//! The engine, its store and the switches together, in virtual time, and the invariants that are checked.

use std::collections::{BTreeMap, VecDeque};

use millrace_ix_engine::{Action, ChangeId, Engine, Event, Notice, Order, Phase, Settings, SwitchId};
use millrace_types::{Duration, Time};

use crate::fabric::{Key, MARKER, ModelSwitch, Random, Toy};
use crate::store::{Store, plan};

/// The delay of a frame from one switch to another.
const TRANSIT: Duration = Duration::from_millis(80);
/// The time from the start of an engine, or the loss of a connection, to the next connection.
const RECONNECT: Duration = Duration::from_millis(500);

pub(crate) struct World {
    pub(crate) now: Time,
    pub(crate) store: Store,
    pub(crate) engine: Engine<Toy>,
    pub(crate) switches: BTreeMap<SwitchId, ModelSwitch>,
    pub(crate) notices: Vec<Notice<Key>>,
    pub(crate) random: Random,
    /// The number of actions until the engine is killed.
    pub(crate) kill_after: Option<u64>,
    /// The newest phases of the open changes at each kill.
    pub(crate) killed_in: Vec<Phase>,
    reconnect: BTreeMap<SwitchId, Time>,
    sessions: u64,
    /// Frames in transit: arrival time, sending circuit, and the switch and entry that receive them.
    frames: VecDeque<(Time, u64, SwitchId, Key)>,
    /// Switches that lost their entries, until they are in sync again.
    pub(crate) harmed: Vec<SwitchId>,
    settings: Settings,
}

impl World {
    pub(crate) fn new(switches: u32, seed: u64) -> World {
        World::with(
            switches,
            seed,
            Settings {
                seed,
                ..Settings::default()
            },
        )
    }

    pub(crate) fn with(switches: u32, seed: u64, settings: Settings) -> World {
        let numbers = 1..=switches;
        World {
            now: Time::from_secs(1),
            store: Store::default(),
            engine: Engine::new(settings, BTreeMap::new(), 0, false),
            switches: numbers
                .clone()
                .map(|number| (number, ModelSwitch::default()))
                .collect(),
            notices: Vec::new(),
            random: Random::new(seed),
            kill_after: None,
            killed_in: Vec::new(),
            reconnect: numbers.map(|number| (number, Time::from_secs(1))).collect(),
            sessions: 0,
            frames: VecDeque::new(),
            harmed: Vec::new(),
            settings,
        }
    }

    pub(crate) fn order(&mut self, circuit: u32, ends: Option<[SwitchId; 2]>) -> ChangeId {
        let order = self.store.accept(circuit, ends, self.now);
        let id = order.change;
        self.submit(order, millrace_ix_engine::Resume::Start);
        id
    }

    fn submit(&mut self, order: Order<Toy>, resume: millrace_ix_engine::Resume) {
        self.handle(Event::Accepted(order, resume));
    }

    pub(crate) fn handle(&mut self, event: Event<Toy>) {
        let actions = self.engine.handle(event, self.now);
        for action in actions {
            if let Some(left) = &mut self.kill_after {
                if *left == 0 {
                    self.kill_after = None;
                    return self.kill();
                }
                *left -= 1;
            }
            self.act(action);
        }
    }

    fn act(&mut self, action: Action<Toy>) {
        match action {
            Action::Journal { change, phase } => {
                self.store.changes.get_mut(&change).unwrap().journal.push(phase);
            }
            Action::RollBack { changes, .. } => self.store.roll_back(&changes),
            Action::Replan(change) => {
                let order = self.store.order(change);
                self.submit(order, millrace_ix_engine::Resume::Start);
            }
            Action::Verify { change, .. } => panic!("change {change}: no change of this world is verified"),
            Action::Swept => self.store.sweep(self.now),
            Action::Release(change) => self.store.release(change, self.now),
            Action::Dump { switch, session } => {
                let at = self.now + self.random.millis(1, 60);
                let entry = self.switches.get_mut(&switch).unwrap();
                assert_eq!(entry.session, Some(session));
                entry.dump(at);
            }
            Action::Commit {
                switch,
                session,
                commit,
                modifications,
            } => {
                let at = self.now + self.random.millis(1, 60);
                let entry = self.switches.get_mut(&switch).unwrap();
                assert_eq!(entry.session, Some(session));
                for modification in &modifications {
                    assert_ne!(modification.from, modification.to, "a right entry is touched");
                }
                entry.commit(at, commit, modifications);
            }
            Action::Notify(notice) => self.notices.push(notice),
        }
    }

    /// Kills the engine and starts it again from the store.
    pub(crate) fn kill(&mut self) {
        let open = self
            .engine
            .changes()
            .map(|change| change.change)
            .collect::<Vec<_>>();
        self.killed_in
            .extend(open.iter().filter_map(|id| self.store.changes[id].journal.last()));
        for (number, switch) in &mut self.switches {
            switch.cut(self.random.chance(50));
            self.reconnect.insert(*number, self.now + RECONNECT);
        }
        let (base, orders) = self.store.recover();
        self.engine = Engine::new(self.settings, base, self.store.revision, false);
        for number in self.switches.keys() {
            self.engine.handle(Event::Added(*number), self.now);
        }
        for (order, resume) in orders {
            self.submit(order, resume);
        }
    }

    /// Ends the connection of a switch; it connects again.
    pub(crate) fn cut(&mut self, number: SwitchId) {
        let applied = self.random.chance(50);
        let session = self.switches.get_mut(&number).unwrap().cut(applied);
        self.reconnect.insert(number, self.now + RECONNECT);
        if let Some(session) = session {
            self.handle(Event::Disconnected {
                switch: number,
                session,
            });
        }
    }

    /// Restarts a switch without its entries.
    pub(crate) fn wipe(&mut self, number: SwitchId) {
        self.cut(number);
        self.switches.get_mut(&number).unwrap().wipe();
        self.harmed.push(number);
    }

    /// Runs until `until`, and checks the invariants after each step.
    pub(crate) fn run_until(&mut self, until: Time) {
        while let Some(next) = self.next().filter(|next| *next <= until) {
            assert!(next >= self.now || next + Duration::from_secs(3600) > self.now);
            self.now = self.now.max(next);
            self.step();
        }
        self.now = until;
    }

    pub(crate) fn run(&mut self, duration: Duration) {
        self.run_until(self.now + duration);
    }

    fn next(&self) -> Option<Time> {
        let operations = self.switches.values().filter_map(ModelSwitch::next);
        let connects = self.reconnect.values().copied();
        operations
            .chain(connects)
            .chain(self.engine.deadline())
            .chain(self.frames.front().map(|frame| frame.0))
            .min()
    }

    fn step(&mut self) {
        let due = self
            .reconnect
            .iter()
            .find(|(_, at)| **at <= self.now)
            .map(|(number, _)| *number);
        if let Some(switch) = due {
            self.reconnect.remove(&switch);
            self.sessions += 1;
            self.switches.get_mut(&switch).unwrap().session = Some(self.sessions);
            let session = self.sessions;
            self.handle(Event::Connected { switch, session });
        }
        let is_due = |switch: &ModelSwitch| switch.next().is_some_and(|at| at <= self.now);
        let due: Vec<_> = self
            .switches
            .iter()
            .filter(|(_, switch)| is_due(switch))
            .map(|(number, _)| *number)
            .collect();
        self.deliver_frames();
        for number in due {
            // Entries change only here, so frames are sent immediately before and after the change.
            self.send_frames();
            let answer = self.switches.get_mut(&number).unwrap().answer(number, self.now);
            self.send_frames();
            if let Some(event) = answer {
                self.handle(event);
            }
        }
        if self
            .engine
            .deadline()
            .is_some_and(|deadline| deadline <= self.now)
        {
            self.handle(Event::Tick);
            let again = self
                .engine
                .deadline()
                .is_some_and(|deadline| deadline <= self.now);
            assert!(
                !again,
                "the engine asks for the same tick again: {:?}",
                self.engine
            );
        }
    }

    /// Delivers the frames that are due. The entry of a frame's own circuit must receive it.
    fn deliver_frames(&mut self) {
        while let Some((at, circuit, switch, key)) = self.frames.front().copied() {
            if at > self.now {
                break;
            }
            self.frames.pop_front();
            if self.harmed.contains(&switch) {
                continue;
            }
            let taken = self.switches[&switch].content.get(&key).map(|value| value.1);
            assert_eq!(
                taken,
                Some(circuit),
                "a frame of circuit {circuit} at switch {switch} by {key:?}, {:?}",
                self.now
            );
        }
    }

    /// Sends one frame by each entry that sends into a wire.
    fn send_frames(&mut self) {
        for (number, switch) in &self.switches {
            for ((_, key), value) in switch.content.range((0, 0)..(1, 0)) {
                let circuit = key / 2;
                let wire = (1, value.1 as u32);
                // The frame goes to the switch that has the entry of the wire. Without such an entry the
                // frame is lost.
                let target = self
                    .switches
                    .iter()
                    .find(|(other, peer)| *other != number && peer.content.contains_key(&wire));
                let Some((target, _)) = target else {
                    assert!(
                        !self.harmed.is_empty(),
                        "circuit {circuit} of switch {number} sends into wire {wire:?}, which nobody takes"
                    );
                    continue;
                };
                self.frames
                    .push_back((self.now + TRANSIT, u64::from(circuit), *target, wire));
            }
        }
    }

    /// Returns true if no change is in progress and each switch has exactly the planned entries.
    pub(crate) fn is_settled(&self) -> bool {
        let plan = plan(&self.store.circuits);
        let empty = BTreeMap::new();
        self.engine.changes().next().is_none()
            && self.switches.iter().all(|(number, switch)| {
                let mut content = switch.content.clone();
                content.remove(&MARKER);
                content == *plan.get(number).unwrap_or(&empty)
            })
    }
}
