//! Edits applied to a trimmed document.

use serde_json::{Map, Value as Json};

use super::{Content, Edit, EditError, Insert, Operation, Problem};
use crate::schema::{Kind, Node, Type, find, text_of};

/// Applies edits and collects their errors.
#[derive(Debug, Default)]
pub struct Editor {
    /// Stop at the first error; otherwise the edits without errors are applied.
    pub stops_at_errors: bool,
    pub errors: Vec<EditError>,
}

/// Returns the instance of a list entry: `port[name='p1']`.
fn instance(name: &str, keys: &[(String, Json)]) -> String {
    let mut text = name.to_owned();
    for (key, value) in keys {
        text.push_str(&format!("[{key}='{}']", text_of(value)));
    }
    text
}

/// Returns the keys of an entry in their order.
///
/// # Errors
/// The key that is missing or wrong.
pub fn keys_of(nodes: &[Node], keys: &[String], edits: &[Edit]) -> Result<Vec<(String, Json)>, Problem> {
    keys.iter()
        .map(|key| {
            let edit = edits.iter().find(|edit| edit.name == *key);
            let missing = || Problem::MissingKey(key.clone());
            let edit = edit.ok_or_else(missing)?;
            let node = find(nodes, key).ok_or_else(missing)?;
            let Kind::Leaf(kind) = &node.kind else {
                return Err(missing());
            };
            Ok((key.clone(), value_of(kind, &edit.content)?))
        })
        .collect()
}

fn value_of(kind: &Type, content: &Content) -> Result<Json, Problem> {
    let parsed = match content {
        // White space around a number or a word is not significant (RFC 7950, section 9.1); that of text is.
        Content::Text(text) if matches!(kind, Type::Text(_)) => kind.parse(text),
        Content::Text(text) => kind.parse(text.trim()),
        Content::Value(value) => kind.from_json(value),
        Content::Nodes(_) => return Err(Problem::InvalidValue(format!("expected {}", kind.expected()))),
    };
    parsed.map_err(|error| Problem::InvalidValue(error.to_string()))
}

impl Editor {
    fn has_stopped(&self) -> bool {
        self.stops_at_errors && !self.errors.is_empty()
    }

    fn fail(&mut self, path: &str, problem: Problem) {
        self.errors.push(EditError {
            path: path.to_owned(),
            problem,
        });
    }

    /// Applies edits to the table `target`, whose nodes are `nodes` and whose instance is `path`.
    pub fn apply(
        &mut self,
        nodes: &[Node],
        target: &mut Map<String, Json>,
        edits: &[Edit],
        operation: Operation,
        path: &str,
    ) {
        for edit in edits {
            if self.has_stopped() {
                return;
            }
            let Some(node) = find(nodes, &edit.name) else {
                self.fail(path, Problem::UnknownElement(edit.name.clone(), String::new()));
                continue;
            };
            let at = format!("{path}/{}", node.name);
            if !node.config {
                self.fail(&at, Problem::State);
                continue;
            }
            let operation = edit.operation.unwrap_or(operation);
            match &node.kind {
                Kind::Leaf(kind) => self.leaf(node, kind, target, edit, operation, &at),
                Kind::LeafList(kind) => self.leaf_list(node, kind, target, edit, operation, &at),
                Kind::Container { presence, nodes } => {
                    self.container(node, (*presence, nodes), target, edit, operation, &at);
                }
                Kind::List { keys, nodes } => {
                    self.entry(node, (keys, nodes), target, edit, operation, path);
                }
            }
        }
    }

    fn leaf(
        &mut self,
        node: &Node,
        kind: &Type,
        target: &mut Map<String, Json>,
        edit: &Edit,
        operation: Operation,
        at: &str,
    ) {
        let exists = target.contains_key(&node.name);
        match operation {
            Operation::None => {}
            Operation::Create if exists => self.fail(at, Problem::DataExists),
            Operation::Delete if !exists => self.fail(at, Problem::DataMissing),
            Operation::Delete | Operation::Remove => drop(target.remove(&node.name)),
            Operation::Merge | Operation::Replace | Operation::Create => {
                match value_of(kind, &edit.content) {
                    Ok(value) if node.default.as_ref() == Some(&value) => drop(target.remove(&node.name)),
                    Ok(value) => drop(target.insert(node.name.clone(), value)),
                    Err(problem) => self.fail(at, problem),
                }
            }
        }
    }

    fn leaf_list(
        &mut self,
        node: &Node,
        kind: &Type,
        target: &mut Map<String, Json>,
        edit: &Edit,
        operation: Operation,
        at: &str,
    ) {
        // All values at once, as gNMI has them.
        if let Content::Value(Json::Array(items)) = &edit.content {
            let values: Result<Vec<Json>, Problem> = items
                .iter()
                .map(|item| value_of(kind, &Content::Value(item.clone())))
                .collect();
            match (operation, values) {
                (Operation::Delete | Operation::Remove, _) => drop(target.remove(&node.name)),
                (_, Ok(values)) => set_list(target, &node.name, values),
                (_, Err(problem)) => self.fail(at, problem),
            }
            return;
        }
        let is_whole = edit.content == Content::Nodes(Vec::new());
        if is_whole && matches!(operation, Operation::Delete | Operation::Remove) {
            let removed = target.remove(&node.name);
            if removed.is_none() && operation == Operation::Delete {
                self.fail(at, Problem::DataMissing);
            }
            return;
        }
        let value = match value_of(kind, &edit.content) {
            Ok(value) => value,
            Err(problem) => return self.fail(at, problem),
        };
        let at = format!("{at}[.='{}']", text_of(&value));
        let mut values = taken_list(target, &node.name);
        let found = values.iter().position(|present| *present == value);
        match (operation, found) {
            (Operation::Create, Some(_)) => self.fail(&at, Problem::DataExists),
            (Operation::Delete, None) => self.fail(&at, Problem::DataMissing),
            (Operation::Delete | Operation::Remove, Some(index)) => drop(values.remove(index)),
            (Operation::None, _) | (Operation::Remove, None) => {}
            (_, Some(index)) if edit.insert.is_some() => {
                let value = values.remove(index);
                self.place(&mut values, value, edit.insert.as_ref(), text_of, &at);
            }
            (_, Some(_)) => {}
            (_, None) => self.place(&mut values, value, edit.insert.as_ref(), text_of, &at),
        }
        set_list(target, &node.name, values);
    }

