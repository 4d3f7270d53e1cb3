//! The endpoint: any frames, between datagrams that it sends.

use std::net::SocketAddr;

use millrace_endpoint::limits::{OUT_MAX, QUOTE_SIZE, WAITING_MAX};
use millrace_endpoint::{Config, Endpoint, FrameWriter, Received};
use millrace_types::{Duration, Mac, Time};

/// Bytes of an answer besides those of the frame and of a quotation.
const HEADERS: usize = 90;

struct Discard;

impl FrameWriter for Discard {
    fn write_frame<'a>(&mut self, size: usize, slices: impl Iterator<Item = &'a [u8]>) -> bool {
        assert_eq!(slices.map(<[u8]>::len).sum::<usize>(), size);
        assert!(size <= 1_514);
        true
    }
}

/// Reads the bytes as frames, each after two bytes: its length in the low 12 bits; bit 15 lets a second pass, bit 14 sends a
/// datagram over IPv4, bit 13 one over IPv6.
///
/// Properties: a payload lies within its frame; a frame has two answers at most, unless datagrams waited for it, and none longer
/// than the frame or a quotation with headers.
pub(crate) fn frames(bytes: &[u8]) {
    let mut config = Config::new(
        Mac([2, 0, 0, 0, 0, 1]),
        "192.0.2.1/24".parse().expect("an address"),
        1,
    );
    config
        .addresses
        .push("2001:db8::1/64".parse().expect("an address"));
    let mut endpoint = Endpoint::new(config, Time::ZERO).expect("a configuration");
    endpoint.bind(7_800).expect("a port");
    let mut now = Time::ZERO;
    for _ in 0..5 {
        now = now + Duration::from_secs(1);
        endpoint.on_timeout(now);
    }
    while endpoint.poll_transmit().is_some() {}
    let mut rest = bytes;
    while let Some((head, behind)) = rest.split_first_chunk() {
        let head = u16::from_be_bytes(*head);
        if head & 0x8000 != 0 {
            now = now + Duration::from_secs(1);
            endpoint.on_timeout(now);
        }
        for (bit, to) in [(0x4000, "192.0.2.2:7800"), (0x2000, "[2001:db8::2]:7800")] {
            if head & bit != 0 {
                let to: SocketAddr = to.parse().expect("an address");
                let _ = endpoint.send(now, 7_800, to, &[&[7; 200][..]], 100, &mut Discard);
            }
        }
        let mut out = 0;
        while endpoint.poll_transmit().is_some() {
            out += 1;
        }
        assert!(out <= OUT_MAX);
        let frame = &behind[..usize::from(head & 0xfff).min(behind.len())];
        rest = &behind[frame.len()..];
        if let Received::Datagram { payload, .. } = endpoint.receive(now, frame) {
            assert!(payload.start >= 42 && payload.end <= frame.len());
        }
        let mut answers = 0;
        while let Some(answer) = endpoint.poll_transmit() {
            assert!(answer.len() <= (frame.len() + HEADERS).max(QUOTE_SIZE + HEADERS).max(250));
            answers += 1;
        }
        assert!(answers <= 2 + WAITING_MAX);
        while endpoint.poll_event().is_some() {}
    }
}
