//! Rule sets that deny by default: pass rules, and drop rules that name every packet. Nothing is forwarded that no pass rule
//! names.
//!
//! The oracle knows nothing of flows, streams and types of rules in the engine. It sees packets as the test sends them, and
//! says yes to a packet if a pass rule names it, or if one named its conversation before. It may say yes too often, as to a
//! conversation that the engine forgot; the engine may forward only what it says yes to.

mod passes;
mod talks;

use std::collections::HashSet;

use millrace_ips_engine::policy::{Cause, Policies, Policy};
use millrace_ips_engine::{Mode, Settings};
use millrace_types::Duration;
use millrace_wire::tcp::flags::{ACK, PSH, SYN};

use self::passes::Pass;
use self::talks::{Proto, Talk, host, icmpv6};
use crate::bed::{TestBed, acknowledgment, data, datagram, handshake};
use crate::synthesis::random::Random;

/// Rules that together name every packet that is not a fragment, in each type of rule that can.
const DENIALS: &[&[&str]] = &[
    &["drop ip any any -> any any (sid:1;)"],
    &["drop ip any any <> any any (sid:1;)"],
    &["drop ip any any -> any any (flow:stateless; sid:1;)"],
    &["drop ip any any -> any any (noalert; sid:1;)"],
    &["drop ip any any -> any any (hostbits:set,seen; sid:1;)"],
    &["drop ip any any -> any any (flowbits:set,seen; sid:1;)"],
    &["drop ip any any -> any any (ttl:>0; sid:1;)"],
    &["drop ip !10.9.9.9 any -> any any (sid:1;)"],
    &["drop ip [0.0.0.0/1,128.0.0.0/1,::/1,8000::/1] any -> any any (sid:1;)"],
    &["reject ip any any -> any any (sid:1;)"],
    &["reject ip any any -> any any (flow:stateless; sid:1;)"],
    &["sdrop ip any any -> any any (sid:1;)"],
    &[
        "drop tcp any any -> any any (sid:1;)",
        "drop udp any any -> any any (sid:2;)",
        "drop icmp any any -> any any (sid:3;)",
    ],
    &[
        "drop tcp any any -> any any (sid:1;)",
        "drop udp any any -> any any (sid:2;)",
        "drop icmpv4 any any -> any any (sid:3;)",
        "drop icmpv6 any any -> any any (sid:4;)",
    ],
    &[
        "drop tcp-pkt any any -> any any (sid:1;)",
        "drop udp any any -> any any (flow:stateless; sid:2;)",
        "drop icmp any any -> any any (flow:stateless; sid:3;)",
    ],
    &[
        "drop tcp-stream any any -> any any (sid:1;)",
        "drop udp any any -> any any (sid:2;)",
        "drop icmp any any -> any any (sid:3;)",
    ],
    &[
        "drop tcp any any -> any any (flow:only_stream; sid:1;)",
        "drop udp any any -> any any (flow:no_stream; sid:2;)",
        "drop icmp any any -> any any (flow:no_stream; sid:3;)",
    ],
    &[
        "drop ip any any -> any any (flow:no_frag; sid:1;)",
        "drop ip any any -> any any (flow:only_frag; sid:2;)",
    ],
];

/// Denials that need a flow. ICMP messages that begin no conversation have none, so the test sends none beside them.
const DENIALS_OF_FLOWS: &[&[&str]] = &[
    &["drop ip any any -> any any (flowbits:isnotset,never; sid:1;)"],
    &["drop ip any any -> any any (flowint:never,notset; sid:1;)"],
    &[
        "drop ip any any -> any any (flow:to_server; sid:1;)",
        "drop ip any any -> any any (flow:to_client; sid:2;)",
    ],
    &[
        "drop ip any any -> any any (flow:established; sid:1;)",
        "drop ip any any -> any any (flow:not_established; sid:2;)",
    ],
];

