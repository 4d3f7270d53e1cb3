//! Edits from XML and from JSON.

use serde_json::{Map, Value as Json};

use super::{Content, Edit, EditError, Insert, NETCONF, Operation, Problem, YANG};
use crate::schema::{Kind, Node, find};
use crate::xml::Element;

/// Returns the edits of the elements of `config`; nodes without a module of their own are in `namespace`. All problems are collected:
/// an element with one is left out.
pub fn from_xml(
    nodes: &[Node],
    elements: &[Element],
    namespace: &str,
    path: &str,
    errors: &mut Vec<EditError>,
) -> Vec<Edit> {
    let mut edits: Vec<Edit> = Vec::new();
    for element in elements {
        let at = format!("{path}/{}", element.name);
        let fail = |problem| EditError {
            path: at.clone(),
            problem,
        };
        let is_in = |node: &&Node| node.namespace(namespace) == element.namespace;
        let Some(node) = nodes.iter().filter(is_in).find(|node| node.name == element.name) else {
            let is_known = element.namespace == namespace || nodes.iter().any(|node| is_in(&node));
            errors.push(match is_known {
                true => unknown(nodes, &element.name, path),
                false => fail(Problem::UnknownNamespace(
                    element.namespace.chars().take(100).collect(),
                )),
            });
            continue;
        };
        let (operation, insert) = match attributes(element) {
            Ok(read) => read,
            Err(problem) => {
                errors.push(fail(problem));
                continue;
            }
        };
        let is_alone = matches!(node.kind, Kind::Leaf(_) | Kind::Container { .. });
        if is_alone && edits.iter().any(|edit| edit.name == element.name) {
            errors.push(fail(Problem::BadElement("occurs twice: expected it once")));
            continue;
        }
        let content = match &node.kind {
            Kind::Leaf(_) | Kind::LeafList(_) if element.children.is_empty() => {
                Content::Text(element.text.clone())
            }
            Kind::Leaf(_) | Kind::LeafList(_) => {
                errors.push(fail(Problem::BadElement(
                    "is a value: expected text, and no elements",
                )));
                continue;
            }
            Kind::Container { .. } | Kind::List { .. } if !element.text.trim().is_empty() => {
                errors.push(fail(Problem::BadElement("has elements: expected no text")));
                continue;
            }
            Kind::Container { nodes: inside, .. } => {
                let inner = node.namespace(namespace);
                Content::Nodes(from_xml(inside, &element.children, inner, &at, errors))
            }
            Kind::List { keys, nodes: inside } => {
                let inner = node.namespace(namespace);
                let inside = from_xml(inside, &element.children, inner, &at, errors);
                if let Some(key) = inside
                    .iter()
                    .find(|edit| keys.contains(&edit.name) && edit.removes())
                {
                    errors.push(EditError {
                        path: format!("{at}/{}", key.name),
                        problem: Problem::BadAttribute(
                            "operation".to_owned(),
                            "none at a key, which cannot be removed: remove its entry",
                        ),
                    });
                    continue;
                }
                Content::Nodes(inside)
            }
        };
        edits.push(Edit {
            name: element.name.clone(),
            operation,
            insert,
            content,
        });
    }
    edits
}

fn attributes(element: &Element) -> Result<(Option<Operation>, Option<Insert>), Problem> {
    // Data have no attributes of their own: one without a namespace would be an operation that is not done.
    if let Some(attribute) = element
        .attributes
        .iter()
        .find(|attribute| attribute.namespace.is_empty())
    {
        let name = attribute.name.chars().take(100).collect();
        return Err(Problem::BadAttribute(
            name,
            "the namespace urn:ietf:params:xml:ns:netconf:base:1.0 of `operation`, as by xmlns:nc and nc:operation",
        ));
    }
    let operation = match element.attribute(NETCONF, "operation") {
        None => None,
        Some(word) => Some(Operation::from_word(word.trim()).ok_or_else(|| {
            Problem::BadAttribute("operation".to_owned(), "merge, replace, create, delete or remove")
        })?),
    };
    let anchor = |name: &str| {
        let written = element.attribute(YANG, name).map(str::trim);
        written.map(|written| match name {
            // `[name='p1']`, with a prefix perhaps.
            "key" => written.split(['\'', '"']).nth(1).unwrap_or(written).to_owned(),
            _ => written.to_owned(),
        })
    };
    let place = || anchor("key").or_else(|| anchor("value"));
    let expected = || {
        Problem::BadAttribute(
            "insert".to_owned(),
            "first, last, or before or after with the attribute key or value",
        )
    };
    let insert = match element.attribute(YANG, "insert") {
        None => None,
        Some("first") => Some(Insert::First),
        Some("last") => Some(Insert::Last),
        Some("before") => Some(Insert::Before(place().ok_or_else(expected)?)),
        Some("after") => Some(Insert::After(place().ok_or_else(expected)?)),
        Some(_) => return Err(expected()),
    };
    Ok((operation, insert))
}

fn unknown(nodes: &[Node], name: &str, path: &str) -> EditError {
    let known: Vec<&str> = nodes.iter().map(|node| node.name.as_str()).collect();
    EditError {
        path: match path {
            "" => "/".to_owned(),
            path => path.to_owned(),
        },
        problem: Problem::UnknownElement(name.chars().take(64).collect(), known.join(", ")),
    }
}

/// Returns the edits of the members of an object, in JSON of RFC 7951 or plain JSON: member names may have the name of a
/// module before them.
///
/// # Errors
/// The first [`EditError`].
pub fn from_json(nodes: &[Node], object: &Map<String, Json>, path: &str) -> Result<Vec<Edit>, EditError> {
    let mut edits = Vec::new();
    for (written, value) in object {
        let name = written.rsplit(':').next().unwrap_or(written);
        let node = find(nodes, name).ok_or_else(|| unknown(nodes, written, path))?;
        let at = format!("{path}/{name}");
        let edit = |content| Edit {
            name: name.to_owned(),
            operation: None,
            insert: None,
            content,
        };
        let expected = |what: &str| EditError {
            path: at.clone(),
            problem: Problem::InvalidValue(format!("expected {what}")),
        };
        let inside = |nodes: &[Node], value: &Json, what: &str| match value {
            Json::Object(object) => from_json(nodes, object, &at).map(Content::Nodes),
            _ => Err(expected(what)),
        };
        match &node.kind {
            Kind::Leaf(_) => edits.push(edit(Content::Value(value.clone()))),
            Kind::LeafList(_) => match value {
                Json::Array(_) => edits.push(edit(Content::Value(value.clone()))),
                _ => return Err(expected("a list of values")),
            },
            Kind::Container { nodes, .. } => edits.push(edit(inside(nodes, value, "an object")?)),
            Kind::List { nodes, .. } => match value {
                Json::Array(items) => {
                    for item in items {
                        edits.push(edit(inside(nodes, item, "a list of objects")?));
                    }
                }
                _ => return Err(expected("a list of objects")),
            },
        }
    }
    Ok(edits)
}
