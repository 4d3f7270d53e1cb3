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

fn run(messages: &[(Direction, &[u8])], step: usize) -> (Transactions, Vec<Outcome>) {
    let mut smtp = Smtp::new(AppSettings::default());
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
        // BDAT does not stuff full stops.
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
            (UP, b"MAIL FROM:<e>\n"),
        ],
        5,
    );
    assert_eq!(files(&out.list[0]).len(), 2);
    assert_eq!(record(&out.list[1]).mail_from.as_deref(), Some(&b"<e>"[..]));
}

/// Returns the files of a mail that stands by itself, and its events.
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
        assert_eq!(events, ["smtp.mime_long_header_value"]);
    }
}

#[test]
fn a_boundary_in_the_middle_of_a_line_is_none() {
    // Lines are handed on in pieces of 4,096 bytes.
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
