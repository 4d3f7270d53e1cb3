//! The verification of changes before their flip, and their effect in words.
//!
//! ```text
//!  dumps, confirmed commits --> mirror of what the switches report ---\
//!                                                                      +--> after the flip? after the removal? --> verdict
//!  a change: flip, removed entries, the exchange after it ------------/
//! ```
//! The verifier runs in a thread of its own, so that no order waits for it. Its requests are in the order of the events.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use millrace_flow::Action;
use millrace_ix_engine::{Content, Delta, Event};
use millrace_ix_model::{ConfigId, Exchange, FilterId, ObjectId, ServiceId, Timestamp};
use millrace_ix_plan::{EntryId, GroupKind};
use millrace_ix_verify::{
    Checker, Content as Reported, Fabric as Mirror, Finding, FlowEntry, GroupEntry, GroupType, Register,
    effects, follow,
};
use millrace_types::GroupId;
use tokio::sync::oneshot;

use crate::core::{Core, FabricRequest, Output};
use crate::fabric::{Entry, Fabric, FabricKey};

/// The modifications of some switches, by switch.
pub type Deltas = BTreeMap<u32, Delta<Fabric>>;

/// A request to the verifier.
#[derive(Debug)]
pub enum VerifyRequest {
    /// A switch has reported all of its entries.
    Reported { switch: u32, content: Content<Fabric> },
    /// A switch does not return: nothing is concluded from what it has reported.
    Gone { switch: u32 },
    /// A switch has confirmed modifications.
    Confirmed {
        switch: u32,
        modifications: Vec<(FabricKey, Option<Entry>)>,
    },
    /// A change may flip if its properties hold.
    Change(Box<ChangeToVerify>),
    /// A dry run: the effect of an order in words.
    Effects(Box<Preview>, oneshot::Sender<Vec<String>>),
    /// A check of everything that the switches report against an exchange.
    All(Arc<Exchange>, Timestamp, oneshot::Sender<Vec<Finding>>),
}

/// An order whose effect is asked for.
#[derive(Clone, PartialEq, Debug)]
pub struct Preview {
    pub before: Arc<Exchange>,
    pub after: Arc<Exchange>,
    /// The time for which the switches are planned.
    pub at: Timestamp,
    /// The objects that the order writes.
    pub objects: BTreeSet<ObjectId>,
    /// The entries that it changes, in the order of the phases.
    pub phases: [Deltas; 3],
}

/// A change whose new entries all switches have confirmed.
#[derive(Debug)]
pub struct ChangeToVerify {
    pub change: u64,
    /// The exchange after the change.
    pub exchange: Arc<Exchange>,
    /// The time for which the switches are planned.
    pub at: Timestamp,
    /// The objects that the change writes.
    pub objects: BTreeSet<ObjectId>,
    /// The entries that the flip changes.
    pub flip: Deltas,
    /// The entries that are removed afterwards.
    pub clean: Deltas,
}

/// The verifier: a mirror of what the switches report, and the register of the exchange that it was last asked about.
#[derive(Default, Debug)]
pub struct Verifier {
    mirror: Mirror,
    register: Register,
    exchange: Option<(Arc<Exchange>, Timestamp)>,
}

/// The number of ends up to which all ends of a service are verified with each change of it.
const ENDS_MAX: usize = 16;
/// The number of services of a filter's owner that are verified with a change of the filter.
const FILTER_SERVICES_MAX: usize = 4;

impl Verifier {
    /// Handles a request. Returns the event for the engine, if the request was about a change.
    pub fn handle(&mut self, request: VerifyRequest) -> Option<Event<Fabric>> {
        match request {
            VerifyRequest::Reported { switch, content } => {
                let mut reported = Reported::default();
                for (key, entry) in &content {
                    put(&mut reported, key, Some(entry));
                }
                self.mirror.switches.insert(switch, reported);
                None
            }
            VerifyRequest::Gone { switch } => {
                self.mirror.switches.remove(&switch);
                None
            }
            VerifyRequest::Confirmed {
                switch,
                modifications,
            } => {
                // Of a switch that has not reported all of its entries, nothing is concluded.
                if let Some(content) = self.mirror.switches.get_mut(&switch) {
                    for (key, entry) in &modifications {
                        put(content, key, entry.as_ref());
                    }
                }
                None
            }
            VerifyRequest::Effects(preview, reply) => {
                // Without the asker, the answer is not needed.
                let _gone = reply.send(self.effects(&preview));
                None
            }
            VerifyRequest::All(exchange, at, reply) => {
                let _gone = reply.send(self.all(&exchange, at));
                None
            }
            VerifyRequest::Change(change) => {
                let findings = self.verify(&change);
                let result = match findings.first() {
                    None => Ok(()),
                    Some(first) => Err(match findings.len() {
                        1 => first.to_string(),
                        more => format!("{first} (and {} more)", more - 1),
                    }),
                };
                Some(Event::Verified {
                    change: change.change,
                    result,
                })
            }
        }
    }

