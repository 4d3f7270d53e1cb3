//! Cases of protocols whose parsers are older than this test: text protocols, DNS, TLS, and QUIC.

use super::{Case, client, quic, server};

pub(super) fn quic_case() -> Case {
    let tags: [(&[u8; 4], &[u8]); 3] = [(b"PAD\0", b"--"), (b"SNI\0", b"a.example"), (b"UAID", b"Chrome")];
    let mut hello = b"CHLO".to_vec();
    hello.extend([tags.len() as u8, 0, 0, 0]);
    let mut end = 0u32;
    for (tag, value) in tags {
        end += value.len() as u32;
        hello.extend(tag);
        hello.extend(end.to_le_bytes());
    }
    tags.iter().for_each(|(_, value)| hello.extend(*value));
    let datagram = [&[0x0d, 1, 2, 3, 4, 5, 6, 7, 8][..], b"Q046", &[1; 13], &hello].concat();
    Case {
        protocol: "quic",
        is_udp: true,
        port: 443,
        messages: vec![client(datagram)],
        hold: vec![
            "quic.version; content:\"Q046\";",
            "quic.cyu.string; content:\"46,PAD-SNI-UAID\";",
            "quic.cyu.hash; bsize:32;",
            "quic.sni; content:\"a.example\";",
            "quic.ua; content:\"Chrome\";",
        ],
        fail: vec!["quic.version; content:\"Q043\";"],
    }
}

pub(super) fn quic_1_case() -> Case {
    Case {
        protocol: "quic",
        is_udp: true,
        port: 443,
        messages: vec![client(quic::client_hello()), server(quic::server_hello())],
        hold: vec![
            "quic.version; content:\"1\"; bsize:1;",
            "quic.sni; content:\"quic.example\"; bsize:12;",
            "tls.sni; content:\"quic.example\"; endswith;",
            "ja3.string; content:\"771,4865,0-16-57,,\";",
            "ja3.hash; bsize:32;",
            "ja3s.string; content:\"771,4865,43\";",
            "ja4.hash; content:\"q12d0103h3_\"; startswith;",
            "flow:to_client; quic.version; content:\"1\";",
        ],
        fail: vec![
            "quic.sni; content:\"other\";",
            "quic.version; content:\"Q\";",
            "app-layer-event:quic.failed_decrypt;",
        ],
    }
}

