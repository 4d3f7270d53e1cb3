//! Bidirectional forwarding detection, asynchronous mode, one hop (RFC 5880, RFC 5881).

use std::net::IpAddr;

use millrace_types::split_mix;
use millrace_types::{Duration, Mac, Time};
use millrace_wire::{Builder, Dscp, Ecn, FlowLabel, IpProto, ipv4, ipv6};

/// The UDP port of single-hop BFD (RFC 5881, section 4).
pub const UDP_PORT: u16 = 3784;
/// The TTL of a packet that no router has forwarded (RFC 5881, section 5; RFC 5082).
pub const TTL: u8 = 255;
/// Size of a control packet without authentication, in bytes.
pub const PACKET_SIZE: usize = 24;
/// The minimum transmit interval while a session is not up (RFC 5880, section 6.8.3).
const SLOW_INTERVAL: Duration = Duration::from_secs(1);

/// The state of a session (RFC 5880, section 4.1).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum State {
    /// The operator has taken the session down.
    AdminDown = 0,
    /// No packets arrive, or the peer is down.
    Down = 1,
    /// This side receives the peer's packets; the peer does not confirm yet that it receives packets from
    /// this side.
    Init = 2,
    /// Packets arrive both ways.
    Up = 3,
}

impl State {
    const fn from_bits(bits: u8) -> State {
        match bits & 3 {
            0 => State::AdminDown,
            1 => State::Down,
            2 => State::Init,
            _ => State::Up,
        }
    }
}

impl core::fmt::Display for State {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.pad(match self {
            State::AdminDown => "admin_down",
            State::Down => "down",
            State::Init => "init",
            State::Up => "up",
        })
    }
}

/// The reason of the last change to [`State::Down`] (RFC 5880, section 4.1). Only values that this side sends
/// are listed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Diagnostic {
    /// The session is up, or has not gone down since it began.
    None = 0,
    /// No packet arrived within the detection time.
    DetectionTimeExpired = 1,
    /// The peer signalled that it is down.
    NeighborDown = 3,
}

impl core::fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.pad(match self {
            Diagnostic::None => "none",
            Diagnostic::DetectionTimeExpired => "detection_time_expired",
            Diagnostic::NeighborDown => "neighbor_signaled_session_down",
        })
    }
}

/// A control packet (RFC 5880, section 4.1), without authentication.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Packet {
    /// The diagnostic code of the sender, 5 bits.
    pub diagnostic: u8,
    /// The state of the sender.
    pub state: State,
    /// The sender asks for a packet with `is_final`.
    pub is_poll: bool,
    /// The packet answers one with `is_poll`.
    pub is_final: bool,
    /// The sender is in demand mode.
    pub is_demand: bool,
    /// The number of consecutive packets whose loss takes the session down; at least 1.
    pub multiplier: u8,
    /// The discriminator of the sender; not 0.
    pub my_discriminator: u32,
    /// The discriminator of the receiver; 0 if the sender does not know it.
    pub your_discriminator: u32,
    /// The minimum interval between packets that the sender wants to send.
    pub desired_min_tx: Duration,
    /// The minimum interval between packets that the sender can receive; 0 asks for no periodic packets.
    pub required_min_rx: Duration,
}

impl Packet {
    /// Reads a control packet. Returns `None` if RFC 5880, section 6.8.6, requires the receiver to discard it
    /// before session lookup, or if it has authentication, which no session here uses.
    pub fn parse(bytes: &[u8]) -> Option<Packet> {
        let packet = bytes.first_chunk::<PACKET_SIZE>()?;
        let word = |at: usize| {
            let bytes = [packet[at], packet[at + 1], packet[at + 2], packet[at + 3]];
            u32::from_be_bytes(bytes)
        };
        let flags = packet[1];
        let is_authenticated = flags & 0x04 != 0;
        let is_multipoint = flags & 0x01 != 0;
        let length = usize::from(packet[3]);
        let is_valid = packet[0] >> 5 == 1
            && !is_authenticated
            && !is_multipoint
            && (PACKET_SIZE..=bytes.len()).contains(&length)
            && packet[2] != 0
            && word(4) != 0;
        let state = State::from_bits(flags >> 6);
        let knows_us = word(8) != 0 || matches!(state, State::Down | State::AdminDown);
        (is_valid && knows_us).then(|| Packet {
            diagnostic: packet[0] & 0x1f,
            state,
            is_poll: flags & 0x20 != 0,
            is_final: flags & 0x10 != 0,
            is_demand: flags & 0x02 != 0,
            multiplier: packet[2],
            my_discriminator: word(4),
            your_discriminator: word(8),
            desired_min_tx: Duration::from_micros(word(12).into()),
            required_min_rx: Duration::from_micros(word(16).into()),
        })
    }

