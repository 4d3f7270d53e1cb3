//! Sessions with route servers and rejected routes: causes in words, who sees them, and route servers that do not answer.

use millrace_ix_api::demo::{RouteServerReads, demo};
use millrace_ix_model::{Actor, Operation, Timestamp};
use serde_json::{Value, json};

use crate::support::Api;

/// Returns the identifier of the end with this address in a member's LAN.
async fn end(api: &Api, key: &str, address: &str) -> String {
    let list = api.get(key, "/api/v1/configs?limit=500").await.json();
    let ends = list["items"].as_array().unwrap();
    let has = |end: &&Value| {
        end["ips"]
            .as_array()
            .unwrap()
            .iter()
            .any(|ip| ip["address"] == address)
    };
    let found = ends.iter().find(has).unwrap_or_else(|| panic!("{list}"));
    found["id"].as_str().unwrap().to_owned()
}

async fn items(api: &Api, key: &str, end: &str, collection: &str) -> Vec<Value> {
    let answer = api.get(key, &format!("/api/v1/configs/{end}/{collection}")).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()["items"].as_array().unwrap().clone()
}

#[tokio::test]
async fn a_member_sees_its_rejected_routes_with_their_causes_in_words() {
    let api = Api::new().await;
    let ann = api.key("ann");
    let end = end(&api, &ann, "198.51.100.10").await;
    let routes = items(&api, &ann, &end, "rejected-routes").await;
    let rows: Vec<Value> = routes
        .iter()
        .map(|route| {
            let codes = route["causes"].as_array().unwrap().iter();
            let codes: Vec<&Value> = codes.map(|cause| &cause["coded"][0]["code"]).collect();
            json!([
                route["address"],
                route["prefix"],
                route["next_hop"],
                route["as_path"],
                codes
            ])
        })
        .collect();
    let expected = [
        json!([
            "198.51.100.10",
            "192.0.2.0/25",
            "198.51.100.10",
            "64500 64510",
            ["route-prefix-not-in-as-set", "route-prefix-length"]
        ]),
        json!([
            "198.51.100.10",
            "203.0.113.0/24",
            "198.51.100.10",
            "64500",
            ["route-bogon"]
        ]),
        json!([
            "2001:db8:7f::10",
            "2001:db8:beef::/48",
            "2001:db8:7f::10",
            "64500",
            ["route-cause-unknown"]
        ]),
        json!([
            "2001:db8:7f::10",
            "2001:db8:dead::/48",
            "2001:db8:7f::10",
            "64500",
            ["route-rpki-invalid"]
        ]),
    ];
    assert_eq!(rows, expected);
    let cause = &routes[1]["causes"][0];
    assert_eq!(cause["community"], "65520:2");
    assert!(
        cause["text"]
            .as_str()
            .unwrap()
            .starts_with("the prefix is a bogon"),
        "{cause}"
    );
    let unknown = &routes[2]["causes"][0];
    assert!(
        unknown["text"].as_str().unwrap().contains("64999:1101:99"),
        "{unknown}"
    );
    assert_eq!(routes[0]["server"], "rs1.ix.example");
}

#[tokio::test]
async fn a_member_sees_its_accepted_and_its_rejected_routes_with_their_states() {
    let api = Api::new().await;
    let ann = api.key("ann");
    let end = end(&api, &ann, "198.51.100.10").await;
    let routes = items(&api, &ann, &end, "route-server-routes").await;
    let rows: Vec<Value> = routes
        .iter()
        .map(|route| {
            json!([
                route["prefix"],
                route["as_path"],
                route["accepted"],
                route["rpki"],
                route["irr"],
                route["causes"].as_array().unwrap().len()
            ])
        })
        .collect();
    let expected = [
        json!(["192.0.2.0/25", "64500 64510", false, "not_found", false, 2]),
        json!(["203.0.113.0/24", "64500", true, "valid", true, 0]),
        json!(["203.0.113.0/24", "64500", false, "valid", true, 1]),
        json!(["2001:db8:beef::/48", "64500", false, "not_found", false, 1]),
        json!(["2001:db8:dead::/48", "64500", false, "not_found", false, 1]),
    ];
    assert_eq!(rows, expected);
    assert!(
        routes.iter().all(|route| route["server"] == "rs1.ix.example"),
        "{routes:?}"
    );
    assert_eq!(
        (
            &routes[0]["communities"],
            &routes[1]["communities"],
            &routes[1]["next_hop"]
        ),
        (&Value::Null, &json!([]), &json!("198.51.100.10"))
    );
    // The demonstration's other route, of another member, is in no list of this end; and nobody else reads the list.
    let bob = api.key("bob");
    let foreign = api
        .get(&bob, &format!("/api/v1/configs/{end}/route-server-routes"))
        .await;
    assert_eq!(foreign.status, 404, "{}", foreign.text());
}

#[tokio::test]
async fn a_page_of_rejected_routes_ends_where_the_next_one_begins() {
    let api = Api::new().await;
    let ann = api.key("ann");
    let end = end(&api, &ann, "198.51.100.10").await;
    let path = format!("/api/v1/configs/{end}/rejected-routes?limit=3");
    let first = api.get(&ann, &path).await.json();
    let after = first["next"].as_str().unwrap();
    let second = api.get(&ann, &format!("{path}&after={after}")).await.json();
    assert_eq!(
        (first["items"].as_array().unwrap().len(), &first["total"]),
        (3, &json!(4))
    );
    assert_eq!(
        (second["items"].as_array().unwrap().len(), &second["next"]),
        (1, &Value::Null)
    );
    assert_ne!(first["items"][2], second["items"][0]);
}

