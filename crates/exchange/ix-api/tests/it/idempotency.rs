//! POSTs with an `Idempotency-Key`, of both APIs: one execution, one answer, and another request is refused.

use std::collections::BTreeSet;

use axum::http::Method;
use serde_json::{Value, json};

use crate::support::{Answer, Api};

/// A POST that creates an object: path, sender, body, and a body that makes it another request.
struct Case {
    path: String,
    sender: &'static str,
    body: Value,
    other: Value,
}

fn case(sender: &'static str, path: impl Into<String>, body: Value, other: Value) -> Case {
    Case {
        path: path.into(),
        sender,
        body,
        other,
    }
}

fn with(base: &Value, more: &Value) -> Value {
    let mut all = base.clone();
    for (name, value) in more.as_object().unwrap() {
        all[name] = value.clone();
    }
    all
}

/// Sends as the holder of an API key, or with the cookie of a session.
async fn post(api: &Api, sender: &str, path: &str, key: Option<&str>, body: &Value) -> Answer {
    let mut headers: Vec<(&str, &str)> = key.iter().map(|key| ("idempotency-key", *key)).collect();
    let is_session = sender.contains('=');
    if is_session {
        headers.push(("cookie", sender));
    }
    let bearer = if is_session { "" } else { sender };
    api.send(Method::POST, path, bearer, &headers, Some(body.clone()))
        .await
}

async fn created(api: &Api, sender: &str, path: &str, body: &Value) -> String {
    let made = post(api, sender, path, None, body).await;
    assert_eq!(made.status, 201, "{path}: {}", made.text());
    let made = made.json();
    let id = made["id"].as_str().or_else(|| made["created"][0].as_str());
    id.unwrap_or_else(|| panic!("{made}")).to_owned()
}

/// Returns the number of objects in the collection of a POST. The readers together see all of them.
async fn count(api: &Api, path: &str, session: &str) -> usize {
    let mut total = 0;
    for reader in ["ann", "pro"] {
        let headers = [("cookie", session)];
        let (bearer, headers) = if path == "/api/v1/api-keys" {
            ("", &headers[..])
        } else {
            (reader, &[][..])
        };
        let list = api.send(Method::GET, path, bearer, headers, None).await;
        let list = list.json();
        total += list["total"].as_u64().map_or_else(
            || {
                list.as_array()
                    .or_else(|| list["items"].as_array())
                    .map_or(0, Vec::len)
            },
            |total| usize::try_from(total).unwrap(),
        );
    }
    total
}

