//! The schema tree: the sections of the configuration as nodes of YANG, and the state of the switch below them.

use std::sync::LazyLock;

use millrace_model::Config;
use millrace_model::schema::{Section, Shape};
use serde_json::{Map, Value as Json};

use crate::NAMESPACE;

/// A node of the schema (RFC 7950, section 4.2.2).
#[derive(Debug, Clone)]
pub struct Node {
    /// The name, the same in XML and JSON.
    pub name: String,
    /// The module that defines the node; empty for the module of the node above.
    pub module: &'static str,
    /// The documentation.
    pub doc: String,
    /// The kind, with what belongs to it.
    pub kind: Kind,
    /// The value of an absent node, in the form of a trimmed document.
    pub default: Option<Json>,
    /// True if the node must exist.
    pub required: bool,
    /// False for state.
    pub config: bool,
}

/// The kind of a node.
#[derive(Debug, Clone)]
pub enum Kind {
    /// A value.
    Leaf(Type),
    /// Values.
    LeafList(Type),
    /// A table.
    Container {
        /// True if an empty container differs from an absent one (RFC 7950, section 7.5.1).
        presence: bool,
        /// The nodes inside.
        nodes: Vec<Node>,
    },
    /// Tables with keys.
    List {
        /// The leaves that identify an entry.
        keys: Vec<String>,
        /// The nodes inside, keys first.
        nodes: Vec<Node>,
    },
}

/// The type of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Type {
    /// `true` or `false`.
    Bool,
    /// A whole number from `min` to `max`.
    Integer {
        /// The smallest value.
        min: u64,
        /// The largest value.
        max: u64,
        /// The unit; empty for none.
        unit: &'static str,
    },
    /// Text, with the form that the switch expects.
    Text(String),
    /// A number or text, with the form: a union.
    NumberOrText(String),
    /// One of these words, each with its documentation.
    Choice(Vec<(String, String)>),
    /// An identity of a module, with the prefix that XML uses for it.
    Identity {
        module: &'static str,
        prefix: &'static str,
    },
}

/// A text that is no value of a type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{found}`: expected {expected}")]
pub struct TypeError {
    /// The text, shortened.
    pub found: String,
    /// The expected form.
    pub expected: String,
}

/// The smallest number of bits of an unsigned integer type of YANG that holds a value.
fn bits(max: u64) -> u8 {
    match max {
        0..=0xff => 8,
        0x100..=0xffff => 16,
        0x1_0000..=0xffff_ffff => 32,
        _ => 64,
    }
}

impl Type {
    /// Returns the number of bits of the YANG type of an integer; `None` for other types.
    pub fn bits(&self) -> Option<u8> {
        match self {
            Type::Integer { max, .. } => Some(bits(*max)),
            _ => None,
        }
    }

    /// Returns the value that a text stands for, in XML or in a key.
    ///
    /// # Errors
    /// [`TypeError`].
    pub fn parse(&self, text: &str) -> Result<Json, TypeError> {
        let found = match self {
            Type::Bool => match text {
                "true" => Some(Json::Bool(true)),
                "false" => Some(Json::Bool(false)),
                _ => None,
            },
            Type::Integer { min, max, .. } => {
                let number = text.parse::<u64>().ok();
                number
                    .filter(|number| (min..=max).contains(&number))
                    .map(Json::from)
            }
            Type::Text(_) => Some(Json::from(text)),
            Type::NumberOrText(_) => Some(text.parse::<u64>().map_or_else(|_| Json::from(text), Json::from)),
            Type::Choice(words) => words
                .iter()
                .find(|(word, _)| word == text)
                .map(|(word, _)| Json::from(word.as_str())),
            // The prefix is the client's own, or the name of the module.
            Type::Identity { module, .. } => text
                .rsplit(':')
                .next()
                .filter(|bare| !bare.is_empty())
                .map(|bare| Json::from(format!("{module}:{bare}"))),
        };
        found.ok_or_else(|| self.wrong(text))
    }

