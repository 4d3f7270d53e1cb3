//! Users of accounts: their API keys while the disk is full, and their removal.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::http::Method;
use millrace_ix_api::session::{CredentialError, CredentialStore, KeyScope, MemoryCredentials, Stored};

use crate::support::{Answer, Api};

/// A store on a disk that gets full.
struct Full(Arc<MemoryCredentials>, AtomicBool);

impl CredentialStore for Full {
    fn load<'a>(&'a self, key: &'a str) -> Stored<'a, Option<Vec<u8>>> {
        self.0.load(key)
    }

    fn save<'a>(&'a self, key: &'a str, value: Option<&'a [u8]>) -> Stored<'a, ()> {
        if self.1.load(Ordering::SeqCst) {
            let full = CredentialError {
                reason: "the disk is full".to_owned(),
                follows: None,
            };
            return Box::pin(std::future::ready(Err(full)));
        }
        self.0.save(key, value)
    }

    fn list<'a>(&'a self, prefix: &'a str) -> Stored<'a, Vec<(String, Vec<u8>)>> {
        self.0.list(prefix)
    }
}

#[tokio::test]
async fn an_api_key_reads_while_the_disk_is_full() {
    let mut full = None;
    let api = Api::with_store(|store| {
        let store = Arc::new(Full(store, AtomicBool::new(false)));
        full = Some(Arc::clone(&store));
        store
    })
    .await;
    let ann = api.key("ann");
    full.unwrap().1.store(true, Ordering::SeqCst);
    for _ in 0..2 {
        let answer = api.get(&ann, "/api/v1/services").await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
}

#[tokio::test]
async fn the_administrator_of_an_account_removes_its_users_and_no_others() {
    let api = Api::new().await;
    let exchange = millrace_ix_api::demo::demo().unwrap();
    let admins = |user: &millrace_ix_model::User| user.roles.contains(&millrace_ix_model::Role::MemberAdmin);
    let (admin, account) = exchange
        .users
        .values()
        .find(|user| admins(user))
        .map(|user| (user.name.clone(), user.account))
        .unwrap();
    let key = api.key(&admin);
    let body = serde_json::json!({ "name": "leaver", "roles": ["member_tech"] });
    let made = api
        .send(Method::POST, "/api/v1/users", &key, &[], Some(body))
        .await;
    assert_eq!(made.status, 201, "{}", made.text());
    let id = made.json()["created"][0].as_str().unwrap().to_owned();
    let path = format!("/api/v1/users/{id}");
    let leaver = api.key_of(id.parse().unwrap(), "leaver", KeyScope::Write);
    assert_eq!(api.get(&leaver, "/api/v1/services").await.status, 200);
    let foreign = exchange
        .users
        .iter()
        .find(|(_, user)| user.account != account && admins(user));
    let (foreign_id, foreign) = foreign.unwrap();
    let headers = [("if-match", "*")];
    let stranger = api.key(&foreign.name);
    let refused = api.send(Method::DELETE, &path, &stranger, &headers, None).await;
    assert_eq!(refused.status, 404, "{}", refused.text());
    let foreign_path = format!("/api/v1/users/{foreign_id}");
    assert_eq!(
        api.send(Method::DELETE, &foreign_path, &key, &headers, None)
            .await
            .status,
        404
    );
    let removed = api.send(Method::DELETE, &path, &key, &headers, None).await;
    assert_eq!(removed.status, 200, "{}", removed.text());
    assert_eq!(api.get(&leaver, "/api/v1/services").await.status, 401);
    assert_eq!(api.get(&key, &path).await.status, 404);
    // The account still reads its own order, although the object is gone; others do not.
    let deletion = |answer: Answer| {
        let items = answer.json()["items"].as_array().unwrap().clone();
        items.into_iter().any(|change| change["operation"] == "delete")
    };
    assert!(deletion(api.get(&key, "/api/v1/changes").await));
    assert!(!deletion(api.get(&stranger, "/api/v1/changes").await));
}
