//! The running webhooks, with the newest deliveries of each.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use serde::Serialize;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use utoipa::ToSchema;

/// One delivery of an event.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct Delivery {
    /// The identifier of the event, which is the same in all tries: `webhook-id`.
    pub(crate) event: String,
    /// The serial number of the event.
    pub(crate) serial: u64,
    /// `delivered`, `retrying` or `given_up`.
    pub(crate) state: &'static str,
    /// The number of tries.
    pub(crate) tries: u32,
    /// The time of the last try.
    pub(crate) at: String,
    /// The HTTP status of the last answer; null without an answer.
    #[schema(required)]
    pub(crate) status: Option<u16>,
    /// The reason why the last try failed.
    #[schema(required)]
    pub(crate) error: Option<String>,
}

/// The running webhooks.
#[derive(Default)]
pub(crate) struct Webhooks {
    running: Mutex<HashMap<String, Running>>,
}

pub(super) struct Running {
    pub(super) task: JoinHandle<()>,
    pub(super) kept: WebhookState,
}

/// The parts of a webhook that are kept when its task restarts.
#[derive(Clone)]
pub(super) struct WebhookState {
    pub(super) deliveries: Arc<Mutex<VecDeque<Delivery>>>,
    /// A semaphore with one permit, for the request in progress. A request continues after its task is
    /// aborted.
    pub(super) turn: Arc<Semaphore>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Webhooks {
    pub(super) fn running(&self) -> MutexGuard<'_, HashMap<String, Running>> {
        self.running.lock()
    }

    /// Ends a webhook.
    pub(crate) fn stop(&self, id: &str) {
        self.running().remove(id);
    }

    /// Returns the last deliveries of a webhook, newest first.
    pub(crate) fn deliveries(&self, id: &str) -> Vec<Delivery> {
        let running = self.running();
        let Some(found) = running.get(id) else {
            return Vec::new();
        };
        let deliveries = &found.kept.deliveries;
        let deliveries = deliveries.lock();
        deliveries.iter().rev().cloned().collect()
    }
}
