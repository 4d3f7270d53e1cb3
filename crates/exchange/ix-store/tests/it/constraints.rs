//! The constraints on objects, which the schema enforces also against faulty code.

use millrace_ix_store::{Constraint, Sqlite, Store as _, StoreError};
use serde_json::{Value, json};

use crate::{NOW, object, puts};

/// Writes two objects of one kind; returns the constraint that refuses the second.
fn second(kind: &str, one: Value, two: Value) -> Option<Constraint> {
    let mut store = Sqlite::in_memory().unwrap();
    store.commit(&puts(vec![object(kind, 1, one)]), NOW).unwrap();
    match store.commit(&puts(vec![object(kind, 2, two)]), NOW) {
        Ok(_) => None,
        Err(StoreError::Constraint { constraint, .. }) => Some(constraint),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn an_end_has_its_vlan_of_the_connection_alone() {
    let end = |connection: &str, vlan: Value| json!({"connection": connection, "vlan": vlan});
    let one = || end("cn-1", json!({"outer": 100, "inner": null}));
    assert_eq!(second("config", one(), one()), Some(Constraint::EndVlan));
    assert_eq!(
        second("config", one(), end("cn-1", json!({"outer": 100, "inner": 7}))),
        None
    );
    assert_eq!(
        second("config", one(), end("cn-1", json!({"outer": 101, "inner": null}))),
        None
    );
    assert_eq!(
        second("config", one(), end("cn-2", json!({"outer": 100, "inner": null}))),
        None
    );
}

#[test]
fn a_mac_or_ip_address_is_registered_in_a_service_once() {
    for (kind, constraint) in [("mac", Constraint::Mac), ("ip", Constraint::Ip)] {
        let address = |service: &str| json!({"service": service, "address": "a"});
        assert_eq!(second(kind, address("sv-1"), address("sv-1")), Some(constraint));
        assert_eq!(second(kind, address("sv-1"), address("sv-2")), None);
    }
}

#[test]
fn an_external_ref_is_unique_among_the_services_of_an_account() {
    let service = |account: &str, name: Option<&str>| json!({"account": account, "external_ref": name});
    let found = |two| second("service", service("ac-1", Some("po-7")), two);
    assert_eq!(
        found(service("ac-1", Some("po-7"))),
        Some(Constraint::ExternalRef)
    );
    assert_eq!(found(service("ac-2", Some("po-7"))), None);
    assert_eq!(
        second("service", service("ac-1", None), service("ac-1", None)),
        None
    );
}

#[test]
fn a_port_belongs_to_one_connection_and_is_free_when_that_is_deleted() {
    let connection = |ports: &[u32]| {
        let ports: Vec<Value> = ports
            .iter()
            .map(|port| json!({"switch": "sw-1", "port": port}))
            .collect();
        json!({"ports": ports})
    };
    assert_eq!(
        second("connection", connection(&[1, 2]), connection(&[2])),
        Some(Constraint::ConnectionPort)
    );
    assert_eq!(second("connection", connection(&[1]), connection(&[2])), None);
    let mut store = Sqlite::in_memory().unwrap();
    store
        .commit(&puts(vec![object("connection", 1, connection(&[1]))]), NOW)
        .unwrap();
    store
        .commit(&puts(vec![object("connection", 1, connection(&[2]))]), NOW)
        .unwrap();
    let mut swap = puts(vec![object("connection", 2, connection(&[2]))]);
    swap.deletes = vec![("connection".to_owned(), 1)];
    store.commit(&swap, NOW).unwrap();
}

#[test]
fn two_ends_may_swap_their_vlans_in_one_transaction() {
    let end = |vlan: u32| json!({"connection": "cn-1", "vlan": {"outer": vlan}});
    let mut store = Sqlite::in_memory().unwrap();
    store
        .commit(
            &puts(vec![object("config", 1, end(1)), object("config", 2, end(2))]),
            NOW,
        )
        .unwrap();
    store
        .commit(
            &puts(vec![object("config", 1, end(2)), object("config", 2, end(1))]),
            NOW,
        )
        .unwrap();
}
