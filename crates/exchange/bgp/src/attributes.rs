//! Path attributes (RFC 4271, section 4.3), and the treatment of malformed ones (RFC 7606).

use core::net::{IpAddr, Ipv4Addr};

use crate::aspath::{AS_TRANS, AsPath, AsnSize};
use crate::community::{ExtendedCommunity, LargeCommunity};
use crate::family::Afi;
use crate::reader::Reader;

pub(crate) const ORIGIN: u8 = 1;
pub(crate) const AS_PATH: u8 = 2;
pub(crate) const NEXT_HOP: u8 = 3;
const MULTI_EXIT_DISC: u8 = 4;
pub(crate) const LOCAL_PREF: u8 = 5;
const ATOMIC_AGGREGATE: u8 = 6;
const AGGREGATOR: u8 = 7;
const COMMUNITIES: u8 = 8;
const ORIGINATOR_ID: u8 = 9;
const CLUSTER_LIST: u8 = 10;
pub(crate) const MP_REACH: u8 = 14;
pub(crate) const MP_UNREACH: u8 = 15;
const EXTENDED_COMMUNITIES: u8 = 16;
const AS4_PATH: u8 = 17;
const AS4_AGGREGATOR: u8 = 18;
const IPV6_EXTENDED_COMMUNITIES: u8 = 25;
const LARGE_COMMUNITIES: u8 = 32;

const OPTIONAL: u8 = 0x80;
const TRANSITIVE: u8 = 0x40;
/// The Extended Length flag: the length field is two bytes long (RFC 4271, section 4.3).
pub(crate) const EXTENDED_LENGTH: u8 = 0x10;

/// The estimated memory of a segment of AS_PATH without its AS numbers, in bytes: [`Segment`](crate::Segment), and the
/// overhead of an allocation.
const SEGMENT_SIZE: usize = 40;
/// The estimated memory of the counts of an `Arc` and of the entry in the set of shared attributes, in bytes.
const SHARED_SIZE: usize = 48;

/// The ORIGIN attribute (RFC 4271, section 5.1.1).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Origin {
    /// The route is interior to the originating AS.
    #[default]
    Igp,
    /// The route was learned by EGP.
    Egp,
    /// The route was learned by other means.
    Incomplete,
}

/// The path attributes of a route, as far as the receiver keeps them.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Attributes {
    pub origin: Origin,
    /// AS_PATH, with four-octet AS numbers.
    pub as_path: AsPath,
    /// The next hop from NEXT_HOP or MP_REACH_NLRI, for IPv6 the global address; `None` for flow specifications.
    pub next_hop: Option<IpAddr>,
    /// ORIGINATOR_ID, which exists only within an AS (RFC 4456).
    pub originator_id: Option<Ipv4Addr>,
    pub communities: Box<[u32]>,
    /// Large communities.
    pub large: Box<[LargeCommunity]>,
    /// Extended communities.
    pub extended: Box<[ExtendedCommunity]>,
    /// True if an IPv6 extended community redirects traffic (RFC 8956, section 6.1).
    pub redirects_ipv6: bool,
}

impl Attributes {
    /// Returns an estimate of the memory that the attributes use, in bytes.
    pub(crate) fn size(&self) -> usize {
        let path = self
            .as_path
            .0
            .iter()
            .map(|segment| SEGMENT_SIZE + size_of_val(&*segment.asns))
            .sum::<usize>();
        size_of::<Attributes>()
            + SHARED_SIZE
            + path
            + size_of_val(&*self.communities)
            + size_of_val(&*self.large)
            + size_of_val(&*self.extended)
    }

    /// Returns true if the route has this standard community (RFC 1997).
    pub fn has_community(&self, community: u32) -> bool {
        self.communities.contains(&community)
    }
}

/// The mildest treatment of a malformed attribute that RFC 7606, section 2, permits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Treatment {
    /// The attribute is ignored.
    AttributeDiscard,
    /// The routes of the message are treated as if they were withdrawn.
    TreatAsWithdraw,
}

/// Reads path attributes one by one, and holds those that have been read so far.
#[derive(Debug, Default)]
pub(crate) struct AttributeParser {
    pub(crate) attributes: Attributes,
    pub(crate) as4_path: Option<AsPath>,
    /// The AS number in an AGGREGATOR attribute with two-octet AS numbers.
    pub(crate) aggregator: Option<u16>,
    pub(crate) has_as4_aggregator: bool,
    /// The value of NEXT_HOP, or its fault. Only IPv4 routes outside of MP_REACH_NLRI use it, and a message
    /// without such routes is not affected by the fault (RFC 4760, section 3).
    pub(crate) next_hop: Option<Result<IpAddr, String>>,
    pub(crate) has_local_pref: bool,
}

/// The properties of a session that decide how attributes are read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Context {
    /// The size of an AS number in AS_PATH and AGGREGATOR.
    pub(crate) asn_size: AsnSize,
    pub(crate) is_internal: bool,
}

