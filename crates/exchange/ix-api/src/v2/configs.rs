//! Network service configs: one connection's end of a service.

use std::collections::BTreeSet;
use std::time::Duration;

use axum::Json;
use axum::extract::{Path, State as Shared};
use axum::http::StatusCode;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use millrace_ix_model::{
    Config, ConfigId, ConnectionId, EndRole, Key as _, Operation, OperationKind, ServiceId, ServiceKeyId,
    ServiceKind, TagType, VlanConfig as ModelVlan, VlanId, VlanRequest,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::addresses::{self, MacChange};
use super::contacts::check_assignments;
use super::joining::Bounds;
use super::orders::{created, end_state, extra, order, order_as_system, put_extra, renewed};
use super::places::{check_offering, offering_id, type_of};
use super::problem::IxProblem;
use super::query::{FilterParams, Filters};
use super::services::{CancellationPolicy, path_id};
use super::view::{Billed, Owned, State, Stated, id as identifier, invalid, nullable};
use crate::access::Principal;
use crate::app::App;
use crate::problem::{Problem, ProblemKind};
use crate::request::{Body, Conditions};

/// The validity of the service key by which an account joins under a rule.
const JOINING: Duration = Duration::from_secs(60);

/// The EtherType of an outer tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) enum Ethertype {
    #[serde(rename = "0x8100")]
    CTag,
    #[serde(rename = "0x88a8")]
    STag,
}

impl From<Ethertype> for TagType {
    fn from(ethertype: Ethertype) -> TagType {
        match ethertype {
            Ethertype::CTag => TagType::CTag,
            Ethertype::STag => TagType::STag,
        }
    }
}

impl From<TagType> for Ethertype {
    fn from(tag: TagType) -> Ethertype {
        match tag {
            TagType::CTag => Ethertype::CTag,
            TagType::STag => Ethertype::STag,
        }
    }
}

const fn c_tag() -> Ethertype {
    Ethertype::CTag
}

/// The tags of the frames at an end. A VID that is null in an order is chosen.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(tag = "vlan_type", rename_all = "snake_case")]
pub(crate) enum VlanConfig {
    /// The whole connection.
    Port,
    /// One tag.
    Dot1q {
        /// The VID.
        #[serde(default)]
        #[schema(minimum = 1, maximum = 4094)]
        vlan: Option<u16>,
        /// The EtherType of the tag.
        #[serde(default = "c_tag")]
        vlan_ethertype: Ethertype,
    },
    /// Two tags.
    Qinq {
        /// The VID of the outer tag.
        #[serde(default)]
        #[schema(minimum = 1, maximum = 4094)]
        outer_vlan: Option<u16>,
        /// The VID of the inner tag.
        #[serde(default)]
        #[schema(minimum = 1, maximum = 4094)]
        inner_vlan: Option<u16>,
        /// The EtherType of the outer tag.
        #[serde(default = "c_tag")]
        outer_vlan_ethertype: Ethertype,
    },
}

impl From<ModelVlan> for VlanConfig {
    fn from(vlan: ModelVlan) -> VlanConfig {
        match vlan {
            ModelVlan::Port => VlanConfig::Port,
            ModelVlan::Dot1q { vlan, ethertype } => VlanConfig::Dot1q {
                vlan: Some(vlan.raw()),
                vlan_ethertype: ethertype.into(),
            },
            ModelVlan::Qinq {
                outer,
                inner,
                ethertype,
            } => VlanConfig::Qinq {
                outer_vlan: Some(outer.raw()),
                inner_vlan: Some(inner.raw()),
                outer_vlan_ethertype: ethertype.into(),
            },
        }
    }
}

impl VlanConfig {
    fn request(&self) -> Result<VlanRequest, Problem> {
        let vid = |property: &str, vid: Option<u16>| {
            vid.map(VlanId::new)
                .transpose()
                .map_err(|error| invalid(&format!("vlan_config/{property}"), error.to_string()))
        };
        Ok(match self {
            VlanConfig::Port => VlanRequest::Port,
            VlanConfig::Dot1q { vlan, vlan_ethertype } => VlanRequest::Dot1q {
                vlan: vid("vlan", *vlan)?,
                ethertype: (*vlan_ethertype).into(),
            },
            VlanConfig::Qinq {
                outer_vlan,
                inner_vlan,
                outer_vlan_ethertype,
            } => VlanRequest::Qinq {
                outer: vid("outer_vlan", *outer_vlan)?,
                inner: vid("inner_vlan", *inner_vlan)?,
                ethertype: (*outer_vlan_ethertype).into(),
            },
        })
    }
}

