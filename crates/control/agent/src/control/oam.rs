//! OAM of ports: BFD and continuity checks determine the live bit, and flap damping the link state.
//!
//! Workers queue received frames with the time of their arrival. The control thread handles these frames
//! before it evaluates timers. So a late control thread does not declare a peer silent while packets of this
//! peer wait in the queue. Nor does it while they wait in a device because a worker is late: a detection time is over when the
//! workers have received all packets of that time, or after [`WORKERS_WAIT_MAX`] more.

use millrace_datapath::io::{Backend, DeviceInfo};
use millrace_l2ctl::{BRIDGE_GROUP, SLOW_PROTOCOLS};
use millrace_model as model;
use millrace_oam::{Damping, DampingSettings, WaitToRestore, bfd, ccm};
use millrace_pipeline::{OamPort, OamPorts, PortState};
use millrace_types::split_mix;
use millrace_types::{Duration, Mac, PortNo, Time};
use millrace_wire::{Packet, ethernet};

use super::bridge::BridgeControl;
use super::monitors::{BfdPeer, Monitor};
use super::oam_status::{BfdStatus, CcmStatus, DampingStatus, OamStatus};

/// The first of the UDP source ports of BFD (RFC 5881, section 4).
const SOURCE_PORT: u16 = 49_152;
/// The longest time for which a detection time is extended because workers are behind. A worker that is behind for longer forwards
/// nothing in time either.
const WORKERS_WAIT_MAX: Duration = Duration::from_millis(500);
/// The EtherType of LLDP.
const LLDP: [u8; 2] = [0x88, 0xcc];

/// The link protocols that a port receives.
struct LinkProtocols {
    lldp: bool,
    bpdu: bool,
}

impl<B: Backend> BridgeControl<B> {
    /// Adds, changes and removes sessions until they match the configuration of the running ports.
    pub(super) fn configure_oam(&mut self) {
        let now = self.datapath.now();
        let receives: Vec<LinkProtocols> = self
            .ports
            .values()
            .map(|status| LinkProtocols {
                lldp: self.receives_lldp(&status.model),
                bpdu: self.receives_bpdus(&status.model),
            })
            .collect();
        let ports = &self.ports;
        self.oam.monitors.retain(|number, _| ports.contains_key(number));
        let mut taken = Vec::new();
        for ((number, status), LinkProtocols { lldp, bpdu }) in self.ports.iter().zip(receives) {
            let port = &status.model;
            if port.bfd.is_none() && port.ccm.is_none() && port.damping.is_none() {
                if self.oam.monitors.remove(number).is_some() {
                    self.recheck.insert(*number);
                }
                if lldp || bpdu {
                    taken.push(OamPort {
                        port: *number,
                        bfd: None,
                        ccm_level: None,
                        lldp,
                        bpdu,
                    });
                }
                continue;
            }
            let restore = Duration::from_secs(port.wait_to_restore_s.get().into());
            let monitor = self.oam.monitors.entry(*number).or_insert_with(|| Monitor {
                bfd: None,
                bfd_peer: None,
                ccm: None,
                restore: WaitToRestore::new(restore),
                damping: Damping::default(),
            });
            monitor.restore.set_time(restore);
            if port.damping.is_none() {
                monitor.damping = Damping::default();
            }
            let mut is_new = false;
            let peer = port.bfd.as_ref().map(BfdPeer::of);
            if core::mem::replace(&mut monitor.bfd_peer, peer) != peer {
                monitor.bfd = None;
                is_new |= peer.is_some();
            }
            if let Some(wanted) = &port.bfd {
                let settings = bfd_settings(wanted);
                let seed = split_mix::next(&mut self.oam.seed);
                let session = monitor
                    .bfd
                    .get_or_insert_with(|| bfd::Session::new(settings, seed, now));
                session.set_settings(settings);
            }
            let wanted = port.ccm.as_ref().and_then(ccm_settings);
            if monitor.ccm.as_ref().map(ccm::Mep::settings) != wanted.as_ref() {
                is_new |= wanted.is_some();
                monitor.ccm = wanted.map(|settings| ccm::Mep::new(settings, now));
            }
            if is_new {
                // The new checks have not worked yet, and cannot have failed.
                monitor.restore = WaitToRestore::new(restore);
            }
            if monitor.is_monitored() || lldp || bpdu {
                taken.push(OamPort {
                    port: *number,
                    bfd: port.bfd.as_ref().map(|bfd| [bfd.local, bfd.remote]),
                    ccm_level: port.ccm.as_ref().map(|ccm| ccm.level.get()),
                    lldp,
                    bpdu,
                });
            }
        }
        self.tables.set_oam(OamPorts::new(taken), &mut self.ops);
        self.publish();
        self.configure_rstp();
        self.configure_lldp();
    }

