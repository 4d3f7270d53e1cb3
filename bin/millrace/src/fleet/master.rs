//! A master: it carries roll-outs out while it holds the key of the leader.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use millrace_etcd::{Compare, EtcdError, KeyValue, Keys, Op, Txn};
use millrace_fleet::{Ack, Document, Keyspace, LEASE_S, Leadership, NodeView, Plan, Rollout, plan, to_bytes};
use millrace_program::host_name;

use super::store::{LOOK, Store, now, parsed};

/// The longest wait for the lease of another master.
const PATIENCE: Duration = Duration::from_secs(2 * LEASE_S);

/// The most documents of one write: etcd takes 128 operations, and its reads 128 keys.
const STEPS_MAX: usize = 48;
/// The largest sum of documents of one write, in bytes, unless one alone is larger: etcd takes requests of 1.5 MiB.
const STEPS_SIZE_MAX: usize = 768 << 10;

/// The direction of a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Forward,
    Back,
}

/// Steps of a roll-out that are done together.
#[derive(Debug, Default)]
struct Steps {
    nodes: Vec<(String, Way)>,
    /// The record that results; `None` if nothing is to be done.
    next: Option<Rollout>,
}

/// The writes of steps.
#[derive(Debug, Default)]
struct Documents {
    txn: Txn,
    /// The number of the first steps that it holds.
    count: usize,
}

impl Steps {
    /// Plans the steps that these views allow, with documents for at most `limit` nodes.
    fn plan(&mut self, rollout: &Rollout, views: &BTreeMap<String, NodeView>, now: u64, limit: usize) {
        loop {
            let present = self.next.as_ref().unwrap_or(rollout);
            let (node, way, next) = match plan(present, views, now) {
                Plan::Wait => return,
                Plan::Record(next) => {
                    self.next = Some(next);
                    continue;
                }
                Plan::Forward(node, next) => (node, Way::Forward, next),
                Plan::Back(node, next) => (node, Way::Back, next),
            };
            // One write changes a key once.
            if self.nodes.len() >= limit || self.nodes.iter().any(|(known, _)| *known == node) {
                return;
            }
            self.nodes.push((node, way));
            self.next = Some(next);
        }
    }
}

pub(super) struct Master {
    store: Store,
    name: String,
    start: Instant,
    leadership: Option<Leadership>,
}

impl Master {
    /// Returns a master that has no right to write yet.
    pub(super) fn new(store: Store, author: String) -> Master {
        let host = host_name().unwrap_or_default();
        Master {
            store,
            name: format!("{author} at {host}, process {}", std::process::id()),
            start: Instant::now(),
            leadership: None,
        }
    }

    fn keys(&self) -> &Keyspace {
        &self.store.keys
    }

    /// Takes or renews the right to write. Returns false if another master has it.
    fn lead(&mut self) -> Result<bool, EtcdError> {
        let sent = self.start.elapsed();
        if let Some(leadership) = &mut self.leadership {
            if !leadership.is_due(sent) {
                return Ok(true);
            }
            if self.store.etcd.keep_alive(leadership.lease)? {
                leadership.renew(sent);
                return Ok(true);
            }
            self.leadership = None;
        }
        let leader = self.keys().leader();
        if !self.store.etcd.keys(&[Keys::One(leader)])?.kvs.is_empty() {
            return Ok(false);
        }
        let lease = self.store.etcd.grant(LEASE_S)?;
        let campaign = Leadership::campaign(self.keys(), &self.name, lease);
        let done = self.store.etcd.txn(&campaign)?;
        if !done.succeeded {
            let _ = self.store.etcd.revoke(lease);
            return Ok(false);
        }
        self.leadership = Some(Leadership::new(done.revision, lease, sent));
        Ok(true)
    }

    /// Gives the right back.
    pub(super) fn resign(&mut self) {
        if let Some(leadership) = self.leadership.take() {
            let _ = self.store.etcd.revoke(leadership.lease);
        }
    }

    /// Writes, if this is still the master. Returns the revision of the write; `None` if this is no master any more, or if a condition
    /// did not hold.
    fn write(&mut self, txn: Txn) -> Result<Option<u64>> {
        let Some(leadership) = self
            .leadership
            .filter(|leadership| leadership.may_write(self.start.elapsed()))
        else {
            self.leadership = None;
            return Ok(None);
        };
        let txn = leadership.fenced(self.keys(), txn);
        let done = self.store.etcd.txn(&txn)?;
        Ok(done.succeeded.then_some(done.revision))
    }

