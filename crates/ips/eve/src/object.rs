//! JSON objects, written field by field in the order of the calls.

use millrace_ips_engine::app::record::{Fields, Value};
use serde::Serialize;

/// A JSON object in progress.
#[derive(Debug)]
pub(crate) struct Object<'a> {
    out: &'a mut Vec<u8>,
    is_empty: bool,
}

impl<'a> Object<'a> {
    /// Begins an object at the end of `out`.
    pub(crate) fn begin(out: &'a mut Vec<u8>) -> Object<'a> {
        out.push(b'{');
        Object { out, is_empty: true }
    }

    fn key(&mut self, key: &str) {
        if !core::mem::replace(&mut self.is_empty, false) {
            self.out.push(b',');
        }
        self.json(&key);
        self.out.push(b':');
    }

    fn json(&mut self, value: &(impl Serialize + ?Sized)) {
        // Texts and numbers are always valid JSON, and a write to a vector does not fail.
        let written = serde_json::to_writer(&mut *self.out, value);
        debug_assert!(written.is_ok());
    }

    /// Writes a field.
    pub(crate) fn field(&mut self, key: &str, value: impl Serialize) -> &mut Self {
        self.key(key);
        self.json(&value);
        self
    }

    /// Writes a field of bytes as text.
    pub(crate) fn bytes(&mut self, key: &str, value: &[u8]) -> &mut Self {
        self.field(key, crate::text::text(value))
    }

    /// Writes a field of bytes as text, if there is one.
    pub(crate) fn optional(&mut self, key: &str, value: Option<&Vec<u8>>) -> &mut Self {
        if let Some(value) = value {
            self.bytes(key, value);
        }
        self
    }

    /// Writes a field of bytes as text, unless it is empty.
    pub(crate) fn unless_empty(&mut self, key: &str, value: &[u8]) -> &mut Self {
        if !value.is_empty() {
            self.bytes(key, value);
        }
        self
    }

    /// Writes an array of texts, unless it is empty.
    pub(crate) fn texts(&mut self, key: &str, values: &[Vec<u8>]) -> &mut Self {
        if !values.is_empty() {
            let texts: Vec<_> = values.iter().map(|value| crate::text::text(value)).collect();
            self.field(key, texts);
        }
        self
    }

    /// Writes an object as a field.
    pub(crate) fn object(&mut self, key: &str, write: impl FnOnce(&mut Object<'_>)) -> &mut Self {
        self.key(key);
        let mut inner = Object::begin(&mut *self.out);
        write(&mut inner);
        inner.end();
        self
    }

    /// Writes an array of objects as a field, one for each value.
    pub(crate) fn array<T>(
        &mut self,
        key: &str,
        values: impl IntoIterator<Item = T>,
        mut write: impl FnMut(&mut Object<'_>, T),
    ) -> &mut Self {
        self.key(key);
        self.out.push(b'[');
        for (index, value) in values.into_iter().enumerate() {
            if index > 0 {
                self.out.push(b',');
            }
            let mut inner = Object::begin(&mut *self.out);
            write(&mut inner, value);
            inner.end();
        }
        self.out.push(b']');
        self
    }

    /// Ends the object.
    pub(crate) fn end(self) {
        self.out.push(b'}');
    }

    /// Ends the object and its line.
    pub(crate) fn end_line(self) {
        self.out.extend_from_slice(b"}\n");
    }
}

/// Writes fields as they are.
pub(crate) fn values(out: &mut Object<'_>, fields: &Fields) {
    for (name, one) in &fields.list {
        value(out, name, one);
    }
}

/// Writes a field as it is.
pub(crate) fn value(out: &mut Object<'_>, name: &str, value: &Value) {
    match value {
        Value::Number(number) => out.field(name, number),
        Value::Signed(number) => out.field(name, number),
        Value::Float(bits) => out.field(name, f64::from_bits(*bits)),
        Value::Flag(flag) => out.field(name, flag),
        Value::Text(text) => out.bytes(name, text),
        Value::Texts(texts) => out.texts(name, texts),
        Value::Numbers(numbers) => out.field(name, numbers),
        Value::Object(fields) => out.object(name, |out| values(out, fields)),
        Value::Objects(list) => out.array(name, list, values),
        Value::Pairs(pairs) => {
            for (key, value) in pairs {
                out.bytes(&crate::text::text(key), value);
            }
            out
        }
    };
}
