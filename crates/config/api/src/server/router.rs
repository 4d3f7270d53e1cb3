//! The router and the OpenAPI document, which are generated from one list of handlers.

use std::time::Duration;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request};
use axum::http::{Method, Uri};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::app::App;
use super::guard::guard;
use super::limits::BODY_LIMIT;
use super::routes::{
    bridges, capture, chains, config, docs, events, flow_mods, lags, lock, log, metrics, nic, owners,
    revisions, routing, state, switch, trace, wans,
};
use super::small_body::read_small_body;
use crate::view::{Problem, ProblemKind};

/// The longest time until the response to a request begins. Waits for live packets have a separate limit.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(90);
#[derive(OpenApi)]
#[openapi(info(
    title = "Millrace",
    description = "The switch as it is configured and as it runs. The configuration is one document under \
        /api/v1/config; each change of it is a numbered revision, which is also its ETag. Errors are problem \
        documents (RFC 9457).",
    license(name = "Apache-2.0", identifier = "Apache-2.0")
))]
struct Document;

/// Returns the OpenAPI document.
pub(super) fn document() -> utoipa::openapi::OpenApi {
    let mut document = routes().into_openapi();
    for (path, item) in &mut document.paths.paths {
        let name: String = path
            .trim_start_matches("/api/v1")
            .trim_start_matches('/')
            .replace(['/', '-', '.'], "_")
            .replace(['{', '}'], "");
        let operations = [
            ("get", &mut item.get),
            ("put", &mut item.put),
            ("post", &mut item.post),
            ("patch", &mut item.patch),
            ("delete", &mut item.delete),
        ];
        // The function names of handlers are not unique, as operation ids must be (OpenAPI 3.1, section 4.8.10.1).
        for (method, operation) in operations {
            if let Some(operation) = operation {
                operation.operation_id = Some(format!("{method}_{name}"));
            }
        }
    }
    document
}

/// Returns the router of all resources, with their OpenAPI descriptions.
fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::with_openapi(Document::openapi())
        .routes(routes!(config::read, config::replace, config::patch))
        .routes(routes!(config::bridge, config::put_bridge, config::delete_bridge))
        .routes(routes!(config::port, config::put_port, config::delete_port))
        .routes(routes!(config::confirmation, config::confirm, config::cancel))
        .routes(routes!(owners::list, owners::own))
        .routes(routes!(lock::read, lock::post, lock::renew, lock::release))
        .routes(routes!(lock::session))
        .routes(routes!(revisions::list))
        .routes(routes!(revisions::one))
        .routes(routes!(revisions::diff))
        .routes(routes!(revisions::rollback))
        .routes(routes!(events::events))
        .routes(routes!(state::state))
        .routes(routes!(switch::version))
        .routes(routes!(switch::status))
        .routes(routes!(log::read, log::change))
        .routes(routes!(switch::workers))
        .routes(routes!(switch::drops))
        .routes(routes!(bridges::bridges))
        .routes(routes!(bridges::bridge))
        .routes(routes!(bridges::ports))
        .routes(routes!(bridges::port))
        .routes(routes!(nic::registers))
        .routes(routes!(nic::entries))
        .routes(routes!(bridges::flows))
        .routes(routes!(flow_mods::flow_mods))
        .routes(routes!(flow_mods::reset_flow_counters))
        .routes(routes!(flow_mods::reset_port_counters))
        .routes(routes!(flow_mods::save_flows))
        .routes(routes!(flow_mods::flush_macs))
        .routes(routes!(bridges::tables))
        .routes(routes!(bridges::controllers))
        .routes(routes!(bridges::macs))
        .routes(routes!(bridges::mirrors))
        .routes(routes!(bridges::sflow))
        .routes(routes!(bridges::ipfix))
        .routes(routes!(bridges::groups))
        .routes(routes!(bridges::meters))
        .routes(routes!(bridges::queues))
        .routes(routes!(chains::chains))
        .routes(routes!(chains::restart))
        .routes(routes!(chains::reload))
        .routes(routes!(switch::ovsdb))
        .routes(routes!(wans::wans))
        .routes(routes!(wans::wan))
        .routes(routes!(wans::configured, wans::patch))
        .routes(routes!(lags::lags))
        .routes(routes!(routing::vrfs))
        .routes(routes!(routing::interfaces))
        .routes(routes!(routing::routes))
        .routes(routes!(routing::nexthops))
        .routes(routes!(routing::neighbours))
        .routes(routes!(trace::trace))
        .routes(routes!(trace::trace_live))
        .routes(routes!(capture::capture))
        .routes(routes!(switch::health))
        .routes(routes!(switch::ready))
        .routes(routes!(metrics::metrics))
        .routes(routes!(docs::openapi))
        .routes(routes!(docs::docs))
        .routes(routes!(docs::problem))
}

/// Returns the router of all resources, with limits, access checks and errors.
pub(super) fn router(app: App) -> Router {
    let (router, _) = routes().split_for_parts();
    router
        .fallback(not_found)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(DefaultBodyLimit::max(BODY_LIMIT))
        .layer(middleware::from_fn(limit_time))
        .layer(middleware::from_fn(read_small_body))
        .layer(middleware::from_fn_with_state(app.clone(), guard))
        .with_state(app)
}

async fn not_found(uri: Uri) -> Problem {
    let path: String = uri.path().chars().take(128).collect();
    Problem::new(ProblemKind::NotFound, format!("no resource at {path}"))
        .with_next_step("see /docs for the list of resources")
}

async fn method_not_allowed(method: Method, uri: Uri) -> Problem {
    let path: String = uri.path().chars().take(128).collect();
    let detail = format!("{path} does not support {method}");
    Problem::new(ProblemKind::MethodNotAllowed, detail)
        .with_next_step("see /docs for the methods of each resource")
}

async fn limit_time(request: Request, next: Next) -> Response {
    match tokio::time::timeout(REQUEST_TIMEOUT, next.run(request)).await {
        Ok(response) => response,
        Err(_) => {
            let detail = format!("the request took longer than {} s", REQUEST_TIMEOUT.as_secs());
            Problem::new(ProblemKind::Timeout, detail).into_response()
        }
    }
}
