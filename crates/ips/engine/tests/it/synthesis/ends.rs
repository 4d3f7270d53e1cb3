//! The endpoints of a conversation: addresses and ports that a header accepts, and others.

use core::net::Ipv4Addr;

use millrace_ips_engine::detect::program::Endpoint;

/// Returns true if a number is in one of the ranges.
pub(crate) fn is_in(ranges: &[(u128, u128)], number: u128) -> bool {
    ranges.iter().any(|(low, high)| (*low..=*high).contains(&number))
}

/// Returns an address of an end.
pub(crate) fn address(end: &Endpoint, other: Ipv4Addr) -> Option<Ipv4Addr> {
    let Some(ranges) = &end.addresses else {
        return Some(other);
    };
    if is_in(ranges.first(), u128::from(u32::from(other))) {
        return Some(other);
    }
    let (low, high) = *ranges.first().iter().find(|(_, high)| *high > 0x0100_0000)?;
    let number = (low.max(0x0100_0000) + 1).min(high);
    Some(Ipv4Addr::from(u32::try_from(number).ok()?))
}

/// Returns a port of an end: a usual one, if there is one.
pub(crate) fn port(end: &Endpoint, usual: &[u16]) -> Option<u16> {
    let Some(ranges) = &end.ports else {
        return usual.first().copied();
    };
    let known = usual.iter().copied();
    let mut known = known.filter(|port| is_in(ranges.first(), (*port).into()));
    known.next().or_else(|| {
        let (low, high) = *ranges.first().iter().find(|(_, high)| *high > 0)?;
        u16::try_from(low.max(1).min(high)).ok()
    })
}
