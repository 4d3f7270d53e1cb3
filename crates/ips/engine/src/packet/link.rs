//! Link layers: finds the IP header of a frame after link headers, tags and labels.

use millrace_wire::{EtherType, ethernet, mpls, nsh, pbb, vlan};

use super::{IpVersion, LinkType, Undecoded};

/// Largest number of headers between the link layer and IP.
const HEADERS_MAX: usize = 16;

/// EtherTypes of protocols that carry Ethernet or IP.
mod ether_type {
    use super::EtherType;

    pub(super) const QINQ_OLD: EtherType = EtherType(0x9100);
    pub(super) const PPPOE_SESSION: EtherType = EtherType(0x8864);
    pub(super) const CISCO_FABRIC_PATH: EtherType = EtherType(0x8903);
    pub(super) const VN_TAG: EtherType = EtherType(0x8926);
    pub(super) const E_TAG: EtherType = EtherType(0x893f);
    pub(super) const TRANSPARENT_ETHERNET: EtherType = EtherType(0x6558);
}

/// Protocols of PPP (RFC 1661; RFC 1332, RFC 5072, RFC 3032, RFC 1144).
mod ppp {
    pub(super) const IPV4: u16 = 0x0021;
    pub(super) const IPV6: u16 = 0x0057;
    pub(super) const VJ_UNCOMPRESSED: u16 = 0x002f;
    pub(super) const MPLS: u16 = 0x0281;
}

/// The VLAN identifiers of a frame, outermost first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Vlans {
    /// The identifiers; the first `len` are set.
    pub(crate) ids: [u16; 3],
    /// Number of tags; further tags are not recorded.
    pub(crate) len: u8,
}

impl Vlans {
    fn push(&mut self, id: u16) {
        if let Some(slot) = self.ids.get_mut(usize::from(self.len)) {
            *slot = id;
            self.len += 1;
        }
    }
}

/// The position of an IP header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IpHeaderLocation {
    /// Offset of the IP header in the frame, in bytes.
    pub(crate) offset: usize,
    /// The IP version that the preceding header names; `None` if only the IP header names it.
    pub(crate) version: Option<IpVersion>,
    /// The VLAN identifiers.
    pub(crate) vlans: Vlans,
}

/// The type of the next header.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Next {
    /// A header with this EtherType.
    EtherType(EtherType),
    /// An Ethernet header.
    Ethernet,
    /// A PPP protocol number, after optional address and control bytes.
    Ppp,
    /// An MPLS label stack.
    Mpls,
    /// IPv4 or IPv6, according to the first four bits.
    Ip,
    /// IP of this version.
    IpOf(IpVersion),
}

fn chunk<const N: usize>(frame: &[u8], at: usize) -> Result<&[u8; N], Undecoded> {
    let bytes = frame.get(at..).and_then(<[u8]>::first_chunk);
    bytes.ok_or(Undecoded::TruncatedLink)
}

/// Finds the IP header of a frame.
#[inline]
pub(crate) fn find_ip_header(link: LinkType, frame: &[u8]) -> Result<IpHeaderLocation, Undecoded> {
    // Most frames have no header between the Ethernet header and the IP header.
    if link.0 == LinkType::ETHERNET
        && let Some([.., high, low]) = frame.first_chunk::<{ ethernet::SIZE }>()
        && let Some(version) = version_of(EtherType(u16::from_be_bytes([*high, *low])))
    {
        return Ok(IpHeaderLocation {
            offset: ethernet::SIZE,
            version: Some(version),
            vlans: Vlans::default(),
        });
    }
    find_ip_header_after_headers(link, frame)
}

/// Returns the IP version of an EtherType; `None` for other protocols.
#[inline]
fn version_of(ether_type: EtherType) -> Option<IpVersion> {
    match ether_type {
        EtherType::IPV4 => Some(IpVersion::V4),
        EtherType::IPV6 => Some(IpVersion::V6),
        _ => None,
    }
}

