//! The events of the TCP engine that rules name in `stream-event`: what is unusual about a segment, by the state of its
//! connection (RFC 9293, section 3.3.2).
//!
//! ```text
//!  SYN ─▶ SynSent ─SYN,ACK─▶ SynReceived ─ACK─▶ Established ─FIN of the server─▶ FinWait1 ─ACK─▶ FinWait2 ─FIN─▶ TimeWait
//!           └─SYN of the server─▶ FourWay ─────────▲  └──────FIN of the client─▶ CloseWait ─FIN─▶ LastAck ─ACK─▶ Closed
//! ```
//!
//! The observer only reports: [`Session`](super::Session) decides which segments are accepted. It exists only if a rule asks for
//! events. A state has the name that the event has.

use millrace_wire::tcp::flags;

use super::options::Options;
use crate::flow::Direction;
use crate::mode::Mode;
use crate::packet::events::PacketEvents;
use crate::packet::{Packet, TcpHeader};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    SynSent,
    /// The server answered the SYN with a SYN of its own.
    FourWay,
    SynReceived,
    Established,
    FinWait1,
    FinWait2,
    Closing,
    CloseWait,
    LastAck,
    TimeWait,
    Closed,
}

/// The sequence numbers of one end.
#[derive(Debug, Clone, Copy, Default)]
struct End {
    isn: u32,
    /// The number after the last byte that was sent, FIN included.
    next: u32,
    /// The highest acknowledgment that the other end sent for this end's bytes.
    acked: u32,
    /// The window of this end in bytes, scaled.
    window: u32,
    scale: u8,
    timestamp: Option<u32>,
    /// The number of the FIN.
    fin: Option<u32>,
}

/// Largest number of different SYN-ACKs of a handshake before it counts as a flood (Suricata, `stream.max-synack-queued`).
const ANSWERS: u8 = 5;

/// The state of a connection for its events.
#[derive(Debug)]
pub(crate) struct Observer {
    state: State,
    /// Client and server, by [`Direction::index`] of the segments that they send.
    ends: [End; 2],
    /// Number of different SYN-ACKs.
    answers: u8,
    /// True if the SYN had data and the option for fast open.
    has_early_data: bool,
    /// The direction of the reset that closed the connection.
    reset: Option<Direction>,
}

/// Returns true if a sequence number is after another.
fn after(one: u32, other: u32) -> bool {
    (one.wrapping_sub(other) as i32) > 0
}

/// Returns the events of a segment. `observer` is the state of its connection, which a SYN begins.
pub(crate) fn observe(
    observer: &mut Option<Box<Observer>>,
    packet: &Packet<'_>,
    tcp: &TcpHeader<'_>,
    direction: Direction,
    mode: Mode,
) -> PacketEvents {
    let mut events = PacketEvents::NONE;
    if !tcp.has(flags::ACK) && tcp.ack != 0 && !tcp.has(flags::RST) {
        events.stream("pkt_broken_ack");
    }
    if tcp.has(flags::SYN | flags::FIN) {
        events.stream("fin_syn");
        return events;
    }
    let Some(known) = observer else {
        if tcp.is_syn() && direction == Direction::ToServer {
            *observer = Some(Box::new(Observer::begin(packet, tcp)));
        } else if tcp.has(flags::RST) {
            events.stream("rst_but_no_session");
        } else if tcp.has(flags::FIN) {
            events.stream("fin_but_no_session");
        }
        return events;
    };
    if known.state == State::Closed && tcp.is_syn() && direction == Direction::ToServer {
        *observer = Some(Box::new(Observer::begin(packet, tcp)));
        return events;
    }
    known.segment(packet, tcp, direction, mode, &mut events);
    events
}

impl Observer {
    fn begin(packet: &Packet<'_>, tcp: &TcpHeader<'_>) -> Observer {
        const FAST_OPEN: u8 = 34;
        let options = Options::parse(tcp.options);
        let has_fast_open = super::options::list(tcp.options).any(|(kind, _)| kind == FAST_OPEN);
        let client = End {
            isn: tcp.seq,
            next: tcp.seq.wrapping_add(1).wrapping_add(packet.payload.len() as u32),
            acked: tcp.seq,
            window: tcp.window.into(),
            scale: options.window_scale.unwrap_or(0),
            timestamp: options.timestamp,
            fin: None,
        };
        Observer {
            state: State::SynSent,
            ends: [client, End::default()],
            answers: 0,
            has_early_data: has_fast_open && !packet.payload.is_empty(),
            reset: None,
        }
    }

