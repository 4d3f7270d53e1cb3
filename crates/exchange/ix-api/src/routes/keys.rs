//! API keys of the signed-in user.

use std::sync::atomic::Ordering;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use millrace_ix_model::reason;
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::ToSchema;

use crate::access::{Principal, bearer};
use crate::app::App;
use crate::problem::{Problem, ProblemKind};
use crate::request::{Body, PageParams, Query};
use crate::session::{ApiKeyRecord, KEY_PREFIX, KeyScope, fingerprint, parse, random, save_json};
use crate::view::{ApiKey, List};

/// The number of digits of the fingerprint that form the identifier of a key in the API.
const ID_LEN: usize = 16;
/// The maximum number of keys of a user.
const KEYS_MAX: usize = 50;

/// Returns the fingerprints and records of the user's API keys, in the order of their identifiers.
async fn keys_of(app: &App, principal: &Principal) -> Result<Vec<(String, ApiKeyRecord)>, Problem> {
    let mut keys = Vec::new();
    for (key, value) in app.credentials.list("key/").await? {
        let record: ApiKeyRecord = parse(&value)?;
        if Some(record.user) == principal.actor.user {
            keys.push((key.trim_start_matches("key/").to_owned(), record));
        }
    }
    Ok(keys)
}

/// Refuses a new key if the user has the maximum number of keys.
async fn check_room(app: &App, principal: &Principal) -> Result<(), Problem> {
    if keys_of(app, principal).await?.len() < KEYS_MAX {
        return Ok(());
    }
    Err(Problem::because(
        ProblemKind::Conflict,
        reason::keys_full(KEYS_MAX),
    ))
}

fn view(fingerprint: &str, record: &ApiKeyRecord) -> ApiKey {
    ApiKey {
        id: fingerprint.chars().take(ID_LEN).collect(),
        name: record.name.clone(),
        scope: record.scope,
        user: record.user.to_string(),
        created: record.created.to_string(),
        last_used: record.last_used.map(|time| time.to_string()),
    }
}

/// List your own API keys
#[utoipa::path(get, path = "/api/v1/api-keys", tag = "session", params(PageParams),
    responses((status = 200, body = List<ApiKey>), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn list(
    State(app): State<App>,
    principal: Principal,
    Query(params): Query<PageParams>,
) -> Result<Json<List<ApiKey>>, Problem> {
    params.limit()?;
    let keys = keys_of(&app, &principal).await?;
    let items: Vec<ApiKey> = keys.iter().map(|(key, record)| view(key, record)).collect();
    Ok(Json(List {
        total: items.len(),
        items,
        next: None,
    }))
}

/// A new API key.
#[derive(Deserialize, ToSchema)]
pub(crate) struct NewKey {
    /// The name, which tells where the key is used.
    name: String,
    /// The requests that the key may send.
    scope: KeyScope,
}

/// A new API key with its secret, which is shown once.
#[derive(Serialize, ToSchema)]
pub(crate) struct CreatedKey {
    /// The key.
    key: ApiKey,
    /// The secret, for `Authorization: Bearer`.
    secret: String,
}

/// Create an API key, which has the permissions of your user
///
/// This needs a session: otherwise the holder of a stolen key could make keys that outlive its deletion.
#[utoipa::path(post, path = "/api/v1/api-keys", tag = "session", request_body = NewKey,
    responses((status = 201, body = CreatedKey), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn create(
    State(app): State<App>,
    principal: Principal,
    headers: HeaderMap,
    Body(given): Body<NewKey>,
) -> Result<(StatusCode, Json<CreatedKey>), Problem> {
    if bearer(&headers).is_some() {
        let detail = "an API key may not make API keys: expected the session of a person";
        return Err(Problem::new(ProblemKind::Forbidden, detail)
            .with_code("session-required")
            .with_next_step("sign in on the page or at POST /api/v1/session, and create the key there"));
    }
    let Some(user) = principal.actor.user else {
        return Err(Problem::new(ProblemKind::Unauthorized, "there is no session"));
    };
    let name = given.name.trim();
    if name.is_empty() || name.chars().count() > 100 || name.chars().any(char::is_control) {
        let problem = Problem::because(ProblemKind::Invalid, reason::key_name());
        return Err(problem.with_error("/name", "invalid"));
    }
    check_room(&app, &principal).await?;
    let bytes = random::<32>().map_err(|error| Problem::new(ProblemKind::Internal, error.to_string()))?;
    let secret = format!("{KEY_PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes));
    let record = ApiKeyRecord {
        user,
        name: name.to_owned(),
        scope: given.scope,
        created: app.now(),
        last_used: None,
    };
    let print = fingerprint(&secret);
    let key = view(&print, &record);
    app.record(
        &principal.audit_name(),
        "create_api_key",
        user,
        json!({ "key": key.id, "name": record.name }),
    )
    .await?;
    let _changing = app.lock_credentials().await;
    // A password reset ends the user's sessions and deletes the user's keys. A session that has ended must not
    // create a key.
    let session = app.sessions.peek(&headers, app.now());
    if session.is_none_or(|session| session.user != user) {
        return Err(Problem::new(ProblemKind::Unauthorized, "the session has ended"));
    }
    // Another request of the user may have created a key meanwhile.
    check_room(&app, &principal).await?;
    save_json(&*app.credentials, &format!("key/{print}"), &record).await?;
    Ok((StatusCode::CREATED, Json(CreatedKey { key, secret })))
}

/// Delete an API key
#[utoipa::path(delete, path = "/api/v1/api-keys/{id}", tag = "session", params(("id" = String, Path, description = "The key")),
    responses((status = 204), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn delete(
    State(app): State<App>,
    principal: Principal,
    Path(id): Path<String>,
) -> Result<StatusCode, Problem> {
    let keys = keys_of(&app, &principal).await?;
    let found = keys.iter().find(|(key, record)| view(key, record).id == id);
    let Some((key, _)) = found else {
        return Err(Problem::absent(id.chars().take(40).collect::<String>()));
    };
    app.record(&principal.audit_name(), "delete_api_key", &id, json!({}))
        .await?;
    let _changing = app.lock_credentials().await;
    app.credentials.save(&format!("key/{key}"), None).await?;
    app.deleted_keys.fetch_add(1, Ordering::Release);
    Ok(StatusCode::NO_CONTENT)
}
