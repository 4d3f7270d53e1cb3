//! The engine of `millrace-ix-service` behind the traits of the API.

use std::sync::Arc;

use millrace_ix_api::ExchangeService as _;
use millrace_ix_api::engine::Engine;
use millrace_ix_engine::Event;
use millrace_ix_model::{Actor, ConfigId, ObjectId, Operation, SwitchId};
use millrace_ix_plan::layout::{CookieFields, CookieKind};
use millrace_ix_service::{Handle, OrderOptions, Service, Settings};
use millrace_ix_store::Sqlite;
use millrace_types::Cookie;
use serde_json::{Value, json};
use tokio::sync::broadcast;

const SESSION: u64 = 1;

/// A running engine and an end of a peering LAN in quarantine. The switch of the end is connected and answers
/// nothing.
struct World {
    handle: Handle,
    engine: Arc<Engine>,
    switch: SwitchId,
    end: ConfigId,
}

async fn order(handle: &Handle, operations: &[Value]) {
    let operation = |value: &Value| serde_json::from_value::<Operation>(value.clone()).unwrap();
    let operations = operations.iter().map(operation).collect();
    let options = OrderOptions::default();
    handle.order(operations, Actor::system(), options).await.unwrap();
}

impl World {
    async fn new() -> World {
        let settings = Settings {
            engine: millrace_ix_engine::Settings::default(),
            extensions: false,
            audit_key: None,
        };
        let store = Box::new(Sqlite::in_memory().unwrap());
        let handle = Service::start(store, settings, drop).unwrap().handle();
        order(
            &handle,
            &[
                json!({"operation": "create_site", "name": "Otemachi"}),
                json!({"operation": "create_switch", "name": "ote-1", "site": "st-0", "dpid": "0000000000000001",
                    "ports": [{"number": 1, "speed_mbps": 10000}]}),
            ],
        )
        .await;
        let switch = *handle.snapshot().exchange.switches.keys().next().unwrap();
        let policy = json!({"name": "lan", "ethertypes": [0x0800, 0x0806, 0x86dd], "macs_max": 4, "broadcast_pps": 100,
            "multicast_pps": 100, "arp": "unicast", "quarantine_secs": 3600});
        order(
            &handle,
            &[
                json!({"operation": "create_account", "name": "A", "kind": "member"}),
                json!({"operation": "create_connection", "account": "ac-0", "name": "a1", "kind": "standalone",
                    "ports": [format!("{switch}:1")]}),
                json!({"operation": "create_policy", "policy": policy}),
            ],
        )
        .await;
        let exchange = Arc::clone(&handle.snapshot().exchange);
        let account = exchange.accounts.keys().next().unwrap();
        let connection = exchange.connections.keys().next().unwrap();
        let policy = exchange.policies.keys().next().unwrap();
        order(
            &handle,
            &[
                json!({"operation": "create_service", "account": account, "kind": "exchange_lan", "name": "lan",
                    "policy": policy, "networks": ["192.0.2.0/24"]}),
                json!({"operation": "configure_end", "service": "sv-0", "connection": connection, "vlan": {"type": "port"}}),
            ],
        )
        .await;
        let end = *handle.snapshot().exchange.configs.keys().next().unwrap();
        order(
            &handle,
            &[
                json!({"operation": "add_mac", "config": end, "address": "02:00:00:00:01:01"}),
                json!({"operation": "add_ip", "config": end, "address": "192.0.2.1"}),
            ],
        )
        .await;
        let engine = Engine::new(handle.clone());
        handle.fabric().event(Event::Connected {
            switch: switch.0,
            session: SESSION,
        });
        World {
            handle,
            engine,
            switch,
            end,
        }
    }

    /// Gives the engine a frame of the end, and waits until it has judged the frame.
    async fn arrive(&self, frame: Vec<u8>) {
        let cookie: Cookie = CookieFields {
            kind: CookieKind::End,
            object: self.end.0,
            generation: 0,
        }
        .cookie();
        self.handle
            .fabric()
            .packet_in(self.switch, SESSION, cookie, frame);
        self.handle.audit(0, 1).await.unwrap();
    }

    fn findings(&self) -> Vec<u64> {
        let snapshot = self.engine.snapshot();
        let list = snapshot.quarantine.get(&self.end);
        list.map(|list| list.findings.iter().map(|finding| finding.count).collect())
            .unwrap_or_default()
    }
}

/// Returns an ARP request of the router for its own address.
fn arp() -> Vec<u8> {
    let (mac, address) = ([2, 0, 0, 0, 1, 1], [192, 0, 2, 1]);
    let header: &[u8] = &[0, 1, 8, 0, 6, 4, 0, 1];
    [
        &[0xff; 6][..],
        &mac,
        &[8, 6],
        header,
        &mac,
        &address,
        &[0; 6],
        &address,
    ]
    .concat()
}

/// Returns a frame of LLDP.
fn lldp() -> Vec<u8> {
    let destination: &[u8] = &[0x01, 0x80, 0xc2, 0, 0, 0x0e];
    [destination, &[2, 0, 0, 0, 1, 1], &[0x88, 0xcc], &[0; 46]].concat()
}

#[tokio::test]
async fn the_first_good_frame_of_an_end_in_quarantine_is_told_and_shown() {
    let world = World::new().await;
    let mut events = world.engine.subscribe();
    let is_seen = |world: &World| {
        let snapshot = world.engine.snapshot();
        snapshot.quarantine.get(&world.end).is_some_and(|list| list.seen)
    };
    assert!(!is_seen(&world));
    world.arrive(arp()).await;
    assert!(is_seen(&world));
    loop {
        let event = tokio::time::timeout(std::time::Duration::from_secs(20), events.recv()).await;
        match event.expect("an event comes in time") {
            Ok(event) if event.objects.contains(&ObjectId::from(world.end)) => break,
            Ok(_) => {}
            Err(broadcast::error::RecvError::Lagged(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }
    world.handle.stop();
}

#[tokio::test]
async fn a_repeated_fault_of_an_end_in_quarantine_is_shown_although_nothing_is_written() {
    let world = World::new().await;
    world.arrive(lldp()).await;
    assert_eq!(world.findings(), [1]);
    world.arrive(lldp()).await;
    assert_eq!(world.findings(), [2]);
    world.handle.stop();
}
