//! Keywords over bodies and frames that parsers look at only if rules ask for them: mails, SDP, NTLM, HTTP/2.

use millrace_ips_engine::app::AppProtocol;
use millrace_ips_engine::app::record::{Record, Value};
use millrace_ips_engine::detect::CompileSettings;
use millrace_ips_engine::{Event, Mode, Settings};

use super::http2::{PREFACE, block, frame};
use super::{Case, client, server, text};
use crate::bed::{HOST_A, HOST_B, TestBed};
use crate::conversation::Conversation;
use crate::frames::{alerts, rules, tcp, udp};

/// Returns every case.
pub(super) fn cases() -> Vec<Case> {
    vec![
        mail(),
        sdp(true),
        sdp(false),
        ntlm(false),
        ntlm(true),
        http2_frames(),
        kinds_of_files(),
        ftp_modes(),
        mdns(),
    ]
}

fn mail() -> Case {
    let body = "Visit https://test-site.example/blah/123/ or <FTP://b.example/x>, not ftp:/c or gopher://d.\r\n\r\n--\r\nme";
    let headers = "From: a@b.example\r\nCc: Emily <e@b.example>,\r\n Ava <ava@b.example>\r\nX-Mailer: Outlook, Build 10\r\n\
        Received: from one\r\n\tby two; Mon\r\nReceived: from zero by one\r\n\r\n";
    let mut case = text::mail_case();
    case.messages[9] = client(format!("{headers}{body}\r\n.\r\n"));
    case.hold = vec![
        "email.cc; content:\"Emily <e@b.example>, Ava <ava@b.example>\"; bsize:40;",
        "email.x_mailer; content:\"Outlook, Build 10\"; startswith; endswith;",
        "email.received; content:\"from one by two\\; Mon\"; startswith; endswith;",
        "email.received; content:\"from zero by one\"; bsize:16;",
        "email.url; content:\"test-site.example/blah/123/\"; startswith; endswith;",
        "email.url; content:\"b.example/x\"; bsize:11;",
        // md5sum of the body without its last line end.
        "email.body_md5; content:\"8c1cc6692d906b66ef5795d362c84759\"; bsize:32;",
        "email.cc; entropy:bytes 4, offset 1, value >=1.9;",
    ];
    case.fail = vec![
        "email.received; content:\"two\"; content:\"zero\";",
        "email.url; content:\"gopher\";",
        "email.url; content:\"://\";",
        "email.x_mailer; content:\"Outlook\"; bsize:7;",
        "email.cc; entropy: value >=7.5;",
    ];
    case
}

