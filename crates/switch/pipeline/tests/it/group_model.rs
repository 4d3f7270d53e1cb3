//! Random groups that forward to and watch each other, against an obvious model: a map of groups.
//!
//! The switch may choose any live bucket of a select group: the model reads its choices from `explain`, and checks
//! that they were possible and what follows from them.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};

use crate::harness::{Bridge, Event, add, frame, group, out, sent, set, to_group};
use millrace_flow::{Action, Bucket, Field, Instructions};
use millrace_pipeline::{
    ErrorCode, FlowMod, Group, GroupKind, GroupMod, PortState, RemovedReason, Step, explain,
};
use millrace_types::{GroupId, PortNo};
use proptest::prelude::*;

const PORTS: u32 = 5;
const GROUPS: u32 = 5;

#[derive(Clone, Debug, Default)]
struct Count {
    total: u64,
    buckets: Vec<u64>,
}

#[derive(Clone, Default)]
struct Model {
    groups: BTreeMap<u32, (Group, Count)>,
    /// Actions of the entry for each ingress port.
    flows: BTreeMap<u32, Vec<Action>>,
    dead_ports: BTreeSet<u32>,
    removed: usize,
}

fn groups_in(actions: &[Action]) -> Vec<u32> {
    actions
        .iter()
        .filter_map(|action| match action {
            Action::Group(group) => Some(group.0),
            _ => None,
        })
        .collect()
}

impl Model {
    fn targets(group: &Group) -> Vec<u32> {
        group
            .buckets
            .iter()
            .flat_map(|bucket| groups_in(&bucket.actions))
            .collect()
    }

    /// Returns true if packets of any group in `from` can reach group `to`.
    fn leads(&self, from: &[u32], to: u32) -> bool {
        from.iter().any(|id| {
            *id == to
                || self
                    .groups
                    .get(id)
                    .is_some_and(|(group, _)| *id != to && self.leads(&Self::targets(group), to))
        })
    }

    fn check(&self, group: &Group) -> Result<(), ErrorCode> {
        if group.kind == GroupKind::Indirect && group.buckets.len() != 1 {
            return Err(ErrorCode::OFPGMFC_INVALID_GROUP);
        }
        for bucket in &group.buckets {
            let watches = bucket.watch_port != PortNo::ANY || bucket.watch_group != GroupId::ANY;
            let is_watcher = matches!(group.kind, GroupKind::Select | GroupKind::FastFailover);
            if bucket.weight > 0 && group.kind != GroupKind::Select {
                return Err(ErrorCode::OFPGMFC_INVALID_GROUP);
            }
            if watches && !is_watcher {
                return Err(ErrorCode::OFPGMFC_WATCH_UNSUPPORTED);
            }
            if !watches && group.kind == GroupKind::FastFailover {
                return Err(ErrorCode::OFPGMFC_INVALID_GROUP);
            }
            let watched = bucket.watch_group;
            if watched != GroupId::ANY && (watched == group.id || !self.groups.contains_key(&watched.0)) {
                return Err(ErrorCode::OFPGMFC_BAD_WATCH);
            }
        }
        let targets = Self::targets(group);
        if self.leads(&targets, group.id.0) {
            return Err(ErrorCode::OFPGMFC_LOOP);
        }
        if targets.iter().any(|target| !self.groups.contains_key(target)) {
            return Err(ErrorCode::OFPBAC_BAD_OUT_GROUP);
        }
        Ok(())
    }

    fn request(&mut self, request: &Request) -> Result<(), ErrorCode> {
        match request {
            Request::Flow(port, actions) => {
                if groups_in(actions)
                    .iter()
                    .any(|group| !self.groups.contains_key(group))
                {
                    return Err(ErrorCode::OFPBAC_BAD_OUT_GROUP);
                }
                self.flows.insert(*port, actions.clone());
            }
            Request::Group(GroupMod::Add(group)) => {
                if self.groups.contains_key(&group.id.0) {
                    return Err(ErrorCode::OFPGMFC_GROUP_EXISTS);
                }
                self.check(group)?;
                let count = Count {
                    total: 0,
                    buckets: vec![0; group.buckets.len()],
                };
                self.groups.insert(group.id.0, (group.clone(), count));
            }
            Request::Group(GroupMod::Modify(group)) => {
                let Some((_, count)) = self.groups.get(&group.id.0) else {
                    return Err(ErrorCode::OFPGMFC_UNKNOWN_GROUP);
                };
                self.check(group)?;
                let count = Count {
                    total: count.total,
                    buckets: vec![0; group.buckets.len()],
                };
                self.groups.insert(group.id.0, (group.clone(), count));
            }
            Request::Group(GroupMod::Delete(id)) => {
                let forwards = |(group, _): &(Group, Count)| Self::targets(group).contains(&id.0);
                if self.groups.values().any(forwards) {
                    return Err(ErrorCode::OFPGMFC_CHAINED_GROUP);
                }
                let is_meant = |one: u32| *id == GroupId::ALL || one == id.0;
                let before = self.flows.len();
                if *id == GroupId::ALL || self.groups.contains_key(&id.0) {
                    self.flows
                        .retain(|_, actions| !groups_in(actions).into_iter().any(is_meant));
                }
                self.removed += before - self.flows.len();
                self.groups.retain(|one, _| !is_meant(*one));
            }
        }
        Ok(())
    }

