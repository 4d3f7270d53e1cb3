//! Misspelt properties and parameters, as a client sees them.

use axum::http::Method;
use serde_json::json;

use crate::support::Api;

#[tokio::test]
async fn a_misspelt_property_is_refused_with_the_name_that_was_meant() {
    let api = Api::new().await;
    let key = api.key("ann");
    let order = json!({ "destination": "203.0.113.7/32", "action": "drop", "minuts": 5 });
    let answer = api
        .send(Method::POST, "/api/v1/filters", &key, &[], Some(order))
        .await;
    let problem = answer.json();
    assert_eq!(answer.status, 422, "{problem}");
    assert_eq!(problem["errors"][0]["pointer"], "/minuts");
    assert_eq!(problem["errors"][0]["code"], "unknown_property");
    assert_eq!(problem["coded"][0]["code"], "property-misspelt");
    assert_eq!(
        problem["detail"],
        "the request has no `minuts`: did you mean `minutes`?"
    );
    let nested = json!({ "destination": "203.0.113.7/32", "action": "drop", "protocol": 17,
        "source_ports": [{ "first": 1, "last": 2, "colour": 3 }] });
    let problem = api
        .send(Method::POST, "/api/v1/filters", &key, &[], Some(nested))
        .await
        .json();
    assert_eq!(problem["errors"][0]["pointer"], "/source_ports/0/colour");
    let detail = problem["detail"].as_str().unwrap();
    assert!(detail.ends_with("expected one of first, last"), "{detail}");
}

#[tokio::test]
async fn a_variant_has_its_own_properties_only() {
    let api = Api::new().await;
    let key = api.key("ann");
    let order =
        |vlan: serde_json::Value| json!({ "name": "x", "end": { "connection": "cn-1", "vlan": vlan } });
    let problem = api
        .send(
            Method::POST,
            "/api/v1/services",
            &key,
            &[],
            Some(order(json!({ "type": "port", "vlan": 7 }))),
        )
        .await
        .json();
    assert_eq!(problem["errors"][0]["pointer"], "/end/vlan/vlan", "{problem}");
}

#[tokio::test]
async fn ix_api_refuses_a_misspelt_property_in_its_own_words() {
    let api = Api::new().await;
    let key = api.key("ann");
    let order = json!({ "address": "02:00:00:00:00:07", "managing_account": "ac-3", "consuming_account": "ac-3",
        "valid_not_befor": "2026-12-01T09:00:00Z" });
    let answer = api
        .send(Method::POST, "/api/v2/macs", &key, &[], Some(order))
        .await;
    let problem = answer.json();
    assert_eq!(answer.status, 400, "{problem}");
    assert_eq!(problem["properties"][0]["name"], "valid_not_befor");
    assert!(
        problem["detail"].as_str().unwrap().contains("`valid_not_before`"),
        "{problem}"
    );
}

#[tokio::test]
async fn a_misspelt_parameter_of_a_query_is_refused_by_name() {
    let api = Api::new().await;
    let key = api.key("ann");
    for (path, expected) in [
        ("/api/v1/services?limt=5", "`limit`"),
        ("/api/v1/services?colour=red", "expected one of"),
        ("/api/v1/session?colour=red", "expected none there"),
    ] {
        let answer = api.get(&key, path).await;
        let problem = answer.json();
        assert_eq!(answer.status, 400, "{path} {problem}");
        assert!(
            problem["detail"].as_str().unwrap().contains(expected),
            "{path} {problem}"
        );
    }
    // A misspelt dry run must not become an order.
    let order = json!({ "destination": "203.0.113.7/32", "action": "drop" });
    let answer = api
        .send(
            Method::POST,
            "/api/v1/filters?dry-run=true",
            &key,
            &[],
            Some(order),
        )
        .await;
    assert_eq!(answer.status, 400, "{}", answer.text());
    // IX-API ignores parameters that a server does not know.
    assert_eq!(api.get(&key, "/api/v2/connections?colour=red").await.status, 200);
}
