//! Every operation of the OpenAPI document, for every role, on own, shared, foreign and absent objects: the answer is what
//! the model's permission table says, and a foreign object is answered as an absent one.

use std::sync::LazyLock;

use axum::http::Method;
use millrace_ix_api::demo::demo;
use millrace_ix_model::permission::is_permitted;
use millrace_ix_model::{Actor, Exchange, ObjectId, OperationKind as K, Relation};
use serde_json::{Value, json};

use crate::support::{Answer, Api};

/// A user of each role.
const PEOPLE: [(&str, &str); 10] = [
    ("ann", "member_admin"),
    ("tia", "member_tech"),
    ("nia", "member_noc"),
    ("bil", "member_billing"),
    ("rex", "reseller"),
    ("noc", "operator_noc"),
    ("pro", "operator_provisioning"),
    ("ops", "operator_admin"),
    ("reg", "regulator"),
    ("kei", "api_client"),
];

/// The requirements of an operation of the document.
enum Rule {
    /// Anybody, also without a session.
    Public,
    /// Everybody who is signed in.
    SignedIn,
    /// The operation on the object in the path, with this body.
    Object(K, Value),
    /// The operation for the account in the body. `{account}` stands for it.
    Account(K, Value),
    /// The operation on anything.
    Anything(K),
    /// The operation on the exchange itself, with this body.
    Exchange(K, Value),
    /// The object in the path is a record, which is absent here: the answer is the same for everybody.
    Record(Value),
}

