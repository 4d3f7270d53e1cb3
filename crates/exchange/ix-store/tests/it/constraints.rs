//! The constraints on objects, which the schema enforces also against faulty code.

use millrace_ix_store::{Constraint, StoreError};
use serde_json::{Value, json};

use crate::{NOW, object, puts, stores};

/// Writes two objects of one kind; returns the constraint by which each back end refuses the second.
fn second(kind: &str, one: Value, two: Value) -> Option<Constraint> {
    let mut found = stores().into_iter().map(|mut store| {
        store
            .commit(&puts(vec![object(kind, 1, one.clone())]), NOW)
            .unwrap();
        match store.commit(&puts(vec![object(kind, 2, two.clone())]), NOW) {
            Ok(_) => None,
            Err(StoreError::Constraint { constraint, .. }) => Some(constraint),
            Err(error) => panic!("{error}"),
        }
    });
    let first = found.next().unwrap();
    assert!(
        found.all(|other| other == first),
        "the back ends differ: {first:?}"
    );
    first
}

#[test]
fn an_end_has_its_vlan_of_the_connection_alone() {
    let end = |connection: &str, vlan: Value| json!({"connection": connection, "vlan": vlan});
    let one = || end("cn-1", json!({"type": "dot1q", "vlan": 100}));
    assert_eq!(second("nc", one(), one()), Some(Constraint::EndVlan));
    assert_eq!(
        second(
            "nc",
            one(),
            end("cn-1", json!({"type": "qinq", "outer": 100, "inner": 7}))
        ),
        None
    );
    assert_eq!(
        second("nc", one(), end("cn-1", json!({"type": "dot1q", "vlan": 101}))),
        None
    );
    assert_eq!(
        second("nc", one(), end("cn-2", json!({"type": "dot1q", "vlan": 100}))),
        None
    );
}

#[test]
fn a_mac_or_ip_address_is_registered_in_a_service_once() {
    for kind in ["mc", "ip"] {
        for mut store in stores() {
            let end = |id, service: &str| {
                object(
                    "nc",
                    id,
                    json!({"connection": format!("cn-{id}"), "service": service}),
                )
            };
            let address = |id, end: &str| object(kind, id, json!({"config": end, "address": "a"}));
            // The address is written before its end on purpose.
            store
                .commit(
                    &puts(vec![
                        address(1, "nc-1"),
                        end(1, "sv-1"),
                        end(2, "sv-1"),
                        end(3, "sv-2"),
                    ]),
                    NOW,
                )
                .unwrap();
            store.commit(&puts(vec![address(2, "nc-3")]), NOW).unwrap();
            let refused = store.commit(&puts(vec![address(3, "nc-2")]), NOW);
            assert!(matches!(
                refused,
                Err(StoreError::Constraint {
                    constraint: Constraint::Address,
                    ..
                })
            ));
            let mut moved = puts(vec![address(3, "nc-2"), end(1, "sv-1")]);
            moved.deletes = vec![(kind.to_owned(), 1)];
            store.commit(&moved, NOW).unwrap();
        }
    }
}

#[test]
fn an_external_ref_is_unique_among_the_services_of_an_account() {
    let service = |account: &str, name: Option<&str>| json!({"account": account, "external_ref": name});
    let found = |two| second("sv", service("ac-1", Some("po-7")), two);
    assert_eq!(
        found(service("ac-1", Some("po-7"))),
        Some(Constraint::ExternalRef)
    );
    assert_eq!(found(service("ac-2", Some("po-7"))), None);
    assert_eq!(second("sv", service("ac-1", None), service("ac-1", None)), None);
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
        second("cn", connection(&[1, 2]), connection(&[2])),
        Some(Constraint::ConnectionPort)
    );
    assert_eq!(second("cn", connection(&[1]), connection(&[2])), None);
    for mut store in stores() {
        store
            .commit(&puts(vec![object("cn", 1, connection(&[1]))]), NOW)
            .unwrap();
        store
            .commit(&puts(vec![object("cn", 1, connection(&[2]))]), NOW)
            .unwrap();
        let mut swap = puts(vec![object("cn", 2, connection(&[2]))]);
        swap.deletes = vec![("cn".to_owned(), 1)];
        store.commit(&swap, NOW).unwrap();
    }
}

#[test]
fn two_ends_may_swap_their_vlans_in_one_transaction() {
    let end = |vlan: u32| json!({"connection": "cn-1", "vlan": {"type": "dot1q", "vlan": vlan}});
    for mut store in stores() {
        store
            .commit(&puts(vec![object("nc", 1, end(1)), object("nc", 2, end(2))]), NOW)
            .unwrap();
        store
            .commit(&puts(vec![object("nc", 1, end(2)), object("nc", 2, end(1))]), NOW)
            .unwrap();
    }
}
