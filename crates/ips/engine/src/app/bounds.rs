//! The memory of parsers: for any bytes and any segmentation, a parser keeps at most [`PARSER`] bytes, and the transactions of a
//! flow at most [`LIVE_SIZE`], with one message beyond it.
//!
//! Messages with a size in front are kept up to [`framed::KEPT`] in each direction; every list of requests that wait for an answer
//! has at most 256 entries of 80 bytes. Each byte is copied at most twice before its message is parsed, and parsing is linear in
//! the message: nesting and the numbers of elements have bounds of their own in each parser.

use core::net::IpAddr;

use super::framed::KEPT;
use super::open_files::HELD_SIZE;
use super::transaction::LIVE_SIZE;
use super::{AppProtocol, AppSettings, AppState, Mode};
use crate::flow::{Direction, FlowKey};
use crate::tcp::StreamChunk;

/// Largest memory of a parser in bytes: a message in progress in each direction, twice as large while its buffer grows, and lists.
/// HTTP/2 has the header tables of both directions, too, and the headers of 128 streams.
const PARSER: usize = 2 * 2 * KEPT + (512 << 10);

/// Largest memory of the parser of NFS in bytes: 256 calls that wait, with eight names of 256 bytes each; the names of 512 handles;
/// and bytes behind holes, in buffers up to twice as large.
pub(super) const NFS: usize = PARSER + 256 * 8 * (1 << 9) + 2 * HELD_SIZE;

/// Returns the largest memory of the parser of a protocol in bytes.
fn bound(protocol: AppProtocol) -> usize {
    match protocol {
        AppProtocol::Nfs => NFS,
        _ => PARSER,
    }
}

/// The protocols that have one file or folder beside this one, a corpus each, and their transport.
const PROTOCOLS: [(AppProtocol, &str, u8); 19] = [
    (AppProtocol::BittorrentDht, "bittorrent", 17),
    (AppProtocol::Dcerpc, "dcerpc", 17),
    (AppProtocol::Dhcp, "dhcp", 17),
    (AppProtocol::Dnp3, "dnp3", 6),
    (AppProtocol::Enip, "enip", 6),
    (AppProtocol::Http2, "http2", 6),
    (AppProtocol::Ike, "ike", 17),
    (AppProtocol::Krb5, "krb5", 6),
    (AppProtocol::Ldap, "ldap", 6),
    (AppProtocol::Modbus, "modbus", 6),
    (AppProtocol::Mqtt, "mqtt", 6),
    (AppProtocol::Nfs, "nfs", 6),
    (AppProtocol::Pgsql, "pgsql", 6),
    (AppProtocol::Quic, "quic", 17),
    (AppProtocol::Rdp, "rdp", 6),
    (AppProtocol::Rfb, "rfb", 6),
    (AppProtocol::Snmp, "snmp", 17),
    (AppProtocol::Tftp, "tftp", 17),
    (AppProtocol::WebSocket, "websocket", 6),
];

/// Returns the messages of the fuzzer's corpus for a protocol.
fn corpus(name: &str) -> Vec<(Direction, Vec<u8>)> {
    let path = format!(
        "{}/../../../fuzz/corpus/ips_others/{name}",
        env!("CARGO_MANIFEST_DIR")
    );
    let bytes = std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    // A byte chooses the protocol, one the segmentation; then records of a direction in the high bit of a size, and bytes.
    let mut rest = &bytes[2..];
    let mut messages = Vec::new();
    while let Some((head, tail)) = rest.split_first_chunk::<2>() {
        let head = u16::from_be_bytes(*head);
        let direction = match head & 0x8000 {
            0 => Direction::ToServer,
            _ => Direction::ToClient,
        };
        let size = usize::from(head & 0x7fff).min(tail.len());
        messages.push((direction, tail[..size].to_vec()));
        rest = &tail[size..];
    }
    assert!(!messages.is_empty(), "{path}");
    messages
}

fn key(protocol: u8) -> FlowKey {
    FlowKey {
        client: IpAddr::from([192, 0, 2, 1]),
        server: IpAddr::from([192, 0, 2, 2]),
        client_port: 40_000,
        server_port: 40_001,
        protocol,
        vlans: [0; 3],
        tunnel_depth: 0,
    }
}

/// Gives bytes to a flow, and checks its memory.
fn give(state: &mut AppState, key: &FlowKey, direction: Direction, bytes: &[u8]) {
    match key.protocol {
        6 => {
            let chunk = StreamChunk::of(direction, bytes);
            state.stream(key, chunk);
        }
        _ => state.datagram(key, direction, bytes),
    }
    state.skip_inspection(key);
    let bound = state.protocol.map_or(PARSER, bound);
    if let Mode::Parsing(parser) = &state.mode {
        let size = parser.heap();
        assert!(size <= bound, "{:?}: {size} bytes", state.protocol);
    }
    let size = state.transactions.heap();
    assert!(
        size <= LIVE_SIZE + bound,
        "{:?}: {size} bytes in transactions",
        state.protocol
    );
}

fn state(protocol: AppProtocol, key: &FlowKey) -> AppState {
    AppState::with_protocol(key, protocol, AppSettings::default())
}

#[test]
fn each_parser_keeps_its_bound_while_requests_repeat_without_answers_and_answers_without_requests() {
    for (protocol, name, transport) in PROTOCOLS {
        let key = key(transport);
        let messages = corpus(name);
        for side in Direction::BOTH {
            let mut state = state(protocol, &key);
            for _ in 0..1500 {
                for (_, bytes) in messages.iter().filter(|(direction, _)| *direction == side) {
                    give(&mut state, &key, side, bytes);
                }
            }
        }
    }
}

#[test]
fn each_parser_keeps_its_bound_for_messages_that_never_end_or_say_any_size() {
    for (protocol, name, transport) in PROTOCOLS {
        let key = key(transport);
        for (direction, bytes) in corpus(name) {
            // Each of the first bytes, which hold sizes and types, is the largest once; then anything follows.
            for at in 0..bytes.len().min(12) {
                let mut state = state(protocol, &key);
                let mut changed = bytes.clone();
                changed[at] = 0xff;
                give(&mut state, &key, direction, &changed);
                for fill in [0, 0xff] {
                    for _ in 0..12 {
                        give(&mut state, &key, direction, &[fill; 8192]);
                    }
                }
            }
        }
    }
}