/// The parts that all configs have.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct ConfigBase {
    /// The identifier.
    id: String,
    #[serde(flatten)]
    stated: Stated,
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
    capacity: Option<u32>,
    /// The configs of features.
    network_feature_configs: Vec<String>,
}

/// An end of a peering LAN.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct LanConfig {
    #[serde(flatten)]
    base: ConfigBase,
    /// The autonomous systems.
    asns: Vec<u32>,
    /// True if the member wants to be on the member list.
    listed: bool,
    /// The product offering.
    product_offering: String,
    /// The MAC addresses.
    macs: Vec<String>,
    /// The IP addresses.
    ips: Vec<String>,
}

/// An end of a circuit with roots and leaves.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct RoleConfig {
    #[serde(flatten)]
    base: ConfigBase,
    /// The role.
    role: Role,
}

/// An end of a circuit between many ends.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct MacConfig {
    #[serde(flatten)]
    base: ConfigBase,
    /// The MAC addresses.
    macs: Vec<String>,
}

/// The role of an end: a leaf reaches roots only.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = EndRole)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Role {
    Root,
    #[default]
    Leaf,
}

/// A network service config.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum NetworkServiceConfig {
    ExchangeLan(LanConfig),
    P2pVc(ConfigBase),
    P2mpVc(RoleConfig),
    Mp2mpVc(MacConfig),
}

impl NetworkServiceConfig {
    fn base_mut(&mut self) -> &mut ConfigBase {
        match self {
            NetworkServiceConfig::ExchangeLan(config) => &mut config.base,
            NetworkServiceConfig::P2pVc(base) => base,
            NetworkServiceConfig::P2mpVc(config) => &mut config.base,
            NetworkServiceConfig::Mp2mpVc(config) => &mut config.base,
        }
    }
}

/// Returns an end that the principal manages: the other party's end of a circuit is not shown.
fn find(principal: &Principal, id: ConfigId) -> Result<&Config, Problem> {
    id.stored(&principal.snapshot.exchange)
        .filter(|config| principal.may_read(id) && principal.may_read(config.connection))
        .ok_or_else(|| Problem::absent(id))
}

fn view(app: &App, principal: &Principal, id: ConfigId) -> Result<NetworkServiceConfig, Problem> {
    let config = find(principal, id)?;
    let exchange = &principal.snapshot.exchange;
    let kind = config
        .service
        .stored(exchange)
        .map_or(ServiceKind::P2pVc, |service| service.kind);
    let facts = extra(app, id);
    let base = ConfigBase {
        id: id.to_string(),
        stated: end_state(app, principal, id, config),
        owned: facts.owned(config.account, config.external_ref.as_ref()),
        billed: facts.billed(config.account),
        network_service: config.service.to_string(),
        connection: config.connection.to_string(),
        vlan_config: config.vlan.into(),
        capacity: config.capacity_mbps,
        network_feature_configs: super::features::configs_of(app, id),
    };
    let macs = || addresses::macs_of(app, principal, id);
    Ok(match kind {
        ServiceKind::P2pVc => NetworkServiceConfig::P2pVc(base),
        ServiceKind::P2mpVc => NetworkServiceConfig::P2mpVc(RoleConfig {
            base,
            role: match config.role {
                EndRole::Root => Role::Root,
                EndRole::Leaf => Role::Leaf,
            },
        }),
        ServiceKind::Mp2mpVc => NetworkServiceConfig::Mp2mpVc(MacConfig { base, macs: macs() }),
        ServiceKind::ExchangeLan => {
            let ips = exchange.ips.iter().filter(|(_, ip)| ip.config == id);
            NetworkServiceConfig::ExchangeLan(LanConfig {
                base,
                asns: config.asns.iter().copied().collect(),
                listed: facts.listed.unwrap_or(false),
                product_offering: facts
                    .product_offering
                    .unwrap_or_else(|| offering_id(kind, Some(config.service))),
                macs: macs(),
                ips: ips.map(|(id, _)| id.to_string()).collect(),
            })
        }
    })
}