    /// Returns the wire format of the packet.
    pub fn emit(&self) -> [u8; PACKET_SIZE] {
        let mut packet = [0; PACKET_SIZE];
        packet[0] = 1 << 5 | self.diagnostic & 0x1f;
        packet[1] = (self.state as u8) << 6
            | u8::from(self.is_poll) << 5
            | u8::from(self.is_final) << 4
            | u8::from(self.is_demand) << 1;
        packet[2] = self.multiplier;
        packet[3] = PACKET_SIZE as u8;
        packet[4..8].copy_from_slice(&self.my_discriminator.to_be_bytes());
        packet[8..12].copy_from_slice(&self.your_discriminator.to_be_bytes());
        packet[12..16].copy_from_slice(&micros(self.desired_min_tx).to_be_bytes());
        packet[16..20].copy_from_slice(&micros(self.required_min_rx).to_be_bytes());
        packet
    }
}

fn micros(duration: Duration) -> u32 {
    u32::try_from(duration.as_micros()).unwrap_or(u32::MAX)
}

/// The settings of a session on this side.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// The transmit interval that this side wants while the session is up.
    pub min_tx: Duration,
    /// The minimum interval between packets that this side can receive.
    pub min_rx: Duration,
    /// The number of consecutive packets whose loss takes the session down; at least 1.
    pub multiplier: u8,
}

/// Counters of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Control packets that were received and used.
    pub received: u64,
    /// Control packets that were discarded: invalid, with authentication, or of another session.
    pub discarded: u64,
    /// Control packets that were sent.
    pub sent: u64,
    /// Changes between up and not up.
    pub flaps: u64,
}

/// The intervals that are in force for sending and detection. A packet carries the intervals of the settings
/// instead. A change that the peer must know first is in force when the poll sequence ends (RFC 5880, section
/// 6.8.3).
#[derive(Clone, Copy, Debug)]
struct ActiveIntervals {
    min_tx: Duration,
    min_rx: Duration,
}

impl ActiveIntervals {
    fn of(settings: &Settings) -> ActiveIntervals {
        ActiveIntervals {
            min_tx: settings.min_tx,
            min_rx: settings.min_rx,
        }
    }
}

/// A session (RFC 5880, section 6.8).
#[derive(Clone, Debug)]
pub struct Session {
    settings: Settings,
    active: ActiveIntervals,
    state: State,
    diagnostic: Diagnostic,
    local_discriminator: u32,
    remote_discriminator: u32,
    remote_state: State,
    remote_min_rx: Duration,
    remote_min_tx: Duration,
    remote_multiplier: u8,
    is_remote_demand: bool,
    is_polling: bool,
    answers_poll: bool,
    last_received: Option<Time>,
    next_send: Time,
    /// The state of the random number generator for jitter.
    random: u64,
    counters: Counters,
}

impl Session {
    /// Returns a session that is down. The discriminator and the jitter of the packets derive from `seed`.
    pub fn new(settings: Settings, seed: u64, now: Time) -> Session {
        let mut random = seed;
        Session {
            settings,
            active: ActiveIntervals::of(&settings),
            state: State::Down,
            diagnostic: Diagnostic::None,
            local_discriminator: ((split_mix::next(&mut random) >> 32) as u32).max(1),
            remote_discriminator: 0,
            remote_state: State::Down,
            // The peer accepts intervals of one microsecond until its first packet gives another value (RFC
            // 5880, section 6.8.1).
            remote_min_rx: Duration::from_micros(1),
            remote_min_tx: Duration::ZERO,
            remote_multiplier: 0,
            is_remote_demand: false,
            is_polling: false,
            answers_poll: false,
            last_received: None,
            next_send: now,
            random,
            counters: Counters::default(),
        }
    }

