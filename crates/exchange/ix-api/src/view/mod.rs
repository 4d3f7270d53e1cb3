//! The JSON values of the API. They are not the model's objects: an account sees less of another account's object than the
//! owner does, and only operators see numbers of the fabric.

mod fabric;
mod filters;
mod lan;
mod ordered;
mod route_servers;
mod series;
mod traffic;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

pub use fabric::{Impact, ImpactService, Load, Site, Switch, Trunk};
pub use filters::{
    AttackView, BgpSession, Breakdown, Counter, ExplainedStep, Explanation, Filter, Minute, NewFilter,
    PortRange, Share, Suggestion, Target, TcpFlags, Traffic,
};
pub use lan::{Approval, Check, Checklist, Finding, LanRules, Presence, RegisteredIp, ServiceKey};
pub use ordered::{Conflict, Ordered, PlannedSwitch};
pub use route_servers::{MemberRoute, RejectCause, RejectedRoute, RouteServerSession};
pub use series::{Billing, BillingRow, Graph, GraphLine, Period, PublicLink, PublicTraffic};
pub use traffic::{AccountTraffic, Flow, Matrix, MatrixPair, PeerTraffic};

/// A page of a collection.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct List<T> {
    /// The objects.
    pub items: Vec<T>,
    /// The cursor of the next page, for `after`; null on the last one.
    #[schema(required)]
    pub next: Option<String>,
    /// The number of objects in all pages.
    pub total: usize,
}

/// The name of an account, as every other account may see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct AccountName {
    /// The identifier.
    pub id: String,
    /// The name.
    pub name: String,
    /// The autonomous systems.
    pub asns: Vec<u32>,
}

/// The user who is signed in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Whoami {
    /// The user.
    pub user: String,
    /// The name with which the user signs in.
    pub name: String,
    /// The account.
    pub account: AccountName,
    /// The roles.
    pub roles: Vec<String>,
    /// True for the exchange's staff.
    pub operator: bool,
    /// The operations that the roles permit on at least one object, for menus. Each object lists the
    /// operations that are permitted on it.
    pub can: Vec<String>,
    /// The language of the user's pages, if one is chosen.
    #[schema(required)]
    pub language: Option<String>,
    /// The name of the exchange.
    pub exchange: String,
}

/// The severity of a status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Somebody must act.
    Error,
    /// Something is not as contracted.
    Warning,
    /// An operation is in progress, or waits for somebody else.
    Info,
}

/// One fact about an object's state, such as a fault or a missing step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Status {
    /// The severity.
    pub severity: Severity,
    /// The fact as a word, for programs and translations.
    pub tag: String,
    /// The fact in words.
    pub message: String,
    /// The sentences of the fact as codes, for translation; empty if the tag says everything.
    pub coded: Vec<Coded>,
}

/// A sentence as a code with parameters, which the page translates.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Coded {
    /// The code, such as `vlan-taken`.
    pub code: String,
    /// The parameters by name.
    pub values: BTreeMap<String, String>,
}

/// Converts sentences of the model to sentences of the API.
pub(crate) fn coded(sentences: &[millrace_ix_model::Coded]) -> Vec<Coded> {
    let all = sentences.iter().map(|coded| Coded {
        code: coded.code.clone(),
        values: coded.values.clone(),
    });
    all.collect()
}

/// An account.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Account {
    /// The identifier.
    pub id: String,
    /// The name.
    pub name: String,
    /// `exchange`, `reseller`, `member` or `authority`.
    pub kind: String,
    /// The account that manages this one.
    #[schema(required)]
    pub parent: Option<AccountName>,
    /// The autonomous systems.
    pub asns: Vec<u32>,
    /// True if other accounts find this one.
    pub discoverable: bool,
    /// The number of its connections.
    pub connections: usize,
    /// The number of services that it ordered or takes part in.
    pub services: usize,
    /// The revision, which is also the ETag.
    pub revision: u64,
    /// The operations that are permitted on it.
    pub can: Vec<String>,
}

/// A user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct User {
    /// The identifier.
    pub id: String,
    /// The name with which the user signs in.
    pub name: String,
    /// The account.
    pub account: AccountName,
    /// The roles.
    pub roles: Vec<String>,
    /// The mail address.
    #[schema(required)]
    pub email: Option<String>,
    /// True if the user may not sign in.
    pub deactivated: bool,
    /// The revision, which is also the ETag.
    pub revision: u64,
    /// The operations that are permitted on it.
    pub can: Vec<String>,
}

/// A port of a switch, in words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Port {
    /// The port: `sw-1:3`.
    pub id: String,
    /// The name of the switch.
    pub switch: String,
    /// The name of the site.
    pub site: String,
    /// The OpenFlow port number.
    pub number: u32,
    /// The speed in Mbit/s.
    pub speed_mbps: u32,
    /// True if the port has a link; null if the switch is not reachable.
    #[schema(required)]
    pub up: Option<bool>,
}

