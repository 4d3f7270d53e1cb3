//! The engine as a process: database, keys, engine thread, listeners; and its part among the engines of a shared database.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result, anyhow, bail};
use millrace_ix_engine::ForeignPolicy;
use millrace_ix_samples::{Receiver, Shared};
use millrace_ix_service::{Handle, Service, StartError};
use millrace_ix_store::{
    Postgres, PostgresSettings, SharedSeries, SigningKey, Sqlite, Store, StoreError, sha256_hex,
};
use millrace_notify::{State, notify};
use millrace_types::Duration;
use serde_json::json;
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Mutex, watch};

use crate::control;
use crate::heads;
use crate::keys;
use crate::routing;
use crate::series;
use crate::settings::{ForeignEntries, Settings, Sflow};
use crate::switches::Switches;
use crate::web;

/// The pause before another attempt to serve, while the database is away.
const PAUSE: std::time::Duration = std::time::Duration::from_secs(1);
/// The longest wait for the end of tasks when the part of the engine changes.
const TASKS_END_MAX: std::time::Duration = std::time::Duration::from_secs(3);
/// The setting that says which keys the engines of a shared database have.
const KEYS: &str = "keys";

/// The series, for the life of the process: they are the same files whether the engine leads or follows.
#[derive(Clone)]
struct Series {
    kept: millrace_ix_series::Shared,
    /// `None` without a shared database.
    sharing: Option<Arc<Mutex<series::Sharing>>>,
}

impl Series {
    fn open(settings: &Settings) -> Result<Option<Series>> {
        let Some(kept) = series::open(&settings.series, &settings.database.path)? else {
            return Ok(None);
        };
        let sharing = match settings.database.postgres {
            Some(_) => {
                let database = SharedSeries::new(postgres_settings(settings)?)?;
                Some(Arc::new(Mutex::new(series::Sharing::new(database, kept.clone()))))
            }
            None => None,
        };
        Ok(Some(Series { kept, sharing }))
    }

    /// Exchanges series with the other engines. Returns a value that becomes true when all files were compared once.
    fn share(&self, runtime: &Runtime, epoch: Option<u64>, handle: &Handle) -> Arc<AtomicBool> {
        let complete = Arc::new(AtomicBool::new(self.sharing.is_none()));
        if let Some(sharing) = &self.sharing {
            let (sharing, handle) = (Arc::clone(sharing), handle.clone());
            runtime.spawn(series::share(sharing, epoch, handle, Arc::clone(&complete)));
        }
        complete
    }
}

/// The end of a part: the signal to stop, or another part begins with the same database.
enum End {
    Stopped,
    NewTerm(Option<Box<dyn Store>>),
}

