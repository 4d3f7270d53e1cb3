//! Reading of small bodies before their requests are served.
//!
//! Some handlers need no body, and some requests are refused before their body is read. hyper then closes the
//! connection, and the kernel resets a connection with an unread body: a client that sends head and body in
//! two writes loses the response.

use std::time::Duration;

use axum::body::{Body, HttpBody, to_bytes};
use axum::extract::Request;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::limits::Limits;
use crate::view::{Problem, ProblemKind};

/// The largest body that is read before its request is served, in bytes.
const SMALL: u64 = 64 << 10;

/// The longest time until the small body of a refused request is complete. A body that was sent with its head needs no
/// longer, and later ones hold a place for nothing.
const REFUSED: Duration = Duration::from_secs(1);

fn is_small(request: &Request) -> bool {
    let length = request.body().size_hint().exact();
    length.is_some_and(|length| (1..=SMALL).contains(&length))
}

/// Reads a body of a known, small length, whose request was refused.
pub(super) async fn discard_small_body(request: Request) {
    if is_small(&request) {
        // The response is the same whatever arrives.
        let _discarded = tokio::time::timeout(REFUSED, to_bytes(request.into_body(), usize::MAX)).await;
    }
}

/// Reads a body of a known, small length, and then serves the request.
pub(super) async fn read_small_body(request: Request, next: Next) -> Response {
    if !is_small(&request) {
        return next.run(request).await;
    }
    let limits: Limits = request.extensions().get().copied().unwrap_or_default();
    let (head, body) = request.into_parts();
    match tokio::time::timeout(limits.body, to_bytes(body, usize::MAX)).await {
        Ok(Ok(bytes)) => next.run(Request::from_parts(head, Body::from(bytes))).await,
        Ok(Err(error)) => Problem::new(
            ProblemKind::BadRequest,
            format!("the body is incomplete: {error}"),
        )
        .into_response(),
        Err(_) => late_body(limits).into_response(),
    }
}

/// Returns the problem of a body that did not arrive in time.
pub(super) fn late_body(limits: Limits) -> Problem {
    let detail = format!("the body did not arrive within {:?}", limits.body);
    Problem::new(ProblemKind::Timeout, detail)
}
