//! The agent: one turn reads what is due, decides, and answers.

use std::time::{Duration, Instant};

use anyhow::Result;
use millrace_api::client::Client as Rest;
use millrace_etcd::{Client, Compare, EtcdError, KeyValue, Keys, Lease, Op, Read, Txn};
use millrace_fleet::{
    Ack, Document, Fault, Keyspace, Outcome, Progress, Record, SCHEMA, Status, Trial, Verdict, judge,
};

use super::record::RecordFile;
use super::switch::{self, Taken};
use super::wake::Wake;

/// The lease of a node, in seconds. Its status goes with it.
const LEASE_S: u64 = 15;
/// The interval at which the document is read without being woken: the longest delay of a change whose watch hangs.
const READ: Duration = Duration::from_secs(10);
/// The shortest time between two writes of the status.
const STATUS: Duration = Duration::from_secs(10);
/// The interval at which a trial, and a document that the switch does not take now, are looked at.
const SOON: Duration = Duration::from_millis(250);
/// The pause after a failed request of etcd.
const PAUSE: Duration = Duration::from_secs(1);

/// A document that the switch runs unconfirmed.
struct Running {
    trial: Trial,
    /// True once etcd was reached by a new connection while it ran.
    has_reached: bool,
    /// The reason why it is not confirmed.
    reason: String,
}

/// The place of this process in the store: the key with its status, under its lease.
#[derive(Debug, Clone, Copy)]
struct Place {
    lease: Lease,
    renewed: Instant,
    /// The `create_revision` of the status; `None` while there is none, or that of another process.
    status: Option<u64>,
}

pub(super) struct Agent {
    node: String,
    keys: Keyspace,
    etcd: Client,
    rest: Rest,
    record: RecordFile,
    place: Option<Place>,
    running: Option<Running>,
    /// The answer that etcd should have, and the one that it has.
    answer: Option<Ack>,
    answered: Option<Ack>,
    /// The status that was written last, and when.
    status: Option<(Status, Instant)>,
    is_status_due: bool,
    next_read: Instant,
    /// The last error of etcd, so that each is logged once.
    away: Option<String>,
    is_standing_by: bool,
}

impl Agent {
    pub(super) fn new(node: String, keys: Keyspace, etcd: Client, rest: Rest, record: RecordFile) -> Agent {
        Agent {
            node,
            keys,
            etcd,
            rest,
            record,
            place: None,
            running: None,
            answer: None,
            answered: None,
            status: None,
            is_status_due: true,
            next_read: Instant::now(),
            away: None,
            is_standing_by: false,
        }
    }

    /// Returns the time until the next turn, unless something wakes the agent.
    pub(super) fn patience(&self) -> Duration {
        let until = self.next_read.saturating_duration_since(Instant::now());
        match self.running {
            Some(_) => SOON,
            None => until.clamp(SOON, PAUSE),
        }
    }

    /// Gives the lease back.
    pub(super) fn stop(&mut self) {
        if let Some(place) = self.place.take() {
            let _ = self.etcd.revoke(place.lease);
        }
    }

    /// Does everything that is due.
    pub(super) fn turn(&mut self, wakes: &[Wake]) {
        if wakes.contains(&Wake::Document) {
            self.next_read = Instant::now();
        }
        if wakes.contains(&Wake::Switch) {
            self.is_status_due = true;
            // A document that was refused, or had to wait, may be possible now.
            let is_open = |ack: &Ack| matches!(ack.outcome, Outcome::Refused | Outcome::Waiting);
            if self.answer.as_ref().is_some_and(is_open) {
                self.next_read = Instant::now();
            }
        }
        // A trial goes on although etcd is away: the switch ends it.
        self.advance();
        match self.exchange() {
            Ok(false) => {}
            Ok(true) => {
                if self.away.take().is_some() {
                    tracing::info!("etcd answers again");
                }
            }
            Err(error) => {
                let text = error.to_string();
                if self.away.as_ref() != Some(&text) {
                    tracing::warn!(error = text, "etcd: the switch keeps its configuration");
                }
                self.away = Some(text);
                self.next_read = Instant::now() + PAUSE;
            }
        }
    }

    /// Reads and writes in etcd what is due. Returns false while it pauses, because etcd was away.
    fn exchange(&mut self) -> Result<bool> {
        if self.away.is_some() && Instant::now() < self.next_read {
            return Ok(false);
        }
        self.renew()?;
        if Instant::now() >= self.next_read {
            self.read()?;
        }
        if self.place.as_ref().is_some_and(|place| place.status.is_some()) {
            self.say()?;
        }
        Ok(true)
    }

