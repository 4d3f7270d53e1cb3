//! The frames that routers in quarantine send.

use std::net::IpAddr;

use millrace_ix_model::{ConfigId, Exchange};
use millrace_ix_service::simulation::arp_announcement;

/// A frame of LLDP.
pub(super) const LLDP: [u8; 17] = [
    0x01, 0x80, 0xc2, 0, 0, 0x0e, 2, 0, 0, 0, 0x64, 1, 0x88, 0xcc, 2, 7, 4,
];

/// Returns an ARP request of the router of an end for its own address; `None` for an end without addresses.
pub(super) fn arp(exchange: &Exchange, config: ConfigId) -> Option<Vec<u8>> {
    let macs = exchange.macs.values();
    let mac = macs
        .filter(|mac| mac.config == config)
        .map(|mac| mac.address.0)
        .next()?;
    let addresses = exchange.ips.values().filter(|ip| ip.config == config);
    let address = addresses
        .filter_map(|ip| match ip.address {
            IpAddr::V4(address) => Some(address.octets()),
            IpAddr::V6(_) => None,
        })
        .next()?;
    Some(arp_announcement(mac, address))
}
