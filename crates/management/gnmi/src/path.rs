//! Paths of gNMI ("gNMI path conventions", openconfig/reference): names with keys, an origin, a prefix.

use millrace_yang::edit::{Content, Edit, Operation};
use millrace_yang::schema::{Kind, Node};
use tonic::Status;

use crate::proto::gnmi::{Path, PathElem};

/// The length limit of a path, in elements.
const STEPS_MAX: usize = 64;
/// The name of any node, and the value of any key.
pub const ANY: &str = "*";

/// The models that a path may name by its origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Origin {
    /// Any: the first element says which.
    #[default]
    Any,
    /// The OpenConfig view.
    OpenConfig,
    /// The model of the switch.
    Millrace,
}

/// An element of a path.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Step {
    /// The name without the name of a module, or [`ANY`].
    pub name: String,
    /// The given keys.
    pub keys: Vec<(String, String)>,
}

/// A path from the root.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Absolute {
    pub origin: Origin,
    /// The elements of prefix and path.
    pub steps: Vec<Step>,
}

impl Absolute {
    /// Returns the path that a prefix and a path make together.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for an unknown origin, `...`, or a broken element.
    pub fn of(prefix: Option<&Path>, path: Option<&Path>) -> Result<Absolute, Status> {
        let mut absolute = Absolute::default();
        for part in [prefix, path].into_iter().flatten() {
            match part.origin.as_str() {
                "" => {}
                "openconfig" => absolute.origin = Origin::OpenConfig,
                "millrace" => absolute.origin = Origin::Millrace,
                other => {
                    let other: String = other.chars().take(64).collect();
                    return Err(Status::invalid_argument(format!(
                        "origin `{other}`: expected openconfig or millrace"
                    )));
                }
            }
            let old = old_elements(part)?;
            for elem in part.elem.iter().chain(&old) {
                absolute.steps.push(step(elem)?);
            }
        }
        match absolute.steps.len() <= STEPS_MAX {
            true => Ok(absolute),
            false => Err(Status::invalid_argument(format!(
                "the path has more than {STEPS_MAX} elements"
            ))),
        }
    }

    /// Returns true if the path names several nodes on purpose.
    pub fn has_wildcard(&self) -> bool {
        let is_any = |step: &Step| step.name == ANY || step.keys.iter().any(|(_, value)| value == ANY);
        self.steps.iter().any(is_any)
    }
}

fn step(elem: &PathElem) -> Result<Step, Status> {
    if elem.name == "..." {
        return Err(Status::invalid_argument(
            "`...` is not supported: expected names, or * for one level",
        ));
    }
    let name = elem.name.rsplit(':').next().unwrap_or_default().to_owned();
    let bare = |key: &str| key.rsplit(':').next().unwrap_or_default().to_owned();
    let keys = elem
        .key
        .iter()
        .map(|(key, value)| (bare(key), value.clone()))
        .collect();
    Ok(Step { name, keys })
}

/// Returns the elements of a path in the form of version 0.3, `interface[name=eth0]`. Clients that speak both versions fill in
/// both forms: the newer one counts.
#[allow(deprecated, reason = "clients of version 0.3 send it")]
fn old_elements(path: &Path) -> Result<Vec<PathElem>, Status> {
    if !path.elem.is_empty() {
        return Ok(Vec::new());
    }
    path.element.iter().map(|text| old_element(text)).collect()
}

fn old_element(text: &str) -> Result<PathElem, Status> {
    let shown: String = text.chars().take(64).collect();
    let invalid = || Status::invalid_argument(format!("Path.element `{shown}`: expected NAME[KEY=VALUE]..."));
    let (name, mut rest) = text.split_at(text.find('[').unwrap_or(text.len()));
    let mut elem = PathElem {
        name: name.to_owned(),
        ..PathElem::default()
    };
    while let Some(inner) = rest.strip_prefix('[') {
        let (key, after) = inner.split_once('=').ok_or_else(invalid)?;
        let mut value = String::new();
        let mut characters = after.char_indices();
        let end = loop {
            match characters.next() {
                // A backslash stands before a bracket, or before another backslash, that is part of the value.
                Some((_, '\\')) => value.extend(characters.next().map(|(_, character)| character)),
                Some((at, ']')) => break at,
                Some((_, character)) => value.push(character),
                None => return Err(invalid()),
            }
        };
        elem.key.insert(key.to_owned(), value);
        rest = &after[end + 1..];
    }
    match rest.is_empty() && !name.is_empty() {
        true => Ok(elem),
        false => Err(invalid()),
    }
}

/// Returns steps as a path of gNMI.
pub fn to_proto(steps: &[Step], origin: &str) -> Path {
    Path {
        origin: origin.to_owned(),
        elem: steps
            .iter()
            .map(|step| PathElem {
                name: step.name.clone(),
                key: step.keys.iter().cloned().collect(),
            })
            .collect(),
        ..Path::default()
    }
}

/// Returns steps as text: `/interfaces/interface[name=br0/p1]`.
pub fn to_text(steps: &[Step]) -> String {
    let mut text = String::new();
    for step in steps {
        text.push('/');
        text.push_str(&step.name);
        for (key, value) in &step.keys {
            text.push_str(&format!("[{key}={value}]"));
        }
    }
    match text.is_empty() {
        true => "/".to_owned(),
        false => text,
    }
}

