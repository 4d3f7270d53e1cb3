//! The driver: a connection with the master agent, the state of the switch, at most one second old when somebody asks, and the links
//! when the switch tells that they changed.

use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use millrace_api::client::{Client, ClientError, RouteOptions};
use millrace_api::view::Bridge;

use crate::objects::Objects;
use crate::session::Session;
use crate::tables::{Snapshot, subtrees};

/// The age at which the state is read again.
const FRESH: Duration = Duration::from_secs(1);
/// The interval at which links are compared for linkUp and linkDown, if one may have changed.
const LOOK: Duration = Duration::from_secs(1);
/// The interval at which they are compared without an event.
const LOOK_MAX: Duration = Duration::from_secs(60);
/// The kinds of state whose events tell of links.
const KINDS: &str = "ports,links";
/// The pause before the stream of events is opened again.
const RECONNECT: Duration = Duration::from_millis(500);
/// The longest time for which the master agent may read nothing.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);
/// The interval at which the master agent is asked if it is there.
const PING: Duration = Duration::from_secs(15);
/// The pause before the master agent is connected again, which doubles.
const PAUSE_MIN: Duration = Duration::from_millis(250);
const PAUSE_MAX: Duration = Duration::from_secs(8);
/// The most routes of IP-FORWARD-MIB: a full table is no use to a walk.
const ROUTES_MAX: usize = 10_000;

/// The settings of the subagent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The socket of the master agent.
    pub master: PathBuf,
    /// The context of the objects; empty is the default one, which snmpd fills with the kernel's interfaces.
    pub context: String,
    /// The bridge of BRIDGE-MIB and Q-BRIDGE-MIB; the first by name without one.
    pub bridge: Option<String>,
    /// The name of the machine.
    pub host: String,
}

/// Serves for ever: connects, answers, and connects again. Never returns.
pub fn serve(settings: &Settings, switch: &Client) {
    let changed = Arc::new(AtomicBool::new(true));
    let follower = std::thread::Builder::new().name("agentx-events".to_owned());
    let spawned = follower.spawn({
        let (switch, changed) = (switch.clone(), Arc::clone(&changed));
        move || follow(&switch, &changed)
    });
    if let Err(error) = spawned {
        let seconds = LOOK_MAX.as_secs();
        tracing::error!(%error, "SNMP: no thread for the events of the switch: links are compared every {seconds} s");
    }
    let mut pause = PAUSE_MIN;
    let mut last = String::new();
    loop {
        let began = Instant::now();
        let reason = match session(settings, switch, &changed) {
            Ok(never) => match never {},
            Err(reason) => reason,
        };
        if reason != last {
            tracing::warn!(master = %settings.master.display(), reason, "the SNMP agent does not show the switch");
            last = reason;
        }
        if began.elapsed() > PAUSE_MAX {
            pause = PAUSE_MIN;
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

/// Follows the links of the switch for the rest of the process's life.
fn follow(switch: &Client, changed: &AtomicBool) {
    loop {
        if let Ok(events) = switch.state_events(KINDS) {
            // Everything that changed before the stream was open.
            changed.store(true, Ordering::Release);
            for _ in events {
                changed.store(true, Ordering::Release);
            }
        }
        changed.store(true, Ordering::Release);
        std::thread::sleep(RECONNECT);
    }
}

/// A value that does not exist.
enum Never {}

fn session(settings: &Settings, switch: &Client, changed: &AtomicBool) -> Result<Never, String> {
    let said = |error: io::Error| format!("{}: {error}", settings.master.display());
    let mut stream = UnixStream::connect(&settings.master).map_err(said)?;
    stream.set_read_timeout(Some(LOOK)).map_err(said)?;
    stream.set_write_timeout(Some(WRITE_TIMEOUT)).map_err(said)?;
    let mut session = Session::new("Millrace", &settings.context, &subtrees());
    let mut state = State::new(settings, switch, changed);
    let mut next_ping = Instant::now() + PING;
    let mut was_open = false;
    let mut buffer = vec![0; 1 << 16];
    loop {
        let output = session.take_output();
        stream.write_all(&output).map_err(said)?;
        match stream.read(&mut buffer) {
            Ok(0) => return Err("the master agent closed the connection".to_owned()),
            Ok(size) => {
                state.refresh();
                session
                    .receive(buffer.get(..size).unwrap_or_default(), &state.objects)
                    .map_err(|error| error.to_string())?;
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {}
            Err(error) => return Err(said(error)),
        }
        if session.is_open() && !was_open {
            was_open = true;
            tracing::info!(master = %settings.master.display(), context = settings.context, objects = state.objects.len(), "the SNMP agent shows the switch");
        }
        for bindings in state.link_changes() {
            session.notify(bindings);
        }
        if Instant::now() >= next_ping {
            next_ping = Instant::now() + PING;
            session.ping();
        }
    }
}

/// The state of the switch, and when it was read.
struct State<'a> {
    settings: &'a Settings,
    switch: &'a Client,
    /// True if a link may have changed since the last look.
    changed: &'a AtomicBool,
    objects: Objects,
    /// The time at which it was read; `None` if that failed.
    read: Option<Instant>,
    /// The links at the last look.
    compared: Snapshot,
    next_look: Instant,
    /// The time of the next look without an event.
    latest_look: Instant,
}

impl State<'_> {
    fn new<'a>(settings: &'a Settings, switch: &'a Client, changed: &'a AtomicBool) -> State<'a> {
        let mut state = State {
            settings,
            switch,
            changed,
            objects: Objects::default(),
            read: None,
            compared: Snapshot::default(),
            next_look: Instant::now(),
            latest_look: Instant::now(),
        };
        state.refresh();
        // Links that are met for the first time have not changed.
        state.link_changes();
        state
    }

    /// Reads the state if it is old. While the switch does not answer, there are no objects.
    fn refresh(&mut self) {
        if self.read.is_some_and(|read| read.elapsed() < FRESH) {
            return;
        }
        match snapshot(self.settings, self.switch) {
            Ok(snapshot) => {
                self.objects = snapshot.objects();
                self.read = Some(Instant::now());
            }
            Err(error) => {
                tracing::debug!(%error, "the switch does not answer: it has no objects");
                self.objects = Objects::default();
                self.read = None;
            }
        }
    }

    /// Returns the links that changed since the last look, if one may have changed.
    fn link_changes(&mut self) -> Vec<Vec<(crate::Oid, crate::Value)>> {
        let now = Instant::now();
        let is_due = || self.changed.swap(false, Ordering::AcqRel) || now >= self.latest_look;
        if now < self.next_look || !is_due() {
            return Vec::new();
        }
        (self.next_look, self.latest_look) = (now + LOOK, now + LOOK_MAX);
        let Ok((_, links)) = links(self.switch) else {
            self.changed.store(true, Ordering::Release);
            return Vec::new();
        };
        let changes = links.link_changes(&self.compared);
        self.compared = links;
        changes
    }
}