/// Returns the rule of an operation; the test fails for one that is not listed here.
fn rule(method: &str, path: &str) -> Rule {
    let end = json!({ "connection": "cn-1", "vlan": { "type": "dot1q", "vlan": 999 }, "capacity_mbps": 10 });
    match (method, path.trim_start_matches("/api/v1")) {
        ("get", "/openapi.json" | "/problems/{name}" | "/health" | "/exports/euro-ix.json" | "/oidc")
        | (
            "get",
            "/status"
            | "/status/traffic"
            | "/status.ics"
            | "/status.atom"
            | "/calendars/{name}"
            | "/looking-glass"
            | "/looking-glass/routes",
        )
        | ("post", "/session/forgotten" | "/session/links/read" | "/session/links/use" | "/letters")
        | ("post", "/session" | "/oidc" | "/oidc/callback") => Rule::Public,
        ("get", "/notices" | "/notices.ics") => Rule::Anything(K::ReadStatus),
        ("get", "/contacts") => Rule::Anything(K::ReadContact),
        ("get", "/cross-connects" | "/cross-connects/{id}/letter") => Rule::Anything(K::ReadConnection),
        ("get", "/groups") => Rule::Anything(K::ReadService),
        ("get", "/policies") => Rule::Anything(K::ReadPolicy),
        ("get", "/matrix") => Rule::Anything(K::ReadTraffic),
        ("post", "/notices" | "/notices/preview") => Rule::Exchange(
            K::WriteNotice,
            json!({ "kind": "incident", "title": "x", "begins": "2026-12-01T00:00:00.000Z" }),
        ),
        ("put", "/notices/{id}") => {
            Rule::Record(json!({ "kind": "incident", "title": "x", "begins": "2026-12-01T00:00:00.000Z" }))
        }
        ("delete", "/notices/{id}" | "/contacts/{id}") => Rule::Record(Value::Null),
        ("put", "/contacts/{id}") => Rule::Record(json!({ "roles": [] })),
        ("post", "/cross-connects/{id}/steps") => Rule::Record(json!({ "step": "cancel" })),
        ("put", "/groups/{id}/members") => Rule::Record(json!({ "members": [] })),
        ("delete", "/groups/{id}/members/{account}") => Rule::Record(Value::Null),
        ("post", "/groups/{id}/join") => Rule::Record(json!({ "end": end })),
        ("post", "/groups") => Rule::Exchange(
            K::CreateService,
            json!({ "name": "new group", "end": end, "members": [] }),
        ),
        ("post", "/contacts") => Rule::Account(
            K::WriteContact,
            json!({ "account": "{account}", "name": "Desk", "roles": [] }),
        ),
        ("post", "/cross-connects") => Rule::Account(
            K::OrderCrossConnect,
            json!({ "account": "{account}", "site": "Otemachi", "member_side": "cage 7", "medium": "LC" }),
        ),
        ("put", "/accounts/{id}") => Rule::Object(K::UpdateAccount, json!({})),
        ("delete", "/accounts/{id}") => Rule::Object(K::DeleteAccount, Value::Null),
        ("delete", "/connections/{id}") => Rule::Object(K::DeleteConnection, Value::Null),
        ("put", "/users/{id}") => Rule::Object(K::UpdateUser, json!({ "language": "ja" })),
        ("post", "/users/{id}/link") => Rule::Object(K::UpdateUser, json!({ "kind": "password" })),
        ("get", "/switches/{id}/ports" | "/switches/{id}/drift") => Rule::Object(K::ReadFabric, Value::Null),
        ("put", "/switches/{id}/ports") => Rule::Object(K::SetPorts, json!({ "ports": [] })),
        ("post", "/configs/{id}/ips") => Rule::Object(K::AddIp, json!({ "address": "192.0.2.77" })),
        ("delete", "/ips/{id}") => Rule::Object(K::RemoveIp, Value::Null),
        ("post", "/webhooks" | "/webhooks/{id}/replay") => Rule::SignedIn,
        ("get", "/webhooks" | "/webhooks/{id}/deliveries") => Rule::Anything(K::ReadWebhook),
        ("delete", "/webhooks/{id}") => Rule::Anything(K::WriteWebhook),

        ("get", "/exports/arouteserver-clients.json") => Rule::Anything(K::ReadFabric),
        (
            "get",
            "/session" | "/overview" | "/events" | "/api-keys" | "/service-keys" | "/filters/explain",
        )
        | ("get", "/accounts" | "/connections" | "/services" | "/configs" | "/filters")
        | ("delete", "/session" | "/api-keys/{id}" | "/calendar")
        | ("get" | "put", "/calendar")
        | ("put", "/session/password")
        | ("post", "/api-keys" | "/service-keys/redeem") => Rule::SignedIn,
        ("get", "/users") => Rule::Anything(K::ReadUsers),
        ("get", "/attack") => Rule::Anything(K::ReadSamples),
        ("get", "/traffic" | "/series/peers" | "/billing" | "/billing.csv") => Rule::Anything(K::ReadTraffic),
        ("get", "/series/connections/{id}") => Rule::Object(K::ReadTraffic, Value::Null),
        ("get", "/series/services/{id}") => Rule::Object(K::ReadService, Value::Null),
        ("get", "/series/trunks/{id}") => Rule::Object(K::ReadFabric, Value::Null),
        ("get", "/series/sites" | "/series/exchange") => Rule::Anything(K::ReadFabric),
        ("get", "/bgp-sessions") => Rule::Anything(K::ReadFilter),
        ("get", "/sites" | "/switches" | "/trunks" | "/approvals") => Rule::Anything(K::ReadFabric),
        ("get", "/changes" | "/changes/{id}")
        | ("post", "/changes/{id}/confirm" | "/changes/{id}/revert") => Rule::Anything(K::ReadChanges),
        ("get", "/audit") => Rule::Anything(K::ReadAudit),
        ("get", "/accounts/{id}") => Rule::Object(K::ReadAccount, Value::Null),
        ("get", "/users/{id}") => Rule::Object(K::ReadUsers, Value::Null),
        ("get", "/connections/{id}" | "/connections/{id}/vlans") => {
            Rule::Object(K::ReadConnection, Value::Null)
        }
        ("get", "/services/{id}" | "/services/{id}/members") => Rule::Object(K::ReadService, Value::Null),
        ("get", "/configs/{id}") => Rule::Object(K::ReadEnd, Value::Null),
        (
            "get",
            "/configs/{id}/route-server-sessions"
            | "/configs/{id}/rejected-routes"
            | "/configs/{id}/route-server-routes",
        ) => Rule::Object(K::ReadFilter, Value::Null),
        ("get", "/filters/{id}") => Rule::Object(K::ReadFilter, Value::Null),
        ("get", "/switches/{id}" | "/trunks/{id}" | "/trunks/{id}/impact") => {
            Rule::Object(K::ReadFabric, Value::Null)
        }
        ("post", "/accounts") => Rule::Account(
            K::CreateAccount,
            json!({ "name": "New Member", "kind": "member", "parent": "{account}" }),
        ),
        ("post", "/users") => Rule::Account(
            K::CreateUser,
            json!({ "name": "new", "account": "{account}", "roles": ["member_tech"] }),
        ),
        ("post", "/connections") => Rule::Account(
            K::CreateConnection,
            json!({ "account": "{account}", "name": "new", "kind": "standalone", "ports": ["sw-3:20"] }),
        ),
        ("post", "/services") => Rule::Account(
            K::CreateService,
            json!({ "name": "new", "account": "{account}", "end": end }),
        ),
        ("put", "/accounts/{id}/networks") => Rule::Object(K::UpdateAccount, json!({ "asns": [] })),
        ("delete", "/users/{id}") => Rule::Object(K::DeleteUser, Value::Null),
        ("delete", "/services/{id}") => Rule::Object(K::DeleteService, Value::Null),
        ("post", "/services/{id}/accept") => Rule::Object(K::Accept, json!({ "end": end })),
        ("post", "/services/{id}/refuse") => Rule::Object(K::Refuse, json!({ "reason": "no" })),
        ("put", "/services/{id}/lock") => Rule::Object(K::Lock, json!({ "locked": true })),
        ("post", "/services/{id}/keys") => Rule::Object(K::CreateServiceKey, json!({ "hours": 1 })),
        ("delete", "/configs/{id}") => Rule::Object(K::DeleteEnd, Value::Null),
        ("put", "/configs/{id}/rate") => Rule::Object(K::SetRate, json!({ "capacity_mbps": 7 })),
        ("put", "/configs/{id}/place") => Rule::Object(
            K::MoveEnd,
            json!({ "connection": "cn-1", "vlan": { "type": "port" } }),
        ),
        ("put", "/configs/{id}/shut-down") => Rule::Object(K::ShutDown, json!({ "shut_down": true })),
        ("post", "/configs/{id}/macs") => Rule::Object(K::AddMac, json!({ "address": "02:00:00:00:00:01" })),
        ("delete", "/macs/{id}") => Rule::Object(K::RemoveMac, Value::Null),
        ("put", "/trunks/{id}/drain") => Rule::Object(K::DrainTrunk, json!({ "drained": true })),
        ("delete", "/trunks/{id}") => Rule::Object(K::DeleteFabric, Value::Null),
        ("post", "/services/{id}/ends") => Rule::Object(K::ConfigureEnd, json!({ "end": end })),
        ("put", "/macs/{id}") => Rule::Object(K::AddMac, json!({ "valid_until": null })),
        ("post", "/configs/{id}/waive") => Rule::Object(K::WaiveQuarantine, json!({ "reason": "known" })),
        ("post", "/filters") => Rule::Account(
            K::WriteFilter,
            json!({ "account": "{account}", "destination": "203.0.113.7", "action": "drop" }),
        ),
        ("put", "/filters/{id}") => Rule::Object(K::WriteFilter, json!({ "minutes": 10 })),
        ("delete", "/filters/{id}") => Rule::Object(K::WriteFilter, Value::Null),
        ("post", "/accounts/{id}/recheck") => Rule::Object(K::WriteFilter, Value::Null),
        ("post", "/approvals/{id}/approve") | ("delete", "/approvals/{id}") => {
            Rule::Object(K::Approve, Value::Null)
        }
        ("delete", "/service-keys/{id}") => Rule::Object(K::RevokeServiceKey, Value::Null),
        other => panic!("the operation {other:?} has no rule: add one"),
    }
}

