//! Filters of collections. Two kinds of parameters are ignored: unknown ones, and properties that no object
//! of the collection has. An invalid value is refused (IX-API 2.1.0, "Filters").

use axum::Json;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use serde::Serialize;
use serde_json::Value;
use utoipa::IntoParams;

use crate::app::App;
use crate::problem::{Problem, ProblemKind};
use crate::v2::view::STATES;

/// The parameters that compare a property with a text.
const PROPERTIES: [&str; 32] = [
    "address",
    "asn",
    "billing_account",
    "capacity",
    "connection",
    "consuming_account",
    "contact",
    "device",
    "external_ref",
    "facility",
    "fqdn",
    "handover_metro_area",
    "handover_metro_area_network",
    "inner_vlan",
    "managing_account",
    "media_type",
    "metro_area",
    "metro_area_network",
    "mode",
    "name",
    "network_feature",
    "network_service",
    "network_service_config",
    "outer_vlan",
    "pop",
    "product_offering",
    "resource_type",
    "role",
    "service_metro_area",
    "service_metro_area_network",
    "type",
    "version",
];
/// The parameters whose values are whole numbers.
const NUMBERS: [&str; 5] = ["asn", "capacity", "inner_vlan", "outer_vlan", "version"];
/// The parameters that compare a property of `vlan_config`.
const OF_VLAN: [&str; 2] = ["inner_vlan", "outer_vlan"];

/// The parameters of a collection.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[allow(
    dead_code,
    reason = "the type exists for its description; `Filters` reads the query"
)]
pub(crate) struct FilterParams {
    /// Identifiers, separated by commas.
    id: Option<String>,
    /// The state.
    state: Option<crate::v2::view::State>,
    /// A state that the objects do not have.
    #[param(rename = "state__is_not")]
    state_is_not: Option<crate::v2::view::State>,
    /// The name.
    name: Option<String>,
    /// The reference of the orderer.
    external_ref: Option<String>,
    /// The account that manages the object.
    managing_account: Option<String>,
    /// The account that uses the object.
    consuming_account: Option<String>,
    /// The type.
    r#type: Option<String>,
    /// The largest number of objects.
    #[param(minimum = 1, maximum = 10_000)]
    page_limit: Option<u32>,
    /// The number of objects to skip.
    #[param(minimum = 0)]
    page_offset: Option<u32>,
    /// The VID of the inner tag, for configs.
    inner_vlan: Option<u16>,
    /// The VID of the outer tag, for configs.
    outer_vlan: Option<u16>,
    /// True for accounts with a recipient of invoices, for accounts.
    billable: Option<bool>,
}

/// The parameters in the query of a request.
#[derive(Debug, Clone, Default)]
pub(crate) struct Filters(Vec<(String, String)>);

impl FromRequestParts<App> for Filters {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<Filters, Problem> {
        match axum::extract::Query::<Vec<(String, String)>>::try_from_uri(&parts.uri) {
            Ok(axum::extract::Query(pairs)) => Ok(Filters(pairs)),
            Err(rejection) => Err(Problem::new(ProblemKind::BadRequest, rejection.body_text())),
        }
    }
}

fn wrong(name: &str, value: &str, expected: &str) -> Problem {
    let value: String = value.chars().take(40).collect();
    let detail = format!("{name}={value}: expected {expected}");
    Problem::new(ProblemKind::BadRequest, detail).with_error(format!("/{name}"), "invalid")
}

impl Filters {
    /// Returns the value of a parameter.
    pub(crate) fn value(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().rfind(|(other, _)| other == name);
        found.map(|(_, value)| value.as_str())
    }

    /// Returns the value of a parameter that is a whole number.
    pub(crate) fn number(&self, name: &str) -> Result<Option<u64>, Problem> {
        let Some(text) = self.value(name) else {
            return Ok(None);
        };
        text.parse()
            .map(Some)
            .map_err(|_| wrong(name, text, "a whole number from 0 on"))
    }

    /// Returns the value of a parameter that is true or false.
    pub(crate) fn flag(&self, name: &str) -> Result<Option<bool>, Problem> {
        match self.value(name) {
            None => Ok(None),
            Some("true" | "1") => Ok(Some(true)),
            Some("false" | "0") => Ok(Some(false)),
            Some(text) => Err(wrong(name, text, "true or false")),
        }
    }