    /// Returns the value that JSON stands for (RFC 7951, section 6); integers of 64 bits may be strings or numbers.
    ///
    /// # Errors
    /// [`TypeError`].
    pub fn from_json(&self, json: &Json) -> Result<Json, TypeError> {
        match (self, json) {
            (Type::Bool, Json::Bool(_)) => Ok(json.clone()),
            (Type::Integer { .. } | Type::NumberOrText(_), Json::Number(number)) => {
                self.parse(&number.to_string())
            }
            (Type::Bool, _) => Err(self.wrong(&json.to_string())),
            (_, Json::String(text)) => self.parse(text),
            _ => Err(self.wrong(&json.to_string())),
        }
    }

    fn wrong(&self, text: &str) -> TypeError {
        TypeError {
            found: text.chars().take(64).collect(),
            expected: self.expected(),
        }
    }

    /// Returns a value as JSON of RFC 7951: integers of 64 bits are strings.
    pub fn to_ietf(&self, value: &Json) -> Json {
        match (self.bits(), value) {
            (Some(64), Json::Number(number)) => Json::String(number.to_string()),
            _ => value.clone(),
        }
    }

    /// Returns the end of the sentence "expected …".
    pub fn expected(&self) -> String {
        match self {
            Type::Bool => "true or false".to_owned(),
            Type::Integer { min, max, unit } => format!("a whole number from {min} to {max}{unit}"),
            Type::Text(form) | Type::NumberOrText(form) => form.clone(),
            Type::Choice(words) => {
                let words: Vec<&str> = words.iter().map(|(word, _)| word.as_str()).collect();
                words.join(" or ")
            }
            Type::Identity { module, .. } => format!("an identity of {module}"),
        }
    }
}

/// Returns a value as the text of XML.
pub fn text_of(value: &Json) -> String {
    match value {
        Json::String(text) => text.clone(),
        other => other.to_string(),
    }
}

impl Node {
    /// Returns the XML namespace of the node; `outer` is that of the node above.
    pub fn namespace<'a>(&self, outer: &'a str) -> &'a str {
        match self.module {
            "" => outer,
            own => namespace_of(own),
        }
    }

    /// Returns the node inside with this name.
    pub fn child(&self, name: &str) -> Option<&Node> {
        find(self.nodes(), name)
    }

    /// Returns the nodes inside.
    pub fn nodes(&self) -> &[Node] {
        match &self.kind {
            Kind::Container { nodes, .. } | Kind::List { nodes, .. } => nodes,
            Kind::Leaf(_) | Kind::LeafList(_) => &[],
        }
    }

    /// Returns a node of state.
    pub fn state(name: &str, doc: &str, kind: Kind) -> Node {
        Node {
            name: name.to_owned(),
            module: "",
            doc: doc.to_owned(),
            kind,
            default: None,
            required: false,
            config: false,
        }
    }
}

/// Returns the XML namespace of a module.
pub fn namespace_of(module: &str) -> &'static str {
    match module {
        "ietf-interfaces" => "urn:ietf:params:xml:ns:yang:ietf-interfaces",
        "ietf-ip" => "urn:ietf:params:xml:ns:yang:ietf-ip",
        "iana-if-type" => "urn:ietf:params:xml:ns:yang:iana-if-type",
        "ietf-yang-types" => "urn:ietf:params:xml:ns:yang:ietf-yang-types",
        "ietf-inet-types" => "urn:ietf:params:xml:ns:yang:ietf-inet-types",
        _ => NAMESPACE,
    }
}

/// Returns the node with this name.
pub fn find<'a>(nodes: &'a [Node], name: &str) -> Option<&'a Node> {
    nodes.iter().find(|node| node.name == name)
}

/// Returns the nodes of the configuration, at the top of the module.
pub fn configuration() -> &'static [Node] {
    static NODES: LazyLock<Vec<Node>> = LazyLock::new(|| section(&Config::section()));
    &NODES
}