/// Returns every object of the type that a path names, and an absent one.
fn objects(exchange: &Exchange, path: &str) -> Vec<ObjectId> {
    let of = path.trim_start_matches("/api/v1/").trim_start_matches("series/");
    let prefix = match of.split('/').next().unwrap() {
        "accounts" => "ac",
        "users" => "us",
        "connections" => "cn",
        "services" => "sv",
        "configs" => "nc",
        "filters" => "fi",
        "switches" => "sw",
        "trunks" => "tr",
        "macs" => "mc",
        "ips" => "ip",
        "approvals" => "ap",
        "service-keys" => "sk",
        other => panic!("{other}"),
    };
    let all = exchange
        .ids()
        .filter(|id| id.to_string().starts_with(&format!("{prefix}-")));
    all.chain([absent(prefix)]).collect()
}

fn absent(prefix: &str) -> ObjectId {
    format!("{prefix}-999999").parse().unwrap()
}

fn actor(exchange: &Exchange, name: &str) -> Actor {
    let (id, user) = exchange.users.iter().find(|(_, user)| user.name == name).unwrap();
    Actor {
        user: Some(*id),
        account: Some(user.account),
        proven_asns: [].into(),
        roles: user.roles.clone(),
    }
}

/// Returns true if the operation at a path has the parameter `dry_run`.
fn takes_dry_run(method: &Method, path: &str) -> bool {
    static DOCUMENT: LazyLock<Value> =
        LazyLock::new(|| serde_json::from_str(&millrace_ix_api::openapi_json()).unwrap());
    let is_template = |template: &str| {
        let (one, other) = (template.split('/'), path.split('/'));
        template.split('/').count() == path.split('/').count()
            && one
                .zip(other)
                .all(|(part, given)| part == given || part.starts_with('{'))
    };
    let paths = DOCUMENT["paths"].as_object().unwrap();
    let method = method.as_str().to_lowercase();
    paths
        .iter()
        .filter(|(template, _)| is_template(template))
        .any(|(_, item)| {
            let parameters = item[&method]["parameters"].as_array();
            parameters.is_some_and(|all| all.iter().any(|parameter| parameter["name"] == "dry_run"))
        })
}