/// A connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Connection {
    /// The identifier.
    pub id: String,
    /// The name.
    pub name: String,
    /// The account.
    pub account: AccountName,
    /// `standalone`, `lag_static` or `lag_lacp`.
    pub kind: String,
    /// The site.
    pub site: String,
    /// The ports.
    pub ports: Vec<Port>,
    /// `up`, `degraded`, `down` or `unknown`.
    pub state: String,
    /// The speed of all ports in Mbit/s.
    pub speed_mbps: u32,
    /// The sum of the contracted rates of its ends in Mbit/s.
    pub reserved_mbps: u32,
    /// The number of service ends on the connection.
    pub ends: usize,
    /// The present rates; null if they are not measured.
    #[schema(required)]
    pub load: Option<Load>,
    /// The account that locked it against deletion.
    #[schema(required)]
    pub locked_by: Option<AccountName>,
    /// The revision, which is also the ETag.
    pub revision: u64,
    /// The operations that are permitted on it.
    pub can: Vec<String>,
}

/// The VLANs of a connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Vlans {
    /// The free ranges of VIDs for an end with one tag: first and last.
    pub free: Vec<[u16; 2]>,
    /// True if the connection has no end, so that an end may use the whole port.
    pub port: bool,
    /// The VIDs in use.
    pub taken: Vec<TakenVlan>,
}

/// A VLAN in use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct TakenVlan {
    /// The tags in words: `VLAN 100`.
    pub vlan: String,
    /// The VID of the outer tag; null for the whole port.
    #[schema(required)]
    pub outer: Option<u16>,
    /// The service that uses it.
    pub service: String,
    /// The name of the service.
    pub name: String,
}

/// The tags of the frames at an end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Vlan {
    /// The whole connection, untagged.
    Port,
    /// One tag. In an order, a null VID stands for the lowest free VID.
    Dot1q {
        /// The VID.
        #[serde(default)]
        vlan: Option<u16>,
    },
    /// Two tags. In an order, a null VID stands for the lowest free VID.
    Qinq {
        /// The VID of the outer tag.
        #[serde(default)]
        outer: Option<u16>,
        /// The VID of the inner tag.
        #[serde(default)]
        inner: Option<u16>,
    },
}

/// One connection's end of a service. Only account and site are shown of another account's end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct End {
    /// The identifier.
    pub id: String,
    /// The service.
    pub service: String,
    /// The account.
    pub account: AccountName,
    /// True if the end is shown in full.
    pub own: bool,
    /// The site.
    pub site: String,
    /// The connection.
    #[schema(required)]
    pub connection: Option<ConnectionName>,
    /// The tags.
    #[schema(required)]
    pub vlan: Option<Vlan>,
    /// The tags in words.
    #[schema(required)]
    pub vlan_text: Option<String>,
    /// The contracted rate in Mbit/s; null for the speed of the connection.
    #[schema(required)]
    pub capacity_mbps: Option<u32>,
    /// True while the end is shut down.
    pub shut_down: bool,
    /// The MAC addresses that are registered at it.
    pub macs: Vec<RegisteredMac>,
    /// The IP addresses that it has in a peering LAN.
    pub ips: Vec<RegisteredIp>,
    /// The state of the admission to a peering LAN: `not_needed`, `running`, `passed`, `waived`.
    pub quarantine: String,
    /// The checklist of the quarantine while it is running.
    #[schema(required)]
    pub checklist: Option<Checklist>,
    /// The revision, which is also the ETag.
    pub revision: u64,
    /// The operations that are permitted on it.
    pub can: Vec<String>,
}

/// A connection by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct ConnectionName {
    /// The identifier.
    pub id: String,
    /// The name.
    pub name: String,
    /// The ports in words, by the name of the switch: `otemachi-1:3`.
    pub ports: Vec<String>,
}

/// A MAC address that frames from an end may have as source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct RegisteredMac {
    /// The identifier.
    pub id: String,
    /// The address.
    pub address: String,
    /// The start of validity.
    pub valid_from: String,
    /// The end of validity; null for no end.
    #[schema(required)]
    pub valid_until: Option<String>,
}

/// A service: a circuit or a peering LAN.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Service {
    /// The identifier.
    pub id: String,
    /// The name.
    pub name: String,
    /// `p2p_vc`, `p2mp_vc`, `mp2mp_vc` or `exchange_lan`.
    pub kind: String,
    /// The account that ordered it.
    pub account: AccountName,
    /// The invited account.
    #[schema(required)]
    pub peer: Option<AccountName>,
    /// The state, derived from the commercial state, the state of the switches, and the consent of the
    /// invited account.
    pub state: String,
    /// The facts about the state, such as missing steps, the most severe first.
    pub status: Vec<Status>,
    /// The stages of its life in order, each with its state.
    pub stages: Vec<Stage>,
    /// The ends.
    pub ends: Vec<End>,
    /// `not_needed`, `pending`, `accepted` or `refused`.
    pub consent: String,
    /// The reason of a refusal.
    #[schema(required)]
    pub refused_because: Option<String>,
    /// The account that locked it against deletion.
    #[schema(required)]
    pub locked_by: Option<AccountName>,
    /// The networks of a peering LAN.
    pub networks: Vec<String>,
    /// The rules of a peering LAN.
    #[schema(required)]
    pub rules: Option<LanRules>,
    /// The version of the path that frames take.
    pub generation: u32,
    /// The path of frames through the fabric; empty before both ends are configured.
    pub path: Vec<Hop>,
    /// The revision, which is also the ETag.
    pub revision: u64,
    /// The operations that are permitted on it.
    pub can: Vec<String>,
}

