//! Parts of the page of an exchange beside services: contacts, notices, cross-connects, groups, inventory.

use std::net::SocketAddr;
use std::time::Duration;

use axum::http::Method;
use millrace_ix_api::MailSettings;
use millrace_ix_api::demo::Mailbox;
use serde_json::{Value, json};

use crate::support::{Answer, Api};

/// A bound for letters that come from another task.
const BOUND: Duration = Duration::from_secs(60);

/// Returns the settings of mail over a relay.
pub(crate) fn mail(relay: SocketAddr) -> MailSettings {
    MailSettings::new(relay, "noc@ix.example", "https://ix.example", "en").unwrap()
}

pub(crate) async fn with_mail() -> (Api, Mailbox) {
    let mailbox = Mailbox::start().await.unwrap();
    let relay = mailbox.relay();
    let api = Api::with(|settings| settings.mail = Some(mail(relay))).await;
    (api, mailbox)
}

pub(crate) async fn letters(mailbox: &Mailbox, count: usize) -> Vec<String> {
    let waited = tokio::time::timeout(BOUND, mailbox.wait(count)).await;
    waited.expect("the letter arrives")
}

pub(crate) async fn post(api: &Api, key: &str, path: &str, body: Value) -> Answer {
    api.send(Method::POST, path, key, &[], Some(body)).await
}

pub(crate) async fn put(api: &Api, key: &str, path: &str, body: Value) -> Answer {
    api.send(Method::PUT, path, key, &[("if-match", "*")], Some(body))
        .await
}

/// Returns the first object that an order created whose identifier has a prefix.
pub(crate) fn created(answer: &Answer, prefix: &str) -> String {
    let made = answer.json();
    let mut all = made["created"]
        .as_array()
        .unwrap()
        .iter()
        .map(|id| id.as_str().unwrap().to_owned());
    all.find(|id| id.starts_with(prefix)).unwrap()
}

#[tokio::test]
async fn a_contact_has_the_roles_that_ix_api_shows_and_the_other_way_round() {
    let api = Api::new().await;
    let (ann, bob) = (api.key("ann"), api.key("bob"));
    let desk = json!({ "name": "Desk", "email": "noc@aoba.example", "telephone": "+81 3 1234", "roles": ["noc", "abuse"] });
    let made = post(&api, &ann, "/api/v1/contacts", desk).await;
    assert_eq!(made.status, 201, "{}", made.text());
    let id = made.json()["id"].as_str().unwrap().to_owned();
    assert_eq!(made.json()["roles"], json!(["abuse", "noc"]));
    let assigned = api.get(&ann, "/api/v2/role-assignments").await.json();
    let of_desk = assigned
        .as_array()
        .unwrap()
        .iter()
        .filter(|assignment| assignment["contact"] == json!(id));
    let mut roles: Vec<&str> = of_desk
        .map(|assignment| assignment["role"].as_str().unwrap())
        .collect();
    roles.sort_unstable();
    assert_eq!(roles, ["role-abuse", "role-noc"]);
    let path = format!("/api/v1/contacts/{id}");
    let lame = put(
        &api,
        &ann,
        &path,
        json!({ "name": "Desk", "email": "noc@aoba.example", "roles": ["noc"] }),
    )
    .await;
    assert_eq!(
        (lame.status, &lame.json()["code"]),
        (422, &json!("contact-incomplete")),
        "noc needs a telephone number"
    );
    let changed = put(
        &api,
        &ann,
        &path,
        json!({ "name": "Desk", "email": "noc@aoba.example", "roles": ["peering"] }),
    )
    .await;
    assert_eq!(changed.json()["roles"], json!(["peering"]));
    assert_eq!(put(&api, &bob, &path, json!({ "roles": [] })).await.status, 404);
    assert_eq!(api.get(&bob, "/api/v1/contacts").await.json()["total"], 0);
    let gone = api.send(Method::DELETE, &path, &ann, &[], None).await;
    assert_eq!(gone.status, 204);
    assert_eq!(api.get(&ann, "/api/v2/role-assignments").await.json(), json!([]));
}

