//! Records beside the model, which the table of all operations cannot name: contacts, cross-connects, notices, closed groups, people.
//! For each of them every person, of the same member, of another one and of the staff, gets the answer of the permission table, and a
//! foreign record is answered as an absent one.

use axum::http::Method;
use serde_json::{Value, json};

use crate::desk::{created, post};
use crate::support::Api;

/// Everybody of the demonstration: four people and a program of Aoba, administrators of three other members, a reseller, the staff,
/// an authority.
const PEOPLE: [&str; 13] = [
    "ann", "tia", "nia", "bil", "kei", "bob", "cho", "dan", "rex", "ops", "noc", "pro", "reg",
];
const AOBA: [&str; 5] = ["ann", "tia", "nia", "bil", "kei"];
const STAFF: [&str; 3] = ["ops", "noc", "pro"];

/// An operation on a record of Aoba.
struct Row {
    method: Method,
    path: String,
    body: Value,
    /// Who may do it.
    may: Vec<&'static str>,
    /// Who may read the record, and gets 403 instead of 404.
    reads: Vec<&'static str>,
}

/// The records of Aoba in this test.
struct Records {
    contact: String,
    cross_connect: String,
    notice: String,
    group: String,
    person: String,
}

async fn id(api: &Api, key: &str, path: &str, body: Value) -> String {
    let made = post(api, key, path, body).await;
    assert_eq!(made.status, 201, "{path}: {}", made.text());
    made.json()["id"].as_str().unwrap().to_owned()
}

async fn records(api: &Api) -> Records {
    let (ann, ops) = (api.key("ann"), api.key("ops"));
    let desk = json!({ "name": "Desk", "email": "desk@aoba.example", "roles": ["abuse"] });
    let cable = json!({ "site": "Otemachi", "member_side": "cage 7", "medium": "LC" });
    let cross_connect = id(api, &ann, "/api/v1/cross-connects", cable).await;
    let steps = format!("/api/v1/cross-connects/{cross_connect}/steps");
    let letter = json!({ "step": "authorise", "demarcation": "rack 3" });
    assert_eq!(post(api, &ops, &steps, letter).await.status, 200);
    let connections = api.get(&ann, "/api/v1/connections").await.json();
    let chiba = connections["items"]
        .as_array()
        .unwrap()
        .iter()
        .find(|connection| connection["name"] == "aoba-chiba")
        .unwrap()["id"]
        .clone();
    // Only Aoba has something on this connection.
    let notice = json!({ "kind": "incident", "title": "Fibre cut", "begins": "2036-12-01T00:00:00.000Z", "objects": [chiba] });
    let end = json!({ "connection": chiba, "vlan": { "type": "dot1q", "vlan": 910 }, "capacity_mbps": 10 });
    let group = json!({ "name": "storage", "end": end, "members": [] });
    let group = post(api, &ann, "/api/v1/groups", group).await;
    assert_eq!(group.status, 201, "{}", group.text());
    Records {
        contact: id(api, &ann, "/api/v1/contacts", desk).await,
        cross_connect,
        notice: id(api, &ops, "/api/v1/notices", notice).await,
        group: created(&group, "sv-"),
        person: api.user("tia").to_string(),
    }
}

fn rows(records: &Records) -> Vec<Row> {
    let row =
        |method: Method, path: String, body: Value, may: &[&'static str], reads: &[&[&'static str]]| Row {
            method,
            path,
            body,
            may: may.to_vec(),
            reads: reads.concat(),
        };
    let contact = format!("/api/v1/contacts/{}", records.contact);
    let cross_connect = format!("/api/v1/cross-connects/{}", records.cross_connect);
    let notice = format!("/api/v1/notices/{}", records.notice);
    let group = format!("/api/v1/groups/{}", records.group);
    let desk = json!({ "name": "Desk", "email": "evil@example.net", "roles": ["abuse"] });
    let fibre = json!({ "kind": "incident", "title": "Evil", "begins": "2036-12-01T00:00:00.000Z" });
    let join = json!({ "end": { "connection": "cn-1", "vlan": { "type": "dot1q", "vlan": 911 } } });
    let tech: &[&str] = &["ann", "tia", "kei", "ops", "pro"];
    let both: &[&[&str]] = &[&AOBA, &STAFF];
    vec![
        row(Method::PUT, contact.clone(), desk, tech, both),
        row(Method::DELETE, contact, Value::Null, tech, both),
        row(
            Method::POST,
            format!("{cross_connect}/steps"),
            json!({ "step": "cancel" }),
            tech,
            both,
        ),
        row(
            Method::POST,
            format!("{cross_connect}/steps"),
            json!({ "step": "install" }),
            &["ops", "pro"],
            both,
        ),
        row(Method::PUT, notice.clone(), fibre, &STAFF, both),
        row(Method::DELETE, notice, Value::Null, &STAFF, both),
        row(
            Method::PUT,
            format!("{group}/members"),
            json!({ "members": [] }),
            tech,
            both,
        ),
        // Who may join does, or gets an answer about the end; for everybody else the group is absent.
        row(
            Method::POST,
            format!("{group}/join"),
            join,
            &[&AOBA[..], &STAFF[..]].concat(),
            &[],
        ),
        row(
            Method::POST,
            format!("/api/v1/users/{}/link", records.person),
            json!({ "kind": "password" }),
            &["ann", "ops"],
            &[&["ann"], &STAFF],
        ),
    ]
}

