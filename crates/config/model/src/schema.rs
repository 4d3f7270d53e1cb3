//! Schema of the model: every key with its type, default and documentation. The [`section!`](crate::section) macro
//! generates it beside the struct, so that the decoder, the "did you mean" suggestions, docs/configuration.md and the
//! OpenAPI document have one source.

/// The type of a key.
#[derive(Debug, Clone)]
pub enum Shape {
    /// `true` or `false`.
    Bool,
    /// A whole number.
    Integer {
        /// The smallest valid value.
        min: u64,
        /// The largest valid value.
        max: u64,
        /// The unit with a leading blank: " bytes", " seconds"; empty for a plain number.
        unit: &'static str,
    },
    /// Text of a certain form.
    Text {
        /// A description of the form: "a PCI address, …".
        form: &'static str,
        /// A valid value.
        example: &'static str,
    },
    /// One of a fixed set of words.
    Choice(&'static [Choice]),
    /// A list of any length of the inner shape.
    List(Box<Shape>),
    /// A nested table.
    Table(fn() -> Section),
}

/// One of the words that a key takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Choice {
    /// The word.
    pub word: &'static str,
    /// The documentation of the word.
    pub doc: &'static str,
}

impl Shape {
    /// Returns a description of the type, as the end of the sentence "expected …".
    pub fn expected(&self) -> String {
        match self {
            Shape::Bool => "true or false".to_owned(),
            Shape::Integer { min, max, unit } => format!("a whole number from {min} to {max}{unit}"),
            Shape::Text { form, example } => format!("{form}, as in \"{example}\""),
            Shape::Choice(choices) => {
                let words: Vec<String> = choices.iter().map(|c| format!("\"{}\"", c.word)).collect();
                words.join(" or ")
            }
            Shape::List(item) => format!("a list, each item {}", item.expected()),
            Shape::Table(section) => {
                let section = section();
                let keys: Vec<&str> = section.keys.iter().map(|key| key.name).collect();
                match section.shorthand {
                    Some(_) => {
                        let first = section.keys.first().map(|key| key.shape.expected());
                        format!(
                            "{}, or a table with the keys {}",
                            first.unwrap_or_default(),
                            keys.join(", ")
                        )
                    }
                    None => format!("a table with the keys {}", keys.join(", ")),
                }
            }
        }
    }
}

/// The time at which a change of a key takes effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TakesEffect {
    /// When the revision is committed.
    Live,
    /// At the next start of the daemon.
    Restart,
}

/// One key of a section.
#[derive(Debug, Clone)]
pub struct Key {
    /// The key as written.
    pub name: &'static str,
    /// The documentation: lines of Markdown.
    pub doc: &'static [&'static str],
    /// The type of the key.
    pub shape: Shape,
    /// True if the key is required.
    pub required: bool,
    /// The default; `None` if there is none, or if the key is unset by default.
    pub default: Option<serde_json::Value>,
}

/// A table of the model.
#[derive(Debug, Clone)]
pub struct Section {
    /// The name of the Rust type and of the OpenAPI schema.
    pub name: &'static str,
    /// The documentation: lines of Markdown.
    pub doc: &'static [&'static str],
    /// The keys in the order in which they are written.
    pub keys: Vec<Key>,
    /// The key that identifies an item of a list of these tables.
    pub identity: Option<&'static str>,
    /// The key whose bare value is accepted in place of the whole table.
    pub shorthand: Option<&'static str>,
    /// The time at which changes take effect.
    pub applies: TakesEffect,
}

/// The largest number of tables that a misplaced key is assigned to; a key of more tables, such as `name`, says nothing.
const PLACES_LEN: usize = 3;

/// Returns the tables of the configuration that have a key, in the notation of TOML: `` `[[bridge]]` ``, or the table
/// that is the value of the key, `` `[[bridge.port]]` ``. Empty if there is none, or if there are many.
pub(crate) fn places(key: &str) -> Vec<String> {
    fn walk(section: &Section, path: &str, heading: &str, wanted: &str, out: &mut Vec<String>) {
        for key in &section.keys {
            let longer = match path {
                "" => key.name.to_owned(),
                path => format!("{path}.{}", key.name),
            };
            let (inner, is_list) = match &key.shape {
                Shape::Table(inner) => (Some(inner()), false),
                Shape::List(item) => match item.as_ref() {
                    Shape::Table(inner) => (Some(inner()), true),
                    _ => (None, true),
                },
                _ => (None, false),
            };
            let own = match is_list {
                true => format!("`[[{longer}]]`"),
                false => format!("`[{longer}]`"),
            };
            if key.name == wanted {
                out.push(match &inner {
                    Some(inner) if inner.shorthand.is_none() => own.clone(),
                    _ => heading.to_owned(),
                });
            }
            if let Some(inner) = inner {
                walk(&inner, &longer, &own, wanted, out);
            }
        }
    }
    let mut found = Vec::new();
    walk(
        &crate::config::Config::section(),
        "",
        "the top of the file",
        key,
        &mut found,
    );
    if found.len() > PLACES_LEN {
        found.clear();
    }
    found
}
