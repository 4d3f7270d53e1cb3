//! Changes to a generated OpenAPI document that clients and generators of clients need.
//!
//! ```text
//!  utoipa --> merge: compositions of objects (allOf) become one object each
//!         --> name_variants: variants of a tagged union become named schemas, with a discriminator
//!         --> close: objects of request bodies take no further properties
//!         --> exemplify: request bodies have examples
//! ```
//! Composed objects are merged because `additionalProperties: false` in one part of a composition would refuse the
//! properties of its other parts.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use utoipa::openapi::path::Operation;
use utoipa::openapi::schema::{AdditionalProperties, AllOf, Discriminator, Object, OneOf, Schema};
use utoipa::openapi::{OpenApi, PathItem, Ref, RefOr};

const SCHEMAS: &str = "#/components/schemas/";
/// Examples of request bodies, by the name of their schema.
const EXAMPLES: &str = include_str!("openapi/examples.json");

type Schemas = BTreeMap<String, RefOr<Schema>>;

/// Returns the operations of a path.
pub(crate) fn operations(item: &mut PathItem) -> impl Iterator<Item = &mut Operation> {
    let methods = [
        &mut item.get,
        &mut item.put,
        &mut item.post,
        &mut item.patch,
        &mut item.delete,
    ];
    methods.into_iter().filter_map(Option::as_mut)
}

/// Prepares a document for clients.
pub(crate) fn finish(document: &mut OpenApi) {
    let Some(components) = document.components.as_mut() else {
        return;
    };
    merge(&mut components.schemas);
    name_variants(&mut components.schemas);
    let mut bodies = BTreeSet::new();
    for operation in document.paths.paths.values_mut().flat_map(operations) {
        let body = operation.request_body.iter_mut();
        for content in body.flat_map(|body| body.content.values_mut()) {
            if let Some(RefOr::Ref(reference)) = &content.schema {
                bodies.extend(name_of(reference).map(str::to_owned));
            }
        }
    }
    close(&mut components.schemas, &bodies);
    let examples: BTreeMap<String, Value> = serde_json::from_str(EXAMPLES).unwrap_or_default();
    for (name, example) in examples.into_iter().filter(|(name, _)| bodies.contains(name)) {
        match components.schemas.get_mut(&name) {
            Some(RefOr::T(Schema::Object(object))) => object.examples = vec![example],
            Some(RefOr::T(Schema::OneOf(one_of))) => one_of.examples = vec![example],
            _ => {}
        }
    }
}

/// Returns the name of the schema that a reference points to.
fn name_of(reference: &Ref) -> Option<&str> {
    reference.ref_location.strip_prefix(SCHEMAS)
}

/// Replaces compositions of objects by one object each.
fn merge(schemas: &mut Schemas) {
    let before = schemas.clone();
    for schema in schemas.values_mut() {
        let RefOr::T(schema) = schema else { continue };
        if let Schema::OneOf(one_of) = schema {
            for item in &mut one_of.items {
                if let RefOr::T(Schema::AllOf(all)) = item
                    && let Some(object) = merged(&before, all)
                {
                    *item = RefOr::T(Schema::Object(object));
                }
            }
        }
        if let Schema::AllOf(all) = schema
            && let Some(object) = merged(&before, all)
        {
            *schema = Schema::Object(object);
        }
    }
}

/// Returns the object that has the properties of all parts; `None` if a part is no object.
fn merged(schemas: &Schemas, all: &AllOf) -> Option<Object> {
    let mut sum = Object::new();
    for part in &all.items {
        let object = object_of(schemas, part)?;
        sum.properties.extend(object.properties);
        let new = object.required.into_iter();
        let new: Vec<String> = new.filter(|name| !sum.required.contains(name)).collect();
        sum.required.extend(new);
        sum.description = sum.description.or(object.description);
    }
    sum.description = all.description.clone().or(sum.description);
    Some(sum)
}

