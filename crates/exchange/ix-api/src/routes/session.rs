//! Sign-in and sign-out.

use std::net::SocketAddr;

use axum::Json;
use axum::extract::{ConnectInfo, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use millrace_ix_model::{OperationKind, User, UserId};
use serde::Deserialize;
use serde_json::json;
use utoipa::ToSchema;

use crate::access::Principal;
use crate::app::{App, totp_purpose};
use crate::problem::{Problem, ProblemKind};
use crate::render::{Scope, word};
use crate::request::Body;
use crate::service::Snapshot;
use crate::session::{TotpSecret, UserCredentials, load_json, save_json, verify_password};
use crate::view::Whoami;

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

fn whoami(app: &App, principal: &Principal) -> Result<Whoami, Problem> {
    let (Some(user), Some(account)) = (principal.actor.user, principal.actor.account) else {
        return Err(Problem::new(ProblemKind::Unauthorized, "there is no session"));
    };
    let scope = Scope::new(principal, app.now());
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
/// with `code`. Operators must have a second factor. 5 attempts a minute are accepted for a name, and 20 for an address.
#[utoipa::path(post, path = "/api/v1/session", tag = "session", request_body = SignIn,
    responses((status = 200, body = Whoami), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn sign_in(
    State(app): State<App>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    Body(given): Body<SignIn>,
) -> Result<Response, Problem> {
    let name = given.name.trim().to_owned();
    app.attempts
        .begin(&name, peer.ip(), app.uptime())
        .map_err(|error| {
            Problem::new(ProblemKind::Busy, error.to_string())
                .with_code("too-many-attempts")
                .retry_after(seconds(error.retry_after))
        })?;
    let snapshot = app.snapshot();
    let found = user_named(&snapshot, &name);
    let key = found.map(|(id, _)| UserCredentials::key(&id.to_string()));
    let mut stored: UserCredentials = match &key {
        Some(key) => load_json(&*app.credentials, key)?.unwrap_or_default(),
        None => UserCredentials::default(),
    };
    let is_right = check_password(&app, given.password, stored.password.clone()).await?;
    let (Some((id, user)), Some(key), true) = (found, key, is_right) else {
        app.record(
            "anonymous",
            "sign_in_failed",
            "",
            json!({ "name": name, "address": peer.ip().to_string() }),
        )
        .await?;
        return Err(
            Problem::new(ProblemKind::Unauthorized, "name or password is wrong")
                .with_code("wrong-credentials"),
        );
    };
    check_code(&app, id, user, &mut stored, given.code.as_deref())?;
    save_json(&*app.credentials, &key, &stored)?;
    app.attempts.succeeded(&name);
    app.record(
        &id.to_string(),
        "sign_in",
        id,
        json!({ "address": peer.ip().to_string() }),
    )
    .await?;
    let cookie = app.sessions.begin(id, app.now())?;
    let principal = principal_of(&snapshot, id)?;
    let mut response = Json(whoami(&app, &principal)?).into_response();
    set_cookie(&mut response, &cookie)?;
    Ok(response)
}

fn user_named<'a>(snapshot: &'a Snapshot, name: &str) -> Option<(UserId, &'a User)> {
    let mut users = snapshot.exchange.users.iter();
    users
        .find(|(_, user)| user.name.eq_ignore_ascii_case(name))
        .map(|(id, user)| (*id, user))
}

fn principal_of(snapshot: &std::sync::Arc<Snapshot>, user: UserId) -> Result<Principal, Problem> {
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

/// Returns whole seconds, at least one.
fn seconds(duration: std::time::Duration) -> u32 {
    u32::try_from(duration.as_secs()).unwrap_or(u32::MAX).max(1)
}

/// Verifies a password on a blocking thread, a few at a time.
async fn check_password(app: &App, password: String, hash: Option<String>) -> Result<bool, Problem> {
    let failed = || Problem::new(ProblemKind::Internal, "the password could not be checked");
    let _permit = app.hashes.acquire().await.map_err(|_| failed())?;
    let checked = tokio::task::spawn_blocking(move || verify_password(&password, hash.as_deref()));
    checked.await.map_err(|_| failed())
}

/// Checks the one-time code of a user whose password is right.
fn check_code(
    app: &App,
    id: UserId,
    user: &User,
    stored: &mut UserCredentials,
    code: Option<&str>,
) -> Result<(), Problem> {
    let Some(sealed) = &stored.totp else {
        if user.roles.iter().any(|role| role.is_operator()) {
            let detail = "operators need a second factor, and this user has none";
            return Err(Problem::new(ProblemKind::Forbidden, detail)
                .with_code("no-second-factor")
                .with_next_step(
                    "give the user one with `millrace-ix user totp NAME` on the exchange's host",
                ));
        }
        return Ok(());
    };
    let Some(code) = code.filter(|code| !code.is_empty()) else {
        return Err(Problem::new(
            ProblemKind::CodeRequired,
            "the password is right: expected a one-time code in `code`",
        ));
    };
    let secret = app.sealer.open(&totp_purpose(id), sealed).map_err(|error| {
        tracing::error!(user = %id, %error, "the second factor of a user cannot be read");
        Problem::new(ProblemKind::Unavailable, error.to_string())
    })?;
    let seconds = app.now().millis() / 1000;
    match TotpSecret::from_bytes(&secret).verify(code.trim(), seconds, stored.totp_step) {
        Some(step) => {
            stored.totp_step = step;
            Ok(())
        }
        None => {
            let detail = "the one-time code is wrong or was used before";
            Err(Problem::new(ProblemKind::Unauthorized, detail).with_code("wrong-code"))
        }
    }
}

fn set_cookie(response: &mut Response, cookie: &str) -> Result<(), Problem> {
    let value = HeaderValue::from_str(cookie)
        .map_err(|_| Problem::new(ProblemKind::Internal, "the cookie could not be written"))?;
    response.headers_mut().insert(header::SET_COOKIE, value);
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
    let cookie = app.sessions.end(&headers)?;
    let user = principal
        .actor
        .user
        .map(|user| user.to_string())
        .unwrap_or_default();
    app.record(&principal.audit_name(), "sign_out", user, json!({}))
        .await?;
    let mut response = StatusCode::NO_CONTENT.into_response();
    set_cookie(&mut response, &cookie)?;
    Ok(response)
}

/// A change of the own password.
#[derive(Deserialize, ToSchema)]
pub(crate) struct NewPassword {
    /// The present password.
    present: String,
    /// The new password: 12 to 256 characters.
    new: String,
}

/// Change the own password; it ends all sessions of the user
#[utoipa::path(put, path = "/api/v1/session/password", tag = "session", request_body = NewPassword,
    responses((status = 204), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn change_password(
    State(app): State<App>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    principal: Principal,
    Body(given): Body<NewPassword>,
) -> Result<StatusCode, Problem> {
    let Some(user) = principal.actor.user else {
        return Err(Problem::new(ProblemKind::Unauthorized, "there is no session"));
    };
    app.attempts
        .begin(&principal.name, peer.ip(), app.uptime())
        .map_err(|error| {
            Problem::new(ProblemKind::Busy, error.to_string())
                .with_code("too-many-attempts")
                .retry_after(seconds(error.retry_after))
        })?;
    let stored: UserCredentials =
        load_json(&*app.credentials, &UserCredentials::key(&user.to_string()))?.unwrap_or_default();
    if !check_password(&app, given.present, stored.password).await? {
        let problem = Problem::new(ProblemKind::Forbidden, "the present password is wrong")
            .with_code("wrong-credentials");
        return Err(problem.with_error("/present", "wrong-credentials"));
    }
    let setter = app.clone();
    let set = tokio::task::spawn_blocking(move || setter.set_password(user, &given.new)).await;
    match set {
        Ok(Ok(())) => {}
        Ok(Err(crate::app::SetCredentialError::Password(error))) => {
            return Err(Problem::new(ProblemKind::Invalid, error.to_string()).with_error("/new", "length"));
        }
        Ok(Err(error)) => return Err(Problem::new(ProblemKind::Unavailable, error.to_string())),
        Err(_) => {
            return Err(Problem::new(
                ProblemKind::Internal,
                "the password could not be set",
            ));
        }
    }
    app.record(&principal.audit_name(), "change_password", user, json!({}))
        .await?;
    Ok(StatusCode::NO_CONTENT)
}
