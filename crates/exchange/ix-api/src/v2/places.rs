//! The locations of the exchange (facilities, points of presence, metro areas, devices), and the product
//! offerings.
//!
//! A site of the model is both a facility and the point of presence in it. The exchange is one metro area
//! network. The exchange does not store postal addresses of buildings or codes of towns: those properties are
//! empty.

use axum::Json;
use axum::extract::{Path, State as Shared};
use millrace_ix_model::{Exchange, ServiceKind, SiteId, Switch, SwitchId};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::problem::IxProblem;
use super::query::{FilterParams, Filters};
use super::view::medium;
use crate::access::Principal;
use crate::app::App;
use crate::problem::Problem;

/// The identifier of the metro area of the exchange.
const METRO_AREA: &str = "metro-1";
/// The identifier of the metro area network of the exchange.
const NETWORK: &str = "man-1";

/// Returns one object of a list by its identifier.
fn one<T>(items: Vec<T>, id: &str, id_of: impl Fn(&T) -> &str) -> Result<Json<T>, Problem> {
    let found = items.into_iter().find(|item| id_of(item) == id);
    found
        .map(Json)
        .ok_or_else(|| Problem::absent(id.chars().take(40).collect::<String>()))
}

fn sites(exchange: &Exchange) -> Vec<SiteId> {
    exchange.sites.keys().copied().collect()
}

fn facility_id(site: SiteId) -> String {
    format!("facility-{}", site.0)
}

/// A building with switches.
#[derive(Serialize, ToSchema)]
pub(crate) struct Facility {
    /// The identifier.
    id: String,
    /// The name.
    name: String,
    /// The metro area.
    metro_area: String,
    /// The country (ISO 3166-1 alpha-2); empty if it is not stored.
    address_country: String,
    /// The town; empty if it is not stored.
    address_locality: String,
    /// The region; empty if it is not stored.
    address_region: String,
    /// The postal code; empty if it is not stored.
    postal_code: String,
    /// The street; empty if it is not stored.
    street_address: String,
    /// The operator of the building; empty if it is not stored.
    organisation_name: String,
    /// The number of the building in PeeringDB.
    peeringdb_facility_id: Option<u32>,
    /// The points of presence.
    pops: Vec<String>,
}

fn all_facilities(exchange: &Exchange) -> Vec<Facility> {
    let all = exchange.sites.iter().map(|(id, site)| Facility {
        id: facility_id(*id),
        name: site.name.clone(),
        metro_area: METRO_AREA.to_owned(),
        address_country: String::new(),
        address_locality: String::new(),
        address_region: String::new(),
        postal_code: String::new(),
        street_address: String::new(),
        organisation_name: String::new(),
        peeringdb_facility_id: None,
        pops: vec![id.to_string()],
    });
    all.collect()
}

/// List facilities
#[utoipa::path(get, path = "/api/v2/facilities", tag = "facilities", operation_id = "facilities_list", params(FilterParams),
    responses((status = 200, body = Vec<Facility>), (status = "default", body = IxProblem, content_type = "application/problem+json")))]
pub(crate) async fn facilities(principal: Principal, filters: Filters) -> Result<Json<Vec<Value>>, Problem> {
    filters.list(all_facilities(&principal.snapshot.exchange))
}

/// Read a facility
#[utoipa::path(get, path = "/api/v2/facilities/{id}", tag = "facilities", operation_id = "facilities_read", params(("id" = String, Path, description = "The facility")),
    responses((status = 200, body = Facility), (status = "default", body = IxProblem, content_type = "application/problem+json")))]
pub(crate) async fn facility(
    principal: Principal,
    Path(id): Path<String>,
) -> Result<Json<Facility>, Problem> {
    one(all_facilities(&principal.snapshot.exchange), &id, |item| &item.id)
}

/// A point of presence: the switches of one building.
#[derive(Serialize, ToSchema)]
pub(crate) struct PointOfPresence {
    /// The identifier.
    id: String,
    /// The name.
    name: String,
    /// The building.
    facility: String,
    /// The metro area network.
    metro_area_network: String,
    /// The switches.
    devices: Vec<String>,
}

fn all_pops(exchange: &Exchange) -> Vec<PointOfPresence> {
    let all = exchange.sites.iter().map(|(id, site)| PointOfPresence {
        id: id.to_string(),
        name: site.name.chars().take(40).collect(),
        facility: facility_id(*id),
        metro_area_network: NETWORK.to_owned(),
        devices: exchange
            .switches
            .iter()
            .filter(|(_, switch)| switch.site == *id)
            .map(|(switch, _)| switch.to_string())
            .collect(),
    });
    all.collect()
}

