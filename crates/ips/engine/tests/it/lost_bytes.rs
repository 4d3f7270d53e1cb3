//! Bytes that a parser cannot follow any more: what waits for an answer, chained commands, more requests, commands and
//! files than are remembered. In line, the receiver never gets the whole of what a rule forbids; beside the path, a rule finds it,
//! or an anomaly names what was lost.

use millrace_ips_engine::policy::{Cause, Policy};
use millrace_ips_engine::{Mode, Policies, Settings};

use crate::bed::{HOST_A, HOST_B, TestBed};
use crate::conversation::Conversation;
use crate::synthesis::random::Random;

const MODES: [Mode; 2] = [Mode::Ids, Mode::Ips];

/// Returns an engine that goes on after messages with several readings, so that only rules and lost bytes decide.
fn bed(mode: Mode, rules: &str) -> TestBed {
    let settings = Settings {
        mode,
        policies: Policies::closed().with(Cause::AmbiguousMessage, Policy::Ignore),
        ..Settings::default()
    };
    TestBed::with(settings, rules)
}

/// Sends bytes of an end in segments of a size. Returns true if one of those up to the byte at `end` was dropped: the receiver
/// does not have all bytes before it.
fn send(
    bed: &mut TestBed,
    talk: &mut Conversation,
    is_client: bool,
    bytes: &[u8],
    (size, end): (usize, usize),
) -> bool {
    let mut is_dropped = false;
    for (at, part) in bytes.chunks(size).enumerate() {
        let now = match is_client {
            true => talk.client(bed, part),
            false => talk.server(bed, part),
        };
        is_dropped |= now && at * size < end;
    }
    is_dropped
}

/// Returns a number of messages: mostly few, sometimes as many as fit into 64 KiB.
fn some(random: &mut Random, most: usize) -> usize {
    match random.below(12) {
        0 => most - random.below(most / 8),
        1 => 200 + random.below(500),
        _ => random.below(40),
    }
}

/// Returns numbered parts with `evil` among them at `at`, and the offset of its end.
fn among(count: usize, at: usize, evil: &[u8], other: impl Fn(usize) -> Vec<u8>) -> (Vec<u8>, usize) {
    let (mut bytes, mut end) = (Vec::new(), 0);
    for number in 0..=count {
        if number == at {
            bytes.extend_from_slice(evil);
            end = bytes.len();
        } else {
            bytes.extend(other(number));
        }
    }
    (bytes, end)
}

#[test]
fn requests_behind_a_connect_pass_no_rule_unseen_whatever_the_server_answers() {
    let rules = r#"drop http any any -> any any (http.uri; content:"/evil"; sid:1;)"#;
    for seed in 0..240 {
        let random = &mut Random(seed);
        let count = some(random, 3_000);
        let at = random.below(count + 1);
        let (requests, end) = among(count, at, b"GET /evil HTTP/1.1\r\n\r\n", |_| {
            b"GET / HTTP/1.1\r\n\r\n".to_vec()
        });
        let connect = b"CONNECT a.example:80 HTTP/1.1\r\nHost: a.example\r\n\r\n";
        let answer = random.choose(&[
            "HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n",
            "HTTP/1.1 405 No\r\nContent-Length: 2\r\n\r\nno",
            "HTTP/1.1 502 No\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nno\r\n0\r\n\r\n",
            // The tunnel carries HTTP.
            "HTTP/1.1 200 OK\r\n\r\n",
        ]);
        let size = random.choose(&[536, 1_399, 1_400]);
        for mode in MODES {
            let text = format!("{mode:?}, seed {seed}: {count} requests, {at}, {answer:?}");
            let mut bed = bed(mode, rules);
            let mut talk = Conversation::open(&mut bed, (HOST_A, 40_000), (HOST_B, 8080));
            assert!(!talk.client(&mut bed, connect), "{text}");
            let is_dropped = send(&mut bed, &mut talk, true, &requests, (size, end));
            talk.server(&mut bed, answer.as_bytes());
            talk.client(&mut bed, b"GET / HTTP/1.1\r\n\r\n");
            talk.close(&mut bed);
            bed.finish();
            assert_eq!(is_dropped, mode == Mode::Ips, "{text}");
            assert!(bed.sids().contains(&1), "{text}");
        }
    }
}

