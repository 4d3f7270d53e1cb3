//! Notifications (RFC 5277): the stream `NETCONF`, with `netconf-config-change` (RFC 6470, section 2.2) for each revision.

use millrace_yang::NAMESPACE;
use millrace_yang::schema::{Kind, Node, configuration, find};
use millrace_yang::xml::{Attribute, Element, XMLNS};

use crate::filter::Filter;

/// The namespace of `create-subscription` and `notification`.
pub(crate) const NOTIFICATION: &str = "urn:ietf:params:xml:ns:netconf:notification:1.0";
/// The namespace of the list of streams (RFC 5277, section 3.2.5.1).
pub(crate) const STREAMS: &str = "urn:ietf:params:xml:ns:netmod:notification";
/// The namespace of ietf-netconf-notifications.
pub(crate) const BASE: &str = "urn:ietf:params:xml:ns:yang:ietf-netconf-notifications";
/// The name of the one stream.
pub(crate) const STREAM: &str = "NETCONF";

/// A subscription of notifications, with its filter.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Subscription(pub(crate) Option<Filter>);

/// A revision, as subscribers hear of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigChange {
    /// The time in the form of RFC 3339.
    pub time: String,
    /// The author of the revision.
    pub user: String,
    /// The paths of the changed values by names (`/bridge/br0/port/p1/mtu`), each with an operation: `create`, `delete` or
    /// `replace`.
    pub edits: Vec<(String, &'static str)>,
}

impl ConfigChange {
    fn content(&self) -> Element {
        let of = |name: &str| Element::new(BASE, name);
        let leaf = |name: &str, text: &str| of(name).with_text(text);
        let by = of("changed-by")
            .with(leaf("username", &self.user))
            // The switch does not know which session it was.
            .with(leaf("session-id", "0"));
        let mut change = of("netconf-config-change")
            .with(by)
            .with(leaf("datastore", "running"));
        for (path, operation) in &self.edits {
            let mut target = leaf("target", &instance(path));
            target.attributes.push(Attribute {
                written: "xmlns:mr".to_owned(),
                namespace: XMLNS.to_owned(),
                name: "xmlns:mr".to_owned(),
                value: NAMESPACE.to_owned(),
            });
            change = change.with(of("edit").with(target).with(leaf("operation", operation)));
        }
        change
    }

    /// Returns the message for a subscriber; `None` if its filter selects nothing of it.
    pub(crate) fn message(&self, filter: Option<&Filter>) -> Option<String> {
        let content = self.content();
        let content = match filter {
            None => content,
            // An expression that is evaluated with too much work on one notification selects nothing of it.
            Some(filter) => filter.apply(&[content]).ok()?.into_iter().next()?,
        };
        let time = Element::new(NOTIFICATION, "eventTime").with_text(self.time.as_str());
        let message = Element::new(NOTIFICATION, "notification")
            .with(time)
            .with(content);
        Some(format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n{message}"))
    }
}

/// Returns a path by names as an instance identifier: `/mr:bridge[mr:name='br0']/mr:mtu`. Names after the last table that the
/// schema knows are left out.
fn instance(path: &str) -> String {
    let mut text = String::new();
    let mut nodes: &[Node] = configuration();
    let mut names = path.split('/').filter(|name| !name.is_empty());
    while let Some(name) = names.next() {
        let Some(node) = find(nodes, name) else { break };
        text.push_str(&format!("/mr:{name}"));
        if let Kind::List { keys, .. } = &node.kind
            && let (Some(key), Some(value)) = (keys.first(), names.next())
        {
            let quote = if value.contains('\'') { '"' } else { '\'' };
            text.push_str(&format!("[mr:{key}={quote}{value}{quote}]"));
        }
        nodes = node.nodes();
    }
    match text.is_empty() {
        true => "/".to_owned(),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_by_names_is_an_instance_with_keys() {
        assert_eq!(
            instance("/bridge/br0/port/p1/mtu"),
            "/mr:bridge[mr:name='br0']/mr:port[mr:name='p1']/mr:mtu"
        );
        assert_eq!(instance("/system/idle"), "/mr:system/mr:idle");
        assert_eq!(instance("/unknown"), "/");
    }
}