    fn is_group_live(&self, id: u32, above: &[u32]) -> bool {
        let Some((group, _)) = self.groups.get(&id) else {
            return false;
        };
        // Groups that watch each other in a circle do not make each other live.
        !above.contains(&id)
            && group
                .buckets
                .iter()
                .any(|bucket| self.is_live(bucket, &[above, &[id]].concat()))
    }

    fn is_live(&self, bucket: &Bucket, above: &[u32]) -> bool {
        let (port, group) = (bucket.watch_port, bucket.watch_group);
        let by_port = port != PortNo::ANY && port.raw() <= PORTS && !self.dead_ports.contains(&port.raw());
        let by_group = group != GroupId::ANY && self.is_group_live(group.0, above);
        (port == PortNo::ANY && group == GroupId::ANY) || by_port || by_group
    }

    /// Executes actions. `taken` holds the buckets that the switch chose, in order.
    fn walk(
        &mut self,
        actions: &[Action],
        from: u32,
        mut frame: Vec<u8>,
        taken: &mut Taken,
        out: &mut Vec<(u32, Vec<u8>)>,
    ) {
        for action in actions {
            match action {
                Action::Output { port, .. } if port.raw() == from => {}
                Action::Output { port, .. } => {
                    let port = if *port == PortNo::IN_PORT {
                        from
                    } else {
                        port.raw()
                    };
                    if !self.dead_ports.contains(&port) {
                        out.push((port, frame.clone()));
                    }
                }
                Action::Group(group) => self.enter(group.0, from, &frame, taken, out),
                Action::SetField(set) => frame[..6].copy_from_slice(&(set.value() as u64).to_be_bytes()[2..]),
                other => panic!("{other}"),
            }
        }
    }

    fn enter(&mut self, id: u32, from: u32, frame: &[u8], taken: &mut Taken, out: &mut Vec<(u32, Vec<u8>)>) {
        let (group, count) = self.groups.get_mut(&id).unwrap();
        count.total += 1;
        let group = group.clone();
        let all: Vec<usize> = (0..group.buckets.len()).collect();
        let live: Vec<usize> = all
            .iter()
            .copied()
            .filter(|at| self.is_live(&group.buckets[*at], &[]))
            .collect();
        let buckets: Vec<usize> = match group.kind {
            GroupKind::All | GroupKind::Indirect => all,
            GroupKind::FastFailover => live.first().copied().into_iter().collect(),
            GroupKind::Select => {
                let possible: Vec<usize> = live
                    .into_iter()
                    .filter(|at| group.buckets[*at].weight > 0)
                    .collect();
                match taken.first() {
                    Some((group, bucket)) if *group == id && possible.contains(bucket) => vec![*bucket],
                    other => {
                        assert!(possible.is_empty(), "{other:?} for group {id}, of {possible:?}");
                        Vec::new()
                    }
                }
            }
        };
        for bucket in buckets {
            assert!(!taken.is_empty(), "group {id}, bucket {bucket}");
            assert_eq!(taken.remove(0), (id, bucket));
            self.groups.get_mut(&id).unwrap().1.buckets[bucket] += 1;
            // An action set is executed in order: changes, then a group or an output.
            let actions = &group.buckets[bucket].actions;
            let last_of = |wanted: fn(&&Action) -> bool| actions.iter().rfind(wanted).copied();
            let change = last_of(|action| action.changes_packet());
            let sends = last_of(|action| matches!(action, Action::Group(_)))
                .or_else(|| last_of(|action| matches!(action, Action::Output { .. })));
            let set: Vec<Action> = change.into_iter().chain(sends).collect();
            self.walk(&set, from, frame.to_vec(), taken, out);
        }
    }
}

