//! The letters that wait for the mail relay.

use std::collections::BTreeSet;
use std::time::Duration;

use millrace_ix_model::{AccountId, reason};
use millrace_types::Time;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

use super::pace::Pace;
use crate::problem::{Problem, ProblemKind};
use crate::session::{CredentialError, CredentialStore};

/// The prefix of the store keys of letters that wait. The number of the letter follows, with leading zeros.
pub(super) const PREFIX: &str = "mail/";

/// The letters that wait, and the task that sends them.
#[derive(Default)]
pub(crate) struct Mail {
    pub(super) wake: Notify,
    queue: Mutex<Queue>,
    pace: Pace,
}

#[derive(Debug, Default)]
pub(super) struct Queue {
    /// The number of the last letter.
    pub(super) last: u64,
    /// The keys of the letters that wait, in the order of their posting.
    pub(super) waiting: BTreeSet<String>,
}

impl Mail {
    /// Returns the letters of a store.
    pub(crate) async fn load(store: &dyn CredentialStore) -> Result<Mail, CredentialError> {
        let stored = store.list(PREFIX).await?.into_iter();
        let waiting: BTreeSet<String> = stored.map(|(key, _)| key).collect();
        let last = waiting.last();
        let last = last.and_then(|key| key.trim_start_matches(PREFIX).parse().ok());
        let queue = Queue {
            last: last.unwrap_or(0),
            waiting,
        };
        Ok(Mail {
            queue: Mutex::new(queue),
            ..Mail::default()
        })
    }

    pub(super) fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock()
    }

    /// Returns the number of letters that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.queue().waiting.len()
    }

    /// Counts a letter with a link to a person of an account, of whom the last letter must be `gap` old.
    ///
    /// # Errors
    /// A problem if there were too many; the letter then does not count.
    pub(crate) fn admit(
        &self,
        address: &str,
        account: AccountId,
        gap: Duration,
        now: Time,
    ) -> Result<(), Problem> {
        self.pace.admit(address, account, gap, now).map_err(|wait| {
            let seconds = u32::try_from(wait.as_secs() + 1).unwrap_or(u32::MAX);
            Problem::because(ProblemKind::Busy, reason::letters_too_many())
                .with_code("too-many-letters")
                .retry_after(seconds)
        })
    }
}
