//! Each condition on a number or a text matches some flow, so no condition is accepted that can never match.

use millrace_ips_engine::Mode;
use millrace_ips_engine::app::EVENTS;
use millrace_ips_engine::detect::{CompileSettings, compile};
use millrace_ips_rules::options::number::NumberField;
use millrace_ips_rules::options::words::TextField;
use millrace_ips_rules::{RuleSet, Syntax, Variables, files};

use crate::frames::{alerts, ipv4, rules, tcp, udp};
use crate::synthesis::dns::message;
use crate::synthesis::tls::Handshake;

/// A kind of flow, on which conditions on several fields match.
#[derive(Debug, Clone, Copy)]
enum Conversation {
    Http,
    Dns,
    Tls,
    Dcerpc,
    Modbus,
    Dnp3,
    Sip,
    Icmp,
    TcpOptions,
    /// One of the cases of the protocols: see [`crate::protocols`].
    Listed,
}

impl Conversation {
    fn frames(self) -> Vec<Vec<u8>> {
        match self {
            Conversation::Http => {
                let request =
                    b"POST /index HTTP/1.1\r\nHost: a\r\nno colon\r\nContent-Length: 6\r\n\r\nattack";
                tcp(80, &[(false, request.to_vec())], 1000)
            }
            Conversation::Dns => vec![udp(53, false, &message(b"a.example", false).unwrap())],
            Conversation::Tls => {
                let handshake = Handshake {
                    subject: b"CN=a".to_vec(),
                    issuer: b"CN=b".to_vec(),
                    serial: vec![1],
                    minor: 3,
                    ..Handshake::default()
                };
                let messages = [(false, handshake.client()), (true, handshake.server().unwrap())];
                tcp(443, &messages, 1000)
            }
            Conversation::Dcerpc => tcp(135, &[(false, bind()), (false, call(false, b"stub"))], 1000),
            Conversation::Modbus => {
                let write = b"\0\x07\0\0\0\x06\x01\x05\0\xac\xff\0".to_vec();
                tcp(502, &[(false, write)], 1000)
            }
            Conversation::Dnp3 => {
                let response = b"\xc0\xc0\x81\x90\x00\x01\x02\x00\x00\x00\x81";
                tcp(20_000, &[(false, link_frame(response))], 1000)
            }
            Conversation::Sip => vec![
                udp(5060, false, b"INVITE sip:bob@example.org SIP/2.0\r\nl: 0\r\n\r\n"),
                udp(5060, true, b"SIP/2.0 200 OK\r\nl: 0\r\n\r\n"),
            ],
            Conversation::Listed => Vec::new(),
            Conversation::Icmp => vec![ipv4(1, false, &[8, 0, 0, 0, 0, 7, 0, 9, 1, 2])],
            Conversation::TcpOptions => {
                let mut syn = vec![
                    3, 0xe8, 0, 80, 0, 0, 0, 100, 0, 0, 0, 0, 0x60, 2, 0xff, 0xff, 0, 0, 0, 0,
                ];
                syn.extend([2, 4, 5, 180]);
                vec![ipv4(6, false, &syn)]
            }
        }
    }
}

/// Returns a bind of DCE/RPC to an interface.
fn bind() -> Vec<u8> {
    let uuid = [
        0x78, 0x56, 0x34, 0x12, 0x34, 0x12, 0xcd, 0xab, 0xef, 0, 1, 0x23, 0x45, 0x67, 0x89, 0xac,
    ];
    let mut bind = vec![5, 0, 11, 3, 0x10, 0, 0, 0, 72, 0, 0, 0, 1, 0, 0, 0];
    bind.extend([0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1, 0]);
    bind.extend(uuid);
    bind.extend([3, 0, 0, 0]);
    bind.extend([0; 20]);
    bind
}

/// Returns a call of DCE/RPC with four bytes of stub data, in the byte order of its header.
fn call(is_big_endian: bool, stub: &[u8; 4]) -> Vec<u8> {
    let mut call = match is_big_endian {
        true => vec![5, 0, 0, 3, 0, 0, 0, 0, 0, 28, 0, 0, 0, 0, 0, 1],
        false => vec![5, 0, 0, 3, 0x10, 0, 0, 0, 28, 0, 0, 0, 1, 0, 0, 0],
    };
    call.extend(match is_big_endian {
        true => [0, 0, 0, 4, 0, 0, 0, 15],
        false => [4, 0, 0, 0, 0, 0, 15, 0],
    });
    call.extend(stub);
    call
}

