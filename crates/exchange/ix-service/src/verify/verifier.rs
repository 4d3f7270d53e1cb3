//! The verifier: a mirror of what the switches report, and what it says about a change.
//!
//! Without verification of changes nothing is reported to it. Then a dry run is told from what is planned for the switches, and
//! that is forgotten when no dry run follows: an exchange of 10,000 services has 100,000 entries.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use millrace_flow::Action;
use millrace_ix_engine::Event;
use millrace_ix_model::{ConfigId, Exchange, FilterId, ObjectId, ServiceId, Timestamp};
use millrace_ix_plan::{EntryId, GroupKind};
use millrace_ix_verify::{
    Checker, Content as Reported, Fabric as Mirror, Finding, FlowEntry, GroupEntry, GroupType, Reader,
    Register, effects, follow,
};
use millrace_types::GroupId;

use super::request::{ChangeToVerify, Deltas, Preview, VerifyRequest};
use crate::fabric::{Entry, Fabric, FabricKey};
use crate::phases::Planner;

/// The verifier: a mirror of what the switches report, and the register of the exchange that it was last asked about.
#[derive(Default, Debug)]
pub struct Verifier {
    mirror: Mirror,
    register: Register,
    exchange: Option<(Arc<Exchange>, Timestamp)>,
    /// The planner, if the mirror has what is planned instead of what the switches report.
    planner: Option<Planner>,
}

/// The number of ends up to which all ends of a service are verified with each change of it.
const ENDS_MAX: usize = 16;
/// The number of services of a filter's owner that are verified with a change of the filter.
const FILTER_SERVICES_MAX: usize = 4;

impl Verifier {
    /// Returns a verifier that tells effects of dry runs from what is planned for the switches. `extensions`: as in
    /// [`crate::Settings`].
    pub fn of_plans(extensions: bool) -> Verifier {
        Verifier {
            planner: Some(Planner { extensions }),
            ..Verifier::default()
        }
    }

    /// Frees what the next dry run can plan again.
    pub fn forget_plans(&mut self) {
        if let Some(Planner { extensions }) = self.planner {
            *self = Verifier::of_plans(extensions);
        }
    }

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

    /// Brings the mirror to the plan of an exchange.
    fn mirror_plan(&mut self, planner: Planner, exchange: &Exchange, at: Timestamp) {
        match &self.exchange {
            Some((before, then)) if *then <= at => {
                let phases = planner.phases((before, *then), (exchange, at));
                for switch in exchange.switches.keys() {
                    self.mirror.switches.entry(switch.0).or_default();
                }
                for deltas in &phases {
                    self.apply(deltas, Side::After);
                }
            }
            _ => {
                let empty = exchange
                    .switches
                    .keys()
                    .map(|switch| (switch.0, Reported::default()));
                self.mirror.switches = empty.collect();
                for (switch, content) in planner.plan(exchange, at) {
                    let mirrored = self.mirror.switches.entry(switch).or_default();
                    for (key, entry) in &content {
                        put(mirrored, key, Some(entry));
                    }
                }
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
        if let Some(planner) = self.planner {
            self.mirror_plan(planner, &preview.before, preview.at);
        }
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
        let reader = match &preview.reader {
            None => Reader::Staff,
            Some(accounts) => Reader::Member {
                accounts,
                exchanges: [&preview.before, &preview.after],
            },
        };
        let was = follow(&self.mirror, (&before, &after), &ends, &reader);
        for deltas in &preview.phases {
            self.apply(deltas, Side::After);
        }
        after.wire(&mut self.mirror);
        let is = follow(&self.mirror, (&after, &before), &ends, &reader);
        for deltas in preview.phases.iter().rev() {
            self.apply(deltas, Side::Before);
        }
        before.wire(&mut self.mirror);
        let found = effects(&was, &is, &reader);
        found.into_iter().map(|effect| effect.text).collect()
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
