//! Dry runs say in words which frames take other ways, although changes are not verified; and to a member nothing that it may not
//! read.

use axum::http::Method;
use millrace_ix_model::{AccountId, ServiceKind};
use serde_json::{Value, json};

use crate::support::Api;

/// Returns the effects of a dry run.
async fn effects(api: &Api, user: &str, method: Method, path: &str, body: Value) -> Vec<String> {
    let path = format!("{path}?dry_run=true");
    let answer = api
        .send(method, &path, &api.key(user), &[("if-match", "*")], Some(body))
        .await;
    assert_eq!(answer.status, 200, "{path}: {}", answer.text());
    let told = answer.json()["effects"].clone();
    told.as_array()
        .unwrap()
        .iter()
        .map(|effect| effect.as_str().unwrap().to_owned())
        .collect()
}

/// Returns true if a word of a text is an identifier, such as `cn-3`.
fn has_identifier(text: &str) -> bool {
    let words = text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '-');
    let mut pairs = words.filter_map(|word| word.split_once('-'));
    pairs.any(|(kind, number)| {
        [
            "ac", "cn", "sv", "nc", "fi", "sw", "tr", "mc", "ip", "st", "us", "sk", "po", "ch",
        ]
        .contains(&kind)
            && number.parse::<u32>().is_ok()
    })
}

/// Returns the names and addresses that only other accounts and staff may read.
fn secrets(api: &Api, own: AccountId) -> Vec<String> {
    let exchange = api.exchange();
    let connections = exchange.connections.values();
    let connections = connections.filter(|connection| connection.account != own);
    let macs = exchange.macs.values().filter(|mac| {
        let end = exchange.configs.get(&mac.config);
        end.is_none_or(|end| end.account != own)
    });
    connections
        .map(|connection| connection.name.clone())
        .chain(macs.map(|mac| mac.address.to_string()))
        .collect()
}

#[tokio::test]
async fn a_dry_run_tells_a_member_its_frames_and_nothing_of_others() {
    let api = Api::new().await;
    api.world.settle().await.unwrap();
    let exchange = api.exchange();
    let own = exchange.users[&api.user("ann")].account;
    let secrets = secrets(&api, own);
    let mut told = Vec::new();
    let circuits = exchange.services.iter().filter(|(_, service)| {
        service.account == own && service.kind == ServiceKind::P2pVc && service.state.is_carried()
    });
    for (id, _) in circuits {
        told.extend(
            effects(
                &api,
                "ann",
                Method::DELETE,
                &format!("/api/v1/services/{id}"),
                Value::Null,
            )
            .await,
        );
    }
    assert!(!told.is_empty(), "the deletion of a circuit in use stops frames");
    let filter = json!({ "account": own, "destination": "203.0.113.9", "protocol": 17, "source_ports": [{ "first": 123, "last": 123 }],
        "action": "drop" });
    let filtered = effects(&api, "ann", Method::POST, "/api/v1/filters", filter.clone()).await;
    assert!(
        filtered.iter().any(|text| text.contains("203.0.113.9")
            && text.contains("from port 123")
            && text.contains("after, they are dropped by the filter for 203.0.113.9/32")),
        "{filtered:#?}"
    );
    let ends = exchange.configs.iter().filter(|(_, end)| {
        let service = &exchange.services[&end.service];
        end.account == own && service.kind == ServiceKind::ExchangeLan && !end.shut_down
    });
    for (id, _) in ends {
        let path = format!("/api/v1/configs/{id}/shut-down");
        told.extend(effects(&api, "ann", Method::PUT, &path, json!({ "shut_down": true })).await);
    }
    told.extend(filtered);
    for text in &told {
        assert!(!has_identifier(text), "{text}");
        let found = secrets.iter().find(|secret| text.contains(secret.as_str()));
        assert_eq!(found, None, "{text}");
    }
    assert!(
        told.iter().any(|text| text.contains("leave at the end of ")),
        "another member's end is its account and its site: {told:#?}"
    );
    // Staff read the names of all ends.
    let all = effects(&api, "ops", Method::POST, "/api/v1/filters", filter).await;
    assert!(
        all.iter()
            .any(|text| secrets.iter().any(|secret| text.contains(secret))),
        "{all:#?}"
    );
}

#[tokio::test]
async fn a_dry_run_names_the_filters_that_a_new_one_repeats_hides_or_contradicts() {
    let api = Api::new().await;
    let (ann, own) = (api.key("ann"), api.exchange().users[&api.user("ann")].account);
    let filter = |destination: &str, action: &str| json!({ "account": own, "destination": destination, "protocol": 17, "action": action });
    let path = "/api/v1/filters";
    let first = filter("203.0.113.64/28", "drop");
    let made = api.send(Method::POST, path, &ann, &[], Some(first.clone())).await;
    assert_eq!(made.status, 201, "{}", made.text());
    let id = made.json()["created"][0].clone();
    for (body, relation) in [
        (first, Some("identical")),
        (filter("203.0.113.65", "drop"), Some("shadowed")),
        (filter("203.0.113.64/27", "drop"), None),
        (filter("203.0.113.64/27", "shape"), Some("overlapping")),
        (filter("203.0.113.128/28", "drop"), None),
    ] {
        let answer = api
            .send(
                Method::POST,
                &format!("{path}?dry_run=true"),
                &ann,
                &[],
                Some(body.clone()),
            )
            .await;
        assert_eq!(answer.status, 200, "{body}: {}", answer.text());
        let all = answer.json()["conflicts"].clone();
        let with_first = all
            .as_array()
            .unwrap()
            .iter()
            .find(|conflict| conflict["filter"] == id);
        assert_eq!(
            with_first.map(|conflict| conflict["relation"].as_str().unwrap()),
            relation,
            "{body}: {all}"
        );
        if let Some(conflict) = with_first {
            let text = conflict["text"].as_str().unwrap();
            assert!(
                text.contains("the filter of packets to 203.0.113.64/28") && !has_identifier(text),
                "{conflict}"
            );
        }
    }
}

#[test]
fn identifiers_are_found_in_sentences() {
    assert!(has_identifier("are dropped by filter fi-3 of Aoba"));
    assert!(!has_identifier("IPv4 from Aoba 10G-1, VLAN 100 at otemachi-1"));
}
