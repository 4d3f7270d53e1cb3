//! The kinds of `../shared/data/ips-cases` that no other file of tests generates: at least 200 variants of each, in both modes.
//! Beside the path the rule of a variant raises its alert, and a broken rule does not; in line a packet of it is dropped.

use std::collections::BTreeSet;

use millrace_ips_engine::Mode;
use millrace_wire::tcp::flags::{ACK, FIN, PSH, RST, SYN};

use crate::bed::{CLIENT, HOST_A, HOST_B, SERVER, Segment, TestBed, acknowledgment, data, datagram};
use crate::conversation::Conversation;
use crate::synthesis::random::Random;

const MODES: [Mode; 2] = [Mode::Ids, Mode::Ips];
const VARIANTS: u64 = 220;

/// Returns letters and digits.
fn word(random: &mut Random, size: usize) -> String {
    let letters: Vec<char> = ('a'..='z').chain('0'..='9').collect();
    (0..size).map(|_| random.choose(&letters)).collect()
}

/// Sends the client's bytes to a port in segments of a size. Returns the rules that matched, and true if a segment was dropped.
fn found(
    mode: Mode,
    rules: &str,
    port: u16,
    messages: &[(bool, Vec<u8>)],
    size: usize,
) -> (BTreeSet<u32>, bool) {
    let mut bed = TestBed::new(mode, rules);
    let mut talk = Conversation::open(&mut bed, (HOST_A, 40_000), (HOST_B, port));
    let mut is_dropped = false;
    for (is_server, bytes) in messages {
        for part in bytes.chunks(size) {
            is_dropped |= match is_server {
                true => talk.server(&mut bed, part),
                false => talk.client(&mut bed, part),
            };
        }
    }
    talk.close(&mut bed);
    bed.finish();
    (bed.sids(), is_dropped)
}

/// Asserts that the rule with sid 1 matches on a message of the client, that no other does, and that it drops a segment in line.
fn check(rules: &str, port: u16, messages: &[(bool, Vec<u8>)], random: &mut Random) {
    let size = random.choose(&[1, 3, 17, 1_400]);
    for mode in MODES {
        let (sids, is_dropped) = found(mode, rules, port, messages, size);
        let text = || format!("{mode:?}, segments of {size}, {messages:?}\n{rules}");
        assert_eq!(sids, BTreeSet::from([1]), "{}", text());
        assert_eq!(is_dropped, mode == Mode::Ips, "{}", text());
    }
}

/// Returns bytes in base64 (RFC 4648, section 4).
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let group = |group: &[u8]| {
        let bits = group
            .iter()
            .chain([&0; 2])
            .take(3)
            .fold(0, |bits, byte| bits << 8 | usize::from(*byte));
        let digit = |at: usize| match at > group.len() {
            true => '=',
            false => char::from(DIGITS[bits >> (18 - 6 * at) & 63]),
        };
        (0..4).map(digit).collect::<String>()
    };
    bytes.chunks(3).map(group).collect()
}

/// Case 02: options that are relative to a content with a modifier of the older style.
#[test]
fn options_relative_to_a_content_of_a_buffer_read_the_buffer() {
    for seed in 0..VARIANTS {
        let random = &mut Random(seed);
        let (sizes, values) = ([4, 6, 8].map(|most| 2 + random.below(most)), random.clone());
        let value = |number: usize, size: usize| {
            word(
                &mut Random(values.clone().below(1 << 30) as u64 + number as u64),
                size,
            )
        };
        let path = format!("/{}", value(0, sizes[0] + 4));
        let (agent, cookie) = (value(1, sizes[1] + 4), value(2, sizes[2] + 4));
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: example.net\r\nUser-Agent: {agent}\r\nCookie: {cookie}\r\n\r\n"
        );
        let (modifier, whole) = random.choose(&[
            ("http_uri", &*path),
            ("http_raw_uri", &*path),
            ("http_user_agent", &*agent),
            ("http_cookie", &*cookie),
            ("http_host", "example.net"),
        ]);
        let cut = 1 + random.below(whole.len() - 1);
        let (matched, rest) = whole.split_at(cut);
        let (next, len) = (rest.as_bytes()[0], rest.len());
        let (right, wrong) = match random.below(4) {
            0 => (
                format!("byte_test:1,=,{next},0,relative;"),
                format!("byte_test:1,=,{},0,relative;", next ^ 1),
            ),
            1 => (
                format!("isdataat:{len},relative;"),
                format!("isdataat:{},relative;", len + 1),
            ),
            2 => (
                format!("isdataat:!{},relative;", len + 1),
                format!("isdataat:!{len},relative;"),
            ),
            _ => (
                format!("byte_jump:0,0,relative,post_offset {len}; isdataat:!1,relative;"),
                format!("byte_jump:0,0,relative,post_offset {}; isdataat:1,relative;", len),
            ),
        };
        // The first occurrence of the content need not be at the beginning of the buffer.
        let start = "startswith; ";
        let rule = |sid: u32, option: &str| {
            format!(
                "drop http any any -> any any (content:\"{matched}\"; {start}{modifier}; {option} sid:{sid};)\n"
            )
        };
        let rules = rule(1, &right) + &rule(2, &wrong);
        check(&rules, 80, &[(false, request.into_bytes())], random);
    }
}

