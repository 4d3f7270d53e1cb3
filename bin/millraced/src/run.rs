//! Life cycle of the daemon: store, workers, reconciliation and API are started in this order and stopped in reverse.

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result};
use millrace_agent::keep::Keeper;
use millrace_agent::{Observation, Switch};
use millrace_api::server::{BoundServer, Settings};
use millrace_api::view;
use millrace_datapath::io::Backend;
use millrace_datapath::{Datapath, Idle, Spread, Workers};
use millrace_model::{self as model, System};
use millrace_notify::{State, notify};
use millrace_store::{Snapshot, Store};
use tokio::sync::watch;

use crate::live::{LiveSwitch, observer};
use crate::log::Log;
use crate::machine::Machine;
use crate::start::{Start, unix_now};

/// The interval between attempts to correct differences between running and desired state.
const RETRY: std::time::Duration = std::time::Duration::from_secs(5);

/// The directory of saved flow entries, in the state directory.
const FLOWS_DIRECTORY: &str = "flows";

/// Runs the switch until SIGINT or SIGTERM.
pub(crate) fn run<B: Backend>(
    backend: Arc<B>,
    start: &Start,
    machine: Machine,
    log: Arc<Log>,
    dpdk: Option<view::Dpdk>,
) -> Result<()> {
    let started = Instant::now();
    let workers = workers(&start.config().system);
    millrace_chain::use_user_ids(millrace_chain::UserIds {
        first: start.config().system.function_uid_base.get(),
        ..millrace_chain::UserIds::DEFAULT
    });
    workers.leave_cores();
    let datapath = Arc::new(Datapath::start(backend, &workers)?);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("control")
        .enable_all()
        .build()
        .context("the runtime of the control plane")?;
    let seed = seed()?;
    let switch = Arc::new(Switch::new(datapath, runtime.handle().clone(), seed));
    switch.keep(Keeper::new(
        start.state_dir().join(FLOWS_DIRECTORY),
        start.config().system.keep_flows,
    ));
    let live = LiveSwitch::new(Arc::clone(&switch), start, machine, log, started, dpdk);
    let outcome = runtime.block_on(serve(Arc::clone(&switch), start, Arc::new(live)));
    // The newest revision decides: an operator who changed the key wants it at the next start.
    switch.stop(start.store().head().config.system.keep_flows);
    runtime.shutdown_timeout(std::time::Duration::from_secs(2));
    millrace_chain::end_processes();
    tracing::info!("stopped");
    outcome
}

/// Returns true if an Open vSwitch database has columns for what changed.
fn is_shown_in_database(observation: &Observation<'_>) -> bool {
    match observation {
        Observation::Port { .. }
        | Observation::PortGone { .. }
        | Observation::Member { .. }
        | Observation::MemberGone { .. }
        | Observation::Channels { .. }
        | Observation::BridgeGone { .. } => true,
        Observation::Neighbour { .. } | Observation::RouterNeighbour { .. } | Observation::Lldp { .. } => {
            false
        }
    }
}

/// Rolls unconfirmed revisions back at their deadlines if no REST server does so.
async fn keep_time(store: Store) {
    let mut second = tokio::time::interval(std::time::Duration::from_secs(1));
    loop {
        second.tick().await;
        let store = store.clone();
        let tick = tokio::task::spawn_blocking(move || store.tick(unix_now())).await;
        if let Ok(Err(error)) = tick {
            tracing::warn!(%error, "the store cannot roll an unconfirmed revision back");
        }
    }
}

async fn serve<B: Backend>(switch: Arc<Switch<B>>, start: &Start, live: Arc<LiveSwitch<B>>) -> Result<()> {
    let (config, store) = (start.config(), start.store().clone());
    // The API starts first, so that an address in use is reported before any device is opened.
    let api = match config.api.enabled {
        false => None,
        true => {
            let settings = Settings::from_config(&config.api, start.state_dir())?;
            Some(BoundServer::bind(settings, Arc::clone(&live) as Arc<_>, store.clone()).await?)
        }
    };
    let journal = api.as_ref().map(BoundServer::journal);
    let follower = live.follower().clone();
    switch.observe(Arc::new({
        let (journal, follower) = (journal.map(observer), follower.clone());
        move |observation| {
            if let Some(journal) = &journal {
                journal(observation);
            }
            if is_shown_in_database(observation) {
                follower.wake();
            }
        }
    }));
    start.commit_start()?;
    let (stop, stopping) = watch::channel(false);
    let reconciler = tokio::task::spawn_blocking({
        let (switch, wanted, runtime) = (
            Arc::clone(&switch),
            store.watch(),
            tokio::runtime::Handle::current(),
        );
        let stopping = stopping.clone();
        move || reconcile(&switch, wanted, stopping, &runtime)
    });
    let following = tokio::spawn(follower.run(store.clone(), live, stopping.clone()));
    let timekeeper = api.is_none().then(|| tokio::spawn(keep_time(store.clone())));
    let api = api.map(|bound| {
        let socket = bound.socket().display();
        match bound.address() {
            None => tracing::info!(%socket, "REST API"),
            Some(address) => tracing::info!(%socket, %address, "REST API"),
        }
        let mut stopping = stopping.clone();
        tokio::spawn(bound.run(async move {
            // An error means that the sender of the stop signal was dropped, which stops the daemon, too.
            let _stopped = stopping.wait_for(|stop| *stop).await;
        }))
    });
    wait_for_signal().await?;
    tracing::info!("stopping");
    tell(State::Stopping);
    stop.send_replace(true);
    if let Some(timekeeper) = timekeeper {
        timekeeper.abort();
    }
    if let Some(api) = api {
        api.await.context("the REST API panicked")?;
    }
    following.await.context("the follower of the database panicked")?;
    reconciler.await.context("reconciliation panicked")?;
    Ok(())
}

