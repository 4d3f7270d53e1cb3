//! Notices in calendars and in the feed: incidents without an end, and the secret address of a person's calendar.

use axum::http::Method;
use millrace_ix_model::Timestamp;
use serde_json::{Value, json};

use crate::desk::{about_site, post, put};
use crate::support::Api;

#[tokio::test]
async fn an_incident_without_end_has_a_duration_in_calendars_and_a_table_keeps_its_lines() {
    let api = Api::new().await;
    let ops = api.key("ops");
    let empty = api.get("", "/api/v1/status.atom").await.text();
    assert!(
        empty.contains("<updated>1970-01-01T00:00:00.000Z</updated>"),
        "{empty}"
    );
    let now = api.world.engine.now();
    let begins = Timestamp::from_secs(now.millis() / 1000 - 7200);
    let mut order = json!({ "kind": "incident", "title": "Fibre cut", "about": "kr-1\t10:00\r\njp-1\t11:00\rend",
        "begins": begins, "public": true });
    let made = post(&api, &ops, "/api/v1/notices", order.clone()).await;
    assert_eq!(made.status, 201, "{}", made.text());
    assert_eq!(made.json()["state"], "running");
    let calendar = api.get("", "/api/v1/status.ics").await.text();
    let value = |name: &str| {
        let line = calendar.lines().find(|line| line.starts_with(name));
        line.unwrap_or_else(|| panic!("no {name}: {calendar}")).to_owned()
    };
    // Both have one form, so that their texts compare as times.
    let ends = value("DTEND:").split_off(6);
    let in_form = now.to_string().replace(['-', ':'], "");
    assert!(ends.as_str() > in_form.as_str(), "{ends} {in_form}");
    assert!(value("UID:").ends_with(".invalid"), "{calendar}");
    assert!(!calendar.contains("METHOD"), "{calendar}");
    assert!(
        calendar.contains("DESCRIPTION:kr-1\t10:00\\njp-1\t11:00\\nend"),
        "{calendar}"
    );
    let atom = api.get("", "/api/v1/status.atom").await.text();
    assert!(atom.contains("kr-1\t10:00\njp-1\t11:00\nend"), "{atom}");
    assert!(
        atom.contains("rel=\"self\" type=\"application/atom+xml\" href=\"/api/v1/status.atom\""),
        "{atom}"
    );
    // The page ends it with the time of a browser, an offset from UTC may be in it.
    order["ends"] = json!(
        Timestamp::from_secs(now.millis() / 1000 - 60)
            .to_string()
            .replace('Z', "+00:00")
    );
    let path = format!("/api/v1/notices/{}", made.json()["id"].as_str().unwrap());
    let ended = put(&api, &ops, &path, order).await;
    assert_eq!(ended.json()["state"], "over", "{}", ended.text());
}

#[tokio::test]
async fn the_address_of_a_calendar_is_secret_reads_only_and_ends() {
    let api = Api::new().await;
    let (ops, key) = (api.key("ops"), api.key("ann"));
    let mut order = about_site(&api, &ops, "Otemachi").await;
    order["public"] = json!(false);
    assert_eq!(post(&api, &ops, "/api/v1/notices", order).await.status, 201);
    let session = api.session("ann").await;
    let cookie = [("cookie", session.as_str())];
    let send = async |method: Method| api.send(method, "/api/v1/calendar", "", &cookie, None).await;
    assert_eq!(send(Method::GET).await.json()["created"], Value::Null);
    let by_key = api.send(Method::PUT, "/api/v1/calendar", &key, &[], None).await;
    assert_eq!(
        (by_key.status, &by_key.json()["code"]),
        (403, &json!("session-required"))
    );
    let made = send(Method::PUT).await;
    assert_eq!(made.status, 200, "{}", made.text());
    let path = made.json()["path"].as_str().unwrap().to_owned();
    assert!(send(Method::GET).await.json()["created"].is_string());
    assert!(
        !send(Method::GET).await.text().contains(&path[20..]),
        "it is shown once"
    );
    let calendar = api.get("", &path).await;
    assert_eq!(calendar.text(), api.get(&key, "/api/v1/notices.ics").await.text());
    assert!(calendar.text().contains("BEGIN:VEVENT"), "{}", calendar.text());
    // It names its user, and is nobody else's.
    let user = api.user("bob").to_string();
    let other = path.replace(&api.user("ann").to_string(), &user);
    for wrong in [
        other,
        path.replace(".ics", "x.ics"),
        path.replace(".ics", ""),
        "/api/v1/calendars/x.ics".to_owned(),
    ] {
        assert_eq!(api.get("", &wrong).await.status, 404, "{wrong}");
    }
    let next = send(Method::PUT).await.json()["path"]
        .as_str()
        .unwrap()
        .to_owned();
    assert_eq!(api.get("", &path).await.status, 404, "a new one replaces it");
    assert_eq!(api.get("", &next).await.status, 200);
    assert_eq!(send(Method::DELETE).await.status, 204);
    assert_eq!(api.get("", &next).await.status, 404);
    let next = send(Method::PUT).await.json()["path"]
        .as_str()
        .unwrap()
        .to_owned();
    let change = json!({ "deactivated": true });
    let user = format!("/api/v1/users/{}", api.user("ann"));
    assert_eq!(put(&api, &ops, &user, change).await.status, 200);
    assert_eq!(api.get("", &next).await.status, 404, "its user is deactivated");
}
