//! The walk over IPv6 extension headers (RFC 8200 section 4), and the summary of them that OpenFlow
//! matches (`OFPXMT_OFB_IPV6_EXTHDR`, OpenFlow 1.3.5 section 7.2.3.8).
//!
//! The walk passes hop-by-hop options, routing, fragment, authentication and destination options. Encapsulating
//! security payload and "no next header" count as extension headers, too, but the walk ends there. Any other next
//! header is the transport.

use core::fmt;

use crate::IpProto;
use crate::bytes::{be16, be32, chunk};

/// A summary of the extension headers: those that are present, and deviations from the order that RFC 2460
/// recommends. The bits are those of `ofp_ipv6exthdr_flags`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct ExtHeaders(pub u16);

impl ExtHeaders {
    /// `OFPIEH_NONEXT`: "no next header" encountered.
    pub const NO_NEXT: ExtHeaders = ExtHeaders(1 << 0);
    /// `OFPIEH_ESP`: encapsulating security payload present.
    pub const ESP: ExtHeaders = ExtHeaders(1 << 1);
    /// `OFPIEH_AUTH`: authentication header present.
    pub const AUTH: ExtHeaders = ExtHeaders(1 << 2);
    /// `OFPIEH_DEST`: one or more destination options present.
    pub const DEST: ExtHeaders = ExtHeaders(1 << 3);
    /// `OFPIEH_FRAG`: fragment header present.
    pub const FRAG: ExtHeaders = ExtHeaders(1 << 4);
    /// `OFPIEH_ROUTER`: routing header present.
    pub const ROUTER: ExtHeaders = ExtHeaders(1 << 5);
    /// `OFPIEH_HOP`: hop-by-hop options present as the first extension header.
    pub const HOP: ExtHeaders = ExtHeaders(1 << 6);
    /// `OFPIEH_UNREP`: a header unexpectedly repeated (two destination options are expected).
    pub const UNREP: ExtHeaders = ExtHeaders(1 << 7);
    /// `OFPIEH_UNSEQ`: not in the order that RFC 2460 section 4.1 prefers.
    pub const UNSEQ: ExtHeaders = ExtHeaders(1 << 8);

    /// Returns true if all bits of `other` are set.
    #[inline]
    pub const fn contains(self, other: ExtHeaders) -> bool {
        self.0 & other.0 == other.0
    }
}

impl core::ops::BitOr for ExtHeaders {
    type Output = ExtHeaders;

    #[inline]
    fn bitor(self, other: ExtHeaders) -> ExtHeaders {
        ExtHeaders(self.0 | other.0)
    }
}

impl core::ops::BitOrAssign for ExtHeaders {
    #[inline]
    fn bitor_assign(&mut self, other: ExtHeaders) {
        self.0 |= other.0;
    }
}

impl fmt::Debug for ExtHeaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAMES: [&str; 9] = [
            "NONEXT", "ESP", "AUTH", "DEST", "FRAG", "ROUTER", "HOP", "UNREP", "UNSEQ",
        ];
        let set = NAMES.iter().enumerate().filter(|(bit, _)| self.0 >> bit & 1 != 0);
        f.debug_set().entries(set.map(|(_, name)| name)).finish()
    }
}

/// The position of a packet in a fragmented IP packet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Fragment {
    /// A whole packet; also an atomic fragment (RFC 6946).
    #[default]
    Whole,
    /// The first fragment. It contains at least the beginning of the transport header.
    First,
    /// A later fragment: it has no transport header.
    Later,
}

/// The result of the walk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExtensionWalk {
    /// The transport protocol (for a later fragment, the protocol of its data). If the walk ended at an
    /// extension header, because it is truncated or hides the following header, the number of that extension
    /// header.
    pub proto: IpProto,
    /// Size of the extension headers before the header of `proto`, in bytes.
    pub size: usize,
    /// The summary of the extension headers.
    pub headers: ExtHeaders,
    /// The position in a fragmented packet.
    pub fragment: Fragment,
    /// True if a routing header has segments left. Transport checksums then cover the final destination, and
    /// not the destination in the fixed header.
    pub routed: bool,
}