/// Returns pass rules and their text with the text of a denial, in any order.
fn rules(denial: &[&str], random: &mut Random) -> (Vec<Pass>, String) {
    let mut passes = HashSet::new();
    for _ in 0..random.below(5) {
        let port = random.choose(&[53, 80, 443]);
        let is_ipv6 = random.one_in(2);
        let ends = (host(is_ipv6, random.below(4)), host(is_ipv6, 4 + random.below(3)));
        passes.insert(match random.below(9) {
            0 => Pass::Handshake(port),
            1 => Pass::Flags(port, SYN),
            2 => Pass::Flags(port, random.choose(&[ACK, PSH | ACK])),
            3 => Pass::Datagrams(port),
            4 => Pass::Hosts(ends.0, ends.1),
            5 => Pass::Word(port),
            6 => Pass::WordInDatagram(port),
            7 => Pass::Echo,
            _ => Pass::Echo6,
        });
    }
    let passes: Vec<Pass> = passes.into_iter().collect();
    // The number of a rule follows from its text, so that a later set has the same rule.
    let sid = |pass: &Pass| {
        100 + pass
            .text(0)
            .bytes()
            .fold(0, |sum, byte| (sum * 31 + usize::from(byte)) % 100_000)
    };
    let mut lines: Vec<String> = passes.iter().map(|pass| pass.text(sid(pass))).collect();
    for line in denial {
        let at = random.below(lines.len() + 1);
        lines.insert(at, (*line).to_owned());
    }
    (passes, lines.join("\n"))
}

/// Sends conversations through an engine, and compares what it forwards with the oracle.
fn run(seed: u64, denials: &[&[&str]], has_messages: bool) -> Outcome {
    let mut random = Random(seed);
    let denial = denials[random.below(denials.len())];
    let (mut passes, mut text) = rules(denial, &mut random);
    // The smallest table has eight flows: flows are evicted, or new ones are refused.
    let on_flow_table = random.choose(&[Policy::DropFlow, Policy::Ignore]);
    let settings = Settings {
        mode: Mode::Ips,
        policies: Policies::closed().with(Cause::FlowTable, on_flow_table),
        flows: random.choose(&[8, 4096]),
        idle_search: random.choose(&[0, 16]),
        ..Settings::default()
    };
    let mut bed = TestBed::with(settings, &text);
    let mut talks: Vec<Talk> = (0..12).map(|_| Talk::new(&mut random)).collect();
    // Two conversations with the same ends would have different numbers.
    let mut keys = HashSet::new();
    talks.retain(|talk| keys.insert(talk.key()));
    let mut named: HashSet<(usize, Pass)> = HashSet::new();
    let mut outcome = Outcome::default();
    for _ in 0..300 {
        if random.one_in(60) {
            let denial = denials[random.below(denials.len())];
            (passes, text) = rules(denial, &mut random);
            bed.reload(&text);
        }
        if random.one_in(80) {
            bed.now = bed.now + Duration::from_secs(random.choose(&[40, 700]));
        }
        bed.now = bed.now + Duration::from_millis(1);
        let index = random.below(talks.len());
        let (mut shown, mut sent) = talks[index].next(&mut random);
        if has_messages && random.one_in(12) && talks[index].proto != Proto::Echo {
            (shown, sent) = talks[index].message(&sent.packet, &mut random);
        }
        let talk = &talks[index];
        let is_named = passes.iter().any(|pass| pass.names_packet(&shown, talk));
        for pass in &passes {
            if pass.names_talk(&shown, talk) {
                named.insert((index, *pass));
            }
        }
        let is_of_talk = shown.proto != Proto::Message;
        let is_named = is_named || is_of_talk && passes.iter().any(|pass| named.contains(&(index, *pass)));
        // A datagram arrives if each of its fragments does.
        let mut is_forwarded = true;
        let is_whole = sent.pieces.len() == 1;
        for piece in sent.pieces {
            is_forwarded &= !bed.send(piece).is_dropped();
        }
        assert!(
            is_named || !is_forwarded,
            "seed {seed}: no pass rule names packet {}, {shown:?} of {talk:?}\n{text}",
            outcome.sent
        );
        if is_forwarded && shown.flags & (SYN | ACK) == SYN {
            named.retain(|(of, _)| *of != index);
            talks[index].bytes = Default::default();
            for pass in &passes {
                if pass.names_talk(&shown, &talks[index]) {
                    named.insert((index, *pass));
                }
            }
        }
        outcome.sent += 1;
        outcome.forwarded += usize::from(is_forwarded);
        let is_ipv6 = is_forwarded && shown.src.0.is_ipv6();
        outcome.extended += usize::from(is_ipv6 && sent.is_extended);
        outcome.assembled += usize::from(is_ipv6 && !is_whole);
    }
    let counters = bed.engine.flow_counters();
    outcome.evicted = counters.evicted_full + counters.evicted_set;
    outcome.refused = bed.engine.counters().exceptions[Cause::FlowTable as usize];
    outcome
}

/// The packets of a run, or of several.
#[derive(Debug, Default)]
struct Outcome {
    sent: usize,
    forwarded: usize,
    /// Forwarded packets of IPv6 with extension headers, and forwarded ones that came in fragments.
    extended: usize,
    assembled: usize,
    /// Flows that made room for others.
    evicted: u64,
    /// Packets that began no flow because the table was full.
    refused: u64,
}

