//! Documents of REST as data of the schema: trimmed, completed, as XML and as JSON of RFC 7951.

use serde_json::{Map, Value as Json};

use crate::schema::{Kind, Node, Type, namespace_of, text_of};
use crate::xml::{Attribute, Element, XMLNS};

/// The treatment of values that equal their defaults (RFC 6243, section 3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Defaults {
    /// They are left out: the basic mode, because the switch does not record if somebody wrote such a value.
    #[default]
    Trim,
    /// They are written.
    All,
}

/// Returns the table that a value stands for; a bare value is that of the first node (`"tcp:192.0.2.1"` is a controller).
fn table(nodes: &[Node], value: &Json) -> Map<String, Json> {
    match (value, nodes.first()) {
        (Json::Object(map), _) => map.clone(),
        (Json::Null, _) | (_, None) => Map::new(),
        (bare, Some(first)) => Map::from_iter([(first.name.clone(), bare.clone())]),
    }
}

/// Returns a document without the values that equal their defaults, without absent ones, and without members that the
/// schema does not have.
pub fn trimmed(nodes: &[Node], document: &Map<String, Json>) -> Map<String, Json> {
    let mut result = Map::new();
    for node in nodes {
        let Some(value) = document.get(&node.name).filter(|value| !value.is_null()) else {
            continue;
        };
        let kept = match &node.kind {
            Kind::Leaf(_) | Kind::LeafList(_) => {
                let is_default = node.default.as_ref() == Some(value);
                let is_empty = value.as_array().is_some_and(Vec::is_empty);
                (!is_default && !is_empty).then(|| value.clone())
            }
            Kind::Container { presence, nodes } => {
                let inner = trimmed(nodes, &table(nodes, value));
                (*presence || !inner.is_empty()).then_some(Json::Object(inner))
            }
            Kind::List { nodes, .. } => {
                let items = value.as_array().map_or(&[][..], Vec::as_slice);
                let items: Vec<Json> = items
                    .iter()
                    .map(|item| Json::Object(trimmed(nodes, &table(nodes, item))))
                    .collect();
                (!items.is_empty()).then_some(Json::Array(items))
            }
        };
        if let Some(kept) = kept {
            result.insert(node.name.clone(), kept);
        }
    }
    result
}

/// Returns a document with all defaults.
pub fn completed(nodes: &[Node], document: &Map<String, Json>) -> Map<String, Json> {
    let mut result = Map::new();
    for node in nodes {
        let value = document.get(&node.name).filter(|value| !value.is_null());
        let full = match (&node.kind, value) {
            (Kind::Leaf(_) | Kind::LeafList(_), Some(value)) => Some(value.clone()),
            (Kind::Leaf(_), None) => node.default.clone(),
            (Kind::LeafList(_), None) => node
                .default
                .clone()
                .filter(|default| *default != Json::Array(vec![])),
            (Kind::Container { presence: true, .. }, None) | (Kind::List { .. }, None) => None,
            // State has no defaults.
            (Kind::Container { .. }, None) if !node.config => None,
            (Kind::Container { nodes, .. }, value) => {
                let inner = value.map(|value| table(nodes, value)).unwrap_or_default();
                Some(Json::Object(completed(nodes, &inner)))
            }
            (Kind::List { nodes, .. }, Some(value)) => {
                let items = value.as_array().map_or(&[][..], Vec::as_slice);
                let full = |item: &Json| Json::Object(completed(nodes, &table(nodes, item)));
                Some(items.iter().map(full).collect())
            }
        };
        if let Some(full) = full {
            result.insert(node.name.clone(), full);
        }
    }
    result
}

/// Returns a leaf as XML.
fn leaf(element: Element, kind: &Type, value: &Json) -> Element {
    let text = text_of(value);
    let Type::Identity { module, prefix } = kind else {
        return element.with_text(text);
    };
    let bare = text.rsplit(':').next().unwrap_or_default();
    let name = format!("xmlns:{prefix}");
    Element {
        attributes: vec![Attribute {
            written: name.clone(),
            namespace: XMLNS.to_owned(),
            name,
            value: namespace_of(module).to_owned(),
        }],
        ..element.with_text(format!("{prefix}:{bare}"))
    }
}

