//! Webhooks: signatures, order, retries, confidentiality of other members' objects, and refusal of private
//! addresses.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use axum::http::Method;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use millrace_ix_api::session::CredentialStore as _;
use millrace_ix_model::Operation;
use millrace_ix_service::OrderRequest;
use ring::hmac;
use serde_json::{Value, json};

use crate::support::{Answer, Api};

/// A bound far above the time of any delivery.
const PATIENCE: Duration = Duration::from_secs(60);

/// A request that the receiver got.
#[derive(Debug)]
struct Received {
    headers: Vec<(String, String)>,
    body: String,
}

impl Received {
    fn header(&self, name: &str) -> &str {
        let found = self.headers.iter().find(|(other, _)| other == name);
        &found.unwrap().1
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }
}

/// Receives requests, and answers them with these statuses and then with 204.
fn receiver(statuses: Vec<u16>) -> (String, mpsc::Receiver<Received>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut statuses = statuses.into_iter();
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            let (mut text, mut chunk) = (Vec::new(), [0; 4096]);
            let received = loop {
                let size = stream.read(&mut chunk).unwrap_or(0);
                if size == 0 {
                    break None;
                }
                text.extend_from_slice(&chunk[..size]);
                let seen = String::from_utf8_lossy(&text).into_owned();
                let Some((head, body)) = seen.split_once("\r\n\r\n") else {
                    continue;
                };
                let headers: Vec<(String, String)> = head
                    .lines()
                    .skip(1)
                    .filter_map(|line| line.split_once(": "))
                    .map(|(name, value)| (name.to_lowercase(), value.to_owned()))
                    .collect();
                let length = headers.iter().find(|(name, _)| name == "content-length");
                if length.is_some_and(|(_, length)| length.parse() == Ok(body.len())) {
                    break Some(Received {
                        headers,
                        body: body.to_owned(),
                    });
                }
            };
            let status = statuses.next().unwrap_or(204);
            let answer =
                format!("HTTP/1.1 {status} Answer\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
            stream.write_all(answer.as_bytes()).unwrap();
            if let Some(received) = received
                && sender.send(received).is_err()
            {
                return;
            }
        }
    });
    (url, receiver)
}

/// Returns the next request, without blocking the runtime that sends it.
async fn next(requests: mpsc::Receiver<Received>) -> (Received, mpsc::Receiver<Received>) {
    let waiting = tokio::task::spawn_blocking(move || {
        let received = requests.recv_timeout(PATIENCE).unwrap();
        (received, requests)
    });
    waiting.await.unwrap()
}

async fn post(api: &Api, key: &str, path: &str, body: Value) -> Answer {
    api.send(Method::POST, path, key, &[], Some(body)).await
}

