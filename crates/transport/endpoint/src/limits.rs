//! The limits and intervals of an endpoint, each with its source.

use millrace_types::Duration;

/// The maximum number of own addresses, without the link-local address.
pub const ADDRESSES_MAX: usize = 4;
/// The maximum number of bound UDP ports.
pub const PORTS_MAX: usize = 16;
/// Smallest MTU of a link: IPv6 works with no less (RFC 8200, section 5).
pub const MTU_MIN: u16 = 1_280;
/// Largest MTU of a link.
pub const MTU_MAX: u16 = 9_600;

/// The maximum number of neighbours in the cache. The least recently used one is replaced.
pub const NEIGHBOURS_MAX: usize = 256;
/// The maximum number of unsolicited neighbours: they asked us, and nothing was sent to them.
pub const UNSOLICITED_NEIGHBOURS_MAX: usize = 64;
/// The maximum number of frames that wait for the MAC address of one neighbour. The oldest one is dropped
/// (RFC 1122, section 2.3.2.2).
pub const WAITING_MAX: usize = 64;
/// The maximum number of frames that wait for the MAC addresses of all neighbours.
pub const WAITING_TOTAL_MAX: usize = 256;
/// The mean time for which a neighbour counts as reachable after an answer (RFC 4861, section 10,
/// REACHABLE_TIME).
pub const REACHABLE_TIME: Duration = Duration::from_secs(30);
/// The time from the first packet to a stale neighbour to the first probe (RFC 4861, section 10, DELAY_FIRST_PROBE_TIME).
pub const DELAY_FIRST_PROBE_TIME: Duration = Duration::from_secs(5);
/// The time between two solicitations (RFC 4861, section 10, RETRANS_TIMER).
pub const RETRANS_TIMER: Duration = Duration::from_secs(1);
/// The time between two probes of a neighbour while another MAC address is claimed for it.
pub const CONTEST_INTERVAL: Duration = Duration::from_millis(200);
/// Solicitations without an answer after which a neighbour is unreachable (RFC 4861, section 10, MAX_MULTICAST_SOLICIT and
/// MAX_UNICAST_SOLICIT).
pub const SOLICITS_MAX: u8 = 3;
/// The time after which an unused stale neighbour is removed.
pub const STALE_TIME: Duration = Duration::from_secs(600);

/// Probes of an own address before it is used (RFC 5227, section 1.1, PROBE_NUM).
pub const PROBE_NUM: u8 = 3;
/// Announcements of an own address (RFC 5227, section 1.1, ANNOUNCE_NUM).
pub const ANNOUNCE_NUM: u8 = 2;
/// The time between two announcements (RFC 5227, section 1.1, ANNOUNCE_INTERVAL).
pub const ANNOUNCE_INTERVAL: Duration = Duration::from_secs(2);
/// The time between two defences of an own address (RFC 5227, section 1.1, DEFEND_INTERVAL).
pub const DEFEND_INTERVAL: Duration = Duration::from_secs(10);

/// The maximum number of remote addresses with a path entry. The least recently used one is replaced. Each entry takes 64 KiB
/// ([`SENT_RECORDS`]).
pub const PATHS_MAX: usize = NEIGHBOURS_MAX;
/// The number of sent packets that a path remembers, because an ICMP error may quote them; a power of two, of
/// at most 65,536.
pub const SENT_RECORDS: usize = 16_384;
/// The smallest path MTU that is accepted (RFC 8201, section 4). It also applies to IPv4, although its
/// routers must carry only 68 bytes.
pub const PATH_MTU_MIN: u16 = 1_280;
/// The time after which a lowered path MTU returns to the MTU of the link (RFC 8201, section 5.3).
pub const PATH_MTU_LIFETIME: Duration = Duration::from_secs(600);

/// The maximum number of echo requests that are answered in a second. The same number may be answered in one
/// burst.
pub const ECHO_RATE: u32 = 100;
/// The maximum number of ARP requests and neighbour solicitations that are answered in a second, and in one
/// burst.
pub const RESOLUTION_RATE: u32 = 1_000;
/// The maximum number of ICMP errors that are sent in a second, and in one burst (RFC 4443, section 2.4 (f)).
pub const ERROR_RATE: u32 = 10;
/// The maximum number of ICMP errors that are read in a second, and in one burst.
pub const ERROR_INPUT_RATE: u32 = 200;
/// The number of bytes that our ICMP errors quote of a packet.
pub const QUOTE_SIZE: usize = 512;

/// The maximum number of ARP, ND and ICMP frames that wait for [`crate::Endpoint::poll_transmit`].
pub const OUT_MAX: usize = 512;
/// The maximum number of events that wait for [`crate::Endpoint::poll_event`]. The oldest one is dropped.
pub const EVENTS_MAX: usize = 64;
