//! Roll-outs: documents for several nodes, in waves, that return at the first node that fails.
//!
//! ```text
//!            last wave applied
//!   Running ───────────────────▶ Done
//!    │  ▲ │ a node refuses, returns, or does not answer in time; a person rolls back
//!    │  │ └───────────────────▶ Returning ──▶ Failed
//!    │  │ confirm                   ▲
//!    ▼  │                           │ a person rolls back
//!   Holding, Paused ────────────────┘
//! ```
//!
//! Every step is one transaction that changes the roll-out's record together with the document of one node: whoever is master next
//! goes on where the last one stopped.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::document::{Ack, Outcome, Status};

/// The seconds beyond the time for a confirmation in which a node must answer.
pub const GRACE_S: u64 = 30;

/// The state of a roll-out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// The present wave is being written, or its answers are awaited.
    Running,
    /// A wave is done, and a person is to confirm that the next one begins.
    Holding,
    /// A person stopped it.
    Paused,
    /// The nodes get what they had before.
    Returning,
    /// Every node runs its document.
    Done,
    /// It was returned.
    Failed,
}

impl State {
    /// Returns the word.
    pub const fn name(self) -> &'static str {
        match self {
            State::Running => "running",
            State::Holding => "holding",
            State::Paused => "paused",
            State::Returning => "returning",
            State::Done => "done",
            State::Failed => "failed",
        }
    }

    /// Returns true if nothing more happens.
    pub const fn is_over(self) -> bool {
        matches!(self, State::Done | State::Failed)
    }
}

/// How far a roll-out is at a node. Times are seconds since 1970 by the master's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// Nothing was written.
    Untouched,
    /// The document is written, at this time.
    Written(u64),
    /// It runs the document.
    Applied,
    /// The document that it had before is written again, at this time.
    WrittenBack(u64),
    /// It runs what it had before.
    Back,
    /// It has not gone back: it has not answered in time to the document of before, or that one failed as well.
    NotBack,
}

/// A node of a roll-out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    pub node: String,
    pub step: Step,
}

/// A roll-out: `rollouts/ID`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rollout {
    /// The version of the format.
    pub schema: u32,
    pub id: String,
    pub author: String,
    pub comment: String,
    /// The time of its beginning, in seconds since 1970.
    pub created: u64,
    /// The seconds in which each node confirms itself.
    pub confirm_within: u64,
    /// The version of the documents.
    pub document_schema: u32,
    /// True if a person confirms that the wave after this one begins.
    pub hold: bool,
    pub state: State,
    /// The present wave.
    pub wave: usize,
    /// The nodes by waves.
    pub waves: Vec<Vec<Place>>,
    /// The reason of `returning`, `failed` and `paused`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The roll-out that it takes back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undoes: Option<String>,
}

/// The part of the store that is of one node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeView {
    /// The last answer.
    pub ack: Option<Ack>,
    /// The status; `None` if its lease is over.
    pub status: Option<Status>,
}

/// The next step of a master.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Plan {
    /// Nothing, until something is written or time passes.
    Wait,
    /// Write the record.
    Record(Rollout),
    /// Write the document of a node, and the record.
    Forward(String, Rollout),
    /// Write what a node had before, and the record.
    Back(String, Rollout),
}

/// Returns nodes in waves: `first` nodes, then `size` at a time.
pub fn waves(nodes: &[String], first: usize, size: usize) -> Vec<Vec<Place>> {
    let place = |node: &String| Place {
        node: node.clone(),
        step: Step::Untouched,
    };
    let (canaries, rest) = nodes.split_at(first.clamp(1, nodes.len().max(1)).min(nodes.len()));
    let rest = rest.chunks(size.max(1));
    let all = std::iter::once(canaries).chain(rest);
    all.filter(|wave| !wave.is_empty())
        .map(|wave| wave.iter().map(place).collect())
        .collect()
}

impl Rollout {
    /// Returns the tag of the documents that it brings.
    pub fn tag(&self) -> String {
        self.id.clone()
    }

    /// Returns the tag of the documents that it brings back.
    pub fn back_tag(&self) -> String {
        format!("{}/back", self.id)
    }

    /// Returns all nodes with their steps.
    pub fn places(&self) -> impl Iterator<Item = &Place> {
        self.waves.iter().flatten()
    }

