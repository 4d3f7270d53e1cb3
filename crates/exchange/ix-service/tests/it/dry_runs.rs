//! A dry run takes the way of the deed: random orders, in a fabric whose trunks fail, get the same answer from both.

use std::cell::Cell;

use millrace_ix_model::AccountId;
use millrace_ix_service::{OrderError, OrderOptions, Ordered};
use millrace_types::Duration;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};

use crate::world::World;

const DRY: OrderOptions = OrderOptions {
    if_match: None,
    idempotency: None,
    dry_run: true,
    confirm_within: None,
    granted: Vec::new(),
};

/// A random order: the choices from which [`operation`] makes its operations.
fn choices() -> impl Strategy<Value = Vec<[u16; 4]>> {
    prop::collection::vec(any::<[u16; 4]>(), 1..4)
}

/// Returns one of some values.
fn pick<T: Clone>(values: &[T], choice: u16) -> T {
    values[usize::from(choice) % values.len()].clone()
}

/// Returns an operation, valid or not, about objects that are there, that the order creates, and that are absent.
fn operation(world: &mut World, [kind, first, second, third]: [u16; 4]) -> Value {
    let ids: Vec<String> = world.core().exchange().ids().map(|id| id.to_string()).collect();
    // An object that is there, one that the order creates, or one that is absent.
    let named = |prefix: &str, choice: u16| {
        let of_type = |id: &&String| id.split('-').next() == Some(prefix);
        let found: Vec<String> = ids.iter().filter(of_type).cloned().collect();
        match choice % 16 {
            0 => format!("{prefix}-9999"),
            1..=4 => format!("{prefix}-0"),
            _ if found.is_empty() => format!("{prefix}-0"),
            _ => pick(&found, choice / 16),
        }
    };
    let name = pick(
        &[
            "st-0", "ac-0", "sv-0", "Otemachi", "a", "b", "c", "d", "e", "f", "g", "h",
        ],
        second,
    );
    let vlan = json!({"type": "dot1q", "vlan": pick(&[None, Some(100), Some(101), Some(102)], third)});
    let rate = pick(&[None, Some(100), Some(20_000)], first ^ third);
    match kind % 16 {
        0 => json!({"operation": "create_site", "name": name}),
        1 => {
            let ports = json!([{"number": 1, "speed_mbps": 1000}, {"number": 2, "speed_mbps": 1000}]);
            json!({"operation": "create_switch", "name": name, "site": named("st", first),
                "dpid": format!("{:016x}", 3 + third % 3), "ports": ports})
        }
        2 => {
            let ends = [
                format!("{}:101", named("sw", first)),
                format!("{}:101", named("sw", second)),
            ];
            json!({"operation": "create_trunk", "name": name, "kind": "vxlan", "ends": ends, "capacity_mbps": 1000, "mtu": 1700})
        }
        3 => json!({"operation": "create_account", "name": name, "kind": "member", "external_ref": name}),
        4 => {
            let port = format!("{}:{}", named("sw", first), 1 + third % 2);
            json!({"operation": "create_connection", "account": named("ac", second), "name": name, "kind": "standalone",
                "ports": [port]})
        }
        5 | 6 => {
            json!({"operation": "create_service", "account": named("ac", first), "kind": "p2p_vc", "name": name})
        }
        7..=10 => {
            json!({"operation": "configure_end", "service": named("sv", first), "connection": named("cn", second),
            "vlan": vlan, "capacity_mbps": rate})
        }
        11 => {
            let target = named(pick(&["sv", "nc", "cn", "ac", "tr"], second), first);
            json!({"operation": "delete", "target": target})
        }
        12 => {
            json!({"operation": "move_end", "config": named("nc", first), "connection": named("cn", second), "vlan": vlan})
        }
        13 => json!({"operation": "set_rate", "config": named("nc", first), "capacity_mbps": rate}),
        14 => json!({"operation": "drain_trunk", "trunk": named("tr", first), "drained": third % 2 == 0}),
        _ => json!({"operation": "rename_service", "service": named("sv", first), "name": name}),
    }
}