/// Returns a frame of DNP3 with up to 16 bytes of user data (IEEE 1815, section 9.2).
pub(crate) fn link_frame(data: &[u8]) -> Vec<u8> {
    let crc = |bytes: &[u8]| {
        let step = |crc: u16, byte: &u8| {
            (0..8).fold(crc ^ u16::from(*byte), |crc, _| match crc & 1 {
                0 => crc >> 1,
                _ => crc >> 1 ^ 0xa6bc,
            })
        };
        (!bytes.iter().fold(0, step)).to_le_bytes()
    };
    let header = [5, 0x64, 5 + data.len() as u8, 0xc4, 10, 0, 1, 0];
    [&header[..], &crc(&header), data, &crc(data)].concat()
}

/// Returns protocol and options of a rule, and a flow on which it matches.
fn of_text(field: TextField) -> (&'static str, &'static str, Conversation) {
    use Conversation::*;
    match field {
        TextField::Target => ("http", "content:\"attack\"; target:dest_ip;", Http),
        TextField::AppLayerProtocol => ("tcp", "app-layer-protocol:http;", Http),
        TextField::AppLayerEvent => ("tcp", "app-layer-event:http.request_field_missing_colon;", Http),
        TextField::TcpFlags => ("tcp", "flags:S;", Http),
        TextField::FragBits => ("ip", "fragbits:D;", Http),
        TextField::IpProtocol => ("ip", "ip_proto:17;", Dns),
        TextField::StreamSize => ("tcp", "stream_size:client,>,3;", Http),
        TextField::SslVersion => ("tcp", "ssl_version:tls1.2;", Tls),
        TextField::SslState => ("tcp", "ssl_state:server_hello;", Tls),
        TextField::TlsVersion => ("tcp", "tls.version:1.2;", Tls),
        TextField::TlsSubject => ("tcp", "tls.subject:\"CN=a\";", Tls),
        TextField::TlsIssuer => ("tcp", "tls.issuerdn:\"CN=b\";", Tls),
        TextField::TlsFingerprint => ("tcp", "tls.fingerprint:!\"00:00\";", Tls),
        TextField::DceIface => (
            "tcp",
            "dce_iface:12345678-1234-abcd-ef00-0123456789ac,=3;",
            Dcerpc,
        ),
        TextField::DceOpnum => ("tcp", "dce_opnum:1,14-16;", Dcerpc),
        TextField::Tag => ("http", "content:\"attack\"; tag:session,5,packets;", Http),
        TextField::Modbus => ("tcp", "modbus:access write coils,address 172,value 1;", Modbus),
        TextField::ModbusFunc => ("tcp", "modbus_func:write_single_coil;", Modbus),
        TextField::ModbusUnit => ("tcp", "modbus_unit:1;", Modbus),
        TextField::Dnp3Func => ("tcp", "dnp3_func:response;", Dnp3),
        TextField::Dnp3Ind => ("tcp", "dnp3_ind:device_restart;", Dnp3),
        TextField::Dnp3Obj => ("tcp", "dnp3_obj:1,2;", Dnp3),
        TextField::SipMethodList => ("udp", "sip_method:INVITE,BYE;", Sip),
        TextField::SipStatCode => ("udp", "sip_stat_code:2;", Sip),
        field => ("", field.keyword(), Listed),
    }
}

/// Returns protocol and options of a rule, and a flow on which it matches.
fn of_number(field: NumberField) -> (&'static str, &'static str, Conversation) {
    use Conversation::*;
    match field {
        NumberField::Dsize => ("icmp", "dsize:2;", Icmp),
        NumberField::Bsize => ("http", "http.method; content:\"POST\"; bsize:4;", Http),
        NumberField::Urilen => ("http", "urilen:6;", Http),
        NumberField::Ttl => ("ip", "ttl:64;", Icmp),
        NumberField::Tos => ("ip", "tos:0;", Icmp),
        NumberField::IpId => ("ip", "id:1;", Icmp),
        NumberField::IcmpType => ("icmp", "itype:8;", Icmp),
        NumberField::IcmpCode => ("icmp", "icode:0;", Icmp),
        NumberField::IcmpId => ("icmp", "icmp_id:7;", Icmp),
        NumberField::IcmpSeq => ("icmp", "icmp_seq:9;", Icmp),
        NumberField::TcpSeq => ("tcp", "seq:100;", Http),
        NumberField::TcpAck => ("tcp", "ack:501;", Http),
        NumberField::TcpWindow => ("tcp", "window:65535;", Http),
        NumberField::TcpMss => ("tcp", "tcp.mss:1460;", TcpOptions),
        NumberField::FragOffset => ("ip", "fragoffset:0;", Icmp),
        NumberField::FileSize => ("tcp", "filesize:>3;", Http),
        NumberField::CertChainLen => ("tcp", "tls.cert_chain_len:1;", Tls),
        NumberField::DnsOpcode => ("udp", "dns.opcode:0;", Dns),
        field => ("", field.keyword(), Listed),
    }
}