/// Reads the bridges, by name, and a snapshot with ports and LAGs alone.
fn links(switch: &Client) -> Result<(Vec<Bridge>, Snapshot), ClientError> {
    let mut bridges = switch.bridges()?;
    bridges.sort_by(|one, other| one.name.cmp(&other.name));
    let mut ports = Vec::new();
    for bridge in &bridges {
        match switch.ports(&bridge.name) {
            Ok(of_bridge) => ports.extend(of_bridge),
            // The bridge has gone between the two requests.
            Err(ClientError::Problem(problem)) if problem.status == 404 => {}
            Err(error) => return Err(error),
        }
    }
    let links = Snapshot {
        ports,
        lags: switch.lags()?,
        ..Snapshot::default()
    };
    Ok((bridges, links))
}

/// Reads the state of the switch.
fn snapshot(settings: &Settings, switch: &Client) -> Result<Snapshot, ClientError> {
    let (bridges, links) = links(switch)?;
    let chosen = match &settings.bridge {
        Some(name) => bridges.iter().find(|bridge| bridge.name == *name),
        None => bridges.first(),
    };
    let mut macs = Vec::new();
    let mut ageing_s = 0;
    if let Some(bridge) = chosen {
        macs = switch.macs(&bridge.name)?;
        ageing_s = ageing(switch, &bridge.name)?;
    }
    let vrfs = switch.vrfs()?;
    let routes = match vrfs.first() {
        Some(vrf) => {
            let options = RouteOptions {
                limit: Some(ROUTES_MAX),
                ..RouteOptions::default()
            };
            switch.routes(&vrf.name, &options)?.routes
        }
        None => Vec::new(),
    };
    Ok(Snapshot {
        host: settings.host.clone(),
        bridge: chosen.map(|bridge| bridge.name.clone()).unwrap_or_default(),
        dpid: chosen.map(|bridge| bridge.dpid.clone()).unwrap_or_default(),
        macs,
        ageing_s,
        routes,
        ..links
    })
}

/// Returns the ageing time of a bridge in seconds; 300 is the default of the model.
fn ageing(switch: &Client, bridge: &str) -> Result<u32, ClientError> {
    let (config, _) = switch.config()?;
    let bridges = config["bridge"].as_array().into_iter().flatten();
    let mut found = bridges.filter(|one| one["name"] == bridge);
    let age = found.next().and_then(|one| one["mac_ageing_s"].as_u64());
    Ok(age.and_then(|age| u32::try_from(age).ok()).unwrap_or(300))
}
