//! Tests with single segments of connections, and the property that segmentation does not change the result.

use millrace_types::Time;
use millrace_wire::ip::Pseudo;
use millrace_wire::tcp::flags::{ACK, FIN, PSH, RST, SYN, URG};
use millrace_wire::{IpProto, ipv4, tcp};
use proptest::prelude::*;

use super::normalize::{Edits, SegmentLocation, TcpCounters};
use super::*;
use crate::flow::Direction;
use crate::flow::FlowState;
use crate::mode::Mode;
use crate::packet::{Context, LinkType, Packet, find_ip_header};
use crate::pieces::OverlapPolicy;
use crate::settings::Settings;

mod handshakes;
mod old_segments;

const CLIENT: u32 = 1000;
const SERVER: u32 = 9000;

/// A segment to send.
#[derive(Debug, Clone, Default)]
struct Segment<'a> {
    flags: u16,
    seq: u32,
    ack: u32,
    data: &'a [u8],
    options: &'a [u8],
    urgent: u16,
    window: Option<u16>,
}

fn bytes(segment: &Segment<'_>) -> Vec<u8> {
    let (src, dst) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
    let repr = tcp::Repr {
        src: 40000,
        dst: 80,
        seq: segment.seq,
        ack: segment.ack,
        flags: segment.flags,
        window: segment.window.unwrap_or(65_535),
        urgent: segment.urgent,
        options: tcp::Options::new(segment.options).unwrap(),
    };
    let mut out = Vec::new();
    let ip = ipv4::Repr {
        src,
        dst,
        proto: IpProto::TCP,
        dscp: millrace_wire::Dscp::from_low_bits(0),
        ecn: millrace_wire::Ecn::from_low_bits(0),
        ttl: 64,
        ident: 1,
        dont_fragment: true,
        more_fragments: false,
        fragment_offset: 0,
        options: ipv4::Options::default(),
        payload_size: (repr.header_size() + segment.data.len()) as u16,
    };
    ip.emit(&mut out);
    repr.emit(&Pseudo::V4 { src, dst }, segment.data, &mut out);
    out
}

fn decode(bytes: &[u8]) -> Packet<'_> {
    let context = Context {
        number: 1,
        time: Time::ZERO,
        tunnel_depth: 0,
        is_reassembled: false,
        reassemblies: 0,
        is_tunnel: false,
        compares_checksums: false,
        events: crate::packet::events::PacketEvents::NONE,
    };
    let network = find_ip_header(LinkType(LinkType::RAW), bytes).unwrap();
    Packet::decode(bytes, network, context).unwrap()
}

/// A connection, and the bytes that its parser received.
struct TestBed {
    settings: TcpSettings,
    session: Session,
    counters: TcpCounters,
    received: [Vec<u8>; 2],
    gaps: [u64; 2],
    ended: [bool; 2],
}

impl TestBed {
    fn new(mode: Mode) -> TestBed {
        let settings = Settings {
            mode,
            ..Settings::default()
        };
        TestBed::with(settings.tcp())
    }

    fn with(settings: TcpSettings) -> TestBed {
        let syn = bytes(&Segment {
            flags: SYN,
            seq: CLIENT,
            ..Segment::default()
        });
        let session = Session::begin(&decode(&syn).tcp.unwrap(), &settings, settings.depth).unwrap();
        TestBed {
            settings,
            session,
            counters: TcpCounters::default(),
            received: Default::default(),
            gaps: [0; 2],
            ended: [false; 2],
        }
    }

    /// Returns a connection after its handshake.
    fn established(mode: Mode) -> TestBed {
        let mut bed = TestBed::new(mode);
        bed.handshake(CLIENT, SERVER);
        bed
    }

    fn handshake(&mut self, client: u32, server: u32) {
        self.send(Direction::ToServer, SYN, client, 0, b"").unwrap();
        self.send(
            Direction::ToClient,
            SYN | ACK,
            server,
            client.wrapping_add(1),
            b"",
        )
        .unwrap();
        self.send(
            Direction::ToServer,
            ACK,
            client.wrapping_add(1),
            server.wrapping_add(1),
            b"",
        )
        .unwrap();
        assert_eq!(self.session.state(), FlowState::Established);
    }

    fn send(
        &mut self,
        direction: Direction,
        flags: u16,
        seq: u32,
        ack: u32,
        data: &[u8],
    ) -> Result<Vec<u8>, TcpProblem> {
        let segment = Segment {
            flags,
            seq,
            ack,
            data,
            ..Segment::default()
        };
        self.segment(direction, &segment)
    }