/// Returns a notice about the switches of a site, from `begins` on.
pub(crate) async fn about_site(api: &Api, key: &str, name: &str) -> Value {
    let sites = api.get(key, "/api/v1/sites").await.json();
    let site = sites["items"]
        .as_array()
        .unwrap()
        .iter()
        .find(|site| site["name"] == name)
        .unwrap();
    json!({
        "kind": "maintenance", "title": "Card swap", "about": "A line card is replaced.", "public": true,
        "begins": "2036-12-01T00:00:00.000Z", "ends": "2036-12-01T02:00:00.000Z", "objects": [site["id"]],
    })
}

#[tokio::test]
async fn maintenance_is_announced_to_the_members_that_it_touches_with_an_event_that_a_change_replaces() {
    let (api, mailbox) = with_mail().await;
    let (ops, ann, dan) = (api.key("ops"), api.key("ann"), api.key("dan"));
    let desk =
        json!({ "name": "Desk", "email": "desk@aoba.example", "telephone": "+81 3 1234", "roles": ["noc"] });
    assert_eq!(post(&api, &ann, "/api/v1/contacts", desk).await.status, 201);
    let order = about_site(&api, &ops, "Otemachi").await;
    let preview = post(&api, &ops, "/api/v1/notices/preview", order.clone())
        .await
        .json();
    // The contact of Aoba, and the administrators of the other members with something at the site or at the other end of it.
    assert_eq!(preview["letters"], 4, "{preview}");
    assert_eq!(preview["texts"].as_array().unwrap().len(), 3);
    assert!(mailbox.letters().is_empty(), "a preview sends nothing");
    let made = post(&api, &ops, "/api/v1/notices", order.clone()).await;
    assert_eq!(made.status, 201, "{}", made.text());
    let id = made.json()["id"].as_str().unwrap().to_owned();
    let sent = letters(&mailbox, 4).await;
    let to = |sent: &[String], address: &str| {
        let found = sent
            .iter()
            .find(|letter| letter.contains(&format!("To: {address}\n")));
        found
            .unwrap_or_else(|| panic!("no letter to {address}: {sent:?}"))
            .clone()
    };
    let letter = to(&sent, "desk@aoba.example");
    for part in [
        "Card swap",
        "aoba-tokyo",
        "backbone",
        "BEGIN:VCALENDAR",
        "ORGANIZER:mailto:noc@ix.example",
        "SEQUENCE:0",
        "DTSTART:20361201T000000Z",
        "Auto-Submitted: auto-generated",
    ] {
        assert!(letter.contains(part), "{part}: {letter}");
    }
    let other = to(&sent, "bob@example.net");
    assert!(other.contains("transit-baikal"), "{other}");
    for part in ["aoba-tokyo", "backbone", "cheongdam-1"] {
        assert!(
            !other.contains(part),
            "a member does not read what others have: {part}: {other}"
        );
    }
    to(&sent, "cho@example.net");
    to(&sent, "dan@example.net");
    let path = format!("/api/v1/notices/{id}");
    let mut later = order;
    later["ends"] = json!("2036-12-01T03:00:00.000Z");
    assert_eq!(put(&api, &ops, &path, later.clone()).await.json()["sequence"], 1);
    let sent = letters(&mailbox, 8).await.split_off(4);
    assert!(to(&sent, "desk@aoba.example").contains("SEQUENCE:1"));
    let seen = api.get(&ann, "/api/v1/notices").await.json();
    let seen = &seen["items"][0];
    assert_eq!(seen["state"], "planned");
    assert!(
        seen["touches"].as_array().unwrap().contains(&json!("aoba-tokyo")),
        "{seen}"
    );
    assert_eq!(
        (&seen["objects"], &seen["members"]),
        (&json!([]), &json!([])),
        "a member sees neither switches nor others"
    );
    let foreign = put(&api, &ann, &path, later.clone()).await;
    assert_eq!(foreign.status, 403);
    let calendar = api.get(&ann, "/api/v1/notices.ics").await;
    assert_eq!(calendar.headers["content-type"], "text/calendar; charset=utf-8");
    assert!(calendar.text().contains("UID:notice-"), "{}", calendar.text());
    let public = api.get("", "/api/v1/status").await.json();
    assert_eq!(public["notices"][0]["title"], "Card swap");
    assert!(!public.to_string().contains("sw-"), "{public}");
    let atom = api.get("", "/api/v1/status.atom").await.text();
    for part in [
        "<title>Card swap</title>",
        "<link rel=\"self\" type=\"application/atom+xml\" href=\"https://ix.example/api/v1/status.atom\"/>",
        "<link rel=\"alternate\" type=\"text/html\" href=\"https://ix.example/status\"/>",
        "<content type=\"text\">planned, ",
    ] {
        assert!(atom.contains(part), "{part}: {atom}");
    }
    let cancelled = api.send(Method::DELETE, &path, &ops, &[], None).await;
    assert_eq!(cancelled.json()["state"], "cancelled");
    let sent = letters(&mailbox, 12).await.split_off(8);
    assert!(to(&sent, "desk@aoba.example").contains("STATUS:CANCELLED"));
    let again = put(&api, &ops, &path, later).await;
    assert_eq!(
        again.status,
        409,
        "a cancelled notice does not change: {}",
        again.text()
    );
    assert!(
        api.get("", "/api/v1/status.ics")
            .await
            .text()
            .contains("STATUS:CANCELLED")
    );
    let delta = api.get(&dan, "/api/v1/notices").await.json();
    assert_eq!(delta["items"][0]["touches"], json!(["delta-dc"]));
    let authority = api.get(&api.key("reg"), "/api/v1/notices").await.json();
    assert_eq!(
        (
            &authority["items"][0]["touches"],
            &authority["items"][0]["members"]
        ),
        (&json!([]), &json!([])),
        "a public notice touches nothing of an authority"
    );
}

