//! Frames that members of a peering LAN send, byte by byte.

use core::net::{Ipv4Addr, Ipv6Addr};

/// A frame without tags: destination, source, EtherType, payload.
#[derive(Clone, Debug)]
pub(crate) struct Untagged {
    pub(crate) dst: [u8; 6],
    pub(crate) src: [u8; 6],
    pub(crate) ethertype: u16,
    pub(crate) payload: Vec<u8>,
}

pub(crate) const BROADCAST: [u8; 6] = [0xff; 6];

impl Untagged {
    pub(crate) fn addresses(&self) -> Vec<u8> {
        [self.dst, self.src].concat()
    }

    /// Returns the EtherType and the payload, padded to the shortest frame.
    pub(crate) fn rest(&self) -> Vec<u8> {
        let mut rest = [&self.ethertype.to_be_bytes()[..], &self.payload].concat();
        rest.resize(rest.len().max(48), 0);
        rest
    }
}

/// Returns an ARP message for IPv4 over Ethernet (RFC 826).
pub(crate) fn arp(
    dst: [u8; 6],
    src: [u8; 6],
    op: u16,
    sha: [u8; 6],
    spa: Ipv4Addr,
    tpa: Ipv4Addr,
) -> Untagged {
    let mut payload = vec![0, 1, 8, 0, 6, 4];
    payload.extend(op.to_be_bytes());
    payload.extend(sha);
    payload.extend(spa.octets());
    payload.extend([0; 6]);
    payload.extend(tpa.octets());
    Untagged {
        dst,
        src,
        ethertype: 0x0806,
        payload,
    }
}

/// Returns an IPv4 packet without options.
pub(crate) fn ipv4(dst: [u8; 6], src: [u8; 6], to: Ipv4Addr, proto: u8, body: &[u8]) -> Untagged {
    let size = 20 + body.len() as u16;
    let mut header = vec![0x45, 0];
    header.extend(size.to_be_bytes());
    header.extend([0, 0, 0, 0, 64, proto, 0, 0, 198, 51, 100, 7]);
    header.extend(to.octets());
    let sum: u32 = header
        .chunks(2)
        .map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])))
        .sum();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    Untagged {
        dst,
        src,
        ethertype: 0x0800,
        payload: [&header[..], body].concat(),
    }
}

pub(crate) fn udp(source: u16, destination: u16) -> Vec<u8> {
    let mut body = Vec::new();
    body.extend(source.to_be_bytes());
    body.extend(destination.to_be_bytes());
    body.extend([0, 16, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]);
    body
}

/// Returns an IPv6 packet without extension headers.
pub(crate) fn ipv6(
    dst: [u8; 6],
    src: [u8; 6],
    from: Ipv6Addr,
    to: Ipv6Addr,
    next: u8,
    body: &[u8],
) -> Untagged {
    let mut payload = vec![0x60, 0, 0, 0];
    payload.extend((body.len() as u16).to_be_bytes());
    payload.extend([next, 255]);
    payload.extend(from.octets());
    payload.extend(to.octets());
    payload.extend(body);
    Untagged {
        dst,
        src,
        ethertype: 0x86dd,
        payload,
    }
}

/// Returns the body of a neighbour solicitation (135) or advertisement (136) with one link-layer address option, or none
/// (RFC 4861, sections 4.3, 4.4 and 4.6.1).
pub(crate) fn discovery(kind: u8, target: Ipv6Addr, link_layer: Option<[u8; 6]>) -> Vec<u8> {
    let mut body = vec![kind, 0, 0, 0, 0, 0, 0, 0];
    body.extend(target.octets());
    if let Some(address) = link_layer {
        body.extend([if kind == 135 { 1 } else { 2 }, 1]);
        body.extend(address);
    }
    body
}

/// Returns the Ethernet address of the solicited-node group of an address.
pub(crate) fn solicited_node(target: Ipv6Addr) -> [u8; 6] {
    let octets = target.octets();
    [0x33, 0x33, 0xff, octets[13], octets[14], octets[15]]
}
