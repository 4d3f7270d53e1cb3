//! People by mail: invitations, new passwords and second factors, deactivation.

use std::time::Duration;

use axum::http::Method;
use millrace_ix_api::demo::PASSWORD;
use millrace_ix_api::session::{TotpSecret, code_at};
use serde_json::{Value, json};

use crate::desk::{created, letters, post, put, with_mail};
use crate::support::{Answer, Api};

const NEW_PASSWORD: &str = "a new horse battery";
const READ: &str = "/api/v1/session/links/read";
const USE: &str = "/api/v1/session/links/use";

/// Returns the token of the link in a letter.
fn token(letter: &str) -> String {
    let at = letter
        .find("https://ix.example/link#")
        .expect("the letter has a link");
    let rest = &letter[at + "https://ix.example/link#".len()..];
    rest.split_whitespace().next().unwrap().to_owned()
}

async fn sign_in(api: &Api, name: &str, password: &str, code: Option<String>) -> Answer {
    let body = json!({ "name": name, "password": password, "code": code });
    post(api, "", "/api/v1/session", body).await
}

async fn new_user(api: &Api, by: &str, name: &str, roles: &[&str]) -> String {
    let body = json!({ "name": name, "email": format!("{name}@aoba.example"), "roles": roles });
    let made = post(api, by, "/api/v1/users", body).await;
    assert_eq!(made.status, 201, "{}", made.text());
    created(&made, "us-")
}

/// Asks for a letter with a link, which must be accepted.
async fn send_link(api: &Api, by: &str, user: &str, kind: &str) {
    let answer = ask_link(api, by, user, kind).await;
    assert_eq!(answer.status, 202, "{kind}: {}", answer.text());
}

async fn ask_link(api: &Api, by: &str, user: &str, kind: &str) -> Answer {
    post(
        api,
        by,
        &format!("/api/v1/users/{user}/link"),
        json!({ "kind": kind }),
    )
    .await
}

async fn use_link(api: &Api, token: &str, password: &str, code: Option<String>) -> Answer {
    post(
        api,
        "",
        USE,
        json!({ "token": token, "password": password, "code": code }),
    )
    .await
}

async fn read_link(api: &Api, token: &str) -> Answer {
    post(api, "", READ, json!({ "token": token })).await
}

/// Returns the code of a second factor at this moment.
fn code(secret: &TotpSecret) -> Option<String> {
    let since = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap();
    Some(code_at(secret, since.as_secs()))
}

/// Returns the second factor that a link offers.
async fn offered(api: &Api, token: &str) -> TotpSecret {
    let offered = read_link(api, token).await.json();
    TotpSecret::from_base32(offered["totp"]["secret"].as_str().unwrap()).unwrap()
}

#[tokio::test]
async fn an_invited_person_chooses_a_password_by_the_link_once_and_signs_in() {
    let (api, mailbox) = with_mail().await;
    let ann = api.key("ann");
    let zoe = new_user(&api, &ann, "zoe", &["member_tech"]).await;
    send_link(&api, &ann, &zoe, "invitation").await;
    let letter = letters(&mailbox, 1).await.remove(0);
    assert!(letter.contains("To: zoe@aoba.example"), "{letter}");
    let token = token(&letter);
    for stored in api.values("") {
        let stored = String::from_utf8_lossy(&stored).into_owned();
        assert!(!stored.contains(&token), "the store has no token: {stored}");
    }
    let read = read_link(&api, &token).await.json();
    assert_eq!(
        (&read["name"], &read["kind"], &read["totp"]),
        (&json!("zoe"), &json!("invitation"), &Value::Null)
    );
    let short = use_link(&api, &token, "short", None).await;
    assert_eq!(short.status, 422, "{}", short.text());
    let used = use_link(&api, &token, NEW_PASSWORD, None).await;
    assert_eq!(used.status, 204, "{}", used.text());
    assert_eq!(sign_in(&api, "zoe", NEW_PASSWORD, None).await.status, 200);
    let again = use_link(&api, &token, NEW_PASSWORD, None).await;
    assert_eq!(again.status, 404, "a link works once: {}", again.text());
    assert!(
        letters(&mailbox, 2).await[1].contains("has changed"),
        "the person is told"
    );
    assert_eq!(api.stored("link/"), 0);
    let refused = ask_link(&api, &ann, &zoe, "invitation").await;
    assert_eq!(
        (refused.status, &refused.json()["code"]),
        (409, &json!("password-there")),
        "who has a password is not invited again"
    );
}

