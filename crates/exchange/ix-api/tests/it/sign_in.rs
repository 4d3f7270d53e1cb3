//! Sign-in through the router of the API.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::http::Method;
use futures::poll;
use millrace_ix_api::demo::PASSWORD;
use millrace_ix_api::session::{
    ApiKeyRecord, CredentialStore, KeyScope, MemoryCredentials, Stored, TotpSecret, UserCredentials, code_at,
    verify_password,
};
use millrace_ix_model::Timestamp;
use parking_lot::Mutex;
use serde_json::json;

use crate::support::{Answer, Api};

async fn sign_in(api: &Api, body: serde_json::Value) -> Answer {
    api.send(Method::POST, "/api/v1/session", "", &[], Some(body))
        .await
}

fn cookie(answer: &Answer) -> String {
    answer.headers["set-cookie"]
        .to_str()
        .unwrap()
        .split(';')
        .next()
        .unwrap()
        .to_owned()
}

fn seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

#[tokio::test]
async fn a_member_signs_in_reads_and_signs_out() {
    let api = Api::new().await;
    api.app.set_password(api.user("ann"), PASSWORD).await.unwrap();
    let answer = sign_in(&api, json!({ "name": "Ann", "password": PASSWORD })).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.json()["account"]["name"], "Aoba Networks");
    let cookie = cookie(&answer);
    let with = [("cookie", cookie.as_str())];
    assert_eq!(
        api.send(Method::GET, "/api/v1/session", "", &with, None)
            .await
            .status,
        200
    );
    let foreign = [("cookie", cookie.as_str()), ("origin", "https://evil.example")];
    let answer = api
        .send(Method::DELETE, "/api/v1/session", "", &foreign, None)
        .await;
    assert_eq!(answer.status, 403, "a page of another origin");
    assert_eq!(
        api.send(Method::DELETE, "/api/v1/session", "", &with, None)
            .await
            .status,
        204
    );
    assert_eq!(
        api.send(Method::GET, "/api/v1/session", "", &with, None)
            .await
            .status,
        401
    );
    let ops = api.key("ops");
    let audit = api.get(&ops, "/api/v1/audit?actor=ann").await.json();
    let acts: Vec<_> = audit["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| entry["action"].clone())
        .collect();
    assert_eq!(acts, ["sign_out", "sign_in"], "newest first");
}

#[tokio::test]
async fn a_wrong_name_and_a_wrong_password_get_the_same_answer() {
    let api = Api::new().await;
    api.app.set_password(api.user("ann"), PASSWORD).await.unwrap();
    let wrong = sign_in(&api, json!({ "name": "ann", "password": "wrong" })).await;
    let nobody = sign_in(&api, json!({ "name": "nobody", "password": "wrong" })).await;
    let without_password = sign_in(&api, json!({ "name": "bob", "password": "" })).await;
    assert_eq!(wrong.status, 401);
    assert_eq!(wrong.text(), nobody.text());
    assert_eq!(wrong.text(), without_password.text());
}

#[tokio::test]
async fn an_operator_needs_a_second_factor_and_a_code_is_valid_once() {
    let api = Api::new().await;
    let user = api.user("ops");
    api.app.set_password(user, PASSWORD).await.unwrap();
    let without = sign_in(&api, json!({ "name": "ops", "password": PASSWORD })).await;
    assert_eq!(
        (without.status, without.json()["code"].clone()),
        (403, json!("no-second-factor"))
    );
    let secret = TotpSecret::generate().unwrap();
    api.app.set_totp(user, &secret).await.unwrap();
    let asked = sign_in(&api, json!({ "name": "ops", "password": PASSWORD })).await;
    assert!(asked.text().contains("code-required"), "{}", asked.text());
    let code = code_at(&secret, seconds());
    let right = sign_in(&api, json!({ "name": "ops", "password": PASSWORD, "code": code })).await;
    assert_eq!(right.status, 200, "{}", right.text());
    assert_eq!(right.json()["operator"], true);
    let again = sign_in(&api, json!({ "name": "ops", "password": PASSWORD, "code": code })).await;
    assert_eq!(again.json()["code"], "wrong-code");
    let audit = api
        .get(&api.key("ops"), "/api/v1/audit?actor=anonymous")
        .await
        .json();
    let failed = &audit["items"][0];
    assert_eq!(
        (&failed["action"], &failed["detail"]["factor"]),
        (&json!("sign_in_failed"), &json!("code"))
    );
}

