//! The stream of events; each account gets only the events that it may know of.
//!
//! ```text
//!  engine --broadcast--> EventLog: serial, objects, and the accounts that may know of each object
//!                           |              (now, and before the transaction: the object may be gone)
//!                           +--> stream of a session: events after Last-Event-ID, filtered, then new ones
//! ```
//! The id of an event is `BOOT-SERIAL`. A stream that asks for an event from an earlier start of the process,
//! or for an event that is no longer kept, gets `reset`. The client then reads everything again.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use millrace_ix_model::{AccountId, Exchange, ObjectId, Timestamp};
use parking_lot::Mutex;
use tokio::sync::{broadcast, watch};

use crate::engine::Engine;
use crate::service::Event;

/// The maximum number of events that are kept for clients that reconnect.
const KEPT: usize = 8192;

/// An event, and the accounts that may know of it.
#[derive(Debug)]
pub(crate) struct Logged {
    pub(crate) serial: u64,
    pub(crate) kind: &'static str,
    pub(crate) change: Option<u64>,
    pub(crate) at: Timestamp,
    /// The objects of the event, each with the accounts that may know of it.
    pub(crate) objects: Vec<(ObjectId, Arc<BTreeSet<AccountId>>)>,
}

/// The accounts that may know of objects, for one exchange before a transaction and one after it. Several events of a change
/// follow each other, and concern the same objects.
#[derive(Debug, Default)]
struct Audiences {
    before: Arc<Exchange>,
    after: Arc<Exchange>,
    found: BTreeMap<ObjectId, Arc<BTreeSet<AccountId>>>,
}

impl Audiences {
    /// Returns the accounts that may know of an object, before or after.
    fn of(
        &mut self,
        object: ObjectId,
        before: &Arc<Exchange>,
        after: &Arc<Exchange>,
    ) -> Arc<BTreeSet<AccountId>> {
        if !Arc::ptr_eq(before, &self.before) || !Arc::ptr_eq(after, &self.after) {
            *self = Audiences {
                before: Arc::clone(before),
                after: Arc::clone(after),
                found: BTreeMap::new(),
            };
        }
        let audience = self.found.entry(object).or_insert_with(|| {
            let mut audience = BTreeSet::new();
            collect_audience(before, object, &mut audience);
            if !Arc::ptr_eq(before, after) {
                collect_audience(after, object, &mut audience);
            }
            Arc::new(audience)
        });
        Arc::clone(audience)
    }
}

/// The log of the newest events.
#[derive(Debug)]
pub(crate) struct EventLog {
    /// A random number of this start of the process, by which ids from an earlier start are recognised.
    boot: u64,
    kept: Mutex<VecDeque<Arc<Logged>>>,
    newest: watch::Sender<u64>,
}

impl EventLog {
    /// Starts and returns a log that follows the engine until the engine ends.
    pub(crate) fn start(engine: Arc<Engine>) -> Arc<EventLog> {
        let boot = crate::session::random::<6>().unwrap_or_default();
        let boot = boot
            .iter()
            .fold(0, |number: u64, byte| number << 8 | u64::from(*byte));
        let log = Arc::new(EventLog {
            boot,
            kept: Mutex::new(VecDeque::new()),
            newest: watch::Sender::new(0),
        });
        let receiver = engine.subscribe();
        tokio::spawn(follow(Arc::downgrade(&log), engine, receiver));
        log
    }

    /// Returns the serial number of the newest event.
    pub(crate) fn newest(&self) -> u64 {
        *self.newest.borrow()
    }

    /// Returns the id of the event with this serial number.
    pub(crate) fn id(&self, serial: u64) -> String {
        format!("{:x}-{serial}", self.boot)
    }

    /// Returns the serial number in an id; `None` if the id is from another start of the process.
    pub(crate) fn serial(&self, id: &str) -> Option<u64> {
        let (boot, serial) = id.split_once('-')?;
        (u64::from_str_radix(boot, 16).ok()? == self.boot)
            .then(|| serial.parse().ok())
            .flatten()
    }

    /// Returns a receiver that watches the newest serial number.
    pub(crate) fn watch(&self) -> watch::Receiver<u64> {
        self.newest.subscribe()
    }

    /// Returns the events after a serial number; `None` if some of them are no longer kept.
    pub(crate) fn after(&self, serial: u64) -> Option<Vec<Arc<Logged>>> {
        let kept = self.kept.lock();
        let oldest = kept
            .front()
            .map_or_else(|| self.newest() + 1, |event| event.serial);
        if serial > self.newest() || serial + 1 < oldest {
            return None;
        }
        let skip = usize::try_from(serial + 1 - oldest).unwrap_or(usize::MAX);
        Some(kept.iter().skip(skip).cloned().collect())
    }

    /// Returns the serial number of the oldest event that is kept.
    pub(crate) fn oldest(&self) -> u64 {
        let kept = self.kept.lock();
        kept.front()
            .map_or_else(|| self.newest() + 1, |event| event.serial)
    }

    /// Returns all events that are kept.
    pub(crate) fn kept(&self) -> Option<Vec<Arc<Logged>>> {
        let kept = self.kept.lock();
        Some(kept.iter().cloned().collect())
    }