/// List points of presence
#[utoipa::path(get, path = "/api/v2/pops", tag = "pops", operation_id = "pops_list", params(FilterParams),
    responses((status = 200, body = Vec<PointOfPresence>), (status = "default", body = IxProblem, content_type = "application/problem+json")))]
pub(crate) async fn pops(principal: Principal, filters: Filters) -> Result<Json<Vec<Value>>, Problem> {
    filters.list(all_pops(&principal.snapshot.exchange))
}

/// Read a point of presence
#[utoipa::path(get, path = "/api/v2/pops/{id}", tag = "pops", operation_id = "pops_read", params(("id" = String, Path, description = "The point of presence")),
    responses((status = 200, body = PointOfPresence), (status = "default", body = IxProblem, content_type = "application/problem+json")))]
pub(crate) async fn pop(
    principal: Principal,
    Path(id): Path<String>,
) -> Result<Json<PointOfPresence>, Problem> {
    one(all_pops(&principal.snapshot.exchange), &id, |item| &item.id)
}

/// The metro area of the exchange.
#[derive(Serialize, ToSchema)]
pub(crate) struct MetroArea {
    /// The identifier.
    id: String,
    /// The UN/LOCODE; empty if it is not stored.
    un_locode: String,
    /// The IATA code; empty if it is not stored.
    iata_code: String,
    /// The name.
    display_name: String,
    /// The buildings.
    facilities: Vec<String>,
    /// The networks.
    metro_area_networks: Vec<String>,
}

fn area(app: &App, exchange: &Exchange) -> MetroArea {
    MetroArea {
        id: METRO_AREA.to_owned(),
        un_locode: String::new(),
        iata_code: String::new(),
        display_name: app.settings.name.chars().take(64).collect(),
        facilities: sites(exchange).into_iter().map(facility_id).collect(),
        metro_area_networks: vec![NETWORK.to_owned()],
    }
}

/// List metro areas
#[utoipa::path(get, path = "/api/v2/metro-areas", tag = "metro-areas", operation_id = "metro_areas_list", params(FilterParams),
    responses((status = 200, body = Vec<MetroArea>), (status = "default", body = IxProblem, content_type = "application/problem+json")))]
pub(crate) async fn metro_areas(
    Shared(app): Shared<App>,
    principal: Principal,
    filters: Filters,
) -> Result<Json<Vec<Value>>, Problem> {
    filters.list(vec![area(&app, &principal.snapshot.exchange)])
}

/// Read a metro area
#[utoipa::path(get, path = "/api/v2/metro-areas/{id}", tag = "metro-areas", operation_id = "metro_areas_read", params(("id" = String, Path, description = "The metro area")),
    responses((status = 200, body = MetroArea), (status = "default", body = IxProblem, content_type = "application/problem+json")))]
pub(crate) async fn metro_area(
    Shared(app): Shared<App>,
    principal: Principal,
    Path(id): Path<String>,
) -> Result<Json<MetroArea>, Problem> {
    one(vec![area(&app, &principal.snapshot.exchange)], &id, |item| {
        &item.id
    })
}

/// The network of the exchange.
#[derive(Serialize, ToSchema)]
pub(crate) struct MetroAreaNetwork {
    /// The identifier.
    id: String,
    /// The name.
    name: String,
    /// The metro area.
    metro_area: String,
    /// The operator: the exchange.
    service_provider: String,
    /// The points of presence.
    pops: Vec<String>,
}

fn network(app: &App, exchange: &Exchange) -> MetroAreaNetwork {
    MetroAreaNetwork {
        id: NETWORK.to_owned(),
        name: app.settings.name.chars().take(32).collect(),
        metro_area: METRO_AREA.to_owned(),
        service_provider: app.settings.name.chars().take(128).collect(),
        pops: sites(exchange).iter().map(ToString::to_string).collect(),
    }
}

/// List metro area networks
#[utoipa::path(get, path = "/api/v2/metro-area-networks", tag = "metro-area-networks", operation_id = "metro_area_networks_list", params(FilterParams),
    responses((status = 200, body = Vec<MetroAreaNetwork>), (status = "default", body = IxProblem, content_type = "application/problem+json")))]
pub(crate) async fn metro_area_networks(
    Shared(app): Shared<App>,
    principal: Principal,
    filters: Filters,
) -> Result<Json<Vec<Value>>, Problem> {
    filters.list(vec![network(&app, &principal.snapshot.exchange)])
}

/// Read a metro area network
#[utoipa::path(get, path = "/api/v2/metro-area-networks/{id}", tag = "metro-area-networks", operation_id = "metro_area_networks_read", params(("id" = String, Path, description = "The network")),
    responses((status = 200, body = MetroAreaNetwork), (status = "default", body = IxProblem, content_type = "application/problem+json")))]
