//! The tree of a switch: the OpenConfig view, the configuration and the state, as one document.

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};

use millrace_yang::MODULE;
use millrace_yang::data::completed;
use millrace_yang::schema::{Kind, Node, all, configuration, text_of};
use parking_lot::Mutex;
use serde_json::{Map, Value as Json};
use tonic::Status;

use crate::openconfig;
use crate::path::{ANY, Absolute, Origin, Step, check_keys, named, to_proto};
use crate::proto::gnmi::{Encoding, Path, Update};
use crate::value::typed;

/// The kind of data that a client asks for (`GetRequest.DataType`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Selection {
    /// Configuration and state.
    #[default]
    All,
    /// Configuration.
    Config,
    State,
}

/// Returns the nodes of the tree, those of OpenConfig first. No two have one name.
pub fn nodes() -> &'static [Node] {
    static NODES: LazyLock<Vec<Node>> = LazyLock::new(|| {
        let mut nodes = openconfig::nodes().to_vec();
        nodes.extend(all().iter().map(|node| Node {
            module: MODULE,
            ..node.clone()
        }));
        nodes
    });
    &NODES
}

/// The tree with its data at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct View {
    /// The revision of the configuration.
    pub revision: u64,
    data: Map<String, Json>,
    samples: Samples,
}

/// The number of samples that a view keeps.
const SAMPLES_MAX: usize = 64;

/// The values of a path, as a message has them.
#[derive(Debug)]
pub struct Sample {
    steps: Vec<Vec<Step>>,
    origin: String,
    /// An update for each leaf.
    pub updates: Vec<Update>,
}

impl Sample {
    /// Returns the paths that this sample has and another one has not.
    pub fn without(&self, other: &Sample) -> Vec<Path> {
        if self.steps == other.steps {
            return Vec::new();
        }
        let present: BTreeSet<&Vec<Step>> = other.steps.iter().collect();
        let gone = self.steps.iter().filter(|steps| !present.contains(steps));
        gone.map(|steps| to_proto(steps, &self.origin)).collect()
    }
}

/// A sample's path, name and encoding.
type SampleOf = (Absolute, String, Encoding);

/// The samples that clients asked for. They follow from the data, so that views with the same data are equal.
#[derive(Debug, Default)]
struct Samples(Mutex<Vec<(SampleOf, Arc<Sample>)>>);

impl Clone for Samples {
    fn clone(&self) -> Samples {
        Samples::default()
    }
}

impl PartialEq for Samples {
    fn eq(&self, _: &Samples) -> bool {
        true
    }
}

/// A node that a path selects.
#[derive(Debug, Clone)]
pub struct Match {
    /// The path, with all keys.
    pub steps: Vec<Step>,
    pub node: &'static Node,
    /// The module of the node.
    pub module: &'static str,
    /// The value; of a list entry, the entry.
    pub value: Json,
    /// True for a value below `config false`.
    pub is_state: bool,
}

/// A value of a leaf or a leaf-list, with its path.
#[derive(Debug, Clone)]
pub struct Leaf {
    /// The path, with all keys.
    pub steps: Vec<Step>,
    pub node: &'static Node,
    pub value: Json,
}

impl View {
    /// Returns the tree of a document (trimmed or not) and the state of the switch.
    pub fn new(revision: u64, document: &Map<String, Json>, state: &Map<String, Json>) -> View {
        let mut data = completed(configuration(), document);
        data.insert("switch_state".to_owned(), Json::Object(state.clone()));
        let interfaces = openconfig::interfaces(&data, state);
        data.insert("interfaces".to_owned(), interfaces);
        View {
            revision,
            data,
            samples: Samples::default(),
        }
    }

