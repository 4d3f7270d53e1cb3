//! A validator for the part of JSON Schema 2020-12 that our own schemas use. Tests in Python validate with a
//! complete implementation; this validator is for tests and fuzzers that have a value in Rust.

use serde_json::Value;

/// A JSON Schema.
#[derive(Debug, Clone)]
pub struct Schema(Value);

/// Keywords that [`Schema`] ignores: they only describe, or only complete validators check them.
const IGNORED: &[&str] = &["$schema", "$defs", "title", "description", "pattern"];

impl Schema {
    /// Reads a schema.
    ///
    /// # Panics
    /// If the text is no JSON.
    pub fn parse(text: &str) -> Schema {
        Schema(serde_json::from_str(text).unwrap())
    }

    /// Returns the differences between a value and the schema, each with its path in the value; empty if the
    /// value is valid.
    ///
    /// # Panics
    /// If the schema has a keyword or a reference that this validator does not know.
    pub fn errors(&self, value: &Value) -> Vec<String> {
        let mut errors = Vec::new();
        self.check(&self.0, value, "", &mut errors);
        errors
    }

    fn check(&self, schema: &Value, value: &Value, place: &str, errors: &mut Vec<String>) {
        let keywords = schema
            .as_object()
            .unwrap_or_else(|| panic!("{schema} is no schema"));
        for (keyword, wanted) in keywords {
            let mut fail = |is_valid: bool| {
                if !is_valid {
                    errors.push(format!("{place}: {value} against {keyword} {wanted}"));
                }
            };
            match keyword.as_str() {
                "$ref" => {
                    let pointer = wanted.as_str().and_then(|text| text.strip_prefix('#'));
                    let target = pointer.and_then(|pointer| self.0.pointer(pointer));
                    let target = target.unwrap_or_else(|| panic!("no {wanted} in the schema"));
                    self.check(target, value, place, errors);
                }
                "type" => fail(has_type(value, wanted.as_str())),
                "enum" => fail(wanted.as_array().is_some_and(|values| values.contains(value))),
                "const" => fail(wanted == value),
                "minimum" => fail(
                    value
                        .as_f64()
                        .is_none_or(|number| wanted.as_f64() <= Some(number)),
                ),
                "maximum" => fail(
                    value
                        .as_f64()
                        .is_none_or(|number| wanted.as_f64() >= Some(number)),
                ),
                "required" => {
                    let names = wanted.as_array().into_iter().flatten().filter_map(Value::as_str);
                    for name in names {
                        fail(value.get(name).is_some());
                    }
                }
                "properties" | "additionalProperties" => {
                    self.properties(keywords, keyword, value, place, errors);
                }
                "items" => {
                    for (index, item) in value.as_array().into_iter().flatten().enumerate() {
                        self.check(wanted, item, &format!("{place}/{index}"), errors);
                    }
                }
                "allOf" => {
                    for schema in wanted.as_array().into_iter().flatten() {
                        self.check(schema, value, place, errors);
                    }
                }
                "anyOf" => {
                    let is_valid = |schema| {
                        let mut differences = Vec::new();
                        self.check(schema, value, place, &mut differences);
                        differences.is_empty()
                    };
                    fail(wanted.as_array().into_iter().flatten().any(is_valid));
                }
                "if" => {
                    let mut differences = Vec::new();
                    self.check(wanted, value, place, &mut differences);
                    if let (true, Some(then)) = (differences.is_empty(), keywords.get("then")) {
                        self.check(then, value, place, errors);
                    }
                }
                "then" => {}
                keyword => assert!(IGNORED.contains(&keyword), "unknown keyword {keyword}"),
            }
        }
    }

    /// Checks the fields of an object: for `properties` the fields that it names, for `additionalProperties`
    /// all others.
    fn properties(
        &self,
        keywords: &serde_json::Map<String, Value>,
        keyword: &str,
        value: &Value,
        place: &str,
        errors: &mut Vec<String>,
    ) {
        let named = keywords.get("properties");
        for (name, field) in value.as_object().into_iter().flatten() {
            let place = format!("{place}/{name}");
            let schema = named.and_then(|named| named.get(name));
            match (keyword, schema) {
                ("properties", Some(schema)) => self.check(schema, field, &place, errors),
                ("additionalProperties", None) => match &keywords[keyword] {
                    Value::Bool(true) => {}
                    Value::Bool(false) => errors.push(format!("{place} is no field of the schema")),
                    schema => self.check(schema, field, &place, errors),
                },
                _ => {}
            }
        }
    }
}

fn has_type(value: &Value, kind: Option<&str>) -> bool {
    match kind {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("boolean") => value.is_boolean(),
        Some("integer") => value.is_u64() || value.is_i64(),
        kind => panic!("unknown type {kind:?}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_keyword_refuses_a_value() {
        let schema = Schema::parse(
            r##"{
                "type": "object", "additionalProperties": false, "required": ["a"],
                "properties": {"a": {"$ref": "#/$defs/small"}, "d": {"anyOf": [{"type": "integer"}, {"type": "boolean"}]}, "b": {"type": "array", "items": {"enum": ["x", "y"]}}},
                "allOf": [{"if": {"properties": {"a": {"const": 1}}}, "then": {"required": ["b"]}}],
                "$defs": {"small": {"type": "integer", "minimum": 0, "maximum": 9}}
            }"##,
        );
        for valid in [
            json!({"a": 2}),
            json!({"a": 1, "b": []}),
            json!({"a": 2, "d": true}),
            json!({"a": 9, "b": ["x", "y"]}),
        ] {
            assert!(schema.errors(&valid).is_empty(), "{valid}");
        }
        for (invalid, wanted) in [
            (json!([]), "type"),
            (json!({}), "required"),
            (json!({"a": "1"}), "/a"),
            (json!({"a": 10}), "maximum"),
            (json!({"a": -1}), "minimum"),
            (json!({"a": 1}), "required"),
            (json!({"a": 2, "c": 3}), "/c"),
            (json!({"a": 2, "d": "x"}), "/d"),
            (json!({"a": 2, "b": ["z"]}), "/b/0"),
        ] {
            let errors = schema.errors(&invalid);
            assert!(
                errors.iter().any(|error| error.contains(wanted)),
                "{invalid}: {errors:?}"
            );
        }
    }
}
