//! The model: a store with transactions, masters that send late, nodes that take late.

use std::collections::{BTreeMap, BTreeSet};

use millrace_etcd::{Compare, KeyValue, Keys, Lease, Op, Txn};
use millrace_fleet::{
    Ack, Document, Keyspace, Leadership, NodeView, Outcome, Plan, Record, Rollout, Status, Verdict, judge,
    plan, to_bytes,
};
use serde_json::{Map, json};

/// The next thing that happens.
#[derive(Debug, Clone)]
pub(crate) enum Event {
    /// A master asks for the right to write.
    Campaign(usize),
    /// A master reads, and decides what it will write.
    Prepare(usize),
    /// A master sends what it decided.
    Send(usize),
    /// The lease of the present leader ends, whether it knows or not.
    LeaseEnds,
    /// A node reads its document.
    Look(usize),
    /// A node acts on what it read.
    Take(usize),
    /// A trial of a node ends well or badly.
    End(usize, bool),
    /// Seconds pass.
    Pass(u64),
}

#[derive(Default)]
struct Store {
    kvs: BTreeMap<String, KeyValue>,
    revision: u64,
}

impl Store {
    fn get(&self, key: &str) -> Option<&KeyValue> {
        self.kvs.get(key)
    }

    /// Returns true if the writes happened.
    fn txn(&mut self, txn: &Txn) -> bool {
        let holds = txn.compare.iter().all(|compare| match compare {
            Compare::Created(key, revision) => self.get(key).map_or(0, |kv| kv.create_revision) == *revision,
            Compare::Modified(key, revision) => self.get(key).map_or(0, |kv| kv.mod_revision) == *revision,
        });
        if !holds {
            return false;
        }
        self.revision += 1;
        for op in &txn.ops {
            match op {
                Op::Put(key, value, _) => {
                    let created = self.get(key).map_or(self.revision, |kv| kv.create_revision);
                    let kv = KeyValue {
                        key: key.clone(),
                        value: value.clone(),
                        create_revision: created,
                        mod_revision: self.revision,
                    };
                    self.kvs.insert(key.clone(), kv);
                }
                Op::Delete(keys) => {
                    let prefix = keys.first().to_owned();
                    self.kvs.retain(|key, _| match keys {
                        Keys::One(one) => key != one,
                        Keys::Prefix(_) => !key.starts_with(&prefix),
                    });
                }
            }
        }
        true
    }

    fn put(&mut self, key: String, value: Vec<u8>) {
        let ops = vec![Op::Put(key, value, None)];
        assert!(self.txn(&Txn {
            compare: Vec::new(),
            ops
        }));
    }
}

/// A master, with the right that it believes to have.
#[derive(Default)]
struct Master {
    right: Option<Leadership>,
    /// The transaction that it sends next.
    txn: Option<Txn>,
}

/// A node, with its switch.
pub(crate) struct Node {
    name: String,
    pub(crate) record: Option<Record>,
    /// The content that the switch runs.
    pub(crate) content: String,
    fallback: String,
    is_trying: bool,
    /// The document that it read.
    read: Option<KeyValue>,
    /// The documents that it took: `mod_revision` and epoch.
    taken: Vec<(u64, u64)>,
}

pub(crate) struct World {
    keys: Keyspace,
    store: Store,
    masters: [Master; 2],
    pub(crate) nodes: Vec<Node>,
    now: u64,
    /// The writes of documents by node: the epochs in order.
    written: BTreeMap<String, Vec<u64>>,
}

fn document(content: &str, epoch: u64, tag: Option<String>) -> Document {
    Document {
        schema: 1,
        epoch,
        tag,
        confirm_within: 60,
        supersedes: None,
        author: String::new(),
        comment: String::new(),
        config: Map::from_iter([("content".to_owned(), json!(content))]),
    }
}