    fn container(
        &mut self,
        node: &Node,
        (presence, nodes): (bool, &[Node]),
        target: &mut Map<String, Json>,
        edit: &Edit,
        operation: Operation,
        at: &str,
    ) {
        let exists = target.contains_key(&node.name);
        match operation {
            Operation::Create if exists => return self.fail(at, Problem::DataExists),
            Operation::Delete if !exists => return self.fail(at, Problem::DataMissing),
            Operation::Delete | Operation::Remove => return drop(target.remove(&node.name)),
            Operation::None if presence && !exists => return self.fail(at, Problem::DataMissing),
            _ => {}
        }
        let Content::Nodes(edits) = &edit.content else {
            return self.fail(at, Problem::InvalidValue("expected nodes inside".to_owned()));
        };
        let mut table = match target.remove(&node.name) {
            Some(Json::Object(table)) if operation != Operation::Replace => table,
            _ => Map::new(),
        };
        self.apply(nodes, &mut table, edits, operation, at);
        if presence || !table.is_empty() {
            target.insert(node.name.clone(), Json::Object(table));
        }
    }

    fn entry(
        &mut self,
        node: &Node,
        (keys, nodes): (&[String], &[Node]),
        target: &mut Map<String, Json>,
        edit: &Edit,
        operation: Operation,
        path: &str,
    ) {
        let at = format!("{path}/{}", node.name);
        let Content::Nodes(edits) = &edit.content else {
            return self.fail(&at, Problem::InvalidValue("expected nodes inside".to_owned()));
        };
        // Without keys, the whole list: gNMI deletes lists so.
        if edits.is_empty() && matches!(operation, Operation::Delete | Operation::Remove) {
            let removed = target.remove(&node.name);
            if removed.is_none() && operation == Operation::Delete {
                self.fail(&at, Problem::DataMissing);
            }
            return;
        }
        let given = match keys_of(nodes, keys, edits) {
            Ok(given) => given,
            Err(problem) => return self.fail(&at, problem),
        };
        let at = format!("{path}/{}", instance(&node.name, &given));
        let mut items = taken_list(target, &node.name);
        let is_it = |item: &Json| given.iter().all(|(key, value)| item.get(key) == Some(value));
        let found = items.iter().position(is_it);
        match (operation, found) {
            (Operation::Create, Some(_)) => self.fail(&at, Problem::DataExists),
            (Operation::Delete | Operation::None, None) => self.fail(&at, Problem::DataMissing),
            (Operation::Delete | Operation::Remove, Some(index)) => drop(items.remove(index)),
            (Operation::Remove, None) => {}
            _ => {
                let present = found.map(|index| items.remove(index));
                let mut table = match present {
                    Some(Json::Object(table)) if operation != Operation::Replace => table,
                    _ => given.iter().cloned().collect(),
                };
                let inner: Vec<Edit> = edits
                    .iter()
                    .filter(|edit| !keys.contains(&edit.name))
                    .cloned()
                    .collect();
                self.apply(nodes, &mut table, &inner, operation, &at);
                let key = |item: &Json| {
                    keys.first()
                        .and_then(|key| item.get(key))
                        .map(text_of)
                        .unwrap_or_default()
                };
                match (found, &edit.insert) {
                    (Some(index), None) => items.insert(index, Json::Object(table)),
                    (_, insert) => self.place(&mut items, Json::Object(table), insert.as_ref(), key, &at),
                }
            }
        }
        set_list(target, &node.name, items);
    }

    /// Inserts an item at its place; without one, at the end.
    fn place(
        &mut self,
        items: &mut Vec<Json>,
        item: Json,
        insert: Option<&Insert>,
        key: impl Fn(&Json) -> String,
        at: &str,
    ) {
        let index = match insert {
            Some(Insert::First) => 0,
            Some(Insert::Last) | None => items.len(),
            Some(Insert::Before(anchor) | Insert::After(anchor)) => {
                match items.iter().position(|other| key(other) == *anchor) {
                    Some(index) => index + usize::from(matches!(insert, Some(Insert::After(_)))),
                    None => {
                        let problem = Problem::BadAttribute(
                            "insert".to_owned(),
                            "the key or value of an entry that exists",
                        );
                        self.fail(at, problem);
                        items.len()
                    }
                }
            }
        };
        items.insert(index, item);
    }
}

fn taken_list(target: &mut Map<String, Json>, name: &str) -> Vec<Json> {
    match target.remove(name) {
        Some(Json::Array(items)) => items,
        _ => Vec::new(),
    }
}

fn set_list(target: &mut Map<String, Json>, name: &str, items: Vec<Json>) {
    match items.is_empty() {
        true => drop(target.remove(name)),
        false => drop(target.insert(name.to_owned(), Json::Array(items))),
    }
}
