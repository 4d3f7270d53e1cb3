//! Ends of a peering LAN in the member list, and changes of ends and of their sessions.

use axum::http::Method;
use millrace_ix_model::{Actor, Operation, ServiceKind, Timestamp};
use serde_json::{Value, json};

use super::lan::check_member_list;
use super::{billed, get, id, patch, post, refused, with, with_lan, write_back};
use crate::support::Api;

#[tokio::test]
async fn the_member_list_has_the_number_of_a_session_and_every_network_of_a_lan() {
    let mut exchange = with_lan();
    let now = Timestamp::from_secs(1_795_470_000);
    let (account, found) = exchange
        .accounts
        .iter()
        .find(|(_, account)| account.asns.contains(&64_500))
        .unwrap();
    let numbers = Operation::UpdateAccount {
        account: *account,
        name: None,
        asns: Some(found.asns.iter().copied().chain([64_400]).collect()),
        discoverable: Some(true),
        as_set: None,
        limits: None,
    };
    let lan = Operation::CreateService {
        account: exchange.accounts.keys().next().copied(),
        kind: ServiceKind::ExchangeLan,
        name: "Second LAN".to_owned(),
        peer: None,
        policy: exchange.policies.keys().next().copied(),
        networks: ["203.0.113.0/25", "203.0.113.128/25", "2001:db8:99::/64"]
            .map(|network| network.parse().unwrap())
            .to_vec(),
        external_ref: None,
    };
    for operation in [numbers, lan] {
        exchange.apply(&Actor::system(), now, operation).unwrap();
    }
    let api = Api::over(exchange).await;
    let (ann, noc) = (api.key("ann"), api.key("noc"));
    let account = get(&api, &ann, "/account").await.json()["id"].clone();
    let account = account.as_str().unwrap();
    let configs = get(&api, &ann, "/network-service-configs?type=exchange_lan")
        .await
        .json();
    let config = configs[0].clone();
    assert_eq!(
        config["listed"], true,
        "its account may be found, and has not answered"
    );
    let waive = format!("/api/v1/configs/{}/waive", config["id"].as_str().unwrap());
    let reason = Some(json!({ "reason": "known router" }));
    let _waived = api
        .send(Method::POST, &waive, &noc, &[("if-match", "*")], reason)
        .await;
    let numbers = async || {
        let list = api.get("", "/api/v1/exports/euro-ix.json").await.json();
        check_member_list(&list);
        let members = list["member_list"].as_array().unwrap().iter();
        let own = members.filter(|member| member["name"] == "Aoba Networks");
        own.map(|member| member["asnum"].as_u64().unwrap())
            .collect::<Vec<_>>()
    };
    assert_eq!(numbers().await, [64_400]);
    let lans = get(&api, &ann, "/network-services?type=exchange_lan")
        .await
        .json();
    let mut lans = lans.as_array().unwrap().iter();
    let lan = lans.find(|lan| lan["id"] == config["network_service"]).unwrap();
    let session = with(
        billed(account),
        json!({ "type": "route_server", "network_feature": lan["network_features"][0], "network_service_config": config["id"],
            "asn": 64500, "as_set_v4": "AS64500", "session_mode": "public", "bgp_session_type": "passive", "ip": config["ips"][0] }),
    );
    let session = id(&post(&api, &ann, "/network-feature-configs", session).await);
    assert!(numbers().await.contains(&64_500));
    let list = api.get("", "/api/v1/exports/euro-ix.json").await.json();
    let vlans = list["ixp_list"][0]["vlan"].as_array().unwrap().iter();
    let second: Vec<&Value> = vlans.filter(|vlan| vlan["name"] == "Second LAN").collect();
    let parts = |family: &str| -> Vec<&Value> { second.iter().map(|vlan| &vlan[family]["prefix"]).collect() };
    assert_eq!(parts("ipv4"), ["203.0.113.0", "203.0.113.128"], "{list}");
    assert_eq!(parts("ipv6"), [&json!("2001:db8:99::"), &Value::Null]);
    // A session is written back as it was read, and the properties that cannot change are named.
    let path = format!("/network-feature-configs/{session}");
    write_back(&api, &ann, &path, 200, &["id", "state", "status"]).await;
    for (property, value) in [
        ("session_mode", "collector"),
        ("consuming_account", "ac-999999"),
        ("network_feature", "x"),
    ] {
        refused(&api, &ann, &path, json!({ property: value }), property).await;
    }
    let changed = patch(
        &api,
        &ann,
        &path,
        json!({ "external_ref": "rs 1", "purchase_order": "7" }),
    )
    .await;
    assert_eq!(
        (&changed.json()["external_ref"], &changed.json()["purchase_order"]),
        (&json!("rs 1"), &json!("7")),
        "{}",
        changed.text()
    );
    // The same for the end, whose references are unique.
    let path = format!("/network-service-configs/{}", config["id"].as_str().unwrap());
    write_back(
        &api,
        &ann,
        &path,
        202,
        &[
            "id",
            "state",
            "status",
            "network_service",
            "ips",
            "network_feature_configs",
        ],
    )
    .await;
    refused(
        &api,
        &ann,
        &path,
        json!({ "product_offering": "x" }),
        "product_offering",
    )
    .await;
    let changed = patch(&api, &ann, &path, json!({ "external_ref": "end 1" })).await;
    assert_eq!(
        (changed.status, &changed.json()["external_ref"]),
        (202, &json!("end 1"))
    );
}
