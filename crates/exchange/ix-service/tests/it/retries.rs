//! Orders that are sent again with their key because the answer was lost: each is executed once. `make
//! exchange-check` runs 10,000.

use millrace_ix_model::Actor;
use millrace_ix_service::{Core, OrderError, OrderOptions};
use millrace_ix_store::{IdempotencyKey, Sqlite};
use serde_json::json;

use crate::world::{World, operation};

#[test]
fn orders_that_are_retried_by_key_are_executed_exactly_once() {
    let orders = if std::env::var_os("MILLRACE_EXCHANGE_LONG").is_some() {
        10_000
    } else {
        500
    };
    let store = Box::new(Sqlite::in_memory().unwrap());
    let world = World::new();
    let now = world.now();
    let mut core = Core::start(store, millrace_ix_engine::Settings::default(), false, now).unwrap();
    let mut random = 12345_u64;
    for number in 0..orders {
        let key = IdempotencyKey {
            scope: "ac-1".to_owned(),
            key: format!("k{number}"),
        };
        let options = OrderOptions {
            idempotency: Some((key, number.to_string())),
            ..OrderOptions::default()
        };
        let order = || {
            vec![operation(
                json!({"operation": "create_site", "name": format!("site {number}")}),
            )]
        };
        let mut answers = Vec::new();
        loop {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            // The connection breaks before the order arrives, or before the answer does.
            let cut = (random >> 33) % 40;
            if cut == 0 {
                continue;
            }
            answers.push(core.order(order(), &Actor::system(), &options, now).unwrap());
            if cut != 1 {
                break;
            }
        }
        assert!(
            answers
                .iter()
                .all(|answer| answer.applied == answers[0].applied && answer.change == answers[0].change)
        );
        assert!(answers.iter().skip(1).all(|answer| answer.repeated) && !answers[0].repeated);
    }
    assert_eq!(core.exchange().sites.len(), orders);
    let key = IdempotencyKey {
        scope: "ac-1".to_owned(),
        key: "k0".to_owned(),
    };
    let options = OrderOptions {
        idempotency: Some((key, "another".to_owned())),
        ..OrderOptions::default()
    };
    let other = vec![operation(json!({"operation": "create_site", "name": "other"}))];
    assert_eq!(
        core.order(other, &Actor::system(), &options, now),
        Err(OrderError::KeyReused)
    );
}

#[test]
fn orders_of_a_group_see_each_other_and_are_refused_alone() {
    let mut world = World::new();
    let site = |name: &str, key: &str| {
        let key = IdempotencyKey {
            scope: "ac-1".to_owned(),
            key: key.to_owned(),
        };
        let options = OrderOptions {
            idempotency: Some((key, name.to_owned())),
            ..OrderOptions::default()
        };
        (vec![json!({"operation": "create_site", "name": name})], options)
    };
    let before = world.core().exchange().sites.len();
    let results = world.order_all(&[
        site("Kobe", "1"),
        site("Nara", "2"),
        // The same order again, before its first answer was given.
        site("Kobe", "1"),
        site("Uji", "2"),
        // This order uses a name that an earlier one of the group has taken.
        site("Nara", "5"),
        site("Uji", "6"),
    ]);
    let [kobe, nara, again, reused, taken, uji] = <[_; 6]>::try_from(results).unwrap();
    let (kobe, nara, again, uji) = (kobe.unwrap(), nara.unwrap(), again.unwrap(), uji.unwrap());
    assert!(again.repeated && again.change == kobe.change && again.applied == kobe.applied);
    assert_eq!(reused, Err(OrderError::KeyReused));
    assert!(matches!(taken, Err(OrderError::Refused(_))), "{taken:?}");
    assert_eq!(
        [&nara, &uji].map(|ordered| ordered.revision.0 - kobe.revision.0),
        [1, 2]
    );
    assert_eq!(world.core().exchange().sites.len(), before + 3);
    // An order is also recognised by its key in the next group.
    let results = world.order_all(&[site("Uji", "6")]);
    assert!(matches!(&results[..], [Ok(ordered)] if ordered.repeated && ordered.change == uji.change));
}
