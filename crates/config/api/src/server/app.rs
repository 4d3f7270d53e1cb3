//! The state that every handler shares.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use millrace_model::Config;
use millrace_store::{Snapshot, Store};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use super::journal::Journal;
use super::live::{Live, LiveError};
use super::sample::Samples;
use super::token::Token;
use crate::view::{ConfirmPending, Port, Problem, ProblemKind, Revision, StateKind, StatusProblem};

/// The longest wait for the running switch.
const LIVE_TIMEOUT: Duration = Duration::from_secs(10);
/// The largest number of captures, live traces and event streams that are open at once.
const LONG_REQUESTS_MAX: usize = 32;

/// The state that every handler shares. Clones are cheap and refer to the same state.
#[derive(Clone)]
pub(super) struct App {
    live: Arc<dyn Live>,
    pub(super) store: Store,
    pub(super) token: Option<Arc<Token>>,
    pub(super) samples: Arc<Samples>,
    pub(super) journal: Journal,
    pub(super) document: Arc<utoipa::openapi::OpenApi>,
    long_requests: Arc<Semaphore>,
    closing: watch::Receiver<bool>,
}

impl App {
    pub(super) fn new(
        live: Arc<dyn Live>,
        store: Store,
        token: Option<Token>,
        document: utoipa::openapi::OpenApi,
        closing: watch::Receiver<bool>,
    ) -> App {
        let journal = Journal::new(epoch());
        publish_head(&journal, &store.head());
        App {
            live,
            store,
            journal,
            token: token.map(Arc::new),
            samples: Arc::new(Samples::default()),
            document: Arc::new(document),
            long_requests: Arc::new(Semaphore::new(LONG_REQUESTS_MAX)),
            closing,
        }
    }

    /// Runs a call of the running switch on a blocking thread. Returns its result.
    pub(super) async fn with_live<T: Send + 'static>(
        &self,
        call: impl FnOnce(&dyn Live) -> T + Send + 'static,
    ) -> Result<T, Problem> {
        self.with_live_for(LIVE_TIMEOUT, call).await
    }

    /// Runs a call of the running switch on a blocking thread. Returns its result, or a problem after `timeout`.
    pub(super) async fn with_live_for<T: Send + 'static>(
        &self,
        timeout: Duration,
        call: impl FnOnce(&dyn Live) -> T + Send + 'static,
    ) -> Result<T, Problem> {
        let live = Arc::clone(&self.live);
        let result = tokio::task::spawn_blocking(move || call(live.as_ref()));
        match tokio::time::timeout(timeout, result).await {
            Ok(Ok(result)) => Ok(result),
            Ok(Err(_)) => Err(Problem::new(
                ProblemKind::Internal,
                "the request failed inside the switch: see the log of millraced",
            )),
            Err(_) => {
                let detail = format!("the switch did not respond within {} s", timeout.as_secs());
                Err(Problem::new(ProblemKind::Unavailable, detail))
            }
        }
    }

    /// Rejects a configuration with which the daemon could not start on this machine.
    pub(super) async fn check(&self, config: &Config) -> Result<(), Problem> {
        let config = config.clone();
        Ok(self.with_live(move |live| live.check(&config)).await??)
    }

    /// Returns the ports of a bridge with their rates.
    pub(super) async fn ports(&self, bridge: String) -> Result<Vec<Port>, Problem> {
        let mut ports = self.with_live(move |live| live.ports(&bridge)).await??;
        self.samples.fill(&mut ports, std::time::Instant::now());
        Ok(ports)
    }

    /// Returns a port of a bridge. `wanted` is the name or the number of the port.
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

    /// Runs a call of the store on a blocking thread, because it may wait for the disk. Returns its result.
    pub(super) async fn with_store<T: Send + 'static>(
        &self,
        call: impl FnOnce(&Store) -> T + Send + 'static,
    ) -> Result<T, Problem> {
        let store = self.store.clone();
        let result = tokio::task::spawn_blocking(move || call(&store));
        result.await.map_err(|_| {
            Problem::new(
                ProblemKind::Internal,
                "the store failed: see the log of millraced",
            )
        })
    }

    /// Returns a permit for one more request that stays open, or a problem if [`LONG_REQUESTS_MAX`] are open.
    pub(super) fn long_request(&self) -> Result<OwnedSemaphorePermit, Problem> {
        Arc::clone(&self.long_requests).try_acquire_owned().map_err(|_| {
            let detail = format!(
                "{LONG_REQUESTS_MAX} captures, live traces and event streams are open: expected no more"
            );
            Problem::new(ProblemKind::Busy, detail).with_next_step("end one of them, or try again later")
        })
    }

    /// Completes when the server closes.
    pub(super) fn closing(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut closing = self.closing.clone();
        async move {
            // An error means that the server was dropped: it is closed, too.
            let _ = closing.wait_for(|closing| *closing).await;
        }
    }

    /// Publishes each new head of the store in the journal. Never returns.
    pub(super) async fn follow_store(&self) {
        let mut heads = self.store.watch();
        loop {
            publish_head(&self.journal, &heads.borrow_and_update());
            if heads.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
    }

    /// Publishes the parts of the switch that do not run as configured.
    pub(super) async fn publish_shortfalls(&self) {
        let Ok(found) = self.with_live(<dyn super::live::Live>::problems).await else {
            return;
        };
        let mut shortfalls: BTreeMap<String, Vec<StatusProblem>> = BTreeMap::new();
        for problem in found {
            shortfalls
                .entry(problem.subject.clone())
                .or_default()
                .push(problem);
        }
        let json = |(subject, problems): (String, Vec<StatusProblem>)| (subject, serde_json::json!(problems));
        self.journal
            .replace(StateKind::Shortfalls, shortfalls.into_iter().map(json).collect());
    }

    /// Measures the load of the workers, and reads the counters of all ports if that is due.
    pub(super) async fn sample(&self) {
        let (live, samples) = (Arc::clone(&self.live), Arc::clone(&self.samples));
        let read = tokio::task::spawn_blocking(move || {
            live.measure_load();
            let now = std::time::Instant::now();
            if samples.is_due(now) {
                samples.read(live.as_ref(), now);
            }
        });
        if read.await.is_err() {
            tracing::warn!("the counters could not be read");
        }
    }
}

/// Returns a number that differs in each run of the daemon on a machine whose clock goes forward.
fn epoch() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

fn publish_head(journal: &Journal, head: &Snapshot) {
    journal.publish(StateKind::Revisions, "head", &Revision::from(&head.revision));
    match head.pending {
        Some(pending) => journal.publish(StateKind::Confirmation, "pending", &ConfirmPending::from(pending)),
        None => journal.remove(StateKind::Confirmation, "pending"),
    }
}
