//! Every request schema of both documents: closed, checked, with an example.

use axum::http::Method;
use serde_json::{Map, Value, json};
use utoipa::openapi::OpenApi;

use crate::strict::Known;

fn documents() -> [OpenApi; 2] {
    [crate::routes::document(), crate::v2::document()]
}

/// Returns method, path and schema of each operation with a body.
fn bodies(document: &Value) -> Vec<(Method, String, Value)> {
    let mut found = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let content = operation["requestBody"]["content"].as_object();
            for schema in content
                .into_iter()
                .flatten()
                .map(|(_, content)| &content["schema"])
            {
                let method = method.to_uppercase().parse().unwrap();
                found.push((method, path.clone(), schema.clone()));
            }
        }
    }
    found
}

fn resolved<'a>(document: &'a Value, schema: &'a Value) -> &'a Value {
    match schema["$ref"].as_str() {
        Some(path) => document.pointer(path.trim_start_matches('#')).unwrap(),
        None => schema,
    }
}

/// Returns values with all properties of a schema: one for each variant.
fn samples(document: &Value, schema: &Value) -> Vec<Value> {
    let schema = resolved(document, schema);
    if let Some(variants) = schema["oneOf"].as_array() {
        let variants = variants.iter().filter(|variant| variant["type"] != "null");
        return variants.flat_map(|variant| samples(document, variant)).collect();
    }
    if let Some(values) = schema["enum"].as_array() {
        return vec![values[0].clone()];
    }
    let types = match &schema["type"] {
        Value::Array(types) => types.clone(),
        one => vec![one.clone()],
    };
    let kind = types.iter().find(|kind| **kind != "null").and_then(Value::as_str);
    match kind {
        Some("integer" | "number") => vec![json!(7)],
        Some("boolean") => vec![json!(true)],
        Some("string") => vec![json!("x")],
        Some("array") => {
            let items = samples(document, &schema["items"]);
            items.into_iter().map(|item| json!([item])).collect()
        }
        Some("object") => {
            let properties = schema["properties"].as_object().cloned().unwrap_or_default();
            let mut all = vec![Map::new()];
            for (name, schema) in &properties {
                let values = samples(document, schema);
                let most = all.len().max(values.len());
                all = (0..most)
                    .map(|at| {
                        let mut object = all[at % all.len()].clone();
                        object.insert(name.clone(), values[at % values.len()].clone());
                        object
                    })
                    .collect();
            }
            all.into_iter().map(Value::Object).collect()
        }
        other => panic!("{other:?} in {schema}"),
    }
}

/// Returns the JSON pointers of all objects in a value that have properties.
fn objects(value: &Value, pointer: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            if !members.is_empty() {
                found.push(pointer.to_owned());
            }
            for (name, member) in members {
                objects(member, &format!("{pointer}/{name}"), found);
            }
        }
        Value::Array(items) => {
            for (at, item) in items.iter().enumerate() {
                objects(item, &format!("{pointer}/{at}"), found);
            }
        }
        _ => {}
    }
}

#[test]
fn an_unknown_property_anywhere_in_any_body_is_refused_by_name() {
    let mut operations = 0;
    for document in documents() {
        let known = Known::of(&document);
        let document = serde_json::to_value(&document).unwrap();
        for (method, path, schema) in bodies(&document) {
            operations += 1;
            for sample in samples(&document, &schema) {
                let problem = known.check_body(&method, &path, &sample).err();
                assert_eq!(problem, None, "{method} {path} {sample}");
                let mut places = Vec::new();
                objects(&sample, "", &mut places);
                assert!(!places.is_empty(), "{method} {path}");
                for place in places {
                    let mut wrong = sample.clone();
                    wrong.pointer_mut(&place).unwrap()["zzzz_not_there"] = json!(1);
                    let problem = known.check_body(&method, &path, &wrong).unwrap_err();
                    assert_eq!(
                        (problem.status, problem.errors[0].pointer.clone()),
                        (422, format!("{place}/zzzz_not_there")),
                        "{method} {path}"
                    );
                    assert!(problem.detail.contains("`zzzz_not_there`"), "{}", problem.detail);
                }
            }
        }
    }
    assert!(operations >= 50, "{operations}");
}

#[test]
fn every_object_of_a_body_says_that_it_has_no_further_properties() {
    for document in documents() {
        let document = serde_json::to_value(&document).unwrap();
        let mut open: Vec<Value> = bodies(&document).into_iter().map(|(.., schema)| schema).collect();
        let mut seen = 0;
        while let Some(schema) = open.pop() {
            let schema = resolved(&document, &schema);
            assert!(schema["allOf"].is_null(), "{schema}");
            if let Some(properties) = schema["properties"].as_object() {
                assert_eq!(schema["additionalProperties"], false, "{schema}");
                open.extend(properties.values().cloned());
                seen += 1;
            }
            open.extend(schema["oneOf"].as_array().into_iter().flatten().cloned());
            open.extend(schema.get("items").cloned());
        }
        assert!(seen >= 20, "{seen}");
    }
}

#[test]
fn the_variants_of_tagged_unions_have_names_and_a_discriminator() {
    let names: Vec<Value> = documents()
        .iter()
        .map(|document| serde_json::to_value(document).unwrap()["components"]["schemas"].clone())
        .collect();
    assert_eq!(names[0]["Vlan"]["discriminator"]["propertyName"], "type");
    assert_eq!(
        names[0]["Vlan"]["discriminator"]["mapping"]["dot1q"],
        "#/components/schemas/VlanDot1q"
    );
    assert!(names[0]["VlanDot1q"]["properties"]["vlan"].is_object());
    let order = &names[1]["NetworkServiceConfigRequestP2pVc"];
    assert_eq!(order["properties"]["type"]["enum"], json!(["p2p_vc"]));
    assert!(order["properties"]["vlan_config"].is_object(), "{order}");
    for schemas in &names {
        for (name, schema) in schemas.as_object().unwrap() {
            let variants = schema["oneOf"].as_array().into_iter().flatten();
            for variant in variants.filter(|variant| variant["type"] != "null") {
                assert!(variant["$ref"].is_string(), "{name}: {variant}");
            }
        }
    }
}

#[test]
fn every_body_has_an_example_that_the_check_accepts() {
    for document in documents() {
        let known = Known::of(&document);
        let document = serde_json::to_value(&document).unwrap();
        for (method, path, schema) in bodies(&document) {
            let schema = resolved(&document, &schema);
            let example = &schema["examples"][0];
            assert!(
                example.is_object(),
                "{method} {path} has no example: openapi/examples.json"
            );
            let problem = known.check_body(&method, &path, example).err();
            assert_eq!(problem, None, "{method} {path} {example}");
            let variants = schema["oneOf"].as_array();
            let required = schema["required"].as_array().into_iter().flatten();
            assert!(
                variants.is_some()
                    || required
                        .clone()
                        .all(|name| !example[name.as_str().unwrap()].is_null()),
                "{method} {path}: {example} lacks one of {:?}",
                required.collect::<Vec<_>>()
            );
        }
    }
}
