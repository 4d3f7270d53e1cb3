//! Subscriptions (gNMI, section 3.5): which values are due, compared with those that were sent.
//!
//! The driver reads the tree ([`View`]) and asks: [`Subscriptions::snapshot`] for the first values, for ONCE and for each POLL,
//! [`Subscriptions::changed`] when the switch says that something changed, [`Subscriptions::due`] when a time has come.
//!
//! | mode | counters | other values |
//! | --- | --- | --- |
//! | `SAMPLE` | at each interval | at each interval |
//! | `ON_CHANGE` | never: a path of counters alone is refused | when they change, and at each heartbeat |
//! | `TARGET_DEFINED` | every 10 s | when they change |

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value as Json;
use tonic::Status;

use crate::get::{PATHS_MAX, origin_of, target_only};
use crate::path::{Absolute, Step, to_proto};
use crate::proto::gnmi::subscription_list::Mode;
use crate::proto::gnmi::{Encoding, Notification, Path, SubscriptionList, SubscriptionMode, Update};
use crate::value::{encoding, typed};
use crate::view::{Leaf, Sample, Selection, View, leaves};

/// The shortest interval of samples: the switch reads counters no faster.
pub const INTERVAL_MIN: Duration = Duration::from_millis(100);
/// The interval of samples unless the client gives one.
pub const INTERVAL_DEFAULT: Duration = Duration::from_secs(10);
/// The number of updates of a message; more go into further ones.
const UPDATES_MAX: usize = 512;

/// A subscription of a path.
#[derive(Debug)]
struct Subscription {
    path: Absolute,
    origin: String,
    /// The interval of samples; `None` if values are sent when they change.
    sample: Option<Duration>,
    /// Counters are sampled and the rest is sent when it changes.
    is_target_defined: bool,
    suppresses: bool,
    heartbeat: Option<Duration>,
    next_sample: Duration,
    next_heartbeat: Duration,
    /// The values that were sent, where later ones are compared with them.
    sent: BTreeMap<Vec<Step>, Json>,
    /// The last sample, of a subscription whose samples are sent as a whole.
    shown: Option<Arc<Sample>>,
}

/// Returns the first multiple of an interval after `now`. Samples of all clients fall on the same times, so that one reading of the switch
/// serves them.
fn next_after(now: Duration, interval: Duration) -> Duration {
    let past = now.as_nanos() / interval.as_nanos().max(1);
    let next = (past + 1).saturating_mul(interval.as_nanos());
    u64::try_from(next).map_or(Duration::MAX, Duration::from_nanos)
}

/// True for each whose time has come.
struct Due {
    sample: bool,
    heartbeat: bool,
}

impl Subscription {
    /// Returns what is due, and sets the times of the next sample and heartbeat. A late one is not made up for.
    fn advance(&mut self, now: Duration) -> Due {
        let samples = self.sample.filter(|_| self.next_sample <= now);
        let beats = self.heartbeat.filter(|_| self.next_heartbeat <= now);
        if let Some(interval) = samples {
            self.next_sample = next_after(now, interval);
        }
        if let Some(interval) = beats {
            self.next_heartbeat = next_after(now, interval);
        }
        Due {
            sample: samples.is_some(),
            heartbeat: beats.is_some(),
        }
    }

    /// Returns true if each sample is sent as a whole, whatever was sent before.
    fn is_whole(&self) -> bool {
        self.sample.is_some() && !self.is_target_defined && !self.suppresses
    }
}

/// The subscriptions of one request.
#[derive(Debug)]
pub struct Subscriptions {
    list: Vec<Subscription>,
    /// The mode of the request.
    pub mode: Mode,
    prefix: Option<Path>,
    encoding: Encoding,
    updates_only: bool,
}

/// The values that a message carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Which {
    /// All that are selected.
    All,
    /// Those that differ from the sent ones.
    Changed,
}

