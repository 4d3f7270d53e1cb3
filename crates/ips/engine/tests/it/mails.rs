//! Mails through the whole engine: what is inspected before it is forwarded, and what the first bytes decide.

use millrace_ips_engine::Mode;

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