type Taken = Vec<(u32, usize)>;

#[derive(Clone, Debug)]
enum Request {
    Group(GroupMod),
    /// Sets the actions of the entry for an ingress port.
    Flow(u32, Vec<Action>),
}

#[derive(Clone, Debug)]
enum Scene {
    Request(Request),
    /// Executes requests as a bundle: all take effect or none, and none if the bundle is rolled back at the end.
    Bundle(Vec<Request>, bool),
    Port(u32, bool),
    Packet(u32, u16),
}

fn actions() -> impl Strategy<Value = Vec<Action>> {
    let action = prop_oneof![
        3 => (1..=PORTS).prop_map(out),
        1 => Just(Action::output(PortNo::IN_PORT)),
        3 => (0..GROUPS).prop_map(to_group),
        1 => (0u128..9).prop_map(|mac| set(Field::EthDst, mac)),
    ];
    prop::collection::vec(action, 0..4)
}

fn any_group() -> impl Strategy<Value = Group> {
    let watch = prop_oneof![3 => Just(0), 2 => 1..=PORTS + 1];
    let watch_group = prop_oneof![4 => Just(None), 1 => (0..GROUPS).prop_map(Some)];
    let bucket = (0u16..4, watch, watch_group, actions());
    let kind = prop::sample::select(vec![
        GroupKind::All,
        GroupKind::Select,
        GroupKind::Indirect,
        GroupKind::FastFailover,
    ]);
    (0..GROUPS, kind, prop::collection::vec(bucket, 0..4), 0..10u8).prop_map(|(id, kind, buckets, fault)| {
        let buckets = buckets.into_iter().map(|(weight, port, group, actions)| {
            // Most buckets are valid for the type of the group.
            let is_good = fault > 0;
            let watches = !is_good || matches!(kind, GroupKind::Select | GroupKind::FastFailover);
            let port = if port == 0 && kind == GroupKind::FastFailover && is_good {
                1
            } else {
                port
            };
            Bucket {
                weight: if kind == GroupKind::Select || !is_good {
                    weight
                } else {
                    0
                },
                watch_port: if port == 0 || !watches {
                    PortNo::ANY
                } else {
                    PortNo::from_raw(port)
                },
                watch_group: group.filter(|_| watches).map_or(GroupId::ANY, GroupId),
                actions: actions.into(),
            }
        });
        let len = if kind == GroupKind::Indirect && fault > 0 {
            1
        } else {
            4
        };
        group(id, kind, buckets.take(len).collect())
    })
}

fn request() -> impl Strategy<Value = Request> {
    let delete = prop_oneof![8 => (0..GROUPS).prop_map(GroupId), 1 => Just(GroupId::ALL)];
    prop_oneof![
        6 => any_group().prop_map(|group| Request::Group(GroupMod::Add(group))),
        3 => any_group().prop_map(|group| Request::Group(GroupMod::Modify(group))),
        1 => delete.prop_map(|id| Request::Group(GroupMod::Delete(id))),
        4 => (1..=PORTS, actions()).prop_map(|(port, actions)| Request::Flow(port, actions)),
    ]
}

fn scenes() -> impl Strategy<Value = Vec<Scene>> {
    let scene = prop_oneof![
        4 => request().prop_map(Scene::Request),
        1 => (prop::collection::vec(request(), 1..6), any::<bool>()).prop_map(|(requests, given_up)| Scene::Bundle(requests, given_up)),
        1 => (1..=PORTS, any::<bool>()).prop_map(|(port, is_live)| Scene::Port(port, is_live)),
        5 => (1..=PORTS, 1u16..50).prop_map(|(port, flow)| Scene::Packet(port, flow)),
    ];
    prop::collection::vec(scene, 1..80)
}

