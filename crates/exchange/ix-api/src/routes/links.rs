//! Links in letters: invitations, new passwords, new second factors.
//!
//! ```text
//!  POST /users/{id}/link  --> letter with TOKEN; the store has its SHA-256, the kind, the address and the end of validity
//!  POST /session/links/read {token}                  --> what the link is for; a new TOTP secret if it needs one
//!  POST /session/links/use  {token, password, code}  --> done once, the link is over, sessions of the user end
//! ```
//! A token has 256 random bits and stands after `#` in the address, which browsers send to nobody. It is found by its SHA-256, so that
//! the time of an answer tells nothing about tokens. A link is over when the user has another mail address: what lies in the former
//! mailbox permits nothing any more. An invitation is over when the user has a password.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use axum::Json;
use axum::extract::{ConnectInfo, State};
use axum::http::{HeaderMap, StatusCode};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use millrace_ix_model::{OperationKind, Reason, Timestamp, User, UserId, reason};
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::ToSchema;

use super::session::{NAME_LEN_MAX, busy, check_password, client, user_named};
use crate::access::Access;
use crate::app::App;
use crate::mail::words::{self, Language, LinkKind};
use crate::mail::{Letter, MailSettings, off};
use crate::problem::{Problem, ProblemKind};
use crate::request::Body;
use crate::service::Snapshot;
use crate::session::{
    CredentialError, PASSWORD_LEN_MAX, PASSWORD_LEN_MIN, PasswordError, TotpSecret, UserCredentials,
    fingerprint, hash_password, load_json, parse, random, save_json,
};

/// The prefix of the store keys of links. The SHA-256 of the token follows.
const PREFIX: &str = "link/";
/// The purpose string of the sealed secret that a link offers.
const PURPOSE: &str = "link totp";
/// The time in which a person who asks for new passwords gets one letter at most.
const ASKED: Duration = Duration::from_secs(600);

/// A link as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Link {
    user: UserId,
    kind: LinkKind,
    /// The mail address to which it was sent.
    to: String,
    valid_until: Timestamp,
    /// The sealed TOTP secret that the link offers, after it was read.
    #[serde(default)]
    totp: Option<Vec<u8>>,
}

fn conflict(reason: Reason, code: &'static str) -> Problem {
    Problem::because(ProblemKind::Conflict, reason).with_code(code)
}

/// Returns how the exchange writes to a user.
///
/// # Errors
/// A problem if the exchange sends no mail, or the user has no address.
fn way<'a>(app: &'a App, user: &User) -> Result<(&'a MailSettings, String), Problem> {
    let settings = app.settings.mail.as_ref().ok_or_else(off)?;
    let to = user.email.clone();
    let to = to.ok_or_else(|| conflict(reason::mail_missing(&user.name), "mail-missing"))?;
    if !to.is_ascii() {
        let detail = "letters go to addresses in ASCII only: enter such an address first";
        return Err(Problem::new(ProblemKind::Conflict, detail).with_code("mail-not-ascii"));
    }
    Ok((settings, to))
}

/// Makes a link and posts the letter with it. Earlier links of the user of this kind are over.
async fn send(app: &App, id: UserId, user: &User, kind: LinkKind) -> Result<(), Problem> {
    let (settings, to) = way(app, user)?;
    let token = random::<32>().map_err(|error| Problem::new(ProblemKind::Unavailable, error.to_string()))?;
    let token = URL_SAFE_NO_PAD.encode(token);
    let now = app.now();
    let link = Link {
        user: id,
        kind,
        to: to.clone(),
        valid_until: now.after(Duration::from_secs(kind.hours() * 3600)),
        totp: None,
    };
    let url = settings.page(&format!("/link#{token}"));
    let text = words::link(
        language(settings, user),
        kind,
        &app.settings.name,
        &user.name,
        &url,
    );
    let letter = Letter {
        until: link.valid_until,
        ..Letter::new(to, text, now)
    };
    app.mail.check_room(app, 1)?;
    {
        let _changing = app.lock_credentials().await;
        forget(app, |other| {
            other.valid_until <= now || other.user == id && other.kind == kind
        })
        .await?;
        save_json(
            &*app.credentials,
            &format!("{PREFIX}{}", fingerprint(&token)),
            &link,
        )
        .await?;
    }
    app.mail.post(app, &[letter]).await
}

/// Ends all links of a user.
pub(super) async fn forget_user(app: &App, id: UserId) -> Result<(), CredentialError> {
    let _changing = app.lock_credentials().await;
    forget(app, |link| link.user == id).await
}