#[tokio::test]
async fn of_two_uses_at_the_same_time_one_sets_the_password() {
    let (api, mailbox) = with_mail().await;
    let ann = api.key("ann");
    let zoe = new_user(&api, &ann, "zoe", &["member_tech"]).await;
    send_link(&api, &ann, &zoe, "invitation").await;
    let token = token(&letters(&mailbox, 1).await[0]);
    let (one, other) = tokio::join!(
        use_link(&api, &token, "the password of one", None),
        use_link(&api, &token, "the password of another", None)
    );
    let mut statuses = [one.status, other.status];
    statuses.sort_unstable();
    assert_eq!(statuses, [204, 404], "{} {}", one.text(), other.text());
    let (winner, loser) = if one.status == 204 {
        ("the password of one", "the password of another")
    } else {
        ("the password of another", "the password of one")
    };
    assert_eq!(sign_in(&api, "zoe", loser, None).await.status, 401);
    assert_eq!(sign_in(&api, "zoe", winner, None).await.status, 200);
}

#[tokio::test]
async fn a_link_ends_with_its_time_and_with_the_next_one() {
    let (api, mailbox) = with_mail().await;
    let ann = api.key("ann");
    let zoe = new_user(&api, &ann, "zoe", &["member_tech"]).await;
    send_link(&api, &ann, &zoe, "invitation").await;
    send_link(&api, &ann, &zoe, "invitation").await;
    let sent = letters(&mailbox, 2).await;
    let (first, second) = (token(&sent[0]), token(&sent[1]));
    assert_eq!(read_link(&api, &first).await.json()["code"], "link-over");
    assert_eq!(read_link(&api, &second).await.status, 200);
    // An invitation is valid for a week.
    api.world.pass(Duration::from_secs(7 * 86_400 + 1)).await.unwrap();
    assert_eq!(
        use_link(&api, &second, NEW_PASSWORD, None).await.json()["code"],
        "link-over"
    );
    assert_eq!(read_link(&api, "no token").await.json()["code"], "link-over");
}

#[tokio::test]
async fn a_link_ends_with_the_mail_address_that_it_was_sent_to() {
    let (api, mailbox) = with_mail().await;
    let ann = api.key("ann");
    let zoe = new_user(&api, &ann, "zoe", &["member_tech"]).await;
    send_link(&api, &ann, &zoe, "invitation").await;
    let sent = token(&letters(&mailbox, 1).await[0]);
    assert_eq!(read_link(&api, &sent).await.status, 200);
    let moved = json!({ "email": "zoe@elsewhere.example" });
    assert_eq!(
        put(&api, &ann, &format!("/api/v1/users/{zoe}"), moved)
            .await
            .status,
        200
    );
    let told = letters(&mailbox, 2).await.remove(1);
    assert!(
        told.contains("To: zoe@aoba.example") && told.contains("another address"),
        "the former address is told: {told}"
    );
    for answer in [
        read_link(&api, &sent).await,
        use_link(&api, &sent, NEW_PASSWORD, None).await,
    ] {
        assert_eq!(
            (answer.status, &answer.json()["code"]),
            (404, &json!("link-over"))
        );
    }
}

#[tokio::test]
async fn an_invitation_is_over_when_the_staff_gives_the_password_on_the_host() {
    let (api, mailbox) = with_mail().await;
    let ann = api.key("ann");
    let zoe = new_user(&api, &ann, "zoe", &["member_tech"]).await;
    send_link(&api, &ann, &zoe, "invitation").await;
    let token = token(&letters(&mailbox, 1).await[0]);
    api.app
        .reset_password(zoe.parse().unwrap(), PASSWORD)
        .await
        .unwrap();
    assert_eq!(use_link(&api, &token, NEW_PASSWORD, None).await.status, 404);
    assert_eq!(sign_in(&api, "zoe", PASSWORD, None).await.status, 200);
}