    fn push(&self, event: &Event, after: &Arc<Exchange>, audiences: &mut Audiences) {
        let objects = event.objects.iter();
        let objects = objects.map(|object| (*object, audiences.of(*object, &event.before, after)));
        let objects = objects.collect();
        let mut kept = self.kept.lock();
        let serial = self.newest() + 1;
        kept.push_back(Arc::new(Logged {
            serial,
            kind: event.kind,
            change: event.change,
            at: now(),
            objects,
        }));
        if kept.len() > KEPT {
            kept.pop_front();
        }
        // The lock is still held, so that readers see the event and its serial number together.
        self.newest.send_replace(serial);
    }

    /// Removes all events, because some were missed. Clients then read everything again.
    fn reset(&self) {
        let mut kept = self.kept.lock();
        kept.clear();
        self.newest.send_modify(|serial| *serial += 1);
    }
}

fn now() -> Timestamp {
    Timestamp::from(std::time::SystemTime::now())
}

async fn follow(
    log: std::sync::Weak<EventLog>,
    engine: Arc<Engine>,
    mut receiver: broadcast::Receiver<Arc<Event>>,
) {
    let mut audiences = Audiences::default();
    loop {
        let event = receiver.recv().await;
        let Some(log) = log.upgrade() else {
            return;
        };
        match event {
            Ok(event) => log.push(&event, &engine.snapshot().exchange, &mut audiences),
            Err(broadcast::error::RecvError::Lagged(missed)) => {
                tracing::warn!(missed, "events were missed; streams begin again");
                log.reset();
            }
            Err(broadcast::error::RecvError::Closed) => return,
        }
    }
}

/// Adds the accounts that may read an object: its owner, the other party of its service, and the resellers above them.
///
/// The table of the model decides: an account is added if one of its possible members may read the object.
fn collect_audience(exchange: &Exchange, object: ObjectId, audience: &mut BTreeSet<AccountId>) {
    let mut parties: BTreeSet<AccountId> = BTreeSet::new();
    let service = match object {
        ObjectId::Service(id) => Some(id),
        ObjectId::Config(id) => exchange.configs.get(&id).map(|config| config.service),
        ObjectId::Mac(id) => exchange
            .macs
            .get(&id)
            .and_then(|mac| exchange.configs.get(&mac.config))
            .map(|config| config.service),
        ObjectId::Ip(id) => exchange
            .ips
            .get(&id)
            .and_then(|ip| exchange.configs.get(&ip.config))
            .map(|config| config.service),
        ObjectId::ServiceKey(id) => exchange.service_keys.get(&id).map(|key| key.service),
        ObjectId::Account(id) => {
            parties.insert(id);
            None
        }
        ObjectId::User(id) => {
            parties.extend(exchange.users.get(&id).map(|user| user.account));
            None
        }
        ObjectId::Connection(id) => {
            parties.extend(exchange.connections.get(&id).map(|connection| connection.account));
            None
        }
        ObjectId::Filter(id) => {
            parties.extend(exchange.filters.get(&id).map(|filter| filter.account));
            None
        }
        ObjectId::Site(_)
        | ObjectId::Switch(_)
        | ObjectId::Trunk(_)
        | ObjectId::Policy(_)
        | ObjectId::Approval(_) => None,
    };
    if let Some(service) = service {
        let found = exchange.services.get(&service);
        parties.extend(found.map(|service| service.account));
        parties.extend(found.and_then(|service| service.peer));
        parties.extend(exchange.ends(service).map(|(_, config)| config.account));
    }
    let mut accounts = parties;
    let mut above: Vec<AccountId> = accounts.iter().copied().collect();
    while let Some(id) = above.pop() {
        let parent = exchange.accounts.get(&id).and_then(|account| account.parent);
        if let Some(parent) = parent
            && accounts.insert(parent)
        {
            above.push(parent);
        }
    }
    for account in accounts {
        let Some(kind) = exchange.accounts.get(&account).map(|account| account.kind) else {
            continue;
        };
        let actor = millrace_ix_model::Actor {
            user: None,
            account: Some(account),
            proven_asns: std::collections::BTreeSet::new(),
            roles: millrace_ix_model::Role::ALL
                .into_iter()
                .filter(|role| role.suits(kind))
                .collect(),
        };
        if exchange.may_read(&actor, object) {
            audience.insert(account);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    #[test]
    fn an_event_of_an_object_that_is_gone_reaches_those_whom_it_concerned() {
        let before = Arc::new(crate::demo::demo().unwrap());
        let shared = before.services.iter().find(|(_, service)| service.peer.is_some());
        let (id, service) = shared.unwrap();
        let log = EventLog {
            boot: 1,
            kept: Mutex::new(VecDeque::new()),
            newest: watch::Sender::new(0),
        };
        // The newest snapshot no longer has the object, and another event of the same batch comes first.
        let (after, mut audiences) = (Arc::default(), Audiences::default());
        for objects in [Vec::new(), vec![ObjectId::from(*id)]] {
            let event = Event {
                kind: "object",
                objects,
                change: None,
                before: Arc::clone(&before),
            };
            log.push(&event, &after, &mut audiences);
        }
        let kept = log.kept().unwrap();
        let (_, audience) = &kept[1].objects[0];
        assert!(audience.contains(&service.account) && audience.contains(&service.peer.unwrap()));
    }
}