async fn send(api: &Api, method: &str, path: &str, key: &str, body: &Value) -> Answer {
    let method = Method::from_bytes(method.to_uppercase().as_bytes()).unwrap();
    let body = Some(body.clone()).filter(|body| !body.is_null());
    let path = if takes_dry_run(&method, path) {
        format!("{path}?dry_run=true")
    } else {
        path.to_owned()
    };
    api.send(method, &path, key, &[("if-match", "*")], body).await
}

/// Returns the status, headers and body of an answer, without the identifier.
fn without_id(answer: &Answer, id: &str) -> (u16, Vec<(String, String)>, String) {
    let headers = answer
        .headers
        .iter()
        // The content length depends on the identifier.
        .filter(|(name, _)| *name != "content-length")
        .map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()))
        .collect();
    (answer.status, headers, answer.text().replace(id, "ID"))
}

#[tokio::test]
async fn every_operation_answers_as_the_permission_table_says() {
    let exchange = demo().unwrap();
    let api = Api::new().await;
    let document: Value = serde_json::from_str(&millrace_ix_api::openapi_json()).unwrap();
    let mut cases = 0;
    for (path, item) in document["paths"].as_object().unwrap() {
        for method in item
            .as_object()
            .unwrap()
            .keys()
            .filter(|key| *key != "parameters")
        {
            let rule = rule(method, path);
            if !matches!(rule, Rule::Public) {
                let plain = path
                    .replace("{id}", "sv-1")
                    .replace("{name}", "x")
                    .replace("{account}", "ac-1");
                let answer = send(&api, method, &plain, "", &Value::Null).await;
                assert_eq!(answer.status, 401, "{method} {path} without a session");
            }
            for (name, role) in PEOPLE {
                let actor = actor(&exchange, name);
                api.key(name);
                cases += check(&api, &exchange, &actor, (name, role), (method, path), &rule).await;
            }
        }
    }
    println!("{cases} cases of an operation, a role and an object");
    assert!(cases > 1_500, "only {cases} cases");
}