/// List network service configs
#[utoipa::path(get, path = "/api/v2/network-service-configs", tag = "network-service-configs", operation_id = "network_service_configs_list", params(FilterParams),
    responses((status = 200, body = Vec<NetworkServiceConfig>), (status = "default", body = IxProblem, content_type = "application/problem+json")))]
pub(crate) async fn list(
    Shared(app): Shared<App>,
    principal: Principal,
    filters: Filters,
) -> Result<Json<Vec<Value>>, Problem> {
    let all = principal.snapshot.exchange.configs.keys();
    filters.list(all.filter_map(|id| view(&app, &principal, *id).ok()).collect())
}

/// Read a network service config
#[utoipa::path(get, path = "/api/v2/network-service-configs/{id}", tag = "network-service-configs", operation_id = "network_service_configs_read", params(("id" = String, Path, description = "The config")),
    responses((status = 200, body = NetworkServiceConfig), (status = "default", body = IxProblem, content_type = "application/problem+json")))]
pub(crate) async fn read(
    Shared(app): Shared<App>,
    principal: Principal,
    Path(id): Path<String>,
) -> Result<Json<NetworkServiceConfig>, Problem> {
    view(&app, &principal, path_id(&id)?).map(Json)
}

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

/// Returns the operations that configure an end of another account's multipoint service under a joining rule: the engine
/// makes a service key, which the account redeems.
async fn join(
    app: &App,
    service: ServiceId,
    bounds: Bounds,
    base: &NewConfigBase,
    connection: ConnectionId,
) -> Result<(ServiceKeyId, Operation), Problem> {
    let rate = base.capacity.or(bounds.max);
    if let (Some(rate), Some(min)) = (rate, bounds.min)
        && rate < min
    {
        return Err(invalid(
            "capacity",
            format!("the joining rule wants at least {min} Mbit/s"),
        ));
    }
    let bytes = crate::session::random::<24>()
        .map_err(|error| Problem::new(ProblemKind::Internal, error.to_string()))?;
    let secret = URL_SAFE_NO_PAD.encode(bytes);
    let key = Operation::CreateServiceKey {
        service,
        secret: secret.clone(),
        valid_until: app.now().after(JOINING),
        vlans: None,
        capacity_mbps: bounds.max,
    };
    let applied = order_as_system(app, vec![key]).await?;
    let key = created::<ServiceKeyId>(&applied)?;
    let redeem = Operation::RedeemServiceKey {
        secret,
        connection,
        vlan: base.vlan_config.request()?,
        capacity_mbps: rate,
        asns: BTreeSet::new(),
    };
    Ok((key, redeem))
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
    let found = super::services::find(&app, &principal, service)
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
    let macs = addresses::resolve(&app, &principal, macs)?;
    let bounds = (!principal.may(OperationKind::ConfigureEnd, service))
        .then(|| super::joining::may_join(&app, &principal, service))
        .flatten();
    let (key, first) = match bounds {
        Some(bounds) => {
            let (key, redeem) = join(&app, service, bounds, base, connection).await?;
            (Some(key), redeem)
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
            (None, configure)
        }
    };
    let mut operations = vec![first];
    operations.extend(macs.iter().map(|mac| mac.add(ConfigId(0))));
    let ordered = order(&app, &principal, &conditions, operations, &given).await;
    if let (Err(_), Some(key)) = (&ordered, key) {
        // The key is of no use to anybody else, and is over in a minute.
        let _ = order_as_system(&app, vec![Operation::RevokeServiceKey { key }]).await;
    }
    let applied = ordered?;
    let id: ConfigId = created(&applied)?;
    let mut facts = extra(&app, id);
    facts.managing_account = Some(base.owned.managing_account.clone());
    facts.billed = Some(base.billed.clone());
    if let NetworkServiceConfigRequest::ExchangeLan(order) = &given {
        facts.listed = Some(order.listed);
        facts.product_offering = Some(order.product_offering.clone());
        addresses::assign(&app, id).await;
    }
    put_extra(&app, id, &facts)?;
    let principal = renewed(&app, &principal);
    addresses::link(&app, &principal, id, &macs)?;
    Ok((StatusCode::CREATED, Json(view(&app, &principal, id)?)))
}

