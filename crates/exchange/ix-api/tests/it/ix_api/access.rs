//! Tokens, objects of other accounts, and the OpenAPI document.

use axum::http::Method;
use serde_json::{Value, json};

use super::{get, id, owned, patch, post, refused, with, with_lan, write_back};
use crate::support::Api;

#[tokio::test]
async fn tokens_come_from_an_api_key_rotate_and_end_with_it() {
    let api = Api::new().await;
    let ann = api.key("ann");
    let made = api.made_key("ann", "pyixapi", "write").await;
    let (key, secret) = (made["key"]["id"].clone(), made["secret"].clone());
    let headers = [("content-type", "application/json;")];
    let token =
        async |path: &str, body: Value| api.send(Method::POST, path, "", &headers[..0], Some(body)).await;
    let pair = token(
        "/api/v2/auth/token",
        json!({ "api_key": key, "api_secret": secret }),
    )
    .await;
    assert_eq!(pair.status, 200, "{}", pair.text());
    let access = pair.json()["access_token"].as_str().unwrap().to_owned();
    let refresh = pair.json()["refresh_token"].clone();
    assert_eq!(get(&api, &access, "/connections").await.status, 200);
    assert_eq!(api.get(&access, "/api/v1/services").await.status, 200);
    let wrong = token(
        "/api/v2/auth/token",
        json!({ "api_key": key, "api_secret": "mx_wrong" }),
    )
    .await;
    assert_eq!(
        (wrong.status, wrong.json()["type"].clone()),
        (
            401,
            json!("https://errors.ix-api.net/v2/authentication-error.html")
        )
    );
    let next = token("/api/v2/auth/refresh", json!({ "refresh_token": refresh })).await;
    assert_eq!(next.status, 200, "{}", next.text());
    let used = token("/api/v2/auth/refresh", json!({ "refresh_token": refresh })).await;
    assert_eq!(used.status, 401);
    assert_eq!(
        get(
            &api,
            next.json()["refresh_token"].as_str().unwrap(),
            "/connections"
        )
        .await
        .status,
        401
    );
    let path = format!("/api/v1/api-keys/{}", key.as_str().unwrap());
    assert_eq!(api.send(Method::DELETE, &path, &ann, &[], None).await.status, 204);
    assert_eq!(get(&api, &access, "/connections").await.status, 401);
    let late = token(
        "/api/v2/auth/refresh",
        json!({ "refresh_token": next.json()["refresh_token"] }),
    )
    .await;
    assert_eq!(late.status, 401);
}

#[tokio::test]
async fn an_object_of_another_member_is_answered_as_an_absent_one() {
    let api = Api::over(with_lan()).await;
    let (ann, dan, pro) = (api.key("ann"), api.key("dan"), api.key("pro"));
    let account = get(&api, &ann, "/account").await.json()["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let contact = with(
        owned(&account),
        json!({ "name": "Ann", "email": "ann@example.net" }),
    );
    let contact = id(&post(&api, &ann, "/contacts", contact).await);
    let assigned = id(&post(
        &api,
        &ann,
        "/role-assignments",
        json!({ "contact": contact, "role": "role-legal" }),
    )
    .await);
    let mac = id(&post(
        &api,
        &ann,
        "/macs",
        with(owned(&account), json!({ "address": "02:00:00:00:00:77" })),
    )
    .await);
    let first = async |path: &str| {
        let list = get(&api, &pro, path).await.json();
        let own = list
            .as_array()
            .unwrap()
            .iter()
            .find(|item| item["consuming_account"] == account.as_str());
        own.map(|item| item["id"].as_str().unwrap().to_owned())
    };
    let mut cases = vec![
        ("/contacts", contact),
        ("/role-assignments", assigned),
        ("/macs", mac),
    ];
    for path in [
        "/connections",
        "/network-services",
        "/network-service-configs",
        "/ports",
        "/ips",
    ] {
        cases.extend(first(path).await.map(|id| (path, id)));
    }
    assert!(cases.len() >= 6, "{cases:?}");
    for (path, id) in cases {
        let absent = format!(
            "{}999999",
            id.trim_end_matches(|digit: char| digit.is_ascii_digit())
        );
        for method in [Method::GET, Method::DELETE, Method::PATCH] {
            let mut answers = Vec::new();
            for id in [&id, &absent] {
                for headers in [&[][..], &[("idempotency-key", "0123456789")][..]] {
                    let body = (method == Method::PATCH).then(|| json!({}));
                    let url = format!("/api/v2{path}/{id}");
                    let answer = api.send(method.clone(), &url, &dan, headers, body).await;
                    answers.push((answer.status, answer.text().replace(id.as_str(), "ID")));
                }
            }
            assert!(
                answers.iter().all(|answer| *answer == answers[0]),
                "{method} {path}: {answers:?}"
            );
            assert!(matches!(answers[0].0, 404 | 405), "{method} {path}: {answers:?}");
        }
        assert_eq!(
            get(&api, &ann, &format!("{path}/{id}")).await.status,
            200,
            "{path}/{id}"
        );
        let list = get(&api, &dan, path).await.text();
        assert!(!list.contains(&format!("\"{id}\"")), "{path} shows {id}");
    }
}

