//! The exchange as text: export, apply to an empty database, apply again.

use std::collections::BTreeMap;

use millrace_ix_engine::Settings;
use millrace_ix_model::Actor;
use millrace_ix_service::text::{Document, document};
use millrace_ix_service::{Core, OrderError, OrderOptions};
use millrace_ix_store::Sqlite;
use millrace_types::Duration;
use serde_json::json;

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
    let ordered = world
        .core()
        .apply(document.clone(), &Actor::system(), &options, now);
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
        .apply(read, &Actor::system(), &OrderOptions::default(), now)
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
