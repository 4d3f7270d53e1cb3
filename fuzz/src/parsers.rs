//! Parsers of application protocols.

use std::net::{IpAddr, Ipv4Addr};

use millrace_ips_engine::StreamChunk;
use millrace_ips_engine::app::{AppProtocol, AppSettings, AppState, Asks, FrameSet};
use millrace_ips_engine::flow::{Direction, FlowKey};

/// A record of the input: a direction and bytes.
type Message<'a> = (Direction, &'a [u8]);

/// Reads the input: the size of segments, then records of direction (the high bit of a size of two bytes) and bytes.
fn messages(bytes: &[u8]) -> Option<(usize, Vec<Message<'_>>)> {
    let (step, mut rest) = bytes.split_first()?;
    let mut messages = Vec::new();
    while let Some((head, tail)) = rest.split_first_chunk::<2>() {
        let head = u16::from_be_bytes(*head);
        let direction = if head & 0x8000 == 0 {
            Direction::ToServer
        } else {
            Direction::ToClient
        };
        let size = usize::from(head & 0x7fff).min(tail.len());
        messages.push((direction, &tail[..size]));
        rest = &tail[size..];
    }
    Some((usize::from(*step).max(1), messages))
}

/// Returns the transactions of a flow whose messages arrive in segments of `step` bytes.
fn transactions(protocol: AppProtocol, messages: &[Message<'_>], step: usize) -> String {
    let key = FlowKey {
        client: IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)),
        server: IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2)),
        client_port: 40_000,
        server_port: 40_001,
        // Over TCP, DCE/RPC is that of pipes of SMB.
        protocol: if protocol == AppProtocol::Dcerpc { 17 } else { 6 },
        vlans: [0; 3],
        tunnel_depth: 0,
    };
    let settings = AppSettings {
        hashes_files: true,
        frames: FrameSet::ALL,
        asks: Asks::ALL,
        ..AppSettings::default()
    };
    let mut state = AppState::with_protocol(&key, protocol, settings);
    for (direction, bytes) in messages {
        for bytes in bytes.chunks(step) {
            let chunk = StreamChunk {
                direction: *direction,
                offset: 0,
                bytes,
                gap_before: 0,
                is_end: false,
            };
            state.stream(&key, chunk);
            state.skip_inspection(&key);
        }
    }
    state.end(Direction::ToServer);
    state.end(Direction::ToClient);
    // Bodies are kept up to their limit; everything else is smaller than what was sent, but for decompression.
    assert!(
        state
            .transactions
            .list
            .iter()
            .all(|transaction| transaction.size() < 64 << 20)
    );
    let text = format!("{:?} {:?}", state.transactions.list, state.transactions.events);
    without_versions(&text)
}

/// Removes the versions of transactions, which stand behind a list, and the versions in which buffers changed: they grow with each segment.
fn without_versions(text: &str) -> String {
    ["], version: ", ", changed: "]
        .iter()
        .fold(text.to_owned(), |text, name| {
            let mut parts = text.split(name);
            let mut kept = parts.next().unwrap_or_default().to_owned();
            for part in parts {
                kept.push_str(part.trim_start_matches(|digit: char| digit.is_ascii_digit()));
            }
            kept
        })
}

/// Parses messages in segments and whole.
///
/// Properties: the parser accepts any bytes, and segments of any size give the same transactions.
fn parse(protocol: AppProtocol, bytes: &[u8]) {
    let Some((step, messages)) = messages(bytes) else {
        return;
    };
    let whole = transactions(protocol, &messages, usize::MAX);
    assert_eq!(
        transactions(protocol, &messages, step),
        whole,
        "in segments of {step} bytes"
    );
}

/// Parses the bytes as HTTP/1.
pub(crate) fn http(bytes: &[u8]) {
    parse(AppProtocol::Http, bytes);
}

/// Parses the bytes as DNS over TCP.
pub(crate) fn dns(bytes: &[u8]) {
    parse(AppProtocol::Dns, bytes);
}

/// Parses the bytes as a TLS stream of both directions.
pub(crate) fn tls(bytes: &[u8]) {
    parse(AppProtocol::Tls, bytes);
}

/// Parses the bytes as SMTP with MIME.
pub(crate) fn mime(bytes: &[u8]) {
    parse(AppProtocol::Smtp, bytes);
}

/// Parses the bytes as SMB and DCE/RPC.
pub(crate) fn smb(bytes: &[u8]) {
    parse(AppProtocol::Smb, bytes);
}

/// Parses the bytes as one of the other protocols, which the first byte chooses.
pub(crate) fn others(bytes: &[u8]) {
    const PROTOCOLS: [AppProtocol; 24] = [
        AppProtocol::Pop3,
        AppProtocol::Imap,
        AppProtocol::Sip,
        AppProtocol::Modbus,
        AppProtocol::Dnp3,
        AppProtocol::Ldap,
        AppProtocol::Snmp,
        AppProtocol::Mqtt,
        AppProtocol::Krb5,
        AppProtocol::Rfb,
        AppProtocol::Nfs,
        AppProtocol::WebSocket,
        AppProtocol::Pgsql,
        AppProtocol::Enip,
        AppProtocol::Ssh,
        AppProtocol::Ftp,
        AppProtocol::Tftp,
        AppProtocol::Dhcp,
        AppProtocol::Ike,
        AppProtocol::Quic,
        AppProtocol::BittorrentDht,
        AppProtocol::Http2,
        AppProtocol::Rdp,
        AppProtocol::Dcerpc,
    ];
    let Some((first, rest)) = bytes.split_first() else {
        return;
    };
    match PROTOCOLS[usize::from(*first) % PROTOCOLS.len()] {
        // Each datagram is a message: there are no segments.
        protocol @ (AppProtocol::Snmp
        | AppProtocol::Tftp
        | AppProtocol::Dhcp
        | AppProtocol::Ike
        | AppProtocol::Quic
        | AppProtocol::BittorrentDht
        | AppProtocol::Dcerpc) => {
            if let Some((_, messages)) = messages(rest) {
                transactions(protocol, &messages, usize::MAX);
            }
        }
        protocol => parse(protocol, rest),
    }
}
