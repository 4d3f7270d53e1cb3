//! Sign-in and sign-out.

use std::net::{IpAddr, SocketAddr};

use axum::Json;
use axum::extract::{ConnectInfo, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use millrace_ix_model::{OperationKind, User, UserId, reason};
use serde::Deserialize;
use serde_json::json;
use utoipa::ToSchema;

use crate::access::Principal;
use crate::app::{App, totp_purpose};
use crate::problem::{Problem, ProblemKind};
use crate::render::{ViewContext, word};
use crate::request::Body;
use crate::service::Snapshot;
use crate::session::{
    Device, Failure, PASSWORD_LEN_MAX, PASSWORD_LEN_MIN, PasswordError, TooMany, TotpSecret, UserCredentials,
    WrongCodes, hash_password, load_json, save_json, verify_password,
};
use crate::view::Whoami;

/// The maximum length of a user name in characters; the rest is ignored.
pub(super) const NAME_LEN_MAX: usize = 256;

/// The credentials of a user.
#[derive(Deserialize, ToSchema)]
pub(crate) struct SignIn {
    /// The name of the user.
    name: String,
    /// The password.
    password: String,
    /// The one-time code, if the user has a second factor.
    #[serde(default)]
    code: Option<String>,
}

/// Returns the signed-in user.
pub(super) fn whoami(app: &App, principal: &Principal) -> Result<Whoami, Problem> {
    let (Some(user), Some(account)) = (principal.actor.user, principal.actor.account) else {
        return Err(Problem::new(ProblemKind::Unauthorized, "there is no session"));
    };
    let scope = ViewContext::new(principal, app.now());
    let found = principal.snapshot.exchange.users.get(&user);
    Ok(Whoami {
        user: user.to_string(),
        name: principal.name.clone(),
        account: scope.account_name(account),
        roles: principal.actor.roles.iter().map(word).collect(),
        operator: principal.actor.is_operator(),
        can: OperationKind::ALL
            .iter()
            .filter(|kind| principal.may_somewhere(**kind))
            .map(word)
            .collect(),
        language: found.and_then(|user| user.language.clone()),
        exchange: app.settings.name.clone(),
    })
}

/// Read who is signed in
#[utoipa::path(get, path = "/api/v1/session", tag = "session",
    responses((status = 200, body = Whoami), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn read(State(app): State<App>, principal: Principal) -> Result<Json<Whoami>, Problem> {
    whoami(&app, &principal).map(Json)
}

/// Sign in
///
/// The answer sets a cookie. A user with a second factor gets `code-required` first, and sends the same request again
/// with `code`. Operators must have a second factor. 5 attempts a minute are accepted for a name from one network, 60 for a name, and
/// 20 for a network; a browser that signed in before has 5 of its own. After 10 wrong codes, each further one costs a wait.
#[utoipa::path(post, path = "/api/v1/session", tag = "session", security(()), request_body = SignIn,
    responses((status = 200, body = Whoami), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn sign_in(
    State(app): State<App>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    headers: HeaderMap,
    Body(given): Body<SignIn>,
) -> Result<Response, Problem> {
    // No user has a longer name. The rest of such a name would only fill memory and the audit chain.
    let name: String = given.name.trim().chars().take(NAME_LEN_MAX).collect();
    let address = client(peer.ip(), &headers);
    let snapshot = app.snapshot();
    let found = user_named(&snapshot, &name);
    let device = known_device(&app, &headers, found.map(|(id, _)| id)).await?;
    let device_id = device.as_ref().map(|device| device.id.as_str());
    app.attempts
        .begin(&name, address, device_id, app.uptime())
        .map_err(busy)?;
    let failure = |detail: serde_json::Map<String, serde_json::Value>| Failure {
        name: Some(name.clone()),
        address,
        detail,
    };
    let key = found.map(|(id, _)| UserCredentials::key(&id.to_string()));
    let hash = match &key {
        Some(key) => {
            load_json::<UserCredentials>(&*app.credentials, key)
                .await?
                .unwrap_or_default()
                .password
        }
        None => None,
    };
    let is_right = check_password(&app, device.is_some(), given.password, hash.clone()).await?;
    let (Some((id, user)), Some(key), true) = (found, key, is_right) else {
        app.record_failure(failure(serde_json::Map::new())).await?;
        return Err(wrong_credentials());
    };
    let second = Second {
        code: given.code.as_deref().filter(|code| !code.is_empty()),
        is_known: device.is_some(),
    };
    if !use_code(&app, id, user, (&key, hash.as_deref()), &second).await? {
        let factor = [("factor".to_owned(), json!("code"))];
        app.record_failure(failure(factor.into_iter().collect())).await?;
        let detail = "the one-time code is wrong or was used before";
        return Err(Problem::new(ProblemKind::Unauthorized, detail).with_code("wrong-code"));
    }
    app.attempts.succeeded(&name, address, device_id);
    let detail = json!({ "address": address.to_string() });
    app.record(&id.to_string(), "sign_in", id, detail).await?;
    let cookie = begin_session(&app, id, &key, hash.as_deref()).await?;
    let principal = principal_of(&snapshot, id)?;
    let mut response = Json(whoami(&app, &principal)?).into_response();
    add_cookie(&mut response, &cookie)?;
    if let Some(hash) = &hash {
        let known = Device::set_cookie(&app.sealer, device.as_ref(), id, hash, app.now())?;
        add_cookie(&mut response, &known)?;
    }
    Ok(response)
}

/// Returns the browser of a request, if it has signed in as this user with the user's present password.
async fn known_device(
    app: &App,
    headers: &HeaderMap,
    user: Option<UserId>,
) -> Result<Option<Device>, Problem> {
    let (Some(user), Some(device)) = (user, Device::of(&app.sealer, headers, app.now())) else {
        return Ok(None);
    };
    if device.user != user {
        return Ok(None);
    }
    let key = UserCredentials::key(&user.to_string());
    let stored = load_json::<UserCredentials>(&*app.credentials, &key)
        .await?
        .unwrap_or_default();
    Ok(Some(device).filter(|device| device.is_known_for(user, stored.password.as_deref())))
}

/// Returns the address of the client. A request over loopback comes from the proxy in front of the API, which
/// adds the client's address at the end of `X-Forwarded-For`; the client itself supplies the addresses before
/// it.
pub(crate) fn client(peer: IpAddr, headers: &HeaderMap) -> IpAddr {
    let mut forwarded = headers.get_all("x-forwarded-for").iter();
    let last = forwarded.next_back().and_then(|value| value.to_str().ok());
    last.filter(|_| peer.to_canonical().is_loopback())
        .and_then(|value| value.rsplit(',').next()?.trim().parse().ok())
        .unwrap_or(peer)
}

fn wrong_credentials() -> Problem {
    Problem::new(ProblemKind::Unauthorized, "name or password is wrong").with_code("wrong-credentials")
}

/// Reads the credentials of a user again, after a password was verified against `hash`.
///
/// # Errors
/// A problem if the password has been changed since.
async fn credentials_with(app: &App, key: &str, hash: Option<&str>) -> Result<UserCredentials, Problem> {
    let stored: Option<UserCredentials> = load_json(&*app.credentials, key).await?;
    let stored = stored.unwrap_or_default();
    if stored.password.as_deref() == hash {
        Ok(stored)
    } else {
        Err(wrong_credentials())
    }
}

/// The second part of a sign-in.
struct Second<'a> {
    /// The one-time code.
    code: Option<&'a str>,
    /// True if the browser has signed in before.
    is_known: bool,
}

/// Uses the one-time code of a user whose password is right. Returns false if the code is wrong. Only the first
/// of several requests with the same code gets true.
///
/// # Errors
/// A problem if wrong codes before this one cost a wait. Those of unknown clients do not concern browsers that the user has used.
async fn use_code(
    app: &App,
    id: UserId,
    user: &User,
    (key, hash): (&str, Option<&str>),
    second: &Second<'_>,
) -> Result<bool, Problem> {
    let _changing = app.lock_credentials().await;
    let mut stored = credentials_with(app, key, hash).await?;
    if second.code.is_some()
        && let Some(retry_after) = stored.wrong_codes(second.is_known).wait(app.now())
    {
        return Err(busy(TooMany { retry_after }));
    }
    let before = stored.clone();
    let is_right = check_code(app, id, user, &mut stored, second.code)?;
    match is_right {
        true => *stored.wrong_codes(second.is_known) = WrongCodes::default(),
        false => stored.wrong_codes(second.is_known).add(app.now()),
    }
    if stored != before {
        save_json(&*app.credentials, key, &stored).await?;
    }
    Ok(is_right)
}

/// Begins a session, unless the password has been changed. A password change ends all sessions, so that no
/// session with the old password may begin after it.
async fn begin_session(app: &App, id: UserId, key: &str, hash: Option<&str>) -> Result<String, Problem> {
    let _changing = app.lock_credentials().await;
    credentials_with(app, key, hash).await?;
    Ok(app.sessions.begin(id, app.now()).await?)
}

pub(super) fn user_named<'a>(snapshot: &'a Snapshot, name: &str) -> Option<(UserId, &'a User)> {
    let mut users = snapshot.exchange.users.iter();
    users
        .find(|(_, user)| !user.deactivated && user.name.eq_ignore_ascii_case(name))
        .map(|(id, user)| (*id, user))
}

/// Returns a user as the principal of a request.
///
/// # Errors
/// A problem if the user no longer exists.
pub(super) fn principal_of(snapshot: &std::sync::Arc<Snapshot>, user: UserId) -> Result<Principal, Problem> {
    let actor = crate::app::actor_of(snapshot, user);
    let name = snapshot.exchange.users.get(&user).map(|user| user.name.clone());
    match (actor, name) {
        (Some(actor), Some(name)) => Ok(Principal {
            actor,
            name,
            snapshot: std::sync::Arc::clone(snapshot),
        }),
        _ => Err(Problem::new(
            ProblemKind::Unauthorized,
            "there is no such user any more",
        )),
    }
}

/// Returns the problem that reports too many attempts to sign in.
#[allow(clippy::needless_pass_by_value, reason = "map_err gives the error away")]
pub(super) fn busy(error: TooMany) -> Problem {
    Problem::new(ProblemKind::Busy, error.to_string())
        .with_code("too-many-attempts")
        .retry_after(seconds(error.retry_after))
}

/// Returns a duration in whole seconds, at least 1.
fn seconds(duration: std::time::Duration) -> u32 {
    u32::try_from(duration.as_secs()).unwrap_or(u32::MAX).max(1)
}

/// Verifies a password on a blocking thread. A semaphore limits the number of concurrent verifications.
/// People whose browser or session is known do not wait for unknown clients.
pub(super) async fn check_password(
    app: &App,
    is_known: bool,
    password: String,
    hash: Option<String>,
) -> Result<bool, Problem> {
    let failed = || Problem::new(ProblemKind::Internal, "the password could not be checked");
    let permits = if is_known { &app.known_hashes } else { &app.hashes };
    let _permit = permits.acquire().await.map_err(|_| failed())?;
    let checked = tokio::task::spawn_blocking(move || verify_password(&password, hash.as_deref()));
    checked.await.map_err(|_| failed())
}

/// Checks the one-time code of a user, and stores its time step in `stored`. Returns false if the code is
/// wrong.
fn check_code(
    app: &App,
    id: UserId,
    user: &User,
    stored: &mut UserCredentials,
    code: Option<&str>,
) -> Result<bool, Problem> {
    let Some(sealed) = &stored.totp else {
        if user.roles.iter().any(|role| role.is_operator()) {
            let detail = "operators need a second factor, and this user has none";
            return Err(Problem::new(ProblemKind::Forbidden, detail)
                .with_code("no-second-factor")
                .with_next_step(
                    "give the user one with `millrace-ix user totp NAME` on the exchange's host",
                ));
        }
        return Ok(true);
    };
    let Some(code) = code else {
        return Err(Problem::new(
            ProblemKind::CodeRequired,
            "the password is right: expected a one-time code in `code`",
        ));
    };
    let secret = app.sealer.open(&totp_purpose(id), sealed).map_err(|error| {
        tracing::error!(user = %id, %error, "the second factor of a user cannot be read");
        Problem::new(ProblemKind::Unavailable, error.to_string())
    })?;
    let seconds = app.wall().millis() / 1000;
    let step = TotpSecret::from_bytes(&secret).verify(code, seconds, stored.totp_step);
    if let Some(step) = step {
        stored.totp_step = step;
    }
    Ok(step.is_some())
}

/// Adds a `Set-Cookie` header to an answer.
pub(super) fn add_cookie(response: &mut Response, cookie: &str) -> Result<(), Problem> {
    let value = HeaderValue::from_str(cookie)
        .map_err(|_| Problem::new(ProblemKind::Internal, "the cookie could not be written"))?;
    response.headers_mut().append(header::SET_COOKIE, value);
    Ok(())
}

/// Sign out
#[utoipa::path(delete, path = "/api/v1/session", tag = "session",
    responses((status = 204), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn sign_out(
    State(app): State<App>,
    principal: Principal,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let cookie = app.sessions.end(&headers).await?;
    let user = principal
        .actor
        .user
        .map(|user| user.to_string())
        .unwrap_or_default();
    let recorded = app
        .record(&principal.audit_name(), "sign_out", &user, json!({}))
        .await;
    if let Err(problem) = recorded {
        tracing::error!(%user, detail = %problem.detail, "a sign-out is not in the audit chain");
    }
    let mut response = StatusCode::NO_CONTENT.into_response();
    add_cookie(&mut response, &cookie)?;
    Ok(response)
}

/// A change of the caller's password.
#[derive(Deserialize, ToSchema)]
pub(crate) struct NewPassword {
    /// The present password.
    present: String,
    /// The new password: 12 to 256 characters.
    new: String,
}

/// Change the caller's password; this ends all sessions of the user
#[utoipa::path(put, path = "/api/v1/session/password", tag = "session", request_body = NewPassword,
    responses((status = 204), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn change_password(
    State(app): State<App>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    headers: HeaderMap,
    principal: Principal,
    Body(given): Body<NewPassword>,
) -> Result<StatusCode, Problem> {
    let Some(user) = principal.actor.user else {
        return Err(Problem::new(ProblemKind::Unauthorized, "there is no session"));
    };
    app.attempts
        .begin_again(&user.to_string(), client(peer.ip(), &headers), app.uptime())
        .map_err(busy)?;
    let stored = load_json(&*app.credentials, &UserCredentials::key(&user.to_string())).await?;
    let stored: UserCredentials = stored.unwrap_or_default();
    let wrong = || {
        Problem::new(ProblemKind::Forbidden, "the present password is wrong")
            .with_code("wrong-credentials")
            .with_error("/present", "wrong-credentials")
    };
    if !check_password(&app, true, given.present, stored.password.clone()).await? {
        return Err(wrong());
    }
    let hash = match tokio::task::spawn_blocking(move || hash_password(&given.new)).await {
        Ok(Ok(hash)) => hash,
        Ok(Err(PasswordError::Length { .. })) => {
            let reason = reason::password_length(PASSWORD_LEN_MIN, PASSWORD_LEN_MAX);
            return Err(Problem::because(ProblemKind::Invalid, reason).with_error("/new", "length"));
        }
        Ok(Err(error)) => return Err(Problem::new(ProblemKind::Unavailable, error.to_string())),
        Err(_) => {
            return Err(Problem::new(
                ProblemKind::Internal,
                "the password could not be set",
            ));
        }
    };
    app.record(&principal.audit_name(), "change_password", user, json!({}))
        .await?;
    if app
        .change_password(user, stored.password.as_deref(), hash)
        .await?
    {
        Ok(StatusCode::NO_CONTENT)
    } else {
        // The password was changed after the check, for example by the exchange's staff.
        Err(wrong())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::app::HASHES_MAX;
    use crate::demo::start_api;
    use crate::session::MemoryCredentials;

    #[tokio::test]
    async fn people_who_are_known_do_not_wait_behind_the_passwords_of_unknown_clients() {
        let (_world, app) = start_api(Arc::new(MemoryCredentials::default())).await;
        let hash = hash_password("correct horse battery").unwrap();
        let check = |is_known| {
            check_password(
                &app,
                is_known,
                "correct horse battery".to_owned(),
                Some(hash.clone()),
            )
        };
        let flood = app.hashes.acquire_many(u32::try_from(HASHES_MAX).unwrap()).await;
        let known = tokio::time::timeout(Duration::from_secs(60), check(true)).await;
        assert!(known.unwrap().unwrap());
        let unknown = tokio::time::timeout(Duration::from_millis(50), check(false)).await;
        assert!(unknown.is_err(), "the check of an unknown client waits");
        drop(flood);
        assert!(check(false).await.unwrap());
    }

    #[test]
    fn the_address_that_the_proxy_added_is_the_client_and_no_other() {
        let proxy: IpAddr = "127.0.0.1".parse().unwrap();
        let far: IpAddr = "192.0.2.1".parse().unwrap();
        let mut headers = HeaderMap::new();
        assert_eq!(client(proxy, &headers), proxy);
        headers.append("x-forwarded-for", HeaderValue::from_static("198.51.100.9"));
        headers.append(
            "x-forwarded-for",
            HeaderValue::from_static("203.0.113.5, 2001:db8::1"),
        );
        assert_eq!(client(proxy, &headers), "2001:db8::1".parse::<IpAddr>().unwrap());
        assert_eq!(
            client(far, &headers),
            far,
            "only the proxy on this host is believed"
        );
        headers.append("x-forwarded-for", HeaderValue::from_static("unknown"));
        assert_eq!(client(proxy, &headers), proxy);
    }
}