impl Subscriptions {
    /// Returns the subscriptions of a request. `now` is the time since any fixed moment.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` or `UNIMPLEMENTED` for what the switch cannot send.
    pub fn new(request: &SubscriptionList, now: Duration) -> Result<Subscriptions, Status> {
        let encoding = encoding(request.encoding)?;
        let mode = Mode::try_from(request.mode)
            .map_err(|_| Status::invalid_argument("mode: expected STREAM, ONCE or POLL"))?;
        if request.subscription.is_empty() || request.subscription.len() > PATHS_MAX {
            let text = format!("subscription: expected 1 to {PATHS_MAX} paths");
            return Err(Status::invalid_argument(text));
        }
        let prefix = request.prefix.as_ref();
        let mut list = Vec::new();
        for one in &request.subscription {
            let path = Absolute::of(prefix, one.path.as_ref())?;
            let wanted = match SubscriptionMode::try_from(one.mode) {
                // ONCE and POLL have no modes of paths.
                _ if mode != Mode::Stream => SubscriptionMode::Sample,
                Ok(wanted) => wanted,
                Err(_) => {
                    let text = "subscription mode: expected TARGET_DEFINED, ON_CHANGE or SAMPLE";
                    return Err(Status::invalid_argument(text));
                }
            };
            if wanted == SubscriptionMode::OnChange && is_counter(&path.steps) {
                let text = "counters change with each packet: expected the mode SAMPLE for them";
                return Err(Status::invalid_argument(text));
            }
            let interval = match one.sample_interval {
                0 => INTERVAL_DEFAULT,
                nanos => Duration::from_nanos(nanos),
            };
            if wanted == SubscriptionMode::Sample && interval < INTERVAL_MIN {
                let text = format!(
                    "sample_interval: expected 0 or at least {} ns",
                    INTERVAL_MIN.as_nanos()
                );
                return Err(Status::invalid_argument(text));
            }
            let heartbeat =
                Some(Duration::from_nanos(one.heartbeat_interval)).filter(|given| !given.is_zero());
            if heartbeat.is_some_and(|heartbeat| heartbeat < INTERVAL_MIN) {
                let text = format!(
                    "heartbeat_interval: expected 0 or at least {} ns",
                    INTERVAL_MIN.as_nanos()
                );
                return Err(Status::invalid_argument(text));
            }
            let sample = match wanted {
                SubscriptionMode::Sample => Some(interval),
                SubscriptionMode::TargetDefined => Some(INTERVAL_DEFAULT),
                SubscriptionMode::OnChange => None,
            };
            list.push(Subscription {
                origin: one
                    .path
                    .as_ref()
                    .map(|path| origin_of(prefix, path))
                    .unwrap_or_default(),
                path,
                sample,
                is_target_defined: wanted == SubscriptionMode::TargetDefined,
                suppresses: one.suppress_redundant,
                heartbeat,
                next_sample: sample.map_or(now, |interval| next_after(now, interval)),
                next_heartbeat: heartbeat.map_or(now, |interval| next_after(now, interval)),
                sent: BTreeMap::new(),
                shown: None,
            });
        }
        Ok(Subscriptions {
            list,
            mode,
            prefix: target_only(prefix),
            encoding,
            updates_only: request.updates_only,
        })
    }

    /// Returns the first values: all, or none if the client wants updates only. `nanos` is the time since 1970.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for a path that the schema does not have.
    pub fn snapshot(&mut self, view: &View, nanos: i64) -> Result<Vec<Notification>, Status> {
        let mut out = Vec::new();
        for index in 0..self.list.len() {
            let messages = match self.list[index].is_whole() {
                true => self.whole(index, view, nanos)?,
                false => {
                    let all = self.select(index, view)?;
                    self.compare(index, &all, Which::All, nanos, |_| true)
                }
            };
            if !self.updates_only {
                out.extend(messages);
            }
        }
        Ok(out)
    }

    /// Returns what differs from the sent values, for the paths whose values are sent when they change.
    ///
    /// # Errors
    /// As [`Subscriptions::snapshot`].
    pub fn changed(&mut self, view: &View, nanos: i64) -> Result<Vec<Notification>, Status> {
        let mut out = Vec::new();
        for index in 0..self.list.len() {
            let follows = self.list[index].sample.is_none() || self.list[index].is_target_defined;
            if follows {
                let all = self.select(index, view)?;
                out.extend(self.compare(index, &all, Which::Changed, nanos, |leaf| {
                    !is_counter(&leaf.steps)
                }));
            }
        }
        Ok(out)
    }