#[tokio::test]
async fn what_a_client_has_read_it_writes_back_and_references_change_once() {
    let api = Api::over(with_lan()).await;
    let (ann, pro) = (api.key("ann"), api.key("pro"));
    let account = get(&api, &ann, "/account").await.json()["id"].clone();
    let account = account.as_str().unwrap();
    let contact = with(
        owned(account),
        json!({ "name": "Ann", "email": "ann@example.net" }),
    );
    let contact = format!("/contacts/{}", id(&post(&api, &ann, "/contacts", contact).await));
    write_back(&api, &ann, &contact, 200, &["id"]).await;
    refused(
        &api,
        &ann,
        &contact,
        json!({ "managing_account": "ac-999999" }),
        "managing_account",
    )
    .await;
    let merge = [("content-type", "application/merge-patch+json; charset=utf-8")];
    let url = format!("/api/v2{contact}");
    let patched = api
        .send(
            Method::PATCH,
            &url,
            &ann,
            &merge,
            Some(json!({ "external_ref": "c 1", "email": null })),
        )
        .await;
    assert_eq!(patched.status, 200, "{}", patched.text());
    assert_eq!(
        (
            &patched.json()["external_ref"],
            &patched.json()["email"],
            &patched.json()["name"]
        ),
        (&json!("c 1"), &Value::Null, &json!("Ann"))
    );
    let put = api.send(Method::PUT, &url, &ann, &merge, Some(json!({}))).await;
    assert_eq!(put.status, 415, "a merge patch is a PATCH: {}", put.text());
    for (collection, only_read, wrong) in [
        (
            "/connections",
            &[
                "id",
                "state",
                "status",
                "name",
                "ports",
                "vlan_types",
                "outer_vlan_ethertypes",
            ][..],
            "speed",
        ),
        (
            "/network-services",
            &[
                "id",
                "state",
                "status",
                "nsc_required_contact_roles",
                "capacity",
                "member_joining_rules",
                "network_features",
            ],
            "product_offering",
        ),
        ("/accounts", &["id", "state", "status"], "managing_account"),
    ] {
        let all = get(&api, &pro, collection).await.json();
        let mut all: Vec<&Value> = all.as_array().unwrap().iter().collect();
        // The objects of one account, or the accounts below none.
        let of = |item: &Value| match collection {
            "/accounts" => item["managing_account"].clone(),
            _ => item["consuming_account"].clone(),
        };
        all.retain(|item| item["type"] != "exchange_lan");
        let first = all
            .iter()
            .find(|one| all.iter().filter(|other| of(other) == of(one)).count() > 1);
        let first = of(first.unwrap_or_else(|| panic!("two of an account in {collection}")));
        all.retain(|item| of(item) == first);
        let paths = [all[0], all[1]].map(|item| format!("{collection}/{}", item["id"].as_str().unwrap()));
        write_back(&api, &pro, &paths[0], 200, only_read).await;
        let other = if wrong == "speed" {
            json!(1)
        } else {
            json!("ac-999999")
        };
        refused(&api, &pro, &paths[0], json!({ wrong: other }), wrong).await;
        let set = patch(&api, &pro, &paths[0], json!({ "external_ref": "new 1" })).await;
        assert_eq!(
            (set.status, &set.json()["external_ref"]),
            (200, &json!("new 1")),
            "{}",
            set.text()
        );
        let same = patch(&api, &pro, &paths[1], json!({ "external_ref": "new 1" })).await;
        assert_eq!(
            (same.status, &same.json()["type"]),
            (400, &json!("https://errors.ix-api.net/v2/unable-to-fulfill.html")),
            "{collection}: {}",
            same.text()
        );
        let found = get(&api, &pro, &format!("{collection}?external_ref=new%201"))
            .await
            .json();
        assert_eq!(found.as_array().unwrap().len(), 1, "{collection}: {found}");
        let gone = patch(&api, &pro, &paths[0], json!({ "external_ref": null })).await;
        assert_eq!(gone.json()["external_ref"], Value::Null);
        assert_eq!(
            patch(&api, &pro, &paths[1], json!({ "external_ref": "new 1" }))
                .await
                .status,
            200
        );
    }
    let none = get(&api, &pro, "/accounts?billable=true").await.json();
    let all = get(&api, &pro, "/accounts?billable=false").await.json();
    assert_eq!(none, json!([]));
    assert!(!all.as_array().unwrap().is_empty());
    let wrong = get(&api, &pro, "/accounts?page_token=x").await;
    assert!(wrong.text().contains("page_offset"), "{}", wrong.text());
}

#[tokio::test]
async fn every_collection_is_readable_and_every_operation_is_described() {
    let api = Api::over(with_lan()).await;
    let ann = api.key("ann");
    let document: Value = serde_json::from_str(&millrace_ix_api::ix_openapi_json()).unwrap();
    let paths = document["paths"].as_object().unwrap();
    let mut names = std::collections::BTreeSet::new();
    for (path, item) in paths {
        for (method, operation) in item.as_object().unwrap() {
            let name = operation["operationId"].as_str().unwrap().to_owned();
            assert!(names.insert(name.clone()), "{name} is twice there");
            if method == "get" && !path.contains('{') {
                let answer = api.get(&ann, path).await;
                assert_eq!(answer.status, 200, "{path}: {}", answer.text());
                let public = operation["security"] == json!([{}]);
                assert_eq!(
                    api.get("", path).await.status,
                    if public { 200 } else { 401 },
                    "{path}"
                );
            }
        }
    }
    assert!(names.len() > 80, "{}", names.len());
    let supported = get(&api, "", "/implementation").await.json();
    assert_eq!(
        supported["supported_operations"].as_array().unwrap().len(),
        names.len()
    );
    assert_eq!(get(&api, "", "/health").await.json()["version"], "2");
    let nothing = get(&api, &ann, "/nothing").await;
    assert_eq!(
        (nothing.status, nothing.json()["type"].clone()),
        (404, json!("https://errors.ix-api.net/v2/not-found.html"))
    );
}
