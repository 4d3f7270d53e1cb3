//! Tests of the detection of protocols.

use millrace_ips_rules::buffers::Buffer;

use super::*;
use crate::app::{AppSettings, AppState};
use crate::flow::FlowKey;
use crate::tcp::StreamChunk;

fn tcp(data: &[u8], direction: Direction) -> ProtocolDetection {
    detect_protocol(data, direction, Transport::Tcp, (40_000, 40_001))
}

#[test]
fn protocols_are_found_by_their_first_bytes() {
    assert_eq!(
        tcp(b"GET / HTTP/1.1\r\n", Direction::ToServer),
        ProtocolDetection::Found(AppProtocol::Http)
    );
    assert_eq!(
        tcp(b"HTTP/1.1 200 OK\r\n", Direction::ToClient),
        ProtocolDetection::Found(AppProtocol::Http)
    );
    assert_eq!(
        tcp(b"\x16\x03\x01\x02\x00", Direction::ToServer),
        ProtocolDetection::Found(AppProtocol::Tls)
    );
    assert_eq!(
        tcp(b"SSH-2.0-x\r\n", Direction::ToClient),
        ProtocolDetection::Found(AppProtocol::Ssh)
    );
    assert_eq!(
        tcp(b"\0\0\0\x80\xfeSMB", Direction::ToServer),
        ProtocolDetection::Found(AppProtocol::Smb)
    );
}

#[test]
fn empty_lines_and_spaces_before_a_request_do_not_hide_its_protocol() {
    let request = b"\r\n\n \tGET / HTTP/1.1\r\n";
    for size in 1..=8 {
        assert_eq!(
            tcp(&request[..size], Direction::ToServer),
            ProtocolDetection::Undecided
        );
    }
    assert_eq!(
        tcp(request, Direction::ToServer),
        ProtocolDetection::Found(AppProtocol::Http)
    );
    assert_eq!(
        tcp(b"\r\nzzzzzzzzzz", Direction::ToServer),
        ProtocolDetection::Unknown
    );
}

#[test]
fn no_number_of_empty_lines_or_spaces_before_a_request_ends_detection() {
    let key = FlowKey {
        client: [192, 0, 2, 1].into(),
        server: [192, 0, 2, 2].into(),
        client_port: 40_000,
        server_port: 40_001,
        protocol: 6,
        vlans: [0; 3],
        tunnel_depth: 0,
    };
    for space in [&b"\r\n"[..], b"  ", b" \t"] {
        let mut app = AppState::new(AppSettings::default());
        let mut send = |bytes: &[u8]| app.stream(&key, StreamChunk::of(Direction::ToServer, bytes));
        for _ in 0..500 {
            send(&space.repeat(50));
        }
        send(b"GE");
        send(b"T / HTTP/1.1\r\n\r\n");
        assert_eq!(app.protocol, Some(AppProtocol::Http));
        assert_eq!(app.transactions.list.len(), 1);
        let method = app.transactions.list[0].buffer(Buffer::HttpMethod, Direction::ToServer);
        assert_eq!(method, Some(&b"GET"[..]));
    }
}

#[test]
fn a_prefix_of_a_signature_is_undecided_and_other_bytes_are_unknown() {
    assert_eq!(tcp(b"GE", Direction::ToServer), ProtocolDetection::Undecided);
    assert_eq!(tcp(b"GET", Direction::ToServer), ProtocolDetection::Undecided);
    assert_eq!(
        tcp(b"zzzzzzzzzzzz", Direction::ToServer),
        ProtocolDetection::Unknown
    );
}

#[test]
fn a_protocol_that_is_known_by_its_port_is_known_for_any_segmentation() {
    let modbus = b"\x00\x01\x00\x00\x00\x06\x01\x03\x00\x00\x00\x01".to_vec();
    let mut nfs = vec![0x80, 0, 0, 40];
    nfs.resize(44, 0);
    for (bytes, port, protocol) in [
        (modbus, 502, AppProtocol::Modbus),
        (nfs, 2049, AppProtocol::Nfs),
        (b"\x05\x64\x05\xc4".to_vec(), 20_000, AppProtocol::Dnp3),
    ] {
        for direction in Direction::BOTH {
            let by = |size: usize| detect_protocol(&bytes[..size], direction, Transport::Tcp, (40_000, port));
            let first = (1..=bytes.len())
                .map(by)
                .find(|found| *found != ProtocolDetection::Undecided);
            assert_eq!(first, Some(ProtocolDetection::Found(protocol)), "{direction:?}");
        }
    }
}

#[test]
fn words_of_ftp_say_nothing_on_a_port_of_smtp() {
    let by = |data, direction, port| detect_protocol(data, direction, Transport::Tcp, (40_000, port));
    for port in [25, 587, 2525] {
        assert_eq!(
            by(b"FEAT\r\n", Direction::ToServer, port),
            ProtocolDetection::Unknown
        );
        assert_eq!(
            by(b"220 (mail)\r\n", Direction::ToClient, port),
            ProtocolDetection::Found(AppProtocol::Smtp)
        );
    }
}