    /// Brings the register to an exchange.
    fn follow(&mut self, exchange: &Arc<Exchange>, at: Timestamp) {
        match &self.exchange {
            Some((before, then)) if *then <= at => self.register.update((before, *then), (exchange, at)),
            _ => self.register = Register::of(exchange, at),
        }
        self.exchange = Some((Arc::clone(exchange), at));
        self.register.wire(&mut self.mirror);
    }

    /// Returns the violations after the flip of a change, or else after the removal of its old entries.
    fn verify(&mut self, change: &ChangeToVerify) -> Vec<Finding> {
        self.follow(&change.exchange, change.at);
        let scope = Scope::of(change, &self.register);
        self.apply(&change.flip, Side::After);
        let mut findings = self.check(change, &scope);
        if findings.is_empty() && !change.clean.is_empty() {
            self.apply(&change.clean, Side::After);
            findings = self.check(change, &scope);
            self.apply(&change.clean, Side::Before);
        }
        self.apply(&change.flip, Side::Before);
        findings
    }

    fn apply(&mut self, deltas: &Deltas, side: Side) {
        for (switch, delta) in deltas {
            let Some(content) = self.mirror.switches.get_mut(switch) else {
                continue;
            };
            for (key, (before, after)) in delta {
                let entry = match side {
                    Side::Before => before,
                    Side::After => after,
                };
                put(content, key, entry.as_ref());
            }
        }
    }

    fn check(&self, change: &ChangeToVerify, scope: &Scope) -> Vec<Finding> {
        let mut checker = Checker::new(&self.mirror, &self.register);
        if scope.is_whole {
            checker.all();
            return checker.into_findings();
        }
        for (service, ends) in &scope.services {
            checker.service(*service, ends.as_ref());
        }
        for (switch, port) in self.register.ports_of(&scope.changed_ends) {
            checker.outside(switch, port);
        }
        for (switch, delta) in &change.flip {
            for (key, (_, after)) in delta {
                if let Some(flow) = after.as_ref().and_then(|entry| flow_of(key, entry)) {
                    checker.filter_entry(*switch, &flow);
                }
            }
        }
        for (switch, group) in groups_of(change) {
            checker.group(switch, group);
        }
        checker.into_findings()
    }

    /// Returns the frames that an order makes take other ways, in words.
    fn effects(&mut self, preview: &Preview) -> Vec<String> {
        self.follow(&preview.before, preview.at);
        let before = self.register.clone();
        let mut after = before.clone();
        after.update((&preview.before, preview.at), (&preview.after, preview.at));
        let scopes = [(&preview.before, &before), (&preview.after, &after)]
            .map(|(exchange, register)| Scope::of_objects(&preview.objects, exchange, register));
        let mut ends = BTreeSet::new();
        for scope in &scopes {
            for (service, chosen) in &scope.services {
                let all = || {
                    [&before, &after]
                        .into_iter()
                        .flat_map(|register| register.ends_of(*service))
                };
                ends.extend(chosen.clone().unwrap_or_else(|| all().collect()));
            }
        }
        let was = follow(&self.mirror, &before, &after, &ends);
        for deltas in &preview.phases {
            self.apply(deltas, Side::After);
        }
        after.wire(&mut self.mirror);
        let is = follow(&self.mirror, &after, &before, &ends);
        for deltas in preview.phases.iter().rev() {
            self.apply(deltas, Side::Before);
        }
        before.wire(&mut self.mirror);
        effects(&was, &is).into_iter().map(|effect| effect.text).collect()
    }

    /// Checks everything that the switches report against an exchange. Returns the violations of V1 to V7.
    pub fn all(&mut self, exchange: &Arc<Exchange>, at: Timestamp) -> Vec<Finding> {
        self.follow(exchange, at);
        let mut checker = Checker::new(&self.mirror, &self.register);
        checker.all();
        checker.shadowed();
        checker.into_findings()
    }
}

/// A side of a modification.
#[derive(Clone, Copy)]
enum Side {
    Before,
    After,
}

/// The part of an exchange that a change may alter.
struct Scope {
    /// True if everything is verified: switches or trunks differ.
    is_whole: bool,
    /// The services, each with the ends whose frames are followed; `None` for all.
    services: BTreeMap<ServiceId, Option<BTreeSet<ConfigId>>>,
    changed_ends: BTreeSet<ConfigId>,
}

