//! Trunks, and the paths of services over them.

use std::collections::BTreeSet;
use std::net::UdpSocket;
use std::time::Duration;

use axum::http::Method;
use millrace_ix_api::demo::demo;
use millrace_ix_engine::Resolution;
use millrace_ix_model::{
    Actor, ConnectionId, ConnectionKind, EndRole, Exchange, Key, Operation, PortId, ServiceId, ServiceKind,
    SiteId, SwitchId, SwitchPort, TagType, Timestamp, TrunkId, TrunkKind, VlanId, VlanRequest,
};
use millrace_ix_plan::layout::EGRESS;
use millrace_ix_samples::{Receiver, Shared};
use millrace_ix_service::simulation::ModelSwitch;
use millrace_ix_service::{FabricKey, OrderRequest};
use millrace_ix_store::AuditEntry;
use millrace_sflow::{Datagram, FlowSample, Output, Sample};
use millrace_types::{Dpid, PortNo};
use serde_json::{Value, json};

use crate::engine::PATIENCE;
use crate::support::Api;

fn apply<K: Key>(exchange: &mut Exchange, operation: Operation) -> K {
    let at = Timestamp::from_secs(1_795_480_000);
    let applied = exchange.apply(&Actor::system(), at, operation).unwrap();
    applied.first().unwrap()
}

fn at(switch: SwitchId, port: u32) -> PortId {
    let port = PortNo::ordinary(port).unwrap();
    PortId { switch, port }
}

fn end(service: ServiceId, connection: ConnectionId, vid: u16, mbps: u32) -> Operation {
    Operation::ConfigureEnd {
        service,
        connection,
        vlan: VlanRequest::Dot1q {
            vlan: VlanId::new(vid).ok(),
            ethertype: TagType::CTag,
        },
        capacity_mbps: Some(mbps),
        role: EndRole::Root,
        asns: BTreeSet::new(),
        external_ref: None,
    }
}

/// Returns the exchange of the demonstrations with a third switch and a circuit of 5 Gbit/s between the first
/// and the third switch. Only a trunk from the second switch reaches the third one.
fn with_transit() -> Exchange {
    let mut exchange = demo().unwrap();
    let second = *exchange.switches.keys().nth(1).unwrap();
    let site: SiteId = *exchange.sites.keys().next().unwrap();
    let third: SwitchId = apply(
        &mut exchange,
        Operation::CreateSwitch {
            name: "third".to_owned(),
            site,
            dpid: Dpid(3),
            ports: [1, 100]
                .map(|port| SwitchPort {
                    number: PortNo::ordinary(port).unwrap(),
                    speed_mbps: 10_000,
                })
                .into(),
        },
    );
    let _: TrunkId = apply(
        &mut exchange,
        Operation::CreateTrunk {
            name: "west".to_owned(),
            kind: TrunkKind::Vxlan,
            ends: [at(second, 24), at(third, 100)],
            cost: 10,
            capacity_mbps: 10_000,
            mtu: 1700,
            risk_group: None,
            contract_percent: 100,
        },
    );
    let connections = exchange.connections.iter();
    let (near, account) = connections
        .filter(|(_, connection)| connection.name == "aoba-tokyo")
        .map(|(id, connection)| (*id, connection.account))
        .next()
        .unwrap();
    let far: ConnectionId = apply(
        &mut exchange,
        Operation::CreateConnection {
            account: Some(account),
            name: "aoba-third".to_owned(),
            kind: ConnectionKind::Standalone,
            ports: vec![at(third, 1)],
            external_ref: None,
        },
    );
    let circuit: ServiceId = apply(
        &mut exchange,
        Operation::CreateService {
            account: Some(account),
            kind: ServiceKind::P2pVc,
            name: "long-way".to_owned(),
            peer: None,
            policy: None,
            networks: Vec::new(),
            external_ref: None,
        },
    );
    for connection in [near, far] {
        let operation = end(circuit, connection, 900, 5_000);
        exchange
            .apply(&Actor::system(), Timestamp::from_secs(1_795_480_000), operation)
            .unwrap();
    }
    exchange
}

