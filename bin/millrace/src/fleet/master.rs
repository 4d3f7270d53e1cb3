//! A master: it carries roll-outs out while it holds the key of the leader.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use millrace_etcd::{Compare, EtcdError, KeyValue, Keys, Op, Txn};
use millrace_fleet::{Ack, Document, Keyspace, LEASE_S, Leadership, Plan, Rollout, plan, to_bytes};
use millrace_program::host_name;

use super::store::{LOOK, Store, now, parsed};

/// The longest wait for the lease of another master.
const PATIENCE: Duration = Duration::from_secs(2 * LEASE_S);

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
        if self.store.etcd.keys(&[Keys::One(leader)])?.kvs.first().is_some() {
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

    /// Writes, if this is still the master. Returns false if it is not, or if a condition did not hold.
    fn write(&mut self, txn: Txn) -> Result<bool> {
        let Some(leadership) = self
            .leadership
            .filter(|leadership| leadership.may_write(self.start.elapsed()))
        else {
            self.leadership = None;
            return Ok(false);
        };
        let txn = leadership.fenced(self.keys(), txn);
        Ok(self.store.etcd.txn(&txn)?.succeeded)
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

    /// Does the steps of one roll-out until it waits.
    fn carry_out(&mut self, mut rollout: Rollout, mut modified: u64) -> Result<()> {
        loop {
            let views = self.store.views(rollout.nodes())?;
            let (next, ops, compare) = match plan(&rollout, &views, now()) {
                Plan::Wait => return Ok(()),
                Plan::Record(next) => (next, Vec::new(), Vec::new()),
                Plan::Forward(node, next) => match self.forward(&rollout, &node) {
                    Ok(Some((ops, compare))) => (next, ops, compare),
                    Ok(None) => return Ok(()),
                    Err(error) if error.is::<EtcdError>() => return Err(error),
                    // A document that cannot be brought to its switch must not stop the other roll-outs.
                    Err(error) => (rollout.returning(format!("{error:#}")), Vec::new(), Vec::new()),
                },
                Plan::Back(node, next) => {
                    let (ops, compare) = self.back(&rollout, &node)?;
                    (next, ops, compare)
                }
            };
            if !self.lead()? {
                return Ok(());
            }
            let key = self.keys().rollout(&rollout.id);
            let mut txn = Txn { compare, ops };
            txn.compare.push(Compare::Modified(key.clone(), modified));
            txn.ops.push(Op::Put(key.clone(), to_bytes(&next), None));
            if next.state.is_over() {
                txn.ops.push(Op::Delete(self.keys().all_next(&rollout.id)));
            }
            if !self.write(txn)? {
                // Somebody else wrote: the next turn reads again.
                return Ok(());
            }
            rollout = next;
            let read = self.store.etcd.keys(&[Keys::One(key)])?;
            modified = read.kvs.first().map_or(0, |kv| kv.mod_revision);
        }
    }

    /// Keeps what a node has, and returns the writes and the conditions that bring it its document. `None` if this is no master any
    /// more.
    fn forward(&mut self, rollout: &Rollout, node: &str) -> Result<Option<(Vec<Op>, Vec<Compare>)>> {
        let (next, config) = (self.keys().next(&rollout.id, node), self.keys().config(node));
        let before = self.keys().before(&rollout.id, node);
        let read = self
            .store
            .etcd
            .read(&[Keys::One(next.clone()), Keys::One(config.clone())])?;
        let bytes = &read
            .get(&next)
            .with_context(|| format!("{next} is gone from etcd"))?
            .value;
        let document = self.document(bytes, rollout.tag())?;
        let present = read.get(&config);
        if let Some(present) = present {
            let keep = Op::Put(before, present.value.clone(), None);
            if !self.write(Txn {
                compare: Vec::new(),
                ops: vec![keep],
            })? {
                return Ok(None);
            }
        }
        let modified = present.map_or(0, |kv| kv.mod_revision);
        let compare = vec![Compare::Modified(config.clone(), modified)];
        Ok(Some((vec![Op::Put(config, to_bytes(&document), None)], compare)))
    }

    /// Returns the writes and the conditions that give a node what it had before.
    fn back(&mut self, rollout: &Rollout, node: &str) -> Result<(Vec<Op>, Vec<Compare>)> {
        let (before, config) = (self.keys().before(&rollout.id, node), self.keys().config(node));
        let read = self
            .store
            .etcd
            .read(&[Keys::One(before.clone()), Keys::One(config.clone())])?;
        let op = match read.get(&before) {
            Some(kv) => Op::Put(
                config.clone(),
                to_bytes(&self.document(&kv.value, rollout.back_tag())?),
                None,
            ),
            None => Op::Delete(Keys::One(config.clone())),
        };
        let modified = read.get(&config).map_or(0, |kv| kv.mod_revision);
        Ok((vec![op], vec![Compare::Modified(config, modified)]))
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
            if !self.write(txn)? {
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
