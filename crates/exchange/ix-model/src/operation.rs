//! Orders: every change of the exchange that anybody can request.

use core::net::IpAddr;
use std::collections::BTreeSet;

use millrace_types::{Dpid, Mac};
use serde::{Deserialize, Serialize};

use crate::account::{AccountKind, Limits, Role};
use crate::exchange::ObjectId;
use crate::fabric::{PortId, SwitchPort, TrunkKind};
use crate::filter::{FilterAction, FilterMatch, FilterOrigin, FilterState};
use crate::id::{
    AccountId, ApprovalId, ConfigId, ConnectionId, FilterId, IpId, MacId, PolicyId, ServiceId, ServiceKeyId,
    SiteId, SwitchId, TrunkId, UserId,
};
use crate::prefix::Prefix;
use crate::serde_text;
use crate::service::{ConnectionKind, EndRole, LanPolicy, PoolKind, ServiceKind};
use crate::time::Timestamp;
use crate::vlan::VlanRequest;

/// An order. The fields have the meaning of the object's fields of the same name; `account` is the account of
/// the new object, which is the actor's account if absent.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "operation", rename_all = "snake_case")]
#[allow(
    clippy::large_enum_variant,
    reason = "orders are few and short-lived; a filter is the largest"
)]
pub enum Operation {
    /// Adds a site.
    CreateSite { name: String },
    /// Adds a switch.
    CreateSwitch {
        name: String,
        site: SiteId,
        #[serde(with = "serde_text")]
        dpid: Dpid,
        ports: Vec<SwitchPort>,
    },
    /// Replaces the ports of a switch.
    SetPorts {
        switch: SwitchId,
        ports: Vec<SwitchPort>,
    },
    /// Changes the site or the datapath id of a switch; absent fields stay. A replacement switch has another datapath id,
    /// and gets the entries of the one that it replaces.
    UpdateSwitch {
        switch: SwitchId,
        #[serde(default)]
        site: Option<SiteId>,
        #[serde(default, with = "serde_text::option")]
        dpid: Option<Dpid>,
    },
    /// Takes a switch that does not return out of service, or puts it back: while it is not connected, no change waits for it.
    RetireSwitch { switch: SwitchId, retired: bool },
    /// Adds a trunk.
    CreateTrunk {
        name: String,
        kind: TrunkKind,
        ends: [PortId; 2],
        #[serde(default = "default_cost")]
        cost: u32,
        capacity_mbps: u32,
        mtu: u16,
        #[serde(default)]
        risk_group: Option<String>,
        #[serde(default = "crate::fabric::contract_percent")]
        contract_percent: u32,
    },
    /// Replaces the ends, the cost, the capacity, the MTU, the risk group and the admitted share of a trunk. The ends stay
    /// at the same two switches.
    UpdateTrunk {
        trunk: TrunkId,
        ends: [PortId; 2],
        cost: u32,
        capacity_mbps: u32,
        mtu: u16,
        #[serde(default)]
        risk_group: Option<String>,
        contract_percent: u32,
    },
    /// Drains a trunk, or ends the drain.
    DrainTrunk { trunk: TrunkId, drained: bool },
    /// Adds an account.
    CreateAccount {
        name: String,
        kind: AccountKind,
        #[serde(default)]
        parent: Option<AccountId>,
        #[serde(default)]
        asns: BTreeSet<u32>,
        #[serde(default)]
        discoverable: bool,
        #[serde(default)]
        as_set: Option<String>,
        #[serde(default)]
        external_ref: Option<String>,
    },
    /// Changes an account; absent fields stay.
    UpdateAccount {
        account: AccountId,
        #[serde(default)]
        name: Option<String>,
        #[serde(default)]
        asns: Option<BTreeSet<u32>>,
        #[serde(default)]
        discoverable: Option<bool>,
        #[serde(default)]
        as_set: Option<String>,
        /// Only the exchange's staff may set limits.
        #[serde(default)]
        limits: Option<Limits>,
    },
    /// Adds a user.
    CreateUser {
        name: String,
        #[serde(default)]
        account: Option<AccountId>,
        roles: BTreeSet<Role>,
        #[serde(default)]
        email: Option<String>,
        #[serde(default)]
        language: Option<String>,
    },
    /// Changes a user; absent fields stay.
    UpdateUser {
        user: UserId,
        #[serde(default)]
        roles: Option<BTreeSet<Role>>,
        #[serde(default)]
        email: Option<String>,
        #[serde(default)]
        language: Option<String>,
        #[serde(default)]
        deactivated: Option<bool>,
    },
    /// Adds a connection.
    CreateConnection {
        #[serde(default)]
        account: Option<AccountId>,
        name: String,
        kind: ConnectionKind,
        ports: Vec<PortId>,
        #[serde(default)]
        external_ref: Option<String>,
    },
    /// Changes the ports of a connection.
    SetConnectionPorts {
        connection: ConnectionId,
        kind: ConnectionKind,
        ports: Vec<PortId>,
    },
    /// Orders a service. `peer` invites another account to the second end of a `p2p_vc`.
    CreateService {
        #[serde(default)]
        account: Option<AccountId>,
        kind: ServiceKind,
        name: String,
        #[serde(default)]
        peer: Option<AccountId>,
        #[serde(default)]
        policy: Option<PolicyId>,
        #[serde(default)]
        networks: Vec<Prefix>,
        #[serde(default)]
        external_ref: Option<String>,
    },
    /// Replaces the networks of a peering LAN. They contain every registered address.
    SetNetworks {
        service: ServiceId,
        networks: Vec<Prefix>,
    },
    /// Changes the name of a service.
    RenameService { service: ServiceId, name: String },
    /// Configures an end of a service.
    ConfigureEnd {
        service: ServiceId,
        connection: ConnectionId,
        vlan: VlanRequest,
        #[serde(default)]
        capacity_mbps: Option<u32>,
        #[serde(default)]
        role: EndRole,
        #[serde(default)]
        asns: BTreeSet<u32>,
        #[serde(default)]
        external_ref: Option<String>,
    },
    /// Accepts the invitation to a service.
    Accept { service: ServiceId },
    /// Refuses the invitation to a service.
    Refuse { service: ServiceId, reason: String },
    /// Moves an end to another connection or to other tags.
    MoveEnd {
        config: ConfigId,
        connection: ConnectionId,
        vlan: VlanRequest,
    },
    /// Changes the contracted rate of an end; `null` is the speed of the connection.
    SetRate {
        config: ConfigId,
        capacity_mbps: Option<u32>,
    },
    /// Shuts an end down, for example for a failover test, or enables it again.
    ShutDown { config: ConfigId, shut_down: bool },
    /// Ends the quarantine of an end before the clean time is over.
    WaiveQuarantine { config: ConfigId, reason: String },
    /// Locks a service, an end or a connection against deletion.
    Lock { target: ObjectId },
    /// Removes a lock. Another account's lock needs two operators.
    Unlock { target: ObjectId },
    /// Deletes an object. A LAN and a trunk in use need two operators.
    Delete { target: ObjectId },
    /// Executes an order that waits for a second person.
    Approve { approval: ApprovalId },
    /// Creates a service key. The caller generates `secret`.
    CreateServiceKey {
        service: ServiceId,
        secret: String,
        valid_until: Timestamp,
        #[serde(default)]
        vlans: Option<(u16, u16)>,
        #[serde(default)]
        capacity_mbps: Option<u32>,
    },
    /// Configures the other end of a service with a service key.
    RedeemServiceKey {
        secret: String,
        connection: ConnectionId,
        vlan: VlanRequest,
        #[serde(default)]
        capacity_mbps: Option<u32>,
        #[serde(default)]
        asns: BTreeSet<u32>,
    },
    /// Registers a MAC address of an end.
    AddMac {
        config: ConfigId,
        #[serde(with = "serde_text")]
        address: Mac,
        #[serde(default)]
        valid_from: Option<Timestamp>,
        #[serde(default)]
        valid_until: Option<Timestamp>,
    },
    /// Changes the end of validity of a MAC address.
    SetMacEnd {
        mac: MacId,
        valid_until: Option<Timestamp>,
    },
    /// Removes a MAC address.
    RemoveMac { mac: MacId },
    /// Assigns an IP address of a peering LAN to an end.
    AddIp {
        config: ConfigId,
        address: IpAddr,
        #[serde(default)]
        valid_until: Option<Timestamp>,
    },
    /// Removes an IP address from its end.
    RemoveIp { ip: IpId },
    /// Adds a policy of peering LANs.
    CreatePolicy { policy: LanPolicy },
    /// Replaces a policy of peering LANs.
    UpdatePolicy { id: PolicyId, policy: LanPolicy },
    /// Adds a filter. The caller checks the ownership and sets the state.
    CreateFilter {
        #[serde(default)]
        account: Option<AccountId>,
        matching: FilterMatch,
        #[serde(default)]
        alternatives: Vec<FilterMatch>,
        #[serde(default)]
        peers: BTreeSet<AccountId>,
        action: FilterAction,
        origin: FilterOrigin,
        #[serde(default)]
        rank: u32,
        #[serde(default)]
        order: String,
        state: FilterState,
        #[serde(default)]
        valid_until: Option<Timestamp>,
        /// The end of an operator's exception. Ownership is not checked until then.
        #[serde(default)]
        exempt_until: Option<Timestamp>,
        #[serde(default)]
        comment: Option<String>,
        #[serde(default)]
        external_ref: Option<String>,
    },
    /// Changes the state, the rank or the end of a filter; absent fields stay.
    UpdateFilter {
        filter: FilterId,
        #[serde(default)]
        state: Option<FilterState>,
        #[serde(default)]
        rank: Option<u32>,
        #[serde(default)]
        valid_until: Option<Timestamp>,
    },
    /// Removes a filter.
    DeleteFilter { filter: FilterId },
    /// Withdraws a service key.
    RevokeServiceKey { key: ServiceKeyId },
    /// Reports that a service is installed in the switches (the engine only).
    ReportInPlace { service: ServiceId, generation: u32 },
    /// Reports that no switch has a rule of a service after its deletion was ordered (the engine only).
    ReportRemoved { service: ServiceId },
    /// Reports an offending frame, or that the clean time is over (the engine only).
    ReportQuarantine { config: ConfigId, clean: bool },
    /// Reports that no switch has a rule with these numbers (the engine only).
    ReportRulesGone { numbers: Vec<(PoolKind, u32)> },
    /// Reports the trunks that pass no frames. Circuits without another trunk between the same switches take
    /// another path, if there is one (the engine only).
    ReportTrunksDown { trunks: Vec<TrunkId> },
    /// Removes expired addresses and keys, and ends expired filters (the engine only).
    Expire,
}

