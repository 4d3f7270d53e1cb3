//! Circuits: from the first order to production, and member joining rules.

use millrace_ix_model::{AccountId, Actor, ConnectionKind, Exchange, Operation, PortId, Timestamp};
use serde_json::{Value, json};

use super::{address, billed, delete, get, id, owned, patch, post, with, with_lan};
use crate::support::Api;

#[tokio::test]
async fn members_come_from_nothing_to_a_path_in_production() {
    let api = Api::over(with_lan()).await;
    let pro = api.key("pro");
    let own = get(&api, &pro, "/account").await.json()["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let mut members = Vec::new();
    for name in ["Kita", "Minami"] {
        let body =
            json!({ "name": name, "managing_account": own, "address": address(), "discoverable": true });
        let account = id(&post(&api, &pro, "/accounts", body).await);
        let contact = with(
            owned(&account),
            json!({ "name": "NOC", "email": "noc@example.net", "telephone": "+8130000" }),
        );
        let contact = id(&post(&api, &pro, "/contacts", contact).await);
        let assigned = json!({ "contact": contact, "role": "role-noc" });
        let role = id(&post(&api, &pro, "/role-assignments", assigned).await);
        let pop = get(&api, &pro, "/pops").await.json()[0]["id"].clone();
        let order = with(
            billed(&account),
            json!({ "mode": "standalone", "pop": pop, "role_assignments": [role] }),
        );
        let made = post(&api, &pro, "/connections", order).await;
        assert_eq!(made.json()["role_assignments"], json!([role]), "{}", made.text());
        members.push((account, id(&made)));
    }
    let [(a, near), (b, far)] = &members[..] else {
        panic!("two members");
    };
    let circuit = with(
        billed(a),
        json!({ "type": "p2p_vc", "product_offering": "offering-p2p_vc", "joining_member_account": b, "external_ref": "order 7" }),
    );
    let service = id(&post(&api, &pro, "/network-services", circuit.clone()).await);
    let again = post(&api, &pro, "/network-services", circuit).await;
    assert_eq!(
        (again.status, again.json()["type"].clone()),
        (400, json!("https://errors.ix-api.net/v2/unable-to-fulfill.html"))
    );
    for (account, connection) in &members {
        let end = with(
            billed(account),
            json!({ "type": "p2p_vc", "network_service": service, "connection": connection,
                "vlan_config": { "vlan_type": "dot1q", "vlan": 77 }, "capacity": 100 }),
        );
        let made = post(&api, &pro, "/network-service-configs", end).await;
        assert_eq!(made.json()["vlan_config"]["vlan"], 77, "{}", made.text());
    }
    let found = get(&api, &pro, &format!("/network-services/{service}"))
        .await
        .json();
    assert_eq!(
        (found["state"].clone(), found["status"].clone()),
        (json!("production"), json!([])),
        "{found}"
    );
    assert_eq!(found["external_ref"], "order 7");
    // The rate of an end is changed and removed. Refusals use the names of IX-API.
    let configs = get(
        &api,
        &pro,
        &format!("/network-service-configs?network_service={service}"),
    )
    .await
    .json();
    let config = configs[0]["id"].as_str().unwrap().to_owned();
    let changed = patch(
        &api,
        &pro,
        &format!("/network-service-configs/{config}"),
        json!({ "capacity": 50 }),
    )
    .await;
    assert_eq!(changed.json()["capacity"], 50, "{}", changed.text());
    let wrong = patch(
        &api,
        &pro,
        &format!("/network-service-configs/{config}"),
        json!({ "capacity": 400_000_000 }),
    )
    .await;
    assert_eq!(
        (wrong.status, wrong.json()["properties"][0]["name"].clone()),
        (400, json!("capacity")),
        "{}",
        wrong.text()
    );
    let free = patch(
        &api,
        &pro,
        &format!("/network-service-configs/{config}"),
        json!({ "capacity": null }),
    )
    .await;
    assert_eq!(free.json()["capacity"], Value::Null);
    // The deletion of a service with ends deletes the ends, too.
    let gone = delete(&api, &pro, &format!("/network-services/{service}")).await;
    assert_eq!(
        (gone.status, gone.json()["state"].clone()),
        (200, json!("decommission_requested")),
        "{}",
        gone.text()
    );
    assert!(near != far);
}

#[tokio::test]
async fn a_joining_rule_lets_an_account_into_a_circuit_and_another_stays_out() {
    let api = Api::over(with_lan()).await;
    let (ann, bob, dan) = (api.key("ann"), api.key("bob"), api.key("dan"));
    let account = async |key: &str| {
        get(&api, key, "/account").await.json()["id"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let (a, b) = (account(&ann).await, account(&bob).await);
    let order = with(
        billed(&a),
        json!({ "type": "mp2mp_vc", "name": "club", "product_offering": "offering-mp2mp_vc" }),
    );
    let service = id(&post(&api, &ann, "/network-services", order).await);
    let path = format!("/network-services/{service}");
    assert_eq!(get(&api, &bob, &path).await.status, 404);
    let rule = json!({ "type": "allow", "managing_account": a, "consuming_account": b, "network_service": service, "capacity_max": 100 });
    let rule = id(&post(&api, &ann, "/member-joining-rules", rule).await);
    assert_eq!(get(&api, &bob, &path).await.json()["name"], "club");
    assert_eq!(get(&api, &dan, &path).await.status, 404);
    assert_eq!(
        get(&api, &dan, &format!("/member-joining-rules/{rule}"))
            .await
            .status,
        404
    );
    let connection = get(&api, &bob, "/connections").await.json()[0]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let end = |capacity: u32| {
        with(
            billed(&b),
            json!({ "type": "mp2mp_vc", "network_service": service, "connection": connection, "capacity": capacity,
            "vlan_config": { "vlan_type": "dot1q" }, "macs": [] }),
        )
    };
    let much = post(&api, &bob, "/network-service-configs", end(200)).await;
    assert_eq!(
        (much.status, much.json()["properties"][0]["name"].clone()),
        (400, json!("capacity")),
        "{}",
        much.text()
    );
    // A request that is refused leaves no service key behind.
    let mut wrong = end(100);
    wrong["vlan_config"]["vlan"] = json!(5000);
    let wrong = post(&api, &bob, "/network-service-configs", wrong).await;
    assert_eq!(wrong.status, 400, "{}", wrong.text());
    let keys = api.get(&ann, "/api/v1/service-keys").await;
    assert!(!keys.text().contains(&service), "{}", keys.text());
    let joined = post(&api, &bob, "/network-service-configs", end(100)).await;
    let config = id(&joined);
    // The joining rule also limits a later change.
    let path_of_end = format!("/network-service-configs/{config}");
    let more = patch(&api, &bob, &path_of_end, json!({ "capacity": 200 })).await;
    assert_eq!(more.status, 400, "{}", more.text());
    // A change with one invalid field changes nothing.
    let half = json!({ "capacity": 50, "billing_account": "ac-9999" });
    assert_eq!(patch(&api, &bob, &path_of_end, half).await.status, 400);
    assert_eq!(get(&api, &bob, &path_of_end).await.json()["capacity"], 100);
    assert_eq!(
        delete(&api, &bob, &format!("/member-joining-rules/{rule}"))
            .await
            .status,
        403
    );
    assert_eq!(
        delete(&api, &ann, &format!("/member-joining-rules/{rule}"))
            .await
            .status,
        200
    );
    assert_eq!(
        get(&api, &bob, &path).await.status,
        200,
        "an end that has joined stays"
    );
}

fn account_named(exchange: &Exchange, name: &str) -> AccountId {
    let found = exchange.accounts.iter().find(|(_, account)| account.name == name);
    *found.unwrap().0
}

/// Adds a connection at a free port of the first switch.
fn connect(exchange: &mut Exchange, account: AccountId, port: u32) {
    let switch = *exchange.switches.keys().next().unwrap();
    let port = PortId {
        switch,
        port: millrace_types::PortNo::from_raw(port),
    };
    let operation = Operation::CreateConnection {
        account: Some(account),
        name: "more".to_owned(),
        kind: ConnectionKind::Standalone,
        ports: vec![port],
        external_ref: None,
    };
    let now = Timestamp::from_secs(1_795_470_000);
    exchange.apply(&Actor::system(), now, operation).unwrap();
}

/// Returns an order of an end of an mp2mp_vc.
fn joining(account: &str, service: &str, connection: &Value, capacity: u32) -> Value {
    with(
        billed(account),
        json!({ "type": "mp2mp_vc", "network_service": service, "connection": connection, "capacity": capacity,
            "vlan_config": { "vlan_type": "dot1q" }, "macs": [] }),
    )
}

/// Creates a multipoint circuit of an account. Returns the identifiers of the circuit and of the account.
async fn club(api: &Api, key: &str) -> (String, String) {
    let account = get(api, key, "/account").await.json()["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let order = with(
        billed(&account),
        json!({ "type": "mp2mp_vc", "name": "club", "product_offering": "offering-mp2mp_vc" }),
    );
    (id(&post(api, key, "/network-services", order).await), account)
}

#[tokio::test]
async fn a_joining_rule_is_about_the_account_of_the_end_whoever_orders_it() {
    let exchange = with_lan();
    let reseller = account_named(&exchange, "Kyoto Resale");
    let customer = account_named(&exchange, "Kyoto Customer");
    let (reseller, customer) = (reseller.to_string(), customer.to_string());
    let api = Api::over(exchange).await;
    let (ann, rex, ops) = (api.key("ann"), api.key("rex"), api.key("ops"));
    let connections = get(&api, &rex, "/connections").await.json();
    let connection = connections
        .as_array()
        .unwrap()
        .iter()
        .find(|connection| connection["consuming_account"] == customer.as_str())
        .unwrap()["id"]
        .clone();
    let order = async |service: &str, capacity: u32| {
        let end = joining(&customer, service, &connection, capacity);
        post(&api, &rex, "/network-service-configs", end).await
    };
    // The customer is not discoverable, so the staff of the exchange writes the rules for it.
    let rule = async |effect: &str, account: &str, service: &str, owner: &str| {
        let rule = json!({ "type": effect, "managing_account": owner, "consuming_account": account,
            "network_service": service, "capacity_max": (effect == "allow").then_some(100) });
        let made = post(&api, &ops, "/member-joining-rules", rule).await;
        assert_eq!(made.status, 201, "{}", made.text());
    };
    let (service, owner) = club(&api, &ann).await;
    assert_eq!(
        order(&service, 100).await.status,
        400,
        "no rule lets the customer in"
    );
    // A rule for the reseller alone does not apply to its customer.
    rule("allow", &reseller, &service, &owner).await;
    let refused = order(&service, 100).await;
    assert_ne!(refused.status, 201, "{}", refused.text());
    rule("allow", &customer, &service, &owner).await;
    let much = order(&service, 200).await;
    assert_eq!(
        (much.status, much.json()["properties"][0]["name"].clone()),
        (400, json!("capacity")),
        "{}",
        much.text()
    );
    id(&order(&service, 100).await);
    // A rule that denies either account is enough for a refusal.
    for denied in [&customer, &reseller] {
        let name = format!("denied {denied}");
        let made = with(
            billed(&owner),
            json!({ "type": "mp2mp_vc", "name": name, "product_offering": "offering-mp2mp_vc" }),
        );
        let service = id(&post(&api, &ann, "/network-services", made).await);
        for allowed in [&customer, &reseller] {
            rule("allow", allowed, &service, &owner).await;
        }
        rule("deny", denied, &service, &owner).await;
        let refused = order(&service, 100).await;
        assert_ne!(refused.status, 201, "{denied}: {}", refused.text());
    }
}

#[tokio::test]
async fn an_account_that_a_rule_lets_in_joins_with_a_second_end_within_the_same_bounds() {
    let mut exchange = with_lan();
    let baikal = account_named(&exchange, "Baikal Telecom");
    connect(&mut exchange, baikal, 20);
    let api = Api::over(exchange).await;
    let (ann, bob) = (api.key("ann"), api.key("bob"));
    let (service, owner) = club(&api, &ann).await;
    let b = baikal.to_string();
    let rule = json!({ "type": "allow", "managing_account": owner, "consuming_account": b, "network_service": service, "capacity_max": 100 });
    id(&post(&api, &ann, "/member-joining-rules", rule).await);
    let connections = get(&api, &bob, "/connections").await.json();
    let order = async |number: usize, capacity: u32| {
        let end = joining(&b, &service, &connections[number]["id"], capacity);
        post(&api, &bob, "/network-service-configs", end).await
    };
    id(&order(0, 100).await);
    let much = order(1, 200).await;
    assert_eq!(
        (much.status, much.json()["properties"][0]["name"].clone()),
        (400, json!("capacity")),
        "{}",
        much.text()
    );
    id(&order(1, 100).await);
}