async fn named(api: &Api, key: &str, collection: &str, name: &str) -> Value {
    let path = format!("/api/v1/{collection}?limit=500");
    let list = api.get(key, &path).await.json();
    let items = list["items"].as_array().unwrap();
    items.iter().find(|item| item["name"] == name).unwrap().clone()
}

#[tokio::test]
async fn a_circuit_in_transit_belongs_to_each_trunk_of_its_path() {
    let api = Api::over(with_transit()).await;
    let noc = api.key("noc");
    let trunk = named(&api, &noc, "trunks", "north").await;
    let path = format!("/api/v1/trunks/{}/impact", trunk["id"].as_str().unwrap());
    let impact = api.get(&noc, &path).await.json();
    let moved: Vec<&str> = impact["services"]
        .as_array()
        .unwrap()
        .iter()
        .map(|service| service["name"].as_str().unwrap())
        .collect();
    let all = [
        "Tokyo peering LAN",
        "backbone",
        "long-way",
        "private-korea",
        "transit-baikal",
    ];
    assert_eq!(moved, all);
    assert_eq!(trunk["services"], 5);
    // The circuits between both switches have 2,300 Mbit/s, and the circuit in transit has 5,000 Mbit/s.
    assert_eq!(
        (&impact["contracted_mbps"], &trunk["contracted_mbps"]),
        (&7_300.into(), &7_300.into())
    );
    let service = named(&api, &noc, "services", "long-way").await;
    let hops: Vec<&str> = service["path"]
        .as_array()
        .unwrap()
        .iter()
        .map(|hop| hop["name"].as_str().unwrap())
        .collect();
    let expected = [
        "aoba-tokyo",
        "otemachi-1",
        "north",
        "makuhari-1",
        "west",
        "third",
        "aoba-third",
    ];
    assert_eq!(hops, expected);
    let west = named(&api, &noc, "trunks", "west").await;
    assert_eq!(
        (&west["services"], &west["contracted_mbps"]),
        (&1.into(), &5_000.into())
    );
}

#[tokio::test]
async fn the_drift_of_a_switch_has_its_entries_with_their_owners_and_stays_when_it_is_mended() {
    let api = Api::new().await;
    let noc = api.key("noc");
    let switch = api.world.first_switch().unwrap();
    let path = format!("/api/v1/switches/{switch}/drift");
    // The switch was empty when it connected.
    let started = api.get(&noc, &path).await.json();
    assert_eq!(
        (&started["differing"], &started["entries"]),
        (&json!(0), &json!([]))
    );
    for finding in started["findings"].as_array().unwrap() {
        assert!(
            finding["by_another"] == false && finding["mended_at"].is_string(),
            "{finding}"
        );
    }
    // Somebody removes an entry; the switch then takes no new ones.
    let take_away = |model: &mut ModelSwitch| {
        let is_egress = |key: &&FabricKey| matches!(key, FabricKey::Flow(flow) if flow.table == EGRESS);
        let gone = model.content.keys().find(is_egress).unwrap().clone();
        model.content.remove(&gone);
        model.is_full = true;
    };
    api.world.fabric.change_by_another(switch, take_away);
    let found = async |is_it: &dyn Fn(&Value) -> bool| {
        let reads = async {
            loop {
                let drift = api.get(&noc, &path).await.json();
                if is_it(&drift) {
                    return drift;
                }
                api.world.wait().await.unwrap();
            }
        };
        tokio::time::timeout(PATIENCE, reads).await.unwrap()
    };
    let drift = found(&|drift| drift["differing"] == 1 && drift["findings"][0]["by_another"] == true).await;
    let entry = &drift["entries"][0];
    assert_eq!(
        (&entry["kind"], &entry["table"]),
        (&json!("flow"), &json!(EGRESS.0))
    );
    assert_eq!(
        (&entry["difference"], &entry["owner"]),
        (&json!("removed"), &json!("end"))
    );
    assert!(
        entry["name"].is_string() && entry["object"].is_string(),
        "{entry}"
    );
    let finding = &drift["findings"][0];
    assert_eq!(finding["mended_at"], Value::Null);
    assert_eq!(finding["entries"][0], *entry);
    api.world.fabric.change(switch, |model| model.is_full = false);
    api.world.fabric.connect(switch);
    let mended = found(&|drift| drift["findings"][0]["mended_at"].is_string()).await;
    assert_eq!(
        (&mended["differing"], &mended["entries"]),
        (&json!(0), &json!([]))
    );
}

