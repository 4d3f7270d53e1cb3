//! The keywords of each protocol, with messages of our own made from the examples of Suricata's documentation: rules that hold and
//! rules that do not, in both modes, in whole messages and split at every byte.

mod across;
mod anomaly;
mod binary;
mod bodies;
mod frames;
pub(crate) mod http2;
mod ike;
mod mqtt;
mod nfs;
mod quic;
mod records;
mod streams;
mod text;

use millrace_ips_engine::Mode;
use millrace_ips_engine::detect::CompileSettings;
use millrace_types::Time;

use crate::frames::{RAW, alerts, alerts_on, rules, tcp, udp};
pub(crate) use anomaly::anomaly;

/// A message, and true if the server sends it.
pub(crate) type Message = (bool, Vec<u8>);

/// A conversation, and options of rules.
pub(crate) struct Case {
    /// The protocol of the rules.
    pub(crate) protocol: &'static str,
    pub(crate) is_udp: bool,
    pub(crate) port: u16,
    pub(crate) messages: Vec<Message>,
    /// Options of rules that match.
    pub(crate) hold: Vec<&'static str>,
    /// Options of rules that do not match.
    pub(crate) fail: Vec<&'static str>,
}

fn client(bytes: impl Into<Vec<u8>>) -> Message {
    (false, bytes.into())
}

fn server(bytes: impl Into<Vec<u8>>) -> Message {
    (true, bytes.into())
}

/// Returns an element of BER of fewer than 128 bytes.
fn ber(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let content = parts.concat();
    [&[tag, content.len() as u8][..], &content].concat()
}

/// Returns every case.
pub(crate) fn cases() -> Vec<Case> {
    let mut cases = vec![
        across::variables_case(),
        across::files_case(),
        across::protocol_case(),
        binary::mqtt_case(),
        binary::snmp_case(),
        binary::rfb_case(),
        binary::ike_case(),
        binary::dhcp_case(),
        binary::nfs_case(),
        binary::websocket_case(),
        binary::websocket_compressed_case(),
        binary::pgsql_case(),
        binary::dcerpc_udp_case(),
        records::ldap_case(),
        records::enip_case(),
        text::quic_case(),
        text::quic_1_case(),
        text::ssh_case(),
        text::mail_case(),
        text::ftp_case(),
        text::dns_case(),
        text::tls_case(),
        text::http_case(),
        http2::http2_case(),
        http2::dns_case(),
        http2::doh2_case(),
        http2::upgrade_case(),
    ];
    cases.extend(binary::krb5_cases());
    cases.extend(binary::rfb_version_cases());
    cases.extend(frames::cases());
    cases.extend(streams::cases());
    cases.extend(bodies::cases());
    cases.extend(nfs::cases());
    cases
}

#[test]
fn rules_over_each_keyword_hold_as_documented_in_any_segmentation() {
    for case in cases() {
        let options = case.hold.iter().chain(&case.fail);
        let rule = |(at, options): (usize, &&str)| {
            format!(
                "alert {} any any -> any any ({options} sid:{};)\n",
                case.protocol,
                at + 1
            )
        };
        let text: String = options.enumerate().map(rule).collect();
        let compiled = rules(&text, &CompileSettings::default());
        let plain = CompileSettings {
            prefilter: None,
            ..CompileSettings::default()
        };
        let plain = rules(&text, &plain);
        let expected: Vec<u32> = (1..=case.hold.len() as u32).collect();
        let sizes: &[usize] = if case.is_udp { &[1000] } else { &[1000, 1, 7] };
        for &size in sizes {
            let frames = match case.is_udp {
                true => case
                    .messages
                    .iter()
                    .map(|(is_reply, bytes)| udp(case.port, *is_reply, bytes))
                    .collect(),
                false => tcp(case.port, &case.messages, size),
            };
            for mode in [Mode::Ids, Mode::Ips] {
                for (set, name) in [(&compiled, "prefilter"), (&plain, "no prefilter")] {
                    let found = alerts(set, &frames, mode);
                    let wrong: Vec<&str> = (1..=(case.hold.len() + case.fail.len()) as u32)
                        .filter(|sid| found.contains(sid) != expected.contains(sid))
                        .map(|sid| *case.hold.iter().chain(&case.fail).nth(sid as usize - 1).unwrap())
                        .collect();
                    assert_eq!(
                        wrong, [""; 0],
                        "{} {mode:?}, segments of {size}, {name}",
                        case.protocol
                    );
                }
            }
        }
    }
}