/// Changes of a config; absent properties stay.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct NetworkServiceConfigUpdate {
    /// The type, which cannot change.
    #[serde(default, rename = "type")]
    kind: Option<String>,
    /// The account that manages the config.
    #[serde(default)]
    managing_account: Option<String>,
    /// The connection.
    #[serde(default)]
    connection: Option<String>,
    /// The tags.
    #[serde(default)]
    vlan_config: Option<VlanConfig>,
    /// The contracted rate in Mbit/s; null for the speed of the connection.
    #[serde(default, deserialize_with = "nullable")]
    #[schema(value_type = Option<u32>, minimum = 1)]
    capacity: Option<Option<u32>>,
    /// The MAC addresses.
    #[serde(default)]
    macs: Option<Vec<String>>,
    /// The autonomous systems, which cannot change.
    #[serde(default)]
    asns: Option<BTreeSet<u32>>,
    /// True if the member wants to be on the member list.
    #[serde(default)]
    listed: Option<bool>,
    /// The account that pays.
    #[serde(default)]
    billing_account: Option<String>,
    /// The number of the purchase order.
    #[serde(default)]
    purchase_order: Option<String>,
    /// The contract.
    #[serde(default, deserialize_with = "nullable")]
    #[schema(value_type = Option<String>)]
    contract_ref: Option<Option<String>>,
    /// The assignments of roles to contacts.
    #[serde(default)]
    role_assignments: Option<Vec<String>>,
}

/// Returns an end that the principal may change.
fn writable(principal: &Principal, id: ConfigId, kind: OperationKind) -> Result<&Config, Problem> {
    let config = find(principal, id)?;
    if principal.may(kind, id) {
        return Ok(config);
    }
    let detail = format!("your roles do not permit this for {id}");
    Err(Problem::new(ProblemKind::Forbidden, detail).with_code("forbidden"))
}

async fn change(
    app: &App,
    principal: &Principal,
    id: &str,
    conditions: &Conditions,
    given: NetworkServiceConfigUpdate,
) -> Result<Json<NetworkServiceConfig>, Problem> {
    let id: ConfigId = path_id(id)?;
    let config = writable(principal, id, OperationKind::MoveEnd)?;
    let kind = config
        .service
        .stored(&principal.snapshot.exchange)
        .map(|service| service.kind);
    if given
        .kind
        .as_deref()
        .is_some_and(|given| kind.map(type_of) != Some(given))
    {
        return Err(invalid("type", "the type of a config cannot change"));
    }
    if given.asns.as_ref().is_some_and(|asns| *asns != config.asns) {
        return Err(invalid(
            "asns",
            "the autonomous systems of a config cannot change: order a new one",
        ));
    }
    let mut operations = Vec::new();
    let connection: ConnectionId = match &given.connection {
        Some(text) => identifier("connection", text)?,
        None => config.connection,
    };
    let vlan = match &given.vlan_config {
        Some(vlan) => vlan.request()?,
        None => VlanRequest::from(config.vlan),
    };
    if connection != config.connection || vlan != VlanRequest::from(config.vlan) {
        operations.push(Operation::MoveEnd {
            config: id,
            connection,
            vlan,
        });
    }
    if let Some(capacity) = given
        .capacity
        .filter(|capacity| *capacity != config.capacity_mbps)
    {
        operations.push(Operation::SetRate {
            config: id,
            capacity_mbps: capacity,
        });
    }
    let mut added: Vec<MacChange> = Vec::new();
    if let Some(macs) = &given.macs {
        let present = addresses::macs_of(app, principal, id);
        let new: Vec<String> = macs
            .iter()
            .filter(|mac| !present.contains(mac))
            .cloned()
            .collect();
        for gone in present.iter().filter(|mac| !macs.contains(mac)) {
            operations.extend(addresses::removals(app, principal, gone, Some(id)));
        }
        added = addresses::resolve(app, principal, &new)?;
        operations.extend(added.iter().map(|mac| mac.add(id)));
    }
    order(app, principal, conditions, operations, &given).await?;
    let mut facts = extra(app, id);
    if let Some(managing) = given.managing_account {
        super::view::account(principal, "managing_account", &managing)?;
        facts.managing_account = Some(managing);
    }
    facts.listed = given.listed.or(facts.listed);
    let mut billed = facts.billed(config.account);
    billed.change(
        given.billing_account,
        given.purchase_order,
        given.contract_ref,
        given.role_assignments,
    );
    billed.check(principal)?;
    check_assignments(app, principal, &billed.role_assignments)?;
    facts.billed = Some(billed);
    put_extra(app, id, &facts)?;
    let principal = renewed(app, principal);
    addresses::link(app, &principal, id, &added)?;
    view(app, &principal, id).map(Json)
}