    /// Returns an answer with the objects that match.
    pub(crate) fn list<T: Serialize>(&self, items: Vec<T>) -> Result<Json<Vec<Value>>, Problem> {
        let mut items: Vec<Value> = items
            .into_iter()
            .map(|item| serde_json::to_value(item).unwrap_or(Value::Null))
            .collect();
        for (name, wanted) in &self.0 {
            match name.as_str() {
                "id" => {
                    let ids: Vec<&str> = wanted.split(',').map(str::trim).collect();
                    items.retain(|item| item["id"].as_str().is_some_and(|id| ids.contains(&id)));
                }
                "state" | "state__is_not" => {
                    if !STATES.contains(&wanted.as_str()) {
                        return Err(wrong(name, wanted, "one of the states of IX-API"));
                    }
                    let keep = name == "state";
                    items.retain(|item| item.get("state").is_none_or(|state| (state == wanted) == keep));
                }
                name if PROPERTIES.contains(&name) => {
                    if NUMBERS.contains(&name) && wanted.parse::<u64>().is_err() {
                        return Err(wrong(name, wanted, "a whole number from 0 on"));
                    }
                    let whole = if OF_VLAN.contains(&name) {
                        "vlan_config"
                    } else {
                        name
                    };
                    if items.iter().any(|item| item.get(whole).is_some()) {
                        items.retain(|item| matches(property(item, name), wanted));
                    }
                }
                "page_token" => {
                    return Err(wrong(
                        name,
                        wanted,
                        "no token: the pages of this exchange have page_limit and page_offset",
                    ));
                }
                _ => {}
            }
        }
        let offset = usize::try_from(self.number("page_offset")?.unwrap_or(0)).unwrap_or(usize::MAX);
        let limit = match self.number("page_limit")? {
            Some(0) => return Err(wrong("page_limit", "0", "1 to 10000")),
            Some(limit) if limit > 10_000 => {
                return Err(wrong("page_limit", &limit.to_string(), "1 to 10000"));
            }
            Some(limit) => usize::try_from(limit).unwrap_or(usize::MAX),
            None => usize::MAX,
        };
        Ok(Json(items.into_iter().skip(offset).take(limit).collect()))
    }
}

/// Returns the property of an object that a parameter compares.
fn property<'a>(item: &'a Value, name: &str) -> &'a Value {
    if OF_VLAN.contains(&name) {
        &item["vlan_config"][name]
    } else {
        &item[name]
    }
}

/// Returns true if a property has a value, or is a list that contains it.
fn matches(property: &Value, wanted: &str) -> bool {
    match property {
        Value::String(text) => text == wanted,
        Value::Array(list) => list.iter().any(|item| matches(item, wanted)),
        Value::Number(number) => number.to_string() == wanted,
        Value::Bool(flag) => flag.to_string() == wanted,
        Value::Null | Value::Object(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn ids(query: &[(&str, &str)]) -> Result<Vec<String>, Problem> {
        let items = vec![
            json!({ "id": "a", "state": "production", "asns": [1, 2], "name": "x" }),
            json!({ "id": "b", "state": "error", "asn": 7, "name": "y" }),
            json!({ "id": "c", "state": "production", "name": "y" }),
            json!({ "id": "d", "state": "error", "vlan_config": { "vlan_type": "dot1q", "vlan": 7 } }),
            json!({ "id": "e", "state": "error", "vlan_config": { "vlan_type": "qinq", "outer_vlan": 9, "inner_vlan": 7 } }),
        ];
        let pairs = query
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let Json(found) = Filters(pairs.collect()).list(items)?;
        Ok(found
            .iter()
            .map(|item| item["id"].as_str().unwrap().to_owned())
            .collect())
    }

    #[test]
    fn filters_match_properties_and_unknown_ones_are_ignored() {
        assert_eq!(ids(&[("id", "a,c")]).unwrap(), ["a", "c"]);
        assert_eq!(ids(&[("state", "production"), ("name", "y")]).unwrap(), ["c"]);
        assert_eq!(ids(&[("state__is_not", "production")]).unwrap(), ["b", "d", "e"]);
        assert_eq!(ids(&[("inner_vlan", "7")]).unwrap(), ["e"]);
        assert_eq!(ids(&[("outer_vlan", "9"), ("inner_vlan", "7")]).unwrap(), ["e"]);
        assert_eq!(ids(&[("outer_vlan", "7")]).unwrap(), Vec::<String>::new());
        assert_eq!(ids(&[("asn", "7")]).unwrap(), ["b"]);
        assert_eq!(ids(&[("colour", "red"), ("pop", "st-1")]).unwrap().len(), 5);
        assert_eq!(ids(&[("page_offset", "1"), ("page_limit", "1")]).unwrap(), ["b"]);
    }

    #[test]
    fn values_that_cannot_be_right_are_refused() {
        for (name, value) in [
            ("state", "red"),
            ("asn", "AS7"),
            ("outer_vlan", "x"),
            ("page_token", "abc"),
            ("page_limit", "0"),
            ("page_limit", "x"),
            ("page_offset", "-1"),
        ] {
            let problem = ids(&[(name, value)]).unwrap_err();
            assert_eq!(problem.status, 400, "{name}={value}");
            assert_eq!(problem.errors[0].pointer, format!("/{name}"));
        }
    }
}
