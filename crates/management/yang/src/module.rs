//! The text of the YANG module `millrace` (RFC 7950), made from the schema.

use std::fmt::Write as _;

use crate::schema::{Kind, Node, Type, all, text_of};
use crate::{MODULE, NAMESPACE, REVISION};

/// Returns the text of the module.
pub fn text() -> String {
    let mut out = String::new();
    let _ = write!(
        out,
        r#"module {MODULE} {{
  yang-version 1.1;
  namespace "{NAMESPACE}";
  prefix mr;

  organization
    "The Millrace authors";
  contact
    "The documentation of the switch: docs/netconf.md.";
  description
    "The configuration and the state of a Millrace switch. The tables and keys are those of the configuration file and of the
     REST API; the switch checks more than this module says, and names what it refuses.";

  revision {REVISION} {{
    description
      "The tables of the configuration, and the state of ports.";
    reference
      "docs/configuration.md";
  }}
"#
    );
    for node in all() {
        out.push('\n');
        write_node(node, 1, "", &mut out);
    }
    out.push_str("}\n");
    out
}

fn indent(level: usize, out: &mut String) {
    for _ in 0..level {
        out.push_str("  ");
    }
}

/// Appends a statement with a string argument.
fn statement(level: usize, keyword: &str, argument: &str, out: &mut String) {
    indent(level, out);
    let _ = writeln!(out, "{keyword} {};", quoted(argument));
}

/// Returns a string in double quotes (RFC 7950, section 6.1.3).
fn quoted(text: &str) -> String {
    let escaped = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', " ");
    format!("\"{escaped}\"")
}

fn description(level: usize, text: &str, out: &mut String) {
    if !text.is_empty() {
        statement(level, "description", text, out);
    }
}

fn write_node(node: &Node, level: usize, keys: &str, out: &mut String) {
    let keyword = match &node.kind {
        Kind::Leaf(_) => "leaf",
        Kind::LeafList(_) => "leaf-list",
        Kind::Container { .. } => "container",
        Kind::List { .. } => "list",
    };
    indent(level, out);
    let _ = writeln!(out, "{keyword} {} {{", node.name);
    let inner = level + 1;
    match &node.kind {
        Kind::Leaf(kind) => {
            write_type(kind, inner, out);
            let is_key = keys.split(' ').any(|key| key == node.name);
            match &node.default {
                Some(default) if !is_key => statement(inner, "default", &text_of(default), out),
                _ if node.required && !is_key => statement(inner, "mandatory", "true", out),
                _ => {}
            }
        }
        Kind::LeafList(kind) => {
            write_type(kind, inner, out);
            if node.required {
                statement(inner, "min-elements", "1", out);
            }
            // The order of rules, of VLANs and of settings is that of their writer.
            if node.config {
                statement(inner, "ordered-by", "user", out);
            }
        }
        Kind::Container { presence, .. } => {
            if *presence {
                statement(
                    inner,
                    "presence",
                    "Without this container, the switch does not do this.",
                    out,
                );
            }
        }
        Kind::List { keys, .. } => {
            statement(inner, "key", &keys.join(" "), out);
            if node.config {
                statement(inner, "ordered-by", "user", out);
            }
        }
    }
    // State is marked once, at the top.
    if !node.config && level == 1 {
        statement(inner, "config", "false", out);
    }
    description(inner, &node.doc, out);
    let keys = match &node.kind {
        Kind::List { keys, .. } => keys.join(" "),
        _ => String::new(),
    };
    for child in node.nodes() {
        write_node(child, inner, &keys, out);
    }
    indent(level, out);
    out.push_str("}\n");
}

fn write_type(kind: &Type, level: usize, out: &mut String) {
    let unit = match kind {
        Type::Integer { unit, .. } => unit.trim(),
        _ => "",
    };
    match kind {
        Type::Bool => statement(level, "type", "boolean", out),
        Type::Integer { min, max, .. } => {
            indent(level, out);
            let bits = kind.bits().unwrap_or(64);
            let full = u64::MAX >> (64 - u32::from(bits));
            match (*min, *max == full) {
                (0, true) => {
                    let _ = writeln!(out, "type uint{bits};");
                }
                _ => {
                    let _ = writeln!(
                        out,
                        "type uint{bits} {{\n{}range \"{min}..{max}\";",
                        "  ".repeat(level + 1)
                    );
                    indent(level, out);
                    out.push_str("}\n");
                }
            }
        }
        // The schema of the switch has no identities.
        Type::Text(_) | Type::NumberOrText(_) | Type::Identity { .. } => {
            statement(level, "type", "string", out);
        }
        Type::Choice(words) => {
            indent(level, out);
            out.push_str("type enumeration {\n");
            for (word, doc) in words {
                indent(level + 1, out);
                match doc.is_empty() {
                    true => {
                        let _ = writeln!(out, "enum {};", quoted(word));
                    }
                    false => {
                        let _ = writeln!(out, "enum {} {{", quoted(word));
                        description(level + 2, doc, out);
                        indent(level + 1, out);
                        out.push_str("}\n");
                    }
                }
            }
            indent(level, out);
            out.push_str("}\n");
        }
    }
    if !unit.is_empty() {
        statement(level, "units", unit, out);
    }
}
