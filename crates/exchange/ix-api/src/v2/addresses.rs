//! MAC addresses.
//!
//! IX-API creates a MAC address first, and configs refer to it later. The model knows only addresses that are
//! registered at an end. A record therefore keeps the address until then, and afterwards lists the
//! registrations made from it.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::{Path, State as Shared};
use axum::http::StatusCode;
use millrace_ix_model::{AccountId, ConfigId, MacId, Operation, OperationKind, Timestamp};
use millrace_types::Mac;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::orders::{check_room, ix_api_properties, order, require};
use super::problem::IxProblem;
use super::query::{FilterParams, Filters};
use super::records::Record;
use super::view::{Owned, OwnedUpdate, invalid, nullable};
use crate::access::Principal;
use crate::app::App;
use crate::idempotency::RequestMark;
use crate::problem::Problem;
use crate::request::{Body, Conditions};

/// A new MAC address.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub(crate) struct MacRequest {
    #[serde(flatten)]
    owned: Owned,
    /// The address: six octets in hexadecimal notation with colons.
    address: String,
    /// The start of validity.
    #[serde(default)]
    #[schema(format = DateTime)]
    valid_not_before: Option<String>,
    /// The end of validity; null for no end.
    #[serde(default)]
    #[schema(format = DateTime)]
    valid_not_after: Option<String>,
}

/// A MAC address that was made over IX-API, with its registrations.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct MacRecord {
    #[serde(flatten)]
    mac: MacRequest,
    /// The registrations by end.
    #[serde(default)]
    links: BTreeMap<ConfigId, MacId>,
}

impl Record for MacRecord {
    const PREFIX: &'static str = "mac";
}

/// A MAC address.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct MacAddress {
    /// The identifier.
    id: String,
    #[serde(flatten)]
    mac: MacRequest,
}

pub(super) fn time(property: &str, text: Option<&str>) -> Result<Option<Timestamp>, Problem> {
    text.map(str::parse::<Timestamp>)
        .transpose()
        .map_err(|error| invalid(property, error.to_string()))
}

impl MacRequest {
    /// Returns the address and its times.
    fn check(&self) -> Result<(Mac, Option<Timestamp>, Option<Timestamp>), Problem> {
        let address: Mac = self
            .address
            .parse()
            .map_err(|error: millrace_types::MacParseError| invalid("address", error.to_string()))?;
        if address.is_multicast() || address == Mac::ZERO {
            return Err(invalid("address", format!("{address} is no address of a host")));
        }
        let from = time("valid_not_before", self.valid_not_before.as_deref())?;
        let until = time("valid_not_after", self.valid_not_after.as_deref())?;
        if let (Some(from), Some(until)) = (from, until)
            && until <= from
        {
            return Err(invalid(
                "valid_not_after",
                "expected an end of validity after the start",
            ));
        }
        Ok((address, from, until))
    }

    fn account(&self) -> Option<AccountId> {
        self.owned.consuming_account.parse().ok()
    }
}

/// A MAC address that is to be registered at an end.
#[derive(Debug, Clone)]
pub(crate) struct MacChange {
    record: String,
    address: Mac,
    from: Option<Timestamp>,
    until: Option<Timestamp>,
}

impl MacChange {
    /// Returns the operation that registers the address.
    pub(crate) fn add(&self, config: ConfigId) -> Operation {
        Operation::AddMac {
            config,
            address: self.address,
            valid_from: self.from,
            valid_until: self.until,
        }
    }
}

/// Returns the MAC addresses that a config names.
pub(crate) fn resolve(app: &App, principal: &Principal, ids: &[String]) -> Result<Vec<MacChange>, Problem> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let all: BTreeMap<String, MacRecord> = all_macs(app, principal).into_iter().collect();
    let find = |id: &String| {
        let found = all
            .get(id)
            .ok_or_else(|| invalid("macs", absent(id).detail.to_string()))?;
        let (address, from, until) = found.mac.check()?;
        Ok(MacChange {
            record: id.clone(),
            address,
            from,
            until,
        })
    };
    ids.iter().map(find).collect()
}

/// Adds the registrations that an order has made to the records of the addresses.
pub(crate) async fn link(
    app: &App,
    principal: &Principal,
    config: ConfigId,
    macs: &[MacChange],
) -> Result<(), Problem> {
    let registered = &principal.snapshot.exchange.macs;
    for mac in macs {
        let made = registered
            .iter()
            .find(|(_, found)| found.config == config && found.address == mac.address);
        if let (Some((id, _)), Some(mut record)) = (made, app.records.find::<MacRecord>(&mac.record)) {
            record.links.insert(config, *id);
            app.records.put(&mac.record, &record).await?;
        }
    }
    Ok(())
}

