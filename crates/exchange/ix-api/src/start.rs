//! The start of the API: its state is read from the store, then its tasks begin.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use crate::app::{App, HASHES_MAX, Inner, Settings};
use crate::engine::Engine;
use crate::events::EventLog;
use crate::idempotency::InFlight;
use crate::mail::Mail;
use crate::oidc::Oidc;
use crate::reads::Reads;
use crate::session::{Attempts, CredentialError, CredentialStore, Failures, Sealer, Sessions, Tokens};
use crate::strict::Known;
use crate::v2::records::Records;
use crate::webhooks::{Outgoing, Webhook, Webhooks};

/// The maximum number of passwords of people whose browser or session is known that are hashed at the same time. They do not
/// wait behind the passwords that unknown clients try.
const KNOWN_HASHES_MAX: usize = 2;
/// The maximum number of concurrent searches for filters against an attack. A search occupies a core for
/// several seconds.
const SEARCHES_MAX: usize = 2;
/// The maximum number of concurrent answers of the looking glass, which everybody may ask.
const LOOKUPS_MAX: usize = 2;

/// Returns an OpenAPI document as JSON.
fn json(document: &utoipa::openapi::OpenApi) -> Bytes {
    // A document of this program has no value that JSON lacks.
    serde_json::to_vec(document).unwrap_or_default().into()
}

impl App {
    /// Loads sessions and records from the store, starts the webhooks, and returns the state. The caller must
    /// be in a tokio runtime.
    ///
    /// # Errors
    /// [`CredentialError`].
    pub async fn new(
        engine: Arc<Engine>,
        credentials: Arc<dyn CredentialStore>,
        sealer: Sealer,
        settings: Settings,
    ) -> Result<App, CredentialError> {
        let app = App::reader(engine, credentials, sealer, settings).await?;
        crate::v2::sweep_sessions(&app).await?;
        let webhooks = app.records.all::<Webhook>().into_iter();
        for (id, webhook) in webhooks.filter(|(_, webhook)| webhook.disabled.is_none()) {
            app.webhooks.start(&app, &id, webhook, app.events.newest());
        }
        crate::mail::start(&app);
        Ok(app)
    }

    /// Returns the state of an engine that follows: it sends no webhooks and no mail, and writes nothing. The caller must be in a
    /// tokio runtime.
    ///
    /// # Errors
    /// [`CredentialError`].
    pub async fn reader(
        engine: Arc<Engine>,
        credentials: Arc<dyn CredentialStore>,
        sealer: Sealer,
        settings: Settings,
    ) -> Result<App, CredentialError> {
        let sessions = Sessions::load(Arc::clone(&credentials)).await?;
        let tokens = Tokens::load(Arc::clone(&credentials), &sealer).await?;
        let records = Records::load(Arc::clone(&credentials)).await?;
        let mail = Mail::load(&*credentials).await?;
        let (document, ix_document) = (crate::routes::document(), crate::v2::document());
        Ok(App::of(Inner {
            known: Known::of(&document),
            ix_known: Known::of(&ix_document),
            events: EventLog::start(Arc::clone(&engine)),
            engine,
            credentials,
            sealer,
            sessions,
            attempts: Attempts::default(),
            failures: Failures::default(),
            reads: Reads::default(),
            tokens,
            records,
            webhooks: Webhooks::default(),
            mail,
            outgoing: Outgoing::new(settings.webhooks_to_private),
            oidc: settings.oidc.clone().map(Oidc::new),
            settings,
            document: json(&document),
            ix_document_json: json(&ix_document),
            ix_document,
            hashes: Semaphore::new(HASHES_MAX),
            known_hashes: Semaphore::new(KNOWN_HASHES_MAX),
            in_flight: InFlight::default(),
            changing: tokio::sync::Mutex::default(),
            deleted_keys: AtomicU64::new(0),
            streams: Arc::default(),
            searches: Arc::new(Semaphore::new(SEARCHES_MAX)),
            lookups: Semaphore::new(LOOKUPS_MAX),
            rechecked: Mutex::default(),
            started: Instant::now(),
        }))
    }
}
