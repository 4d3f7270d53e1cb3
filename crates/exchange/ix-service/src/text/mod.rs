//! The exchange as text: TOML with names instead of identifiers, so that it can be kept in version control and applied.
//!
//! A document has sites, switches, trunks, accounts, connections, policies, services with their ends and addresses, and the
//! exceptions from the check of ownership that operators have granted. `ix-api` adds what accounts keep at the exchange: contacts,
//! joining rules, sessions with route servers. Users, service keys, other filters and approvals are not in it: they belong to people,
//! not to the operator's text.
//!
//! [`operations`] returns the operations that can be executed now; objects that refer to new ones follow in the next
//! round, so that [`operations`] is called until it returns none. Each field of the text is applied, or refused by name.
//!
//! An exported text names its [`Base`]: the exchange that its reader has seen. A text whose base is not the present exchange is
//! refused, because it would undo what others have ordered since.

mod base;
mod filters;
mod fixed;
mod kept;
mod operations;

use std::collections::{BTreeMap, BTreeSet};

use millrace_ix_model::state::CommercialState;
use millrace_ix_model::{
    AccountId, AccountKind, Config, ConfigId, ConnectionKind, EndRole, Exchange, LanPolicy, Limits, PortId,
    Prefix, Service, ServiceId, ServiceKind, SwitchPort, Timestamp, TrunkKind, VlanConfig,
};
use serde::{Deserialize, Serialize};

pub(crate) use base::{BASES, Bases, deletions};
pub use base::{Base, DELETIONS_MAX};
pub use kept::{ContactText, JoiningRuleText, Kept, RouteServerSessionText};
pub use operations::operations;

/// The most rounds that a document needs: sites, switches, trunks, connections, services, ends, addresses.
pub(crate) const ROUNDS_MAX: usize = 12;

/// An exchange as text.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Document {
    /// The exchange from which the text was exported; absent in a text that was written by hand.
    #[serde(skip_serializing_if = "Option::is_none")]
    base: Option<Base>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    site: Vec<SiteText>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    switch: Vec<SwitchText>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    trunk: Vec<TrunkText>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    account: Vec<AccountText>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    policy: Vec<LanPolicy>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    connection: Vec<ConnectionText>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    service: Vec<ServiceText>,
    /// The exceptions of operators; a text without this part leaves them alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    filter: Option<Vec<filters::FilterText>>,
    /// The contacts of accounts; a text without this part leaves them alone, as with the next ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    contact: Option<Vec<ContactText>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    joining_rule: Option<Vec<JoiningRuleText>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    route_server_session: Option<Vec<RouteServerSessionText>>,
}

impl Document {
    /// Returns the document without the filters that have ended.
    pub(crate) fn without_ended(&self, now: Timestamp) -> Document {
        let mut document = self.clone();
        if let Some(filters) = &mut document.filter {
            filters.retain(|filter| !filter.is_over(now));
        }
        document
    }