/// The order that RFC 2460, section 4.1, recommends; destination options have two ranks.
mod rank {
    pub(super) const HOP: u8 = 0;
    pub(super) const FIRST_DEST: u8 = 1;
    pub(super) const ROUTER: u8 = 2;
    pub(super) const FRAG: u8 = 3;
    pub(super) const AUTH: u8 = 4;
    pub(super) const ESP: u8 = 5;
    pub(super) const LAST_DEST: u8 = 6;
}

/// The summary of the headers walked so far.
struct Summary {
    headers: ExtHeaders,
    rank: u8,
    hop_options: u16,
    dest_options: u16,
}

impl Summary {
    /// Adds a header of `kind` with the preferred position `rank`.
    #[inline]
    fn add(&mut self, kind: ExtHeaders, rank: u8, repeated: bool) {
        if repeated {
            self.headers |= ExtHeaders::UNREP;
        }
        if rank < self.rank {
            self.headers |= ExtHeaders::UNSEQ;
        }
        self.rank = self.rank.max(rank);
        self.headers |= kind;
    }

    #[inline]
    fn add_once(&mut self, kind: ExtHeaders, rank: u8) {
        self.add(kind, rank, self.headers.contains(kind));
    }

    #[inline]
    fn add_hop_options(&mut self, first: bool) {
        self.hop_options = self.hop_options.saturating_add(1);
        let kind = if first { ExtHeaders::HOP } else { ExtHeaders::UNSEQ };
        self.add(kind, rank::HOP, self.hop_options > 1);
    }

    #[inline]
    fn add_dest_options(&mut self) {
        self.dest_options = self.dest_options.saturating_add(1);
        let first_place = self.dest_options == 1 && self.rank <= rank::FIRST_DEST;
        let rank = if first_place {
            rank::FIRST_DEST
        } else {
            rank::LAST_DEST
        };
        self.add(ExtHeaders::DEST, rank, self.dest_options > 2);
    }
}

/// Walks over the extension headers at the front of `payload` to the transport. `first` is the type of the
/// first header. The walk costs a few nanoseconds for each extension header, and almost nothing if there is
/// none.
#[inline]
pub fn walk(first: IpProto, payload: &[u8]) -> ExtensionWalk {
    match first {
        IpProto::TCP | IpProto::UDP | IpProto::ICMPV6 | IpProto::SCTP => ExtensionWalk {
            proto: first,
            size: 0,
            headers: ExtHeaders(0),
            fragment: Fragment::Whole,
            routed: false,
        },
        _ => walk_extensions(first, payload),
    }
}

fn walk_extensions(first: IpProto, payload: &[u8]) -> ExtensionWalk {
    let mut summary = Summary {
        headers: ExtHeaders(0),
        rank: 0,
        hop_options: 0,
        dest_options: 0,
    };
    let (mut proto, mut size) = (first, 0);
    let mut fragment = Fragment::Whole;
    let mut routed = false;
    loop {
        match proto {
            IpProto::NO_NEXT => {
                summary.headers |= ExtHeaders::NO_NEXT;
                break;
            }
            IpProto::ESP => {
                summary.add_once(ExtHeaders::ESP, rank::ESP);
                break;
            }
            IpProto::HOP_BY_HOP
            | IpProto::DEST_OPTIONS
            | IpProto::ROUTING
            | IpProto::AH
            | IpProto::FRAGMENT => {}
            _ => break,
        }
        // Every extension header has at least eight bytes: next header, its own length, and its content.
        let Some(header) = chunk::<8>(payload, size) else {
            break;
        };
        let header_size = match proto {
            IpProto::FRAGMENT => 8,
            // The length is in 32-bit words, minus two (RFC 4302, section 2.2).
            IpProto::AH => (usize::from(header[1]) + 2) * 4,
            _ => (usize::from(header[1]) + 1) * 8,
        };
        if payload.len() - size < header_size {
            break;
        }
        match proto {
            IpProto::HOP_BY_HOP => summary.add_hop_options(size == 0),
            IpProto::DEST_OPTIONS => summary.add_dest_options(),
            IpProto::ROUTING => {
                summary.add_once(ExtHeaders::ROUTER, rank::ROUTER);
                routed |= header[3] != 0;
            }
            IpProto::AH => summary.add_once(ExtHeaders::AUTH, rank::AUTH),
            _ => {
                summary.add_once(ExtHeaders::FRAG, rank::FRAG);
                let field = be16(header, 2);
                if field & 0xfff8 != 0 {
                    fragment = Fragment::Later;
                } else if field & 1 != 0 {
                    fragment = Fragment::First;
                }
            }
        }
        proto = IpProto(header[0]);
        size += header_size;
        if fragment == Fragment::Later {
            break;
        }
    }
    ExtensionWalk {
        proto,
        size,
        headers: summary.headers,
        fragment,
        routed,
    }
}

