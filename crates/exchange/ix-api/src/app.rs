//! The state that every handler shares.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Instant, SystemTime};

use bytes::Bytes;
use millrace_ix_model::{AccountId, Actor, Timestamp, UserId, reason};
use millrace_ix_service::OrderError;
use millrace_ix_store::AuditEntry;
use millrace_types::Time;
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use crate::engine::Engine;
use crate::events::EventLog;
use crate::idempotency::InFlight;
use crate::mail::{Mail, MailSettings};
use crate::oidc::{Oidc, OidcSettings};
use crate::page::Page;
use crate::problem::{Problem, ProblemKind};
use crate::reads::Reads;
use crate::route_servers::RouteServer;
use crate::service::Snapshot;
use crate::session::{
    Attempts, CredentialError, CredentialStore, Failure, Failures, Next, PasswordError, SealError, Sealer,
    Sessions, Tokens, TotpSecret, UserCredentials, WrongCodes, hash_password,
};
use crate::streams::Streams;
use crate::strict::Known;
use crate::v2::records::Records;
use crate::webhooks::{Outgoing, Webhooks};

/// The maximum number of passwords that are hashed at the same time. A hash takes 19 MiB and one core for
/// some 30 ms.
pub(crate) const HASHES_MAX: usize = 4;
/// The settings of the API.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The name of the exchange, which the page shows.
    pub name: String,
    /// The number of the exchange in the database of IX-F, for the member list; `None` without a registration.
    pub ixf_id: Option<u32>,
    /// The page.
    pub page: Page,
    /// The route servers.
    pub route_servers: Vec<RouteServer>,
    /// True if webhooks may use private addresses and plain HTTP.
    pub webhooks_to_private: bool,
    /// The OpenID Connect provider for sign-ins; `None` if there is none.
    pub oidc: Option<OidcSettings>,
    /// The way to the mail relay; `None` for an exchange that sends no mail.
    pub mail: Option<MailSettings>,
}

/// The state that every handler shares. Clones are cheap and refer to the same state.
#[derive(Clone)]
pub struct App(Arc<Inner>);

/// The state behind all clones of an [`App`].
pub struct Inner {
    pub(crate) engine: Arc<Engine>,
    pub(crate) credentials: Arc<dyn CredentialStore>,
    pub(crate) sealer: Sealer,
    pub(crate) sessions: Sessions,
    pub(crate) attempts: Attempts,
    pub(crate) failures: Failures,
    pub(crate) reads: Reads,
    pub(crate) tokens: Tokens,
    pub(crate) records: Records,
    pub(crate) webhooks: Webhooks,
    pub(crate) mail: Mail,
    pub(crate) outgoing: Outgoing,
    pub(crate) oidc: Option<Oidc>,
    pub(crate) settings: Settings,
    pub(crate) events: Arc<EventLog>,
    /// The OpenAPI documents as JSON, which anybody may read: a request copies and converts nothing.
    pub(crate) document: Bytes,
    pub(crate) ix_document_json: Bytes,
    /// The operations of IX-API.
    pub(crate) ix_document: utoipa::openapi::OpenApi,
    /// The properties and parameters of the native API.
    pub(crate) known: Known,
    /// The properties and parameters of IX-API.
    pub(crate) ix_known: Known,
    pub(crate) hashes: Semaphore,
    pub(crate) known_hashes: Semaphore,
    pub(crate) in_flight: InFlight,
    /// Held while a stored credential is read, changed and written back, so that no concurrent change is
    /// lost.
    pub(crate) changing: tokio::sync::Mutex<()>,
    /// The number of API keys that were deleted since the start. When it changes, event streams check their
    /// key again.
    pub(crate) deleted_keys: AtomicU64,
    pub(crate) streams: Arc<Streams>,
    pub(crate) searches: Arc<Semaphore>,
    pub(crate) lookups: Semaphore,
    /// The time of the last requested check of each account's filters.
    pub(crate) rechecked: Mutex<BTreeMap<AccountId, Time>>,
    pub(crate) started: Instant,
}

impl std::ops::Deref for App {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        &self.0
    }
}

