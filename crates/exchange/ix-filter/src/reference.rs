//! External references of the rules that peers announce.

use core::fmt::Write as _;
use core::net::IpAddr;

use data_encoding::HEXLOWER;
use millrace_bgp::{Afi, RouteKey};

/// The largest number of bytes of a rule in its reference. The length and a hash replace further bytes.
const SHOWN_MAX: usize = 64;
/// The beginning of every reference of a BGP rule.
pub(crate) const PREFIX: &str = "bgp:";

/// Returns the external reference of a rule. It is unique for the peer, and the same in every run.
pub(crate) fn reference(peer: IpAddr, route: &RouteKey) -> String {
    match route {
        RouteKey::Unicast { prefix, path_id } => format!("{PREFIX}{peer}|{prefix}|{path_id}"),
        RouteKey::Flowspec { rule, path_id } => {
            let family = match rule.afi() {
                Afi::Ipv4 => 4,
                Afi::Ipv6 => 6,
            };
            let mut text = format!("{PREFIX}{peer}|flow{family}|{path_id}|");
            let bytes = rule.as_bytes();
            HEXLOWER.encode_append(&bytes[..bytes.len().min(SHOWN_MAX)], &mut text);
            if bytes.len() > SHOWN_MAX {
                let _infallible = write!(text, "+{}:{:016x}", bytes.len(), fnv(bytes));
            }
            text
        }
    }
}

/// Returns the address of the peer in a reference.
pub(crate) fn peer_of(reference: &str) -> Option<IpAddr> {
    let (peer, _) = reference.strip_prefix(PREFIX)?.split_once('|')?;
    peer.parse().ok()
}

/// Returns the FNV-1a hash, 64 bits: the same in every run, unlike the hash of the standard library.
fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