    /// Sends a segment; returns the frame after normalisation.
    fn segment(&mut self, direction: Direction, segment: &Segment<'_>) -> Result<Vec<u8>, TcpProblem> {
        let mut frame = bytes(segment);
        let packet = decode(&frame);
        let location = SegmentLocation::of(&packet).unwrap();
        let tcp = packet.tcp.unwrap();
        let accepted = self
            .session
            .segment(&packet, &tcp, direction, &self.settings, &mut self.counters)?;
        if accepted.edits != Edits::default() {
            accepted.edits.apply(&location, &mut frame);
        }
        self.deliver(false);
        Ok(frame)
    }

    fn deliver(&mut self, is_last: bool) {
        for direction in Direction::BOTH {
            let at = direction.index();
            let (received, gaps, ended) = (&mut self.received[at], &mut self.gaps[at], &mut self.ended[at]);
            self.session
                .deliver(direction, &self.settings, is_last, &mut self.counters, |chunk| {
                    assert!(!*ended, "bytes follow the end");
                    *gaps += chunk.gap_before;
                    assert_eq!(chunk.offset, received.len() as u64 + *gaps);
                    received.extend_from_slice(chunk.bytes);
                    *ended |= chunk.is_end;
                });
            if let Some(buffer) = self
                .session
                .take_for_inspection(direction, &self.settings, true, false)
            {
                self.session.put_back(direction, buffer, self.settings.mode);
            }
        }
    }

    fn text(&self, direction: Direction) -> &str {
        std::str::from_utf8(&self.received[direction.index()]).unwrap()
    }
}

use Direction::{ToClient, ToServer};

#[test]
fn in_line_data_are_delivered_at_once_and_beside_the_path_when_acknowledged() {
    for (mode, at_once) in [(Mode::Ips, "hello"), (Mode::Ids, "")] {
        let mut bed = TestBed::established(mode);
        bed.send(ToServer, ACK | PSH, CLIENT + 1, SERVER + 1, b"hello")
            .unwrap();
        assert_eq!(bed.text(ToServer), at_once);
        bed.send(ToClient, ACK, SERVER + 1, CLIENT + 6, b"").unwrap();
        assert_eq!(bed.text(ToServer), "hello");
    }
}

#[test]
fn the_end_of_a_flow_delivers_what_was_not_acknowledged() {
    let mut bed = TestBed::established(Mode::Ids);
    bed.send(ToServer, ACK, CLIENT + 1, SERVER + 1, b"hello").unwrap();
    bed.deliver(true);
    assert_eq!(bed.text(ToServer), "hello");
}

#[test]
fn segments_out_of_order_wait_for_the_missing_one() {
    let mut bed = TestBed::established(Mode::Ips);
    bed.send(ToServer, ACK, CLIENT + 4, SERVER + 1, b"lo").unwrap();
    assert_eq!(bed.text(ToServer), "");
    bed.send(ToServer, ACK, CLIENT + 1, SERVER + 1, b"hel").unwrap();
    assert_eq!(bed.text(ToServer), "hello");
}

#[test]
fn sequence_numbers_wrap() {
    for mode in [Mode::Ids, Mode::Ips] {
        let mut bed = TestBed::new(mode);
        let client = u32::MAX - 3;
        bed.handshake(client, SERVER);
        bed.send(ToServer, ACK, 2, SERVER + 1, b"56789").unwrap();
        bed.send(ToServer, ACK, client.wrapping_add(1), SERVER + 1, b"01234")
            .unwrap();
        bed.send(ToClient, ACK, SERVER + 1, client.wrapping_add(11), b"")
            .unwrap();
        assert_eq!(bed.text(ToServer), "0123456789");
    }
}

#[test]
fn acknowledged_data_that_were_not_seen_are_a_gap() {
    for mode in [Mode::Ids, Mode::Ips] {
        let mut bed = TestBed::established(mode);
        bed.send(ToServer, ACK, CLIENT + 1, SERVER + 1, b"ab").unwrap();
        bed.send(ToServer, ACK, CLIENT + 6, SERVER + 1, b"fg").unwrap();
        assert_eq!(bed.gaps, [0, 0]);
        bed.send(ToClient, ACK, SERVER + 1, CLIENT + 8, b"").unwrap();
        bed.deliver(false);
        assert_eq!((bed.text(ToServer), bed.gaps[0]), ("abfg", 3));
    }
}

