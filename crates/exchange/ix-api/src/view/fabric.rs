//! Sites, switches and trunks as JSON values.

use serde::Serialize;
use utoipa::ToSchema;

use super::{AccountName, Port};

/// A site.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Site {
    /// The identifier.
    pub id: String,
    /// The name.
    pub name: String,
    /// The number of its switches.
    pub switches: usize,
    /// The number of connections there.
    pub connections: usize,
}

/// A switch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Switch {
    /// The identifier.
    pub id: String,
    /// The name.
    pub name: String,
    /// The name of the site.
    pub site: String,
    /// The datapath id.
    pub dpid: String,
    /// `in_sync`, `syncing`, `drifted`, `unreachable` or `unknown`.
    pub state: String,
    /// The time at which the switch entered this state.
    #[schema(required)]
    pub since: Option<String>,
    /// A note about the state, such as the number of foreign entries that the engine keeps.
    #[schema(required)]
    pub error: Option<String>,
    /// The number of flow entries that the plan has for it; null if it is not known.
    #[schema(required)]
    pub entries: Option<usize>,
    /// The number of its ports.
    pub ports: usize,
    /// The number of its ports that connections and trunks use.
    pub ports_used: usize,
    /// True if the switch does not return: no change waits for it while it is not connected.
    pub retired: bool,
    /// The revision, which is also the ETag.
    pub revision: u64,
    /// The operations that are permitted on it.
    pub can: Vec<String>,
}

/// A trunk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Trunk {
    /// The identifier.
    pub id: String,
    /// The name.
    pub name: String,
    /// `vxlan` or `s_tag`.
    pub kind: String,
    /// The two ends.
    pub ends: Vec<Port>,
    /// The cost; the trunk with the lowest cost carries the traffic.
    pub cost: u32,
    /// The capacity in Mbit/s.
    pub capacity_mbps: u32,
    /// The sum of the contracted rates of the circuits between its switches in Mbit/s, in the direction with
    /// the larger sum.
    pub contracted_mbps: u32,
    /// The present rates; null if they are not measured. `in` is from its first end to its second one.
    #[schema(required)]
    pub load: Option<Load>,
    /// True if the trunk is drained: traffic uses it only if no other trunk is available.
    pub drained: bool,
    /// True if both ends are up; null if that is not known.
    #[schema(required)]
    pub up: Option<bool>,
    /// The time at which the trunk last went up or down.
    #[schema(required)]
    pub since: Option<String>,
    /// True if it carries the traffic between its sites now.
    pub carries: bool,
    /// The number of services whose frames cross between its switches.
    pub services: usize,
    /// The revision, which is also the ETag.
    pub revision: u64,
    /// The operations that are permitted on it.
    pub can: Vec<String>,
}

/// Rates in bit/s.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
pub struct Load {
    /// The rate of frames that enter.
    pub in_bps: u64,
    /// The rate of frames that leave.
    pub out_bps: u64,
}

/// The effect of draining a trunk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Impact {
    /// The services that would take another trunk.
    pub services: Vec<ImpactService>,
    /// The members to be notified.
    pub members: Vec<AccountName>,
    /// The trunk that would carry the traffic; null if there is no other trunk.
    #[schema(required)]
    pub carrier: Option<String>,
    /// The sum of the contracted rates that the other trunk would carry in Mbit/s, in the direction with the
    /// larger sum.
    pub contracted_mbps: u32,
    /// The capacity of the other trunk in Mbit/s.
    pub capacity_mbps: u32,
}

/// A service that would take another trunk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct ImpactService {
    /// The identifier.
    pub id: String,
    /// The name.
    pub name: String,
    /// The account that ordered it.
    pub account: AccountName,
}