/// A stage in the life of a service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Stage {
    /// The stage as a word: `ordered`, `consented`, `configured`, `installed`, `quarantine`, `production`, `removed`.
    pub stage: String,
    /// `done`, `current`, `failed` or `open`.
    pub state: String,
}

/// A hop of a path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Hop {
    /// `port`, `switch` or `trunk`.
    pub kind: String,
    /// The name.
    pub name: String,
    /// The site, for ports and switches.
    #[schema(required)]
    pub site: Option<String>,
    /// True if the hop is up; null if that is not known.
    #[schema(required)]
    pub up: Option<bool>,
}

/// A change in the journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Change {
    /// The number.
    pub id: String,
    /// The operation as a word.
    pub operation: String,
    /// The actor that ordered it.
    pub actor: String,
    /// The objects that it created, changed or deleted.
    pub objects: Vec<String>,
    /// `accepted`, `planned`, `staged`, `flipped`, `drained`, `cleaned` or `rolled_back`.
    pub state: String,
    /// The time of the order.
    pub accepted_at: String,
    /// The time of the last step.
    pub updated_at: String,
    /// The switches that have not answered.
    pub waiting_for: Vec<String>,
    /// The error of a switch, or the reason of a rollback.
    #[schema(required)]
    pub error: Option<String>,
    /// The time at which the change is undone unless somebody confirms it; null if it waits for no confirmation.
    #[schema(required)]
    pub confirm_until: Option<String>,
    /// True if the reader may confirm or undo the change.
    pub can_confirm: bool,
    /// The steps so far; only in a single change.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub steps: Vec<ChangeStep>,
}

/// A step of a change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct ChangeStep {
    /// The state that it entered.
    pub state: String,
    /// The time.
    pub at: String,
    /// Details in words.
    #[schema(required)]
    pub detail: Option<String>,
}

/// An entry of the audit chain.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct AuditEntry {
    /// The position in the chain.
    pub serial: u64,
    /// The time.
    pub time: String,
    /// The actor.
    pub actor: String,
    /// The act.
    pub action: String,
    /// The object.
    pub object: String,
    /// The name of the object, as the reader knows it; null for a collection, and for an object that does not exist any more.
    #[schema(required)]
    pub object_name: Option<String>,
    /// Further facts. Names stand for identifiers, except for operators and regulators, who verify the chain.
    pub detail: serde_json::Value,
    /// The SHA-256 of the entry in the chain, in hexadecimal.
    pub hash: String,
}

/// The waiting tasks, and the counts for the overview page.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Overview {
    /// The tasks that wait for somebody of this account.
    pub tasks: Vec<Task>,
    /// The number of services by state.
    pub services: Vec<Count>,
    /// The number of connections by state.
    pub connections: Vec<Count>,
    /// The number of switches by state; operators only.
    pub switches: Vec<Count>,
    /// The number of trunks by state; operators only.
    pub trunks: Vec<Count>,
    /// The number of changes that are not finished; operators only.
    pub changes_open: usize,
    /// The present rates of all connections; operators only, null if they are not measured.
    #[schema(required)]
    pub load: Option<Load>,
    /// The time of the snapshot.
    pub at: String,
    /// The revision of the snapshot.
    pub revision: u64,
}

/// The number of objects in one state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Count {
    /// The state.
    pub state: String,
    /// The number.
    pub count: usize,
}

/// A task that waits for somebody.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Task {
    /// The task as a word: `accept`, `configure_end`, `quarantine`, `mac_ends`, `switch_unreachable`, `switch_drifted`,
    /// `switch_differs`, `read_only`, `database_unwritable`, `trunk_down`.
    pub task: String,
    /// The object; `engine` for `database_unwritable`.
    pub object: String,
    /// The name of the object; the error for `database_unwritable`.
    pub name: String,
    /// The account that requests the task, or that the task concerns.
    #[schema(required)]
    pub account: Option<AccountName>,
    /// The severity.
    pub severity: Severity,
    /// The time at which the task ends, if it has an end.
    #[schema(required)]
    pub until: Option<String>,
    /// The time at which the task began, if known.
    #[schema(required)]
    pub since: Option<String>,
    /// The number of members that a fault of the fabric affects; null for other tasks.
    #[schema(required)]
    pub members: Option<usize>,
}

/// An API key without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct ApiKey {
    /// The identifier.
    pub id: String,
    /// The name by which the owner recognizes where the key is used.
    pub name: String,
    /// The requests that it may send.
    pub scope: crate::session::KeyScope,
    /// The user that the key acts as.
    pub user: String,
    /// The time of its creation.
    pub created: String,
    /// The time of the last request.
    #[schema(required)]
    pub last_used: Option<String>,
}