/// Finds the IP header of a frame of any link type, after any preceding headers.
fn find_ip_header_after_headers(link: LinkType, frame: &[u8]) -> Result<IpHeaderLocation, Undecoded> {
    // https://www.tcpdump.org/linktypes.html numbers the link types and describes their headers.
    let (next, at) = match link.0 {
        LinkType::NULL | LinkType::LOOP => {
            let family = chunk::<4>(frame, 0)?;
            // The family is in the byte order of the machine that captured.
            let family = u32::from_le_bytes(*family).min(u32::from_be_bytes(*family));
            match family {
                2 => (Next::IpOf(IpVersion::V4), 4),
                10 | 24 | 28 | 30 => (Next::IpOf(IpVersion::V6), 4),
                _ => return Err(Undecoded::NotIp),
            }
        }
        LinkType::ETHERNET => (Next::Ethernet, 0),
        LinkType::PPP => (Next::Ppp, 0),
        LinkType::PPP_ETHER => (Next::EtherType(ether_type::PPPOE_SESSION), 0),
        12 | 14 | LinkType::RAW => (Next::Ip, 0),
        LinkType::IPV4 => (Next::IpOf(IpVersion::V4), 0),
        LinkType::IPV6 => (Next::IpOf(IpVersion::V6), 0),
        LinkType::C_HDLC => {
            let header = chunk::<4>(frame, 0)?;
            let ether_type = u16::from_be_bytes([header[2], header[3]]);
            (Next::EtherType(EtherType(ether_type)), 4)
        }
        LinkType::LINUX_SLL => {
            let header = chunk::<16>(frame, 0)?;
            let ether_type = u16::from_be_bytes([header[14], header[15]]);
            (Next::EtherType(EtherType(ether_type)), 16)
        }
        LinkType::LINUX_SLL2 => {
            let header = chunk::<20>(frame, 0)?;
            let ether_type = u16::from_be_bytes([header[0], header[1]]);
            (Next::EtherType(EtherType(ether_type)), 20)
        }
        _ => return Err(Undecoded::UnknownLink),
    };
    follow(next, frame, at, Vlans::default())
}

/// Follows headers from type `next` at offset `at` to an IP header.
pub(crate) fn follow(
    mut next: Next,
    frame: &[u8],
    mut at: usize,
    mut vlans: Vlans,
) -> Result<IpHeaderLocation, Undecoded> {
    for _ in 0..HEADERS_MAX {
        (next, at) = match next {
            Next::Ip | Next::IpOf(_) => {
                let version = match next {
                    Next::IpOf(version) => Some(version),
                    _ => None,
                };
                return Ok(IpHeaderLocation {
                    offset: at,
                    version,
                    vlans,
                });
            }
            Next::Ethernet => ethernet_header(frame, at)?,
            Next::Ppp => ppp_header(frame, at)?,
            Next::Mpls => label_stack(frame, at)?,
            Next::EtherType(ether_type) => match ether_type {
                _ if let Some(version) = version_of(ether_type) => (Next::IpOf(version), at),
                EtherType::VLAN | EtherType::QINQ | ether_type::QINQ_OLD => {
                    let tag = vlan::View::new(frame.get(at..).unwrap_or_default());
                    let tag = tag.map_err(|_| Undecoded::TruncatedLink)?;
                    vlans.push(tag.tci() & 0x0fff);
                    (Next::EtherType(tag.ether_type()), at + vlan::SIZE)
                }
                EtherType::MPLS | EtherType::MPLS_MULTICAST => (Next::Mpls, at),
                ether_type::PPPOE_SESSION => {
                    // RFC 2516, section 4: version and type 1, code 0 for data, session, length.
                    let header = chunk::<6>(frame, at)?;
                    if header[0] != 0x11 || header[1] != 0 {
                        return Err(Undecoded::NotIp);
                    }
                    (Next::Ppp, at + 6)
                }
                EtherType::PBB => {
                    let header = pbb::View::new(frame.get(at..).unwrap_or_default());
                    let header = header.map_err(|_| Undecoded::TruncatedLink)?;
                    (Next::EtherType(header.ether_type()), at + pbb::SIZE)
                }
                EtherType::NSH => nsh_header(frame, at)?,
                // The two bytes are FTag and TTL of FabricPath; an Ethernet frame follows.
                ether_type::CISCO_FABRIC_PATH => (Next::Ethernet, at + 2),
                ether_type::VN_TAG => {
                    let [_, _, _, _, high, low] = *chunk::<6>(frame, at)?;
                    let ether_type = u16::from_be_bytes([high, low]);
                    (Next::EtherType(EtherType(ether_type)), at + 6)
                }
                ether_type::E_TAG => {
                    let [.., high, low] = *chunk::<8>(frame, at)?;
                    let ether_type = u16::from_be_bytes([high, low]);
                    (Next::EtherType(EtherType(ether_type)), at + 8)
                }
                ether_type::TRANSPARENT_ETHERNET => (Next::Ethernet, at),
                _ => return Err(Undecoded::NotIp),
            },
        };
    }
    Err(Undecoded::TooDeep)
}