#[tokio::test]
async fn an_operator_gets_a_second_factor_with_the_invitation_and_a_new_one_by_its_reset() {
    let (api, mailbox) = with_mail().await;
    let ops = api.key("ops");
    let olaf = new_user(&api, &ops, "olaf", &["operator_noc"]).await;
    send_link(&api, &ops, &olaf, "invitation").await;
    let first = token(&letters(&mailbox, 1).await[0]);
    let secret = offered(&api, &first).await;
    assert!(
        offered(&api, &first).await == secret,
        "a page that is loaded again shows the same secret"
    );
    assert_eq!(use_link(&api, &first, NEW_PASSWORD, None).await.status, 422);
    let used = use_link(&api, &first, NEW_PASSWORD, code(&secret)).await;
    assert_eq!(used.status, 204, "{}", used.text());
    assert_eq!(
        sign_in(&api, "olaf", NEW_PASSWORD, code(&secret)).await.status,
        200
    );
    // The authenticator is lost.
    send_link(&api, &ops, &olaf, "second_factor").await;
    let second = token(&letters(&mailbox, 3).await[2]);
    let new = offered(&api, &second).await;
    assert!(new != secret);
    let wrong = use_link(&api, &second, "not the password", code(&new)).await;
    assert_eq!(wrong.status, 403, "{}", wrong.text());
    let right = use_link(&api, &second, NEW_PASSWORD, code(&new)).await;
    assert_eq!(right.status, 204, "{}", right.text());
    assert_eq!(
        sign_in(&api, "olaf", NEW_PASSWORD, code(&secret)).await.status,
        401
    );
    assert_eq!(sign_in(&api, "olaf", NEW_PASSWORD, code(&new)).await.status, 200);
}

#[tokio::test]
async fn who_reads_the_letter_for_a_new_password_of_an_operator_gets_no_second_factor() {
    let (api, mailbox) = with_mail().await;
    let ops = api.key("ops");
    new_user(&api, &ops, "olaf", &["operator_admin"]).await;
    assert_eq!(
        post(&api, "", "/api/v1/session/forgotten", json!({ "name": "olaf" }))
            .await
            .status,
        202
    );
    let token = token(&letters(&mailbox, 1).await[0]);
    assert_eq!(read_link(&api, &token).await.json()["totp"], Value::Null);
    assert_eq!(use_link(&api, &token, NEW_PASSWORD, None).await.status, 204);
    let refused = sign_in(&api, "olaf", NEW_PASSWORD, None).await;
    assert_eq!(
        (refused.status, &refused.json()["code"]),
        (403, &json!("no-second-factor"))
    );
}

#[tokio::test]
async fn a_forgotten_password_is_answered_alike_for_everybody_and_costs_one_letter_in_ten_minutes() {
    let (api, mailbox) = with_mail().await;
    let ann = api.key("ann");
    new_user(&api, &ann, "zoe", &["member_tech"]).await;
    let yui = json!({ "name": "yui", "roles": ["member_tech"] });
    assert_eq!(post(&api, &ann, "/api/v1/users", yui).await.status, 201);
    let before = api.get(&api.key("ops"), "/api/v1/audit").await.json();
    for name in ["nobody", "yui", "zoe", "zoe", "ZOE"] {
        let asked = post(&api, "", "/api/v1/session/forgotten", json!({ "name": name })).await;
        assert_eq!((asked.status, asked.text()), (202, String::new()), "{name}");
    }
    let token = token(&letters(&mailbox, 1).await[0]);
    let used = use_link(&api, &token, NEW_PASSWORD, None).await;
    assert_eq!(used.status, 204, "{}", used.text());
    let all = letters(&mailbox, 2).await;
    assert_eq!(all.len(), 2, "the request and the notice of its use, and no more");
    assert!(all[1].contains("has changed"), "{}", all[1]);
    let after = api.get(&api.key("ops"), "/api/v1/audit").await.json();
    let sent = |audit: &Value| {
        let items = audit["items"].as_array().unwrap();
        items
            .iter()
            .filter(|entry| entry["action"] == "send_link")
            .count()
    };
    assert_eq!((sent(&before), sent(&after)), (0, 1), "{after}");
}

