//! Orders: preconditions, idempotency keys, dry runs, and refusals that name the field.

use std::time::Duration;

use axum::http::Method;
use millrace_ix_service::simulation::SimulatedClocks;
use serde_json::{Value, json};

use crate::support::{Answer, Api};

async fn post(api: &Api, key: &str, path: &str, headers: &[(&str, &str)], body: Value) -> Answer {
    api.send(Method::POST, path, key, headers, Some(body)).await
}

/// Returns the identifier of the object with a name in a collection.
async fn id_of(api: &Api, key: &str, collection: &str, name: &str) -> String {
    let list = api
        .get(key, &format!("/api/v1/{collection}?limit=500"))
        .await
        .json();
    let items = list["items"].as_array().unwrap().clone();
    let found = items
        .into_iter()
        .find(|item| item["name"] == name)
        .unwrap_or_else(|| panic!("{name} in {list}"));
    found["id"].as_str().unwrap().to_owned()
}

fn path(connection: &str, vlan: u16, peer: Option<&str>) -> Value {
    json!({
        "name": "new-path",
        "peer": peer,
        "end": { "connection": connection, "vlan": { "type": "dot1q", "vlan": vlan }, "capacity_mbps": 100 },
    })
}

#[tokio::test]
async fn a_path_is_ordered_accepted_changed_locked_and_deleted() {
    let api = Api::new().await;
    let (ann, bob) = (api.key("ann"), api.key("bob"));
    let near = id_of(&api, &ann, "connections", "aoba-tokyo").await;
    let far = id_of(&api, &bob, "connections", "baikal-makuhari").await;
    let peer = id_of(&api, &ann, "accounts", "Baikal Telecom").await;
    let dry = post(
        &api,
        &ann,
        "/api/v1/services?dry_run=true",
        &[],
        path(&near, 500, Some(&peer)),
    )
    .await;
    assert_eq!(dry.status, 200, "{}", dry.text());
    assert_eq!(dry.json()["vlan"], "VLAN 500");
    let before = api.get(&ann, "/api/v1/services").await.json()["total"].clone();
    let made = post(&api, &ann, "/api/v1/services", &[], path(&near, 500, Some(&peer))).await;
    assert_eq!(made.status, 201, "{}", made.text());
    assert_eq!(
        made.json()["created"].as_array().unwrap().len(),
        2,
        "service and end: {}",
        made.text()
    );
    let after = api.get(&ann, "/api/v1/services").await.json()["total"].clone();
    assert_eq!(
        after.as_u64().unwrap(),
        before.as_u64().unwrap() + 1,
        "the dry run made nothing"
    );
    let id = id_of(&api, &ann, "services", "new-path").await;
    let url = format!("/api/v1/services/{id}");
    let invitation = api.get(&bob, &url).await;
    assert_eq!(invitation.json()["state"], "requested");
    assert!(
        invitation.json()["can"]
            .as_array()
            .unwrap()
            .contains(&json!("accept"))
    );
    let overview = api.get(&bob, "/api/v1/overview").await.json();
    assert!(overview["tasks"].to_string().contains(&id), "{overview}");
    let end = json!({ "end": { "connection": far, "vlan": { "type": "dot1q", "vlan": null } } });
    let etag = invitation.etag();
    let accepted = post(&api, &bob, &format!("{url}/accept"), &[("if-match", &etag)], end).await;
    assert_eq!(accepted.status, 201, "{}", accepted.text());
    let service = api.get(&ann, &url).await;
    assert_eq!(service.json()["state"], "production", "{}", service.text());
    assert_eq!(
        service.json()["path"].as_array().unwrap().len(),
        5,
        "port, switch, trunk, switch, port"
    );
    let own = service.json()["ends"]
        .as_array()
        .unwrap()
        .iter()
        .find(|end| end["own"] == true)
        .unwrap()
        .clone();
    let end_url = format!("/api/v1/configs/{}", own["id"].as_str().unwrap());
    let end_tag = api.get(&ann, &end_url).await.etag();
    let rate = json!({ "capacity_mbps": 300 });
    let changed = api
        .send(
            Method::PUT,
            &format!("{end_url}/rate"),
            &ann,
            &[("if-match", &end_tag)],
            Some(rate.clone()),
        )
        .await;
    assert_eq!(changed.status, 200, "{}", changed.text());
    let stale = api
        .send(
            Method::PUT,
            &format!("{end_url}/rate"),
            &ann,
            &[("if-match", &end_tag)],
            Some(rate),
        )
        .await;
    assert_eq!(stale.status, 412, "{}", stale.text());
    let tag = api.get(&ann, &url).await.etag();
    let lock = json!({ "locked": true });
    let locked = api
        .send(
            Method::PUT,
            &format!("{url}/lock"),
            &ann,
            &[("if-match", &tag)],
            Some(lock),
        )
        .await;
    assert_eq!(locked.status, 200, "{}", locked.text());
    let refused = api
        .send(Method::DELETE, &url, &ann, &[("if-match", "*")], None)
        .await;
    assert_eq!(
        (refused.status, refused.json()["code"].clone()),
        (409, json!("locked"))
    );
    let unlock = json!({ "locked": false });
    api.send(
        Method::PUT,
        &format!("{url}/lock"),
        &ann,
        &[("if-match", "*")],
        Some(unlock),
    )
    .await;
    let without = api.send(Method::DELETE, &url, &ann, &[], None).await;
    assert_eq!(without.status, 428, "an order to an object needs If-Match");
    let deleted = api
        .send(Method::DELETE, &url, &ann, &[("if-match", "*")], None)
        .await;
    assert_eq!(deleted.status, 200, "{}", deleted.text());
}

