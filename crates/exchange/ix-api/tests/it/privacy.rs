//! Data of one account that other accounts can see, and audit entries about requests that the model does not
//! handle.

use axum::http::Method;
use millrace_ix_api::demo::demo;
use millrace_ix_model::{Actor, Operation, Timestamp};
use millrace_ix_store::{AuditEntry, ChangeState, JournalRecord, Transaction, UnixMillis};
use serde_json::{Value, json};

use crate::support::Api;

/// Orders a path from one of Aoba's connections as ann, to the account of another user.
async fn invite(api: &Api, ann: &str, peer: &str) -> String {
    let connections = api.get(ann, "/api/v1/connections").await.json();
    let connection = connections["items"]
        .as_array()
        .unwrap()
        .iter()
        .find(|found| found["name"] == "aoba-tokyo")
        .unwrap()["id"]
        .clone();
    let peer = api.get(peer, "/api/v1/session").await.json()["account"]["id"].clone();
    let body = json!({ "name": "private path", "peer": peer, "end": { "connection": connection, "vlan": { "type": "dot1q", "vlan": null } } });
    let made = api
        .send(Method::POST, "/api/v1/services", ann, &[], Some(body))
        .await;
    assert_eq!(made.status, 201, "{}", made.text());
    made.json()["created"][0].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn the_journal_names_the_other_account_and_none_of_its_people() {
    let api = Api::new().await;
    let (ann, bob, ops) = (api.key("ann"), api.key("bob"), api.key("ops"));
    let service = invite(&api, &ann, &bob).await;
    let path = format!("/api/v1/changes?object={service}");
    let actor = async |key: &str| {
        let list = api.get(key, &path).await.json();
        assert_eq!(list["items"].as_array().unwrap().len(), 1, "{list}");
        list["items"][0]["actor"].clone()
    };
    assert_eq!(actor(&ann).await, "ann");
    assert_eq!(actor(&ops).await, "ann");
    assert_eq!(actor(&bob).await, "Aoba Networks");
    let one = api.get(&bob, &path).await.json()["items"][0]["id"].clone();
    let one = api
        .get(&bob, &format!("/api/v1/changes/{}", one.as_str().unwrap()))
        .await;
    assert!(
        one.status == 200 && !one.text().contains("\"ann\""),
        "{}",
        one.text()
    );
}

#[tokio::test]
async fn changes_of_a_foreign_object_are_those_of_an_absent_one() {
    let api = Api::new().await;
    let (ann, bob, dan) = (api.key("ann"), api.key("bob"), api.key("dan"));
    let service = invite(&api, &ann, &bob).await;
    let list = async |object: &str| {
        let answer = api.get(&dan, &format!("/api/v1/changes?object={object}")).await;
        (answer.status, answer.json())
    };
    let empty = (200, json!({ "items": [], "next": null, "total": 0 }));
    assert_eq!(list(&service).await, empty);
    assert_eq!(list("sv-999999").await, empty);
    assert_eq!(list("nothing").await, empty);
}

/// Returns the entries of the audit chain about an object, newest first.
async fn entries(api: &Api, object: &str) -> Vec<Value> {
    let ops = api.key("ops");
    let list = api
        .get(&ops, &format!("/api/v1/audit?object={object}"))
        .await
        .json();
    list["items"].as_array().unwrap().clone()
}

#[tokio::test]
async fn a_service_that_is_opened_to_all_by_ix_api_is_in_the_audit_chain() {
    let api = Api::new().await;
    let ann = api.key("ann");
    let account = api.get(&ann, "/api/v2/account").await.json()["id"].clone();
    let body = json!({
        "type": "mp2mp_vc", "name": "community", "public": false, "product_offering": "offering-mp2mp_vc",
        "managing_account": account, "consuming_account": account, "billing_account": account, "role_assignments": [],
    });
    let made = api
        .send(Method::POST, "/api/v2/network-services", &ann, &[], Some(body))
        .await;
    assert_eq!(made.status, 201, "{}", made.text());
    let service = made.json()["id"].as_str().unwrap().to_owned();
    let before = entries(&api, &service).await.len();
    let path = format!("/api/v2/network-services/{service}");
    for body in [json!({ "public": true }), json!({ "public": true })] {
        let changed = api.send(Method::PATCH, &path, &ann, &[], Some(body)).await;
        assert_eq!(changed.status, 200, "{}", changed.text());
    }
    let entries = entries(&api, &service).await;
    assert_eq!(entries.len(), before + 1, "one entry for one change: {entries:?}");
    assert_eq!(
        (&entries[0]["actor"], &entries[0]["action"]),
        (&json!("ann"), &json!("set_properties"))
    );
    assert_eq!(entries[0]["detail"]["public"], json!(true));
}

#[tokio::test]
async fn an_account_takes_no_address_or_billing_information_that_its_description_forbids() {
    let api = Api::new().await;
    let ann = api.key("ann");
    let account = api.get(&ann, "/api/v2/account").await.json()["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let path = format!("/api/v2/accounts/{account}");
    let right = json!({ "country": "JP", "locality": "Tokyo", "postal_code": "100-0004", "street_address": "Otemachi 1" });
    let with = |name: &str, value: &str| {
        let mut address = right.clone();
        address[name] = json!(value);
        address
    };
    let billing = |number: &str| json!({ "name": "Aoba", "address": right, "vat_number": number });
    let long = |count: usize| "x".repeat(count);
    let refused = [
        (json!({ "address": with("country", "J") }), "address.country"),
        (json!({ "address": with("country", "JPN") }), "address.country"),
        (
            json!({ "address": with("locality", &long(41)) }),
            "address.locality",
        ),
        (
            json!({ "address": with("postal_code", &long(25)) }),
            "address.postal_code",
        ),
        (
            json!({ "address": with("street_address", &long(81)) }),
            "address.street_address",
        ),
        (json!({ "address": with("region", &long(81)) }), "address.region"),
        (
            json!({ "address": with("post_office_box_number", &long(81)) }),
            "address.post_office_box_number",
        ),
        (
            json!({ "billing_information": billing("0") }),
            "billing_information.vat_number",
        ),
        (
            json!({ "billing_information": billing(&long(21)) }),
            "billing_information.vat_number",
        ),
    ];
    for (body, property) in refused {
        let answer = api.send(Method::PATCH, &path, &ann, &[], Some(body)).await;
        assert_eq!(answer.status, 400, "{}", answer.text());
        assert_eq!(
            answer.json()["properties"][0]["name"],
            property,
            "{}",
            answer.text()
        );
    }
    let body = json!({ "address": right, "billing_information": billing("JP") });
    let changed = api.send(Method::PATCH, &path, &ann, &[], Some(body)).await;
    assert_eq!(changed.status, 200, "{}", changed.text());
}

#[tokio::test]
async fn facts_about_an_account_are_in_the_audit_chain_by_name_and_without_addresses() {
    let api = Api::new().await;
    let ann = api.key("ann");
    let account = api.get(&ann, "/api/v2/account").await.json()["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let path = format!("/api/v2/accounts/{account}");
    let body = json!({ "legal_name": "Aoba Networks KK", "address": {
        "country": "JP", "locality": "Tokyo", "postal_code": "100-0004", "street_address": "Secret Street 1" } });
    let changed = api.send(Method::PATCH, &path, &ann, &[], Some(body)).await;
    assert_eq!(changed.status, 200, "{}", changed.text());
    let entries = entries(&api, &account).await;
    let newest = entries
        .iter()
        .find(|entry| entry["action"] == "set_properties")
        .unwrap_or_else(|| panic!("{entries:?}"));
    assert_eq!(newest["detail"]["changed"], json!(["address", "legal_name"]));
    assert!(!newest.to_string().contains("Secret Street"), "{newest}");
}

#[tokio::test]
async fn a_look_of_the_staff_at_webhooks_ports_and_exports_is_in_the_audit_chain() {
    let api = Api::new().await;
    let ops = api.key("ops");
    for (path, object) in [
        ("/api/v1/webhooks", "webhooks"),
        ("/api/v1/changes", "changes"),
        ("/api/v1/bgp-sessions", "bgp-sessions"),
        ("/api/v1/exports/arouteserver-clients.json", "exports"),
        ("/api/v2/ports", "ports"),
        ("/api/v2/port-reservations", "port-reservations"),
    ] {
        assert_eq!(api.get(&ops, path).await.status, 200, "{path}");
        let entries = entries(&api, object).await;
        assert!(
            entries.iter().any(|entry| entry["action"] == "read"),
            "{path}: {entries:?}"
        );
    }
}

#[tokio::test]
async fn checks_of_the_registry_that_a_member_asks_for_have_a_pause() {
    let api = Api::new().await;
    let (ann, bob) = (api.key("ann"), api.key("bob"));
    let recheck = async |key: &str| {
        let account = api.get(key, "/api/v1/session").await.json()["account"]["id"].clone();
        let path = format!("/api/v1/accounts/{}/recheck", account.as_str().unwrap());
        api.send(Method::POST, &path, key, &[], None).await
    };
    assert_eq!(recheck(&ann).await.status, 204);
    let again = recheck(&ann).await;
    assert_eq!(again.status, 429, "{}", again.text());
    assert!(again.headers.contains_key("retry-after"));
    assert_eq!(recheck(&bob).await.status, 204, "another account need not wait");
}

#[tokio::test]
async fn traffic_at_a_lan_names_an_account_that_hides_by_its_as_number_and_that_of_a_circuit_by_its_name() {
    let mut exchange = demo().unwrap();
    let (baikal, _) = exchange
        .accounts
        .iter()
        .find(|(_, account)| account.name == "Baikal Telecom")
        .unwrap();
    let hide = Operation::UpdateAccount {
        account: *baikal,
        name: None,
        asns: None,
        discoverable: Some(false),
        as_set: None,
        limits: None,
    };
    let now = Timestamp::from_secs(1_795_470_000);
    exchange.apply(&Actor::system(), now, hide).unwrap();
    let api = Api::over(exchange).await;
    let (ann, ops) = (api.key("ann"), api.key("ops"));
    api.measure_traffic();
    let read = api.get(&ann, "/api/v1/traffic").await.json();
    let rates = read["incoming"].as_array().unwrap();
    let peers = |service: &str| -> Vec<&Value> {
        let of_service = rates.iter().filter(|rate| rate["service_name"] == service);
        of_service.map(|rate| &rate["peer"]).collect()
    };
    let at_lan = peers("Tokyo peering LAN");
    assert!(
        at_lan.contains(&&json!({ "id": "", "name": "AS64501", "asns": [64501] })),
        "{read}"
    );
    assert!(!json!(at_lan).to_string().contains("Baikal"), "{read}");
    assert_eq!(peers("transit-baikal")[0]["name"], "Baikal Telecom", "{read}");
    let account = read_account(&api, &ann).await;
    let all = api.get(&ops, &format!("/api/v1/traffic?account={account}")).await;
    assert!(!all.text().contains("\"AS64501\""), "{}", all.text());
}

async fn read_account(api: &Api, key: &str) -> String {
    let session = api.get(key, "/api/v1/session").await.json();
    session["account"]["id"].as_str().unwrap().to_owned()
}

/// Reads a collection page by page until one has items, and returns the pages that were read and the items.
async fn first_items(api: &Api, key: &str, path: &str) -> (usize, Vec<Value>) {
    let mut after = String::new();
    for pages in 1..10 {
        let page = api.get(key, &format!("{path}{after}")).await.json();
        let items = page["items"].as_array().unwrap();
        let Some(next) = page["next"].as_str().filter(|_| items.is_empty()) else {
            return (pages, items.clone());
        };
        after = format!("&after={next}");
    }
    panic!("ten pages without an item");
}

#[tokio::test]
async fn what_lies_behind_twenty_thousand_other_records_is_found_on_a_later_page() {
    let api = Api::new().await;
    let (ann, bob, ops) = (api.key("ann"), api.key("bob"), api.key("ops"));
    let service = invite(&api, &ann, &bob).await;
    let note = |object: &str| AuditEntry {
        actor: "us-0".to_owned(),
        action: "test".to_owned(),
        object: object.to_owned(),
        detail: json!({}),
    };
    let newest = api.world.engine.changes(None, 1).await.unwrap()[0].id;
    let records = (1..=20_000).map(|number| JournalRecord {
        change: newest + number,
        state: ChangeState::Accepted,
        at: UnixMillis(0),
        detail: json!({ "actor": "us-0", "operations": [], "objects": [] }),
    });
    let others = (0..20_000).map(|_| note("other"));
    let transaction = Transaction {
        journal: records.collect(),
        audit: [note("the oldest")].into_iter().chain(others).collect(),
        ..Transaction::default()
    };
    let written = api
        .world
        .handle
        .store(move |store, now| store.commit(&transaction, now));
    written.await.unwrap();
    let (pages, items) = first_items(&api, &ops, "/api/v1/audit?object=the+oldest").await;
    assert_eq!((pages, items.len()), (2, 1));
    let (pages, items) = first_items(&api, &ann, &format!("/api/v1/changes?object={service}")).await;
    assert_eq!((pages, items.len()), (2, 1));
    let (pages, items) = first_items(&api, &ops, "/api/v1/audit?object=nothing").await;
    assert_eq!((pages, items.len()), (2, 0));
}
