//! Detection of the protocol: by the first bytes of either direction, then by ports for protocols whose bytes are weak
//! evidence.

use super::AppProtocol;
use super::transport::Transport;
use crate::flow::Direction;

/// The number of bytes of a direction that protocol detection examines.
pub(super) const PROBE_SIZE: usize = 8192;

/// The result of looking at the first bytes of a direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProtocolDetection {
    /// The bytes are of the protocol.
    Found(AppProtocol),
    /// More bytes may decide.
    Undecided,
    /// The bytes are of an unknown protocol.
    Unknown,
}

/// A pattern at a fixed offset; letters match in either case.
struct Signature {
    protocol: AppProtocol,
    transport: Transport,
    direction: Option<Direction>,
    offset: usize,
    bytes: &'static [u8],
}

const fn tcp(
    protocol: AppProtocol,
    direction: Option<Direction>,
    offset: usize,
    bytes: &'static [u8],
) -> Signature {
    Signature {
        protocol,
        transport: Transport::Tcp,
        direction,
        offset,
        bytes,
    }
}

const fn udp(
    protocol: AppProtocol,
    direction: Option<Direction>,
    offset: usize,
    bytes: &'static [u8],
) -> Signature {
    Signature {
        protocol,
        transport: Transport::Udp,
        direction,
        offset,
        bytes,
    }
}

const CLIENT: Option<Direction> = Some(Direction::ToServer);
const SERVER: Option<Direction> = Some(Direction::ToClient);

/// First bytes by protocol.
const SIGNATURES: &[Signature] = &[
    tcp(AppProtocol::Http2, CLIENT, 0, b"PRI * HTTP/2.0\r\n\r\nSM"),
    tcp(AppProtocol::Http, SERVER, 0, b"HTTP/0.9"),
    tcp(AppProtocol::Http, SERVER, 0, b"HTTP/1.0"),
    tcp(AppProtocol::Http, SERVER, 0, b"HTTP/1.1"),
    tcp(AppProtocol::Ssh, None, 0, b"SSH-"),
    tcp(AppProtocol::Smtp, CLIENT, 0, b"EHLO"),
    tcp(AppProtocol::Smtp, CLIENT, 0, b"HELO"),
    tcp(AppProtocol::Smtp, CLIENT, 0, b"QUIT"),
    tcp(AppProtocol::Ftp, CLIENT, 0, b"USER "),
    tcp(AppProtocol::Ftp, CLIENT, 0, b"PASS "),
    tcp(AppProtocol::Ftp, CLIENT, 0, b"PORT "),
    tcp(AppProtocol::Ftp, CLIENT, 0, b"EPRT "),
    tcp(AppProtocol::Ftp, CLIENT, 0, b"FEAT"),
    tcp(AppProtocol::Ftp, CLIENT, 0, b"AUTH "),
    tcp(AppProtocol::Ftp, SERVER, 0, b"220 ("),
    tcp(AppProtocol::Imap, SERVER, 0, b"* OK "),
    tcp(AppProtocol::Imap, SERVER, 0, b"* PREAUTH "),
    tcp(AppProtocol::Pop3, SERVER, 0, b"+OK"),
    tcp(AppProtocol::Smb, None, 4, b"\xffSMB"),
    tcp(AppProtocol::Smb, None, 4, b"\xfeSMB"),
    tcp(AppProtocol::Smb, None, 4, b"\xfdSMB"),
    tcp(AppProtocol::Rfb, None, 0, b"RFB 003."),
    tcp(AppProtocol::Rfb, None, 0, b"RFB 004."),
    tcp(AppProtocol::Rfb, None, 0, b"RFB 005."),
    tcp(AppProtocol::Mqtt, CLIENT, 4, b"MQTT"),
    tcp(AppProtocol::Mqtt, CLIENT, 4, b"MQIsdp"),
    tcp(AppProtocol::Sip, None, 0, b"SIP/2.0 "),
    udp(AppProtocol::Sip, None, 0, b"SIP/2.0 "),
];

