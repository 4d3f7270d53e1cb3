//! The operations of RFC 6241, section 7, and those of its capabilities (section 8).
//!
//! `running` is written by `commit` alone. An operation that changes something needs the role `write`, `kill-session` the role
//! `admin` (RFC 8341 with three groups; docs/netconf.md).

mod commit;
mod context;
mod edit;
mod monitoring;
mod read;

use std::borrow::Cow;

use millrace_yang::datastore::Role;
use millrace_yang::edit::NETCONF;
use millrace_yang::xml::Element;

use crate::capabilities::{MONITORING, WITH_DEFAULTS};
use crate::notification::NOTIFICATION;
use crate::reply::{Reply, RpcError};

pub(crate) use context::Context;
use context::{Outcome, invalid, missing, shortened, unknown};

/// Runs an operation.
pub(crate) fn run(operation: &Element, context: &mut Context<'_>) -> Outcome {
    let operation = &*qualified(operation)?;
    let name = operation.name.as_str();
    if operation.namespace == MONITORING && name == "get-schema" {
        return read::get_schema(operation);
    }
    if operation.namespace == NOTIFICATION && operation.name == "create-subscription" {
        return read::create_subscription(operation, context);
    }
    if operation.namespace != NETCONF {
        return Err(not_supported(operation));
    }
    let (needed, parameters): (Role, &[&str]) = match name {
        "get" => (Role::Read, &["filter", "with-defaults"]),
        "get-config" => (Role::Read, &["source", "filter", "with-defaults"]),
        "validate" => (Role::Read, &["source"]),
        "edit-config" => (
            Role::Write,
            &[
                "target",
                "default-operation",
                "test-option",
                "error-option",
                "config",
            ],
        ),
        "copy-config" => (Role::Write, &["target", "source", "with-defaults"]),
        "lock" | "unlock" => (Role::Write, &["target"]),
        "commit" => (
            Role::Write,
            &["confirmed", "confirm-timeout", "persist", "persist-id"],
        ),
        "cancel-commit" => (Role::Write, &["persist-id"]),
        "discard-changes" => (Role::Write, &[]),
        "kill-session" => (Role::Admin, &["session-id"]),
        _ => return Err(not_supported(operation)),
    };
    if context.client.role < needed {
        let message = format!(
            "user {} has the role {}: {name} needs {}",
            context.client.name,
            context.client.role.name(),
            needed.name()
        );
        return Err(vec![RpcError::new("protocol", "access-denied", message)]);
    }
    for child in &operation.children {
        if !parameters.contains(&child.name.as_str()) {
            return Err(unknown(child));
        }
    }
    match name {
        "get" => read::get(operation, context),
        "get-config" => read::get_config(operation, context),
        "edit-config" => edit::edit_config(operation, context),
        "copy-config" => edit::copy_config(operation, context),
        "validate" => edit::validate(operation, context),
        "discard-changes" => edit::discard_changes(context),
        "lock" => edit::lock(operation, context),
        "unlock" => edit::unlock(operation, context),
        "commit" => commit::commit(operation, context),
        "cancel-commit" => commit::cancel(operation, context),
        _ => kill_session(operation, context),
    }
}

/// Returns an operation and its parameters in their namespaces. Without one, an operation is NETCONF's, and a parameter its operation's:
/// clients send both as their users write them. Parameters of another namespace are none, and refused rather than left out.
fn qualified(operation: &Element) -> Result<Cow<'_, Element>, Vec<RpcError>> {
    let own = match operation.namespace.as_str() {
        "" => NETCONF,
        own => own,
    };
    if ![NETCONF, MONITORING, NOTIFICATION].contains(&own) {
        return Err(not_supported(operation));
    }
    let mut given = Cow::Borrowed(operation);
    if operation.namespace.is_empty() {
        own.clone_into(&mut given.to_mut().namespace);
    }
    for (at, child) in operation.children.iter().enumerate() {
        let namespace = match child.name.as_str() {
            "with-defaults" => WITH_DEFAULTS,
            _ => own,
        };
        if child.namespace.is_empty() {
            namespace.clone_into(&mut given.to_mut().children[at].namespace);
        } else if child.namespace != namespace {
            return Err(unknown(child));
        }
    }
    Ok(given)
}

fn not_supported(operation: &Element) -> Vec<RpcError> {
    let message = format!("the server has no operation `{}`", shortened(&operation.name));
    vec![
        RpcError::new("protocol", "operation-not-supported", message)
            .with_info("bad-element", shortened(&operation.name)),
    ]
}

fn kill_session(operation: &Element, context: &Context<'_>) -> Outcome {
    let given = operation
        .child("session-id")
        .ok_or_else(|| missing("session-id"))?;
    let id: u32 = given
        .trimmed()
        .parse()
        .map_err(|_| invalid("session-id: expected the number of a session"))?;
    if id == context.id {
        return Err(invalid(
            "session-id: expected another session; close-session ends this one",
        ));
    }
    match context.shared.kill(id) {
        true => Ok(Reply::Ok),
        false => Err(invalid(format!("no session {id}"))),
    }
}
