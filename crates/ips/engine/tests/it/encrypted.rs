//! Flows that are encrypted only at their beginning, or only seem to be: their plain contents are searched.

use millrace_ips_engine::{Encryption, Mode, Settings};

use crate::bed::{ATTACK, HOST_A, HOST_B, TestBed};
use crate::conversation::Conversation;

#[test]
fn a_record_of_application_data_in_front_of_plain_text_hides_nothing() {
    for mode in [Mode::Ids, Mode::Ips] {
        let mut bed = TestBed::new(mode, ATTACK);
        let mut talk = Conversation::open(&mut bed, (HOST_A, 40_000), (HOST_B, 4444));
        let record = b"\x17\x03\x03\0\0";
        talk.client(&mut bed, record);
        talk.server(&mut bed, record);
        talk.client(&mut bed, record);
        let is_dropped = talk.client(&mut bed, b"the attack");
        talk.close(&mut bed);
        bed.finish();
        assert!(bed.is_attack_found(), "{mode:?}");
        assert_eq!(is_dropped, mode == Mode::Ips);
    }
}

const CLIENT_HELLO: &[u8] =
    b"\x16\x03\x01\0\x2f\x01\0\0\x2b\x03\x03abcdefghijklmnopqrstuvwxyz012345\0\0\x02\x13\x01\x01\0\0\0";
const SERVER_HELLO: &[u8] =
    b"\x16\x03\x03\0\x2c\x02\0\0\x28\x03\x03abcdefghijklmnopqrstuvwxyz012345\0\x13\x01\0\0\0";
/// A record of application data.
const DATA: &[u8] = b"\x17\x03\x03\0\x06attack";

#[test]
fn encrypted_data_are_searched_if_the_setting_says_so() {
    for (mode, encryption) in [Mode::Ids, Mode::Ips]
        .into_iter()
        .flat_map(|mode| [Encryption::TrackOnly, Encryption::Full].map(|encryption| (mode, encryption)))
    {
        let settings = Settings {
            mode,
            encryption,
            ..Settings::default()
        };
        let mut bed = TestBed::with(settings, ATTACK);
        let mut talk = Conversation::open(&mut bed, (HOST_A, 40_000), (HOST_B, 443));
        talk.client(&mut bed, CLIENT_HELLO);
        talk.server(&mut bed, SERVER_HELLO);
        talk.client(&mut bed, b"\x17\x03\x03\0\x01x");
        let is_dropped = talk.client(&mut bed, DATA);
        talk.close(&mut bed);
        bed.finish();
        let is_full = encryption == Encryption::Full;
        assert_eq!(bed.is_attack_found(), is_full, "{mode:?}, {encryption:?}");
        assert_eq!(is_dropped, is_full && mode == Mode::Ips);
    }
}

#[test]
fn plain_text_behind_encrypted_data_is_searched() {
    for mode in [Mode::Ids, Mode::Ips] {
        let mut bed = TestBed::new(mode, ATTACK);
        let mut talk = Conversation::open(&mut bed, (HOST_A, 40_000), (HOST_B, 443));
        talk.client(&mut bed, CLIENT_HELLO);
        talk.server(&mut bed, SERVER_HELLO);
        talk.client(&mut bed, b"\x17\x03\x03\0\x01x");
        for _ in 0..3 {
            assert!(!talk.client(&mut bed, DATA), "{mode:?}");
        }
        assert!(
            !bed.is_attack_found(),
            "{mode:?}: encrypted data are not searched"
        );
        let is_dropped = talk.client(&mut bed, b"the attack");
        talk.close(&mut bed);
        bed.finish();
        assert!(bed.is_attack_found(), "{mode:?}");
        assert_eq!(is_dropped, mode == Mode::Ips);
    }
}

#[test]
fn a_number_that_the_client_chooses_hides_no_request_of_modbus() {
    let rule = "drop modbus any any -> any any (modbus_func:5; sid:1;)";
    for mode in [Mode::Ids, Mode::Ips] {
        for identifier in [[0x17, 3], [5, 0], [0, 1]] {
            let mut bed = TestBed::new(mode, rule);
            let mut talk = Conversation::open(&mut bed, (HOST_A, 53), (HOST_B, 502));
            let request = [&identifier[..], b"\0\0\0\x06\x01\x05\0\x01\xff\0"].concat();
            let is_dropped = talk.client(&mut bed, &request);
            talk.close(&mut bed);
            bed.finish();
            assert!(bed.is_attack_found(), "{mode:?}, {identifier:?}");
            assert_eq!(is_dropped, mode == Mode::Ips);
        }
    }
}