impl Outcome {
    fn add(&mut self, other: &Outcome) {
        self.sent += other.sent;
        self.forwarded += other.forwarded;
        self.extended += other.extended;
        self.assembled += other.assembled;
        self.evicted += other.evicted;
        self.refused += other.refused;
    }
}

#[test]
fn a_set_that_denies_by_default_forwards_nothing_that_no_pass_rule_names() {
    let mut all = Outcome::default();
    for seed in 0..600 {
        all.add(&run(seed, DENIALS, true));
    }
    for seed in 0..100 {
        all.add(&run(seed, DENIALS_OF_FLOWS, false));
    }
    println!("{all:?}");
    assert!(
        all.forwarded * 40 > all.sent,
        "few packets were forwarded: {all:?}"
    );
    // Those of IPv6 among them: an engine that drops them all would need no rules.
    assert!(all.extended > 500 && all.assembled > 20, "{all:?}");
    // The table of flows was full, in both ways of its policy.
    assert!(all.evicted > 1000 && all.refused > 1000, "{all:?}");
}

#[test]
fn neighbour_discovery_passes_by_a_rule_with_its_types() {
    let denial = "drop ip any any -> any any (sid:1;)";
    let pass = "pass icmpv6 any any -> any any (itype:132<>138; sid:2;)";
    for (rules, is_passed) in [(denial.to_owned(), false), (format!("{denial}\n{pass}"), true)] {
        let mut bed = TestBed::new(Mode::Ips, &rules);
        for kind in 133..=137 {
            assert_eq!(!bed.send(icmpv6(kind)).is_dropped(), is_passed, "{kind}, {rules}");
        }
        assert!(bed.send(icmpv6(128)).is_dropped());
    }
}

#[test]
fn a_protocol_that_no_datagram_has_is_none_of_the_named_ones() {
    let mut bed = TestBed::new(
        Mode::Ips,
        "drop udp any any -> any any (app-layer-protocol:!dns; sid:1;)",
    );
    assert!(
        bed.send(datagram(b"this is no message of any protocol"))
            .is_dropped()
    );
}

#[test]
fn a_rule_over_a_flow_that_a_passed_packet_matched_drops_the_next_packet() {
    // The types of rules over flows: addresses, protocol, stream, transaction.
    for denial in [
        "drop ip any any -> any any (sid:1;)",
        "drop http any any -> any any (sid:1;)",
        "drop tcp any any -> any any (content:\"GET\"; sid:1;)",
        "drop http any any -> any any (http.uri; content:\"/a\"; sid:1;)",
        "reject http any any -> any any (http.uri; content:\"/a\"; sid:1;)",
    ] {
        let passes = "pass tcp any any <> any any (flow:not_established; sid:2;)
            pass tcp any any -> any any (flow:to_server; dsize:>20; sid:3;)";
        let mut bed = TestBed::new(Mode::Ips, &format!("{denial}\n{passes}"));
        bed.send_all(handshake());
        if denial.contains(" http") || denial.contains("content") {
            let request = b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n";
            assert!(!bed.send(data(0, request)).is_dropped(), "{denial}");
            assert_eq!(bed.alerts(), 0, "{denial}");
            assert!(bed.send(acknowledgment(27)).is_dropped(), "{denial}");
        } else {
            assert_eq!(bed.alerts(), 0, "{denial}");
            assert!(bed.send(acknowledgment(0)).is_dropped(), "{denial}");
        }
        assert_eq!(bed.alerts(), 1, "{denial}");
        // The rule dropped the flow, so that packets that a rule would pass are dropped, too.
        assert!(bed.send(data(27, &[b'x'; 30])).is_dropped(), "{denial}");
    }
}

#[test]
fn a_flow_is_judged_again_when_the_rule_that_passed_it_is_gone() {
    let denial = "drop ip any any -> any any (flow:stateless; sid:1;)";
    let pass = "pass udp any any -> any any (content:\"good\"; sid:2;)";
    let host = "pass ip 10.0.0.1 any -> any any (sid:3;)";
    let mut bed = TestBed::new(Mode::Ips, &format!("{denial}\n{host}"));
    assert!(!bed.send(datagram(b"x")).is_dropped());
    // The order and the number of the rules do not count, their text does.
    bed.reload(&format!("{pass}\n{denial}\n{host}"));
    assert!(!bed.send(datagram(b"x")).is_dropped());
    bed.reload(&format!("{denial}\n{pass}"));
    assert!(bed.send(datagram(b"x")).is_dropped());
}