    /// Keeps the lease alive, or takes a new one.
    fn renew(&mut self) -> Result<(), EtcdError> {
        let sent = Instant::now();
        if let Some(place) = &mut self.place {
            if sent.duration_since(place.renewed) < Duration::from_secs(LEASE_S) / 3 {
                return Ok(());
            }
            if self.etcd.keep_alive(place.lease)? {
                place.renewed = sent;
                return Ok(());
            }
            tracing::warn!("etcd: the lease of this switch ended");
            self.place = None;
        }
        let lease = self.etcd.grant(LEASE_S)?;
        self.place = Some(Place {
            lease,
            renewed: sent,
            status: None,
        });
        self.next_read = sent;
        Ok(())
    }

    /// Reads the document, and decides. The revision of the switch is read first: if somebody commits in between, for example another
    /// process with this name while this one did not run, the switch refuses the commit.
    fn read(&mut self) -> Result<()> {
        let base = self.rest.config().map(|(_, revision)| revision);
        let (config, status) = (self.keys.config(&self.node), self.keys.status(&self.node));
        let selections = [config.clone(), status.clone(), self.keys.ack(&self.node)].map(Keys::One);
        let read = self.etcd.read(&selections)?;
        self.next_read = Instant::now() + READ;
        if !self.is_registered(read.get(&status))? {
            return Ok(());
        }
        let ack = read.get(&self.keys.ack(&self.node));
        self.answered = ack.and_then(|kv| serde_json::from_slice(&kv.value).ok());
        let found = read.get(&config);
        match judge(self.record.get(), &read.cluster, found) {
            Verdict::Nothing => {}
            Verdict::Known => self.resume(&read, found, base.as_ref().ok().copied())?,
            Verdict::Refused { tag, fault } => {
                let mod_revision = found.map_or(0, |kv| kv.mod_revision);
                let answer = self.ack(&read.cluster, mod_revision, tag, Outcome::Refused, vec![fault]);
                self.refuse(answer);
            }
            Verdict::Try(document) => {
                let mod_revision = found.map_or(0, |kv| kv.mod_revision);
                self.begin(
                    &document,
                    &read.cluster,
                    mod_revision,
                    base.as_ref().ok().copied(),
                )?;
            }
        }
        Ok(())
    }

    /// Returns true if the status in the store is that of this process, and makes it so if there is none.
    fn is_registered(&mut self, status: Option<&KeyValue>) -> Result<bool, EtcdError> {
        let Some(place) = &mut self.place else {
            return Ok(false);
        };
        if let Some(found) = status {
            let is_own = place.status == Some(found.create_revision);
            if !is_own && !self.is_standing_by {
                tracing::warn!(
                    node = self.node,
                    "etcd: another process has this name, or had it until its lease ends: this one waits"
                );
            }
            self.is_standing_by = !is_own;
            if !is_own {
                place.status = None;
                // The lease of the other one may end soon.
                self.next_read = Instant::now() + PAUSE;
            }
            return Ok(is_own);
        }
        let status = switch::status(&self.rest, self.record.get());
        let key = self.keys.status(&self.node);
        let txn = Txn {
            compare: vec![Compare::Created(key.clone(), 0)],
            ops: vec![Op::Put(key, status.bytes(), Some(place.lease))],
        };
        let done = self.etcd.txn(&txn)?;
        if done.succeeded {
            place.status = Some(done.revision);
            self.status = Some((status, Instant::now()));
            self.is_standing_by = false;
            tracing::info!(node = self.node, "etcd: this switch follows its document");
        }
        Ok(done.succeeded)
    }

    fn ack(
        &self,
        cluster: &str,
        mod_revision: u64,
        tag: Option<String>,
        outcome: Outcome,
        errors: Vec<Fault>,
    ) -> Ack {
        let record = self.record.get();
        Ack {
            schema: SCHEMA,
            cluster: cluster.to_owned(),
            mod_revision,
            seen: record.map_or(0, |record| record.mod_revision),
            seen_epoch: record.map_or(0, |record| record.epoch),
            tag,
            revision: record.and_then(|record| record.revision),
            outcome,
            errors,
        }
    }