#[tokio::test]
async fn of_requests_at_once_with_one_code_the_first_alone_signs_in() {
    let api = Api::new().await;
    let user = api.user("ops");
    api.app.set_password(user, PASSWORD).await.unwrap();
    let secret = TotpSecret::generate().unwrap();
    api.app.set_totp(user, &secret).await.unwrap();
    let body = json!({ "name": "ops", "password": PASSWORD, "code": code_at(&secret, seconds()) });
    let answers = tokio::join!(
        sign_in(&api, body.clone()),
        sign_in(&api, body.clone()),
        sign_in(&api, body.clone())
    );
    let mut statuses = [answers.0.status, answers.1.status, answers.2.status];
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 401, 401]);
}

#[tokio::test]
async fn a_sign_in_does_not_restore_a_password_that_was_changed_meanwhile() {
    const NEW: &str = "another horse battery";
    let api = Api::new().await;
    let user = api.user("ann");
    api.app.set_password(user, PASSWORD).await.unwrap();
    // The first request waits for its hash while the password is changed.
    let mut old = pin!(sign_in(&api, json!({ "name": "ann", "password": PASSWORD })));
    assert!(poll!(&mut old).is_pending());
    api.app.set_password(user, NEW).await.unwrap();
    let old = old.await;
    assert_eq!(old.status, 401, "{}", old.text());
    let new = sign_in(&api, json!({ "name": "ann", "password": NEW })).await;
    assert_eq!(new.status, 200, "{}", new.text());
}

#[tokio::test]
async fn the_sixth_attempt_in_a_minute_is_refused_also_with_the_right_password() {
    let api = Api::new().await;
    api.app.set_password(api.user("ann"), PASSWORD).await.unwrap();
    for _ in 0..5 {
        assert_eq!(
            sign_in(&api, json!({ "name": "ann", "password": "wrong" }))
                .await
                .status,
            401
        );
    }
    let sixth = sign_in(&api, json!({ "name": "ann", "password": PASSWORD })).await;
    assert_eq!(sixth.status, 429);
    let seconds: u64 = sixth.headers["retry-after"].to_str().unwrap().parse().unwrap();
    assert!((1..=60).contains(&seconds), "{seconds}");
}

#[tokio::test]
async fn a_user_signs_in_from_elsewhere_and_from_a_known_browser_while_others_guess() {
    let api = Api::new().await;
    api.app.set_password(api.user("ann"), PASSWORD).await.unwrap();
    let right = json!({ "name": "ann", "password": PASSWORD });
    let first = sign_in(&api, right.clone()).await;
    let known = first.headers.get_all("set-cookie").iter();
    let known = known
        .filter_map(|value| value.to_str().unwrap().split(';').next())
        .find(|pair| pair.starts_with("__Host-millrace-device="))
        .unwrap();
    // Networks of a botnet use up the limits of their own, and then the limit of the login.
    for number in 0..65 {
        let client = format!("2001:db8:{number:x}::1");
        let body = json!({ "name": "ann", "password": "wrong" });
        let answer = api
            .send_over_proxy(Method::POST, "/api/v1/session", "", &client, body)
            .await;
        let expected = if number < 59 { 401 } else { 429 };
        assert_eq!(answer.status, expected, "{number}: {}", answer.text());
    }
    let headers = [("cookie", known)];
    for _ in 0..2 {
        let again = api
            .send(Method::POST, "/api/v1/session", "", &headers, Some(right.clone()))
            .await;
        assert_eq!(again.status, 200, "{}", again.text());
    }
    // A browser is known for its own user and password only.
    api.app
        .set_password(api.user("ann"), "another horse battery")
        .await
        .unwrap();
    let changed = json!({ "name": "ann", "password": "another horse battery" });
    let refused = api
        .send(Method::POST, "/api/v1/session", "", &headers, Some(changed))
        .await;
    assert_eq!(refused.status, 429, "{}", refused.text());
    // All these failures are one entry of the audit chain until the minute is over.
    let audit = api
        .get(&api.key("ops"), "/api/v1/audit?actor=anonymous")
        .await
        .json();
    assert_eq!(audit["items"].as_array().unwrap().len(), 1, "{audit}");
}

