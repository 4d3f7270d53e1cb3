//! The HTTP router of the service, and the server for its connections.

use std::future::Future;
use std::net::SocketAddr;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::{HeaderMap, Method, Uri};
use axum::middleware;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::net::TcpListener;

use crate::app::App;
use crate::guard::guard;
use crate::idempotency::execute_once;
use crate::metrics;
use crate::problem::{Problem, ProblemKind};
use crate::request::BODY_LIMIT;
use crate::routes;
use crate::v2;

/// Returns the router with all routes. Requests need the extension `ConnectInfo<SocketAddr>`, which [`serve`]
/// adds.
pub fn router(app: App) -> Router {
    let page = app.settings.page.clone();
    let (native, _) = routes::routes().split_for_parts();
    let (ix, _) = v2::routes().split_for_parts();
    let api = native.merge(ix).route("/metrics", get(metrics::metrics));
    api.fallback(move |method: Method, uri: Uri, headers: HeaderMap| async move {
        if uri.path().starts_with("/api/") {
            return not_found(&uri);
        }
        match method {
            Method::GET | Method::HEAD => page.answer(&uri, &headers),
            _ => method_not_allowed(method, uri).await,
        }
    })
    .method_not_allowed_fallback(method_not_allowed)
    .layer(middleware::from_fn_with_state(app.clone(), execute_once))
    .layer(DefaultBodyLimit::max(BODY_LIMIT))
    .layer(middleware::from_fn(guard))
    .layer(middleware::from_fn(v2::translate))
    .with_state(app)
}

fn not_found(uri: &Uri) -> Response {
    let path: String = uri.path().chars().take(128).collect();
    Problem::new(ProblemKind::NotFound, format!("there is no {path}"))
        .with_next_step("see /api/v1/openapi.json for the resources")
        .into_response()
}

async fn method_not_allowed(method: Method, uri: Uri) -> Response {
    let path: String = uri.path().chars().take(128).collect();
    Problem::new(
        ProblemKind::MethodNotAllowed,
        format!("{path} does not support {method}"),
    )
    .with_next_step("see /api/v1/openapi.json for the methods")
    .into_response()
}

/// Serves until `shutdown` completes; open requests may finish, and streams end with the engine.
///
/// # Errors
/// An error of the listener.
pub async fn serve(
    listener: TcpListener,
    app: App,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    let service = router(app).into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, service)
        .with_graceful_shutdown(shutdown)
        .await
}
