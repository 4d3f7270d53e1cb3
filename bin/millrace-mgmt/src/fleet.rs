//! The agent of a fleet: a thread that follows this switch's document in etcd, and two that wake it.
//!
//! ```text
//!  etcd ◀── watch (20 s at most) ── wakes ─▶ agent: read, judge, commit unconfirmed, confirm, answer
//!  switch ─ events of the state ─── wakes ─▶   │
//!                                              └─▶ every 10 s without being woken
//! ```
//!
//! A watch decides nothing: each decision is made on what a linearizable read returned. So a watch that hangs, or whose revisions are
//! compacted, costs seconds and never a change.

mod agent;
mod record;
mod switch;
mod wake;

use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, Result};
use millrace_api::client::Client as Rest;
use millrace_etcd::{Client, Keys, Settings, Woken};
use millrace_fleet::{Keyspace, check_name};
use millrace_program::host_name;

use agent::Agent;
use record::RecordFile;
use wake::Wake;

/// The longest time of one watch.
const WATCH: Duration = Duration::from_secs(20);
/// The pause after a failure of a thread that wakes the agent.
const PAUSE: Duration = Duration::from_secs(1);
/// Messages that wait for the agent. It reads everything anew, so one would do.
const QUEUE_LEN: usize = 4;
/// The kinds of the switch's state whose changes wake the agent.
const KINDS: &str = "revisions,confirmation,links,shortfalls";

/// The parts that need rights.
pub(crate) struct Prepared {
    node: String,
    keys: Keyspace,
    etcd: Client,
    record: RecordFile,
}

impl Prepared {
    /// Returns the folder in which the agent writes.
    pub(crate) fn folder(&self) -> &Path {
        self.record.folder()
    }
}

/// Checks the settings, and reads their files.
pub(crate) fn check(settings: &Settings) -> Result<Option<(String, Client)>> {
    if !settings.enabled {
        return Ok(None);
    }
    let etcd = Client::new(settings).context("etcd")?;
    let node = match &settings.node {
        Some(node) => node.clone(),
        None => host_name().context("etcd")?,
    };
    check_name(&node).context("etcd.node")?;
    Ok(Some((node, etcd)))
}

/// Returns what the threads need, if the section is enabled: before the process drops its rights.
pub(crate) fn prepare(settings: &Settings) -> Result<Option<Prepared>> {
    let Some((node, etcd)) = check(settings)? else {
        return Ok(None);
    };
    Ok(Some(Prepared {
        node,
        keys: Keyspace::new(&settings.prefix),
        etcd,
        record: RecordFile::open(&settings.state).context("etcd.state")?,
    }))
}

/// The running agent.
pub(crate) struct Running {
    wakes: SyncSender<Wake>,
    agent: JoinHandle<()>,
}

impl Running {
    /// Ends the agent, which gives its lease back so that its successor need not wait for the end of it.
    pub(crate) fn stop(self) {
        if self.wakes.send(Wake::Stop).is_ok() {
            let _ = self.agent.join();
        }
    }
}

/// Starts the threads.
pub(crate) fn start(prepared: Prepared, switch: &Rest) -> Result<Running> {
    let (wakes, woken) = sync_channel(QUEUE_LEN);
    let thread = |name: &str, work: Box<dyn FnOnce() + Send>| {
        let builder = std::thread::Builder::new().name(name.to_owned());
        builder
            .spawn(work)
            .with_context(|| format!("a thread for {name}"))
    };
    let Prepared {
        node,
        keys,
        etcd,
        record,
    } = prepared;
    let (watcher, sender, key) = (etcd.clone(), wakes.clone(), Keys::One(keys.config(&node)));
    thread("fleet-watch", Box::new(move || watch(watcher, &key, &sender)))?;
    let (rest, sender) = (switch.clone(), wakes.clone());
    thread("fleet-switch", Box::new(move || follow(&rest, &sender)))?;
    let rest = switch.clone();
    let agent = thread(
        "fleet",
        Box::new(move || {
            let mut agent = Agent::new(node, keys, etcd, rest, record);
            serve(&mut agent, &woken);
        }),
    )?;
    Ok(Running { wakes, agent })
}

fn serve(agent: &mut Agent, woken: &Receiver<Wake>) {
    let mut wakes = vec![Wake::Document];
    loop {
        if wakes.contains(&Wake::Stop) {
            return agent.stop();
        }
        agent.turn(&wakes);
        wakes.clear();
        match woken.recv_timeout(agent.patience()) {
            Ok(wake) => wakes.push(wake),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        wakes.extend(woken.try_iter());
    }
}

/// Wakes the agent when the document is written.
fn watch(mut etcd: Client, key: &Keys, wakes: &SyncSender<Wake>) {
    let mut known = None;
    loop {
        let outcome = etcd.keys(std::slice::from_ref(key)).and_then(|read| {
            let written = read.kvs.first().map(|kv| kv.mod_revision);
            if known.replace((read.cluster.clone(), written)) != Some((read.cluster, written)) {
                // A full queue wakes as well.
                let _ = wakes.try_send(Wake::Document);
            }
            etcd.watch(key, read.revision, WATCH)
        });
        match outcome {
            Ok(Woken::Changed | Woken::Quiet) => {}
            Err(error) => {
                tracing::debug!(%error, "etcd: the watch ended");
                std::thread::sleep(PAUSE);
            }
        }
    }
}

/// Wakes the agent when the state of the switch changes.
fn follow(switch: &Rest, wakes: &SyncSender<Wake>) {
    loop {
        if let Ok(events) = switch.state_events(KINDS) {
            for _ in events {
                let _ = wakes.try_send(Wake::Switch);
            }
        }
        // The switch ended: its state is another one.
        let _ = wakes.try_send(Wake::Switch);
        std::thread::sleep(PAUSE);
    }
}
