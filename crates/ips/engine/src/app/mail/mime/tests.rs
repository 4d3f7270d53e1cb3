//! Tests of messages, line by line and in pieces.

use super::part::OVERLAP;
use super::*;
use crate::app::AppProtocol;
use crate::app::file::{File, FileState};
use crate::app::transaction::BUFFERS_PER_TRANSACTION;
use crate::flow::Direction;

/// Returns the transaction of a mail.
fn parse(mail: &[u8]) -> Transaction {
    let mut transaction = Transaction::new(0, AppProtocol::Pop3);
    let (settings, mut mime) = (AppSettings::default(), Mime::new(Direction::ToClient));
    let mut rest = mail;
    while let Some(line) = lines::next(rest) {
        mime.line(line.text, line.end, &mut transaction, &settings);
        rest = &rest[line.size..];
    }
    mime.end(&mut transaction, true);
    transaction
}

fn files(transaction: &Transaction) -> Vec<(String, String)> {
    let texts = |buffer| {
        let views = transaction.buffers(buffer, Direction::ToClient);
        views.map(|view| String::from_utf8_lossy(view.bytes).into_owned())
    };
    texts(Buffer::FileName).zip(texts(Buffer::FileData)).collect()
}

#[test]
fn attachments_beyond_the_limit_are_an_event() {
    let part = |at: usize| format!("--b\r\nContent-Type: a/b; name=f{at}\r\n\r\nx\r\n");
    let mail = |count: usize| {
        let parts: String = (0..count).map(part).collect();
        parse(format!("Content-Type: multipart/mixed; boundary=b\r\n\r\n{parts}--b--\r\n").as_bytes())
    };
    let most = mail(ATTACHMENTS);
    assert_eq!(
        (files(&most).len(), most.exceeds_limits, most.events.len()),
        (ATTACHMENTS, false, 0)
    );
    let more = mail(ATTACHMENTS + 1);
    assert!(more.exceeds_limits);
    assert_eq!(more.events, ["smtp.mime_too_many_attachments"]);
}

#[test]
fn a_message_with_a_name_is_a_file_and_so_are_its_attachments() {
    let inner = "Subject: inner\r\nContent-Type: multipart/mixed; boundary=in\r\n\r\n\
        --in\r\nContent-Type: a/b; name=evil.exe\r\nContent-Transfer-Encoding: base64\r\n\r\n\
        TVpBQkNE\r\n--in--\r\nlast line";
    let mail = format!(
        "Content-Type: multipart/mixed; boundary=out\r\n\r\n\
        --out\r\nContent-Type: message/rfc822\r\nContent-Disposition: attachment; filename=a.eml\r\n\r\n\
        {inner}\r\n--out\r\nContent-Type: a/b; name=next\r\n\r\nnext\r\n--out--\r\n"
    );
    let transaction = parse(mail.as_bytes());
    let pair = |name: &str, data: &str| (name.to_owned(), data.to_owned());
    assert_eq!(
        files(&transaction),
        [
            pair("a.eml", inner),
            pair("evil.exe", "MZABCD"),
            pair("next", "next")
        ]
    );
    let is_closed = |file: &File| file.state == FileState::Closed;
    assert!(transaction.files.iter().all(is_closed));
}

#[test]
fn attachments_of_a_message_that_is_not_encoded_as_declared_are_files() {
    let inner =
        "From: a@b\r\nContent-Type: a/b\r\nContent-Disposition: attachment; filename=evil.exe\r\n\r\nNEEDLE";
    for encoding in ["base64", "BASE64", "quoted-printable", "8bit", "unknown"] {
        for first in ["", "X-Any : folded\r\n\t value\r\n"] {
            let mail = format!(
                "Content-Type: message/rfc822; name=letter\r\nContent-Transfer-Encoding: {encoding}\r\n\r\n{first}{inner}\r\n"
            );
            let found = files(&parse(mail.as_bytes()));
            assert_eq!(found.len(), 2, "{encoding}");
            assert_eq!(
                found[1],
                ("evil.exe".to_owned(), "NEEDLE".to_owned()),
                "{encoding}"
            );
        }
    }
    // A message that is encoded is a file.
    let mail = "Content-Type: message/rfc822; name=letter\r\nContent-Transfer-Encoding: base64\r\n\r\n\
        RnJvbTogYUBiDQoNCmhlbGxv\r\n";
    let found = files(&parse(mail.as_bytes()));
    assert_eq!(
        found,
        [("letter".to_owned(), "From: a@b\r\n\r\nhello".to_owned())]
    );
}

