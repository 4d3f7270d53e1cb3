//! Refusals name file, line, column, option, reason and the expected form.

use millrace_ips_rules::{Reason, RuleSet, Syntax, Variables, files, limits};

/// Returns the messages of the refusals of a Suricata file.
fn refusals(text: &str) -> Vec<String> {
    let mut set = RuleSet::default();
    set.add(
        "a.rules",
        files::parse(Syntax::Suricata, "a.rules", text.as_bytes()),
        &Variables::usual(),
    );
    set.refusals().iter().map(ToString::to_string).collect()
}

/// Returns the only refusal of a rule with these options.
fn refusal(options: &str) -> String {
    let text = format!("alert tcp any any -> any any ({options} sid:7;)");
    let all = refusals(&text);
    assert_eq!(all.len(), 1, "{options}: {all:?}");
    all.into_iter().next().unwrap()
}

#[test]
fn a_refusal_names_the_place_in_a_rule_of_several_lines() {
    let text = "# comment\nalert tcp any any -> any any ( \\\n   msg:\"a\"; \\\n   contint:\"x\"; sid:3;)\n";
    assert_eq!(
        refusals(text),
        [
            "a.rules:4:4: sid 3: contint: unknown keyword; expected a keyword of the rule language; did you mean content?"
        ]
    );
}

#[test]
fn each_malformed_option_is_refused_with_its_reason() {
    for (options, expected) in [
        ("content:\"|0|\";", "a single digit before the bar"),
        ("content:\"|0g|\";", "'g' between bars"),
        ("content:\"\";", "the pattern is empty"),
        ("content:a;", "is not quoted"),
        ("nocase;", "no content precedes the modifier"),
        ("content:\"a\"; depth:1; depth:2;", "given twice"),
        ("pcre:\"/a/y\";", "the flag 'y' is not known"),
        ("pcre:\"/a/UH\";", "several buffers"),
        ("flow:to_server,to_client;", "contradict"),
        ("byte_test:1,?,2,3;", "the operator"),
        (
            "threshold:type limit, track by_src, seconds 1;",
            "missing or zero",
        ),
        ("dsize:10<>5;", "10 is not less than 5"),
        ("lua:x.lua;", "not supported: rules with programs are not run"),
        (
            "asn1:bitstring_overflow;",
            "not supported: the engine has no ASN.1 decoder",
        ),
        ("stream_size:client,>;", "client|server|both|either"),
        ("sid:8;", "given twice"),
    ] {
        let message = refusal(options);
        assert!(message.contains(expected), "{options}: {message}");
        assert!(message.starts_with("a.rules:1:"), "{message}");
    }
}

#[test]
fn options_that_contradict_themselves_or_each_other_are_refused() {
    const RATE: &str = "threshold:type limit, track by_src, count 1, seconds 5;";
    for (options, expected) in [
        ("content:\"abcd\"; depth:3;", "depth 3 is less than the 4 bytes"),
        ("content:\"abcd\"; depth:-4;", "depth -4 is less than the 4 bytes"),
        ("content:\"a\"; content:\"abcd\"; within:3;", "within 3 is less"),
        ("content:\"a\"; content:!\"b\"; within:0;", "within 0 is less"),
        (
            "content:\"a\"; startswith; depth:5;",
            "startswith beside another place",
        ),
        (
            "content:\"a\"; content:\"b\"; distance:1; startswith;",
            "startswith beside another place",
        ),
        (
            "content:\"a\"; content:\"b\"; offset:1; within:5;",
            "depth or offset beside distance",
        ),
        ("content:\"a\"; offset:-1;", "offset -1"),
        (
            "content:\"a\"; content:\"b\"; distance:1048577;",
            "distance 1048577",
        ),
        (
            "content:\"a\"; content:\"b\"; distance:-1048577;",
            "distance -1048577",
        ),
        ("content:\"abcd\"; fast_pattern:2,3;", "3 bytes from byte 2"),
        ("content:\"abcd\"; fast_pattern:2,0;", "0 bytes from byte 2"),
        (
            "content:\"a\"; fast_pattern; content:\"b\"; fast_pattern;",
            "another content of the rule",
        ),
        (
            "content:\"a\"; fast_pattern:only; depth:4;",
            "fast_pattern:only beside a place",
        ),
        (
            "content:!\"a\"; fast_pattern:only;",
            "fast_pattern:only beside a place or a negation",
        ),
        (
            "content:!\"a\"; offset:4; fast_pattern;",
            "beside a negation and a place",
        ),
        ("flow:only_stream,no_stream;", "contradict"),
        ("flow:only_frag,no_frag;", "contradict"),
        ("flowbits:set,a|b;", "set of several bits"),
        ("flowbits:isset,a; flowbits:isnotset,a;", "is set and is not set"),
        (
            "xbits:isnotset,a,track ip_src; xbits:isset,a,track ip_src;",
            "is set and is not set",
        ),
        ("ttl:256;", "256 is more than 255"),
        ("itype:3<>300;", "300 is more than 255"),
        ("dsize:>65536;", "65536 is more than 65535"),
        ("dsize:<0;", "no number is less than 0"),
        ("priority:0;", "the priority 0"),
        ("priority:256;", "the priority 256"),
    ] {
        let message = refusal(options);
        assert!(message.contains(expected), "{options}: {message}");
        assert!(message.starts_with("a.rules:1:"), "{message}");
    }
    let twice = refusal(&format!("{RATE} {RATE}"));
    assert!(
        twice.starts_with("a.rules:1:87: sid 7: threshold: the rule has another rate"),
        "{twice}"
    );
    for options in [
        "content:\"abcd\"; depth:4; content:\"x\"; within:1; distance:-1048576;",
        "content:\"abcd\"; fast_pattern:1,3; content:!\"x\"; startswith; endswith;",
        "content:!\"a\"; fast_pattern; flowbits:isset,a; flowbits:isset,b; flowbits:set,a;",
        "xbits:isset,a,track ip_src; xbits:isnotset,a,track ip_dst; flowbits:isnotset,a|b;",
        "ttl:255; dsize:<1; itype:!0-255; tcp.seq:4294967295; priority:255;",
        "flow:established,only_stream,no_frag;",
    ] {
        let text = format!("alert tcp any any -> any any ({options} sid:7;)");
        assert_eq!(refusals(&text), [""; 0], "{options}");
    }
}