#[test]
fn each_field_has_a_flow_on_which_it_matches() {
    let texts = TextField::ALL.iter().map(|field| of_text(*field));
    let numbers = NumberField::ALL.iter().map(|field| of_number(*field));
    let cases = crate::protocols::cases();
    // These have tests of their own.
    const OTHERS: &[&str] = &[
        "stream-event",
        "decode-event",
        "ipopts",
        "ipv4-csum",
        "tcpv4-csum",
        "tcpv6-csum",
        "udpv4-csum",
        "udpv6-csum",
        "icmpv4-csum",
        "icmpv6-csum",
        "tcp.wscale",
        "icmpv6.mtu",
        "vlan.id",
        "tls_cert_expired",
        "filemd5",
        "filesha1",
        "filesha256",
        "alert",
        "iprep",
        "geoip",
        "filestore",
        "ftpbounce",
        "ftpdata_command",
        "bypass",
        "rpc",
        "config",
        "igmp.type",
    ];
    for (protocol, options, conversation) in texts.chain(numbers) {
        if let Conversation::Listed = conversation {
            let forms = [format!("{options}:"), format!("{options};")];
            let mut held = cases.iter().flat_map(|case| &case.hold);
            let is_there = held.any(|held| forms.iter().any(|form| held.contains(form)));
            assert!(
                is_there || OTHERS.contains(&options),
                "no case holds for {options}"
            );
            continue;
        }
        let text = format!("alert {protocol} any any -> any any ({options} sid:1;)");
        let rules = rules(&text, &CompileSettings::default());
        for mode in [Mode::Ids, Mode::Ips] {
            let found = alerts(&rules, &conversation.frames(), mode);
            assert_eq!(found, [1], "{text} {mode:?}");
        }
    }
}

