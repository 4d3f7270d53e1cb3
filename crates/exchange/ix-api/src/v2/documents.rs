//! Information about this implementation: health, supported operations, extensions, events, and the OpenAPI
//! document.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State as Shared;
use axum::http::header;
use axum::response::IntoResponse;
use serde::Serialize;
use utoipa::ToSchema;

use super::problem::IxProblem;
use super::query::Filters;
use crate::access::Principal;
use crate::app::App;
use crate::problem::Problem;

/// The types of services and of their configs.
const SERVICES: [&str; 4] = ["exchange_lan", "p2p_vc", "p2mp_vc", "mp2mp_vc"];

/// The state of the implementation (draft-inadarei-api-health-check).
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Health {
    /// `pass`.
    status: &'static str,
    /// The version of IX-API as clients read it: `2`.
    version: &'static str,
    /// The version of this program.
    release_id: &'static str,
    /// The name of this program.
    service_id: &'static str,
    /// The name of the exchange.
    description: String,
    /// Remarks: none.
    notes: Vec<String>,
    /// Parts that were checked: none.
    checks: BTreeMap<String, BTreeMap<String, String>>,
}

/// Probe the implementation
#[utoipa::path(get, path = "/api/v2/health", tag = "health", operation_id = "health_read", security(()),
    responses((status = 200, body = Health), (status = "default", body = IxProblem, content_type = "application/problem+json")))]
pub(crate) async fn health(Shared(app): Shared<App>) -> Json<Health> {
    Json(Health {
        status: "pass",
        version: "2",
        release_id: env!("CARGO_PKG_VERSION"),
        service_id: "millrace-ix",
        description: app.settings.name.clone(),
        notes: Vec::new(),
        checks: BTreeMap::new(),
    })
}

/// The parts of IX-API that this exchange has.
#[derive(Serialize, ToSchema)]
pub(crate) struct Implementation {
    /// The version of IX-API.
    schema_version: &'static str,
    /// The version of this program.
    service_version: &'static str,
    /// The types of network services.
    supported_network_service_types: Vec<&'static str>,
    /// The types of network service configs.
    supported_network_service_config_types: Vec<&'static str>,
    /// The types of network features.
    supported_network_feature_types: Vec<&'static str>,
    /// The types of network feature configs.
    supported_network_feature_config_types: Vec<&'static str>,
    /// The operations.
    supported_operations: Vec<String>,
}

/// Read which parts of IX-API the exchange has
#[utoipa::path(get, path = "/api/v2/implementation", tag = "implementation", operation_id = "implementation_read", security(()),
    responses((status = 200, body = Implementation), (status = "default", body = IxProblem, content_type = "application/problem+json")))]
pub(crate) async fn implementation(Shared(app): Shared<App>) -> Json<Implementation> {
    let items = app.ix_document.paths.paths.values();
    let operations = items.flat_map(|item| [&item.get, &item.post, &item.put, &item.patch, &item.delete]);
    let names = operations
        .flatten()
        .filter_map(|operation| operation.operation_id.clone());
    Json(Implementation {
        schema_version: "2.1.0",
        service_version: env!("CARGO_PKG_VERSION"),
        supported_network_service_types: SERVICES.to_vec(),
        supported_network_service_config_types: SERVICES.to_vec(),
        supported_network_feature_types: vec!["route_server"],
        supported_network_feature_config_types: vec!["route_server"],
        supported_operations: names.collect(),
    })
}

/// An extension of IX-API.
#[derive(Serialize, ToSchema)]
pub(crate) struct Extension {
    /// The name.
    name: &'static str,
    /// The publisher.
    publisher: &'static str,
    /// The documentation.
    documentation_url: &'static str,
    /// The path of the extension's resources.
    base_url: &'static str,
    /// The address of the OpenAPI document.
    spec_url: &'static str,
}

/// List extensions: the native API of the exchange
#[utoipa::path(get, path = "/api/v2/extensions", tag = "implementation", operation_id = "extensions_list", security(()),
    responses((status = 200, body = Vec<Extension>), (status = "default", body = IxProblem, content_type = "application/problem+json")))]
pub(crate) async fn extensions() -> Json<Vec<Extension>> {
    let extension = |name, base_url| Extension {
        name,
        publisher: "Millrace",
        documentation_url: "https://github.com/millrace/millrace/blob/main/docs/exchange-api.md",
        base_url,
        spec_url: "/api/v1/openapi.json",
    };
    Json(vec![
        extension("service keys", "/api/v1/service-keys"),
        extension("filters", "/api/v1/filters"),
        extension("locks", "/api/v1/services"),
        extension("webhooks", "/api/v1/webhooks"),
    ])
}

/// Something that happened to objects that the account may know of.
#[derive(Serialize, ToSchema)]
pub(crate) struct Event {
    /// The serial number; it begins again when the engine starts.
    serial: u64,
    /// The account of the reader.
    account: Option<String>,
    /// The kind: `object`, `change`, `switch` or `notice`.
    #[serde(rename = "type")]
    kind: &'static str,
    /// The objects.
    payload: EventPayload,
    /// The time.
    #[schema(format = DateTime)]
    timestamp: String,
}

/// The objects of an event.
#[derive(Serialize, ToSchema)]
pub(crate) struct EventPayload {
    /// The objects that were created, changed or deleted.
    objects: Vec<String>,
    /// The change in the journal.
    change: Option<String>,
}

/// List the newest events, oldest first. `after` takes the serial number of the last one that the client has seen.
#[utoipa::path(get, path = "/api/v2/events", tag = "events", operation_id = "events_list",
    params(("after" = Option<u64>, Query, description = "The serial number of the last event that the client has seen")),
    responses((status = 200, body = Vec<Event>), (status = "default", body = IxProblem, content_type = "application/problem+json")))]
pub(crate) async fn events(
    Shared(app): Shared<App>,
    principal: Principal,
    filters: Filters,
) -> Result<Json<Vec<Event>>, Problem> {
    let after = filters.number("after")?.unwrap_or(0);
    // Events that are no longer kept are left out: the client reads all objects after a gap in the serial numbers.
    let found = app.events.after(after).or_else(|| app.events.kept());
    let account = principal.actor.account.map(|account| account.to_string());
    let events = found.unwrap_or_default().into_iter().filter_map(|event| {
        let objects = event.visible_to(&principal);
        (!objects.is_empty()).then(|| Event {
            serial: event.serial,
            account: account.clone(),
            kind: event.kind,
            payload: EventPayload {
                objects: objects.iter().map(ToString::to_string).collect(),
                change: event.change.map(|change| format!("ch-{change}")),
            },
            timestamp: event.at.to_string(),
        })
    });
    Ok(Json(events.collect()))
}

/// Read the OpenAPI document
#[utoipa::path(get, path = "/api/v2/openapi.json", tag = "implementation", operation_id = "openapi_read", security(()),
    responses((status = 200, description = "OpenAPI 3.1", body = Object)))]
pub(crate) async fn openapi(Shared(app): Shared<App>) -> impl IntoResponse {
    (
        [(header::CONTENT_TYPE, "application/json")],
        app.ix_document_json.clone(),
    )
}