/// Returns all nodes of the module: those of the configuration, then the state.
pub fn all() -> &'static [Node] {
    static NODES: LazyLock<Vec<Node>> = LazyLock::new(|| {
        let mut nodes = configuration().to_vec();
        nodes.push(switch_state());
        nodes
    });
    &NODES
}

fn prose(lines: &[&str]) -> String {
    lines.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ")
}

fn section(section: &Section) -> Vec<Node> {
    let mut nodes: Vec<Node> = section.keys.iter().map(node).collect();
    // Keys come first (RFC 7950, section 7.8.5).
    nodes.sort_by_key(|node| Some(node.name.as_str()) != section.identity);
    nodes
}

fn node(key: &millrace_model::schema::Key) -> Node {
    let kind = match &key.shape {
        Shape::List(item) => match item.as_ref() {
            Shape::Table(inner) => {
                let inner = inner();
                Kind::List {
                    keys: inner.identity.iter().map(|&key| key.to_owned()).collect(),
                    nodes: section(&inner),
                }
            }
            leaf => Kind::LeafList(leaf_type(leaf)),
        },
        Shape::Table(inner) => {
            let inner = inner();
            let default = key.default.as_ref().map(|default| lengthened(&inner, default));
            Kind::Container {
                presence: !key.required && default.is_none(),
                nodes: with_defaults(section(&inner), default.as_ref()),
            }
        }
        leaf => Kind::Leaf(leaf_type(leaf)),
    };
    // The defaults of a table are those of its nodes.
    let default = key
        .default
        .clone()
        .filter(|_| !matches!(key.shape, Shape::Table(_)));
    Node {
        name: key.name.to_owned(),
        module: "",
        doc: prose(key.doc),
        kind,
        default,
        required: key.required,
        config: true,
    }
}

/// Returns the nodes of a table that exists by default, with the defaults that it has there: a policer's `red` drops.
fn with_defaults(mut nodes: Vec<Node>, table: Option<&Json>) -> Vec<Node> {
    for node in &mut nodes {
        if let Some(value) = table.and_then(|table| table.get(&node.name)) {
            node.default = Some(value.clone());
            node.required = false;
        }
    }
    nodes
}

/// Returns a default of a table in its long form: `"pass"` is `{"action": "pass"}`.
fn lengthened(section: &Section, default: &Json) -> Json {
    match (section.shorthand, default) {
        (_, Json::Object(_)) | (None, _) => default.clone(),
        (Some(key), short) => {
            let mut table = Map::new();
            table.insert(key.to_owned(), short.clone());
            Json::Object(table)
        }
    }
}

fn leaf_type(shape: &Shape) -> Type {
    match shape {
        Shape::Bool => Type::Bool,
        Shape::Integer { min, max, unit } => Type::Integer {
            min: *min,
            max: *max,
            unit,
        },
        Shape::Choice(choices) => Type::Choice(
            choices
                .iter()
                .map(|choice| (choice.word.to_owned(), choice.doc.trim().to_owned()))
                .collect(),
        ),
        Shape::Text { .. } | Shape::List(_) | Shape::Table(_) => Type::Text(shape.expected()),
    }
}

const COUNTER: Type = Type::Integer {
    min: 0,
    max: u64::MAX,
    unit: "",
};