/// Returns the default cost of a trunk.
const fn default_cost() -> u32 {
    10
}

/// The kind of an order or of a read access: a row of the permission table.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OperationKind {
    CreateSite,
    CreateSwitch,
    SetPorts,
    RetireSwitch,
    CreateTrunk,
    DrainTrunk,
    CreateAccount,
    UpdateAccount,
    CreateUser,
    UpdateUser,
    CreateConnection,
    SetConnectionPorts,
    CreateService,
    CreateLan,
    RenameService,
    ConfigureEnd,
    Accept,
    Refuse,
    MoveEnd,
    SetRate,
    ShutDown,
    WaiveQuarantine,
    Lock,
    Unlock,
    DeleteService,
    DeleteEnd,
    DeleteConnection,
    DeleteAccount,
    DeleteUser,
    DeleteFabric,
    Approve,
    CreateServiceKey,
    RedeemServiceKey,
    RevokeServiceKey,
    AddMac,
    RemoveMac,
    AddIp,
    RemoveIp,
    WritePolicy,
    WriteFilter,
    Report,
    OrderCrossConnect,
    WriteNotice,
    WriteContact,
    WriteWebhook,
    ReadPresence,
    ReadAccount,
    ReadUsers,
    ReadConnection,
    ReadService,
    ReadEnd,
    ReadServiceKey,
    ReadFilter,
    ReadTraffic,
    ReadSamples,
    ReadPolicy,
    ReadFabric,
    ReadChanges,
    ReadAudit,
    ReadContact,
    ReadWebhook,
    ReadStatus,
}

