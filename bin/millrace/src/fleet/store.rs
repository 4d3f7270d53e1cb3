//! Keys that the command line reads and writes in etcd.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use millrace_etcd::{Client, Compare, KeyValue, Keys, Op, Read, Txn};
use millrace_fleet::{
    Ack, DOCUMENT_SIZE_MAX, Document, Keyspace, NodeView, Rollout, SCHEMA, Status, check_name, to_bytes,
};
use millrace_model::Config;
use serde::de::DeserializeOwned;

/// The longest wait for something to be written in etcd.
pub(super) const LOOK: Duration = Duration::from_secs(1);
/// The keys of a transaction that only reads: etcd takes at most 128.
const READS_MAX: usize = 100;
/// Roll-outs that are over and kept.
const ROLLOUTS_MAX: usize = 20;
/// Attempts of a change of a roll-out, while a master changes it, too.
const ATTEMPTS: usize = 20;

/// A switch, as etcd knows it.
#[derive(Debug, Default)]
pub(super) struct Node {
    /// The `mod_revision` of its document.
    pub(super) document: Option<u64>,
    pub(super) view: NodeView,
}

/// All switches.
pub(super) struct Known {
    pub(super) master: Option<String>,
    pub(super) nodes: BTreeMap<String, Node>,
}

/// The connection to etcd, and its keys.
pub(super) struct Store {
    pub(super) etcd: Client,
    pub(super) keys: Keyspace,
}

/// Returns the seconds since 1970.
pub(super) fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs()
}

/// Returns a name for a roll-out: its time, and four random digits.
pub(super) fn new_id(created: u64) -> Result<String> {
    use std::io::Read as _;
    let mut random = [0; 2];
    std::fs::File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut random))
        .context("/dev/urandom")?;
    Ok(format!("{created}-{:04x}", u16::from_be_bytes(random)))
}

/// Returns a value; `None` for one that is not of this version.
pub(super) fn parsed<T: DeserializeOwned>(kv: Option<&KeyValue>) -> Option<T> {
    serde_json::from_slice(&kv?.value).ok()
}

impl Store {
    pub(super) fn new(etcd: Client, keys: Keyspace) -> Store {
        Store { etcd, keys }
    }

    /// Returns the store by a connection of its own.
    pub(super) fn again(&self) -> Store {
        Store::new(self.etcd.clone(), self.keys.clone())
    }

    /// Waits until something is written after a revision.
    pub(super) fn wait(&mut self, revision: u64, time: Duration) {
        if self.etcd.watch(&self.keys.all(), revision, time).is_err() {
            std::thread::sleep(time);
        }
    }

    /// Returns a roll-out, and the revision of the store.
    pub(super) fn rollout(&mut self, id: &str) -> Result<(Rollout, u64)> {
        let (rollout, _, revision) = self.read_rollout(id)?;
        Ok((rollout, revision))
    }

    fn read_rollout(&mut self, id: &str) -> Result<(Rollout, u64, u64)> {
        check_name(id)?;
        let key = self.keys.rollout(id);
        let read = self.etcd.read(&[Keys::One(key.clone())])?;
        let Some(kv) = read.get(&key) else {
            bail!("there is no roll-out {id}: `millrace fleet history` lists them");
        };
        let rollout = serde_json::from_slice(&kv.value).with_context(|| format!("roll-out {id}"))?;
        Ok((rollout, kv.mod_revision, read.revision))
    }

    /// Returns the roll-outs, the newest first.
    pub(super) fn rollouts(&mut self) -> Result<Vec<Rollout>> {
        let read = self.etcd.read(&[self.keys.rollouts()])?;
        let mut rollouts: Vec<Rollout> = read.kvs.iter().filter_map(|kv| parsed(Some(kv))).collect();
        rollouts.sort_by(|a, b| (b.created, &b.id).cmp(&(a.created, &a.id)));
        Ok(rollouts)
    }

    /// Changes the record of a roll-out, as a person does.
    pub(super) fn change(&mut self, id: &str, change: impl Fn(Rollout) -> Result<Rollout>) -> Result<()> {
        for _ in 0..ATTEMPTS {
            let (rollout, modified, _) = self.read_rollout(id)?;
            let next = change(rollout)?;
            let key = self.keys.rollout(id);
            let txn = Txn {
                compare: vec![Compare::Modified(key.clone(), modified)],
                ops: vec![Op::Put(key, to_bytes(&next), None)],
            };
            if self.etcd.txn(&txn)?.succeeded {
                return Ok(());
            }
        }
        bail!("roll-out {id} changes all the time: try again")
    }