#[tokio::test]
async fn an_address_gets_six_letters_with_links_in_an_hour() {
    let (api, mailbox) = with_mail().await;
    let ann = api.key("ann");
    let zoe = new_user(&api, &ann, "zoe", &["member_tech"]).await;
    for _ in 0..6 {
        send_link(&api, &ann, &zoe, "invitation").await;
    }
    let refused = ask_link(&api, &ann, &zoe, "invitation").await;
    assert_eq!(
        (refused.status, &refused.json()["code"]),
        (429, &json!("too-many-letters"))
    );
    assert!(refused.headers.contains_key("retry-after"));
    // Another user with the same address, whom an administrator could add to write on, does not help.
    let body = json!({ "name": "zoe2", "email": "Zoe@aoba.example", "roles": ["member_tech"] });
    let other = created(&post(&api, &ann, "/api/v1/users", body).await, "us-");
    assert_eq!(ask_link(&api, &ann, &other, "invitation").await.status, 429);
    assert_eq!(letters(&mailbox, 6).await.len(), 6);
}

#[tokio::test]
async fn an_address_or_a_name_with_a_line_break_adds_no_header_and_no_recipient() {
    let (api, mailbox) = with_mail().await;
    let ann = api.key("ann");
    for address in [
        "x@aoba.example\r\nBcc: evil@example.net",
        "x@aoba.example>\r\nRCPT TO:<evil@example.net",
        "x@aoba.example, evil@example.net",
        "x y@aoba.example",
    ] {
        let body = json!({ "name": "eva", "email": address, "roles": ["member_tech"] });
        let refused = post(&api, &ann, "/api/v1/users", body).await;
        assert_eq!(refused.status, 422, "{address:?}: {}", refused.text());
    }
    let body = json!({ "name": "eva\r\nBcc: evil@example.net", "email": "eva@aoba.example", "roles": ["member_tech"] });
    let refused = post(&api, &ann, "/api/v1/users", body).await;
    assert_eq!(refused.status, 422, "{}", refused.text());
    // Notices and contacts are written by others: their texts and addresses are checked, too.
    let desk =
        json!({ "name": "Desk", "email": "x@aoba.example\r\nBcc: evil@example.net", "roles": ["abuse"] });
    let refused = post(&api, &ann, "/api/v1/contacts", desk).await;
    assert_eq!(refused.status, 422, "{}", refused.text());
    let notice = json!({ "kind": "incident", "title": "x\r\nBcc: evil@example.net", "begins": "2036-12-01T00:00:00.000Z" });
    let refused = post(&api, &api.key("ops"), "/api/v1/notices", notice).await;
    assert_eq!(refused.status, 422, "{}", refused.text());
    assert!(mailbox.letters().is_empty());
}

#[tokio::test]
async fn a_deactivated_user_cannot_sign_in_and_keeps_no_session_no_link_and_no_use_of_a_key() {
    let (api, mailbox) = with_mail().await;
    let (ann, tia) = (api.key("ann"), api.key("tia"));
    let cookie = api.session("tia").await;
    let id = api.user("tia").to_string();
    let headers = [("cookie", cookie.as_str())];
    let mine = || api.send(Method::GET, "/api/v1/session", "", &headers, None);
    assert_eq!(mine().await.status, 200);
    send_link(&api, &ann, &id, "password").await;
    let link = token(&letters(&mailbox, 1).await[0]);
    let path = format!("/api/v1/users/{id}");
    let set = put(&api, &ann, &path, json!({ "deactivated": true })).await;
    assert_eq!(set.status, 200, "{}", set.text());
    assert_eq!(mine().await.status, 401);
    assert_eq!(api.get(&tia, "/api/v1/session").await.status, 401);
    let refused = sign_in(&api, "tia", PASSWORD, None).await;
    assert_eq!(
        refused.json()["code"],
        "wrong-credentials",
        "as for a name that nobody has"
    );
    assert_eq!(use_link(&api, &link, NEW_PASSWORD, None).await.status, 404);
    let denied = ask_link(&api, &ann, &id, "password").await;
    assert_eq!(
        (denied.status, &denied.json()["code"]),
        (409, &json!("user-deactivated"))
    );
    for name in ["tia", "nia"] {
        let asked = post(&api, "", "/api/v1/session/forgotten", json!({ "name": name })).await;
        assert_eq!(asked.status, 202);
    }
    // Requests are served in their order: with the letter to nia, the one of tia has been looked at.
    let second = letters(&mailbox, 2).await.remove(1);
    assert!(
        second.contains("To: nia@example.net"),
        "no letter lets a deactivated user in: {second}"
    );
    let set = put(&api, &ann, &path, json!({ "deactivated": false })).await;
    assert_eq!(set.status, 200, "{}", set.text());
    assert_eq!(mine().await.status, 401, "the session is not there again");
    assert_eq!(
        use_link(&api, &link, NEW_PASSWORD, None).await.status,
        404,
        "nor is the link"
    );
    assert_eq!(sign_in(&api, "tia", PASSWORD, None).await.status, 200);
    assert_eq!(api.get(&tia, "/api/v1/session").await.status, 200);
    let own = format!("/api/v1/users/{}", api.user("ann"));
    let oneself = put(&api, &ann, &own, json!({ "deactivated": true })).await;
    assert_eq!(oneself.status, 422, "{}", oneself.text());
}

