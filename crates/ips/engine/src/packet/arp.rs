//! ARP (RFC 826) for IPv4 over Ethernet, for records.

use core::net::Ipv4Addr;

use super::LinkType;

/// The EtherType of ARP.
const ARP: u16 = 0x0806;
/// The hardware type of Ethernet, and the EtherType of IPv4.
const ETHERNET: u16 = 1;
const IPV4: u16 = 0x0800;
/// Largest number of VLAN tags that are recorded.
const TAGS: usize = 3;

/// A packet of ARP.
///
/// ```text
///  hardware type (2) | protocol type (2) | 6 | 4 | operation (2) | sender: MAC, IPv4 | target: MAC, IPv4
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArpPacket {
    /// The operation: 1 asks, 2 answers.
    pub operation: u16,
    pub sender_mac: [u8; 6],
    pub sender: Ipv4Addr,
    pub target_mac: [u8; 6],
    pub target: Ipv4Addr,
}

impl ArpPacket {
    /// Size in bytes.
    pub const SIZE: usize = 28;

    /// Reads a packet; `None` if it is too short, or of other addresses.
    pub fn read(bytes: &[u8]) -> Option<ArpPacket> {
        let bytes: &[u8; ArpPacket::SIZE] = bytes.first_chunk()?;
        let word = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        let mac = |at: usize| core::array::from_fn(|byte| bytes[at + byte]);
        let address = |at: usize| Ipv4Addr::new(bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]);
        let is_known = word(0) == ETHERNET && word(2) == IPV4 && bytes[4..6] == [6, 4];
        is_known.then(|| ArpPacket {
            operation: word(6),
            sender_mac: mac(8),
            sender: address(14),
            target_mac: mac(18),
            target: address(24),
        })
    }
}

/// Returns the packet of ARP in a frame, behind any VLAN tags, and their identifiers.
pub(crate) fn find(link: LinkType, frame: &[u8]) -> Option<(ArpPacket, [u16; TAGS])> {
    // The places of the EtherType and of what follows it.
    let (mut at, mut body) = match link.0 {
        LinkType::ETHERNET => (12, 14),
        LinkType::LINUX_SLL => (14, 16),
        LinkType::LINUX_SLL2 => (0, 20),
        _ => return None,
    };
    let word = |at: usize| Some(u16::from_be_bytes(*frame.get(at..)?.first_chunk()?));
    let mut vlans = [0; TAGS];
    for tag in 0..=TAGS {
        match word(at)? {
            ARP => return Some((ArpPacket::read(frame.get(body..)?)?, vlans)),
            0x8100 | 0x88a8 | 0x9100 => *vlans.get_mut(tag)? = word(body)? & 0x0fff,
            _ => return None,
        }
        (at, body) = (body + 2, body + 4);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHO_HAS: [u8; ArpPacket::SIZE] = [
        0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 1, 192, 0, 2, 1, 0, 0, 0, 0, 0, 0, 192, 0, 2, 2,
    ];

    fn frame(ether_types: &[u8]) -> Vec<u8> {
        [&[2; 12][..], ether_types, &WHO_HAS].concat()
    }

    #[test]
    fn a_packet_is_found_behind_tags() {
        let expected = ArpPacket {
            operation: 1,
            sender_mac: [2, 0, 0, 0, 0, 1],
            sender: Ipv4Addr::new(192, 0, 2, 1),
            target_mac: [0; 6],
            target: Ipv4Addr::new(192, 0, 2, 2),
        };
        let ethernet = LinkType(LinkType::ETHERNET);
        let found = |frame: &[u8]| find(ethernet, frame);
        assert_eq!(found(&frame(&[8, 6])), Some((expected, [0; 3])));
        assert_eq!(
            found(&frame(&[0x88, 0xa8, 0, 5, 0x81, 0, 0x20, 6, 8, 6])),
            Some((expected, [5, 6, 0]))
        );
        assert_eq!(found(&frame(&[0x81, 0, 0, 1].repeat(4))), None);
        assert_eq!(found(&frame(&[8, 0])), None);
        let whole = frame(&[8, 6]);
        for size in 0..whole.len() {
            assert_eq!(found(&whole[..size]), None, "{size}");
        }
        let cooked = [&[0; 14][..], &[8, 6], &WHO_HAS].concat();
        assert_eq!(
            find(LinkType(LinkType::LINUX_SLL), &cooked),
            Some((expected, [0; 3]))
        );
    }

    #[test]
    fn other_hardware_and_protocols_are_no_packets() {
        for (at, byte) in [(1, 6), (2, 9), (4, 8), (5, 16)] {
            let mut packet = WHO_HAS;
            packet[at] = byte;
            assert_eq!(ArpPacket::read(&packet), None);
        }
    }
}