/// Returns bytes in base64, in lines of 76 characters (RFC 2045, section 6.8).
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for (number, group) in bytes.chunks(3).enumerate() {
        let bits = group.iter().chain([&0; 2]).take(3);
        let bits = bits.fold(0, |bits, byte| bits << 8 | usize::from(*byte));
        for at in 0..4 {
            let digit = char::from(DIGITS[bits >> (18 - 6 * at) & 63]);
            out.push(if at > group.len() { '=' } else { digit });
        }
        if number % 19 == 18 {
            out += "\r\n";
        }
    }
    out
}

/// Returns the head of a message with a name, if it has one, and an encoding.
fn head(name: &str, encoding: &str) -> String {
    format!("Content-Type: message/rfc822{name}\r\nContent-Transfer-Encoding: {encoding}\r\n\r\n")
}

#[test]
fn attachments_of_an_encoded_message_are_files() {
    let evil = base64(b"MZ evil");
    let letter = format!(
        "Subject: s\r\nContent-Type: multipart/mixed; boundary=in\r\n\r\n--in\r\nContent-Type: a/b; name=evil.exe\r\n\
         Content-Transfer-Encoding: base64\r\n\r\n{evil}\r\n--in\r\nContent-Type: a/b; name=last\r\n\r\nno line end"
    );
    for (encoding, body) in [
        ("base64", base64(letter.as_bytes())),
        ("quoted-printable", letter.replace('=', "=3D")),
    ] {
        for name in ["; name=letter", ""] {
            let mail = format!(
                "Content-Type: multipart/mixed; boundary=out\r\n\r\n--out\r\n{}{body}\r\n--out--\r\n",
                head(name, encoding)
            );
            let transaction = parse(mail.as_bytes());
            let mut expected = vec![("evil.exe", "MZ evil"), ("last", "no line end")];
            if !name.is_empty() {
                expected.insert(0, ("letter", &letter));
            }
            let found = files(&transaction);
            let found: Vec<(&str, &str)> = found
                .iter()
                .map(|(name, data)| (name.as_str(), data.as_str()))
                .collect();
            assert_eq!(found, expected, "{encoding}");
            let is_closed = |file: &File| file.state == FileState::Closed;
            assert!(transaction.files.iter().all(is_closed));
            assert!(transaction.events.is_empty(), "{:?}", transaction.events);
        }
    }
}

#[test]
fn parts_of_an_encoded_multipart_are_files() {
    let body = "preamble\r\n--in\r\nContent-Type: a/b; name=f\r\n\r\nx=y\r\n--in--\r\n";
    let pair = |data: &str| ("f".to_owned(), data.to_owned());
    for (encoding, body, expected) in [
        ("base64", base64(body.as_bytes()), vec![pair("x=y")]),
        ("base64", body.to_owned(), vec![pair("x=y")]),
        (
            "quoted-printable",
            body.replace('=', "=3D"),
            vec![("3Df".to_owned(), "x=3Dy".to_owned()), pair("x=y")],
        ),
        // An equals sign that is no escape is the same in both readings.
        ("quoted-printable", body.to_owned(), vec![pair("x=y")]),
        (
            "quoted-printable",
            body.replace("x=", "x=3D"),
            vec![pair("x=3Dy"), pair("x=y")],
        ),
    ] {
        let mail = format!(
            "Content-Type: multipart/mixed; boundary=out\r\n\r\n--out\r\nContent-Type: multipart/mixed; boundary=in\r\n\
             Content-Transfer-Encoding: {encoding}\r\n\r\n{body}\r\n--out--\r\n"
        );
        assert_eq!(files(&parse(mail.as_bytes())), expected, "{mail}");
    }
}

#[test]
fn messages_of_each_kind_are_read() {
    for kind in ["message/rfc822", "Message/Global ; x=y", "message/news"] {
        let mail = format!("Content-Type: {kind}\r\n\r\nContent-Type: a/b; name=f\r\n\r\nx\r\n");
        let found = files(&parse(mail.as_bytes()));
        assert_eq!(found, [("f".to_owned(), "x".to_owned())], "{kind}");
    }
    let status =
        "Content-Type: message/global-delivery-status; name=s\r\n\r\nContent-Type: a/b; name=f\r\n\r\nx\r\n";
    assert_eq!(files(&parse(status.as_bytes())).len(), 1);
}

#[test]
fn a_file_is_two_where_it_differs_as_declared_and_as_it_is() {
    let mail = head("", "quoted-printable") + "Content-Type: a/b; name=f\r\n\r\nan =41ttack\r\nand more\r\n";
    let pair = |data: &str| ("f".to_owned(), data.to_owned());
    assert_eq!(
        files(&parse(mail.as_bytes())),
        [pair("an =41ttack\r\nand more"), pair("an Attack\r\nand more")]
    );
    let same = head("", "quoted-printable") + "Content-Type: a/b; name=f\r\n\r\nthe same\r\n";
    assert_eq!(files(&parse(same.as_bytes())), [pair("the same")]);
}

