//! Ends of a peering LAN, and what is exported about them.

use std::pin::pin;

use axum::http::Method;
use futures::poll;
use millrace_ix_model::Operation;
use millrace_ix_service::OrderRequest;
use millrace_ix_store::Store;
use serde_json::{Value, json};

use super::{billed, delete, get, id, owned, patch, post, with, with_lan};
use crate::engine::PATIENCE;
use crate::support::{Answer, Api};

#[tokio::test]
async fn a_member_joins_the_peering_lan_with_mac_address_and_gets_ip_addresses() {
    let api = Api::over(with_lan()).await;
    let ann = api.key("ann");
    let account = get(&api, &ann, "/account").await.json()["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let connection = get(&api, &ann, "/connections").await.json()[0]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let mac = with(owned(&account), json!({ "address": "02:00:00:00:00:99" }));
    let mac = id(&post(&api, &ann, "/macs", mac).await);
    let lan = get(&api, &ann, "/network-services?type=exchange_lan")
        .await
        .json()[0]
        .clone();
    let order = with(
        billed(&account),
        json!({ "type": "exchange_lan", "network_service": lan["id"], "connection": connection, "asns": [64500], "listed": true,
            "vlan_config": { "vlan_type": "dot1q" }, "macs": [mac], "product_offering": format!("offering-{}", lan["id"].as_str().unwrap()) }),
    );
    let made = post(&api, &ann, "/network-service-configs", order).await;
    let config = id(&made);
    let made = made.json();
    assert_eq!(made["macs"], json!([mac]));
    assert_eq!(made["state"], "testing");
    let ips = get(&api, &ann, "/ips").await.json();
    let own: Vec<&Value> = ips
        .as_array()
        .unwrap()
        .iter()
        .filter(|ip| made["ips"].as_array().unwrap().contains(&ip["id"]))
        .collect();
    assert_eq!(
        own.len(),
        lan["subnet_v4"].as_str().unwrap().len().min(1) + lan["subnet_v6"].as_str().unwrap().len().min(1),
        "{ips}"
    );
    // A second address for the swap of a router is refused by the LAN's policy, in words.
    let second = id(&post(
        &api,
        &ann,
        "/macs",
        with(owned(&account), json!({ "address": "02:00:00:00:00:9a" })),
    )
    .await);
    let path = format!("/network-service-configs/{config}");
    let swapped = patch(&api, &ann, &path, json!({ "macs": [second] })).await;
    assert_eq!(
        (swapped.status, swapped.json()["macs"].clone()),
        (202, json!([second])),
        "{}",
        swapped.text()
    );
    assert_eq!(delete(&api, &ann, &format!("/macs/{second}")).await.status, 200);
    assert_eq!(get(&api, &ann, &path).await.json()["macs"], json!([]));
    let left = delete(&api, &ann, &path).await;
    assert_eq!(left.json()["state"], "decommission_requested", "{}", left.text());
}

#[tokio::test]
async fn an_end_that_was_ordered_on_the_page_has_the_as_numbers_of_its_account() {
    let api = Api::over(with_lan()).await;
    let ann = api.key("ann");
    let account = get(&api, &ann, "/account").await.json()["id"].clone();
    let account = account.as_str().unwrap();
    let lans = get(&api, &ann, "/network-services?type=exchange_lan")
        .await
        .json();
    let configs = get(&api, &ann, "/network-service-configs?type=exchange_lan")
        .await
        .json();
    let config = configs.as_array().unwrap().first().unwrap();
    assert_eq!(config["asns"], json!([]), "as the page orders it");
    let session = |asn: u32| {
        with(
            billed(account),
            json!({ "type": "route_server", "network_feature": lans[0]["network_features"][0], "network_service_config": config["id"],
            "asn": asn, "as_set_v4": "AS-AOBA@RIPE", "as_set_v6": "AS-AOBA@RIPE", "max_prefix_v4": 100, "session_mode": "public",
            "bgp_session_type": "passive", "ip": config["ips"][0] }),
        )
    };
    let wrong = post(&api, &ann, "/network-feature-configs", session(64501)).await;
    assert_eq!(wrong.status, 400, "{}", wrong.text());
    let made = post(&api, &ann, "/network-feature-configs", session(64500)).await;
    assert_eq!(made.status, 201, "{}", made.text());
}

#[tokio::test]
async fn a_member_speaks_for_no_foreign_as_number_and_for_no_foreign_as_set() {
    let api = Api::over(with_lan()).await;
    let (ann, noc) = (api.key("ann"), api.key("noc"));
    let account = get(&api, &ann, "/account").await.json()["id"].clone();
    let account = account.as_str().unwrap();
    let connection = get(&api, &ann, "/connections").await.json()[0]["id"].clone();
    let lan = get(&api, &ann, "/network-services?type=exchange_lan")
        .await
        .json()[0]
        .clone();
    let end = |asns: Value| {
        with(
            billed(account),
            json!({ "type": "exchange_lan", "network_service": lan["id"], "connection": connection, "asns": asns, "listed": true,
                "vlan_config": { "vlan_type": "dot1q" }, "macs": [], "product_offering": format!("offering-{}", lan["id"].as_str().unwrap()) }),
        )
    };
    for foreign in [json!([15169]), json!([64501]), json!([64500, 15169])] {
        let refused = post(&api, &ann, "/network-service-configs", end(foreign.clone())).await;
        assert!(
            matches!(refused.status, 400 | 409),
            "{foreign}: {}",
            refused.text()
        );
    }
    let made = post(&api, &ann, "/network-service-configs", end(json!([64500]))).await;
    assert_eq!(made.status, 201, "{}", made.text());
    let config = made.json();
    let session = |asn: u32, set: &str| {
        with(
            billed(account),
            json!({ "type": "route_server", "network_feature": lan["network_features"][0], "network_service_config": config["id"],
                "asn": asn, "as_set_v4": set, "as_set_v6": set, "session_mode": "public", "bgp_session_type": "passive",
                "ip": config["ips"][0] }),
        )
    };
    for (asn, set) in [
        (64500, "AS-GOOGLE@RIPE"),
        (64500, "AS64501:AS-X"),
        (64500, "AS-AOBA@RADB"),
        (15169, "AS64500:AS-X"),
    ] {
        let refused = post(&api, &ann, "/network-feature-configs", session(asn, set)).await;
        assert!(matches!(refused.status, 400 | 403), "{set}: {}", refused.text());
    }
    let made = post(
        &api,
        &ann,
        "/network-feature-configs",
        session(64500, "AS64500:AS-CUSTOMERS"),
    )
    .await;
    assert_eq!(made.status, 201, "{}", made.text());
    let path = format!("/network-feature-configs/{}", made.json()["id"].as_str().unwrap());
    for change in [json!({ "as_set_v4": "AS-GOOGLE@RIPE" }), json!({ "asn": 15169 })] {
        let refused = patch(&api, &ann, &path, change.clone()).await;
        assert!(
            matches!(refused.status, 400 | 403),
            "{change}: {}",
            refused.text()
        );
    }
    // A route server that is told now gets only what the account has now.
    let clients = || async {
        api.get(&noc, "/api/v1/exports/arouteserver-clients.json")
            .await
            .json()
    };
    let waive = Operation::WaiveQuarantine {
        config: config["id"].as_str().unwrap().parse().unwrap(),
        reason: "test".to_owned(),
    };
    api.world
        .engine
        .order(OrderRequest::of_system(vec![waive]))
        .await
        .unwrap();
    let listed = clients().await;
    assert_eq!(listed["clients"][0]["asn"], 64500, "{listed}");
    assert_eq!(
        listed["clients"][0]["cfg"]["filtering"]["irrdb"]["as_sets"],
        json!(["AS64500:AS-CUSTOMERS"])
    );
    let give_up = Operation::UpdateAccount {
        account: account.parse().unwrap(),
        name: None,
        asns: Some([64_599].into()),
        discoverable: None,
        as_set: None,
        limits: None,
    };
    api.world
        .engine
        .order(OrderRequest::of_system(vec![give_up]))
        .await
        .unwrap();
    assert_eq!(clients().await["clients"], json!([]));
}

/// Returns the addresses of an end, in order.
async fn addresses(api: &Api, key: &str, config: &Value) -> Vec<String> {
    let ips = get(api, key, "/ips").await.json();
    let own = ips.as_array().unwrap().iter();
    let own = own.filter(|ip| config["ips"].as_array().unwrap().contains(&ip["id"]));
    own.map(|ip| ip["address"].as_str().unwrap().to_owned()).collect()
}

/// Awaits the answer to an order of an end. Another order is in front of the one of the end's address, which was chosen before.
async fn get_in_before(api: &Api, other: Operation, answer: impl Future<Output = Answer>) -> Answer {
    let mut answer = pin!(answer);
    let before = api.exchange().configs.len();
    // While the engine is busy, the order goes on to the next thing that it asks the engine for, and not further.
    while api.exchange().configs.len() == before {
        let (open, gate) = std::sync::mpsc::channel::<()>();
        let mut busy = pin!(busy(api, gate));
        assert!(poll!(&mut busy).is_pending());
        assert!(poll!(&mut answer).is_pending(), "the end is ordered first");
        open.send(()).unwrap();
        busy.await;
        api.world.wait().await.unwrap();
    }
    let (open, gate) = std::sync::mpsc::channel::<()>();
    let mut busy = pin!(busy(api, gate));
    let mut other = pin!(api.world.engine.order(OrderRequest::of_system(vec![other])));
    assert!(poll!(&mut busy).is_pending() && poll!(&mut other).is_pending());
    assert!(poll!(&mut answer).is_pending(), "the address is ordered");
    open.send(()).unwrap();
    busy.await;
    other.await.unwrap();
    answer.await
}

/// Keeps the engine busy until the gate opens.
async fn busy(api: &Api, gate: std::sync::mpsc::Receiver<()>) {
    let wait = move |_: &mut dyn Store, _| Ok(gate.recv_timeout(PATIENCE).is_ok());
    assert!(api.world.handle.store(wait).await.unwrap());
}

/// Returns an order of an end of the peering LAN by ann.
async fn end_of_ann(api: &Api, ann: &str) -> Value {
    let account = get(api, ann, "/account").await.json()["id"].clone();
    let connection = get(api, ann, "/connections").await.json()[0]["id"].clone();
    let lan = get(api, ann, "/network-services?type=exchange_lan").await.json()[0]["id"].clone();
    with(
        billed(account.as_str().unwrap()),
        json!({ "type": "exchange_lan", "network_service": lan, "connection": connection, "asns": [64500], "listed": true,
            "vlan_config": { "vlan_type": "dot1q" }, "macs": [], "product_offering": format!("offering-{}", lan.as_str().unwrap()) }),
    )
}

const CONFIGS: &str = "/api/v2/network-service-configs";

#[tokio::test]
async fn an_end_gets_one_address_of_each_network_also_when_it_is_ordered_twice() {
    let api = Api::over(with_lan()).await;
    let ann = api.key("ann");
    let order = end_of_ann(&api, &ann).await;
    let headers = [("idempotency-key", "0123456789")];
    let mut made = Vec::new();
    for _ in 0..2 {
        let answer = api
            .send(Method::POST, CONFIGS, &ann, &headers, Some(order.clone()))
            .await;
        assert_eq!(answer.status, 201, "{}", answer.text());
        made.push(answer.json());
    }
    assert_eq!(made[0]["id"], made[1]["id"]);
    for config in &made {
        assert_eq!(
            addresses(&api, &ann, config).await,
            ["198.51.100.1", "2001:db8:7f::1"]
        );
    }
}

#[tokio::test]
async fn an_end_gets_the_next_address_if_another_end_takes_the_one_that_was_chosen() {
    let exchange = with_lan();
    let (other, _) = exchange
        .configs
        .iter()
        .find(|(_, config)| !config.quarantine.is_over())
        .unwrap();
    let taken = Operation::AddIp {
        config: *other,
        address: "198.51.100.1".parse().unwrap(),
        valid_until: None,
    };
    let api = Api::over(exchange).await;
    let ann = api.key("ann");
    let order = end_of_ann(&api, &ann).await;
    let answer = api.send(Method::POST, CONFIGS, &ann, &[], Some(order));
    let answer = get_in_before(&api, taken, answer).await;
    assert_eq!(answer.status, 201, "{}", answer.text());
    assert_eq!(
        addresses(&api, &ann, &answer.json()).await,
        ["198.51.100.2", "2001:db8:7f::1"]
    );
}

#[tokio::test]
async fn a_member_with_a_route_server_session_is_in_both_exports_after_quarantine() {
    let api = Api::over(with_lan()).await;
    let (ann, noc) = (api.key("ann"), api.key("noc"));
    let account = get(&api, &ann, "/account").await.json()["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let connection = get(&api, &ann, "/connections").await.json()[0]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let lans = get(&api, &ann, "/network-services?type=exchange_lan")
        .await
        .json();
    let lan = lans
        .as_array()
        .unwrap()
        .iter()
        .find(|lan| !lan["network_features"].as_array().unwrap().is_empty());
    let lan = lan
        .unwrap_or_else(|| panic!("a LAN with a route server: {lans}"))
        .clone();
    let order = with(
        billed(&account),
        json!({ "type": "exchange_lan", "network_service": lan["id"], "connection": connection, "asns": [64500], "listed": true,
            "vlan_config": { "vlan_type": "dot1q" }, "macs": [], "product_offering": format!("offering-{}", lan["id"].as_str().unwrap()) }),
    );
    let config = id(&post(&api, &ann, "/network-service-configs", order).await);
    let ips = get(&api, &ann, &format!("/network-service-configs/{config}"))
        .await
        .json()["ips"]
        .clone();
    let session = |asn: u32, ip: &Value| {
        with(
            billed(&account),
            json!({ "type": "route_server", "network_feature": lan["network_features"][0], "network_service_config": config, "asn": asn,
            "as_set_v4": "AS-AOBA@RIPE", "as_set_v6": "AS-AOBA@RIPE", "max_prefix_v4": 100, "session_mode": "public",
            "bgp_session_type": "passive", "ip": ip, "password": "hidden" }),
        )
    };
    let wrong = post(&api, &ann, "/network-feature-configs", session(7, &ips[0])).await;
    assert_eq!(
        (wrong.status, wrong.json()["properties"][0]["name"].clone()),
        (400, json!("asn")),
        "{}",
        wrong.text()
    );
    let made = post(&api, &ann, "/network-feature-configs", session(64500, &ips[0])).await;
    assert_eq!(made.status, 201, "{}", made.text());
    assert!(
        !made.text().contains("hidden"),
        "the password is write-only: {}",
        made.text()
    );
    // An address has one session with a route server, however it is ordered.
    let other = id(&post(&api, &ann, "/network-feature-configs", session(64500, &ips[1])).await);
    let path = format!("/network-feature-configs/{other}");
    let moved = patch(&api, &ann, &path, json!({ "ip": ips[0] })).await;
    assert_eq!(moved.status, 400, "{}", moved.text());
    assert!(moved.text().contains("is the session of this address"));
    assert_eq!(
        patch(&api, &ann, &path, json!({ "ip": ips[1] })).await.status,
        200
    );
    assert_eq!(delete(&api, &ann, &path).await.status, 200);
    let list = async || api.get("", "/api/v1/exports/euro-ix.json").await.json();
    assert!(
        !list().await.to_string().contains("AS-AOBA"),
        "an end in quarantine is not listed"
    );
    let waive = json!({ "reason": "known router" });
    let waived = api
        .send(
            Method::POST,
            &format!("/api/v1/configs/{config}/waive"),
            &noc,
            &[("if-match", "*")],
            Some(waive),
        )
        .await;
    assert_eq!(waived.status, 200, "{}", waived.text());
    let found = list().await;
    assert_eq!(found["version"], "1.0");
    check_member_list(&found);
    let members = found["member_list"].as_array().unwrap();
    let servers = members.iter().find(|member| member["asnum"] == 64_999).unwrap();
    assert_eq!(servers["member_type"], "ixp");
    assert_eq!(
        servers["connection_list"][0]["vlan_list"][0]["ipv4"]["services"],
        json!([{ "type": "ixrouteserver" }])
    );
    let member = members.iter().find(|member| member["asnum"] == 64500).unwrap();
    let ends = member["connection_list"].as_array().unwrap();
    let v4 = &ends.last().unwrap()["vlan_list"][0]["ipv4"];
    assert_eq!(
        (
            v4["routeserver"].clone(),
            v4["as_macro"].clone(),
            v4["max_prefix"].clone()
        ),
        (json!(true), json!("RIPE::AS-AOBA"), json!(100)),
        "{member}"
    );
    assert_eq!(
        api.get(&ann, "/api/v1/exports/arouteserver-clients.json")
            .await
            .status,
        403
    );
    let clients = api
        .get(&noc, "/api/v1/exports/arouteserver-clients.json")
        .await
        .json();
    assert_eq!(clients["clients"][0]["asn"], 64500, "{clients}");
    assert_eq!(
        clients["clients"][0]["cfg"]["filtering"]["irrdb"]["as_sets"],
        json!(["RIPE::AS-AOBA"])
    );
    // The deletion of an end deletes its sessions.
    assert_eq!(
        delete(&api, &ann, &format!("/network-service-configs/{config}"))
            .await
            .status,
        202
    );
    assert_eq!(
        get(&api, &ann, "/network-feature-configs").await.json(),
        json!([])
    );
}

#[tokio::test]
async fn an_end_that_the_native_api_deletes_has_no_route_server_sessions() {
    let api = Api::over(with_lan()).await;
    let ann = api.key("ann");
    let account = get(&api, &ann, "/account").await.json()["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let connection = get(&api, &ann, "/connections").await.json()[0]["id"].clone();
    let lans = get(&api, &ann, "/network-services?type=exchange_lan")
        .await
        .json();
    let mut lans = lans.as_array().unwrap().iter();
    let lan = lans.find(|lan| lan["network_features"] != json!([])).unwrap();
    let order = with(
        billed(&account),
        json!({ "type": "exchange_lan", "network_service": lan["id"], "connection": connection, "asns": [64500], "listed": true,
            "vlan_config": { "vlan_type": "dot1q" }, "macs": [], "product_offering": format!("offering-{}", lan["id"].as_str().unwrap()) }),
    );
    let config = id(&post(&api, &ann, "/network-service-configs", order).await);
    let read = get(&api, &ann, &format!("/network-service-configs/{config}")).await;
    let session = with(
        billed(&account),
        json!({ "type": "route_server", "network_feature": lan["network_features"][0], "network_service_config": config,
            "asn": 64500, "as_set_v4": "AS-AOBA@RIPE", "session_mode": "public", "bgp_session_type": "passive",
            "ip": read.json()["ips"][0] }),
    );
    id(&post(&api, &ann, "/network-feature-configs", session).await);
    let refused = delete(
        &api,
        &ann,
        &format!("/network-service-configs/{config}?dry_run=true"),
    )
    .await;
    assert_eq!(refused.status, 400, "{}", refused.text());
    for (query, left) in [("?dry_run=true", 1), ("", 0)] {
        let path = format!("/api/v1/configs/{config}{query}");
        let deleted = api
            .send(Method::DELETE, &path, &ann, &[("if-match", "*")], None)
            .await;
        assert_eq!(deleted.status, 200, "{}", deleted.text());
        let sessions = get(&api, &ann, "/network-feature-configs").await.json();
        assert_eq!(sessions.as_array().unwrap().len(), left, "{path}");
    }
    // The record stays while the deletion may be undone.
    assert_eq!(api.stored("record/nfc-"), 1);
    assert_eq!(api.restart().stored("record/nfc-"), 0);
}

/// Checks a member list against the rules of the IX-F member export JSON schema 1.0: the required properties, and the type of
/// each property.
pub(super) fn check_member_list(list: &Value) {
    let has = |object: &Value, required: &[&str]| {
        for name in required {
            assert!(object.get(name).is_some(), "{name} is required in {object}");
        }
    };
    let integer = |object: &Value, names: &[&str]| {
        for name in names {
            assert!(
                object[name].is_null() || object[name].is_u64(),
                "{name} in {object}"
            );
        }
    };
    let items = |value: &Value| value.as_array().unwrap().clone();
    has(list, &["version", "timestamp", "ixp_list", "member_list"]);
    let timestamp = list["timestamp"].as_str().unwrap();
    assert!(timestamp.len() == 20 && timestamp.ends_with('Z'), "{timestamp}");
    let (mut ixps, mut vlans, mut switches) = (Vec::new(), Vec::new(), Vec::new());
    for ixp in items(&list["ixp_list"]) {
        has(&ixp, &["ixf_id", "ixp_id", "shortname"]);
        integer(&ixp, &["ixf_id", "ixp_id", "peeringdb_id"]);
        ixps.push(ixp["ixp_id"].clone());
        for vlan in items(&ixp["vlan"]) {
            integer(&vlan, &["id"]);
            vlans.push(vlan["id"].clone());
            for (family, bits) in [("ipv4", 32), ("ipv6", 128)] {
                if let Some(part) = vlan.get(family) {
                    let address: std::net::IpAddr = part["prefix"].as_str().unwrap().parse().unwrap();
                    assert_eq!(address.is_ipv4(), family == "ipv4");
                    assert!(part["mask_length"].as_u64().unwrap() <= bits);
                }
            }
        }
        for switch in items(&ixp["switch"]) {
            integer(&switch, &["id"]);
            switches.push(switch["id"].clone());
        }
    }
    for member in items(&list["member_list"]) {
        has(&member, &["asnum", "connection_list"]);
        integer(&member, &["asnum"]);
        assert!(["peering", "ixp", "other"].contains(&member["member_type"].as_str().unwrap()));
        for connection in items(&member["connection_list"]) {
            has(&connection, &["ixp_id"]);
            assert!(ixps.contains(&connection["ixp_id"]));
            for interface in items(&connection["if_list"]) {
                integer(&interface, &["switch_id", "if_speed"]);
                assert!(switches.contains(&interface["switch_id"]));
            }
            for vlan in items(&connection["vlan_list"]) {
                assert!(vlans.contains(&vlan["vlan_id"]), "{vlan}");
                for family in ["ipv4", "ipv6"] {
                    let Some(part) = vlan.get(family) else {
                        continue;
                    };
                    let address: std::net::IpAddr = part["address"].as_str().unwrap().parse().unwrap();
                    assert_eq!(address.is_ipv4(), family == "ipv4");
                    assert!(part["routeserver"].is_boolean(), "{part}");
                    integer(part, &["max_prefix"]);
                }
            }
        }
    }
}