/// Case 03: the length of a URI is that of the normalised one.
#[test]
fn urilen_counts_the_normalised_uri_and_the_raw_one_if_it_is_asked() {
    for seed in 0..VARIANTS {
        let random = &mut Random(seed);
        let mut raw = "/".to_owned();
        let mut norm = 1;
        for _ in 0..1 + random.below(30) {
            let letter = word(random, 1);
            match random.below(4) {
                0 => raw += &format!("%{:02x}", letter.as_bytes()[0]),
                1 => raw += &format!("%{:02X}", letter.as_bytes()[0]),
                _ => raw += &letter,
            }
            norm += 1;
        }
        let is_raw = random.one_in(3);
        let (len, other) = match is_raw {
            true => (raw.len(), raw.len() + 1),
            false => (norm, norm + 1),
        };
        let kind = match is_raw {
            true => ",raw",
            false => random.choose(&["", ",norm"]),
        };
        let (right, wrong) = match random.below(4) {
            0 => (format!("{len}"), format!("{other}")),
            1 => (format!(">{}", len - 1), format!(">{len}")),
            2 => (format!("<{}", len + 1), format!("<{len}")),
            _ => (format!("{}<>{}", len - 1, len + 1), format!("{len}<>{}", len + 9)),
        };
        let rules = format!(
            "drop http any any -> any any (urilen:{right}{kind}; sid:1;)\n\
             drop http any any -> any any (urilen:{wrong}{kind}; sid:2;)\n"
        );
        let request = format!("GET {raw} HTTP/1.1\r\nHost: a\r\n\r\n");
        check(&rules, 80, &[(false, request.into_bytes())], random);
    }
}

/// Case 07: a request line with more spaces than two.
#[test]
fn a_uri_with_white_space_hides_nothing_behind_it() {
    let rules = "drop http any any -> any any (http.uri; content:\"evil\"; sid:1;)";
    for seed in 0..VARIANTS {
        let random = &mut Random(seed);
        let mut parts = vec![word(random, 3), "evil".to_owned(), word(random, 2)];
        parts.swap(random.below(3), random.below(3));
        let space = |random: &mut Random| random.choose(&[" ", "  ", "\t", " \t ", "\x0b", "\x0c "]);
        let uri = parts
            .iter()
            .fold("/x".to_owned(), |uri, part| uri + space(random) + part);
        let protocol = random.choose(&["HTTP/1.1", "HTTP/1.0"]);
        let request = format!(
            "GET {uri}{}{protocol}\r\nHost: a\r\n\r\n",
            random.choose(&[" ", "  "])
        );
        let size = random.choose(&[1, 5, 1_400]);
        for mode in MODES {
            let (sids, is_dropped) = found(mode, rules, 80, &[(false, request.clone().into_bytes())], size);
            assert!(mode == Mode::Ips || sids.contains(&1), "{request:?}");
            assert_eq!(is_dropped, mode == Mode::Ips, "{request:?}");
        }
    }
}