/// Runs until SIGTERM or SIGINT.
///
/// ```text
///   open the database --> leads, or follows --(the term changes)--> the same again, with the same store
/// ```
pub(crate) fn run(settings: &Settings) -> Result<()> {
    // The check comes first: opening the database would end the write permission of a running engine.
    control::check_free(&settings.control.socket)?;
    let path = &settings.database.path;
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).with_context(|| format!("database.path {}", path.display()))?;
    }
    let stop = stop_signal()?;
    let series = Series::open(settings)?;
    let mut store = Some(open(settings)?);
    let mut has_served = false;
    while !*stop.borrow() {
        let opened = match store.take() {
            Some(store) => Ok(store),
            None => open(settings),
        };
        match opened.and_then(|store| part(settings, store, series.as_ref(), stop.clone())) {
            Ok(End::Stopped) => break,
            Ok(End::NewTerm(next)) => {
                store = next;
                has_served = true;
            }
            // Settings that have served once are right: the database was away in the moment of the change.
            Err(error) if has_served || is_away(&error) => {
                tracing::warn!(
                    error = format!("{error:#}"),
                    "the engine begins again when the database answers"
                );
                std::thread::sleep(PAUSE);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Returns true if an error says that the server of the database does not answer.
fn is_away(error: &anyhow::Error) -> bool {
    let store = error.chain().find_map(|cause| {
        let found = cause.downcast_ref::<StoreError>();
        found.or_else(|| match cause.downcast_ref::<StartError>() {
            Some(StartError::Store(error)) => Some(error),
            _ => None,
        })
    });
    matches!(store, Some(StoreError::Away(_)))
}

/// Opens the database of the settings.
fn open(settings: &Settings) -> Result<Box<dyn Store>> {
    if settings.database.postgres.is_none() {
        return Ok(Box::new(Sqlite::open(&settings.database.path)?));
    }
    Ok(Box::new(open_postgres(settings)?))
}

/// Opens the PostgreSQL database of the settings.
pub(crate) fn open_postgres(settings: &Settings) -> Result<Postgres> {
    Ok(Postgres::open(postgres_settings(settings)?)?)
}

/// Returns the way to the PostgreSQL database of the settings.
fn postgres_settings(settings: &Settings) -> Result<PostgresSettings> {
    let database = &settings.database;
    let password = |path: &PathBuf| -> Result<String> {
        let bytes = keys::read(path, "database.postgres_password_file")?;
        let text = String::from_utf8(bytes).context("database.postgres_password_file: expected text")?;
        Ok(text.trim().to_owned())
    };
    Ok(PostgresSettings {
        connection: database.postgres.clone().unwrap_or_default(),
        password: database
            .postgres_password_file
            .as_ref()
            .map(password)
            .transpose()?,
        ca_certificate: database.postgres_ca_certificate.clone(),
        name: settings.engine.name.clone(),
        address: settings.engine.address.clone(),
    })
}

/// Returns a receiver that becomes true with SIGTERM or SIGINT, in whatever part the engine is.
fn stop_signal() -> Result<watch::Receiver<bool>> {
    let (sender, receiver) = watch::channel(false);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let (mut terminate, mut interrupt) = {
        let _entered = runtime.enter();
        (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?)
    };
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    _ = terminate.recv() => {}
                    _ = interrupt.recv() => {}
                }
                sender.send_replace(true);
                // The receivers may look later.
                sender.closed().await;
            });
        })?;
    Ok(receiver)
}

/// Leads or follows, until the signal to stop or another term.
fn part(
    settings: &Settings,
    mut store: Box<dyn Store>,
    series: Option<&Series>,
    stop: watch::Receiver<bool>,
) -> Result<End> {
    let audit_key = audit_key(&settings.database.audit_key())?;
    let public_key = audit_key.public_key();
    let switches = Switches::default();
    let requests = switches.clone();
    let engine = millrace_ix_engine::Settings {
        foreign: match settings.engine.foreign_entries {
            ForeignEntries::Remove => ForeignPolicy::Exclusive,
            ForeignEntries::Leave => ForeignPolicy::Leave,
        },
        seed: store.standing().epoch().unwrap_or_default(),
        resync: Duration::from_secs(settings.engine.resync_secs.unwrap_or(60)),
        verification: settings
            .engine
            .verification_secs
            .filter(|secs| *secs > 0)
            .map(Duration::from_secs),
        ..millrace_ix_engine::Settings::default()
    };
    let service_settings = millrace_ix_service::Settings {
        engine,
        extensions: settings.engine.match_extensions,
        audit_key: Some(audit_key),
    };
    let service = Service::start(store, service_settings, move |request| {
        requests.request(request);
    })?;
    // The part of the service counts from here on: another engine may lead since the store was asked.
    let epoch = service.standing().epoch();
    if let Some(epoch) = epoch {
        tracing::info!(public_key, epoch, "the audit chain is signed with this key");
    } else {
        tracing::info!("another engine leads: this one shows what the database has");
    }
    // BGP sessions and connections to switches keep their deadlines while the API waits.
    let (network, api) = (runtime("network")?, runtime("api")?);
    let outcome = check_keys(settings, &service.handle(), epoch.is_some(), &public_key).and_then(|()| {
        let runtimes = (&network, &api);
        match epoch {
            Some(epoch) => lead(settings, &service, (&switches, series), epoch, runtimes, stop),
            None => follow(settings, &service, (&switches, series), runtimes, stop),
        }
    });
    let store = service.stop();
    // Their listeners are closed before another part binds them again.
    network.shutdown_timeout(TASKS_END_MAX);
    api.shutdown_timeout(TASKS_END_MAX);
    let is_new_term = outcome?;
    Ok(if is_new_term {
        End::NewTerm(store)
    } else {
        End::Stopped
    })
}

