//! The verification of changes before their flip: right ones pass; a violation, or no answer in time, stops the change and
//! not the traffic. A drifted switch is named.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use millrace_ix_engine::{Drift, Event};
use millrace_ix_model::SwitchId;
use millrace_ix_plan::{EntryId, FlowId, Matching};
use millrace_ix_service::{
    ChangeToVerify, Entry, EntryOwner, EventKind, Fabric, OrderOptions, Snapshot, SwitchDrift, VerifyRequest,
};
use millrace_ix_store::{ChangeState, Sqlite};
use millrace_types::{Duration, GroupId, PortNo, Priority, TableId};
use serde_json::json;
use tokio::sync::oneshot;

use crate::world::World;

const SECOND: Duration = Duration::from_secs(1);

fn world() -> World {
    World::verified(Box::new(Sqlite::in_memory().unwrap()), Some(10 * SECOND))
}

/// Returns the state and the reason of the newest change.
fn newest(world: &mut World) -> (ChangeState, String) {
    let record = world.core().store().changes(u64::MAX, 1).unwrap().remove(0);
    let journal = world.core().store().journal(record.id).unwrap();
    let reason = journal.last().unwrap().detail["reason"]
        .as_str()
        .unwrap_or_default();
    (record.state, reason.to_owned())
}

/// Puts an entry into the first switch that sends frames of VLAN 101 at port 1 out of port 2, whatever they belong to.
fn hijack(world: &mut World) {
    let id = EntryId::Flow(FlowId {
        table: TableId(0),
        priority: Priority(64_000),
        matching: Matching::any()
            .with(millrace_flow::Field::InPort, 1u32)
            .with(millrace_flow::Field::VlanVid, 0x1065u16),
    });
    let flow = millrace_ix_plan::Flow {
        cookie: millrace_types::Cookie(0),
        instructions: millrace_flow::Instructions::apply([millrace_flow::Action::output(PortNo::from_raw(
            2,
        ))]),
        idle_timeout: 0,
        hard_timeout: 0,
    };
    let (number, switch) = world.switches.iter_mut().next().unwrap();
    switch.content.insert(id, Entry::Flow(flow));
    let (switch, session) = (number.0, switch.session.unwrap());
    let now = world.now();
    world
        .core()
        .handle(Event::<Fabric>::ForeignChange { switch, session }, now);
    world.deliver();
}

#[test]
fn right_changes_of_all_kinds_pass_their_verification() {
    let mut world = world();
    let (first, _) = world.circuit("first", [(0, 100), (2, 100)]);
    let (second, _) = world.circuit("second", [(0, 101), (1, 7)]);
    world.run(3 * SECOND);
    assert!(world.is_settled() && world.services() == [first, second]);
    let end = *world.core().exchange().configs.keys().next().unwrap();
    let connection = world.connections()[1];
    world.order(&[
        json!({"operation": "move_end", "config": end, "connection": connection,
        "vlan": {"type": "dot1q", "vlan": 300}}),
    ]);
    world.run(3 * SECOND);
    world.delete(first);
    world.run(3 * SECOND);
    let account = *world.core().exchange().accounts.keys().next().unwrap();
    world.order(&[
        json!({"operation": "create_filter", "account": account, "matching": {"destination": "192.0.2.1/32"},
        "action": {"type": "drop"}, "origin": "page", "state": {"name": "active"}}),
    ]);
    world.run(3 * SECOND);
    let records = world.core().store().changes(u64::MAX, 100).unwrap();
    for record in records {
        let journal = world.core().store().journal(record.id).unwrap();
        assert_eq!(record.state, ChangeState::Cleaned, "{:?}", journal.last());
    }
}

#[test]
fn changes_of_a_circuit_with_two_ends_at_one_connection_pass_their_verification() {
    let mut world = world();
    let account = *world.core().exchange().accounts.keys().next().unwrap();
    world.order(&[
        json!({"operation": "create_service", "account": account, "kind": "mp2mp_vc", "name": "many"}),
    ]);
    let service = world.services()[0];
    let connections = world.connections();
    for (number, connection, vlan) in [(1, 3, 4), (2, 3, 22), (3, 0, 9)] {
        world.order(&[
            json!({"operation": "configure_end", "service": service, "connection": connections[connection],
                "vlan": {"type": "dot1q", "vlan": vlan}}),
            json!({"operation": "add_mac", "config": "nc-0", "address": format!("02:00:00:00:00:{number:02x}")}),
        ]);
        world.run(3 * SECOND);
    }
    let ends: Vec<_> = world.core().exchange().configs.keys().copied().collect();
    let shut_down =
        |shut_down: bool| json!({"operation": "shut_down", "config": ends[0], "shut_down": shut_down});
    for operation in [
        shut_down(true),
        shut_down(false),
        json!({"operation": "move_end", "config": ends[0], "connection": connections[2],
            "vlan": {"type": "dot1q", "vlan": 4}}),
        json!({"operation": "move_end", "config": ends[0], "connection": connections[3],
            "vlan": {"type": "qinq", "outer": 40, "inner": 5}}),
        json!({"operation": "delete", "target": ends[1]}),
    ] {
        world.order(&[operation]);
        world.run(3 * SECOND);
        let (state, reason) = newest(&mut world);
        assert_eq!(state, ChangeState::Cleaned, "{reason}");
    }
    assert!(world.is_settled());
}