#[test]
fn headers_and_whole_rules_are_refused_with_the_part_that_is_wrong() {
    for (text, expected) in [
        ("alart tcp any any -> any any (sid:1;)", "action: \"alart\""),
        (
            "alert llmnr any any -> any any (sid:1;)",
            "protocol: not supported",
        ),
        (
            "alert tcp 10.0.0.0/33 any -> any any (sid:1;)",
            "source addresses: \"10.0.0.0/33\"",
        ),
        (
            "alert tcp any 70000 -> any any (sid:1;)",
            "source ports: \"70000\"",
        ),
        ("alert tcp any any <- any any (sid:1;)", "direction"),
        (
            "alert tcp any any -> any (sid:1;)",
            "destination ports: it is missing",
        ),
        (
            "alert tcp any any -> $NOWHERE any (sid:1;)",
            "the variable $NOWHERE is not set",
        ),
        ("alert tcp !any any -> any any (sid:1;)", "the set !any is empty"),
        ("alert tcp any any -> any any (msg:\"a\";)", "sid: it is missing"),
        ("alert tcp any any -> any any (sid:1;", "closing parenthesis"),
        (
            "alert tcp any any -> any any (sid:1)",
            "the last option does not end",
        ),
        ("good morning", "there is no option in parentheses"),
    ] {
        let all = refusals(text);
        assert_eq!(all.len(), 1, "{text}: {all:?}");
        assert!(all[0].contains(expected), "{text}: {all:?}");
    }
}

#[test]
fn of_two_rules_with_one_sid_the_newer_revision_stays() {
    let rule = |rev| format!("alert tcp any any -> any any (sid:5; rev:{rev};)\n");
    let mut set = RuleSet::default();
    let text = rule(1) + &rule(2);
    set.add(
        "a.rules",
        files::parse(Syntax::Suricata, "a.rules", text.as_bytes()),
        &Variables::usual(),
    );
    assert_eq!(set.find(5).unwrap().parsed.rule.rev(), 2);
    assert_eq!(set.refusals().len(), 1);
    assert!(
        set.refusals()[0]
            .to_string()
            .contains("is used by the rule in a.rules:2")
    );
}

#[test]
fn hostile_files_meet_limits_with_names() {
    let rule = |source: &str, options: &str| format!("alert tcp {source} any -> any any ({options}sid:1;)");
    let nested = "[".repeat(100) + "any" + &"]".repeat(100);
    let long = format!("[{}10.0.0.1]", "10.0.0.1,".repeat(limits::RULE_SIZE / 20));
    let cases = [
        (rule(&nested, ""), "nested"),
        (
            rule("any", &"nocase;".repeat(limits::OPTIONS + 1)),
            "options in a rule",
        ),
        (
            rule(
                "any",
                &format!("content:\"{}\";", "a".repeat(limits::PATTERN_SIZE + 1)),
            ),
            "bytes in a content",
        ),
        (
            rule("any", &format!("msg:\"{}\";", "a".repeat(limits::RULE_SIZE))),
            "bytes in a rule",
        ),
    ];
    for (text, unit) in cases {
        let all = refusals(&text);
        assert!(all.len() == 1 && all[0].contains(unit), "{unit}: {}", all.len());
    }
    assert!(
        refusals(&rule(&long, "")).is_empty(),
        "a long list of one address is one range"
    );
    let invalid = files::parse(
        Syntax::Suricata,
        "a",
        b"alert tcp any any -> any any (msg:\"\xff\"; sid:1;)",
    );
    assert!(
        invalid.refusals[0]
            .to_string()
            .contains("a:1:36: sid 1: rule: the text is not UTF-8"),
        "{:?}",
        invalid.refusals
    );
}