impl OperationKind {
    /// All kinds.
    pub const ALL: [OperationKind; 62] = {
        use OperationKind as K;
        [
            K::CreateSite,
            K::CreateSwitch,
            K::SetPorts,
            K::RetireSwitch,
            K::CreateTrunk,
            K::DrainTrunk,
            K::CreateAccount,
            K::UpdateAccount,
            K::CreateUser,
            K::UpdateUser,
            K::CreateConnection,
            K::SetConnectionPorts,
            K::CreateService,
            K::CreateLan,
            K::RenameService,
            K::ConfigureEnd,
            K::Accept,
            K::Refuse,
            K::MoveEnd,
            K::SetRate,
            K::ShutDown,
            K::WaiveQuarantine,
            K::Lock,
            K::Unlock,
            K::DeleteService,
            K::DeleteEnd,
            K::DeleteConnection,
            K::DeleteAccount,
            K::DeleteUser,
            K::DeleteFabric,
            K::Approve,
            K::CreateServiceKey,
            K::RedeemServiceKey,
            K::RevokeServiceKey,
            K::AddMac,
            K::RemoveMac,
            K::AddIp,
            K::RemoveIp,
            K::WritePolicy,
            K::WriteFilter,
            K::Report,
            K::OrderCrossConnect,
            K::WriteNotice,
            K::WriteContact,
            K::WriteWebhook,
            K::ReadPresence,
            K::ReadAccount,
            K::ReadUsers,
            K::ReadConnection,
            K::ReadService,
            K::ReadEnd,
            K::ReadServiceKey,
            K::ReadFilter,
            K::ReadTraffic,
            K::ReadSamples,
            K::ReadPolicy,
            K::ReadFabric,
            K::ReadChanges,
            K::ReadAudit,
            K::ReadContact,
            K::ReadWebhook,
            K::ReadStatus,
        ]
    };

