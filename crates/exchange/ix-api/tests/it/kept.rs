//! Records of accounts at the exchange, in the operator's text: contacts with roles, joining rules, sessions with route servers.

use millrace_ix_model::Actor;
use millrace_ix_service::text::Document;
use millrace_ix_service::{ApplyOptions, OrderOptions};
use millrace_ix_store::Revision;
use serde_json::{Value, json};

use crate::desk::post;
use crate::support::Api;

/// Returns the text of an exchange.
fn exported(api: &Api) -> Document {
    let snapshot = api.world.engine.snapshot();
    Document::exported(&snapshot.exchange, Revision(snapshot.revision)).with_kept(api.app.kept())
}

/// Applies a text as `millrace-ix apply` does. Returns the numbers of records that were added and removed.
async fn apply(api: &Api, text: &Document, overwrite: bool) -> Result<(usize, usize), String> {
    api.app.check_kept(text, overwrite)?;
    let how = ApplyOptions {
        overwrite,
        deletions_max: 100,
    };
    let ordered = api
        .world
        .handle
        .apply(text.clone(), how, Actor::system(), OrderOptions::default())
        .await;
    ordered.map_err(|error| error.to_string())?;
    api.world.settle().await.unwrap();
    let changes = api.app.apply_kept(text, false).await?;
    Ok((changes.added, changes.removed))
}

/// Returns the text after it was written as TOML and read again, with a change.
fn changed(text: &Document, change: impl FnOnce(&mut Value)) -> Document {
    let written = toml::to_string_pretty(text).unwrap();
    let mut value = serde_json::to_value(toml::from_str::<Document>(&written).unwrap()).unwrap();
    change(&mut value);
    serde_json::from_value(value).unwrap()
}

/// Returns an exchange whose members keep one thing of each kind.
async fn kept() -> Api {
    let api = Api::new().await;
    let ann = api.key("ann");
    let desk = json!({ "name": "Desk", "email": "desk@aoba.example", "telephone": "+81 3 1234", "roles": ["noc", "peering"] });
    assert_eq!(post(&api, &ann, "/api/v1/contacts", desk).await.status, 201);
    let accounts = api.get(&ann, "/api/v1/accounts").await.json();
    let mut all = accounts["items"].as_array().unwrap().iter();
    let baikal = all.find(|account| account["name"] == "Baikal Telecom").unwrap()["id"].clone();
    let connection = api.get(&ann, "/api/v1/connections").await.json()["items"][0]["id"].clone();
    let group = json!({ "name": "storage", "members": [baikal], "end": {
        "connection": connection, "vlan": { "type": "dot1q", "vlan": 910 }, "capacity_mbps": 10 } });
    assert_eq!(post(&api, &ann, "/api/v1/groups", group).await.status, 201);
    let configs = api.get(&ann, "/api/v2/network-service-configs").await.json();
    let mut all = configs.as_array().unwrap().iter();
    let end = all.find(|config| config["type"] == "exchange_lan").unwrap();
    let features = api.get(&ann, "/api/v2/network-features").await.json();
    let session = json!({ "type": "route_server", "managing_account": end["managing_account"],
        "consuming_account": end["consuming_account"], "billing_account": end["consuming_account"],
        "network_feature": features[0]["id"], "network_service_config": end["id"], "asn": 64500,
        "as_set_v4": "AS-AOBA@RIPE", "max_prefix_v4": 100, "session_mode": "public", "bgp_session_type": "passive",
        "ip": end["ips"][0], "password": "hidden" });
    let made = post(&api, &ann, "/api/v2/network-feature-configs", session).await;
    assert_eq!(made.status, 201, "{}", made.text());
    api
}