/// Returns a request for each creating POST of both APIs.
async fn cases(api: &Api) -> Vec<Case> {
    let account = api.get("ann", "/api/v2/account").await.json()["id"].clone();
    let exchange = api.get("pro", "/api/v2/account").await.json()["id"].clone();
    let peer = api.get("bob", "/api/v2/account").await.json()["id"].clone();
    let pop = api.get("pro", "/api/v2/pops").await.json()[0]["id"].clone();
    let connection = api.get("ann", "/api/v2/connections").await.json()[0]["id"].clone();
    let owned = json!({ "managing_account": account, "consuming_account": account });
    let billed = with(
        &owned,
        &json!({ "billing_account": account, "role_assignments": [] }),
    );
    let contact = with(
        &owned,
        &json!({ "name": "NOC", "email": "noc@example.net", "telephone": "+8130000" }),
    );
    let assigned = created(api, "ann", "/api/v2/contacts", &contact).await;
    let club = with(
        &billed,
        &json!({ "type": "mp2mp_vc", "name": "club", "product_offering": "offering-mp2mp_vc" }),
    );
    let club = created(api, "ann", "/api/v2/network-services", &club).await;
    let circuit = with(
        &billed,
        &json!({ "type": "p2p_vc", "name": "own", "product_offering": "offering-p2p_vc", "joining_member_account": peer }),
    );
    let circuit = created(api, "ann", "/api/v2/network-services", &circuit).await;
    let lans = api
        .get("ann", "/api/v2/network-services?type=exchange_lan")
        .await
        .json();
    let lan = lans
        .as_array()
        .unwrap()
        .iter()
        .find(|lan| lan["network_features"] != json!([]))
        .unwrap()
        .clone();
    let other = api.get("ann", "/api/v2/connections").await.json()[1]["id"].clone();
    let order = with(
        &billed,
        &json!({ "type": "exchange_lan", "network_service": lan["id"], "connection": other, "asns": [64500],
        "listed": true, "vlan_config": { "vlan_type": "dot1q" }, "macs": [],
        "product_offering": format!("offering-{}", lan["id"].as_str().unwrap()) }),
    );
    let config = created(api, "ann", "/api/v2/network-service-configs", &order).await;
    let config = api
        .get("ann", &format!("/api/v2/network-service-configs/{config}"))
        .await
        .json();
    let switch = api.get("pro", "/api/v1/switches").await.json()["items"][0]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let end = |vlan: u16| json!({ "connection": connection, "vlan": { "type": "dot1q", "vlan": vlan }, "capacity_mbps": 10 });
    let address = json!({ "country": "JP", "locality": "Tokyo", "postal_code": "100-0004", "street_address": "Otemachi 1" });
    let v2 = |sender, path: &str, body, other| case(sender, format!("/api/v2{path}"), body, other);
    let v1 = |sender, path: &str, body, other| case(sender, format!("/api/v1{path}"), body, other);
    let key = created(
        api,
        "ann",
        &format!("/api/v1/services/{club}/keys"),
        &json!({ "hours": 1 }),
    )
    .await;
    assert!(key.starts_with("sk-"), "{key}");
    vec![
        v2("ann", "/contacts", contact, json!({ "name": "Night shift" })),
        v2(
            "ann",
            "/role-assignments",
            json!({ "contact": assigned, "role": "role-noc" }),
            json!({ "role": "role-legal" }),
        ),
        v2(
            "ann",
            "/macs",
            with(&owned, &json!({ "address": "02:00:00:00:00:99" })),
            json!({ "address": "02:00:00:00:00:9a" }),
        ),
        v2(
            "ann",
            "/member-joining-rules",
            json!({ "type": "allow", "managing_account": account, "consuming_account": peer, "network_service": club }),
            json!({ "type": "deny" }),
        ),
        v2(
            "ann",
            "/network-services",
            with(
                &billed,
                &json!({ "type": "p2p_vc", "name": "path", "product_offering": "offering-p2p_vc", "joining_member_account": peer }),
            ),
            json!({ "name": "other" }),
        ),
        v2(
            "ann",
            "/network-service-configs",
            with(
                &billed,
                &json!({ "type": "p2p_vc", "network_service": circuit, "connection": connection, "capacity": 10,
                "vlan_config": { "vlan_type": "dot1q" } }),
            ),
            json!({ "capacity": 20 }),
        ),
        v2(
            "ann",
            "/network-feature-configs",
            with(
                &billed,
                &json!({ "type": "route_server", "network_feature": lan["network_features"][0], "asn": 64500,
                "network_service_config": config["id"], "as_set_v4": "AS64500:AS-AOBA", "as_set_v6": "AS64500:AS-AOBA", "session_mode": "public",
                "bgp_session_type": "passive", "ip": config["ips"][0], "password": "hidden" }),
            ),
            json!({ "password": "other" }),
        ),
        v2(
            "pro",
            "/ips",
            json!({ "address": "198.51.100.77", "network_service_config": config["id"] }),
            json!({ "address": "198.51.100.78" }),
        ),
        v2(
            "pro",
            "/accounts",
            json!({ "name": "Kita", "managing_account": exchange, "address": address }),
            json!({ "name": "Minami" }),
        ),
        v2(
            "pro",
            "/connections",
            with(&billed, &json!({ "mode": "standalone", "pop": pop })),
            json!({ "name": "x" }),
        ),
        v1(
            "pro",
            "/accounts",
            json!({ "name": "New", "kind": "member" }),
            json!({ "name": "Newer" }),
        ),
        v1(
            "ann",
            "/users",
            json!({ "name": "new", "account": account, "roles": ["member_tech"] }),
            json!({ "name": "newer" }),
        ),
        v1(
            "pro",
            "/connections",
            json!({ "account": account, "name": "new", "kind": "standalone", "ports": [format!("{switch}:20")] }),
            json!({ "name": "newer" }),
        ),
        v1(
            "ann",
            "/services",
            json!({ "name": "ring", "end": end(900) }),
            json!({ "name": "other-ring" }),
        ),
        v1(
            "ann",
            &format!("/services/{club}/keys"),
            json!({ "hours": 2 }),
            json!({ "hours": 3 }),
        ),
        v1(
            "ann",
            &format!("/services/{club}/ends"),
            json!({ "end": end(901) }),
            json!({ "end": end(902) }),
        ),
        v1(
            "ann",
            &format!("/configs/{}/macs", config["id"].as_str().unwrap()),
            json!({ "address": "02:00:00:00:00:9b" }),
            json!({ "address": "02:00:00:00:00:9c" }),
        ),
        v1(
            "pro",
            &format!("/configs/{}/ips", config["id"].as_str().unwrap()),
            json!({ "address": "198.51.100.79" }),
            json!({ "address": "198.51.100.80" }),
        ),
        v1(
            "ann",
            "/contacts",
            json!({ "name": "Desk", "email": "desk@example.net", "roles": ["abuse"] }),
            json!({ "name": "Other desk" }),
        ),
        v1(
            "ann",
            "/cross-connects",
            json!({ "site": "Otemachi", "member_side": "cage 7", "medium": "LC" }),
            json!({ "medium": "SC" }),
        ),
        v1(
            "pro",
            "/notices",
            json!({ "kind": "incident", "title": "Fibre cut", "begins": "2036-12-01T00:00:00.000Z", "public": true }),
            json!({ "title": "Another one" }),
        ),
        v1(
            "ann",
            "/groups",
            json!({ "name": "storage", "end": end(903), "members": [peer] }),
            json!({ "members": [] }),
        ),
        v1(
            "ann",
            "/filters",
            json!({ "account": account, "destination": "203.0.113.9", "action": "drop" }),
            json!({ "action": "count" }),
        ),
        v1(
            "ann",
            "/webhooks",
            json!({ "url": "https://example.net/hook" }),
            json!({ "url": "https://example.net/other" }),
        ),
        v1(
            "ann",
            "/api-keys",
            json!({ "name": "robot", "scope": "read" }),
            json!({ "name": "other robot" }),
        ),
    ]
}

