//! `get`, `get-config` and `get-schema`.

use millrace_yang::data::{Defaults, completed, to_xml};
use millrace_yang::edit::NETCONF;
use millrace_yang::schema::{Node, all, configuration};
use millrace_yang::xml::Element;
use millrace_yang::{NAMESPACE, ietf};
use serde_json::{Map, Value as Json};

use super::context::{
    Context, Name, Outcome, candidate, datastore, invalid, missing, named, one, running, shortened,
};
use super::monitoring;
use crate::capabilities::{MONITORING, WITH_DEFAULTS};
use crate::filter::Filter;
use crate::notification::{STREAM, Subscription};
use crate::reply::{Reply, RpcError};

pub(super) fn get(operation: &Element, context: &mut Context<'_>) -> Outcome {
    let defaults = with_defaults(operation)?;
    let filter = Filter::of(operation, context.attributes)?;
    let trimmed = running(context.store)?.document;
    let state = context.store.state().map_err(one)?;
    let view = ietf::view_with_state(&trimmed, &state);
    let mut data = to_xml(
        configuration(),
        &written(configuration(), trimmed, defaults),
        NAMESPACE,
    );
    let state: Map<String, Json> = [("switch_state".to_owned(), Json::Object(state))]
        .into_iter()
        .collect();
    data.extend(to_xml(all(), &state, NAMESPACE));
    data.extend(interfaces(view, defaults));
    data.push(monitoring::netconf_state(&context.shared.sessions()));
    data.push(monitoring::modules_state());
    data.push(monitoring::streams());
    reply(data, filter.as_ref())
}

pub(super) fn get_config(operation: &Element, context: &mut Context<'_>) -> Outcome {
    let defaults = with_defaults(operation)?;
    let filter = Filter::of(operation, context.attributes)?;
    let read = match datastore(named(operation, "source")?)? {
        Name::Running => running(context.store)?,
        Name::Candidate => candidate(&context.shared.state(), context.store)?,
    };
    let view = ietf::view(&read.document);
    let mut data = to_xml(
        configuration(),
        &written(configuration(), read.document, defaults),
        NAMESPACE,
    );
    data.extend(interfaces(view, defaults));
    reply(data, filter.as_ref())
}

/// Returns the view of the interfaces as a reply has it: nothing without entries.
fn interfaces(view: Map<String, Json>, defaults: Defaults) -> Vec<Element> {
    match view.is_empty() {
        true => Vec::new(),
        false => to_xml(ietf::nodes(), &written(ietf::nodes(), view, defaults), NAMESPACE),
    }
}

/// Returns a trimmed document as a reply has it.
fn written(nodes: &[Node], document: Map<String, Json>, defaults: Defaults) -> Map<String, Json> {
    match defaults {
        Defaults::Trim => document,
        Defaults::All => completed(nodes, &document),
    }
}

fn reply(data: Vec<Element>, filter: Option<&Filter>) -> Outcome {
    let selected = match filter {
        None => data,
        Some(filter) => filter.apply(&data)?,
    };
    Ok(Reply::Elements(vec![Element {
        children: selected,
        ..Element::new(NETCONF, "data")
    }]))
}

fn with_defaults(operation: &Element) -> Result<Defaults, Vec<RpcError>> {
    let is_it = |child: &&Element| child.name == "with-defaults" && child.namespace == WITH_DEFAULTS;
    match operation.children.iter().find(is_it).map(Element::trimmed) {
        None | Some("trim") => Ok(Defaults::Trim),
        Some("report-all") => Ok(Defaults::All),
        Some(other) => Err(invalid(format!(
            "with-defaults `{}`: expected trim or report-all",
            shortened(other)
        ))),
    }
}

/// Subscribes the session to the stream (RFC 5277, section 2.1.1). Past events are not kept.
pub(super) fn create_subscription(operation: &Element, context: &mut Context<'_>) -> Outcome {
    let failed = |message: &str| Err(vec![RpcError::new("protocol", "operation-failed", message)]);
    if context.subscription.is_some() {
        return failed("the session has a subscription: expected another session for a second one");
    }
    if operation.child("startTime").is_some() || operation.child("stopTime").is_some() {
        return failed("the stream has no replay: expected neither startTime nor stopTime");
    }
    if operation
        .child("stream")
        .is_some_and(|stream| stream.trimmed() != STREAM)
    {
        return Err(invalid(format!("stream: expected {STREAM}")));
    }
    *context.subscription = Some(Subscription(Filter::of(operation, context.attributes)?));
    Ok(Reply::Ok)
}

/// Returns the text of a module (RFC 6022, section 3.1).
pub(super) fn get_schema(operation: &Element) -> Outcome {
    let text = |name: &str| {
        let child = operation.children.iter().find(|child| child.name == name);
        child.map(|child| child.trimmed().to_owned())
    };
    let identifier = text("identifier").ok_or_else(|| missing("identifier"))?;
    let version = text("version").unwrap_or_default();
    // The format is an identity, with or without a prefix.
    let format = text("format").unwrap_or_else(|| "yang".to_owned());
    let is_yang = format.rsplit(':').next() == Some("yang");
    let is_it = |schema: &monitoring::Schema| {
        schema.name == identifier && (version.is_empty() || schema.revision == version)
    };
    let found = monitoring::schemas().find(is_it).filter(|_| is_yang);
    let Some(schema) = found else {
        let known: Vec<String> = monitoring::schemas()
            .map(|schema| format!("{} of {}", schema.name, schema.revision))
            .collect();
        let message = format!(
            "no schema {}: expected format yang, and one of {}",
            shortened(&identifier),
            known.join(", ")
        );
        return Err(invalid(message));
    };
    Ok(Reply::Elements(vec![
        Element::new(MONITORING, "data").with_text(schema.text),
    ]))
}