/// Change a network service config
#[utoipa::path(patch, path = "/api/v2/network-service-configs/{id}", tag = "network-service-configs", operation_id = "network_service_configs_partial_update", request_body = NetworkServiceConfigUpdate, params(("id" = String, Path, description = "The config")),
    responses((status = 200, body = NetworkServiceConfig), (status = "default", body = IxProblem, content_type = "application/problem+json")))]
pub(crate) async fn update(
    Shared(app): Shared<App>,
    principal: Principal,
    conditions: Conditions,
    Path(id): Path<String>,
    Body(given): Body<NetworkServiceConfigUpdate>,
) -> Result<Json<NetworkServiceConfig>, Problem> {
    change(&app, &principal, &id, &conditions, given).await
}

/// Change a network service config; absent properties stay
#[utoipa::path(put, path = "/api/v2/network-service-configs/{id}", tag = "network-service-configs", operation_id = "network_service_configs_update", request_body = NetworkServiceConfigUpdate, params(("id" = String, Path, description = "The config")),
    responses((status = 200, body = NetworkServiceConfig), (status = "default", body = IxProblem, content_type = "application/problem+json")))]
pub(crate) async fn replace(
    Shared(app): Shared<App>,
    principal: Principal,
    conditions: Conditions,
    Path(id): Path<String>,
    Body(given): Body<NetworkServiceConfigUpdate>,
) -> Result<Json<NetworkServiceConfig>, Problem> {
    change(&app, &principal, &id, &conditions, given).await
}

/// Remove an end from its service
#[utoipa::path(delete, path = "/api/v2/network-service-configs/{id}", tag = "network-service-configs", operation_id = "network_service_configs_destroy", params(("id" = String, Path, description = "The config")),
    responses((status = 200, body = NetworkServiceConfig), (status = "default", body = IxProblem, content_type = "application/problem+json")))]
pub(crate) async fn delete(
    Shared(app): Shared<App>,
    principal: Principal,
    conditions: Conditions,
    Path(id): Path<String>,
) -> Result<Json<NetworkServiceConfig>, Problem> {
    let id: ConfigId = path_id(&id)?;
    writable(&principal, id, OperationKind::DeleteEnd)?;
    let mut gone = view(&app, &principal, id)?;
    let target = id.into();
    order(
        &app,
        &principal,
        &conditions,
        vec![Operation::Delete { target }],
        &(),
    )
    .await?;
    super::features::forget(&app, id)?;
    gone.base_mut().stated = Stated::plain(State::DecommissionRequested);
    Ok(Json(gone))
}

/// Read when a network service config can end
#[utoipa::path(get, path = "/api/v2/network-service-configs/{id}/cancellation-policy", tag = "network-service-configs", operation_id = "network_service_config_cancellation_policy_read", params(("id" = String, Path, description = "The config")),
    responses((status = 200, body = CancellationPolicy), (status = "default", body = IxProblem, content_type = "application/problem+json")))]
pub(crate) async fn cancellation_policy(
    Shared(app): Shared<App>,
    principal: Principal,
    Path(id): Path<String>,
) -> Result<Json<CancellationPolicy>, Problem> {
    writable(&principal, path_id(&id)?, OperationKind::DeleteEnd)?;
    Ok(super::services::policy(&app))
}