pub(crate) async fn metro_area_network(
    Shared(app): Shared<App>,
    principal: Principal,
    Path(id): Path<String>,
) -> Result<Json<MetroAreaNetwork>, Problem> {
    one(vec![network(&app, &principal.snapshot.exchange)], &id, |item| {
        &item.id
    })
}

/// The free ports of one speed at a device.
#[derive(Serialize, ToSchema)]
pub(crate) struct DeviceCapability {
    /// The medium. It names only the speed, because the exchange does not record optics.
    media_type: String,
    /// The speed in Mbit/s.
    speed: u32,
    /// The largest number of ports in one connection.
    max_lag: u16,
    /// The number of free ports.
    availability: usize,
}

/// A switch.
#[derive(Serialize, ToSchema)]
pub(crate) struct Device {
    /// The identifier.
    id: String,
    /// The name.
    name: String,
    /// The point of presence.
    pop: String,
    /// The building.
    facility: String,
    /// The free ports.
    capabilities: Vec<DeviceCapability>,
}

fn capabilities(exchange: &Exchange, id: SwitchId, switch: &Switch) -> Vec<DeviceCapability> {
    let mut free = std::collections::BTreeMap::new();
    for port in &switch.ports {
        free.entry(port.speed_mbps).or_insert(0);
        if !super::connections::is_used(exchange, id, port.number) {
            *free.entry(port.speed_mbps).or_insert(0) += 1;
        }
    }
    free.into_iter()
        .map(|(speed, availability)| DeviceCapability {
            media_type: medium(speed),
            speed,
            max_lag: 8,
            availability,
        })
        .collect()
}

fn all_devices(exchange: &Exchange) -> Vec<Device> {
    let all = exchange.switches.iter().map(|(id, switch)| Device {
        id: id.to_string(),
        name: switch.name.clone(),
        pop: switch.site.to_string(),
        facility: facility_id(switch.site),
        capabilities: capabilities(exchange, *id, switch),
    });
    all.collect()
}

/// List devices
#[utoipa::path(get, path = "/api/v2/devices", tag = "devices", operation_id = "devices_list", params(FilterParams),
    responses((status = 200, body = Vec<Device>), (status = "default", body = IxProblem, content_type = "application/problem+json")))]
pub(crate) async fn devices(principal: Principal, filters: Filters) -> Result<Json<Vec<Value>>, Problem> {
    filters.list(all_devices(&principal.snapshot.exchange))
}

/// Read a device
#[utoipa::path(get, path = "/api/v2/devices/{id}", tag = "devices", operation_id = "devices_read", params(("id" = String, Path, description = "The device")),
    responses((status = 200, body = Device), (status = "default", body = IxProblem, content_type = "application/problem+json")))]
pub(crate) async fn device(principal: Principal, Path(id): Path<String>) -> Result<Json<Device>, Problem> {
    one(all_devices(&principal.snapshot.exchange), &id, |item| &item.id)
}

/// A product: a type of service, or a peering LAN that members may join.
#[derive(Serialize, ToSchema)]
pub(crate) struct ProductOffering {
    /// The identifier.
    id: String,
    /// The type of the service.
    #[serde(rename = "type")]
    kind: &'static str,
    /// The name.
    name: String,
    /// The name that is shown to people.
    display_name: String,
    /// The resource that is ordered: `network_service`, or `network_service_config` for a peering LAN.
    resource_type: &'static str,
    /// The metro area of the access.
    handover_metro_area: &'static str,
    /// The network of the access.
    handover_metro_area_network: &'static str,
    /// The metro area of the service.
    service_metro_area: &'static str,
    /// The network of the service.
    service_metro_area_network: &'static str,
    /// The provider: the exchange.
    service_provider: String,
    /// The lowest rate in Mbit/s.
    bandwidth_min: Option<u32>,
    /// The highest rate in Mbit/s.
    bandwidth_max: Option<u32>,
    /// The speed of the port that is needed.
    physical_port_speed: Option<u32>,
    /// True if the rate may be lowered.
    downgrade_allowed: bool,
    /// True if the rate may be raised.
    upgrade_allowed: bool,
    /// `single`: one VLAN for each end.
    provider_vlans: &'static str,
    /// The peering LAN.
    #[serde(skip_serializing_if = "Option::is_none")]
    exchange_lan_network_service: Option<String>,
}

/// Returns the type of a service in IX-API.
pub(crate) const fn type_of(kind: ServiceKind) -> &'static str {
    match kind {
        ServiceKind::P2pVc => "p2p_vc",
        ServiceKind::P2mpVc => "p2mp_vc",
        ServiceKind::Mp2mpVc => "mp2mp_vc",
        ServiceKind::ExchangeLan => "exchange_lan",
    }
}