#[tokio::test]
async fn a_peering_lan_has_no_contracted_rate_on_a_trunk() {
    let mut exchange = demo().unwrap();
    let configs = exchange.configs.iter();
    let ends: Vec<_> = configs
        .filter(|(_, config)| exchange.services[&config.service].kind == ServiceKind::ExchangeLan)
        .map(|(id, _)| *id)
        .collect();
    for config in ends {
        let operation = Operation::SetRate {
            config,
            capacity_mbps: Some(1_000),
        };
        exchange
            .apply(&Actor::system(), Timestamp::from_secs(1_795_480_000), operation)
            .unwrap();
    }
    let api = Api::over(exchange).await;
    let trunk = named(&api, &api.key("noc"), "trunks", "north").await;
    assert_eq!(trunk["contracted_mbps"], 2_300);
}

/// Executes each operation as an order of its own.
async fn order_all(api: &Api, operations: impl Iterator<Item = Value>) {
    let orders = operations.map(|operation| {
        let operation = serde_json::from_value(operation).unwrap();
        api.world.engine.order(OrderRequest::of_system(vec![operation]))
    });
    for done in futures::future::join_all(orders).await {
        done.unwrap();
    }
}

#[tokio::test]
async fn open_changes_are_found_behind_a_page_of_finished_ones() {
    let api = Api::new().await;
    let (noc, ann) = (api.key("noc"), api.key("ann"));
    let trunks = api.get(&noc, "/api/v1/trunks").await.json();
    let trunk = trunks["items"][0]["id"].as_str().unwrap().to_owned();
    let drain = api
        .send(
            Method::PUT,
            &format!("/api/v1/trunks/{trunk}/drain?confirm_within=600"),
            &noc,
            &[("if-match", "*")],
            Some(json!({ "drained": true })),
        )
        .await;
    let drain = drain.json()["change"].clone();
    let exchange = api.exchange();
    let services = exchange.services.iter();
    let mut transit = services.filter(|(_, service)| service.name == "transit-baikal");
    let service = *transit.next().unwrap().0;
    let renamed = |number: u64| json!({ "operation": "rename_service", "service": service, "name": format!("name {number}") });
    order_all(&api, (0..600).map(renamed)).await;
    api.world.settle().await.unwrap();
    // A switch that answers nothing.
    let (end, config) = api
        .exchange()
        .ends(service)
        .next()
        .map(|(id, config)| (id, config.clone()))
        .unwrap();
    let switch = api.exchange().connections[&config.connection].switch().unwrap();
    api.world.fabric.set_deaf(switch, true);
    let rate =
        |number: u64| json!({ "operation": "set_rate", "config": end, "capacity_mbps": 150 + number % 2 });
    order_all(&api, [rate(0)].into_iter()).await;
    let list = async |key: &str, query: &str| api.get(key, &format!("/api/v1/changes?{query}")).await.json();
    let newest = list(&noc, "limit=1").await;
    let stuck = newest["items"][0]["id"].clone();
    let all = list(&noc, "open=true").await;
    assert_eq!(
        (
            all["items"][0]["id"].clone(),
            all["items"][1]["id"].clone(),
            all["total"].clone(),
            all["next"].clone()
        ),
        (stuck.clone(), drain.clone(), json!(2), json!(null))
    );
    let first = list(&noc, "open=true&limit=1").await;
    assert_eq!(
        (first["total"].clone(), first["next"].clone()),
        (json!(1), stuck.clone())
    );
    let second = list(
        &noc,
        &format!("open=true&limit=1&after={}", stuck.as_str().unwrap()),
    )
    .await;
    assert_eq!(
        (second["items"][0]["id"].clone(), second["next"].clone()),
        (drain.clone(), json!(null))
    );
    let of_trunk = list(&noc, &format!("open=true&object={trunk}")).await;
    assert_eq!(
        (of_trunk["items"][0]["id"].clone(), of_trunk["total"].clone()),
        (drain, json!(1))
    );
    let members = list(&ann, "open=true").await;
    assert_eq!(
        members["items"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|change| change["operation"] == "drain_trunk")
            .count(),
        0
    );
    assert_eq!(api.get(&noc, "/api/v1/overview").await.json()["changes_open"], 1);
    order_all(&api, (1..=600).map(rate)).await;
    assert_eq!(
        api.get(&noc, "/api/v1/overview").await.json()["changes_open"],
        601
    );
}