    /// Handles a frame of OAM or of a link protocol that arrived at `time`.
    pub(super) fn receive_oam(&mut self, port: PortNo, time: Time, packet: &B::Packet) {
        let mut frame = Vec::new();
        packet.copy_to(&mut frame, usize::MAX);
        if frame.get(12..14) == Some(&LLDP) {
            self.receive_lldp(port, time, &frame);
            return;
        }
        if frame.get(..6) == Some(&SLOW_PROTOCOLS.0) {
            self.receive_slow_protocol(port, time, &frame);
            return;
        }
        if frame.get(..6) == Some(&BRIDGE_GROUP.0) {
            self.receive_bpdu(port, time, &frame);
            return;
        }
        let Some(monitor) = self.oam.monitors.get_mut(&port) else {
            return;
        };
        self.oam.has_received = true;
        let (Some(kind), Some(body)) = (frame.get(12..14), frame.get(ethernet::SIZE..)) else {
            return;
        };
        match (kind, &mut monitor.bfd, &mut monitor.ccm) {
            ([0x89, 0x02], _, Some(mep)) => mep.receive(body, time),
            // Workers checked the headers; IPv4 has no options here.
            ([0x08, 0x00], Some(session), _) => session.receive(body.get(28..).unwrap_or_default(), time),
            ([0x86, 0xdd], Some(session), _) => session.receive(body.get(48..).unwrap_or_default(), time),
            _ => {}
        }
    }

    /// Sends the frames that are due, and updates the live bits of the ports from the states of their
    /// sessions. The frames that workers received before `received_until` were handled.
    pub(super) fn run_oam(&mut self, received_until: Time) {
        let now = self.datapath.now();
        let received_until = received_until.max(now - WORKERS_WAIT_MAX).min(now);
        let has_received = core::mem::take(&mut self.oam.has_received);
        if !has_received && self.oam.deadline().is_none_or(|deadline| now < deadline) {
            return;
        }
        let mut frames = Vec::new();
        let mut has_changed = false;
        for (number, monitor) in &mut self.oam.monitors {
            let Some(status) = self.ports.get(number) else {
                continue;
            };
            let mac = status.info.mac;
            if let (Some(session), Some(wanted)) = (&mut monitor.bfd, &status.model.bfd) {
                let addresses = addresses(wanted, mac);
                // At most two packets are due: a periodic one, and the answer to a poll.
                for _ in 0..2 {
                    let packet = session.poll(now, received_until);
                    let port = SOURCE_PORT | (number.raw() & 0x3fff) as u16;
                    frames.extend(
                        packet
                            .and_then(|packet| addresses.frame(&packet, port))
                            .map(|frame| (*number, frame)),
                    );
                }
            }
            if let Some(mep) = &mut monitor.ccm
                && let Some(message) = mep.poll(now, received_until)
            {
                frames.push((*number, mep.frame(&message, mac)));
            }
            let was_live = monitor.is_live();
            let works = monitor.works(received_until);
            monitor.restore.update(works, now);
            has_changed |= was_live != monitor.is_live();
            has_changed |= monitor.damping.expire(now);
        }
        for (port, frame) in frames {
            self.send_frame(port, &frame);
        }
        // A deadline that has passed waits for the workers.
        self.oam.waits_for_workers = self.oam.deadline().is_some_and(|deadline| deadline <= now);
        if has_changed {
            self.poll_links();
        }
    }