pub(super) fn ssh_case() -> Case {
    let lists = [
        "kex", "host", "enc-c", "enc-s", "mac-c", "mac-s", "comp-c", "comp-s", "", "",
    ];
    let mut body = vec![20];
    body.extend([0; 16]);
    for list in lists {
        body.extend((list.len() as u32).to_be_bytes());
        body.extend(list.as_bytes());
    }
    body.extend([0; 5]);
    body.extend([0; 4]);
    let init = [&(1 + body.len() as u32).to_be_bytes()[..], &[4], &body].concat();
    let keys = vec![0, 0, 0, 12, 10, 21, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let of = |banner: &str| [banner.as_bytes(), &init, &keys].concat();
    Case {
        protocol: "ssh",
        is_udp: false,
        port: 22,
        messages: vec![
            server(of("SSH-2.0-OpenSSH_9\r\n")),
            client(of("SSH-1.99-PuTTY\r\n")),
        ],
        hold: vec![
            "ssh.hassh; bsize:32;",
            "ssh.hassh.string; content:\"kex|3b|enc-c|3b|mac-c|3b|comp-c\";",
            "ssh.hassh.server; bsize:32;",
            "ssh.hassh.server.string; content:\"enc-s|3b|mac-s\";",
            "ssh.protoversion:2_compat;",
            "ssh.protoversion:1.99;",
            "ssh.softwareversion:\"OpenSSH\";",
        ],
        fail: vec![
            "ssh.hassh.string; content:\"enc-s\";",
            "ssh.protoversion:1.10;",
            "app-layer-event:ssh.invalid_record;",
        ],
    }
}

pub(super) fn mail_case() -> Case {
    Case {
        protocol: "smtp",
        is_udp: false,
        port: 25,
        messages: vec![
            server("220 x\r\n"),
            client("EHLO host.example\r\n"),
            server("250 x\r\n"),
            client("MAIL FROM:<toto@gmail.com>\r\n"),
            server("250 ok\r\n"),
            client("RCPT TO:<a@b.example>\r\n"),
            server("250 ok\r\n"),
            client("DATA\r\n"),
            server("354 go ahead\r\n"),
            client(
                "From: toto <toto@gmail.com>\r\nTo: a@b.example\r\nSubject: This is a test email\r\n\
                 Date: Fri, 21 Apr 2023 05:10:36 +0000\r\nMessage-Id: <alpine@c>\r\n\r\nbody\r\n.\r\n",
            ),
            server("250 ok\r\n"),
        ],
        hold: vec![
            "smtp.helo; content:\"host.example\";",
            "smtp.mail_from; content:\"toto@gmail.com\";",
            "smtp.rcpt_to; content:\"a@b.example\";",
            "email.from; content:\"toto <toto@gmail.com>\";",
            "email.subject; content:\"This is a test email\";",
            "email.to; content:\"a@b.example\";",
            "email.date; content:\"21 Apr 2023\";",
            "email.message_id; content:\"<alpine@c>\";",
        ],
        fail: vec![
            "email.subject; content:\"toto\";",
            "smtp.rcpt_to; content:\"toto\";",
        ],
    }
}

pub(super) fn ftp_case() -> Case {
    Case {
        protocol: "ftp",
        is_udp: false,
        port: 21,
        messages: vec![
            server("220 x\r\n"),
            client("USER anonymous\r\n"),
            server("331 Please specify the password.\r\n"),
            client("PORT 10,0,0,1,234,10\r\n"),
            server("200 ok\r\n"),
        ],
        hold: vec![
            "ftp.command; content:\"USER\"; ftp.command_data; content:\"anonymous\";",
            "ftp.command_data; content:\"234,10\";",
            "ftp.reply; content:\"Please specify the password.\";",
            "ftp.completion_code; content:\"331\";",
            "ftp.reply_received:yes;",
            "ftp.dynamic_port:59914;",
        ],
        fail: vec!["ftp.command; content:\"RETR\";", "ftp.dynamic_port:<100;"],
    }
}

pub(super) fn dns_case() -> Case {
    let question = b"\x01a\x07example\0\0\x10\0\x01";
    let query = [&[0, 9, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0][..], question].concat();
    let record = [&[0xc0, 14, 0, 6, 0, 1, 0, 0, 0, 60, 0, 1, 0][..]].concat();
    let additional = [&[1, b'x', 0, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 1, 2, 3, 4][..]].concat();
    let answer = [
        &[0, 9, 0x81, 3, 0, 1, 0, 1, 0, 1, 0, 1][..],
        question,
        // An alias.
        &[0xc0, 12, 0, 5, 0, 1, 0, 0, 0, 60, 0, 16],
        b"\x06target\x07example\0",
        &record,
        &additional,
    ]
    .concat();
    Case {
        protocol: "dns",
        is_udp: true,
        port: 53,
        messages: vec![client(query), server(answer)],
        hold: vec![
            "dns.rcode:3;",
            "dns.rcode:nxdomain;",
            "dns.rcode:!0;",
            "dns.rcode:0; flow:to_server;",
            "dns.rrtype:16;",
            "dns.rrtype:txt;",
            "dns.rrtype:cname; flow:to_client;",
            "dns.authorities.rrname; content:\"example\"; bsize:7;",
            "dns.additionals.rrname; content:\"x\"; bsize:1;",
            "dns.response.rrname; content:\"a.example\";",
            "dns.response.rrname; content:\"target.example\"; bsize:14;",
            "dns.opcode:!7-15;",
            "dns.response.rrname; domain; content:\"a.example\"; bsize:9;",
            "dns.response.rrname; tld; content:\"example\"; bsize:7;",
        ],
        fail: vec![
            "dns.response.rrname; tld; content:\"a.example\";",
            "dns.rcode:0; flow:to_client;",
            "dns.rrtype:txt; flow:to_client;",
            "dns.answers.rrname; content:\"target\";",
            "dns.rrtype:a;",
            "dns.response.rrname; content:\"b.example\";",
            "dns.opcode:7-15;",
        ],
    }
}

pub(super) fn tls_case() -> Case {
    let sized =
        |bytes: &[u8], width: usize| [&(bytes.len() as u32).to_be_bytes()[4 - width..], bytes].concat();
    let alpn = sized(&sized(&sized(b"h2", 1), 2), 2);
    let hello = [
        &[3, 3][..],
        &[7; 32],
        &[0, 0, 2, 0, 0x9c, 1, 0],
        &sized(&[&[0, 16][..], &alpn].concat(), 2),
    ]
    .concat();
    let record = |kind: u8, body: &[u8]| {
        let message = [&[kind][..], &sized(body, 3)].concat();
        [&[22, 3, 3][..], &sized(&message, 2)].concat()
    };
    let mut parameters = rcgen::CertificateParams::new(vec!["a.example".to_owned()]).unwrap();
    parameters.not_before = rcgen::date_time_ymd(1955, 6, 1);
    parameters.not_after = rcgen::date_time_ymd(2020, 1, 1);
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = parameters.self_signed(&key).unwrap();
    let list = sized(&sized(certificate.der(), 3), 3);
    let answer = [&[3, 3][..], &[9; 32], &[0, 0, 0x9c, 0]].concat();
    Case {
        protocol: "tls",
        is_udp: false,
        port: 443,
        messages: vec![
            client(record(1, &hello)),
            server([record(2, &answer), record(11, &list), record(14, &[])].concat()),
        ],
        hold: vec![
            "tls.random; content:\"|07 07 07|\"; bsize:32;",
            "tls.random_time; content:\"|09 09 09 09|\"; bsize:4;",
            "tls.random_bytes; bsize:28;",
            "tls.alpn; content:\"h2\";",
            "tls.subjectaltname; content:\"a.example\";",
            "tls_cert_notbefore:<2015;",
            "tls_cert_notafter:>2015;",
            "tls_cert_notbefore:<1970;",
            "tls_cert_notbefore:1955-06-01;",
            "tls_cert_notbefore:1955-05-31<>1955-06-02;",
            "tls_cert_valid;",
            "tls.store; tls.version:0x0303;",
        ],
        fail: vec![
            "tls_cert_expired;",
            "tls_cert_notafter:<2015;",
            "tls_cert_notbefore:>1956;",
            "tls_cert_notbefore:<1955-05-31;",
            "tls.alpn; content:\"http\";",
        ],
    }
}

pub(super) fn http_case() -> Case {
    Case {
        protocol: "http",
        is_udp: false,
        port: 80,
        messages: vec![
            client(
                "GET /dir/name.pdf?x=1 HTTP/1.1\r\nHost: a.example\r\nUser-Agent: Mozilla/5.0\r\nX-Data: YWJj\r\n\r\n",
            ),
            server("HTTP/1.1 200 OK\r\nContent-Length: 8\r\nX-Answer: b\r\n\r\n%PDF-1.4"),
        ],
        hold: vec![
            "http.request_header; content:\"User-Agent: Mozilla/5.0\"; bsize:23;",
            "http.request_header; content:\"Host\"; http.request_header; content:\"X-Data\";",
            "http.response_header; content:\"X-Answer: b\"; bsize:11;",
            "http.request_header; to_sha256; bsize:32;",
            "http.referer; absent;",
            "http.user_agent; absent:or_else; content:\"Mozilla\";",
            "http.user_agent; to_md5; bsize:16;",
            "http.user_agent; from_base64; bsize:0;",
            "http.user_agent; pcrexform:\"/([0-9]\\.[0-9])/\"; content:\"5.0\"; bsize:3;",
            "http.user_agent; xor:\"00\"; content:\"Mozilla\";",
            "http.user_agent; subslice:0,7; content:\"Mozilla\"; bsize:7;",
            "http.header; header_lowercase; content:\"user-agent: Mozilla\";",
            "http.host; dataset:isnotset,seen,type string;",
            "http.host; dataset:set,first,type string;",
            "filename:\"NAME.PDF\";",
            "fileext:\"PDF\";",
            "filemagic:\"PDF document\";",
            "filestore; filemagic:\"pdf\";",
            "file.name; content:\"name.pdf\"; bsize:8;",
            "http.uri; content:\"/dir\"; prefilter;",
            "content:\"GET\"; pcre:\"/GET (.*) HTTP/, flow:uri\";",
            "requires: version >= 7.0.4; http.uri; content:\"/dir\";",
            "flow.age:0;",
            "flow.pkts:either,>2;",
            "flow.pkts_toclient:>2;",
            "flow.pkts_toserver:>2;",
            "flow.bytes:toserver,>100;",
            "flow.bytes_toclient:>50;",
            "flow.bytes_toserver:>50;",
            "vlan.layers:0;",
            "ipv4.hdr; content:\"|45 00|\"; startswith;",
            "tcp.hdr; content:\"|00 50|\"; offset:2; depth:2;",
            "ip.src; dataset:isnotset,bad,type ip;",
            "ip.dst; content:\"|0a 00 00 02|\"; bsize:4;",
        ],
        fail: vec![
            "http.request_header; content:\"Host\"; content:\"X-Data\";",
            "http.response_header; content:\"User-Agent\";",
            "http.user_agent; absent;",
            "http.user_agent; absent:or_else; content:\"curl\";",
            "http.host; dataset:isset,seen,type string;",
            "filename:\"other\";",
            "fileext:\"pd\";",
            "filemagic:\"PNG\";",
            "flow.age:>10;",
            "flow.pkts:both,>1000;",
            "vlan.id:1;",
            "udp.hdr; content:\"|00|\";",
            "ip.src; dataset:isset,bad2,type ip;",
            "ipopts:any;",
        ],
    }
}
