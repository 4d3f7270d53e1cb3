//! Peering LANs, service keys and orders that need two persons, as JSON values.

use millrace_ix_model::LanPolicy;
use serde::Serialize;
use utoipa::ToSchema;

use super::{AccountName, Coded};

/// An IP address of an end of a peering LAN.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct RegisteredIp {
    /// The identifier.
    pub id: String,
    /// The address.
    pub address: String,
    /// The prefix length of the network that contains the address: the longest such network of the LAN, or 64
    /// for a link-local address; null if no network contains it.
    #[schema(required)]
    pub length: Option<u8>,
}

/// The rules of a peering LAN.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct LanRules {
    /// The name of the policy.
    pub name: String,
    /// The EtherTypes that pass, such as `0x0800`.
    pub ethertypes: Vec<String>,
    /// The highest number of MAC addresses of an end.
    pub macs_max: u8,
    /// The highest rate of broadcast frames from an end, in packets a second.
    pub broadcast_pps: u32,
    /// The highest rate of multicast frames from an end, in packets a second.
    pub multicast_pps: u32,
    /// The time without an offending frame that ends the quarantine, in seconds.
    pub quarantine_secs: u32,
}

impl LanRules {
    /// Returns the rules of a policy.
    pub(crate) fn of(policy: &LanPolicy) -> LanRules {
        let ethertypes = policy.ethertypes.iter();
        LanRules {
            name: policy.name.clone(),
            ethertypes: ethertypes.map(|ethertype| format!("{ethertype:#06x}")).collect(),
            macs_max: policy.macs_max,
            broadcast_pps: policy.broadcast_pps,
            multicast_pps: policy.multicast_pps,
            quarantine_secs: policy.quarantine_secs,
        }
    }
}

/// The checklist of an end in quarantine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Checklist {
    /// The time from which no offending frame was seen.
    pub clean_since: String,
    /// The time at which the quarantine ends, if no offending frame comes.
    pub ends: String,
    /// The needed time without an offending frame, in seconds.
    pub seconds: u32,
    /// True if any frame of the end was seen.
    pub seen: bool,
    /// The checks.
    pub checks: Vec<Check>,
    /// The newest offending frames, newest first.
    pub findings: Vec<Finding>,
}

/// A check of the quarantine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Check {
    /// The check as a word: `mac`, `tag`, `ethertype`, `stp`, `lacp`, `lldp`, `cdp`, `dhcp`, `ra`, `redirect`, `arp`, `nd`,
    /// `proxy_arp`, `multicast`.
    pub check: String,
    /// `unchecked` (no frame was seen yet), `clean`, `failing` (an offending frame in the last minute) or `fixed` (an older one).
    pub state: String,
}

/// An offending frame.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Finding {
    /// The time.
    pub at: String,
    /// The check that it failed.
    pub check: String,
    /// The frame in words.
    pub text: String,
    /// The sentences of the text as codes, for translation.
    pub coded: Vec<Coded>,
    /// The first bytes of the newest such frame, in hexadecimal.
    pub frame: String,
    /// The number of such frames that were seen.
    pub count: u64,
}

/// A member of a peering LAN, as every other member may see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Presence {
    /// The account.
    pub account: AccountName,
    /// The sites of its ends.
    pub sites: Vec<String>,
    /// The addresses in the LAN.
    pub addresses: Vec<String>,
    /// True for the reader's account.
    pub own: bool,
}

/// A service key without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct ServiceKey {
    /// The identifier.
    pub id: String,
    /// The service.
    pub service: String,
    /// The name of the service.
    pub name: String,
    /// The end of validity.
    pub valid_until: String,
    /// The account that used it.
    #[schema(required)]
    pub redeemed_by: Option<AccountName>,
    /// The operations that are permitted on it.
    pub can: Vec<String>,
}

/// An order that waits for a second person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Approval {
    /// The identifier.
    pub id: String,
    /// The operation as a word.
    pub operation: String,
    /// The object.
    #[schema(required)]
    pub object: Option<String>,
    /// The name of the object.
    pub name: String,
    /// The first person.
    #[schema(required)]
    pub requested_by: Option<String>,
    /// The time of the first order.
    pub requested_at: String,
    /// True if the reader is the first person.
    pub own: bool,
    /// The revision, which is also the ETag.
    pub revision: u64,
    /// The operations that are permitted on it.
    pub can: Vec<String>,
}
