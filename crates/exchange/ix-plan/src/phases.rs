//! Division of a change into phases, so that frames of the old path never match entries of the new path, and
//! vice versa.
//!
//! ```text
//! stage   entries that no frame can reach yet: egress and forwarding of new ends, trunk entries under a new wire id
//! flip    entries that turn frames to the new path, or stop them: ingress, addresses to which present ends send, the
//!         other frames of present ends, and everything that is changed in place
//! (drain) frames that are on the old path leave the fabric
//! clean   entries that no frame can reach any more
//! ```
//! A change that only adds entries stages the far end first, and then admits frames. A change that only
//! removes entries stops frames at the ingress first.

use std::collections::{BTreeMap, BTreeSet};

use millrace_ix_model::{Exchange, ServiceId, SwitchId, Timestamp};

use crate::difference::Modification;
use crate::entry::{Entry, EntryId, FlowId, SwitchState};
use crate::filters::FilterScope;
use crate::layout::{CookieFields, CookieKind, EGRESS, FORWARD, Metadata, POLICE, PORT};
use crate::plan::{Plan, plan_filters_of, plan_services, plan_switches, switches_differ};
use crate::service::Settings;

/// The modifications of a change, by switch, in the order of the phases. Within a phase each switch's modifications go
/// into one bundle.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Phases {
    /// The modifications before the flip.
    pub stage: BTreeMap<SwitchId, Vec<Modification>>,
    /// The modifications that move frames to the new path.
    pub flip: BTreeMap<SwitchId, Vec<Modification>>,
    /// The modifications after the drain.
    pub clean: BTreeMap<SwitchId, Vec<Modification>>,
}

impl Phases {
    /// Returns true if nothing changes.
    pub fn is_empty(&self) -> bool {
        self.stage.is_empty() && self.flip.is_empty() && self.clean.is_empty()
    }
}

/// Returns the phases from one exchange to another at the same time. Only services and filters that differ
/// are planned.
pub fn phases(old: &Exchange, new: &Exchange, settings: &Settings) -> Phases {
    phases_between((old, settings), (new, settings))
}

/// Returns the phases from one exchange to another at a later time. A service or filter is planned only if it
/// differs, or if a validity in it begins or ends between the two times.
pub fn phases_between((old, then): (&Exchange, &Settings), (new, now): (&Exchange, &Settings)) -> Phases {
    let mut services = changed_services(old, new);
    if then.now != now.now {
        services.extend(services_at_boundary(old, then.now, now.now));
        services.extend(services_at_boundary(new, then.now, now.now));
    }
    let mut before = plan_services(old, &services, then);
    let mut after = plan_services(new, &services, now);
    if switches_differ(old, new) {
        merge(&mut before, plan_switches(old));
        merge(&mut after, plan_switches(new));
    }
    let filters = FilterScope::of_change((old, then), (new, now));
    if !filters.is_empty() {
        merge(&mut before, plan_filters_of(old, &filters, then));
        merge(&mut after, plan_filters_of(new, &filters, now));
    }
    phases_of_plans(&before, &after)
}

/// Returns the services with an address whose validity begins or ends later than `then`, and at the latest at
/// `now`.
pub fn services_at_boundary(
    exchange: &Exchange,
    then: Timestamp,
    now: Timestamp,
) -> impl Iterator<Item = ServiceId> + '_ {
    let is_boundary =
        move |moment: Option<Timestamp>| moment.is_some_and(|moment| then < moment && moment <= now);
    let macs = exchange.macs.values();
    let macs = macs.filter(move |mac| is_boundary(mac.begin()) || is_boundary(mac.valid_until));
    let ips = exchange
        .ips
        .values()
        .filter(move |ip| is_boundary(ip.valid_until));
    let ends = macs.map(|mac| mac.config).chain(ips.map(|ip| ip.config));
    ends.filter_map(|end| exchange.configs.get(&end))
        .map(|config| config.service)
}

fn merge(plan: &mut Plan, other: Plan) {
    for (switch, state) in other.switches {
        plan.switches.entry(switch).or_default().extend(state);
    }
    plan.problems.extend(other.problems);
}

/// Returns the services whose entries may differ between two exchanges.
pub fn changed_services(old: &Exchange, new: &Exchange) -> BTreeSet<ServiceId> {
    if old.switches != new.switches || old.trunks != new.trunks || old.policies != new.policies {
        return old.services.keys().chain(new.services.keys()).copied().collect();
    }
    let mut services = old.services.differing(&new.services);
    let ends = old
        .configs
        .differing(&new.configs)
        .into_iter()
        .chain(old.macs.differing(&new.macs).into_iter().flat_map(|mac| {
            [old, new]
                .into_iter()
                .filter_map(move |side| side.macs.get(&mac).map(|mac| mac.config))
        }))
        .chain(old.ips.differing(&new.ips).into_iter().flat_map(|ip| {
            [old, new]
                .into_iter()
                .filter_map(move |side| side.ips.get(&ip).map(|ip| ip.config))
        }));
    let connections = old.connections.differing(&new.connections);
    for side in [old, new].into_iter().filter(|_| !connections.is_empty()) {
        let patched = side
            .configs
            .values()
            .filter(|config| connections.contains(&config.connection));
        services.extend(patched.map(|config| config.service));
    }
    for end in ends {
        let sides = [old, new].into_iter().filter_map(|side| side.configs.get(&end));
        services.extend(sides.map(|config| config.service));
    }
    services
}