#[test]
fn in_line_the_first_copy_is_what_the_receiver_gets() {
    // The attack comes first or second, before or after the gap is filled.
    let mut bed = TestBed::established(Mode::Ips);
    bed.send(ToServer, ACK, CLIENT + 4, SERVER + 1, b"lo").unwrap();
    let changed = bed
        .send(ToServer, ACK, CLIENT + 1, SERVER + 1, b"helXXX")
        .unwrap();
    assert_eq!(decode(&changed).payload, b"helloX");
    assert!(decode(&changed).checksum_is_right());
    let again = bed
        .send(ToServer, ACK, CLIENT + 1, SERVER + 1, b"YYYYYY")
        .unwrap();
    assert_eq!(decode(&again).payload, b"helloX");
    assert_eq!(bed.text(ToServer), "helloX");
    assert_eq!(bed.counters.conflicts, 2);
}

#[test]
fn beside_the_path_the_policy_of_the_host_decides() {
    for (policy, text) in [(OverlapPolicy::First, "hello"), (OverlapPolicy::Bsd, "helXX")] {
        let mut settings = TestBed::new(Mode::Ids).settings;
        settings.policy_v4 = policy;
        let mut bed = TestBed::with(settings);
        bed.handshake(CLIENT, SERVER);
        bed.send(ToServer, ACK, CLIENT + 4, SERVER + 1, b"lo").unwrap();
        bed.send(ToServer, ACK, CLIENT + 1, SERVER + 1, b"helXX").unwrap();
        bed.send(ToClient, ACK, SERVER + 1, CLIENT + 6, b"").unwrap();
        assert_eq!(bed.text(ToServer), text);
    }
}

#[test]
fn split_handshake_and_simultaneous_open_establish_a_connection() {
    // Simultaneous open (RFC 9293, section 3.5, figure 7).
    let mut bed = TestBed::new(Mode::Ips);
    bed.send(ToServer, SYN, CLIENT, 0, b"").unwrap();
    bed.send(ToClient, SYN, SERVER, 0, b"").unwrap();
    bed.send(ToServer, SYN | ACK, CLIENT, SERVER + 1, b"").unwrap();
    assert_eq!(bed.session.state(), FlowState::New);
    bed.send(ToClient, SYN | ACK, SERVER, CLIENT + 1, b"").unwrap();
    assert_eq!(bed.session.state(), FlowState::Established);
    bed.send(ToServer, ACK, CLIENT + 1, SERVER + 1, b"hello").unwrap();
    assert_eq!(bed.text(ToServer), "hello");
    // Split handshake: the server acknowledges first, and sends its SYN apart.
    let mut bed = TestBed::new(Mode::Ips);
    bed.send(ToServer, SYN, CLIENT, 0, b"").unwrap();
    bed.send(ToClient, ACK, SERVER, CLIENT + 1, b"").unwrap();
    bed.send(ToClient, SYN, SERVER, 0, b"").unwrap();
    bed.send(ToServer, SYN | ACK, CLIENT, SERVER + 1, b"").unwrap();
    assert_eq!(bed.session.state(), FlowState::Established);
}

#[test]
fn in_line_server_data_before_the_end_of_the_handshake_are_refused() {
    let mut bed = TestBed::new(Mode::Ips);
    bed.send(ToServer, SYN, CLIENT, 0, b"").unwrap();
    bed.send(ToClient, SYN | ACK, SERVER, CLIENT + 1, b"").unwrap();
    let early = bed.send(ToClient, ACK, SERVER + 1, CLIENT + 1, b"early");
    assert_eq!(early, Err(TcpProblem::EarlyData));
}

#[test]
fn in_line_data_in_a_syn_are_trimmed_and_inspected_if_they_are_acknowledged() {
    let options: [&[u8]; 4] = [
        &[],
        &[34, 6, 1, 2, 3, 4, 1, 1],
        &[0xfe, 6, 0xf9, 0x89, 1, 2, 1, 1],
        &[0xfd, 4, 0xf9, 0x89],
    ];
    for options in options {
        for taken in [0, 3, 5] {
            let mut bed = TestBed::new(Mode::Ips);
            let syn = Segment {
                flags: SYN,
                seq: CLIENT,
                data: b"early",
                options,
                ..Segment::default()
            };
            let frame = bed.segment(ToServer, &syn).unwrap();
            assert!(decode(&frame).payload.is_empty() && decode(&frame).checksum_is_right());
            let next = CLIENT + 1 + taken;
            bed.send(ToClient, SYN | ACK, SERVER, next, b"").unwrap();
            bed.send(ToServer, ACK, next, SERVER + 1, b"data").unwrap();
            let expected = format!("{}data", &"early"[..taken as usize]);
            assert_eq!(bed.text(ToServer), expected, "{options:x?}");
        }
    }
}