/// Refuses keys that differ from those of the other engines of a shared database: what one seals, the other could not open.
fn check_keys(settings: &Settings, handle: &Handle, leads: bool, public_key: &str) -> Result<()> {
    if settings.database.postgres.is_none() {
        return Ok(());
    }
    let path = settings.database.seal_key();
    let own = json!({ "audit": public_key, "seal": sha256_hex(&web::seal_key(&path)?) });
    let wanted = own.clone();
    let found = handle.store_blocking(move |store, _| {
        let found = store.setting(KEYS)?;
        if found.is_none() && leads {
            store.put_setting(KEYS, Some(&wanted))?;
        }
        Ok(found)
    })?;
    if found.is_some_and(|found| found != own) {
        bail!(
            "{} and {} are not the keys of the other engines of this database: copy both files from one of them",
            settings.database.audit_key().display(),
            path.display()
        );
    }
    Ok(())
}

/// Leads: everything runs. Returns true if another term has begun.
fn lead(
    settings: &Settings,
    service: &Service,
    (switches, series): (&Switches, Option<&Series>),
    epoch: u64,
    (network, api): (&Runtime, &Runtime),
    stop: watch::Receiver<bool>,
) -> Result<bool> {
    let handle = service.handle();
    let (bgp, rpki, irr) = (&settings.bgp, &settings.rpki, settings.irr.as_ref());
    let extensions = settings.engine.match_extensions;
    let filters = network.block_on(routing::serve(bgp, rpki, irr, extensions, &handle))?;
    // The receiver and the socket are closed at the end of this function.
    let (samples, _receiver) = samples(settings.sflow.as_ref(), epoch)?.unzip();
    if let Some(series) = series {
        let sources = (switches.clone(), samples.clone());
        let complete = series.share(network, Some(epoch), &handle);
        network.spawn(series::keep(
            series.kept.clone(),
            sources,
            handle.clone(),
            complete,
        ));
    }
    let kept = series.map(|series| series.kept.clone());
    let observers = (filters.clone(), samples, kept, switches.counters.clone());
    let (_app, _socket) = api.block_on(async {
        let app = web::serve(&settings.api, &settings.database, &handle, observers, true).await?;
        let socket = control::serve(&settings.control.socket, &handle, &app, filters.as_ref())?;
        anyhow::Ok((app, socket))
    })?;
    api.block_on(heads::start(&settings.audit, &handle))?;
    network.block_on(switches.listen(&settings.openflow, epoch, &handle))?;
    Ok(api.block_on(end(service, stop)))
}

/// Follows: pages and the command line show what the database has, and switches wait. Returns true if another term has begun.
fn follow(
    settings: &Settings,
    service: &Service,
    (switches, series): (&Switches, Option<&Series>),
    (network, api): (&Runtime, &Runtime),
    stop: watch::Receiver<bool>,
) -> Result<bool> {
    let handle = service.handle();
    if let Some(series) = series {
        series.share(network, None, &handle);
    }
    let kept = series.map(|series| series.kept.clone());
    let observers = (None, None, kept, switches.counters.clone());
    let (app, _socket) = api.block_on(async {
        let app = web::serve(&settings.api, &settings.database, &handle, observers, false).await?;
        let socket = control::serve(&settings.control.socket, &handle, &app, None)?;
        anyhow::Ok((app, socket))
    })?;
    network.block_on(switches.hold(&settings.openflow, &handle))?;
    api.spawn(web::read_sessions(app));
    Ok(api.block_on(end(service, stop)))
}

/// Returns at the end of a part: true if another term has begun, which may be before this call.
async fn end(service: &Service, mut stop: watch::Receiver<bool>) -> bool {
    tracing::info!("ready");
    tell(State::Ready);
    let mut standing = service.handle().standing();
    let term = service.standing().term;
    tokio::select! {
        _ = stop.wait_for(|stops| *stops) => {
            tell(State::Stopping);
            false
        }
        _ = standing.wait_for(|now| now.term != term) => true,
    }
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
