//! The exchange as text: export, apply to an empty database, apply again.

use std::collections::BTreeMap;

use millrace_ix_engine::Settings;
use millrace_ix_model::{Actor, Timestamp};
use millrace_ix_service::text::{Document, document};
use millrace_ix_service::{ApplyOptions, Core, OrderError, OrderOptions, Ordered};
use millrace_ix_store::Sqlite;
use millrace_types::Duration;
use serde_json::{Value, json};

use crate::world::World;

const SECOND: Duration = Duration::from_secs(1);

/// Returns a world with circuits of several kinds.
fn world() -> World {
    let mut world = World::new();
    for number in 0..20 {
        let ends = [
            (number % 4, 100 + number as u16),
            ((number + 1) % 4, 200 + number as u16),
        ];
        world.circuit(&format!("circuit {number}"), ends);
    }
    world.run(3 * SECOND);
    assert!(world.is_settled());
    world
}

fn apply(
    world: &mut World,
    document: &Document,
    dry_run: bool,
) -> Result<millrace_ix_service::Ordered, OrderError> {
    let now = world.now();
    let options = OrderOptions {
        dry_run,
        ..OrderOptions::default()
    };
    let ordered = world.core().apply(
        document.clone(),
        ApplyOptions::default(),
        &Actor::system(),
        &options,
        now,
    );
    world.deliver();
    ordered
}

#[test]
fn an_exported_exchange_applied_to_an_empty_database_is_the_same_exchange() {
    let mut world = world();
    let text = document(world.core().exchange());
    // The text is written as TOML and read again, as a file is.
    let written = toml::to_string_pretty(&text).unwrap();
    let read: Document = toml::from_str(&written).unwrap();
    assert_eq!(read, text);
    let now = world.now();
    let mut empty = Core::start(
        Box::new(Sqlite::in_memory().unwrap()),
        Settings::default(),
        false,
        now,
    )
    .unwrap();
    let ordered = empty
        .apply(
            read,
            ApplyOptions::default(),
            &Actor::system(),
            &OrderOptions::default(),
            now,
        )
        .unwrap();
    assert_eq!(document(empty.exchange()), text);
    let entries = |core: &Core| -> Vec<usize> { core.plan().values().map(BTreeMap::len).collect() };
    assert_eq!(entries(&empty), entries(world.core()));
    assert_eq!(
        ordered.entries.values().map(|counts| counts.added).sum::<usize>(),
        entries(&empty).iter().sum::<usize>()
    );
}

#[test]
fn a_second_application_changes_nothing() {
    let mut world = world();
    let text = document(world.core().exchange());
    let commits: Vec<u32> = world.switches.values().map(|switch| switch.commits).collect();
    let revision = world.core().store().load().unwrap().revision;
    let ordered = apply(&mut world, &text, false).unwrap();
    assert!(ordered.change.is_none() && ordered.entries.is_empty());
    world.run(2 * SECOND);
    assert_eq!(
        world
            .switches
            .values()
            .map(|switch| switch.commits)
            .collect::<Vec<_>>(),
        commits
    );
    assert_eq!(world.core().store().load().unwrap().revision, revision);
}

#[test]
fn an_empty_text_is_refused_and_deletes_nothing() {
    let mut world = world();
    let before = world.core().exchange().clone();
    for dry_run in [true, false] {
        let refused = apply(&mut world, &Document::default(), dry_run).unwrap_err();
        assert!(refused.to_string().contains("empty file"), "{refused}");
    }
    assert_eq!(*world.core().exchange(), before);
    // An exchange without objects has an empty text.
    let now = world.now();
    let store = Box::new(Sqlite::in_memory().unwrap());
    let mut empty = Core::start(store, Settings::default(), false, now).unwrap();
    let options = OrderOptions::default();
    let applied = empty.apply(
        Document::default(),
        ApplyOptions::default(),
        &Actor::system(),
        &options,
        now,
    );
    assert_eq!(applied.unwrap().change, None);
}

#[test]
fn the_ports_of_a_switch_may_stand_in_any_order() {
    let mut world = world();
    let mut text = serde_json::to_value(document(world.core().exchange())).unwrap();
    let switches = text["switch"].as_array_mut().unwrap();
    for switch in switches {
        let ports = switch["ports"].as_array_mut().unwrap();
        assert!(ports.len() > 1);
        ports.reverse();
    }
    let text: Document = serde_json::from_value(text).unwrap();
    assert_eq!(apply(&mut world, &text, false).unwrap().change, None);
}

