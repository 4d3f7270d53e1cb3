//! Exhaustion of memory: the engine first gives up the state of attacks on parsers and tables, and its
//! allocated bytes stay within its setting.

use millrace_ips_engine::flow::FLOW_SIZE;
use millrace_ips_engine::{Cause, Mode, Settings};
use millrace_types::Duration;
use millrace_wire::IpProto;
use millrace_wire::tcp::flags::ACK;

use crate::allocator::peak_of;
use crate::bed::{
    ATTACK, HOST_A, HOST_B, Segment, TestBed, datagram, fragment, handshake_of, ip, with_ident,
};
use crate::frames::udp;
use crate::synthesis::dns::message;

/// Memory of an engine in these tests, in bytes.
const MEMORY: usize = 4 << 20;
/// The memory that a packet may need temporarily, in bytes: the output of a decompression.
const MOMENT: usize = 4 << 20;

fn settings(mode: Mode) -> Settings {
    let settings = Settings {
        mode,
        ..Settings::default()
    };
    settings.within(MEMORY)
}

/// A connection from a port, whose ends send data in turn.
struct Talk {
    port: u16,
    sent: [u32; 2],
}

impl Talk {
    fn open(bed: &mut TestBed, port: u16) -> Talk {
        bed.send_all(handshake_of(port));
        Talk { port, sent: [0; 2] }
    }

    /// Sends data of an end in segments, and an acknowledgment of the other; returns true if one was dropped.
    fn say(&mut self, bed: &mut TestBed, from_client: bool, data: &[u8]) -> bool {
        let mut is_dropped = false;
        for part in data.chunks(1400) {
            is_dropped |= bed.send(self.segment(from_client, part).packet()).is_dropped();
            self.sent[usize::from(!from_client)] += part.len() as u32;
            is_dropped |= bed.send(self.segment(!from_client, &[]).packet()).is_dropped();
        }
        is_dropped
    }

    fn segment<'a>(&self, from_client: bool, data: &'a [u8]) -> Segment<'a> {
        let first = Segment::default();
        let next = [first.seq + self.sent[0], first.ack + self.sent[1]];
        let (seq, ack) = match from_client {
            true => (next[0], next[1]),
            false => (next[1], next[0]),
        };
        Segment {
            port: self.port,
            from_client,
            flags: ACK,
            seq,
            ack,
            data,
            ..Segment::default()
        }
    }
}

/// Returns a small gzip file that decompresses to many zero bytes.
fn bomb() -> &'static [u8] {
    static BOMB: std::sync::OnceLock<Vec<u8>> = std::sync::OnceLock::new();
    BOMB.get_or_init(|| {
        use std::io::Write;
        let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        out.write_all(&[0; 1 << 20]).unwrap();
        out.finish().unwrap()
    })
}

type Attack = fn(&mut TestBed, u16);

/// The attacks: a name, and a function that attacks on connections from a port.
const ATTACKS: &[(&str, Attack)] = &[
    ("requests without answers", |bed, port| {
        let mut talk = Talk::open(bed, port);
        for number in 0..40 {
            let request = format!("GET /{number}/{} HTTP/1.1\r\nHost: a\r\n\r\n", "x".repeat(1000));
            talk.say(bed, true, request.as_bytes());
        }
    }),
    ("headers that do not end", |bed, port| {
        let mut talk = Talk::open(bed, port);
        talk.say(bed, true, b"GET / HTTP/1.1\r\n");
        for number in 0..30 {
            talk.say(
                bed,
                true,
                format!("X-{number}: {}\r\n", "y".repeat(1300)).as_bytes(),
            );
        }
    }),
    ("bodies that do not end", |bed, port| {
        let mut talk = Talk::open(bed, port);
        talk.say(
            bed,
            true,
            b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n",
        );
        talk.say(bed, true, &[b'z'; 60_000]);
    }),
    ("inflate bombs", |bed, port| {
        let mut talk = Talk::open(bed, port);
        talk.say(bed, true, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        let bomb = bomb();
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {}\r\n\r\n",
            bomb.len()
        );
        talk.say(bed, false, head.as_bytes());
        talk.say(bed, false, bomb);
    }),
    ("bytes of no protocol", |bed, port| {
        let mut talk = Talk::open(bed, port);
        talk.say(bed, true, &[b'\0'; 6000]);
    }),
    ("streams with holes", |bed, port| {
        let mut talk = Talk::open(bed, port);
        talk.sent[0] = 1;
        for _ in 0..20 {
            talk.say(bed, true, &[b'h'; 1400]);
            talk.sent[0] += 1;
        }
    }),
    ("half-open connections", |bed, port| {
        for low in 0..30 {
            let mut syn = handshake_of(port)[0].clone();
            syn[15] = low;
            bed.send(syn);
        }
    }),
    ("ranges of files that are never whole", |bed, port| {
        let mut talk = Talk::open(bed, port);
        for number in 0..20 {
            let request = format!(
                "GET /{} HTTP/1.1\r\nHost: a\r\n\r\n",
                number % 7 + 7 * u32::from(port)
            );
            talk.say(bed, true, request.as_bytes());
            let (first, size) = (100_000 * (20 - number), 1 + 900 * (number % 3));
            let head = format!(
                "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes {first}-{}/*\r\nContent-Length: {size}\r\n\r\n",
                first + size - 1
            );
            talk.say(bed, false, head.as_bytes());
            talk.say(bed, false, &vec![b'x'; size as usize]);
        }
    }),
    ("fragments that never end", |bed, port| {
        let whole = with_ident(&ip((HOST_A, HOST_B), IpProto(99), &[1; 64]), port);
        for at in 0..20 {
            bed.send(fragment(&whole, at * 1400, true, &[1; 1400]));
        }
    }),
    ("alerts of many sources", |bed, port| {
        for low in 0..30 {
            let mut packet = datagram(b"storm");
            packet[12..16].copy_from_slice(&[11, (port >> 8) as u8, port as u8, low]);
            bed.send(packet);
        }
    }),
];