#[tokio::test]
async fn after_ten_wrong_codes_an_unknown_browser_waits_and_the_users_own_browser_does_not() {
    let api = Api::new().await;
    let user = api.user("ops");
    api.app.set_password(user, PASSWORD).await.unwrap();
    let secret = TotpSecret::generate().unwrap();
    api.app.set_totp(user, &secret).await.unwrap();
    let code = code_at(&secret, seconds());
    let first = sign_in(&api, json!({ "name": "ops", "password": PASSWORD, "code": code })).await;
    assert_eq!(first.status, 200, "{}", first.text());
    let known = first.headers.get_all("set-cookie").iter();
    let known = known
        .filter_map(|value| value.to_str().unwrap().split(';').next())
        .find(|pair| pair.starts_with("__Host-millrace-device="))
        .unwrap();
    let wrong = json!({ "name": "ops", "password": PASSWORD, "code": "abcdef" });
    for number in 0..12 {
        let client = format!("203.0.113.{number}");
        let answer = api
            .send_over_proxy(Method::POST, "/api/v1/session", "", &client, wrong.clone())
            .await;
        let expected = if number < 10 { 401 } else { 429 };
        assert_eq!(answer.status, expected, "{number}: {}", answer.text());
    }
    let again = api
        .send(
            Method::POST,
            "/api/v1/session",
            "",
            &[("cookie", known)],
            Some(wrong.clone()),
        )
        .await;
    assert_eq!(again.json()["code"], "wrong-code");
    // The staff lets a stranger try again by a new password.
    api.app.set_password(user, PASSWORD).await.unwrap();
    let answer = api
        .send_over_proxy(Method::POST, "/api/v1/session", "", "203.0.113.99", wrong)
        .await;
    assert_eq!(answer.json()["code"], "wrong-code");
}

#[tokio::test]
async fn an_api_key_is_shown_once_acts_in_its_scope_and_can_be_withdrawn() {
    let api = Api::new().await;
    let ann = api.key("ann");
    let made = api.made_key("ann", "ansible", "read").await;
    let secret = made["secret"].as_str().unwrap().to_owned();
    assert!(secret.starts_with("mx_"));
    assert_eq!(api.get(&secret, "/api/v1/services").await.status, 200);
    let write = api
        .send(
            Method::POST,
            "/api/v1/api-keys",
            &secret,
            &[],
            Some(json!({ "name": "x", "scope": "write" })),
        )
        .await;
    assert_eq!(write.status, 403);
    let list = api.get(&ann, "/api/v1/api-keys").await;
    assert!(!list.text().contains(&secret));
    assert!(
        list.json()["items"]
            .as_array()
            .unwrap()
            .iter()
            .any(|key| key["last_used"].is_string())
    );
    let bob = api.key_of(api.user("bob"), "bob", KeyScope::Write);
    let path = format!("/api/v1/api-keys/{}", made["key"]["id"].as_str().unwrap());
    assert_eq!(api.send(Method::DELETE, &path, &bob, &[], None).await.status, 404);
    assert_eq!(api.send(Method::DELETE, &path, &ann, &[], None).await.status, 204);
    assert_eq!(api.get(&secret, "/api/v1/services").await.status, 401);
}

#[tokio::test]
async fn an_api_key_makes_no_other_key() {
    let api = Api::new().await;
    let made = api.made_key("ann", "ansible", "write").await;
    let stolen = made["secret"].as_str().unwrap();
    let body = json!({ "name": "second", "scope": "write" });
    let second = api
        .send(Method::POST, "/api/v1/api-keys", stolen, &[], Some(body.clone()))
        .await;
    assert_eq!(
        (second.status, second.json()["code"].clone()),
        (403, json!("session-required"))
    );
    // A token that was made from the key may not make a key either.
    let pair = json!({ "api_key": made["key"]["id"], "api_secret": stolen });
    let pair = api
        .send(Method::POST, "/api/v2/auth/token", "", &[], Some(pair))
        .await
        .json();
    let token = pair["access_token"].as_str().unwrap();
    let second = api
        .send(Method::POST, "/api/v1/api-keys", token, &[], Some(body))
        .await;
    assert_eq!(second.status, 403, "{}", second.text());
}

