//! The traffic of an account as JSON values.

use serde::Serialize;
use utoipa::ToSchema;

use super::AccountName;

/// The traffic of an account over the last half minute.
#[derive(Debug, Clone, Default, PartialEq, Serialize, ToSchema)]
pub struct AccountTraffic {
    /// False if this exchange samples no traffic. All other fields are then empty.
    pub measured: bool,
    /// The time in seconds over which rates are computed.
    pub seconds: u32,
    /// The traffic to the account, the heaviest first.
    pub incoming: Vec<PeerTraffic>,
    /// The traffic from the account, the heaviest first.
    pub outgoing: Vec<PeerTraffic>,
    /// The heaviest flows to the account; empty for readers who may not read samples.
    pub top: Vec<Flow>,
    /// The number of samples behind these rates.
    pub samples: u64,
    /// The number of samples that switches have lost since the start.
    pub lost: u64,
}

/// The traffic with a peer in a service.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct PeerTraffic {
    /// The account at the other end. An account of a peering LAN that the reader may not know has no
    /// identifier here, and its AS numbers as its name. Null if such an account has no AS number, or if the
    /// packets were dropped before their destination was known.
    #[schema(required)]
    pub peer: Option<AccountName>,
    /// The service.
    pub service: String,
    /// The name of the service.
    pub service_name: String,
    /// The rate in bit/s.
    pub bits_per_s: u64,
    /// The part of the rate that is IPv4, in bit/s.
    pub ipv4_bits_per_s: u64,
    /// The part of the rate that is IPv6, in bit/s.
    pub ipv6_bits_per_s: u64,
    /// The rate in packets a second.
    pub packets_per_s: u64,
    /// The part of the rate that switches drop, in bit/s.
    pub dropped_bits_per_s: u64,
    /// The half width of the 95 % confidence interval, in percent of the rate.
    pub error_percent: f64,
}

/// The peering matrix: who exchanges traffic with whom, and between whom packets of BGP sessions were seen.
#[derive(Debug, Clone, Default, PartialEq, Serialize, ToSchema)]
pub struct Matrix {
    /// False if this exchange samples no traffic.
    pub measured: bool,
    /// The pairs, ordered by accounts.
    pub pairs: Vec<MatrixPair>,
}

/// The traffic from one account to another.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct MatrixPair {
    /// The account that sends.
    pub from: AccountName,
    /// The account that receives.
    pub to: AccountName,
    /// The name of the service.
    pub service_name: String,
    /// The rate of IPv4 in bit/s.
    pub ipv4_bits_per_s: u64,
    /// The rate of IPv6 in bit/s.
    pub ipv6_bits_per_s: u64,
    /// The time of the newest sampled packet of a BGP session between them, within four days.
    #[schema(required)]
    pub bgp_seen: Option<String>,
}

/// A flow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Flow {
    /// The source address.
    pub source: String,
    /// The destination address.
    pub destination: String,
    /// The IP protocol.
    pub protocol: u8,
    /// The source port; 0 without one.
    pub source_port: u16,
    /// The destination port; 0 without one.
    pub destination_port: u16,
    /// The rate in bit/s.
    pub bits_per_s: u64,
}
