//! Configs as IX-API shows them.

use millrace_ix_model::{Config, ConfigId, EndRole, Key as _, ServiceId, ServiceKind};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::vlan::VlanConfig;
use crate::access::Principal;
use crate::app::App;
use crate::problem::Problem;
use crate::v2::orders::{end_state, is_listed, ix_api_properties};
use crate::v2::places::offering_id;
use crate::v2::view::{Billed, IxApiProperties, Owned, Stateful};
use crate::v2::{addresses, features};

/// The parts that all configs have.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct ConfigBase {
    /// The identifier.
    id: String,
    #[serde(flatten)]
    pub(super) stateful: Stateful,
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

impl From<EndRole> for Role {
    fn from(role: EndRole) -> Role {
        match role {
            EndRole::Root => Role::Root,
            EndRole::Leaf => Role::Leaf,
        }
    }
}

/// Returns the product offering of an end.
pub(super) fn offering_of(facts: &IxApiProperties, kind: ServiceKind, service: ServiceId) -> String {
    let lan = (kind == ServiceKind::ExchangeLan).then_some(service);
    let ordered = facts.product_offering.clone();
    ordered.unwrap_or_else(|| offering_id(kind, lan))
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
    /// Returns the parts that all configs have.
    pub(super) fn base_mut(&mut self) -> &mut ConfigBase {
        match self {
            NetworkServiceConfig::ExchangeLan(config) => &mut config.base,
            NetworkServiceConfig::P2pVc(base) => base,
            NetworkServiceConfig::P2mpVc(config) => &mut config.base,
            NetworkServiceConfig::Mp2mpVc(config) => &mut config.base,
        }
    }
}

/// Returns an end that the principal manages: the other party's end of a circuit is not shown.
pub(super) fn find(principal: &Principal, id: ConfigId) -> Result<&Config, Problem> {
    id.stored(&principal.snapshot.exchange)
        .filter(|config| principal.may_read(id) && principal.may_read(config.connection))
        .ok_or_else(|| Problem::absent(id))
}

/// Returns a config as its manager sees it.
///
/// # Errors
/// A problem if the principal does not manage the config.
pub(super) fn view(app: &App, principal: &Principal, id: ConfigId) -> Result<NetworkServiceConfig, Problem> {
    let config = find(principal, id)?;
    let exchange = &principal.snapshot.exchange;
    let kind = config
        .service
        .stored(exchange)
        .map_or(ServiceKind::P2pVc, |service| service.kind);
    let facts = ix_api_properties(app, id);
    let base = ConfigBase {
        id: id.to_string(),
        stateful: end_state(app, principal, id, config),
        owned: facts.owned(config.account, config.external_ref.as_ref()),
        billed: facts.billed(config.account),
        network_service: config.service.to_string(),
        connection: config.connection.to_string(),
        vlan_config: config.vlan.into(),
        capacity: config.capacity_mbps,
        network_feature_configs: features::configs_of(app, id),
    };
    let macs = || addresses::macs_of(app, principal, id);
    Ok(match kind {
        ServiceKind::P2pVc => NetworkServiceConfig::P2pVc(base),
        ServiceKind::P2mpVc => NetworkServiceConfig::P2mpVc(RoleConfig {
            base,
            role: config.role.into(),
        }),
        ServiceKind::Mp2mpVc => NetworkServiceConfig::Mp2mpVc(MacConfig { base, macs: macs() }),
        ServiceKind::ExchangeLan => {
            let ips = exchange.ips.iter().filter(|(_, ip)| ip.config == id);
            NetworkServiceConfig::ExchangeLan(LanConfig {
                base,
                asns: config.asns.iter().copied().collect(),
                listed: exchange
                    .accounts
                    .get(&config.account)
                    .is_some_and(|account| is_listed(app, id, account)),
                product_offering: offering_of(&facts, kind, config.service),
                macs: macs(),
                ips: ips.map(|(id, _)| id.to_string()).collect(),
            })
        }
    })
}
