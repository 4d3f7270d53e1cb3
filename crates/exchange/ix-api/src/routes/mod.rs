//! All resources of the API, from which the router and the OpenAPI document are generated.

mod approvals;
mod billing;
mod calendars;
pub(crate) mod contacts;
mod cross_connects;
mod documents;
mod drift;
mod ends;
mod exports;
mod filters;
mod groups;
mod inventory;
mod journal;
mod keys;
mod lan;
mod links;
mod notices;
mod objects;
mod oidc;
mod orders;
mod overview;
mod people;
mod public;
mod public_traffic;
mod route_servers;
pub(crate) mod series;
mod services;
mod session;
mod stream;
mod traffic;
mod webhooks;

pub(crate) use session::client;
use utoipa::OpenApi;
use utoipa::openapi::security::{
    ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme,
};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::App;
use crate::session::COOKIE;

#[derive(OpenApi)]
#[openapi(info(
    title = "Millrace exchange",
    description = "The exchange: connections, services, filters, and for operators the fabric, its changes and the audit \
        chain. Objects have an ETag; orders to them need it in If-Match, and with ?dry_run=true only tell \
        what they would do. Orders, and every POST but a sign-in, may carry an Idempotency-Key. Objects of others are answered as absent ones. Errors are problem \
        documents (RFC 9457). `can` lists the operations that the permission table permits on an object.",
    license(name = "Apache-2.0", identifier = "Apache-2.0")
))]
struct Document;

/// Returns the OpenAPI document.
pub(crate) fn document() -> utoipa::openapi::OpenApi {
    let mut document = routes().into_openapi();
    crate::idempotency::describe(&mut document);
    crate::openapi::finish(&mut document);
    let key = HttpBuilder::new()
        .scheme(HttpAuthScheme::Bearer)
        .description(Some("An API key of a user"));
    let cookie = ApiKeyValue::with_description(COOKIE, "The session of a browser after a sign-in");
    let components = document.components.get_or_insert_default();
    components.add_security_scheme("ApiKey", SecurityScheme::Http(key.build()));
    components.add_security_scheme("Session", SecurityScheme::ApiKey(ApiKey::Cookie(cookie)));
    let either = ["ApiKey", "Session"].map(|name| SecurityRequirement::new(name, Vec::<String>::new()));
    document.security = Some(either.to_vec());
    for (path, item) in &mut document.paths.paths {
        let name: String = path
            .trim_start_matches("/api/v1/")
            .replace(['/', '-', '.'], "_")
            .replace(['{', '}'], "");
        let operations = [
            ("get", &mut item.get),
            ("put", &mut item.put),
            ("post", &mut item.post),
            ("delete", &mut item.delete),
        ];
        // The function names of handlers are not unique, so they cannot be operation ids.
        for (method, operation) in operations {
            if let Some(operation) = operation {
                operation.operation_id = Some(format!("{method}_{name}"));
            }
        }
    }
    document
}

/// Returns the OpenAPI document as JSON text, as stored in `portal/openapi.json`.
pub fn openapi_json() -> String {
    let mut text = document().to_pretty_json().unwrap_or_default();
    text.push('\n');
    text
}