/// Returns what the owner sees of the records.
async fn state(api: &Api) -> Vec<Value> {
    let mut all = Vec::new();
    for path in ["contacts", "cross-connects", "notices", "groups"] {
        all.push(api.get("ann", &format!("/api/v1/{path}")).await.json());
    }
    all
}

#[tokio::test]
async fn nobody_changes_a_record_of_others_and_a_foreign_one_is_answered_as_an_absent_one() {
    let api = Api::new().await;
    let records = records(&api).await;
    for name in PEOPLE {
        api.key(name);
    }
    let before = state(&api).await;
    let mut cases = 0;
    for row in rows(&records) {
        for name in PEOPLE.into_iter().filter(|name| !row.may.contains(name)) {
            let body = Some(row.body.clone()).filter(|body| !body.is_null());
            let answer = api
                .send(
                    row.method.clone(),
                    &row.path,
                    name,
                    &[("if-match", "*")],
                    body.clone(),
                )
                .await;
            let case = format!("{} {} by {name}: {}", row.method, row.path, answer.text());
            if row.reads.contains(&name) {
                assert_eq!(answer.status, 403, "{case}");
            } else {
                assert_eq!(answer.status, 404, "{case}");
                let absent = row.path.split('/').map(|part| match part.split_once('-') {
                    Some((prefix, number)) if number.bytes().all(|byte| byte.is_ascii_digit()) => {
                        format!("{prefix}-999999")
                    }
                    _ => part.to_owned(),
                });
                let absent: Vec<String> = absent.collect();
                let nothing = api
                    .send(
                        row.method.clone(),
                        &absent.join("/"),
                        name,
                        &[("if-match", "*")],
                        body,
                    )
                    .await;
                let (own, other) = (row.path.split('/').nth(4).unwrap(), absent[4].as_str());
                assert_eq!(
                    (answer.status, answer.text().replace(own, "ID")),
                    (nothing.status, nothing.text().replace(other, "ID")),
                    "{case}"
                );
            }
            cases += 1;
        }
    }
    assert!(cases > 60, "only {cases} cases");
    assert_eq!(state(&api).await, before, "nothing has changed");
}

#[tokio::test]
async fn lists_and_letters_contain_what_the_permission_table_lets_a_person_read() {
    let api = Api::new().await;
    let records = records(&api).await;
    let letter = format!("/api/v1/cross-connects/{}/letter", records.cross_connect);
    for name in PEOPLE {
        let key = api.key(name);
        let reads = AOBA.contains(&name) || STAFF.contains(&name);
        for (path, own) in [
            ("contacts", &records.contact),
            ("cross-connects", &records.cross_connect),
            ("notices", &records.notice),
            ("groups", &records.group),
        ] {
            let list = api.get(&key, &format!("/api/v1/{path}")).await;
            // An authority has the roles for notices only.
            if name == "reg" && path != "notices" {
                assert_eq!(list.status, 403, "{path} for {name}: {}", list.text());
                continue;
            }
            assert_eq!(list.status, 200, "{path} for {name}: {}", list.text());
            let list = list.json();
            let items = list["items"].as_array().unwrap();
            let is_there = items.iter().any(|item| item["id"] == json!(own));
            assert_eq!(is_there, reads, "{path} for {name}: {list}");
            assert_eq!(items.len(), usize::from(reads), "{path} for {name}: {list}");
        }
        let status = api.get(&key, &letter).await.status;
        assert_eq!(status, if reads { 200 } else { 404 }, "the letter for {name}");
        let people = api.get(&key, "/api/v1/users").await;
        let sees = ["ann", "ops", "noc", "pro"].contains(&name);
        let is_there = people.text().contains("tia@example.net");
        assert_eq!(is_there, sees, "people for {name}: {}", people.text());
    }
    let calendar = api.get("bob", "/api/v1/notices.ics").await.text();
    assert!(!calendar.contains("Fibre cut"), "{calendar}");
    let calendar = api.get("ann", "/api/v1/notices.ics").await.text();
    assert!(calendar.contains("Fibre cut"), "{calendar}");
    for path in ["status", "status.ics", "status.atom", "looking-glass"] {
        let public = api.get("", &format!("/api/v1/{path}")).await.text();
        for part in [
            "Fibre cut",
            "storage",
            "aoba-chiba",
            "rack 3",
            "desk@aoba.example",
        ] {
            assert!(!public.contains(part), "{part} in {path}: {public}");
        }
    }
}
