//! Scenarios of mail connections, each in several segmentations.

use millrace_ips_rules::buffers::Buffer;
use proptest::prelude::*;

use super::mime::Mime;
use super::smtp::Smtp;
use crate::app::parser::{Outcome, Parser};
use crate::app::record::{Record, SmtpRecord};
use crate::app::transaction::{Transaction, Transactions};
use crate::app::{AppProtocol, AppSettings};
use crate::flow::Direction;
use crate::tcp::StreamChunk;

const UP: Direction = Direction::ToServer;
const DOWN: Direction = Direction::ToClient;

pub(super) const MAIL: &[u8] = b"From: a@example.org\r\nTo: b@example.org, c@example.org\r\nSubject: two\r\n files\r\n\
    Content-Type: multipart/mixed; boundary=\"outer\"\r\n\r\npreamble\r\n--outer\r\nContent-Type: text/plain\r\n\r\n\
    hello\r\n--outer\r\nContent-Type: multipart/related;\r\n boundary=inner\r\n\r\n--inner\r\n\
    Content-Type: application/octet-stream; name=x.bin\r\nContent-Transfer-Encoding: base64\r\n\r\n\
    TVpBQkNE\r\nRUZH\r\n--inner--\r\n--outer \r\nContent-Disposition: attachment; filename=\"y.txt\"\r\n\
    Content-Transfer-Encoding: quoted-printable\r\n\r\na=3Db=\r\nc\r\n..\r\n--outer--\r\nepilogue\r\n";

const SETTINGS: [fn() -> AppSettings; 2] = [AppSettings::default, || AppSettings::default().inline()];

fn run(messages: &[(Direction, &[u8])], step: usize) -> (Transactions, Vec<Outcome>) {
    run_with(AppSettings::default(), messages, step)
}

fn run_with(
    settings: AppSettings,
    messages: &[(Direction, &[u8])],
    step: usize,
) -> (Transactions, Vec<Outcome>) {
    let mut smtp = Smtp::new(settings);
    let mut out = Transactions::default();
    let mut outcomes = Vec::new();
    for (direction, bytes) in messages {
        for bytes in bytes.chunks(step) {
            let chunk = StreamChunk::of(*direction, bytes);
            outcomes.push(smtp.data(chunk, &mut out));
        }
    }
    smtp.end(UP, &mut out);
    smtp.end(DOWN, &mut out);
    (out, outcomes)
}

fn record(transaction: &Transaction) -> &SmtpRecord {
    let Record::Smtp(record) = &transaction.record else {
        panic!("an SMTP record")
    };
    record
}

fn files(transaction: &Transaction) -> Vec<(String, String)> {
    let names = transaction
        .buffers(Buffer::FileName, UP)
        .map(|view| String::from_utf8_lossy(view.bytes).into_owned());
    let data = transaction
        .buffers(Buffer::FileData, UP)
        .map(|view| String::from_utf8_lossy(view.bytes).into_owned());
    names.zip(data).collect()
}

fn pair(name: &str, data: &str) -> (String, String) {
    (name.to_owned(), data.to_owned())
}

fn with_data(command: &[u8], end: &[u8]) -> Vec<u8> {
    [command, MAIL, end].concat()
}

#[test]
fn a_mail_behind_a_thousand_pipelined_commands_is_matched_with_its_reply() {
    let commands = [&b"NOOP\r\n".repeat(1000)[..], b"DATA\r\n"].concat();
    let replies = [&b"250 ok\r\n".repeat(1000)[..], b"354 go\r\n"].concat();
    let mail = with_data(b"", b".\r\n");
    let messages = [
        (DOWN, &b"220 x\r\n"[..]),
        (UP, &commands),
        (DOWN, &replies),
        (UP, &mail),
    ];
    let (out, _) = run(&messages, 1000);
    assert_eq!(files(&out.list[0]).len(), 2);
    assert!(out.list[0].events.is_empty(), "{:?}", out.list[0].events);
}

#[test]
fn a_client_that_sends_on_behind_starttls_is_parsed_and_not_kept() {
    let mut smtp = Smtp::new(AppSettings::default());
    let mut out = Transactions::default();
    let mut feed = |bytes: &[u8]| {
        let chunk = StreamChunk::of(UP, bytes);
        smtp.data(chunk, &mut out);
        smtp.pending_size()
    };
    feed(b"EHLO a\r\nSTARTTLS\r\n");
    let line = b"NOOP\r\n".repeat(1000);
    let kept = (0..100).map(|_| feed(&line)).max().unwrap();
    assert!(kept <= 80 << 10, "{kept} bytes");
}

