//! Symbolic execution: the ways that sets of packets take through the switches.
//!
//! ```text
//! port --> table --entry--> actions, next table --> ... --> port of a member | trunk --> next switch | nothing
//!             |   \-entry--> ...                     the packets of an entry are those of its match
//!             \-no entry--> nothing                  without those of the entries above it
//! ```
//! No action of OpenFlow 1.3 copies a field into another one. A header field of a packet therefore always has either its
//! original value or a constant, and every condition on it is a condition on the packet as it entered.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use millrace_flow::{Action, Field};
use millrace_types::{GroupId, PortNo};

use crate::content::{Content, Entry, GroupEntry, GroupType, Known};
use crate::frames::Frames;
use crate::space::{Cube, Var};

/// The number of a switch in the exchange.
pub type SwitchNumber = u32;

/// The far end of a trunk port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wire {
    pub switch: SwitchNumber,
    pub port: u32,
    /// True if the tunnel key of a frame arrives with it: VXLAN.
    pub keeps_key: bool,
}

/// The reason why frames go nowhere.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Why {
    /// No entry of the table matches.
    NoEntry(u8),
    /// An entry without output; its cookie.
    Entry { table: u8, cookie: u64 },
    /// The output is the port by which the frames arrived.
    IngressPort,
    /// A group has no bucket, or is missing.
    Group(u32),
}

/// The end of a way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The frames go nowhere.
    Dropped { switch: SwitchNumber, why: Why },
    /// The frames leave by a port that is no trunk.
    Delivered { switch: SwitchNumber, port: u32 },
    /// The frames go to the controller.
    Controller { switch: SwitchNumber },
    /// The frames cross more trunks than there are switches.
    Loop { switch: SwitchNumber },
    /// The frames reach a switch that has not reported its entries. Nothing is concluded from that.
    Unreported { switch: SwitchNumber },
    /// The entries do what the verifier cannot follow.
    Unknown {
        switch: SwitchNumber,
        reason: &'static str,
    },
}

/// A way of a set of frames.
#[derive(Clone, Debug)]
pub struct Way {
    /// The frames, as they leave.
    pub frames: Frames,
    pub outcome: Outcome,
    /// The cookie of the first filter on the way. If it is `Some`, and `is_filtered` is false, then this is the way that
    /// the frames would take without filters.
    pub filter: Option<u64>,
    /// False if the way is that without filters.
    pub is_real: bool,
    /// The copies of which this way is one: the number of each point at which frames were copied, and of the copy.
    pub copies: Vec<(u32, u16)>,
}

/// The switches of an exchange as they report themselves.
#[derive(Default, Debug)]
pub struct Fabric {
    /// The content of each switch.
    pub switches: BTreeMap<SwitchNumber, Content>,
    /// The far end of each trunk port.
    pub wires: BTreeMap<(SwitchNumber, u32), Wire>,
    /// The ports of each switch that are no trunks.
    pub ports: BTreeMap<SwitchNumber, BTreeSet<u32>>,
}

/// The place of frames.
#[derive(Clone, Copy, Debug)]
struct Place {
    switch: SwitchNumber,
    table: u8,
    known: Known,
    /// The number of trunks that the frames have crossed.
    hops: usize,
    /// The number of groups since the last table.
    groups: u8,
}

/// The largest number of groups that lead to each other; plans have two.
const GROUPS_MAX: u8 = 8;

/// One execution.
pub(crate) struct Trace<'a> {
    fabric: &'a Fabric,
    is_filter: &'a dyn Fn(u64) -> bool,
    visit: &'a mut dyn FnMut(&Way),
    /// The entries that some frames match, by switch and number, if they are asked for.
    pub(crate) hits: Option<BTreeSet<(SwitchNumber, u64)>>,
    points: u32,
}

/// The data of frames that entries on the way do not change.
#[derive(Clone, Default)]
struct Route {
    filter: Option<u64>,
    is_ghost: bool,
    copies: Vec<(u32, u16)>,
}