/// Returns all MAC addresses: records, and registrations without a record.
fn all_macs(app: &App, principal: &Principal) -> Vec<(String, MacRecord)> {
    let exchange = &principal.snapshot.exchange;
    let may_read = |account: AccountId| principal.may(OperationKind::ReadConnection, account);
    let mut all: Vec<(String, MacRecord)> = app
        .records
        .all::<MacRecord>()
        .into_iter()
        .filter(|(_, record)| record.mac.account().is_some_and(may_read))
        .collect();
    let linked: std::collections::BTreeSet<MacId> = all
        .iter()
        .flat_map(|(_, record)| record.links.values().copied())
        .collect();
    for (id, mac) in exchange.macs.iter().filter(|(id, _)| !linked.contains(id)) {
        let Some(config) = exchange.configs.get(&mac.config) else {
            continue;
        };
        if !principal.may_read(*id) || !principal.may_read(config.connection) {
            continue;
        }
        let record = MacRecord {
            mac: MacRequest {
                owned: ix_api_properties(app, mac.config).owned(config.account, None),
                address: mac.address.to_string(),
                valid_not_before: Some(mac.valid_from.to_string()),
                valid_not_after: mac.valid_until.map(|until| until.to_string()),
            },
            links: BTreeMap::from([(mac.config, *id)]),
        };
        all.push((id.to_string(), record));
    }
    all
}

fn find_mac(app: &App, principal: &Principal, id: &str) -> Result<MacRecord, Problem> {
    let found = all_macs(app, principal)
        .into_iter()
        .find(|(other, _)| other == id);
    found.map(|(_, record)| record).ok_or_else(|| absent(id))
}

fn absent(id: &str) -> Problem {
    Problem::absent(id.chars().take(40).collect::<String>())
}

/// Returns the identifiers of the MAC addresses of an end.
pub(crate) fn macs_of(app: &App, principal: &Principal, config: ConfigId) -> Vec<String> {
    let registered = &principal.snapshot.exchange.macs;
    let all = all_macs(app, principal).into_iter();
    let at_end = all.filter(|(_, record)| {
        record
            .links
            .get(&config)
            .is_some_and(|id| registered.contains_key(id))
    });
    at_end.map(|(id, _)| id).collect()
}

/// Returns the operations that remove the registrations of an address, at one end or at all ends.
pub(crate) fn removals(
    app: &App,
    principal: &Principal,
    id: &str,
    config: Option<ConfigId>,
) -> Vec<Operation> {
    let registered = &principal.snapshot.exchange.macs;
    let Ok(found) = find_mac(app, principal, id) else {
        return Vec::new();
    };
    let links = found.links.into_iter();
    let at_end =
        links.filter(|(at, mac)| registered.contains_key(mac) && config.is_none_or(|config| config == *at));
    at_end.map(|(_, mac)| Operation::RemoveMac { mac }).collect()
}

/// List MAC addresses
#[utoipa::path(get, path = "/api/v2/macs", tag = "macs", operation_id = "macs_list", params(FilterParams),
    responses((status = 200, body = Vec<MacAddress>), (status = "default", body = IxProblem, content_type = "application/problem+json")))]
pub(crate) async fn macs(
    Shared(app): Shared<App>,
    principal: Principal,
    filters: Filters,
) -> Result<Json<Vec<Value>>, Problem> {
    let all = all_macs(&app, &principal).into_iter();
    filters.list(
        all.map(|(id, record)| MacAddress { id, mac: record.mac })
            .collect(),
    )
}

/// Read a MAC address
#[utoipa::path(get, path = "/api/v2/macs/{id}", tag = "macs", operation_id = "macs_read", params(("id" = String, Path, description = "The address")),
    responses((status = 200, body = MacAddress), (status = "default", body = IxProblem, content_type = "application/problem+json")))]
pub(crate) async fn mac(
    Shared(app): Shared<App>,
    principal: Principal,
    Path(id): Path<String>,
) -> Result<Json<MacAddress>, Problem> {
    let record = find_mac(&app, &principal, &id)?;
    Ok(Json(MacAddress { id, mac: record.mac }))
}

/// Add a MAC address, to be named in a config
#[utoipa::path(post, path = "/api/v2/macs", tag = "macs", operation_id = "macs_create", request_body = MacRequest,
    responses((status = 201, body = MacAddress), (status = "default", body = IxProblem, content_type = "application/problem+json")))]
