//! Set: one change of the switch, in the order delete, replace, update (gNMI, section 3.4.3).

use millrace_yang::data::{completed, trimmed};
use millrace_yang::datastore::{Change, Datastore, Failure, Snapshot};
use millrace_yang::edit::{Content, Edit, Editor, Operation, Problem, from_json};
use millrace_yang::schema::{Kind, Node, configuration};
use serde_json::{Map, Value as Json};
use tonic::Status;

use crate::commit::{Action, requested};
use crate::get::{PATHS_MAX, target_only};
use crate::openconfig;
use crate::path::{Absolute, Origin, Step, edit_at, named, to_text};
use crate::proto::gnmi::update_result;
use crate::proto::gnmi::{Path, SetRequest, SetResponse, Update, UpdateResult};
use crate::status::{of_edit, of_failure};
use crate::value::json_of;
use crate::view::{Selection, View};

/// The number of attempts when others commit at the same time.
const ATTEMPTS: usize = 8;

/// A part of a Set.
struct Part {
    operation: Operation,
    path: Absolute,
    value: Option<Json>,
    /// The path as the client wrote it.
    written: Path,
}

/// Applies a request. `now` is the time in nanoseconds since 1970.
///
/// # Errors
/// `INVALID_ARGUMENT` for a request that the switch cannot be, `FAILED_PRECONDITION` for one that it does not allow at present,
/// `ABORTED` if others write faster, `UNIMPLEMENTED` for `union_replace`.
pub fn set(request: &SetRequest, store: &mut dyn Datastore, now: i64) -> Result<SetResponse, Status> {
    if !request.union_replace.is_empty() {
        return Err(Status::unimplemented(
            "union_replace is not supported: expected delete, replace and update",
        ));
    }
    let parts = parts(request)?;
    let action = requested(request, !parts.is_empty())?;
    let response = || SetResponse {
        prefix: target_only(request.prefix.as_ref()),
        response: parts.iter().map(Part::result).collect(),
        timestamp: now,
        ..SetResponse::default()
    };
    if let Some(action) = &action
        && action.settle(store)?
    {
        return Ok(response());
    }
    if parts.is_empty() && action.is_none() {
        return Ok(response());
    }
    let mut attempt = 1;
    loop {
        let snapshot = store.running().map_err(of_failure)?;
        let document = applied(&snapshot, &parts)?;
        let change = Change {
            dry_run: false,
            confirm_within: action.as_ref().and_then(Action::confirm_within),
            comment: action
                .as_ref()
                .map_or_else(|| "gNMI Set".to_owned(), Action::comment),
        };
        match store.replace(&document, snapshot.revision, &change) {
            Ok(_) => return Ok(response()),
            // Another client was first: the request applies to what it left.
            Err(Failure::Stale(_)) if attempt < ATTEMPTS => attempt += 1,
            Err(failure) => return Err(of_failure(failure)),
        }
    }
}

fn parts(request: &SetRequest) -> Result<Vec<Part>, Status> {
    let len = request.delete.len() + request.replace.len() + request.update.len();
    if len > PATHS_MAX {
        return Err(Status::resource_exhausted(format!(
            "the request has more than {PATHS_MAX} paths"
        )));
    }
    let prefix = request.prefix.as_ref();
    let mut parts = Vec::new();
    for path in &request.delete {
        parts.push(Part {
            operation: Operation::Remove,
            path: Absolute::of(prefix, Some(path))?,
            value: None,
            written: path.clone(),
        });
    }
    let replaced = request.replace.iter().map(|update| (Operation::Replace, update));
    let updated = request.update.iter().map(|update| (Operation::Merge, update));
    for (operation, update) in replaced.chain(updated) {
        parts.push(part(operation, prefix, update)?);
    }
    Ok(parts)
}

fn part(operation: Operation, prefix: Option<&Path>, update: &Update) -> Result<Part, Status> {
    let path = Absolute::of(prefix, update.path.as_ref())?;
    if path.has_wildcard() {
        let text = format!("{}: a wildcard is allowed in delete alone", to_text(&path.steps));
        return Err(Status::invalid_argument(text));
    }
    Ok(Part {
        operation,
        path,
        value: Some(json_of(update.val.as_ref())?),
        written: update.path.clone().unwrap_or_default(),
    })
}

impl Part {
    fn result(&self) -> UpdateResult {
        let op = match self.operation {
            Operation::Replace => update_result::Operation::Replace,
            Operation::Remove => update_result::Operation::Delete,
            _ => update_result::Operation::Update,
        };
        UpdateResult {
            path: Some(self.written.clone()),
            op: op.into(),
            ..UpdateResult::default()
        }
    }

    fn origin(&self) -> Origin {
        let top = self.path.steps.first().map(|step| step.name.as_str());
        let is_view = top.is_some_and(|top| openconfig::nodes().iter().any(|node| node.name == top));
        match (self.path.origin, is_view) {
            (Origin::Any, true) => Origin::OpenConfig,
            (Origin::Any, false) => Origin::Millrace,
            (given, _) => given,
        }
    }
}

/// Returns the whole document that results.
fn applied(snapshot: &Snapshot, parts: &[Part]) -> Result<Map<String, Json>, Status> {
    let mut document = trimmed(configuration(), &snapshot.document);
    for part in parts {
        match part.origin() {
            Origin::OpenConfig => {
                let mut view = openconfig::configuration(&document);
                change(openconfig::nodes(), part, &mut view, &document)?;
                openconfig::write_back(&view, &mut document)?;
            }
            _ => {
                let before = document.clone();
                change(configuration(), part, &mut document, &before)?;
            }
        }
    }
    Ok(completed(configuration(), &document))
}

