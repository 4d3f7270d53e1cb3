//! IX-API: from the first order to production, tokens, and the same confidentiality as in the native API.

mod access;
mod circuits;
mod ends;
mod lan;

use axum::http::Method;
use millrace_ix_api::demo::demo;
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

/// Sends what was read of an object back by PUT, without properties of answers, and expects the same object again.
async fn write_back(api: &Api, key: &str, path: &str, status: u16, only_read: &[&str]) {
    let read = async || {
        let mut found = get(api, key, path).await.json();
        // The facts of a state have the time of the answer.
        found.as_object_mut().unwrap().remove("status");
        found
    };
    let before = read().await;
    let mut body = before.clone();
    for name in only_read {
        body.as_object_mut().unwrap().remove(*name);
    }
    let url = format!("/api/v2{path}");
    let answer = api.send(Method::PUT, &url, key, &[], Some(body)).await;
    assert_eq!(answer.status, status, "{path}: {}", answer.text());
    assert_eq!(read().await, before);
}

/// Expects that a change is refused because of a property.
async fn refused(api: &Api, key: &str, path: &str, body: Value, property: &str) {
    let answer = patch(api, key, path, body).await;
    assert_eq!(
        (answer.status, &answer.json()["properties"][0]["name"]),
        (400, &json!(property)),
        "{path}: {}",
        answer.text()
    );
}

/// Returns the identifier of an object that was created.
fn id(answer: &Answer) -> String {
    assert_eq!(answer.status, 201, "{}", answer.text());
    answer.json()["id"].as_str().unwrap().to_owned()
}

fn owned(account: &str) -> Value {
    json!({ "managing_account": account, "consuming_account": account })
}

fn billed(account: &str) -> Value {
    with(
        owned(account),
        json!({ "billing_account": account, "role_assignments": [] }),
    )
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

/// Returns the exchange of the demonstrations with a peering LAN.
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