    fn segment(
        &mut self,
        packet: &Packet<'_>,
        tcp: &TcpHeader<'_>,
        direction: Direction,
        mode: Mode,
        events: &mut PacketEvents,
    ) {
        if tcp.has(flags::RST) {
            return self.reset(tcp, direction, events);
        }
        match self.state {
            State::SynSent => self.syn_sent(packet, tcp, direction, events),
            State::FourWay => self.four_way(tcp, direction, events),
            State::SynReceived => self.syn_received(packet, tcp, direction, mode, events),
            State::Closed => {
                // A segment after a reset shows that its receiver did not take part in it.
                if self.reset.is_some() {
                    events.stream("suspected_rst_inject");
                }
            }
            _ if tcp.has(flags::SYN) => self.syn_in_connection(tcp, direction, events),
            _ => self.synchronized(packet, tcp, direction, events),
        }
    }

    fn reset(&mut self, tcp: &TcpHeader<'_>, direction: Direction, events: &mut PacketEvents) {
        if self.state == State::Closed {
            return;
        }
        let sender = self.ends[direction.index()];
        let receiver = self.ends[direction.reverse().index()];
        let is_answer = matches!(self.state, State::SynSent) && direction == Direction::ToClient;
        let is_ack_valid = !tcp.has(flags::ACK) || !after(tcp.ack, receiver.next);
        if !is_ack_valid {
            return events.stream("rst_invalid_ack");
        }
        let is_expected = is_answer
            || !after(sender.acked, tcp.seq) && !after(tcp.seq, sender.next.wrapping_add(receiver.window));
        if is_expected {
            self.state = State::Closed;
            self.reset = Some(direction);
        } else {
            events.stream("rst_invalid_ack");
        }
    }

    /// Takes the SYN of the server, with or without ACK.
    fn answer(&mut self, tcp: &TcpHeader<'_>) {
        let options = Options::parse(tcp.options);
        let client = &mut self.ends[0];
        // Windows are scaled only if both ends offer it (RFC 7323, section 2.2).
        if options.window_scale.is_none() {
            client.scale = 0;
        }
        let has_scale = client.scale > 0 || options.window_scale.is_some();
        self.ends[1] = End {
            isn: tcp.seq,
            next: tcp.seq.wrapping_add(1),
            acked: tcp.seq,
            window: tcp.window.into(),
            scale: options.window_scale.filter(|_| has_scale).unwrap_or(0),
            timestamp: options.timestamp,
            fin: None,
        };
    }

    fn syn_sent(
        &mut self,
        packet: &Packet<'_>,
        tcp: &TcpHeader<'_>,
        direction: Direction,
        events: &mut PacketEvents,
    ) {
        let client = self.ends[0];
        match (tcp.has(flags::SYN), tcp.has(flags::ACK), direction) {
            (true, true, Direction::ToServer) => events.stream("3whs_synack_in_wrong_direction"),
            (true, true, Direction::ToClient) => {
                let first = client.isn.wrapping_add(1);
                if tcp.ack != first && tcp.ack != client.next {
                    return events.stream("3whs_synack_with_wrong_ack");
                }
                if self.has_early_data && tcp.ack == first {
                    events.stream("3whs_synack_tfo_data_ignored");
                    self.ends[0].next = first;
                }
                self.answer(tcp);
                self.ends[0].acked = tcp.ack;
                self.answers = 1;
                self.state = State::SynReceived;
            }
            (true, false, Direction::ToClient) => {
                self.answer(tcp);
                self.state = State::FourWay;
            }
            (true, false, Direction::ToServer) => *self = Observer::begin(packet, tcp),
            (false, ..) => {}
        }
    }

    fn four_way(&mut self, tcp: &TcpHeader<'_>, direction: Direction, events: &mut PacketEvents) {
        let [client, server] = self.ends;
        if tcp.has(flags::SYN | flags::ACK) && direction == Direction::ToServer {
            if tcp.ack != server.isn.wrapping_add(1) {
                return events.stream("4whs_synack_with_wrong_ack");
            }
            if tcp.seq != client.isn {
                return events.stream("4whs_synack_with_wrong_syn");
            }
            self.ends[1].acked = tcp.ack;
            return;
        }
        if tcp.has(flags::ACK) && !tcp.has(flags::SYN) && direction == Direction::ToClient {
            if tcp.seq != server.isn.wrapping_add(1) {
                return events.stream("4whs_wrong_seq");
            }
            if tcp.ack != client.isn.wrapping_add(1) {
                return events.stream("4whs_invalid_ack");
            }
            self.ends[0].acked = tcp.ack;
            self.state = State::Established;
        } else if tcp.has(flags::SYN | flags::ACK) {
            self.ends[0].acked = tcp.ack;
            self.state = State::SynReceived;
        }
    }

