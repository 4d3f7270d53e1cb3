//! The engine as a process: database, key, engine thread, listeners.

use std::path::Path;

use anyhow::{Context, Result, anyhow};
use millrace_ix_engine::ForeignPolicy;
use millrace_ix_samples::{Receiver, Shared};
use millrace_ix_service::Service;
use millrace_ix_store::{SigningKey, Sqlite, Store as _};
use millrace_notify::{State, notify};
use millrace_types::Duration;
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};

use crate::control;
use crate::heads;
use crate::keys;
use crate::routing;
use crate::series;
use crate::settings::{ForeignEntries, Settings, Sflow};
use crate::switches::Switches;
use crate::web;

/// Runs until SIGTERM or SIGINT.
pub(crate) fn run(settings: &Settings) -> Result<()> {
    // The check comes first: opening the database would end the write permission of a running engine.
    control::check_free(&settings.control.socket)?;
    let path = &settings.database.path;
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).with_context(|| format!("database.path {}", path.display()))?;
    }
    let store = Sqlite::open(path)?;
    let epoch = store.load()?.epoch;
    let audit_key = audit_key(&settings.database.audit_key())?;
    tracing::info!(
        public_key = audit_key.public_key(),
        epoch,
        "the audit chain is signed with this key"
    );
    let switches = Switches::default();
    let requests = switches.clone();
    let engine = millrace_ix_engine::Settings {
        foreign: match settings.engine.foreign_entries {
            ForeignEntries::Remove => ForeignPolicy::Exclusive,
            ForeignEntries::Leave => ForeignPolicy::Leave,
        },
        seed: epoch,
        resync: Duration::from_secs(settings.engine.resync_secs.unwrap_or(60)),
        verification: settings
            .engine
            .verification_secs
            .filter(|secs| *secs > 0)
            .map(Duration::from_secs),
        ..millrace_ix_engine::Settings::default()
    };
    let extensions = settings.engine.match_extensions;
    let service_settings = millrace_ix_service::Settings {
        engine,
        extensions,
        audit_key: Some(audit_key),
    };
    let service = Service::start(Box::new(store), service_settings, move |request| {
        requests.request(request);
    })?;
    // BGP sessions and connections to switches keep their deadlines while the API waits.
    let (network, api) = (runtime("network")?, runtime("api")?);
    let serve = || {
        let handle = service.handle();
        let (bgp, rpki, irr) = (&settings.bgp, &settings.rpki, settings.irr.as_ref());
        let filters = network.block_on(routing::serve(bgp, rpki, irr, extensions, &handle))?;
        // The receiver and the socket are closed at the end of this block.
        let (samples, _receiver) = samples(settings.sflow.as_ref(), epoch)?.unzip();
        let series = series::open(&settings.series, path)?;
        if let Some(series) = &series {
            let sources = (switches.clone(), samples.clone());
            network.spawn(series::keep(series.clone(), sources, handle.clone()));
        }
        let observers = (filters.clone(), samples, series, switches.counters.clone());
        let (_app, _socket) = api.block_on(async {
            let app = web::serve(&settings.api, &settings.database, &handle, observers).await?;
            let socket = control::serve(&settings.control.socket, &handle, &app, filters.as_ref())?;
            anyhow::Ok((app, socket))
        })?;
        api.block_on(heads::start(&settings.audit, &handle))?;
        network.block_on(switches.listen(&settings.openflow, epoch, &handle))?;
        tracing::info!("ready");
        tell(State::Ready);
        api.block_on(async {
            let (mut terminate, mut interrupt) =
                (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            tell(State::Stopping);
            anyhow::Ok(())
        })
    };
    let outcome = serve();
    service.stop();
    outcome
}

/// Tells the service manager the state of the engine.
fn tell(state: State) {
    if let Err(error) = notify(state) {
        tracing::warn!(%error, ?state, "the service manager was not told");
    }
}

/// Returns a runtime with two workers, whose threads have this name.
fn runtime(name: &str) -> Result<Runtime> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    Ok(builder.worker_threads(2).thread_name(name).enable_all().build()?)
}

/// Starts the sFlow receiver, if it is configured.
fn samples(settings: Option<&Sflow>, seed: u64) -> Result<Option<(Shared, Receiver)>> {
    let Some(settings) = settings else {
        return Ok(None);
    };
    let shared = Shared::new(seed);
    let receiver = Receiver::start(
        &millrace_ix_samples::Settings {
            listen: settings.listen,
            switches: settings.switches.clone(),
        },
        shared.clone(),
    )?;
    tracing::info!(address = %receiver.address(), "sFlow is received");
    Ok(Some((shared, receiver)))
}

/// Reads the key of the audit chain, or creates it with mode 0600.
pub(crate) fn audit_key(path: &Path) -> Result<SigningKey> {
    let name = path.display();
    let bytes = keys::read_or_create(path, "database.audit_key", || {
        SigningKey::generate().map_err(|reason| anyhow!("{reason}"))
    })?;
    SigningKey::from_pkcs8(&bytes).map_err(|reason| anyhow!("database.audit_key {name}: {reason}"))
}
