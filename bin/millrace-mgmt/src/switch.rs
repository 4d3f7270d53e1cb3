//! The switch behind the front ends: its REST API, with the author and the lock of each session.

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use millrace_agentx::Numbers;
use millrace_api::client::{ChangeOptions, Client as Rest, ClientError, Event};
use millrace_api::view::{LockTaken, Port, Problem, RouterInterface, format_utc};
use millrace_yang::datastore::{Change, Datastore, Failure, Pending, Snapshot};
use parking_lot::Mutex;
use serde_json::{Map, Value as Json, json};

use crate::settings::Settings;

/// Two times of the start of the daemon that are nearer than this are one.
const STARTED_APART: Duration = Duration::from_secs(2);

/// Returns a client of the switch that the settings name.
pub(crate) fn connect(settings: &Settings) -> Result<Rest> {
    let token = settings.token_file.as_deref().map(token).transpose()?;
    Rest::new(&settings.switch, token, None).context("switch")
}

fn token(path: &Path) -> Result<String> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let line = text.lines().next().context("the token file is empty")?;
    Ok(line.trim().to_owned())
}

/// The switch for one session: the author of its changes, and its lock.
pub(crate) struct Session {
    rest: Rest,
    author: String,
    /// The stream that holds the lock while it is open.
    lock: Option<Box<dyn Iterator<Item = Event>>>,
}

impl Session {
    /// Returns the switch for the changes of `author`.
    pub(crate) fn new(rest: &Rest, author: &str) -> Session {
        Session {
            rest: rest.clone(),
            author: author.to_owned(),
            lock: None,
        }
    }

    fn options(&self, change: &Change) -> ChangeOptions {
        ChangeOptions {
            dry_run: change.dry_run,
            confirm_within: change.confirm_within,
            author: self.author.clone(),
            comment: change.comment.clone(),
            ..ChangeOptions::default()
        }
    }
}

/// Returns the failure that an error of REST is.
pub(crate) fn failure(error: ClientError) -> Failure {
    match error {
        ClientError::Problem(problem) => of_problem(&problem),
        other => Failure::Unavailable(other.to_string()),
    }
}

fn of_problem(problem: &Problem) -> Failure {
    let mut text = problem.detail.clone();
    for error in &problem.errors {
        let line = format!("{}: {}", error.pointer, error.detail);
        // The detail of a problem may be that of its only error, or all of them.
        if !text.contains(&line) {
            text.push_str(&format!("\n{line}"));
        }
    }
    if let Some(next_step) = &problem.next_step {
        text.push_str(&format!(": {next_step}"));
    }
    match (problem.status, problem.kind.as_ref()) {
        (409, "/problems/owned") => Failure::Owned(text),
        (409, _) => Failure::Conflict(text),
        (412, _) => Failure::Stale(text),
        (413, _) => Failure::TooLarge(text),
        (423, _) => Failure::Locked(text),
        (400 | 422, _) => Failure::Invalid(text),
        _ => Failure::Unavailable(text),
    }
}

impl Datastore for Session {
    fn running(&mut self) -> Result<Snapshot, Failure> {
        let (document, revision) = self.rest.config().map_err(failure)?;
        match document {
            Json::Object(document) => Ok(Snapshot { revision, document }),
            _ => Err(Failure::Unavailable(
                "the configuration of the switch is no object".to_owned(),
            )),
        }
    }

    fn replace(&mut self, document: &Map<String, Json>, base: u64, change: &Change) -> Result<u64, Failure> {
        let document = Json::Object(document.clone());
        let done = self
            .rest
            .replace_config(&document, Some(base), &self.options(change));
        done.map(|done| done.revision.number).map_err(failure)
    }

    fn pending(&mut self) -> Result<Option<Pending>, Failure> {
        let Some(pending) = self.rest.confirmation().map_err(failure)?.pending else {
            return Ok(None);
        };
        let revision = self.rest.revision(pending.revision).map_err(failure)?.revision;
        Ok(Some(Pending {
            revision: revision.number,
            comment: revision.comment,
        }))
    }

    fn confirm(&mut self, revision: u64) -> Result<(), Failure> {
        self.rest.confirm(Some(revision)).map(drop).map_err(failure)
    }

    fn cancel(&mut self, revision: u64, comment: &str) -> Result<(), Failure> {
        let change = Change {
            comment: comment.to_owned(),
            ..Change::default()
        };
        self.rest
            .cancel(Some(revision), &self.options(&change))
            .map(drop)
            .map_err(failure)
    }

    fn lock(&mut self) -> Result<(), Failure> {
        let mut held = self.rest.hold_lock(&self.author).map_err(failure)?;
        let first = held.next();
        let taken = first.and_then(|event| serde_json::from_str::<LockTaken>(&event.data).ok());
        let token = taken
            .ok_or_else(|| Failure::Unavailable("the switch ended the session of the lock".to_owned()))?;
        self.rest = self.rest.clone().with_lock(Some(token.token));
        self.lock = Some(Box::new(held));
        Ok(())
    }