impl Scope {
    fn of(change: &ChangeToVerify, register: &Register) -> Scope {
        Scope::of_objects(&change.objects, &change.exchange, register)
    }

    fn of_objects(objects: &BTreeSet<ObjectId>, exchange: &Exchange, register: &Register) -> Scope {
        let (mut services, mut filters) = (BTreeSet::new(), BTreeSet::<FilterId>::new());
        let mut changed_ends = BTreeSet::new();
        let mut is_whole = false;
        for object in objects {
            match object {
                ObjectId::Service(id) => {
                    services.insert(*id);
                }
                ObjectId::Config(id) => {
                    changed_ends.insert(*id);
                }
                ObjectId::Mac(id) => changed_ends.extend(exchange.macs.get(id).map(|mac| mac.config)),
                ObjectId::Ip(id) => changed_ends.extend(exchange.ips.get(id).map(|ip| ip.config)),
                ObjectId::Filter(id) => {
                    filters.insert(*id);
                }
                ObjectId::Connection(id) => {
                    let ends = exchange
                        .configs
                        .iter()
                        .filter(|(_, config)| config.connection == *id);
                    changed_ends.extend(ends.map(|(end, _)| *end));
                }
                ObjectId::Switch(_) | ObjectId::Trunk(_) | ObjectId::Policy(_) => is_whole = true,
                _ => {}
            }
        }
        services.extend(
            changed_ends
                .iter()
                .filter_map(|end| Some(exchange.configs.get(end)?.service)),
        );
        let mut scope = Scope {
            is_whole,
            services: BTreeMap::new(),
            changed_ends,
        };
        for service in services {
            let count = exchange.ends(service).count();
            let ends = (count > ENDS_MAX).then(|| register.representatives(service, &scope.changed_ends));
            scope.services.insert(service, ends);
        }
        for filter in filters {
            let none = BTreeSet::new();
            for service in register
                .services_of_filter(filter)
                .into_iter()
                .take(FILTER_SERVICES_MAX)
            {
                let ends = || Some(register.representatives(service, &none));
                if exchange.ends(service).count() <= ENDS_MAX {
                    scope.services.entry(service).or_insert_with(ends);
                }
            }
        }
        scope
    }
}

/// Returns the groups that a change writes, and those that its new flow entries use, by switch. The groups of the rest of the exchange
/// are left to the check of everything: there are thousands.
fn groups_of(change: &ChangeToVerify) -> BTreeSet<(u32, GroupId)> {
    let mut groups = BTreeSet::new();
    for (switch, delta) in change.flip.iter().chain(&change.clean) {
        for (key, (_, after)) in delta {
            if let EntryId::Group(number) = key {
                groups.insert((*switch, *number));
            }
            if let Some(Entry::Flow(flow)) = after {
                let used = flow.instructions.actions().filter_map(|action| match action {
                    Action::Group(number) => Some((*switch, *number)),
                    _ => None,
                });
                groups.extend(used);
            }
        }
    }
    groups
}

/// Returns a flow entry as the verifier reads it. `None` for groups and meters, and for matches that no switch can report.
fn flow_of(key: &FabricKey, entry: &Entry) -> Option<FlowEntry> {
    match (key, entry) {
        (EntryId::Flow(id), Entry::Flow(flow)) => Some(FlowEntry {
            table: id.table,
            priority: id.priority,
            matching: id.matching.to_match().ok()?,
            cookie: flow.cookie.0,
            instructions: flow.instructions.clone(),
        }),
        _ => None,
    }
}

fn put(content: &mut Reported, key: &FabricKey, entry: Option<&Entry>) {
    match key {
        EntryId::Flow(id) => match entry.and_then(|entry| flow_of(key, entry)) {
            Some(flow) => content.add_flow(flow),
            None => {
                if let Ok(matching) = id.matching.to_match() {
                    content.remove_flow(id.table, id.priority, &matching);
                }
            }
        },
        EntryId::Group(number) => {
            let group = match entry {
                Some(Entry::Group(group)) => Some(GroupEntry {
                    kind: match group.kind {
                        GroupKind::All => GroupType::All,
                        GroupKind::Select => GroupType::Select,
                        GroupKind::Indirect => GroupType::Indirect,
                        GroupKind::FastFailover => GroupType::FastFailover,
                    },
                    buckets: group.buckets.clone(),
                }),
                _ => None,
            };
            content.set_group(*number, group);
        }
        EntryId::Meter(number) => content.set_meter(*number, entry.is_some()),
    }
}