impl<'a> Trace<'a> {
    /// Returns an execution that reports each way to `visit`. `is_filter` says which cookies are those of filters: their
    /// frames are also followed as if there were no filter.
    pub(crate) fn new(
        fabric: &'a Fabric,
        is_filter: &'a dyn Fn(u64) -> bool,
        visit: &'a mut dyn FnMut(&Way),
    ) -> Trace<'a> {
        Trace {
            fabric,
            is_filter,
            visit,
            hits: None,
            points: 0,
        }
    }

    /// Follows frames that enter by a port.
    pub(crate) fn enter(&mut self, switch: SwitchNumber, port: u32, frames: Frames) {
        let place = Place {
            switch,
            table: 0,
            known: Known {
                in_port: port,
                metadata: 0,
                tunnel: 0,
            },
            hops: 0,
            groups: 0,
        };
        self.table(place, frames, &Route::default(), &[]);
    }

    fn end(&mut self, frames: Frames, outcome: Outcome, route: &Route) {
        (self.visit)(&Way {
            frames,
            outcome,
            filter: route.filter,
            is_real: !route.is_ghost,
            copies: route.copies.clone(),
        });
    }

    /// Looks frames up in a table.
    fn table(&mut self, place: Place, frames: Frames, route: &Route, actions: &[Action]) {
        let fabric = self.fabric;
        let Some(content) = fabric.switches.get(&place.switch) else {
            let switch = place.switch;
            return self.end(frames, Outcome::Unreported { switch }, route);
        };
        let candidates = content.candidates(place.table, place.known);
        if frames.is_open() && candidates.iter().any(|entry| entry.needs_tag()) {
            for part in frames.split() {
                self.matching(place, &candidates, &part, route, actions);
            }
        } else {
            self.matching(place, &candidates, &frames, route, actions);
        }
    }

    /// Divides frames among the entries that they match.
    fn matching(
        &mut self,
        place: Place,
        candidates: &[&Arc<Entry>],
        frames: &Frames,
        route: &Route,
        actions: &[Action],
    ) {
        let mut above = Above::default();
        for (at, entry) in candidates.iter().enumerate() {
            let is_filter = (self.is_filter)(entry.flow.cookie);
            if is_filter && route.is_ghost {
                continue;
            }
            let Some(condition) = frames.condition(entry) else {
                continue;
            };
            let Some(mut space) = frames.space.within(&condition) else {
                continue;
            };
            let is_shadowed = above.near(&condition).any(|other| {
                if other.covers(&space.cube) {
                    return true;
                }
                space.exclude(other.clone());
                false
            });
            let is_last = condition.covers(&frames.space.cube);
            above.push(condition);
            if is_shadowed {
                continue;
            }
            if let Some(hits) = &mut self.hits
                && !hits.contains(&(place.switch, entry.number))
                && (space.without.is_empty() || !space.is_empty())
            {
                hits.insert((place.switch, entry.number));
            }
            let matched = frames.in_space(space);
            if is_filter {
                let ghost = Route {
                    filter: route.filter.or(Some(entry.flow.cookie)),
                    is_ghost: true,
                    ..route.clone()
                };
                self.matching(place, &candidates[at + 1..], &matched, &ghost, actions);
                let filtered = Route {
                    filter: route.filter.or(Some(entry.flow.cookie)),
                    ..route.clone()
                };
                self.execute(place, entry, matched, &filtered, actions);
            } else {
                self.execute(place, entry, matched, route, actions);
            }
            if is_last {
                return;
            }
        }
        let mut space = frames.space.clone();
        for condition in above.all {
            space.exclude(condition);
        }
        let (switch, why) = (place.switch, Why::NoEntry(place.table));
        let missed = frames.in_space(space);
        self.end(missed, Outcome::Dropped { switch, why }, route);
    }

    /// Executes the instructions of an entry (OpenFlow 1.3.5, section 5.9).
    fn execute(
        &mut self,
        place: Place,
        entry: &Arc<Entry>,
        mut frames: Frames,
        route: &Route,
        actions: &[Action],
    ) {
        let instructions = &entry.flow.instructions;
        let applied = instructions.apply_actions.iter().flatten();
        let touches_tag = |action: &Action| match action {
            Action::PopVlan => true,
            Action::SetField(set) => matches!(set.field(), Field::VlanVid | Field::VlanPcp),
            _ => false,
        };
        let pushes_first = || {
            let mut list = instructions.actions();
            let first = list.find(|action| touches_tag(action) || matches!(action, Action::PushVlan(_)));
            matches!(first, Some(Action::PushVlan(_)))
        };
        if frames.is_open() && instructions.actions().any(touches_tag) && !pushes_first() {
            for part in frames.split() {
                self.execute(place, entry, part, route, actions);
            }
            return;
        }
        let switch = place.switch;
        let mut set: Vec<Action> = if instructions.clear_actions {
            Vec::new()
        } else {
            actions.to_vec()
        };
        set.extend(instructions.write_actions.iter().flatten().copied());
        let outputs = applied.clone().filter(|action| is_output(action)).count();
        let continues = instructions.goto_table.is_some() || !set.is_empty();
        let mut copies = Copies::new(self, outputs + usize::from(continues));
        let mut place = place;
        for action in applied {
            if is_output(action) {
                let route = copies.next(route);
                self.leave(place, action, frames.clone(), &route);
                continue;
            }
            if let Action::SetField(set) = action
                && set.field() == Field::TunnelId
            {
                place.known.tunnel = set.value() as u64;
                continue;
            }
            if let Err(reason) = frames.apply(action) {
                return self.end(frames, Outcome::Unknown { switch, reason }, route);
            }
        }
        if let Some(change) = instructions.write_metadata {
            place.known.metadata = change.apply(place.known.metadata);
        }
        if let Some(next) = instructions.goto_table {
            let route = copies.next(route);
            place.table = next.0;
            self.table(place, frames, &route, &set);
        } else if !set.is_empty() {
            let route = copies.next(route);
            self.action_set(place, &set, frames, &route);
        } else if outputs == 0 {
            let why = Why::Entry {
                table: place.table,
                cookie: entry.flow.cookie,
            };
            self.end(frames, Outcome::Dropped { switch, why }, route);
        }
    }

    /// Executes an action set or a bucket, in the order of OpenFlow 1.3.5, section 5.10.
    fn action_set(&mut self, mut place: Place, actions: &[Action], mut frames: Frames, route: &Route) {
        let switch = place.switch;
        if frames.is_open() && actions.iter().any(|action| matches!(action, Action::PopVlan)) {
            for part in frames.split() {
                self.action_set(place, actions, part, route);
            }
            return;
        }
        let rank = |action: &Action| match action {
            Action::PopVlan => 0,
            Action::PushVlan(_) => 1,
            Action::Group(_) => 3,
            Action::Output { .. } => 4,
            _ => 2,
        };
        let mut sorted = actions.to_vec();
        sorted.sort_by_key(rank);
        for action in &sorted {
            match action {
                Action::SetField(set) if set.field() == Field::TunnelId => {
                    place.known.tunnel = set.value() as u64;
                }
                action if is_output(action) => return self.leave(place, action, frames, route),
                action => {
                    if let Err(reason) = frames.apply(action) {
                        return self.end(frames, Outcome::Unknown { switch, reason }, route);
                    }
                }
            }
        }
        let why = Why::NoEntry(place.table);
        self.end(frames, Outcome::Dropped { switch, why }, route);
    }

    /// Sends frames to a port or group.
    fn leave(&mut self, place: Place, action: &Action, frames: Frames, route: &Route) {
        match action {
            Action::Output { port, .. } => self.output(place, *port, frames, route),
            Action::Group(group) => self.group(place, *group, frames, route),
            _ => {}
        }
    }

    fn group(&mut self, place: Place, number: GroupId, frames: Frames, route: &Route) {
        let fabric = self.fabric;
        let found = fabric
            .switches
            .get(&place.switch)
            .and_then(|content| content.groups.get(&number));
        let (switch, why) = (place.switch, Why::Group(number.0));
        let Some(GroupEntry { kind, buckets }) = found.filter(|group| !group.buckets.is_empty()) else {
            return self.end(frames, Outcome::Dropped { switch, why }, route);
        };
        if place.groups >= GROUPS_MAX {
            return self.end(frames, Outcome::Loop { switch }, route);
        }
        let mut copies = Copies::new(self, if *kind == GroupType::All { buckets.len() } else { 1 });
        let is_used = |weight: u16| *kind != GroupType::Select || weight > 0;
        let place = Place {
            groups: place.groups + 1,
            ..place
        };
        for bucket in buckets.iter().filter(|bucket| is_used(bucket.weight)) {
            let route = if *kind == GroupType::All {
                copies.next(route)
            } else {
                route.clone()
            };
            self.action_set(place, &bucket.actions, frames.clone(), &route);
        }
    }

    fn output(&mut self, place: Place, port: PortNo, frames: Frames, route: &Route) {
        let fabric = self.fabric;
        let switch = place.switch;
        let port = match port {
            PortNo::CONTROLLER => return self.end(frames, Outcome::Controller { switch }, route),
            PortNo::IN_PORT => place.known.in_port,
            PortNo::ALL | PortNo::FLOOD => {
                let members = fabric.ports.get(&switch).into_iter().flatten().copied();
                let trunks = fabric.wires.range((switch, 0)..=(switch, u32::MAX));
                let ports: Vec<u32> = members.chain(trunks.map(|((_, port), _)| *port)).collect();
                let mut copies = Copies::new(self, 2);
                for port in ports.into_iter().filter(|port| *port != place.known.in_port) {
                    let route = copies.next(route);
                    self.reach_port(place, port, frames.clone(), &route);
                }
                return;
            }
            port if port.raw() > PortNo::MAX.raw() => {
                let reason = "a reserved port whose frames the verifier does not follow";
                return self.end(frames, Outcome::Unknown { switch, reason }, route);
            }
            port if port.raw() == place.known.in_port => {
                let why = Why::IngressPort;
                return self.end(frames, Outcome::Dropped { switch, why }, route);
            }
            port => port.raw(),
        };
        self.reach_port(place, port, frames, route);
    }

    fn reach_port(&mut self, place: Place, port: u32, frames: Frames, route: &Route) {
        let Some(wire) = self.fabric.wires.get(&(place.switch, port)) else {
            let switch = place.switch;
            return self.end(frames, Outcome::Delivered { switch, port }, route);
        };
        if place.hops > self.fabric.switches.len() {
            return self.end(frames, Outcome::Loop { switch: wire.switch }, route);
        }
        let next = Place {
            switch: wire.switch,
            table: 0,
            known: Known {
                in_port: wire.port,
                metadata: 0,
                tunnel: if wire.keeps_key { place.known.tunnel } else { 0 },
            },
            hops: place.hops + 1,
            groups: 0,
        };
        self.table(next, frames, route, &[]);
    }
}