/// Returns the POSTs of an OpenAPI document that answer with 201, and true for those that have the parameter.
fn creating_posts(document: &str) -> BTreeSet<(String, bool)> {
    let document: Value = serde_json::from_str(document).unwrap();
    let posts = document["paths"].as_object().unwrap().iter().filter(|(_, item)| {
        item["post"]["responses"]
            .as_object()
            .is_some_and(|responses| responses.contains_key("201"))
    });
    posts
        .map(|(path, item)| {
            let parameters = item["post"]["parameters"].as_array().into_iter().flatten();
            let keys = parameters.filter(|parameter| parameter["name"] == "idempotency-key");
            (path.clone(), keys.count() == 1)
        })
        .collect()
}

#[tokio::test]
async fn every_creating_post_of_both_apis_is_executed_once_for_a_key() {
    let api = Api::new().await;
    for name in ["ann", "bob", "pro"] {
        api.key(name);
    }
    let session = api.session("ann").await;
    let mut tested = BTreeSet::new();
    for (number, case) in cases(&api).await.into_iter().enumerate() {
        let (path, key) = (&case.path, format!("request {number}"));
        let sender = if path == "/api/v1/api-keys" {
            session.as_str()
        } else {
            case.sender
        };
        let before = count(&api, path, &session).await;
        let first = post(&api, sender, path, Some(&key), &case.body).await;
        assert_eq!(first.status, 201, "{path}: {}", first.text());
        let after = count(&api, path, &session).await;
        let again = post(&api, sender, path, Some(&key), &case.body).await;
        assert_eq!((again.status, &again.body), (201, &first.body), "{path}");
        assert_eq!(again.headers["content-type"], first.headers["content-type"]);
        assert_eq!(
            count(&api, path, &session).await,
            after,
            "{path} made another object"
        );
        assert!(
            after > before || path.matches('/').count() > 3,
            "{path}: {before} objects became {after}"
        );
        let other = post(&api, sender, path, Some(&key), &with(&case.body, &case.other)).await;
        let (status, word) = if path.starts_with("/api/v2") {
            (400, "unable-to-fulfill")
        } else {
            (409, "key-reused")
        };
        assert_eq!(other.status, status, "{path}: {}", other.text());
        assert!(
            other.text().contains(word) && other.text().contains("idempotency key"),
            "{path}: {}",
            other.text()
        );
        // The same key of another user is a different key.
        let foreign = post(&api, "bob", path, Some(&key), &case.body).await;
        assert_ne!(foreign.body, first.body, "{path}");
        assert!(
            !foreign.text().contains("idempotency key"),
            "{path}: {}",
            foreign.text()
        );
        tested.insert(path.clone());
    }
    let documents = [
        millrace_ix_api::openapi_json(),
        millrace_ix_api::ix_openapi_json(),
    ];
    for (path, has_key) in documents.iter().flat_map(|document| creating_posts(document)) {
        assert!(has_key, "the description of POST {path} lacks the header");
        let (head, tail) = path.split_once("{id}").unwrap_or((&path, ""));
        let found = tested
            .iter()
            .any(|tested| tested.starts_with(head) && tested.ends_with(tail));
        // These POSTs need an earlier order of another user. They use the same handlers as the orders above.
        let needs_another = ["accept", "refuse", "redeem", "approve", "waive", "join"]
            .iter()
            .any(|word| path.ends_with(word));
        assert!(found || needs_another, "POST {path} is not tested: add a case");
    }
}

