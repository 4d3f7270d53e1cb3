//! Graphs, figures and the public status: whose values they show, and to whom.

use millrace_ix_api::demo::demo;
use millrace_ix_series::{Month, TimeZone};
use serde_json::Value;

use crate::support::Api;

/// Returns the own connection of a user.
async fn connection(api: &Api, key: &str) -> String {
    let list = api.get(key, "/api/v1/connections").await.json();
    list["items"][0]["id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_graph_has_as_many_averages_peaks_and_coverages_as_its_period_has_points() {
    let api = Api::new().await;
    api.world.record_series().unwrap();
    let ann = api.key("ann");
    let id = connection(&api, &ann).await;
    for (period, len, step) in [
        ("day", 288, 300),
        ("week", 336, 1800),
        ("month", 372, 7200),
        ("year", 365, 86_400),
    ] {
        let graph = api
            .get(&ann, &format!("/api/v1/series/connections/{id}?period={period}"))
            .await
            .json();
        assert_eq!(
            (&graph["measured"], &graph["step_seconds"]),
            (&Value::Bool(true), &step.into()),
            "{period}"
        );
        let measures: Vec<&str> = graph["lines"]
            .as_array()
            .unwrap()
            .iter()
            .map(|line| line["measure"].as_str().unwrap())
            .collect();
        assert_eq!(
            measures,
            ["in", "out", "in_ipv4", "in_ipv6", "out_ipv4", "out_ipv6"]
        );
        for line in graph["lines"].as_array().unwrap() {
            for list in ["average", "peak", "coverage"] {
                assert_eq!(line[list].as_array().unwrap().len(), len, "{period} {list}");
            }
            assert_eq!(line["object"], id);
        }
    }
    let wrong = api
        .get(&ann, &format!("/api/v1/series/connections/{id}?period=decade"))
        .await;
    assert_eq!(wrong.status, 400);
}

#[tokio::test]
async fn a_member_reads_its_own_ends_of_a_lan_and_the_operator_all() {
    let api = Api::new().await;
    api.world.record_series().unwrap();
    let (ann, ops) = (api.key("ann"), api.key("ops"));
    let exchange = demo().unwrap();
    let lan = exchange
        .services
        .iter()
        .find(|(_, service)| service.kind == millrace_ix_model::ServiceKind::ExchangeLan)
        .unwrap()
        .0
        .to_string();
    let lines = async |key: &str, query: &str| -> Vec<String> {
        let graph = api
            .get(key, &format!("/api/v1/series/services/{lan}{query}"))
            .await
            .json();
        let lines = graph["lines"].as_array().unwrap().iter();
        lines
            .map(|line| line["object"].as_str().unwrap().to_owned())
            .collect()
    };
    let (own, all) = (lines(&ann, "").await, lines(&ops, "").await);
    assert!(!own.is_empty() && own.len() < all.len(), "{own:?} {all:?}");
    let of_one = format!("?end={}", own[0]);
    assert_eq!(
        lines(&ann, &of_one).await,
        [own[0].as_str(); 2],
        "both directions"
    );
    assert_eq!(lines(&ops, &of_one).await, [own[0].as_str(); 2]);
    let foreign = all.iter().find(|end| !own.contains(end)).unwrap();
    for end in [foreign.as_str(), "nc-999999", "x"] {
        assert_eq!(lines(&ann, &format!("?end={end}")).await, [""; 0], "{end}");
    }
    for end in own {
        let config = exchange.configs[&end.parse().unwrap()].clone();
        let account = &exchange.accounts[&config.account];
        assert!(
            account.asns.contains(&64500),
            "{end} is an end of {}",
            account.name
        );
    }
}

#[tokio::test]
async fn figures_are_of_own_connections_and_the_csv_has_the_same() {
    let api = Api::new().await;
    api.world.record_series().unwrap();
    let (bil, ops) = (api.key("bil"), api.key("ops"));
    let now = api.world.engine.now().millis() / 1000;
    // The second before the first one of this month.
    let month = Month::of(
        Month::of(now, &TimeZone::UTC).start(&TimeZone::UTC) - 1,
        &TimeZone::UTC,
    );
    let own = api
        .get(&bil, &format!("/api/v1/billing?month={month}"))
        .await
        .json();
    let rows = own["rows"].as_array().unwrap();
    assert!(!rows.is_empty() && own["frozen"] == true);
    let accounts: std::collections::BTreeSet<&str> =
        rows.iter().map(|row| row["account"].as_str().unwrap()).collect();
    assert_eq!(accounts.len(), 1);
    for row in rows {
        let greater = row["in_bps"].as_u64().max(row["out_bps"].as_u64());
        assert_eq!(row["billed_bps"].as_u64(), greater);
        assert_eq!(row["billable"], row["coverage"].as_f64().unwrap() >= 0.98);
    }
    let all = api
        .get(&ops, &format!("/api/v1/billing?month={month}"))
        .await
        .json();
    assert!(all["rows"].as_array().unwrap().len() > rows.len());
    let csv = api
        .get(&bil, &format!("/api/v1/billing.csv?month={month}"))
        .await
        .text();
    let csv = csv.strip_prefix('\u{feff}').expect("a byte order mark");
    assert!(csv.starts_with("month,frozen,"), "{csv}");
    let lines: Vec<&str> = csv.split("\r\n").collect();
    assert_eq!(lines.len(), rows.len() + 2, "{csv}");
    for (line, row) in lines[1..].iter().zip(rows) {
        let begin = format!("{month},true,{},", row["account"].as_str().unwrap());
        assert!(
            line.starts_with(&begin) && line.contains(&format!(",{},", row["billed_bps"])),
            "{line}"
        );
    }
    for wrong in ["2026-13", "11-2026", "x"] {
        let answer = api.get(&bil, &format!("/api/v1/billing?month={wrong}")).await;
        assert_eq!(answer.status, 422, "{wrong}: {}", answer.text());
    }
}

#[tokio::test]
async fn the_public_traffic_has_no_identifier_and_no_name_of_a_member_or_a_switch() {
    let api = Api::new().await;
    api.world.record_series().unwrap();
    let answer = api.get("", "/api/v1/status/traffic").await;
    assert_eq!(answer.status, 200);
    let (text, found) = (answer.text(), answer.json());
    let links = found["links"].as_array().unwrap();
    assert!(!links.is_empty(), "{found}");
    for link in links {
        let state = link["state"].as_str().unwrap();
        assert!(["ok", "degraded", "down"].contains(&state), "{link}");
        assert!(link["round_trip_us"].is_u64(), "{link}");
    }
    let lines = found["traffic"]["lines"].as_array().unwrap();
    assert_eq!(lines.len(), 6, "both directions, and both by IP version");
    let exchange = demo().unwrap();
    for id in exchange.ids() {
        assert!(!text.contains(&format!("\"{id}\"")), "{id}");
    }
    let members = exchange
        .accounts
        .values()
        .filter(|account| account.kind != millrace_ix_model::AccountKind::Exchange);
    let switches = exchange.switches.values().map(|switch| &switch.name);
    for name in members.map(|account| &account.name).chain(switches) {
        assert!(!text.contains(&format!("\"{name}\"")), "{name}");
    }
}

#[tokio::test]
async fn the_audit_chain_has_each_look_of_the_staff_at_the_traffic_of_a_member() {
    let api = Api::new().await;
    api.world.record_series().unwrap();
    let (ann, bil, ops) = (api.key("ann"), api.key("bil"), api.key("ops"));
    let id = connection(&api, &ann).await;
    let account = api.get(&bil, "/api/v1/billing").await.json()["rows"][0]["account"].clone();
    let graph = format!("/api/v1/series/connections/{id}");
    let peers = format!("/api/v1/series/peers?account={}", account.as_str().unwrap());
    for key in [&ann, &ops] {
        assert_eq!(api.get(key, &graph).await.status, 200);
    }
    assert_eq!(api.get(&ann, "/api/v1/series/peers").await.status, 200);
    assert_eq!(api.get(&ops, &peers).await.status, 200);
    assert_eq!(api.get(&ops, "/api/v1/billing.csv").await.status, 200);
    let audit = api.get(&ops, "/api/v1/audit").await.json();
    let entries = audit["items"].as_array().unwrap().iter();
    let reads = entries.filter(|entry| ["read", "read_traffic"].contains(&entry["action"].as_str().unwrap()));
    let mut reads: Vec<_> = reads
        .map(|entry| ["actor", "action", "object"].map(|name| entry[name].as_str().unwrap().to_owned()))
        .collect();
    reads.sort();
    let by_ops = |action: &str, object: &str| ["ops", action, object].map(str::to_owned);
    let expected = [
        by_ops("read", &id),
        by_ops("read_traffic", ""),
        by_ops("read_traffic", account.as_str().unwrap()),
    ];
    assert_eq!(reads, expected);
}
