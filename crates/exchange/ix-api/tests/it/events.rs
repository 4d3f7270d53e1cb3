//! Tests of the event stream of the API.

use axum::http::Method;
use futures::StreamExt as _;
use serde_json::json;

use crate::support::Api;

/// Returns the id, name and data of the next event of a stream other than `beat`.
pub(crate) async fn next(stream: &mut axum::body::BodyDataStream) -> (String, String, String) {
    loop {
        let event = next_of_any_kind(stream).await;
        if event.1 != "beat" {
            return event;
        }
    }
}

async fn next_of_any_kind(stream: &mut axum::body::BodyDataStream) -> (String, String, String) {
    let mut text = String::new();
    while !text.contains("\n\n") {
        let chunk = tokio::time::timeout(std::time::Duration::from_secs(60), stream.next()).await;
        let chunk = chunk
            .expect("an event comes in time")
            .expect("the stream goes on")
            .unwrap();
        text.push_str(std::str::from_utf8(&chunk).unwrap());
    }
    let field = |name: &str| {
        let prefix = format!("{name}: ");
        text.lines()
            .find_map(|line| line.strip_prefix(&prefix))
            .unwrap_or("")
            .to_owned()
    };
    (field("id"), field("event"), field("data"))
}

/// Returns the next event of a stream about an object, and the texts of those before it.
async fn next_about(
    stream: &mut axum::body::BodyDataStream,
    object: &str,
) -> ((String, String, String), String) {
    let mut before = String::new();
    loop {
        let event = next(stream).await;
        if event.2.contains(object) {
            return (event, before);
        }
        before += &event.2;
    }
}

/// Waits for the end of a stream, which no event about an object precedes.
async fn ends(stream: &mut axum::body::BodyDataStream, object: &str) {
    let end = async {
        while let Some(chunk) = stream.next().await {
            let chunk = chunk.unwrap();
            let text = std::str::from_utf8(&chunk).unwrap();
            assert!(!text.contains(object), "{text}");
        }
    };
    let end = tokio::time::timeout(std::time::Duration::from_secs(60), end).await;
    end.expect("the stream ends in time");
}