const RULES: &str = r#"
drop http any any -> any any (msg:"attack"; http.uri; content:"/attack"; sid:1;)
alert udp any any -> any any (msg:"a storm"; content:"storm"; threshold:type limit, track by_src, count 1, seconds 60; xbits:set,seen,track ip_src; sid:2;)
alert http any any -> any any (msg:"a header"; http.header; content:"X-1"; sid:3;)
alert http any any -> any any (msg:"a file"; file.data; content:"range"; sid:4;)
"#;

#[test]
fn the_bytes_of_an_engine_stay_inside_its_memory_under_each_attack() {
    for mode in [Mode::Ids, Mode::Ips] {
        for (name, attack) in ATTACKS {
            let mut bed = TestBed::with(settings(mode), RULES);
            let mut largest = 0;
            let peak = peak_of(|| {
                bed.renew();
                for port in 1..150 {
                    attack(&mut bed, port);
                    bed.forget_events();
                    largest = largest.max(bed.engine.parser_memory());
                }
            });
            assert!(largest <= MEMORY / 8, "{name}, {mode:?}: parsers took {largest}");
            assert!(
                peak <= MEMORY + MOMENT,
                "{name}, {mode:?}: {peak} bytes at a time"
            );
            bed.finish();
            assert_eq!(
                (bed.engine.memory(), bed.engine.parser_memory()),
                (0, 0),
                "{name}, {mode:?}"
            );
        }
    }
}

#[test]
fn the_flow_that_holds_most_gives_up_its_parser_and_others_are_inspected_as_before() {
    // Only the pool of parsers is small.
    let settings = Settings {
        segment_bytes: 64 << 20,
        ..settings(Mode::Ips)
    };
    let mut bed = TestBed::with(settings, RULES);
    let mut innocent = Talk::open(&mut bed, 60_000);
    assert!(!innocent.say(&mut bed, true, b"GET / HTTP/1.1\r\nHost: a\r\n"));
    let (_, attack) = ATTACKS[2];
    for port in 1..200 {
        attack(&mut bed, port);
    }
    let counters = bed.engine.counters();
    assert!(counters.parsers_given_up > 100, "{counters:?}");
    assert!(counters.exceptions[Cause::ParserMemory as usize] >= counters.parsers_given_up);
    assert!(
        !innocent.say(&mut bed, true, b"\r\n"),
        "the innocent connection goes on"
    );
    assert!(innocent.say(&mut bed, true, b"GET /attack HTTP/1.1\r\nHost: a\r\n\r\n"));
    assert!(bed.is_attack_found());
}

#[test]
fn flows_of_dns_that_wait_for_their_end_keep_their_parsers() {
    let mut bed = TestBed::with(settings(Mode::Ips), RULES);
    let query = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x07example\x03com\0\0\x01\0\x01";
    for number in 0..1500_u32 {
        let mut packet = datagram(query);
        packet[12..16].copy_from_slice(&(0x0b00_0000 + number).to_be_bytes());
        packet[22..24].copy_from_slice(&53_u16.to_be_bytes());
        // No checksum.
        packet[26..28].fill(0);
        bed.send(packet);
    }
    bed.forget_events();
    let (flows, counters) = (bed.engine.flows(), bed.engine.counters());
    assert!(flows > 1000, "{flows}");
    assert_eq!(counters.parsers_given_up, 0);
    let memory = bed.engine.parser_memory();
    assert!(
        (flows..flows * 300).contains(&memory),
        "{memory} bytes of {flows} flows"
    );
}