#[tokio::test]
async fn a_switch_that_differs_and_the_read_only_mode_are_alarms_and_metrics() {
    let api = Api::new().await;
    let noc = api.key("noc");
    let switch = api.world.first_switch().unwrap();
    let tasks = async || api.get(&noc, "/api/v1/overview").await.json()["tasks"].to_string();
    let metrics = async || api.get(&noc, "/metrics").await.text();
    assert!(!tasks().await.contains("read_only"));
    assert!(metrics().await.contains("\nmillrace_ix_read_only 0\n"));
    drift(&api, switch).await;
    let found = tasks().await;
    assert!(
        found.contains("read_only") && found.contains("switch_drifted"),
        "{found}"
    );
    let text = metrics().await;
    assert!(text.contains("\nmillrace_ix_read_only 1\n"), "{text}");
    assert!(text.contains("state=\"drifted\"} 1\n"), "{text}");
    // A switch that is being changed is no alarm until it takes too long.
    api.world.fabric.set_deaf(switch, true);
    let enforced = api.world.handle.resolve(Resolution::Enforce, Actor::system());
    enforced.await.unwrap();
    let found = tasks().await;
    assert!(
        !found.contains("read_only") && !found.contains("\"switch_d"),
        "{found}"
    );
    for line in text.lines() {
        assert!(
            line.starts_with("# ") || line.starts_with("millrace_ix_"),
            "{line}"
        );
    }
    let ann = api.key("ann");
    // A switch whose source address is not in its record is refused, and a person sees it here.
    let _receiver = send_samples(&api.world.samples).await;
    for line in [
        "millrace_ix_sflow_samples_total 1",
        "millrace_ix_sflow_malformed_total 2",
        "millrace_ix_sflow_refused_total 3",
    ] {
        assert!(metrics().await.contains(line), "{line}");
    }
    assert_eq!(api.get(&ann, "/metrics").await.status, 403);
    assert_eq!(api.get("", "/metrics").await.status, 401);
}

/// Lets a switch have entries of a later revision than the database, so that the engine waits for a decision.
async fn drift(api: &Api, switch: SwitchId) {
    api.world.fabric.set_revision(switch, 1_000_000);
    api.world.fabric.set_deaf(switch, false);
    api.world.fabric.connect(switch);
    api.world.settle().await.unwrap();
}

/// Returns a datagram with one sample.
fn sample() -> Datagram {
    Datagram {
        agent: [127, 0, 0, 1].into(),
        sub_agent: 0,
        sequence: 1,
        uptime_ms: 1,
        samples: vec![Sample::Flow(FlowSample {
            sequence: 1,
            source: 1,
            rate: 1000,
            pool: 1000,
            drops: 0,
            input: 1,
            output: Output::Interface(2),
            frame_size: 64,
            header: vec![0; 64],
            switch: None,
            millrace: None,
        })],
        skipped: 0,
    }
}