#[test]
fn encoded_messages_in_one_another_are_an_event_at_a_depth() {
    let nested = |depth: usize| {
        let leaf = "Content-Type: a/b; name=f\r\n\r\ndeep\r\n".to_owned();
        (0..depth).fold(leaf, |inside, _| {
            head("", "base64") + &base64(inside.as_bytes()) + "\r\n"
        })
    };
    let found = parse(nested(4).as_bytes());
    assert_eq!(files(&found), [("f".to_owned(), "deep".to_owned())]);
    assert!(!found.exceeds_limits && found.events.is_empty());
    let beyond = parse(nested(5).as_bytes());
    assert!(files(&beyond).is_empty() && beyond.exceeds_limits);
    assert_eq!(beyond.events, ["smtp.mime_malformed_msg"]);
    // One after the other, messages have no limit.
    let part = format!("--b\r\n{}\r\n", nested(4));
    let many = format!(
        "Content-Type: multipart/mixed; boundary=b\r\n\r\n{}--b--\r\n",
        part.repeat(20)
    );
    let many = parse(many.as_bytes());
    assert_eq!((files(&many).len(), many.exceeds_limits), (20, false));
}

#[test]
fn readings_of_a_mail_are_bounded() {
    // Each message differs in its first line, so each of its readings has both readings of the next one.
    let mail: String = (0..3 * DEPTH)
        .map(|_| "X-Any: =41\r\n".to_owned() + &head("", "quoted-printable"))
        .collect();
    let transaction = parse((mail + "X-Any: =41\r\n\r\n").as_bytes());
    assert!(transaction.exceeds_limits);
}

#[test]
fn files_of_an_encoded_message_in_pieces_go_on_in_the_next_transaction() {
    let mut transactions = [0, 1].map(|id| Transaction::new(id, AppProtocol::Imap));
    let [first, second] = &mut transactions;
    let (settings, mut mime) = (AppSettings::default(), Mime::new(Direction::ToClient));
    let body = base64(b"Content-Type: a/b; name=f\r\n\r\nan EICAR file");
    for line in (head("", "base64") + &body).split("\r\n") {
        let is_last = body.ends_with(line) && !line.is_empty();
        let (begin, end): (_, &[u8]) = if is_last {
            (&line[..line.len() - 8], b"")
        } else {
            (line, b"\r\n")
        };
        mime.line(begin.as_bytes(), end, first, &settings);
    }
    mime.suspend(b"", first, &settings);
    mime.resume(second, &settings);
    mime.line(&body.as_bytes()[body.len() - 8..], b"\r\n", second, &settings);
    mime.end(second, true);
    let pair = |data: &str| ("f".to_owned(), data.to_owned());
    assert_eq!(
        [files(first), files(second)],
        [[pair("an EICA")], [pair("an EICAR file")]]
    );
}

#[test]
fn nested_messages_are_files_up_to_a_depth_and_are_parsed_beyond_it() {
    let head = "Content-Type: message/rfc822; name=m\r\n\r\n";
    let mail = format!(
        "{}Content-Type: a/b; name=f\r\n\r\ndeep\r\n",
        head.repeat(3 * DEPTH)
    );
    let files = files(&parse(mail.as_bytes()));
    assert_eq!(files.len(), DEPTH + 1);
    assert_eq!(files[DEPTH], ("f".to_owned(), "deep".to_owned()));
    assert!(files[0].1.ends_with("\r\n\r\ndeep"));
}

#[test]
fn a_header_that_comes_in_pieces_takes_bounded_memory() {
    let mut transaction = Transaction::new(0, AppProtocol::Imap);
    let (settings, mut mime) = (AppSettings::default(), Mime::new(Direction::ToClient));
    for _ in 0..100 {
        mime.suspend(&[b'x'; 4000], &mut transaction, &settings);
        mime.resume(&mut transaction, &settings);
        assert!(mime.held.len() <= lines::PIECE);
    }
    assert_eq!(
        transaction.events,
        [
            "smtp.mime_long_line",
            "smtp.mime_long_header_name",
            "smtp.mime_long_header_value"
        ]
    );
}