    /// Returns true for read access.
    pub const fn is_read(self) -> bool {
        self as u8 >= OperationKind::ReadPresence as u8
    }
}

impl Operation {
    /// Returns the row of the permission table.
    pub const fn kind(&self) -> OperationKind {
        use OperationKind as K;
        match self {
            Operation::CreateSite { .. } => K::CreateSite,
            Operation::CreateSwitch { .. } => K::CreateSwitch,
            Operation::SetPorts { .. } | Operation::UpdateSwitch { .. } => K::SetPorts,
            Operation::RetireSwitch { .. } => K::RetireSwitch,
            Operation::CreateTrunk { .. } | Operation::UpdateTrunk { .. } => K::CreateTrunk,
            Operation::DrainTrunk { .. } => K::DrainTrunk,
            Operation::CreateAccount { .. } => K::CreateAccount,
            Operation::UpdateAccount { .. } => K::UpdateAccount,
            Operation::CreateUser { .. } => K::CreateUser,
            Operation::UpdateUser { .. } => K::UpdateUser,
            Operation::CreateConnection { .. } => K::CreateConnection,
            Operation::SetConnectionPorts { .. } => K::SetConnectionPorts,
            Operation::CreateService {
                kind: ServiceKind::ExchangeLan,
                ..
            }
            | Operation::SetNetworks { .. } => K::CreateLan,
            Operation::CreateService { .. } => K::CreateService,
            Operation::RenameService { .. } => K::RenameService,
            Operation::ConfigureEnd { .. } => K::ConfigureEnd,
            Operation::Accept { .. } => K::Accept,
            Operation::Refuse { .. } => K::Refuse,
            Operation::MoveEnd { .. } => K::MoveEnd,
            Operation::SetRate { .. } => K::SetRate,
            Operation::ShutDown { .. } => K::ShutDown,
            Operation::WaiveQuarantine { .. } => K::WaiveQuarantine,
            Operation::Lock { .. } => K::Lock,
            Operation::Unlock { .. } => K::Unlock,
            Operation::Delete { target } => match target {
                ObjectId::Service(_) => K::DeleteService,
                ObjectId::Config(_) => K::DeleteEnd,
                ObjectId::Connection(_) => K::DeleteConnection,
                ObjectId::Account(_) => K::DeleteAccount,
                ObjectId::User(_) => K::DeleteUser,
                ObjectId::Mac(_) => K::RemoveMac,
                ObjectId::Ip(_) => K::RemoveIp,
                ObjectId::Filter(_) => K::WriteFilter,
                ObjectId::ServiceKey(_) => K::RevokeServiceKey,
                ObjectId::Policy(_) => K::WritePolicy,
                ObjectId::Site(_) | ObjectId::Switch(_) | ObjectId::Trunk(_) => K::DeleteFabric,
                ObjectId::Approval(_) => K::Approve,
            },
            Operation::Approve { .. } => K::Approve,
            Operation::CreateServiceKey { .. } => K::CreateServiceKey,
            Operation::RedeemServiceKey { .. } => K::RedeemServiceKey,
            Operation::RevokeServiceKey { .. } => K::RevokeServiceKey,
            Operation::AddMac { .. } | Operation::SetMacEnd { .. } => K::AddMac,
            Operation::RemoveMac { .. } => K::RemoveMac,
            Operation::AddIp { .. } => K::AddIp,
            Operation::RemoveIp { .. } => K::RemoveIp,
            Operation::CreatePolicy { .. } | Operation::UpdatePolicy { .. } => K::WritePolicy,
            Operation::CreateFilter { .. }
            | Operation::UpdateFilter { .. }
            | Operation::DeleteFilter { .. } => K::WriteFilter,
            Operation::ReportInPlace { .. }
            | Operation::ReportRemoved { .. }
            | Operation::ReportQuarantine { .. }
            | Operation::ReportRulesGone { .. }
            | Operation::ReportTrunksDown { .. }
            | Operation::Expire => K::Report,
        }
    }
}