impl Core {
    /// Asks for the verification of a change.
    pub(crate) fn ask_verification(&mut self, id: u64, flip: Deltas, clean: Deltas) {
        let Some(change) = self.open.get(&id) else {
            return;
        };
        let mut objects: BTreeSet<ObjectId> = change.redo.objects.keys().copied().collect();
        if change.validity.is_some() {
            // Validities begin without a write of an object.
            objects.extend(
                change
                    .concerns
                    .services()
                    .iter()
                    .map(|service| ObjectId::Service(*service)),
            );
        }
        let exchange = Arc::new(self.exchange_in_switches(Some(id)));
        self.outputs
            .push(Output::Verify(VerifyRequest::Change(Box::new(ChangeToVerify {
                change: id,
                exchange,
                at: self.planned_at,
                objects,
                flip,
                clean,
            }))));
    }

    /// Asks for the verification of everything that the switches report.
    pub(crate) fn ask_about_all(&mut self, reply: oneshot::Sender<Vec<Finding>>) {
        let exchange = Arc::new(self.exchange_in_switches(None));
        let all = VerifyRequest::All(exchange, self.planned_at, reply);
        self.outputs.push(Output::Verify(all));
    }

    /// Returns the exchange whose entries the switches use, after the flip of a change if one is given: without the other
    /// changes in progress that have not flipped. Those that are between are about other parts
    /// ([`millrace_ix_engine::Scope`]).
    fn exchange_in_switches(&self, id: Option<u64>) -> Exchange {
        let mut exchange = Exchange::clone(&self.exchange);
        let pending = self.open.iter().rev();
        for (_, other) in pending.filter(|(other, change)| Some(**other) != id && change.is_pending()) {
            exchange.commit(other.undo.clone());
            // The time of the plan is beyond that of a change which has not flipped: what has ended then is still in the
            // switches, and what has begun is not.
            let Some((then, now)) = other.validity else {
                continue;
            };
            let is_between = |moment: Timestamp| then < moment && moment <= now;
            let macs: Vec<_> = exchange.macs.iter().map(|(id, mac)| (*id, mac.clone())).collect();
            for (mac, mut registered) in macs {
                if registered.begin().is_some_and(is_between) {
                    exchange.macs.remove(&mac);
                } else if registered.valid_until.is_some_and(is_between) {
                    registered.valid_until = None;
                    exchange.macs.insert(mac, registered);
                }
            }
            let ips: Vec<_> = exchange.ips.iter().map(|(id, ip)| (*id, ip.clone())).collect();
            for (ip, mut registered) in ips {
                if registered.valid_until.is_some_and(is_between) {
                    registered.valid_until = None;
                    exchange.ips.insert(ip, registered);
                }
            }
        }
        exchange
    }

    /// Tells the verifier what a switch reports or confirms, before the engine handles the event.
    pub(crate) fn mirror(&mut self, event: &Event<Fabric>) {
        if self.engine.settings().verification.is_none() {
            return;
        }
        match event {
            Event::Dumped {
                switch,
                content: Ok(content),
                session,
            } if self.engine.is_session(*switch, *session) => {
                let (switch, content) = (*switch, content.clone());
                self.outputs
                    .push(Output::Verify(VerifyRequest::Reported { switch, content }));
                // The listing may be older than the modifications that were confirmed meanwhile.
                let modifications = self.during_dump.remove(&switch).unwrap_or_default();
                self.outputs.push(Output::Verify(VerifyRequest::Confirmed {
                    switch,
                    modifications,
                }));
            }
            Event::Committed {
                switch,
                session,
                commit,
            } if self.engine.is_session(*switch, *session) => {
                if let Some((number, modifications)) = self.sent.remove(switch)
                    && number == *commit
                {
                    let switch = *switch;
                    if let Some(during) = self.during_dump.get_mut(&switch) {
                        during.extend(modifications.iter().cloned());
                    }
                    self.outputs.push(Output::Verify(VerifyRequest::Confirmed {
                        switch,
                        modifications,
                    }));
                }
            }
            _ => {}
        }
    }

    /// Notes what is asked of a switch, for [`Core::mirror`].
    pub(crate) fn note_request(&mut self, request: &FabricRequest) {
        if self.engine.settings().verification.is_none() {
            return;
        }
        match request {
            FabricRequest::Dump { switch, .. } => drop(self.during_dump.insert(switch.0, Vec::new())),
            FabricRequest::Commit {
                switch,
                commit,
                modifications,
                ..
            } => {
                let after = modifications
                    .iter()
                    .map(|change| (change.key.clone(), change.to.clone()));
                self.sent.insert(switch.0, (*commit, after.collect()));
            }
            FabricRequest::PacketOut { .. } => {}
        }
    }
}
