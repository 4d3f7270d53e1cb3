//! Orders of network service configs, which are ends of services.

use std::collections::BTreeSet;

use axum::Json;
use axum::extract::State as Shared;
use axum::http::StatusCode;
use millrace_ix_model::{ConfigId, ConnectionId, EndRole, Key as _, Operation, ServiceId, ServiceKind};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::siblings;
use super::view::{NetworkServiceConfig, Role, view};
use super::vlan::VlanConfig;
use crate::access::Principal;
use crate::app::App;
use crate::problem::Problem;
use crate::request::{Body, Conditions};
use crate::v2::contacts::check_assignments;
use crate::v2::orders::{
    check_reference, created, ix_api_properties, order_granted, put_properties, renewed,
};
use crate::v2::places::{check_offering, type_of};
use crate::v2::problem::IxProblem;
use crate::v2::view::{Billed, Owned, id as identifier, invalid};
use crate::v2::{addresses, ips, joining, services};

/// The parts that all orders of configs have.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct NewConfigBase {
    #[serde(flatten)]
    owned: Owned,
    #[serde(flatten)]
    billed: Billed,
    /// The service.
    network_service: String,
    /// The connection.
    connection: String,
    /// The tags.
    vlan_config: VlanConfig,
    /// The contracted rate in Mbit/s; null for the speed of the connection.
    #[serde(default)]
    #[schema(minimum = 1)]
    capacity: Option<u32>,
}

/// An order of an end of a peering LAN.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct NewLanConfig {
    #[serde(flatten)]
    base: NewConfigBase,
    /// The autonomous systems.
    asns: BTreeSet<u32>,
    /// The MAC addresses.
    #[serde(default)]
    macs: Vec<String>,
    /// True if the member wants to be on the member list.
    listed: bool,
    /// The product offering.
    product_offering: String,
}

/// An order of an end of a circuit with roots and leaves.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct NewRoleConfig {
    #[serde(flatten)]
    base: NewConfigBase,
    /// The role.
    #[serde(default)]
    role: Role,
}

/// An order of an end of a circuit between many ends.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct NewMacConfig {
    #[serde(flatten)]
    base: NewConfigBase,
    /// The MAC addresses.
    #[serde(default)]
    macs: Vec<String>,
}

/// A new network service config.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum NetworkServiceConfigRequest {
    ExchangeLan(NewLanConfig),
    P2pVc(NewConfigBase),
    P2mpVc(NewRoleConfig),
    Mp2mpVc(NewMacConfig),
}

impl NetworkServiceConfigRequest {
    fn parts(&self) -> (ServiceKind, &NewConfigBase, &[String], EndRole, BTreeSet<u32>) {
        match self {
            Self::ExchangeLan(order) => (
                ServiceKind::ExchangeLan,
                &order.base,
                &order.macs,
                EndRole::Root,
                order.asns.clone(),
            ),
            Self::P2pVc(base) => (ServiceKind::P2pVc, base, &[], EndRole::Root, BTreeSet::new()),
            Self::P2mpVc(order) => {
                let role = match order.role {
                    Role::Root => EndRole::Root,
                    Role::Leaf => EndRole::Leaf,
                };
                (ServiceKind::P2mpVc, &order.base, &[], role, BTreeSet::new())
            }
            Self::Mp2mpVc(order) => (
                ServiceKind::Mp2mpVc,
                &order.base,
                &order.macs,
                EndRole::Root,
                BTreeSet::new(),
            ),
        }
    }
}

/// Order an end of a service
#[utoipa::path(post, path = "/api/v2/network-service-configs", tag = "network-service-configs", operation_id = "network_service_configs_create", request_body = NetworkServiceConfigRequest,
    responses((status = 201, body = NetworkServiceConfig), (status = "default", body = IxProblem, content_type = "application/problem+json")))]
pub(crate) async fn create(
    Shared(app): Shared<App>,
    principal: Principal,
    conditions: Conditions,
    Body(given): Body<NetworkServiceConfigRequest>,
) -> Result<(StatusCode, Json<NetworkServiceConfig>), Problem> {
    let (kind, base, macs, role, asns) = given.parts();
    let account = base.owned.check(&principal)?;
    base.billed.check(&principal)?;
    check_assignments(&app, &principal, &base.billed.role_assignments)?;
    let service: ServiceId = identifier("network_service", &base.network_service)?;
    let found = services::find(&app, &principal, service)
        .map_err(|problem| invalid("network_service", problem.detail.to_string()))?;
    if found.kind != kind {
        let detail = format!(
            "{service} has the type {}: expected a config of that type",
            type_of(found.kind)
        );
        return Err(invalid("type", detail));
    }
    if let NetworkServiceConfigRequest::ExchangeLan(order) = &given {
        check_offering(&order.product_offering, kind, Some(service))?;
    }
    let connection: ConnectionId = identifier("connection", &base.connection)?;
    let owner = connection
        .stored(&principal.snapshot.exchange)
        .filter(|_| principal.may_read(connection))
        .map(|found| found.account)
        .ok_or_else(|| invalid("connection", format!("there is no {connection}")))?;
    if owner != account {
        return Err(invalid(
            "consuming_account",
            format!("{connection} belongs to {owner}"),
        ));
    }
    let others = siblings(&principal.snapshot.exchange, owner).map(|(other, _)| (other, None));
    check_reference(&app, base.owned.external_ref.as_ref(), others)?;
    let macs = addresses::resolve(&app, &principal, macs)?;
    let bounds = joining::may_join(&app, &principal, service, owner);
    let (granted, first) = match bounds {
        Some(bounds) => {
            let place = (connection, base.vlan_config.request()?, base.capacity);
            let (make, redeem) = joining::key(&app, &principal, (service, bounds), place)?;
            (vec![make], redeem)
        }
        None => {
            let configure = Operation::ConfigureEnd {
                service,
                connection,
                vlan: base.vlan_config.request()?,
                capacity_mbps: base.capacity,
                role,
                asns,
                external_ref: base.owned.external_ref.clone(),
            };
            (Vec::new(), configure)
        }
    };
    let mut operations = vec![first];
    operations.extend(macs.iter().map(|mac| mac.add(ConfigId(0))));
    let applied = order_granted(&app, &principal, &conditions, (granted, operations), &given).await?;
    let id: ConfigId = created(&applied)?;
    let mut facts = ix_api_properties(&app, id);
    facts.managing_account = Some(base.owned.managing_account.clone());
    facts.billed = Some(base.billed.clone());
    if let NetworkServiceConfigRequest::ExchangeLan(order) = &given {
        facts.listed = Some(order.listed);
        facts.product_offering = Some(order.product_offering.clone());
        ips::assign(&app, id).await;
    }
    put_properties(&app, &principal, id, &facts).await?;
    let principal = renewed(&app, &principal);
    addresses::link(&app, &principal, id, &macs).await?;
    Ok((StatusCode::CREATED, Json(view(&app, &principal, id)?)))
}