/// Tells a person at the former mail address that letters go to another one from now on. The change is made; a letter that cannot be
/// posted is a line in the log.
pub(super) async fn tell_of_new_address(app: &App, id: UserId, before: &User) {
    let (Some(settings), Some(to)) = (&app.settings.mail, before.email.clone()) else {
        return;
    };
    let text = words::address_changed(language(settings, before), &app.settings.name, &before.name);
    tell(app, id, Letter::new(to, text, app.now())).await;
}

/// Posts a letter about something that is done.
async fn tell(app: &App, id: UserId, letter: Letter) {
    if let Err(problem) = app.mail.post(app, &[letter]).await {
        tracing::warn!(user = %id, reason = %problem.detail, "a person is not told of a change");
    }
}

/// Returns the language of letters to a user.
fn language(settings: &MailSettings, user: &User) -> Language {
    Language::of(user.language.as_deref(), settings.language())
}

/// Removes the links that `is_over` selects.
async fn forget(app: &App, is_over: impl Fn(&Link) -> bool) -> Result<(), CredentialError> {
    for (key, value) in app.credentials.list(PREFIX).await? {
        if parse::<Link>(&value).map_or(true, |link| is_over(&link)) {
            app.credentials.save(&key, None).await?;
        }
    }
    Ok(())
}

/// The kind of a letter.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub(crate) struct NewLink {
    /// The act that the link in the letter permits.
    kind: LinkKind,
}

/// Send a user a letter with a link: an invitation, a new password, or a new second factor
///
/// An administrator of the user's account may, and one of the exchange. The user needs a mail address, and the exchange the
/// settings for mail.
#[utoipa::path(post, path = "/api/v1/users/{id}/link", tag = "accounts", request_body = NewLink, params(("id" = String, Path, description = "The user")),
    responses((status = 202), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn create(
    State(app): State<App>,
    access: Access<UserId>,
    Body(given): Body<NewLink>,
) -> Result<StatusCode, Problem> {
    access.require(OperationKind::UpdateUser)?;
    let user = access.object()?;
    let id = access.id();
    let (_, to) = way(&app, user)?;
    if user.deactivated {
        return Err(conflict(reason::user_deactivated(&user.name), "user-deactivated"));
    }
    if given.kind == LinkKind::Invitation && credentials_of(&app, id).await?.password.is_some() {
        return Err(conflict(reason::password_there(&user.name), "password-there"));
    }
    app.mail.admit(&to, user.account, Duration::ZERO, app.uptime())?;
    let detail = json!({ "kind": given.kind });
    app.record(&access.principal().audit_name(), "send_link", id, detail)
        .await?;
    send(&app, id, user, given.kind).await?;
    Ok(StatusCode::ACCEPTED)
}

async fn credentials_of(app: &App, id: UserId) -> Result<UserCredentials, CredentialError> {
    let stored = load_json(&*app.credentials, &UserCredentials::key(&id.to_string())).await?;
    Ok(stored.unwrap_or_default())
}

/// The name of a person who has lost the password.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct Forgotten {
    /// The name that the user signs in with.
    name: String,
}

/// Ask for a letter with a link for a new password
///
/// The answer is the same whether there is such a user or not, and whether the user has a mail address.
#[utoipa::path(post, path = "/api/v1/session/forgotten", tag = "session", security(()), request_body = Forgotten,
    responses((status = 202), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn forgotten(
    State(app): State<App>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    headers: HeaderMap,
    Body(given): Body<Forgotten>,
) -> Result<StatusCode, Problem> {
    let address = client(peer.ip(), &headers);
    app.attempts.begin_from(address, app.uptime()).map_err(busy)?;
    if app.settings.mail.is_none() {
        return Err(off());
    }
    let name: String = given.name.trim().chars().take(NAME_LEN_MAX).collect();
    // A letter takes time, and may be refused. The answer does not wait for it, because both would tell which users exist.
    tokio::spawn(async move {
        if let Err(problem) = send_forgotten(&app, &name, address).await {
            tracing::warn!(reason = %problem.detail, "a person who asks for a new password gets no letter");
        }
    });
    Ok(StatusCode::ACCEPTED)
}

/// Sends a person the letter for a new password, if there is such a person and the last letter is ten minutes old.
async fn send_forgotten(app: &App, name: &str, address: IpAddr) -> Result<(), Problem> {
    let snapshot = app.snapshot();
    let Some((id, user)) = user_named(&snapshot, name) else {
        return Ok(());
    };
    let Some(to) = &user.email else {
        return Ok(());
    };
    if app.mail.admit(to, user.account, ASKED, app.uptime()).is_err() {
        return Ok(());
    }
    let detail = json!({ "kind": LinkKind::Password, "address": address.to_string() });
    app.record("anonymous", "send_link", id, detail).await?;
    send(app, id, user, LinkKind::Password).await
}

/// The token of a link.
#[derive(Deserialize, ToSchema)]
pub(crate) struct LinkToken {
    /// The text after `#` in the link.
    token: String,
}

/// The purpose of a link.
#[derive(Serialize, ToSchema)]
pub(crate) struct LinkView {
    /// The kind.
    kind: LinkKind,
    /// The name that the user signs in with.
    name: String,
    /// The name of the exchange.
    exchange: String,
    /// The end of validity.
    valid_until: String,
    /// The second factor to be entered into an authenticator; null if the link needs none.
    #[schema(required)]
    totp: Option<OfferedTotp>,
}

/// A second factor that is valid when the link is used with a code of it.
#[derive(Serialize, ToSchema)]
pub(crate) struct OfferedTotp {
    /// The secret in Base32.
    secret: String,
    /// The `otpauth` URI, for an authenticator on the same device.
    uri: String,
}

fn over() -> Problem {
    Problem::because(ProblemKind::NotFound, reason::link_over()).with_code("link-over")
}

/// A valid link.
struct Found<'a> {
    /// The key in the store.
    key: String,
    link: Link,
    user: &'a User,
    credentials: UserCredentials,
}