#[test]
fn rules_of_dns_over_http_hold_on_no_other_flow_and_events_have_its_name() {
    use millrace_ips_engine::Event;
    use millrace_ips_engine::app::AppProtocol;
    let text = "alert doh2 any any -> any any (sid:1;)\n\
        alert tcp any any -> any any (app-layer-protocol:doh2; sid:2;)\n\
        alert tcp any any -> any any (app-layer-protocol:!doh2; flow:to_server; sid:3;)\n";
    for (case, expected, app) in [
        (http2::http2_case(), &[3][..], AppProtocol::Http2),
        (http2::doh2_case(), &[1, 2], AppProtocol::Doh2),
    ] {
        for mode in [Mode::Ids, Mode::Ips] {
            let settings = millrace_ips_engine::Settings {
                mode,
                records: true,
                ..millrace_ips_engine::Settings::default()
            };
            let mut bed = crate::bed::TestBed::with(settings, text);
            bed.send_all(tcp(case.port, &case.messages, 1000));
            bed.finish();
            let flows: Vec<_> = bed
                .events()
                .iter()
                .filter_map(|event| match event {
                    Event::Flow(flow, ..) => flow.app,
                    _ => None,
                })
                .collect();
            assert_eq!(flows, [app], "{mode:?}");
            let mut found: Vec<u32> = bed.sids().into_iter().collect();
            // Rule 3 holds on the first packets, before DNS is known.
            found.retain(|sid| *sid != 3 || app != AppProtocol::Doh2);
            assert_eq!(found, expected, "{app:?} {mode:?}");
        }
    }
}

#[test]
fn each_buffer_of_these_protocols_has_a_rule_that_holds() {
    use millrace_ips_rules::buffers::{BUFFERS, Buffer};
    let cases = cases();
    let is_used = |name: &&str| {
        let sticky = format!("{name};");
        cases
            .iter()
            .any(|case| case.hold.iter().any(|options| options.contains(&sticky)))
    };
    // The packets of the cases are of IPv4 and TCP; `headers_of_packets_are_buffers` has the others.
    let others = [
        Buffer::Ipv6Header,
        Buffer::UdpHeader,
        Buffer::Icmpv4Header,
        Buffer::Icmpv6Header,
        Buffer::IgmpHeader,
    ];
    let first = Buffer::HttpRequestHeader;
    let missing: Vec<&str> = BUFFERS
        .iter()
        .filter(|names| names.buffer >= first && !others.contains(&names.buffer))
        .filter(|names| !names.suricata.iter().any(|name| is_used(&name)))
        .map(|names| names.suricata[0])
        .collect();
    assert_eq!(missing, [""; 0]);
}

