//! The HTTP router of the service, and the server for its connections.

use std::future::Future;
use std::time::Duration;

use axum::Router;
use axum::extract::{ConnectInfo, DefaultBodyLimit, Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, Uri, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use hyper::body::Incoming;
use hyper::service::Service as _;
use hyper_util::service::TowerToHyperService;
use millrace_listener::{Admission, WriteTimeout, http};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::app::App;
use crate::guard::guard;
use crate::idempotency::execute_once;
use crate::metrics;
use crate::problem::{Problem, ProblemKind};
use crate::request::BODY_LIMIT;
use crate::routes;
use crate::strict::check_query;
use crate::v2;

/// Returns the router with all routes. Requests need the extension `ConnectInfo<SocketAddr>`, which [`serve`]
/// adds.
pub fn router(app: App) -> Router {
    let page = app.settings.page.clone();
    let (native, _) = routes::routes().split_for_parts();
    let (ix, _) = v2::routes().split_for_parts();
    let checks = middleware::from_fn_with_state(app.clone(), check_query);
    let api = native
        .merge(ix)
        .route_layer(checks)
        .route("/metrics", get(metrics::metrics));
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
    .layer(middleware::from_fn_with_state(app.clone(), guard))
    .layer(middleware::from_fn(v2::translate))
    .layer(middleware::from_fn_with_state(app.clone(), age))
    .with_state(app)
}

/// Tells in `Age` (RFC 9111, section 5.1) for how many seconds the database has not answered, while it does not: the answer comes
/// from the engine's memory.
async fn age(State(app): State<App>, request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    if let Some(since) = app.snapshot().silent_since {
        let seconds = app.now().since(since).as_secs();
        response
            .headers_mut()
            .insert(header::AGE, HeaderValue::from(seconds));
    }
    response
}

/// Carries out a request that changes something also if its client goes away meanwhile: half of it, such as a new password without
/// the end of the sessions, must not be left.
async fn complete(request: Request, next: Next) -> Response {
    if matches!(*request.method(), Method::GET | Method::HEAD) {
        return next.run(request).await;
    }
    let done = tokio::spawn(next.run(request)).await;
    done.unwrap_or_else(|_| {
        Problem::new(ProblemKind::Internal, "the request was not completed").into_response()
    })
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

/// Limits on the connections of the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Limits on their number. A connection is established by its first request with a session or an API key. All
    /// clients of a proxy share its address, so an address has no limit of its own.
    pub connections: millrace_listener::Limits,
    /// The longest duration of a request's head, and of the pause between two requests.
    pub head: Duration,
    /// The longest time without progress while a response is written to the client.
    pub write: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections: millrace_listener::Limits {
                established: 2048,
                established_of_source: 2048,
                pending: 256,
                pending_of_source: 256,
            },
            head: Duration::from_secs(30),
            write: Duration::from_secs(30),
        }
    }
}

/// The time that open requests have to finish after the server starts to close.
const GRACE: Duration = Duration::from_secs(5);
/// The pause after a failed accept, for example when the process has no free file descriptor.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Serves until `shutdown` completes; open requests may finish, and streams end with the engine.
///
/// # Errors
/// The listener has no address.
pub async fn serve(
    listener: TcpListener,
    app: App,
    limits: Limits,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    let admission = Admission::new(
        limits.connections,
        format!("api.listen {}", listener.local_addr()?),
    );
    let router = router(app).layer(middleware::from_fn(complete));
    let mut connections = JoinSet::new();
    let (close, closed) = watch::channel(false);
    tokio::pin!(shutdown);
    loop {
        let accepted = tokio::select! {
            () = &mut shutdown => break,
            accepted = listener.accept() => accepted,
        };
        while connections.try_join_next().is_some() {}
        admission.ready().await;
        let (stream, address) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "api.listen: a connection cannot be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        // Small responses are sent at once, not held back until more data follows.
        let _late = stream.set_nodelay(true);
        let (connection, eviction) = admission.begin_task(address.into());
        let service = TowerToHyperService::new(router.clone());
        let mut closed = closed.clone();
        let closing = async move {
            // An error means that the server has ended.
            let _ended = closed.wait_for(|is_closed| *is_closed).await;
        };
        let stream = WriteTimeout::new(stream, limits.write);
        let serving = http::serve(
            stream,
            connection,
            limits.head,
            closing,
            move |mut request: axum::extract::Request<Incoming>| {
                request.extensions_mut().insert(ConnectInfo(address));
                service.call(request)
            },
        );
        connections.spawn(eviction.bound(serving));
    }
    drop(listener);
    close.send_replace(true);
    let finish = async { while connections.join_next().await.is_some() {} };
    let _ended = tokio::time::timeout(GRACE, finish).await;
    Ok(())
}