#[tokio::test]
async fn a_repeated_order_is_done_once_and_a_key_belongs_to_one_request() {
    let api = Api::new().await;
    let ann = api.key("ann");
    let near = id_of(&api, &ann, "connections", "aoba-tokyo").await;
    let key = [("idempotency-key", "0123456789")];
    let first = post(&api, &ann, "/api/v1/services", &key, path(&near, 501, None)).await;
    let again = post(&api, &ann, "/api/v1/services", &key, path(&near, 501, None)).await;
    assert_eq!(first.status, 201);
    assert_eq!(first.json()["created"], again.json()["created"]);
    let other = post(&api, &ann, "/api/v1/services", &key, path(&near, 502, None)).await;
    assert_eq!(
        (other.status, other.json()["code"].clone()),
        (409, json!("key-reused"))
    );
    // The same key of another user is another key.
    let tia = api.key("tia");
    let taken = post(&api, &tia, "/api/v1/services", &key, path(&near, 501, None)).await;
    assert_eq!(taken.status, 409);
    assert_ne!(taken.json()["code"], "key-reused");
}

#[tokio::test]
async fn a_repeated_order_to_an_object_gets_the_first_answer_and_a_late_one_is_stale() {
    let api = Api::new().await;
    let ann = api.key("ann");
    let id = id_of(&api, &ann, "services", "transit-baikal").await;
    let url = format!("/api/v1/services/{id}");
    let change = format!("{url}/lock");
    let locked = json!({ "locked": true });
    let first = api
        .send(Method::PUT, &change, &ann, &[("if-match", "*")], Some(locked))
        .await;
    assert_eq!(first.status, 200, "{}", first.text());
    let etag = api.get(&ann, &url).await.etag();
    let unlock = |key: &'static str| {
        let headers = [("if-match", etag.clone()), ("idempotency-key", key.to_owned())];
        let (api, ann, url) = (&api, &ann, format!("{url}/lock"));
        async move {
            let headers: Vec<(&str, &str)> = headers
                .iter()
                .map(|(name, value)| (*name, value.as_str()))
                .collect();
            api.send(Method::PUT, &url, ann, &headers, Some(json!({ "locked": false })))
                .await
        }
    };
    let first = unlock("0123456789").await;
    assert_eq!(first.status, 200, "{}", first.text());
    assert_ne!(api.get(&ann, &url).await.etag(), etag);
    let again = unlock("0123456789").await;
    assert_eq!((again.status, again.text()), (200, first.text()));
    assert_eq!(unlock("another key").await.status, 412);
}