#[tokio::test]
async fn a_notice_that_is_not_public_and_touches_nothing_of_a_member_is_absent_for_it() {
    let api = Api::new().await;
    let (ops, ann, rex) = (api.key("ops"), api.key("ann"), api.key("rex"));
    let mut order = about_site(&api, &ops, "Otemachi").await;
    order["public"] = json!(false);
    let connections = api.get(&ann, "/api/v1/connections").await.json();
    order["objects"] = json!([connections["items"][0]["id"]]);
    assert_eq!(post(&api, &ops, "/api/v1/notices", order).await.status, 201);
    assert_eq!(api.get(&ann, "/api/v1/notices").await.json()["total"], 1);
    assert_eq!(api.get(&rex, "/api/v1/notices").await.json()["total"], 0);
    assert_eq!(api.get("", "/api/v1/status").await.json()["notices"], json!([]));
}

#[tokio::test]
async fn everybody_reads_the_policies_of_the_peering_lans() {
    let api = Api::new().await;
    for name in ["ann", "ops", "reg"] {
        let read = api.get(&api.key(name), "/api/v1/policies").await;
        assert_eq!(read.status, 200, "{}", read.text());
        let read = read.json();
        assert_eq!(read["items"][0]["lans"], json!(["Tokyo peering LAN"]), "{read}");
        let ethertypes = read["items"][0]["rules"]["ethertypes"].as_array().unwrap();
        assert!(ethertypes.contains(&json!("0x0806")), "{read}");
    }
}