    /// Returns the state of a port whose device reports `info`.
    pub(super) fn state_of(&mut self, number: PortNo, port: &model::Port, info: &DeviceInfo) -> PortState {
        let state = self.monitored_state(number, port, info);
        if self.rstp.as_ref().is_some_and(|tree| tree.blocks(number)) {
            PortState(state.0 & !PortState::LIVE.0) | PortState::BLOCKED
        } else {
            state
        }
    }

    /// Returns the state of a port apart from the spanning tree.
    fn monitored_state(&mut self, number: PortNo, port: &model::Port, info: &DeviceInfo) -> PortState {
        let now = self.datapath.now();
        let Some(monitor) = self.oam.monitors.get_mut(&number) else {
            return link_state(info.link_up);
        };
        if let Some(damping) = &port.damping {
            let counts_as_up = monitor
                .damping
                .update(&damping_settings(damping), info.link_up, now);
            if monitor.damping.until().is_some() {
                return PortState::LINK_DOWN | PortState::BLOCKED;
            }
            if !counts_as_up {
                return PortState::LINK_DOWN;
            }
        }
        match info.link_up {
            true if !monitor.is_live() => PortState::NOT_LIVE,
            is_up => link_state(is_up),
        }
    }

    /// Returns the state of OAM of a port; `None` if it is not configured.
    pub fn oam_status(&self, number: PortNo) -> Option<OamStatus> {
        let monitor = self.oam.monitors.get(&number)?;
        let now = self.datapath.now();
        let left = |until: Option<Time>| until.map(|until| until.since(now));
        Some(OamStatus {
            is_live: monitor.is_live(),
            restores_in: left(monitor.restore.deadline()),
            bfd: monitor.bfd.as_ref().map(BfdStatus::of),
            ccm: monitor.ccm.as_ref().map(|mep| CcmStatus::of(mep, now)),
            damping: self
                .ports
                .get(&number)?
                .model
                .damping
                .is_some()
                .then(|| DampingStatus {
                    left: left(monitor.damping.until()),
                    damped: monitor.damping.times_damped(),
                }),
        })
    }
}

/// Returns the state of a port without a monitor; `is_up` is the state of the link.
pub(super) fn link_state(is_up: bool) -> PortState {
    if is_up {
        PortState::LIVE
    } else {
        PortState::LINK_DOWN
    }
}

fn addresses(wanted: &model::Bfd, local_mac: Mac) -> bfd::Addresses {
    bfd::Addresses {
        local_mac,
        remote_mac: wanted.remote_mac,
        local: wanted.local,
        remote: wanted.remote,
    }
}

fn bfd_settings(wanted: &model::Bfd) -> bfd::Settings {
    bfd::Settings {
        min_tx: Duration::from_millis(wanted.min_tx_ms.get().into()),
        min_rx: Duration::from_millis(wanted.min_rx_ms.get().into()),
        multiplier: wanted.multiplier.get(),
    }
}

/// Returns the settings of an end point; `None` if its names do not fit, which the configuration excludes.
fn ccm_settings(wanted: &model::Ccm) -> Option<ccm::Settings> {
    Some(ccm::Settings {
        mep: wanted.mep.get(),
        remote_mep: wanted.remote_mep.map(model::MepNumber::get),
        level: wanted.level.get(),
        maid: ccm::Maid::new(wanted.domain.as_str(), wanted.association.as_str()).ok()?,
        interval: match wanted.interval {
            model::CcmInterval::Ms100 => ccm::Interval::Ms100,
            model::CcmInterval::S1 => ccm::Interval::S1,
            model::CcmInterval::S10 => ccm::Interval::S10,
        },
    })
}

fn damping_settings(wanted: &model::FlapDamping) -> DampingSettings {
    DampingSettings {
        flaps: wanted.flaps.get().into(),
        window: Duration::from_secs(wanted.window_s.get().into()),
        hold_down: Duration::from_secs(wanted.hold_down_s.get().into()),
    }
}
