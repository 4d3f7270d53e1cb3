//! Congestion control: the number of bytes in flight to one receiver, and the rate at which they leave.
//!
//! The flow reports each sent quantum to its [`Controller`] and, once for each feedback, the packets
//! acknowledged and lost. The controller sets a window and a pacing rate. This module has three controllers.
//! Rivals (Reno, CUBIC, BBR version 1) are in the simulator.
//!
//! | policy | controller |
//! | --- | --- |
//! | `fair` (default) | [`bbr::Bbr`]: the state machine of BBR version 3 with a loss floor |
//! | `background` | [`background::Background`]: LEDBAT++, yields to all other traffic |
//! | `fixed RATE` | [`fixed::Fixed`]: a fixed rate, for paths with reserved capacity |
//!
//! All of them are under the same circuit breaker ([`breaker::Breaker`], RFC 8084).

pub mod background;
pub mod bbr;
pub mod breaker;
pub mod fixed;

use millrace_types::{BitRate, Duration, Time};

/// Packets of the initial window (RFC 6928).
pub const INITIAL_WINDOW: u64 = 10;
/// Packets of the smallest window.
pub const MINIMUM_WINDOW: u64 = 4;

/// A label that a controller puts on sent packets, by which feedback counts acknowledged and lost packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tag(u8);

/// The number of different tags.
pub const TAGS: usize = 6;

/// The dose of an experiment: the rate at which a packet was sent, compared with the estimated bandwidth.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dose {
    /// Neither Down nor Up.
    Other,
    /// Below the estimated bandwidth.
    Down,
    /// Above the estimated bandwidth.
    Up,
}

impl Tag {
    /// Returns the tag of a packet sent with this dose. `calm` is true within the path's capacity and without
    /// a queue.
    pub const fn new(dose: Dose, calm: bool) -> Tag {
        Tag(dose as u8 * 2 + calm as u8)
    }

    /// Returns an index below [`TAGS`].
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// The outcome of packets with one tag.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Outcome {
    /// Packets acknowledged.
    pub acked: u32,
    /// Packets declared lost.
    pub lost: u32,
    /// Runs of consecutive packets declared lost.
    pub runs: u32,
    /// Packets declared lost earlier and acknowledged now; they are in `acked`, too.
    pub spurious: u32,
}

/// A sample of the delivery rate (draft-ietf-ccwg-bbr, section 4.1).
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RateSample {
    /// Bytes delivered over the interval.
    pub delivered: u64,
    /// The longer of the intervals in which these bytes were sent and acknowledged.
    pub interval: Duration,
    /// Bytes delivered in all when the newest packet of the sample was sent.
    pub prior_delivered: u64,
    /// Bytes in flight when the newest packet of the sample was sent.
    pub tx_in_flight: u64,
    /// Bytes declared lost since the newest packet of the sample was sent.
    pub lost: u64,
    /// The sender had nothing to send for a part of the interval.
    pub app_limited: bool,
}

impl RateSample {
    /// Returns the rate in bytes a second.
    #[inline]
    pub fn rate(&self) -> f64 {
        self.delivered as f64 / self.interval.as_secs_f64().max(1e-9)
    }
}

/// The input of a controller from one feedback. Byte counts are those of full IP packets.
#[derive(Clone, Debug)]
pub struct Sample {
    /// The time of the feedback.
    pub now: Time,
    /// The round-trip time of the newest packet acknowledged.
    pub rtt: Option<Duration>,
    /// Bytes acknowledged.
    pub acked: u64,
    /// Bytes declared lost.
    pub lost: u64,
    /// When the newest packet declared lost was sent.
    pub lost_sent_at: Option<Time>,
    /// Bytes delivered so far in all.
    pub delivered: u64,
    /// Bytes in flight now.
    pub in_flight: u64,
    /// True if the window, not the pacing rate or the source, limited the sender.
    pub window_limited: bool,
    /// The delivery rate, if something was acknowledged.
    pub rate: Option<RateSample>,
    /// The outcomes of packets, by tag.
    pub outcomes: [Outcome; TAGS],
    /// New congestion marks (ECN-CE).
    pub ce: u64,
}

/// The next departure.
#[derive(Clone, Copy, Debug)]
pub struct Departure {
    /// The time.
    pub now: Time,
    /// Bytes in flight before this departure.
    pub in_flight: u64,
    /// The source has nothing to send after this.
    pub app_limited: bool,
}

/// Decides how much may be in flight, and at which rate it leaves.
pub trait Controller: Send {
    /// Learns that a quantum is about to leave; returns its tag.
    fn on_send(&mut self, departure: &Departure) -> Tag;

    /// Takes the outcomes of packets from one feedback.
    fn on_feedback(&mut self, sample: &Sample);

    /// Restarts from the initial window, because the circuit breaker tripped.
    fn on_breaker(&mut self, now: Time);

    /// Takes the size of a full IP packet in bytes, which follows the path MTU. A controller without a window
    /// in packets ignores it.
    fn set_packet_size(&mut self, packet_size: u64) {
        let _ = packet_size;
    }

    /// Returns the bytes that may be in flight.
    fn window(&self) -> u64;

    /// Returns the rate at which packets leave; `None` is no limit.
    fn pacing_rate(&self) -> Option<BitRate>;

    /// Returns the state, for logs and progress lines.
    fn state(&self) -> &'static str;

    /// Returns the estimate of the path's bandwidth, to be saved for the next session with the peer.
    fn bandwidth(&self) -> Option<BitRate> {
        None
    }
}

/// Returns bytes a second as a rate.
pub(crate) fn bit_rate(bytes_per_second: f64) -> BitRate {
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "rates are positive, and `as` saturates"
    )]
    BitRate::from_bps((bytes_per_second * 8.0) as u64)
}

/// Returns a positive number of bytes as an integer.
pub(crate) fn bytes(count: f64) -> u64 {
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "counts are positive, and `as` saturates"
    )]
    let count = count as u64;
    count
}
