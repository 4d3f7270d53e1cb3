//! ICMP errors: to whom one may be sent, and its bytes.
//!
//! An error is made in the buffer of the packet that it is about: the link header goes, the end goes as far as the error
//! may not quote it, and the new headers take the headroom.
//!
//! ```text
//!  | link | IP | transport | data ...        |
//!         `---------- quoted ------`
//!  | link | IP | ICMP | IP | transport | data |     at most 576 bytes of IPv4 (RFC 1812, section 4.3.2.3),
//!                                                   1280 of IPv6 (RFC 4443, section 2.4)
//! ```
//! No extensions follow the quotation, so its length field is zero (RFC 4884, section 3).

use core::net::{Ipv4Addr, Ipv6Addr};

use millrace_wire::checksum::{Sum, internet};
use millrace_wire::ip::Pseudo;
use millrace_wire::{Fragment, IpProto, Packet, icmpv4, icmpv6, ipv4, ipv6};

use crate::limit::PacketRate;

/// A class of ICMP errors with a rate of its own.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum ErrorClass {
    TimeExceeded,
    /// Fragmentation needed, and packet too big.
    TooBig,
    Unreachable,
    ParameterProblem,
}

impl ErrorClass {
    /// Every class.
    pub const ALL: [ErrorClass; ErrorClass::COUNT] = [
        ErrorClass::TimeExceeded,
        ErrorClass::TooBig,
        ErrorClass::Unreachable,
        ErrorClass::ParameterProblem,
    ];
    /// The number of classes.
    pub const COUNT: usize = 4;

    /// Returns the stable name: lower case and underscores.
    pub const fn name(self) -> &'static str {
        match self {
            ErrorClass::TimeExceeded => "time_exceeded",
            ErrorClass::TooBig => "too_big",
            ErrorClass::Unreachable => "unreachable",
            ErrorClass::ParameterProblem => "parameter_problem",
        }
    }

    /// Returns the default rate of the class in one worker: that of Linux (`icmp_msgs_per_sec`, `icmp_msgs_burst`).
    pub const fn default_rate(self) -> PacketRate {
        PacketRate {
            per_second: 1000,
            burst: 50,
        }
    }
}

/// An ICMP error, of either version: its type, code and parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IcmpError {
    TimeExceeded,
    TooBig {
        /// The MTU of the next hop in bytes.
        mtu: u16,
    },
    NoRoute,
    HostUnreachable,
    /// Communication administratively prohibited.
    Prohibited,
    /// IPv6: the source is valid on its link only (RFC 4443, section 3.1, code 2).
    BeyondScope,
    ParameterProblem {
        /// The offset in bytes of the error in the IP packet.
        pointer: u32,
    },
}

/// Size in bytes of an IPv4 packet that every host takes, and the limit of an error (RFC 1812, section 4.3.2.3).
const ERROR_MAX_V4: usize = 576;
/// The least MTU of IPv6, and the limit of an error (RFC 4443, section 2.4).
const ERROR_MAX_V6: usize = 1280;
/// Size of the header of an ICMP or ICMPv6 error in bytes.
const ICMP_SIZE: usize = 8;
/// The TTL and hop limit of errors (RFC 1700).
const TTL: u8 = 64;
/// Precedence "internetwork control" (RFC 1812, section 4.3.2.5).
const INTERNETWORK_CONTROL: u8 = 0xc0;
/// The bits of the type of service that an error takes over (RFC 1349).
const TYPE_OF_SERVICE: u8 = 0x1e;

/// ICMP types (IANA, "ICMP Parameters").
mod kind4 {
    pub(super) const UNREACHABLE: u8 = 3;
    pub(super) const SOURCE_QUENCH: u8 = 4;
    pub(super) const REDIRECT: u8 = 5;
    pub(super) const TIME_EXCEEDED: u8 = 11;
    pub(super) const PARAMETER_PROBLEM: u8 = 12;
    /// The last type that RFCs of this century use.
    pub(super) const LAST_KNOWN: u8 = 18;
}

/// ICMPv6 types (RFC 4443).
mod kind6 {
    pub(super) const UNREACHABLE: u8 = 1;
    pub(super) const TOO_BIG: u8 = 2;
    pub(super) const TIME_EXCEEDED: u8 = 3;
    pub(super) const PARAMETER_PROBLEM: u8 = 4;
}

impl IcmpError {
    /// Returns the class.
    pub fn class(self) -> ErrorClass {
        match self {
            IcmpError::TimeExceeded => ErrorClass::TimeExceeded,
            IcmpError::TooBig { .. } => ErrorClass::TooBig,
            IcmpError::NoRoute
            | IcmpError::HostUnreachable
            | IcmpError::Prohibited
            | IcmpError::BeyondScope => ErrorClass::Unreachable,
            IcmpError::ParameterProblem { .. } => ErrorClass::ParameterProblem,
        }
    }