const fn is_output(action: &Action) -> bool {
    matches!(action, Action::Output { .. } | Action::Group(_))
}

/// The numbers of the copies that one point makes.
struct Copies {
    point: Option<u32>,
    next: u16,
}

impl Copies {
    /// A point that makes one copy makes none.
    fn new(trace: &mut Trace<'_>, count: usize) -> Copies {
        let point = (count > 1).then(|| {
            trace.points += 1;
            trace.points
        });
        Copies { point, next: 0 }
    }

    fn next(&mut self, route: &Route) -> Route {
        let mut route = route.clone();
        if let Some(point) = self.point {
            route.copies.push((point, self.next));
            self.next = self.next.saturating_add(1);
        }
        route
    }
}

/// The conditions of the entries above one. Most entries of a large table match one destination address or VID, and only
/// those with the same value can be above one of them.
#[derive(Default)]
struct Above {
    all: Vec<Cube>,
    by_destination: HashMap<u128, Vec<usize>>,
    by_vid: HashMap<u128, Vec<usize>>,
    others: Vec<usize>,
}

/// The field by which a condition is found.
enum Key {
    Destination(u128),
    Vid(u128),
    Neither,
}

fn key(cube: &Cube) -> Key {
    let destination = cube.exact(Var::Field(Field::EthDst)).map(Key::Destination);
    let by_vid = || cube.exact(Var::Vid(0)).map(Key::Vid);
    destination.or_else(by_vid).unwrap_or(Key::Neither)
}

impl Above {
    fn push(&mut self, cube: Cube) {
        let at = self.all.len();
        match key(&cube) {
            Key::Destination(value) => self.by_destination.entry(value).or_default().push(at),
            Key::Vid(value) => self.by_vid.entry(value).or_default().push(at),
            Key::Neither => self.others.push(at),
        }
        self.all.push(cube);
    }

    /// Returns the conditions that may have frames in common with this one.
    fn near(&self, cube: &Cube) -> impl Iterator<Item = &Cube> {
        let every = |found: &HashMap<u128, Vec<usize>>| found.values().flatten().copied().collect();
        let same = |found: &HashMap<u128, Vec<usize>>, value| found.get(&value).cloned().unwrap_or_default();
        let [one, two]: [Vec<usize>; 2] = match key(cube) {
            Key::Destination(value) => [same(&self.by_destination, value), every(&self.by_vid)],
            Key::Vid(value) => [every(&self.by_destination), same(&self.by_vid, value)],
            Key::Neither => [every(&self.by_destination), every(&self.by_vid)],
        };
        let found = one.into_iter().chain(two).chain(self.others.iter().copied());
        found.filter_map(|at| self.all.get(at))
    }
}