    /// Returns the samples and heartbeats whose time has come.
    ///
    /// # Errors
    /// As [`Subscriptions::snapshot`].
    pub fn due(&mut self, view: &View, now: Duration, nanos: i64) -> Result<Vec<Notification>, Status> {
        let mut out = Vec::new();
        for index in 0..self.list.len() {
            let one = &mut self.list[index];
            let due = one.advance(now);
            if !due.heartbeat && !due.sample {
                continue;
            }
            let which = match one.suppresses && !due.heartbeat {
                true => Which::Changed,
                false => Which::All,
            };
            if one.is_whole() {
                out.extend(self.whole(index, view, nanos)?);
                continue;
            }
            let only_counters = one.is_target_defined && !due.heartbeat;
            let all = self.select(index, view)?;
            out.extend(self.compare(index, &all, which, nanos, |leaf| {
                !only_counters || is_counter(&leaf.steps)
            }));
        }
        Ok(out)
    }

    /// Leaves out the samples and heartbeats whose time has come.
    pub fn skip(&mut self, now: Duration) {
        for one in &mut self.list {
            one.advance(now);
        }
    }

    /// Returns the time of the next sample or heartbeat; `None` if there is none.
    pub fn next_due(&self) -> Option<Duration> {
        let times = self.list.iter().flat_map(|one| {
            let sample = one.sample.map(|_| one.next_sample);
            let heartbeat = one.heartbeat.map(|_| one.next_heartbeat);
            [sample, heartbeat]
        });
        times.flatten().min()
    }

    /// Returns messages with all values of a path, and with the paths of those that are gone. The values of a reading are made once for
    /// all clients that ask for them.
    fn whole(&mut self, index: usize, view: &View, nanos: i64) -> Result<Vec<Notification>, Status> {
        let one = &self.list[index];
        let sample = view.sample(&one.path, &one.origin, self.encoding)?;
        let before = self.list[index].shown.replace(Arc::clone(&sample));
        let deleted = before.map(|before| before.without(&sample)).unwrap_or_default();
        Ok(self.messages(&sample.updates, &deleted, nanos))
    }

    fn messages(&self, updates: &[Update], deleted: &[Path], nanos: i64) -> Vec<Notification> {
        let message = |update: &[Update], delete: &[Path]| Notification {
            timestamp: nanos,
            prefix: self.prefix.clone(),
            update: update.to_vec(),
            delete: delete.to_vec(),
            ..Notification::default()
        };
        let mut out: Vec<Notification> = deleted
            .chunks(UPDATES_MAX)
            .map(|paths| message(&[], paths))
            .collect();
        out.extend(updates.chunks(UPDATES_MAX).map(|updates| message(updates, &[])));
        out
    }

    fn select(&self, index: usize, view: &View) -> Result<Vec<Leaf>, Status> {
        let mut all = Vec::new();
        for one in view.select(&self.list[index].path, Selection::All)? {
            leaves(&one, &mut all);
        }
        Ok(all)
    }

    /// Returns messages with the leaves that pass `takes`, and with the paths of those that are gone; remembers what was sent.
    fn compare(
        &mut self,
        index: usize,
        all: &[Leaf],
        which: Which,
        nanos: i64,
        takes: impl Fn(&Leaf) -> bool,
    ) -> Vec<Notification> {
        let encoding = self.encoding;
        let one = &mut self.list[index];
        let mut updates = Vec::new();
        for leaf in all.iter().filter(|leaf| takes(leaf)) {
            let is_new = one.sent.get(&leaf.steps) != Some(&leaf.value);
            if is_new {
                one.sent.insert(leaf.steps.clone(), leaf.value.clone());
            }
            if is_new || which == Which::All {
                updates.push(Update {
                    path: Some(to_proto(&leaf.steps, &one.origin)),
                    val: Some(typed(leaf.node, &leaf.value, "", encoding)),
                    ..Update::default()
                });
            }
        }
        let gone: Vec<Vec<Step>> = {
            let present: BTreeSet<&Vec<Step>> = all.iter().map(|leaf| &leaf.steps).collect();
            one.sent
                .keys()
                .filter(|steps| !present.contains(steps))
                .cloned()
                .collect()
        };
        for steps in &gone {
            one.sent.remove(steps);
        }
        let deleted: Vec<Path> = gone.iter().map(|steps| to_proto(steps, &one.origin)).collect();
        self.messages(&updates, &deleted, nanos)
    }
}

/// Returns true for the path of a counter, or of counters.
fn is_counter(steps: &[Step]) -> bool {
    let has = |names: &[&str]| steps.iter().any(|step| names.contains(&step.name.as_str()));
    has(&["counters"]) || (has(&["switch_state"]) && has(&["rx", "tx"]))
}