    fn syn_received(
        &mut self,
        packet: &Packet<'_>,
        tcp: &TcpHeader<'_>,
        direction: Direction,
        mode: Mode,
        events: &mut PacketEvents,
    ) {
        let [client, server] = self.ends;
        match (tcp.has(flags::SYN), tcp.has(flags::ACK), direction) {
            (true, true, Direction::ToServer) => events.stream("3whs_synack_toserver_on_syn_recv"),
            (true, true, Direction::ToClient) => {
                if tcp.ack != client.acked {
                    events.stream("3whs_synack_resend_with_different_ack");
                }
                if tcp.seq != server.isn {
                    events.stream("3whs_synack_resend_with_diff_seq");
                    self.answers += 1;
                    if self.answers > ANSWERS {
                        self.answers = ANSWERS;
                        events.stream("3whs_synack_flood");
                    }
                    if tcp.ack == client.acked {
                        self.answer(tcp);
                    }
                }
            }
            (true, false, Direction::ToServer) if tcp.seq != client.isn => {
                events.stream("3whs_syn_resend_diff_seq_on_syn_recv");
            }
            (true, false, Direction::ToServer) => {}
            (true, false, Direction::ToClient) => events.stream("3whs_syn_toclient_on_syn_recv"),
            (false, true, Direction::ToServer) => {
                let is_ack_right = tcp.ack == server.isn.wrapping_add(1);
                let is_seq_right = tcp.seq == client.isn.wrapping_add(1) || tcp.seq == client.next;
                match (is_seq_right, is_ack_right) {
                    (_, true) => {
                        self.ends[1].acked = tcp.ack;
                        self.state = State::Established;
                        self.synchronized(packet, tcp, direction, events);
                    }
                    (true, false) => events.stream("3whs_right_seq_wrong_ack_evasion"),
                    (false, false) => events.stream("3whs_wrong_seq_wrong_ack"),
                }
            }
            (false, true, Direction::ToClient) => {
                if !packet.payload.is_empty() && mode == Mode::Ips {
                    events.stream("3whs_ack_data_inject");
                }
                events.stream("3whs_ack_in_wrong_dir");
            }
            (false, false, _) => {}
        }
    }

    fn syn_in_connection(&mut self, tcp: &TcpHeader<'_>, direction: Direction, events: &mut PacketEvents) {
        let sender = self.ends[direction.index()];
        let receiver = self.ends[direction.reverse().index()];
        if self.state != State::Established {
            return events.stream("shutdown_syn_resend");
        }
        events.stream(match (tcp.has(flags::ACK), direction) {
            (true, Direction::ToServer) => "est_synack_toserver",
            (true, Direction::ToClient) if tcp.ack != receiver.isn.wrapping_add(1) => {
                "est_synack_resend_with_different_ack"
            }
            (true, Direction::ToClient) if tcp.seq != sender.isn => "est_synack_resend_with_diff_seq",
            (true, Direction::ToClient) => "est_synack_resend",
            (false, Direction::ToClient) => "est_syn_toclient",
            (false, Direction::ToServer) if tcp.seq != sender.isn => "est_syn_resend_diff_seq",
            (false, Direction::ToServer) => "est_syn_resend",
        });
    }