/// Returns the identifier of the offering of a service.
pub(crate) fn offering_id(kind: ServiceKind, lan: Option<millrace_ix_model::ServiceId>) -> String {
    match lan {
        Some(lan) => format!("offering-{lan}"),
        None => format!("offering-{}", type_of(kind)),
    }
}

fn all_offerings(app: &App, exchange: &Exchange) -> Vec<ProductOffering> {
    let offering = |kind: ServiceKind, lan: Option<(millrace_ix_model::ServiceId, &str)>| ProductOffering {
        id: offering_id(kind, lan.map(|(id, _)| id)),
        kind: type_of(kind),
        name: lan.map_or_else(|| type_of(kind).to_owned(), |(_, name)| name.to_owned()),
        display_name: match kind {
            ServiceKind::P2pVc => "Path between two ends".to_owned(),
            ServiceKind::P2mpVc => "Circuit with roots and leaves".to_owned(),
            ServiceKind::Mp2mpVc => "Circuit between many ends".to_owned(),
            ServiceKind::ExchangeLan => {
                lan.map_or_else(String::new, |(_, name)| format!("Peering LAN {name}"))
            }
        },
        resource_type: if lan.is_some() {
            "network_service_config"
        } else {
            "network_service"
        },
        handover_metro_area: METRO_AREA,
        handover_metro_area_network: NETWORK,
        service_metro_area: METRO_AREA,
        service_metro_area_network: NETWORK,
        service_provider: app.settings.name.clone(),
        bandwidth_min: None,
        bandwidth_max: None,
        physical_port_speed: None,
        downgrade_allowed: true,
        upgrade_allowed: true,
        provider_vlans: "single",
        exchange_lan_network_service: lan.map(|(id, _)| id.to_string()),
    };
    let circuits = [ServiceKind::P2pVc, ServiceKind::P2mpVc, ServiceKind::Mp2mpVc];
    let lans = exchange
        .services
        .iter()
        .filter(|(_, service)| service.kind == ServiceKind::ExchangeLan);
    circuits
        .into_iter()
        .map(|kind| offering(kind, None))
        .chain(lans.map(|(id, service)| offering(ServiceKind::ExchangeLan, Some((*id, &service.name)))))
        .collect()
}

/// Refuses an offering that does not belong to the type of service.
pub(crate) fn check_offering(
    given: &str,
    kind: ServiceKind,
    lan: Option<millrace_ix_model::ServiceId>,
) -> Result<(), Problem> {
    let expected = offering_id(kind, lan);
    if given == expected {
        return Ok(());
    }
    let detail = format!("the product offering is another one: expected {expected}");
    Err(super::view::invalid("product_offering", detail))
}

/// List product offerings
#[utoipa::path(get, path = "/api/v2/product-offerings", tag = "product-offerings", operation_id = "product_offerings_list", params(FilterParams),
    responses((status = 200, body = Vec<ProductOffering>), (status = "default", body = IxProblem, content_type = "application/problem+json")))]
pub(crate) async fn offerings(
    Shared(app): Shared<App>,
    principal: Principal,
    filters: Filters,
) -> Result<Json<Vec<Value>>, Problem> {
    filters.list(all_offerings(&app, &principal.snapshot.exchange))
}

/// Read a product offering
#[utoipa::path(get, path = "/api/v2/product-offerings/{id}", tag = "product-offerings", operation_id = "product_offerings_read", params(("id" = String, Path, description = "The offering")),
    responses((status = 200, body = ProductOffering), (status = "default", body = IxProblem, content_type = "application/problem+json")))]
pub(crate) async fn offering(
    Shared(app): Shared<App>,
    principal: Principal,
    Path(id): Path<String>,
) -> Result<Json<ProductOffering>, Problem> {
    one(all_offerings(&app, &principal.snapshot.exchange), &id, |item| {
        &item.id
    })
}

/// List availability zones: the exchange has none
#[utoipa::path(get, path = "/api/v2/availability-zones", tag = "availability-zones", operation_id = "availability_zones_list", params(FilterParams),
    responses((status = 200, body = Vec<Object>), (status = "default", body = IxProblem, content_type = "application/problem+json")))]
pub(crate) async fn availability_zones(_: Principal, filters: Filters) -> Result<Json<Vec<Value>>, Problem> {
    filters.list(Vec::<Value>::new())
}

/// List routing functions: the exchange has none
#[utoipa::path(get, path = "/api/v2/routing-functions", tag = "routing-functions", operation_id = "routing_functions_list", params(FilterParams),
    responses((status = 200, body = Vec<Object>), (status = "default", body = IxProblem, content_type = "application/problem+json")))]
pub(crate) async fn routing_functions(_: Principal, filters: Filters) -> Result<Json<Vec<Value>>, Problem> {
    filters.list(Vec::<Value>::new())
}
