//! Authentication of IX-API clients: an API key is exchanged for tokens.

use std::net::SocketAddr;

use axum::Json;
use axum::extract::{ConnectInfo, State};
use axum::http::HeaderMap;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::problem::IxProblem;
use crate::app::App;
use crate::problem::{Problem, ProblemKind};
use crate::request::Body;
use crate::routes::client;
use crate::session::{ApiKeyRecord, fingerprint, load_json};

/// An API key of the exchange.
#[derive(Deserialize, ToSchema)]
pub(crate) struct TokenRequest {
    /// The identifier of the API key: 16 hexadecimal digits.
    api_key: String,
    /// The secret of the API key: `mx_...`.
    api_secret: String,
}

/// A refresh token.
#[derive(Deserialize, ToSchema)]
pub(crate) struct RefreshRequest {
    /// The token. It is valid once.
    refresh_token: String,
}

/// A pair of tokens.
#[derive(Serialize, ToSchema)]
pub(crate) struct AuthToken {
    /// The token for `Authorization: Bearer`, valid for 15 minutes.
    access_token: String,
    /// The token for the next pair, valid once within 24 hours.
    refresh_token: String,
}

fn refused() -> Problem {
    Problem::new(
        ProblemKind::Unauthorized,
        "key, secret or token is not valid: create an API key with POST /api/v1/api-keys",
    )
}

async fn issue(app: &App, key: &str) -> Result<Json<AuthToken>, Problem> {
    // The key may have been deleted since.
    if load_json::<ApiKeyRecord>(&*app.credentials, &format!("key/{key}"))
        .await?
        .is_none()
    {
        return Err(refused());
    }
    let (access_token, refresh_token) = app.tokens.issue(key, app.now()).await?;
    Ok(Json(AuthToken {
        access_token,
        refresh_token,
    }))
}

/// Exchange an API key for tokens
#[utoipa::path(post, path = "/api/v2/auth/token", tag = "auth", operation_id = "auth_token_create", request_body = TokenRequest, security(()),
    responses((status = 200, body = AuthToken), (status = "default", body = IxProblem, content_type = "application/problem+json")))]
pub(crate) async fn token(
    State(app): State<App>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    headers: HeaderMap,
    Body(given): Body<TokenRequest>,
) -> Result<Json<AuthToken>, Problem> {
    let key = fingerprint(given.api_secret.trim());
    if key.get(..16) == Some(given.api_key.trim()) {
        return issue(&app, &key).await;
    }
    // Secrets have 256 random bits and need no limit on guesses; the limit protects the database from a
    // client that repeats requests in a loop.
    let address = client(peer.ip(), &headers);
    let login: String = given.api_key.chars().take(16).collect();
    match app
        .attempts
        .begin(&format!("key {login}"), address, None, app.uptime())
    {
        Ok(()) => Err(refused()),
        Err(error) => Err(Problem::new(ProblemKind::Busy, error.to_string()).retry_after(
            u32::try_from(error.retry_after.as_secs())
                .unwrap_or(u32::MAX)
                .max(1),
        )),
    }
}

/// Exchange a refresh token for a new pair
#[utoipa::path(post, path = "/api/v2/auth/refresh", tag = "auth", operation_id = "auth_token_refresh", request_body = RefreshRequest, security(()),
    responses((status = 200, body = AuthToken), (status = "default", body = IxProblem, content_type = "application/problem+json")))]
pub(crate) async fn refresh(
    State(app): State<App>,
    Body(given): Body<RefreshRequest>,
) -> Result<Json<AuthToken>, Problem> {
    let key = {
        let _changing = app.lock_credentials().await;
        app.tokens.take_refresh(&given.refresh_token, app.now()).await?
    };
    match key {
        Some(key) => issue(&app, &key).await,
        None => Err(refused()),
    }
}
