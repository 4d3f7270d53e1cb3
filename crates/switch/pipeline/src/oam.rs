//! Frames of OAM (operations, administration and maintenance) at monitored ports: BFD (RFC 5881), continuity check
//! messages (IEEE 802.1ag) and LLDP (IEEE 802.1AB). Workers hand them to the control side before the tables see them.
//!
//! A BFD frame is taken only if its destination is an address of the port's own session and its TTL is 255.
//! All other BFD frames pass through the port like any packet.

use core::net::IpAddr;

use millrace_types::{Mac, PortNo};

const ETHER_TYPE_AT: usize = 12;
const ETHERNET_SIZE: usize = 14;
const IPV4: [u8; 2] = [0x08, 0x00];
const IPV6: [u8; 2] = [0x86, 0xdd];
const CFM: [u8; 2] = [0x89, 0x02];
const LLDP: [u8; 2] = [0x88, 0xcc];
/// The group address of bridges (IEEE 802.1Q-2018, table 8-1).
const BRIDGE_GROUP: [u8; 6] = [0x01, 0x80, 0xc2, 0, 0, 0];
/// The LLC header of BPDUs (IEEE 802.1D-2004, section 7.12.3).
const BPDU_LLC: [u8; 3] = [0x42, 0x42, 0x03];
const UDP: u8 = 17;
/// The UDP port of single-hop BFD (RFC 5881, section 4).
const BFD_PORT: [u8; 2] = 3784u16.to_be_bytes();
/// The TTL that no router has decremented (RFC 5082).
const TTL: u8 = 255;

/// A monitored port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OamPort {
    /// The number of the port.
    pub port: PortNo,
    /// The destination addresses of BFD frames for the port's session.
    pub bfd: Option<[IpAddr; 2]>,
    /// The maintenance level of the port's maintenance end point.
    pub ccm_level: Option<u8>,
    /// True if the port receives LLDP: frames to any link-local group address.
    pub lldp: bool,
    /// True if the port takes part in a spanning tree: BPDUs are taken, even while the port is blocked.
    pub bpdu: bool,
}

impl OamPort {
    /// Returns true if the control side handles the frame that begins with these bytes.
    pub(crate) fn selects(&self, head: &[u8]) -> bool {
        let Some([e0, e1]) = head.get(ETHER_TYPE_AT..ETHERNET_SIZE) else {
            return false;
        };
        let rest = &head[ETHERNET_SIZE..];
        match [*e0, *e1] {
            CFM => rest
                .first()
                .is_some_and(|first| self.ccm_level == Some(first >> 5)),
            LLDP => {
                self.lldp
                    && Mac([head[0], head[1], head[2], head[3], head[4], head[5]]).is_reserved_link_local()
            }
            // The length of an LLC frame.
            [0..=5, _] => self.bpdu && head[..6] == BRIDGE_GROUP && rest.starts_with(&BPDU_LLC),
            IPV4 => self.is_bfd_v4(rest),
            IPV6 => self.is_bfd_v6(rest),
            _ => false,
        }
    }

    fn is_bfd_v4(&self, ip: &[u8]) -> bool {
        // Only an IPv4 header without options is accepted; fragments are refused below.
        let Some(header) = ip.first_chunk::<24>().filter(|ip| ip[0] == 0x45) else {
            return false;
        };
        let is_whole = header[6] & 0x3f == 0 && header[7] == 0;
        let to = IpAddr::from([header[16], header[17], header[18], header[19]]);
        is_whole
            && header[8] == TTL
            && header[9] == UDP
            && [header[22], header[23]] == BFD_PORT
            && self.has(to)
    }

    fn is_bfd_v6(&self, ip: &[u8]) -> bool {
        let Some(header) = ip.first_chunk::<44>() else {
            return false;
        };
        let mut to = [0; 16];
        to.copy_from_slice(&header[24..40]);
        header[6] == UDP && header[7] == TTL && [header[42], header[43]] == BFD_PORT && self.has(to.into())
    }

