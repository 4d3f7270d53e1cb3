//! The description of the model that the model itself carries: every key with its kind, default and
//! documentation. The [`section!`](crate::section) macro writes it beside the struct, so the decoder,
//! the "did you mean", docs/configuration.md and the OpenAPI document have one source.

/// What a key takes.
#[derive(Debug, Clone)]
pub enum Shape {
    /// `true` or `false`.
    Bool,
    /// A whole number.
    Integer {
        /// The least legal value.
        min: u64,
        /// The greatest legal value.
        max: u64,
        /// What is counted: " bytes", " seconds"; empty for a plain number.
        unit: &'static str,
    },
    /// Text of a certain form.
    Text {
        /// The form in words: "a PCI address, …".
        form: &'static str,
        /// A legal value.
        example: &'static str,
    },
    /// One of a few words.
    Choice(&'static [Choice]),
    /// Any number of the inner shape.
    List(Box<Shape>),
    /// A table with keys of its own.
    Table(fn() -> Section),
}

/// One of the words that a key takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Choice {
    /// The word.
    pub word: &'static str,
    /// What it means.
    pub doc: &'static str,
}

impl Shape {
    /// What the key takes, as the end of the sentence "expected …".
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

/// When a change of a key takes effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Applies {
    /// As soon as the revision is committed.
    Live,
    /// When the daemon is started again.
    Restart,
}

/// One key of a section.
#[derive(Debug, Clone)]
pub struct Key {
    /// The key as it is written.
    pub name: &'static str,
    /// What it means; lines of Markdown.
    pub doc: &'static [&'static str],
    /// What it takes.
    pub shape: Shape,
    /// Whether the table means nothing without it.
    pub required: bool,
    /// Its default; `None` if there is none, or if the default is to be unset.
    pub default: Option<serde_json::Value>,
}

/// A table of the model.
#[derive(Debug, Clone)]
pub struct Section {
    /// The name of the Rust type and of the OpenAPI schema.
    pub name: &'static str,
    /// What it is; lines of Markdown.
    pub doc: &'static [&'static str],
    /// Its keys in the order in which they are written.
    pub keys: Vec<Key>,
    /// The key that tells it from its siblings in a list.
    pub identity: Option<&'static str>,
    /// The key whose bare value may stand for the whole table.
    pub shorthand: Option<&'static str>,
    /// When changes take effect.
    pub applies: Applies,
}