/// Checks one operation for one role. Returns the number of cases.
async fn check(
    api: &Api,
    exchange: &Exchange,
    actor: &Actor,
    (name, role): (&str, &str),
    (method, path): (&str, &str),
    rule: &Rule,
) -> usize {
    let case = |object: ObjectId| format!("{method} {path} for {object} by {role}");
    match rule {
        Rule::Public | Rule::SignedIn => 0,
        Rule::Anything(kind) => {
            let answer = send(
                api,
                method,
                &path.replace("{id}", "ch-999999"),
                name,
                &Value::Null,
            )
            .await;
            let may = Relation::ALL
                .iter()
                .any(|relation| is_permitted(actor, *kind, *relation));
            let expected = match (may, path.contains("{id}")) {
                (_, true) => 404,
                (true, false) => 200,
                (false, false) => 403,
            };
            assert_eq!(
                answer.status,
                expected,
                "{method} {path} by {role}: {}",
                answer.text()
            );
            1
        }
        Rule::Exchange(kind, body) => {
            let answer = send(api, method, path, name, body).await;
            let may = Relation::ALL
                .iter()
                .any(|relation| is_permitted(actor, *kind, *relation));
            if may {
                assert!(
                    !matches!(answer.status, 401 | 500),
                    "{method} {path} by {role}: {}",
                    answer.text()
                );
            } else {
                assert_eq!(answer.status, 403, "{method} {path} by {role}: {}", answer.text());
            }
            1
        }
        Rule::Record(body) => {
            let path = path
                .replace("{id}", "xx-999999")
                .replace("{account}", "ac-999999");
            let answer = send(api, method, &path, name, body).await;
            assert_eq!(answer.status, 404, "{method} {path} by {role}: {}", answer.text());
            1
        }
        Rule::Object(kind, body) => {
            let all = objects(exchange, path);
            let nobody = *all.last().unwrap();
            let reference = send(
                api,
                method,
                &path.replace("{id}", &nobody.to_string()),
                name,
                body,
            )
            .await;
            let reference = without_id(&reference, &nobody.to_string());
            for object in &all {
                let id = object.to_string();
                let answer = send(api, method, &path.replace("{id}", &id), name, body).await;
                if !exchange.may_read(actor, *object) {
                    assert_eq!(without_id(&answer, &id), reference, "{}", case(*object));
                    assert_eq!(answer.status, 404, "{}", case(*object));
                } else if !is_permitted(actor, *kind, exchange.relation(actor, *object)) {
                    assert_eq!(answer.status, 403, "{}: {}", case(*object), answer.text());
                } else {
                    // The user has the permission. The request may be refused because its body names objects
                    // that are in use, or because a recheck of the registry follows another one too soon.
                    let is_busy = answer.status == 429 && path.ends_with("/recheck");
                    assert!(
                        is_busy || matches!(answer.status, 200 | 201 | 204 | 404 | 409 | 422),
                        "{}: {}",
                        case(*object),
                        answer.text()
                    );
                    assert!(
                        !answer.text().contains(&format!("there is no {id}")),
                        "{}",
                        case(*object)
                    );
                }
            }
            all.len()
        }
        Rule::Account(kind, body) => {
            let accounts: Vec<ObjectId> = exchange.accounts.keys().map(|id| ObjectId::from(*id)).collect();
            for object in accounts.iter().copied().chain([absent("ac")]) {
                let body = body.to_string().replace("{account}", &object.to_string());
                let body: Value = serde_json::from_str(&body).unwrap();
                let answer = send(api, method, path, name, &body).await;
                let relation = match (kind, exchange.relation(actor, object)) {
                    // An account that is created below the actor's own account is a child.
                    (K::CreateAccount, Relation::Own) => Relation::Child,
                    (_, relation) => relation,
                };
                let is_there = object != absent("ac");
                if is_there && is_permitted(actor, *kind, relation) {
                    // The user has the permission, but the body may name objects that are in use.
                    assert!(
                        !matches!(answer.status, 401 | 403),
                        "{}: {}",
                        case(object),
                        answer.text()
                    );
                } else {
                    assert!(
                        matches!(answer.status, 403 | 404 | 409 | 422),
                        "{}: {}",
                        case(object),
                        answer.text()
                    );
                }
            }
            accounts.len() + 1
        }
    }
}