/// Reconciles the switch with each revision of the store, and again when another program has taken away what it made; retries
/// failed changes.
fn reconcile<B: Backend>(
    switch: &Switch<B>,
    mut wanted: watch::Receiver<Arc<Snapshot>>,
    mut stopping: watch::Receiver<bool>,
    runtime: &tokio::runtime::Handle,
) {
    let mut is_first = true;
    let mut settled = None;
    let mut before: Option<Arc<Snapshot>> = None;
    let mut disturbances = switch.disturbances();
    loop {
        let snapshot = Arc::clone(&wanted.borrow_and_update());
        let revision = snapshot.revision.number.0;
        // A confirmation, or a number of an origin, changes the snapshot and not its content.
        if settled != Some(revision) {
            let status = switch.apply(revision, &snapshot.config);
            let of = &snapshot.revision;
            tracing::info!(
                revision,
                origin = %of.origin,
                author = of.author,
                comment = of.comment,
                changes = changes(before.as_deref(), &snapshot),
                problems = status.problems.len(),
                "configuration applied"
            );
            before = Some(Arc::clone(&snapshot));
            // Problems do not delay the start: the rest of the configuration runs.
            if std::mem::take(&mut is_first) {
                tell(State::Ready);
            }
            settled = status.problems.is_empty().then_some(revision);
        }
        let go_on = runtime.block_on(async {
            tokio::select! {
                _ = stopping.wait_for(|stop| *stop) => false,
                changed = wanted.changed() => changed.is_ok(),
                Ok(()) = disturbances.changed() => {
                    settled = None;
                    true
                }
                () = tokio::time::sleep(RETRY), if settled.is_none() => true,
            }
        });
        if !go_on {
            return;
        }
    }
}

/// The longest text of changes in the log, in bytes.
const CHANGES_MAX: usize = 1000;

/// Returns the changes of a person's revision as text; empty for those of machines, which come by the hundred, and for the first.
fn changes(before: Option<&Snapshot>, now: &Snapshot) -> String {
    let Some(before) = before.filter(|before| before.revision.number != now.revision.number) else {
        return String::new();
    };
    if !now.revision.origin.is_local() {
        return String::new();
    }
    let mut text = String::new();
    for change in millrace_model::diff(&before.config, &now.config) {
        let change = change.to_string();
        if text.len() + change.len() > CHANGES_MAX {
            text.push_str("; …");
            break;
        }
        if !text.is_empty() {
            text.push_str("; ");
        }
        text.push_str(&change);
    }
    text
}

/// Tells the service manager the state of the daemon.
fn tell(state: State) {
    if let Err(error) = notify(state) {
        tracing::warn!(%error, ?state, "the service manager was not told");
    }
}

/// Waits for the signal that ends the daemon, and opens exported files again on SIGHUP.
async fn wait_for_signal() -> Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate()).context("SIGTERM cannot be handled")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("SIGINT cannot be handled")?;
    let mut hangup = signal(SignalKind::hangup()).context("SIGHUP cannot be handled")?;
    loop {
        tokio::select! {
            _ = terminate.recv() => return Ok(()),
            _ = interrupt.recv() => return Ok(()),
            // SIGHUP reports that log rotation renamed the files that functions write.
            _ = hangup.recv() => millrace_chain::reopen_exports(),
        }
    }
}

fn workers(settings: &System) -> Workers {
    let cores: Vec<_> = settings
        .worker_cores
        .iter()
        .map(|core| Some(usize::from(core.get())))
        .collect();
    let cores = if cores.is_empty() {
        vec![None; settings.workers.map_or(1, |workers| usize::from(workers.get()))]
    } else {
        cores
    };
    let idle = match settings.idle {
        model::Idle::Adaptive => Idle::Adaptive,
        model::Idle::Busy => Idle::Busy,
    };
    let spread = match settings.spread {
        model::Spread::Off => Spread::Off,
        model::Spread::Auto => Spread::Auto,
        model::Spread::Always => Spread::Always,
    };
    Workers { cores, idle, spread }
}

/// Returns the random seed of the hash tables, which packet senders must not know.
fn seed() -> Result<u64> {
    let mut bytes = [0; 8];
    let mut source = std::fs::File::open("/dev/urandom").context("/dev/urandom")?;
    std::io::Read::read_exact(&mut source, &mut bytes).context("/dev/urandom")?;
    Ok(u64::from_ne_bytes(bytes))
}