#[tokio::test]
async fn sessions_have_their_states_and_addresses_without_a_session_are_told() {
    let api = Api::new().await;
    let (ann, bob) = (api.key("ann"), api.key("bob"));
    let row = |session: &Value| {
        let names = ["address", "state", "asn", "imported", "rejected", "error"];
        Value::from(names.map(|name| session[name].clone()).to_vec())
    };
    let end_of_ann = end(&api, &ann, "198.51.100.10").await;
    let sessions = items(&api, &ann, &end_of_ann, "route-server-sessions").await;
    assert_eq!(
        sessions.iter().map(row).collect::<Vec<_>>(),
        [
            json!(["198.51.100.10", "established", 64_500, 14, 2, null]),
            json!(["2001:db8:7f::10", "established", 64_500, 6, 2, null]),
        ]
    );
    assert_eq!(
        (&sessions[0]["freshness"], &sessions[0]["failing_since"]),
        (&json!("fresh"), &Value::Null)
    );
    let end_of_bob = end(&api, &bob, "198.51.100.11").await;
    let sessions = items(&api, &bob, &end_of_bob, "route-server-sessions").await;
    assert_eq!(
        sessions.iter().map(row).collect::<Vec<_>>(),
        [
            json!(["198.51.100.11", "idle", 64_501, null, 0, "BGP Error: Bad peer AS"]),
            json!(["2001:db8:7f::11", "absent", null, null, 0, null]),
        ]
    );
    assert!(items(&api, &bob, &end_of_bob, "rejected-routes").await.is_empty());
}

#[tokio::test]
async fn other_members_get_the_answer_for_an_absent_end_and_operators_see_all() {
    let api = Api::new().await;
    let (ann, bob, noc) = (api.key("ann"), api.key("bob"), api.key("noc"));
    let end = end(&api, &ann, "198.51.100.10").await;
    for collection in ["route-server-sessions", "rejected-routes", "route-server-routes"] {
        let of = |end: &str| format!("/api/v1/configs/{end}/{collection}");
        let foreign = api.get(&bob, &of(&end)).await;
        let absent = api.get(&bob, &of("nc-999999")).await;
        assert_eq!(foreign.status, 404);
        assert_eq!(
            foreign.text().replace(&end, "ID"),
            absent.text().replace("nc-999999", "ID")
        );
        assert_eq!(
            api.get(&noc, &of(&end)).await.json()["total"],
            api.get(&ann, &of(&end)).await.json()["total"]
        );
    }
}

#[tokio::test]
async fn a_route_server_that_does_not_answer_keeps_its_last_routes_and_says_since_when() {
    let api = Api::new().await;
    let (ann, noc) = (api.key("ann"), api.key("noc"));
    let end = end(&api, &ann, "198.51.100.10").await;
    api.read_route_server(RouteServerReads::Fail);
    let sessions = items(&api, &ann, &end, "route-server-sessions").await;
    assert_eq!(
        (&sessions[0]["freshness"], &sessions[0]["state"]),
        (&json!("stale"), &json!("established"))
    );
    let time = |session: &Value, name: &str| session[name].as_str().unwrap().to_owned();
    assert!(time(&sessions[0], "read_at") < time(&sessions[0], "failing_since"));
    assert_eq!(items(&api, &ann, &end, "rejected-routes").await.len(), 4);
    // The error contains file paths of the exchange's machines, so only the staff sees it.
    assert_eq!(sessions[0]["failure"], Value::Null);
    let seen = items(&api, &noc, &end, "route-server-sessions").await;
    assert!(time(&seen[0], "failure").contains("/run/bird/rs1.ctl"));
    api.read_route_server(RouteServerReads::NeverSucceeded);
    let sessions = items(&api, &ann, &end, "route-server-sessions").await;
    assert_eq!(
        (&sessions[0]["freshness"], &sessions[0]["state"]),
        (&json!("unreachable"), &json!("unknown"))
    );
    assert_eq!(sessions[0]["read_at"], Value::Null);
    assert!(items(&api, &ann, &end, "rejected-routes").await.is_empty());
}

#[tokio::test]
async fn a_lan_without_route_servers_that_are_read_and_an_end_of_a_path_have_empty_lists() {
    let api = Api::with(|settings| settings.route_servers[0].control = None).await;
    let ann = api.key("ann");
    let lan = end(&api, &ann, "198.51.100.10").await;
    let all = api.get(&ann, "/api/v1/configs?limit=500").await.json();
    let path = all["items"]
        .as_array()
        .unwrap()
        .iter()
        .find(|end| end["id"] != lan.as_str() && end["own"] == true);
    let path = path.unwrap()["id"].as_str().unwrap().to_owned();
    for end in [lan, path] {
        assert!(items(&api, &ann, &end, "route-server-sessions").await.is_empty());
        assert!(items(&api, &ann, &end, "rejected-routes").await.is_empty());
    }
}

#[tokio::test]
async fn the_session_of_the_member_that_had_the_address_before_is_not_shown() {
    let mut exchange = demo().unwrap();
    let account = exchange
        .accounts
        .iter()
        .find(|(_, account)| account.asns.contains(&64_500));
    let change = Operation::UpdateAccount {
        account: *account.unwrap().0,
        name: None,
        asns: Some([64_777].into()),
        discoverable: None,
        as_set: None,
        limits: None,
    };
    exchange
        .apply(&Actor::system(), Timestamp::from_secs(1_795_480_000), change)
        .unwrap();
    let api = Api::over(exchange).await;
    let ann = api.key("ann");
    let end = end(&api, &ann, "198.51.100.10").await;
    let sessions = items(&api, &ann, &end, "route-server-sessions").await;
    assert_eq!(
        (&sessions[0]["state"], &sessions[0]["rejected"]),
        (&json!("absent"), &json!(0))
    );
    assert!(items(&api, &ann, &end, "rejected-routes").await.is_empty());
}