async fn order(api: &Api, key: &str, connection: &str, vlan: u16) -> String {
    let list = api.get(key, "/api/v1/connections").await.json();
    let items = list["items"].as_array().unwrap().clone();
    let id = items.iter().find(|item| item["name"] == connection).unwrap()["id"].clone();
    let body = json!({ "name": format!("path {vlan}"), "end": { "connection": id, "vlan": { "type": "dot1q", "vlan": vlan } } });
    let made = api
        .send(Method::POST, "/api/v1/services", key, &[], Some(body))
        .await;
    assert_eq!(made.status, 201, "{}", made.text());
    made.json()["created"][0].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn an_account_sees_its_own_events_and_no_others() {
    let api = Api::new().await;
    let (ann, dan, ops) = (api.key("ann"), api.key("dan"), api.key("ops"));
    let (mut of_ann, mut of_dan, mut of_ops) = (
        api.stream(&ann, None).await,
        api.stream(&dan, None).await,
        api.stream(&ops, None).await,
    );
    let mut expected = Vec::new();
    for vlan in 1000..1020 {
        expected.push((
            order(&api, &ann, "aoba-tokyo", vlan).await,
            order(&api, &dan, "delta-dc", vlan).await,
        ));
    }
    for (of_a, of_d) in &expected {
        let ((_, name, data), before) = next_about(&mut of_ann, of_a).await;
        assert_eq!(name, "change");
        assert!(!data.contains(of_d) && !before.contains(of_d), "{before} {data}");
        let ((_, _, data), before) = next_about(&mut of_dan, of_d).await;
        assert!(!data.contains(of_a) && !before.contains(of_a), "{before} {data}");
        // An operator sees both.
        next_about(&mut of_ops, of_a).await;
        next_about(&mut of_ops, of_d).await;
    }
}

#[tokio::test]
async fn a_stream_goes_on_after_the_last_event_that_was_seen() {
    let api = Api::new().await;
    let ann = api.key("ann");
    let mut stream = api.stream(&ann, None).await;
    let first = order(&api, &ann, "aoba-tokyo", 1000).await;
    let ((id, ..), _) = next_about(&mut stream, &first).await;
    drop(stream);
    let mut missed = Vec::new();
    for vlan in 1001..1006 {
        missed.push(order(&api, &ann, "aoba-tokyo", vlan).await);
    }
    let mut stream = api.stream(&ann, Some(&id)).await;
    for object in missed {
        next_about(&mut stream, &object).await;
    }
    // The id is from an earlier start of the engine, so the stream tells the client to read everything again.
    let mut stream = api.stream(&ann, Some("0-7")).await;
    assert_eq!(next(&mut stream).await.1, "reset");
}

#[tokio::test]
async fn a_stream_that_has_brought_no_event_goes_on_after_its_begin() {
    let api = Api::new().await;
    let ann = api.key("ann");
    let mut stream = api.whole_stream(&ann, None).await;
    let (id, name, data) = next(&mut stream).await;
    assert_eq!(name, "begin");
    assert!(data.contains(&format!("\"{}\"", api.user("ann"))), "{data}");
    drop(stream);
    let missed = order(&api, &ann, "aoba-tokyo", 1000).await;
    let mut stream = api.whole_stream(&ann, Some(&id)).await;
    let (again, name, _) = next(&mut stream).await;
    assert_eq!((again, name.as_str()), (id, "begin"));
    next_about(&mut stream, &missed).await;
    // The event `begin` has no id if the stream cannot resume: with one, a client would not notice that
    // events are missing.
    let mut stream = api.whole_stream(&ann, Some("0-7")).await;
    assert_eq!(next(&mut stream).await.0, "");
    assert_eq!(next(&mut stream).await.1, "reset");
}

#[tokio::test]
async fn the_events_of_a_deleted_service_reach_both_parties_and_nobody_else() {
    let api = Api::new().await;
    let (ann, bob, dan) = (api.key("ann"), api.key("bob"), api.key("dan"));
    let list = api.get(&ann, "/api/v1/services?q=transit").await.json();
    let id = list["items"][0]["id"].as_str().unwrap().to_owned();
    let (mut of_bob, mut of_dan) = (api.stream(&bob, None).await, api.stream(&dan, None).await);
    let deleted = api
        .send(
            Method::DELETE,
            &format!("/api/v1/services/{id}"),
            &ann,
            &[("if-match", "*")],
            None,
        )
        .await;
    assert_eq!(deleted.status, 200, "{}", deleted.text());
    next_about(&mut of_bob, &id).await;
    let own = order(&api, &dan, "delta-dc", 55).await;
    let ((_, _, data), before) = next_about(&mut of_dan, &own).await;
    assert!(!data.contains(&id) && !before.contains(&id), "{before} {data}");
}

#[tokio::test]
async fn a_stream_ends_at_the_first_event_after_its_api_key_was_deleted() {
    let api = Api::new().await;
    let ann = api.key("ann");
    let made = api.made_key("ann", "monitor", "read").await;
    let mut stream = api.stream(made["secret"].as_str().unwrap(), None).await;
    let first = order(&api, &ann, "aoba-tokyo", 1000).await;
    next_about(&mut stream, &first).await;
    let path = format!("/api/v1/api-keys/{}", made["key"]["id"].as_str().unwrap());
    assert_eq!(api.send(Method::DELETE, &path, &ann, &[], None).await.status, 204);
    let second = order(&api, &ann, "aoba-tokyo", 1001).await;
    ends(&mut stream, &second).await;
}

#[tokio::test]
async fn a_stream_ends_with_the_access_token_that_opened_it() {
    let api = Api::new().await;
    let ann = api.key("ann");
    let made = api.made_key("ann", "monitor", "write").await;
    let quarter = std::time::Duration::from_secs(15 * 60);
    let body = json!({ "api_key": made["key"]["id"], "api_secret": made["secret"] });
    let pair = api
        .send(Method::POST, "/api/v2/auth/token", "", &[], Some(body))
        .await;
    let token = pair.json()["access_token"].as_str().unwrap().to_owned();
    let mut stream = api.stream(&token, None).await;
    let first = order(&api, &ann, "aoba-tokyo", 1000).await;
    next_about(&mut stream, &first).await;
    api.world.pass(quarter).await.unwrap();
    let second = order(&api, &ann, "aoba-tokyo", 1001).await;
    ends(&mut stream, &second).await;
}

#[tokio::test]
async fn a_person_hears_nothing_of_objects_that_the_roles_do_not_read() {
    let api = Api::new().await;
    let (ann, bil) = (api.key("ann"), api.key("bil"));
    let service = order(&api, &ann, "aoba-tokyo", 1000).await;
    let (mut of_ann, mut of_bil) = (api.stream(&ann, None).await, api.stream(&bil, None).await);
    let made = api
        .send(
            Method::POST,
            &format!("/api/v1/services/{service}/keys"),
            &ann,
            &[],
            Some(json!({ "hours": 1 })),
        )
        .await;
    assert_eq!(made.status, 201, "{}", made.text());
    let key = made.json()["created"][0].as_str().unwrap().to_owned();
    assert!(key.starts_with("sk-"), "{key}");
    let last = order(&api, &ann, "aoba-tokyo", 1001).await;
    let mut heard = String::new();
    while !heard.contains(&last) {
        heard += &next(&mut of_bil).await.2;
    }
    // The billing role may read services, but not service keys.
    assert!(!heard.contains("sk-"), "{heard}");
    let mut heard = String::new();
    while !heard.contains(&last) {
        heard += &next(&mut of_ann).await.2;
    }
    assert!(heard.contains(&key), "{heard}");
}

#[tokio::test]
async fn one_person_cannot_open_the_streams_of_all_others() {
    let api = Api::new().await;
    let (ann, bob) = (api.key("ann"), api.key("bob"));
    let mut open = Vec::new();
    for _ in 0..64 {
        open.push(api.stream(&ann, None).await);
    }
    let refused = api.get(&ann, "/api/v1/events").await;
    assert_eq!(refused.status, 429, "{}", refused.text());
    assert!(refused.headers.contains_key("retry-after"));
    drop(api.stream(&bob, None).await);
    open.pop();
    drop(api.stream(&ann, None).await);
}

#[tokio::test]
async fn a_member_hears_that_an_own_port_went_down_and_of_no_port_of_others() {
    let api = Api::new().await;
    let (ann, dan) = (api.key("ann"), api.key("dan"));
    let (mut of_ann, mut of_dan) = (api.stream(&ann, None).await, api.stream(&dan, None).await);
    let exchange = api.world.engine.snapshot().exchange.clone();
    let connections = exchange.connections.iter();
    let (id, connection) = connections
        .into_iter()
        .find(|(_, connection)| connection.name == "aoba-tokyo")
        .unwrap();
    let port = connection.ports[0];
    api.world.fabric.set_down(port.switch, &[port.port]);
    let (_, _, data) = next(&mut of_ann).await;
    assert!(data.contains(&format!("\"{id}\"")), "{data}");
    assert!(!data.contains("\"sw-"), "a member does not read switches: {data}");
    let own = order(&api, &dan, "delta-dc", 55).await;
    let mut heard = String::new();
    while !heard.contains(&own) {
        heard += &next(&mut of_dan).await.2;
    }
    assert!(!heard.contains(&id.to_string()), "{heard}");
}