#[test]
fn rules_that_share_a_large_set_share_its_work() {
    // 12,000 ranges for each of 30,000 rules took minutes, one by one.
    let list = |high: u32| {
        let all: Vec<String> = (0..6_000u32)
            .map(|n| format!("{high}.{}.{}.1", n >> 8, n & 255))
            .collect();
        format!("[{}]", all.join(","))
    };
    let mut text = String::new();
    for part in 0..2 {
        text += &format!("ipvar PART{part} {}\n", list(part + 1));
    }
    let parts: Vec<String> = (0..2).map(|part| format!("$PART{part}")).collect();
    text += &format!("ipvar ALL [{}]\n", parts.join(","));
    for sid in 1..=30_000 {
        text += &format!("alert tcp !$ALL any -> $ALL any (content:\"abcd\"; sid:{sid};)\n");
    }
    let file = files::parse(Syntax::Suricata, "a.rules", text.as_bytes());
    let mut variables = Variables::usual();
    for (name, value) in &file.variables {
        variables.set(name, value).unwrap();
    }
    let mut set = RuleSet::default();
    let start = std::time::Instant::now();
    set.add("a.rules", file, &variables);
    let first = set.refusals().first();
    assert!(first.is_none() && set.rules().len() == 30_000, "{first:?}");
    let time = start.elapsed();
    assert!(time < std::time::Duration::from_secs(60), "{time:?}");
}

#[test]
fn lists_of_a_million_addresses_and_of_all_ports_are_refused_by_their_size() {
    let addresses: Vec<String> = (0..1_000_000u32)
        .map(|n| format!("10.{}.{}.{}", n >> 16, n >> 8 & 255, n & 255))
        .collect();
    let ports: Vec<String> = (1..65_535u16).step_by(2).map(|port| port.to_string()).collect();
    for text in [
        format!("ipvar LARGE [{}]", addresses.join(",")),
        format!("alert tcp [{}] any -> any any (sid:1;)", addresses.join(",")),
        format!("alert tcp any [{}] -> any any (sid:1;)", ports.join(",")),
    ] {
        let all = refusals(&text);
        assert!(
            all.len() == 1 && all[0].contains("more than 131072 bytes in a rule"),
            "{all:?}"
        );
    }
    // Half of the ports fit into a rule, and their ranges are as many.
    let text = format!(
        "alert tcp any [{}] -> any any (sid:1;)",
        ports[..16_000].join(",")
    );
    assert!(refusals(&text).is_empty());
    let text = format!("portvar LOW [{}]\n", ports[..16_000].join(","));
    let file = files::parse(Syntax::Suricata, "a", text.as_bytes());
    assert_eq!((file.variables.len(), file.refusals.len()), (1, 0));
}

#[test]
fn an_empty_set_names_the_variable_that_is_too_large() {
    let all = refusals("alert tcp ![$SMTP_SERVERS,$DNS_SERVERS] any -> any 25 (sid:1;)");
    let expected = "give $SMTP_SERVERS a value other than any, as with --set SMTP_SERVERS=10.0.0.0/8";
    assert!(all.len() == 1 && all[0].ends_with(expected), "{all:?}");
}

#[test]
fn variables_that_name_themselves_or_double_are_limited() {
    let mut variables = Variables::default();
    variables.set("A", "[$A,10.0.0.1]").unwrap();
    let spec = millrace_ips_rules::address::AddressSpec::parse("$A").unwrap();
    assert!(matches!(
        variables.resolve_addresses(&spec),
        Err(Reason::Limit { .. })
    ));
    for level in 0..25 {
        let next = format!("[$V{0},$V{0}]", level + 1);
        variables.set(&format!("V{level}"), &next).unwrap();
    }
    variables.set("V25", "10.0.0.1").unwrap();
    let spec = millrace_ips_rules::address::AddressSpec::parse("$V0").unwrap();
    assert!(matches!(
        variables.resolve_addresses(&spec),
        Err(Reason::Limit { .. })
    ));
}