#[tokio::test]
async fn a_password_reset_by_the_staff_deletes_api_keys_and_an_own_change_keeps_them() {
    let api = Api::new().await;
    let (ann, bob) = (
        api.key("ann"),
        api.key_of(api.user("bob"), "bob", KeyScope::Write),
    );
    api.app.set_password(api.user("ann"), PASSWORD).await.unwrap();
    assert_eq!(api.get(&ann, "/api/v1/services").await.status, 200);
    assert_eq!(
        api.app.reset_password(api.user("ann"), PASSWORD).await.unwrap(),
        1
    );
    assert_eq!(api.get(&ann, "/api/v1/services").await.status, 401);
    assert_eq!(api.get(&bob, "/api/v1/services").await.status, 200);
}

type Act = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A store that runs an act right after a value was read, such as a password reset by the staff.
struct ActAfterRead {
    store: Arc<MemoryCredentials>,
    /// The key or prefix, and the act that runs after its next read.
    armed: Mutex<Option<(String, Act)>>,
}

/// The password that the staff sets.
const RESET: &str = "set by the staff 1";

impl ActAfterRead {
    /// Returns the API over such a store, and the store.
    async fn api() -> (Api, Arc<ActAfterRead>) {
        let mut kept = None;
        let api = Api::with_store(|store| {
            let armed = Mutex::new(None);
            let store = Arc::new(ActAfterRead { store, armed });
            kept = Some(Arc::clone(&store));
            store
        })
        .await;
        (api, kept.unwrap())
    }

    fn arm(&self, key: impl Into<String>, act: impl Future<Output = ()> + Send + 'static) {
        *self.armed.lock() = Some((key.into(), Box::pin(act)));
    }

    fn is_armed(&self) -> bool {
        self.armed.lock().is_some()
    }

    async fn was_read(&self, key: &str) {
        let armed = self.armed.lock().take_if(|(of, _)| of == key);
        if let Some((_, act)) = armed {
            act.await;
        }
    }
}

impl CredentialStore for ActAfterRead {
    fn load<'a>(&'a self, key: &'a str) -> Stored<'a, Option<Vec<u8>>> {
        Box::pin(async move {
            let value = self.store.load(key).await;
            self.was_read(key).await;
            value
        })
    }

    fn save<'a>(&'a self, key: &'a str, value: Option<&'a [u8]>) -> Stored<'a, ()> {
        self.store.save(key, value)
    }

    fn list<'a>(&'a self, prefix: &'a str) -> Stored<'a, Vec<(String, Vec<u8>)>> {
        Box::pin(async move {
            let values = self.store.list(prefix).await;
            self.was_read(prefix).await;
            values
        })
    }
}

#[tokio::test]
async fn a_password_reset_by_the_staff_is_not_undone_by_requests_under_way() {
    let (api, store) = ActAfterRead::api().await;
    let ann = api.user("ann");
    let cookie = api.session("ann").await;
    let arm = |key: String| {
        let app = api.app.clone();
        store.arm(key, async move {
            app.reset_password(ann, RESET).await.unwrap();
        });
    };
    let user = UserCredentials::key(&ann.to_string());
    arm(user.clone());
    let headers = [("cookie", cookie.as_str())];
    let change = json!({ "present": PASSWORD, "new": "another correct horse" });
    let changed = api
        .send(
            Method::PUT,
            "/api/v1/session/password",
            "",
            &headers,
            Some(change),
        )
        .await;
    assert_eq!(changed.status, 403, "{}", changed.text());
    assert!(!store.is_armed(), "the password was reset");
    let stored = store.load(&user).await.unwrap().unwrap();
    let stored: UserCredentials = serde_json::from_slice(&stored).unwrap();
    assert!(verify_password(RESET, stored.password.as_deref()));

    let cookie = api.session("ann").await;
    arm("key/".to_owned());
    let headers = [("cookie", cookie.as_str())];
    let key = json!({ "name": "hidden", "scope": "write" });
    let made = api
        .send(Method::POST, "/api/v1/api-keys", "", &headers, Some(key))
        .await;
    assert_eq!(made.status, 401, "{}", made.text());
    assert!(!store.is_armed(), "the password was reset");
    assert_eq!(store.list("key/").await.unwrap(), []);
}

