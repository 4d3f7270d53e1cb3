//! Tests of the parser of FTP.

use core::net::{IpAddr, Ipv4Addr};

use super::*;

const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));

fn key() -> FlowKey {
    FlowKey {
        client: CLIENT,
        server: SERVER,
        client_port: 40_000,
        server_port: 21,
        protocol: 6,
        vlans: [0; 3],
        tunnel_depth: 0,
    }
}

fn expectation(is_passive: bool, port: u16, name: &[u8], direction: Direction) -> Expectation {
    let (client, server) = match is_passive {
        true => (CLIENT, SERVER),
        false => (SERVER, CLIENT),
    };
    Expectation {
        key: FlowKey {
            client,
            server,
            client_port: 0,
            server_port: port,
            ..key()
        },
        protocol: AppProtocol::FtpData,
        file_name: name.to_vec(),
        direction,
        is_download: is_passive == (direction == Direction::ToClient),
    }
}

fn run(messages: &[(Direction, &[u8])], step: usize) -> (Transactions, Vec<Expectation>, Outcome) {
    let mut ftp = Ftp::new(key());
    let mut out = Transactions::default();
    let mut outcome = Outcome::Continue;
    for (direction, bytes) in messages {
        for bytes in bytes.chunks(step) {
            let chunk = StreamChunk::of(*direction, bytes);
            outcome = ftp.data(chunk, &mut out);
        }
    }
    let expected = ftp.expected();
    (out, expected, outcome)
}

#[test]
fn a_passive_transfer_announces_its_connection() {
    for step in [1, 8, 1000] {
        let (out, expected, _) = run(
            &[
                (Direction::ToClient, b"220-hello\r\n220 ready\r\n"),
                (Direction::ToServer, b"PASV\r\n"),
                (
                    Direction::ToClient,
                    b"227 Entering Passive Mode (192,0,2,2,4,1)\r\n",
                ),
                (Direction::ToServer, b"RETR dir/a.bin\r\n"),
                (Direction::ToClient, b"150 opening\r\n226 done\r\n"),
            ],
            step,
        );
        assert_eq!(
            expected,
            [expectation(true, 0x0401, b"dir/a.bin", Direction::ToClient)]
        );
        let Record::Ftp(record) = &out.list[1].record else {
            panic!("an FTP record")
        };
        assert_eq!(record.completion_codes, [b"150", b"226"]);
        assert!(out.list[1].is_complete());
    }
}

#[test]
fn an_active_upload_goes_to_the_opener() {
    let (_, expected, _) = run(
        &[
            (Direction::ToServer, b"PORT 192,0,2,1,4,2\r\n"),
            (Direction::ToServer, b"STOR x\r\n"),
        ],
        1000,
    );
    assert_eq!(expected, [expectation(false, 0x0402, b"x", Direction::ToClient)]);
}

#[test]
fn a_transfer_that_is_sent_before_the_reply_with_its_port_waits_for_it() {
    for step in [1, 8, 1000] {
        let (_, expected, _) = run(
            &[
                (Direction::ToClient, b"220 ready\r\n"),
                (
                    Direction::ToServer,
                    b"PASV\r\nPASV\r\nRETR a\r\nEPSV\r\nSTOR b\r\nPASV\r\nRETR c\r\n",
                ),
                (
                    Direction::ToClient,
                    b"227 (192,0,2,2,4,1)\r\n227 (192,0,2,2,4,2)\r\n150 x\r\n226 x\r\n\
                        229 (|||1027|)\r\n226 x\r\n500 no\r\n500 no\r\n",
                ),
            ],
            step,
        );
        assert_eq!(
            expected,
            [
                expectation(true, 0x0402, b"a", Direction::ToClient),
                expectation(true, 0x0403, b"b", Direction::ToServer)
            ],
            "in steps of {step}"
        );
    }
}