    /// Returns true if the document has no object.
    fn is_empty(&self) -> bool {
        let empty = Document {
            base: self.base.clone(),
            ..Document::default()
        };
        let mut empty = empty.with_kept(self.kept());
        empty.base.clone_from(&self.base);
        *self == empty
    }
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SiteText {
    name: String,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SwitchText {
    name: String,
    site: String,
    dpid: String,
    ports: Vec<SwitchPort>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    retired: bool,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TrunkText {
    name: String,
    kind: TrunkKind,
    /// Ports as SWITCH:NUMBER.
    ends: [String; 2],
    cost: u32,
    capacity_mbps: u32,
    mtu: u16,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    risk_group: Option<String>,
    #[serde(default)]
    drained: bool,
    #[serde(default = "whole", skip_serializing_if = "is_whole")]
    contract_percent: u32,
}

/// Returns the share of a trunk's capacity that contracts may fill, in percent, if the file names none.
const fn whole() -> u32 {
    100
}

#[allow(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde calls it with a reference"
)]
const fn is_whole(percent: &u32) -> bool {
    *percent == whole()
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct AccountText {
    name: String,
    kind: AccountKind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    parent: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    asns: BTreeSet<u32>,
    #[serde(default)]
    discoverable: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    as_set: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    external_ref: Option<String>,
    #[serde(default, skip_serializing_if = "Limits::is_default")]
    limits: Limits,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ConnectionText {
    account: String,
    name: String,
    kind: ConnectionKind,
    /// Ports as SWITCH:NUMBER.
    ports: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    external_ref: Option<String>,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ServiceText {
    account: String,
    name: String,
    kind: ServiceKind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    peer: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    policy: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    networks: Vec<Prefix>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    external_ref: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    end: Vec<EndText>,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct EndText {
    /// The account and the name of the connection.
    connection: [String; 2],
    vlan: VlanConfig,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    capacity_mbps: Option<u32>,
    #[serde(default)]
    role: EndRole,
    #[serde(default)]
    shut_down: bool,
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    asns: BTreeSet<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    external_ref: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    macs: BTreeSet<String>,
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    ips: BTreeSet<String>,
}

/// Returns true for a service in use for which no decommissioning was ordered.
fn is_wanted(service: &Service) -> bool {
    service.state.is_carried() && service.state != CommercialState::DecommissionRequested
}

/// Returns the document of an exchange, sorted by name.
pub fn document(exchange: &Exchange) -> Document {
    let account = |id: AccountId| {
        exchange
            .accounts
            .get(&id)
            .map_or_else(|| id.to_string(), |account| account.name.clone())
    };
    let port = |port: &PortId| match exchange.switches.get(&port.switch) {
        Some(switch) => format!("{}:{}", switch.name, port.port.raw()),
        None => port.to_string(),
    };
    let mut ends: BTreeMap<ServiceId, Vec<EndText>> = BTreeMap::new();
    for (id, config) in &exchange.configs {
        ends.entry(config.service)
            .or_default()
            .extend(end_text(exchange, *id, config));
    }
    let mut document = Document {
        base: None,
        site: exchange
            .sites
            .values()
            .map(|site| SiteText {
                name: site.name.clone(),
            })
            .collect(),
        switch: exchange
            .switches
            .values()
            .map(|switch| SwitchText {
                name: switch.name.clone(),
                site: exchange
                    .sites
                    .get(&switch.site)
                    .map_or_else(|| switch.site.to_string(), |site| site.name.clone()),
                dpid: switch.dpid.to_string(),
                ports: switch.ports.clone(),
                retired: switch.retired,
            })
            .collect(),
        trunk: exchange
            .trunks
            .values()
            .map(|trunk| TrunkText {
                name: trunk.name.clone(),
                kind: trunk.kind,
                ends: [port(&trunk.ends[0]), port(&trunk.ends[1])],
                cost: trunk.cost,
                capacity_mbps: trunk.capacity_mbps,
                mtu: trunk.mtu,
                risk_group: trunk.risk_group.clone(),
                drained: trunk.drained,
                contract_percent: trunk.contract_percent,
            })
            .collect(),
        account: exchange
            .accounts
            .values()
            .map(|found| AccountText {
                name: found.name.clone(),
                kind: found.kind,
                parent: found.parent.map(account),
                asns: found.asns.clone(),
                discoverable: found.discoverable,
                as_set: found.as_set.clone(),
                limits: found.limits,
                external_ref: found.external_ref.clone(),
            })
            .collect(),
        policy: exchange.policies.values().cloned().collect(),
        connection: exchange
            .connections
            .values()
            .map(|found| ConnectionText {
                account: account(found.account),
                name: found.name.clone(),
                kind: found.kind,
                ports: found.ports.iter().map(port).collect(),
                external_ref: found.external_ref.clone(),
            })
            .collect(),
        service: exchange
            .services
            .iter()
            .filter(|(_, service)| is_wanted(service))
            .map(|(id, found)| ServiceText {
                account: account(found.account),
                name: found.name.clone(),
                kind: found.kind,
                peer: found.peer.map(account),
                policy: found
                    .policy
                    .and_then(|policy| exchange.policies.get(&policy))
                    .map(|policy| policy.name.clone()),
                networks: found.networks.clone(),
                external_ref: found.external_ref.clone(),
                end: ends.remove(id).unwrap_or_default(),
            })
            .collect(),
        filter: filters::texts(exchange),
        contact: None,
        joining_rule: None,
        route_server_session: None,
    };
    document.site.sort_by(|one, two| one.name.cmp(&two.name));
    document.switch.sort_by(|one, two| one.name.cmp(&two.name));
    document.trunk.sort_by(|one, two| one.name.cmp(&two.name));
    document.account.sort_by(|one, two| one.name.cmp(&two.name));
    document.policy.sort_by(|one, two| one.name.cmp(&two.name));
    document
        .connection
        .sort_by(|one, two| (&one.account, &one.name).cmp(&(&two.account, &two.name)));
    document
        .service
        .sort_by(|one, two| (&one.account, &one.name).cmp(&(&two.account, &two.name)));
    document
}

fn end_text(exchange: &Exchange, id: ConfigId, config: &Config) -> Option<EndText> {
    let connection = exchange.connections.get(&config.connection)?;
    let account = exchange.accounts.get(&connection.account)?;
    let macs = exchange
        .macs
        .values()
        .filter(|mac| mac.config == id && mac.valid_until.is_none());
    let ips = exchange
        .ips
        .values()
        .filter(|ip| ip.config == id && ip.valid_until.is_none());
    Some(EndText {
        connection: [account.name.clone(), connection.name.clone()],
        vlan: config.vlan,
        capacity_mbps: config.capacity_mbps,
        role: config.role,
        shut_down: config.shut_down,
        asns: config.asns.clone(),
        external_ref: config.external_ref.clone(),
        macs: macs.map(|mac| mac.address.to_string()).collect(),
        ips: ips.map(|ip| ip.address.to_string()).collect(),
    })
}