#[test]
fn a_mail_gives_its_envelope_headers_and_attachments() {
    let mail = with_data(b"", b".\r\nQUIT\r\n");
    for step in [1, 2, 7, 100, 10_000] {
        let (out, _) = run(
            &[
                (DOWN, b"220 mail.example ESMTP\r\n"),
                (UP, b"EHLO client.example\r\n"),
                (DOWN, b"250-mail.example\r\n250 PIPELINING\r\n"),
                (
                    UP,
                    b"MAIL FROM:<a@example.org> SIZE=10\r\nRCPT TO:<b@example.org>\r\nDATA\r\n",
                ),
                (DOWN, b"250 ok\r\n250 ok\r\n354 go\r\n"),
                (UP, &mail),
            ],
            step,
        );
        let transaction = &out.list[0];
        assert_eq!(
            files(transaction),
            [pair("x.bin", "MZABCDEFG"), pair("y.txt", "a=bc\r\n.")],
            "in steps of {step}"
        );
        let record = record(transaction);
        assert_eq!(record.helo.as_deref(), Some(&b"client.example"[..]));
        assert_eq!(record.mail_from.as_deref(), Some(&b"<a@example.org>"[..]));
        assert_eq!(record.rcpt_to, [b"<b@example.org>"]);
        assert_eq!(record.subject.as_deref(), Some(&b"two files"[..]));
        assert_eq!(record.to, [b"b@example.org", b"c@example.org"]);
        assert_eq!(transaction.files[0].magic, Some("MS-DOS executable"));
        assert!(transaction.events.is_empty(), "{:?}", transaction.events);
    }
}

#[test]
fn chunks_of_bdat_join_to_one_mail() {
    let (first, second) = MAIL.split_at(333);
    let chunk = |data: &[u8], last: &str| {
        let mut out = format!("BDAT {}{last}\r\n", data.len()).into_bytes();
        out.extend_from_slice(data);
        out
    };
    let bytes = [chunk(first, ""), chunk(second, " LAST"), b"QUIT\r\n".to_vec()].concat();
    for step in [1, 9, 10_000] {
        let (out, _) = run(&[(DOWN, b"220 x\r\n"), (UP, b"EHLO x\r\n"), (UP, &bytes)], step);
        // BDAT has no dot-stuffing (RFC 3030).
        assert_eq!(
            files(&out.list[0]),
            [pair("x.bin", "MZABCDEFG"), pair("y.txt", "a=bc\r\n..")],
            "in steps of {step}"
        );
    }
}

#[test]
fn bare_line_feeds_end_lines_and_mails() {
    let mail: Vec<u8> = with_data(b"", b".\n")
        .into_iter()
        .filter(|&byte| byte != b'\r')
        .collect();
    let (out, _) = run(
        &[
            (DOWN, b"220 x\n"),
            (UP, b"HELO x\nDATA\n"),
            (DOWN, b"250 x\n354 x\n"),
            (UP, &mail),
            (DOWN, b"250 ok\n"),
            (UP, b"MAIL FROM:<e>\n"),
        ],
        5,
    );
    assert_eq!(files(&out.list[0]).len(), 2);
    assert_eq!(out.list[0].events, ["smtp.bare_line_feed_at_end_of_mail"]);
    assert_eq!(record(&out.list[1]).mail_from.as_deref(), Some(&b"<e>"[..]));
}

/// Returns the names of all files.
fn all_files(out: &Transactions) -> Vec<(String, String)> {
    out.list.iter().flat_map(files).collect()
}

#[test]
fn a_full_stop_with_a_bare_line_feed_ends_no_mail_that_the_server_goes_on_with() {
    let mail = [&b"Subject: x\r\nX-Y: z\n.\n"[..], MAIL, b".\r\n"].concat();
    for settings in SETTINGS {
        for step in [1, 7, 10_000] {
            let messages = [
                (DOWN, &b"220 x\r\n"[..]),
                (UP, b"HELO x\r\nDATA\r\n"),
                (DOWN, b"250 x\r\n354 x\r\n"),
                (UP, &mail),
                (DOWN, b"250 ok\r\n"),
            ];
            let (out, _) = run_with(settings(), &messages, step);
            assert_eq!(out.list.len(), 1);
            assert_eq!(all_files(&out).len(), 2, "in steps of {step}");
            assert_eq!(out.list[0].events, ["smtp.bare_line_feed_at_end_of_mail"]);
        }
    }
}

