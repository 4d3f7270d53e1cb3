//! The REST API and the web page: listener, key of sealed secrets, passwords and second factors of users.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use millrace_ix_api::counters::FilterCounters;
use millrace_ix_api::engine::{Engine, EngineCredentials};
use millrace_ix_api::session::{Sealer, TotpSecret, generate_key};
use millrace_ix_api::{App, MailSettings, OidcSettings, Page, Settings};
use millrace_ix_model::UserId;
use millrace_ix_samples::Shared;
use millrace_ix_service::Handle;
use millrace_ix_store::AuditEntry;
use serde_json::{Value, json};

use crate::keys;
use crate::routing::route_servers;
use crate::settings::{Api, Database, Mail, Oidc};

/// Starts the API over an engine, and its listener if an address is set. Returns the API.
pub(crate) async fn serve(
    api: &Api,
    database: &Database,
    handle: &Handle,
    (filters, samples, series, counters): (
        Option<millrace_ix_filter::Shared>,
        Option<Shared>,
        Option<millrace_ix_series::Shared>,
        FilterCounters,
    ),
    leads: bool,
) -> Result<App> {
    let page = match &api.page {
        Some(folder) => {
            Page::from_folder(folder).with_context(|| format!("api.page {}", folder.display()))?
        }
        None => Page::embedded(),
    };
    let sealer = Sealer::new(&seal_key(&database.seal_key())?)?;
    let settings = Settings {
        name: api.name.clone(),
        ixf_id: api.ixf_id,
        page,
        route_servers: api.route_servers.clone(),
        webhooks_to_private: api.webhooks_to_private,
        oidc: api.oidc.as_ref().map(provider).transpose()?,
        mail: api.mail.as_ref().map(mail).transpose()?,
    };
    let credentials = Arc::new(EngineCredentials::new(handle.clone()));
    let engine = Engine::with_filters(handle.clone(), filters, counters);
    engine.set_route_servers(route_servers::read(&api.route_servers, handle)?);
    if let Some(samples) = samples {
        engine.set_samples(samples);
    }
    if let Some(series) = series {
        engine.set_series(series);
    }
    let app = if leads {
        App::new(engine, credentials, sealer, settings).await?
    } else {
        App::reader(engine, credentials, sealer, settings).await?
    };
    let Some(address) = api.listen else {
        return Ok(app);
    };
    if !address.ip().to_canonical().is_loopback() {
        bail!(
            "api.listen {address}: expected a loopback address; a proxy with TLS in front of it makes the page public"
        );
    }
    let listener = tokio::net::TcpListener::bind(address)
        .await
        .with_context(|| format!("api.listen {address}"))?;
    tracing::info!(%address, "the API and the page are served");
    let served = app.clone();
    tokio::spawn(async move {
        // The runtime ends the task with the process.
        let limits = millrace_ix_api::Limits::default();
        if let Err(error) = millrace_ix_api::serve(listener, served, limits, std::future::pending()).await {
            tracing::error!(%error, "the listener of the API has ended");
        }
    });
    Ok(app)
}

/// The time between two readings of the sessions by an engine that follows.
const SESSIONS_READ_EVERY: Duration = Duration::from_secs(5);

/// Reads the sessions of people who have signed in or out at the engine that leads, until the runtime ends.
pub(crate) async fn read_sessions(app: App) {
    loop {
        tokio::time::sleep(SESSIONS_READ_EVERY).await;
        if let Err(error) = app.read_sessions().await {
            tracing::debug!(%error, "the sessions are as before");
        }
    }
}

/// The path of the page to which a provider returns.
const CALLBACK: &str = "/sign-in/callback";

/// Returns the settings of the sign-in provider, with the client secret from its file.
fn provider(oidc: &Oidc) -> Result<OidcSettings> {
    if !oidc.redirect_uri.ends_with(CALLBACK) {
        bail!(
            "api.oidc.redirect_uri {}: expected the address of the page with {CALLBACK} at its end",
            oidc.redirect_uri
        );
    }
    let secret = |path: &PathBuf| -> Result<String> {
        let bytes = keys::read(path, "api.oidc.client_secret_file")?;
        let text = String::from_utf8(bytes).context("api.oidc.client_secret_file: expected text")?;
        Ok(text.trim().to_owned())
    };
    Ok(OidcSettings {
        issuer: oidc.issuer.clone(),
        name: oidc.name.clone(),
        client_id: oidc.client_id.clone(),
        client_secret: oidc.client_secret_file.as_ref().map(secret).transpose()?,
        redirect_uri: oidc.redirect_uri.clone(),
        scopes: oidc.scopes.clone(),
    })
}

/// Returns the settings of mail.
fn mail(mail: &Mail) -> Result<MailSettings> {
    Ok(MailSettings::new(
        mail.relay,
        &mail.from,
        &mail.page,
        &mail.language,
    )?)
}

/// Reads the key that seals secrets in the database, or creates it with mode 0600.
pub(crate) fn seal_key(path: &Path) -> Result<Vec<u8>> {
    keys::read_or_create(path, "the sealing key", || Ok(generate_key()?.to_vec()))
}

/// Returns the user with a name.
fn user(handle: &Handle, name: &str) -> Result<UserId> {
    let snapshot = handle.snapshot();
    let found = snapshot
        .exchange
        .users
        .iter()
        .find(|(_, user)| user.name.eq_ignore_ascii_case(name));
    found
        .map(|(id, _)| *id)
        .ok_or_else(|| anyhow!("there is no user \"{name}\": order one with the operation create_user"))
}

async fn note(handle: &Handle, action: &str, user: UserId) -> Result<()> {
    let entry = AuditEntry {
        actor: "system".to_owned(),
        action: action.to_owned(),
        object: user.to_string(),
        detail: json!({}),
    };
    Ok(handle.record(entry).await?)
}

/// Sets the password of a user, and deletes the user's sessions and API keys.
pub(crate) async fn set_password(app: &App, handle: &Handle, name: &str, password: String) -> Result<Value> {
    let user = user(handle, name)?;
    note(handle, "set_password", user).await?;
    let deleted = app.reset_password(user, &password).await?;
    Ok(json!({ "user": user, "deleted_api_keys": deleted }))
}

/// Gives a user a new second factor, and returns its secret, which is shown once.
pub(crate) async fn set_totp(app: &App, handle: &Handle, name: &str) -> Result<Value> {
    let user = user(handle, name)?;
    note(handle, "set_second_factor", user).await?;
    let secret = TotpSecret::generate()?;
    app.set_totp(user, &secret).await?;
    Ok(json!({ "user": user, "secret": secret.to_base32(), "uri": secret.uri("Millrace", name) }))
}