fn object_of(schemas: &Schemas, schema: &RefOr<Schema>) -> Option<Object> {
    match schema {
        RefOr::Ref(reference) => object_of(schemas, schemas.get(name_of(reference)?)?),
        RefOr::T(Schema::Object(object)) => Some(object.clone()),
        RefOr::T(Schema::AllOf(all)) => merged(schemas, all),
        RefOr::T(_) => None,
    }
}

/// Gives the variants of tagged unions names of their own: `Vlan` with `"type": "dot1q"` becomes `VlanDot1q`.
fn name_variants(schemas: &mut Schemas) {
    let mut named = Schemas::new();
    for (name, schema) in schemas.iter_mut() {
        let RefOr::T(Schema::OneOf(one_of)) = schema else {
            continue;
        };
        let tags: Option<Vec<(String, String)>> = one_of.items.iter().map(tag_of).collect();
        if let Some(tags) = tags.filter(|tags| tags.windows(2).all(|pair| pair[0].0 == pair[1].0)) {
            use_names(name, one_of, &tags, &mut named);
        }
    }
    schemas.extend(named);
}

/// Moves the variants of a union to `named`. `tags` has the property that tells variants apart, and its value in each.
fn use_names(name: &str, one_of: &mut OneOf, tags: &[(String, String)], named: &mut Schemas) {
    let Some((property, _)) = tags.first() else {
        return;
    };
    let mut discriminator = Discriminator::new(property.clone());
    for (item, (_, value)) in one_of.items.iter_mut().zip(tags) {
        let variant = format!("{name}{}", pascal_case(value));
        let reference = Ref::from_schema_name(&variant);
        discriminator
            .mapping
            .insert(value.clone(), reference.ref_location.clone());
        named.insert(variant, core::mem::replace(item, RefOr::Ref(reference)));
    }
    one_of.discriminator = Some(discriminator);
}

/// Returns the property of a variant that has one fixed value, and that value.
fn tag_of(variant: &RefOr<Schema>) -> Option<(String, String)> {
    let RefOr::T(Schema::Object(object)) = variant else {
        return None;
    };
    object.properties.iter().find_map(|(name, schema)| match schema {
        RefOr::T(Schema::Object(Object {
            enum_values: Some(values),
            ..
        })) => match values.as_slice() {
            [Value::String(only)] => Some((name.clone(), only.clone())),
            _ => None,
        },
        _ => None,
    })
}

fn pascal_case(word: &str) -> String {
    let parts = word.split(['_', '-']);
    let capitalized = parts.map(|part| {
        let mut letters = part.chars();
        letters
            .next()
            .into_iter()
            .flat_map(char::to_uppercase)
            .chain(letters)
            .collect::<String>()
    });
    capitalized.collect()
}

/// Forbids further properties in the objects that these schemas consist of.
fn close(schemas: &mut Schemas, names: &BTreeSet<String>) {
    let mut open: Vec<String> = names.iter().cloned().collect();
    let mut closed = BTreeSet::new();
    while let Some(name) = open.pop() {
        if closed.insert(name.clone())
            && let Some(schema) = schemas.get_mut(&name)
        {
            close_schema(schema, &mut open);
        }
    }
}

fn close_schema(schema: &mut RefOr<Schema>, open: &mut Vec<String>) {
    let schema = match schema {
        RefOr::Ref(reference) => return open.extend(name_of(reference).map(str::to_owned)),
        RefOr::T(schema) => schema,
    };
    match schema {
        Schema::Object(object) => {
            for property in object.properties.values_mut() {
                close_schema(property, open);
            }
            if !object.properties.is_empty() {
                object.additional_properties = Some(Box::new(AdditionalProperties::FreeForm(false)));
            }
        }
        Schema::OneOf(one_of) => one_of.items.iter_mut().for_each(|item| close_schema(item, open)),
        Schema::AnyOf(any_of) => any_of.items.iter_mut().for_each(|item| close_schema(item, open)),
        Schema::AllOf(all_of) => all_of.items.iter_mut().for_each(|item| close_schema(item, open)),
        Schema::Array(array) => {
            if let utoipa::openapi::schema::ArrayItems::RefOrSchema(items) = &mut array.items {
                close_schema(items, open);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests;