#[tokio::test]
async fn requests_with_one_key_at_the_same_time_create_one_object() {
    let api = Api::new().await;
    let ann = api.key("ann");
    let account = api.get(&ann, "/api/v2/account").await.json()["id"].clone();
    let mac =
        json!({ "managing_account": account, "consuming_account": account, "address": "02:00:00:00:00:99" });
    let before = api
        .get(&ann, "/api/v2/macs")
        .await
        .json()
        .as_array()
        .unwrap()
        .len();
    let send = || post(&api, &ann, "/api/v2/macs", Some("0123456789"), &mac);
    let answers = futures::future::join_all((0..16).map(|_| send())).await;
    assert!(
        answers
            .iter()
            .all(|answer| (answer.status, &answer.body) == (201, &answers[0].body))
    );
    let after = api
        .get(&ann, "/api/v2/macs")
        .await
        .json()
        .as_array()
        .unwrap()
        .len();
    assert_eq!(after, before + 1);
}

#[tokio::test]
async fn a_refused_request_can_be_sent_again_with_its_key() {
    let api = Api::new().await;
    let ann = api.key("ann");
    let path = "/api/v1/webhooks";
    let refused = post(
        &api,
        &ann,
        path,
        Some("0123456789"),
        &json!({ "url": "nonsense" }),
    )
    .await;
    assert_eq!(refused.status, 422, "{}", refused.text());
    let made = post(
        &api,
        &ann,
        path,
        Some("0123456789"),
        &json!({ "url": "https://example.net/a" }),
    )
    .await;
    assert_eq!(made.status, 201, "{}", made.text());
    let short = post(
        &api,
        &ann,
        path,
        Some("short"),
        &json!({ "url": "https://example.net/a" }),
    )
    .await;
    assert_eq!(short.status, 400, "{}", short.text());
    let nobody = post(
        &api,
        "",
        path,
        Some("0123456789"),
        &json!({ "url": "https://example.net/a" }),
    )
    .await;
    assert_eq!(nobody.status, 401, "{}", nobody.text());
}

#[tokio::test]
async fn the_secret_of_a_key_made_on_the_page_is_not_repeated_to_an_api_key() {
    let api = Api::new().await;
    let session = api.session("ann").await;
    let ann = api.key("ann");
    let body = json!({ "name": "robot", "scope": "write" });
    let made = post(&api, &session, "/api/v1/api-keys", Some("0123456789"), &body).await;
    assert_eq!(made.status, 201, "{}", made.text());
    let stolen = post(&api, &ann, "/api/v1/api-keys", Some("0123456789"), &body).await;
    assert_eq!(
        (stolen.status, stolen.json()["code"].clone()),
        (403, json!("session-required"))
    );
}

#[tokio::test]
async fn a_dry_run_uses_up_no_key() {
    let api = Api::new().await;
    let pro = api.key("pro");
    let body = json!({ "name": "New", "kind": "member" });
    let dry = post(
        &api,
        &pro,
        "/api/v1/accounts?dry_run=true",
        Some("0123456789"),
        &body,
    )
    .await;
    assert_eq!(dry.status, 200, "{}", dry.text());
    let made = post(&api, &pro, "/api/v1/accounts", Some("0123456789"), &body).await;
    assert_eq!(made.status, 201, "{}", made.text());
}