#[test]
fn in_line_bytes_behind_a_connect_or_an_upgrade_are_refused_before_its_answer() {
    let connect = "CONNECT a:443 HTTP/1.1\r\nHost: a\r\n\r\n";
    let upgrade = "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n";
    let rule = "alert http any any -> any any (app-layer-event:http.ambiguous_tunnel; sid:1;)";
    for first in [connect, upgrade] {
        for is_asymmetric in [false, true] {
            let settings = Settings {
                mode: Mode::Ips,
                accepts_async: is_asymmetric,
                ..Settings::default()
            };
            let mut bed = TestBed::with(settings, rule);
            let mut talk = Conversation::open(&mut bed, (HOST_A, 40_000), (HOST_B, 8080));
            assert!(!talk.client(&mut bed, first.as_bytes()));
            let is_dropped = talk.client(&mut bed, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
            assert_eq!(is_dropped, !is_asymmetric, "{first}");
            assert_eq!(bed.sids().contains(&1), !is_asymmetric, "{first}");
        }
        // A client that waits for the answer speaks on.
        let mut bed = TestBed::new(Mode::Ips, rule);
        let mut talk = Conversation::open(&mut bed, (HOST_A, 40_000), (HOST_B, 8080));
        talk.client(&mut bed, first.as_bytes());
        talk.server(&mut bed, b"HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n");
        assert!(
            !talk.client(&mut bed, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"),
            "{first}"
        );
        assert_eq!(bed.alerts(), 0);
    }
}

#[test]
fn responses_to_more_requests_than_are_remembered_pass_no_rule_unseen() {
    let rules = r#"drop http any any -> any any (file.data; content:"evil"; sid:1;)"#;
    for seed in 0..200 {
        let random = &mut Random(seed);
        let count = match random.below(8) {
            0 => 500 + random.below(500),
            _ => random.below(30),
        };
        let at = random.below(count + 1);
        let response = |body: &str| {
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
            (head + body).into_bytes()
        };
        // The response to HEAD has no body: a wrong pairing takes the next responses for one.
        let has_head = random.one_in(2);
        let first = if has_head { "HEAD" } else { "GET" };
        let requests = format!("{first} / HTTP/1.1\r\nHost: a\r\n\r\n")
            + &"GET / HTTP/1.1\r\nHost: a\r\n\r\n".repeat(count + 1);
        let (responses, end) = among(count, at, &response("evil"), |_| response("good"));
        let begin = match has_head {
            true => b"HTTP/1.1 200 OK\r\nContent-Length: 90000\r\n\r\n".to_vec(),
            false => response("good"),
        };
        let size = random.choose(&[536, 1_400, 60_000]);
        for mode in MODES {
            let text = format!("{mode:?}, seed {seed}: {count} requests, {at}");
            let mut bed = bed(mode, rules);
            let mut talk = Conversation::open(&mut bed, (HOST_A, 40_000), (HOST_B, 80));
            assert!(
                !send(
                    &mut bed,
                    &mut talk,
                    true,
                    requests.as_bytes(),
                    (1_400, usize::MAX)
                ),
                "{text}"
            );
            let bytes = [&begin[..], &responses].concat();
            let end = begin.len() + end;
            let is_dropped = send(&mut bed, &mut talk, false, &bytes, (size, end));
            talk.close(&mut bed);
            bed.finish();
            assert_eq!(is_dropped, mode == Mode::Ips, "{text}");
            // Beside the path the oldest requests make room, and the responses that follow are read as those of others.
            assert!(count > 500 || bed.sids().contains(&1), "{text}");
        }
    }
}

/// Returns a session message of SMB.
fn session(body: &[u8]) -> Vec<u8> {
    let size = (body.len() as u32).to_be_bytes();
    [&[0], &size[1..], body].concat()
}

/// Returns a command of SMB 2; the offset of the next follows from its size if another is chained to it.
fn command(number: u16, message: u64, body: &[u8], is_followed: bool) -> Vec<u8> {
    let mut out = vec![0; 64];
    out[..4].copy_from_slice(b"\xfeSMB");
    out[12..14].copy_from_slice(&number.to_le_bytes());
    out[24..32].copy_from_slice(&message.to_le_bytes());
    out.extend_from_slice(body);
    if is_followed {
        out.resize(out.len().next_multiple_of(8), 0);
        let next = (out.len() as u32).to_le_bytes();
        out[20..24].copy_from_slice(&next);
    }
    out
}

fn utf_16(text: &str) -> Vec<u8> {
    text.encode_utf16().flat_map(u16::to_le_bytes).collect()
}

fn tree_connect(path: &str) -> Vec<u8> {
    let path = utf_16(path);
    [
        &[9, 0, 0, 0, 72, 0][..],
        &(path.len() as u16).to_le_bytes(),
        &path,
    ]
    .concat()
}

fn create(name: &str) -> Vec<u8> {
    let name = utf_16(name);
    let mut out = vec![0; 56];
    out[44..46].copy_from_slice(&120_u16.to_le_bytes());
    out[46..48].copy_from_slice(&(name.len() as u16).to_le_bytes());
    [out, name].concat()
}

/// Returns the body of a command that writes to a file: that of the command before it, or one with a number.
fn write(file: Option<u16>, offset: u64, data: &[u8]) -> Vec<u8> {
    let mut out = vec![49, 0, 112, 0];
    out.extend_from_slice(&(data.len() as u32).to_le_bytes());
    out.extend_from_slice(&offset.to_le_bytes());
    match file {
        None => out.extend_from_slice(&[0xff; 16]),
        Some(number) => {
            out.extend_from_slice(&number.to_le_bytes());
            out.resize(32, 0);
        }
    }
    out.resize(48, 0);
    out.extend_from_slice(data);
    out
}

/// Returns a message of chained commands, cut into several if it would not be kept as a whole.
fn compound(commands: &[(u16, Vec<u8>)]) -> Vec<u8> {
    let body: Vec<u8> = commands
        .iter()
        .enumerate()
        .flat_map(|(at, (number, body))| command(*number, at as u64 + 1, body, at + 1 < commands.len()))
        .collect();
    session(&body)
}

#[test]
fn chained_commands_of_smb_2_pass_no_rule_unseen_however_many_there_are() {
    let rules = r#"drop smb any any -> any any (smb.share; content:"evil"; sid:1;)
drop smb any any -> any any (file.name; content:"evil.exe"; sid:2;)
drop smb any any -> any any (file.data; content:"attack"; sid:3;)"#;
    const TREE_CONNECT: u16 = 3;
    const CREATE: u16 = 5;
    const WRITE: u16 = 9;
    for seed in 0..210 {
        let random = &mut Random(seed);
        let kind = seed % 3;
        let count = some(random, [2_300, 1_000, 1_900][kind as usize]);
        let at = random.below(count + 1);
        let mut commands = Vec::new();
        for number in 0..=count {
            let is_evil = number == at;
            match kind {
                0 => commands.push((
                    TREE_CONNECT,
                    tree_connect(if is_evil { r"\\a\evil" } else { r"\\a\b" }),
                )),
                1 => {
                    commands.push((CREATE, create(if is_evil { "evil.exe" } else { "b.txt" })));
                    commands.push((WRITE, write(None, 0, b"x")));
                }
                // The word is written in two parts, with other files between them.
                _ => {
                    let data: &[u8] = if is_evil { b"att" } else { b"x" };
                    commands.push((WRITE, write(Some(number as u16), 0, data)));
                }
            }
        }
        if kind == 2 {
            commands.push((WRITE, write(Some(at as u16), 3, b"ack")));
        }
        let bytes = compound(&commands);
        assert!(bytes.len() < 256 << 10, "{}", bytes.len());
        let size = random.choose(&[1_399, 1_400, 60_000]);
        for mode in MODES {
            let text = format!("{mode:?}, seed {seed}: {count} commands, {at}");
            let mut bed = bed(mode, rules);
            let mut talk = Conversation::open(&mut bed, (HOST_A, 40_000), (HOST_B, 445));
            let is_dropped = send(&mut bed, &mut talk, true, &bytes, (size, bytes.len()));
            talk.close(&mut bed);
            bed.finish();
            assert_eq!(is_dropped, mode == Mode::Ips, "{text}");
            // Beside the path, the word in two parts is found while its file is remembered.
            let is_sure = kind != 2 || count < 250;
            assert!(!is_sure || bed.sids().contains(&(kind as u32 + 1)), "{text}");
        }
    }
}

/// Returns commands in `count` runs: equal commands follow one another in a run.
fn runs(count: usize, random: &mut Random) -> Vec<u8> {
    let mut bytes = Vec::new();
    for number in 0..count {
        let command: &[u8] = if number % 2 == 0 {
            b"NOOP\r\n"
        } else {
            b"BDAT 0\r\n"
        };
        for _ in 0..=random.below(3) {
            bytes.extend_from_slice(command);
        }
    }
    bytes
}

#[test]
fn a_mail_behind_more_runs_of_commands_than_are_remembered_passes_no_rule_unseen() {
    let rules = r#"drop smtp any any -> any any (file.data; content:"EICAR"; sid:1;)
alert smtp any any -> any any (app-layer-event:smtp.too_many_commands; sid:2;)"#;
    let mail = b"MAIL FROM:<a>\r\nRCPT TO:<b>\r\nDATA\r\nContent-Type: a/b; name=virus.bin\r\n\r\nan EICAR file\r\n.\r\n";
    for seed in 0..220 {
        let random = &mut Random(seed);
        let count = match random.below(4) {
            0 => random.below(20),
            1 => 500 + random.below(500),
            _ => 250 + random.below(12),
        };
        let before = runs(count, random);
        let replies: Vec<u8> = before
            .split(|byte| *byte == b'\n')
            .skip(1)
            .flat_map(|_| b"250 x\r\n".to_vec())
            .collect();
        // The server refuses the first DATA, so the bytes behind it are commands, among them another DATA.
        let bytes = [&before[..], b"DATA\r\n", mail].concat();
        let end = bytes.len();
        let replies = [&replies[..], b"503 no\r\n250 x\r\n250 x\r\n354 go\r\n250 x\r\n"].concat();
        let size = random.choose(&[500, 1_400, 60_000]);
        for mode in MODES {
            let text = format!("{mode:?}, seed {seed}: {count} runs");
            let mut bed = TestBed::new(mode, rules);
            let mut talk = Conversation::open(&mut bed, (HOST_A, 40_000), (HOST_B, 25));
            talk.server(&mut bed, b"220 x\r\n");
            talk.client(&mut bed, b"EHLO x\r\n");
            talk.server(&mut bed, b"250 x\r\n");
            let is_dropped = send(&mut bed, &mut talk, true, &bytes, (size, end));
            talk.server(&mut bed, &replies);
            talk.close(&mut bed);
            bed.finish();
            assert_eq!(is_dropped, mode == Mode::Ips, "{text}");
            assert!(mode == Mode::Ips || !bed.sids().is_empty(), "{text}");
            assert!(
                mode == Mode::Ips || count > 250 || bed.sids().contains(&1),
                "{text}"
            );
        }
    }
}

#[test]
fn a_mail_with_any_number_of_recipients_passes_no_rule_unseen() {
    let rules = r#"drop smtp any any -> any any (file.data; content:"EICAR"; sid:1;)
alert smtp any any -> any any (app-layer-event:smtp.too_many_recipients; sid:2;)"#;
    let mail = b"Content-Type: a/b; name=virus.bin\r\n\r\nan EICAR file\r\n.\r\n";
    for count in [1, 100, 2_040, 2_048, 2_049, 4_096, 5_000] {
        for mode in MODES {
            let mut bed = TestBed::new(mode, rules);
            let mut talk = Conversation::open(&mut bed, (HOST_A, 40_000), (HOST_B, 25));
            talk.server(&mut bed, b"220 x\r\n");
            talk.client(&mut bed, b"EHLO x\r\nMAIL FROM:<a>\r\n");
            talk.server(&mut bed, b"250 x\r\n250 x\r\n");
            let recipients = b"RCPT TO:<b>\r\n".repeat(count);
            let mut is_dropped = send(&mut bed, &mut talk, true, &recipients, (1_400, usize::MAX));
            assert_eq!(is_dropped, mode == Mode::Ips && count > 2_048, "{count}");
            talk.server(&mut bed, &b"250 x\r\n".repeat(count));
            talk.client(&mut bed, b"DATA\r\n");
            talk.server(&mut bed, b"354 x\r\n");
            is_dropped |= talk.client(&mut bed, mail);
            talk.server(&mut bed, b"250 x\r\n");
            talk.close(&mut bed);
            bed.finish();
            assert_eq!(is_dropped, mode == Mode::Ips, "{count}");
            assert!(mode == Mode::Ips || bed.sids().contains(&1), "{count}");
            assert_eq!(bed.sids().contains(&2), count > 2_048, "{count}, {mode:?}");
        }
    }
}
