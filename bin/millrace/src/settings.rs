//! `KEY=VALUE` arguments: settings of an item of the configuration, read by the schema of its section.

use anyhow::{Result, anyhow, bail};
use millrace_model::schema::{Section, Shape};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// Returns an item of the configuration, of this section, with the given settings.
///
/// # Errors
/// The settings that are not known or have a wrong value.
pub(crate) fn assigned<T: Serialize + DeserializeOwned>(
    item: &T,
    section: &Section,
    settings: &[String],
) -> Result<T> {
    let Value::Object(mut table) = serde_json::to_value(item)? else {
        bail!("the item is not a table");
    };
    assign(&mut table, section, settings)?;
    serde_json::from_value(Value::Object(table)).map_err(|errors| anyhow!("the change is refused:\n{errors}"))
}

/// Writes the settings to `item`, a table of the section in its JSON form. Only the JSON types of the values are
/// determined here.
fn assign(item: &mut Map<String, Value>, section: &Section, settings: &[String]) -> Result<()> {
    for setting in settings {
        let Some((path, text)) = setting.split_once('=').filter(|(path, _)| !path.is_empty()) else {
            bail!("`{setting}`: expected KEY=VALUE");
        };
        assign_path(item, section, path, text)?;
    }
    Ok(())
}

fn assign_path(item: &mut Map<String, Value>, section: &Section, path: &str, text: &str) -> Result<()> {
    let (key, rest) = match path.split_once('.') {
        Some((key, rest)) => (key, Some(rest)),
        None => (path, None),
    };
    let shape = section
        .keys
        .iter()
        .find(|known| known.name == key)
        .map(|known| &known.shape);
    let Some(rest) = rest else {
        item.insert(key.to_owned(), value(shape, text)?);
        return Ok(());
    };
    let Some(Shape::Table(inner)) = shape else {
        bail!("`{path}`: `{key}` is not a table with keys of its own");
    };
    let table = item.entry(key).or_insert(Value::Null);
    if !table.is_object() {
        *table = Value::Object(Map::new());
    }
    match table {
        Value::Object(table) => assign_path(table, &inner(), rest, text),
        _ => Ok(()),
    }
}

/// Returns a value in its JSON form. A text that does not fit the shape stays a text, which the model rejects with the
/// expected form.
fn value(shape: Option<&Shape>, text: &str) -> Result<Value> {
    let is_json = text.starts_with(['[', '{']) && matches!(shape, Some(Shape::List(_) | Shape::Table(_)));
    Ok(match shape {
        _ if text.is_empty() => Value::Null,
        _ if is_json => {
            serde_json::from_str(text).map_err(|error| anyhow!("`{text}`: expected JSON: {error}"))?
        }
        Some(Shape::Bool) => text.parse().map_or_else(|_| text.into(), Value::Bool),
        Some(Shape::Integer { .. }) => text.parse::<u64>().map_or_else(|_| text.into(), Value::from),
        Some(Shape::List(item)) => {
            let items = text.split(',').map(|text| value(Some(item), text.trim()));
            Value::Array(items.collect::<Result<_>>()?)
        }
        // A table with a short form is written as the value of its first key.
        Some(Shape::Table(section)) => value(section().keys.first().map(|key| &key.shape), text)?,
        Some(Shape::Text { .. } | Shape::Choice(_)) | None => text.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use millrace_model::{Bridge, Port};
    use serde_json::json;

    fn json_of(section: &Section, settings: &[&str]) -> Result<Value> {
        let mut item = Map::new();
        let settings: Vec<String> = settings.iter().map(|text| (*text).to_owned()).collect();
        assign(&mut item, section, &settings)?;
        Ok(Value::Object(item))
    }

    #[test]
    fn a_setting_has_the_type_of_its_key() {
        let found = json_of(
            &Port::section(),
            &[
                "mtu=9000",
                "down=true",
                "trunks=10,20",
                "device=kernel:eth1",
                "vlan=",
            ],
        );
        let expected = json!({
            "mtu": 9000, "down": true, "trunks": [10, 20], "device": "kernel:eth1", "vlan": null
        });
        assert_eq!(found.unwrap(), expected);
        let found = json_of(
            &Bridge::section(),
            &[
                "controllers=tcp:192.0.2.1,tls:192.0.2.2",
                "description.datapath=Rack 4",
                r#"table=[{"number": 1}]"#,
            ],
        );
        let expected = json!({
            "controllers": ["tcp:192.0.2.1", "tls:192.0.2.2"],
            "description": { "datapath": "Rack 4" },
            "table": [{ "number": 1 }],
        });
        assert_eq!(found.unwrap(), expected);
    }

    #[test]
    fn a_text_that_is_no_setting_is_refused() {
        for (text, expected) in [
            ("mtu", "expected KEY=VALUE"),
            ("=5", "expected KEY=VALUE"),
            ("mtu.x=5", "not a table"),
            ("queue=[{", "expected JSON"),
        ] {
            let error = json_of(&Port::section(), &[text]).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
