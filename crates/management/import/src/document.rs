//! A configuration that a reader assembles as JSON. A value that the model does not have is taken out, and named.

use millrace_model::{Config, ConfigError, Step};
use serde_json::{Map, Value as Json, json};

use crate::finding::Findings;

/// The most values that are taken out before the whole is given up.
const MENDS_MAX: usize = 10_000;

/// Keys without which the table around them is nothing.
const REQUIRED: [&str; 9] = [
    "name", "number", "device", "id", "target", "kind", "cir", "vrf", "bridge",
];

/// Returns the configuration of a document whose bridges have the key `place` with the place of each port and of themselves;
/// the key is taken out.
pub(crate) fn settle(mut document: Json, name: &str, findings: &mut Findings) -> Config {
    let mut places = places(&mut document);
    for _ in 0..MENDS_MAX {
        let errors = match Config::from_json(&document) {
            Ok(config) => return config,
            Err(errors) => errors,
        };
        let Some(error) = errors.iter().next() else {
            break;
        };
        let place = place(&places, error).unwrap_or(name).to_owned();
        findings.difference(place, format!("{} is left out: {}", error.path, error.problem));
        // The places stay beside their tables.
        remove(&mut places, &error.path.0);
        if !remove(&mut document, &error.path.0) {
            break;
        }
    }
    Config::new()
}

/// Takes the key `place` out of all tables; returns a document of the same shape with their values.
fn places(document: &mut Json) -> Json {
    match document {
        Json::Object(table) => {
            let own = table.remove("place");
            let mut found: Map<String, Json> = table
                .iter_mut()
                .map(|(key, value)| (key.clone(), places(value)))
                .collect();
            found.extend(own.map(|own| ("place".to_owned(), own)));
            Json::Object(found)
        }
        Json::Array(items) => Json::Array(items.iter_mut().map(places).collect()),
        _ => json!(null),
    }
}

/// Returns the place of the innermost table around an error.
fn place<'a>(places: &'a Json, error: &ConfigError) -> Option<&'a str> {
    let mut at = Some(places);
    let mut found = None;
    for step in &error.path.0 {
        at = at.and_then(|at| match step {
            Step::Key(key) => at.get(key),
            Step::Index(index) => at.get(index),
        });
        found = at.and_then(|at| at.get("place")).and_then(Json::as_str).or(found);
    }
    found
}

/// Takes out the value at a path, or the table around it that needs it. Returns false if there is nothing to take out.
fn remove(document: &mut Json, path: &[Step]) -> bool {
    let (mut path, mut last) = match path.split_last() {
        Some((last, path)) => (path, last),
        None => return false,
    };
    if let Step::Key(key) = last
        && REQUIRED.contains(&key.as_str())
        && let Some((outer, rest)) = path.split_last()
    {
        (path, last) = (rest, outer);
    }
    let mut at = document;
    for step in path {
        let next = match step {
            Step::Key(key) => at.get_mut(key),
            Step::Index(index) => at.get_mut(index),
        };
        match next {
            Some(next) => at = next,
            None => return false,
        }
    }
    match (last, at) {
        (Step::Key(key), Json::Object(table)) => table.remove(key).is_some(),
        (Step::Index(index), Json::Array(items)) if *index < items.len() => {
            items.remove(*index);
            true
        }
        _ => false,
    }
}