/// Sends to a receiver of sFlow: a sample of a switch, two packets of a switch that are no sFlow, and three packets of others. Waits
/// until it has counted them.
async fn send_samples(samples: &Shared) -> Receiver {
    let settings = millrace_ix_samples::Settings {
        listen: "127.0.0.1:0".parse().unwrap(),
        switches: ["127.0.0.1".parse().unwrap()].into(),
    };
    let receiver = Receiver::start(&settings, samples.clone()).unwrap();
    let (switch, other) = (
        UdpSocket::bind("127.0.0.1:0").unwrap(),
        UdpSocket::bind("127.0.0.2:0").unwrap(),
    );
    let datagram = sample().emit();
    for (socket, packet, count) in [
        (&switch, &datagram[..], 1),
        (&switch, b"none", 2),
        (&other, &datagram[..], 3),
    ] {
        for _ in 0..count {
            socket.send_to(packet, receiver.address()).unwrap();
        }
    }
    let counted = async {
        while (samples.samples(), samples.malformed(), samples.refused()) != (1, 2, 3) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, counted).await.unwrap();
    receiver
}

/// Returns the tasks of the overview of a user, each as (task, name, severity).
async fn tasks(api: &Api, key: &str) -> Vec<(String, String, String)> {
    let overview = api.get(key, "/api/v1/overview").await.json();
    let tasks = overview["tasks"].as_array().unwrap().iter();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    tasks
        .map(|task| (text(&task["task"]), text(&task["name"]), text(&task["severity"])))
        .collect()
}

#[tokio::test]
async fn operators_are_alarmed_about_a_database_that_cannot_be_written_and_members_are_not() {
    let api = Api::new().await;
    let (noc, member) = (api.key("noc"), api.key("ann"));
    let is_alarm = |task: &(String, String, String)| task.0 == "database_unwritable";
    assert!(!tasks(&api, &noc).await.iter().any(is_alarm));
    api.world.set_full(true);
    let entry = AuditEntry {
        actor: "us-0".to_owned(),
        action: "test".to_owned(),
        object: String::new(),
        detail: json!({}),
    };
    api.world.engine.record(entry.clone()).await.unwrap_err();
    let found = tasks(&api, &noc).await;
    let alarm = found.iter().find(|task| is_alarm(task)).unwrap();
    assert_eq!(
        (alarm.1.as_str(), alarm.2.as_str()),
        (
            "the disk of the database is full: nothing is accepted until there is space",
            "error"
        )
    );
    assert!(!tasks(&api, &member).await.iter().any(is_alarm));
    api.world.set_full(false);
    api.world.engine.record(entry).await.unwrap();
    assert!(!tasks(&api, &noc).await.iter().any(is_alarm));
}

#[tokio::test]
async fn operators_are_alarmed_about_a_switch_that_differs_from_its_plan() {
    let api = Api::new().await;
    let noc = api.key("noc");
    let switch = api.world.first_switch().unwrap();
    let alarm = async || {
        let found = tasks(&api, &noc).await.into_iter();
        let mut alarms = found
            .map(|task| task.0)
            .filter(|task| task.starts_with("switch_"));
        alarms.next()
    };
    let becomes = async |expected: Option<&str>| {
        let change = async {
            while alarm().await.as_deref() != expected {
                api.world.wait().await.unwrap();
            }
        };
        let changed = tokio::time::timeout(PATIENCE, change).await;
        assert!(
            changed.is_ok(),
            "{expected:?} is expected, {:?} is shown",
            alarm().await
        );
    };
    assert_eq!(alarm().await, None);
    // The switch has connected again and does not say what it has.
    api.world.fabric.set_deaf(switch, true);
    api.world.fabric.connect(switch);
    api.world.wait().await.unwrap();
    assert_eq!(alarm().await, None);
    drift(&api, switch).await;
    becomes(Some("switch_drifted")).await;
    api.world.fabric.disconnect(switch);
    becomes(Some("switch_unreachable")).await;
    // A switch that differs for two minutes is not being updated any more.
    api.world.fabric.set_deaf(switch, true);
    api.world.fabric.connect(switch);
    becomes(None).await;
    api.world.pass(Duration::from_secs(121)).await.unwrap();
    let found = tasks(&api, &noc).await;
    assert!(found.iter().any(|task| task.0 == "switch_differs"), "{found:?}");
}
