//! A printed rule is read as the same rule.

use millrace_ips_rules::{Rule, Syntax, files};
use proptest::prelude::*;

/// Options in the form of Suricata and Snort 2.9, with arbitrary patterns, texts and numbers.
fn option() -> impl Strategy<Value = String> {
    let text = "[ -~]{0,12}".prop_map(|text| {
        text.replace('\\', "\\\\")
            .replace('"', "\\\"")
            .replace(';', "\\;")
    });
    let pattern = prop::collection::vec(any::<u8>(), 1..12).prop_map(|bytes| {
        bytes
            .iter()
            .map(|byte| format!("|{byte:02X}|"))
            .collect::<String>()
    });
    let place = prop::sample::select(vec![
        "",
        "depth:20;",
        "offset:3;",
        "depth:20; offset:3;",
        "distance:-4;",
        "within:len;",
        "within:20; distance:-4;",
        "startswith;",
    ]);
    let others = prop::sample::subsequence(vec!["nocase;", "endswith;", "http_uri;"], 0..3);
    let modifiers = (place, others).prop_map(|(place, others)| format!("{place} {}", others.join(" ")));
    prop_oneof![
        text.prop_map(|text| format!("msg:\"{text}\";")),
        (any::<bool>(), pattern, modifiers).prop_map(|(negated, pattern, modifiers)| {
            format!("content:{}\"{pattern}\"; {}", if negated { "!" } else { "" }, modifiers)
        }),
        Just("content:\"abcd\"; nocase; fast_pattern:1,2;".to_owned()),
        any::<u16>().prop_map(|n| format!("dsize:>{n};")),
        (0u8..99, 101u8..=255).prop_map(|(a, b)| format!("itype:{a}<>{b};")),
        "[a-z]{1,9}(\\|[a-z]{1,9})?".prop_map(|name| format!("flowbits:isset,{name};")),
        (1u32..9, 1u32..99).prop_map(|(n, s)| format!("threshold: type both, count {n}, seconds {s}, track by_dst;")),
        "[a-z().*+\\[\\]/|?]{1,20}".prop_map(|text| format!("pcre:!\"m#{text}#Ri\";")),
        (1u8..5, any::<u16>()).prop_map(|(n, v)| format!("byte_test: {n}, !&, 0x{v:x}, -2 ,relative, string ,hex;")),
        Just("byte_math:bytes 2, offset 1, oper <<, rvalue x, result y, endian little;".to_owned()),
        Just("metadata: a b , c d,; reference:url,a,b; flow:from_client , established; stream_size: client, >, 5;".to_owned()),
    ]
}

/// Sets of addresses.
fn addresses() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("any".to_owned()),
        "\\$[A-Z]{1,5}",
        (any::<u32>(), 0u8..33).prop_map(|(bits, len)| format!("{}/{len}", std::net::Ipv4Addr::from(bits))),
        (any::<u128>(), 0u8..129).prop_map(|(bits, len)| format!("{}/{len}", std::net::Ipv6Addr::from(bits))),
        (any::<u32>(), any::<u32>()).prop_map(|(a, b)| {
            format!(
                "{}-{}",
                std::net::Ipv4Addr::from(a.min(b)),
                std::net::Ipv4Addr::from(a.max(b))
            )
        }),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            inner.clone().prop_map(|text| format!("!{text}")),
            prop::collection::vec(inner, 1..4).prop_map(|items| format!("[{}]", items.join(" , "))),
        ]
    })
}

proptest! {
    #[test]
    fn a_printed_rule_is_read_as_the_same_rule(
        options in prop::collection::vec(option(), 0..8), source in addresses(), ports in "(any|!?[1-9][0-9]{0,3}:?|\\[80,!90:95\\])",
    ) {
        // These may be there once.
        let mut options = options;
        for once in ["threshold:", "fast_pattern"] {
            let mut is_known = false;
            options.retain(|option| !option.contains(once) || !std::mem::replace(&mut is_known, true));
        }
        let text = format!("drop tcp {source} {ports} <> any any ({} sid:1;)", options.join(" "));
        for syntax in [Syntax::Suricata, Syntax::Snort2] {
            let rule = Rule::parse(syntax, "a", &text).map_err(|refusal| TestCaseError::fail(format!("{refusal}\n{text}")))?;
            let printed = rule.to_string();
            let again = Rule::parse(syntax, "b", &printed).map_err(|refusal| TestCaseError::fail(format!("{refusal}\n{printed}")))?;
            prop_assert_eq!(&again, &rule, "{}", printed);
        }
    }

    #[test]
    fn any_bytes_are_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        for syntax in [Syntax::Suricata, Syntax::Snort2, Syntax::Snort3] {
            files::parse(syntax, "a", &bytes);
        }
    }
}
