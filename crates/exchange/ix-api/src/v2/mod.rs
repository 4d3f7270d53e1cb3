//! IX-API 2.1.0 (<https://ix-api.net>) over the same objects, sessions and permissions as the native API.
//!
//! ```text
//!  pyixapi, ... --> /api/v2 --> Filters, Principal (token or API key) --> model (accounts, connections, services, ends)
//!                      |                                              \-> records (contacts, rules, sessions, invoices)
//!                      +-- answers: objects of IX-API; translate: problems of IX-API
//!
//!  IX-API                    model                IX-API                    model
//!  account                   Account              network-service           Service
//!  connection                Connection           network-service-config    Config (an end)
//!  port, device, pop         SwitchPort, Switch,  mac, ip                   RegisteredMac, RegisteredIp
//!                            Site
//! ```
//! Objects have the identifiers of the model. Records have separate identifiers ([`records`]).

mod accounts;
mod addresses;
mod auth;
mod configs;
mod connections;
pub(crate) mod contacts;
mod documents;
pub(crate) mod features;
pub(crate) mod ips;
pub(crate) mod joining;
pub(crate) mod orders;
mod places;
mod problem;
mod query;
pub(crate) mod records;
mod services;
pub(crate) mod view;

pub(crate) use features::{Session, sessions, sweep as sweep_sessions};
pub(crate) use orders::is_listed;
pub(crate) use problem::translate;
use utoipa::OpenApi;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::App;
use crate::media::{JSON, MERGE_PATCH};

#[derive(OpenApi)]
#[openapi(info(
    title = "Millrace exchange, IX-API",
    version = "2.1.0",
    description = "IX-API 2.1.0 without cloud services. POST /api/v2/auth/token exchanges an API key for tokens. Objects of others are \
        answered as absent ones. A POST may carry an Idempotency-Key. Errors are problem documents (RFC 9457) with the types \
        of IX-API.",
    license(name = "Apache-2.0", identifier = "Apache-2.0")
))]
struct Document;

/// Returns the OpenAPI document.
pub(crate) fn document() -> utoipa::openapi::OpenApi {
    let mut document = routes().into_openapi();
    crate::idempotency::describe(&mut document);
    for patch in document
        .paths
        .paths
        .values_mut()
        .filter_map(|item| item.patch.as_mut())
    {
        // `application/json` is taken, too; a generated client has one body for one type.
        let contents = patch.request_body.iter_mut().map(|body| &mut body.content);
        for content in contents {
            if let Some(json) = content.remove(JSON) {
                content.insert(MERGE_PATCH.to_owned(), json);
            }
        }
    }
    crate::openapi::finish(&mut document);
    let bearer = HttpBuilder::new()
        .scheme(HttpAuthScheme::Bearer)
        .bearer_format("JWT")
        .build();
    document
        .components
        .get_or_insert_default()
        .add_security_scheme("Bearer", SecurityScheme::Http(bearer));
    document.security = Some(vec![SecurityRequirement::new("Bearer", Vec::<String>::new())]);
    document
}

/// Returns the OpenAPI document as JSON text.
pub fn openapi_json() -> String {
    let mut text = document().to_pretty_json().unwrap_or_default();
    text.push('\n');
    text
}

/// Returns the router of all resources, with their OpenAPI descriptions.
pub(crate) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::with_openapi(Document::openapi())
        .routes(routes!(auth::token))
        .routes(routes!(auth::refresh))
        .routes(routes!(accounts::own))
        .routes(routes!(accounts::list, accounts::create))
        .routes(routes!(
            accounts::read,
            accounts::update,
            accounts::replace,
            accounts::delete
        ))
        .routes(routes!(contacts::list, contacts::create))
        .routes(routes!(
            contacts::read,
            contacts::update,
            contacts::replace,
            contacts::delete
        ))
        .routes(routes!(contacts::roles))
        .routes(routes!(contacts::role))
        .routes(routes!(contacts::assignments, contacts::assign))
        .routes(routes!(contacts::assignment, contacts::unassign))
        .routes(routes!(places::facilities))
        .routes(routes!(places::facility))
        .routes(routes!(places::pops))
        .routes(routes!(places::pop))
        .routes(routes!(places::metro_areas))
        .routes(routes!(places::metro_area))
        .routes(routes!(places::metro_area_networks))
        .routes(routes!(places::metro_area_network))
        .routes(routes!(places::devices))
        .routes(routes!(places::device))
        .routes(routes!(places::offerings))
        .routes(routes!(places::offering))
        .routes(routes!(places::availability_zones))
        .routes(routes!(places::routing_functions))
        .routes(routes!(connections::list, connections::create))
        .routes(routes!(
            connections::read,
            connections::update,
            connections::replace,
            connections::delete
        ))
        .routes(routes!(connections::ports))
        .routes(routes!(connections::port))
        .routes(routes!(connections::reservations))
        .routes(routes!(connections::reservation))
        .routes(routes!(services::list, services::create))
        .routes(routes!(
            services::read,
            services::update,
            services::replace,
            services::delete
        ))
        .routes(routes!(services::cancellation_policy))
        .routes(routes!(joining::list, joining::create))
        .routes(routes!(
            joining::read,
            joining::update,
            joining::replace,
            joining::delete
        ))
        .routes(routes!(configs::list, configs::create))
        .routes(routes!(
            configs::read,
            configs::update,
            configs::replace,
            configs::delete
        ))
        .routes(routes!(configs::cancellation_policy))
        .routes(routes!(addresses::macs, addresses::create_mac))
        .routes(routes!(
            addresses::mac,
            addresses::update_mac,
            addresses::replace_mac,
            addresses::delete_mac
        ))
        .routes(routes!(ips::ips, ips::create_ip))
        .routes(routes!(ips::ip, ips::delete_ip))
        .routes(routes!(features::list))
        .routes(routes!(features::read))
        .routes(routes!(features::configs, features::configure))
        .routes(routes!(
            features::config,
            features::update_config,
            features::replace_config,
            features::delete_config
        ))
        .routes(routes!(documents::health))
        .routes(routes!(documents::implementation))
        .routes(routes!(documents::extensions))
        .routes(routes!(documents::events))
        .routes(routes!(documents::openapi))
}