#[test]
fn headers_of_packets_are_buffers() {
    use crate::frames::ipv4;
    let v6 = |next: u8, body: &[u8]| {
        let mut packet = vec![0x60, 0, 0, 0];
        packet.extend((body.len() as u16).to_be_bytes());
        packet.extend([next, 64]);
        packet.extend([0x20; 32]);
        [packet, body.to_vec()].concat()
    };
    let text = "alert ip any any -> any any (udp.hdr; content:\"|00 08|\"; offset:4; depth:2; sid:1;)\n\
        alert ip any any -> any any (icmpv4.hdr; content:\"|08 00|\"; startswith; sid:2;)\n\
        alert ip any any -> any any (icmpv6.hdr; content:\"|02 00|\"; startswith; sid:3;)\n\
        alert ip any any -> any any (ipv6.hdr; content:\"|60|\"; startswith; sid:4;)\n\
        alert ip any any -> any any (icmpv6.mtu:1280; sid:5;)\n\
        alert ip any any -> any any (ipopts:lsrr; sid:6;)\n\
        alert tcp any any -> any any (tcp.wscale:7; sid:7;)\n\
        alert ip any any -> any any (ip.src; dataset:isset,seen,type ip; sid:8;)\n\
        alert igmp any any -> any any (igmp.type:0x16; sid:9;)\n\
        alert ip any any -> any any (igmp.hdr; content:\"|16|\"; startswith; content:\"|e0 00 00 fb|\"; bsize:8; sid:10;)\n\
        alert igmp any any -> any any (igmp.type:0x11; sid:11;)\n";
    let rules = rules(text, &CompileSettings::default());
    let mut syn = vec![
        3, 0xe8, 0, 80, 0, 0, 0, 1, 0, 0, 0, 0, 0x60, 2, 0xff, 0xff, 0, 0, 0, 0,
    ];
    syn.extend([3, 3, 7, 0]);
    let mut routed = vec![
        0x46, 0, 0, 24, 0, 1, 0, 0, 64, 250, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 131, 3, 4, 0,
    ];
    routed.extend([0; 0]);
    let frames = [
        udp(99, false, b""),
        ipv4(1, false, &[8, 0, 0, 0, 0, 1, 0, 1]),
        v6(58, &[2, 0, 0, 0, 0, 0, 5, 0]),
        routed,
        ipv4(6, false, &syn),
        ipv4(2, false, &[0x16, 0, 0, 0, 224, 0, 0, 251]),
    ];
    assert_eq!(alerts(&rules, &frames, Mode::Ids), [1, 2, 3, 4, 5, 6, 7, 9, 10]);
}

#[test]
fn a_certificate_expires_by_the_time_of_the_packets() {
    let text = "alert tls any any -> any any (tls_cert_expired; sid:1;)\n\
        alert tls any any -> any any (tls_cert_valid; sid:2;)\n";
    let rules = rules(text, &CompileSettings::default());
    let case = text::tls_case();
    let frames = tcp(case.port, &case.messages, 1000);
    // The years 2003 and 2096; the certificate ends with 2019.
    for (seconds, expected) in [(1_041_379_200, 2), (4_000_000_000, 1)] {
        let found = alerts_on(RAW, Time::from_secs(seconds), &rules, &frames, Mode::Ids);
        assert_eq!(found, [expected], "{seconds}");
    }
}

#[test]
fn the_vlan_tags_of_a_frame_are_numbers() {
    use millrace_ips_engine::LinkType;
    let text = "alert ip any any -> any any (vlan.id:300; sid:1;)\n\
        alert ip any any -> any any (vlan.id:200,0; vlan.id:300,1; vlan.layers:2; sid:2;)\n\
        alert ip any any -> any any (vlan.id:300,0; sid:3;)\n\
        alert ip any any -> any any (vlan.id:200,-1; sid:4;)\n";
    let rules = rules(text, &CompileSettings::default());
    let tags = [0x81, 0, 0, 200, 0x81, 0, 1, 44, 8, 0];
    let frame = [&[2; 12][..], &tags, &udp(99, false, b"x")].concat();
    for mode in [Mode::Ids, Mode::Ips] {
        let found = alerts_on(LinkType(1), Time::from_secs(1), &rules, &[frame.clone()], mode);
        assert_eq!(found, [1, 2], "{mode:?}");
    }
}

#[test]
fn a_rule_over_a_request_and_its_response_matches_once() {
    let case = text::http_case();
    let text = "alert http any any => any 80 (http.uri; content:\"/dir\"; http.stat_code; content:\"200\"; sid:1;)\n\
        alert http any any => any 80 (http.uri; content:\"/dir\"; http.stat_code; content:\"404\"; sid:2;)\n\
        alert http any any => any 80 (http.uri; content:\"/other\"; http.stat_code; content:\"200\"; sid:3;)\n\
        alert http any any => any 81 (http.uri; content:\"/dir\"; http.stat_code; content:\"200\"; sid:4;)\n";
    for mode in [Mode::Ids, Mode::Ips] {
        for size in [1000, 1] {
            let settings = millrace_ips_engine::Settings {
                mode,
                ..millrace_ips_engine::Settings::default()
            };
            let mut bed = crate::bed::TestBed::with(settings, text);
            bed.send_all(tcp(80, &case.messages, size));
            bed.finish();
            assert_eq!(
                (bed.sids().into_iter().collect::<Vec<_>>(), bed.alerts()),
                (vec![1], 1),
                "{mode:?} {size}"
            );
        }
    }
}