#[tokio::test]
async fn a_repeated_delete_gets_the_first_answer_and_others_cannot_tell_that_the_object_was_there() {
    let api = Api::new().await;
    let ann = api.key("ann");
    let id = id_of(&api, &ann, "services", "transit-baikal").await;
    let url = format!("/api/v1/services/{id}");
    let headers = [("if-match", "*"), ("idempotency-key", "delete-it-1")];
    let delete = async |key: &str, url: &str, headers: &[(&str, &str)]| {
        api.send(Method::DELETE, url, key, headers, None).await
    };
    let ends: Vec<String> = api.get(&ann, &url).await.json()["ends"]
        .as_array()
        .unwrap()
        .iter()
        .map(|end| end["id"].as_str().unwrap().to_owned())
        .collect();
    let end = format!("/api/v1/configs/{}", ends[0]);
    let first = delete(&ann, &end, &headers).await;
    assert_eq!(first.status, 200, "{}", first.text());
    assert_eq!(api.get(&ann, &end).await.status, 404, "the end is gone");
    let again = delete(&ann, &end, &headers).await;
    assert_eq!((again.status, again.text()), (200, first.text()));
    // The key is bound to the first request. With another key, the end is not found.
    let reused = delete(&ann, &url, &headers).await;
    assert_eq!(
        (reused.status, reused.json()["code"].clone()),
        (409, json!("key-reused"))
    );
    let late = delete(
        &ann,
        &end,
        &[("if-match", "*"), ("idempotency-key", "another-key")],
    )
    .await;
    assert_eq!(late.status, 404);
    // A reader without rights gets the same answer for deleted, foreign and absent objects.
    let dan = api.key("dan");
    let mut answers = Vec::new();
    for path in [end.clone(), url.clone(), "/api/v1/services/sv-999999".to_owned()] {
        let answer = delete(&dan, &path, &headers).await;
        let id = path.rsplit('/').next().unwrap().to_owned();
        answers.push((answer.status, answer.text().replace(&id, "ID")));
    }
    assert_eq!(answers[0].0, 404);
    assert!(answers.iter().all(|answer| *answer == answers[0]), "{answers:?}");
}

#[tokio::test]
async fn refusals_name_the_field_in_the_body() {
    let api = Api::new().await;
    let ann = api.key("ann");
    let near = id_of(&api, &ann, "connections", "aoba-tokyo").await;
    let pointer = |answer: &Answer| answer.json()["errors"][0]["pointer"].clone();
    let taken = post(&api, &ann, "/api/v1/services", &[], path(&near, 100, None)).await;
    assert_eq!(
        (taken.status, pointer(&taken)),
        (409, json!("/end/vlan")),
        "{}",
        taken.text()
    );
    let beyond = post(&api, &ann, "/api/v1/services", &[], path(&near, 4095, None)).await;
    assert_eq!(
        (beyond.status, pointer(&beyond)),
        (422, json!("/end/vlan")),
        "{}",
        beyond.text()
    );
    let mut nameless = path(&near, 600, None);
    nameless["name"] = json!("");
    let nameless = post(&api, &ann, "/api/v1/services", &[], nameless).await;
    assert_eq!(
        (nameless.status, pointer(&nameless)),
        (422, json!("/name")),
        "{}",
        nameless.text()
    );
    // A refused order leaves nothing behind: not even its service.
    let list = api.get(&ann, "/api/v1/services?q=new-path").await.json();
    assert_eq!(list["total"], 0, "{list}");
}

#[tokio::test]
async fn bodies_that_are_no_json_objects_are_refused() {
    let api = Api::new().await;
    let ann = api.key("ann");
    let list = post(&api, &ann, "/api/v1/services", &[], json!(["name"])).await;
    assert_eq!(list.status, 422);
    let text = api
        .send(
            Method::POST,
            "/api/v1/services",
            &ann,
            &[("content-type", "text/plain")],
            None,
        )
        .await;
    assert_eq!(text.status, 415);
}

#[tokio::test]
async fn an_order_without_a_database_is_refused_with_the_time_to_try_again() {
    let api = Api::new().await;
    let ann = api.key("ann");
    let near = id_of(&api, &ann, "connections", "aoba-tokyo").await;
    api.world.set_full(true);
    let refused = post(&api, &ann, "/api/v1/services", &[], path(&near, 700, None)).await;
    assert_eq!(refused.status, 503);
    assert!(refused.headers.contains_key("retry-after"));
    assert_eq!(
        api.get(&ann, "/api/v1/services").await.status,
        200,
        "reading goes on"
    );
}

#[tokio::test]
async fn a_service_key_is_shown_once_and_lets_its_holder_in() {
    let api = Api::new().await;
    let (ann, dan) = (api.key("ann"), api.key("dan"));
    let near = id_of(&api, &ann, "connections", "aoba-tokyo").await;
    let far = id_of(&api, &dan, "connections", "delta-dc").await;
    post(&api, &ann, "/api/v1/services", &[], path(&near, 800, None)).await;
    let id = id_of(&api, &ann, "services", "new-path").await;
    let made = post(
        &api,
        &ann,
        &format!("/api/v1/services/{id}/keys"),
        &[],
        json!({ "hours": 72 }),
    )
    .await;
    let secret = made.json()["secret"]
        .as_str()
        .unwrap_or_else(|| panic!("{}", made.text()))
        .to_owned();
    assert_eq!(
        api.get(&dan, &format!("/api/v1/services/{id}")).await.status,
        404,
        "before"
    );
    let body =
        json!({ "secret": secret, "end": { "connection": far, "vlan": { "type": "dot1q", "vlan": 9 } } });
    let redeemed = post(&api, &dan, "/api/v1/service-keys/redeem", &[], body.clone()).await;
    assert_eq!(redeemed.status, 201, "{}", redeemed.text());
    assert_eq!(
        api.get(&dan, &format!("/api/v1/services/{id}")).await.json()["state"],
        "production"
    );
    let again = post(&api, &dan, "/api/v1/service-keys/redeem", &[], body).await;
    assert!(matches!(again.status, 404 | 409), "{}", again.text());
}