    /// Does all steps that are due.
    pub(super) fn turn(&mut self) -> Result<()> {
        if !self.lead()? {
            return Ok(());
        }
        let read = self.store.etcd.read(&[self.keys().rollouts()])?;
        let active = |kv: &KeyValue| parsed::<Rollout>(Some(kv)).filter(|rollout| !rollout.state.is_over());
        let mut rollouts: Vec<(Rollout, u64)> = read
            .kvs
            .iter()
            .filter_map(|kv| Some((active(kv)?, kv.mod_revision)))
            .collect();
        rollouts.sort_by(|(a, _), (b, _)| (a.created, &a.id).cmp(&(b.created, &b.id)));
        let mut taken: BTreeSet<String> = BTreeSet::new();
        for (rollout, modified) in rollouts {
            let nodes: Vec<String> = rollout.nodes().map(str::to_owned).collect();
            // One roll-out at a time at a switch: the older one first.
            let is_free = nodes.iter().all(|node| !taken.contains(node));
            taken.extend(nodes);
            if is_free {
                self.carry_out(rollout, modified)?;
            }
        }
        Ok(())
    }

    /// Does the steps of one roll-out until it waits. Those that the present answers allow are one write, so that a change of many
    /// switches reaches them at once.
    fn carry_out(&mut self, mut rollout: Rollout, mut modified: u64) -> Result<()> {
        loop {
            let views = self.store.views(rollout.nodes())?;
            let (mut steps, now) = (Steps::default(), now());
            steps.plan(&rollout, &views, now, STEPS_MAX);
            let mut txn = match self.documents(&rollout, &steps) {
                Ok(Some(documents)) => {
                    // As many as fit into one request.
                    if documents.count < steps.nodes.len() {
                        steps = Steps::default();
                        steps.plan(&rollout, &views, now, documents.count);
                    }
                    documents.txn
                }
                Ok(None) => return Ok(()),
                Err(error) if error.is::<EtcdError>() => return Err(error),
                // A document that cannot be brought to its switch must not stop the other roll-outs.
                Err(error) => {
                    steps.next = Some(rollout.returning(format!("{error:#}")));
                    Txn::default()
                }
            };
            let Some(next) = steps.next else { return Ok(()) };
            if !self.lead()? {
                return Ok(());
            }
            let key = self.keys().rollout(&rollout.id);
            txn.compare.push(Compare::Modified(key.clone(), modified));
            txn.ops.push(Op::Put(key, to_bytes(&next), None));
            if next.state.is_over() {
                txn.ops.push(Op::Delete(self.keys().all_next(&rollout.id)));
            }
            match self.write(txn)? {
                Some(revision) => modified = revision,
                // Somebody else wrote: the next turn reads again.
                None => return Ok(()),
            }
            rollout = next;
        }
    }

    /// Keeps what nodes have, and returns the writes and the conditions that bring them their documents, or bring back what they had.
    /// `None` if this is no master any more.
    fn documents(&mut self, rollout: &Rollout, steps: &Steps) -> Result<Option<Documents>> {
        let mut found = Documents::default();
        if steps.nodes.is_empty() {
            return Ok(Some(found));
        }
        let source = |keys: &Keyspace, node: &str, way: Way| match way {
            Way::Forward => keys.next(&rollout.id, node),
            Way::Back => keys.before(&rollout.id, node),
        };
        let keys = self.keys().clone();
        let selections: Vec<Keys> = steps
            .nodes
            .iter()
            .flat_map(|(node, way)| [source(&keys, node, *way), keys.config(node)])
            .map(Keys::One)
            .collect();
        let read = self.store.etcd.read(&selections)?;
        let (mut keep, mut size) = (Vec::new(), 0);
        for (node, way) in &steps.nodes {
            let (from, config) = (source(&keys, node, *way), keys.config(node));
            let (given, present) = (read.get(&from), read.get(&config));
            let op = match (given, way) {
                (Some(kv), Way::Forward) => {
                    let document = self.document(&kv.value, rollout.tag())?;
                    Op::Put(config.clone(), to_bytes(&document), None)
                }
                (Some(kv), Way::Back) => {
                    let document = self.document(&kv.value, rollout.back_tag())?;
                    Op::Put(config.clone(), to_bytes(&document), None)
                }
                (None, Way::Forward) => bail!("{from} is gone from etcd"),
                (None, Way::Back) => Op::Delete(Keys::One(config.clone())),
            };
            size += given
                .map_or(0, |kv| kv.value.len())
                .max(present.map_or(0, |kv| kv.value.len()));
            if found.count > 0 && size > STEPS_SIZE_MAX {
                break;
            }
            found.count += 1;
            found.txn.ops.push(op);
            let modified = present.map_or(0, |kv| kv.mod_revision);
            found.txn.compare.push(Compare::Modified(config, modified));
            if let (Some(present), Way::Forward) = (present, way) {
                let before = keys.before(&rollout.id, node);
                keep.push(Op::Put(before, present.value.clone(), None));
            }
        }
        let kept = Txn {
            compare: Vec::new(),
            ops: keep,
        };
        if !kept.ops.is_empty() && self.write(kept)?.is_none() {
            return Ok(None);
        }
        Ok(Some(found))
    }

    /// Returns a document as this master writes it.
    fn document(&self, bytes: &[u8], tag: String) -> Result<Document> {
        let document = Document::parse(bytes).map_err(|error| anyhow::anyhow!("{error}"))?;
        Ok(Document {
            epoch: self.leadership.map_or(0, |leadership| leadership.epoch),
            tag: Some(tag),
            supersedes: None,
            ..document
        })
    }

