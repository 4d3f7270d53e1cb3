//! The router for connections without a slot, because the total limit or the client's limit is reached:
//! `/health` and `/ready`, and an error for everything else.

use axum::Router;
use axum::extract::Request;
use axum::http::{HeaderValue, header};
use axum::middleware;
use axum::response::Response;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::app::App;
use super::guard::guard;
use super::limits::Limits;
use super::routes::switch;
use crate::view::{Problem, ProblemKind};

/// Returns the router. The server closes each connection after one response.
pub(super) fn router(app: App) -> Router {
    let (router, _) = OpenApiRouter::new()
        .routes(routes!(switch::health))
        .routes(routes!(switch::ready))
        .split_for_parts();
    router
        .fallback(no_slot)
        .layer(middleware::map_response(close))
        .layer(middleware::from_fn_with_state(app.clone(), guard))
        .with_state(app)
}

async fn no_slot(request: Request) -> Problem {
    let Limits {
        connections,
        connections_per_peer,
        ..
    } = request.extensions().get().copied().unwrap_or_default();
    let detail = format!(
        "too many connections: expected at most {connections_per_peer} of one user or address, and {connections} in total"
    );
    Problem::new(ProblemKind::Busy, detail)
        .with_next_step("close some of them, or try again later; /health and /ready respond meanwhile")
}

async fn close(mut response: Response) -> Response {
    let close = HeaderValue::from_static("close");
    response.headers_mut().insert(header::CONNECTION, close);
    response
}