/// Methods with which an HTTP request begins.
const HTTP_METHODS: &[&[u8]] = &[
    b"GET",
    b"PUT",
    b"POST",
    b"HEAD",
    b"TRACE",
    b"OPTIONS",
    b"CONNECT",
    b"DELETE",
    b"PATCH",
    b"PROPFIND",
    b"PROPPATCH",
    b"MKCOL",
    b"COPY",
    b"MOVE",
    b"LOCK",
    b"UNLOCK",
    b"CHECKOUT",
    b"UNCHECKOUT",
    b"CHECKIN",
    b"UPDATE",
    b"LABEL",
    b"REPORT",
    b"MKWORKSPACE",
    b"MKACTIVITY",
    b"MERGE",
    b"INVALID",
    b"VERSION-CONTROL",
    b"BASELINE-CONTROL",
];

/// Methods with which a SIP request begins; OPTIONS and UPDATE also exist in HTTP.
const SIP_METHODS: &[&[u8]] = &[
    b"REGISTER ",
    b"INVITE ",
    b"ACK ",
    b"BYE ",
    b"CANCEL ",
    b"SUBSCRIBE ",
    b"NOTIFY ",
    b"REFER ",
    b"INFO ",
    b"MESSAGE ",
    b"PRACK ",
    b"PUBLISH ",
];

/// The result of comparing a prefix.
#[derive(PartialEq, Eq)]
enum Prefix {
    Equal,
    Shorter,
    Different,
}

/// Compares the bytes at an offset with a pattern in either case.
#[inline]
fn compare(data: &[u8], offset: usize, pattern: &[u8]) -> Prefix {
    let Some(tail) = data.get(offset..) else {
        return Prefix::Shorter;
    };
    // Most patterns differ in the first byte, and there are dozens.
    if let (Some(byte), Some(first)) = (tail.first(), pattern.first())
        && !byte.eq_ignore_ascii_case(first)
    {
        return Prefix::Different;
    }
    let size = tail.len().min(pattern.len());
    if !tail[..size].eq_ignore_ascii_case(&pattern[..size]) {
        Prefix::Different
    } else if size == pattern.len() {
        Prefix::Equal
    } else {
        Prefix::Shorter
    }
}

/// Returns the protocol of the first bytes of a direction. `ports` are those of client and server.
pub fn detect_protocol(
    data: &[u8],
    direction: Direction,
    transport: Transport,
    ports: (u16, u16),
) -> ProtocolDetection {
    if data.is_empty() {
        return ProtocolDetection::Undecided;
    }
    let mut is_undecided = false;
    // On a port of SMTP, FTP commands are no evidence: a client may send them to hide that it speaks SMTP.
    let is_mail = is_mail_port(ports);
    let signatures = SIGNATURES.iter().filter(|signature| {
        signature.transport == transport
            && signature.direction.is_none_or(|side| side == direction)
            && !(is_mail && signature.protocol == AppProtocol::Ftp)
    });
    for signature in signatures {
        match compare(data, signature.offset, signature.bytes) {
            Prefix::Equal => return ProtocolDetection::Found(signature.protocol),
            Prefix::Shorter => is_undecided = true,
            Prefix::Different => {}
        }
    }
    if direction == Direction::ToServer {
        let start = data.iter().take_while(is_space).count();
        for method in HTTP_METHODS.iter().filter(|_| transport == Transport::Tcp) {
            match compare(data, start, method) {
                Prefix::Equal => match data.get(start + method.len()) {
                    Some(b' ' | b'\t') => return ProtocolDetection::Found(AppProtocol::Http),
                    Some(_) => {}
                    None => is_undecided = true,
                },
                Prefix::Shorter => is_undecided = true,
                Prefix::Different => {}
            }
        }
        for method in SIP_METHODS {
            match compare(data, 0, method) {
                Prefix::Equal => return ProtocolDetection::Found(AppProtocol::Sip),
                Prefix::Shorter => is_undecided |= transport == Transport::Tcp,
                Prefix::Different => {}
            }
        }
    }
    if transport == Transport::Tcp {
        // DNS over TCP and Modbus begin with numbers that the sender chooses. On their ports, the header is tested
        // first.
        if matches!(ports.1, 53 | 502) {
            match by_port(data, direction, transport, ports) {
                ProtocolDetection::Unknown => {}
                found => return found,
            }
        }
        for (protocol, is_it) in [(AppProtocol::Tls, tls(data)), (AppProtocol::Dcerpc, dcerpc(data))] {
            match is_it {
                Some(true) => return ProtocolDetection::Found(protocol),
                Some(false) => {}
                None => is_undecided = true,
            }
        }
    }
    if transport == Transport::Udp && super::bittorrent::is_message(data) {
        return ProtocolDetection::Found(AppProtocol::BittorrentDht);
    }
    match by_port(data, direction, transport, ports) {
        ProtocolDetection::Found(protocol) => ProtocolDetection::Found(protocol),
        ProtocolDetection::Undecided => ProtocolDetection::Undecided,
        ProtocolDetection::Unknown if is_undecided => ProtocolDetection::Undecided,
        // DCE/RPC has no port; its header is less certain than the protocol of a port.
        ProtocolDetection::Unknown => yes(
            AppProtocol::Dcerpc,
            transport == Transport::Udp && super::smb::dcerpc::connectionless::is_message(data, direction),
        ),
    }
}