    /// Lets the documents of nodes count although the nodes have seen newer ones.
    pub(super) fn adopt(&mut self, nodes: &[String]) -> Result<()> {
        let began = Instant::now();
        while !self.lead()? {
            if began.elapsed() > PATIENCE {
                bail!("a master runs: end it first, so that nothing is written meanwhile");
            }
            std::thread::sleep(LOOK);
        }
        for node in nodes {
            let (config, ack) = (self.keys().config(node), self.keys().ack(node));
            let read = self
                .store
                .etcd
                .read(&[Keys::One(config.clone()), Keys::One(ack.clone())])?;
            let Some(present) = read.get(&config) else {
                bail!("{node} has no document in etcd");
            };
            let Some(answer) = parsed::<Ack>(read.get(&ack)) else {
                bail!("{node} has not answered: wait until it has reached etcd");
            };
            let document = Document {
                supersedes: Some(answer.seen),
                ..self.document(&present.value, format!("adopted-{}", answer.seen))?
            };
            let txn = Txn {
                compare: vec![Compare::Modified(config.clone(), present.mod_revision)],
                ops: vec![Op::Put(config, to_bytes(&document), None)],
            };
            if self.write(txn)?.is_none() {
                bail!("the document of {node} has changed meanwhile: try again");
            }
        }
        self.resign();
        Ok(())
    }

    /// Carries roll-outs out for ever.
    pub(super) fn serve(mut self) -> Result<()> {
        let mut last = String::new();
        loop {
            let revision = match self
                .turn()
                .and_then(|()| Ok(self.store.etcd.keys(&[self.keys().rollouts()])?.revision))
            {
                Ok(revision) => revision,
                Err(error) => {
                    let text = format!("{error:#}");
                    if text != last {
                        eprintln!("millrace: fleet master: {text}");
                    }
                    last = text;
                    std::thread::sleep(LOOK);
                    continue;
                }
            };
            last.clear();
            self.store.wait(revision, LOOK);
        }
    }
}

#[cfg(test)]
mod tests {
    use millrace_fleet::{Outcome, SCHEMA, State, Status, waves};

    use super::*;

    fn rollout(count: usize) -> Rollout {
        let names: Vec<String> = (1..=count).map(|number| format!("sw{number:02}")).collect();
        Rollout {
            schema: SCHEMA,
            id: "r1".to_owned(),
            author: "alice".to_owned(),
            comment: String::new(),
            created: 0,
            confirm_within: 60,
            document_schema: SCHEMA,
            hold: false,
            state: State::Running,
            wave: 0,
            waves: waves(&names, count, 1),
            reason: None,
            undoes: None,
        }
    }

    fn views(rollout: &Rollout) -> BTreeMap<String, NodeView> {
        let status = Status {
            schema: SCHEMA,
            healthy: true,
            ..Status::default()
        };
        let view = NodeView {
            ack: None,
            status: Some(status),
        };
        rollout
            .nodes()
            .map(|node| (node.to_owned(), view.clone()))
            .collect()
    }

    fn answer(views: &mut BTreeMap<String, NodeView>, node: &str, outcome: Outcome) {
        let ack = Ack {
            schema: SCHEMA,
            cluster: "a".to_owned(),
            mod_revision: 1,
            seen: 1,
            seen_epoch: 1,
            tag: Some("r1".to_owned()),
            revision: Some(1),
            outcome,
            errors: Vec::new(),
        };
        views.get_mut(node).unwrap().ack = Some(ack);
    }

    #[test]
    fn a_wave_is_one_write_up_to_a_limit_and_a_failure_is_seen_before_the_next() {
        let (first, mut steps) = (rollout(5), Steps::default());
        let mut views = views(&first);
        steps.plan(&first, &views, 10, 3);
        let names: Vec<&str> = steps.nodes.iter().map(|(node, _)| node.as_str()).collect();
        assert_eq!(names, ["sw01", "sw02", "sw03"]);
        // Answers and further documents are one step; nothing is left to do but to wait.
        let second = steps.next.unwrap();
        answer(&mut views, "sw01", Outcome::Applied);
        let mut steps = Steps::default();
        steps.plan(&second, &views, 11, 10);
        assert_eq!(
            steps.nodes,
            [
                ("sw04".to_owned(), Way::Forward),
                ("sw05".to_owned(), Way::Forward)
            ]
        );
        // One that refuses: all that were written go back, and nothing goes on.
        answer(&mut views, "sw02", Outcome::Refused);
        let mut steps = Steps::default();
        steps.plan(&second, &views, 11, 10);
        assert!(
            steps.nodes.iter().all(|(_, way)| *way == Way::Back) && steps.nodes.len() == 3,
            "{steps:?}"
        );
        assert_eq!(steps.next.unwrap().state, State::Returning);
    }
}
