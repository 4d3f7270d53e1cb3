//! What every handler shares, and the router that is made of the handlers.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request};
use axum::http::{Method, Uri};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use millrace_model::Config;
use millrace_store::Store;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::BODY_LIMIT;
use super::guard::guard;
use super::live::{Live, LiveError};
use super::routes::{
    bridges, capture, chains, config, docs, events, flow_mods, log, metrics, revisions, switch, trace,
};
use super::sample::Samples;
use super::token::Token;
use crate::view::{Port, Problem, ProblemKind};

/// How long an answer of the running switch may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a request may take until its answer begins; waits for live packets have their own limit.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(90);
/// Captures, live traces and event streams at once.
const LONG_REQUESTS_MAX: usize = 32;

/// What every handler shares.
#[derive(Clone)]
pub(super) struct App {
    live: Arc<dyn Live>,
    pub(super) store: Store,
    pub(super) token: Option<Arc<Token>>,
    pub(super) samples: Arc<Samples>,
    pub(super) document: Arc<utoipa::openapi::OpenApi>,
    long_requests: Arc<Semaphore>,
    closing: watch::Receiver<bool>,
}

impl App {
    pub(super) fn new(
        live: Arc<dyn Live>,
        store: Store,
        token: Option<Token>,
        closing: watch::Receiver<bool>,
    ) -> App {
        App {
            live,
            store,
            token: token.map(Arc::new),
            samples: Arc::new(Samples::default()),
            document: Arc::new(routes().into_openapi()),
            long_requests: Arc::new(Semaphore::new(LONG_REQUESTS_MAX)),
            closing,
        }
    }

    /// What the running switch answers.
    pub(super) async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&dyn Live) -> T + Send + 'static,
    ) -> Result<T, Problem> {
        self.ask_for(ANSWER_TIMEOUT, question).await
    }

    /// What the running switch answers within `timeout`.
    pub(super) async fn ask_for<T: Send + 'static>(
        &self,
        timeout: Duration,
        question: impl FnOnce(&dyn Live) -> T + Send + 'static,
    ) -> Result<T, Problem> {
        let live = Arc::clone(&self.live);
        let answer = tokio::task::spawn_blocking(move || question(live.as_ref()));
        match tokio::time::timeout(timeout, answer).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(_)) => Err(Problem::new(
                ProblemKind::Internal,
                "the answer failed; the log says why",
            )),
            Err(_) => {
                let detail = format!("the switch did not answer within {} s", timeout.as_secs());
                Err(Problem::new(ProblemKind::Unavailable, detail))
            }
        }
    }

    /// Refuses a configuration that this machine could not start with.
    pub(super) async fn check(&self, config: &Config) -> Result<(), Problem> {
        let config = config.clone();
        Ok(self.ask(move |live| live.check(&config)).await??)
    }

    /// Returns the ports of a bridge with their rates.
    pub(super) async fn ports(&self, bridge: String) -> Result<Vec<Port>, Problem> {
        let mut ports = self.ask(move |live| live.ports(&bridge)).await??;
        self.samples.fill(&mut ports);
        Ok(ports)
    }

    /// One port of a bridge, by its name or its number.
    pub(super) async fn port(&self, bridge: String, wanted: String) -> Result<Port, Problem> {
        let number = wanted.parse::<millrace_types::PortNo>().ok();
        let mut ports = self.ports(bridge.clone()).await?;
        let is_wanted =
            |port: &Port| port.name == wanted || number.is_some_and(|number| number.raw() == port.number);
        match ports.iter().position(is_wanted) {
            Some(at) => Ok(ports.swap_remove(at)),
            None => {
                let ports = ports.into_iter().map(|port| port.name).collect();
                Err(LiveError::NoPort {
                    bridge,
                    port: wanted,
                    ports,
                }
                .into())
            }
        }
    }

    /// Runs a call of the store, which may wait for the disk.
    pub(super) async fn with_store<T: Send + 'static>(
        &self,
        call: impl FnOnce(&Store) -> T + Send + 'static,
    ) -> Result<T, Problem> {
        let store = self.store.clone();
        let answer = tokio::task::spawn_blocking(move || call(&store));
        answer
            .await
            .map_err(|_| Problem::new(ProblemKind::Internal, "the store failed; the log says why"))
    }

    /// Leave for one more request that stays open.
    pub(super) fn long_request(&self) -> Result<OwnedSemaphorePermit, Problem> {
        Arc::clone(&self.long_requests).try_acquire_owned().map_err(|_| {
            let detail =
                format!("{LONG_REQUESTS_MAX} captures, live traces and event streams are open already");
            Problem::new(ProblemKind::Busy, detail).with_remedy("end one of them, or try again later")
        })
    }

    /// Comes to its end when the server closes.
    pub(super) fn closing(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut closing = self.closing.clone();
        async move {
            // An error means that the server is gone.
            let _ = closing.wait_for(|closing| *closing).await;
        }
    }

    /// Reads every counter once.
    pub(super) async fn sample(&self) {
        let (live, samples) = (Arc::clone(&self.live), Arc::clone(&self.samples));
        let read =
            tokio::task::spawn_blocking(move || samples.take(live.as_ref(), std::time::Instant::now()));
        if read.await.is_err() {
            tracing::warn!("reading the counters failed");
        }
    }
}