    fn has(&self, address: IpAddr) -> bool {
        self.bfd.is_some_and(|addresses| addresses.contains(&address))
    }
}

/// The monitored ports of a bridge.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct OamPorts(Vec<OamPort>);

impl OamPorts {
    /// Returns the monitored ports.
    pub fn new(mut ports: Vec<OamPort>) -> OamPorts {
        ports.sort_by_key(|port| port.port);
        OamPorts(ports)
    }

    /// Returns true if no port is monitored.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    #[inline]
    pub(crate) fn find(&self, port: PortNo) -> Option<&OamPort> {
        let at = self.0.binary_search_by_key(&port, |port| port.port).ok()?;
        self.0.get(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use millrace_wire::{Builder, EtherType};

    fn port() -> OamPort {
        OamPort {
            port: PortNo::from_raw(3),
            bfd: Some([[169, 254, 1, 0].into(), [169, 254, 1, 1].into()]),
            ccm_level: Some(2),
            lldp: true,
            bpdu: true,
        }
    }

    fn bfd(change: impl FnOnce(&mut Vec<u8>)) -> bool {
        let mut frame = Builder::ethernet(Mac([2; 6]), Mac([4; 6]))
            .ipv4([169, 254, 1, 0], [169, 254, 1, 1])
            .udp(49_152, 3784)
            .payload(&[0; 24])
            .build();
        frame[22] = 255;
        change(&mut frame);
        port().selects(&frame)
    }

    #[test]
    fn the_sessions_own_bfd_is_selected_and_that_of_others_passes() {
        assert!(bfd(|_| {}));
        assert!(!bfd(|frame| frame[22] = 254), "a router forwarded it");
        assert!(!bfd(|frame| frame[33] = 9), "to another address");
        assert!(!bfd(|frame| frame[37] = 0xc9), "to another port");
        assert!(!bfd(|frame| frame[20] = 0x20), "a fragment");
        assert!(!bfd(|frame| frame.truncate(37)));
    }

    #[test]
    fn lldp_to_a_link_local_group_address_is_selected_where_the_port_receives_it() {
        let frame = |last: u8| {
            Builder::ethernet(Mac([1, 0x80, 0xc2, 0, 0, last]), Mac([4; 6]))
                .ether_type(EtherType(0x88cc))
                .payload(&[2, 7, 4])
                .build()
        };
        let without = OamPort {
            lldp: false,
            ..port()
        };
        for last in [0x0e, 0x03, 0x00] {
            assert!(port().selects(&frame(last)));
            assert!(!without.selects(&frame(last)));
        }
        assert!(!port().selects(&frame(0x10)), "not link-local");
    }

    #[test]
    fn bpdus_are_selected_where_the_port_takes_part_in_a_spanning_tree() {
        let frame = |last: u8, llc: u8| {
            Builder::ethernet(Mac([1, 0x80, 0xc2, 0, 0, last]), Mac([4; 6]))
                .ether_type(EtherType(38))
                .payload(&[llc, 0x42, 3, 0, 0])
                .build()
        };
        let without = OamPort {
            bpdu: false,
            ..port()
        };
        assert!(port().selects(&frame(0, 0x42)));
        assert!(!without.selects(&frame(0, 0x42)));
        assert!(!port().selects(&frame(0, 0xfe)), "IS-IS");
        assert!(!port().selects(&frame(1, 0x42)), "another group");
    }

    #[test]
    fn continuity_checks_of_the_ports_level_are_selected() {
        let frame = |level: u8| {
            Builder::ethernet(Mac([1, 0x80, 0xc2, 0, 0, 0x32]), Mac([4; 6]))
                .ether_type(EtherType(0x8902))
                .payload(&[level << 5, 1, 3, 70])
                .build()
        };
        assert!(port().selects(&frame(2)));
        assert!(!port().selects(&frame(3)));
        assert!(!port().selects(&frame(2)[..14]));
        let without = OamPort {
            ccm_level: None,
            ..port()
        };
        assert!(!without.selects(&frame(0)));
    }
}
