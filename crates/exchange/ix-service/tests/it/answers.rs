//! Answers of a running engine.

use std::sync::atomic::Ordering;
use std::time::Instant;

use millrace_ix_model::{Actor, Operation};
use millrace_ix_service::{Handle, OrderOptions, Ordered, Service, Settings};
use millrace_ix_store::{Sqlite, Store};
use serde_json::json;

use millrace_ix_service::simulation::Medium;

fn start(store: Box<dyn Store>) -> Service {
    let settings = Settings {
        engine: millrace_ix_engine::Settings::default(),
        extensions: false,
        audit_key: None,
    };
    Service::start(store, settings, |_| {}).unwrap()
}

/// Makes an order that creates an account.
fn order(handle: &Handle, name: &str) -> Ordered {
    let account = json!({"operation": "create_account", "name": name, "kind": "member"});
    let operation: Operation = serde_json::from_value(account).unwrap();
    let ordered = handle.order_blocking(vec![operation], Actor::system(), OrderOptions::default());
    ordered.unwrap()
}

/// Makes orders from several threads in parallel; each thread makes `orders` orders in sequence. Calls
/// `answered` for each answer.
fn order_at_once(handle: &Handle, threads: usize, orders: usize, answered: &(dyn Fn(&Ordered) + Sync)) {
    std::thread::scope(|scope| {
        for thread in 0..threads {
            scope.spawn(move || {
                for number in 0..orders {
                    answered(&order(handle, &format!("A{thread}-{number}")));
                }
            });
        }
    });
}

#[test]
fn orders_that_wait_together_are_one_write_and_answered_after_it() {
    let (store, medium) = Medium::over(Sqlite::in_memory().unwrap());
    let service = start(Box::new(store));
    let handle = service.handle();
    medium.delay_ms.store(5, Ordering::SeqCst);
    order_at_once(&handle, 16, 12, &|ordered| {
        let durable = medium.revision.load(Ordering::SeqCst);
        assert!(
            ordered.revision.0 <= durable,
            "{} answered, {durable} on the medium",
            ordered.revision.0
        );
    });
    assert_eq!(handle.snapshot().exchange.accounts.len(), 16 * 12);
    // The journal of an order's change is a second write, which the changes of a group share as well.
    let writes = medium.writes.load(Ordering::SeqCst);
    assert!(
        writes <= 16 * 12,
        "{writes} writes of 192 orders and their changes"
    );
    service.stop();
}

/// `make exchange-check` runs this test. It measures a storage medium: the folder of temporary files must be on that medium.
#[test]
fn the_rate_of_orders_grows_with_the_number_of_those_that_wait() {
    if std::env::var_os("MILLRACE_EXCHANGE_LONG").is_none() {
        return;
    }
    let mut rates = Vec::new();
    for threads in [1, 4, 16, 64] {
        let folder = tempfile::tempdir().unwrap();
        let service = start(Box::new(
            Sqlite::open(&folder.path().join("exchange.db")).unwrap(),
        ));
        let began = Instant::now();
        order_at_once(&service.handle(), threads, 1024 / threads, &|_| {});
        rates.push(1024.0 / began.elapsed().as_secs_f64());
        println!("{threads} clients: {:.0} orders a second", rates[rates.len() - 1]);
        service.stop();
    }
    assert!(rates[3] > 2.0 * rates[0], "{rates:?}");
}

#[test]
fn an_order_that_is_answered_is_in_the_next_snapshot() {
    let service = start(Box::new(Sqlite::in_memory().unwrap()));
    let handle = service.handle();
    for number in 0..100 {
        let ordered = order(&handle, &format!("A{number}"));
        let snapshot = handle.snapshot();
        assert!(snapshot.revision >= ordered.revision, "order {number}");
        assert_eq!(snapshot.exchange.accounts.len(), number + 1);
    }
    service.stop();
}