/// Returns true if the server's port is one of SMTP. The client's port is no evidence, because the client chooses it.
fn is_mail_port(ports: (u16, u16)) -> bool {
    matches!(ports.1, 25 | 587 | 2525)
}

/// Returns true if the client's first bytes are not enough to detect `protocol` before the server has sent.
/// The servers of these protocols greet first, so a client that sends first may only pretend to speak the
/// protocol. For SMTP and FTP, a well-known port makes the first bytes sufficient.
pub(super) fn awaits_greeting(protocol: AppProtocol, ports: (u16, u16)) -> bool {
    match protocol {
        AppProtocol::Smtp => !is_mail_port(ports),
        AppProtocol::Ftp => ports.1 != 21,
        AppProtocol::Pop3 | AppProtocol::Imap => true,
        _ => false,
    }
}

/// Returns true for a byte that servers ignore before a request: those of empty lines (RFC 9112, section 2.2), and white space
/// that some servers ignore.
fn is_space(byte: &&u8) -> bool {
    matches!(byte, b'\r' | b'\n' | b' ' | b'\t')
}

/// Removes white space before a request, because servers ignore any number of such bytes. Returns true if bytes were
/// removed and detection has room for more. One byte stays, so that the parser raises the anomaly for white space.
pub(super) fn remove_space(bytes: &mut Vec<u8>) -> bool {
    let size = bytes.iter().take_while(is_space).count();
    bytes.drain(..size.saturating_sub(1));
    size > 1 && bytes.len() < PROBE_SIZE
}

/// Returns true if the bytes begin a TLS record or an SSLv2 hello, `None` if more bytes decide.
fn tls(data: &[u8]) -> Option<bool> {
    match data {
        [0x14..=0x17, 0x03, 0x00..=0x04, ..] => Some(true),
        [0x14..=0x17] | [0x14..=0x17, 0x03] => None,
        // SSLv2 client hello: length with the high bit, type 1, version 2.0 or 3.x.
        [0x80..=0xff, _, 1, 0, 2, ..] | [0x80..=0xff, _, 1, 3, 0..=3, ..] => Some(true),
        [0x80..=0xff] | [0x80..=0xff, _] | [0x80..=0xff, _, 1] | [0x80..=0xff, _, 1, 0 | 3] => None,
        _ => Some(false),
    }
}

