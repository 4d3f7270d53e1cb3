//! The shape of the text, for serde.

use core::net::IpAddr;
use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use toml::Spanned;

use crate::account::{AccountKind, Role};
use crate::fabric::TrunkKind;
use crate::filter::{FilterAction, FilterMatch, FilterOrigin, FilterState};
use crate::prefix::Prefix;
use crate::service::{ConnectionKind, Consent, EndRole, LanPolicy, Quarantine, ServiceKind};
use crate::state::CommercialState;
use crate::time::Timestamp;
use crate::vlan::VlanConfig;

/// A name, or a reference by name, with its position in the text.
pub(super) type Name = Spanned<String>;

/// Returns a name that is not from a text.
pub(super) fn name(text: &str) -> Name {
    Spanned::new(0..0, text.to_owned())
}

#[derive(Serialize, Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub(super) struct Form {
    #[serde(default, rename = "site", skip_serializing_if = "Vec::is_empty")]
    pub(super) sites: Vec<SiteForm>,
    #[serde(default, rename = "switch", skip_serializing_if = "Vec::is_empty")]
    pub(super) switches: Vec<SwitchForm>,
    #[serde(default, rename = "trunk", skip_serializing_if = "Vec::is_empty")]
    pub(super) trunks: Vec<TrunkForm>,
    #[serde(default, rename = "policy", skip_serializing_if = "Vec::is_empty")]
    pub(super) policies: Vec<Spanned<LanPolicy>>,
    #[serde(default, rename = "account", skip_serializing_if = "Vec::is_empty")]
    pub(super) accounts: Vec<AccountForm>,
    #[serde(default, rename = "user", skip_serializing_if = "Vec::is_empty")]
    pub(super) users: Vec<UserForm>,
    #[serde(default, rename = "connection", skip_serializing_if = "Vec::is_empty")]
    pub(super) connections: Vec<ConnectionForm>,
    #[serde(default, rename = "service", skip_serializing_if = "Vec::is_empty")]
    pub(super) services: Vec<ServiceForm>,
    #[serde(default, rename = "filter", skip_serializing_if = "Vec::is_empty")]
    pub(super) filters: Vec<FilterForm>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SiteForm {
    pub(super) name: Name,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SwitchForm {
    pub(super) name: Name,
    pub(super) site: Name,
    pub(super) dpid: Name,
    /// Speed in Mbit/s by port, or by a range such as `1-40`.
    pub(super) ports: BTreeMap<String, u32>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TrunkForm {
    pub(super) name: Name,
    pub(super) kind: TrunkKind,
    pub(super) ends: [Name; 2],
    pub(super) cost: u32,
    pub(super) capacity_mbps: u32,
    pub(super) mtu: u16,
    pub(super) risk_group: Option<String>,
    #[serde(default, skip_serializing_if = "is_false")]
    pub(super) drained: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AccountForm {
    pub(super) name: Name,
    pub(super) kind: AccountKind,
    pub(super) parent: Option<Name>,
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(super) asns: BTreeSet<u32>,
    #[serde(default, skip_serializing_if = "is_false")]
    pub(super) discoverable: bool,
    pub(super) as_set: Option<String>,
    pub(super) external_ref: Option<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct UserForm {
    pub(super) name: Name,
    pub(super) account: Name,
    pub(super) roles: BTreeSet<Role>,
    pub(super) email: Option<String>,
    pub(super) language: Option<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ConnectionForm {
    pub(super) name: Name,
    pub(super) account: Name,
    pub(super) kind: ConnectionKind,
    pub(super) ports: Vec<Name>,
    pub(super) external_ref: Option<String>,
    pub(super) locked_by: Option<Name>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ServiceForm {
    pub(super) name: Name,
    pub(super) account: Name,
    pub(super) kind: ServiceKind,
    pub(super) state: CommercialState,
    pub(super) peer: Option<Name>,
    pub(super) policy: Option<Name>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) networks: Vec<Prefix>,
    pub(super) external_ref: Option<String>,
    pub(super) locked_by: Option<Name>,
    pub(super) consent: Consent,
    #[serde(default, rename = "end", skip_serializing_if = "Vec::is_empty")]
    pub(super) ends: Vec<EndForm>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EndForm {
    pub(super) connection: Name,
    pub(super) account: Name,
    pub(super) capacity_mbps: Option<u32>,
    #[serde(default)]
    pub(super) role: EndRole,
    #[serde(default, skip_serializing_if = "is_false")]
    pub(super) shut_down: bool,
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(super) asns: BTreeSet<u32>,
    pub(super) external_ref: Option<String>,
    pub(super) locked_by: Option<Name>,
    pub(super) vlan: Spanned<VlanConfig>,
    pub(super) quarantine: Quarantine,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) macs: Vec<MacForm>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) ips: Vec<IpForm>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MacForm {
    pub(super) address: Name,
    pub(super) valid_from: Timestamp,
    pub(super) valid_until: Option<Timestamp>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct IpForm {
    pub(super) address: Spanned<IpAddr>,
    pub(super) valid_until: Option<Timestamp>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FilterForm {
    pub(super) account: Name,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) peers: Vec<Name>,
    pub(super) origin: FilterOrigin,
    pub(super) rank: u32,
    pub(super) valid_until: Option<Timestamp>,
    pub(super) comment: Option<String>,
    pub(super) external_ref: Option<String>,
    pub(super) action: FilterAction,
    pub(super) state: FilterState,
    #[serde(rename = "match")]
    pub(super) matching: Spanned<FilterMatch>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn is_false(value: &bool) -> bool {
    !value
}