#[test]
fn beside_the_path_a_flow_that_gave_up_its_parser_passes_and_is_counted() {
    let mut bed = TestBed::with(settings(Mode::Ids), RULES);
    for port in 1..200 {
        let (_, attack) = ATTACKS[2];
        attack(&mut bed, port);
    }
    let counters = bed.engine.counters();
    assert!(counters.parsers_given_up > 100);
    assert_eq!(
        (
            counters.exceptions[Cause::ParserMemory as usize],
            counters.dropped
        ),
        (0, 0)
    );
}

#[test]
fn a_set_that_is_full_gives_up_one_of_its_flows_and_counts_it() {
    let settings = Settings {
        flows: 1024,
        ..settings(Mode::Ips)
    };
    let mut bed = TestBed::with(settings, ATTACK);
    for number in 0..1000_u32 {
        let mut syn = handshake_of(7)[0].clone();
        syn[12..16].copy_from_slice(&(0x0b00_0000 + number).to_be_bytes());
        bed.send(syn);
    }
    let counters = bed.engine.flow_counters();
    // 1,000 flows over 256 sets of eight: some sets get more than eight.
    assert!((1..100).contains(&counters.evicted_set), "{counters:?}");
    assert_eq!(bed.engine.flows() as u64, 1000 - counters.evicted_set);
    assert_eq!(counters.evicted_full, 0);
}

#[test]
fn a_packet_raises_at_most_fifteen_alerts_and_the_others_are_counted() {
    let rules: String = (1..=40)
        .map(|sid| format!("alert udp any any -> any any (msg:\"storm\"; content:\"storm\"; sid:{sid};)\n"))
        .collect();
    let mut bed = TestBed::with(settings(Mode::Ips), &rules);
    for _ in 0..100 {
        assert!(!bed.send(datagram(b"storm")).is_dropped());
    }
    assert_eq!(bed.alerts(), 1500);
    assert_eq!(bed.engine.detect_counters().alerts_lost, 2500);
}

#[test]
fn an_expression_that_backtracks_ends_at_its_limit_and_a_policy_decides() {
    let rules = r#"drop udp any any -> any any (msg:"slow"; content:"aaaa"; pcre:"/^(a+)+$/"; sid:1;)"#;
    let settings = Settings {
        policies: millrace_ips_engine::Policies::closed(),
        ..settings(Mode::Ips)
    };
    let mut bed = TestBed::with(settings, rules);
    let crafted = [&[b'a'; 1000][..], b"!"].concat();
    assert!(
        bed.send(datagram(&crafted)).is_dropped(),
        "the policy decides about the packet"
    );
    assert_eq!(bed.alerts(), 0);
    let counters = bed.engine.detect_counters();
    assert_eq!(counters.pcre_limits, 1);
    assert_eq!(bed.engine.counters().exceptions[Cause::MatchLimit as usize], 1);
}

#[test]
fn many_idle_flows_are_no_more_than_fit() {
    let settings = Settings {
        mode: Mode::Ips,
        ..Settings::default()
    }
    .within(2 << 20);
    let flows = settings.flows;
    assert!(flows * FLOW_SIZE < 2 << 20);
    let mut bed = TestBed::with(settings, ATTACK);
    for number in 0..20_000_u32 {
        let mut packet = datagram(b"x");
        packet[12..16].copy_from_slice(&(0x0b00_0000 + number).to_be_bytes());
        bed.now = bed.now + Duration::from_nanos(100_000);
        bed.send(packet);
        assert!(bed.engine.flows() <= flows);
    }
    let counters = bed.engine.flow_counters();
    assert_eq!(counters.created, 20_000);
    assert_eq!(
        bed.engine.flows() as u64,
        20_000 - counters.timeouts - counters.evicted_full - counters.evicted_set
    );
}

#[test]
fn a_long_flow_on_which_a_rule_matches_each_packet_keeps_its_memory() {
    let rule = r#"alert dns any any -> any any (dsize:>10; content:"example"; sid:1;)"#;
    let mut bed = TestBed::new(Mode::Ids, rule);
    let pair = [false, true].map(|is_reply| udp(53, is_reply, &message(b"a.example", is_reply).unwrap()));
    let mut exchange = |count: usize| {
        bed.send_all(pair.iter().cycle().take(2 * count).cloned());
        (bed.alerts(), bed.engine.parser_memory())
    };
    let (_, memory) = exchange(10);
    assert_eq!(exchange(1000), (2 * 1010, memory));
}