/// Returns the state of the switch: the values of `GET /api/v1/bridges/BRIDGE/ports`, by the same names.
fn switch_state() -> Node {
    let leaf = |name: &str, doc: &str, kind: Type| Node::state(name, doc, Kind::Leaf(kind));
    let text = || Type::Text("text".to_owned());
    let number = |max| Type::Integer {
        min: 0,
        max,
        unit: "",
    };
    let words = |words: &[(&str, &str)]| {
        Type::Choice(
            words
                .iter()
                .map(|(word, doc)| ((*word).to_owned(), (*doc).to_owned()))
                .collect(),
        )
    };
    let counters = |name: &str, doc: &str| {
        let nodes = vec![
            leaf("packets", "Packets.", COUNTER),
            leaf(
                "bytes",
                "Bytes, from the Ethernet header on, without the frame check sequence.",
                COUNTER,
            ),
            leaf(
                "drops",
                "Packets dropped because a queue was full or no buffer was free.",
                COUNTER,
            ),
            leaf("errors", "Packets with errors.", COUNTER),
        ];
        let presence = false;
        Node::state(name, doc, Kind::Container { presence, nodes })
    };
    let if_index = || {
        leaf(
            "if_index",
            "The number of the interface in SNMP (ifIndex).",
            number(u64::from(i32::MAX.unsigned_abs())),
        )
    };
    let port = vec![
        leaf("bridge", "The name of the bridge.", text()),
        leaf("name", "The name of the port.", text()),
        leaf("number", "The OpenFlow number.", number(u64::from(u32::MAX))),
        if_index(),
        leaf("device", "The device.", text()),
        leaf("driver", "The driver of the device.", text()),
        leaf("mac", "The MAC address.", text()),
        leaf("mtu", "The MTU in bytes.", number(u64::from(u32::MAX))),
        leaf(
            "admin",
            "The administrative state.",
            words(&[("up", "In use."), ("down", "Disabled.")]),
        ),
        leaf(
            "link",
            "The operational state; `missing` if the device could not be opened.",
            words(&[
                ("up", "The link has a signal, or the peer is connected."),
                ("down", "The link has no signal, or no peer is connected."),
                ("missing", "The device could not be opened."),
            ]),
        ),
        leaf("speed_bps", "The link speed in bit/s.", COUNTER),
        counters("rx", "Received packets."),
        counters("tx", "Sent packets."),
    ];
    let interface = vec![
        leaf("name", "The name of the interface.", text()),
        if_index(),
        leaf("mac", "The MAC address.", text()),
        leaf(
            "link",
            "The operational state.",
            words(&[
                ("up", "A port of the VLAN has a link."),
                ("down", "No port of the VLAN has a link."),
            ]),
        ),
        counters("rx", "Packets received from the bridge."),
        counters("tx", "Packets forwarded to the bridge."),
    ];
    let nodes = vec![
        leaf(
            "started",
            "The time at which the daemon started: counters count from then on.",
            text(),
        ),
        leaf(
            "revision",
            "The newest revision of the configuration.",
            number(u64::MAX),
        ),
        Node::state(
            "port",
            "The ports of the running bridges.",
            Kind::List {
                keys: vec!["bridge".to_owned(), "name".to_owned()],
                nodes: port,
            },
        ),
        Node::state(
            "interface",
            "The interfaces of the router.",
            Kind::List {
                keys: vec!["name".to_owned()],
                nodes: interface,
            },
        ),
    ];
    Node::state(
        "switch_state",
        "The running switch.",
        Kind::Container {
            presence: false,
            nodes,
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_list_of_the_configuration_has_a_key_that_comes_first() {
        fn check(nodes: &[Node], path: &str) {
            for node in nodes {
                let path = format!("{path}/{}", node.name);
                if let Kind::List { keys, nodes } = &node.kind {
                    assert!(!keys.is_empty(), "{path}");
                    for (key, node) in keys.iter().zip(nodes) {
                        assert_eq!(*key, node.name, "{path}");
                    }
                }
                check(node.nodes(), &path);
            }
        }
        check(all(), "");
        assert!(find(configuration(), "bridge").unwrap().child("port").is_some());
    }

    #[test]
    fn integers_of_64_bits_are_strings_in_json_of_ietf_and_both_are_accepted() {
        assert_eq!(COUNTER.to_ietf(&Json::from(7)), Json::from("7"));
        assert_eq!(COUNTER.from_json(&Json::from("7")), Ok(Json::from(7)));
        assert_eq!(COUNTER.from_json(&Json::from(7)), Ok(Json::from(7)));
        let small = Type::Integer {
            min: 1,
            max: 9,
            unit: "",
        };
        assert_eq!(small.to_ietf(&Json::from(7)), Json::from(7));
        assert!(small.parse("10").is_err());
        assert!(small.parse("-1").is_err());
    }
}