/// Cases 08a and 08b: segments before the answer to the SYN that the server ignores, and data in the SYN.
#[test]
fn segments_before_the_answer_to_the_syn_hide_no_data() {
    for seed in 0..VARIANTS {
        let random = &mut Random(seed);
        let timestamps =
            |value: u32, echo: u32| [&[1, 1, 8, 10][..], &value.to_be_bytes(), &echo.to_be_bytes()].concat();
        let has_timestamps = random.one_in(2);
        let options = if has_timestamps {
            timestamps(1000, 0)
        } else {
            Vec::new()
        };
        let md5 = [&[19, 18][..], &[7; 16], &[1, 1]].concat();
        let mut early = Vec::new();
        for _ in 0..1 + random.below(3) {
            // An acknowledgment of nothing that the server has sent: it ignores the segment (RFC 9293, section 3.10.7.3).
            let wrong = [timestamps(random.below(900) as u32, 77), md5.clone(), Vec::new()];
            early.push(Segment {
                flags: random.choose(&[RST, RST | ACK, FIN | ACK, FIN | ACK | PSH]),
                seq: CLIENT.wrapping_add(1 + 100_000 + random.below(100_000) as u32),
                ack: SERVER.wrapping_add(random.below(5) as u32),
                options: Box::leak(wrong[random.below(3)].clone().into_boxed_slice()),
                ..Segment::default()
            });
        }
        for mode in MODES {
            let mut bed = TestBed::inline();
            if mode == Mode::Ids {
                bed = TestBed::new(mode, crate::bed::ATTACK);
            }
            let syn = Segment {
                flags: SYN,
                seq: CLIENT,
                ack: 0,
                options: &options,
                ..Segment::default()
            };
            bed.send(syn.packet());
            for segment in &early {
                bed.send(segment.packet());
            }
            let answer = if has_timestamps {
                timestamps(5000, 1000)
            } else {
                Vec::new()
            };
            let syn_ack = Segment {
                from_client: false,
                flags: SYN | ACK,
                seq: SERVER,
                ack: CLIENT + 1,
                options: &answer,
                ..Segment::default()
            };
            bed.send(syn_ack.packet());
            let later = if has_timestamps {
                timestamps(1001, 5000)
            } else {
                Vec::new()
            };
            let own = |offset: u32, bytes: &[u8]| {
                Segment {
                    seq: CLIENT + 1 + offset,
                    data: bytes,
                    options: &later,
                    ..Segment::default()
                }
                .packet()
            };
            bed.send(own(0, b""));
            let mut is_dropped = bed.send(own(0, b"the att")).is_dropped();
            is_dropped |= bed.send(own(7, b"ack")).is_dropped();
            let last = if has_timestamps {
                timestamps(5001, 1001)
            } else {
                Vec::new()
            };
            let acked = Segment {
                from_client: false,
                seq: SERVER + 1,
                ack: CLIENT + 11,
                options: &last,
                ..Segment::default()
            };
            bed.send(acked.packet());
            bed.finish();
            let text = format!("{mode:?}, seed {seed}: {early:?}");
            assert!(bed.is_attack_found() || mode == Mode::Ips && is_dropped, "{text}");
            assert_eq!(is_dropped, mode == Mode::Ips, "{text}");
        }
    }
}

const ENCODINGS: [&str; 3] = ["7bit", "base64", "quoted-printable"];

/// Returns a text in an encoding, one of [`ENCODINGS`]: as it is, in base64, or in quoted-printable, in which the word "needle" is broken.
fn coded(text: &str, coding: usize) -> String {
    match coding {
        0 => text.to_owned(),
        1 => {
            let code = base64(text.as_bytes());
            let lines = code
                .as_bytes()
                .chunks(76)
                .map(|line| core::str::from_utf8(line).unwrap());
            lines.map(|line| format!("{line}\r\n")).collect()
        }
        _ => text.replace('=', "=3D").replace("needle", "n=65edle"),
    }
}

/// Returns a text with the encoding that it declares: it has that or none. `left` is the number of further declarations.
fn declared(text: &str, left: &mut usize, random: &mut Random) -> (&'static str, String) {
    let coding = if *left > 0 { random.below(3) } else { 0 };
    *left -= usize::from(coding > 0);
    let actual = if random.one_in(3) { 0 } else { coding };
    (ENCODINGS[coding], coded(text, actual))
}

/// Returns a message in whose innermost part is the needle, with this number of messages around that.
fn letter(depth: usize, left: &mut usize, random: &mut Random) -> String {
    let subject = format!("Subject: {}\r\n", word(random, 5));
    if depth == 0 {
        let coding = random.below(3);
        return format!(
            "{subject}Content-Type: a/b; name={}.bin\r\nContent-Transfer-Encoding: {}\r\n\r\n{}\r\n",
            word(random, 4),
            ENCODINGS[coding],
            coded("this is the needle of it", coding),
        );
    }
    let inner = letter(depth - 1, left, random);
    let kind = random.choose(&[
        "message/rfc822; name=letter.eml",
        "message/rfc822\r\nContent-Disposition: attachment; filename=letter.eml",
        "message/rfc822",
        "message/global",
    ]);
    let (encoding, body) = declared(&inner, left, random);
    let head = format!("Content-Type: {kind}\r\nContent-Transfer-Encoding: {encoding}\r\n\r\n");
    if random.one_in(2) {
        return subject + &head + &body;
    }
    let before = format!("Content-Type: text/plain\r\n\r\n{}\r\n", word(random, 9));
    let edge = format!("edge{depth}");
    let parts = format!("--{edge}\r\n{before}--{edge}\r\n{head}{body}\r\n--{edge}--\r\n");
    let (encoding, parts) = declared(&parts, left, random);
    format!(
        "{subject}Content-Type: multipart/mixed; boundary={edge}\r\nContent-Transfer-Encoding: {encoding}\r\n\r\n{parts}"
    )
}