    /// Returns the names of all nodes.
    pub fn nodes(&self) -> impl Iterator<Item = &str> {
        self.places().map(|place| place.node.as_str())
    }

    fn with(&self, node: &str, step: Step) -> Rollout {
        let mut next = self.clone();
        for place in next.waves.iter_mut().flatten().filter(|place| place.node == node) {
            place.step = step;
        }
        next
    }

    fn in_state(&self, state: State) -> Rollout {
        Rollout {
            state,
            ..self.clone()
        }
    }

    /// Returns the roll-out on its way back.
    pub fn returning(&self, reason: impl Into<String>) -> Rollout {
        Rollout {
            state: State::Returning,
            reason: Some(reason.into()),
            ..self.clone()
        }
    }
}

/// Returns the next step of a roll-out at `now`, in seconds since 1970.
pub fn plan(rollout: &Rollout, views: &BTreeMap<String, NodeView>, now: u64) -> Plan {
    match rollout.state {
        State::Running => forward(rollout, views, now),
        State::Returning => back(rollout, views, now),
        State::Holding | State::Paused | State::Done | State::Failed => Plan::Wait,
    }
}

fn forward(rollout: &Rollout, views: &BTreeMap<String, NodeView>, now: u64) -> Plan {
    if let Some(reason) = unfit(rollout, views) {
        return Plan::Record(Rollout {
            reason: Some(reason),
            ..rollout.in_state(State::Failed)
        });
    }
    let Some(wave) = rollout.waves.get(rollout.wave) else {
        return Plan::Record(rollout.in_state(State::Done));
    };
    // Failures come before everything else: nothing is written any more.
    for place in wave {
        let Step::Written(at) = place.step else { continue };
        match answer(views, &place.node, &rollout.tag()) {
            Some(ack) if matches!(ack.outcome, Outcome::Refused | Outcome::Returned) => {
                let reason = format!(
                    "{} {} the document: {}",
                    place.node,
                    said(ack.outcome),
                    ack.reason()
                );
                return Plan::Record(rollout.returning(reason));
            }
            Some(ack) if ack.outcome == Outcome::Applied => {
                return Plan::Record(rollout.with(&place.node, Step::Applied));
            }
            other if is_late(rollout, at, now) => {
                let why = other.map_or_else(String::new, |ack| {
                    format!(": {}: {}", ack.outcome.name(), ack.reason())
                });
                let limit = rollout.confirm_within.saturating_add(GRACE_S);
                return Plan::Record(rollout.returning(format!(
                    "{} did not run the document in {limit} seconds{why}",
                    place.node
                )));
            }
            _ => {}
        }
    }
    if let Some(place) = wave.iter().find(|place| place.step == Step::Untouched) {
        return Plan::Forward(place.node.clone(), rollout.with(&place.node, Step::Written(now)));
    }
    if !wave.iter().all(|place| place.step == Step::Applied) {
        return Plan::Wait;
    }
    let wave = rollout.wave + 1;
    let state = match (wave < rollout.waves.len(), rollout.hold) {
        (false, _) => State::Done,
        (true, true) => State::Holding,
        (true, false) => State::Running,
    };
    Plan::Record(Rollout {
        wave,
        ..rollout.in_state(state)
    })
}

/// Returns why the roll-out cannot begin: it looks at all nodes before it writes to the first.
fn unfit(rollout: &Rollout, views: &BTreeMap<String, NodeView>) -> Option<String> {
    if rollout.places().any(|place| place.step != Step::Untouched) {
        return None;
    }
    rollout.nodes().find_map(|node| {
        let Some(status) = views.get(node).and_then(|view| view.status.as_ref()) else {
            return Some(format!("{node} is away: it has no status"));
        };
        if status.schema < rollout.document_schema {
            return Some(format!(
                "{node} knows documents up to schema {}: expected {}; upgrade it first",
                status.schema, rollout.document_schema
            ));
        }
        status
            .detached
            .then(|| format!("{node} is detached: `millrace fleet attach` on it brings it back"))
    })
}

