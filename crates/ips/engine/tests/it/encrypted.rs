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

/// Returns a packet of SSH with a message of this number.
fn ssh_packet(number: u8) -> Vec<u8> {
    [&[0, 0, 0, 12, 4, number][..], &[0; 10]].concat()
}

/// The number of the message after which a sender encrypts (RFC 4253, section 7.3).
const NEW_KEYS: u8 = 21;
const KEX_INIT: u8 = 20;

#[test]
fn bytes_behind_new_keys_of_their_sender_are_encrypted_and_those_before_are_not() {
    let banner = b"SSH-2.0-a\r\n";
    for mode in [Mode::Ids, Mode::Ips] {
        // The word is sent before NEWKEYS, in the packet behind it, or by the other end, which has not changed its keys.
        for (sender_changed, is_sender, is_clear) in
            [(false, true, true), (true, true, false), (true, false, true)]
        {
            for is_client in [true, false] {
                let mut bed = TestBed::new(mode, ATTACK);
                let mut talk = Conversation::open(&mut bed, (HOST_A, 40_000), (HOST_B, 22));
                let mut say = |bed: &mut TestBed, by_client: bool, bytes: &[u8]| match by_client {
                    true => talk.client(bed, bytes),
                    false => talk.server(bed, bytes),
                };
                say(&mut bed, true, banner);
                say(&mut bed, false, banner);
                say(&mut bed, is_client, &ssh_packet(KEX_INIT));
                if sender_changed {
                    say(&mut bed, is_client, &ssh_packet(NEW_KEYS));
                }
                // A packet of the key exchange that has the word in clear, or any bytes if they are encrypted.
                let word = [&[0, 0, 0, 12, 4, 30][..], b"the attack"].concat();
                let is_dropped = say(&mut bed, is_client == is_sender, &word);
                talk.close(&mut bed);
                bed.finish();
                let text = format!("{mode:?}, {sender_changed}, {is_sender}, client: {is_client}");
                assert_eq!(bed.is_attack_found(), is_clear, "{text}");
                assert_eq!(is_dropped, is_clear && mode == Mode::Ips, "{text}");
            }
        }
    }
}

#[test]
fn clear_bytes_of_ssh_that_wait_for_their_inspection_are_searched_although_new_keys_follow() {
    for mode in [Mode::Ids, Mode::Ips] {
        for size in [7, 40, 1_000] {
            let mut bed = TestBed::new(mode, ATTACK);
            let mut talk = Conversation::open(&mut bed, (HOST_A, 40_000), (HOST_B, 22));
            talk.server(&mut bed, b"SSH-2.0-a\r\n");
            let clear = [
                &b"SSH-2.0-the attack\r\n"[..],
                &ssh_packet(KEX_INIT),
                &ssh_packet(NEW_KEYS),
            ]
            .concat();
            let mut is_dropped = false;
            for part in [&clear[..], &[0xff; 60]].concat().chunks(size) {
                is_dropped |= talk.client(&mut bed, part);
            }
            talk.close(&mut bed);
            bed.finish();
            assert!(bed.is_attack_found(), "{mode:?}, {size}");
            assert_eq!(is_dropped, mode == Mode::Ips);
        }
    }
}
