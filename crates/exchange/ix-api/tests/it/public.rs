//! Answers for everybody: the looking glass; and the peering matrix, of which everybody reads a part.

use axum::http::Method;
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
async fn pages_of_other_sites_read_what_everybody_may_read_and_nothing_else() {
    let api = Api::new().await;
    let foreign = [
        ("sec-fetch-site", "cross-site"),
        ("origin", "https://other.example"),
    ];
    for path in [
        "/api/v1/status",
        "/api/v1/status.ics",
        "/api/v1/exports/euro-ix.json",
        "/api/v1/looking-glass/routes?prefix=203.0.113.7",
        "/api/v1/openapi.json",
        "/api/v2/health",
    ] {
        for method in [Method::GET, Method::HEAD] {
            let answer = api.send(method.clone(), path, "", &foreign, None).await;
            assert_eq!(answer.status, 200, "{method} {path}");
            assert_eq!(answer.headers["access-control-allow-origin"], "*", "{path}");
            assert_eq!(
                answer.headers["cross-origin-resource-policy"], "cross-origin",
                "{path}"
            );
        }
    }
    let ann = api.key("ann");
    for (method, path, key, body) in [
        (Method::GET, "/api/v1/session", "", None),
        (Method::GET, "/api/v1/services", ann.as_str(), None),
        (Method::GET, "/api/v2/connections", ann.as_str(), None),
        (Method::GET, "/api/v1/nothing", "", None),
        (Method::POST, "/api/v1/letters", "", Some(json!({ "code": "x" }))),
        (
            Method::POST,
            "/api/v1/session/forgotten",
            "",
            Some(json!({ "name": "ann" })),
        ),
    ] {
        let answer = api.send(method, path, key, &foreign, body).await;
        assert_eq!(answer.status, 403, "{path}: {}", answer.text());
        assert!(
            !answer.headers.contains_key("access-control-allow-origin"),
            "{path}"
        );
        assert_eq!(
            answer.headers["cross-origin-resource-policy"], "same-origin",
            "{path}"
        );
    }
}

#[tokio::test]
async fn documents_for_everybody_are_kept_for_a_minute_and_validated() {
    let api = Api::new().await;
    let (ops, mut tags) = (api.key("ops"), Vec::new());
    let now = api.world.engine.now();
    let incident = json!({ "kind": "incident", "title": "Fibre cut", "begins": now, "public": true });
    for changes in [false, true] {
        for path in ["status.ics", "status.atom", "exports/euro-ix.json"] {
            let path = format!("/api/v1/{path}");
            let answer = api.get("", &path).await;
            assert_eq!(answer.headers["cache-control"], "public, max-age=60", "{path}");
            let tag = answer.etag();
            let headers = [("if-none-match", tag.as_str())];
            let same = api.send(Method::GET, &path, "", &headers, None).await;
            assert_eq!((same.status, same.text().as_str()), (304, ""), "{path}");
            assert_eq!(same.etag(), tag);
            if changes {
                let is_new = !tags.contains(&tag);
                assert_eq!(is_new, path.contains("status"), "{path}");
            }
            tags.push(tag);
        }
        let told = api
            .send(Method::POST, "/api/v1/notices", &ops, &[], Some(incident.clone()))
            .await;
        assert_eq!(told.status, 201, "{}", told.text());
    }
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
    let order = |session: &serde_json::Value| {
        let address: std::net::IpAddr = session["address"].as_str().unwrap().parse().unwrap();
        (session["asn"].as_u64(), address)
    };
    assert!(sessions.is_sorted_by_key(order), "{text}");
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