fn back(rollout: &Rollout, views: &BTreeMap<String, NodeView>, now: u64) -> Plan {
    for place in rollout.places() {
        match place.step {
            Step::Written(_) | Step::Applied => {
                return Plan::Back(
                    place.node.clone(),
                    rollout.with(&place.node, Step::WrittenBack(now)),
                );
            }
            Step::WrittenBack(at) => match answer(views, &place.node, &rollout.back_tag()) {
                Some(ack) if ack.outcome == Outcome::Applied => {
                    return Plan::Record(rollout.with(&place.node, Step::Back));
                }
                Some(ack) if matches!(ack.outcome, Outcome::Refused | Outcome::Returned) => {
                    return Plan::Record(rollout.with(&place.node, Step::NotBack));
                }
                _ if is_late(rollout, at, now) => {
                    return Plan::Record(rollout.with(&place.node, Step::NotBack));
                }
                _ => {}
            },
            Step::Untouched | Step::Back | Step::NotBack => {}
        }
    }
    let is_open = |place: &Place| matches!(place.step, Step::WrittenBack(_));
    match rollout.places().any(is_open) {
        true => Plan::Wait,
        false => Plan::Record(rollout.in_state(State::Failed)),
    }
}

fn answer<'a>(views: &'a BTreeMap<String, NodeView>, node: &str, tag: &str) -> Option<&'a Ack> {
    let ack = views.get(node)?.ack.as_ref()?;
    (ack.tag.as_deref() == Some(tag)).then_some(ack)
}

fn is_late(rollout: &Rollout, at: u64, now: u64) -> bool {
    now.saturating_sub(at) > rollout.confirm_within.saturating_add(GRACE_S)
}

