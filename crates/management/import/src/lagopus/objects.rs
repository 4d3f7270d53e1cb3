//! The objects of a file: `OBJECT [NAME] [OPERATION] [-OPTION VALUE…]…`.

use std::collections::BTreeMap;

use crate::ImportError;
use crate::finding::Findings;

/// Objects without a name.
const UNNAMED: [&str; 7] = ["log", "datastore", "agent", "tls", "snmp", "ofp", "system"];

/// Objects of which bridges are made.
const NAMED: [&str; 8] = [
    "interface",
    "port",
    "channel",
    "controller",
    "queue",
    "policer",
    "policer-action",
    "bridge",
];

/// Other objects, and what comes closest.
const OTHERS: [(&str, &str); 7] = [
    (
        "flow",
        "flow entries are no configuration: expected `millrace flow add`",
    ),
    (
        "group",
        "groups are no configuration: expected `ovs-ofctl -O OpenFlow13 add-group`",
    ),
    (
        "meter",
        "meters are no configuration: expected `ovs-ofctl -O OpenFlow13 add-meter`",
    ),
    ("mactable", "MAC addresses are learned"),
    (
        "route",
        "routes are the kernel's or FRR's: expected `[[vrf]]` and `[[interface]]` (docs/routing.md)",
    ),
    ("affinition", "expected `system.worker_cores`"),
    (
        "namespace",
        "names of other namespaces are not resolved: expected one file for each switch",
    ),
];

/// The options of an object, and the line that made it.
#[derive(Debug, Clone, Default)]
pub(super) struct Object {
    /// The file and the line that created it.
    pub(super) place: String,
    /// The options with their values, in order.
    options: Vec<(String, Vec<String>)>,
    pub(super) is_enabled: bool,
}

impl Object {
    pub(super) fn options(&self) -> impl Iterator<Item = (&str, &[String])> {
        self.options
            .iter()
            .map(|(name, values)| (name.as_str(), values.as_slice()))
    }

    /// Returns the last value of an option.
    pub(super) fn value(&self, option: &str) -> Option<&str> {
        let found = self.options().filter(|(name, _)| *name == option).last();
        found.and_then(|(_, values)| values.first()).map(String::as_str)
    }
}

/// The objects of a file, in the order of their names.
#[derive(Debug, Default)]
pub(super) struct Objects(BTreeMap<&'static str, BTreeMap<String, Object>>);

impl Objects {
    pub(super) fn of(&self, kind: &str) -> impl Iterator<Item = (&str, &Object)> {
        self.0
            .get(kind)
            .into_iter()
            .flatten()
            .map(|(name, object)| (name.as_str(), object))
    }

    pub(super) fn get(&self, kind: &str, name: &str) -> Option<&Object> {
        self.0.get(kind)?.get(name)
    }

    /// Returns an object without a name.
    pub(super) fn settings(&self, kind: &str) -> Option<&Object> {
        self.get(kind, "")
    }
}

/// Reads the objects of a file.
pub(super) fn read(file: &str, text: &str, findings: &mut Findings) -> Result<Objects, ImportError> {
    let mut objects = Objects::default();
    let mut is_known = false;
    for (index, line) in text.lines().enumerate() {
        let place = format!("{file}:{}", index + 1);
        let words = words(line);
        let Some((kind, rest)) = words.split_first() else {
            continue;
        };
        if words.iter().any(|word| word == "{") || kind == "}" {
            return Err(ImportError::new(
                place,
                "lagosh's configuration syntax: expected the DSL; to write it: lagosh --dsl-encode FILE",
            ));
        }
        if let Some(kind) = UNNAMED.iter().find(|known| *known == kind) {
            let object = objects
                .0
                .entry(kind)
                .or_default()
                .entry(String::new())
                .or_default();
            object.place.clone_from(&place);
            object.options.extend(options(rest));
            if *kind != "tls" {
                findings.note(&place, format!("{kind}: {}", instead(kind)));
            }
        } else if let Some(kind) = NAMED.iter().find(|known| *known == kind) {
            is_known = true;
            let (Some(name), operation) = (rest.first(), rest.get(1).map_or("", String::as_str)) else {
                findings.difference(place, format!("{kind}: expected a name"));
                continue;
            };
            let of_kind = objects.0.entry(kind).or_default();
            match operation {
                "create" | "config" => {
                    let object = of_kind.entry(name.clone()).or_default();
                    object.place.clone_from(&place);
                    object.options.extend(options(rest.get(2..).unwrap_or_default()));
                }
                "enable" | "disable" => {
                    if let Some(object) = of_kind.get_mut(name) {
                        object.is_enabled = operation == "enable";
                    }
                }
                "destroy" => drop(of_kind.remove(name)),
                "" | "stats" | "clear-queue" | "clear" | "current" | "modified" => {}
                _ => findings.difference(place, format!("{kind} {name} {operation}: not known here")),
            }
        } else if let Some((_, instead)) = OTHERS.iter().find(|(known, _)| known == kind) {
            is_known = true;
            findings.difference(place, format!("{}: {instead}", words.join(" ")));
        } else {
            findings.difference(place, format!("{}: not known here", words.join(" ")));
        }
    }
    match is_known {
        true => Ok(objects),
        false => Err(ImportError::new(
            file,
            "no object of Lagopus: expected lines such as `bridge br01 create -dpid 0x1`",
        )),
    }
}

fn instead(kind: &str) -> &'static str {
    match kind {
        "log" => "the log is the journal's; `millrace log` sets its levels",
        "datastore" => "the configuration is reached by REST (`[api]`)",
        "agent" | "ofp" => "queues of OpenFlow messages have fixed sizes",
        "snmp" => "counters are in `/metrics` of the REST API",
        _ => "no counterpart",
    }
}

/// Returns the options of a command: each word that begins with `-` and is no number, with the words after it.
fn options(words: &[String]) -> Vec<(String, Vec<String>)> {
    let mut options: Vec<(String, Vec<String>)> = Vec::new();
    for word in words {
        match word
            .strip_prefix('-')
            .filter(|rest| rest.starts_with(|char: char| char.is_ascii_alphabetic()))
        {
            Some(name) => options.push((name.to_owned(), Vec::new())),
            None => match options.last_mut() {
                // Names may have a sign: `+` adds, and `~` takes away.
                Some((_, values)) => values.push(word.trim_start_matches('+').to_owned()),
                None => options.push((word.clone(), Vec::new())),
            },
        }
    }
    options
}

/// Returns the words of a line, with quotes and without a comment.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut chars = line.chars();
    while let Some(char) = chars.next() {
        match char {
            '\\' => word.get_or_insert_default().extend(chars.next()),
            char if quote == Some(char) => quote = None,
            '"' | '\'' if quote.is_none() => {
                quote = Some(char);
                word.get_or_insert_default();
            }
            '#' if quote.is_none() && word.is_none() => break,
            char if quote.is_none() && char.is_whitespace() => words.extend(word.take()),
            char => word.get_or_insert_default().push(char),
        }
    }
    words.extend(word);
    words
}

/// Returns a number in decimal, or in hexadecimal after `0x`.
pub(super) fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}
