//! Frames: the parts of messages of each protocol as buffers, with the messages of the other cases and some of our own.

use millrace_ips_engine::Mode;
use millrace_ips_engine::detect::CompileSettings;

use super::{Case, Message, binary, client, http2, records, server, text};
use crate::frames::{alerts, rules, tcp};

/// Returns the messages of another case with conditions on frames.
pub(super) fn of(case: Case, protocol: &'static str, hold: &[&'static str], fail: &[&'static str]) -> Case {
    Case {
        protocol,
        hold: hold.to_vec(),
        fail: fail.to_vec(),
        ..case
    }
}

/// Returns a case over TCP.
pub(super) fn case(
    protocol: &'static str,
    port: u16,
    messages: Vec<Message>,
    hold: &[&'static str],
    fail: &[&'static str],
) -> Case {
    Case {
        protocol,
        is_udp: false,
        port,
        messages,
        hold: hold.to_vec(),
        fail: fail.to_vec(),
    }
}

/// Returns every case.
pub(super) fn cases() -> Vec<Case> {
    let mut cases = vec![
        tls(),
        ssl2(),
        smb(),
        encrypted_smb(),
        telnet(),
        sip(true),
        sip(false),
        nfs4(),
        dcerpc(),
        quic(),
        modbus(),
        http_bodies(),
    ];
    cases.extend(of_others());
    cases
}

fn of_others() -> Vec<Case> {
    vec![
        of(
            text::http_case(),
            "http",
            &[
                "flow:to_server; frame:http1.request; content:\"GET /dir/name.pdf\"; startswith; content:\"YWJj|0d 0a 0d 0a|\"; endswith;",
                "frame:request; strip_whitespace; content:\"GET/dir/name.pdf?x=1HTTP/1.1\"; startswith;",
                "flow:to_client; frame:http1.response; content:\"%PDF-1.4\"; endswith; bsize:59;",
                "frame:http1.request; bsize:<200;",
            ],
            &[
                "frame:http1.request; content:\"200 OK\";",
                "frame:http1.response; content:!\"PDF\";",
                "frame:http1.request; content:\"GET\"; endswith;",
            ],
        ),
        of(
            http2::http2_case(),
            "http2",
            &[
                "frame:http2.pdu; content:\"|00 00 00 04 00 00 00 00 00|\"; bsize:9;",
                "frame:http2.hdr; content:\"|00 00 0a 00 01 00 00 00 03|\"; bsize:9;",
                "frame:http2.data; content:\"name=value\"; bsize:10;",
                "frame:data; content:\"no such page\"; startswith; endswith;",
            ],
            &[
                "frame:http2.hdr; content:\"name\";",
                "frame:http2.data; content:\"PRI\";",
            ],
        ),
        of(
            text::dns_case(),
            "dns",
            &[
                "flow:to_server; frame:dns.pdu; content:\"|00 09 01 00|\"; startswith;",
                "flow:to_client; frame:pdu; content:\"|00 09 81 03|\"; startswith;",
            ],
            &["frame:dns.pdu; content:\"|00 09|\"; offset:1; depth:3;"],
        ),
        of(
            text::ssh_case(),
            "ssh",
            &[
                "frame:ssh.record.hdr; content:\"|15|\"; endswith; bsize:6;",
                "frame:ssh.record_hdr; content:\"|14|\"; endswith; bsize:6;",
                "frame:ssh.record.data; content:\"comp-c\";",
                "frame:ssh.record.pdu; content:\"|00 00 00 0c 0a 15|\"; startswith; bsize:16;",
            ],
            &[
                "frame:ssh.record.pdu; content:\"SSH-\";",
                "frame:ssh.record.hdr; content:\"|16|\"; endswith;",
            ],
        ),
        of(
            text::mail_case(),
            "smtp",
            &[
                "frame:smtp.command_line; content:\"EHLO host.example|0d 0a|\"; startswith; endswith;",
                "frame:smtp.command_line; content:\"DATA|0d 0a|\"; bsize:6;",
                "frame:smtp.response_line; content:\"354 go ahead\"; startswith;",
                "frame:smtp.data; content:\"From: toto\"; startswith; content:\"body|0d 0a|\"; endswith;",
            ],
            &[
                "frame:smtp.command_line; content:\"Subject\";",
                "frame:smtp.data; content:\"354\";",
                "frame:smtp.data; content:\".|0d 0a|\"; endswith; content:\"|0d 0a|.|0d 0a|\";",
            ],
        ),
        of(
            text::ftp_case(),
            "ftp",
            &[
                "frame:ftp.command_line; content:\"USER anonymous|0d 0a|\"; startswith; endswith;",
                "frame:ftp.response_line; content:\"331 Please\"; startswith;",
            ],
            &["frame:ftp.command_line; content:\"331\";"],
        ),
        of(
            binary::mqtt_case(),
            "mqtt",
            &[
                "frame:mqtt.pdu; content:\"|20 02 01 00|\"; bsize:4;",
                "frame:mqtt.header; content:\"|82|\"; startswith; bsize:2;",
                "frame:mqtt.data; content:\"|00 07|mytopic\"; startswith;",
            ],
            &[
                "frame:mqtt.header; bsize:3;",
                "frame:mqtt.data; content:\"|82|\"; startswith;",
            ],
        ),
        of(
            records::enip_case(),
            "enip",
            &[
                "frame:enip.hdr; content:\"|63 00|\"; startswith; bsize:24;",
                "frame:enip.data; content:\"|01 00 00 00|\"; bsize:4;",
                "frame:enip.pdu; content:\"Communications\"; bsize:>24;",
            ],
            &["frame:enip.hdr; content:\"Communications\";"],
        ),
        of(
            records::ldap_case(),
            "ldap",
            &["frame:ldap.pdu; content:\"|30|\"; startswith; content:\"not now\"; endswith;"],
            &["frame:ldap.pdu; content:\"uid=jdoe\"; content:\"not now\";"],
        ),
        of(
            binary::pgsql_case(),
            "pgsql",
            &[
                "frame:pgsql.pdu; content:\"user\"; offset:8; depth:4;",
                "frame:pgsql.pdu; content:\"Q\"; startswith; content:\"FROM t|00|\"; endswith;",
                "frame:pgsql.pdu; content:\"Z|00 00 00 05|I\"; bsize:6;",
            ],
            &["frame:pgsql.pdu; content:\"SELECT 1\"; content:\"Z\";"],
        ),
        of(
            binary::websocket_case(),
            "websocket",
            &[
                "frame:websocket.header; content:\"|81 89 01 02 03 04|\"; bsize:6;",
                "frame:websocket.data; content:\"123\"; bsize:3;",
                "frame:websocket.pdu; content:\"|80 02|45\"; bsize:4;",
            ],
            &[
                "frame:websocket.data; content:\"swordfish\";",
                "frame:websocket.pdu; content:\"GET\";",
            ],
        ),
        of(
            binary::nfs_case(),
            "nfs",
            &[
                "frame:nfs.rpc.pdu; content:\"|80 00|\"; startswith; content:\"file.txt\"; endswith;",
                "frame:rpc.hdr; content:\"|00 00 00 09 00 00 00 00|\"; endswith; bsize:12;",
                "frame:rpc.data; content:\"|00 00 00 02 00 01 86 a3|\"; startswith;",
                "frame:rpc.creds; content:\"|00 00 00 00 00 00 00 00|\"; bsize:8;",
                "frame:nfs.pdu; content:\"|00 00 00 08 07|\"; startswith;",
                "flow:to_client; frame:nfs.status; content:\"|00 00 00 00|\"; bsize:4;",
                "frame:nfs.nfs.pdu; bsize:4;",
                "frame:nfs.nfs.status; bsize:4;",
                "frame:nfs.rpc.hdr; bsize:12;",
                "frame:nfs.rpc.data; bsize:20;",
                "frame:nfs.rpc.creds; bsize:8;",
            ],
            &[
                "frame:nfs4.pdu; bsize:>0;",
                "frame:nfs.pdu; content:\"|00 01 86 a3|\";",
            ],
        ),
    ]
}

fn tls() -> Case {
    let mut case = text::tls_case();
    case.messages
        .push(client(b"\x15\x03\x03\x00\x02\x02\x28".to_vec()));
    case.messages
        .push(server(b"\x18\x03\x03\x00\x05\x01\x00\x02hi".to_vec()));
    of(
        case,
        "tls",
        &[
            "flow:to_server; frame:tls.pdu; content:\"|16 03 03|\"; startswith;",
            "frame:pdu; content:\"|15 03 03 00 02 02 28|\"; bsize:7;",
            "frame:tls.hdr; content:\"|15 03 03 00 02|\"; bsize:5;",
            "frame:tls.data; content:\"|02 28|\"; bsize:2;",
            "frame:tls.alert; content:\"|02 28|\"; bsize:2;",
            "frame:tls.heartbeat; content:\"hi\"; endswith; bsize:5;",
            "frame:tls.data; content:\"|0e 00 00 00|\"; bsize:4;",
            "frame:tls.pdu; byte_test:2,>,100,3;",
        ],
        &[
            "frame:tls.hdr; bsize:>5;",
            "frame:tls.alert; content:\"hi\";",
            "frame:tls.data; content:\"|16 03 03|\"; startswith;",
            "frame:tls.ssl2.pdu; bsize:>0;",
        ],
    )
}

fn ssl2() -> Case {
    let hello = [&[0x80, 25, 1, 0, 2, 0, 0, 0, 0, 0, 16][..], &[7; 16]].concat();
    case(
        "tls",
        443,
        vec![client(hello)],
        &[
            "frame:tls.ssl2.hdr; content:\"|80 19|\"; bsize:2;",
            "frame:tls.ssl2.pdu; content:\"|80 19 01 00 02|\"; startswith; bsize:27;",
        ],
        &["frame:tls.pdu; bsize:>0;"],
    )
}

/// Returns a message of NetBIOS.
fn nbss(body: &[u8]) -> Vec<u8> {
    [&(body.len() as u32).to_be_bytes()[..], body].concat()
}

/// Returns a message of SMB 2 without credits; `next` is the offset of the next one.
fn smb2(next: u32, body: &[u8]) -> Vec<u8> {
    let mut header = vec![0xfe, b'S', b'M', b'B', 64, 0];
    header.resize(20, 0);
    header.extend(next.to_le_bytes());
    header.resize(64, 0);
    [header, body.to_vec()].concat()
}

pub(super) fn smb() -> Case {
    let mut first = vec![0xff, b'S', b'M', b'B', 0x72];
    first.resize(32, 0);
    first.extend(b"\0\x0c\0\x02NT LM 0.12\0");
    let two = [smb2(72, b"one body"), smb2(0, b"two")].concat();
    case(
        "smb",
        445,
        vec![client(nbss(&first)), client(nbss(&two))],
        &[
            "frame:smb.nbss.pdu; content:\"|ff|SMB\"; offset:4; depth:4;",
            "frame:nbss.hdr; content:\"|00 00 00|\"; startswith; bsize:4;",
            "frame:smb.nbss.hdr; bsize:4;",
            "frame:smb.nbss.data; content:\"|fe|SMB\"; startswith; content:\"two\"; endswith;",
            "frame:smb.smb1.pdu; content:\"|ff|SMB\"; startswith;",
            "frame:smb.smb1.hdr; bsize:32;",
            "frame:smb1.data; content:\"|00|\"; startswith; content:\"NT LM\";",
            "frame:smb.smb1.data; content:\"NT LM\";",
            "frame:smb.smb2.pdu; content:\"one body\"; endswith; bsize:72;",
            "frame:smb.smb2.pdu; content:\"two\"; endswith; bsize:67;",
            "frame:smb.smb2.hdr; content:\"|fe|SMB\"; startswith; bsize:64;",
            "frame:smb.smb2.data; content:\"two\"; bsize:3;",
            "frame:smb.smb2.data; content:!\"|FE|SMB\"; startswith;",
        ],
        &[
            "frame:smb1.data; content:\"|ff|SMB\";",
            "frame:smb2.data; content:\"one\"; content:\"two\";",
            "frame:smb3.pdu; bsize:>0;",
        ],
    )
}

fn encrypted_smb() -> Case {
    let mut first = smb2(0, b"x");
    first[12] = 0;
    let mut sealed = vec![0xfd, b'S', b'M', b'B'];
    sealed.resize(52, 0);
    sealed.extend(b"sealed");
    case(
        "smb",
        445,
        vec![client(nbss(&first)), client(nbss(&sealed))],
        &[
            "frame:smb.smb3.pdu; content:\"|fd|SMB\"; startswith; bsize:58;",
            "frame:smb.smb3.hdr; content:\"|fd|SMB\"; startswith; bsize:52;",
            "frame:smb.smb3.data; content:\"sealed\"; bsize:6;",
        ],
        &["frame:smb.smb3.data; content:\"|fd|SMB\";"],
    )
}

pub(super) fn telnet() -> Case {
    case(
        "telnet",
        23,
        vec![
            server(b"\xff\xfd\x18\xff\xfa\x18\x01\xff\xf0login: ".to_vec()),
            client(b"\xff\xfb\x18user\r\n/sbin/ping www.yahoo.com\r\n".to_vec()),
        ],
        &[
            "frame:telnet.ctl; content:\"|ff fd 18|\"; bsize:3;",
            "frame:telnet.ctl; content:\"|ff fa 18 01 ff f0|\"; bsize:6;",
            "flow:to_server; frame:telnet.data; content:\"/sbin/ping www.yahoo.com\"; startswith;",
            "frame:data; content:\"user|0d 0a|\"; bsize:6;",
            "frame:telnet.pdu; content:\"user\"; startswith;",
            "frame:telnet.pdu; content:\"|ff fb 18|\"; bsize:3;",
            "frame:telnet.data; content:\"login: \";",
        ],
        &[
            "frame:telnet.data; content:\"|ff|\";",
            "frame:telnet.data; content:\"user\"; content:\"/sbin\";",
        ],
    )
}

pub(super) fn sip(is_udp: bool) -> Case {
    let invite = "INVITE sip:b@example.org SIP/2.0\r\nVia: SIP/2.0/UDP host;branch=x229\r\nContent-Length: 5\r\n\r\nv=0\r\n";
    let ok = "SIP/2.0 200 OK\r\nVia: SIP/2.0/UDP host\r\nContent-Length: 0\r\n\r\n";
    let ringing = "SIP/2.0 180 Ringing\r\nl: 4\r\n\r\nbody";
    Case {
        protocol: "sip",
        is_udp,
        port: 5060,
        messages: vec![client(invite), server(ringing), server(ok)],
        hold: vec![
            "flow:to_server; frame:sip.pdu; content:\"INVITE sip\"; startswith; content:\"v=0|0d 0a|\"; endswith;",
            "flow:to_client; frame:pdu; content:\"SIP/2.0 200 OK|0D 0A|\"; startswith;",
            "frame:sip.request.line; content:\"SIP/2.0|0D 0A|\"; endswith;",
            "frame:sip.request.headers; content:\"Via:\"; startswith; content:\"Content-Length: 5|0d 0a|\"; endswith;",
            "frame:sip.request.body; content:\"v=0|0d 0a|\"; startswith; endswith;",
            "frame:sip.response.line; content:\"SIP/2.0 180\"; startswith;",
            "frame:sip.response.headers; content:\"Via:\"; startswith; content:\"Content-Length: 0|0d 0a|\"; endswith;",
            "frame:sip.response.body; content:\"body\"; bsize:4;",
        ],
        fail: vec![
            "frame:sip.request.line; content:\"Via\";",
            "frame:sip.request.headers; content:\"|0d 0a 0d 0a|\";",
            "frame:sip.response.line; content:\"180\"; content:\"200\";",
            "frame:sip.request.body; content:\"body\";",
        ],
    }
}

fn nfs4() -> Case {
    let words = |words: &[u32]| {
        words
            .iter()
            .flat_map(|word| word.to_be_bytes())
            .collect::<Vec<u8>>()
    };
    let marked = |bytes: &[u8]| [&(0x8000_0000 | bytes.len() as u32).to_be_bytes()[..], bytes].concat();
    let call = words(&[9, 0, 2, 100_003, 4, 1, 1, 4, 0x61, 0, 0, 0, 0, 1, 24]);
    let reply = words(&[9, 1, 0, 0, 0, 0, 0, 0, 1, 24, 0]);
    case(
        "nfs",
        2049,
        vec![client(marked(&call)), server(marked(&reply))],
        &[
            "frame:nfs.nfs4.pdu; bsize:16;",
            "frame:nfs4.hdr; content:\"|00 00 00 00|\"; startswith; bsize:8;",
            "frame:nfs.nfs4.hdr; bsize:8;",
            "frame:nfs.nfs4.ops; content:\"|00 00 00 01 00 00 00 18|\"; bsize:8;",
            "flow:to_client; frame:nfs.nfs4.status; content:\"|00 00 00 00|\"; bsize:4;",
            "frame:rpc.creds; content:\"|00 00 00 01 00 00 00 04|\"; startswith; bsize:12;",
        ],
        &[
            "frame:nfs.nfs.pdu; bsize:>0;",
            "flow:to_server; frame:nfs4.status; bsize:4;",
        ],
    )
}

pub(super) fn dcerpc() -> Case {
    let mut bind = vec![5, 0, 11, 3, 0x10, 0, 0, 0, 72, 0, 0, 0, 1, 0, 0, 0];
    bind.resize(72, 0);
    let call = b"\x05\0\0\x03\x10\0\0\0\x1c\0\0\0\x01\0\0\0\x04\0\0\0\0\0\x0f\0stub".to_vec();
    case(
        "dcerpc",
        135,
        vec![client(bind), client(call)],
        &[
            "frame:dcerpc.pdu; content:\"stub\"; endswith; bsize:28;",
            "frame:dcerpc.hdr; content:\"|05 00 0b|\"; startswith; bsize:16;",
            "frame:dcerpc.data; content:\"stub\"; endswith; bsize:12;",
            "dcerpc.opnum:15;",
            "dcerpc.opnum:>10;",
            "dcerpc.opnum:<16;",
            "dcerpc.opnum:!7;",
            "dcerpc.opnum:3,12-15;",
        ],
        &[
            "frame:dcerpc.hdr; content:\"stub\";",
            "dcerpc.opnum:>15;",
            "dcerpc.opnum:<15;",
            "dcerpc.opnum:!15;",
        ],
    )
}

fn quic() -> Case {
    // An Initial and a Handshake packet in one datagram (RFC 9000, section 17.2), both with five bytes of payload.
    let initial = [&[0xc0, 0, 0, 0, 1, 8][..], &[1; 8], &[0, 0, 0x40, 5], b"hello"].concat();
    let handshake = [&[0xe0, 0, 0, 0, 1, 8][..], &[1; 8], &[0, 5], b"world"].concat();
    Case {
        is_udp: true,
        ..case(
            "quic",
            443,
            vec![client([initial, handshake].concat())],
            &[
                "frame:quic.pdu; content:\"hello|e0|\"; content:\"world\"; endswith;",
                "frame:quic.hdr; content:\"|c0 00 00 00 01 08|\"; startswith; bsize:18;",
                "frame:quic.hdr; content:\"|e0|\"; startswith; bsize:16;",
                "frame:quic.data; content:\"world\"; bsize:5;",
            ],
            &[
                "frame:quic.hdr; content:\"hello\";",
                "frame:quic.data; content:\"|e0|\";",
            ],
        )
    }
}

pub(super) fn modbus() -> Case {
    case(
        "modbus",
        502,
        vec![client(
            b"\0\x07\0\0\0\x06\x01\x05\0\xac\xff\0\0\x08\0\0\0\x06\x01\x05\0\xad\xff\0".to_vec(),
        )],
        &["frame:modbus.pdu; content:\"|00 08|\"; startswith; bsize:12;"],
        &["frame:modbus.pdu; bsize:24;"],
    )
}

/// Bodies in chunks, of a HEAD, of a 204, and up to the end of the connection.
fn http_bodies() -> Case {
    case(
        "http",
        80,
        vec![
            client(
                "POST /one HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n\
                 HEAD /two HTTP/1.1\r\nHost: a\r\n\r\nPUT /three HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nfour\
                 GET /five HTTP/1.1\r\nHost: a\r\n\r\n",
            ),
            server(
                "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 One\r\nContent-Length: 2\r\n\r\nok\
                 HTTP/1.1 200 Two\r\n\r\nHTTP/1.1 204 Three\r\n\r\nHTTP/1.0 200 Five\r\n\r\nto the end",
            ),
        ],
        &[
            "frame:http1.request; content:\"POST /one\"; startswith; content:\"0|0d 0a 0d 0a|\"; endswith;",
            "frame:http1.request; content:\"HEAD /two\"; startswith; content:\"a|0d 0a 0d 0a|\"; endswith;",
            "frame:http1.request; content:\"PUT /three\"; startswith; content:\"four\"; endswith;",
            "frame:http1.request; content:\"GET /five\"; startswith;",
            "frame:http1.response; content:\"Two|0d 0a 0d 0a|\"; endswith;",
            "frame:http1.response; content:\"Three|0d 0a 0d 0a|\"; endswith;",
            "frame:http1.response; content:\"Five\"; content:\"to the end\"; endswith;",
            "frame:http1.response; content:\"100 Continue\"; bsize:25;",
        ],
        &[
            "frame:http1.request; content:\"/one\"; content:\"/two\";",
            "frame:http1.response; content:\"Two\"; content:\"Three\";",
            "frame:http1.response; content:\"One\"; content:\"Two\";",
        ],
    )
}

#[test]
fn a_rule_over_a_frame_alerts_on_each_frame_and_without_a_packet_of_its_own_on_none() {
    let text = "alert tls any any -> any any (frame:tls.pdu; content:\"|15 03 03|\"; startswith; sid:1;)\n";
    let hello = text::tls_case().messages;
    let warning = b"\x15\x03\x03\x00\x02\x01\x00".to_vec();
    let messages = [hello, vec![client([&warning[..], &warning].concat())]].concat();
    for mode in [Mode::Ids, Mode::Ips] {
        for size in [1000, 3] {
            let settings = millrace_ips_engine::Settings {
                mode,
                ..millrace_ips_engine::Settings::default()
            };
            let mut bed = crate::bed::TestBed::with(settings, text);
            bed.send_all(tcp(443, &messages, size));
            bed.finish();
            assert_eq!(bed.alerts(), 2, "{mode:?} {size}");
        }
    }
}

#[test]
fn a_frame_may_be_of_more_bytes_than_a_segment_and_a_drop_rule_holds_it_back_before_its_end() {
    let text = "drop tls any any -> any any (frame:tls.data; content:\"needle\"; sid:1;)\n";
    let record = [&[23, 3, 3, 0x10, 0][..], b"needle", &[b'x'; 4090]].concat();
    let messages = [text::tls_case().messages, vec![client(record)]].concat();
    let rules = rules(text, &CompileSettings::default());
    let frames = tcp(443, &messages, 1000);
    // Without the last segments, so that the record is incomplete.
    let cut = &frames[..frames.len() - 7];
    assert_eq!(alerts(&rules, cut, Mode::Ips), [1]);
}

#[test]
fn rules_over_frames_and_something_else_are_refused() {
    use millrace_ips_engine::detect::compile;
    use millrace_ips_rules::{RuleSet, Syntax, Variables, files};
    for rule in [
        "alert tcp-pkt any any -> any any (frame:tls.pdu; content:\"a\"; sid:1;)",
        "alert udp any any -> any any (frame:tls.pdu; content:\"a\"; sid:2;)",
        "alert smb any any -> any any (frame:tls.pdu; content:\"a\"; sid:3;)",
        "alert tcp any any -> any any (frame:tls; content:\"a\"; sid:4;)",
        "alert tls any any -> any any (content:\"abc\"; frame:tls.pdu; content:\"a\"; sid:5;)",
        "alert tls any any -> any any (tls.version:1.0; frame:tls.pdu; content:\"a\"; sid:6;)",
        "alert tls any any -> any any (frame:smb1.pdu; content:\"a\"; sid:7;)",
        "alert tls any any -> any any (frame:tls.pdu; content:\"a\"; frame:tls.hdr; content:\"b\"; sid:8;)",
        "alert tls any any -> any any (frame:tls.pdu; absent; sid:9;)",
    ] {
        let mut set = RuleSet::default();
        set.add(
            "test",
            files::parse(Syntax::Suricata, "test", rule.as_bytes()),
            &Variables::usual(),
        );
        let (compiled, refusals) = compile(&set, &CompileSettings::default());
        assert_eq!(compiled.rules.len(), 0, "{rule}");
        assert_eq!(refusals.len(), 1, "{rule}");
    }
}