/// Returns the phases from one plan to another.
pub fn phases_of_plans(old: &Plan, new: &Plan) -> Phases {
    let mut phases = Phases::default();
    let none = SwitchState::new();
    let switches: BTreeSet<_> = old.switches.keys().chain(new.switches.keys()).copied().collect();
    for switch in switches {
        let before = old.switches.get(&switch).unwrap_or(&none);
        let after = new.switches.get(&switch).unwrap_or(&none);
        let modifications = crate::difference::difference(before, after);
        let added = modifications
            .iter()
            .filter(|change| change.from.is_none())
            .map(|change| &change.key);
        let [ends_before, ends_after] = [before, after].map(entering);
        let around = Around {
            before: by_service(before.keys()),
            added: by_service(added),
            present: &ends_before & &ends_after,
            ends_before,
            ends_after,
        };
        for change in modifications {
            let phase = match around.phase(&change) {
                Phase::Stage => &mut phases.stage,
                Phase::Flip => &mut phases.flip,
                Phase::Clean => &mut phases.clean,
            };
            phase.entry(switch).or_default().push(change);
        }
    }
    phases
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Stage,
    Flip,
    Clean,
}

/// The entries of tables 4 and 6, by table and service.
type InnerEntries = BTreeMap<(u8, u32), Vec<FlowId>>;

fn by_service<'a>(ids: impl Iterator<Item = &'a EntryId>) -> InnerEntries {
    let mut entries = InnerEntries::new();
    for id in ids {
        if let EntryId::Flow(flow) = id
            && [FORWARD, EGRESS].contains(&flow.table)
        {
            entries.entry(service_of(flow)).or_default().push(flow.clone());
        }
    }
    entries
}

fn service_of(flow: &FlowId) -> (u8, u32) {
    let metadata = flow
        .matching
        .field(millrace_flow::Field::Metadata)
        .map_or(0, |(value, _)| value);
    (flow.table.0, Metadata::from_word(metadata as u64).service)
}

/// The ends by which frames enter at a switch, by service and index.
type Entering = BTreeSet<(u32, u32)>;

/// Returns the ends whose frames a switch forwards: those that have entries in table 3, which all of their frames pass.
fn entering(state: &SwitchState) -> Entering {
    let flows = state.keys().filter_map(|id| match id {
        EntryId::Flow(flow) if flow.table == POLICE => ingress_end(flow),
        _ => None,
    });
    flows.collect()
}

/// Returns the service and the index of the end to whose frames an entry is limited, if it is. The frames have not crossed a
/// trunk.
fn ingress_end(flow: &FlowId) -> Option<(u32, u32)> {
    let (value, mask) = flow.matching.field(millrace_flow::Field::Metadata)?;
    let mask = mask.map_or(u64::MAX, |mask| mask as u64);
    let fields = Metadata::from_word(value as u64);
    let is_limited = mask & Metadata::INGRESS_END == Metadata::INGRESS_END && !fields.by_trunk;
    is_limited.then_some((fields.service, fields.ingress_end))
}

/// The entries of a switch around a modification.
struct Around {
    before: InnerEntries,
    added: InnerEntries,
    /// The ends whose frames the switch forwards before and after the change.
    present: Entering,
    /// The ends whose frames the switch forwards before the change.
    ends_before: Entering,
    /// The ends whose frames the switch forwards after the change.
    ends_after: Entering,
}

impl Around {
    /// Returns the phase of a modification.
    fn phase(&self, change: &Modification) -> Phase {
        match (&change.key, &change.from, &change.to) {
            (EntryId::Meter(_) | EntryId::Group(_), None, _) => Phase::Stage,
            (EntryId::Meter(_) | EntryId::Group(_), _, None) => Phase::Clean,
            (_, Some(_), Some(_)) | (EntryId::Flow(_), None, None) => Phase::Flip,
            (EntryId::Flow(flow), None, Some(entry)) => {
                if self.is_apart(flow, &self.before, &self.ends_before) || is_from_trunk(flow, entry) {
                    Phase::Stage
                } else {
                    Phase::Flip
                }
            }
            (EntryId::Flow(flow), Some(entry), None) => {
                if self.is_apart(flow, &self.added, &self.ends_after) || is_from_trunk(flow, entry) {
                    Phase::Clean
                } else {
                    Phase::Flip
                }
            }
        }
    }

    /// Returns true if an entry of table 4 or 6 is on no way of frames that enter before and after the change: it meets none
    /// of the `others`, and neither an address nor an end to which it is limited leads present ends to it. `ends` are those
    /// whose frames the switch forwards without the entry: where there are none, frames to an address come by trunk only.
    fn is_apart(&self, flow: &FlowId, others: &InnerEntries, ends: &Entering) -> bool {
        let near = others.get(&service_of(flow)).map_or(&[][..], Vec::as_slice);
        let meets = || {
            near.iter()
                .any(|other| other != flow && other.matching.overlaps(&flow.matching))
        };
        [FORWARD, EGRESS].contains(&flow.table)
            && !(is_address(flow) && has_ends(ends, service_of(flow).1))
            && ingress_end(flow).is_none_or(|end| !self.present.contains(&end))
            && !meets()
    }
}

/// Returns true if some of the ends are of a service.
fn has_ends(ends: &Entering, service: u32) -> bool {
    ends.range((service, 0)..=(service, u32::MAX)).next().is_some()
}

/// Returns true if an entry forwards frames by their destination address. All ends of a LAN or a multipoint circuit may send
/// to it, also those that a change does not concern.
fn is_address(flow: &FlowId) -> bool {
    flow.table == FORWARD && flow.matching.field(millrace_flow::Field::EthDst).is_some()
}

/// Returns true if an entry of table 0 takes frames from a trunk.
fn is_from_trunk(flow: &FlowId, entry: &Entry) -> bool {
    let Entry::Flow(body) = entry else {
        return false;
    };
    let fields = CookieFields::from_cookie(body.cookie);
    flow.table == PORT && fields.is_some_and(|fields| fields.kind == CookieKind::Service)
}
