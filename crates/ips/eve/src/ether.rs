//! The Ethernet header of the packet of an event.

use core::net::IpAddr;

use millrace_ips_engine::event::Subject;
use millrace_ips_engine::packet::{LinkType, ip_packet};

use crate::object::Object;

/// Size of an address in bytes, and offset of the type.
const ADDRESS: usize = 6;
const TYPE: usize = 12;

fn address(bytes: &[u8]) -> String {
    let parts: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    parts.join(":")
}

/// Writes the addresses of a frame of Ethernet. The source is the end that is the source of the event, which may have received the
/// packet.
pub(crate) fn ether(out: &mut Object<'_>, subject: &Subject, (frame, link): (&[u8], u32)) {
    let Some(header) = frame.get(..TYPE + 2).filter(|_| link == LinkType::ETHERNET) else {
        return;
    };
    let (mut destination, mut source) = (&header[..ADDRESS], &header[ADDRESS..TYPE]);
    if ends(frame, link).is_some_and(|(from, to)| from != subject.src && to == subject.src) {
        (source, destination) = (destination, source);
    }
    out.object("ether", |out| {
        out.field("src_mac", address(source))
            .field("dest_mac", address(destination))
            .field("ether_type", u16::from_be_bytes([header[TYPE], header[TYPE + 1]]));
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