#[test]
fn a_change_whose_frames_would_leave_elsewhere_is_refused_in_words_and_reaches_no_ingress() {
    let mut world = world();
    let (first, _) = world.circuit("first", [(0, 100), (2, 100)]);
    world.run(3 * SECOND);
    hijack(&mut world);
    world.run(3 * SECOND);
    let contents: Vec<_> = world
        .switches
        .values()
        .map(|switch| switch.content.clone())
        .collect();
    world.circuit("second", [(0, 101), (3, 101)]);
    world.run(3 * SECOND);
    let (state, reason) = newest(&mut world);
    assert_eq!(state, ChangeState::RolledBack, "{reason}");
    assert!(
        reason.contains("the verification refuses the change: V1") && reason.contains("a1, VLAN 101"),
        "{reason}"
    );
    assert_eq!(world.services(), [first]);
    let without_marker = |content: &millrace_ix_engine::Content<Fabric>| {
        let mut content = content.clone();
        content.retain(|key, _| !crate::world::is_marker(key));
        content
    };
    for (switch, before) in world.switches.values().zip(&contents) {
        assert_eq!(without_marker(&switch.content), without_marker(before));
    }
}

/// Returns a group that chooses by liveness, whose bucket watches no port.
fn unwatched() -> Entry {
    Entry::Group(millrace_ix_plan::Group {
        kind: millrace_ix_plan::GroupKind::Select,
        buckets: vec![millrace_flow::Bucket::new([millrace_flow::Action::output(
            PortNo::from_raw(7),
        )])],
    })
}

