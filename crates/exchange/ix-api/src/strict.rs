//! Unknown properties of bodies and unknown parameters of queries, which are refused by name.
//!
//! A request is compared with the OpenAPI document, which is generated from the types that the handlers read. The check
//! therefore covers nested objects and variants, and accepts exactly what the document describes.

mod known;

use axum::extract::{FromRequestParts as _, MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};

pub(crate) use known::Known;

use crate::access::Principal;
use crate::app::App;

/// The path of the native API. IX-API ignores unknown parameters of a query (IX-API 2.1.0, "Filters").
const NATIVE: &str = "/api/v1/";

/// Refuses requests to the native API whose query has an unknown parameter.
pub(crate) async fn check_query(State(app): State<App>, request: Request, next: Next) -> Response {
    let path = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str);
    if let (Some(path), Some(query)) = (path, request.uri().query())
        && path.starts_with(NATIVE)
        && let Err(problem) = app.known.check_query(request.method(), path, query)
    {
        // Who has not signed in is told so first.
        let is_public = app.known.is_public(request.method(), path);
        let (mut parts, _) = request.into_parts();
        return match Principal::from_request_parts(&mut parts, &app).await {
            Err(unauthorized) if !is_public => unauthorized.into_response(),
            _ => problem.into_response(),
        };
    }
    next.run(request).await
}
