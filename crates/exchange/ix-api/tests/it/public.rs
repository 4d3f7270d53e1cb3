//! Answers for everybody: the looking glass; and the peering matrix, of which everybody reads a part.

use millrace_ix_api::demo::demo;
use millrace_ix_model::{Actor, Operation, Timestamp};
use serde_json::json;

use crate::support::Api;

/// Returns the exchange of the demonstrations in which a member does not want to be found.
async fn with_hidden(name: &str) -> Api {
    let mut exchange = demo().unwrap();
    let (account, _) = exchange
        .accounts
        .iter()
        .find(|(_, account)| account.name == name)
        .unwrap();
    let hide = Operation::UpdateAccount {
        account: *account,
        name: None,
        asns: None,
        discoverable: Some(false),
        as_set: None,
        limits: None,
    };
    let now = Timestamp::from_secs(1_795_470_000);
    exchange.apply(&Actor::system(), now, hide).unwrap();
    Api::over(exchange).await
}

#[tokio::test]
async fn the_matrix_shows_the_staff_all_pairs_and_a_member_its_own_with_both_families_apart() {
    let api = Api::new().await;
    let (ops, ann, reg) = (api.key("ops"), api.key("ann"), api.key("reg"));
    api.measure_traffic();
    let all = api.get(&ops, "/api/v1/matrix").await.json();
    let mine = api.get(&ann, "/api/v1/matrix").await.json();
    let (all, mine) = (
        all["pairs"].as_array().unwrap().clone(),
        mine["pairs"].as_array().unwrap().clone(),
    );
    assert!(!mine.is_empty() && mine.len() < all.len());
    for pair in &mine {
        let names = [&pair["from"]["name"], &pair["to"]["name"]];
        assert!(names.contains(&&json!("Aoba Networks")), "{pair}");
        let (v4, v6) = (
            pair["ipv4_bits_per_s"].as_u64().unwrap(),
            pair["ipv6_bits_per_s"].as_u64().unwrap(),
        );
        // Both are rounded down to bit/s.
        assert!(
            v4.abs_diff(3 * v6) <= 3,
            "a quarter of the demo's traffic is IPv6: {pair}"
        );
    }
    assert!(mine.iter().any(|pair| !pair["bgp_seen"].is_null()));
    assert_eq!(api.get(&reg, "/api/v1/matrix").await.status, 403);
}

#[tokio::test]
async fn the_looking_glass_shows_sessions_and_causes_and_no_identifier_to_everybody() {
    let api = Api::new().await;
    let glass = api.get("", "/api/v1/looking-glass").await;
    assert_eq!(glass.status, 200);
    let text = glass.text();
    let server = glass.json()["route_servers"][0].clone();
    assert_eq!(server["name"], "rs1.ix.example");
    let sessions = server["sessions"].as_array().unwrap();
    assert!(!sessions.is_empty(), "{text}");
    for pattern in ["cn-", "sv-", "sw-", "nc-", "mc-", "ac-", "/run/"] {
        assert!(!text.contains(&format!("\"{pattern}")), "{pattern}: {text}");
    }
}

#[tokio::test]
async fn the_looking_glass_finds_the_routes_to_an_address_with_rpki_and_registry() {
    let api = Api::new().await;
    let routes = |prefix: &str| format!("/api/v1/looking-glass/routes?prefix={prefix}");
    let valid = api.get("", &routes("203.0.113.7")).await.json();
    assert_eq!(valid["routes"].as_array().unwrap().len(), 1, "{valid}");
    let route = &valid["routes"][0];
    assert_eq!(
        (&route["prefix"], &route["member"]),
        (&json!("203.0.113.0/24"), &json!("Aoba Networks"))
    );
    assert_eq!((&route["rpki"], &route["irr"]), (&json!("valid"), &json!(true)));
    let own = api.get("", &routes("203.0.113.200")).await.json();
    assert_eq!(own["routes"].as_array().unwrap().len(), 1, "{own}");
    assert_eq!(
        own["routes"][0]["prefix"], "203.0.113.0/24",
        "what a member announces to the exchange alone is not public"
    );
    let invalid = api.get("", &routes("198.18.0.0/24")).await.json();
    assert_eq!(invalid["routes"][0]["rpki"], "invalid", "{invalid}");
    assert_eq!(
        api.get("", &routes("100.64.0.1")).await.json()["routes"],
        json!([])
    );
    assert_eq!(api.get("", &routes("x")).await.status, 400);
}

#[tokio::test]
async fn who_does_not_want_to_be_found_is_not_in_the_looking_glass() {
    let api = with_hidden("Aoba Networks").await;
    let glass = api.get("", "/api/v1/looking-glass").await.text();
    for hidden in [
        "Aoba",
        "64500",
        "198.51.100.10",
        "2001:db8:7f::10",
        "2001:db8:dead",
    ] {
        assert!(!glass.contains(hidden), "{hidden}: {glass}");
    }
    assert!(glass.contains("Baikal Telecom"), "{glass}");
    let routes = api
        .get("", "/api/v1/looking-glass/routes?prefix=203.0.113.7")
        .await
        .json();
    assert_eq!(routes["routes"], json!([]), "{routes}");
    api.measure_traffic();
    let matrix = api.get(&api.key("bob"), "/api/v1/matrix").await.json();
    let at_lan = matrix["pairs"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|pair| pair["service_name"] == "Tokyo peering LAN");
    let at_lan: Vec<_> = at_lan.collect();
    assert!(!at_lan.is_empty(), "{matrix}");
    assert!(!json!(at_lan).to_string().contains("Aoba"), "{matrix}");
}