/// Applies one part to `target`, whose nodes are `nodes`.
fn change(
    nodes: &[Node],
    part: &Part,
    target: &mut Map<String, Json>,
    document: &Map<String, Json>,
) -> Result<(), Status> {
    let Some(value) = &part.value else {
        for steps in removed(part, document)? {
            if steps.is_empty() {
                target.clear();
                continue;
            }
            let edit = edit_at(nodes, &steps, Operation::Remove, Content::Nodes(Vec::new()))?;
            apply(nodes, target, &[edit])?;
        }
        return Ok(());
    };
    if part.path.steps.is_empty() {
        let Json::Object(object) = value else {
            return Err(Status::invalid_argument(
                "the value of the root: expected an object",
            ));
        };
        let edits = from_json(nodes, object, "").map_err(|error| of_edit(&error))?;
        if part.operation == Operation::Replace {
            target.clear();
        }
        return apply(nodes, target, &edits);
    }
    for (steps, content) in contents(nodes, &part.path.steps, value)? {
        // A list without keys is replaced as a whole.
        if let Some(whole) = steps.whole
            && part.operation == Operation::Replace
        {
            let edit = edit_at(nodes, &whole, Operation::Remove, Content::Nodes(Vec::new()))?;
            apply(nodes, target, &[edit])?;
        }
        if let Some(steps) = steps.entry {
            let edit = edit_at(nodes, &steps, part.operation, content)?;
            apply(nodes, target, &[edit])?;
        }
    }
    Ok(())
}

/// Applies edits; a delete of what does not exist is none (gNMI, section 3.4.6).
fn apply(nodes: &[Node], target: &mut Map<String, Json>, edits: &[Edit]) -> Result<(), Status> {
    let mut editor = Editor {
        stops_at_errors: true,
        ..Editor::default()
    };
    editor.apply(nodes, target, edits, Operation::Merge, "");
    match editor.errors.first() {
        Some(error) if error.problem != Problem::DataMissing => Err(of_edit(error)),
        _ => Ok(()),
    }
}

/// Returns the paths that a delete removes: those that exist.
fn removed(part: &Part, document: &Map<String, Json>) -> Result<Vec<Vec<Step>>, Status> {
    if part.path.steps.is_empty() {
        return Ok(vec![Vec::new()]);
    }
    let view = View::new(0, document, &Map::new());
    let path = Absolute {
        origin: part.origin(),
        steps: part.path.steps.clone(),
    };
    let found = view.select(&path, Selection::All)?;
    if let Some(one) = found.iter().find(|one| one.is_state) {
        let text = format!(
            "{}: is state of the switch, which cannot be set",
            to_text(&one.steps)
        );
        return Err(Status::invalid_argument(text));
    }
    Ok(found.into_iter().map(|one| one.steps).collect())
}

/// The places of a value: the list that it replaces, and an entry.
struct Place {
    whole: Option<Vec<Step>>,
    entry: Option<Vec<Step>>,
}

/// Returns the content of a value at a path: one, or one for each entry of a list without keys.
fn contents(nodes: &[Node], steps: &[Step], value: &Json) -> Result<Vec<(Place, Content)>, Status> {
    let (node, last) = node_at(nodes, steps)?;
    let at = to_text(steps);
    let object = |nodes: &[Node], value: &Json| match value {
        Json::Object(object) => from_json(nodes, object, &at)
            .map(Content::Nodes)
            .map_err(|error| of_edit(&error)),
        _ => Err(Status::invalid_argument(format!(
            "{at}: the value: expected an object"
        ))),
    };
    let here = |content| {
        let place = Place {
            whole: None,
            entry: Some(steps.to_vec()),
        };
        vec![(place, content)]
    };
    match &node.kind {
        Kind::Leaf(_) => Ok(here(Content::Value(value.clone()))),
        Kind::LeafList(_) => match value {
            Json::Array(_) => Ok(here(Content::Value(value.clone()))),
            one => Ok(here(Content::Value(Json::Array(vec![one.clone()])))),
        },
        Kind::Container { nodes, .. } => Ok(here(object(nodes, value)?)),
        Kind::List { nodes, keys } if last.keys.len() == keys.len() => Ok(here(object(nodes, value)?)),
        Kind::List { nodes, .. } => {
            let items = match value {
                Json::Array(items) => items.clone(),
                Json::Object(_) => vec![value.clone()],
                _ => {
                    return Err(Status::invalid_argument(format!(
                        "{at}: the value: expected a list of objects"
                    )));
                }
            };
            let whole = Place {
                whole: Some(steps.to_vec()),
                entry: None,
            };
            let mut all = vec![(whole, Content::Nodes(Vec::new()))];
            for item in items {
                let content = object(nodes, &item)?;
                let place = Place {
                    whole: None,
                    entry: Some(steps.to_vec()),
                };
                all.push((place, content));
            }
            Ok(all)
        }
    }
}

/// Returns the node that steps lead to, and the last step.
fn node_at<'a>(nodes: &'a [Node], steps: &'a [Step]) -> Result<(&'a Node, &'a Step), Status> {
    let (step, rest) = steps
        .split_first()
        .ok_or_else(|| Status::internal("a path without elements"))?;
    let node = named(nodes, &step.name)?;
    match rest.is_empty() {
        true => Ok((node, step)),
        false => node_at(node.nodes(), rest),
    }
}
