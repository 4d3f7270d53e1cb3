//! Keys of flows.

use core::net::IpAddr;

/// The endpoints of a flow; the client is the sender of the first packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FlowKey {
    /// Address of the client.
    pub client: IpAddr,
    /// Address of the server.
    pub server: IpAddr,
    /// Port of the client; for ICMP the identifier.
    pub client_port: u16,
    /// Port of the server; for ICMP the identifier.
    pub server_port: u16,
    /// IP protocol.
    pub protocol: u8,
    /// VLAN identifiers, outermost first.
    pub vlans: [u16; 3],
    /// Number of tunnels around the packet.
    pub tunnel_depth: u8,
}
