//! OpenAPI schema of the model, generated from the same definition as the decoder, so that the document describes
//! exactly the accepted input.

use utoipa::openapi::schema::{
    AdditionalProperties, ArrayBuilder, KnownFormat, ObjectBuilder, OneOfBuilder, Schema, SchemaFormat, Type,
};
use utoipa::openapi::{Ref, RefOr};

use crate::schema::{Key, Section, Shape};

/// Returns the name of a section's schema. A bridge, a port or a VRF also has a state, which an API describes under the bare
/// name.
pub(crate) fn schema_name(section: &Section) -> String {
    match section.name {
        root @ "Config" => root.to_owned(),
        name => format!("{name}Config"),
    }
}

/// Returns the schema of a section; other sections are referred to by name.
pub(crate) fn schema(section: &Section) -> RefOr<Schema> {
    let mut object = ObjectBuilder::new()
        .schema_type(Type::Object)
        .description(Some(prose(section.doc)))
        .additional_properties(Some(AdditionalProperties::FreeForm(false)));
    for key in &section.keys {
        object = object.property(key.name, key_schema(key));
        if key.required {
            object = object.required(key.name);
        }
    }
    RefOr::T(Schema::Object(object.build()))
}

/// Collects the schemas of the sections that `section` refers to, at any depth.
pub(crate) fn nested(section: &Section, schemas: &mut Vec<(String, RefOr<Schema>)>) {
    for key in &section.keys {
        let mut shape = &key.shape;
        while let Shape::List(item) = shape {
            shape = item;
        }
        if let Shape::Table(inner) = shape {
            let inner = inner();
            let name = schema_name(&inner);
            if !schemas.iter().any(|(other, _)| *other == name) {
                schemas.push((name, schema(&inner)));
                nested(&inner, schemas);
            }
        }
    }
}

fn prose(lines: &[&str]) -> String {
    lines.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ")
}

fn key_schema(key: &Key) -> RefOr<Schema> {
    let description = prose(key.doc);
    match &key.shape {
        Shape::List(item) => {
            let array = ArrayBuilder::new()
                .items(value_schema(item))
                .description(Some(description));
            RefOr::T(Schema::Array(array.default(key.default.clone()).build()))
        }
        // OpenAPI 3.1 allows a description beside a reference.
        Shape::Table(section) => RefOr::Ref(
            Ref::builder()
                .ref_location_from_schema_name(schema_name(&section()))
                .description(Some(description))
                .build(),
        ),
        leaf => {
            let object = leaf_schema(leaf)
                .description(Some(description))
                .default(key.default.clone());
            RefOr::T(Schema::Object(object.build()))
        }
    }
}

/// Returns the schema of a list item.
fn value_schema(shape: &Shape) -> RefOr<Schema> {
    match shape {
        Shape::List(item) => RefOr::T(Schema::Array(
            ArrayBuilder::new().items(value_schema(item)).build(),
        )),
        Shape::Table(section) => {
            let section = section();
            let table = RefOr::Ref(Ref::from_schema_name(schema_name(&section)));
            match (section.shorthand, section.keys.first()) {
                (Some(_), Some(key)) => RefOr::T(Schema::OneOf(
                    OneOfBuilder::new()
                        .item(table)
                        .item(leaf_schema(&key.shape).build())
                        .build(),
                )),
                _ => table,
            }
        }
        leaf => RefOr::T(Schema::Object(leaf_schema(leaf).build())),
    }
}

fn leaf_schema(shape: &Shape) -> ObjectBuilder {
    let object = ObjectBuilder::new();
    match shape {
        Shape::Bool => object.schema_type(Type::Boolean),
        Shape::Integer { min, max, .. } => object
            .schema_type(Type::Integer)
            .format(Some(SchemaFormat::KnownFormat(KnownFormat::Int64)))
            .minimum(Some(*min))
            .maximum(Some(*max)),
        Shape::Text { example, .. } => object.schema_type(Type::String).examples([*example]),
        Shape::Choice(choices) => object
            .schema_type(Type::String)
            .enum_values(Some(choices.iter().map(|choice| choice.word))),
        // Not reached: the callers handle lists and tables.
        Shape::List(_) | Shape::Table(_) => object,
    }
}

#[cfg(test)]
mod tests {
    use utoipa::{PartialSchema as _, ToSchema as _};

    use crate::Config;

    #[test]
    fn every_reference_of_the_schema_leads_to_a_schema() {
        let mut schemas = vec![("Config".to_owned(), Config::schema())];
        Config::schemas(&mut schemas);
        let names: Vec<&str> = schemas.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(
            names,
            [
                "Config",
                "SystemConfig",
                "ApiConfig",
                "OvsdbConfig",
                "TlsConfig",
                "BridgeConfig",
                "TableConfig",
                "ControllerConfig",
                "ListenerConfig",
                "DescriptionConfig",
                "SflowConfig",
                "IpfixConfig",
                "RstpConfig",
                "LldpConfig",
                "PortConfig",
                "Dot1qTunnelConfig",
                "QueueConfig",
                "PolicerConfig",
                "ColorActionConfig",
                "PortOffloadConfig",
                "BfdConfig",
                "CcmConfig",
                "FlapDampingConfig",
                "PortRstpConfig",
                "LagConfig",
                "LagMemberConfig",
                "MirrorConfig",
                "ChainConfig",
                "HopConfig",
                "WanConfig",
                "WanPathConfig",
                "WanClassConfig",
                "VrfConfig",
                "InterfaceConfig",
                "AclConfig"
            ]
        );
        let text = serde_json::to_string(&schemas).unwrap();
        for reference in text.split("#/components/schemas/").skip(1) {
            let name = reference.split('"').next().unwrap();
            assert!(names.contains(&name), "{name}");
        }
    }

    #[test]
    fn the_schema_tells_ranges_defaults_and_what_is_required() {
        let mut schemas = Vec::new();
        Config::schemas(&mut schemas);
        let port = schemas.iter().find(|(name, _)| name == "PortConfig").unwrap();
        let port = serde_json::to_value(&port.1).unwrap();
        assert_eq!(port["required"], serde_json::json!(["name", "number", "device"]));
        assert_eq!(port["additionalProperties"], false);
        let mtu = &port["properties"]["mtu"];
        assert_eq!(
            (&mtu["minimum"], &mtu["maximum"], &mtu["default"]),
            (&68.into(), &9578.into(), &1500.into())
        );
    }
}