/// Returns a document as XML elements; those of nodes without a module of their own are in `namespace`.
pub fn to_xml(nodes: &[Node], document: &Map<String, Json>, namespace: &str) -> Vec<Element> {
    let mut elements = Vec::new();
    for node in nodes {
        let Some(value) = document.get(&node.name).filter(|value| !value.is_null()) else {
            continue;
        };
        let namespace = node.namespace(namespace);
        let element = || Element::new(namespace, &node.name);
        match &node.kind {
            Kind::Leaf(kind) => elements.push(leaf(element(), kind, value)),
            Kind::LeafList(_) => {
                let values = value.as_array().into_iter().flatten();
                elements.extend(values.map(|value| element().with_text(text_of(value))));
            }
            Kind::Container { nodes, .. } => elements.push(Element {
                children: to_xml(nodes, &table(nodes, value), namespace),
                ..element()
            }),
            Kind::List { nodes, keys } => {
                for item in value.as_array().into_iter().flatten() {
                    elements.push(Element {
                        children: to_xml(nodes, &table(nodes, item), namespace),
                        keys: keys.len(),
                        ..element()
                    });
                }
            }
        }
    }
    elements
}

/// Returns a document as JSON of RFC 7951. A member has the name of its module where that differs from `module`, the one of
/// the node above.
pub fn to_ietf(nodes: &[Node], document: &Map<String, Json>, module: &str) -> Map<String, Json> {
    let mut result = Map::new();
    for node in nodes {
        let Some(value) = document.get(&node.name).filter(|value| !value.is_null()) else {
            continue;
        };
        let own = match node.module {
            "" => module,
            own => own,
        };
        let name = match own == module {
            true => node.name.clone(),
            false => format!("{own}:{}", node.name),
        };
        result.insert(name, value_to_ietf(node, value, own));
    }
    result
}

/// Returns the value of a node as JSON of RFC 7951; `module` is that of the node.
pub fn value_to_ietf(node: &Node, value: &Json, module: &str) -> Json {
    let inner = |nodes: &[Node], value: &Json| Json::Object(to_ietf(nodes, &table(nodes, value), module));
    match &node.kind {
        Kind::Leaf(kind) => kind.to_ietf(value),
        Kind::LeafList(kind) => match value {
            Json::Array(values) => values.iter().map(|value| kind.to_ietf(value)).collect(),
            other => kind.to_ietf(other),
        },
        Kind::Container { nodes, .. } => inner(nodes, value),
        Kind::List { nodes, .. } => match value {
            Json::Array(items) => items.iter().map(|item| inner(nodes, item)).collect(),
            // One entry, which a path with keys selects.
            item => inner(nodes, item),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NAMESPACE;
    use crate::schema::configuration;
    use millrace_model::Config;

    fn document(toml: &str) -> Map<String, Json> {
        let config = Config::from_toml("test", toml).unwrap();
        config.to_json().as_object().unwrap().clone()
    }

    const EXAMPLE: &str = r#"
        [[bridge]]
        name = "br0"
        controllers = ["tcp:192.0.2.1:6653"]
        [[bridge.port]]
        name = "p1"
        number = 1
        device = "memory"
        mtu = 9000
        policer = { kind = "srtcm", cir = "1Mbps", red = { action = "pass", dscp = 10 } }
    "#;

    #[test]
    fn a_trimmed_document_has_what_somebody_decided_and_completing_it_loses_nothing() {
        let full = document(EXAMPLE);
        let trim = trimmed(configuration(), &full);
        let port = &trim["bridge"][0]["port"][0];
        assert_eq!(port["mtu"], 9000);
        assert_eq!(port["policer"]["red"]["dscp"], 10);
        assert_eq!(port["policer"].get("green"), None);
        assert_eq!(port.get("down"), None);
        assert_eq!(trim.get("system"), None);
        assert_eq!(
            trim["bridge"][0]["controllers"][0]["target"],
            "tcp:192.0.2.1:6653"
        );
        let again = completed(configuration(), &trim);
        let config = |map: &Map<String, Json>| Config::from_json(&Json::Object(map.clone())).unwrap();
        assert_eq!(config(&again), config(&full));
        assert_eq!(trimmed(configuration(), &again), trim);
    }

    #[test]
    fn xml_has_an_element_for_each_value_with_keys_first() {
        let trim = trimmed(configuration(), &document(EXAMPLE));
        let elements = to_xml(configuration(), &trim, NAMESPACE);
        let text: String = elements.iter().map(ToString::to_string).collect();
        assert!(
            text.contains(r#"<bridge xmlns="urn:millrace:switch"><name>br0</name>"#),
            "{text}"
        );
        assert!(text.contains("<mtu>9000</mtu>"), "{text}");
    }
}