fn said(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Returned => "took back",
        _ => "refused",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::Fault;

    fn names(count: usize) -> Vec<String> {
        (1..=count).map(|number| format!("sw{number}")).collect()
    }

    fn rollout(count: usize, first: usize, size: usize) -> Rollout {
        Rollout {
            schema: 1,
            id: "r1".to_owned(),
            author: "alice".to_owned(),
            comment: String::new(),
            created: 0,
            confirm_within: 60,
            document_schema: 1,
            hold: false,
            state: State::Running,
            wave: 0,
            waves: waves(&names(count), first, size),
            reason: None,
            undoes: None,
        }
    }

    fn present(count: usize) -> BTreeMap<String, NodeView> {
        let status = Status {
            schema: 1,
            healthy: true,
            ..Status::default()
        };
        let view = NodeView {
            ack: None,
            status: Some(status),
        };
        names(count)
            .into_iter()
            .map(|name| (name, view.clone()))
            .collect()
    }

    fn answers(views: &mut BTreeMap<String, NodeView>, node: &str, tag: &str, outcome: Outcome) {
        let ack = Ack {
            schema: 1,
            cluster: "a".to_owned(),
            mod_revision: 1,
            seen: 1,
            seen_epoch: 1,
            tag: Some(tag.to_owned()),
            revision: Some(1),
            outcome,
            errors: vec![Fault::at("/bridge/0", "no such interface")],
        };
        views.get_mut(node).unwrap().ack = Some(ack);
    }

    /// Follows the plan until it waits. Returns what was written.
    fn follow(rollout: &mut Rollout, views: &BTreeMap<String, NodeView>, now: u64) -> Vec<String> {
        let mut written = Vec::new();
        for _ in 0..1000 {
            match plan(rollout, views, now) {
                Plan::Wait => return written,
                Plan::Record(next) => *rollout = next,
                Plan::Forward(node, next) => {
                    written.push(node);
                    *rollout = next;
                }
                Plan::Back(node, next) => {
                    written.push(format!("{node} back"));
                    *rollout = next;
                }
            }
        }
        panic!("the plan has no end: {rollout:?}");
    }

    #[test]
    fn waves_have_the_canaries_first() {
        let sizes = |count, first, size| {
            waves(&names(count), first, size)
                .iter()
                .map(Vec::len)
                .collect::<Vec<_>>()
        };
        assert_eq!(sizes(7, 1, 3), [1, 3, 3]);
        assert_eq!(sizes(2, 5, 3), [2]);
        assert_eq!(sizes(3, 0, 0), [1, 1, 1]);
        assert!(sizes(0, 1, 1).is_empty());
    }

    #[test]
    fn a_rollout_goes_from_wave_to_wave_when_all_of_a_wave_run_it() {
        let (mut rollout, mut views) = (rollout(4, 1, 3), present(4));
        assert_eq!(follow(&mut rollout, &views, 10), ["sw1"]);
        answers(&mut views, "sw1", "r1", Outcome::Trying);
        assert!(follow(&mut rollout, &views, 11).is_empty());
        // An answer to something else counts for nothing.
        answers(&mut views, "sw1", "r0", Outcome::Applied);
        assert!(follow(&mut rollout, &views, 11).is_empty());
        answers(&mut views, "sw1", "r1", Outcome::Applied);
        assert_eq!(follow(&mut rollout, &views, 12), ["sw2", "sw3", "sw4"]);
        for node in ["sw2", "sw3", "sw4"] {
            assert_eq!(rollout.state, State::Running);
            answers(&mut views, node, "r1", Outcome::Applied);
            assert!(follow(&mut rollout, &views, 13).is_empty());
        }
        assert_eq!(rollout.state, State::Done);
    }

    #[test]
    fn the_first_node_that_fails_stops_it_and_all_that_were_written_go_back() {
        for failed in [Outcome::Refused, Outcome::Returned] {
            let (mut rollout, mut views) = (rollout(6, 1, 2), present(6));
            follow(&mut rollout, &views, 10);
            answers(&mut views, "sw1", "r1", Outcome::Applied);
            assert_eq!(follow(&mut rollout, &views, 10), ["sw2", "sw3"]);
            answers(&mut views, "sw2", "r1", Outcome::Applied);
            answers(&mut views, "sw3", "r1", failed);
            assert_eq!(
                follow(&mut rollout, &views, 11),
                ["sw1 back", "sw2 back", "sw3 back"]
            );
            assert!(
                rollout.reason.as_ref().unwrap().contains("sw3")
                    && rollout.reason.as_ref().unwrap().contains("/bridge/0")
            );
            for node in ["sw1", "sw2", "sw3"] {
                assert_eq!(rollout.state, State::Returning);
                answers(&mut views, node, "r1/back", Outcome::Applied);
                assert!(follow(&mut rollout, &views, 12).is_empty());
            }
            assert_eq!(rollout.state, State::Failed);
            assert!(
                rollout
                    .places()
                    .skip(3)
                    .all(|place| place.step == Step::Untouched)
            );
        }
    }

    #[test]
    fn a_node_that_does_not_answer_in_time_fails_it_and_is_not_awaited_for_ever() {
        let (mut rollout, views) = (rollout(2, 1, 1), present(2));
        follow(&mut rollout, &views, 10);
        assert!(follow(&mut rollout, &views, 10 + 60 + GRACE_S).is_empty());
        assert_eq!(follow(&mut rollout, &views, 11 + 60 + GRACE_S), ["sw1 back"]);
        assert!(
            rollout
                .reason
                .as_ref()
                .unwrap()
                .contains("sw1 did not run the document in 90 seconds")
        );
        follow(&mut rollout, &views, 500);
        assert_eq!(
            (rollout.state, rollout.waves[0][0].step),
            (State::Failed, Step::NotBack)
        );
    }

    #[test]
    fn nothing_is_written_if_a_node_is_away_too_old_or_detached() {
        let status = |change: fn(&mut Status)| {
            let mut views = present(3);
            change(views.get_mut("sw3").unwrap().status.as_mut().unwrap());
            views
        };
        let mut away = present(3);
        away.get_mut("sw3").unwrap().status = None;
        let cases = [
            (away, "sw3 is away"),
            (status(|status| status.schema = 0), "upgrade it first"),
            (status(|status| status.detached = true), "sw3 is detached"),
        ];
        for (views, said) in cases {
            let mut rollout = rollout(3, 1, 2);
            assert!(follow(&mut rollout, &views, 10).is_empty());
            assert_eq!(rollout.state, State::Failed);
            assert!(rollout.reason.unwrap().contains(said), "{said}");
        }
    }

    #[test]
    fn a_rollout_that_holds_waits_for_a_person_after_each_wave_and_a_person_can_return_it() {
        let (mut rollout, mut views) = (rollout(3, 1, 1), present(3));
        rollout.hold = true;
        follow(&mut rollout, &views, 10);
        answers(&mut views, "sw1", "r1", Outcome::Applied);
        follow(&mut rollout, &views, 11);
        assert_eq!((rollout.state, rollout.wave), (State::Holding, 1));
        rollout.state = State::Running;
        assert_eq!(follow(&mut rollout, &views, 12), ["sw2"]);
        rollout = rollout.returning("alice");
        assert_eq!(follow(&mut rollout, &views, 13), ["sw1 back", "sw2 back"]);
    }
}
