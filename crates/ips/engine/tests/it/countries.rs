//! The countries of addresses, from a database that these tests write.

use std::net::Ipv4Addr;

use millrace_ips_engine::Mode;
use millrace_ips_engine::detect::{CompileSettings, compile};
use millrace_ips_rules::{RuleSet, Syntax, Variables, files};
use proptest::prelude::*;

use crate::frames::{alerts, udp};

/// A branch of the search tree.
#[derive(Clone, Copy)]
enum Branch {
    Nothing,
    Node(usize),
    /// The place of a value in the data section.
    Value(usize),
}

/// Returns a field of a database: its type (at most 7) in the upper bits, the size, and the bytes.
fn field(kind: u8, bytes: &[u8]) -> Vec<u8> {
    assert!(bytes.len() < 29, "longer sizes have another form");
    [&[kind << 5 | bytes.len() as u8], bytes].concat()
}

fn text(text: &str) -> Vec<u8> {
    field(2, text.as_bytes())
}

fn map(entries: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let mut out = vec![7 << 5 | entries.len() as u8];
    for (key, value) in entries {
        out.extend(text(key));
        out.extend(value);
    }
    out
}

/// Returns a database of IPv4 networks (MaxMind DB File Format Specification 2.0) with records of 24 bits.
fn database(networks: &[(Ipv4Addr, u32, &str)]) -> Vec<u8> {
    let mut nodes = vec![[Branch::Nothing; 2]];
    let mut data = Vec::new();
    for (address, prefix, country) in networks {
        let value = data.len();
        data.extend(map(&[("country", map(&[("iso_code", text(country))]))]));
        let mut at = 0;
        for depth in 0..*prefix {
            let bit = (address.to_bits() >> (31 - depth) & 1) as usize;
            at = match nodes[at][bit] {
                _ if depth + 1 == *prefix => {
                    nodes[at][bit] = Branch::Value(value);
                    break;
                }
                Branch::Node(next) => next,
                _ => {
                    nodes.push([Branch::Nothing; 2]);
                    let next = nodes.len() - 1;
                    nodes[at][bit] = Branch::Node(next);
                    next
                }
            };
        }
    }
    let count = nodes.len();
    let record = |branch: &Branch| match branch {
        Branch::Nothing => count,
        Branch::Node(node) => *node,
        Branch::Value(place) => count + 16 + place,
    };
    let mut out: Vec<u8> = nodes
        .iter()
        .flatten()
        .flat_map(|branch| record(branch).to_be_bytes()[5..].to_vec())
        .collect();
    out.extend([0; 16]);
    out.extend(data);
    out.extend(b"\xab\xcd\xefMaxMind.com");
    let number = |number: u16| field(5, &number.to_be_bytes());
    out.extend(map(&[
        ("node_count", field(6, &(count as u32).to_be_bytes())),
        ("record_size", number(24)),
        ("ip_version", number(4)),
        ("database_type", text("Test-Country")),
        // An array and a number of 64 bits are extended types.
        ("languages", vec![0, 11 - 7]),
        ("binary_format_major_version", number(2)),
        ("binary_format_minor_version", number(0)),
        ("build_epoch", vec![0, 9 - 7]),
        ("description", map(&[])),
    ]));
    out
}

/// Returns the refusals of rules beside a file, and the alerts on a packet from 10.0.0.1 to 10.0.0.2.
fn outcome(file: &[u8], options: &str, mode: Mode) -> (Vec<String>, Vec<u32>) {
    let mut set = RuleSet::default();
    let variables = Variables::usual();
    let rule = format!("alert udp any any -> any any ({options} sid:1;)\n");
    for (name, bytes) in [("rules", rule.as_bytes()), ("countries.mmdb", file)] {
        set.add(name, files::parse(Syntax::Suricata, name, bytes), &variables);
    }
    let (rules, refusals) = compile(&set, &CompileSettings::default());
    let refusals = set.refusals().iter().chain(&refusals).map(ToString::to_string);
    (refusals.collect(), alerts(&rules, &[udp(9, false, b"x")], mode))
}

#[test]
fn the_country_of_an_address_is_tested_on_each_side() {
    let file = database(&[
        (Ipv4Addr::new(10, 0, 0, 1), 32, "NL"),
        (Ipv4Addr::new(10, 0, 0, 2), 31, "JP"),
        (Ipv4Addr::new(192, 0, 2, 0), 24, "US"),
    ]);
    for (options, holds) in [
        ("geoip:src,NL;", true),
        ("geoip:src, jp;", false),
        ("geoip:dst,US,JP;", true),
        ("geoip:both,NL;", false),
        ("geoip:both,NL,JP;", true),
        ("geoip:any,JP;", true),
        ("geoip:any,US;", false),
        ("geoip:JP;", true),
        ("geoip:src,!NL,!JP;", false),
        ("geoip:src,!US;", true),
        ("geoip:both,!JP;", false),
        ("geoip:any,!JP;", true),
    ] {
        for mode in [Mode::Ids, Mode::Ips] {
            let (refusals, found) = outcome(&file, options, mode);
            assert!(refusals.is_empty(), "{options}: {refusals:?}");
            assert_eq!(found == [1], holds, "{options} {mode:?}");
        }
    }
}

#[test]
fn an_address_without_a_country_is_in_none_and_not_outside_of_one() {
    let file = database(&[(Ipv4Addr::new(192, 0, 2, 0), 24, "US")]);
    for options in ["geoip:src,US;", "geoip:src,!US;"] {
        let (refusals, found) = outcome(&file, options, Mode::Ids);
        assert_eq!((refusals, found), (vec![], vec![]), "{options}");
    }
}

#[test]
fn countries_without_a_database_or_of_another_form_are_refused() {
    let file = database(&[]);
    let refusal = |file: &[u8], options| outcome(file, options, Mode::Ids).0.join("\n");
    assert!(refusal(b"", "geoip:src,NL;").contains("there is no database of countries"));
    let many = format!("geoip:src{};", ",NL".repeat(65));
    for options in ["geoip:src;", "geoip:NLD;", "geoip:src,!NL,JP;", "geoip:", &many] {
        let refusal = refusal(&file, options);
        assert!(refusal.contains("geoip"), "{options}: {refusal}");
    }
}

proptest! {
    #[test]
    fn a_damaged_database_is_refused_or_read(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8)) {
        let mut file = database(&[(Ipv4Addr::new(10, 0, 0, 1), 32, "NL"), (Ipv4Addr::new(10, 0, 0, 2), 31, "JP")]);
        for (at, byte) in changes {
            let at = at.index(file.len());
            file[at] = byte;
        }
        outcome(&file, "geoip:any,NL;", Mode::Ids);
    }
}