#[test]
fn a_reset_counts_only_where_the_receiver_expects_it() {
    for seq in [CLIENT + 100, CLIENT.wrapping_sub(50)] {
        let mut bed = TestBed::established(Mode::Ips);
        let reset = bed.send(ToServer, RST, seq, 0, b"");
        assert_eq!(reset, Err(TcpProblem::Reset));
        assert_eq!(bed.session.state(), FlowState::Established);
    }
    let mut bed = TestBed::established(Mode::Ips);
    bed.send(ToServer, RST, CLIENT + 1, 0, b"").unwrap();
    assert_eq!(bed.session.state(), FlowState::Closed);
    let data = bed.send(ToServer, ACK, CLIENT + 1, SERVER + 1, b"late");
    assert_eq!(data, Err(TcpProblem::Closed));
}

#[test]
fn a_syn_or_fin_inserted_into_a_connection_is_refused() {
    let mut bed = TestBed::established(Mode::Ips);
    assert_eq!(
        bed.send(ToServer, SYN, CLIENT + 77, 0, b""),
        Err(TcpProblem::SynInConnection)
    );
    assert_eq!(
        bed.send(ToServer, SYN | FIN, CLIENT + 1, 0, b""),
        Err(TcpProblem::Flags)
    );
    // A FIN outside the window would end the stream here, but not at the receiver.
    let far = CLIENT + 1 + 70_000;
    assert_eq!(
        bed.send(ToServer, FIN | ACK, far, SERVER + 1, b"x"),
        Err(TcpProblem::Window)
    );
    bed.send(ToServer, ACK, CLIENT + 1, SERVER + 1, b"still here")
        .unwrap();
    assert_eq!(bed.text(ToServer), "still here");
}

#[test]
fn data_after_the_fin_are_refused() {
    let mut bed = TestBed::established(Mode::Ips);
    bed.send(ToServer, ACK | FIN, CLIENT + 1, SERVER + 1, b"end")
        .unwrap();
    assert!(bed.ended[0]);
    let after = bed.send(ToServer, ACK, CLIENT + 4, SERVER + 1, b"more");
    assert_eq!(after, Err(TcpProblem::AfterFin));
    bed.send(ToClient, ACK | FIN, SERVER + 1, CLIENT + 5, b"")
        .unwrap();
    assert_eq!(bed.session.state(), FlowState::Closed);
}

#[test]
fn segments_outside_the_window_or_without_ack_are_refused() {
    let mut bed = TestBed::established(Mode::Ips);
    let far = bed.send(ToServer, ACK, CLIENT + 1 + 65_535, SERVER + 1, b"far");
    assert_eq!(far, Err(TcpProblem::Window));
    assert_eq!(
        bed.send(ToServer, PSH, CLIENT + 1, 0, b"no ack"),
        Err(TcpProblem::Flags)
    );
    let future = bed.send(ToServer, ACK, CLIENT + 1, SERVER + 500_000, b"x");
    assert_eq!(future, Err(TcpProblem::Ack));
}

#[test]
fn a_closed_window_lets_probes_of_one_byte_pass() {
    let mut bed = TestBed::established(Mode::Ips);
    let closed = Segment {
        flags: ACK,
        seq: SERVER + 1,
        ack: CLIENT + 1,
        window: Some(0),
        ..Segment::default()
    };
    bed.segment(ToClient, &closed).unwrap();
    bed.send(ToServer, ACK, CLIENT + 1, SERVER + 1, b"p").unwrap();
    let more = bed.send(ToServer, ACK, CLIENT + 2, SERVER + 1, b"xy");
    assert_eq!(more, Err(TcpProblem::Window));
}

#[test]
fn urgent_pointer_reserved_bits_and_unknown_options_are_cleared() {
    let mut bed = TestBed::established(Mode::Ips);
    let odd = Segment {
        flags: ACK | URG | 0x800,
        seq: CLIENT + 1,
        ack: SERVER + 1,
        data: b"attack",
        options: &[99, 4, 1, 2],
        urgent: 3,
        ..Segment::default()
    };
    let frame = bed.segment(ToServer, &odd).unwrap();
    let packet = decode(&frame);
    let header = packet.tcp.unwrap();
    assert_eq!(
        (header.flags, header.urgent, header.options),
        (ACK, 0, &[1, 1, 1, 1][..])
    );
    assert!(packet.checksum_is_right());
    assert_eq!(bed.text(ToServer), "attack");
}