/// Case 09: messages and multiparts in a mail that declare an encoding which they may not have (RFC 2045, section 6.4; RFC 2046,
/// section 5.2.1), one in another.
#[test]
fn a_message_in_a_mail_is_inspected_with_the_encoding_that_it_has() {
    let rules = "drop smtp any any -> any any (file.data; content:\"the needle\"; sid:1;)";
    for seed in 0..VARIANTS {
        let random = &mut Random(seed);
        // As many encodings may be one in another as the engine follows.
        let mail = letter(1 + random.below(4), &mut 4, random);
        let messages = [
            (true, b"220 x\r\n".to_vec()),
            (false, b"EHLO x\r\n".to_vec()),
            (true, b"250 x\r\n".to_vec()),
            (false, b"MAIL FROM:<a>\r\nRCPT TO:<b>\r\nDATA\r\n".to_vec()),
            (true, b"250 x\r\n250 x\r\n354 x\r\n".to_vec()),
            (false, format!("{mail}\r\n.\r\n").into_bytes()),
        ];
        check(rules, 25, &messages, random);
    }
}

/// Case 10: `byte_jump` of any number of bytes, with `post_offset`, compared with the position that its documentation gives.
#[test]
fn byte_jump_moves_by_the_value_and_its_post_offset() {
    for seed in 0..VARIANTS {
        let random = &mut Random(seed);
        let payload: Vec<u8> = (0..60).map(|_| random.below(6) as u8).collect();
        let payload = [b"CD".to_vec(), payload].concat();
        let (count, offset) = (random.choose(&[0, 1, 2]), random.below(8));
        let after = random.below(20);
        let is_relative = random.one_in(2);
        let from = if is_relative { 2 + offset } else { offset };
        let value = payload[from..from + count]
            .iter()
            .fold(0, |value, byte| value << 8 | usize::from(*byte));
        let target = from + count + value + after;
        if target + 1 > payload.len() {
            continue;
        }
        let relative = if is_relative { ",relative" } else { "" };
        let jump = format!("byte_jump:{count},{offset}{relative},post_offset {after};");
        let rest = payload.len() - target;
        // The place of the next content is known by what is left behind it.
        let rules = format!(
            "drop udp any any -> any any (content:\"CD\"; {jump} isdataat:{rest},relative; isdataat:!{},relative; sid:1;)\n\
             drop udp any any -> any any (content:\"CD\"; {jump} isdataat:{},relative; sid:2;)\n",
            rest + 1,
            rest + 1,
        );
        for mode in MODES {
            let mut bed = TestBed::new(mode, &rules);
            let is_dropped = bed.send(datagram(&payload)).is_dropped();
            assert_eq!(
                bed.sids(),
                BTreeSet::from([1]),
                "{mode:?}, seed {seed}: {rules}{payload:?}"
            );
            assert_eq!(is_dropped, mode == Mode::Ips);
        }
    }
}

/// Case 08b: data in a SYN that the server acknowledges.
#[test]
fn data_in_a_syn_that_are_acknowledged_are_part_of_the_stream() {
    for seed in 0..VARIANTS {
        let random = &mut Random(seed);
        let cut = 1 + random.below(9);
        let (first, rest) = b"the attack".split_at(cut);
        // TCP fast open (RFC 7413) with its option, the experimental one, or none.
        let options = random.choose(&[
            &[34, 10, 1, 2, 3, 4, 5, 6, 7, 8, 1, 1][..],
            &[254, 12, 0xf9, 0x89, 1, 2, 3, 4, 5, 6, 7, 8],
            &[34, 2, 1, 1],
            &[],
        ]);
        for mode in MODES {
            let mut bed = TestBed::new(mode, crate::bed::ATTACK);
            let syn = Segment {
                flags: SYN,
                seq: CLIENT,
                ack: 0,
                data: first,
                options,
                ..Segment::default()
            };
            let sent = bed.send(syn.packet());
            // In line the data are cut off, so the server acknowledges none, and they come again.
            let acked = if mode == Mode::Ips { 0 } else { cut as u32 };
            let syn_ack = Segment {
                from_client: false,
                flags: SYN | ACK,
                seq: SERVER,
                ack: CLIENT + 1 + acked,
                ..Segment::default()
            };
            bed.send(syn_ack.packet());
            let bytes = if mode == Mode::Ips { b"the attack" } else { rest };
            let packet = data(acked, bytes);
            let is_dropped = bed.send(packet).is_dropped() || sent.is_dropped();
            bed.send(acknowledgment(10));
            bed.finish();
            let text = format!("{mode:?}, seed {seed}: cut at {cut}, {options:?}");
            assert!(bed.is_attack_found(), "{text}");
            assert_eq!(is_dropped, mode == Mode::Ips, "{text}");
        }
    }
}