#[tokio::test]
async fn a_cross_connect_goes_from_the_request_over_the_letter_to_the_installation() {
    let (api, _mailbox) = with_mail().await;
    let (ops, ann, bob) = (api.key("ops"), api.key("ann"), api.key("bob"));
    let body = json!({ "site": "Otemachi", "member_side": "cage 7, rack 2", "medium": "single-mode LC" });
    let made = post(&api, &ann, "/api/v1/cross-connects", body).await;
    assert_eq!(made.status, 201, "{}", made.text());
    let made = made.json();
    assert_eq!(
        (&made["state"], &made["steps"]),
        (&json!("requested"), &json!(["cancel"]))
    );
    let id = made["id"].as_str().unwrap().to_owned();
    let steps = format!("/api/v1/cross-connects/{id}/steps");
    let letter = format!("/api/v1/cross-connects/{id}/letter");
    assert_eq!(api.get(&ann, &letter).await.status, 409, "there is no letter yet");
    let early = post(
        &api,
        &ann,
        &steps,
        json!({ "step": "authorise", "demarcation": "x" }),
    )
    .await;
    assert_eq!(early.status, 403, "the staff authorises: {}", early.text());
    let authorised = post(
        &api,
        &ops,
        &steps,
        json!({ "step": "authorise", "demarcation": "rack 3, panel A, 17-18" }),
    )
    .await;
    assert_eq!(authorised.status, 200, "{}", authorised.text());
    let code = authorised.json()["letter"]["code"].as_str().unwrap().to_owned();
    let text = api.get(&ann, &letter).await;
    assert_eq!(text.headers["content-type"], "text/plain; charset=utf-8");
    for part in [
        "Aoba Networks",
        "rack 3, panel A, 17-18",
        code.as_str(),
        "Otemachi",
    ] {
        assert!(text.text().contains(part), "{part}: {}", text.text());
    }
    let verified = post(
        &api,
        "",
        "/api/v1/letters",
        json!({ "code": code.to_lowercase() }),
    )
    .await
    .json();
    assert_eq!(verified["member"], "Aoba Networks");
    assert_eq!(
        post(
            &api,
            "",
            "/api/v1/letters",
            json!({ "code": "AAAA-AAAA-AAAA-AAAA" })
        )
        .await
        .status,
        404
    );
    let placed = post(
        &api,
        &ann,
        &steps,
        json!({ "step": "place", "order_number": "DC-77" }),
    )
    .await;
    assert_eq!(placed.json()["state"], "ordered", "{}", placed.text());
    let twice = post(
        &api,
        &ann,
        &steps,
        json!({ "step": "place", "order_number": "DC-78" }),
    )
    .await;
    assert_eq!(
        (twice.status, &twice.json()["code"]),
        (409, &json!("letter-state"))
    );
    let installed = post(&api, &ops, &steps, json!({ "step": "install" }))
        .await
        .json();
    assert_eq!(installed["state"], "installed");
    assert_eq!(installed["history"].as_array().unwrap().len(), 4);
    let seen = api.get(&ann, "/api/v1/cross-connects").await.json();
    assert_eq!(
        seen["items"][0]["history"][1]["by"], "Test IX",
        "a member does not see the names of the staff"
    );
    assert_eq!(api.get(&bob, "/api/v1/cross-connects").await.json()["total"], 0);
    assert_eq!(
        post(&api, &bob, &steps, json!({ "step": "cancel" })).await.status,
        404
    );
    assert_eq!(
        post(&api, &ops, &steps, json!({ "step": "remove" })).await.json()["state"],
        "removed"
    );
    assert_eq!(
        post(&api, "", "/api/v1/letters", json!({ "code": code }))
            .await
            .status,
        404,
        "the letter is over"
    );
}