/// The fault of a malformed attribute.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Fault {
    pub(crate) treatment: Treatment,
    /// The error message.
    pub(crate) text: String,
}

const fn withdraw(text: String) -> Fault {
    Fault {
        treatment: Treatment::TreatAsWithdraw,
        text,
    }
}

const fn discard(text: String) -> Fault {
    Fault {
        treatment: Treatment::AttributeDiscard,
        text,
    }
}

/// Returns the Optional and Transitive flags that an attribute of this type must have; `None` for an unknown type.
const fn expected_flags(kind: u8) -> Option<u8> {
    match kind {
        ORIGIN | AS_PATH | NEXT_HOP | LOCAL_PREF | ATOMIC_AGGREGATE => Some(TRANSITIVE),
        MULTI_EXIT_DISC | ORIGINATOR_ID | CLUSTER_LIST | MP_REACH | MP_UNREACH => Some(OPTIONAL),
        AGGREGATOR
        | COMMUNITIES
        | EXTENDED_COMMUNITIES
        | AS4_PATH
        | AS4_AGGREGATOR
        | IPV6_EXTENDED_COMMUNITIES
        | LARGE_COMMUNITIES => Some(OPTIONAL | TRANSITIVE),
        _ => None,
    }
}

/// Returns true if the flags mark the attribute as well-known and its type is unknown.
pub(crate) const fn is_unknown_well_known(flags: u8, kind: u8) -> bool {
    expected_flags(kind).is_none() && flags & OPTIONAL == 0
}

/// Checks the Optional and Transitive flags of an attribute (RFC 7606, section 3, (c)).
pub(crate) fn check_flags(flags: u8, kind: u8) -> Result<(), Fault> {
    match expected_flags(kind) {
        Some(expected) if flags & (OPTIONAL | TRANSITIVE) != expected => Err(withdraw(format!(
            "flags {flags:#04x}: expected {expected:#04x} in the first two bits"
        ))),
        _ => Ok(()),
    }
}

impl AttributeParser {
    /// Returns AS_PATH with the four-octet AS numbers of AS4_PATH. A speaker that has aggregated the route
    /// without knowledge of AS4_PATH writes its own AS number into AGGREGATOR. AS4_PATH and AS4_AGGREGATOR
    /// are then older than AS_PATH, and are ignored (RFC 6793, section 4.2.3).
    pub(crate) fn take_path(&mut self) -> AsPath {
        let path = core::mem::take(&mut self.attributes.as_path);
        let is_outdated =
            self.has_as4_aggregator && self.aggregator.is_some_and(|asn| u32::from(asn) != AS_TRANS);
        match &self.as4_path {
            Some(as4) if !is_outdated => path.merged(as4),
            _ => path,
        }
    }

    /// Returns AS_PATH or AS4_PATH if it has an AS_SET or AS_CONFED_SET.
    pub(crate) fn path_with_set(&self) -> Option<&AsPath> {
        let paths = [Some(&self.attributes.as_path), self.as4_path.as_ref()];
        paths.into_iter().flatten().find(|path| path.has_set())
    }

