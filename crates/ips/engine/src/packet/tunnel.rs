//! Packets inside packets: GRE, IP in IP, Teredo, VXLAN, Geneve and GTP-U.

use millrace_wire::{EtherType, IpProto, checksum};

use super::link::{Next, Vlans, follow};
use super::{Context, IpHeaderLocation, IpVersion, Packet};

/// IP in IP (RFC 2003), IPv6 in IP (RFC 4213) and GRE (RFC 2784).
const IPV4: IpProto = IpProto(4);
const IPV6: IpProto = IpProto(41);
const GRE: IpProto = IpProto(47);

/// GRE protocol types that are not EtherTypes of Ethernet.
const PPP: EtherType = EtherType(0x880b);
const ERSPAN: EtherType = EtherType(0x88be);
const ERSPAN_III: EtherType = EtherType(0x22eb);

/// The tunnels that are decoded. A tunnel over UDP is recognised by its port; port 0 turns it off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tunnels {
    /// Teredo (RFC 4380), at either port.
    pub teredo: u16,
    /// VXLAN (RFC 7348), at the destination port.
    pub vxlan: u16,
    /// Geneve (RFC 8926), at either port.
    pub geneve: u16,
    /// GTP-U (3GPP TS 29.281), at either port.
    pub gtp_u: u16,
    /// True if packets of Teredo with an authentication header are decoded.
    pub teredo_authentication: bool,
    /// True if ERSPAN type III is decoded.
    pub erspan_iii: bool,
}

impl Default for Tunnels {
    fn default() -> Tunnels {
        Tunnels {
            teredo: 3544,
            vxlan: 4789,
            geneve: 6081,
            gtp_u: 0,
            teredo_authentication: false,
            erspan_iii: false,
        }
    }
}

/// Returns the position of the IP header of the packet inside `packet`; `None` if there is no inner packet.
/// Offsets are relative to `frame`, the bytes that [`Packet::ip_offset`] refers to.
pub(crate) fn inside(frame: &[u8], packet: &Packet<'_>, tunnels: &Tunnels) -> Option<IpHeaderLocation> {
    if packet.is_fragment {
        return None;
    }
    let outer = Vlans {
        ids: packet.vlans,
        len: packet.vlan_len,
    };
    // Padding of the frame does not belong to the packet inside.
    let frame = frame.get(..packet.ip_offset + packet.ip.bytes.len())?;
    let payload = packet.ip_offset + packet.ip.header_size;
    let ip = |version| {
        Some(IpHeaderLocation {
            offset: payload,
            version: Some(version),
            vlans: outer,
        })
    };
    match IpProto(packet.protocol) {
        IPV4 => ip(IpVersion::V4),
        IPV6 => ip(IpVersion::V6),
        GRE => {
            let (next, size) = gre(frame.get(payload..)?, tunnels.erspan_iii)?;
            follow(next, frame, payload + size, outer).ok()
        }
        IpProto::UDP => {
            let (next, size) = udp(packet, tunnels)?;
            follow(next, frame, payload + millrace_wire::udp::SIZE + size, outer).ok()
        }
        _ => None,
    }
}

/// Corrects the checksum of the UDP or GRE header around a packet that was changed, if the header has one (RFC 768; RFC 2784,
/// section 2.3). `outer` is the position of the IP header before that header. Edits that keep the size of a segment leave the sum
/// as it was, because the TCP checksum changes with them. Data removed from a SYN stay in the frame after it, so the sum changes.
#[cold]
pub(crate) fn correct_checksum(frame: &mut [u8], outer: IpHeaderLocation, context: Context) {
    const UDP_CHECKSUM: usize = 6;
    const GRE_CHECKSUM: usize = 4;
    let Ok(packet) = Packet::decode(frame, outer, context) else {
        return;
    };
    let (protocol, pseudo) = (IpProto(packet.protocol), packet.pseudo_header());
    let from = packet.ip_offset + packet.ip.header_size;
    let to = match protocol {
        IpProto::UDP => from + millrace_wire::udp::SIZE + packet.payload.len(),
        _ => packet.ip_offset + packet.ip.bytes.len(),
    };
    let (Some(bytes), Some(pseudo)) = (frame.get_mut(from..to), pseudo) else {
        return;
    };
    let has_gre_checksum =
        |bytes: &[u8]| matches!(*bytes, [flags, version, ..] if flags & 0x80 != 0 && version & 7 == 0);
    let at = match protocol {
        IpProto::UDP if bytes[UDP_CHECKSUM..][..2] != [0, 0] => UDP_CHECKSUM,
        GRE if has_gre_checksum(bytes) => GRE_CHECKSUM,
        _ => return,
    };
    bytes[at..at + 2].fill(0);
    let sum = match protocol {
        IpProto::UDP => pseudo
            .sum(IpProto::UDP, bytes.len())
            .add_bytes(bytes)
            .udp_checksum(),
        _ => checksum::internet(bytes),
    };
    bytes[at..at + 2].copy_from_slice(&sum.to_be_bytes());
}

