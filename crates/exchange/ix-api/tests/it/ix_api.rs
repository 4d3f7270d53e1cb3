//! IX-API: from nothing to production, tokens, and the same secrecy as in the native API.

use axum::http::Method;
use millrace_ix_api::fake::demo;
use millrace_ix_model::{AccountId, Actor, LanPolicy, Operation, ServiceKind, Timestamp};
use serde_json::{Value, json};

use crate::support::{Answer, Api};

async fn post(api: &Api, key: &str, path: &str, body: Value) -> Answer {
    api.send(Method::POST, &format!("/api/v2{path}"), key, &[], Some(body))
        .await
}

async fn patch(api: &Api, key: &str, path: &str, body: Value) -> Answer {
    api.send(Method::PATCH, &format!("/api/v2{path}"), key, &[], Some(body))
        .await
}

async fn get(api: &Api, key: &str, path: &str) -> Answer {
    api.get(key, &format!("/api/v2{path}")).await
}

async fn delete(api: &Api, key: &str, path: &str) -> Answer {
    // Clients send a body with DELETE, with a content type of their own.
    let headers = [("content-type", "application/json;")];
    api.send(Method::DELETE, &format!("/api/v2{path}"), key, &headers, None)
        .await
}

/// Returns the identifier of an object that was created.
fn id(answer: &Answer) -> String {
    assert_eq!(answer.status, 201, "{}", answer.text());
    answer.json()["id"].as_str().unwrap().to_owned()
}

fn owned(account: &str) -> Value {
    json!({ "managing_account": account, "consuming_account": account, "billing_account": account, "role_assignments": [] })
}

#[allow(clippy::needless_pass_by_value, reason = "callers write the value in place")]
fn with(mut base: Value, more: Value) -> Value {
    for (name, value) in more.as_object().unwrap() {
        base[name] = value.clone();
    }
    base
}

fn address() -> Value {
    json!({ "country": "JP", "locality": "Tokyo", "postal_code": "100-0004", "street_address": "Otemachi 1" })
}

/// Returns the demonstration with a peering LAN whose quarantine nobody waits for.
fn with_lan() -> millrace_ix_model::Exchange {
    let mut exchange = demo().unwrap();
    let now = Timestamp::from_secs(1_795_470_000);
    let system = Actor::system();
    if exchange
        .services
        .values()
        .any(|service| service.kind == ServiceKind::ExchangeLan)
    {
        return exchange;
    }
    let policy = Operation::CreatePolicy {
        policy: LanPolicy::usual("peering"),
    };
    let policy = exchange.apply(&system, now, policy).unwrap().first();
    let account: AccountId = *exchange.accounts.keys().next().unwrap();
    let lan = Operation::CreateService {
        account: Some(account),
        kind: ServiceKind::ExchangeLan,
        name: "LAN".to_owned(),
        peer: None,
        policy,
        networks: vec!["192.0.2.0/24".parse().unwrap(), "2001:db8::/64".parse().unwrap()],
        external_ref: None,
    };
    exchange.apply(&system, now, lan).unwrap();
    exchange
}

#[tokio::test]
async fn members_come_from_nothing_to_a_path_in_production() {
    let api = Api::over(with_lan());
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
            owned(&account),
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
        owned(a),
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
            owned(account),
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
    // The rate and the place of an end change; the names of IX-API stand in refusals.
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
    // The end of the service is the end of its ends.
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
async fn a_member_joins_the_peering_lan_with_mac_address_and_gets_ip_addresses() {
    let api = Api::over(with_lan());
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
        owned(&account),
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
        (200, json!([second])),
        "{}",
        swapped.text()
    );
    assert_eq!(delete(&api, &ann, &format!("/macs/{second}")).await.status, 200);
    assert_eq!(get(&api, &ann, &path).await.json()["macs"], json!([]));
    let left = delete(&api, &ann, &path).await;
    assert_eq!(left.json()["state"], "decommission_requested", "{}", left.text());
}