#[test]
fn a_pass_rule_with_alert_raises_one_and_passes() {
    let case = text::http_case();
    let text = "pass http any any -> any any (http.uri; content:\"/dir\"; alert; sid:1;)\n\
        drop http any any -> any any (http.host; content:\"a.example\"; sid:2;)\n";
    let settings = millrace_ips_engine::Settings {
        mode: Mode::Ips,
        ..millrace_ips_engine::Settings::default()
    };
    let mut bed = crate::bed::TestBed::with(settings, text);
    assert!(!bed.send_all(tcp(80, &case.messages, 1000)));
    bed.finish();
    assert_eq!(bed.sids().into_iter().collect::<Vec<_>>(), [1]);
}

#[test]
fn a_name_beneath_one_of_a_set_is_found() {
    let case = text::http_case();
    let text = "alert http any any -> any any (http.host; dotprefix; dataset:isset,a,type string,match subdomain,load a.lst; sid:1;)\n\
        alert http any any -> any any (http.host; dotprefix; dataset:isset,a; sid:2;)\n\
        alert http any any -> any any (http.host; dotprefix; dataset:isnotset,a,match subdomain; sid:3;)\n\
        alert http any any -> any any (http.host; dotprefix; dataset:isnotset,a; sid:4;)\n";
    let settings = CompileSettings {
        // The host is a.example; the set has .example.
        data: [(
            ("test".to_owned(), "a.lst".to_owned()),
            b"LmV4YW1wbGU=\n".to_vec(),
        )]
        .into(),
        ..CompileSettings::default()
    };
    let rules = rules(text, &settings);
    for mode in [Mode::Ids, Mode::Ips] {
        let found = alerts(&rules, &tcp(80, &case.messages, 1000), mode);
        assert_eq!(found, [1, 4], "{mode:?}");
    }
}

#[test]
fn files_that_rules_name_are_sets_and_lists() {
    let case = text::http_case();
    let text = "alert http any any -> any any (http.host; dataset:isset,hosts,type string,load hosts.lst; sid:1;)\n\
        alert http any any -> any any (http.host; to_md5; dataset:isset,digests,type md5,load md5.lst; sid:2;)\n\
        alert http any any -> any any (http.host; datarep:reputation,>,200,load rep.lst,type string; sid:3;)\n\
        alert http any any -> any any (http.host; datarep:reputation,<,200; sid:4;)\n\
        alert http any any -> any any (filemd5:files.md5; sid:5;)\n\
        alert http any any -> any any (filesha1:!files.sha1; sid:6;)\n\
        alert http any any -> any any (filesha256:!files.sha256; sid:7;)\n\
        alert ip any any -> any any (ip.dst; dataset:isset,addresses,type ip,load ips.lst; sid:8;)\n";
    // The digests of "a.example" and "%PDF-1.4" are those of md5sum.
    let files = [
        ("hosts.lst", "YS5leGFtcGxl\n".to_owned()),
        ("md5.lst", "af60befa758e782df5bdf9901187616d\n".to_owned()),
        ("rep.lst", "YS5leGFtcGxl,201\n".to_owned()),
        ("files.md5", "914240125319291c7cb7e712e419b254  x\n".to_owned()),
        ("files.sha1", format!("{}\n", "0".repeat(40))),
        ("files.sha256", format!("{}\n", "0".repeat(64))),
        ("ips.lst", "10.0.0.2\n".to_owned()),
    ];
    let settings = CompileSettings {
        data: files
            .into_iter()
            .map(|(name, text)| (("test".to_owned(), name.to_owned()), text.into_bytes()))
            .collect(),
        ..CompileSettings::default()
    };
    let rules = rules(text, &settings);
    for mode in [Mode::Ids, Mode::Ips] {
        let found = alerts(&rules, &tcp(80, &case.messages, 1000), mode);
        assert_eq!(found, [1, 2, 3, 5, 6, 7, 8], "{mode:?}");
    }
}