/// Returns the refusals of a rule with these options.
fn refused(options: &str) -> String {
    let text = format!("alert tcp any any -> any any ({options} sid:1;)");
    let mut set = RuleSet::default();
    let file = files::parse(Syntax::Suricata, "test", text.as_bytes());
    set.add("test", file, &Variables::usual());
    let (_, refusals) = compile(&set, &CompileSettings::default());
    let all = set.refusals().iter().chain(&refusals);
    all.map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_rule_over_an_event_that_no_parser_raises_is_refused() {
    for event in EVENTS {
        assert_eq!(refused(&format!("app-layer-event:{event};")), "");
    }
    let refusal = refused("app-layer-event:http.unheard_of;");
    assert!(refusal.contains("no parser of the engine raises this event"));
}

#[test]
fn names_and_numbers_that_no_message_has_are_refused_with_the_form() {
    let uuid = "12345678-1234-abcd-ef00-0123456789ac";
    for (options, form) in [
        ("dnp3_func:raed;", "names such as direct_operate"),
        ("dnp3_func:!raed;", "names such as direct_operate"),
        ("dnp3_func:256;", "numbers to 255"),
        (
            "dnp3_ind:device_restart,foo;",
            "names of indications such as device_restart",
        ),
        ("dnp3_obj:300,1;", "GROUP,VARIATION, both to 255"),
        ("modbus_func:foo;", "a name such as read_coils"),
        ("modbus_unit:300;", "a number to 255"),
        ("dce_opnum:70000;", "numbers to 65535 and ranges"),
        ("dce_opnum:3-1;", "numbers to 65535 and ranges"),
        (&format!("dce_iface:{uuid},any_frags;"), "and any_frag"),
        (&format!("dce_iface:{uuid},=70000;"), "with a version"),
        ("sip_stat_code:ok;", "numbers of codes"),
        ("ip_proto:>=6;", "[!<>]PROTOCOL"),
        ("ip_proto:<=6;", "[!<>]PROTOCOL"),
    ] {
        let refusal = refused(options);
        assert!(refusal.contains(form), "{options}: {refusal}");
    }
    for options in [
        "dnp3_func:!read,129;",
        "dnp3_ind:need_time,class_1_events;",
        "modbus_func:!43;",
        "sip_stat_code:2,404;",
        "ip_proto:!tcp;",
        "ip_proto:> 6;",
    ] {
        assert_eq!(refused(options), "", "{options}");
    }
}

#[test]
fn an_event_of_the_flow_matches_once_in_the_flow() {
    // A length that no message has, after a message.
    let bytes = b"\0\x07\0\0\0\x06\x01\x05\0\xac\xff\0\0\x08\0\0\0\0".to_vec();
    let answer = (true, b"\0\x07\0\0\0\x06\x01\x05\0\xac\xff\0".to_vec());
    let frames = tcp(502, &[(false, bytes), answer], 1000);
    for (options, expected) in [
        ("app-layer-event:modbus.invalid_length;", &[1][..]),
        ("app-layer-event:modbus.invalid_length; flow:to_server;", &[1]),
        ("app-layer-event:modbus.invalid_length; flow:to_client;", &[1]),
        ("app-layer-event:modbus.exception;", &[]),
    ] {
        let text = format!("alert tcp any any -> any any ({options} sid:1;)");
        let rules = rules(&text, &CompileSettings::default());
        let found = alerts(&rules, &frames, Mode::Ids);
        assert_eq!(found, expected, "{options}");
    }
}

#[test]
fn the_size_of_a_file_is_compared_when_it_is_known() {
    let comparisons = ["<10", "5", "!20", "4<>6", "<30", "20", ">3", ">=20", ">20"];
    let rule = |(at, comparison): (usize, &&str)| {
        format!(
            "alert http any any -> any any (flow:to_client; filesize:{comparison}; sid:{};)\n",
            at + 1
        )
    };
    let text: String = comparisons.iter().enumerate().map(rule).collect();
    let rules = rules(&text, &CompileSettings::default());
    let head = b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n";
    let response = |size: usize| [&head[..], &vec![b'x'; size]].concat();
    let request = (false, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n".to_vec());
    let found = |parts: &[Vec<u8>], mode| {
        let mut messages = vec![request.clone()];
        messages.extend(parts.iter().map(|part| (true, part.clone())));
        alerts(&rules, &tcp(80, &messages, 1000), mode)
    };
    for mode in [Mode::Ids, Mode::Ips] {
        let whole = response(20);
        let (first, second) = whole.split_at(head.len() + 5);
        for parts in [vec![whole.clone()], vec![first.to_vec(), second.to_vec()]] {
            assert_eq!(found(&parts, mode), [5, 6, 7, 8], "{mode:?}");
        }
        // The connection ends after five bytes of twenty.
        assert_eq!(found(&[first.to_vec()], mode), [7], "{mode:?}");
    }
}

#[test]
fn numbers_of_stub_data_have_the_byte_order_of_their_header() {
    let text = "alert tcp any any -> any any (dce_stub_data; byte_test:4,=,512,0,dce; sid:1;)\n\
        alert tcp any any -> any any (dce_stub_data; byte_test:4,=,131072,0,dce; sid:2;)\n\
        alert tcp any any -> any any (dce_stub_data; byte_test:4,=,512,0; sid:3;)";
    let rules = rules(text, &CompileSettings::default());
    for (is_big_endian, expected) in [(true, [1, 3]), (false, [2, 3])] {
        let call = call(is_big_endian, &[0, 0, 2, 0]);
        let frames = tcp(135, &[(false, bind()), (false, call)], 1000);
        for mode in [Mode::Ids, Mode::Ips] {
            assert_eq!(
                alerts(&rules, &frames, mode),
                expected,
                "{is_big_endian} {mode:?}"
            );
        }
    }
}

#[test]
fn a_rule_over_modbus_without_direction_matches_a_request_and_its_answer_once() {
    let write = b"\0\x07\0\0\0\x06\x01\x05\0\xac\xff\0".to_vec();
    for mode in [Mode::Ids, Mode::Ips] {
        for (options, expected) in [
            ("modbus:function 5;", 1),
            ("modbus:unit 1;", 1),
            ("modbus:function 5; flow:to_server;", 1),
            ("modbus:function 5; flow:to_client;", 1),
            ("modbus:function 6;", 0),
        ] {
            let text = format!("alert modbus any any -> any any ({options} sid:1;)");
            let settings = millrace_ips_engine::Settings {
                mode,
                ..millrace_ips_engine::Settings::default()
            };
            let mut bed = crate::bed::TestBed::with(settings, &text);
            let ends = ((crate::bed::HOST_A, 40_000), (crate::bed::HOST_B, 502));
            let mut talk = crate::conversation::Conversation::open(&mut bed, ends.0, ends.1);
            talk.client(&mut bed, &write);
            talk.server(&mut bed, &write);
            talk.close(&mut bed);
            bed.finish();
            assert_eq!(bed.alerts(), expected, "{options} {mode:?}");
        }
    }
}