/// Returns all resources with their descriptions.
pub(crate) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::with_openapi(Document::openapi())
        .routes(routes!(session::read, session::sign_in, session::sign_out))
        .routes(routes!(session::change_password))
        .routes(routes!(oidc::read, oidc::begin))
        .routes(routes!(oidc::finish))
        .routes(routes!(keys::list, keys::create))
        .routes(routes!(keys::delete))
        .routes(routes!(overview::overview))
        .routes(routes!(objects::accounts, people::create_account))
        .routes(routes!(
            objects::account,
            people::update_account,
            people::delete_account
        ))
        .routes(routes!(people::set_networks))
        .routes(routes!(objects::users, people::create_user))
        .routes(routes!(objects::user, people::update_user, people::delete_user))
        .routes(routes!(links::create))
        .routes(routes!(links::forgotten))
        .routes(routes!(links::read))
        .routes(routes!(links::use_link))
        .routes(routes!(contacts::list, contacts::create))
        .routes(routes!(contacts::replace, contacts::delete))
        .routes(routes!(objects::connections, people::create_connection))
        .routes(routes!(objects::connection, people::delete_connection))
        .routes(routes!(cross_connects::list, cross_connects::create))
        .routes(routes!(cross_connects::step))
        .routes(routes!(cross_connects::letter))
        .routes(routes!(cross_connects::verify))
        .routes(routes!(objects::vlans))
        .routes(routes!(services::list, services::create))
        .routes(routes!(services::read, services::delete))
        .routes(routes!(services::accept))
        .routes(routes!(services::refuse))
        .routes(routes!(services::lock))
        .routes(routes!(services::create_key))
        .routes(routes!(services::redeem_key))
        .routes(routes!(ends::list))
        .routes(routes!(ends::read, ends::delete))
        .routes(routes!(ends::rate))
        .routes(routes!(ends::place))
        .routes(routes!(ends::shut_down))
        .routes(routes!(ends::add_mac))
        .routes(routes!(ends::remove_mac, lan::mac_end))
        .routes(routes!(inventory::add_ip))
        .routes(routes!(inventory::remove_ip))
        .routes(routes!(groups::list, groups::create))
        .routes(routes!(groups::members))
        .routes(routes!(groups::remove))
        .routes(routes!(groups::join))
        .routes(routes!(lan::join))
        .routes(routes!(lan::policies))
        .routes(routes!(lan::members))
        .routes(routes!(lan::waive))
        .routes(routes!(route_servers::sessions))
        .routes(routes!(route_servers::rejected_routes))
        .routes(routes!(route_servers::routes))
        .routes(routes!(filters::list, filters::create))
        .routes(routes!(filters::read, filters::extend, filters::delete))
        .routes(routes!(filters::explain))
        .routes(routes!(filters::attack))
        .routes(routes!(traffic::traffic))
        .routes(routes!(traffic::matrix))
        .routes(routes!(series::connection))
        .routes(routes!(series::service))
        .routes(routes!(series::trunk))
        .routes(routes!(series::peers))
        .routes(routes!(series::sites))
        .routes(routes!(series::exchange))
        .routes(routes!(billing::billing))
        .routes(routes!(billing::csv))
        .routes(routes!(public_traffic::public_traffic))
        .routes(routes!(filters::recheck))
        .routes(routes!(filters::sessions))
        .routes(routes!(approvals::list))
        .routes(routes!(approvals::withdraw))
        .routes(routes!(approvals::approve))
        .routes(routes!(approvals::service_keys))
        .routes(routes!(approvals::revoke_key))
        .routes(routes!(approvals::impact))
        .routes(routes!(objects::sites))
        .routes(routes!(objects::switches))
        .routes(routes!(objects::switch))
        .routes(routes!(inventory::ports, inventory::set_ports))
        .routes(routes!(drift::read))
        .routes(routes!(objects::trunks))
        .routes(routes!(objects::trunk, approvals::delete_trunk))
        .routes(routes!(ends::drain))
        .routes(routes!(journal::changes))
        .routes(routes!(journal::change))
        .routes(routes!(journal::confirm))
        .routes(routes!(journal::revert))
        .routes(routes!(journal::audit))
        .routes(routes!(stream::events))
        .routes(routes!(webhooks::list, webhooks::create))
        .routes(routes!(webhooks::delete))
        .routes(routes!(webhooks::deliveries))
        .routes(routes!(webhooks::replay))
        .routes(routes!(notices::list, notices::create))
        .routes(routes!(notices::preview))
        .routes(routes!(notices::replace, notices::cancel))
        .routes(routes!(notices::feed))
        .routes(routes!(calendars::read, calendars::make, calendars::end))
        .routes(routes!(calendars::feed))
        .routes(routes!(public::status))
        .routes(routes!(public::status_calendar))
        .routes(routes!(public::status_feed))
        .routes(routes!(public::looking_glass))
        .routes(routes!(public::routes))
        .routes(routes!(exports::member_list))
        .routes(routes!(exports::route_server_clients))
        .routes(routes!(documents::openapi))
        .routes(routes!(documents::problem))
        .routes(routes!(documents::health))
}