fn ethernet_header(frame: &[u8], at: usize) -> Result<(Next, usize), Undecoded> {
    let view = ethernet::View::new(frame.get(at..).unwrap_or_default());
    let view = view.map_err(|_| Undecoded::TruncatedLink)?;
    let ether_type = view.ether_type();
    if ether_type >= EtherType::MIN {
        return Ok((Next::EtherType(ether_type), at + ethernet::SIZE));
    }
    // IEEE 802.3 with a length: LLC and SNAP may carry an EtherType (RFC 1042).
    match ethernet::snap(view.payload()) {
        Some(ether_type) => Ok((
            Next::EtherType(ether_type),
            at + ethernet::SIZE + ethernet::SNAP_SIZE,
        )),
        None => Err(Undecoded::NotIp),
    }
}

/// Reads a PPP header: optional address and control bytes, then the protocol in one or two bytes (RFC 1661, section 2).
fn ppp_header(frame: &[u8], mut at: usize) -> Result<(Next, usize), Undecoded> {
    if frame.get(at..at + 2) == Some(&[0xff, 0x03]) {
        at += 2;
    }
    let [first] = *chunk::<1>(frame, at)?;
    let (protocol, size) = if first & 1 == 1 {
        (u16::from(first), 1)
    } else {
        (u16::from_be_bytes(*chunk::<2>(frame, at)?), 2)
    };
    let next = match protocol {
        ppp::IPV4 | ppp::VJ_UNCOMPRESSED => Next::IpOf(IpVersion::V4),
        ppp::IPV6 => Next::IpOf(IpVersion::V6),
        ppp::MPLS => Next::Mpls,
        _ => return Err(Undecoded::NotIp),
    };
    Ok((next, at + size))
}

/// Returns true if the lengths in an IP header fit the bytes. The first four bits alone do not prove IP, because the
/// MAC address of a pseudowire without control word may begin with 4 or 6 (RFC 8469).
fn is_ip(bytes: &[u8]) -> bool {
    let word = |at: usize| {
        bytes
            .get(at..at + 2)
            .map(|word| usize::from(word[0]) << 8 | usize::from(word[1]))
    };
    match bytes.first().copied() {
        Some(first) if first >> 4 == 4 => {
            let header_size = usize::from(first & 0xf) * 4;
            header_size >= 20 && word(2).is_some_and(|size| (header_size..=bytes.len()).contains(&size))
        }
        _ => word(4).is_some_and(|size| 40 + size <= bytes.len()),
    }
}

/// Skips a label stack. The payload is IP if its first four bits and its lengths fit, otherwise an Ethernet pseudowire
/// (RFC 4385, RFC 4448).
fn label_stack(frame: &[u8], mut at: usize) -> Result<(Next, usize), Undecoded> {
    for _ in 0..HEADERS_MAX {
        let view = mpls::View::new(frame.get(at..).unwrap_or_default());
        let view = view.map_err(|_| Undecoded::TruncatedLink)?;
        at += mpls::SIZE;
        if view.bos() {
            let [first] = *chunk::<1>(frame, at)?;
            return Ok(match first >> 4 {
                4 | 6 if is_ip(&frame[at..]) => (Next::Ip, at),
                // The first word is a control word.
                0 => (Next::Ethernet, at + 4),
                _ => (Next::Ethernet, at),
            });
        }
    }
    Err(Undecoded::TooDeep)
}