#[tokio::test]
async fn a_closed_group_lets_in_who_is_listed_and_nobody_else() {
    let api = Api::new().await;
    let (ann, bob, dan, cho) = (api.key("ann"), api.key("bob"), api.key("dan"), api.key("cho"));
    let accounts = api.get(&ann, "/api/v1/accounts").await.json();
    let account = |name: &str| {
        let all = accounts["items"].as_array().unwrap();
        all.iter().find(|account| account["name"] == name).unwrap()["id"].clone()
    };
    let connection = |list: Value| list["items"][0]["id"].as_str().unwrap().to_owned();
    let own = connection(api.get(&ann, "/api/v1/connections").await.json());
    let bobs = connection(api.get(&bob, "/api/v1/connections").await.json());
    let chos = connection(api.get(&cho, "/api/v1/connections").await.json());
    let end = |connection: &str, vlan: u16| json!({ "connection": connection, "vlan": { "type": "dot1q", "vlan": vlan }, "capacity_mbps": 10 });
    let body = json!({ "name": "storage", "end": end(&own, 910), "members": [account("Baikal Telecom"), account("Delta Cloud")] });
    let made = post(&api, &ann, "/api/v1/groups", body).await;
    assert_eq!(made.status, 201, "{}", made.text());
    let id = created(&made, "sv-");
    let group = api.get(&bob, "/api/v1/groups").await.json()["items"][0].clone();
    assert_eq!(
        (&group["name"], &group["joinable"]),
        (&json!("storage"), &json!(true))
    );
    assert_eq!(
        group["members"].as_array().unwrap().len(),
        1,
        "who is listed does not see who else is: {group}"
    );
    assert_eq!(api.get(&cho, "/api/v1/groups").await.json()["total"], 0);
    let join = format!("/api/v1/groups/{id}/join");
    assert_eq!(
        post(&api, &cho, &join, json!({ "end": end(&chos, 911) }))
            .await
            .status,
        404
    );
    let open_keys = |api: &Api| {
        let exchange = api.exchange();
        let keys = exchange.service_keys.values();
        keys.filter(|key| key.redeemed_by.is_none()).count()
    };
    let keys_before = open_keys(&api);
    let before = (api.exchange(), api.world.engine.snapshot().revision);
    let dry = post(
        &api,
        &bob,
        &format!("{join}?dry_run=true"),
        json!({ "end": end(&bobs, 911) }),
    )
    .await;
    assert_eq!(dry.status, 200, "{}", dry.text());
    assert_eq!(
        dry.json()["created"].as_array().unwrap().len(),
        1,
        "{}",
        dry.text()
    );
    let after = (api.exchange(), api.world.engine.snapshot().revision);
    assert_eq!(after, before, "a dry run changes nothing");
    let joined = post(&api, &bob, &join, json!({ "end": end(&bobs, 911) })).await;
    assert_eq!(joined.status, 201, "{}", joined.text());
    assert_eq!(joined.json()["secret"], Value::Null, "{}", joined.text());
    let seen = api.get(&ann, "/api/v1/groups").await.json()["items"][0]["members"].clone();
    let state = |name: &str| {
        let all = seen.as_array().unwrap();
        all.iter()
            .find(|member| member["account"]["name"] == name)
            .unwrap()["joined"]
            .clone()
    };
    assert_eq!(
        (state("Baikal Telecom"), state("Delta Cloud")),
        (json!(true), json!(false))
    );
    let invited = api.get(&dan, "/api/v1/groups").await.json()["items"][0].clone();
    assert_eq!(
        invited["members"].as_array().unwrap().len(),
        1,
        "who has not joined does not see who has: {invited}"
    );
    let members = format!("/api/v1/groups/{id}/members");
    assert_eq!(
        put(&api, &bob, &members, json!({ "members": [] })).await.status,
        403
    );
    let shorter = put(
        &api,
        &ann,
        &members,
        json!({ "members": [account("Baikal Telecom")] }),
    )
    .await;
    assert_eq!(shorter.status, 200, "{}", shorter.text());
    assert_eq!(api.get(&dan, "/api/v1/groups").await.json()["total"], 0);
    assert_eq!(open_keys(&api), keys_before, "no key is left over");

    let out = format!("{members}/{}", account("Baikal Telecom").as_str().unwrap());
    let ends = |api: &Api| {
        let exchange = api.exchange();
        let service = id.parse().unwrap();
        exchange.ends(service).count()
    };
    assert_eq!(ends(&api), 2);
    for (key, path, status) in [
        (&bob, out.clone(), 403),
        (&cho, out.clone(), 404),
        (&ann, format!("{members}/ac-999999"), 404),
        (&ann, format!("{out}?dry_run=true"), 200),
    ] {
        let answer = api.send(Method::DELETE, &path, key, &[], None).await;
        assert_eq!(answer.status, status, "{path}: {}", answer.text());
        assert_eq!(ends(&api), 2, "{path}");
    }
    let removed = api.send(Method::DELETE, &out, &ann, &[], None).await;
    assert_eq!(removed.status, 200, "{}", removed.text());
    api.world.settle().await.unwrap();
    assert_eq!(ends(&api), 1, "the owner's end stays");
    assert_eq!(api.get(&bob, "/api/v1/groups").await.json()["total"], 0);
    assert_eq!(
        post(&api, &bob, &join, json!({ "end": end(&bobs, 912) }))
            .await
            .status,
        404,
        "who is removed cannot join again"
    );
}