#[tokio::test]
async fn a_drain_that_waits_for_a_confirmation_is_confirmed_undone_or_over() {
    let api = Api::new().await;
    let (noc, ann) = (api.key("noc"), api.key("ann"));
    let trunks = api.get(&noc, "/api/v1/trunks").await.json();
    let trunk = trunks["items"][0]["id"].as_str().unwrap().to_owned();
    let path = format!("/api/v1/trunks/{trunk}");
    let is_drained = async || api.get(&noc, &path).await.json()["drained"].clone();
    let drain = async || {
        let order = api
            .send(
                Method::PUT,
                &format!("{path}/drain?confirm_within=600"),
                &noc,
                &[("if-match", "*")],
                Some(json!({ "drained": true })),
            )
            .await;
        assert_eq!(order.status, 200, "{}", order.text());
        order.json()["change"].as_str().unwrap().to_owned()
    };
    let decide = async |key: &str, change: &str, decision: &str| {
        let path = format!("/api/v1/changes/{change}/{decision}");
        api.send(Method::POST, &path, key, &[], None).await
    };
    let first = drain().await;
    let waiting = api.get(&noc, &format!("/api/v1/changes/{first}")).await.json();
    assert!(
        waiting["confirm_until"].is_string() && waiting["can_confirm"] == true,
        "{waiting}"
    );
    assert_eq!(
        decide(&ann, &first, "confirm").await.status,
        404,
        "a member does not see it"
    );
    let confirmed = decide(&noc, &first, "confirm").await;
    assert_eq!(
        (confirmed.status, confirmed.json()["confirm_until"].clone()),
        (200, Value::Null)
    );
    assert_eq!(is_drained().await, true);
    assert_eq!(
        decide(&noc, &first, "revert").await.status,
        409,
        "it is confirmed"
    );
    let back = api
        .send(
            Method::PUT,
            &format!("{path}/drain"),
            &noc,
            &[("if-match", "*")],
            Some(json!({ "drained": false })),
        )
        .await;
    assert_eq!(back.status, 200, "{}", back.text());
    let second = drain().await;
    assert_eq!(decide(&noc, &second, "revert").await.status, 200);
    assert_eq!(is_drained().await, false);
    drain().await;
    api.world.pass(Duration::from_secs(601)).await.unwrap();
    assert_eq!(is_drained().await, false);
    let create = json!({ "name": "X", "kind": "member" });
    let other = api
        .send(
            Method::POST,
            "/api/v1/accounts?confirm_within=600",
            &api.key("pro"),
            &[],
            Some(create),
        )
        .await;
    assert_eq!(
        other.status,
        422,
        "an account cannot be undone at any time: {}",
        other.text()
    );
}

#[tokio::test]
async fn traffic_is_shown_by_peer_and_its_flows_to_those_who_may_read_samples() {
    let api = Api::new().await;
    let (ann, bil, bob, ops) = (api.key("ann"), api.key("bil"), api.key("bob"), api.key("ops"));
    api.measure_attack();
    let own = api.get(&ann, "/api/v1/traffic").await.json();
    let seconds = own["seconds"].as_u64().unwrap();
    assert!(own["measured"] == true && (25..=30).contains(&seconds), "{own}");
    assert!(
        own["incoming"][0]["peer"]["name"].is_string() && own["top"][0]["source_port"] == 123,
        "{own}"
    );
    let account = api.get(&ann, "/api/v1/session").await.json()["account"]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let billing = api.get(&bil, "/api/v1/traffic").await.json();
    // The rates are those of the moment.
    let peers = |traffic: &Value| -> Vec<Value> {
        let rates = traffic["incoming"].as_array().unwrap().iter();
        rates.map(|rate| json!([rate["peer"], rate["service"]])).collect()
    };
    assert_eq!((peers(&billing), &billing["top"]), (peers(&own), &json!([])));
    let path = format!("/api/v1/traffic?account={account}");
    assert_eq!(api.get(&bob, &path).await.status, 404, "another member's traffic");
    assert_eq!(peers(&api.get(&ops, &path).await.json()), peers(&own));
    let audit = api.get(&ops, "/api/v1/audit?actor=ops").await.text();
    assert!(audit.contains("read_traffic"), "{audit}");
}

