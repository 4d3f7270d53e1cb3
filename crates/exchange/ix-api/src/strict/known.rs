//! The properties and parameters that each operation of an OpenAPI document knows.

use std::collections::BTreeSet;

use axum::http::Method;
use millrace_ix_model::reason;
use serde_json::Value;
use utoipa::openapi::OpenApi;

use crate::media::{JSON, MERGE_PATCH};
use crate::problem::{Problem, ProblemKind};

/// The largest number of nested values that are compared. No schema of this API is nested so deeply.
const DEPTH_MAX: usize = 16;

/// The operations of an OpenAPI document, with the properties and parameters that each knows.
#[derive(Debug)]
pub(crate) struct Known(Value);

/// A property or parameter that the operation does not have.
#[derive(Debug, PartialEq, Eq)]
struct Unknown {
    /// The JSON pointer of the property.
    pointer: String,
    name: String,
    /// The names that are known there.
    known: BTreeSet<String>,
}

impl Known {
    pub(crate) fn of(document: &OpenApi) -> Known {
        Known(serde_json::to_value(document).unwrap_or_default())
    }

    fn operation(&self, method: &Method, path: &str) -> &Value {
        &self.0["paths"][path][method.as_str().to_ascii_lowercase()]
    }

    /// Returns true if an operation needs no sign-in.
    pub(crate) fn is_public(&self, method: &Method, path: &str) -> bool {
        let security = self.operation(method, path)["security"].as_array();
        security.is_some_and(|security| security.iter().any(|one| *one == serde_json::json!({})))
    }

    /// Refuses a body with a property that the operation does not have.
    pub(crate) fn check_body(&self, method: &Method, path: &str, body: &Value) -> Result<(), Problem> {
        let content = &self.operation(method, path)["requestBody"]["content"];
        let described = [JSON, MERGE_PATCH].map(|media| &content[media]["schema"]);
        let schema = described.into_iter().find(|schema| !schema.is_null());
        let Some(schema) = schema else {
            let detail = format!("the OpenAPI document does not describe the body of {method} {path}");
            return Err(Problem::new(ProblemKind::Internal, detail));
        };
        self.unknown(&[schema], body, "", 0).map_or(Ok(()), |unknown| {
            let pointer = unknown.pointer.clone();
            Err(unknown
                .problem(ProblemKind::Invalid)
                .with_error(pointer, "unknown_property"))
        })
    }

    /// Refuses a query with a parameter that the operation does not have.
    pub(super) fn check_query(&self, method: &Method, path: &str, query: &str) -> Result<(), Problem> {
        let operation = self.operation(method, path);
        if operation.is_null() {
            return Ok(());
        }
        let parameters = operation["parameters"].as_array().into_iter().flatten();
        let known: BTreeSet<String> = parameters
            .filter(|parameter| parameter["in"] == "query")
            .filter_map(|parameter| parameter["name"].as_str().map(str::to_owned))
            .collect();
        let names = query
            .split('&')
            .map(|pair| pair.split('=').next().unwrap_or(pair));
        let unknown = names
            .filter(|name| !name.is_empty())
            .find(|name| !known.contains(*name));
        unknown.map_or(Ok(()), |name| {
            let unknown = Unknown {
                pointer: String::new(),
                name: name.chars().take(64).collect(),
                known,
            };
            Err(unknown.problem(ProblemKind::BadRequest))
        })
    }

    /// Returns the schema behind a reference.
    fn resolved<'a>(&'a self, schema: &'a Value) -> &'a Value {
        let name = schema["$ref"].as_str().and_then(|path| path.strip_prefix('#'));
        name.and_then(|pointer| self.0.pointer(pointer)).unwrap_or(schema)
    }

