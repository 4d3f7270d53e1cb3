//! Replies and errors (RFC 6241, sections 4.2 and 4.3, appendix A).

use millrace_yang::MODULE;
use millrace_yang::datastore::Failure;
use millrace_yang::edit::{EditError, NETCONF, Problem};
use millrace_yang::schema::namespace_of;
use millrace_yang::xml::{Attribute, Element, XMLNS};

/// An `rpc-error`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RpcError {
    /// `rpc`, `protocol` or `application`.
    pub(crate) kind: &'static str,
    /// The word of appendix A.
    pub(crate) tag: &'static str,
    pub(crate) app_tag: Option<&'static str>,
    pub(crate) path: Option<String>,
    pub(crate) message: String,
    /// Elements of `error-info`, by name and text.
    pub(crate) info: Vec<(&'static str, String)>,
}

impl RpcError {
    pub(crate) fn new(kind: &'static str, tag: &'static str, message: impl Into<String>) -> RpcError {
        RpcError {
            kind,
            tag,
            app_tag: None,
            path: None,
            message: message.into(),
            info: Vec::new(),
        }
    }

    #[must_use]
    pub(crate) fn with_info(mut self, name: &'static str, text: impl Into<String>) -> RpcError {
        self.info.push((name, text.into()));
        self
    }

    fn element(&self) -> Element {
        let leaf = |name: &str, text: &str| Element::new(NETCONF, name).with_text(text);
        let mut error = Element::new(NETCONF, "rpc-error")
            .with(leaf("error-type", self.kind))
            .with(leaf("error-tag", self.tag))
            .with(leaf("error-severity", "error"));
        if let Some(app_tag) = self.app_tag {
            error = error.with(leaf("error-app-tag", app_tag));
        }
        if let Some(path) = &self.path {
            error = error.with(leaf("error-path", path));
        }
        let message = leaf("error-message", &self.message);
        error = error.with(Element {
            attributes: vec![Attribute {
                written: "xml:lang".to_owned(),
                namespace: String::new(),
                name: "lang".to_owned(),
                value: "en".to_owned(),
            }],
            ..message
        });
        if !self.info.is_empty() {
            let mut info = Element::new(NETCONF, "error-info");
            for (name, text) in &self.info {
                info = info.with(leaf(name, text));
            }
            error = error.with(info);
        }
        error
    }
}

impl From<Failure> for RpcError {
    fn from(failure: Failure) -> RpcError {
        let message = failure.to_string();
        let (tag, app_tag) = match failure {
            Failure::Invalid(_) => ("operation-failed", "invalid"),
            Failure::Owned(_) => ("access-denied", "owned"),
            Failure::Locked(_) => ("in-use", "locked"),
            Failure::Conflict(_) => ("operation-failed", "conflict"),
            Failure::Stale(_) => ("operation-failed", "stale"),
            Failure::TooLarge(_) => ("too-big", "too-large"),
            Failure::Unavailable(_) => ("operation-failed", "unavailable"),
        };
        RpcError {
            app_tag: Some(app_tag),
            ..RpcError::new("application", tag, message)
        }
    }
}

impl From<EditError> for RpcError {
    fn from(error: EditError) -> RpcError {
        let message = error.to_string();
        let bad = |name: &str| {
            (
                "bad-element",
                name.rsplit('/').next().unwrap_or_default().to_owned(),
            )
        };
        let name = error.path.split('[').next().unwrap_or_default().to_owned();
        let (tag, info) = match error.problem {
            Problem::DataExists => ("data-exists", None),
            Problem::DataMissing => ("data-missing", None),
            Problem::UnknownElement(name, _) => ("unknown-element", Some(("bad-element", name))),
            Problem::UnknownNamespace(namespace) => ("unknown-namespace", Some(("bad-namespace", namespace))),
            Problem::MissingKey(key) => ("missing-element", Some(("bad-element", key))),
            Problem::InvalidValue(_) => ("invalid-value", None),
            Problem::BadElement(_) => ("bad-element", Some(bad(&name))),
            Problem::BadAttribute(attribute, _) => ("bad-attribute", Some(("bad-attribute", attribute))),
            Problem::State => ("access-denied", None),
        };
        let mut made = RpcError::new("application", tag, message);
        made.path = Some(prefixed(&error.path));
        if matches!(tag, "unknown-namespace" | "bad-attribute") {
            let (key, value) = bad(&name);
            made = made.with_info(key, value);
        }
        match info {
            Some((key, value)) => made.with_info(key, value),
            None => made,
        }
    }
}

/// The prefixes of paths, and their modules.
const PREFIXES: [(&str, &str); 3] = [("mr", MODULE), ("if", "ietf-interfaces"), ("ip", "ietf-ip")];

/// Returns an instance as XPath with the prefixes of its modules: `/mr:bridge[mr:name='br0']`.
fn prefixed(path: &str) -> String {
    let with = |path: &str, prefix: &str| {
        path.replace("[.=", "[\u{1}=")
            .replace('/', &format!("/{prefix}:"))
            .replace('[', &format!("[{prefix}:"))
            .replace(&format!("[{prefix}:\u{1}="), "[.=")
    };
    // The name of an interface has a slash.
    let Some(rest) = path.strip_prefix("/interfaces") else {
        return with(path, "mr");
    };
    let (entry, inner) = match rest.split_once("']") {
        Some((entry, inner)) => (format!("{entry}']"), inner),
        None => (rest.to_owned(), ""),
    };
    let entry = entry
        .replacen("/interface", "/if:interface", 1)
        .replacen("[name=", "[if:name=", 1);
    let is_ip = inner.starts_with("/ipv4") || inner.starts_with("/ipv6");
    let inner = with(inner, if is_ip { "ip" } else { "if" });
    format!("/if:interfaces{entry}{inner}")
}

/// The content of a reply.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Reply {
    /// `ok`.
    Ok,
    Elements(Vec<Element>),
    Errors(Vec<RpcError>),
}

impl From<RpcError> for Reply {
    fn from(error: RpcError) -> Reply {
        Reply::Errors(vec![error])
    }
}

impl Reply {
    /// Returns the message, with the attributes of the request (RFC 6241, section 4.1).
    pub(crate) fn message(self, attributes: &[Attribute]) -> String {
        let mut reply = Element::new(NETCONF, "rpc-reply");
        reply.attributes = attributes.to_vec();
        let is_prefixed = |attribute: &Attribute| attribute.written == "xmlns" && attribute.value != NETCONF;
        reply.attributes.retain(|attribute| !is_prefixed(attribute));
        reply.children = match self {
            Reply::Ok => vec![Element::new(NETCONF, "ok")],
            Reply::Elements(elements) => elements,
            Reply::Errors(errors) => errors
                .iter()
                .map(|error| {
                    let mut element = error.element();
                    // `error-path` uses the prefixes.
                    if error.path.is_some() {
                        for (prefix, module) in PREFIXES {
                            let written = format!("xmlns:{prefix}");
                            element.attributes.push(Attribute {
                                written: written.clone(),
                                namespace: XMLNS.to_owned(),
                                name: written,
                                value: namespace_of(module).to_owned(),
                            });
                        }
                    }
                    element
                })
                .collect(),
        };
        format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n{reply}")
    }
}
