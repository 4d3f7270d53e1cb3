//! Answers of a running engine.

use millrace_ix_model::{Actor, Operation};
use millrace_ix_service::{OrderOptions, Service, Settings};
use millrace_ix_store::Sqlite;
use serde_json::json;

#[test]
fn an_order_that_is_answered_is_in_the_next_snapshot() {
    let settings = Settings {
        engine: millrace_ix_engine::Settings::default(),
        extensions: false,
        audit_key: None,
    };
    let service = Service::start(Box::new(Sqlite::in_memory().unwrap()), settings, |_| {}).unwrap();
    let handle = service.handle();
    for number in 0..100 {
        let account = json!({"operation": "create_account", "name": format!("A{number}"), "kind": "member"});
        let operation: Operation = serde_json::from_value(account).unwrap();
        let ordered = handle
            .order_blocking(vec![operation], Actor::system(), OrderOptions::default())
            .unwrap();
        let snapshot = handle.snapshot();
        assert!(snapshot.revision >= ordered.revision, "order {number}");
        assert_eq!(snapshot.exchange.accounts.len(), number + 1);
    }
    service.stop();
}