#[test]
fn pieces_of_files_beyond_the_limit_of_a_transaction_are_an_event() {
    let mut transaction = Transaction::new(0, AppProtocol::Imap);
    let (settings, mut mime) = (AppSettings::default(), Mime::new(Direction::ToClient));
    for line in [
        "Content-Type: message/rfc822; name=outer",
        "",
        "Content-Type: a/b; name=inner",
        "",
    ] {
        mime.line(line.as_bytes(), b"\r\n", &mut transaction, &settings);
    }
    let mut piece = |transaction: &mut Transaction| {
        mime.suspend(b"x", transaction, &settings);
        mime.resume(transaction, &settings);
    };
    for _ in 1..ATTACHMENTS / 2 {
        piece(&mut transaction);
    }
    assert_eq!(
        (
            transaction.files.len(),
            transaction.exceeds_limits,
            transaction.events.len()
        ),
        (ATTACHMENTS, false, 0)
    );
    piece(&mut transaction);
    assert_eq!(
        (transaction.files.len(), transaction.exceeds_limits),
        (ATTACHMENTS, true)
    );
    assert_eq!(transaction.events, ["smtp.mime_too_many_attachments"]);
    // The next transaction has room again.
    let mut next = Transaction::new(1, AppProtocol::Imap);
    piece(&mut next);
    piece(&mut next);
    assert_eq!((next.files.len(), next.exceeds_limits), (4, false));
}

#[test]
fn a_content_in_two_pieces_of_a_file_is_in_the_buffer_of_the_second() {
    let mut transactions = [0, 1].map(|id| Transaction::new(id, AppProtocol::Imap));
    let [first, second] = &mut transactions;
    let (settings, mut mime) = (AppSettings::default(), Mime::new(Direction::ToClient));
    for line in ["Content-Type: a/b; name=f", ""] {
        mime.line(line.as_bytes(), b"\r\n", first, &settings);
    }
    let long = "x".repeat(2 * OVERLAP);
    mime.line(long.as_bytes(), b"", first, &settings);
    mime.suspend(b"an EIC", first, &settings);
    mime.resume(second, &settings);
    mime.line(b"AR file", b"", second, &settings);
    mime.end(second, true);
    assert_eq!(files(first), [("f".to_owned(), long.clone() + "an EIC")]);
    let overlap = long[..OVERLAP - 6].to_owned() + "an EIC";
    assert_eq!(files(second), [("f".to_owned(), overlap + "AR file")]);
    let size = long.len() as u64 + 13;
    assert_eq!((second.files[0].size, second.files[0].has_gaps), (size, true));
}

#[test]
fn a_piece_of_a_file_beyond_the_limit_has_no_end_for_the_next_piece() {
    let mut transactions = [0, 1].map(|id| Transaction::new(id, AppProtocol::Imap));
    let [first, second] = &mut transactions;
    let settings = AppSettings {
        attachment_limit: 4,
        ..AppSettings::default()
    };
    let mut mime = Mime::new(Direction::ToClient);
    for line in ["Content-Type: a/b; name=f", ""] {
        mime.line(line.as_bytes(), b"\r\n", first, &settings);
    }
    mime.suspend(b"attack", first, &settings);
    mime.resume(second, &settings);
    mime.line(b"s", b"", second, &settings);
    mime.end(second, true);
    assert_eq!(files(first), [("f".to_owned(), "atta".to_owned())]);
    assert_eq!(files(second), [("f".to_owned(), "s".to_owned())]);
}

#[test]
fn attachments_of_many_mails_without_room_in_their_transaction_are_an_event() {
    let mut transaction = Transaction::new(0, AppProtocol::Imap);
    let settings = AppSettings::default();
    let mut mail = || {
        let mut mime = Mime::new(Direction::ToClient);
        for line in ["Content-Type: a/b; name=f", "", "x"] {
            mime.line(line.as_bytes(), b"\r\n", &mut transaction, &settings);
        }
        mime.end(&mut transaction, true);
        (transaction.files.len(), transaction.exceeds_limits)
    };
    let most = BUFFERS_PER_TRANSACTION / 2;
    for count in 1..=most {
        assert_eq!(mail(), (count, false));
    }
    assert_eq!(mail(), (most, true));
}

#[test]
fn headers_that_recipients_read_in_different_ways_are_an_event() {
    let part = |headers: &str| format!("Content-Type: a/b; name=f\r\n{headers}\r\nx\r\n");
    let events = |mail: &str| parse(mail.as_bytes()).events.clone();
    let encoding = "Content-Transfer-Encoding: ";
    assert!(events(&part(&format!("{encoding}7bit\r\n"))).is_empty());
    for mail in [
        part(&format!("{encoding}7bit\r\n{encoding}base64\r\n")),
        part("Content-Type: text/plain\r\n"),
        "Content-Type: multipart/mixed; boundary=B B\r\n\r\n--B B--\r\n".to_owned(),
    ] {
        assert_eq!(events(&mail), ["smtp.mime_malformed_msg"], "{mail}");
    }
}