/// The reason why a user's credentials could not be set.
#[derive(Debug, thiserror::Error)]
pub enum SetCredentialError {
    /// The password is too short or too long.
    #[error(transparent)]
    Password(#[from] PasswordError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] CredentialError),
    /// The secret could not be sealed.
    #[error(transparent)]
    Seal(#[from] SealError),
}

/// Returns the hash of a password, computed on a blocking thread: it takes some 30 ms.
async fn hash(password: &str) -> Result<String, SetCredentialError> {
    let password = password.to_owned();
    let hashed = tokio::task::spawn_blocking(move || hash_password(&password)).await;
    hashed
        .map_err(|error| CredentialError {
            reason: error.to_string(),
            follows: None,
        })?
        .map_err(SetCredentialError::from)
}

impl App {
    pub(crate) fn of(inner: Inner) -> App {
        App(Arc::new(inner))
    }

    /// Reads the sessions from the store again: at an engine that follows, people have signed in and out at the other one.
    ///
    /// # Errors
    /// [`CredentialError`]; the sessions are as before then.
    pub async fn read_sessions(&self) -> Result<(), CredentialError> {
        self.sessions.read_again().await
    }

    /// Sets the password of a user and ends the user's sessions.
    ///
    /// # Errors
    /// [`SetCredentialError`].
    pub async fn set_password(&self, user: UserId, password: &str) -> Result<(), SetCredentialError> {
        let hash = hash(password).await?;
        let _changing = self.lock_credentials().await;
        self.store_password(user, hash).await?;
        Ok(())
    }

    /// Replaces the password whose hash is `old` by the one whose hash is `new`, and ends the user's sessions.
    /// The caller has verified that the user knows the old password. Returns false if the stored hash is no
    /// longer `old`.
    pub(crate) async fn change_password(
        &self,
        user: UserId,
        old: Option<&str>,
        new: String,
    ) -> Result<bool, CredentialError> {
        let _changing = self.lock_credentials().await;
        let key = UserCredentials::key(&user.to_string());
        let stored: Option<UserCredentials> = crate::session::load_json(&*self.credentials, &key).await?;
        let stored = stored.unwrap_or_default();
        let is_same = stored.password.as_deref() == old;
        if is_same {
            self.store_password(user, new).await?;
        }
        Ok(is_same)
    }

    /// Stores the hash of a password and ends the user's sessions. The caller must hold
    /// [`lock_credentials`](App::lock_credentials).
    async fn store_password(&self, user: UserId, hash: String) -> Result<(), CredentialError> {
        self.change_credentials(user, |credentials| {
            credentials.password = Some(hash);
            credentials.wrong_codes = WrongCodes::default();
            credentials.known_wrong_codes = WrongCodes::default();
        })
        .await?;
        self.sessions.end_all(user).await
    }

    /// Sets the password of a user who has lost it, on behalf of the exchange's staff. Ends the user's
    /// sessions and deletes the user's API keys and the address of the user's calendar, because a person who knew the old password
    /// may have created them. Returns the number of deleted keys.
    ///
    /// # Errors
    /// [`SetCredentialError`].
    pub async fn reset_password(&self, user: UserId, password: &str) -> Result<usize, SetCredentialError> {
        let hash = hash(password).await?;
        let _changing = self.lock_credentials().await;
        self.store_password(user, hash).await?;
        let mut deleted = 0;
        for (key, value) in self.credentials.list("key/").await? {
            let record: crate::session::ApiKeyRecord = crate::session::parse(&value)?;
            if record.user == user {
                self.credentials.save(&key, None).await?;
                deleted += 1;
            }
        }
        self.credentials
            .save(&crate::session::calendar_key(user), None)
            .await?;
        self.deleted_keys.fetch_add(deleted, Ordering::Release);
        Ok(usize::try_from(deleted).unwrap_or(usize::MAX))
    }

    /// Sets the TOTP secret of a user, and replaces an existing one.
    ///
    /// # Errors
    /// [`SetCredentialError`].
    pub async fn set_totp(&self, user: UserId, secret: &TotpSecret) -> Result<(), SetCredentialError> {
        let _changing = self.lock_credentials().await;
        self.store_totp(user, secret).await
    }

    /// Stores the second factor of a user. The caller must hold [`lock_credentials`](App::lock_credentials).
    async fn store_totp(&self, user: UserId, secret: &TotpSecret) -> Result<(), SetCredentialError> {
        let sealed = self.sealer.seal(&totp_purpose(user), secret.as_bytes())?;
        self.change_credentials(user, |credentials| {
            credentials.totp = Some(sealed);
            credentials.totp_step = 0;
            credentials.wrong_codes = WrongCodes::default();
            credentials.known_wrong_codes = WrongCodes::default();
        })
        .await?;
        Ok(())
    }

    /// Replaces the second factor of a user whose password has the hash `password`, and ends the user's sessions. Returns false if the
    /// stored hash is no longer `password`.
    ///
    /// # Errors
    /// [`SetCredentialError`].
    pub(crate) async fn replace_totp(
        &self,
        user: UserId,
        password: Option<&str>,
        secret: &TotpSecret,
    ) -> Result<bool, SetCredentialError> {
        {
            let _changing = self.lock_credentials().await;
            let key = UserCredentials::key(&user.to_string());
            let stored: Option<UserCredentials> = crate::session::load_json(&*self.credentials, &key).await?;
            if stored.unwrap_or_default().password.as_deref() != password {
                return Ok(false);
            }
            self.store_totp(user, secret).await?;
        }
        self.sessions.end_all(user).await?;
        Ok(true)
    }

    /// Locks the stored credentials for a change.
    pub(crate) async fn lock_credentials(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.changing.lock().await
    }

    /// Changes the credentials of a user. The caller must hold [`lock_credentials`](App::lock_credentials).
    async fn change_credentials(
        &self,
        user: UserId,
        change: impl FnOnce(&mut UserCredentials),
    ) -> Result<(), CredentialError> {
        let key = UserCredentials::key(&user.to_string());
        let stored: Option<UserCredentials> = crate::session::load_json(&*self.credentials, &key).await?;
        let mut credentials = stored.unwrap_or_default();
        change(&mut credentials);
        crate::session::save_json(&*self.credentials, &key, &credentials).await
    }

    /// Returns the newest snapshot.
    pub(crate) fn snapshot(&self) -> Arc<Snapshot> {
        self.engine.snapshot()
    }

    /// Returns the operations of the API that a path is of.
    pub(crate) fn known_of(&self, path: &str) -> &Known {
        if path.starts_with("/api/v2/") {
            &self.ix_known
        } else {
            &self.known
        }
    }

    /// Returns the time of the engine's clock, which is used for every period of validity.
    pub(crate) fn now(&self) -> Timestamp {
        self.engine.now()
    }

    /// Returns the time of the system's clock, for times that another party compares with that party's clock:
    /// one-time codes, ID tokens, signatures.
    pub(crate) fn wall(&self) -> Timestamp {
        Timestamp::from(SystemTime::now())
    }

    /// Returns the monotonic time since the start of the process.
    pub(crate) fn uptime(&self) -> Time {
        Time::ZERO + self.started.elapsed()
    }

    /// Adds an entry to the audit chain. If that fails, the caller must not perform the action in the entry, so
    /// call this first. The only exception is a sign-out, which is performed before its entry and even without
    /// it: a session that its user has left must not stay open.
    pub(crate) async fn record(
        &self,
        actor: &str,
        action: &str,
        object: impl ToString,
        detail: serde_json::Value,
    ) -> Result<(), Problem> {
        let entry = AuditEntry {
            actor: actor.to_owned(),
            action: action.to_owned(),
            object: object.to_string(),
            detail,
        };
        Ok(self.engine.record(entry).await?)
    }
}

impl App {
    /// Adds a failed sign-in to the audit chain: at once, or with others at the end of the minute. A failure that waits is lost
    /// if the engine is killed.
    pub(crate) async fn record_failure(&self, failure: Failure) -> Result<(), Problem> {
        let (actor, action) = ("anonymous", "sign_in_failed");
        match self.failures.add(failure, self.uptime()) {
            Next::Record(detail) => self.record(actor, action, "", detail).await,
            Next::Wait(wait) => {
                let app = self.clone();
                tokio::spawn(async move {
                    tokio::time::sleep(wait).await;
                    let Some(detail) = app.failures.take(app.uptime()) else {
                        return;
                    };
                    if let Err(problem) = app.record(actor, action, "", detail.clone()).await {
                        let reason = problem.detail;
                        tracing::error!(%detail, %reason, "failed sign-ins are not in the audit chain");
                    }
                });
                Ok(())
            }
            Next::Counted => Ok(()),
        }
    }
}

/// Returns the purpose string for sealing a user's TOTP secret.
pub(crate) fn totp_purpose(user: UserId) -> String {
    format!("totp {user}")
}

/// Returns the actor for a user, with the user's current roles; `None` if the user no longer exists, or is deactivated.
pub(crate) fn actor_of(snapshot: &Snapshot, user: UserId) -> Option<Actor> {
    let found = snapshot
        .exchange
        .users
        .get(&user)
        .filter(|user| !user.deactivated)?;
    Some(Actor {
        user: Some(user),
        account: Some(found.account),
        roles: found.roles.clone(),
        proven_asns: BTreeSet::new(),
    })
}

impl From<CredentialError> for Problem {
    fn from(error: CredentialError) -> Problem {
        tracing::error!(%error, "credentials");
        let silent = "the store of credentials does not answer";
        let detail = error.follows.as_deref().unwrap_or(silent);
        Problem::new(ProblemKind::Unavailable, detail).retry_after(5)
    }
}

impl From<OrderError> for Problem {
    fn from(error: OrderError) -> Problem {
        let detail = error.to_string();
        match error {
            OrderError::Refused(refusal) => crate::refusal::problem(&refusal),
            OrderError::Stale { .. } => Problem::new(ProblemKind::Stale, detail)
                .with_next_step("read the object again, and order with its new ETag in If-Match"),
            OrderError::KeyReused => {
                Problem::because(ProblemKind::Conflict, reason::idempotency_key_reused())
                    .with_code("key-reused")
            }
            OrderError::ReadOnly(_)
            | OrderError::Unavailable(_)
            | OrderError::Follows(_)
            | OrderError::Stopped => {
                let detail = format!("the engine accepts no orders: {detail}");
                Problem::new(ProblemKind::Unavailable, detail).retry_after(5)
            }
        }
    }
}