    /// Returns the values of a path. They are made once for all who ask for the same ones.
    ///
    /// # Errors
    /// As [`View::select`].
    pub fn sample(&self, path: &Absolute, origin: &str, encoding: Encoding) -> Result<Arc<Sample>, Status> {
        let mut known = self.samples.0.lock();
        let is_it = |(of, _): &&(SampleOf, Arc<Sample>)| of.0 == *path && of.1 == origin && of.2 == encoding;
        if let Some((_, sample)) = known.iter().find(is_it) {
            return Ok(Arc::clone(sample));
        }
        let mut all = Vec::new();
        for one in self.select(path, Selection::All)? {
            leaves(&one, &mut all);
        }
        let update = |leaf: &Leaf| Update {
            path: Some(to_proto(&leaf.steps, origin)),
            val: Some(typed(leaf.node, &leaf.value, "", encoding)),
            ..Update::default()
        };
        let sample = Arc::new(Sample {
            updates: all.iter().map(update).collect(),
            steps: all.into_iter().map(|leaf| leaf.steps).collect(),
            origin: origin.to_owned(),
        });
        if known.len() < SAMPLES_MAX {
            known.push(((path.clone(), origin.to_owned(), encoding), Arc::clone(&sample)));
        }
        Ok(sample)
    }

    /// Returns the nodes that a path selects. The root is one match for each node at the top.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if the schema has no such node.
    pub fn select(&self, path: &Absolute, selection: Selection) -> Result<Vec<Match>, Status> {
        check(nodes(), &path.steps)?;
        let mut found = Vec::new();
        let top: Vec<&'static Node> = nodes().iter().filter(|node| is_of(node, path.origin)).collect();
        match path.steps.split_first() {
            None => {
                for node in top {
                    push(node, node.module, &self.data, &[], &[], &mut found);
                }
            }
            Some((first, rest)) => {
                let wanted = chosen(&top, nodes(), &first.name)?;
                for node in wanted {
                    walk(node, node.module, &self.data, first, rest, &[], &mut found)?;
                }
            }
        }
        Ok(found
            .into_iter()
            .filter_map(|one| pruned(one, selection))
            .collect())
    }
}

fn is_of(node: &Node, origin: Origin) -> bool {
    match origin {
        Origin::Any => true,
        Origin::OpenConfig => node.module != MODULE,
        Origin::Millrace => node.module == MODULE,
    }
}

fn chosen<'a>(nodes: &[&'a Node], all: &[Node], name: &str) -> Result<Vec<&'a Node>, Status> {
    if name == ANY {
        return Ok(nodes.to_vec());
    }
    match nodes.iter().find(|node| node.name == name) {
        Some(node) => Ok(vec![node]),
        None => named(all, name).and_then(|node| {
            Err(Status::invalid_argument(format!(
                "`{}` belongs to another origin",
                node.name
            )))
        }),
    }
}

/// Follows one step into `node`, which belongs to `data`, and then `rest`.
fn walk(
    node: &'static Node,
    module: &'static str,
    data: &Map<String, Json>,
    step: &Step,
    rest: &[Step],
    before: &[Step],
    found: &mut Vec<Match>,
) -> Result<(), Status> {
    match &node.kind {
        Kind::List { keys, .. } => check_keys(step, keys)?,
        _ if !step.keys.is_empty() => {
            let text = format!("`{}` is no list: expected no keys", node.name);
            return Err(Status::invalid_argument(text));
        }
        _ => {}
    }
    let mut here = Vec::new();
    push(node, module, data, before, &step.keys, &mut here);
    let Some((next, rest)) = rest.split_first() else {
        found.append(&mut here);
        return Ok(());
    };
    let is_wanted = |child: &&'static Node| next.name == ANY || child.name == next.name;
    let inner: Vec<&'static Node> = node.nodes().iter().filter(is_wanted).collect();
    for one in here {
        let Json::Object(table) = &one.value else { continue };
        for child in &inner {
            let module = module_of(child, one.module);
            walk(child, module, table, next, rest, &one.steps, found)?;
        }
    }
    Ok(())
}

/// Checks that the schema has a node for each step, also where there is no data.
fn check(nodes: &[Node], steps: &[Step]) -> Result<(), Status> {
    let Some((step, rest)) = steps.split_first() else {
        return Ok(());
    };
    if step.name == ANY {
        // One of the nodes has what follows.
        let mut outcome = Ok(());
        for node in nodes {
            outcome = check(node.nodes(), rest);
            if outcome.is_ok() {
                break;
            }
        }
        return outcome;
    }
    check(named(nodes, &step.name)?.nodes(), rest)
}

