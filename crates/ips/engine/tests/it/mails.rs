//! Tests of mails through the whole engine: inspection before forwarding, and the protocol that the first bytes
//! select.

use millrace_ips_engine::{Mode, Policies, Settings};

use crate::bed::{HOST_A, HOST_B, TestBed};
use crate::conversation::Conversation;

const MAIL: &[u8] = b"Content-Type: a/b; name=virus.bin\r\n\r\nan EICAR file\r\n.\r\n";

fn rule(action: &str) -> String {
    format!(r#"{action} smtp any any -> any any (file.data; content:"EICAR"; sid:1;)"#)
}

#[test]
fn in_line_a_mail_that_does_not_wait_for_the_reply_to_data_is_dropped() {
    let mut bed = TestBed::new(Mode::Ips, &rule("drop"));
    let mut smtp = Conversation::open(&mut bed, (HOST_A, 40_000), (HOST_B, 25));
    smtp.server(&mut bed, b"220 x\r\n");
    smtp.client(&mut bed, b"EHLO x\r\n");
    smtp.server(&mut bed, b"250 x\r\n");
    assert!(!smtp.client(&mut bed, b"MAIL FROM:<a>\r\nRCPT TO:<b>\r\n"));
    assert!(smtp.client(&mut bed, &[b"DATA\r\n", MAIL].concat()));
}

#[test]
fn in_line_a_mail_before_the_reply_to_data_has_several_readings_and_falls_under_a_policy() {
    let rule = "alert smtp any any -> any any (app-layer-event:smtp.invalid_pipelined_sequence; sid:1;)";
    for (waits, is_asymmetric, is_refused) in
        [(false, false, true), (true, false, false), (false, true, false)]
    {
        let settings = Settings {
            mode: Mode::Ips,
            accepts_async: is_asymmetric,
            ..Settings::default()
        };
        let mut bed = TestBed::with(settings, rule);
        let mut smtp = Conversation::open(&mut bed, (HOST_A, 40_000), (HOST_B, 25));
        if !is_asymmetric {
            smtp.server(&mut bed, b"220 x\r\n");
        }
        smtp.client(&mut bed, b"EHLO x\r\nMAIL FROM:<a>\r\nRCPT TO:<b>\r\nDATA\r\n");
        if waits {
            smtp.server(&mut bed, b"250 x\r\n250 x\r\n250 x\r\n354 x\r\n");
        }
        let is_dropped = smtp.client(&mut bed, b"Subject: a\r\n\r\ntext\r\n.\r\n");
        assert_eq!((is_dropped, bed.sids().contains(&1)), (is_refused, is_refused));
    }
}

#[test]
fn a_client_that_speaks_first_does_not_choose_the_protocol_of_a_server_that_greets() {
    for mode in [Mode::Ids, Mode::Ips] {
        for (port, first, greeting) in [
            (25, &b"FEAT\r\n"[..], &b"220 (x) ESMTP\r\n"[..]),
            (587, b"USER a\r\n", b"220 x\r\n"),
            (25, b"EHLO x\r\n", b"220 x\r\n"),
            // On another port the client's commands select the protocol once the server has sent bytes.
            (2600, b"EHLO x\r\n", b"220 x\r\n"),
        ] {
            let mut bed = TestBed::new(mode, &rule("alert"));
            let mut smtp = Conversation::open(&mut bed, (HOST_A, 40_000), (HOST_B, port));
            smtp.client(&mut bed, first);
            smtp.server(&mut bed, greeting);
            smtp.server(&mut bed, b"250 x\r\n");
            smtp.client(&mut bed, b"DATA\r\n");
            smtp.server(&mut bed, b"354 x\r\n");
            smtp.client(&mut bed, MAIL);
            smtp.server(&mut bed, b"250 x\r\n");
            bed.finish();
            assert!(
                bed.sids().contains(&1),
                "{mode:?} {port} {}",
                first.escape_ascii()
            );
        }
    }
}

#[test]
fn the_words_of_a_client_count_if_the_server_sends_nothing() {
    for mode in [Mode::Ids, Mode::Ips] {
        let mut bed = TestBed::new(mode, "alert ftp any any -> any any (sid:1;)");
        let mut ftp = Conversation::open(&mut bed, (HOST_A, 40_000), (HOST_B, 2100));
        ftp.client(&mut bed, b"USER a\r\n");
        ftp.close(&mut bed);
        bed.finish();
        assert!(bed.sids().contains(&1), "{mode:?}");
    }
}

#[test]
fn attachments_that_are_complete_are_not_evaluated_again_with_later_ones() {
    let rule = r#"alert smtp any any -> any any (file.data; content:"A"; fast_pattern; content:"B"; within:1; sid:1;)"#;
    let mut bed = TestBed::new(Mode::Ips, rule);
    let mut smtp = Conversation::open(&mut bed, (HOST_A, 40_000), (HOST_B, 25));
    smtp.server(&mut bed, b"220 x\r\n");
    smtp.client(&mut bed, b"EHLO x\r\n");
    smtp.server(&mut bed, b"250 x\r\n");
    smtp.client(&mut bed, b"MAIL FROM:<a>\r\n");
    smtp.server(&mut bed, b"250 x\r\n");
    smtp.client(&mut bed, b"DATA\r\n");
    smtp.server(&mut bed, b"354 x\r\n");
    smtp.client(&mut bed, b"Content-Type: multipart/mixed; boundary=b\r\n\r\n");
    let part = |name: &str| format!("--b\r\nContent-Type: a/b; name={name}\r\n\r\n").into_bytes();
    let lines = [&[b'A'; 80][..], b"\r\n"].concat().repeat(50);
    smtp.client(&mut bed, &[part("one"), lines, part("two")].concat());
    // Each evaluation of the first attachment ends at the limit of steps.
    let limits = |bed: &mut TestBed| bed.engine.detector().counters().step_limits;
    let before = limits(&mut bed);
    assert!(before > 0);
    for _ in 0..20 {
        smtp.client(&mut bed, b"xxxx\r\n");
    }
    assert_eq!((limits(&mut bed), bed.alerts()), (before, 0));
    smtp.client(&mut bed, b"AB\r\n--b--\r\n.\r\n");
    assert_eq!((limits(&mut bed), bed.alerts()), (before, 1));
}

#[test]
fn a_mail_with_more_attachments_than_are_inspected_falls_under_a_policy() {
    for (count, policies, expected) in [
        (256, Policies::closed(), false),
        (257, Policies::closed(), true),
        (257, Policies::open(), false),
    ] {
        let settings = Settings {
            mode: Mode::Ips,
            policies,
            ..Settings::default()
        };
        let mut bed = TestBed::with(settings, &rule("alert"));
        let mut smtp = Conversation::open(&mut bed, (HOST_A, 40_000), (HOST_B, 25));
        smtp.server(&mut bed, b"220 x\r\n");
        let mut is_dropped = smtp.client(&mut bed, b"EHLO x\r\n");
        smtp.server(&mut bed, b"250 x\r\n");
        is_dropped |= smtp.client(&mut bed, b"DATA\r\n");
        smtp.server(&mut bed, b"354 x\r\n");
        is_dropped |= smtp.client(&mut bed, b"Content-Type: multipart/mixed; boundary=b\r\n\r\n");
        let parts: String = (0..count)
            .map(|at| format!("--b\r\nContent-Type: a/b; name=f{at}\r\n\r\nx\r\n"))
            .collect();
        is_dropped |= smtp.client(&mut bed, parts.as_bytes());
        assert_eq!(is_dropped, expected, "{count}");
    }
}