#[tokio::test]
async fn requests_at_once_do_not_exceed_the_maximum_number_of_api_keys() {
    let (api, store) = ActAfterRead::api().await;
    let (cookie, ann) = (api.session("ann").await, api.user("ann"));
    let record = ApiKeyRecord {
        user: ann,
        name: "robot".to_owned(),
        scope: KeyScope::Read,
        created: Timestamp::from_secs(0),
        last_used: None,
    };
    let record = serde_json::to_vec(&record).unwrap();
    for number in 0..49 {
        let key = format!("key/{number:064x}");
        store.save(&key, Some(&record)).await.unwrap();
    }
    // Another request creates the last permitted key after this request has counted the keys.
    let other = Arc::clone(&store.store);
    store.arm("key/", async move {
        let key = format!("key/{:064x}", 49);
        other.save(&key, Some(&record)).await.unwrap();
    });
    let headers = [("cookie", cookie.as_str())];
    let key = json!({ "name": "one more", "scope": "write" });
    let made = api
        .send(Method::POST, "/api/v1/api-keys", "", &headers, Some(key))
        .await;
    assert_eq!(made.status, 409, "{}", made.text());
    assert!(!store.is_armed(), "the other key was created");
    assert_eq!(store.list("key/").await.unwrap().len(), 50);
}

#[tokio::test]
async fn a_password_stays_and_a_sign_out_happens_if_the_audit_chain_takes_no_entry() {
    let (api, store) = ActAfterRead::api().await;
    let cookie = api.session("ann").await;
    let headers = [("cookie", cookie.as_str())];
    let credentials = UserCredentials::key(&api.user("ann").to_string());
    let before = store.load(&credentials).await.unwrap();
    api.world.set_full(true);
    let change = json!({ "present": PASSWORD, "new": "another correct horse" });
    let path = "/api/v1/session/password";
    let changed = api.send(Method::PUT, path, "", &headers, Some(change)).await;
    assert_eq!(changed.status, 503, "{}", changed.text());
    assert_eq!(store.load(&credentials).await.unwrap(), before);
    let signed_out = api
        .send(Method::DELETE, "/api/v1/session", "", &headers, None)
        .await;
    assert_eq!(signed_out.status, 204, "{}", signed_out.text());
    let read = api.send(Method::GET, "/api/v1/session", "", &headers, None).await;
    assert_eq!(read.status, 401);
}

#[tokio::test]
async fn every_answer_carries_the_policy_and_is_kept_by_no_shared_cache() {
    let api = Api::new().await;
    for path in ["/", "/api/v1/session", "/api/v1/nothing"] {
        let answer = api.get("", path).await;
        let policy = answer.headers["content-security-policy"].to_str().unwrap();
        assert!(
            policy.contains("default-src 'none'") && !policy.contains("unsafe"),
            "{policy}"
        );
        assert_eq!(answer.headers["x-content-type-options"], "nosniff");
        assert_eq!(answer.headers["strict-transport-security"], "max-age=31536000");
    }
    let answer = api.get("", "/api/v1/session").await;
    assert_eq!(answer.headers["content-type"], "application/problem+json");
    assert!(
        answer.headers["cache-control"]
            .to_str()
            .unwrap()
            .contains("no-store")
    );
}

#[tokio::test]
async fn changes_of_passwords_are_limited_by_the_address_of_the_client_and_not_of_the_proxy() {
    let api = Api::new().await;
    api.app.set_password(api.user("ann"), PASSWORD).await.unwrap();
    let ann = api.key("ann");
    for number in 0..20 {
        let body = json!({ "name": format!("nobody {number}"), "password": "" });
        let answer = api
            .send_over_proxy(Method::POST, "/api/v1/session", "", "203.0.113.1", body)
            .await;
        assert_eq!(answer.status, 401);
    }
    let change = json!({ "present": PASSWORD, "new": "another correct horse" });
    let path = "/api/v1/session/password";
    let refused = api
        .send_over_proxy(Method::PUT, path, &ann, "203.0.113.1", change.clone())
        .await;
    assert_eq!(refused.status, 429, "{}", refused.text());
    let changed = api
        .send_over_proxy(Method::PUT, path, &ann, "203.0.113.2", change)
        .await;
    assert_eq!(changed.status, 204, "{}", changed.text());
}

#[tokio::test]
async fn everybody_may_read_the_name_of_the_exchange() {
    let api = Api::new().await;
    let answer = api.get("", "/api/v1/oidc").await.json();
    assert_eq!(
        answer,
        serde_json::json!({ "exchange": "Test IX", "name": null, "mail": false })
    );
}