impl World {
    /// Returns nodes that run their first documents.
    pub(crate) fn new(keys: Keyspace, names: &[String]) -> World {
        let mut world = World {
            keys,
            store: Store::default(),
            masters: Default::default(),
            nodes: Vec::new(),
            now: 1000,
            written: BTreeMap::new(),
        };
        for name in names {
            world
                .store
                .put(world.keys.config(name), to_bytes(&document("first", 0, None)));
            let status = Status {
                schema: 1,
                healthy: true,
                ..Status::default()
            };
            world.store.put(world.keys.status(name), to_bytes(&status));
            world.nodes.push(Node {
                name: name.clone(),
                record: None,
                content: "first".to_owned(),
                fallback: "first".to_owned(),
                is_trying: false,
                read: None,
                taken: Vec::new(),
            });
        }
        world
    }

    pub(crate) fn submit(&mut self, rollout: &Rollout) {
        for node in rollout.nodes() {
            self.store.put(
                self.keys.next(&rollout.id, node),
                to_bytes(&document("next", 0, None)),
            );
        }
        self.store.put(self.keys.rollout(&rollout.id), to_bytes(rollout));
    }

    pub(crate) fn rollout(&self) -> Rollout {
        let kv = self.store.get(&self.keys.rollout("r1")).unwrap();
        serde_json::from_slice(&kv.value).unwrap()
    }

    pub(crate) fn step(&mut self, event: Event) {
        match event {
            Event::Campaign(master) => self.campaign(master),
            Event::Prepare(master) => self.prepare(master),
            Event::Send(master) => self.send(master),
            Event::LeaseEnds => {
                let ops = vec![Op::Delete(Keys::One(self.keys.leader()))];
                self.store.txn(&Txn {
                    compare: Vec::new(),
                    ops,
                });
            }
            Event::Look(node) => {
                let key = self.keys.config(&self.nodes[node].name);
                self.nodes[node].read = self.store.get(&key).cloned();
            }
            Event::Take(node) => self.take(node),
            Event::End(node, is_good) => self.end(node, is_good),
            Event::Pass(seconds) => self.now += seconds,
        }
    }

    fn campaign(&mut self, master: usize) {
        let txn = Leadership::campaign(&self.keys, "m", Lease(1));
        if self.store.txn(&txn) {
            let right = Leadership::new(self.store.revision, Lease(1), std::time::Duration::ZERO);
            self.masters[master].right = Some(right);
        }
    }

    fn prepare(&mut self, master: usize) {
        let Some(right) = self.masters[master].right else {
            return;
        };
        let rollout = self.rollout();
        let view = |name: &str| NodeView {
            ack: self
                .store
                .get(&self.keys.ack(name))
                .map(|kv| serde_json::from_slice(&kv.value).unwrap()),
            status: self
                .store
                .get(&self.keys.status(name))
                .map(|kv| serde_json::from_slice(&kv.value).unwrap()),
        };
        let views: BTreeMap<String, NodeView> = rollout
            .nodes()
            .map(|name| (name.to_owned(), view(name)))
            .collect();
        let put = |node: &str, from: String, tag: String| {
            let found = self.store.get(&from).unwrap();
            let document = Document {
                epoch: right.epoch,
                tag: Some(tag),
                ..Document::parse(&found.value).unwrap()
            };
            Op::Put(self.keys.config(node), to_bytes(&document), None)
        };
        let (next, mut ops, node) = match plan(&rollout, &views, self.now) {
            Plan::Wait => return,
            Plan::Record(next) => (next, Vec::new(), None),
            Plan::Forward(node, next) => {
                let present = self.store.get(&self.keys.config(&node)).unwrap().value.clone();
                let keep = Op::Put(self.keys.before("r1", &node), present, None);
                (
                    next,
                    vec![keep, put(&node, self.keys.next("r1", &node), rollout.tag())],
                    Some(node),
                )
            }
            Plan::Back(node, next) => (
                next,
                vec![put(&node, self.keys.before("r1", &node), rollout.back_tag())],
                Some(node),
            ),
        };
        let key = self.keys.rollout("r1");
        ops.push(Op::Put(key.clone(), to_bytes(&next), None));
        let mut compare = vec![Compare::Modified(
            key.clone(),
            self.store.get(&key).unwrap().mod_revision,
        )];
        if let Some(node) = node {
            let key = self.keys.config(&node);
            let modified = self.store.get(&key).unwrap().mod_revision;
            compare.push(Compare::Modified(key, modified));
        }
        self.masters[master].txn = Some(right.fenced(&self.keys, Txn { compare, ops }));
    }

