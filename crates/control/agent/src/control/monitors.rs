//! The state of OAM of a bridge's ports: sessions, wait-to-restore and flap damping.

use std::collections::BTreeMap;
use std::net::IpAddr;

use millrace_model as model;
use millrace_oam::{Damping, WaitToRestore, bfd, ccm};
use millrace_types::{Mac, PortNo, Time};

/// The addresses that identify a BFD session: local and remote IP address, and remote MAC address. Other addresses have
/// another session (RFC 5880, section 6.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct BfdPeer([IpAddr; 2], Mac);

impl BfdPeer {
    pub(super) fn of(wanted: &model::Bfd) -> BfdPeer {
        BfdPeer([wanted.local, wanted.remote], wanted.remote_mac)
    }
}

/// The OAM sessions of a port, with the wait-to-restore time and flap damping.
pub(super) struct Monitor {
    pub(super) bfd: Option<bfd::Session>,
    /// `Some` with `bfd`.
    pub(super) bfd_peer: Option<BfdPeer>,
    pub(super) ccm: Option<ccm::Mep>,
    pub(super) restore: WaitToRestore,
    pub(super) damping: Damping,
}

impl Monitor {
    /// Returns true if the port has a session.
    pub(super) fn is_monitored(&self) -> bool {
        self.bfd.is_some() || self.ccm.is_some()
    }

    /// Returns true if the port may be live: its sessions work, or it has none.
    pub(super) fn is_live(&self) -> bool {
        !self.is_monitored() || self.restore.is_live()
    }

    /// Returns true if every session works.
    pub(super) fn works(&self, now: Time) -> bool {
        let is_bfd_up = |session: &bfd::Session| session.state() == bfd::State::Up;
        self.bfd.as_ref().is_none_or(is_bfd_up) && self.ccm.as_ref().is_none_or(|mep| mep.is_up(now))
    }

    /// Returns the earliest time at which a session, the wait-to-restore time or the damping time is due.
    pub(super) fn deadline(&self) -> Option<Time> {
        let bfd = self.bfd.as_ref().and_then(bfd::Session::deadline);
        let ccm = self.ccm.as_ref().map(ccm::Mep::deadline);
        [bfd, ccm, self.restore.deadline(), self.damping.until()]
            .into_iter()
            .flatten()
            .min()
    }
}

/// The OAM state of all ports of a bridge.
pub(super) struct Oam {
    /// The state of the generator of discriminators and jitter.
    pub(super) seed: u64,
    /// True if frames were received since the sessions were evaluated.
    pub(super) has_received: bool,
    /// True if a detection time has passed that is not over, because workers are behind.
    pub(super) waits_for_workers: bool,
    pub(super) monitors: BTreeMap<PortNo, Monitor>,
}

impl Oam {
    /// Returns the OAM state of a bridge without ports. `seed` is the seed of discriminators and jitter.
    pub(super) fn new(seed: u64) -> Oam {
        Oam {
            seed,
            has_received: false,
            waits_for_workers: false,
            monitors: BTreeMap::new(),
        }
    }

    /// Returns true if a port has OAM.
    pub(super) fn monitors(&self, port: PortNo) -> bool {
        self.monitors.contains_key(&port)
    }

    /// Returns the time at which a session, a wait-to-restore time or a damping time is due.
    pub(super) fn deadline(&self) -> Option<Time> {
        self.monitors.values().filter_map(Monitor::deadline).min()
    }
}
