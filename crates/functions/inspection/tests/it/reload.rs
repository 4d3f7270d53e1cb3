//! Rules that are replaced while flows continue.

use millrace_inspection::IPS;

use crate::bed::{ATTACK, TestBed, data, rules};

#[test]
fn a_flow_keeps_its_state_and_meets_the_new_rules() {
    let first = r#"alert tcp any any -> any any (msg:"one"; content:"one"; flowbits:set,seen; flowbits:noalert; sid:10;)"#;
    let second = |word: &str| {
        format!(
            r#"drop tcp any any -> any any (msg:"two"; content:"{word}"; flowbits:isset,seen; sid:1;)
            alert tcp any any -> any any (msg:"other bit"; content:"zzz"; flowbits:set,aaa; sid:11;)
            {first}"#
        )
    };
    let mut bed = TestBed::made(&IPS, &[], &second("unused"));
    bed.handshake();
    assert!(!bed.send(data(0, b"one")).is_dropped());
    let old = rules(&IPS, &second("unused"), None).unwrap();
    let new = rules(&IPS, &second("two"), Some(&old)).unwrap();
    assert!(
        bed.function.share(new).is_some(),
        "the old rules come back to be dropped elsewhere"
    );
    // The bit was set before, under another number of rules in the set.
    assert!(bed.send(data(3, b"two")).is_dropped());
    assert!(bed.is_attack_found());
}

#[test]
fn content_that_began_before_the_replacement_is_found_after_it() {
    let mut bed = TestBed::inline();
    bed.handshake();
    assert!(!bed.send(data(0, b"att")).is_dropped());
    let old = rules(&IPS, ATTACK, None).unwrap();
    let more = format!("alert udp any any -> any any (content:\"x\"; sid:2;)\n{ATTACK}");
    bed.function.share(rules(&IPS, &more, Some(&old)).unwrap());
    assert!(bed.send(data(3, b"ack")).is_dropped() && bed.is_attack_found());
}

#[test]
fn a_value_of_another_kind_is_not_taken() {
    let mut bed = TestBed::inline();
    let other = millrace_nf::SharedValue::new(7_u32);
    assert!(bed.function.share(other).is_some());
    bed.handshake();
    assert!(bed.send(data(0, b"attack")).is_dropped());
}