#[derive(OpenApi)]
#[openapi(info(
    title = "Millrace",
    description = "The switch as it is configured and as it runs. The configuration is one document under \
        /api/v1/config; each change of it is a numbered revision, which is also its ETag. Errors are problem \
        documents (RFC 9457).",
    license(name = "Apache-2.0", identifier = "Apache-2.0")
))]
struct Document;

/// Every resource with its description.
fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::with_openapi(Document::openapi())
        .routes(routes!(config::read, config::replace, config::patch))
        .routes(routes!(config::bridge, config::put_bridge, config::delete_bridge))
        .routes(routes!(config::port, config::put_port, config::delete_port))
        .routes(routes!(config::confirmation, config::confirm, config::cancel))
        .routes(routes!(revisions::list))
        .routes(routes!(revisions::one))
        .routes(routes!(revisions::diff))
        .routes(routes!(revisions::rollback))
        .routes(routes!(events::events))
        .routes(routes!(switch::version))
        .routes(routes!(switch::status))
        .routes(routes!(log::read, log::change))
        .routes(routes!(switch::workers))
        .routes(routes!(switch::drops))
        .routes(routes!(bridges::bridges))
        .routes(routes!(bridges::bridge))
        .routes(routes!(bridges::ports))
        .routes(routes!(bridges::port))
        .routes(routes!(bridges::flows))
        .routes(routes!(flow_mods::flow_mods))
        .routes(routes!(flow_mods::reset_flow_counters))
        .routes(routes!(flow_mods::reset_port_counters))
        .routes(routes!(bridges::tables))
        .routes(routes!(bridges::controllers))
        .routes(routes!(bridges::macs))
        .routes(routes!(bridges::groups))
        .routes(routes!(bridges::meters))
        .routes(routes!(bridges::queues))
        .routes(routes!(chains::chains))
        .routes(routes!(chains::restart))
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

/// Returns the whole service.
pub(super) fn router(app: App) -> Router {
    let (router, _) = routes().split_for_parts();
    router
        .fallback(not_found)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(DefaultBodyLimit::max(BODY_LIMIT))
        .layer(middleware::from_fn(limit_time))
        .layer(middleware::from_fn_with_state(app.clone(), guard))
        .with_state(app)
}

async fn not_found(uri: Uri) -> Problem {
    let path: String = uri.path().chars().take(128).collect();
    Problem::new(ProblemKind::NotFound, format!("there is nothing at {path}"))
        .with_remedy("see /docs for what there is")
}

async fn method_not_allowed(method: Method, uri: Uri) -> Problem {
    let path: String = uri.path().chars().take(128).collect();
    let detail = format!("{method} is not for {path}");
    Problem::new(ProblemKind::MethodNotAllowed, detail).with_remedy("see /docs for what is")
}

async fn limit_time(request: Request, next: Next) -> Response {
    match tokio::time::timeout(REQUEST_TIMEOUT, next.run(request)).await {
        Ok(response) => response,
        Err(_) => {
            let detail = format!(
                "the request was not answered within {} s",
                REQUEST_TIMEOUT.as_secs()
            );
            Problem::new(ProblemKind::Timeout, detail).into_response()
        }
    }
}
