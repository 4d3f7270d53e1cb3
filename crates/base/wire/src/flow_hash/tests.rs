//! Tests of the limits that hardware shares. The properties of the hash are in the tests of `datapath`.

use super::*;

/// Returns a frame with `tags` VLAN tags of the numbers 1, 2 and so on over UDP, and payload up to 200 bytes.
fn tagged(tags: u16, ports: [u8; 4]) -> Vec<u8> {
    let mut frame = vec![2; 12];
    for vid in 1..=tags {
        frame.extend([0x81, 0]);
        frame.extend(vid.to_be_bytes());
    }
    frame.extend([
        8, 0, 0x45, 0, 0, 100, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
    ]);
    frame.extend(ports);
    frame.resize(200, 0);
    frame
}

#[test]
fn bytes_past_the_window_belong_to_no_flow() {
    let hash = FlowHash::new(5);
    // IP in IP in IP in IP in IP in IP: the ports of the innermost packet are past byte 128.
    let mut frame = vec![2; 12];
    frame.extend([8, 0]);
    for depth in 0..6 {
        let protocol = if depth == 5 { 17 } else { 4 };
        frame.extend([
            0x45, 0, 0, 180, 0, 0, 0, 0, 64, protocol, 0, 0, 10, 0, 0, depth, 10, 0, 1, depth,
        ]);
    }
    let with = |ports: [u8; 4]| [&frame[..], &ports, &[0; 60]].concat();
    assert_eq!(hash.of(&with([1, 2, 3, 4])), hash.of(&with([1, 2, 3, 5])));
    assert_eq!(
        hash.of(&with([1, 2, 3, 4])),
        hash.of(&with([1, 2, 3, 4])[..WINDOW_SIZE])
    );
}

#[test]
fn headers_after_the_last_step_belong_to_no_flow() {
    let hash = FlowHash::new(5);
    // Ethernet, tags, IPv4 and UDP are the steps.
    let most = (STEPS_MAX - 3) as u16;
    assert_ne!(
        hash.of(&tagged(most, [1, 2, 3, 4])),
        hash.of(&tagged(most, [1, 2, 3, 5]))
    );
    assert_eq!(
        hash.of(&tagged(most + 1, [1, 2, 3, 4])),
        hash.of(&tagged(most + 1, [1, 2, 3, 5]))
    );
}

#[test]
fn the_length_of_an_802_3_frame_is_no_field_of_the_flow_and_snap_names_its_type() {
    let hash = FlowHash::new(5);
    let frame = |length: u8, rest: &[u8]| hash.of(&[&[2; 12][..], &[0, length], rest, &[0; 60]].concat());
    assert_eq!(frame(40, &[0x42, 0x42, 3]), frame(50, &[0x42, 0x42, 3]));
    let snap = |port: u8| {
        let ip = &tagged(0, [1, 2, 3, port])[14..60];
        frame(100, &[&[0xaa, 0xaa, 3, 0, 0, 0, 8, 0], ip].concat())
    };
    assert_ne!(snap(4), snap(5));
}

#[test]
fn networks_join_by_a_rotation_so_that_their_order_counts() {
    assert_eq!(join(join(0, 5), 6), 5 << 21 ^ 6);
    let hash = FlowHash::new(5);
    let [one, two] = [tagged(2, [1; 4]), {
        let mut other = tagged(2, [1; 4]);
        other[15] = 2;
        other[19] = 1;
        other
    }];
    assert_ne!(hash.of(&one), hash.of(&two));
}

#[test]
fn an_authentication_header_is_passed_and_a_cut_extension_header_ends_the_flow() {
    let hash = FlowHash::new(5);
    let frame = |port: u8, words: u8| {
        let mut frame = vec![2; 12];
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 60, 51, 64]);
        frame.extend([1; 32]);
        // Next header UDP; the length is in words of four bytes, minus two.
        frame.extend([17, words, 0, 0, 0, 0, 0, 1, 9, 9, 9, 9]);
        frame.extend([0, 1, 0, port, 0, 16, 0, 0]);
        frame.resize(120, 0);
        frame
    };
    assert_ne!(hash.of(&frame(1, 1)), hash.of(&frame(2, 1)));
    assert_eq!(hash.of(&frame(1, 200)), hash.of(&frame(2, 200)));
}
