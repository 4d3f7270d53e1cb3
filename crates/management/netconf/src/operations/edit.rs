//! `edit-config`, `copy-config`, `validate`, `discard-changes`, `lock` and `unlock`.

use millrace_yang::NAMESPACE;
use millrace_yang::data::completed;
use millrace_yang::datastore::{Change, Failure};
use millrace_yang::edit::{Edit, Editor, Operation, from_xml};
use millrace_yang::ietf::{self, INTERFACES, editable};
use millrace_yang::schema::configuration;
use millrace_yang::xml::Element;
use serde_json::{Map, Value as Json};

use super::context::{
    Context, Name, Outcome, candidate, datastore, invalid, missing, named, one, running, unlocked,
};
use crate::reply::{Reply, RpcError};
use crate::shared::Candidate;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ErrorOption {
    Stop,
    Continue,
    Rollback,
}

pub(super) fn edit_config(operation: &Element, context: &mut Context<'_>) -> Outcome {
    only_candidate(operation)?;
    let word = |name: &str| operation.child(name).map(Element::trimmed);
    let default = match word("default-operation") {
        None | Some("merge") => Operation::Merge,
        Some("replace") => Operation::Replace,
        Some("none") => Operation::None,
        Some(_) => return Err(invalid("default-operation: expected merge, replace or none")),
    };
    let option = match word("error-option") {
        None | Some("stop-on-error") => ErrorOption::Stop,
        Some("continue-on-error") => ErrorOption::Continue,
        Some("rollback-on-error") => ErrorOption::Rollback,
        Some(_) => {
            let expected = "error-option: expected stop-on-error, continue-on-error or rollback-on-error";
            return Err(invalid(expected));
        }
    };
    let (is_tested, is_set) = match word("test-option") {
        None | Some("test-then-set") => (false, true),
        Some("set") => (false, true),
        Some("test-only") => (true, false),
        Some(_) => return Err(invalid("test-option: expected test-then-set, set or test-only")),
    };
    let config = operation.child("config").ok_or_else(|| missing("config"))?;
    let mut state = context.shared.state();
    unlocked(&state, context.id)?;
    let mut edited = candidate(&state, context.store)?;
    let mut editor = Editor {
        stops_at_errors: option != ErrorOption::Continue,
        ..Editor::default()
    };
    let edits = from_xml(editable(), &config.children, NAMESPACE, "", &mut editor.errors);
    // Elements that are no data of the schema are refused before anything is done.
    let is_readable = editor.errors.is_empty();
    if is_readable {
        let start = match default {
            Operation::Replace => Start::Empty,
            _ => Start::Present,
        };
        edited.document = apply(&mut editor, &edits, &edited.document, default, start);
    }
    let has_failed = !editor.errors.is_empty();
    if is_tested && !has_failed {
        check(&edited, context)?;
    }
    if is_set && is_readable && (!has_failed || option != ErrorOption::Rollback) {
        state.candidate = Some(edited);
    }
    match has_failed {
        false => Ok(Reply::Ok),
        true => Err(editor.errors.into_iter().map(RpcError::from).collect()),
    }
}

fn only_candidate(operation: &Element) -> Result<(), Vec<RpcError>> {
    match datastore(named(operation, "target")?)? {
        Name::Candidate => Ok(()),
        Name::Running => {
            let message = "running is changed by commit: expected the target candidate";
            Err(vec![RpcError::new(
                "protocol",
                "operation-not-supported",
                message,
            )])
        }
    }
}

/// The document to which edits apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Start {
    /// The one that is there.
    Present,
    /// None: the edits are the whole.
    Empty,
}

/// Returns a document after edits of it, of the module of the switch and of the views together.
fn apply(
    editor: &mut Editor,
    edits: &[Edit],
    document: &Map<String, Json>,
    default: Operation,
    start: Start,
) -> Map<String, Json> {
    let before = ietf::view(document);
    let mut target = match start {
        Start::Present => document.iter().chain(&before).map(cloned).collect(),
        Start::Empty => Map::new(),
    };
    editor.apply(editable(), &mut target, edits, default, "");
    let after = target.remove(INTERFACES);
    let is_given = start == Start::Present || after.is_some();
    let after: Map<String, Json> = after
        .into_iter()
        .map(|view| (INTERFACES.to_owned(), view))
        .collect();
    if is_given {
        let removes = start == Start::Present;
        ietf::write_back(&before, &after, removes, &mut target, &mut editor.errors);
    }
    target
}

fn cloned((key, value): (&String, &Json)) -> (String, Json) {
    (key.clone(), value.clone())
}