#[test]
fn an_edited_text_changes_what_was_edited() {
    let mut world = world();
    let mut text = serde_json::to_value(document(world.core().exchange())).unwrap();
    let services = text["service"].as_array_mut().unwrap();
    services.retain(|service| service["name"] != "circuit 3");
    let edited = services
        .iter_mut()
        .find(|service| service["name"] == "circuit 4")
        .unwrap();
    edited["end"][0]["vlan"] = json!({"type": "dot1q", "vlan": 1000});
    edited["end"][1]["capacity_mbps"] = json!(250);
    let text: Document = serde_json::from_value(text).unwrap();
    let planned = apply(&mut world, &text, true).unwrap();
    assert!(planned.change.is_none() && !planned.entries.is_empty());
    let ordered = apply(&mut world, &text, false).unwrap();
    assert_eq!(ordered.entries, planned.entries);
    world.run(3 * SECOND);
    assert!(world.is_settled());
    assert_eq!(document(world.core().exchange()), text);
    assert_eq!(apply(&mut world, &text, false).unwrap().change, None);
}

#[test]
fn a_text_with_an_unknown_name_is_refused_as_a_whole() {
    let mut world = world();
    let before = world.core().exchange().clone();
    let mut text = serde_json::to_value(document(&before)).unwrap();
    text["service"][0]["end"][0]["connection"] = json!(["A", "nowhere"]);
    text["site"][0]["name"] = json!("Otemachi 2");
    let text: Document = serde_json::from_value(text).unwrap();
    let refused = apply(&mut world, &text, false);
    assert!(
        matches!(&refused, Err(OrderError::Refused(refusal)) if refusal.message.contains("nowhere")),
        "{refused:?}"
    );
    assert_eq!(*world.core().exchange(), before);
}

/// Returns the export of a world as JSON.
fn exported(world: &mut World) -> Value {
    let revision = world.core().store().load().unwrap().revision;
    serde_json::to_value(Document::exported(world.core().exchange(), revision)).unwrap()
}

fn apply_as(world: &mut World, text: &Value, how: ApplyOptions) -> Result<Ordered, OrderError> {
    let text: Document = serde_json::from_value(text.clone()).unwrap();
    let now = world.now();
    let ordered = world
        .core()
        .apply(text, how, &Actor::system(), &OrderOptions::default(), now);
    world.deliver();
    ordered
}

fn refusal(result: Result<Ordered, OrderError>) -> String {
    match result {
        Err(OrderError::Refused(refusal)) => refusal.message,
        other => panic!("{other:?}"),
    }
}

#[test]
fn yesterdays_export_does_not_delete_what_was_ordered_since() {
    let mut world = world();
    let mut text = exported(&mut world);
    let (service, _) = world.circuit("ordered since", [(0, 500), (1, 501)]);
    world.run(3 * SECOND);
    text["service"][0]["end"][0]["capacity_mbps"] = json!(50);
    let before = document(world.core().exchange());
    let message = refusal(apply_as(&mut world, &text, ApplyOptions::default()));
    assert!(
        message.contains("service A/ordered since") && message.contains("--overwrite"),
        "{message}"
    );
    assert_eq!(document(world.core().exchange()), before);
    let parsed: Document = serde_json::from_value(text.clone()).unwrap();
    let planned = apply(&mut world, &parsed, true).unwrap();
    assert_eq!(planned.problems, [message]);
    assert_eq!(
        planned.deletions,
        [format!("service A/ordered since ({service})")]
    );
    let overwrite = ApplyOptions {
        overwrite: true,
        ..ApplyOptions::default()
    };
    let ordered = apply_as(&mut world, &text, overwrite).unwrap();
    assert_eq!(ordered.deletions, planned.deletions);
    world.run(3 * SECOND);
    assert!(!world.services().contains(&service));
}

#[test]
fn an_export_is_applied_edited_and_applied_again_while_nobody_else_orders() {
    let mut world = world();
    let mut text = exported(&mut world);
    for rate in [50, 60, 70] {
        text["service"][0]["end"][0]["capacity_mbps"] = json!(rate);
        assert!(
            apply_as(&mut world, &text, ApplyOptions::default())
                .unwrap()
                .change
                .is_some()
        );
        // The progress of the change is no difference.
        world.run(3 * SECOND);
    }
    // The base survives a restart of the engine.
    let store = world.kill(false);
    world.start(store);
    world.run(3 * SECOND);
    text["service"][0]["end"][0]["capacity_mbps"] = json!(80);
    apply_as(&mut world, &text, ApplyOptions::default()).unwrap();
    let site = json!({"operation": "create_site", "name": "Chiba"});
    world.order(&[site]);
    text["service"][0]["end"][0]["capacity_mbps"] = json!(90);
    let message = refusal(apply_as(&mut world, &text, ApplyOptions::default()));
    assert!(message.contains("site Chiba"), "{message}");
}