    /// Reads an attribute other than MP_REACH_NLRI and MP_UNREACH_NLRI. The arms cite sections of RFC 7606.
    pub(crate) fn read(&mut self, kind: u8, value: &[u8], context: Context) -> Result<(), Fault> {
        let length = |expected: &str| format!("length {}: expected {expected}", value.len());
        match kind {
            // RFC 7606, section 7.1
            ORIGIN => {
                self.attributes.origin = match value {
                    [0] => Origin::Igp,
                    [1] => Origin::Egp,
                    [2] => Origin::Incomplete,
                    [other] => return Err(withdraw(format!("value {other}: expected 0 to 2"))),
                    _ => return Err(withdraw(length("1"))),
                };
            }
            // RFC 7606, section 7.2
            AS_PATH => {
                self.attributes.as_path = AsPath::read(value, context.asn_size).map_err(withdraw)?;
            }
            // RFC 7606, section 7.3
            NEXT_HOP => {
                let octets: Result<[u8; 4], String> = value.try_into().map_err(|_| length("4"));
                self.next_hop = Some(octets.map(IpAddr::from).and_then(|address| {
                    check_next_hop(address)?;
                    Ok(address)
                }));
            }
            // RFC 7606, section 7.4
            MULTI_EXIT_DISC if value.len() != 4 => return Err(withdraw(length("4"))),
            // RFC 7606, section 7.5
            LOCAL_PREF if !context.is_internal => {
                return Err(discard("from another AS".to_owned()));
            }
            LOCAL_PREF if value.len() != 4 => return Err(withdraw(length("4"))),
            LOCAL_PREF => self.has_local_pref = true,
            // RFC 7606, section 7.6
            ATOMIC_AGGREGATE if !value.is_empty() => return Err(discard(length("0"))),
            // RFC 7606, section 7.7
            AGGREGATOR => {
                // An AS number, then an IPv4 address.
                let (size, expected) = match context.asn_size {
                    AsnSize::Two => (6, "6"),
                    AsnSize::Four => (8, "8"),
                };
                if value.len() != size {
                    return Err(discard(length(expected)));
                }
                let asn = value.first_chunk().copied().map(u16::from_be_bytes);
                self.aggregator = asn.filter(|_| context.asn_size == AsnSize::Two);
            }
            // RFC 7606, section 7.8
            COMMUNITIES => {
                let chunks = chunks::<4>(value).ok_or_else(|| withdraw(length("a multiple of 4")))?;
                self.attributes.communities = chunks.map(u32::from_be_bytes).collect();
            }
            // RFC 7606, sections 7.9 and 7.10
            ORIGINATOR_ID | CLUSTER_LIST if !context.is_internal => {
                return Err(discard("from another AS".to_owned()));
            }
            ORIGINATOR_ID => {
                let octets: [u8; 4] = value.try_into().map_err(|_| withdraw(length("4")))?;
                self.attributes.originator_id = Some(Ipv4Addr::from(octets));
            }
            CLUSTER_LIST => {
                let _ids = chunks::<4>(value).ok_or_else(|| withdraw(length("a multiple of 4")))?;
            }
            // RFC 7606, section 7.14
            EXTENDED_COMMUNITIES => {
                let chunks = chunks::<8>(value).ok_or_else(|| withdraw(length("a multiple of 8")))?;
                self.attributes.extended = chunks.map(ExtendedCommunity).collect();
            }
            // RFC 7606, section 7.15
            IPV6_EXTENDED_COMMUNITIES => {
                let mut chunks = chunks::<20>(value).ok_or_else(|| withdraw(length("a multiple of 20")))?;
                // Route target redirect (RFC 8956, section 6.1), and redirect to IPv6
                // (draft-ietf-idr-flowspec-redirect-ip).
                self.attributes.redirects_ipv6 =
                    chunks.any(|chunk| matches!((chunk[0], chunk[1]), (0x00, 0x0d | 0x0c) | (0x80, 0x0b)));
            }
            // RFC 6793, section 6: a speaker with four-octet AS numbers sends neither AS4_PATH nor AS4_AGGREGATOR.
            AS4_PATH | AS4_AGGREGATOR if context.asn_size == AsnSize::Four => {
                return Err(discard("from a speaker with numbers of four octets".to_owned()));
            }
            AS4_PATH => {
                let path = AsPath::read(value, AsnSize::Four).map_err(discard)?;
                self.as4_path = Some(path);
            }
            AS4_AGGREGATOR if value.len() != 8 => return Err(discard(length("8"))),
            AS4_AGGREGATOR => self.has_as4_aggregator = true,
            // RFC 8092, section 6
            LARGE_COMMUNITIES => {
                let chunks = chunks::<12>(value).ok_or_else(|| withdraw(length("a multiple of 12")))?;
                let number = |bytes: &[u8]| bytes.iter().fold(0, |sum, byte| sum << 8 | u32::from(*byte));
                self.attributes.large = chunks
                    .map(|chunk| LargeCommunity {
                        global_administrator: number(&chunk[..4]),
                        local_data_1: number(&chunk[4..8]),
                        local_data_2: number(&chunk[8..]),
                    })
                    .collect();
            }
            _ => {}
        }
        Ok(())
    }
}

/// Returns the value in chunks of `N` bytes; `None` if it is empty or its length is not a multiple of `N`.
fn chunks<const N: usize>(value: &[u8]) -> Option<impl Iterator<Item = [u8; N]> + '_> {
    if value.is_empty() || !value.len().is_multiple_of(N) {
        return None;
    }
    Some(value.chunks_exact(N).filter_map(|chunk| chunk.try_into().ok()))
}

/// Checks that a router can have the address (RFC 4271, section 6.3). Returns an error message otherwise.
pub(crate) fn check_next_hop(address: IpAddr) -> Result<(), String> {
    let is_class_e = matches!(address, IpAddr::V4(v4) if v4.octets()[0] >= 240);
    if address.is_unspecified() || address.is_multicast() || is_class_e {
        return Err(format!("next hop {address} is no address of a router"));
    }
    Ok(())
}

/// Reads the next hop of MP_REACH_NLRI. Returns `None` if its length does not suit the family (RFC 7606, section 7.11).
pub(crate) fn mp_next_hop(bytes: &[u8], afi: Afi) -> Option<IpAddr> {
    let mut reader = Reader(bytes);
    match (bytes.len(), afi) {
        (4, Afi::Ipv4) => reader.array::<4>().map(IpAddr::from),
        // The receiver does not negotiate IPv6 next hops for IPv4 routes (RFC 8950). The second of two
        // addresses is link-local.
        (16 | 32, Afi::Ipv6) => reader.array::<16>().map(IpAddr::from),
        _ => None,
    }
}
