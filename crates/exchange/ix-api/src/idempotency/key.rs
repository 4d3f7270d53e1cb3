//! Idempotency keys: their header, the keys of requests that are being executed, and the marks of requests.

use std::collections::HashMap;
use std::sync::Arc;

use axum::http::HeaderMap;
use millrace_ix_model::Timestamp;
use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;

use crate::problem::{Problem, ProblemKind};

/// The header that makes a request repeatable.
pub(super) const HEADER: &str = "idempotency-key";

/// Returns the idempotency key of a request.
pub(crate) fn key(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let Some(value) = headers.get(HEADER) else {
        return Ok(None);
    };
    let key = value.to_str().ok().filter(|key| (8..=128).contains(&key.len()));
    let detail = "Idempotency-Key is malformed: expected 8 to 128 characters of ASCII";
    key.map(|key| Some(key.to_owned()))
        .ok_or_else(|| Problem::new(ProblemKind::BadRequest, detail))
}

/// The keys of the requests that are being executed.
#[derive(Debug, Default)]
pub(crate) struct InFlight(Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>);

impl InFlight {
    /// Waits until no other request with this user and key is being executed, and locks the key.
    pub(super) async fn lock(&self, name: String) -> OwnedMutexGuard<()> {
        let own = {
            let mut all = self.0.lock();
            all.retain(|_, lock| Arc::strong_count(lock) > 1);
            Arc::clone(all.entry(name).or_default())
        };
        own.lock_owned().await
    }
}

/// The mark of a request with an idempotency key, which the handler stores in the record that it creates.
/// `mark` is `None` without a key.
#[derive(Debug, Clone)]
pub(crate) struct RequestMark {
    pub(crate) mark: Option<String>,
    pub(crate) now: Timestamp,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_lock_is_forgotten_when_nobody_waits_for_it() {
        let in_flight = InFlight::default();
        drop(in_flight.lock("a".to_owned()).await);
        let held = in_flight.lock("b".to_owned()).await;
        let names: Vec<String> = in_flight.0.lock().keys().cloned().collect();
        assert_eq!(names, ["b"]);
        drop(held);
    }
}