#[tokio::test]
async fn collections_hold_exactly_what_the_actor_may_read() {
    let exchange = demo().unwrap();
    let api = Api::new().await;
    for (name, role) in PEOPLE {
        let actor = actor(&exchange, name);
        api.key(name);
        for (collection, prefix) in [
            ("connections", "cn"),
            ("services", "sv"),
            ("configs", "nc"),
            ("filters", "fi"),
        ] {
            let answer = api
                .get(name, &format!("/api/v1/{collection}?limit=500"))
                .await
                .json();
            let listed: Vec<String> = answer["items"]
                .as_array()
                .unwrap()
                .iter()
                .map(|item| item["id"].as_str().unwrap().to_owned())
                .collect();
            let readable: Vec<String> = exchange
                .ids()
                .filter(|id| {
                    id.to_string().starts_with(&format!("{prefix}-")) && exchange.may_read(&actor, *id)
                })
                .map(|id| id.to_string())
                .collect();
            assert_eq!(listed, readable, "{collection} of {role}");
        }
    }
}

#[tokio::test]
async fn a_read_of_a_members_data_by_the_staff_is_in_the_audit_chain_once_an_hour() {
    let api = Api::new().await;
    let (ann, ops) = (api.key("ann"), api.key("ops"));
    let list = api.get(&ann, "/api/v1/services").await.json();
    let id = list["items"][0]["id"].as_str().unwrap().to_owned();
    for _ in 0..2 {
        assert_eq!(api.get(&ops, &format!("/api/v1/services/{id}")).await.status, 200);
        assert_eq!(api.get(&ops, "/api/v1/connections").await.status, 200);
        assert_eq!(api.get(&ops, "/api/v1/trunks").await.status, 200);
        assert_eq!(api.get(&ann, &format!("/api/v1/services/{id}")).await.status, 200);
    }
    let audit = api.get(&ops, "/api/v1/audit").await.json();
    let reads: Vec<(String, String)> = audit["items"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|entry| entry["action"] == "read")
        .map(|entry| {
            let text = |name: &str| entry[name].as_str().unwrap().to_owned();
            (text("actor"), text("object"))
        })
        .collect();
    let expected = [
        ("ops".to_owned(), "connections".to_owned()),
        ("ops".to_owned(), id),
    ];
    assert_eq!(reads, expected);
}

#[tokio::test]
async fn the_other_party_sees_where_an_end_is_with_its_rate_and_not_its_port_and_vlan() {
    let api = Api::new().await;
    let (ann, bob) = (api.key("ann"), api.key("bob"));
    let list = api.get(&ann, "/api/v1/services?q=transit").await.json();
    let id = list["items"][0]["id"].as_str().unwrap().to_owned();
    let end_of = |service: &Value, account: &str| {
        let ends = service["ends"].as_array().unwrap().clone();
        ends.into_iter()
            .find(|end| end["account"]["name"] == account)
            .unwrap()
    };
    let mine = api.get(&ann, &format!("/api/v1/services/{id}")).await.json();
    let theirs = api.get(&bob, &format!("/api/v1/services/{id}")).await.json();
    assert_eq!(end_of(&mine, "Aoba Networks")["vlan_text"], "VLAN 100");
    let seen = end_of(&theirs, "Aoba Networks");
    assert_eq!(seen["site"], "Otemachi");
    assert_eq!(
        seen["capacity_mbps"], 200,
        "the parties of a circuit agree on its rate"
    );
    for hidden in ["connection", "vlan", "vlan_text"] {
        assert_eq!(seen[hidden], Value::Null, "{hidden}");
    }
    assert!(
        !theirs.to_string().contains("aoba-tokyo"),
        "the name of a foreign connection"
    );
    let dan = api.key("dan");
    assert_eq!(api.get(&dan, &format!("/api/v1/services/{id}")).await.status, 404);
}

#[tokio::test]
async fn a_foreign_account_is_not_checked_again_also_with_an_idempotency_key() {
    let api = Api::new().await;
    let bob = api.key("bob");
    let exchange = demo().unwrap();
    let mut accounts = exchange.accounts.iter();
    let foreign = accounts
        .find(|(_, account)| account.asns.contains(&64500))
        .unwrap()
        .0;
    for id in [foreign.to_string(), "ac-999999".to_owned()] {
        let path = format!("/api/v1/accounts/{id}/recheck");
        for headers in [&[][..], &[("idempotency-key", "12345678")]] {
            let answer = api.send(Method::POST, &path, &bob, headers, None).await;
            assert_eq!(answer.status, 404, "{id} {headers:?}: {}", answer.text());
        }
    }
}