async fn make_key(api: &Api, key: &str) -> String {
    let list = api.get(key, "/api/v1/services?limit=500").await.json();
    let own = list["items"].as_array().unwrap().iter().find(|service| {
        service["can"].as_array().unwrap().contains(&json!("lock"))
            && service["locked_by"].is_null()
            && service["kind"] == "p2p_vc"
    });
    let id = own.unwrap()["id"].as_str().unwrap().to_owned();
    let lock = json!({ "locked": true });
    let path = format!("/api/v1/services/{id}/lock");
    let locked = api
        .send(Method::PUT, &path, key, &[("if-match", "*")], Some(lock))
        .await;
    assert_eq!(locked.status, 200, "{}", locked.text());
    id
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_is_signed_retried_and_delivered_once_with_its_objects() {
    let api = Api::new().await;
    let (ann, dan) = (api.key("ann"), api.key("dan"));
    let (url, requests) = receiver(vec![500]);
    let (foreign_url, foreign) = receiver(Vec::new());
    let made = post(&api, &ann, "/api/v1/webhooks", json!({ "url": url })).await;
    assert_eq!(made.status, 201, "{}", made.text());
    assert_eq!(
        post(&api, &dan, "/api/v1/webhooks", json!({ "url": foreign_url }))
            .await
            .status,
        201
    );
    let id = made.json()["webhook"]["id"].as_str().unwrap().to_owned();
    let secret = made.json()["secret"]
        .as_str()
        .unwrap()
        .trim_start_matches("whsec_")
        .to_owned();
    let service = make_key(&api, &ann).await;
    let (first, requests) = next(requests).await;
    let (second, requests) = next(requests).await;
    assert_eq!(first.header("webhook-id"), second.header("webhook-id"));
    assert_eq!(first.body, second.body);
    assert!(
        second.json()["objects"]
            .as_array()
            .unwrap()
            .contains(&json!(service)),
        "{}",
        second.body
    );
    let key = hmac::Key::new(hmac::HMAC_SHA256, &STANDARD.decode(&secret).unwrap());
    let signed = format!(
        "{}.{}.{}",
        second.header("webhook-id"),
        second.header("webhook-timestamp"),
        second.body
    );
    let tag = STANDARD
        .decode(second.header("webhook-signature").trim_start_matches("v1,"))
        .unwrap();
    hmac::verify(&key, signed.as_bytes(), &tag).unwrap();
    let path = format!("/api/v1/webhooks/{id}/deliveries");
    let deadline = tokio::time::Instant::now() + PATIENCE;
    let last = loop {
        let all = api.get(&ann, &path).await.json();
        let last = all.as_array().unwrap().last().unwrap().clone();
        if last["state"] == "delivered" {
            break last;
        }
        assert!(tokio::time::Instant::now() < deadline, "{last}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    assert_eq!(
        (last["tries"].clone(), last["status"].clone()),
        (json!(2), json!(204)),
        "{last}"
    );
    // A replay sends the same event under the same identifier.
    let replayed = post(
        &api,
        &ann,
        &format!("/api/v1/webhooks/{id}/replay"),
        json!({ "after": 0 }),
    )
    .await;
    assert_eq!(replayed.status, 202);
    let mut requests = requests;
    loop {
        let (again, rest) = next(requests).await;
        if again.header("webhook-id") == first.header("webhook-id") {
            break;
        }
        requests = rest;
    }
    // Another member's webhook got nothing, and the member cannot see this one.
    assert!(foreign.try_recv().is_err());
    assert_eq!(api.get(&dan, &path).await.status, 404);
    let gone = api
        .send(Method::DELETE, &format!("/api/v1/webhooks/{id}"), &ann, &[], None)
        .await;
    assert_eq!((gone.status, api.get(&ann, &path).await.status), (204, 404));
    // The secret is shown once and stored sealed.
    assert!(!api.get(&dan, "/api/v1/webhooks").await.text().contains("secret"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_that_is_gone_disables_its_webhook_until_events_are_sent_again() {
    let api = Api::new().await;
    let ann = api.key("ann");
    let (url, requests) = receiver(vec![410]);
    let made = post(&api, &ann, "/api/v1/webhooks", json!({ "url": url })).await;
    assert_eq!(made.json()["webhook"]["disabled"], Value::Null, "{}", made.text());
    let id = made.json()["webhook"]["id"].as_str().unwrap().to_owned();
    make_key(&api, &ann).await;
    let (first, requests) = next(requests).await;
    let hook = async |api: &Api| api.get(&ann, "/api/v1/webhooks").await.json()["items"][0].clone();
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while hook(&api).await["disabled"].is_null() {
        assert!(tokio::time::Instant::now() < deadline, "{}", hook(&api).await);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let found = hook(&api).await;
    assert_eq!(found["disabled"], "the receiver answered 410 (Gone)");
    assert_eq!(
        (&found["last"]["state"], &found["last"]["tries"]),
        (&json!("given_up"), &json!(1))
    );
    let audit = api.get(&api.key("ops"), "/api/v1/audit").await.text();
    assert!(audit.contains("disable_webhook"), "{audit}");
    // Neither a further event nor a start of the engine sends anything.
    make_key(&api, &ann).await;
    let api = api.restart();
    assert!(requests.try_recv().is_err());
    assert_eq!(hook(&api).await["disabled"], found["disabled"]);
    make_key(&api, &ann).await;
    let path = format!("/api/v1/webhooks/{id}/replay");
    assert_eq!(post(&api, &ann, &path, json!({ "after": 0 })).await.status, 202);
    let (again, _requests) = next(requests).await;
    assert_eq!(again.json()["kind"], first.json()["kind"]);
    assert_eq!(hook(&api).await["disabled"], Value::Null);
}

#[tokio::test]
async fn a_webhook_goes_to_no_private_address() {
    let api = Api::with(|settings| settings.webhooks_to_private = false).await;
    let ann = api.key("ann");
    for url in [
        "http://example.net/",
        "https://127.0.0.1/",
        "https://[::1]/",
        "https://[::ffff:10.0.0.1]/",
        "https://169.254.169.254/latest",
        "https://localhost/",
        "https://ann:secret@example.net/",
        "https://",
        "ftp://example.net/",
        "x",
    ] {
        let refused = post(&api, &ann, "/api/v1/webhooks", json!({ "url": url })).await;
        assert_eq!(
            (refused.status, refused.json()["errors"][0]["pointer"].clone()),
            (422, json!("/url")),
            "{url}: {}",
            refused.text()
        );
    }
    // Only the resolver recognises this host as a private address. The delivery is refused after the
    // resolution.
    let made = post(
        &api,
        &ann,
        "/api/v1/webhooks",
        json!({ "url": "https://127.1:9/" }),
    )
    .await;
    assert_eq!(made.status, 201, "{}", made.text());
    make_key(&api, &ann).await;
    let path = format!(
        "/api/v1/webhooks/{}/deliveries",
        made.json()["webhook"]["id"].as_str().unwrap()
    );
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        let list = api.get(&ann, &path).await.json();
        if let Some(error) = list[0]["error"].as_str() {
            assert_eq!(error, "the host of the URL has no address of the Internet");
            break;
        }
        assert!(tokio::time::Instant::now() < deadline, "{list}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_webhook_does_not_tell_an_internal_name_from_one_that_does_not_exist() {
    let api = Api::with(|settings| settings.webhooks_to_private = false).await;
    let ann = api.key("ann");
    // The resolver alone finds the private address of the first host. It knows no name below `invalid` (RFC 6761).
    let mut paths = Vec::new();
    for host in ["127.1", "secret.invalid"] {
        let body = json!({ "url": format!("https://{host}:9/") });
        let made = post(&api, &ann, "/api/v1/webhooks", body).await;
        assert_eq!(made.status, 201, "{}", made.text());
        let id = made.json()["webhook"]["id"].clone();
        paths.push(format!("/api/v1/webhooks/{}/deliveries", id.as_str().unwrap()));
    }
    make_key(&api, &ann).await;
    let deadline = tokio::time::Instant::now() + PATIENCE;
    for path in paths {
        loop {
            let list = api.get(&ann, &path).await.json();
            if let Some(error) = list[0]["error"].as_str() {
                assert_eq!(
                    error, "the host of the URL has no address of the Internet",
                    "{path}"
                );
                break;
            }
            assert!(tokio::time::Instant::now() < deadline, "{list}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_account_has_at_most_twenty_webhooks_whatever_others_have() {
    let api = Api::new().await;
    let (ann, ops) = (api.key("ann"), api.key("ops"));
    let body = json!({ "url": "http://127.0.0.1:9/" });
    for _ in 0..20 {
        let made = post(&api, &ann, "/api/v1/webhooks", body.clone()).await;
        assert_eq!(made.status, 201, "{}", made.text());
    }
    let refused = post(&api, &ann, "/api/v1/webhooks", body.clone()).await;
    assert_eq!(refused.status, 409, "{}", refused.text());
    let made = post(&api, &ops, "/api/v1/webhooks", body).await;
    assert_eq!(made.status, 201, "{}", made.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_ends_with_its_user() {
    let mut kept = None;
    let api = Api::with_store(|store| {
        kept = Some(Arc::clone(&store));
        store
    })
    .await;
    let records = || crate::support::ready(kept.as_ref().unwrap().list("record/wh-")).unwrap();
    let ann = api.key("ann");
    let body = json!({ "url": "http://127.0.0.1:9/" });
    let made = post(&api, &ann, "/api/v1/webhooks", body).await;
    assert_eq!((made.status, records().len()), (201, 1), "{}", made.text());
    let target = api.user("ann").into();
    let delete = OrderRequest::of_system(vec![Operation::Delete { target }]);
    api.world.engine.order(delete).await.unwrap();
    // The webhook learns of the event.
    let end = async {
        while !records().is_empty() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, end).await.unwrap();
    let audit = api.get(&api.key("ops"), "/api/v1/audit").await.text();
    assert!(audit.contains("delete_webhook"), "{audit}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_that_is_replayed_again_and_again_has_one_request_under_way() {
    let api = Api::new().await;
    let ann = api.key("ann");
    // A receiver that accepts requests and never answers.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    let (sender, accepted) = mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            if sender.send(stream.unwrap()).is_err() {
                return;
            }
        }
    });
    let made = post(&api, &ann, "/api/v1/webhooks", json!({ "url": url })).await;
    assert_eq!(made.status, 201, "{}", made.text());
    let id = made.json()["webhook"]["id"].as_str().unwrap().to_owned();
    make_key(&api, &ann).await;
    let (first, accepted) = tokio::task::spawn_blocking(move || {
        let first = accepted.recv_timeout(PATIENCE).unwrap();
        (first, accepted)
    })
    .await
    .unwrap();
    // Fewer replays than would take the ten seconds after which a request is over, also on a busy machine.
    for _ in 0..5 {
        let replay = format!("/api/v1/webhooks/{id}/replay");
        let replayed = post(&api, &ann, &replay, json!({ "after": 0 })).await;
        assert_eq!(replayed.status, 202, "{}", replayed.text());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(accepted.try_recv().is_err(), "a second request is under way");
    // When the request is over, the next one begins.
    drop(first);
    let second = tokio::task::spawn_blocking(move || accepted.recv_timeout(PATIENCE).is_ok());
    assert!(second.await.unwrap());
}
