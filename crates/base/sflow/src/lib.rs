//! sFlow version 5: samples of packets, and counters of interfaces (sFlow.org, "sFlow Version 5", July 2004).
//!
//! ```text
//! datagram: version, agent, sequence, uptime, samples
//!   flow sample:      rate, pool, drops, input, output, records: raw header, VLANs, Millrace's metadata
//!   counter sample:   records: generic interface counters, Ethernet counters, OpenFlow port, name of the port
//!   discarded packet: drops, input, output, reason, records: raw header, Millrace's metadata
//! ```
//!
//! Discarded packets follow sFlow.org, "sFlow Dropped Packet Notification Structures", October 2020. The
//! records of OpenFlow ports follow sFlow.org, "sFlow OpenFlow Structures", November 2014.

#![forbid(unsafe_code)]

mod emit;
mod parse;
mod sample;

pub use parse::ParseError;
pub use sample::{
    CounterSample, Datagram, DiscardedPacket, DropCode, EthernetCounters, FlowSample, InterfaceCounters,
    MillraceRecord, OpenFlowPort, Output, Sample, SwitchRecord,
};

/// The UDP port of collectors, assigned by IANA.
pub const UDP_PORT: u16 = 6343;
/// Default size of the sampled header of a packet, in bytes.
pub const HEADER_SIZE: usize = 128;
/// Maximum size of the sampled header of a packet that is emitted, in bytes.
pub const MAX_HEADER_SIZE: usize = 256;
/// Maximum size of a datagram that is emitted, in bytes: it fits an Ethernet frame with room for tunnels.
pub const MAX_DATAGRAM_SIZE: usize = 1400;
/// The interface number of packets that the switch itself generates or consumes.
pub const INTERNAL_INTERFACE: u32 = 0x3fff_ffff;
/// The value of a counter or VLAN that is not known.
pub const UNKNOWN: u32 = u32::MAX;

pub(crate) const VERSION: u32 = 5;
/// The enterprise number of Millrace's records: the number reserved for documentation (RFC 5612).
pub(crate) const ENTERPRISE: u32 = 32_473;

pub(crate) const FLOW_SAMPLE: u32 = 1;
pub(crate) const COUNTER_SAMPLE: u32 = 2;
pub(crate) const DISCARDED_PACKET: u32 = 5;
pub(crate) const RAW_HEADER: u32 = 1;
pub(crate) const EXTENDED_SWITCH: u32 = 1001;
pub(crate) const MILLRACE_RECORD: u32 = ENTERPRISE << 12 | 1;
pub(crate) const INTERFACE_COUNTERS: u32 = 1;
pub(crate) const ETHERNET_COUNTERS: u32 = 2;
pub(crate) const OPENFLOW_PORT: u32 = 1004;
pub(crate) const PORT_NAME: u32 = 1005;
/// The header protocol of Ethernet.
pub(crate) const ETHERNET: u32 = 1;
