//! Repeatable POSTs: a request with an `Idempotency-Key` is executed once in 24 hours. A repetition gets the
//! first answer.
//!
//! ```text
//!  POST, key --> lock of (user, key) --> stored answer --- same request ---> the first answer
//!                                          |        \----- other request --> 409 key-reused
//!                                          none
//!                                          v
//!                                       handler --- 2xx --> answer is sealed and stored for 24 hours
//!                                              \--- other -> nothing is stored: a refused request can be sent again
//! ```
//! One layer before all handlers implements this, so that no handler can forget it. A request that has
//! started is completed even if its client disconnects, because otherwise its answer would not be stored.
//! Work of the engine is executed only once, even if the process is killed between the work and the answer.
//! An order and its key are one transaction ([`OrderOptions::idempotency`](millrace_ix_service::OrderOptions::idempotency)), and
//! a new record contains the mark of the request that created it ([`RequestMark`]).

mod key;

use std::convert::Infallible;

use axum::body::{Body, to_bytes};
use axum::extract::{FromRequestParts, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use millrace_ix_service::OrderError;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::openapi::path::{Operation, Parameter, ParameterBuilder, ParameterIn};
use utoipa::openapi::{ObjectBuilder, OpenApi, Type};

use key::HEADER;
pub(crate) use key::{InFlight, RequestMark, key};

use crate::access::{Principal, bearer};
use crate::app::App;
use crate::problem::{Problem, ProblemKind};
use crate::request::BODY_LIMIT;
use crate::session::fingerprint;

/// The purpose string for sealing answers.
const PURPOSE: &str = "answer";
/// The maximum size of an answer that is stored, in bytes. A larger answer is sent but not stored, so a repetition
/// of the request does not get it.
const ANSWER_MAX: usize = 1024 * 1024;
/// The paths of POSTs that start or renew a session or token. Their answers contain cookies and tokens, which
/// are issued only once.
const NOT_REPEATABLE: [&str; 3] = ["/api/v1/session", "/api/v1/oidc", "/api/v2/auth/"];

/// Returns true if a POST to this path can be repeated by key.
fn takes_key(path: &str) -> bool {
    !NOT_REPEATABLE.iter().any(|prefix| path.starts_with(prefix))
}

/// Adds the header to all POSTs in the OpenAPI document that can be repeated by key.
pub(crate) fn describe(document: &mut OpenApi) {
    let posts = document
        .paths
        .paths
        .iter_mut()
        .filter(|(path, _)| takes_key(path));
    for operation in posts.filter_map(|(_, item)| item.post.as_mut()) {
        describe_operation(operation);
    }
}

fn describe_operation(operation: &mut Operation) {
    let parameters = operation.parameters.get_or_insert_default();
    let is_header = |parameter: &Parameter| parameter.name.eq_ignore_ascii_case(HEADER);
    parameters.retain(|parameter| !is_header(parameter));
    let schema = ObjectBuilder::new()
        .schema_type(Type::String)
        .min_length(Some(8))
        .max_length(Some(128));
    let parameter = ParameterBuilder::new()
        .name(HEADER)
        .parameter_in(ParameterIn::Header)
        .description(Some(
            "Makes the request repeatable for 24 hours: it is executed once, and a repetition gets the first answer",
        ))
        .schema(Some(schema));
    parameters.push(parameter.build());
}

/// An answer in the form in which it is sealed and stored.
#[derive(Serialize, Deserialize)]
struct Stored {
    /// The hash of the request. It is sealed as well, because a body can contain a password that is easy to
    /// guess.
    request: String,
    status: u16,
    content_type: Option<String>,
    body: String,
}

impl FromRequestParts<App> for RequestMark {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<RequestMark, Infallible> {
        let mark = parts
            .extensions
            .get::<IdempotencyMark>()
            .map(|mark| mark.0.clone());
        let now = app.now();
        Ok(RequestMark { mark, now })
    }
}

/// The hash of user, key and request, which identifies a repeatable request.
#[derive(Clone)]
struct IdempotencyMark(String);

/// Executes a POST with an `Idempotency-Key` once, and answers repetitions with the stored answer.
pub(crate) async fn execute_once(State(app): State<App>, request: Request, next: Next) -> Response {
    let is_repeatable = request.method() == Method::POST
        && request.headers().contains_key(HEADER)
        && request.uri().path().starts_with("/api/")
        && takes_key(request.uri().path());
    if !is_repeatable {
        return next.run(request).await;
    }
    // A separate task is not dropped when the client disconnects.
    match tokio::spawn(async move { answer(&app, request, next).await }).await {
        Ok(Ok(response)) => response,
        Ok(Err(problem)) => problem.into_response(),
        Err(_) => Problem::new(ProblemKind::Internal, "the request ended early").into_response(),
    }
}

async fn answer(app: &App, request: Request, next: Next) -> Result<Response, Problem> {
    let (mut parts, body) = request.into_parts();
    let body = to_bytes(body, BODY_LIMIT).await.map_err(|_| {
        let detail = format!("the body is incomplete, or has more than {BODY_LIMIT} bytes");
        Problem::new(ProblemKind::TooLarge, detail)
    })?;
    let principal = Principal::from_request_parts(&mut parts, app).await;
    let Some(user) = principal.ok().and_then(|principal| principal.actor.user) else {
        // The handler reports why the request is not authenticated.
        return Ok(next.run(Request::from_parts(parts, Body::from(body))).await);
    };
    let target = parts.uri.path_and_query().map_or("", |target| target.as_str());
    let is_dry_run = parts
        .uri
        .query()
        .is_some_and(|query| query.split('&').any(|pair| pair == "dry_run=true"));
    // The holder of an API key may not create keys, and must not get a key that was created in a session.
    let is_key_by_key = parts.uri.path() == "/api/v1/api-keys" && bearer(&parts.headers).is_some();
    let key = key(&parts.headers)?.filter(|_| !is_dry_run && !is_key_by_key);
    let Some(key) = key else {
        return Ok(next.run(Request::from_parts(parts, Body::from(body))).await);
    };
    let hash = fingerprint(&format!("{} {target} {}", parts.method, canonical(&body)));
    let scope = format!("answer {user}");
    let _only = app.in_flight.lock(format!("{scope} {key}")).await;
    if let Some(stored) = load(app, &scope, &key).await? {
        if stored.request != hash {
            return Err(OrderError::KeyReused.into());
        }
        return Ok(stored.into_response());
    }
    parts
        .extensions
        .insert(IdempotencyMark(fingerprint(&format!("{scope} {key} {hash}"))));
    let response = next.run(Request::from_parts(parts, Body::from(body))).await;
    if !response.status().is_success() {
        return Ok(response);
    }
    let (parts, body) = response.into_parts();
    let failed = |error: axum::Error| Problem::new(ProblemKind::Internal, error.to_string());
    let bytes = to_bytes(body, usize::MAX).await.map_err(failed)?;
    if bytes.len() > ANSWER_MAX {
        // The work is done. As below, the client gets its answer.
        let size = bytes.len();
        tracing::warn!(
            size,
            "the answer to a repeatable request is too large to be stored"
        );
        return Ok(Response::from_parts(parts, Body::from(bytes)));
    }
    let content_type = parts.headers.get(header::CONTENT_TYPE);
    let stored = Stored {
        request: hash,
        status: parts.status.as_u16(),
        content_type: content_type.and_then(|value| value.to_str().ok().map(str::to_owned)),
        body: String::from_utf8_lossy(&bytes).into_owned(),
    };
    if let Err(problem) = save(app, &scope, &key, &stored).await {
        // The work is done. The client gets its answer, although a repetition will not get the same one.
        tracing::warn!(detail = %problem.detail, "the answer to a repeatable request was not stored");
    }
    Ok(Response::from_parts(parts, Body::from(bytes)))
}

/// Returns a JSON body with uniform white space and member order, and any other body as text.
fn canonical(body: &[u8]) -> String {
    serde_json::from_slice::<Value>(body).map_or_else(
        |_| String::from_utf8_lossy(body).into_owned(),
        |value| value.to_string(),
    )
}

async fn load(app: &App, scope: &str, key: &str) -> Result<Option<Stored>, Problem> {
    let Some(text) = app.engine.answer(scope.to_owned(), key.to_owned()).await? else {
        return Ok(None);
    };
    let opened = STANDARD.decode(text).ok().and_then(|sealed| {
        let opened = app.sealer.open(PURPOSE, &sealed).ok()?;
        serde_json::from_slice(&opened).ok()
    });
    // An answer under an old sealing key is lost. The marks of the engine still prevent a second execution of
    // the work.
    Ok(opened)
}

async fn save(app: &App, scope: &str, key: &str, stored: &Stored) -> Result<(), Problem> {
    let failed = |error: &dyn std::fmt::Display| Problem::new(ProblemKind::Internal, error.to_string());
    let text = serde_json::to_vec(stored).map_err(|error| failed(&error))?;
    let sealed = app.sealer.seal(PURPOSE, &text).map_err(|error| failed(&error))?;
    let answer = app
        .engine
        .put_answer(scope.to_owned(), key.to_owned(), STANDARD.encode(sealed));
    Ok(answer.await?)
}

impl IntoResponse for Stored {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::OK);
        let mut response = (status, self.body).into_response();
        let headers = response.headers_mut();
        headers.remove(header::CONTENT_TYPE);
        let content_type = self
            .content_type
            .and_then(|value| HeaderValue::from_str(&value).ok());
        if let Some(value) = content_type {
            headers.insert(header::CONTENT_TYPE, value);
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use axum::Router;
    use axum::routing::post;
    use millrace_ix_model::Timestamp;
    use tower::ServiceExt as _;

    use super::*;
    use crate::session::{ApiKeyRecord, KeyScope, MemoryCredentials, save_json};

    #[test]
    fn spaces_and_order_of_a_body_make_no_other_request() {
        assert_eq!(
            canonical(br#"{"b": 2, "a": [1, 2]}"#),
            canonical(br#"{"a":[1,2],"b":2}"#)
        );
        assert_ne!(canonical(br#"{"a":[1,2]}"#), canonical(br#"{"a":[2,1]}"#));
        assert_eq!(canonical(b""), "");
    }

    #[tokio::test]
    async fn an_answer_that_is_too_large_to_be_stored_is_sent() {
        let exchange = crate::demo::demo().unwrap();
        let (user, _) = exchange
            .users
            .iter()
            .find(|(_, user)| user.name == "ann")
            .unwrap();
        let record = ApiKeyRecord {
            user: *user,
            name: "test".to_owned(),
            scope: KeyScope::Write,
            created: Timestamp::from_secs(0),
            last_used: None,
        };
        let credentials = Arc::new(MemoryCredentials::default());
        save_json(&*credentials, &format!("key/{}", fingerprint("ann")), &record)
            .await
            .unwrap();
        let (_world, app) = crate::demo::start_api(credentials).await;
        let large = post(|| async { "x".repeat(ANSWER_MAX + 1) });
        let router: Router = Router::new()
            .route("/api/v1/large", large)
            .layer(axum::middleware::from_fn_with_state(app, execute_once));
        let request = axum::http::Request::builder()
            .method(Method::POST)
            .uri("/api/v1/large")
            .header(header::AUTHORIZATION, "Bearer ann")
            .header(HEADER, "a large answer")
            .body(Body::empty())
            .unwrap();
        let response = router.oneshot(request).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
        assert_eq!(body.len(), ANSWER_MAX + 1);
    }
}