#[test]
fn a_mail_that_is_smuggled_behind_a_full_stop_with_a_bare_line_feed_is_inspected() {
    let mails = [
        &b"Subject: x\r\n\r\ntext\n.\r\nMAIL FROM:<e>\r\nRCPT TO:<f>\r\nDATA\r\n"[..],
        MAIL,
        b".\r\n",
    ]
    .concat();
    let next = with_data(b"", b".\r\n");
    for settings in SETTINGS {
        for step in [1, 7, 10_000] {
            // The server takes the first full stop as the end. It replies after both mails, or while the client
            // sends the second.
            for cut in [mails.len(), mails.len() - 200] {
                let (first, second) = mails.split_at(cut);
                let messages = [
                    (DOWN, &b"220 x\r\n"[..]),
                    (UP, b"HELO x\r\nDATA\r\n"),
                    (DOWN, b"250 x\r\n354 x\r\n"),
                    (UP, first),
                    (DOWN, b"250 ok\r\n250 ok\r\n250 ok\r\n354 ok\r\n"),
                    (UP, second),
                    (DOWN, b"250 ok\r\n"),
                    (UP, b"DATA\r\n"),
                    (DOWN, b"354 ok\r\n"),
                    (UP, &next),
                ];
                let (out, _) = run_with(settings(), &messages, step);
                assert_eq!(all_files(&out).len(), 4, "in steps of {step}");
                assert!(out.list[0].events.contains(&"smtp.bare_line_feed_at_end_of_mail"));
            }
        }
    }
}

#[test]
fn mails_that_are_pipelined_are_matched_with_their_replies() {
    let mail = with_data(b"MAIL FROM:<a>\r\nRCPT TO:<b>\r\nDATA\r\n", b".\r\n");
    let mails = [&mail[..], &mail].concat();
    let replies = b"250 ok\r\n250 ok\r\n354 go\r\n250 ok\r\n".repeat(2);
    for settings in SETTINGS {
        for step in [1, 7, 1000] {
            let messages = [
                (DOWN, &b"220 x\r\n"[..]),
                (UP, b"EHLO x\r\n"),
                (DOWN, b"250 x\r\n"),
                (UP, &mails),
                (DOWN, &replies),
            ];
            let (out, _) = run_with(settings(), &messages, step);
            assert_eq!(out.list.len(), 2, "in steps of {step}");
            for transaction in &out.list {
                assert_eq!(files(transaction).len(), 2);
                assert_eq!(record(transaction).mail_from.as_deref(), Some(&b"<a>"[..]));
                // In line the mail is forwarded before the reply that decides whether it is one.
                let expected: &[&str] = match settings().is_inline {
                    true => &["smtp.invalid_pipelined_sequence"],
                    false => &[],
                };
                assert_eq!(transaction.events, expected);
            }
        }
    }
}

#[test]
fn the_reply_to_a_mail_is_matched_with_its_end() {
    let mail = with_data(b"", b".\r\n");
    let messages = [
        (DOWN, &b"220 x\r\n"[..]),
        (UP, b"EHLO x\r\nDATA\r\n"),
        (DOWN, b"250 x\r\n354 go\r\n"),
        (UP, &mail),
        (DOWN, b"250 queued\r\n"),
    ];
    let (out, _) = run(&messages, 1000);
    assert_eq!(out.list.len(), 1);
    assert!(out.list[0].events.is_empty(), "{:?}", out.list[0].events);
}

#[test]
fn data_is_what_the_server_takes_as_data() {
    let mail = with_data(b"", b".\r\n");
    for settings in SETTINGS {
        // The commands have white space around them, or are unknown to the parser.
        for command in [
            &b" DATA\r\n"[..],
            b"DATA\x0c\r\n",
            b"\x0bdata \r\r\n",
            b"XDATA\r\n",
        ] {
            let messages = [
                (DOWN, &b"220 x\r\n"[..]),
                (UP, b"EHLO x\r\n"),
                (DOWN, b"250 x\r\n"),
                (UP, command),
                (DOWN, b"354 go\r\n"),
                (UP, &mail),
            ];
            let (out, _) = run_with(settings(), &messages, 7);
            assert_eq!(all_files(&out).len(), 2, "{}", command.escape_ascii());
        }
    }
}

#[test]
fn a_chunk_that_a_server_without_bdat_refuses_swallows_no_mail() {
    let mail = with_data(b"", b".\r\n");
    for settings in SETTINGS {
        for reply in [&b"500 what\r\n"[..], b"502 no\r\n"] {
            let messages = [
                (DOWN, &b"220 x\r\n"[..]),
                (UP, b"EHLO x\r\n"),
                (DOWN, b"250 x\r\n"),
                (UP, b"BDAT 99999999\r\n"),
                (DOWN, reply),
                (UP, b"DATA\r\n"),
                (DOWN, b"354 go\r\n"),
                (UP, &mail),
            ];
            let (out, _) = run_with(settings(), &messages, 7);
            assert_eq!(all_files(&out).len(), 2);
        }
    }
}

