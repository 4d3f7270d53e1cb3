//! Named values of records, which EVE writes as they are.

use crate::app::heap::{Heap, heap};

/// Named values, in the order in which EVE writes them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Fields {
    pub list: Vec<(&'static str, Value)>,
}

/// The value of a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    Number(u64),
    Signed(i64),
    /// The bits of a floating-point number.
    Float(u64),
    Flag(bool),
    Text(Vec<u8>),
    Texts(Vec<Vec<u8>>),
    Numbers(Vec<u64>),
    Object(Fields),
    Objects(Vec<Fields>),
    /// Texts by keys that the message carries, each key once. They are fields beside the others, without the name of the list.
    Pairs(Vec<(Vec<u8>, Vec<u8>)>),
}

/// Largest size of a text of [`Fields`] in bytes; longer ones are cut.
pub const FIELD_SIZE: usize = 1024;
/// Largest number of values of a list in [`Fields`].
pub const FIELD_LIST: usize = 64;

impl Fields {
    /// Adds a number.
    pub fn number(&mut self, name: &'static str, value: impl Into<u64>) -> &mut Fields {
        self.list.push((name, Value::Number(value.into())));
        self
    }

    /// Adds a number with a sign.
    pub fn signed(&mut self, name: &'static str, value: i64) -> &mut Fields {
        self.list.push((name, Value::Signed(value)));
        self
    }

    /// Adds a floating-point number.
    pub fn float(&mut self, name: &'static str, value: f64) -> &mut Fields {
        self.list.push((name, Value::Float(value.to_bits())));
        self
    }

    /// Adds a truth value.
    pub fn flag(&mut self, name: &'static str, value: bool) -> &mut Fields {
        self.list.push((name, Value::Flag(value)));
        self
    }

    /// Adds a text.
    pub fn text(&mut self, name: &'static str, value: &[u8]) -> &mut Fields {
        let value = value[..value.len().min(FIELD_SIZE)].to_vec();
        self.list.push((name, Value::Text(value)));
        self
    }

    /// Adds texts.
    pub fn texts<'a>(
        &mut self,
        name: &'static str,
        values: impl IntoIterator<Item = &'a [u8]>,
    ) -> &mut Fields {
        let cut = |value: &[u8]| value[..value.len().min(FIELD_SIZE)].to_vec();
        let values = values.into_iter().take(FIELD_LIST).map(cut).collect();
        self.list.push((name, Value::Texts(values)));
        self
    }

    /// Adds numbers.
    pub fn numbers(&mut self, name: &'static str, values: Vec<u64>) -> &mut Fields {
        self.list.push((name, Value::Numbers(values)));
        self
    }

    /// Adds an object.
    pub fn object(&mut self, name: &'static str, write: impl FnOnce(&mut Fields)) -> &mut Fields {
        let mut fields = Fields::default();
        write(&mut fields);
        self.list.push((name, Value::Object(fields)));
        self
    }

    /// Adds a list of objects.
    pub fn objects(&mut self, name: &'static str, values: Vec<Fields>) -> &mut Fields {
        self.list.push((name, Value::Objects(values)));
        self
    }

    /// Adds a text by a key of the message to a list, unless the list is full or has the key.
    pub fn pair(&mut self, list: &'static str, (key, value): (&[u8], &[u8])) -> &mut Fields {
        let [key, value] = [key, value].map(|text| &text[..text.len().min(FIELD_SIZE)]);
        match self.value(list) {
            Some(Value::Pairs(pairs)) => {
                if pairs.len() < FIELD_LIST && pairs.iter().all(|(known, _)| known != key) {
                    pairs.push((key.to_vec(), value.to_vec()));
                }
            }
            _ => {
                let pairs = vec![(key.to_vec(), value.to_vec())];
                self.list.push((list, Value::Pairs(pairs)));
            }
        }
        self
    }

    /// Returns the value of a field.
    pub fn value(&mut self, name: &str) -> Option<&mut Value> {
        self.list
            .iter_mut()
            .find(|(known, _)| *known == name)
            .map(|(_, value)| value)
    }
}

impl Heap for Value {
    fn heap(&self) -> usize {
        match self {
            Value::Number(_) | Value::Signed(_) | Value::Float(_) | Value::Flag(_) => 0,
            Value::Text(text) => text.heap(),
            Value::Texts(texts) => texts.heap(),
            Value::Numbers(numbers) => numbers.heap(),
            Value::Object(fields) => fields.heap(),
            Value::Objects(list) => list.heap(),
            Value::Pairs(pairs) => pairs.heap(),
        }
    }
}

heap!(Fields { list });