impl Found<'_> {
    /// Returns true if the link must set a second factor: it is for one, or it invites a person whose roles need one. A link for a
    /// new password sets none: who reads one letter gets one factor.
    fn needs_totp(&self) -> bool {
        let is_operator = self.user.roles.iter().any(|role| role.is_operator());
        let is_missing = is_operator && self.credentials.totp.is_none();
        match self.link.kind {
            LinkKind::Invitation => is_missing,
            LinkKind::Password => false,
            LinkKind::SecondFactor => true,
        }
    }
}

/// Returns the valid link with a token.
async fn find<'a>(app: &App, snapshot: &'a Snapshot, token: &str) -> Result<Found<'a>, Problem> {
    let key = format!("{PREFIX}{}", fingerprint(token));
    let link: Link = load_json(&*app.credentials, &key).await?.ok_or_else(over)?;
    let user = snapshot.exchange.users.get(&link.user).ok_or_else(over)?;
    let credentials = credentials_of(app, link.user).await?;
    let is_same_address = user.email.as_deref() == Some(link.to.as_str());
    let is_accepted = link.kind == LinkKind::Invitation && credentials.password.is_some();
    if user.deactivated || !is_same_address || is_accepted || app.now() >= link.valid_until {
        return Err(over());
    }
    Ok(Found {
        key,
        link,
        user,
        credentials,
    })
}