fn sdp(is_udp: bool) -> Case {
    let body = "v=0\r\no=SIPPS 105015165 105015162 IN IP4 192.168.1.2\r\ns=SIP call\r\ni=a session\r\nu=https://www.sdp.proto\r\n\
        e=j.doe@example.com (Jane Doe)\r\np=+1 617 555-6011 (Jane Doe)\r\nc=IN IP4 192.168.1.2\r\nb=AS:64\r\nt=3034423619 3042462419\r\n\
        r=604800 3600 0 90000\r\nz=2882844526 -1h 2898848070 0\r\nk=prompt\r\na=recvonly\r\nm=audio 30000 RTP/AVP 0 8 97 2 3\r\n\
        i=sound\r\nc=IN IP4 192.168.1.3\r\nb=CT:1\r\nk=clear:x\r\na=sendrecv\r\n";
    let invite = format!(
        "INVITE sip:b@example.org SIP/2.0\r\nContent-Type: application/SDP\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let other = "INVITE sip:b@example.org SIP/2.0\r\nContent-Type: text/plain\r\nContent-Length: 10\r\n\r\ns=hidden\r\n";
    Case {
        protocol: "sip",
        is_udp,
        port: 5060,
        messages: vec![client(invite), client(other)],
        hold: vec![
            "sdp.origin; content:\"SIPPS 105015165 105015162 IN IP4 192.168.1.2\"; startswith; endswith;",
            "sdp.session_name; content:\"SIP call\"; bsize:8;",
            "sdp.session_info; content:\"a session\"; bsize:9;",
            "sdp.uri; content:\"https://www.sdp.proto\";",
            "sdp.email; content:\"j.doe@example.com (Jane Doe)\";",
            "sdp.phone_number; content:\"+1 617 555-6011 (Jane Doe)\";",
            "sdp.connection_data; content:\"IN IP4 192.168.1.2\"; endswith;",
            "sdp.bandwidth; content:\"AS:64\";",
            "sdp.time; content:\"3034423619 3042462419\";",
            "sdp.repeat_time; content:\"604800 3600 0 90000\";",
            "sdp.timezone; content:\"2882844526 -1h 2898848070 0\";",
            "sdp.encryption_key; content:\"prompt\"; bsize:6;",
            "sdp.attribute; content:\"sendrecv\"; bsize:8;",
            "sdp.attribute; content:\"recvonly\"; startswith;",
            "sdp.media.media; content:\"audio 30000 RTP/AVP 0 8 97 2 3\";",
            "sdp.media_description.media; content:\"audio\"; startswith;",
            "sdp.media.media_info; content:\"sound\"; bsize:5;",
            "sdp.media.bandwidth; content:\"CT:1\";",
            "sdp.media.connection_data; content:\"192.168.1.3\"; endswith;",
            "sdp.media.encryption_key; content:\"clear:x\";",
        ],
        fail: vec![
            "sdp.session_name; content:\"hidden\";",
            "sdp.connection_data; content:\"192.168.1.3\";",
            "sdp.media.connection_data; content:\"192.168.1.2\";",
        ],
    }
}

/// Returns the message with which a client of NTLM authenticates (MS-NLMP, section 2.2.1.3).
fn authenticate() -> Vec<u8> {
    let wide = |text: &str| {
        text.encode_utf16()
            .flat_map(u16::to_le_bytes)
            .collect::<Vec<u8>>()
    };
    let (domain, user) = (wide("HOME"), wide("john.doe"));
    let mut message = b"NTLMSSP\0\x03\0\0\0".to_vec();
    message.resize(28, 0);
    let mut at = 64;
    for name in [&domain, &user] {
        message.extend((name.len() as u16).to_le_bytes());
        message.extend((name.len() as u16).to_le_bytes());
        message.extend((at as u32).to_le_bytes());
        at += name.len();
    }
    message.resize(60, 0);
    message.extend([1, 0, 0, 0]);
    [message, domain, user].concat()
}

fn ntlm(is_first_version: bool) -> Case {
    let blob = authenticate();
    let message = match is_first_version {
        true => {
            let mut message = b"\xffSMB\x73".to_vec();
            message.resize(32, 0);
            message.extend([12, 0xff, 0]);
            message.resize(33 + 14, 0);
            message.extend((blob.len() as u16).to_le_bytes());
            message.resize(33 + 24, 0);
            message.extend((blob.len() as u16).to_le_bytes());
            [message, blob].concat()
        }
        false => {
            let mut message = b"\xfeSMB\x40\0\0\0\0\0\0\0\x01".to_vec();
            message.resize(64 + 12, 0);
            message.extend([64 + 24, 0]);
            message.extend((blob.len() as u16).to_le_bytes());
            message.resize(64 + 24, 0);
            [message, blob].concat()
        }
    };
    let sized = [&(message.len() as u32).to_be_bytes()[..], &message].concat();
    Case {
        protocol: "smb",
        is_udp: false,
        port: 445,
        messages: vec![client(sized)],
        hold: vec![
            "smb.ntlmssp_user; content:\"doe\"; endswith;",
            "smb.ntlmssp_user; content:\"doe\"; nocase; pcre:\"/j(ohn|ane).*doe$/\";",
            "smb.ntlmssp_domain; content:\"home\"; nocase; bsize:4;",
            if is_first_version {
                "smb.version:1;"
            } else {
                "smb.version:2;"
            },
        ],
        fail: vec!["smb.ntlmssp_user; content:\"HOME\";", "smb.version:>2;"],
    }
}

fn http2_frames() -> Case {
    const HEADERS: u8 = 1;
    const PRIORITY: u8 = 2;
    const RST_STREAM: u8 = 3;
    const SETTINGS: u8 = 4;
    const PING: u8 = 6;
    const GOAWAY: u8 = 7;
    const WINDOW_UPDATE: u8 = 8;
    let settings = [0, 2, 0, 0, 0, 0, 0, 1, 0, 0, 0x20, 0];
    let headers = block(&[(":method", "GET"), (":path", "/")]);
    // The size of the table becomes 1234; then the headers.
    let sized = [&[0, 0, 0, 0, 15, 0x3f, 0xb3, 0x09][..], &headers].concat();
    Case {
        protocol: "http2",
        is_udp: false,
        port: 80,
        messages: vec![
            client([PREFACE, &frame(SETTINGS, 0, 0, &settings)].concat()),
            server(frame(SETTINGS, 1, 0, &[])),
            client(
                [
                    frame(WINDOW_UPDATE, 0, 0, &[0, 1, 0, 0]),
                    frame(HEADERS, 0x24, 1, &sized),
                    frame(PRIORITY, 0, 1, &[0, 0, 0, 0, 200]),
                    frame(PING, 0, 0, &[0; 8]),
                ]
                .concat(),
            ),
            server(
                [
                    frame(RST_STREAM, 0, 1, &[0, 0, 0, 12]),
                    frame(GOAWAY, 0, 0, &[0, 0, 0, 1, 0, 0, 0, 2]),
                ]
                .concat(),
            ),
        ],
        hold: vec![
            "http2.frametype:GOAWAY;",
            "http2.frametype:headers;",
            "flow:to_server; http2.frametype:6;",
            "http2.errorcode:INADEQUATE_SECURITY;",
            "http2.frametype:GOAWAY; http2.errorcode:INTERNAL_ERROR;",
            "http2.priority:15; http.uri; content:\"/\";",
            "http2.priority:>100;",
            "http2.window:65536;",
            "http2.window:<100000;",
            "http2.size_update:1234;",
            "http2.settings:SETTINGS_ENABLE_PUSH=0;",
            "http2.settings:SETTINGS_HEADER_TABLE_SIZE>4096;",
        ],
        fail: vec![
            "http2.frametype:DATA;",
            "flow:to_client; http2.frametype:PING;",
            "http2.errorcode:NO_ERROR;",
            "http2.frametype:GOAWAY; http2.errorcode:INADEQUATE_SECURITY;",
            "http2.priority:16-100;",
            "http2.window:1;",
            "http2.size_update:>4096;",
            "http2.settings:SETTINGS_ENABLE_PUSH=1;",
            "http2.settings:SETTINGS_MAX_FRAME_SIZE>0;",
        ],
    }
}

fn kinds_of_files() -> Case {
    Case {
        hold: vec![
            "file.magic; content:\"PDF document\"; startswith;",
            "file.magic; content:\"pdf\"; nocase; content:\"document\"; distance:1;",
            "file.magic; to_lowercase; content:\"pdf document\";",
        ],
        fail: vec![
            "file.magic; content:\"PNG\";",
            "flow:to_server; file.magic; content:\"PDF\";",
        ],
        ..text::http_case()
    }
}

fn mdns() -> Case {
    let name = b"\x05_http\x04_tcp\x05local\0";
    let query = [&[0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0][..], name, &[0, 12, 0, 1]].concat();
    let record = |name: &[u8]| [name, &[0, 12, 0, 1, 0, 0, 0, 60, 0, 4, 1, b'x', 0xc0, 12][..]].concat();
    let response = [
        &[0, 0, 0x84, 0, 0, 0, 0, 1, 0, 1, 0, 1][..],
        &record(name),
        &record(b"\x09authority\x05local\0"),
        &record(b"\x04host\x05local\0"),
    ]
    .concat();
    Case {
        protocol: "mdns",
        is_udp: true,
        port: 5353,
        messages: vec![client(query), client(response)],
        hold: vec![
            "mdns.queries.rrname; content:\"_http._tcp.local\"; startswith; endswith;",
            "mdns.answers.rrname; content:\"_http._tcp.local\";",
            "mdns.additionals.rrname; content:\"host.local\"; bsize:10;",
            "mdns.authorities.rrname; content:\"authority.local\";",
            "mdns.response.rrname; content:\"host.local\";",
            "app-layer-protocol:mdns;",
        ],
        fail: vec![
            "mdns.queries.rrname; content:\"host\";",
            "mdns.authorities.rrname; content:\"host\";",
            "app-layer-protocol:!mdns,final;",
        ],
    }
}

fn ftp_modes() -> Case {
    let mut case = text::ftp_case();
    case.messages.push(client("PASV\r\n"));
    case.messages
        .push(server("227 Entering Passive Mode (10,0,0,2,100,1)\r\n"));
    case.hold = vec![
        "ftp.command; content:\"PORT\"; ftp.mode:active;",
        "flow:to_client; ftp.mode:passive;",
    ];
    case.fail = vec!["ftp.command; content:\"PASV\"; ftp.mode:active;", "ftpbounce;"];
    case
}

#[test]
fn the_command_of_a_data_connection_is_the_one_that_opened_it_in_either_mode() {
    let text = "alert ftp-data any any -> any any (flow:to_client; ftpdata_command:retr; sid:1;)\n\
        alert ftp-data any any -> any any (flow:to_server; ftpdata_command:stor; sid:2;)\n\
        alert ftp-data any any -> any any (ftpdata_command:retr; sid:3;)\n\
        alert ftp-data any any -> any any (ftpdata_command:stor; sid:4;)\n\
        alert ftp-data any any -> any any (ftpdata_command:retr; file.data; content:\"bytes\"; sid:5;)\n\
        alert ftp-data any any -> any any (flow:to_server; ftpdata_command:retr; file.data; content:\"bytes\"; sid:6;)\n\
        alert ftp-data any any -> any any (flow:to_client; ftpdata_command:stor; file.data; content:\"bytes\"; sid:7;)\n\
        alert ftp-data any any -> any any (flow:to_client; ftpdata_command:retr; file.data; content:\"bytes\"; sid:8;)\n\
        alert ftp-data any any -> any any (flow:to_server; ftpdata_command:stor; file.data; content:\"bytes\"; sid:9;)\n";
    // In active mode the file flows against the direction of the command.
    let cases = [
        ("RETR x", false, vec![1, 3, 5, 8]),
        ("RETR x", true, vec![1, 3, 5, 6]),
        ("STOR x", false, vec![2, 4, 9]),
        ("STOR x", true, vec![2, 4, 7]),
    ];
    for (command, is_active, expected) in cases {
        for mode in [Mode::Ids, Mode::Ips] {
            let settings = Settings {
                mode,
                records: true,
                ..Settings::default()
            };
            let mut bed = TestBed::with(settings, text);
            let mut control = Conversation::open(&mut bed, (HOST_A, 40_000), (HOST_B, 21));
            control.server(&mut bed, b"220 x\r\n");
            let mut data = if is_active {
                control.client(&mut bed, b"PORT 10,0,0,1,7,208\r\n");
                control.server(&mut bed, b"200 ok\r\n");
                control.client(&mut bed, format!("{command}\r\n").as_bytes());
                Conversation::open(&mut bed, (HOST_B, 20), (HOST_A, 2000))
            } else {
                control.client(&mut bed, b"EPSV\r\n");
                control.server(&mut bed, b"229 Entering Extended Passive Mode (|||2000|)\r\n");
                control.client(&mut bed, format!("{command}\r\n").as_bytes());
                Conversation::open(&mut bed, (HOST_A, 40_001), (HOST_B, 2000))
            };
            let is_to_client = (command == "RETR x") != is_active;
            for byte in b"bytes" {
                match is_to_client {
                    true => data.server(&mut bed, &[*byte]),
                    false => data.client(&mut bed, &[*byte]),
                };
            }
            data.close(&mut bed);
            bed.finish();
            let what = format!("{command} {is_active} {mode:?}");
            let sids: Vec<u32> = bed.sids().into_iter().collect();
            assert_eq!((&sids, bed.alerts()), (&expected, expected.len()), "{what}");
            let commands: Vec<_> = bed.events().iter().filter_map(ftp_data_command).collect();
            assert_eq!(commands, [&command.as_bytes()[..4]], "{what}");
        }
    }
}

/// Returns the command in the record of a data connection of FTP.
fn ftp_data_command(event: &Event) -> Option<Vec<u8>> {
    let Event::Transaction(transaction) = event else {
        return None;
    };
    match (transaction.app, &transaction.record) {
        (AppProtocol::FtpData, Record::Fields(fields)) => match fields.clone().value("command") {
            Some(Value::Text(command)) => Some(command.clone()),
            _ => None,
        },
        _ => None,
    }
}

#[test]
fn the_command_of_a_data_connection_is_known_in_passive_mode() {
    let text = "alert ftp-data any any -> any any (ftpdata_command:retr; sid:1;)\n\
        alert ftp-data any any -> any any (ftpdata_command:stor; sid:2;)\n";
    for (command, expected) in [("RETR x", 1), ("STOR x", 2)] {
        let mut bed = TestBed::with(Settings::default(), text);
        let mut control = Conversation::open(&mut bed, (HOST_A, 40_000), (HOST_B, 21));
        control.server(&mut bed, b"220 x\r\n");
        control.client(&mut bed, b"EPSV\r\n");
        control.server(&mut bed, b"229 Entering Extended Passive Mode (|||2000|)\r\n");
        control.client(&mut bed, format!("{command}\r\n").as_bytes());
        let mut data = Conversation::open(&mut bed, (HOST_A, 40_001), (HOST_B, 2000));
        match expected {
            1 => data.server(&mut bed, b"bytes"),
            _ => data.client(&mut bed, b"bytes"),
        };
        bed.finish();
        assert_eq!(
            bed.sids().into_iter().collect::<Vec<_>>(),
            [expected],
            "{command}"
        );
    }
}

#[test]
fn a_port_command_with_the_address_of_another_host_bounces() {
    let rules = rules(
        "alert ftp any any -> any any (ftpbounce; sid:1;)\n",
        &CompileSettings::default(),
    );
    for (address, expected) in [("10,0,0,9", &[1][..]), ("10,0,0,1", &[])] {
        let messages = [server("220 x\r\n"), client(format!("PORT {address},234,10\r\n"))];
        for mode in [Mode::Ids, Mode::Ips] {
            assert_eq!(
                alerts(&rules, &tcp(21, &messages, 3), mode),
                expected,
                "{address}"
            );
        }
    }
}

#[test]
fn a_flow_is_not_inspected_after_a_rule_that_bypasses_it() {
    let text = "alert http any any -> any any (http.uri; content:\"/first\"; bypass; sid:1;)\n\
        alert http any any -> any any (http.uri; content:\"/second\"; sid:2;)\n";
    let rules = rules(text, &CompileSettings::default());
    let messages =
        ["/first", "/second"].map(|path| client(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n")));
    for mode in [Mode::Ids, Mode::Ips] {
        assert_eq!(alerts(&rules, &tcp(80, &messages, 1000), mode), [1], "{mode:?}");
        assert_eq!(
            alerts(&rules, &tcp(80, &messages[1..], 1000), mode),
            [2],
            "{mode:?}"
        );
    }
}

#[test]
fn a_call_of_rpc_has_a_program_a_version_and_a_procedure() {
    let text = "alert udp any any -> any any (rpc:100000,2,3; sid:1;)\n\
        alert udp any any -> any any (rpc:100000,*,3; sid:2;)\n\
        alert udp any any -> any any (rpc:100000; sid:3;)\n\
        alert udp any any -> any any (rpc:100000,3; sid:4;)\n\
        alert udp any any -> any any (rpc:100001; sid:5;)\n";
    let rules = rules(text, &CompileSettings::default());
    let words = [9u32, 0, 2, 100_000, 2, 3, 0, 0, 0, 0];
    let call: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
    assert_eq!(alerts(&rules, &[udp(111, false, &call)], Mode::Ids), [1, 2, 3]);
    assert_eq!(alerts(&rules, &[udp(111, false, &call[..20])], Mode::Ids), [0; 0]);
}