/// Returns the document that the element `config` of a request holds, in the place of another one.
fn given(config: &Element, before: &Candidate) -> Result<Candidate, Vec<RpcError>> {
    let mut editor = Editor::default();
    let edits = from_xml(editable(), &config.children, NAMESPACE, "", &mut editor.errors);
    let document = apply(
        &mut editor,
        &edits,
        &before.document,
        Operation::Merge,
        Start::Empty,
    );
    let base = before.base;
    match editor.errors.is_empty() {
        true => Ok(Candidate { base, document }),
        false => Err(editor.errors.into_iter().map(RpcError::from).collect()),
    }
}

pub(super) fn copy_config(operation: &Element, context: &mut Context<'_>) -> Outcome {
    only_candidate(operation)?;
    let source = named(operation, "source")?;
    let mut state = context.shared.state();
    unlocked(&state, context.id)?;
    let present = running(context.store)?;
    let copied = match source.name.as_str() {
        "config" => given(source, &present)?,
        _ => match datastore(source)? {
            Name::Running => present,
            Name::Candidate => return Err(invalid("source: expected another datastore than the target")),
        },
    };
    state.candidate = Some(copied);
    Ok(Reply::Ok)
}

pub(super) fn validate(operation: &Element, context: &mut Context<'_>) -> Outcome {
    let source = named(operation, "source")?;
    let wanted = match source.name.as_str() {
        "config" => given(source, &running(context.store)?)?,
        _ => match datastore(source)? {
            Name::Running => return Ok(Reply::Ok),
            Name::Candidate => candidate(&context.shared.state(), context.store)?,
        },
    };
    check(&wanted, context)?;
    Ok(Reply::Ok)
}

/// Lets the switch check a document, on the machine where it would run.
fn check(wanted: &Candidate, context: &mut Context<'_>) -> Result<(), Vec<RpcError>> {
    let change = Change {
        dry_run: true,
        // Accepted while another change waits for its confirmation, too.
        confirm_within: Some(60),
        ..Change::default()
    };
    let document = completed(configuration(), &wanted.document);
    context
        .store
        .replace(&document, wanted.base, &change)
        .map_err(one)?;
    Ok(())
}

pub(super) fn discard_changes(context: &mut Context<'_>) -> Outcome {
    let mut state = context.shared.state();
    unlocked(&state, context.id)?;
    state.candidate = None;
    Ok(Reply::Ok)
}

fn denied(holder: u32, message: impl Into<String>) -> Vec<RpcError> {
    vec![RpcError::new("protocol", "lock-denied", message).with_info("session-id", holder.to_string())]
}

pub(super) fn lock(operation: &Element, context: &mut Context<'_>) -> Outcome {
    let mut state = context.shared.state();
    match datastore(named(operation, "target")?)? {
        Name::Candidate => {
            if let Some(holder) = state.candidate_lock {
                return Err(denied(
                    holder,
                    format!("session {holder} has locked the candidate"),
                ));
            }
            if state.candidate.is_some() {
                let message = "the candidate has changes: commit or discard-changes come first";
                return Err(denied(0, message));
            }
            state.candidate_lock = Some(context.id);
        }
        Name::Running => {
            if let Some(holder) = state.running_lock {
                return Err(denied(holder, format!("session {holder} has locked running")));
            }
            let pending = context.store.pending().map_err(one)?;
            if pending.is_some_and(|pending| Some(pending.revision) != *context.unconfirmed) {
                return Err(denied(
                    0,
                    "a confirmed commit of another session waits for its confirmation",
                ));
            }
            // 0 is a holder that is no NETCONF session (RFC 6241, section 7.5).
            context.store.lock().map_err(|failure| match failure {
                Failure::Locked(message) => denied(0, message),
                other => one(other),
            })?;
            state.running_lock = Some(context.id);
        }
    }
    Ok(Reply::Ok)
}

pub(super) fn unlock(operation: &Element, context: &mut Context<'_>) -> Outcome {
    let mut state = context.shared.state();
    let name = datastore(named(operation, "target")?)?;
    let holder = match name {
        Name::Candidate => state.candidate_lock,
        Name::Running => state.running_lock,
    };
    if holder != Some(context.id) {
        let message = "this session does not hold the lock";
        return Err(vec![RpcError::new("protocol", "operation-failed", message)]);
    }
    match name {
        Name::Candidate => {
            state.candidate_lock = None;
            // As when the session ends (RFC 6241, section 8.3.5.2).
            state.candidate = None;
        }
        Name::Running => {
            context.store.unlock().map_err(one)?;
            state.running_lock = None;
        }
    }
    Ok(Reply::Ok)
}
