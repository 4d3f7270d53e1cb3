//! Detection: the evaluation against its oracle, the prefilter against the evaluation of every rule, and single options.

use millrace_ips_engine::Mode;
use millrace_ips_engine::detect::{CompileSettings, DetectSettings, Scratch, Subject, matches, oracle};
use millrace_ips_scan::Backend;
use proptest::prelude::*;

use crate::frames::{alerts, rules, tcp, udp};

fn scratch() -> Scratch {
    Scratch::new(DetectSettings::default().pcre, false)
}

/// Returns a strategy of one option over the payload, from a small alphabet, so that options depend on each other.
fn option() -> impl Strategy<Value = String> {
    let pattern = "[abA]{1,3}";
    let place = prop_oneof![
        Just(String::new()),
        (0..6i32).prop_map(|n| format!(" offset:{n};")),
        (3..9i32).prop_map(|n| format!(" depth:{n};")),
        (-2..4i32).prop_map(|n| format!(" distance:{n};")),
        (3..8i32).prop_map(|n| format!(" within:{n};")),
        (0..3i32, 3..8i32).prop_map(|(d, w)| format!(" distance:{d}; within:{w};")),
        Just(" startswith;".to_owned()),
        Just(" endswith;".to_owned()),
    ];
    let content =
        (any::<bool>(), pattern, any::<bool>(), place).prop_map(|(negated, text, nocase, place)| {
            let sign = if negated && text.len() > 1 { "!" } else { "" };
            let nocase = if nocase { " nocase;" } else { "" };
            format!("content:{sign}\"{text}\";{nocase}{place}")
        });
    prop_oneof![
        6 => content,
        1 => (prop::sample::select(&["a+b", "b.", "^a", "[ab]A", "(a|ba)$"][..]), any::<bool>())
            .prop_map(|(text, relative)| format!("pcre:\"/{text}/{}\";", if relative { "R" } else { "" })),
        1 => (1..4i32, any::<bool>()).prop_map(|(n, relative)| {
            format!("isdataat:{n}{};", if relative { ",relative" } else { "" })
        }),
        1 => (0..3i32).prop_map(|n| format!("byte_test:1,>,97,{n},relative;")),
        1 => Just("byte_jump:1,0,relative,bitmask 3;".to_owned()),
        1 => (6..12i32).prop_map(|n| format!("bsize:<{n};")),
    ]
}

/// Returns a strategy of the options of a rule, the first of which is a content that must be there.
fn body() -> impl Strategy<Value = String> {
    ("[abA]{1,5}", prop::collection::vec(option(), 0..5))
        .prop_map(|(first, options)| format!("content:\"{first}\"; {}", options.join(" ")))
}

/// Returns a strategy of the ends of a rule: few ports and many, those of the packets and others.
fn ends() -> impl Strategy<Value = String> {
    let ports =
        || prop::sample::select(&["any", "4000", "[80,3999:4001]", "!4000", "1024:", "1000", "5000"][..]);
    let arrow = prop::sample::select(&["->", "->", "<>"][..]);
    (ports(), arrow, ports())
        .prop_map(|(source, arrow, destination)| format!("any {source} {arrow} any {destination}"))
}