fn nsh_header(frame: &[u8], at: usize) -> Result<(Next, usize), Undecoded> {
    let view = nsh::View::new(frame.get(at..).unwrap_or_default());
    let view = view.map_err(|_| Undecoded::TruncatedLink)?;
    // Next protocols of RFC 8300, section 2.2.
    let next = match view.next_protocol() {
        1 => Next::IpOf(IpVersion::V4),
        2 => Next::IpOf(IpVersion::V6),
        nsh::ETHERNET => Next::Ethernet,
        5 => Next::Mpls,
        _ => return Err(Undecoded::NotIp),
    };
    Ok((next, at + view.size()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offset(link: u32, frame: &[u8]) -> Result<usize, Undecoded> {
        find_ip_header(LinkType(link), frame).map(|network| network.offset)
    }

    fn ethernet(ether_type: u16, payload: &[u8]) -> Vec<u8> {
        [&[2; 12][..], &ether_type.to_be_bytes(), payload].concat()
    }

    #[test]
    fn ip_is_found_behind_every_link_header() {
        let ip = [0x45, 0, 0, 20];
        assert_eq!(offset(LinkType::ETHERNET, &ethernet(0x0800, &ip)), Ok(14));
        assert_eq!(offset(LinkType::NULL, &[2, 0, 0, 0, 0x45]), Ok(4));
        assert_eq!(offset(LinkType::NULL, &[0, 0, 0, 30, 0x60]), Ok(4));
        assert_eq!(offset(LinkType::RAW, &ip), Ok(0));
        assert_eq!(offset(LinkType::PPP, &[0xff, 3, 0, 0x21, 0x45]), Ok(4));
        assert_eq!(offset(LinkType::PPP, &[0x21, 0x45]), Ok(1));
        let cooked = [&[0; 14][..], &[0x86, 0xdd], &ip].concat();
        assert_eq!(offset(LinkType::LINUX_SLL, &cooked), Ok(16));
        assert_eq!(offset(105, &ip), Err(Undecoded::UnknownLink));
    }

    #[test]
    fn tags_and_labels_are_passed_and_vlans_recorded() {
        let tagged = ethernet(0x88a8, &[0, 5, 0x81, 0, 0x20, 6, 0x08, 0, 0x45]);
        let network = find_ip_header(LinkType(LinkType::ETHERNET), &tagged).unwrap();
        assert_eq!((network.offset, network.vlans.ids), (22, [5, 6, 0]));
        let ip = [&[0x45, 0, 0, 20][..], &[0; 16]].concat();
        let labels = [&[0, 0, 0x10, 64, 0, 0, 0x21, 64][..], &ip].concat();
        assert_eq!(offset(LinkType::ETHERNET, &ethernet(0x8847, &labels)), Ok(22));
        let pppoe = [0x11, 0, 0, 1, 0, 22, 0, 0x57, 0x60];
        assert_eq!(offset(LinkType::ETHERNET, &ethernet(0x8864, &pppoe)), Ok(22));
    }

    #[test]
    fn the_address_of_a_pseudowire_may_begin_like_ip() {
        for first in [0x44, 0x46, 0x60] {
            let inner = [
                &[first, 0xaa, 0xbb, 0xcc, 0xdd, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45][..],
                &[0; 19],
            ]
            .concat();
            let labels = [&[0, 0, 0x11, 64][..], &inner].concat();
            assert_eq!(
                offset(LinkType::ETHERNET, &ethernet(0x8847, &labels)),
                Ok(32),
                "{first:x}"
            );
        }
    }

    #[test]
    fn headers_without_end_are_given_up() {
        let tags = [0x81, 0, 0, 1].repeat(40);
        let mut frame = vec![2; 12];
        frame.extend_from_slice(&tags);
        assert_eq!(offset(LinkType::ETHERNET, &frame), Err(Undecoded::TooDeep));
    }
}