    /// Changes the settings of a session. A session that is up informs its peer by a poll sequence. Until the
    /// poll sequence ends, a larger `min_tx` and a smaller `min_rx` are not in force (RFC 5880, section
    /// 6.8.3).
    pub fn set_settings(&mut self, settings: Settings) {
        if settings == self.settings {
            return;
        }
        let before = self.active;
        self.settings = settings;
        self.active = ActiveIntervals::of(&settings);
        self.is_polling = self.state == State::Up;
        if self.is_polling {
            self.active.min_tx = self.active.min_tx.min(before.min_tx);
            self.active.min_rx = self.active.min_rx.max(before.min_rx);
        }
    }

    /// Returns the state.
    pub fn state(&self) -> State {
        self.state
    }

    /// Returns the state of the peer, from its last packet.
    pub fn remote_state(&self) -> State {
        self.remote_state
    }

    /// Returns the reason of the last change to down.
    pub fn diagnostic(&self) -> Diagnostic {
        self.diagnostic
    }

    /// Returns the counters.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Returns the discriminator of this side.
    pub fn local_discriminator(&self) -> u32 {
        self.local_discriminator
    }

    /// Returns the discriminator of the peer; 0 while it is not known.
    pub fn remote_discriminator(&self) -> u32 {
        self.remote_discriminator
    }

    /// Returns the transmit interval without jitter; `None` if the peer wants no periodic packets. A peer in
    /// demand mode receives packets only during a poll sequence (RFC 5880, section 6.8.7).
    pub fn tx_interval(&self) -> Option<Duration> {
        let are_up = self.state == State::Up && self.remote_state == State::Up;
        if self.remote_min_rx.is_zero() || self.is_remote_demand && are_up && !self.is_polling {
            return None;
        }
        Some(self.not_below_slow(self.active.min_tx).max(self.remote_min_rx))
    }

    /// Returns the time without packets after which the session ends (RFC 5880, section 6.8.4).
    pub fn detection_time(&self) -> Duration {
        let interval = self.active.min_rx.max(self.remote_min_tx);
        interval.saturating_mul(u32::from(self.remote_multiplier))
    }

    /// Returns `interval`, or [`SLOW_INTERVAL`] if that is longer and the session is not up.
    fn not_below_slow(&self, interval: Duration) -> Duration {
        match self.state {
            State::Up => interval,
            _ => interval.max(SLOW_INTERVAL),
        }
    }

    /// Handles a received control packet.
    pub fn receive(&mut self, bytes: &[u8], now: Time) {
        let Some(packet) = Packet::parse(bytes) else {
            self.counters.discarded += 1;
            return;
        };
        if packet.your_discriminator != 0 && packet.your_discriminator != self.local_discriminator {
            self.counters.discarded += 1;
            return;
        }
        self.counters.received += 1;
        self.remote_discriminator = packet.my_discriminator;
        self.remote_state = packet.state;
        self.remote_min_rx = packet.required_min_rx;
        self.remote_min_tx = packet.desired_min_tx;
        self.remote_multiplier = packet.multiplier;
        self.is_remote_demand = packet.is_demand;
        self.last_received = Some(now);
        if packet.is_final {
            self.is_polling = false;
            self.active = ActiveIntervals::of(&self.settings);
        }
        self.answers_poll |= packet.is_poll;
        match (self.state, packet.state) {
            (State::AdminDown, _) => {}
            (State::Init | State::Up, State::AdminDown) | (State::Up, State::Down) => {
                self.go_down(Diagnostic::NeighborDown, now);
            }
            (State::Down, State::Down) => self.change(State::Init, now),
            (State::Down, State::Init) | (State::Init, State::Init | State::Up) => {
                self.change(State::Up, now);
            }
            (State::Down, _) | (State::Init, State::Down) | (State::Up, State::Init | State::Up) => {}
        }
        // A new interval of the peer applies from the next packet on.
        if let Some(interval) = self.tx_interval() {
            self.next_send = self.next_send.min(now + interval);
        }
    }

    fn go_down(&mut self, diagnostic: Diagnostic, now: Time) {
        self.diagnostic = diagnostic;
        self.change(State::Down, now);
    }

    fn change(&mut self, state: State, now: Time) {
        if (self.state == State::Up) != (state == State::Up) {
            self.counters.flaps += 1;
        }
        self.state = state;
        self.active = ActiveIntervals::of(&self.settings);
        // The interval of the new state differs, and a poll sequence informs the peer (RFC 5880, section
        // 6.8.3).
        self.is_polling = state == State::Up;
        if state == State::Up {
            self.diagnostic = Diagnostic::None;
        }
        // A packet is due now, so that the peer learns of the change at once.
        self.next_send = now;
    }