    /// Records what became of the document of the record, and answers so.
    fn settle(&mut self, change: impl FnOnce(&mut Record)) -> Result<()> {
        let Some(mut record) = self.record.get().cloned() else {
            return Ok(());
        };
        change(&mut record);
        self.record.set(record.clone())?;
        self.is_status_due = true;
        self.answer_as(record.outcome, record.errors);
        Ok(())
    }

    /// Answers for the document of the record.
    fn answer_as(&mut self, outcome: Outcome, errors: Vec<Fault>) {
        if let Some(record) = self.record.get().cloned() {
            self.answer = Some(self.ack(&record.cluster, record.mod_revision, record.tag, outcome, errors));
        }
    }

    /// Answers that a document is not tried, and logs it once.
    fn refuse(&mut self, answer: Ack) {
        if self.answer.as_ref() != Some(&answer) {
            tracing::warn!(
                document = answer.mod_revision,
                reason = answer.reason(),
                "etcd: the document is refused"
            );
        }
        self.answer = Some(answer);
    }

    /// A document that this switch has not seen.
    fn begin(
        &mut self,
        document: &Document,
        cluster: &str,
        mod_revision: u64,
        base: Option<u64>,
    ) -> Result<()> {
        let faults = match switch::owned_by_others(&self.rest, document) {
            Ok(faults) => faults,
            Err(error) => {
                let faults = vec![Fault::whole(format!("the switch: {error}"))];
                self.answer = Some(self.ack(
                    cluster,
                    mod_revision,
                    document.tag.clone(),
                    Outcome::Waiting,
                    faults,
                ));
                self.next_read = Instant::now() + PAUSE;
                return Ok(());
            }
        };
        if !faults.is_empty() {
            // Judged again at each reading: it counts once the objects are given to etcd.
            let answer = self.ack(
                cluster,
                mod_revision,
                document.tag.clone(),
                Outcome::Refused,
                faults,
            );
            self.refuse(answer);
            return Ok(());
        }
        tracing::info!(
            document = mod_revision,
            epoch = document.epoch,
            tag = document.tag.as_deref(),
            "etcd: a new document"
        );
        // On the medium before the switch sees it: whatever happens now, this switch never goes back before it.
        self.record.set(Record {
            cluster: cluster.to_owned(),
            mod_revision,
            epoch: document.epoch,
            tag: document.tag.clone(),
            outcome: Outcome::Trying,
            revision: None,
            errors: Vec::new(),
            problems: switch::problems(&self.rest),
        })?;
        self.running = None;
        self.commit(document, base)
    }

    /// The document of the record: it goes on if it was interrupted, and is answered again if the store lost the answer.
    fn resume(&mut self, read: &Read, found: Option<&KeyValue>, base: Option<u64>) -> Result<()> {
        let Some(record) = self.record.get().cloned() else {
            return Ok(());
        };
        if self.running.is_some() {
            return Ok(());
        }
        if record.outcome != Outcome::Trying {
            self.answer = Some(self.ack(
                &read.cluster,
                record.mod_revision,
                record.tag,
                record.outcome,
                record.errors,
            ));
            return Ok(());
        }
        match switch::found(&self.rest, &record) {
            Err(error) => {
                self.next_read = Instant::now() + PAUSE;
                self.answer_as(
                    Outcome::Waiting,
                    vec![Fault::whole(format!("the switch: {error}"))],
                );
                Ok(())
            }
            Ok(Some((Outcome::Trying, revision))) => {
                self.run(revision, record)?;
                Ok(())
            }
            Ok(Some((outcome, revision))) => self.settle(|record| {
                record.outcome = outcome;
                record.revision = Some(revision);
                if outcome == Outcome::Returned {
                    record.errors = vec![Fault::whole(
                        "the switch took it back while millrace-mgmt did not run",
                    )];
                }
            }),
            Ok(None) => match found.map(|kv| Document::parse(&kv.value)) {
                Some(Ok(document)) => self.commit(&document, base),
                _ => Ok(()),
            },
        }
    }