#[test]
fn a_chunk_that_ends_in_a_boundary_hides_no_part() {
    let at = MAIL
        .windows(9)
        .position(|window| window == b"--outer \r")
        .unwrap()
        + 4;
    let bytes = [
        format!("BDAT {at}\r\n").as_bytes(),
        &MAIL[..at],
        format!("BDAT {} LAST\r\n", MAIL.len() - at).as_bytes(),
        &MAIL[at..],
    ]
    .concat();
    for step in [1, 9, 10_000] {
        let (out, _) = run(&[(DOWN, b"220 x\r\n"), (UP, b"EHLO x\r\n"), (UP, &bytes)], step);
        assert_eq!(files(&out.list[0]).len(), 2, "in steps of {step}");
    }
}

#[test]
fn in_line_a_mail_that_does_not_wait_for_the_reply_is_parsed_at_once() {
    let mail = with_data(b"", b".\r\n");
    let mut smtp = Smtp::new(AppSettings::default().inline());
    let mut out = Transactions::default();
    smtp.data(StreamChunk::of(UP, b"EHLO x\r\nDATA\r\n"), &mut out);
    smtp.data(StreamChunk::of(UP, &mail), &mut out);
    assert_eq!(files(&out.list[0]).len(), 2);
    // The reply refuses DATA: the bytes were commands.
    smtp.data(StreamChunk::of(DOWN, b"220 x\r\n250 x\r\n503 no\r\n"), &mut out);
    assert!(out.list[1].progress[0] < crate::app::Progress::Complete);
    assert_eq!(smtp.pending_size(), 0);
}

#[test]
fn in_line_bytes_behind_a_refused_command_are_commands() {
    for step in [1, 4, 1000] {
        let messages: [(Direction, &[u8]); 3] = [
            (DOWN, b"220 x\r\n"),
            (
                UP,
                b"HELO x\r\nDATA\r\nMAIL FROM:<late>\r\n.\r\nRCPT TO:<x>\r\nSTARTTLS\r\nRCPT TO:<y>\r\n",
            ),
            (
                DOWN,
                b"250 x\r\n503 no\r\n250 ok\r\n500 no\r\n250 ok\r\n454 no\r\n250 ok\r\n",
            ),
        ];
        let (out, _) = run_with(AppSettings::default().inline(), &messages, step);
        let last = out.list.back().unwrap();
        assert_eq!(record(last).mail_from.as_deref(), Some(&b"<late>"[..]));
        assert_eq!(record(last).rcpt_to, [b"<x>", b"<y>"]);
        assert_eq!(
            last.events,
            ["smtp.data_command_rejected", "smtp.tls_rejected"],
            "in steps of {step}"
        );
    }
}

#[test]
fn in_line_bytes_behind_starttls_are_parsed_again_once_the_server_accepts_it() {
    let (_, outcomes) = run_with(
        AppSettings::default().inline(),
        &[
            (DOWN, b"220 x\r\n"),
            (UP, b"EHLO x\r\n"),
            (DOWN, b"250 STARTTLS\r\n"),
            (UP, b"STARTTLS\r\nMAIL FROM:<evil>\r\n"),
            (DOWN, b"220 go\r\n"),
        ],
        1000,
    );
    assert_eq!(
        outcomes.last(),
        Some(&Outcome::Switch {
            rest: [b"MAIL FROM:<evil>\r\n".to_vec(), Vec::new()]
        })
    );
}

/// Parses a mail without an SMTP connection, and returns its files and its events.
fn parsed(mail: &[u8]) -> (Vec<(String, String)>, Vec<&'static str>) {
    let mut transaction = Transaction::new(0, AppProtocol::Smtp);
    let mut mime = Mime::new(UP);
    let mut at = 0;
    while let Some(line) = super::lines::next(&mail[at..]) {
        mime.line(line.text, line.end, &mut transaction, &AppSettings::default());
        at += line.size;
    }
    mime.end(&mut transaction, true);
    (files(&transaction), transaction.events)
}

#[test]
fn long_headers_hide_no_part() {
    let padding = b"X-Padding: x\r\n\tmore\r\n".repeat(5000);
    let long = [&b"Subject: "[..], &b"x".repeat(100_000), b"\r\n"].concat();
    for before in [&padding[..], &long] {
        let (found, events) = parsed(&[before, MAIL].concat());
        assert_eq!(found.len(), 2);
        assert_eq!(events.last(), Some(&"smtp.mime_long_header_value"));
    }
}