#[test]
fn nothing_is_kept_past_the_depth() {
    let mut settings = TestBed::new(Mode::Ips).settings;
    settings.depth = 10;
    let mut bed = TestBed::with(settings);
    bed.handshake(CLIENT, SERVER);
    for at in 0..1000 {
        bed.send(ToServer, ACK, CLIENT + 1 + at * 10, SERVER + 1, &[b'x'; 10])
            .unwrap();
        bed.send(ToClient, ACK, SERVER + 1, CLIENT + 11 + at * 10, b"")
            .unwrap();
    }
    assert_eq!(bed.received[0].len(), 10);
    assert!(bed.ended[0]);
    assert!(bed.session.memory() < 10_000, "{}", bed.session.memory());
}

/// Returns parameters of the properties: extra segments (offset, size), a random seed, and true for mode
/// `ips`.
fn parts() -> impl Strategy<Value = (Vec<(usize, usize)>, u64, bool)> {
    (
        prop::collection::vec((0usize..300, 1usize..60), 0..20),
        any::<u64>(),
        any::<bool>(),
    )
}

proptest! {
    /// The parser receives the same bytes whatever the segmentation, order and repetition.
    #[test]
    fn segmentation_does_not_matter((extra, seed, is_inline) in parts(), cut in 1usize..60, size in 1usize..300) {
        let data: Vec<u8> = (0..size).map(|at| (at * 7) as u8).collect();
        let mut ranges: Vec<(usize, usize)> =
            (0..size).step_by(cut).map(|at| (at, (at + cut).min(size))).collect();
        ranges.extend(extra.iter().filter(|(at, _)| *at < size).map(|(at, len)| (*at, (at + len).min(size))));
        let mut state = seed;
        for at in (1..ranges.len()).rev() {
            ranges.swap(at, (millrace_types::split_mix::next(&mut state) % (at as u64 + 1)) as usize);
        }
        let first = seed as u32;
        let mut bed = TestBed::new(if is_inline { Mode::Ips } else { Mode::Ids });
        bed.handshake(first, SERVER);
        let base = first.wrapping_add(1);
        for (from, to) in ranges {
            bed.send(ToServer, ACK, base.wrapping_add(from as u32), SERVER + 1, &data[from..to]).unwrap();
            if is_inline && seed % 2 == 0 {
                // The receiver acknowledges the data that it has.
                let have = bed.received[0].len() as u32;
                bed.send(ToClient, ACK, SERVER + 1, base.wrapping_add(have), b"").unwrap();
            }
        }
        let fin = base.wrapping_add(size as u32);
        bed.send(ToServer, ACK | FIN, fin, SERVER + 1, b"").unwrap();
        bed.send(ToClient, ACK, SERVER + 1, fin.wrapping_add(1), b"").unwrap();
        prop_assert_eq!(&bed.received[0], &data);
        prop_assert!(bed.ended[0]);
        prop_assert_eq!(bed.gaps[0], 0);
    }

    /// In mode `ips`, the parser receives the same bytes as a receiver, whichever copy the receiver prefers.
    #[test]
    fn the_receiver_gets_what_was_inspected(
        segments in prop::collection::vec((0usize..60, 1usize..20, any::<u8>(), any::<bool>()), 1..40),
    ) {
        let mut bed = TestBed::established(Mode::Ips);
        let mut first = [None; 80];
        let mut last = [None; 80];
        let mut acked = 0;
        for (at, len, byte, acknowledges) in segments {
            let sent = bed.send(ToServer, ACK, CLIENT + 1 + at as u32, SERVER + 1, &vec![byte; len]);
            if let Ok(frame) = sent {
                for (offset, byte) in decode(&frame).payload.iter().enumerate() {
                    let slot = at + offset;
                    first[slot] = first[slot].or(Some(*byte));
                    // A receiver never changes what it has acknowledged.
                    if slot >= acked {
                        last[slot] = Some(*byte);
                    }
                }
            }
            if acknowledges {
                acked = first.iter().position(Option::is_none).unwrap();
                bed.send(ToClient, ACK, SERVER + 1, CLIENT + 1 + acked as u32, b"").unwrap();
            }
        }
        prop_assert_eq!(first, last);
        let expected: Vec<u8> = first.iter().map_while(|byte| *byte).collect();
        prop_assert_eq!(&bed.received[0], &expected);
    }
}