#[test]
fn the_addresses_in_commands_and_replies_are_not_believed() {
    let (_, expected, _) = run(
        &[
            (Direction::ToClient, b"220 ready\r\n"),
            (Direction::ToServer, b"PASV\r\n"),
            (Direction::ToClient, b"227 (10,9,8,7,4,1)\r\n"),
            (
                Direction::ToServer,
                b"RETR a\r\nEPRT |1|10.9.8.7|1026|\r\nRETR b\r\n",
            ),
        ],
        1000,
    );
    assert_eq!(
        expected,
        [
            expectation(true, 0x0401, b"a", Direction::ToClient),
            expectation(false, 0x0402, b"b", Direction::ToServer)
        ]
    );
}

#[test]
fn a_greeting_answers_no_command_that_the_client_sent_before() {
    for step in [1, 8, 1000] {
        let (out, expected, _) = run(
            &[
                (Direction::ToServer, b"PASV\r\n"),
                (
                    Direction::ToClient,
                    b"120 soon\r\n220-hello\r\n220 ready\r\n227 (192,0,2,2,4,1)\r\n",
                ),
                (Direction::ToServer, b"RETR a\r\n"),
            ],
            step,
        );
        let Record::Ftp(record) = &out.list[0].record else {
            panic!("an FTP record")
        };
        assert_eq!(record.completion_codes, [b"227"]);
        assert_eq!(expected.len(), 1, "in steps of {step}");
    }
}

#[test]
fn a_transfer_behind_many_commands_without_reply_is_announced() {
    let commands = [&b"NOOP\r\n".repeat(300)[..], b"PASV\r\nRETR a\r\n"].concat();
    let replies = [
        &b"220 ready\r\n"[..],
        &b"200 ok\r\n".repeat(300),
        b"227 (192,0,2,2,4,1)\r\n150 x\r\n226 x\r\n",
    ]
    .concat();
    let (out, expected, _) = run(
        &[(Direction::ToServer, &commands), (Direction::ToClient, &replies)],
        1000,
    );
    assert_eq!(out.events, ["ftp.too_many_commands"]);
    assert_eq!(expected, [expectation(true, 0x0401, b"a", Direction::ToClient)]);
}

#[test]
fn more_commands_without_reply_than_are_followed_are_a_failure() {
    let (mut ftp, mut out) = (Ftp::new(key()), Transactions::default());
    let mut send = |bytes: &[u8], out: &mut Transactions| {
        ftp.data(StreamChunk::of(Direction::ToServer, bytes), out);
    };
    for _ in 0..PIPELINE {
        send(b"NOOP\r\n", &mut out);
        // The engine has inspected the transaction.
        out.list.clear();
    }
    assert!(!out.has_lost);
    send(b"PASV\r\nRETR a\r\n", &mut out);
    assert!(out.has_lost && out.list.is_empty());
}

#[test]
fn the_cost_of_a_reply_with_a_port_does_not_depend_on_the_commands_that_wait() {
    let (mut ftp, mut out) = (Ftp::new(key()), Transactions::default());
    let commands = [&b"NOOP\r\n".repeat(2_000)[..], b"PASV\r\nNOOP\r\nRETR a\r\n"].concat();
    ftp.data(StreamChunk::of(Direction::ToServer, &commands), &mut out);
    assert_eq!((ftp.waiting.len(), ftp.data_commands.len()), (2_003, 2));
    let replies = [
        &b"220 ready\r\n"[..],
        &b"200 ok\r\n".repeat(2_000),
        b"227 (192,0,2,2,4,1)\r\n",
    ]
    .concat();
    ftp.data(StreamChunk::of(Direction::ToClient, &replies), &mut out);
    assert_eq!(
        ftp.expected(),
        [expectation(true, 0x0401, b"a", Direction::ToClient)]
    );
    assert_eq!((ftp.waiting.len(), ftp.data_commands.len()), (2, 0));
}

#[test]
fn auth_tls_changes_the_protocol() {
    let (_, _, outcome) = run(
        &[
            (Direction::ToServer, b"AUTH TLS\r\n"),
            (Direction::ToClient, b"234 ok\r\n"),
        ],
        1000,
    );
    assert_eq!(
        outcome,
        Outcome::Switch {
            rest: [Vec::new(), Vec::new()]
        }
    );
}
