//! The tree of the switch for all clients of gNMI: read once for those who ask at the same time, and told when it changes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use millrace_api::client::Client as Rest;
use millrace_gnmi::of_failure;
use millrace_gnmi::view::View;
use parking_lot::{Mutex, MutexGuard};
use serde_json::Value as Json;
use tokio::sync::watch;
use tonic::Status;

use crate::switch;

/// The kinds of state whose events wake subscriptions.
const KINDS: &str = "revisions,ports,links";
/// The pause before the stream of events is opened again.
const RECONNECT: Duration = Duration::from_millis(500);

/// A view, and the time at which it was read.
type Read = (Instant, Arc<View>);

/// The tree, shared.
#[derive(Clone)]
pub(crate) struct Tree {
    pub(crate) rest: Rest,
    /// The moment from which the times of samples are counted, one for all clients.
    pub(crate) epoch: Instant,
    last: Arc<tokio::sync::Mutex<Option<Read>>>,
    changes: Arc<Mutex<Option<watch::Receiver<u64>>>>,
    start: Arc<Mutex<Start>>,
}

/// The start of the daemon, known while its stream of events is open: it ends with the daemon.
#[derive(Default)]
struct Start {
    /// The number of the stream; `None` while none is open.
    stream: Option<u64>,
    streams: u64,
    known: Option<String>,
}

impl Start {
    fn stream_opened(&mut self) {
        self.streams += 1;
        self.stream = Some(self.streams);
        self.known = None;
    }

    fn stream_ended(&mut self) {
        self.stream = None;
        self.known = None;
    }
}

impl Tree {
    /// Returns the tree of a switch. Nothing is read yet.
    pub(crate) fn new(rest: &Rest) -> Tree {
        Tree {
            rest: rest.clone(),
            epoch: Instant::now(),
            last: Arc::default(),
            changes: Arc::default(),
            start: Arc::default(),
        }
    }

    /// Returns the tree as it was at `since` or later.
    pub(crate) async fn read(&self, since: Instant) -> Result<Arc<View>, Status> {
        // Waiting here is waiting for the reader before, whose result may be recent enough.
        let mut last = self.last.lock().await;
        if let Some((at, view)) = last.as_ref()
            && *at >= since
        {
            return Ok(Arc::clone(view));
        }
        let (rest, start) = (self.rest.clone(), Arc::clone(&self.start));
        let at = Instant::now();
        let read = tokio::task::spawn_blocking(move || read(&rest, &start)).await;
        let view = read.map_err(|_| Status::internal("the reader of the switch ended"))??;
        let view = Arc::new(view);
        *last = Some((at, Arc::clone(&view)));
        Ok(view)
    }

    /// Returns a counter that grows when something changes. The first caller starts the thread that follows the switch.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        let mut changes = self.changes.lock();
        if let Some(receiver) = changes.as_ref() {
            return receiver.clone();
        }
        let (sender, receiver) = watch::channel(0);
        let (rest, start) = (self.rest.clone(), Arc::clone(&self.start));
        let follow = move || follow(&rest, &start, &sender);
        if let Err(error) = std::thread::Builder::new()
            .name("events".to_owned())
            .spawn(follow)
        {
            tracing::error!(%error, "gNMI: no thread for the events of the switch");
        }
        *changes = Some(receiver.clone());
        receiver
    }
}

fn lock(start: &Mutex<Start>) -> MutexGuard<'_, Start> {
    // Each change is complete before the lock is released.
    start.lock()
}

fn read(rest: &Rest, start: &Mutex<Start>) -> Result<View, Status> {
    let (document, revision) = rest
        .config()
        .map_err(|error| of_failure(switch::failure(error)))?;
    let (stream, known) = {
        let start = lock(start);
        (start.stream, start.known.clone())
    };
    let state = switch::state(rest, &document, revision, known).map_err(of_failure)?;
    {
        let mut start = lock(start);
        if stream.is_some() && start.stream == stream {
            start.known = state.get("started").and_then(Json::as_str).map(str::to_owned);
        }
    }
    let Json::Object(document) = document else {
        return Err(Status::unavailable(
            "the configuration of the switch is no object",
        ));
    };
    Ok(View::new(revision, &document, &state))
}

/// Follows the events of the switch for the rest of the process's life.
fn follow(rest: &Rest, start: &Mutex<Start>, changed: &watch::Sender<u64>) {
    let tell = || changed.send_modify(|count| *count += 1);
    loop {
        if let Ok(events) = rest.state_events(KINDS) {
            lock(start).stream_opened();
            // Everything that changed before the stream was open.
            tell();
            for _ in events {
                tell();
            }
            lock(start).stream_ended();
        }
        tell();
        std::thread::sleep(RECONNECT);
    }
}