    /// Returns the fields of ICMP (RFC 792, RFC 1191, RFC 1812).
    fn fields4(self) -> Fields {
        match self {
            // Code 0: the time to live exceeded in transit.
            IcmpError::TimeExceeded => Fields::new(kind4::TIME_EXCEEDED, 0, 0),
            // Fragmentation needed, net unreachable, host unreachable, and communication prohibited.
            IcmpError::TooBig { mtu } => Fields::new(kind4::UNREACHABLE, 4, mtu.into()),
            IcmpError::NoRoute => Fields::new(kind4::UNREACHABLE, 0, 0),
            IcmpError::HostUnreachable | IcmpError::BeyondScope => Fields::new(kind4::UNREACHABLE, 1, 0),
            IcmpError::Prohibited => Fields::new(kind4::UNREACHABLE, 13, 0),
            IcmpError::ParameterProblem { pointer } => {
                Fields::new(kind4::PARAMETER_PROBLEM, 0, pointer << 24)
            }
        }
    }

    /// Returns the fields of ICMPv6 (RFC 4443).
    fn fields6(self) -> Fields {
        match self {
            // No route, communication prohibited, beyond the scope of the source, and address unreachable.
            IcmpError::NoRoute => Fields::new(kind6::UNREACHABLE, 0, 0),
            IcmpError::Prohibited => Fields::new(kind6::UNREACHABLE, 1, 0),
            IcmpError::BeyondScope => Fields::new(kind6::UNREACHABLE, 2, 0),
            IcmpError::HostUnreachable => Fields::new(kind6::UNREACHABLE, 3, 0),
            IcmpError::TooBig { mtu } => {
                Fields::new(kind6::TOO_BIG, 0, u32::from(mtu).max(ERROR_MAX_V6 as u32))
            }
            IcmpError::TimeExceeded => Fields::new(kind6::TIME_EXCEEDED, 0, 0),
            // Code 2: an unrecognized option.
            IcmpError::ParameterProblem { pointer } => Fields::new(kind6::PARAMETER_PROBLEM, 2, pointer),
        }
    }
}

/// The fields by which errors differ.
struct Fields {
    kind: u8,
    code: u8,
    /// The four bytes behind the checksum.
    rest: u32,
}

impl Fields {
    const fn new(kind: u8, code: u8, rest: u32) -> Fields {
        Fields { kind, code, rest }
    }
}

/// Returns true if an error about this IPv4 packet may be sent (RFC 1812, section 4.3.2.7). `ip` begins at the header,
/// whose size is `header_size`; the source is known to be an address of a host.
pub(crate) fn may_answer4(ip: &[u8], header_size: usize) -> bool {
    let Some(header) = ip.first_chunk::<{ ipv4::MIN_SIZE }>() else {
        return false;
    };
    let is_first = u16::from_be_bytes([header[6], header[7]]) & ipv4::FRAGMENT_OFFSET == 0;
    let is_error = header[9] == IpProto::ICMPV4.0
        && ip.get(header_size).is_none_or(|kind| {
            let errors = [
                kind4::UNREACHABLE,
                kind4::SOURCE_QUENCH,
                kind4::REDIRECT,
                kind4::TIME_EXCEEDED,
                kind4::PARAMETER_PROBLEM,
            ];
            errors.contains(kind) || *kind > kind4::LAST_KNOWN
        });
    let is_group = header[16] & 0xf0 == 0xe0 || header[16..20] == [255; 4];
    is_first && !is_error && !is_group && header[12..16] != [0; 4]
}

/// Returns true if an error about this IPv6 packet may be sent (RFC 4443, section 2.4, e). `ip` begins at the header; the
/// source is known to be an address of a host.
pub(crate) fn may_answer6(ip: &[u8], error: IcmpError, is_group_frame: bool) -> bool {
    let Some((header, payload)) = ip.split_first_chunk::<{ ipv6::SIZE }>() else {
        return false;
    };
    let walk = ipv6::walk(IpProto(header[6]), payload);
    // Types of errors are below 128. What cannot be seen may be an error.
    let is_error = walk.proto == IpProto::ICMPV6
        && (walk.fragment == Fragment::Later
            || payload
                .get(walk.size)
                .is_none_or(|kind| kind & 0x80 == 0 || *kind == 137));
    let is_group = header[24] == 0xff || is_group_frame;
    let tells_group = matches!(
        error,
        IcmpError::TooBig { .. } | IcmpError::ParameterProblem { .. }
    );
    !is_error && (!is_group || tells_group) && header[8..24] != [0; 16]
}

