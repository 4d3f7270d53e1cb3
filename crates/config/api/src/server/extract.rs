//! Extractors of axum that reject requests with a [`Problem`].

use axum::body::Bytes;
use axum::extract::rejection::{BytesRejection, FailedToBufferBody};
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use serde::de::DeserializeOwned;

use super::limits::{BODY_LIMIT, Limits};
use super::small_body::late_body;
use crate::view::{Problem, ProblemKind};

/// The parameters in the path.
pub(super) struct Path<T>(pub(super) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Path<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Path<T>, Problem> {
        match axum::extract::Path::from_request_parts(parts, state).await {
            Ok(axum::extract::Path(value)) => Ok(Path(value)),
            Err(rejection) => Err(Problem::new(ProblemKind::BadRequest, rejection.body_text())),
        }
    }
}

/// The parameters in the query.
pub(super) struct Query<T>(pub(super) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Query<T>, Problem> {
        match axum::extract::Query::from_request_parts(parts, state).await {
            Ok(axum::extract::Query(value)) => Ok(Query(value)),
            Err(rejection) => Err(Problem::new(ProblemKind::BadRequest, rejection.body_text())),
        }
    }
}

/// A JSON body.
pub(super) struct Body<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Body<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Body<T>, Problem> {
        json(request, state, &["application/json"]).await.map(Body)
    }
}

/// A JSON merge patch as the body (RFC 7396).
pub(super) struct MergePatch(pub(super) serde_json::Value);

impl<S: Send + Sync> FromRequest<S> for MergePatch {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<MergePatch, Problem> {
        json(
            request,
            state,
            &["application/merge-patch+json", "application/json"],
        )
        .await
        .map(MergePatch)
    }
}

async fn json<T: DeserializeOwned, S: Send + Sync>(
    request: Request,
    state: &S,
    types: &[&str],
) -> Result<T, Problem> {
    let given = media_type(request.headers());
    if !types.contains(&given.as_str()) {
        let found = if given.is_empty() {
            "none".to_owned()
        } else {
            format!("`{given}`")
        };
        let detail = format!("the content type is {found}: expected {}", types.join(" or "));
        return Err(Problem::new(ProblemKind::UnsupportedMedia, detail));
    }
    let limits: Limits = request.extensions().get().copied().unwrap_or_default();
    let bytes = tokio::time::timeout(limits.body, Bytes::from_request(request, state))
        .await
        .map_err(|_| late_body(limits))?
        .map_err(|rejection| match rejection {
            BytesRejection::FailedToBufferBody(FailedToBufferBody::LengthLimitError(_)) => {
                let detail = format!("the body is too large: expected at most {} bytes", BODY_LIMIT);
                Problem::new(ProblemKind::TooLarge, detail)
            }
            other => Problem::new(ProblemKind::BadRequest, other.body_text()),
        })?;
    let value = serde_json::from_slice(&bytes).map_err(|error| {
        let kind = if error.is_data() {
            ProblemKind::Invalid
        } else {
            ProblemKind::BadRequest
        };
        Problem::new(kind, format!("the body is not as expected: {error}"))
    })?;
    // Every body of this interface is a JSON object. serde would also read a list as a struct, element by element.
    if bytes.trim_ascii_start().first() == Some(&b'{') {
        Ok(value)
    } else {
        Err(Problem::new(
            ProblemKind::Invalid,
            "the body is not an object: expected one",
        ))
    }
}

/// Returns the content type without parameters, in lower case.
fn media_type(headers: &HeaderMap) -> String {
    let given = headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .unwrap_or("");
    given.split(';').next().unwrap_or("").trim().to_ascii_lowercase()
}