pub(crate) async fn create_mac(
    Shared(app): Shared<App>,
    principal: Principal,
    mark: RequestMark,
    Body(mut mac): Body<MacRequest>,
) -> Result<(StatusCode, Json<MacAddress>), Problem> {
    let account = mac.owned.check(&principal)?;
    let (address, ..) = mac.check()?;
    mac.address = address.to_string();
    require(&principal, OperationKind::AddMac, account)?;
    check_room(&app, |other: &MacRecord| other.mac.account() == Some(account))?;
    let detail = json!({ "address": mac.address });
    app.record(&principal.audit_name(), "create_mac", account, detail)
        .await?;
    let links = BTreeMap::new();
    let record = MacRecord {
        mac: mac.clone(),
        links,
    };
    let id = app.records.create(&record, &mark).await?;
    Ok((StatusCode::CREATED, Json(MacAddress { id, mac })))
}

/// Changes of a MAC address; the address itself cannot change.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct MacUpdate {
    #[serde(flatten)]
    owned: OwnedUpdate,
    /// The end of validity; null for no end.
    #[serde(default, deserialize_with = "nullable")]
    #[schema(value_type = Option<String>, format = DateTime)]
    valid_not_after: Option<Option<String>>,
}

async fn change_mac(
    app: &App,
    principal: &Principal,
    conditions: &Conditions,
    id: String,
    given: MacUpdate,
) -> Result<Json<MacAddress>, Problem> {
    let mut record = find_mac(app, principal, &id)?;
    let account = record.mac.account().ok_or_else(|| Problem::absent(&id))?;
    require(principal, OperationKind::AddMac, account)?;
    given.owned.clone().apply(&mut record.mac.owned)?;
    if given.owned.external_ref.is_some() {
        record.mac.owned.check(principal)?;
    }
    if let Some(until) = &given.valid_not_after {
        record.mac.valid_not_after.clone_from(until);
        let (_, _, until) = record.mac.check()?;
        let registered = &principal.snapshot.exchange.macs;
        let links = record.links.values().filter(|mac| registered.contains_key(mac));
        let operations = links.map(|mac| Operation::SetMacEnd {
            mac: *mac,
            valid_until: until,
        });
        order(app, principal, conditions, operations.collect(), &given).await?;
    }
    if app.records.find::<MacRecord>(&id).is_some() {
        app.record(&principal.audit_name(), "update_mac", &id, json!({}))
            .await?;
        app.records.put(&id, &record).await?;
    }
    Ok(Json(MacAddress { id, mac: record.mac }))
}

/// Change the end of validity of a MAC address
#[utoipa::path(patch, path = "/api/v2/macs/{id}", tag = "macs", operation_id = "macs_partial_update", request_body = MacUpdate, params(("id" = String, Path, description = "The address")),
    responses((status = 200, body = MacAddress), (status = "default", body = IxProblem, content_type = "application/problem+json")))]
pub(crate) async fn update_mac(
    Shared(app): Shared<App>,
    principal: Principal,
    conditions: Conditions,
    Path(id): Path<String>,
    Body(given): Body<MacUpdate>,
) -> Result<Json<MacAddress>, Problem> {
    change_mac(&app, &principal, &conditions, id, given).await
}

/// Change the end of validity of a MAC address; absent properties stay
#[utoipa::path(put, path = "/api/v2/macs/{id}", tag = "macs", operation_id = "macs_update", request_body = MacUpdate, params(("id" = String, Path, description = "The address")),
    responses((status = 200, body = MacAddress), (status = "default", body = IxProblem, content_type = "application/problem+json")))]
pub(crate) async fn replace_mac(
    Shared(app): Shared<App>,
    principal: Principal,
    conditions: Conditions,
    Path(id): Path<String>,
    Body(given): Body<MacUpdate>,
) -> Result<Json<MacAddress>, Problem> {
    change_mac(&app, &principal, &conditions, id, given).await
}

/// Remove a MAC address from all ends
#[utoipa::path(delete, path = "/api/v2/macs/{id}", tag = "macs", operation_id = "macs_destroy", params(("id" = String, Path, description = "The address")),
    responses((status = 200, body = MacAddress), (status = "default", body = IxProblem, content_type = "application/problem+json")))]
pub(crate) async fn delete_mac(
    Shared(app): Shared<App>,
    principal: Principal,
    conditions: Conditions,
    Path(id): Path<String>,
) -> Result<Json<MacAddress>, Problem> {
    let record = find_mac(&app, &principal, &id)?;
    let account = record.mac.account().ok_or_else(|| Problem::absent(&id))?;
    require(&principal, OperationKind::RemoveMac, account)?;
    let operations = removals(&app, &principal, &id, None);
    order(&app, &principal, &conditions, operations, &()).await?;
    if app.records.find::<MacRecord>(&id).is_some() {
        app.record(&principal.audit_name(), "delete_mac", &id, json!({}))
            .await?;
        app.records.delete(&id).await?;
    }
    Ok(Json(MacAddress { id, mac: record.mac }))
}