/// Makes the error about a packet in its buffer; the result begins at the IP header. `l3` is the offset of the IP header
/// of the packet. Returns `None` if the buffer lacks room and none is free.
pub(crate) fn make4<P: Packet>(mut packet: P, l3: usize, error: IcmpError, source: Ipv4Addr) -> Option<P> {
    let mut original = [0; ipv4::MIN_SIZE];
    original.copy_from_slice(packet.head().get(l3..l3 + ipv4::MIN_SIZE)?);
    let headers = ipv4::MIN_SIZE + ICMP_SIZE;
    let quoted = (packet.len() - l3).min(ERROR_MAX_V4 - headers);
    packet = quote(packet, l3, quoted)?;
    let Fields { kind, code, rest } = error.fields4();
    let sum = packet.sum(0, quoted);
    let checksum = sum.add16(u16::from_be_bytes([kind, code])).add32(rest).checksum();
    packet.prepend(headers).ok()?;
    let total = (headers + quoted) as u16;
    let (ip, icmp) = packet.head_mut().get_mut(..headers)?.split_at_mut(ipv4::MIN_SIZE);
    ip.fill(0);
    ip[0] = 0x45;
    ip[1] = original[1] & TYPE_OF_SERVICE | INTERNETWORK_CONTROL;
    ip[2..4].copy_from_slice(&total.to_be_bytes());
    ip[8] = TTL;
    ip[9] = IpProto::ICMPV4.0;
    ip[12..16].copy_from_slice(&source.octets());
    ip[16..20].copy_from_slice(&original[12..16]);
    let header_checksum = internet(ip);
    ip[10..12].copy_from_slice(&header_checksum.to_be_bytes());
    icmp[..2].copy_from_slice(&[kind, code]);
    icmp[2..4].copy_from_slice(&checksum.to_be_bytes());
    icmp[4..8].copy_from_slice(&rest.to_be_bytes());
    const { assert!(icmpv4::SIZE == ICMP_SIZE) };
    Some(packet)
}

/// Makes the error about an IPv6 packet, as [`make4`] does.
pub(crate) fn make6<P: Packet>(mut packet: P, l3: usize, error: IcmpError, source: Ipv6Addr) -> Option<P> {
    let to: [u8; 16] = *packet.head().get(l3 + 8..)?.first_chunk()?;
    let headers = ipv6::SIZE + ICMP_SIZE;
    let quoted = (packet.len() - l3).min(ERROR_MAX_V6 - headers);
    packet = quote(packet, l3, quoted)?;
    let Fields { kind, code, rest } = error.fields6();
    let pseudo = Pseudo::V6 {
        src: source,
        dst: to.into(),
    };
    let sum: Sum = pseudo.sum(IpProto::ICMPV6, ICMP_SIZE + quoted);
    let sum = sum.add16(packet.sum(0, quoted).folded());
    let checksum = sum.add16(u16::from_be_bytes([kind, code])).add32(rest).checksum();
    packet.prepend(headers).ok()?;
    let (ip, icmp) = packet.head_mut().get_mut(..headers)?.split_at_mut(ipv6::SIZE);
    ip[..4].copy_from_slice(&[0x60, 0, 0, 0]);
    ip[4..6].copy_from_slice(&((ICMP_SIZE + quoted) as u16).to_be_bytes());
    ip[6..8].copy_from_slice(&[IpProto::ICMPV6.0, TTL]);
    ip[8..24].copy_from_slice(&source.octets());
    ip[24..40].copy_from_slice(&to);
    icmp[..2].copy_from_slice(&[kind, code]);
    icmp[2..4].copy_from_slice(&checksum.to_be_bytes());
    icmp[4..8].copy_from_slice(&rest.to_be_bytes());
    const { assert!(icmpv6::SIZE + 4 == ICMP_SIZE) };
    Some(packet)
}

/// Returns the first `size` bytes of a packet from offset `l3` on, in the same buffer if that is possible.
fn quote<P: Packet>(mut packet: P, l3: usize, size: usize) -> Option<P> {
    packet.set_segment_size(None);
    if packet.head().len() < l3 + size && packet.head().len() < packet.len() {
        // The part to quote is spread over segments, some of which go.
        return packet.gso_segment(&[], l3, size);
    }
    if !packet.truncate(l3 + size) {
        return packet.gso_segment(&[], l3, size);
    }
    packet.trim_front(l3);
    Some(packet)
}