    /// Examines a segment without SYN after the handshake.
    fn synchronized(
        &mut self,
        packet: &Packet<'_>,
        tcp: &TcpHeader<'_>,
        direction: Direction,
        events: &mut PacketEvents,
    ) {
        let (side, other) = (direction.index(), direction.reverse().index());
        let (sender, receiver) = (self.ends[side], self.ends[other]);
        let options = Options::parse(tcp.options);
        if let (Some(now), Some(last)) = (options.timestamp, sender.timestamp)
            && after(last, now)
        {
            return events.stream("pkt_invalid_timestamp");
        }
        let size = packet.payload.len() as u32;
        let end = tcp.seq.wrapping_add(size);
        if tcp.has(flags::ACK) && after(tcp.ack, receiver.next) {
            events.stream("pkt_invalid_ack");
            events.stream(match self.state {
                State::Established if tcp.has(flags::FIN) => "fin_invalid_ack",
                State::FinWait1 => "fin1_invalid_ack",
                State::FinWait2 => "fin2_invalid_ack",
                State::Closing => "closing_invalid_ack",
                State::CloseWait => "closewait_invalid_ack",
                State::LastAck => "lastack_invalid_ack",
                State::TimeWait => "timewait_invalid_ack",
                _ => "est_invalid_ack",
            });
            return;
        }
        let is_early = after(sender.acked, tcp.seq);
        // One byte beyond the window is a probe.
        let is_late = after(
            end,
            sender.acked.wrapping_add(receiver.window.max(1)).wrapping_add(1),
        );
        if tcp.has(flags::FIN) {
            return self.fin(tcp, direction, (end, is_early, is_late), events);
        }
        if size > 0 && !after(end, sender.acked) {
            events.stream("reassembly_segment_before_base_seq");
            match self.state {
                State::Established => events.stream("est_pkt_before_last_ack"),
                State::CloseWait => events.stream("closewait_pkt_before_last_ack"),
                _ => {}
            }
        }
        if size > 0 && !after(end, sender.next) {
            events.stream("pkt_retransmission");
        }
        // After the FIN of this end, its segments have the number after the FIN.
        let is_wrong = sender
            .fin
            .is_some_and(|fin| tcp.seq != fin.wrapping_add(1) && !is_early)
            || sender.fin.is_none() && is_late;
        if is_wrong {
            match self.state {
                State::Established => events.stream("est_packet_out_of_window"),
                State::FinWait1 => events.stream("fin1_ack_wrong_seq"),
                State::FinWait2 => events.stream("fin2_ack_wrong_seq"),
                State::Closing => events.stream("closing_ack_wrong_seq"),
                State::CloseWait => events.stream("closewait_ack_out_of_window"),
                State::LastAck => events.stream("lastack_ack_wrong_seq"),
                State::TimeWait => events.stream("timewait_ack_wrong_seq"),
                _ => {}
            }
            return;
        }
        self.advance(tcp, direction, end, options.timestamp);
        let acks_fin = receiver
            .fin
            .is_some_and(|fin| tcp.has(flags::ACK) && tcp.ack == fin.wrapping_add(1));
        self.state = match (self.state, direction) {
            (State::FinWait1, Direction::ToServer) if acks_fin => State::FinWait2,
            (State::Closing, _) if acks_fin => State::TimeWait,
            (State::LastAck, Direction::ToServer) if acks_fin => State::Closed,
            (state, _) => state,
        };
    }

    /// Takes what an accepted segment says.
    fn advance(&mut self, tcp: &TcpHeader<'_>, direction: Direction, end: u32, timestamp: Option<u32>) {
        let sender = &mut self.ends[direction.index()];
        if after(end, sender.next) {
            sender.next = end;
        }
        sender.window = u32::from(tcp.window) << sender.scale.min(14);
        sender.timestamp = timestamp.or(sender.timestamp);
        let receiver = &mut self.ends[direction.reverse().index()];
        if tcp.has(flags::ACK) && after(tcp.ack, receiver.acked) {
            receiver.acked = tcp.ack;
        }
    }

    fn fin(
        &mut self,
        tcp: &TcpHeader<'_>,
        direction: Direction,
        (end, is_early, is_late): (u32, bool, bool),
        events: &mut PacketEvents,
    ) {
        let sender = self.ends[direction.index()];
        if let Some(fin) = sender.fin {
            // The FIN is sent again.
            if end == fin {
                return;
            }
        }
        let is_wrong = is_early || is_late || sender.fin.is_some();
        let problem = match self.state {
            State::Established => "fin_out_of_window",
            State::FinWait1 => "fin1_fin_wrong_seq",
            State::FinWait2 => "fin2_fin_wrong_seq",
            State::CloseWait => "closewait_fin_out_of_window",
            _ => return,
        };
        if is_wrong {
            return events.stream(problem);
        }
        self.advance(tcp, direction, end.wrapping_add(1), None);
        self.ends[direction.index()].fin = Some(end);
        let receiver = self.ends[direction.reverse().index()];
        let acks_fin = receiver.fin.is_some_and(|fin| tcp.ack == fin.wrapping_add(1));
        self.state = match (self.state, direction) {
            (State::Established, Direction::ToClient) => State::FinWait1,
            (State::Established, Direction::ToServer) => State::CloseWait,
            (State::CloseWait, Direction::ToClient) => State::LastAck,
            (State::FinWait1, Direction::ToServer) if acks_fin => State::TimeWait,
            (State::FinWait1, Direction::ToServer) => State::Closing,
            (State::FinWait2, Direction::ToServer) => State::TimeWait,
            (state, _) => state,
        };
    }
}