/// Read what a link in a letter is for
#[utoipa::path(post, path = "/api/v1/session/links/read", tag = "session", security(()), request_body = LinkToken,
    responses((status = 200, body = LinkView), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn read(
    State(app): State<App>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    headers: HeaderMap,
    Body(given): Body<LinkToken>,
) -> Result<Json<LinkView>, Problem> {
    app.attempts
        .begin_from(client(peer.ip(), &headers), app.uptime())
        .map_err(busy)?;
    let snapshot = app.snapshot();
    let failed = |error: &dyn std::fmt::Display| Problem::new(ProblemKind::Unavailable, error.to_string());
    let _changing = app.lock_credentials().await;
    let found = find(&app, &snapshot, &given.token).await?;
    let needs_totp = found.needs_totp();
    let Found {
        key, mut link, user, ..
    } = found;
    let totp = if needs_totp {
        let secret = match &link.totp {
            Some(sealed) => {
                let bytes = app.sealer.open(PURPOSE, sealed).map_err(|error| failed(&error))?;
                TotpSecret::from_bytes(&bytes)
            }
            None => {
                let secret = TotpSecret::generate().map_err(|error| failed(&error))?;
                let sealed = app.sealer.seal(PURPOSE, secret.as_bytes());
                link.totp = Some(sealed.map_err(|error| failed(&error))?);
                save_json(&*app.credentials, &key, &link).await?;
                secret
            }
        };
        Some(OfferedTotp {
            secret: secret.to_base32(),
            uri: secret.uri(&app.settings.name, &user.name),
        })
    } else {
        None
    };
    Ok(Json(LinkView {
        kind: link.kind,
        name: user.name.clone(),
        exchange: app.settings.name.clone(),
        valid_until: link.valid_until.to_string(),
        totp,
    }))
}

/// The use of a link.
#[derive(Deserialize, ToSchema)]
pub(crate) struct UseLink {
    /// The text after `#` in the link.
    token: String,
    /// The new password, 12 to 256 characters; for a new second factor the present password.
    password: String,
    /// A code of the second factor that the link offers.
    #[serde(default)]
    code: Option<String>,
}

/// Use a link in a letter: set the password or the second factor; the link is over, and all sessions of the user end
#[utoipa::path(post, path = "/api/v1/session/links/use", tag = "session", security(()), request_body = UseLink,
    responses((status = 204), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn use_link(
    State(app): State<App>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    headers: HeaderMap,
    Body(given): Body<UseLink>,
) -> Result<StatusCode, Problem> {
    let address = client(peer.ip(), &headers);
    let snapshot = app.snapshot();
    let found = find(&app, &snapshot, &given.token).await?;
    let id = found.link.user;
    // Passwords are checked and hashed as often as at a sign-in, and not more often.
    app.attempts
        .begin_again(&id.to_string(), address, app.uptime())
        .map_err(busy)?;
    let needs_totp = found.needs_totp();
    let Found {
        key,
        link,
        user,
        credentials,
    } = found;
    let secret = if needs_totp {
        Some(offered(&app, &link, given.code.as_deref())?)
    } else {
        None
    };
    let present = credentials.password.as_deref();
    let hash = if link.kind == LinkKind::SecondFactor {
        if !check_password(&app, true, given.password, credentials.password.clone()).await? {
            let wrong = Problem::new(ProblemKind::Forbidden, "the password is wrong");
            return Err(wrong
                .with_code("wrong-credentials")
                .with_error("/password", "wrong-credentials"));
        }
        None
    } else {
        Some(hash(given.password).await?)
    };
    take(&app, &key, &link).await?;
    let detail = json!({ "kind": link.kind, "address": address.to_string() });
    app.record(&id.to_string(), "use_link", id, detail).await?;
    // A password that was changed meanwhile is not the one of this request: the link is over all the same.
    let is_done = match (hash, secret) {
        (Some(hash), secret) => {
            app.change_password(id, present, hash).await? && set_totp(&app, id, secret).await?
        }
        (None, Some(secret)) => app
            .replace_totp(id, present, &secret)
            .await
            .map_err(|error| Problem::new(ProblemKind::Unavailable, error.to_string()))?,
        (None, None) => false,
    };
    if !is_done {
        return Err(over());
    }
    if let (Some(settings), Some(to)) = (&app.settings.mail, user.email.clone()) {
        let text = words::used(language(settings, user), &app.settings.name, &user.name);
        tell(&app, id, Letter::new(to, text, app.now())).await;
    }
    Ok(StatusCode::NO_CONTENT)
}

/// Sets the second factor of a person who has just got a password, if there is one.
async fn set_totp(app: &App, id: UserId, secret: Option<TotpSecret>) -> Result<bool, Problem> {
    if let Some(secret) = secret {
        app.set_totp(id, &secret)
            .await
            .map_err(|error| Problem::new(ProblemKind::Unavailable, error.to_string()))?;
    }
    Ok(true)
}

/// Returns the second factor that a link offers, if the code is one of it.
fn offered(app: &App, link: &Link, code: Option<&str>) -> Result<TotpSecret, Problem> {
    let wrong = || {
        let detail = "the one-time code is wrong: expected one of the second factor on this page";
        Problem::new(ProblemKind::Invalid, detail)
            .with_code("wrong-code")
            .with_error("/code", "wrong-code")
    };
    let sealed = link.totp.as_ref().ok_or_else(wrong)?;
    let bytes = app
        .sealer
        .open(PURPOSE, sealed)
        .map_err(|error| Problem::new(ProblemKind::Unavailable, error.to_string()))?;
    let secret = TotpSecret::from_bytes(&bytes);
    let seconds = app.wall().millis() / 1000;
    let step = code.and_then(|code| secret.verify(code, seconds, 0));
    step.map(|_| secret).ok_or_else(wrong)
}

/// Ends a link. Only one of several requests with the same token gets further.
async fn take(app: &App, key: &str, link: &Link) -> Result<(), Problem> {
    let _changing = app.lock_credentials().await;
    let stored: Option<Link> = load_json(&*app.credentials, key).await?;
    // The secret that the code was checked against is the one that is set.
    if stored.as_ref() != Some(link) {
        return Err(over());
    }
    Ok(app.credentials.save(key, None).await?)
}

/// Returns the hash of a new password, computed on a blocking thread.
async fn hash(password: String) -> Result<String, Problem> {
    match tokio::task::spawn_blocking(move || hash_password(&password)).await {
        Ok(Ok(hash)) => Ok(hash),
        Ok(Err(PasswordError::Length { .. })) => {
            let reason = reason::password_length(PASSWORD_LEN_MIN, PASSWORD_LEN_MAX);
            Err(Problem::because(ProblemKind::Invalid, reason).with_error("/password", "length"))
        }
        Ok(Err(error)) => Err(Problem::new(ProblemKind::Unavailable, error.to_string())),
        Err(_) => Err(Problem::new(
            ProblemKind::Internal,
            "the password could not be set",
        )),
    }
}