/// Returns true if the bytes begin a PDU of DCE/RPC (C706, section 12.6.3.1), `None` if more bytes decide.
fn dcerpc(data: &[u8]) -> Option<bool> {
    // Version 5.0 or 5.1, type, flags, representation of integers, characters and floating-point numbers, two bytes, size. Version 5
    // of SOCKS begins as 5.1, too, and has no field of two bytes that are 0.
    let is_minor = data.get(1) == Some(&1);
    let is_valid = |(at, byte): (usize, &u8)| match at {
        0 => *byte == 5,
        1 => *byte <= 1,
        2 => *byte <= 20,
        4 if is_minor => byte & 0xef == 0,
        4 => byte & 0xee == 0,
        5 => *byte <= 3,
        6 | 7 => !is_minor || *byte == 0,
        _ => true,
    };
    let header = &data[..data.len().min(10)];
    if !header.iter().enumerate().all(is_valid) {
        return Some(false);
    }
    let &[_, _, _, _, representation, _, _, _, first, second] = header.first_chunk::<10>()?;
    let size = match representation & 0x10 {
        0 => u16::from_be_bytes([first, second]),
        _ => u16::from_le_bytes([first, second]),
    };
    Some(size >= 16)
}

/// Returns the protocol by port, if the bytes do not contradict it. The client's port counts only if the server's port
/// belongs to no protocol: if the server's packets arrived first, the server is taken for the client.
fn by_port(data: &[u8], direction: Direction, transport: Transport, ports: (u16, u16)) -> ProtocolDetection {
    if transport == Transport::Tcp && direction == Direction::ToClient {
        // Other protocols greet with the same code, so a port that the client chose is no evidence.
        if is_mail_port(ports) {
            return yes(
                AppProtocol::Smtp,
                data.starts_with(b"220") || data.starts_with(b"554"),
            );
        }
        if ports.1 == 21 {
            return yes(AppProtocol::Ftp, data.starts_with(b"220"));
        }
    }
    let by = |port| of_port(data, direction, transport, port);
    by(ports.1)
        .or_else(|| by(ports.0))
        .unwrap_or(ProtocolDetection::Unknown)
}

/// Compares the bytes with a DNS message after its length field (RFC 1035, section 4.2.2).
fn dns_over_tcp(data: &[u8]) -> ProtocolDetection {
    /// Size of a header and the longest question, in bytes.
    const QUESTION: usize = 12 + 255 + 4;
    let Some((size, message)) = data.split_first_chunk::<2>() else {
        return ProtocolDetection::Undecided;
    };
    let Some(header) = message.first_chunk::<12>() else {
        return ProtocolDetection::Undecided;
    };
    if super::dns::is_message(message) {
        return ProtocolDetection::Found(AppProtocol::Dns);
    }
    let size = usize::from(u16::from_be_bytes(*size));
    let counts = header[4..]
        .chunks(2)
        .map(|count| usize::from(count[0]) << 8 | usize::from(count[1]));
    let records: usize = counts.sum();
    let may_be = records > 0 && size >= header.len() + 2 * records && header[2] >> 3 & 0xf <= 6;
    match may_be && message.len() < size.min(QUESTION) {
        true => ProtocolDetection::Undecided,
        false => ProtocolDetection::Unknown,
    }
}

/// Returns the protocol if the bytes are valid.
fn yes(protocol: AppProtocol, is_valid: bool) -> ProtocolDetection {
    match is_valid {
        true => ProtocolDetection::Found(protocol),
        false => ProtocolDetection::Unknown,
    }
}