    /// Ends the session if its detection time has passed at `received_until`: all packets that arrived before this time, which is `now`
    /// or earlier, were given to [`Session::receive`]. Returns a packet if one is due. The caller repeats the call until it returns
    /// `None`.
    pub fn poll(&mut self, now: Time, received_until: Time) -> Option<Packet> {
        if let Some(last) = self.last_received
            && received_until >= last + self.detection_time()
        {
            self.last_received = None;
            self.remote_discriminator = 0;
            self.remote_state = State::Down;
            self.remote_min_rx = Duration::from_micros(1);
            if matches!(self.state, State::Init | State::Up) {
                self.go_down(Diagnostic::DetectionTimeExpired, now);
            }
        }
        if core::mem::take(&mut self.answers_poll) {
            self.counters.sent += 1;
            return Some(self.packet(false, true));
        }
        let interval = self.tx_interval().filter(|_| now >= self.next_send)?;
        self.next_send = now + self.jittered(interval);
        self.counters.sent += 1;
        Some(self.packet(self.is_polling, false))
    }

    fn packet(&self, is_poll: bool, is_final: bool) -> Packet {
        Packet {
            diagnostic: self.diagnostic as u8,
            state: self.state,
            is_poll,
            is_final,
            is_demand: false,
            multiplier: self.settings.multiplier,
            my_discriminator: self.local_discriminator,
            your_discriminator: self.remote_discriminator,
            desired_min_tx: self.not_below_slow(self.settings.min_tx),
            required_min_rx: self.settings.min_rx,
        }
    }

    /// Returns an interval less 0 to 25 %; with a multiplier of 1, less 10 to 25 % (RFC 5880, section 6.8.7).
    fn jittered(&mut self, interval: Duration) -> Duration {
        let (least, range) = if self.settings.multiplier == 1 {
            (75, 16)
        } else {
            (75, 26)
        };
        let percent = least + split_mix::next(&mut self.random) % range;
        interval.saturating_mul(percent as u32) / 100
    }

    /// Returns the time at which [`Session::poll`] is due.
    pub fn deadline(&self) -> Option<Time> {
        if self.answers_poll {
            return Some(Time::ZERO);
        }
        let detection = self.last_received.map(|last| last + self.detection_time());
        let send = self.tx_interval().map(|_| self.next_send);
        match (detection, send) {
            (Some(detection), Some(send)) => Some(detection.min(send)),
            (detection, send) => detection.or(send),
        }
    }
}

/// The addresses of a session's frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Addresses {
    /// The source MAC address.
    pub local_mac: Mac,
    /// The destination MAC address.
    pub remote_mac: Mac,
    /// The source address.
    pub local: IpAddr,
    /// The destination address, of the same family.
    pub remote: IpAddr,
}

impl Addresses {
    /// Returns the frame of a packet; `None` if the addresses are of different families.
    pub fn frame(&self, packet: &Packet, source_port: u16) -> Option<Vec<u8>> {
        let builder = Builder::ethernet(self.remote_mac, self.local_mac);
        // Class selector 6, network control (RFC 4594, section 3.1).
        let dscp = Dscp::new(48).ok()?;
        let builder = match (self.local, self.remote) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => builder.ipv4_with(ipv4::Repr {
                src,
                dst,
                proto: IpProto::UDP,
                dscp,
                ecn: Ecn::default(),
                ttl: TTL,
                ident: 0,
                dont_fragment: true,
                more_fragments: false,
                fragment_offset: 0,
                options: ipv4::Options::default(),
                payload_size: 0,
            }),
            (IpAddr::V6(src), IpAddr::V6(dst)) => builder.ipv6_with(ipv6::Repr {
                src,
                dst,
                next_header: IpProto::UDP,
                dscp,
                ecn: Ecn::default(),
                flow_label: FlowLabel::default(),
                hop_limit: TTL,
                payload_size: 0,
            }),
            _ => return None,
        };
        Some(builder.udp(source_port, UDP_PORT).payload(&packet.emit()).build())
    }
}

#[cfg(test)]
mod tests;
