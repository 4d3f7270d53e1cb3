//! Bridges of the database beside those of other origins, and rows that contradict each other.

use millrace_model::Config;
use millrace_ovs::settle;
use serde_json::json;

use crate::database::{Database, uuid};

fn taken(name: &str) -> String {
    format!("bridge {name} belongs to local")
}

#[test]
fn a_bridge_of_another_origin_stays_and_the_row_says_so() {
    let mut database = Database::default();
    database.bridge("br0", &json!({}), &[]);
    database.bridge("br1", &json!({}), &[]);
    let mut translation = database.translated();
    let others = Config::from_toml("t", "[[bridge]]\nname = \"br0\"\n").unwrap();
    let config = settle(&others, &mut translation, taken).unwrap();
    assert_eq!(
        config
            .bridges
            .iter()
            .map(|bridge| bridge.name.as_str())
            .collect::<Vec<_>>(),
        ["br0", "br1"]
    );
    assert_eq!(config.bridges[0], others.bridges[0]);
    let row = &translation.rows[0];
    assert_eq!(row.error.as_deref(), Some("bridge br0 belongs to local"));
    assert!(
        row.ports[0].interfaces[0]
            .error
            .as_deref()
            .unwrap()
            .contains("belongs to local")
    );
}

#[test]
fn two_rows_that_exclude_each_other_cost_one_of_them() {
    let mut database = Database::default();
    let first = database.port("tap1", &json!({}), &json!({"type": "internal"}));
    let second = database.port("tap2", &json!({}), &json!({"type": "internal"}));
    let controllers = vec![
        uuid(database.row("Controller", &json!({"target": "tcp:127.0.0.1:6653"}))),
        uuid(database.row("Controller", &json!({"target": "tcp:127.0.0.1"}))),
    ];
    database.bridge(
        "br0",
        &json!({"controller": ["set", controllers]}),
        &[first, second],
    );
    let mut translation = database.translated();
    let others = Config::from_toml(
        "t",
        "[[bridge]]\nname = \"x\"\n[[bridge.port]]\nname = \"p\"\nnumber = 1\ndevice = \"tap:tap2\"\n",
    )
    .unwrap();
    let config = settle(&others, &mut translation, taken).unwrap();
    let ports: Vec<_> = config.bridges[1]
        .ports
        .iter()
        .map(|port| port.name.as_str())
        .collect();
    assert_eq!(ports, ["tap1"]);
    assert_eq!(config.bridges[1].controllers.len(), 1);
    let errors: Vec<_> = translation.faults.iter().map(ToString::to_string).collect();
    assert!(
        errors
            .iter()
            .any(|error| error.starts_with("Interface tap2: ") && error.contains("already used")),
        "{errors:?}"
    );
    assert!(
        errors
            .iter()
            .any(|error| error.starts_with("Controller tcp:127.0.0.1")),
        "{errors:?}"
    );
}

#[test]
fn an_error_that_no_row_makes_is_returned() {
    let mut database = Database::default();
    database.bridge("br0", &json!({}), &[]);
    let mut translation = database.translated();
    let mut others = Config::new();
    others.system.workers = Some(millrace_model::WorkerCount::new(3).unwrap());
    others.system.worker_cores = vec![millrace_model::CoreId::new(1).unwrap()];
    assert!(settle(&others, &mut translation, taken).is_err());
}