#[test]
fn the_port_of_a_client_does_not_hide_the_protocol_of_a_server() {
    let by = |data: &[u8], direction, ports| detect_protocol(data, direction, Transport::Tcp, ports);
    let modbus = b"\x00\x01\x00\x00\x00\x06\x01\x03\x00\x00\x00\x01";
    let dnp3 = b"\x05\x64\x05\xc4";
    for client in [21, 25, 53, 139, 445, 502, 2049, 2525, 20_000, 40_000] {
        for (bytes, server, protocol) in [
            (&modbus[..], 502, AppProtocol::Modbus),
            (dnp3, 20_000, AppProtocol::Dnp3),
        ] {
            for direction in Direction::BOTH {
                assert_eq!(
                    by(bytes, direction, (client, server)),
                    ProtocolDetection::Found(protocol),
                    "{client}, {server}"
                );
            }
        }
        let greeting = |server| by(b"220 ready\r\n", Direction::ToClient, (client, server));
        assert_eq!(
            greeting(21),
            ProtocolDetection::Found(AppProtocol::Ftp),
            "{client}"
        );
        assert_eq!(
            greeting(25),
            ProtocolDetection::Found(AppProtocol::Smtp),
            "{client}"
        );
        assert!(awaits_greeting(AppProtocol::Ftp, (client, 2121)), "{client}");
        assert_eq!(
            by(b"220 (vsFTPd)\r\n", Direction::ToClient, (client, 21)),
            ProtocolDetection::Found(AppProtocol::Ftp)
        );
    }
    let answer = b"\x12\x34\x81\x80\0\x01\0\0\0\0\0\0\x01a\0\0\x01\0\x01";
    assert_eq!(
        detect_protocol(answer, Direction::ToServer, Transport::Udp, (53, 40_000)),
        ProtocolDetection::Found(AppProtocol::Dns),
        "the answer came first"
    );
}

#[test]
fn numbers_that_a_sender_chooses_hide_neither_modbus_nor_dns() {
    let found = |bytes: &[u8], port| {
        let by = |size: usize| {
            detect_protocol(
                &bytes[..size],
                Direction::ToServer,
                Transport::Tcp,
                (40_000, port),
            )
        };
        (1..=bytes.len())
            .map(by)
            .find(|found| *found != ProtocolDetection::Undecided)
    };
    for identifier in [[0x17, 3], [0x14, 3], [5, 0], [0x16, 3]] {
        let request = [&identifier[..], b"\0\0\0\x06\x01\x05\0\x01\xff\0"].concat();
        assert_eq!(
            found(&request, 502),
            Some(ProtocolDetection::Found(AppProtocol::Modbus))
        );
        // The identifier is the length field of the DNS message here.
        let query = [
            &identifier[..],
            b"\x01\0\x01\0\0\x01\0\0\0\0\0\0\x01a\0\0\x01\0\x01",
        ]
        .concat();
        assert_eq!(
            found(&query, 53),
            Some(ProtocolDetection::Found(AppProtocol::Dns))
        );
    }
    let hello = b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03\x01\x02\x03\x04\x05\x06\x07\x08";
    for port in [53, 443, 502] {
        assert_eq!(
            found(hello, port),
            Some(ProtocolDetection::Found(AppProtocol::Tls))
        );
    }
}

#[test]
fn a_pdu_of_dce_rpc_has_a_valid_header() {
    let bind = b"\x05\0\x0b\x03\x10\0\0\0\x48\0\0\0\x01\0\0\0";
    assert_eq!(
        tcp(bind, Direction::ToServer),
        ProtocolDetection::Found(AppProtocol::Dcerpc)
    );
    assert_eq!(tcp(&bind[..9], Direction::ToServer), ProtocolDetection::Undecided);
    let mut minor = bind.to_vec();
    minor[1] = 1;
    assert_eq!(
        tcp(&minor, Direction::ToServer),
        ProtocolDetection::Found(AppProtocol::Dcerpc)
    );
    // A client of SOCKS 5 without authentication, which asks for a name of eleven bytes.
    let socks = b"\x05\x01\0\x05\x01\0\x03\x0bexample.org\0\x50";
    assert_eq!(tcp(socks, Direction::ToServer), ProtocolDetection::Unknown);
    for (at, byte) in [(1, 2), (2, 21), (4, 0x20), (5, 4), (8, 15)] {
        let mut other = bind.to_vec();
        other[at] = byte;
        assert_eq!(
            tcp(&other, Direction::ToServer),
            ProtocolDetection::Unknown,
            "{at}"
        );
    }
}

#[test]
fn first_bytes_of_any_size_are_compared_with_the_protocol_of_each_port() {
    for port in (0..4501).chain([20_000]) {
        for bytes in [[0; 30], [b'a'; 30], [0xff; 30]] {
            for size in 1..10 {
                for transport in [Transport::Tcp, Transport::Udp] {
                    let ports = (40_000, port);
                    let _found = detect_protocol(&bytes[..size], Direction::ToServer, transport, ports);
                }
            }
        }
    }
}

#[test]
fn dns_needs_its_port() {
    let query = b"\x12\x34\x01\x00\0\x01\0\0\0\0\0\0\x01a\0\0\x01\0\x01";
    let by = |port| detect_protocol(query, Direction::ToServer, Transport::Udp, (40_000, port));
    assert_eq!(by(53), ProtocolDetection::Found(AppProtocol::Dns));
    assert_eq!(by(54), ProtocolDetection::Unknown);
}