    fn send(&mut self, master: usize) {
        let Some(txn) = self.masters[master].txn.take() else {
            return;
        };
        if !self.store.txn(&txn) {
            return;
        }
        let epoch = self.masters[master].right.map_or(0, |right| right.epoch);
        for op in &txn.ops {
            if let Op::Put(key, _, _) = op
                && key.ends_with("/config")
            {
                self.written.entry(key.clone()).or_default().push(epoch);
            }
        }
    }

    fn take(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        let Verdict::Try(document) = judge(node.record.as_ref(), "a", node.read.as_ref()) else {
            return;
        };
        let found = node.read.as_ref().unwrap();
        node.taken.push((found.mod_revision, document.epoch));
        if !node.is_trying {
            node.fallback.clone_from(&node.content);
        }
        node.content = document.config["content"].as_str().unwrap().to_owned();
        // A document that the switch runs already needs no trial.
        node.is_trying = node.is_trying || node.content != node.fallback;
        let outcome = if node.is_trying {
            Outcome::Trying
        } else {
            Outcome::Applied
        };
        node.record = Some(Record {
            cluster: "a".to_owned(),
            mod_revision: found.mod_revision,
            epoch: document.epoch,
            tag: document.tag.clone(),
            outcome,
            revision: None,
            errors: Vec::new(),
            problems: BTreeSet::new(),
        });
        self.answer(at);
    }

    fn end(&mut self, at: usize, is_good: bool) {
        let node = &mut self.nodes[at];
        if !std::mem::take(&mut node.is_trying) {
            return;
        }
        if !is_good {
            node.content.clone_from(&node.fallback);
        }
        if let Some(record) = &mut node.record {
            record.outcome = if is_good {
                Outcome::Applied
            } else {
                Outcome::Returned
            };
        }
        self.answer(at);
    }

    fn answer(&mut self, at: usize) {
        let node = &self.nodes[at];
        let Some(record) = &node.record else { return };
        let ack = Ack {
            schema: 1,
            cluster: "a".to_owned(),
            mod_revision: record.mod_revision,
            seen: record.mod_revision,
            seen_epoch: record.epoch,
            tag: record.tag.clone(),
            revision: None,
            outcome: record.outcome,
            errors: Vec::new(),
        };
        self.store.put(self.keys.ack(&node.name), to_bytes(&ack));
    }

    /// The faults are over: one master, and nodes that succeed.
    pub(crate) fn calm(&mut self) {
        self.step(Event::LeaseEnds);
        self.masters = Default::default();
        self.campaign(0);
        for _ in 0..200 {
            if self.rollout().state.is_over() {
                break;
            }
            self.prepare(0);
            self.send(0);
            for node in 0..self.nodes.len() {
                self.step(Event::Look(node));
                self.take(node);
                self.end(node, true);
            }
        }
    }

    /// Checks what must hold at any time.
    pub(crate) fn check(&self) {
        for node in &self.nodes {
            let epochs: Vec<u64> = node.taken.iter().map(|(_, epoch)| *epoch).collect();
            assert!(
                node.taken.is_sorted_by_key(|(modified, _)| *modified),
                "{}: {:?}",
                node.name,
                node.taken
            );
            assert!(epochs.is_sorted(), "{}: {epochs:?}", node.name);
        }
        for (key, epochs) in &self.written {
            assert!(epochs.is_sorted(), "{key}: {epochs:?}");
        }
    }
}
