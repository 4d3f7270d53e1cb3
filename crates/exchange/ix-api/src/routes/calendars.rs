//! The calendar of a person for programs that cannot sign in: an address that is secret, reads only, and ends when the person says so.

use axum::Json;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use millrace_ix_model::{Timestamp, UserId};
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::ToSchema;

use super::notices::calendar_of;
use super::session::principal_of;
use crate::access::{Principal, bearer};
use crate::app::App;
use crate::problem::{Problem, ProblemKind};
use crate::session::{calendar_key, fingerprint, load_json, random, save_json};

/// The end of an address.
const SUFFIX: &str = ".ics";

/// The address of a user as it is stored.
#[derive(Debug, Serialize, Deserialize)]
struct Stored {
    /// The SHA-256 of the secret.
    print: String,
    created: Timestamp,
}

/// The state of the reader's address for calendars.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CalendarState {
    /// The time at which the address was made; null if there is none.
    #[schema(required)]
    created: Option<String>,
}

/// A new address for calendars, which is shown once.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CalendarAddress {
    /// The path, behind the address of the exchange. Who knows it reads the notices that concern its user.
    path: String,
}

fn user_of(principal: &Principal) -> Result<UserId, Problem> {
    let user = principal.actor.user;
    user.ok_or_else(|| Problem::new(ProblemKind::Unauthorized, "there is no session"))
}

/// Read whether you have an address for calendars
#[utoipa::path(get, path = "/api/v1/calendar", tag = "notices",
    responses((status = 200, body = CalendarState), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn read(
    State(app): State<App>,
    principal: Principal,
) -> Result<Json<CalendarState>, Problem> {
    let stored: Option<Stored> = load_json(&*app.credentials, &calendar_key(user_of(&principal)?)).await?;
    Ok(Json(CalendarState {
        created: stored.map(|stored| stored.created.to_string()),
    }))
}

/// Make your address for calendars, which replaces an older one
#[utoipa::path(put, path = "/api/v1/calendar", tag = "notices",
    responses((status = 200, body = CalendarAddress), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn make(
    State(app): State<App>,
    principal: Principal,
    headers: HeaderMap,
) -> Result<Json<CalendarAddress>, Problem> {
    if bearer(&headers).is_some() {
        let detail = "an API key may not make addresses: expected the session of a person";
        return Err(Problem::new(ProblemKind::Forbidden, detail).with_code("session-required"));
    }
    let user = user_of(&principal)?;
    let bytes = random::<24>().map_err(|error| Problem::new(ProblemKind::Internal, error.to_string()))?;
    let name = format!("{user}.{}", URL_SAFE_NO_PAD.encode(bytes));
    let stored = Stored {
        print: fingerprint(&name),
        created: app.now(),
    };
    app.record(&principal.audit_name(), "make_calendar_address", user, json!({}))
        .await?;
    let _changing = app.lock_credentials().await;
    save_json(&*app.credentials, &calendar_key(user), &stored).await?;
    Ok(Json(CalendarAddress {
        path: format!("/api/v1/calendars/{name}{SUFFIX}"),
    }))
}

/// End your address for calendars
#[utoipa::path(delete, path = "/api/v1/calendar", tag = "notices",
    responses((status = 204), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn end(State(app): State<App>, principal: Principal) -> Result<StatusCode, Problem> {
    let user = user_of(&principal)?;
    app.record(&principal.audit_name(), "end_calendar_address", user, json!({}))
        .await?;
    let _changing = app.lock_credentials().await;
    app.credentials.save(&calendar_key(user), None).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Read the notices that concern the user of an address as a calendar (iCalendar, RFC 5545)
#[utoipa::path(get, path = "/api/v1/calendars/{name}", tag = "notices", security(()), params(("name" = String, Path, description = "The secret, with .ics")),
    responses((status = 200, body = String, content_type = "text/calendar"), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn feed(State(app): State<App>, Path(name): Path<String>) -> Result<Response, Problem> {
    let absent = || Problem::absent("such a calendar");
    let name = name.strip_suffix(SUFFIX).ok_or_else(absent)?;
    let user: UserId = name
        .split('.')
        .next()
        .and_then(|user| user.parse().ok())
        .ok_or_else(absent)?;
    let stored: Option<Stored> = load_json(&*app.credentials, &calendar_key(user)).await?;
    if stored.is_none_or(|stored| stored.print != fingerprint(name)) {
        return Err(absent());
    }
    let principal = principal_of(&app.snapshot(), user).map_err(|_| absent())?;
    calendar_of(&app, &principal)
}