#[tokio::test]
async fn what_accounts_keep_is_exported_and_applied_to_another_exchange_once() {
    let api = kept().await;
    let text = exported(&api);
    let written = toml::to_string_pretty(&text).unwrap();
    for part in [
        "[[contact]]",
        "[[joining_rule]]",
        "[[route_server_session]]",
        "desk@aoba.example",
        "AS-AOBA@RIPE",
    ] {
        assert!(written.contains(part), "{part}: {written}");
    }
    assert!(!written.contains("hidden"), "a password is in no text");
    let read: Document = toml::from_str(&written).unwrap();
    assert_eq!(read, text);
    assert_eq!(apply(&api, &read, false).await, Ok((0, 0)), "nothing differs");

    let other = Api::new().await;
    assert_eq!(apply(&other, &read, true).await, Ok((3, 0)));
    assert_eq!(other.app.kept(), api.app.kept());
    assert_eq!(apply(&other, &read, true).await, Ok((0, 0)), "a second time");
    let contacts = other.get(&other.key("ann"), "/api/v1/contacts").await.json();
    assert_eq!(
        contacts["items"][0]["roles"],
        json!(["noc", "peering"]),
        "{contacts}"
    );
}

#[tokio::test]
async fn a_changed_text_changes_what_accounts_keep_unless_they_have_changed_it_since() {
    let api = kept().await;
    let text = exported(&api);
    let edited = changed(&text, |value| {
        value["contact"][0]["telephone"] = json!("+81 3 9999")
    });
    assert_eq!(apply(&api, &edited, false).await, Ok((1, 1)));
    assert_eq!(api.app.kept(), edited.kept());
    // A changed session keeps its password.
    let text = exported(&api);
    let sealed = api.values("record/nfc-");
    let edited = changed(&text, |value| {
        value["route_server_session"][0]["max_prefix_v4"] = json!(200);
    });
    assert_eq!(apply(&api, &edited, false).await, Ok((1, 1)));
    let of = |values: &[Vec<u8>]| serde_json::from_slice::<Value>(&values[0]).unwrap()["sealed"].clone();
    assert!(of(&sealed).is_array());
    assert_eq!(of(&api.values("record/nfc-")), of(&sealed));

    let text = exported(&api);
    let desk = json!({ "name": "Night desk", "email": "night@aoba.example", "roles": ["peering"] });
    assert_eq!(
        post(&api, &api.key("ann"), "/api/v1/contacts", desk).await.status,
        201
    );
    let edited = changed(&text, |value| {
        value["contact"][0]["telephone"] = json!("+81 3 1111")
    });
    let refused = apply(&api, &edited, false).await.unwrap_err();
    assert!(
        refused.contains("since the text was exported") && refused.contains("--overwrite"),
        "{refused}"
    );
    assert_eq!(apply(&api, &edited, true).await, Ok((1, 2)));
    // A text without a part leaves it alone.
    let without = changed(&exported(&api), |value| {
        value.as_object_mut().unwrap().remove("contact");
    });
    assert_eq!(apply(&api, &without, true).await, Ok((0, 0)));
}

#[tokio::test]
async fn a_fault_in_what_accounts_keep_is_named_before_anything_is_applied() {
    let api = kept().await;
    let text = exported(&api);
    for (part, field, value, words) in [
        (
            "contact",
            "account",
            json!("Nobody"),
            "there is no account \"Nobody\"",
        ),
        ("contact", "roles", json!(["chief"]), "there is no role"),
        (
            "joining_rule",
            "effect",
            json!("perhaps"),
            "expected allow or deny",
        ),
        (
            "joining_rule",
            "service",
            json!(["Aoba Networks", "nothing"]),
            "there is no service Aoba Networks/nothing",
        ),
        (
            "route_server_session",
            "server",
            json!("rs9.ix.example"),
            "no route server rs9.ix.example",
        ),
    ] {
        let wrong = changed(&text, |text| text[part][0][field] = value);
        let refused = apply(&api, &wrong, false).await.unwrap_err();
        assert!(refused.contains(words), "{part}.{field}: {refused}");
        assert_eq!(exported(&api), text, "{part}.{field}");
    }
}
