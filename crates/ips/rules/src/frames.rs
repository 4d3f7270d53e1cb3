//! The names of frames: parts of a stream that a protocol gives a meaning, which rules inspect with `frame:NAME`.

use crate::buffers::{BUFFERS, Buffer, BufferNames};
use crate::header::Protocol;
use crate::refusal::Reason;

/// The beginning of the name of a frame in the table of buffers.
const PREFIX: &str = "frame:";

/// Protocols with frames whose messages may be datagrams.
const OVER_UDP: &[&str] = &["dns", "sip", "nfs", "quic", "enip", "ldap"];

/// Protocols with frames that are not spoken over TCP.
const OVER_UDP_ONLY: &[&str] = &["quic"];

/// The protocol and the name of a frame, as in `tls` and `pdu`; `None` for another buffer.
pub fn name(buffer: Buffer) -> Option<(&'static str, &'static str)> {
    let full = buffer.names().suricata.first()?.strip_prefix(PREFIX)?;
    full.split_once('.')
}

/// Returns the frame with a name, for a rule of a protocol. The name is that of a frame of the protocol, or begins with a
/// protocol. Names are compared without regard to `_`, `.` and `:`, all of which Suricata's documentation has.
///
/// # Errors
/// Returns the reason if there is no such frame, or if a rule of the protocol cannot have it.
pub fn find(protocol: Protocol, text: &str) -> Result<Buffer, Reason> {
    let wanted = normal(text);
    let own = match protocol {
        Protocol::Http => "http1",
        protocol => protocol.word(),
    };
    let is_own = |(app, name): (&str, &str)| app == own && normal(name) == wanted;
    let is_full = |(app, name): (&str, &str)| wanted.strip_prefix(app) == Some(&format!(".{}", normal(name)));
    let of = |names: &'static BufferNames, is_it: &dyn Fn((&str, &str)) -> bool| {
        let found = name(names.buffer)?;
        is_it(found).then_some((names.buffer, found.0))
    };
    let find = |is_it: &dyn Fn((&str, &str)) -> bool| BUFFERS.iter().find_map(|names| of(names, is_it));
    let is_stream = matches!(protocol, Protocol::Ip | Protocol::Ipv4 | Protocol::Ipv6);
    let found = match find(&is_own) {
        Some(found) => Some(found),
        None => find(&is_full).filter(|(_, app)| match protocol {
            Protocol::Udp => OVER_UDP.contains(app),
            Protocol::Tcp | Protocol::TcpStream => !OVER_UDP_ONLY.contains(app),
            Protocol::Http => app.starts_with("http"),
            _ => is_stream || *app == own,
        }),
    };
    found.map(|(buffer, _)| buffer).ok_or_else(|| Reason::Invalid {
        problem: format!("no frame \"{text}\" in rules of {}", protocol.word()),
        expected: "frame:NAME with a frame of the protocol of the rule, such as pdu, or frame:PROTOCOL.NAME",
    })
}

/// Returns a name in the form in which names are compared.
fn normal(name: &str) -> String {
    name.trim().to_ascii_lowercase().replace(['_', ':'], ".")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_has_the_name_of_its_protocol_or_a_short_one_in_rules_of_the_protocol() {
        let found = |protocol, name| find(protocol, name).ok();
        for (protocol, name, expected) in [
            (Protocol::Tls, "pdu", Some(Buffer::FrameTlsPdu)),
            (Protocol::Tls, "tls.pdu", Some(Buffer::FrameTlsPdu)),
            (Protocol::Tcp, "tls.pdu", Some(Buffer::FrameTlsPdu)),
            (Protocol::Tcp, "tls:pdu", Some(Buffer::FrameTlsPdu)),
            (Protocol::Tls, "stream", Some(Buffer::FrameTlsStream)),
            (Protocol::Ip, "rfb.pdu", Some(Buffer::FrameRfbPdu)),
            (Protocol::Enip, "enip.item", Some(Buffer::FrameEnipItem)),
            (Protocol::Quic, "stream", None),
            (Protocol::Smb, "smb1.data", Some(Buffer::FrameSmbSmb1Data)),
            (Protocol::Ip, "smb.smb1.data", Some(Buffer::FrameSmbSmb1Data)),
            (Protocol::Http, "http1.request", Some(Buffer::FrameHttp1Request)),
            (Protocol::Http, "request", Some(Buffer::FrameHttp1Request)),
            (Protocol::Sip, "request_line", Some(Buffer::FrameSipRequestLine)),
            (Protocol::Udp, "dns.pdu", Some(Buffer::FrameDnsPdu)),
            (Protocol::Tcp, "pdu", None),
            (Protocol::Smb, "tls.pdu", None),
            (Protocol::Udp, "tls.pdu", None),
            (Protocol::TcpPacket, "tls.pdu", None),
            (Protocol::Tls, "smb1.pdu", None),
            (Protocol::Tcp, "tls", None),
        ] {
            assert_eq!(found(protocol, name), expected, "{protocol} {name}");
        }
    }
}