#[test]
fn a_boundary_in_the_middle_of_a_line_is_none() {
    // The parser gets a long line in pieces of 4,096 bytes.
    for size in [4096, 4096 * 2] {
        let long = [&b"x".repeat(size)[..], b"--b--\r\n"].concat();
        let mail = [
            &b"Content-Type: multipart/mixed; boundary=b\r\n\r\n"[..],
            &long,
            b"--b\r\nContent-Type: a/b; name=x\r\n\r\nfile\r\n--b--\r\n",
        ]
        .concat();
        assert_eq!(parsed(&mail).0, [pair("x", "file")]);
    }
}

#[test]
fn extended_names_are_names() {
    let mail = |name: &str| format!("Content-Disposition: attachment; {name}\r\n\r\nfile\r\n").into_bytes();
    assert_eq!(
        parsed(&mail("filename*=UTF-8''evil%2Eexe")).0,
        [pair("evil.exe", "file")]
    );
    assert_eq!(
        parsed(&mail("filename*0=\"ev\";\r\n filename*1=il.exe")).0,
        [pair("evil.exe", "file")]
    );
    let mut transaction = Transaction::new(0, AppProtocol::Smtp);
    let mut mime = Mime::new(UP);
    for line in [
        &b"Content-Type: a/b; name=x; name*=evil.exe"[..],
        b"Content-Disposition: attachment; x=\"; filename=no\"",
        b"",
    ] {
        mime.line(line, b"\r\n", &mut transaction, &AppSettings::default());
    }
    let names: Vec<_> = transaction
        .buffers(Buffer::FileName, UP)
        .map(|view| view.bytes)
        .collect();
    assert_eq!(names, [&b"evil.exe"[..], b"x"]);
}

#[test]
fn starttls_changes_the_protocol_and_pipelined_commands_are_an_event() {
    let (out, outcomes) = run(
        &[
            (DOWN, b"220 x\r\n"),
            (UP, b"EHLO x\r\n"),
            (DOWN, b"250 STARTTLS\r\n"),
            (UP, b"STARTTLS\r\nMAIL FROM:<evil>\r\n"),
            (DOWN, b"220 go\r\n"),
        ],
        1000,
    );
    assert_eq!(
        outcomes.last(),
        Some(&Outcome::Switch {
            rest: [b"MAIL FROM:<evil>\r\n".to_vec(), Vec::new()]
        })
    );
    assert!(out.list[0].events.contains(&"smtp.invalid_pipelined_sequence"));
}

#[test]
fn a_refused_data_command_leaves_commands_in_step() {
    let (out, _) = run(
        &[
            (DOWN, b"220 x\r\n"),
            (UP, b"HELO x\r\nDATA\r\nMAIL FROM:<late>\r\n"),
            (DOWN, b"250 x\r\n503 no\r\n"),
        ],
        4,
    );
    assert_eq!(record(&out.list[0]).mail_from.as_deref(), Some(&b"<late>"[..]));
    assert_eq!(out.list[0].events, ["smtp.data_command_rejected"]);
}

#[test]
fn nested_messages_end_at_a_depth() {
    let mut transaction = Transaction::new(0, AppProtocol::Smtp);
    let mut mime = Mime::new(UP);
    for level in 0..100 {
        for line in [
            format!("Content-Type: multipart/mixed; boundary=b{level}"),
            String::new(),
            format!("--b{level}"),
        ] {
            mime.line(
                line.as_bytes(),
                b"\r\n",
                &mut transaction,
                &AppSettings::default(),
            );
        }
    }
    assert!(transaction.events.contains(&"smtp.mime_malformed_msg"));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    /// Damaged mails in segments of any size give the same transactions.
    #[test]
    fn segmentation_does_not_change_transactions(
        flips in prop::collection::vec((0..MAIL.len(), any::<u8>()), 0..6),
        step in 1_usize..40,
    ) {
        let mut mail = MAIL.to_vec();
        for (at, value) in flips {
            mail[at] = value;
        }
        mail.extend_from_slice(b".\r\nQUIT\r\n");
        let messages: &[(Direction, &[u8])] = &[
            (DOWN, b"220 x\r\n"), (UP, b"EHLO x\r\nDATA\r\n"), (DOWN, b"250 x\r\n354 x\r\n"), (UP, &mail), (DOWN, b"250 x\r\n"),
        ];
        let essence = |out: Transactions| format!("{:?}", out.list);
        prop_assert_eq!(essence(run(messages, step).0), essence(run(messages, usize::MAX).0));
    }
}