    fn unlock(&mut self) -> Result<(), Failure> {
        let released = self.rest.release_lock(false);
        self.rest = self.rest.clone().with_lock(None);
        self.lock = None;
        match released {
            // Somebody broke the lock: it is free already.
            Err(ClientError::Problem(problem)) if problem.status == 409 => Ok(()),
            other => other.map(drop).map_err(failure),
        }
    }

    fn state(&mut self) -> Result<Map<String, Json>, Failure> {
        let (document, revision) = self.rest.config().map_err(failure)?;
        state(&self.rest, &document, revision, None)
    }
}

/// Returns the state of the running ports, as the schema has it. `document` is the configuration of `revision`; `known_start` is the
/// start of the daemon, of a caller that would have heard of another one.
pub(crate) fn state(
    rest: &Rest,
    document: &Json,
    revision: u64,
    known_start: Option<String>,
) -> Result<Map<String, Json>, Failure> {
    let mut found = Vec::new();
    for bridge in rest.bridges().map_err(failure)? {
        // A bridge may go between the two requests.
        match rest.ports(&bridge.name) {
            Ok(of_bridge) => found.extend(of_bridge),
            Err(ClientError::Problem(problem)) if problem.status == 404 => {}
            Err(error) => return Err(failure(error)),
        }
    }
    // Most switches have no router: they are not asked for its interfaces.
    let has_interfaces = document["interface"]
        .as_array()
        .is_some_and(|list| !list.is_empty());
    let interfaces = match has_interfaces {
        true => rest.router_interfaces().map_err(failure)?,
        false => Vec::new(),
    };
    let names = found.iter().map(name_of);
    let numbers = Numbers::of(names.chain(interfaces.iter().map(|one| one.name.clone())));
    let ports: Json = found.iter().map(|one| port(one, &numbers)).collect();
    let interfaces: Json = interfaces.iter().map(|one| interface(one, &numbers)).collect();
    let start = match known_start {
        Some(start) => start,
        None => started(rest.version().map_err(failure)?.uptime_seconds),
    };
    Ok(Map::from_iter([
        ("started".to_owned(), json!(start)),
        ("revision".to_owned(), json!(revision)),
        ("port".to_owned(), ports),
        ("interface".to_owned(), interfaces),
    ]))
}

/// Returns the name of a port as an interface.
fn name_of(port: &Port) -> String {
    format!("{}/{}", port.bridge, port.name)
}

/// Returns the time at which the daemon started, in the form of RFC 3339. Two readings of one time differ by what they took: the one
/// before is kept then, because the counters have not been reset.
fn started(uptime: f64) -> String {
    static KNOWN: Mutex<Option<SystemTime>> = Mutex::new(None);
    let mut known = KNOWN.lock();
    let before = Duration::try_from_secs_f64(uptime).unwrap_or_default();
    let found = SystemTime::now().checked_sub(before).unwrap_or(UNIX_EPOCH);
    let is_known = |time: &SystemTime| {
        let distance = time
            .duration_since(found)
            .or_else(|error| Ok::<_, ()>(error.duration()));
        distance.is_ok_and(|distance| distance < STARTED_APART)
    };
    let time = *known.get_or_insert(found);
    let time = if is_known(&time) { time } else { found };
    *known = Some(time);
    format_utc(time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()).replace(' ', "T")
}

fn port(port: &Port, numbers: &Numbers) -> Json {
    let counters = |counters: &millrace_api::view::Counters| {
        json!({
            "packets": counters.packets, "bytes": counters.bytes, "drops": counters.drops, "errors": counters.errors,
        })
    };
    json!({
        "bridge": port.bridge, "name": port.name, "number": port.number, "if_index": numbers.get(&name_of(port)),
        "device": port.device, "driver": port.driver, "mac": port.mac, "mtu": port.mtu, "admin": port.admin, "link": port.link,
        "speed_bps": port.speed_bps, "rx": counters(&port.rx), "tx": counters(&port.tx),
    })
}

fn interface(interface: &RouterInterface, numbers: &Numbers) -> Json {
    let dropped: u64 = interface.drops.iter().map(|drop| drop.packets).sum();
    json!({
        "name": interface.name, "if_index": numbers.get(&interface.name), "mac": interface.mac,
        "link": if interface.up { "up" } else { "down" },
        "rx": {"packets": interface.rx_packets, "bytes": interface.rx_bytes, "drops": dropped, "errors": 0},
        "tx": {"packets": interface.tx_packets, "bytes": interface.tx_bytes, "drops": 0, "errors": 0},
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use millrace_api::view::ProblemKind;

    #[test]
    fn each_problem_of_rest_is_the_failure_that_front_ends_act_on() {
        let of = |kind| of_problem(&Problem::new(kind, "x"));
        assert!(matches!(of(ProblemKind::Invalid), Failure::Invalid(_)));
        assert!(matches!(of(ProblemKind::Owned), Failure::Owned(_)));
        assert!(matches!(of(ProblemKind::Conflict), Failure::Conflict(_)));
        assert!(matches!(of(ProblemKind::Locked), Failure::Locked(_)));
        assert!(matches!(of(ProblemKind::Stale), Failure::Stale(_)));
        assert!(matches!(of(ProblemKind::TooLarge), Failure::TooLarge(_)));
        assert!(matches!(of(ProblemKind::Unauthorized), Failure::Unavailable(_)));
    }
}