/// Returns the parts of an answer that a dry run promises.
fn promised(answer: &Result<Ordered, OrderError>) -> Result<impl PartialEq + std::fmt::Debug, &OrderError> {
    let ordered = answer.as_ref()?;
    Ok((
        &ordered.applied,
        &ordered.deletions,
        &ordered.problems,
        &ordered.entries,
        &ordered.after,
    ))
}

/// Executes random orders, each first as a dry run. Returns the numbers of accepted and of refused orders.
fn execute(orders: Vec<(Vec<[u16; 4]>, u8)>) -> Result<(u32, u32), TestCaseError> {
    let mut world = World::new();
    world.third_switch();
    world.run(Duration::from_secs(1));
    world.list_ports();
    let (mut accepted, mut refused) = (0, 0);
    for (choices, event) in orders {
        let choices = choices.into_iter();
        let operations: Vec<Value> = choices.map(|choice| operation(&mut world, choice)).collect();
        let before = world.core().exchange().clone();
        let dry = world.try_order(&operations, &DRY);
        prop_assert_eq!(world.core().exchange(), &before);
        let deed = world.try_order(&operations, &OrderOptions::default());
        prop_assert_eq!(promised(&dry), promised(&deed), "{:?}", operations);
        match &deed {
            Ok(_) => accepted += 1,
            Err(OrderError::Refused(refusal)) => {
                // The operations before the refused one alone are accepted.
                let step = refusal.step.and_then(|step| usize::try_from(step).ok()).unwrap();
                let earlier = world.try_order(&operations[..step - 1], &DRY);
                prop_assert!(step <= operations.len() && earlier.is_ok(), "{:?}", earlier);
                refused += 1;
            }
            Err(error) => prop_assert!(false, "{}", error),
        }
        let (one, _) = world.ids();
        let is_up = event % 2 == 0;
        match event {
            0..60 => world.report(one, 100, is_up, is_up),
            60..120 => world.report(one, 101, is_up, is_up),
            _ => world.run(Duration::from_millis(u64::from(event) * 20)),
        }
    }
    Ok((accepted, refused))
}

#[test]
fn a_dry_run_says_what_the_deed_does() {
    let config = ProptestConfig {
        cases: 24,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    let totals = Cell::new((0, 0));
    let orders = prop::collection::vec((choices(), any::<u8>()), 1..30);
    let ran = TestRunner::new(config).run(&orders, |orders| {
        let (accepted, refused) = execute(orders)?;
        let (all_accepted, all_refused) = totals.get();
        totals.set((all_accepted + accepted, all_refused + refused));
        Ok(())
    });
    ran.unwrap();
    let (accepted, refused) = totals.get();
    assert!(
        accepted > 20 && refused > 20,
        "{accepted} accepted, {refused} refused"
    );
}

#[test]
fn a_name_that_reads_like_an_identifier_stays_a_name() {
    let mut world = World::new();
    let ordered = world.order(&[
        json!({"operation": "create_site", "name": "Saitama"}),
        json!({"operation": "create_account", "name": "st-0", "kind": "member", "external_ref": "st-0"}),
    ]);
    let account = ordered.applied.first::<AccountId>().unwrap();
    let stored = &world.core().exchange().accounts[&account];
    assert_eq!(
        (stored.name.as_str(), stored.external_ref.as_deref()),
        ("st-0", Some("st-0"))
    );
}

#[test]
fn a_refusal_has_the_number_of_its_operation() {
    let mut world = World::new();
    let order = [
        json!({"operation": "create_site", "name": "Saitama"}),
        json!({"operation": "create_site", "name": "Sapporo"}),
        json!({"operation": "create_site", "name": "Saitama"}),
    ];
    let refused = world.try_order(&order, &OrderOptions::default());
    let Err(OrderError::Refused(refusal)) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!((refusal.step, refusal.field.as_deref()), (Some(3), Some("name")));
}
