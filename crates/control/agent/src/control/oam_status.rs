//! The state of OAM of a port, for REST and metrics.

use millrace_oam::{bfd, ccm};
use millrace_types::{Duration, Time};

/// The state of OAM of a port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OamStatus {
    /// True if BFD and continuity checks, as far as configured, let the port be live.
    pub is_live: bool,
    /// The remaining wait-to-restore time, until a recovered port is live; `None` if the port does not wait.
    pub restores_in: Option<Duration>,
    pub bfd: Option<BfdStatus>,
    /// Continuity checks.
    pub ccm: Option<CcmStatus>,
    /// Flap damping.
    pub damping: Option<DampingStatus>,
}

/// The state of a BFD session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BfdStatus {
    /// The state of this side.
    pub state: bfd::State,
    /// The state of the peer.
    pub remote_state: bfd::State,
    /// The reason of the last change to down.
    pub diagnostic: bfd::Diagnostic,
    /// The discriminator of this side.
    pub local_discriminator: u32,
    /// The discriminator of the peer; 0 while it is not known.
    pub remote_discriminator: u32,
    /// The interval of sent packets; `None` if the peer wants none.
    pub tx_interval: Option<Duration>,
    /// The time without packets after which the session ends.
    pub detection_time: Duration,
    pub counters: bfd::Counters,
}

impl BfdStatus {
    pub(super) fn of(session: &bfd::Session) -> BfdStatus {
        BfdStatus {
            state: session.state(),
            remote_state: session.remote_state(),
            diagnostic: session.diagnostic(),
            local_discriminator: session.local_discriminator(),
            remote_discriminator: session.remote_discriminator(),
            tx_interval: session.tx_interval(),
            detection_time: session.detection_time(),
            counters: session.counters(),
        }
    }
}

/// The state of a maintenance end point.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CcmStatus {
    /// True if messages of the other end arrive without defect.
    pub is_up: bool,
    /// True if the other end reports a defect.
    pub has_rdi: bool,
    /// The number of the other end in its last message.
    pub remote_mep: Option<u16>,
    pub counters: ccm::Counters,
}

impl CcmStatus {
    pub(super) fn of(mep: &ccm::Mep, now: Time) -> CcmStatus {
        CcmStatus {
            is_up: mep.is_up(now),
            has_rdi: mep.has_rdi(),
            remote_mep: mep.remote(),
            counters: mep.counters(),
        }
    }
}

/// The state of flap damping.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DampingStatus {
    /// The remaining time for which the link counts as down; `None` if the link is not damped.
    pub left: Option<Duration>,
    /// The number of times that the link was damped.
    pub damped: u64,
}