#[test]
fn exceptions_of_operators_are_in_the_text_and_other_filters_are_not() {
    let mut world = world();
    let until = |world: &mut World, secs| {
        let now = Timestamp::from_millis(world.now().wall.0);
        now.after(std::time::Duration::from_secs(secs)).to_string()
    };
    let account = world
        .core()
        .exchange()
        .accounts
        .keys()
        .next()
        .unwrap()
        .to_string();
    let (hour, day) = (until(&mut world, 3600), until(&mut world, 86_400));
    let filter = |destination: &str, more: Value| {
        let mut order = json!({"operation": "create_filter", "account": account, "matching": {"destination": destination},
            "action": {"type": "drop"}, "origin": "page", "rank": 100, "state": {"name": "active"}});
        order
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        order
    };
    world.order(&[
        filter("203.0.113.1/32", json!({"valid_until": day})),
        filter(
            "203.0.113.2/32",
            json!({"valid_until": day, "exempt_until": day, "comment": "ticket 7", "external_ref": "t-7"}),
        ),
        filter(
            "203.0.113.3/32",
            json!({"valid_until": hour, "exempt_until": hour, "action": {"type": "shape", "rate_kbps": 1000}}),
        ),
    ]);
    let text = document(world.core().exchange());
    let written = toml::to_string_pretty(&text).unwrap();
    assert_eq!(written.matches("[[filter]]").count(), 2, "{written}");
    assert!(!written.contains("203.0.113.1/32"), "{written}");
    let read: Document = toml::from_str(&written).unwrap();
    assert_eq!(read, text);
    assert!(apply(&mut world, &read, false).unwrap().change.is_none());

    let now = world.now();
    let store = Box::new(Sqlite::in_memory().unwrap());
    let mut empty = Core::start(store, Settings::default(), false, now).unwrap();
    let options = OrderOptions::default();
    let (how, system) = (ApplyOptions::default(), Actor::system());
    empty.apply(read.clone(), how, &system, &options, now).unwrap();
    assert_eq!(document(empty.exchange()), text);
    let again = empty.apply(read.clone(), how, &system, &options, now).unwrap();
    assert_eq!(again.change, None);

    // A changed exception replaces the former one, one that has ended is left out, and a text without filters leaves them alone.
    let mut changed = serde_json::to_value(&read).unwrap();
    changed["filter"][0]["comment"] = json!("ticket 8");
    let changed: Document = serde_json::from_value(changed).unwrap();
    apply(&mut world, &changed, false).unwrap();
    assert_eq!(document(world.core().exchange()), changed);
    let mut without = serde_json::to_value(&read).unwrap();
    without.as_object_mut().unwrap().remove("filter");
    let without: Document = serde_json::from_value(without).unwrap();
    assert!(apply(&mut world, &without, false).unwrap().change.is_none());
    world.run(Duration::from_secs(3700));
    assert!(apply(&mut world, &changed, false).unwrap().change.is_none());
    let left = toml::to_string_pretty(&document(world.core().exchange())).unwrap();
    assert_eq!(left.matches("[[filter]]").count(), 1, "{left}");
}

#[test]
fn more_than_a_few_deletions_need_their_number() {
    let mut world = world();
    let mut text = exported(&mut world);
    let services = text["service"].as_array_mut().unwrap();
    assert_eq!(services.len(), 20);
    services.retain(|service| !service["name"].as_str().unwrap().starts_with("circuit 1"));
    let deleted = 20 - services.len();
    assert_eq!(deleted, 11);
    let message = refusal(apply_as(&mut world, &text, ApplyOptions::default()));
    assert!(
        message.contains("deletes 11") && message.contains("--deletions 11"),
        "{message}"
    );
    let permitted = ApplyOptions {
        deletions_max: 11,
        ..ApplyOptions::default()
    };
    let ordered = apply_as(&mut world, &text, permitted).unwrap();
    assert_eq!(ordered.deletions.len(), 11);
    assert!(
        ordered
            .deletions
            .iter()
            .all(|name| name.starts_with("service A/circuit 1"))
    );
}