/// Reads a GRE header: versions 0 (RFC 2784, RFC 2890; routing of RFC 1701) and 1 (RFC 2637).
fn gre(bytes: &[u8], has_erspan_iii: bool) -> Option<(Next, usize)> {
    const CHECKSUM: u8 = 0x80;
    const ROUTING: u8 = 0x40;
    const KEY: u8 = 0x20;
    const SEQUENCE: u8 = 0x10;
    const ACK: u8 = 0x80;
    let [flags, version, high, low] = *bytes.first_chunk()?;
    let protocol = EtherType(u16::from_be_bytes([high, low]));
    let size_of = |bit: u8, size: usize| if flags & bit != 0 { size } else { 0 };
    let mut size = 4 + size_of(KEY, 4) + size_of(SEQUENCE, 4);
    match version & 7 {
        0 => {
            size += size_of(CHECKSUM | ROUTING, 4);
            if flags & ROUTING != 0 {
                // Source route entries have a family, offset and length. An entry with length 0 is the last
                // one.
                loop {
                    let [_, _, _, length] = *bytes.get(size..)?.first_chunk()?;
                    size += 4 + usize::from(length);
                    if length == 0 {
                        break;
                    }
                }
            }
        }
        1 if protocol == PPP => {
            if version & ACK != 0 {
                size += 4;
            }
        }
        _ => return None,
    }
    Some(match protocol {
        PPP => (Next::Ppp, size),
        // ERSPAN type I has no ERSPAN header, and its GRE header has no sequence number. The ERSPAN header of
        // type II is 8 bytes long.
        ERSPAN => (Next::Ethernet, size + size_of(SEQUENCE, 8)),
        ERSPAN_III if !has_erspan_iii => return None,
        ERSPAN_III => {
            // The O bit, the last of 12 bytes, announces a subheader of 8 bytes.
            let flags = *bytes.get(size + 11)?;
            (Next::Ethernet, size + 12 + if flags & 1 != 0 { 8 } else { 0 })
        }
        other => (Next::EtherType(other), size),
    })
}

/// Returns the type of the first header inside a tunnel over UDP, and its offset in the UDP payload.
fn udp(packet: &Packet<'_>, tunnels: &Tunnels) -> Option<(Next, usize)> {
    let (src, dst) = packet.ports?;
    let is = |port: u16, tunnel: u16| tunnel != 0 && port == tunnel;
    if is(dst, tunnels.vxlan) {
        // The I flag announces a valid network identifier; reserved bits are ignored on receipt.
        let header = packet.payload.first_chunk::<8>()?;
        return (header[0] & 0x08 != 0).then_some((Next::Ethernet, 8));
    }
    // A reply from the Geneve port also carries a packet (observed).
    if is(dst, tunnels.geneve) || is(src, tunnels.geneve) {
        let header = packet.payload.first_chunk::<8>()?;
        let size = 8 + usize::from(header[0] & 0x3f) * 4;
        let protocol = EtherType(u16::from_be_bytes([header[2], header[3]]));
        return (header[0] >> 6 == 0).then_some((Next::EtherType(protocol), size));
    }
    if is(src, tunnels.gtp_u) || is(dst, tunnels.gtp_u) {
        return gtp_u(packet.payload);
    }
    if is(src, tunnels.teredo) || is(dst, tunnels.teredo) {
        return teredo(packet.payload, tunnels.teredo_authentication);
    }
    None
}

/// Skips the headers of Teredo: authentication and origin indication (RFC 4380, section 5.1.1).
fn teredo(payload: &[u8], has_authentication: bool) -> Option<(Next, usize)> {
    let mut at = 0;
    if payload.first_chunk::<2>()? == &[0, 1] {
        if !has_authentication {
            return None;
        }
        let header = payload.first_chunk::<4>()?;
        at += 4 + usize::from(header[2]) + usize::from(header[3]) + 8 + 1;
    }
    if payload.get(at..at + 2)? == [0, 0] {
        at += 8;
    }
    let inner = payload.get(at..)?;
    let fixed = inner.first_chunk::<40>()?;
    let size = usize::from(u16::from_be_bytes([fixed[4], fixed[5]]));
    (fixed[0] >> 4 == 6 && size == inner.len() - 40).then_some((Next::IpOf(IpVersion::V6), at))
}

/// Skips the header of a GTP-U T-PDU, version 1, and its extension headers (3GPP TS 29.281, section 5).
fn gtp_u(payload: &[u8]) -> Option<(Next, usize)> {
    const T_PDU: u8 = 255;
    let header = payload.first_chunk::<8>()?;
    let (flags, kind) = (header[0], header[1]);
    if flags >> 4 != 0b0011 || kind != T_PDU {
        return None;
    }
    let mut at = 8;
    if flags & 0b111 != 0 {
        at += 4;
        if flags & 0b100 != 0 {
            let mut next = *payload.get(at - 1)?;
            while next != 0 {
                let size = usize::from(*payload.get(at)?) * 4;
                if size == 0 {
                    return None;
                }
                at += size;
                next = *payload.get(at - 1)?;
            }
        }
    }
    Some((Next::Ip, at))
}