/// A fragment header (RFC 8200, section 4.5).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FragmentHeader {
    /// Offset of the header in the payload of the fixed header, in bytes.
    pub at: usize,
    /// Offset of the next header field with the number of the fragment header; `None` if it is in the fixed
    /// header.
    pub named_at: Option<usize>,
    /// Type of the first header of the fragmented data.
    pub next_header: IpProto,
    /// Offset of the data in the unfragmented packet, in bytes.
    pub offset: u16,
    /// True if more fragments follow.
    pub more_fragments: bool,
    /// Identification, which the fragments of a packet share.
    pub ident: u32,
}

impl FragmentHeader {
    /// Size of the header in bytes.
    pub const SIZE: usize = 8;

    /// Returns true for an atomic fragment, which is an unfragmented packet with a fragment header (RFC
    /// 6946).
    pub fn is_atomic(&self) -> bool {
        self.offset == 0 && !self.more_fragments
    }

    /// Returns the first fragment header in the chain of headers at the front of `payload`. `first` is the
    /// type of the first header of the chain.
    pub fn find(first: IpProto, payload: &[u8]) -> Option<FragmentHeader> {
        let (mut proto, mut at, mut named_at) = (first, 0, None);
        loop {
            let header = chunk::<8>(payload, at)?;
            let size = match proto {
                IpProto::FRAGMENT => {
                    let field = be16(header, 2);
                    return Some(FragmentHeader {
                        at,
                        named_at,
                        next_header: IpProto(header[0]),
                        offset: field & 0xfff8,
                        more_fragments: field & 1 != 0,
                        ident: be32(header, 4),
                    });
                }
                IpProto::HOP_BY_HOP | IpProto::DEST_OPTIONS | IpProto::ROUTING => {
                    (usize::from(header[1]) + 1) * 8
                }
                // The length is in 32-bit words, minus two (RFC 4302, section 2.2).
                IpProto::AH => (usize::from(header[1]) + 2) * 4,
                _ => return None,
            };
            proto = IpProto(header[0]);
            named_at = Some(at);
            at += size;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fragment_header_is_found_behind_other_headers() {
        let hop_options = [44, 0, 1, 4, 0, 0, 0, 0];
        let fragment = [6, 0, 0x01, 0x69, 0xde, 0xad, 0xbe, 0xef];
        let bytes = [hop_options, fragment].concat();
        let expected = FragmentHeader {
            at: 8,
            named_at: Some(0),
            next_header: IpProto::TCP,
            offset: 0x168,
            more_fragments: true,
            ident: 0xdead_beef,
        };
        assert_eq!(FragmentHeader::find(IpProto::HOP_BY_HOP, &bytes), Some(expected));
        assert!(!expected.is_atomic());
        assert_eq!(FragmentHeader::find(IpProto::HOP_BY_HOP, &bytes[..15]), None);
        assert_eq!(FragmentHeader::find(IpProto::TCP, &bytes), None);
        let direct = FragmentHeader::find(IpProto::FRAGMENT, &fragment);
        assert_eq!(direct.map(|header| (header.at, header.named_at)), Some((0, None)));
    }

    const HOP: u8 = 0;
    const ROUTER: u8 = 43;
    const FRAG: u8 = 44;
    const ESP: u8 = 50;
    const AUTH: u8 = 51;
    const NO_NEXT: u8 = 59;
    const DEST: u8 = 60;
    const TCP: u8 = 6;

    /// Returns the walk over the chain `headers`. Each header is eight bytes long and has no content. The last header
    /// is not an extension header, or ends the walk.
    fn chain(headers: &[u8]) -> ExtensionWalk {
        let mut payload = Vec::new();
        for next in &headers[1..] {
            payload.extend([*next, 0, 0, 0, 0, 0, 0, 0]);
        }
        payload.extend([0; 4]);
        walk(IpProto(headers[0]), &payload)
    }

    fn bits(headers: &[u8]) -> ExtHeaders {
        chain(headers).headers
    }

    #[test]
    fn without_extension_headers_no_bit_is_set() {
        assert_eq!(bits(&[TCP]), ExtHeaders(0));
        assert_eq!(bits(&[200]), ExtHeaders(0));
    }

    #[test]
    fn each_extension_header_sets_its_bit_and_the_preferred_order_sets_no_other() {
        let walk = chain(&[HOP, DEST, ROUTER, FRAG, AUTH, DEST, TCP]);
        let all = ExtHeaders::HOP | ExtHeaders::DEST | ExtHeaders::ROUTER | ExtHeaders::FRAG;
        assert_eq!(walk.headers, all | ExtHeaders::AUTH);
        assert_eq!((walk.proto, walk.size), (IpProto::TCP, 48));
        assert_eq!(bits(&[AUTH, ESP]), ExtHeaders::AUTH | ExtHeaders::ESP);
        assert_eq!(bits(&[DEST, NO_NEXT]), ExtHeaders::DEST | ExtHeaders::NO_NEXT);
    }

    #[test]
    fn two_destination_options_are_expected_and_three_are_not() {
        assert_eq!(bits(&[DEST, DEST, TCP]), ExtHeaders::DEST);
        assert_eq!(
            bits(&[DEST, DEST, DEST, TCP]),
            ExtHeaders::DEST | ExtHeaders::UNREP
        );
    }

    #[test]
    fn other_headers_are_unexpected_twice() {
        assert_eq!(
            bits(&[ROUTER, ROUTER, TCP]),
            ExtHeaders::ROUTER | ExtHeaders::UNREP
        );
        assert_eq!(bits(&[FRAG, FRAG, TCP]), ExtHeaders::FRAG | ExtHeaders::UNREP);
    }

    #[test]
    fn headers_out_of_the_preferred_order_are_unexpected_there() {
        let unseq = ExtHeaders::UNSEQ;
        assert_eq!(
            bits(&[FRAG, ROUTER, TCP]),
            ExtHeaders::FRAG | ExtHeaders::ROUTER | unseq
        );
        let late = ExtHeaders::ROUTER | ExtHeaders::DEST | ExtHeaders::FRAG | unseq;
        assert_eq!(bits(&[ROUTER, DEST, FRAG, TCP]), late);
    }

    #[test]
    fn hop_by_hop_options_count_only_where_they_belong() {
        assert_eq!(bits(&[DEST, HOP, TCP]), ExtHeaders::DEST | ExtHeaders::UNSEQ);
        let twice = ExtHeaders::HOP | ExtHeaders::UNREP | ExtHeaders::UNSEQ;
        assert_eq!(bits(&[HOP, HOP, TCP]), twice);
    }

    #[test]
    fn a_later_fragment_ends_the_walk_and_an_atomic_one_is_whole() {
        let fragment =
            |offset_and_more: u8| walk(IpProto::FRAGMENT, &[17, 0, 0, offset_and_more, 0, 0, 0, 0]);
        assert_eq!(fragment(0).fragment, Fragment::Whole);
        assert_eq!(fragment(1).fragment, Fragment::First);
        assert_eq!(fragment(9).fragment, Fragment::Later);
        assert_eq!((fragment(8).proto, fragment(8).size), (IpProto::UDP, 8));
    }

    #[test]
    fn a_header_that_is_cut_short_ends_the_walk_before_it() {
        let walk = walk(
            IpProto::HOP_BY_HOP,
            &[60, 0, 0, 0, 0, 0, 0, 0, 6, 1, 0, 0, 0, 0, 0, 0],
        );
        assert_eq!((walk.proto, walk.size), (IpProto::DEST_OPTIONS, 8));
        assert_eq!(walk.headers, ExtHeaders::HOP);
    }

    #[test]
    fn segments_left_in_a_routing_header_are_noticed() {
        assert!(walk(IpProto::ROUTING, &[6, 0, 0, 1, 0, 0, 0, 0]).routed);
        assert!(!walk(IpProto::ROUTING, &[6, 0, 0, 0, 0, 0, 0, 0]).routed);
    }

    #[test]
    fn an_authentication_header_counts_its_length_in_words() {
        let bytes = [[6, 4, 0, 0], [0; 4], [0; 4], [0; 4], [0; 4], [0; 4]].concat();
        assert_eq!(walk(IpProto::AH, &bytes).size, 24);
    }
}