fn payload() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(prop::sample::select(&b"aabbA\x01"[..]), 0..40)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn the_evaluation_finds_what_the_oracle_finds(body in body(), payload in payload()) {
        let set = rules(&format!("alert udp any any -> any any ({body} sid:1;)"), &CompileSettings::default());
        let operations = &set.rules[0].payload;
        let subject = Subject::whole(&payload);
        let mut scratch = scratch();
        scratch.begin();
        let found = matches(operations, &subject, &mut scratch);
        prop_assume!(scratch.limit.is_none());
        scratch.begin();
        prop_assert_eq!(found, oracle::matches(operations, &subject, &mut scratch), "{}", body);
    }

    #[test]
    fn the_prefilter_loses_no_alert_and_adds_none(
        bodies in prop::collection::vec((ends(), body()), 1..12),
        payloads in prop::collection::vec((any::<bool>(), payload()), 1..5),
        is_tcp in any::<bool>(),
        size in 1..50usize,
        is_inline in any::<bool>(),
    ) {
        let protocol = if is_tcp { "tcp" } else { "udp" };
        let text: Vec<String> = bodies
            .iter()
            .enumerate()
            .map(|(sid, (ends, body))| format!("alert {protocol} {ends} ({body} sid:{};)", sid + 1))
            .collect();
        let frames = match is_tcp {
            true => tcp(4000, &payloads, size),
            false => payloads.iter().map(|(is_reply, bytes)| udp(4000, *is_reply, bytes)).collect(),
        };
        let mode = if is_inline { Mode::Ips } else { Mode::Ids };
        let found = |prefilter| {
            let settings = CompileSettings { prefilter, ..CompileSettings::default() };
            alerts(&rules(&text.join("\n"), &settings), &frames, mode)
        };
        let expected = found(None);
        for backend in Backend::ALL {
            prop_assert_eq!(&found(Some(backend)), &expected, "{:?}\n{}", backend, text.join("\n"));
        }
    }
}