#[tokio::test]
async fn a_member_with_a_route_server_session_is_in_both_exports_after_quarantine() {
    let api = Api::over(with_lan());
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
        owned(&account),
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
            owned(&account),
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
    let members = found["member_list"].as_array().unwrap();
    let member = members.iter().find(|member| member["asnum"] == 64500).unwrap();
    let ends = member["connection_list"].as_array().unwrap();
    let v4 = &ends.last().unwrap()["vlan_list"][0]["ipv4"];
    assert_eq!(
        (
            v4["routeserver"].clone(),
            v4["as_macro"].clone(),
            v4["max_prefix"].clone()
        ),
        (json!(true), json!("AS-AOBA@RIPE"), json!(100)),
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
    // The sessions of an end go with it.
    assert_eq!(
        delete(&api, &ann, &format!("/network-service-configs/{config}"))
            .await
            .status,
        200
    );
    assert_eq!(
        get(&api, &ann, "/network-feature-configs").await.json(),
        json!([])
    );
}

#[tokio::test]
async fn a_joining_rule_lets_an_account_into_a_circuit_and_another_stays_out() {
    let api = Api::over(with_lan());
    let (ann, bob, dan) = (api.key("ann"), api.key("bob"), api.key("dan"));
    let account = async |key: &str| {
        get(&api, key, "/account").await.json()["id"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let (a, b) = (account(&ann).await, account(&bob).await);
    let order = with(
        owned(&a),
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
            owned(&b),
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
    let joined = post(&api, &bob, "/network-service-configs", end(100)).await;
    assert_eq!(joined.status, 201, "{}", joined.text());
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

#[tokio::test]
async fn tokens_come_from_an_api_key_rotate_and_end_with_it() {
    let api = Api::new();
    let ann = api.key("ann");
    let body = json!({ "name": "pyixapi", "scope": "write" });
    let made = api
        .send(Method::POST, "/api/v1/api-keys", &ann, &[], Some(body))
        .await
        .json();
    let (key, secret) = (made["key"]["id"].clone(), made["secret"].clone());
    let headers = [("content-type", "application/json;")];
    let token =
        async |path: &str, body: Value| api.send(Method::POST, path, "", &headers[..0], Some(body)).await;
    let pair = token(
        "/api/v2/auth/token",
        json!({ "api_key": key, "api_secret": secret }),
    )
    .await;
    assert_eq!(pair.status, 200, "{}", pair.text());
    let access = pair.json()["access_token"].as_str().unwrap().to_owned();
    let refresh = pair.json()["refresh_token"].clone();
    assert_eq!(get(&api, &access, "/connections").await.status, 200);
    assert_eq!(api.get(&access, "/api/v1/services").await.status, 200);
    let wrong = token(
        "/api/v2/auth/token",
        json!({ "api_key": key, "api_secret": "mx_wrong" }),
    )
    .await;
    assert_eq!(
        (wrong.status, wrong.json()["type"].clone()),
        (
            401,
            json!("https://errors.ix-api.net/v2/authentication-error.html")
        )
    );
    let next = token("/api/v2/auth/refresh", json!({ "refresh_token": refresh })).await;
    assert_eq!(next.status, 200, "{}", next.text());
    let used = token("/api/v2/auth/refresh", json!({ "refresh_token": refresh })).await;
    assert_eq!(used.status, 401);
    assert_eq!(
        get(
            &api,
            next.json()["refresh_token"].as_str().unwrap(),
            "/connections"
        )
        .await
        .status,
        401
    );
    let path = format!("/api/v1/api-keys/{}", key.as_str().unwrap());
    assert_eq!(api.send(Method::DELETE, &path, &ann, &[], None).await.status, 204);
    assert_eq!(get(&api, &access, "/connections").await.status, 401);
    let late = token(
        "/api/v2/auth/refresh",
        json!({ "refresh_token": next.json()["refresh_token"] }),
    )
    .await;
    assert_eq!(late.status, 401);
}

#[tokio::test]
async fn an_object_of_another_member_is_answered_as_an_absent_one() {
    let api = Api::over(with_lan());
    let (ann, dan, pro) = (api.key("ann"), api.key("dan"), api.key("pro"));
    let account = get(&api, &ann, "/account").await.json()["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let contact = with(
        owned(&account),
        json!({ "name": "Ann", "email": "ann@example.net" }),
    );
    let contact = id(&post(&api, &ann, "/contacts", contact).await);
    let assigned = id(&post(
        &api,
        &ann,
        "/role-assignments",
        json!({ "contact": contact, "role": "role-legal" }),
    )
    .await);
    let mac = id(&post(
        &api,
        &ann,
        "/macs",
        with(owned(&account), json!({ "address": "02:00:00:00:00:77" })),
    )
    .await);
    let first = async |path: &str| {
        let list = get(&api, &pro, path).await.json();
        let own = list
            .as_array()
            .unwrap()
            .iter()
            .find(|item| item["consuming_account"] == account.as_str());
        own.map(|item| item["id"].as_str().unwrap().to_owned())
    };
    let mut cases = vec![
        ("/contacts", contact),
        ("/role-assignments", assigned),
        ("/macs", mac),
    ];
    for path in [
        "/connections",
        "/network-services",
        "/network-service-configs",
        "/ports",
        "/ips",
    ] {
        cases.extend(first(path).await.map(|id| (path, id)));
    }
    assert!(cases.len() >= 6, "{cases:?}");
    for (path, id) in cases {
        let absent = format!(
            "{}999999",
            id.trim_end_matches(|digit: char| digit.is_ascii_digit())
        );
        for method in [Method::GET, Method::DELETE, Method::PATCH] {
            let mut answers = Vec::new();
            for id in [&id, &absent] {
                for headers in [&[][..], &[("idempotency-key", "0123456789")][..]] {
                    let body = (method == Method::PATCH).then(|| json!({}));
                    let url = format!("/api/v2{path}/{id}");
                    let answer = api.send(method.clone(), &url, &dan, headers, body).await;
                    answers.push((answer.status, answer.text().replace(id.as_str(), "ID")));
                }
            }
            assert!(
                answers.iter().all(|answer| *answer == answers[0]),
                "{method} {path}: {answers:?}"
            );
            assert!(matches!(answers[0].0, 404 | 405), "{method} {path}: {answers:?}");
        }
        assert_eq!(
            get(&api, &ann, &format!("{path}/{id}")).await.status,
            200,
            "{path}/{id}"
        );
        let list = get(&api, &dan, path).await.text();
        assert!(!list.contains(&format!("\"{id}\"")), "{path} shows {id}");
    }
}

#[tokio::test]
async fn every_collection_is_readable_and_every_operation_is_described() {
    let api = Api::over(with_lan());
    let ann = api.key("ann");
    let document: Value = serde_json::from_str(&millrace_ix_api::ix_openapi_json()).unwrap();
    let paths = document["paths"].as_object().unwrap();
    let mut names = std::collections::BTreeSet::new();
    for (path, item) in paths {
        for (method, operation) in item.as_object().unwrap() {
            let name = operation["operationId"].as_str().unwrap().to_owned();
            assert!(names.insert(name.clone()), "{name} is twice there");
            if method == "get" && !path.contains('{') {
                let answer = api.get(&ann, path).await;
                assert_eq!(answer.status, 200, "{path}: {}", answer.text());
                let public = operation["security"] == json!([{}]);
                assert_eq!(
                    api.get("", path).await.status,
                    if public { 200 } else { 401 },
                    "{path}"
                );
            }
        }
    }
    assert!(names.len() > 80, "{}", names.len());
    let supported = get(&api, "", "/implementation").await.json();
    assert_eq!(
        supported["supported_operations"].as_array().unwrap().len(),
        names.len()
    );
    assert_eq!(get(&api, "", "/health").await.json()["version"], "2");
    let nothing = get(&api, &ann, "/nothing").await;
    assert_eq!(
        (nothing.status, nothing.json()["type"].clone()),
        (404, json!("https://errors.ix-api.net/v2/not-found.html"))
    );
}