fn carry_out(
    control: &mut millrace_pipeline::Control,
    request: Request,
    now: millrace_types::Time,
    ops: &mut Vec<millrace_pipeline::Op>,
) -> Result<(), ErrorCode> {
    match request {
        Request::Group(request) => control
            .group_mod(&request, now, ops)
            .map(|_| ())
            .map_err(|error| error.code()),
        Request::Flow(port, actions) => {
            let flow = FlowMod {
                flags: millrace_pipeline::FlowFlags::SEND_FLOW_REM,
                ..add(0, 1, &format!("in_port={port}"), Instructions::apply(actions))
            };
            control
                .flow_mod(flow, now, ops)
                .map(|_| ())
                .map_err(|error| error.code())
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn groups_do_what_the_model_does(scenes in scenes()) {
        let mut bridge = Bridge::new(PORTS);
        let mut model = Model::default();
        for scene in scenes {
            let now = bridge.now;
            match scene {
                Scene::Request(request) => {
                    let expected = model.request(&request);
                    let got = bridge.change(|control, ops| {
                        let got = carry_out(control, request, now, ops);
                        assert!(got.is_ok() || ops.is_empty(), "a refused request changes nothing");
                        got
                    });
                    prop_assert_eq!(got, expected);
                }
                Scene::Bundle(requests, is_given_up) => {
                    let mut after = model.clone();
                    let refusal = requests.iter().find_map(|request| after.request(request).err());
                    if refusal.is_none() && !is_given_up {
                        model = after;
                    }
                    let got = bridge.change(|control, ops| {
                        control.begin(ops);
                        let got = requests.into_iter().try_for_each(|request| carry_out(control, request, now, ops));
                        if got.is_err() || is_given_up {
                            control.roll_back(ops);
                        } else {
                            control.commit();
                        }
                        got
                    });
                    prop_assert_eq!(got.err(), refusal);
                }
                Scene::Port(port, is_live) => {
                    let state = if is_live { PortState::LIVE } else { PortState::LINK_DOWN };
                    bridge.change(|control, ops| {
                        control.set_port_state(PortNo::from_raw(port), state, ops).map(|_| ()).unwrap();
                    });
                    if is_live { model.dead_ports.remove(&port) } else { model.dead_ports.insert(port) };
                }
                Scene::Packet(port, flow) => packet(&mut bridge, &mut model, port, flow)?,
            }
            check(&bridge, &model)?;
        }
    }
}

fn packet(bridge: &mut Bridge, model: &mut Model, port: u32, flow: u16) -> Result<(), TestCaseError> {
    let frame = frame(&format!("tcp,tp_src={flow}"));
    let explanation = explain(&bridge.active, PortNo::from_raw(port), &frame, bridge.now);
    let mut taken: Taken = explanation
        .steps
        .iter()
        .filter_map(|step| match step {
            Step::Bucket { group, bucket, .. } => Some((group.0, *bucket)),
            _ => None,
        })
        .collect();
    let events = bridge.one(port, &frame);
    let mut expected = Vec::new();
    if let Some(actions) = model.flows.get(&port).cloned() {
        model.walk(&actions, port, frame, &mut taken, &mut expected);
    }
    prop_assert!(taken.is_empty(), "{:?} too much", taken);
    // Packets of one port stay in order.
    let mut got = sent(&events);
    got.sort_by_key(|(port, _)| *port);
    expected.sort_by_key(|(port, _)| *port);
    prop_assert_eq!(got, expected);
    prop_assert!(
        events
            .iter()
            .any(|event| matches!(event, Event::Out(..) | Event::Dropped(_)))
    );
    Ok(())
}

fn check(bridge: &Bridge, model: &Model) -> Result<(), TestCaseError> {
    let mut got = Vec::new();
    bridge.control.group_stats(GroupId::ALL, bridge.now, |stat| {
        let buckets: Vec<u64> = stat.buckets.iter().map(|count| count.packets).collect();
        got.push((stat.group.clone(), stat.references, stat.count.packets, buckets));
    });
    let expected: Vec<_> = model
        .groups
        .iter()
        .map(|(id, (group, count))| {
            let flows = model
                .flows
                .values()
                .filter(|actions| groups_in(actions).contains(id))
                .count();
            let of_group =
                |(group, _): &(Group, Count)| Model::targets(group).iter().filter(|to| *to == id).count();
            let buckets: usize = model.groups.values().map(of_group).sum();
            (
                group.clone(),
                (flows + buckets) as u32,
                count.total,
                count.buckets.clone(),
            )
        })
        .collect();
    prop_assert_eq!(got, expected);
    prop_assert_eq!(bridge.control.entry_len(), model.flows.len());
    let deleted = bridge
        .removed
        .iter()
        .filter(|gone| gone.reason == RemovedReason::GroupDelete);
    prop_assert_eq!(deleted.count(), model.removed);
    Ok(())
}