fn module_of(node: &Node, outer: &'static str) -> &'static str {
    match node.module {
        "" => outer,
        own => own,
    }
}

/// Appends the matches of `node` itself: one, or one for each entry of a list with these keys.
fn push(
    node: &'static Node,
    module: &'static str,
    data: &Map<String, Json>,
    before: &[Step],
    wanted: &[(String, String)],
    found: &mut Vec<Match>,
) {
    let Some(value) = data.get(&node.name).filter(|value| !value.is_null()) else {
        return;
    };
    let mut add = |keys: Vec<(String, String)>, value: &Json| {
        let mut steps = before.to_vec();
        steps.push(Step {
            name: node.name.clone(),
            keys,
        });
        found.push(Match {
            steps,
            node,
            module,
            value: value.clone(),
            is_state: !node.config,
        });
    };
    let Kind::List { keys, .. } = &node.kind else {
        return add(Vec::new(), value);
    };
    for item in value.as_array().into_iter().flatten() {
        let own: Vec<(String, String)> = keys
            .iter()
            .map(|key| (key.clone(), item.get(key).map(text_of).unwrap_or_default()))
            .collect();
        let is_wanted = wanted
            .iter()
            .all(|(key, value)| value == ANY || own.iter().any(|(name, own)| name == key && own == value));
        if is_wanted {
            add(own, item);
        }
    }
}

/// Returns the selected part of a match; `None` if nothing is left.
fn pruned(mut one: Match, selection: Selection) -> Option<Match> {
    match selection {
        Selection::All => Some(one),
        Selection::Config | Selection::State => {
            one.value = prune(one.node, &one.value, selection)?;
            Some(one)
        }
    }
}

fn prune(node: &Node, value: &Json, selection: Selection) -> Option<Json> {
    if !node.config {
        return (selection == Selection::State).then(|| value.clone());
    }
    let inner = |table: &Map<String, Json>, keys: &[String]| {
        let mut kept = Map::new();
        for child in node.nodes() {
            let value = table.get(&child.name);
            if let Some(part) = value.and_then(|value| prune(child, value, selection)) {
                kept.insert(child.name.clone(), part);
            }
        }
        // An entry of which something is left has its keys.
        let is_empty = kept.is_empty();
        for key in keys.iter().filter(|_| !is_empty) {
            if let Some(value) = table.get(key) {
                kept.insert(key.clone(), value.clone());
            }
        }
        (!is_empty).then_some(Json::Object(kept))
    };
    match (&node.kind, value) {
        (Kind::Leaf(_) | Kind::LeafList(_), _) => (selection == Selection::Config).then(|| value.clone()),
        (Kind::List { keys, .. }, Json::Array(items)) => {
            let items: Vec<Json> = items
                .iter()
                .filter_map(|item| inner(item.as_object()?, keys))
                .collect();
            (!items.is_empty()).then_some(Json::Array(items))
        }
        (Kind::List { keys, .. }, Json::Object(item)) => inner(item, keys),
        (Kind::Container { .. }, Json::Object(table)) => inner(table, &[]),
        _ => None,
    }
}

/// Appends the leaves of a match.
pub fn leaves(one: &Match, out: &mut Vec<Leaf>) {
    collect(one.node, &one.value, &one.steps, out);
}

fn collect(node: &'static Node, value: &Json, steps: &[Step], out: &mut Vec<Leaf>) {
    match (&node.kind, value) {
        (Kind::Leaf(_) | Kind::LeafList(_), _) => out.push(Leaf {
            steps: steps.to_vec(),
            node,
            value: value.clone(),
        }),
        (_, Json::Object(table)) => {
            let mut found = Vec::new();
            for child in node.nodes() {
                push(child, "", table, steps, &[], &mut found);
            }
            for one in found {
                collect(one.node, &one.value, &one.steps, out);
            }
        }
        _ => {}
    }
}
