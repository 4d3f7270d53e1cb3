//! Forms of rules that Suricata's documentation shows for its keywords, in words of ours: each of them is compiled.

use millrace_ips_engine::detect::{CompileSettings, compile};
use millrace_ips_rules::{RuleSet, Syntax, Variables, files};

/// The protocol of a rule, and its options without the number.
const FORMS: &[(&str, &str)] = &[
    (
        "ip",
        "ttl:0; tos:x88; tos:!0; ipopts:ts; ip_proto:ICMP; icmpv6.mtu:<1280;",
    ),
    ("ip", "ipv4.hdr; content:\"|3A|\"; offset:9; depth:1;"),
    ("tcp", "flags:S,12; tcp.mss:123-456; window:!55808; seq:0; ack:0;"),
    (
        "tcp",
        "tcp.hdr; content:\"|02 04|\"; offset:20; byte_test:2,<,536,0,big,relative;",
    ),
    ("igmp", "igmp.type:0x11;"),
    ("pkthdr", "decode-event:ipv4.pkt_too_small;"),
    ("tcp", "stream-event:3whs_synack_with_wrong_ack;"),
    (
        "tcp",
        "stream-event:pkt_invalid_ack; threshold:type backoff, track by_flow, count 1, multiplier 10;",
    ),
    (
        "tcp",
        "content:\"a\"; threshold: type threshold, track by_rule, count 10, seconds 60;",
    ),
    (
        "tcp",
        "content:\"a\"; detection_filter: track by_flow, count 15, seconds 2;",
    ),
    ("http", "http.referer; absent;"),
    ("http", "http.referer; absent:or_else; content:!\"abc\";"),
    ("http", "file.data; entropy: bytes 1000, offset 0, value < 7;"),
    ("http", "urilen:>10,norm; http.uri; isdataat:10; bsize:>2;"),
    (
        "http1",
        "frame:request; strip_whitespace; content:\"GET/\"; startswith; bsize:66;",
    ),
    ("tcp", "frame:tls:pdu; content:\"|17|\"; startswith;"),
    ("tls", "frame:stream; content:\"|17|\";"),
    ("rfb", "frame:pdu; content:\"RFB\";"),
    ("enip", "frame:enip.item; content:\"|17|\";"),
    ("enip", "frame:cip; content:\"|17|\";"),
    (
        "http2",
        "http2.window:count >5; http2.window:>5,all; http2.window:>5,nb>2; http2.window:>5,or_absent;",
    ),
    (
        "http2",
        "http2.window:>5,all_or_absent; http2.window:>5,oob_or 1; http2.window:>5,-1;",
    ),
    (
        "websocket",
        "websocket.opcode:!ping; websocket.flags:fin,!comp; websocket.flags:&0xc0=0x80;",
    ),
    (
        "websocket",
        "websocket.flags:+fin; websocket.flags:=fin; websocket.flags:*fin,comp; websocket.flags:-fin;",
    ),
    ("dns", "dns.rcode:refused; dns.rrtype:A; dns.opcode:7-15;"),
    (
        "ip",
        "flow.age:>3600; flow.pkts:toclient,=3; vlan.layers:>1; vlan.id:!100,all;",
    ),
    ("tcp", "content:\"abc\"; xbits:set,badssh,track ip_src,expire 10;"),
    (
        "tcp",
        "byte_math:bytes 4, offset 0, oper +, rvalue 248, result var, relative, endian big, string hex; content:\"a\";",
    ),
    (
        "modbus",
        "modbus: unit 10<>500, access write coils, address 500<>1000, value >2000;",
    ),
    (
        "dnp3",
        "dnp3_func:direct_operate; dnp3_ind:class_1_events,class_2_events; dnp3_obj:50,1;",
    ),
    ("dnp3", "dnp3_data; content:\"|c3 06|\";"),
    ("dnp3", "app-layer-event:dnp3.unknown_object;"),
    ("pop3", "app-layer-event:pop3.unknown_command;"),
    (
        "ldap",
        "ldap.request.operation:search_request; ldap.responses.operation:search_result_entry,all; ldap.responses.count:>1;",
    ),
    (
        "tls",
        "ssl_state:client_hello|server_hello; ssl_version:!tls1.2; tls_cert_notafter:>2015;",
    ),
    ("http1:request_headers", "http.uri; content:\"a\";"),
    ("tcp:flow_start", "flags:S;"),
    ("tls:client_hello_done", "tls.sni; content:\"a\";"),
    ("tls:server_cert_done", "tls.cert_subject; content:\"a\";"),
    ("ssh:response_banner_done", "ssh.software; content:\"a\";"),
    ("ip", "requires: feature geoip, version >= 7.0.4 < 8 | >= 8.0.3;"),
];

#[test]
fn each_form_of_the_documentation_is_compiled() {
    for (protocol, options) in FORMS {
        let rule = format!("alert {protocol} any any -> any any ({options} sid:1;)");
        let mut set = RuleSet::default();
        let file = files::parse(Syntax::Suricata, "test", rule.as_bytes());
        let skipped = file.skipped;
        set.add("test", file, &Variables::usual());
        let (compiled, refusals) = compile(&set, &CompileSettings::default());
        assert!(refusals.is_empty(), "{rule}: {refusals:?}");
        assert!(set.refusals().is_empty(), "{rule}: {:?}", set.refusals());
        assert_eq!(compiled.rules.len() + skipped, 1, "{rule}");
    }
}