#[tokio::test]
async fn a_letter_waits_for_a_relay_that_refuses_for_now_and_is_dropped_by_one_that_refuses_for_good() {
    let (api, mailbox) = with_mail().await;
    let ann = api.key("ann");
    let zoe = new_user(&api, &ann, "zoe", &["member_tech"]).await;
    mailbox.refuse(Some("451 try later"));
    send_link(&api, &ann, &zoe, "invitation").await;
    assert_eq!(api.stored("mail/"), 1, "it is stored before the answer");
    mailbox.refuse(None);
    letters(&mailbox, 1).await;
    api.nothing_stored("mail/").await;
    mailbox.refuse(Some("550 no such person"));
    send_link(&api, &ann, &zoe, "invitation").await;
    api.nothing_stored("mail/").await;
    assert_eq!(mailbox.letters().len(), 1);
}

#[tokio::test]
async fn letters_outlive_a_relay_that_is_away_and_a_restart_sealed_and_in_their_order() {
    let (api, away) = with_mail().await;
    away.set_away(true);
    let ann = api.key("ann");
    let names = ["zoe", "yui", "max"];
    for name in names {
        let user = new_user(&api, &ann, name, &["member_tech"]).await;
        send_link(&api, &ann, &user, "invitation").await;
    }
    assert_eq!(api.stored("mail/"), 3);
    for value in api.values("mail/") {
        let text = String::from_utf8_lossy(&value).into_owned();
        assert!(
            !text.contains("aoba.example") && !text.contains("/link#"),
            "{text}"
        );
    }
    let mailbox = millrace_ix_api::demo::Mailbox::start().await.unwrap();
    let relay = mailbox.relay();
    let api = api.restart_with(|settings| settings.mail = Some(crate::desk::mail(relay)));
    let all = letters(&mailbox, 3).await;
    for (name, letter) in names.iter().zip(&all) {
        assert!(letter.contains(&format!("To: {name}@aoba.example")), "{letter}");
    }
    api.nothing_stored("mail/").await;
    let used = use_link(&api, &token(&all[0]), NEW_PASSWORD, None).await;
    assert_eq!(used.status, 204, "a link outlives a restart: {}", used.text());
    assert!(away.letters().is_empty());
}

#[tokio::test]
async fn an_exchange_without_mail_says_so_and_a_person_without_an_address_gets_no_letter() {
    let api = Api::new().await;
    let ann = api.key("ann");
    let answer = ask_link(&api, &ann, &api.user("tia").to_string(), "password").await;
    assert_eq!((answer.status, &answer.json()["code"]), (409, &json!("mail-off")));
    let asked = post(&api, "", "/api/v1/session/forgotten", json!({ "name": "tia" })).await;
    assert_eq!((asked.status, &asked.json()["code"]), (409, &json!("mail-off")));
    let (api, _mailbox) = with_mail().await;
    let ann = api.key("ann");
    let body = json!({ "name": "yui", "roles": ["member_tech"] });
    let yui = created(&post(&api, &ann, "/api/v1/users", body).await, "us-");
    let answer = ask_link(&api, &ann, &yui, "password").await;
    assert_eq!(
        (answer.status, &answer.json()["code"]),
        (409, &json!("mail-missing"))
    );
}