    fn commit(&mut self, document: &Document, base: Option<u64>) -> Result<()> {
        let Some(record) = self.record.get().cloned() else {
            return Ok(());
        };
        let taken = match base {
            Some(base) => switch::commit(&self.rest, document, &record, base),
            None => Taken::NotNow("the switch does not answer".to_owned()),
        };
        match taken {
            Taken::Pending(revision) => self.run(revision, record),
            Taken::Same(revision) => self.settle(|record| {
                record.outcome = Outcome::Applied;
                record.revision = Some(revision);
            }),
            Taken::Stale => {
                self.next_read = Instant::now();
                Ok(())
            }
            Taken::NotNow(reason) => {
                self.next_read = Instant::now() + PAUSE;
                self.answer_as(Outcome::Waiting, vec![Fault::whole(reason)]);
                Ok(())
            }
            Taken::Refused(errors) => {
                tracing::warn!(document = record.mod_revision, reason = ?errors, "etcd: the switch refuses the document");
                self.settle(|record| {
                    record.outcome = Outcome::Refused;
                    record.errors = errors;
                })
            }
        }
    }

    /// The switch runs the document unconfirmed.
    fn run(&mut self, revision: u64, record: Record) -> Result<()> {
        let trial = Trial {
            revision,
            problems: record.problems,
        };
        self.running = Some(Running {
            trial,
            has_reached: false,
            reason: String::new(),
        });
        self.settle(|record| record.revision = Some(revision))
    }

    /// Looks at the document on trial.
    fn advance(&mut self) {
        let Some(mut running) = self.running.take() else {
            return;
        };
        let Ok(view) = switch::view(&self.rest) else {
            // The switch starts, or ends: it takes the change back by its own clock.
            self.running = Some(running);
            return;
        };
        if running.trial.is_running(&view) && !running.has_reached {
            // The attempt may last until the switch has taken the change back.
            running.reason = "with it, the node has not reached etcd".to_owned();
            self.etcd.reconnect();
            running.has_reached = self.etcd.keys(&[Keys::One(self.keys.config(&self.node))]).is_ok();
        }
        let settled = match running.trial.progress(&view, running.has_reached) {
            Progress::Wait(reason) => {
                if running.reason != reason {
                    self.answer_as(Outcome::Trying, vec![Fault::whole(&reason)]);
                }
                running.reason = reason;
                self.running = Some(running);
                return;
            }
            Progress::Confirm => match self.rest.confirm(Some(running.trial.revision)) {
                Ok(_) => self.settle(|record| record.outcome = Outcome::Applied),
                Err(error) => {
                    tracing::warn!(%error, "etcd: the document cannot be confirmed");
                    self.running = Some(running);
                    return;
                }
            },
            Progress::Applied => self.settle(|record| record.outcome = Outcome::Applied),
            Progress::Returned => {
                tracing::warn!(reason = running.reason, "etcd: the switch took the document back");
                self.settle(|record| {
                    record.outcome = Outcome::Returned;
                    record.errors = vec![Fault::whole(&running.reason)];
                })
            }
        };
        if let Err(error) = settled {
            tracing::error!(%error, "etcd: what this switch has taken cannot be recorded");
        }
    }

    /// Writes the answer and the status, if they changed. Each write compares that the status in the store is that of this process: one
    /// that did not run for a while, and has a successor, writes nothing.
    fn say(&mut self) -> Result<()> {
        let Some(Place {
            lease,
            status: Some(created),
            ..
        }) = self.place
        else {
            return Ok(());
        };
        let own = Compare::Created(self.keys.status(&self.node), created);
        let mut ops = Vec::new();
        if self.answer.is_some() && self.answer != self.answered {
            let bytes = self.answer.as_ref().map(Ack::bytes).unwrap_or_default();
            ops.push(Op::Put(self.keys.ack(&self.node), bytes, None));
        }
        let is_time = self
            .status
            .as_ref()
            .is_none_or(|(_, written)| written.elapsed() >= STATUS);
        let mut status = None;
        if self.is_status_due && is_time {
            let found = switch::status(&self.rest, self.record.get());
            if self.status.as_ref().is_none_or(|(known, _)| *known != found) {
                ops.push(Op::Put(self.keys.status(&self.node), found.bytes(), Some(lease)));
                status = Some(found);
            }
            self.is_status_due = false;
        }
        if ops.is_empty() {
            return Ok(());
        }
        let done = self.etcd.txn(&Txn {
            compare: vec![own],
            ops,
        })?;
        if !done.succeeded {
            tracing::warn!(
                node = self.node,
                "etcd: another process has this name: this one waits"
            );
            if let Some(place) = &mut self.place {
                place.status = None;
            }
            self.next_read = Instant::now();
            return Ok(());
        }
        self.answered.clone_from(&self.answer);
        if let Some(status) = status {
            self.status = Some((status, Instant::now()));
        }
        Ok(())
    }
}
