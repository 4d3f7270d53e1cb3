//! The Ethernet header of the packet of an event.

use core::net::IpAddr;

use millrace_ips_engine::event::Subject;
use millrace_ips_engine::packet::{LinkType, ip_packet};
use millrace_types::Mac;

use crate::object::Object;

/// Returns destination, source and type of a frame of Ethernet.
fn header(frame: &[u8]) -> Option<(Mac, Mac, u16)> {
    let (destination, rest) = frame.split_first_chunk()?;
    let (source, rest) = rest.split_first_chunk()?;
    let kind = u16::from_be_bytes(*rest.first_chunk()?);
    Some((Mac(*destination), Mac(*source), kind))
}

/// Writes the addresses of a frame of Ethernet. The source is the end that is the source of the event, which may have received the
/// packet.
pub(crate) fn ether(out: &mut Object<'_>, subject: &Subject, (frame, link): (&[u8], u32)) {
    let Some((mut destination, mut source, kind)) = header(frame).filter(|_| link == LinkType::ETHERNET)
    else {
        return;
    };
    if ends(frame, link).is_some_and(|(from, to)| from != subject.src && to == subject.src) {
        (source, destination) = (destination, source);
    }
    out.object("ether", |out| {
        out.field("src_mac", source.to_string())
            .field("dest_mac", destination.to_string())
            .field("ether_type", kind);
    });
}

/// Returns source and destination of the outermost packet of a frame.
fn ends(frame: &[u8], link: u32) -> Option<(IpAddr, IpAddr)> {
    let packet = ip_packet(frame, LinkType(link))?;
    match packet.first()? >> 4 {
        4 => {
            let of = |at: usize| Some(IpAddr::from(*packet.get(at..)?.first_chunk::<4>()?));
            Some((of(12)?, of(16)?))
        }
        _ => {
            let of = |at: usize| Some(IpAddr::from(*packet.get(at..)?.first_chunk::<16>()?));
            Some((of(8)?, of(24)?))
        }
    }
}