/// Returns the edit that applies `content` with `operation` at the node that the steps lead to. Keys in the path become nodes
/// of their entries.
///
/// # Errors
/// `INVALID_ARGUMENT` if the schema does not have such a node, or keys are missing on the way.
pub(crate) fn edit_at(
    nodes: &[Node],
    steps: &[Step],
    operation: Operation,
    content: Content,
) -> Result<Edit, Status> {
    let Some((step, rest)) = steps.split_first() else {
        return Err(Status::internal("an edit of the root has no name"));
    };
    let node = named(nodes, &step.name)?;
    let mut edit = Edit {
        name: node.name.clone(),
        operation: None,
        insert: None,
        content: Content::Nodes(Vec::new()),
    };
    let keys: Vec<Edit> = match &node.kind {
        Kind::List { keys, .. } => {
            check_keys(step, keys)?;
            let given = step.keys.iter().map(|(key, value)| Edit {
                name: key.clone(),
                operation: None,
                insert: None,
                content: Content::Text(value.clone()),
            });
            given.collect()
        }
        _ if !step.keys.is_empty() => {
            return Err(Status::invalid_argument(format!(
                "`{}` is no list: expected no keys",
                step.name
            )));
        }
        _ => Vec::new(),
    };
    let inner = match rest.is_empty() {
        true => {
            edit.operation = Some(operation);
            match content {
                Content::Nodes(nodes) => nodes,
                value => {
                    edit.content = value;
                    return Ok(edit);
                }
            }
        }
        false => {
            if matches!(&node.kind, Kind::List { keys, .. } if step.keys.len() < keys.len()) {
                return Err(Status::invalid_argument(format!(
                    "`{}` is a list: expected its keys, in front of what is inside",
                    step.name
                )));
            }
            vec![edit_at(node.nodes(), rest, operation, content)?]
        }
    };
    let is_key = |edit: &Edit| keys.iter().any(|key| key.name == edit.name);
    for given in inner.iter().filter(|edit| is_key(edit)) {
        let same = keys
            .iter()
            .any(|key| key.name == given.name && text_of(&key.content) == text_of(&given.content));
        if !same {
            return Err(Status::invalid_argument(format!(
                "the key `{}` in the value differs from that in the path",
                given.name
            )));
        }
    }
    let mut all = keys.clone();
    all.extend(inner.into_iter().filter(|edit| !is_key(edit)));
    edit.content = Content::Nodes(all);
    Ok(edit)
}

fn text_of(content: &Content) -> String {
    match content {
        Content::Text(text) => text.clone(),
        Content::Value(value) => millrace_yang::schema::text_of(value),
        Content::Nodes(_) => String::new(),
    }
}

/// Returns the node with a name.
///
/// # Errors
/// `INVALID_ARGUMENT`, with the names that there are.
pub(crate) fn named<'a>(nodes: &'a [Node], name: &str) -> Result<&'a Node, Status> {
    nodes.iter().find(|node| node.name == name).ok_or_else(|| {
        let known: Vec<&str> = nodes.iter().map(|node| node.name.as_str()).collect();
        let name: String = name.chars().take(64).collect();
        Status::invalid_argument(match known.is_empty() {
            true => format!("`{name}`: the path leads through a leaf"),
            false => format!("`{name}` is no node here: expected one of {}", known.join(", ")),
        })
    })
}

/// Checks that the keys of a step are keys of its list.
///
/// # Errors
/// `INVALID_ARGUMENT`.
pub(crate) fn check_keys(step: &Step, keys: &[String]) -> Result<(), Status> {
    match step.keys.iter().find(|(key, _)| !keys.contains(key)) {
        None => Ok(()),
        Some((key, _)) => Err(Status::invalid_argument(format!(
            "`{}` has no key `{}`: expected {}",
            step.name,
            key.chars().take(64).collect::<String>(),
            keys.join(", ")
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[allow(deprecated, reason = "clients of version 0.3 send it")]
    fn of_elements(elements: &[&str], elem: &[PathElem]) -> Result<String, Status> {
        let path = Path {
            element: elements.iter().map(|element| (*element).to_owned()).collect(),
            elem: elem.to_vec(),
            ..Path::default()
        };
        Absolute::of(None, Some(&path)).map(|path| to_text(&path.steps))
    }

    #[test]
    fn a_path_of_version_0_3_is_read_and_one_of_both_versions_counts_once() {
        let old = ["interfaces", "interface[name=br0/p1]", "state"];
        assert_eq!(
            of_elements(&old, &[]).unwrap(),
            "/interfaces/interface[name=br0/p1]/state"
        );
        let new = PathElem {
            name: "interfaces".to_owned(),
            ..PathElem::default()
        };
        assert_eq!(of_elements(&old, &[new]).unwrap(), "/interfaces");
        assert_eq!(
            of_elements(&[r"a[b=\]\\][c=d=e]"], &[]).unwrap(),
            r"/a[b=]\][c=d=e]"
        );
        for broken in ["", "[a=b]", "a[b", "a[b]", "a[b=c", "a[b=c]d", r"a[b=\"] {
            let status = of_elements(&[broken], &[]).unwrap_err();
            assert!(
                status.message().contains("expected NAME[KEY=VALUE]"),
                "{broken}: {status}"
            );
        }
    }
}
