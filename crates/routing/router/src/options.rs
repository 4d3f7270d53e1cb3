//! Options of IPv4 headers and hop-by-hop options of IPv6: what a router that forwards the packet has to see in them.
//!
//! A router checks the options of IPv4 and says where an error is (RFC 1812, section 5.2.4.1). It follows no source route
//! (RFC 6274, section 4.6), and writes its address into a record of the route. It leaves time stamps alone: it has no
//! time of day. Packets with the router alert option are forwarded as others (RFC 6398, section 4.1).

use core::net::Ipv4Addr;
use core::ops::ControlFlow;

/// Numbers of options (IANA, "IP Option Numbers").
mod number {
    pub(super) const END: u8 = 0;
    pub(super) const NOP: u8 = 1;
    pub(super) const RECORD_ROUTE: u8 = 7;
    pub(super) const TIME_STAMP: u8 = 68;
    pub(super) const LOOSE_SOURCE_ROUTE: u8 = 131;
    pub(super) const STRICT_SOURCE_ROUTE: u8 = 137;
    pub(super) const ROUTER_ALERT: u8 = 148;
}

/// The flag of options that every fragment has (RFC 791, section 3.1).
const COPIED: u8 = 0x80;
/// Offset of the options in the header: errors point to bytes of the header.
const OPTIONS_AT: usize = 20;

/// The options of an IPv4 header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Found {
    pub(crate) has_source_route: bool,
    /// The offset in the header of a record of the route that has room.
    pub(crate) record_route: Option<usize>,
}

/// Checks the options of an IPv4 header.
///
/// # Errors
/// The offset in the header of the byte that is wrong.
pub(crate) fn check(options: &[u8]) -> Result<Found, u8> {
    let (mut found, mut at) = (Found::default(), 0);
    let (mut has_record, mut has_stamp) = (false, false);
    let wrong = |at: usize| Err((OPTIONS_AT + at) as u8);
    while let Some(kind) = options.get(at) {
        match *kind {
            number::END => break,
            number::NOP => {
                at += 1;
                continue;
            }
            _ => {}
        }
        let size = options.get(at + 1).map_or(0, |size| usize::from(*size));
        let Some(option) = options.get(at..at + size).filter(|_| size >= 2) else {
            return wrong(at);
        };
        // The pointer counts from one.
        let pointer = option.get(2).map_or(0, |pointer| usize::from(*pointer));
        match *kind {
            number::LOOSE_SOURCE_ROUTE | number::STRICT_SOURCE_ROUTE => {
                match () {
                    () if size < 3 => return wrong(at + 1),
                    () if pointer < 4 => return wrong(at + 2),
                    () if found.has_source_route => return wrong(at),
                    () => found.has_source_route = true,
                };
            }
            number::RECORD_ROUTE => {
                match () {
                    () if has_record => return wrong(at),
                    () if size < 3 => return wrong(at + 1),
                    () if pointer < 4 => return wrong(at + 2),
                    () if pointer <= size && pointer + 3 > size => return wrong(at + 2),
                    () if pointer <= size => found.record_route = Some(OPTIONS_AT + at),
                    () => {}
                }
                has_record = true;
            }
            number::TIME_STAMP => {
                let (stamp, flags) = (4, option.get(3).map_or(0, |flags| flags & 15));
                let needed = if flags == 0 { stamp } else { 2 * stamp };
                match () {
                    () if has_stamp => return wrong(at),
                    () if size < 4 => return wrong(at + 1),
                    () if pointer < 5 => return wrong(at + 2),
                    () if pointer <= size && pointer + needed - 1 > size => return wrong(at + 2),
                    () if pointer > size && option.get(3).is_some_and(|flags| flags >> 4 == 15) => {
                        return wrong(at + 3);
                    }
                    () => {}
                }
                has_stamp = true;
            }
            number::ROUTER_ALERT if size < 4 => return wrong(at + 1),
            _ => {}
        }
        at += size;
    }
    Ok(found)
}

/// Writes an address into the record of the route at this offset of a header that was checked. The checksum of the header
/// is wrong afterwards.
pub(crate) fn record(header: &mut [u8], at: usize, address: Ipv4Addr) {
    let Some(pointer) = header.get(at + 2).map(|pointer| usize::from(*pointer)) else {
        return;
    };
    let place = (at + pointer).checked_sub(1);
    if let Some(place) = place.and_then(|place| header.get_mut(place..place + 4)) {
        place.copy_from_slice(&address.octets());
        if let Some(held) = header.get_mut(at + 2) {
            *held = (pointer + 4) as u8;
        }
    }
}

/// Replaces the options that only the first fragment has by padding, so that all fragments have headers of one size.
pub(crate) fn keep_copied(options: &mut [u8]) {
    let mut at = 0;
    while let Some(kind) = options.get(at).copied() {
        match kind {
            number::END => return,
            number::NOP => at += 1,
            _ => {
                let size = options.get(at + 1).map_or(0, |size| usize::from(*size));
                let Some(option) = options.get_mut(at..at + size).filter(|_| size >= 2) else {
                    return;
                };
                if kind & COPIED == 0 {
                    option.fill(number::NOP);
                }
                at += size;
            }
        }
    }
}

