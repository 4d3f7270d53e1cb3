//! The Link Aggregation Control Protocol (IEEE 802.1AX-2014, section 6.4; formerly IEEE 802.3ad) and the marker
//! responder (section 6.5).
//!
//! A [`Lag`] has one aggregator. Its members are configured; those of them that have the same speed and whose partner is
//! the same aggregator of the same system are selected and carry frames together:
//!
//! ```text
//!  LACPDU ──► receive machine ──► partner ──► selection ──► mux machine ──► collecting, distributing
//!             current, expired,    │          one group of   detached, waiting,
//!             defaulted            │          members        attached, collecting, distributing
//!                                  └──► periodic machine: fast or slow, as the partner asks ──► LACPDU
//! ```
//!
//! The mux machine is the one with independent control (figure 6-23): a member distributes only after its partner has
//! reported that it collects. Receive and transmit are separate switches of our data plane, so that no frame is lost
//! while a member joins; partners with coupled control (figure 6-22) need no more than that.
//!
//! Two things are added to the standard. With fewer than `min_links` usable members, all are on standby: they are out of
//! synchronization, so that the partner sends nothing into a LAG that is down. With a fallback, one member carries
//! frames alone while no member hears a partner.

mod lag;
mod member;
mod pdu;
mod settings;
#[cfg(test)]
mod tests;

pub use lag::Lag;
pub use member::{Churn, Counters, MemberSettings, MemberStatus, Mux, Receive, Selected};
pub use pdu::{LACPDU_SIZE, Lacpdu, Marker, Participant, Pdu, State};
pub use settings::Settings;

use millrace_types::Duration;

/// The transmit interval to a partner with a short timeout (IEEE 802.1AX-2014, section 6.4.4).
pub const FAST_PERIODIC_TIME: Duration = Duration::from_secs(1);
/// The transmit interval to a partner with a long timeout.
pub const SLOW_PERIODIC_TIME: Duration = Duration::from_secs(30);
/// The time without LACPDUs after which a partner is expired, with a short timeout.
pub const SHORT_TIMEOUT_TIME: Duration = Duration::from_secs(3);
/// The time without LACPDUs after which a partner is expired, with a long timeout.
pub const LONG_TIMEOUT_TIME: Duration = Duration::from_secs(90);
/// The time that a member out of synchronization may take until it counts as churned.
pub const CHURN_DETECTION_TIME: Duration = Duration::from_secs(60);
/// The time that a new member waits for others, so that they are attached together.
pub const AGGREGATE_WAIT_TIME: Duration = Duration::from_secs(2);

/// The administrative mode of a LAG.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Mode {
    /// No LACP: each member with a link carries frames.
    Static,
    /// LACPDUs are sent to partners that send LACPDUs.
    Passive,
    /// LACPDUs are sent in any case.
    Active,
}

/// The rate at which this side asks its partner to send.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Rate {
    /// Each 30 s; the partner expires after 90 s.
    Slow,
    /// Each second; the partner expires after 3 s.
    Fast,
}

impl Rate {
    pub(crate) const fn timeout(self) -> Duration {
        match self {
            Rate::Slow => LONG_TIMEOUT_TIME,
            Rate::Fast => SHORT_TIMEOUT_TIME,
        }
    }
}

/// The behaviour of a LAG while no member hears a partner.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Fallback {
    /// The LAG is down.
    None,
    /// The LAG works as an individual link: the first member with a link carries frames, by port priority and number.
    Individual,
    /// The member with this port number carries frames.
    Member(u16),
}

/// The speed of a member, in Mb/s; 0 if the device reports none.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Mbps(pub u32);

/// The number of a LAG in its system, 1 to 1023: the high bits of the keys of its members.
///
/// ```text
///  15                 6 5           0
/// ┌────────────────────┬─────────────┐
/// │  number of the LAG │ speed class │   members of different speed have different keys, and
/// └────────────────────┴─────────────┘   therefore never carry frames together
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LagNumber(u16);

/// The speeds of Ethernet in Mb/s; the class of a speed is its index plus 1.
const SPEEDS: [u32; 13] = [
    10, 100, 1_000, 2_500, 5_000, 10_000, 25_000, 40_000, 50_000, 100_000, 200_000, 400_000, 800_000,
];

impl LagNumber {
    /// The smallest number.
    pub const FIRST: LagNumber = LagNumber(1);
    /// The largest number.
    pub const MAX: u16 = 1023;

    /// Returns the number; `None` if it is 0 or above [`LagNumber::MAX`].
    pub const fn new(number: u16) -> Option<LagNumber> {
        if number == 0 || number > Self::MAX {
            None
        } else {
            Some(LagNumber(number))
        }
    }

    /// Returns the key of a member with this speed. Devices without a speed are of class 0; speeds between two of
    /// Ethernet's count as the lower one.
    pub fn key(self, speed: Mbps) -> u16 {
        self.0 << 6 | SPEEDS.partition_point(|&known| known <= speed.0) as u16
    }
}