    /// Returns the schemas of objects, lists and values that a value must satisfy: all parts of a composition, and of
    /// alternatives those whose fixed properties the value has.
    fn parts<'a>(&'a self, schemas: &[&'a Value], value: &Value, depth: usize) -> Vec<&'a Value> {
        if depth > DEPTH_MAX {
            return Vec::new();
        }
        let mut parts = Vec::new();
        for schema in schemas {
            let schema = self.resolved(schema);
            let list =
                |name: &str| -> Option<Vec<&'a Value>> { Some(schema[name].as_array()?.iter().collect()) };
            if let Some(all) = list("allOf") {
                parts.extend(self.parts(&all, value, depth + 1));
            }
            for alternatives in [list("oneOf"), list("anyOf")].into_iter().flatten() {
                let admits = |schema: &&&Value| {
                    let parts = self.parts(&[**schema], value, depth + 1);
                    parts.iter().all(|part| has_fixed(part, value))
                };
                let fitting: Vec<&Value> = alternatives.iter().filter(admits).copied().collect();
                let chosen = if fitting.is_empty() {
                    &alternatives
                } else {
                    &fitting
                };
                parts.extend(self.parts(chosen, value, depth + 1));
            }
            parts.push(schema);
        }
        parts
    }

    /// Returns the first property of a value that no schema describes.
    fn unknown(&self, schemas: &[&Value], value: &Value, pointer: &str, depth: usize) -> Option<Unknown> {
        if depth > DEPTH_MAX {
            return None;
        }
        let parts = self.parts(schemas, value, 0);
        match value {
            Value::Array(items) => {
                let of_items: Vec<&Value> = parts.iter().map(|part| &part["items"]).collect();
                let mut numbered = items.iter().enumerate();
                numbered.find_map(|(at, item)| {
                    self.unknown(&of_items, item, &format!("{pointer}/{at}"), depth + 1)
                })
            }
            Value::Object(members) => {
                let described = || parts.iter().filter_map(|part| part["properties"].as_object());
                let known: BTreeSet<String> = described().flat_map(|all| all.keys().cloned()).collect();
                members.iter().find_map(|(name, member)| {
                    let pointer = format!("{pointer}/{}", name.replace('~', "~0").replace('/', "~1"));
                    let of_member: Vec<&Value> = described().filter_map(|all| all.get(name)).collect();
                    // A schema without properties describes a map.
                    match (of_member.is_empty(), known.is_empty()) {
                        (false, _) => self.unknown(&of_member, member, &pointer, depth + 1),
                        (true, true) => None,
                        (true, false) => Some(Unknown {
                            pointer,
                            name: name.chars().take(64).collect(),
                            known: known.clone(),
                        }),
                    }
                })
            }
            _ => None,
        }
    }
}

/// Returns false if a schema gives a property one value, and the object has another one or none.
fn has_fixed(schema: &Value, value: &Value) -> bool {
    if schema["type"] == "null" {
        return value.is_null();
    }
    let properties = schema["properties"].as_object().into_iter().flatten();
    let mut fixed = properties.filter_map(|(name, schema)| match schema["enum"].as_array()?.as_slice() {
        [only] => Some((name, only)),
        _ => None,
    });
    fixed.all(|(name, only)| value.get(name) == Some(only))
}

impl Unknown {
    fn problem(self, kind: ProblemKind) -> Problem {
        let reason = match nearest(&self.name, &self.known) {
            Some(nearest) => reason::property_misspelt(&self.name, nearest),
            None if self.known.is_empty() => reason::property_none(&self.name),
            None => {
                let known: Vec<&str> = self.known.iter().map(String::as_str).collect();
                reason::property_unknown(&self.name, known.join(", "))
            }
        };
        Problem::because(kind, reason)
    }
}

/// Returns the known name that `name` probably misspells; `None` if none is similar.
fn nearest<'a>(name: &str, known: &'a BTreeSet<String>) -> Option<&'a str> {
    let name = name.to_lowercase();
    // One change for short names, and one more for each three further letters up to three.
    let allowed = (name.chars().count() / 3).clamp(1, 3);
    let near = known.iter().map(|candidate| {
        let distance = strsim::damerau_levenshtein(&name, &candidate.to_lowercase());
        (distance, candidate.as_str())
    });
    near.filter(|(distance, candidate)| {
        *distance <= allowed || (name.len() >= 4 && (candidate.contains(&name) || name.contains(candidate)))
    })
    .min()
    .map(|(_, candidate)| candidate)
}
