//! Sign-in by a provider of OpenID Connect, against a provider in this process.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::extract::{Form, State};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::routing::{get, post};
use axum::{Json, Router};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use millrace_ix_api::OidcSettings;
use parking_lot::Mutex;
use ring::digest::{SHA256, digest};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use serde_json::{Value, json};

use crate::support::{Answer, Api};

const REDIRECT: &str = "https://ix.example/sign-in/callback";

/// The behaviour of the provider in the next sign-in.
struct Behaviour {
    /// Changes of the ID token's claims; null removes one.
    claims: Value,
    /// The answer of the userinfo endpoint.
    userinfo: Value,
    /// The key that signs ID tokens.
    key: EcdsaKeyPair,
    /// The challenge and the nonce of the sign-in.
    challenge: String,
    nonce: String,
    /// The number of token requests.
    requests: u32,
}

/// A provider at a loopback address.
struct Provider {
    issuer: String,
    behaviour: Arc<Mutex<Behaviour>>,
}

fn new_key() -> EcdsaKeyPair {
    let random = SystemRandom::new();
    let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
    let document = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
    EcdsaKeyPair::from_pkcs8(algorithm, document.as_ref(), &random).unwrap()
}

fn encode(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

fn seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

type Shared = (String, Arc<Mutex<Behaviour>>);

/// Serves the token endpoint. It returns tokens for the code "right", if the secret of the client and the
/// verifier are correct.
async fn token(
    State((issuer, behaviour)): State<Shared>,
    headers: HeaderMap,
    Form(form): Form<BTreeMap<String, String>>,
) -> (StatusCode, Json<Value>) {
    let mut behaviour = behaviour.lock();
    behaviour.requests += 1;
    let basic = format!("Basic {}", STANDARD.encode("millrace:s%26cret"));
    let challenge = encode(digest(&SHA256, form["code_verifier"].as_bytes()));
    let is_right = headers["authorization"] == basic.as_str()
        && form["grant_type"] == "authorization_code"
        && form["code"] == "right"
        && form["redirect_uri"] == REDIRECT
        && challenge == behaviour.challenge;
    if !is_right {
        return (StatusCode::BAD_REQUEST, Json(json!({ "error": "invalid_grant" })));
    }
    let now = seconds();
    let mut claims = json!({ "iss": issuer, "sub": "77", "aud": "millrace", "iat": now, "exp": now + 300, "nonce": behaviour.nonce });
    for (name, value) in behaviour.claims.as_object().unwrap() {
        claims[name] = value.clone();
    }
    let header = json!({ "alg": "ES256", "kid": "k" });
    let signed = format!("{}.{}", encode(header.to_string()), encode(claims.to_string()));
    let signature = behaviour
        .key
        .sign(&SystemRandom::new(), signed.as_bytes())
        .unwrap();
    let token = format!("{signed}.{}", encode(signature));
    (
        StatusCode::OK,
        Json(json!({ "token_type": "Bearer", "access_token": "at", "id_token": token })),
    )
}

impl Provider {
    async fn start() -> Provider {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let issuer = format!("http://{}", listener.local_addr().unwrap());
        let key = new_key();
        let point = key.public_key().as_ref();
        let keys = json!({ "keys": [{ "kty": "EC", "crv": "P-256", "kid": "k", "x": encode(&point[1..33]), "y": encode(&point[33..]) }] });
        let behaviour = Arc::new(Mutex::new(Behaviour {
            claims: json!({}),
            userinfo: json!({ "sub": "77", "preferred_username": "kim", "networks": [{ "asn": 64_500, "perms": 15 }] }),
            key,
            challenge: String::new(),
            nonce: String::new(),
            requests: 0,
        }));
        let description = json!({
            "issuer": issuer,
            "authorization_endpoint": format!("{issuer}/authorize?tenant=1"),
            "token_endpoint": format!("{issuer}/token"),
            "jwks_uri": format!("{issuer}/keys"),
            "userinfo_endpoint": format!("{issuer}/userinfo"),
            "authorization_response_iss_parameter_supported": true,
        });
        let router = Router::new()
            .route(
                "/.well-known/openid-configuration",
                get(async move || Json(description)),
            )
            .route("/keys", get(async move || Json(keys)))
            .route("/token", post(token))
            .route(
                "/userinfo",
                get(async |State((_, behaviour)): State<Shared>, headers: HeaderMap| {
                    assert_eq!(headers["authorization"], "Bearer at");
                    Json(behaviour.lock().userinfo.clone())
                }),
            )
            .with_state((issuer.clone(), Arc::clone(&behaviour)));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Provider { issuer, behaviour }
    }

    async fn api(&self) -> Api {
        let issuer = self.issuer.clone();
        Api::with(|settings| {
            settings.oidc = Some(OidcSettings {
                issuer,
                name: "PeeringDB".to_owned(),
                client_id: "millrace".to_owned(),
                client_secret: Some("s&cret".to_owned()),
                redirect_uri: REDIRECT.to_owned(),
                scopes: ["openid", "networks"].map(str::to_owned).to_vec(),
            });
        })
        .await
    }

    /// Begins a sign-in. Returns the cookie and the parameters of the provider's address.
    async fn begin(&self, api: &Api) -> (String, BTreeMap<String, String>) {
        let answer = api.send(Method::POST, "/api/v1/oidc", "", &[], None).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let location = answer.json()["location"].as_str().unwrap().to_owned();
        let query = location
            .strip_prefix(&format!("{}/authorize?tenant=1&", self.issuer))
            .unwrap();
        let parameters: BTreeMap<String, String> = query
            .split('&')
            .map(|pair| pair.split_once('=').unwrap())
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        let mut behaviour = self.behaviour.lock();
        behaviour.challenge.clone_from(&parameters["code_challenge"]);
        behaviour.nonce.clone_from(&parameters["nonce"]);
        (
            cookies(&answer).remove("__Host-millrace-oidc").unwrap(),
            parameters,
        )
    }

    /// Signs the person in.
    async fn sign_in(&self, api: &Api) -> Answer {
        let (cookie, parameters) = self.begin(api).await;
        let answer = json!({ "code": "right", "state": parameters["state"], "iss": self.issuer });
        finish(api, &cookie, answer).await
    }
}

async fn finish(api: &Api, cookie: &str, answer: Value) -> Answer {
    let cookie = format!("__Host-millrace-oidc={cookie}");
    let headers = [("cookie", cookie.as_str())];
    api.send(Method::POST, "/api/v1/oidc/callback", "", &headers, Some(answer))
        .await
}

/// Returns the cookies that an answer sets. Each must be `Secure`, `HttpOnly` and `SameSite=Strict`.
fn cookies(answer: &Answer) -> BTreeMap<String, String> {
    let all = answer.headers.get_all("set-cookie").iter();
    all.map(|value| {
        let text = value.to_str().unwrap();
        assert!(
            text.contains("; Path=/; Secure; HttpOnly; SameSite=Strict; Max-Age="),
            "{text}"
        );
        let (name, rest) = text.split_once('=').unwrap();
        (name.to_owned(), rest.split(';').next().unwrap().to_owned())
    })
    .collect()
}

#[tokio::test]
async fn a_person_gets_a_user_at_the_first_sign_in_and_the_roles_of_today_at_each() {
    let provider = Provider::start().await;
    let api = provider.api().await;
    assert_eq!(api.get("", "/api/v1/oidc").await.json()["name"], "PeeringDB");
    let (_, parameters) = provider.begin(&api).await;
    assert_eq!(parameters["response_type"], "code");
    assert_eq!(parameters["client_id"], "millrace");
    assert_eq!(
        parameters["redirect_uri"],
        "https%3A%2F%2Fix.example%2Fsign-in%2Fcallback"
    );
    assert_eq!(parameters["scope"], "openid%20networks");
    assert_eq!(parameters["code_challenge_method"], "S256");
    let first = provider.sign_in(&api).await;
    assert_eq!(first.status, 200, "{}", first.text());
    let who = first.json();
    assert_eq!(
        (
            who["name"].clone(),
            who["account"]["name"].clone(),
            who["roles"].clone()
        ),
        (
            json!("kim@PeeringDB"),
            json!("Aoba Networks"),
            json!(["member_admin"])
        )
    );
    let set = cookies(&first);
    assert_eq!(set["__Host-millrace-oidc"], "", "the cookie of the sign-in goes");
    let session = format!("__Host-millrace={}", set["__Host-millrace"]);
    let with = [("cookie", session.as_str())];
    let read = api.send(Method::GET, "/api/v1/session", "", &with, None).await;
    assert_eq!(read.json()["user"], who["user"]);
    provider.behaviour.lock().userinfo["networks"] = json!([{ "asn": 64_500, "perms": 1 }]);
    let second = provider.sign_in(&api).await.json();
    assert_eq!(
        (second["user"].clone(), second["roles"].clone()),
        (who["user"].clone(), json!(["member_billing"]))
    );
    // Another person with the same name is another user.
    {
        let mut behaviour = provider.behaviour.lock();
        behaviour.claims = json!({ "sub": "78" });
        behaviour.userinfo["sub"] = json!("78");
    }
    assert_eq!(provider.sign_in(&api).await.json()["name"], "78@PeeringDB");
    let ops = api.key("ops");
    let audit = api.get(&ops, "/api/v1/audit").await.text();
    assert!(
        audit.contains("\"subject\":\"77\"") && audit.contains(&provider.issuer),
        "{audit}"
    );
}

#[tokio::test]
async fn a_deactivated_person_is_not_let_in_by_the_provider() {
    let provider = Provider::start().await;
    let api = provider.api().await;
    let who = provider.sign_in(&api).await.json();
    let path = format!("/api/v1/users/{}", who["user"].as_str().unwrap());
    let body = json!({ "deactivated": true });
    let set = crate::desk::put(&api, &api.key("ann"), &path, body).await;
    assert_eq!(set.status, 200, "{}", set.text());
    let refused = provider.sign_in(&api).await;
    assert_eq!(
        (refused.status, &refused.json()["code"]),
        (403, &json!("user-deactivated"))
    );
    assert!(!cookies(&refused).contains_key("__Host-millrace"));
}

#[tokio::test]
async fn each_wrong_answer_is_refused_and_sets_no_session() {
    let provider = Provider::start().await;
    let api = provider.api().await;
    let token = |claims: Value| {
        move |behaviour: &mut Behaviour| {
            behaviour.claims = claims.clone();
        }
    };
    type Change = Box<dyn Fn(&mut Behaviour)>;
    let now = seconds();
    let tokens: [(Change, u16, &str); 8] = [
        (
            Box::new(token(json!({ "iss": "https://evil.example" }))),
            401,
            "issuer",
        ),
        (
            Box::new(token(json!({ "aud": "another" }))),
            401,
            "another client",
        ),
        (
            Box::new(token(json!({ "nonce": "another" }))),
            401,
            "another sign-in",
        ),
        (Box::new(token(json!({ "exp": now - 120 }))), 401, "expired"),
        (Box::new(token(json!({ "iat": now + 120 }))), 401, "clocks"),
        (Box::new(|behaviour| behaviour.key = new_key()), 401, "signature"),
        (
            Box::new(|behaviour| behaviour.userinfo["sub"] = json!("78")),
            401,
            "another person",
        ),
        (
            Box::new(|behaviour| behaviour.userinfo["networks"] = json!([{ "asn": 7, "perms": 15 }])),
            403,
            "AS7",
        ),
    ];
    for (change, status, word) in tokens {
        // Each case has its own provider and exchange, so that the limit on attempts does not apply.
        let provider = Provider::start().await;
        let api = provider.api().await;
        change(&mut provider.behaviour.lock());
        let answer = provider.sign_in(&api).await;
        assert_eq!(answer.status, status, "{}", answer.text());
        assert!(
            answer.json()["detail"].as_str().unwrap().contains(word),
            "{word}: {}",
            answer.text()
        );
        assert!(!cookies(&answer).contains_key("__Host-millrace"), "{word}");
    }
    let (cookie, parameters) = provider.begin(&api).await;
    let (other, _) = provider.begin(&api).await;
    let (state, iss) = (&parameters["state"], &provider.issuer);
    let asked = provider.behaviour.lock().requests;
    for (cookie, answer, code) in [
        (
            "",
            json!({ "code": "right", "state": state, "iss": iss }),
            "wrong-answer",
        ),
        (
            &other,
            json!({ "code": "right", "state": state, "iss": iss }),
            "wrong-answer",
        ),
        (
            &cookie[1..],
            json!({ "code": "right", "state": state, "iss": iss }),
            "wrong-answer",
        ),
        (&cookie, json!({ "code": "right", "iss": iss }), "wrong-answer"),
        (
            &cookie,
            json!({ "code": "right", "state": "x", "iss": iss }),
            "wrong-answer",
        ),
        (
            &cookie,
            json!({ "code": "right", "state": state, "iss": "https://evil.example" }),
            "wrong-answer",
        ),
        (
            &cookie,
            json!({ "code": "right", "state": state }),
            "wrong-answer",
        ),
        (
            &cookie,
            json!({ "error": "access_denied", "state": state, "iss": iss }),
            "provider-refused",
        ),
    ] {
        let refused = finish(&api, cookie, answer.clone()).await;
        assert_eq!(
            (refused.status, refused.json()["code"].clone()),
            (401, json!(code)),
            "{answer}"
        );
        assert!(!cookies(&refused).contains_key("__Host-millrace"), "{answer}");
    }
    assert_eq!(
        provider.behaviour.lock().requests,
        asked,
        "nothing of that reached the provider"
    );
    let wrong = finish(
        &api,
        &cookie,
        json!({ "code": "wrong", "state": state, "iss": iss }),
    )
    .await;
    assert_eq!(
        (wrong.status, wrong.json()["code"].clone()),
        (503, json!("provider-away"))
    );
    // The addresses and words of the provider are for the staff.
    for secret in ["invalid_grant", "127.0.0.1"] {
        assert!(!wrong.text().contains(secret), "{}", wrong.text());
    }
}

#[tokio::test]
async fn a_sign_in_proves_the_as_numbers_that_the_person_administers_and_no_others() {
    let provider = Provider::start().await;
    let api = provider.api().await;
    provider.behaviour.lock().userinfo["networks"] = json!([
        { "asn": 64_500, "perms": 15 }, { "asn": 64_777, "perms": 15 }, { "asn": 64_778, "perms": 3 }]);
    let signed_in = provider.sign_in(&api).await;
    let account = signed_in.json()["account"]["id"].as_str().unwrap().to_owned();
    let session = format!("__Host-millrace={}", cookies(&signed_in)["__Host-millrace"]);
    let headers = [("cookie", session.as_str()), ("if-match", "*")];
    let set = async |body: Value| {
        let path = format!("/api/v1/accounts/{account}/networks");
        api.send(Method::PUT, &path, "", &headers, Some(body)).await
    };
    for asn in [64_778, 15_169, 64_501] {
        let refused = set(json!({ "asns": [64_500, asn] })).await;
        assert_eq!(refused.status, 403, "{}", refused.text());
        assert_eq!(refused.json()["coded"][0]["code"], "asn-unproven");
    }
    let refused = set(json!({ "asns": [64_500], "as_set": "AS-GOOGLE@RIPE" })).await;
    assert_eq!(
        (refused.status, refused.json()["coded"][0]["code"].clone()),
        (403, json!("as-set-unproven"))
    );
    let proven = set(json!({ "asns": [64_500, 64_777], "as_set": "AS64777:AS-CUSTOMERS" })).await;
    assert_eq!(proven.status, 200, "{}", proven.text());
    let account = api
        .get(&api.key("ops"), &format!("/api/v1/accounts/{account}"))
        .await;
    assert_eq!(account.json()["asns"], json!([64_500, 64_777]));
    // An API key proves nothing.
    let ann = api.key("ann");
    let path = format!(
        "/api/v1/accounts/{}/networks",
        account.json()["id"].as_str().unwrap()
    );
    let more = json!({ "asns": [64_500, 64_777, 64_779] });
    let refused = api
        .send(Method::PUT, &path, &ann, &[("if-match", "*")], Some(more))
        .await;
    assert_eq!(refused.status, 403, "{}", refused.text());
}

#[tokio::test]
async fn a_mail_address_or_a_name_of_another_user_makes_nobody_that_user() {
    let provider = Provider::start().await;
    let api = provider.api().await;
    {
        let mut behaviour = provider.behaviour.lock();
        behaviour.userinfo["email"] = json!("ann@example.net");
        behaviour.userinfo["email_verified"] = json!(true);
        behaviour.userinfo["preferred_username"] = json!("ann");
    }
    let who = provider.sign_in(&api).await.json();
    assert_ne!(who["user"], json!(api.user("ann").to_string()));
    assert_eq!(who["name"], "ann@PeeringDB");
}

#[tokio::test]
async fn a_description_of_the_provider_is_one_line_of_plain_text() {
    let provider = Provider::start().await;
    let api = provider.api().await;
    let (cookie, parameters) = provider.begin(&api).await;
    let answer = json!({ "error": "access_denied", "state": parameters["state"], "iss": provider.issuer,
        "error_description": "no\r\n2026-11-28T00:00:00Z  INFO ops signed in\u{1b}[2K\u{202e}" });
    let refused = finish(&api, &cookie, answer).await;
    let expected = "the provider refused: access_denied: no2026-11-28T00:00:00Z  INFO ops signed in[2K";
    assert_eq!(refused.json()["detail"], expected);
    let entries = api
        .get(&api.key("ops"), "/api/v1/audit?actor=anonymous")
        .await
        .json();
    assert_eq!(entries["items"][0]["detail"]["reason"], expected);
}

#[tokio::test]
async fn callbacks_without_a_sign_in_are_limited_and_leave_no_entry_in_the_audit_chain() {
    let provider = Provider::start().await;
    let api = provider.api().await;
    let callback = async || {
        let answer = api
            .send(Method::POST, "/api/v1/oidc/callback", "", &[], Some(json!({})))
            .await;
        answer.status
    };
    for attempt in 0..20 {
        assert_eq!(callback().await, 401, "{attempt}");
    }
    assert_eq!(callback().await, 429);
    let ops = api.key("ops");
    let entries = api.get(&ops, "/api/v1/audit?actor=anonymous").await.json();
    assert_eq!(entries["items"], json!([]));
    // A valid cookie with a wrong answer adds an entry to the audit chain.
    let api = provider.api().await;
    let ops = api.key("ops");
    let (cookie, _) = provider.begin(&api).await;
    assert_eq!(finish(&api, &cookie, json!({ "state": "x" })).await.status, 401);
    let entries = api.get(&ops, "/api/v1/audit?actor=anonymous").await.json();
    assert_eq!(entries["items"].as_array().unwrap().len(), 1, "{entries}");
}

#[tokio::test]
async fn without_a_provider_nobody_signs_in_by_one() {
    let api = Api::new().await;
    assert_eq!(api.get("", "/api/v1/oidc").await.json()["name"], Value::Null);
    for path in ["/api/v1/oidc", "/api/v1/oidc/callback"] {
        let answer = api.send(Method::POST, path, "", &[], Some(json!({}))).await;
        assert_eq!(answer.status, 404, "{path}");
    }
    // Two providers do not answer, and one names another issuer.
    let settings = |issuer: &str| OidcSettings {
        issuer: issuer.to_owned(),
        name: "away".to_owned(),
        client_id: "millrace".to_owned(),
        client_secret: None,
        redirect_uri: REDIRECT.to_owned(),
        scopes: Vec::new(),
    };
    let closed = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", closed.local_addr().unwrap());
    drop(closed);
    let provider = Provider::start().await;
    for (issuer, status) in [
        (address.as_str(), 503),
        ("http://192.0.2.1/", 503),
        (&format!("{}/", provider.issuer), 401),
    ] {
        let api = Api::with(|all| all.oidc = Some(settings(issuer))).await;
        let answer = api.send(Method::POST, "/api/v1/oidc", "", &[], None).await;
        assert_eq!(answer.status, status, "{issuer}: {}", answer.text());
    }
}