/// Returns an HTTP request.
fn request(line: &str, host: &str, body: &str) -> Vec<u8> {
    format!(
        "{line} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: probe/1.0\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// Returns a DNS query for a name (RFC 1035, section 4.1).
fn query(name: &str) -> Vec<u8> {
    let mut bytes = vec![0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.') {
        bytes.push(label.len() as u8);
        bytes.extend(label.bytes());
    }
    bytes.extend([0, 0, 1, 0, 1]);
    bytes
}

#[test]
fn names_are_found_as_a_whole_and_by_their_end_at_a_label() {
    let text = r#"
        alert dns any any -> any any (dns.query; content:"example.org"; bsize:11; nocase; sid:1;)
        alert dns any any -> any any (dns.query; dotprefix; content:".example.org"; endswith; nocase; sid:2;)
        alert dns any any -> any any (dns.query; content:".example.org"; endswith; nocase; sid:3;)
        alert dns any any -> any any (dns.query; content:"example.org"; startswith; endswith; sid:4;)
    "#;
    let set = rules(text, &CompileSettings::default());
    let found = |name| alerts(&set, &[udp(53, false, &query(name))], Mode::Ids);
    assert_eq!(found("example.org"), [1, 2, 4]);
    assert_eq!(found("www.Example.org"), [2, 3]);
    assert!(found("badexample.org").is_empty());
    assert!(found("example.org.net").is_empty());
}

#[test]
fn buffers_of_a_transaction_may_come_in_different_packets() {
    let text = r#"
        alert http any any -> any any (http.uri; content:"/a"; http.request_body; content:"secret"; sid:1;)
        alert http any any -> any any (http.uri; content:"/b"; http.request_body; content:"secret"; sid:2;)
        alert http any any -> any any (http.method; content:"POST"; http.host; content:"example"; sid:3;)
        alert http any any -> any any (flow:to_client; http.uri; content:"/a"; sid:4;)
    "#;
    // A rule that asks for the URI in the other direction is refused.
    let (accepted, refused): (Vec<&str>, Vec<&str>) = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .partition(|line| !line.contains("sid:4;"));
    assert_eq!(refused.len(), 1);
    let set = rules(&accepted.join("\n"), &CompileSettings::default());
    for size in [1, 7, 2000] {
        for mode in [Mode::Ids, Mode::Ips] {
            let messages = [(false, request("POST /a?x=1", "example.org", "the secret"))];
            assert_eq!(
                alerts(&set, &tcp(80, &messages, size), mode),
                [1, 3],
                "{size} {mode:?}"
            );
        }
    }
}

#[test]
fn a_rule_that_cannot_match_is_refused_with_its_reason() {
    use millrace_ips_engine::detect::compile;
    use millrace_ips_rules::{RuleSet, Syntax, Variables, files};
    let refused = |body: &str| {
        let text = format!("alert http any any -> any any ({body} sid:1;)");
        let mut set = RuleSet::default();
        set.add(
            "f",
            files::parse(Syntax::Suricata, "f", text.as_bytes()),
            &Variables::usual(),
        );
        let (_, refusals) = compile(&set, &CompileSettings::default());
        refusals
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join("\n")
    };
    assert!(refused("flow:to_client; http.uri; content:\"a\";").contains("flow of the other"));
    assert!(refused("http.uri; content:\"a\"; http.stat_code; content:\"200\";").contains("both directions"));
    assert!(
        refused("content:\"a\"; pcre:\"/(/\";").contains("f:1:"),
        "{}",
        refused("pcre:\"/(/\";")
    );
    assert!(refused("byte_test:1,>,size,0;").contains("size is not set before"));
    let across =
        "http.uri; content:\"/\"; byte_extract:1,0,n,relative; http.request_body; byte_test:1,=,n,0;";
    assert_eq!(refused(across), "");
    for wrong in [
        "content:\"/\"; byte_extract:1,0,n,relative; http.uri; byte_test:1,=,n,0;",
        "content:\"a\"; http_uri; content:\"b\"; http_client_body; byte_extract:1,0,n,relative; content:\"c\"; http_uri; depth:n;",
        "ipv4.hdr; byte_extract:1,0,n; http.uri; byte_test:1,=,n,0;",
    ] {
        let refusal = refused(wrong);
        assert!(
            refusal.contains("the variable n is set by operations that are evaluated later"),
            "{wrong}: {refusal}"
        );
    }
    assert!(refused("base64_data; content:\"a\";").contains("base64_decode"));
    for wrong in [
        "http.uri; content:\"abcd\"; bsize:3;",
        "http.uri; bsize:<4; content:\"abcd\";",
        "http.uri; content:\"a\"; content:\"abcd\"; bsize:1<>4;",
    ] {
        assert!(
            refused(wrong).contains("a content of 4 bytes in a buffer of at most 3"),
            "{wrong}"
        );
    }
    for right in [
        "http.uri; content:\"abcd\"; bsize:4; http.host; bsize:1; content:!\"abcd\";",
        "http.uri; content:\"abcd\"; bsize:>3; bsize:!5; bsize:2<>6;",
        "http.referer; absent; http.uri; content:\"a\";",
        "http.uri; content:\"a\"; http.referer;",
    ] {
        assert_eq!(refused(right), "", "{right}");
    }
    assert!(refused("http.referer; absent; content:\"a\";").contains("absent beside conditions"));
    assert!(refused("http.uri; http.host; content:\"a\";").contains("no condition on"));
}

#[test]
fn bits_are_set_before_they_are_asked_for_whatever_the_order_of_the_file() {
    let text = r#"
        alert udp any any -> any any (content:"b"; flowbits:isset,two; sid:3;)
        alert udp any any -> any any (content:"b"; flowbits:isset,one; flowbits:set,two; sid:2;)
        alert udp any any -> any any (content:"a"; flowbits:set,one; flowbits:noalert; sid:1;)
        alert udp any any -> any any (content:"b"; flowbits:isnotset,one; sid:4;)
    "#;
    let set = rules(text, &CompileSettings::default());
    assert_eq!(alerts(&set, &[udp(4000, false, b"ab")], Mode::Ids), [2, 3]);
    assert_eq!(alerts(&set, &[udp(4000, false, b"b")], Mode::Ids), [4]);
}

#[test]
fn base64_data_and_numbers_of_the_payload_are_compared() {
    let text = r#"
        alert udp any any -> any any (content:"v="; base64_decode:relative; base64_data; content:"hello"; sid:1;)
        alert udp any any -> any any (byte_extract:1,0,size; byte_test:1,=,size,1; sid:2;)
        alert udp any any -> any any (byte_jump:1,0; content:"z"; within:1; sid:3;)
        alert udp any any -> any any (byte_math:bytes 1,offset 0,oper *,rvalue 2,result twice; isdataat:twice; sid:4;)
    "#;
    let set = rules(text, &CompileSettings::default());
    let found = |payload: &[u8]| alerts(&set, &[udp(4000, false, payload)], Mode::Ids);
    assert_eq!(found(b"\xffv=aGVsbG8="), [1]);
    assert_eq!(found(b"\x02\x02.z"), [2, 3]);
    assert_eq!(found(b"\x01\x02.z"), [4]);
}

#[test]
fn numbers_of_64_bits_are_compared_and_computed_with_as_a_whole() {
    let text = r#"
        alert udp any any -> any any (byte_extract:8,0,x; byte_test:8,=,x,8; sid:1;)
        alert udp any any -> any any (byte_extract:8,0,x; byte_test:8,>,x,8; sid:2;)
        alert udp any any -> any any (byte_extract:8,0,x; byte_math:bytes 8,offset 8,oper -,rvalue x,result y; byte_test:1,=,y,15; sid:3;)
    "#;
    let set = rules(text, &CompileSettings::default());
    let found = |first: u64, second: u64| {
        let payload = [first.to_be_bytes(), second.to_be_bytes()].concat();
        alerts(&set, &[udp(4000, false, &payload)], Mode::Ids)
    };
    let high = 1 << 63 | 5;
    assert_eq!(found(high, high), [1]);
    assert_eq!(found(high, high + 9), [2]);
    // The two numbers differ only in the last byte, which is 10.
    assert_eq!(found(1 << 63, (1 << 63) + 10), [2, 3]);
}

#[test]
fn a_slow_expression_is_counted_and_is_no_silent_miss() {
    use millrace_ips_engine::detect::{DetectSettings, Limit};
    let set = rules(
        "alert udp any any -> any any (pcre:\"/^(?:(a|aa|a\\b)+)+[^a]/\"; sid:1;)",
        &CompileSettings::default(),
    );
    for limit_matches in [false, true] {
        let mut scratch = Scratch::new(DetectSettings::default().pcre, limit_matches);
        scratch.begin();
        let subject = Subject::whole(&[b'a'; 64]);
        assert_eq!(
            matches(&set.rules[0].payload, &subject, &mut scratch),
            limit_matches
        );
        assert_eq!(scratch.limit, Some(Limit::Pcre));
    }
}

#[test]
fn thresholds_and_filters_count_by_their_key() {
    let text = r#"
        alert udp any any -> any any (content:"a"; threshold:type limit, track by_src, count 1, seconds 60; sid:1;)
        alert udp any any -> any any (content:"a"; detection_filter:track by_src, count 2, seconds 60; sid:2;)
        alert udp any any -> any any (content:"a"; threshold:type both, track by_dst, count 4, seconds 60; sid:3;)
    "#;
    let set = rules(text, &CompileSettings::default());
    let packets = |count| vec![udp(4000, false, b"a"); count];
    assert_eq!(alerts(&set, &packets(2), Mode::Ids), [1]);
    assert_eq!(alerts(&set, &packets(3), Mode::Ids), [1, 2]);
    assert_eq!(alerts(&set, &packets(4), Mode::Ids), [1, 2, 3]);
}

#[test]
fn a_trace_says_which_condition_of_a_rule_fails_on_each_transaction() {
    use millrace_ips_engine::detect::TraceOutcome;
    let text = "alert http any any -> any any (http.method; content:\"GET\"; http.uri; content:\"/evil\"; flowbits:set,seen; sid:1;)\n\
        alert http any any -> any any (flowbits:isset,seen; http.uri; content:\"/next\"; sid:2;)";
    let rules = crate::bed::ruleset(text);
    let mut engine = millrace_ips_engine::Engine::new(millrace_ips_engine::Settings::default(), [1, 2]);
    let index = rules.rules.iter().position(|rule| rule.sid == 2).unwrap();
    engine.detector().trace(Some(index as u32));
    let mut events = millrace_ips_engine::Events::default();
    let request = |uri: &str| {
        (
            false,
            format!("GET {uri} HTTP/1.1\r\nHost: a\r\n\r\n").into_bytes(),
        )
    };
    let frames = tcp(80, &[request("/next"), request("/evil"), request("/next")], 1000);
    for (at, frame) in frames.iter().enumerate() {
        let mut bytes = frame.clone();
        let frame = millrace_ips_engine::Frame {
            bytes: &mut bytes,
            link: crate::frames::RAW,
            time: millrace_types::Time::from_secs(at as u64),
            number: at as u64 + 1,
        };
        engine.frame(&rules, frame, &mut events);
    }
    engine.finish(&rules, &mut events);
    let records = engine.detector().take_trace();
    let of_transactions: Vec<String> = records
        .iter()
        .filter(|record| {
            matches!(
                record.place,
                millrace_ips_engine::detect::TracePlace::Transaction { .. }
            )
        })
        .map(|record| match record.outcome {
            TraceOutcome::NoMatch => record
                .conditions
                .iter()
                .find(|it| !it.holds)
                .unwrap()
                .words
                .clone(),
            outcome => format!("{outcome:?}"),
        })
        .collect();
    let bit = "bit flow seen of the flow is set".to_owned();
    assert!(of_transactions.contains(&bit), "{of_transactions:?}");
    assert!(
        of_transactions.contains(&"Alert".to_owned()),
        "{of_transactions:?}"
    );
    let uri = "http.uri: content \"/next\"".to_owned();
    assert!(of_transactions.contains(&uri), "{of_transactions:?}");
}

#[test]
fn rules_over_modbus_and_sip_match_the_fields_of_their_parsers() {
    let text = "alert tcp any any -> any 502 (modbus_func:write_single_coil; modbus_unit:1; sid:1;)\n\
        alert tcp any any -> any 502 (modbus_func:read_coils; sid:2;)\n\
        alert sip any any -> any any (sip.method; content:\"INVITE\"; sip.uri; content:\"bob\"; sid:3;)\n\
        alert sip any any -> any any (sip.method; content:\"BYE\"; sid:4;)";
    let mut set = millrace_ips_rules::RuleSet::default();
    for (syntax, lines) in [
        (millrace_ips_rules::Syntax::Snort2, 0..2),
        (millrace_ips_rules::Syntax::Suricata, 2..4),
    ] {
        let part: Vec<&str> = text.lines().skip(lines.start).take(lines.len()).collect();
        let file = millrace_ips_rules::files::parse(syntax, "test", part.join("\n").as_bytes());
        set.add("test", file, &millrace_ips_rules::Variables::usual());
    }
    assert!(set.refusals().is_empty(), "{:?}", set.refusals());
    let (rules, refusals) = millrace_ips_engine::detect::compile(&set, &CompileSettings::default());
    assert!(refusals.is_empty(), "{refusals:?}");
    let write = b"\0\x07\0\0\0\x06\x01\x05\0\xac\xff\0".to_vec();
    let invite = b"INVITE sip:bob@example.org SIP/2.0\r\nl: 0\r\n\r\n";
    for mode in [Mode::Ids, Mode::Ips] {
        let found = alerts(&rules, &tcp(502, &[(false, write.clone())], 1000), mode);
        assert_eq!(found.into_iter().collect::<Vec<_>>(), [1]);
        let found = alerts(&rules, &[udp(5060, false, invite)], mode);
        assert_eq!(found.into_iter().collect::<Vec<_>>(), [3]);
    }
}

#[test]
fn a_number_of_no_digits_is_all_digits_that_are_there() {
    // The documentation of http.content_len compares lengths this way, and so do 102 rules of ET Open.
    let text = "alert http any any -> any any (http.content_len; byte_test:0,<=,100,0,string,dec; sid:1;)\n\
        alert http any any -> any any (http.content_len; byte_test:0,>,100,0,string,dec; sid:2;)\n\
        alert http any any -> any any (http.content_len; content:\"1\"; byte_test:0,=,7,0,string,dec,relative; sid:3;)\n\
        alert http any any -> any any (http.user_agent; byte_test:0,>=,0,0,string,dec; sid:4;)\n";
    let rules = rules(text, &CompileSettings::default());
    for (size, expected) in [(17, &[1, 3][..]), (100, &[1]), (101, &[2])] {
        let head = format!("POST / HTTP/1.1\r\nUser-Agent: none\r\nContent-Length: {size}\r\n\r\n");
        let request = [head.as_bytes(), &vec![b'x'; size]].concat();
        for mode in [Mode::Ids, Mode::Ips] {
            let found = alerts(&rules, &tcp(80, &[(false, request.clone())], 1000), mode);
            assert_eq!(found.into_iter().collect::<Vec<_>>(), expected, "{size}");
        }
    }
}

#[test]
fn buffers_with_too_many_different_transforms_are_refused_and_the_others_are_right() {
    let limit = millrace_ips_rules::limits::HOOKS as u32;
    // Each rule has its own sequence of transforms, from the bits of its number.
    let transforms = |number: u32| -> String {
        let one = |bit: u32| ["to_lowercase; ", "to_uppercase; "][(number >> bit & 1) as usize];
        (0..13).map(one).collect()
    };
    let rule = |sid: u32| {
        let transforms = transforms(sid);
        format!("alert http any any -> any any (http.uri; {transforms}content:\"a\"; nocase; sid:{sid};)\n")
    };
    let text: String = (1..=limit + 10).map(rule).collect();
    let mut set = millrace_ips_rules::RuleSet::default();
    let file =
        millrace_ips_rules::files::parse(millrace_ips_rules::Syntax::Suricata, "test", text.as_bytes());
    set.add("test", file, &millrace_ips_rules::Variables::usual());
    let settings = CompileSettings {
        prefilter: None,
        ..CompileSettings::default()
    };
    let (ruleset, refusals) = millrace_ips_engine::detect::compile(&set, &settings);
    assert_eq!((ruleset.hooks.len(), refusals.len()), (limit as usize, 10));
    let reason = refusals[0].to_string();
    assert!(
        reason.contains("more than 4096 buffers with different transforms in a rule set"),
        "{reason}"
    );
}

#[test]
fn a_transaction_with_hits_of_a_thousand_rules_loses_none() {
    let over_uri =
        |sid: u32| format!("alert http any any -> any any (http.uri; content:\"k{sid:04}\"; sid:{sid};)\n");
    let over_body = "drop http any any -> any any (http.request_body; content:\"attack\"; sid:9999;)\n";
    let text: String = (1..=1100).map(over_uri).collect();
    let uri: String = (1..=1100).map(|sid| format!("k{sid:04}")).collect();
    let head = format!("POST /{uri} HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\n\r\n");
    let messages = [(false, head.into_bytes()), (false, b"attack".to_vec())];
    let rules = rules(&(text + over_body), &CompileSettings::default());
    for mode in [Mode::Ids, Mode::Ips] {
        let found = alerts(&rules, &tcp(80, &messages, 1000), mode);
        assert_eq!((found.len(), found.last()), (1101, Some(&9999)), "{mode:?}");
    }
}

#[test]
fn a_rule_that_tests_and_sets_a_bit_is_before_those_that_test_it_in_any_order_of_the_file() {
    let both = |sid: u32, bit: &str| {
        format!(
            "alert udp any any -> any any (flowbits:isnotset,{bit}; flowbits:set,{bit}; content:\"word\"; flowbits:noalert; sid:{sid};)\n"
        )
    };
    let reader = |sid: u32, bits: &str| {
        format!("alert udp any any -> any any (flowbits:isset,{bits}; content:\"word\"; sid:{sid};)\n")
    };
    let parts = [
        reader(1, "one"),
        reader(2, "one|two"),
        both(3, "one"),
        // Two rules that test and set the same bit.
        reader(4, "three"),
        both(5, "three"),
        both(6, "three"),
    ];
    let forward = parts.concat();
    let backward: String = parts.iter().rev().map(String::as_str).collect();
    for text in [forward, backward] {
        let rules = rules(&text, &CompileSettings::default());
        for mode in [Mode::Ids, Mode::Ips] {
            let found = alerts(&rules, &[udp(99, false, b"a word")], mode);
            assert_eq!(found, [1, 2, 4], "{mode:?} {text}");
        }
    }
}