/// An error in hop-by-hop options.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum HopByHopError {
    /// The packet is dropped without an answer.
    Silent,
    /// The sender is told the offset in the IPv6 header of an option that nobody knows (RFC 4443, section 3.4, code 2).
    Unknown(u32),
}

/// Options of IPv6 (IANA, "Destination Options and Hop-by-Hop Options").
mod option6 {
    pub(super) const PAD1: u8 = 0;
    pub(super) const PADN: u8 = 1;
    pub(super) const ROUTER_ALERT: u8 = 5;
    /// IOAM (RFC 9486), which a node that does not take part in it skips.
    pub(super) const IOAM: u8 = 0x31;
    /// CALIPSO (RFC 5570).
    pub(super) const CALIPSO: u8 = 7;
}

/// Checks the hop-by-hop options at the front of `payload`, the bytes after the IPv6 header of 40 bytes.
///
/// # Errors
/// [`HopByHopError`] for options that are truncated, or that say of themselves that a router must know them (RFC 8200,
/// section 4.2).
pub(crate) fn check_hop_by_hop(payload: &[u8], is_multicast: bool) -> Result<(), HopByHopError> {
    let size = payload.get(1).map_or(0, |size| (usize::from(*size) + 1) * 8);
    let Some(header) = payload.get(..size).filter(|header| !header.is_empty()) else {
        return Err(HopByHopError::Silent);
    };
    let mut at = 2;
    while let Some(kind) = header.get(at).copied() {
        if kind == option6::PAD1 {
            at += 1;
            continue;
        }
        let end = header.get(at + 1).map(|size| at + 2 + usize::from(*size));
        let Some(end) = end.filter(|end| *end <= header.len()) else {
            return Err(HopByHopError::Silent);
        };
        let is_known = matches!(
            kind,
            option6::PADN | option6::ROUTER_ALERT | option6::IOAM | option6::CALIPSO
        );
        let outcome = match kind >> 6 {
            _ if is_known => ControlFlow::Continue(()),
            0 => ControlFlow::Continue(()),
            1 => ControlFlow::Break(HopByHopError::Silent),
            3 if is_multicast => ControlFlow::Break(HopByHopError::Silent),
            _ => ControlFlow::Break(HopByHopError::Unknown((40 + at) as u32)),
        };
        if let ControlFlow::Break(error) = outcome {
            return Err(error);
        }
        at = end;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_points_to_the_byte_that_is_wrong() {
        for (options, at) in [
            (&[7, 3, 3, 0][..], 22),
            (&[1, 7, 2, 0], 22),
            (&[1, 1, 7, 9], 22),
            (&[130, 1, 0, 0], 20),
            (&[7, 7, 6, 0, 0, 0, 0, 0], 22),
            (&[7, 7, 4, 0, 0, 0, 0, 7, 3, 4, 0, 0], 27),
            (&[68, 8, 4, 0, 0, 0, 0, 0], 22),
            (&[68, 4, 5, 0xf0], 23),
            (&[68, 8, 5, 1, 0, 0, 0, 0], 22),
            (&[148, 3, 0, 0], 21),
            (&[131, 3, 3, 0], 22),
        ] {
            assert_eq!(check(options), Err(at), "{options:?}");
        }
        assert_eq!(check(&[]), Ok(Found::default()));
        assert_eq!(
            check(&[0, 7, 1, 1]),
            Ok(Found::default()),
            "nothing after the end"
        );
        assert!(check(&[131, 7, 4, 10, 0, 0, 1, 0]).unwrap().has_source_route);
    }

    #[test]
    fn a_record_of_the_route_takes_addresses_while_it_has_room() {
        let mut header = [0; 32];
        header[20..23].copy_from_slice(&[7, 11, 4]);
        for (round, last) in [(0, 1), (1, 2)] {
            let at = check(&header[20..]).unwrap().record_route.unwrap();
            record(&mut header, at, [10, 0, 0, last].into());
            assert_eq!(header[23 + 4 * round..27 + 4 * round], [10, 0, 0, last]);
        }
        assert_eq!(check(&header[20..]).unwrap().record_route, None);
    }

    #[test]
    fn later_fragments_keep_the_copied_options() {
        let mut options = [1, 7, 3, 4, 148, 4, 0, 0, 68, 4, 5, 0];
        keep_copied(&mut options);
        assert_eq!(options, [1, 1, 1, 1, 148, 4, 0, 0, 1, 1, 1, 1]);
    }

    #[test]
    fn an_option_says_what_happens_to_packets_of_routers_that_do_not_know_it() {
        let with = |kind| [58, 0, kind, 1, 0, 0, 0, 0];
        assert_eq!(check_hop_by_hop(&with(5), false), Ok(()));
        assert_eq!(check_hop_by_hop(&with(0x3e), false), Ok(()));
        assert_eq!(check_hop_by_hop(&with(0x7e), false), Err(HopByHopError::Silent));
        assert_eq!(
            check_hop_by_hop(&with(0xbe), true),
            Err(HopByHopError::Unknown(42))
        );
        assert_eq!(
            check_hop_by_hop(&with(0xfe), false),
            Err(HopByHopError::Unknown(42))
        );
        assert_eq!(check_hop_by_hop(&with(0xfe), true), Err(HopByHopError::Silent));
        assert_eq!(
            check_hop_by_hop(&[58, 1, 0, 0], false),
            Err(HopByHopError::Silent)
        );
    }
}