#[tokio::test]
async fn a_jump_of_the_systems_clock_changes_no_validity_that_an_order_gives() {
    // The clock of the engine is two hours behind that of the rest.
    let clocks = SimulatedClocks::default();
    clocks.set_back(Duration::from_secs(7200));
    let api = Api::by(clocks).await;
    let ann = api.key("ann");
    let new = json!({ "destination": "203.0.113.9", "action": "drop", "minutes": 60 });
    let made = post(&api, &ann, "/api/v1/filters", &[], new).await;
    assert_eq!(made.status, 201, "{}", made.text());
    let left = || {
        let filters = &api.world.engine.snapshot().exchange.filters;
        let end = filters.last_key_value().unwrap().1.valid_until.unwrap();
        end.since(api.world.engine.now()).as_secs()
    };
    assert!((3500..=3600).contains(&left()), "{} s", left());
    let id = *api.exchange().filters.last_key_value().unwrap().0;
    let minutes = json!({ "minutes": 10 });
    let path = format!("/api/v1/filters/{id}");
    let extended = api
        .send(Method::PUT, &path, &ann, &[("if-match", "*")], Some(minutes))
        .await;
    assert_eq!(extended.status, 200, "{}", extended.text());
    assert!((500..=600).contains(&left()), "{} s", left());
}

#[tokio::test]
async fn a_malformed_cursor_of_changes_and_of_the_audit_chain_is_refused() {
    let api = Api::new().await;
    let ops = api.key("ops");
    for cursor in ["7", "ch-", "ch-x", "ch--7", "ch-18446744073709551616"] {
        let page = api.get(&ops, &format!("/api/v1/changes?after={cursor}")).await;
        assert_eq!(page.status, 400, "{cursor}: {}", page.text());
        let page = api
            .get(&ops, &format!("/api/v1/changes?open=true&after={cursor}"))
            .await;
        assert_eq!(page.status, 400, "{cursor}: {}", page.text());
    }
    assert_eq!(api.get(&ops, "/api/v1/audit?after=ch-7").await.status, 400);
    for path in [
        "/api/v1/changes?after=ch-7",
        "/api/v1/changes?after=",
        "/api/v1/audit?after=7",
    ] {
        assert_eq!(api.get(&ops, path).await.status, 200, "{path}");
    }
}

/// Returns true if a text has the identifier of an object, such as `cn-15` or `sw-9:1`.
fn has_identifier(text: &str) -> bool {
    let words = text.split(|char: char| !char.is_ascii_alphanumeric() && char != '-');
    let is_identifier = |word: &str| {
        word.split_once('-').is_some_and(|(kind, number)| {
            kind.len() == 2 && !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit())
        })
    };
    words.into_iter().any(is_identifier)
}

#[tokio::test]
async fn errors_for_members_name_objects_and_those_for_operators_have_their_identifiers_too() {
    let api = Api::new().await;
    let ann = api.key("ann");
    let connections = api.get(&ann, "/api/v1/connections").await.json();
    let connection = connections["items"][0]["id"].as_str().unwrap().to_owned();
    let name = connections["items"][0]["name"].as_str().unwrap().to_owned();
    let order = |rate: u32| {
        json!({ "name": "too much", "end": { "connection": connection, "vlan": { "type": "dot1q", "vlan": null },
            "capacity_mbps": rate } })
    };
    let answer = api
        .send(
            Method::POST,
            "/api/v1/services",
            &ann,
            &[],
            Some(order(4_000_000)),
        )
        .await;
    let problem = answer.json();
    assert_eq!(answer.status, 422, "{problem}");
    let detail = problem["detail"].as_str().unwrap();
    assert!(
        detail.contains(&format!("\"{name}\"")) && !has_identifier(detail),
        "{detail}"
    );
    let coded = problem["coded"][0]["values"].as_object().unwrap();
    assert!(
        coded
            .values()
            .all(|value| !has_identifier(value.as_str().unwrap())),
        "{coded:?}"
    );
    let ops = api.key("ops");
    let mut own = order(4_000_000);
    own["account"] = connections["items"][0]["account"]["id"].clone();
    let answer = api
        .send(Method::POST, "/api/v1/services", &ops, &[], Some(own))
        .await;
    let detail = answer.json()["detail"].as_str().unwrap().to_owned();
    assert!(detail.contains(&format!("\"{name}\" ({connection})")), "{detail}");
}