#[tokio::test]
async fn the_staff_adds_a_member_with_a_port_and_addresses() {
    let api = Api::new().await;
    let ops = api.key("ops");
    let account = post(
        &api,
        &ops,
        "/api/v1/accounts",
        json!({ "name": "Echo Net", "kind": "member", "asns": [64520] }),
    )
    .await;
    assert_eq!(account.status, 201, "{}", account.text());
    let account = created(&account, "ac-");
    let switches = api.get(&ops, "/api/v1/switches").await.json();
    let switch = switches["items"][0]["id"].as_str().unwrap().to_owned();
    let path = format!("/api/v1/switches/{switch}/ports");
    let before = api.get(&ops, &format!("{path}?limit=500")).await.json();
    let ports = before["items"].as_array().unwrap();
    let used = ports.iter().filter(|port| !port["used_by"].is_null()).count();
    assert!(used > 0 && used < ports.len(), "{before}");
    let mut all: Vec<Value> = ports
        .iter()
        .map(|port| json!({ "number": port["number"], "speed_mbps": port["speed_mbps"] }))
        .collect();
    all.push(json!({ "number": 77, "speed_mbps": 100_000 }));
    let set = put(&api, &ops, &path, json!({ "ports": all })).await;
    assert_eq!(set.status, 200, "{}", set.text());
    let port = format!("{switch}:77");
    let body = json!({ "account": account, "name": "echo-1", "kind": "standalone", "ports": [port] });
    let connection = post(&api, &ops, "/api/v1/connections", body).await;
    assert_eq!(connection.status, 201, "{}", connection.text());
    let connection = created(&connection, "cn-");
    let lan = api.get(&ops, "/api/v1/services?limit=500").await.json();
    let lan = lan["items"]
        .as_array()
        .unwrap()
        .iter()
        .find(|service| service["kind"] == "exchange_lan")
        .unwrap()["id"]
        .clone();
    let lan = lan.as_str().unwrap();
    let end = json!({ "end": { "connection": connection, "vlan": { "type": "port" } } });
    let joined = post(&api, &ops, &format!("/api/v1/services/{lan}/ends"), end).await;
    assert_eq!(joined.status, 201, "{}", joined.text());
    let config = created(&joined, "nc-");
    let end = api.get(&ops, &format!("/api/v1/configs/{config}")).await.json();
    assert!(
        !end["ips"].as_array().unwrap().is_empty(),
        "an end of a LAN gets addresses: {end}"
    );
    let first = end["ips"][0]["id"].as_str().unwrap();
    let removed = api
        .send(
            Method::DELETE,
            &format!("/api/v1/ips/{first}"),
            &ops,
            &[("if-match", "*")],
            None,
        )
        .await;
    assert_eq!(removed.status, 200, "{}", removed.text());
    let address = end["ips"][0]["address"].clone();
    let added = post(
        &api,
        &ops,
        &format!("/api/v1/configs/{config}/ips"),
        json!({ "address": address }),
    )
    .await;
    assert_eq!(added.status, 201, "{}", added.text());
    let wrong = post(
        &api,
        &ops,
        &format!("/api/v1/configs/{config}/ips"),
        json!({ "address": "x" }),
    )
    .await;
    assert_eq!(wrong.status, 422);
}