    /// Records a roll-out with its documents.
    pub(super) fn submit(&mut self, rollout: &Rollout, documents: &BTreeMap<String, Config>) -> Result<()> {
        for node in documents.keys() {
            check_name(node)?;
        }
        let known = self.etcd.keys(&[self.keys.nodes()])?;
        for (node, config) in documents {
            if known.get(&self.keys.config(node)).is_none() {
                bail!("{node} is not in the fleet: run `millrace fleet attach` on it first");
            }
            let document = Document {
                schema: SCHEMA,
                epoch: 0,
                tag: Some(rollout.tag()),
                confirm_within: rollout.confirm_within,
                supersedes: None,
                author: rollout.author.clone(),
                comment: rollout.comment.clone(),
                config: object(config)?,
            };
            let bytes = to_bytes(&document);
            if bytes.len() > DOCUMENT_SIZE_MAX {
                bail!(
                    "the document of {node} has {} bytes: expected at most {DOCUMENT_SIZE_MAX}",
                    bytes.len()
                );
            }
            let key = self.keys.next(&rollout.id, node);
            let txn = Txn {
                compare: vec![Compare::Created(key.clone(), 0)],
                ops: vec![Op::Put(key, bytes, None)],
            };
            self.etcd.txn(&txn)?;
        }
        let key = self.keys.rollout(&rollout.id);
        let txn = Txn {
            compare: vec![Compare::Created(key.clone(), 0)],
            ops: vec![Op::Put(key, to_bytes(rollout), None)],
        };
        if !self.etcd.txn(&txn)?.succeeded {
            bail!("there is a roll-out {} already: try again", rollout.id);
        }
        self.prune()
    }

    /// Removes the oldest roll-outs that are over.
    fn prune(&mut self) -> Result<()> {
        let over = self
            .rollouts()?
            .into_iter()
            .filter(|rollout| rollout.state.is_over());
        for rollout in over.skip(ROLLOUTS_MAX) {
            let ops = vec![
                Op::Delete(Keys::One(self.keys.rollout(&rollout.id))),
                Op::Delete(self.keys.documents(&rollout.id)),
            ];
            self.etcd.txn(&Txn {
                compare: Vec::new(),
                ops,
            })?;
        }
        Ok(())
    }

    /// Returns what the switches of a roll-out had before it.
    pub(super) fn documents_before(&mut self, rollout: &Rollout) -> Result<BTreeMap<String, Config>> {
        let mut documents = BTreeMap::new();
        for node in rollout.nodes() {
            let key = self.keys.before(&rollout.id, node);
            let read = self.etcd.read(&[Keys::One(key.clone())])?;
            let Some(kv) = read.get(&key) else {
                bail!("etcd has not kept what {node} had before roll-out {}", rollout.id);
            };
            documents.insert(node.to_owned(), config_of(node, &kv.value)?);
        }
        Ok(documents)
    }

    /// Returns the document of a node.
    pub(super) fn document(&mut self, node: &str) -> Result<Option<(Config, u64)>> {
        check_name(node)?;
        let key = self.keys.config(node);
        let read = self.etcd.read(&[Keys::One(key.clone())])?;
        match read.get(&key) {
            Some(kv) => Ok(Some((config_of(node, &kv.value)?, kv.mod_revision))),
            None => Ok(None),
        }
    }

    /// Returns what etcd knows of nodes, and the revision of the first part that was read.
    pub(super) fn views<'a>(
        &mut self,
        nodes: impl Iterator<Item = &'a str>,
    ) -> Result<BTreeMap<String, NodeView>> {
        let nodes: Vec<&str> = nodes.collect();
        let mut views = BTreeMap::new();
        for some in nodes.chunks(READS_MAX / 2) {
            let keys = some
                .iter()
                .flat_map(|node| [self.keys.ack(node), self.keys.status(node)]);
            let selections: Vec<Keys> = keys.map(Keys::One).collect();
            let read = self.etcd.read(&selections)?;
            for node in some {
                views.insert((*node).to_owned(), self.view(&read, node));
            }
        }
        Ok(views)
    }

    fn view(&self, read: &Read, node: &str) -> NodeView {
        NodeView {
            ack: parsed::<Ack>(read.get(&self.keys.ack(node))),
            status: parsed::<Status>(read.get(&self.keys.status(node))),
        }
    }

    /// Returns all switches.
    pub(super) fn fleet(&mut self) -> Result<Known> {
        let read = self.etcd.keys(&[self.keys.nodes()])?;
        let mut nodes: BTreeMap<String, Node> = BTreeMap::new();
        for kv in &read.kvs {
            let Some(name) = self.keys.node_of(&kv.key) else {
                continue;
            };
            let node = nodes.entry(name.to_owned()).or_default();
            if kv.key == self.keys.config(name) {
                node.document = Some(kv.mod_revision);
            }
        }
        let names: Vec<String> = nodes.keys().cloned().collect();
        for (name, view) in self.views(names.iter().map(String::as_str))? {
            nodes.entry(name).or_default().view = view;
        }
        let leader = self.keys.leader();
        let read = self.etcd.read(&[Keys::One(leader.clone())])?;
        let master = read
            .get(&leader)
            .map(|kv| String::from_utf8_lossy(&kv.value).into_owned());
        Ok(Known { master, nodes })
    }

    /// Returns the alarms of the cluster, as far as this user may see them.
    pub(super) fn alarms(&mut self) -> Vec<String> {
        self.etcd.alarms().unwrap_or_default()
    }
}

/// Returns a configuration as the object of a document.
pub(super) fn object(config: &Config) -> Result<serde_json::Map<String, serde_json::Value>> {
    match config.to_json() {
        serde_json::Value::Object(object) => Ok(object),
        _ => bail!("the configuration is no table"),
    }
}

/// Returns the configuration in a document.
fn config_of(node: &str, bytes: &[u8]) -> Result<Config> {
    let document = Document::parse(bytes).map_err(|error| anyhow::anyhow!("{node}: {error}"))?;
    let config = serde_json::Value::Object(document.config);
    Config::from_json(&config)
        .or_else(|errors| bail!("the document of {node} is not a valid configuration:\n{errors}"))
}