/// Compares the bytes with the protocol of a port; `None` if the port has no protocol.
fn of_port(data: &[u8], direction: Direction, transport: Transport, port: u16) -> Option<ProtocolDetection> {
    let found = match (transport, port) {
        (Transport::Udp, 53) => yes(AppProtocol::Dns, super::dns::is_message(data)),
        (Transport::Udp, 5353) => yes(AppProtocol::Mdns, super::dns::is_message(data)),
        (Transport::Udp, 123) => yes(
            AppProtocol::Ntp,
            data.len() >= 48 && (1..=5).contains(&((data[0] >> 3) & 7)),
        ),
        (Transport::Udp, 67 | 68) => yes(
            AppProtocol::Dhcp,
            data.get(236..240) == Some(&[0x63, 0x82, 0x53, 0x63]),
        ),
        (Transport::Udp, 69) => yes(AppProtocol::Tftp, matches!(data, [0, 1..=6, ..])),
        (Transport::Udp, 500 | 4500) => yes(
            AppProtocol::Ike,
            super::ike::is_message(data.strip_prefix(&[0; 4]).unwrap_or(data))
                || super::ike::is_message(data),
        ),
        (Transport::Udp, 161 | 162) => yes(AppProtocol::Snmp, super::snmp::is_message(data)),
        (Transport::Udp, 88) => yes(
            AppProtocol::Krb5,
            matches!(data.first(), Some(0x6a..=0x6f | 0x7e)),
        ),
        (Transport::Udp, 443) => {
            // QUIC version 1 (RFC 9000) and 2 (RFC 9369), long header.
            let version = data.get(1..5);
            let is_known = version.is_some_and(super::quic::is_standard);
            let is_long = data[0] & 0xc0 == 0xc0 && is_known;
            let is_google = direction == Direction::ToServer && super::quic::google_version(data).is_some();
            yes(AppProtocol::Quic, is_long || is_google)
        }
        (Transport::Udp, 44_818) => yes(AppProtocol::Enip, super::enip::is_message(data)),
        (Transport::Tcp, 44_818) if data.len() < 24 => ProtocolDetection::Undecided,
        (Transport::Tcp, 44_818) => yes(AppProtocol::Enip, super::enip::is_message(data)),
        (Transport::Udp, 2049) => yes(AppProtocol::Nfs, data.len() >= 24),
        (Transport::Tcp, 53) => dns_over_tcp(data),
        // NetBIOS session service: message, request or answer, flags 0 or 1.
        (Transport::Tcp, 139 | 445) => yes(AppProtocol::Smb, matches!(data, [0x81..=0x85, 0 | 1, ..])),
        (Transport::Tcp, 502) => match data {
            [] | [_] | [_, _] | [_, _, 0] => ProtocolDetection::Undecided,
            [_, _, 0, 0, rest @ ..] if rest.len() < 4 => ProtocolDetection::Undecided,
            _ => yes(AppProtocol::Modbus, data.get(2..4) == Some(&[0, 0])),
        },
        (Transport::Tcp, 20_000) => yes(AppProtocol::Dnp3, data.starts_with(&[0x05, 0x64])),
        (Transport::Tcp, 3389) => yes(AppProtocol::Rdp, data.starts_with(&[0x03, 0x00])),
        (Transport::Tcp, 88) => yes(AppProtocol::Krb5, matches!(data.get(4), Some(0x6a..=0x6f | 0x7e))),
        (Transport::Tcp, 389 | 3268) => yes(AppProtocol::Ldap, matches!(data, [0x30, ..])),
        (Transport::Tcp, 5432) if direction == Direction::ToServer => match super::pgsql::is_startup(data) {
            None => ProtocolDetection::Undecided,
            Some(is_startup) => yes(AppProtocol::Pgsql, is_startup),
        },
        (Transport::Tcp, 23) => yes(AppProtocol::Telnet, data.first() == Some(&0xff)),
        (Transport::Tcp, 2049) => match data {
            [0 | 0x80..=0xff, ..] if data.len() < 28 => ProtocolDetection::Undecided,
            _ => yes(AppProtocol::Nfs, data[0] & 0x80 != 0 || begins_rpc_record(data)),
        },
        _ => return None,
    };
    Some(found)
}

/// Returns true if at least 28 bytes are the first of several fragments of a record of RPC (RFC 5531, sections 9 and 11): the
/// message in it is a call or a reply, or begins in the fragments behind it.
fn begins_rpc_record(data: &[u8]) -> bool {
    const HEADER: u32 = 24;
    let word = |at: usize| {
        let bytes = data.get(at..).and_then(|rest| rest.first_chunk());
        bytes.map_or(u32::MAX, |bytes| u32::from_be_bytes(*bytes))
    };
    let size = word(0);
    size < HEADER || size < 1 << 24 && word(8) <= 1
}

#[cfg(test)]
mod tests;