fn verdict(world: &mut World, change: Box<ChangeToVerify>) -> Result<(), String> {
    match world.verifier.handle(VerifyRequest::Change(change)) {
        Some(Event::Verified { result, .. }) => result,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_change_is_refused_for_its_own_groups_and_those_of_others_are_found_by_the_check_of_everything() {
    let mut world = world();
    world.circuit("first", [(0, 100), (2, 100)]);
    world.run(3 * SECOND);
    let switch = world.switches.keys().next().unwrap().0;
    let key = EntryId::Group(GroupId(4_000_000));
    let confirmed = |entry| VerifyRequest::Confirmed {
        switch,
        modifications: vec![(key.clone(), entry)],
    };
    world.verifier.handle(confirmed(Some(unwatched())));
    world.circuit("second", [(1, 101), (3, 101)]);
    world.run(3 * SECOND);
    let (state, reason) = newest(&mut world);
    assert_eq!(state, ChangeState::Cleaned, "{reason}");

    let exchange = Arc::new(world.core().exchange().clone());
    let at = millrace_ix_model::Timestamp::from_millis(world.now().wall.0);
    let is_it = |text: &str| {
        text.contains("of group 4000000 at") && text.contains("watches no port and sends by port 7")
    };
    let found = world.verifier.all(&exchange, at);
    assert!(
        found.iter().any(|finding| is_it(&finding.to_string())),
        "{found:?}"
    );

    world.verifier.handle(confirmed(None));
    let flips = |key: &EntryId, entry| {
        let delta = BTreeMap::from([(key.clone(), (None, Some(entry)))]);
        Box::new(ChangeToVerify {
            change: 1,
            exchange: Arc::clone(&exchange),
            at,
            objects: BTreeSet::new(),
            flip: BTreeMap::from([(switch, delta)]),
            clean: BTreeMap::new(),
        })
    };
    let refused = verdict(&mut world, flips(&key, unwatched())).unwrap_err();
    assert!(is_it(&refused), "{refused}");
    let uses = EntryId::Flow(FlowId {
        table: TableId(6),
        priority: Priority(1),
        matching: Matching::any().with(millrace_flow::Field::Metadata, 0xf_fffeu64),
    });
    let flow = millrace_ix_plan::Flow {
        cookie: millrace_types::Cookie(0),
        instructions: millrace_flow::Instructions::apply([millrace_flow::Action::Group(GroupId(4_000_000))]),
        idle_timeout: 0,
        hard_timeout: 0,
    };
    verdict(&mut world, flips(&uses, Entry::Flow(flow.clone()))).unwrap();
    world.verifier.handle(confirmed(Some(unwatched())));
    let refused = verdict(&mut world, flips(&uses, Entry::Flow(flow))).unwrap_err();
    assert!(
        is_it(&refused),
        "a group that the change begins to use: {refused}"
    );
}

#[test]
fn a_verification_that_does_not_answer_stops_the_change_and_later_ones_pass() {
    let mut world = world();
    let (first, _) = world.circuit("first", [(0, 100), (2, 100)]);
    world.run(3 * SECOND);
    world.is_verifier_late = true;
    world.circuit("second", [(1, 101), (3, 101)]);
    world.run(9 * SECOND);
    assert_eq!(Snapshot::of(world.core()).changes.len(), 1, "it waits");
    world.run(3 * SECOND);
    let (state, reason) = newest(&mut world);
    assert_eq!(state, ChangeState::RolledBack);
    assert!(reason.contains("has not ended within 10 s"), "{reason}");
    assert_eq!(world.services(), [first]);
    // A late verdict about a change that was rolled back has no effect.
    world.is_verifier_late = false;
    world.deliver();
    world.run(3 * SECOND);
    assert!(world.is_settled());
    world.circuit("third", [(1, 101), (3, 101)]);
    world.run(3 * SECOND);
    assert!(world.is_settled() && world.services().len() == 2);
}

#[test]
fn a_dry_run_says_which_frames_will_leave_where() {
    let mut world = world();
    world.run(3 * SECOND);
    let operations = world.circuit_operations("first", [(0, 100), (2, 100)]);
    let options = OrderOptions {
        dry_run: true,
        ..OrderOptions::default()
    };
    let ordered = world.try_order(&operations, &options).unwrap();
    let (sender, mut receiver) = oneshot::channel();
    world
        .verifier
        .handle(VerifyRequest::Effects(ordered.preview.unwrap(), sender));
    let effects = receiver.try_recv().unwrap();
    let expected = "all packets from a1, VLAN 100 of \"first\": before, they are dropped at ote-1: table 0 has no entry for them; \
                    after, they leave at a3, VLAN 100 of \"first\"";
    assert!(effects.contains(&expected.to_owned()), "{effects:#?}");
    assert!(Snapshot::of(world.core()).exchange.services.is_empty());
}

#[test]
fn drift_names_the_entries_and_their_owners() {
    let mut world = world();
    world.circuit("first", [(0, 100), (2, 100)]);
    world.run(3 * SECOND);
    let (number, switch) = world.switches.iter_mut().next().unwrap();
    let is_egress = |key: &&EntryId| matches!(key, EntryId::Flow(flow) if flow.table == TableId(6));
    let removed = switch.content.keys().find(is_egress).unwrap().clone();
    switch.content.remove(&removed);
    let (switch, session) = (number.0, switch.session.unwrap());
    let now = world.now();
    world
        .core()
        .handle(Event::<Fabric>::ForeignChange { switch, session }, now);
    world.deliver();
    world.run(3 * SECOND);
    let texts: Vec<&str> = world
        .events
        .iter()
        .filter_map(|event| match &event.kind {
            EventKind::Notice { text, .. } => Some(&**text),
            _ => None,
        })
        .collect();
    let named = "1 entries differ from the plan, changed by somebody else, and are mended: an entry of table 6, priority 100 of";
    assert!(
        texts
            .iter()
            .any(|text| text.starts_with(named) && text.ends_with("is missing")),
        "{texts:#?}"
    );
    assert!(world.is_settled());
    // The finding is kept when the drift is mended.
    let snapshot = Snapshot::of(world.core());
    let found = &snapshot.drift_findings[&SwitchId(switch)];
    let [finding] = found.iter().collect::<Vec<_>>()[..] else {
        panic!("expected one finding: {found:#?}")
    };
    assert_eq!((finding.entries, finding.by_another), (1, true));
    let [entry] = &finding.named[..] else {
        panic!("expected one entry: {finding:#?}")
    };
    assert_eq!((&entry.key, entry.drift), (&removed, Drift::Removed));
    assert!(matches!(entry.owner, Some(EntryOwner::End { .. })), "{entry:#?}");
    assert!(finding.mended_at >= Some(finding.found_at), "{finding:#?}");
    assert_eq!(world.core().drift(SwitchId(switch), 10), SwitchDrift::default());
}

#[test]
fn drift_that_the_switch_does_not_let_mend_is_named_until_it_does() {
    let mut world = world();
    world.circuit("first", [(0, 100), (2, 100)]);
    world.run(3 * SECOND);
    let (number, switch) = world.switches.iter_mut().next().unwrap();
    let is_egress = |key: &&EntryId| matches!(key, EntryId::Flow(flow) if flow.table == TableId(6));
    let removed = switch.content.keys().find(is_egress).unwrap().clone();
    switch.content.remove(&removed);
    switch.is_full = true;
    let (number, session) = (*number, switch.session.unwrap());
    let now = world.now();
    let changed = Event::<Fabric>::ForeignChange {
        switch: number.0,
        session,
    };
    world.core().handle(changed, now);
    world.deliver();
    world.run(3 * SECOND);
    let drift = world.core().drift(number, 10);
    assert_eq!((drift.total, &drift.entries[0].key), (1, &removed));
    let mended = |world: &mut World| {
        let snapshot = Snapshot::of(world.core());
        let findings = snapshot.drift_findings[&number].iter();
        findings
            .map(|finding| finding.mended_at.is_some())
            .collect::<Vec<_>>()
    };
    assert!(mended(&mut world).iter().all(|mended| !mended));
    world.switches.get_mut(&number).unwrap().is_full = false;
    world.run(60 * SECOND);
    assert!(world.is_settled());
    assert!(mended(&mut world).iter().all(|mended| *mended));
}
