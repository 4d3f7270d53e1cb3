//! RSTP of a bridge: the machines of `l2ctl` decide which ports are blocked. A port that does not forward has the state
//! `OFPPS_BLOCKED`, for flow entries and for NORMAL, and learns no addresses.

use std::collections::BTreeMap;

use millrace_datapath::io::Backend;
use millrace_l2ctl::rstp::{self, Action, BridgeStatus, Edge, Link, PortSettings, PortStatus};
pub use millrace_l2ctl::rstp::{BridgeId, PortState, Role};
use millrace_model::{self as model, RstpEdge, RstpPointToPoint, RstpVersion};
use millrace_pipeline::PortConfig;
use millrace_types::{Mac, PortNo, Time};

use super::bridge::BridgeControl;
pub use super::spanning_tree::PortTimes;
use super::spanning_tree::SpanningTree;

/// The largest port number in a BPDU.
const NUMBER_MAX: u32 = 4095;

impl<B: Backend> BridgeControl<B> {
    /// Changes the spanning tree until it matches the configuration and the links of the running ports.
    pub(super) fn configure_rstp(&mut self) {
        let now = self.datapath.now();
        let Some(wanted) = &self.config.rstp else {
            let freed = self.rstp.take().map(|tree| tree.forwards).unwrap_or_default();
            for port in freed.into_keys() {
                self.update_port_state(port);
            }
            return;
        };
        let version = wanted.version;
        let settings = settings_of(wanted, self.config.address());
        let tree = self.rstp.get_or_insert_with(|| SpanningTree {
            bridge: rstp::Bridge::new(settings, now),
            forwards: BTreeMap::default(),
            times: BTreeMap::default(),
        });
        tree.bridge.set_settings(settings, now);
        let mut changed = Vec::new();
        let ports = &self.ports;
        tree.forwards.retain(|port, _| {
            let stays = ports.get(port).is_some_and(|status| has_rstp(&status.model));
            if !stays {
                changed.push(*port);
                tree.times.remove(port);
                tree.bridge.remove_port(rstp_number(*port), now);
            }
            stays
        });
        for (number, status) in ports.iter().filter(|(_, status)| has_rstp(&status.model)) {
            let port = rstp_number(*number);
            let mut wanted = port_settings_of(&status.model, status.info.mac);
            if version == RstpVersion::Stp {
                let speed = status.info.speed_mbps.unwrap_or(0);
                wanted.path_cost = wanted.path_cost.or_else(|| Some(stp_path_cost(speed)));
            }
            tree.bridge.set_port(port, wanted, now);
            let is_up = status.info.link_up && !status.config.has(PortConfig::DOWN);
            let link = is_up.then(|| Link {
                mbps: status.info.speed_mbps.unwrap_or(0),
                is_full_duplex: true,
            });
            tree.bridge.set_link(port, link, now);
            // A new port is discarding until the actions say otherwise.
            if !tree.forwards.contains_key(number) {
                tree.forwards.insert(*number, false);
                tree.times.insert(
                    *number,
                    PortTimes {
                        added: now,
                        state_since: now,
                    },
                );
                changed.push(*number);
            }
        }
        for port in changed {
            self.update_port_state(port);
        }
        self.run_rstp();
    }

    /// Returns true if the control thread takes the BPDUs that a port receives.
    pub(super) fn receives_bpdus(&self, port: &model::Port) -> bool {
        self.config.rstp.is_some() && has_rstp(port)
    }

    /// Handles a BPDU that arrived at `time`.
    pub(super) fn receive_bpdu(&mut self, port: PortNo, time: Time, frame: &[u8]) {
        if let Some(tree) = &mut self.rstp {
            tree.bridge.receive(rstp_number(port), frame, time);
            self.run_rstp();
        }
    }

    /// Runs the machines if they are due, and carries out what they decide, in order: a port is blocked before the BPDU
    /// leaves by which a neighbour learns of it.
    pub(super) fn run_rstp(&mut self) {
        let now = self.datapath.now();
        let is_due = |tree: &&mut SpanningTree| tree.deadline().is_some_and(|deadline| now >= deadline);
        let Some(tree) = self.rstp.as_mut().filter(is_due) else {
            return;
        };
        for action in tree.bridge.poll(now) {
            match action {
                Action::SetState { port, state } => {
                    let number = PortNo::from_raw(port.into());
                    let forwards = state == rstp::PortState::Forwarding;
                    if let Some(times) = self.rstp.as_mut().and_then(|tree| tree.times.get_mut(&number)) {
                        times.state_since = now;
                    }
                    let known = self.rstp.as_mut().and_then(|tree| tree.forwards.get_mut(&number));
                    if known.is_some_and(|known| core::mem::replace(known, forwards) != forwards) {
                        self.update_port_state(number);
                    }
                }
                Action::Flush { port } => {
                    let port = PortNo::from_raw(port.into());
                    self.tables.forget_fdb(None, Some(port), &mut self.ops);
                    self.publish();
                }
                Action::Transmit(transmit) => {
                    // Without a packet buffer the BPDU is lost: the next follows within the hello time.
                    let _no_buffer = self
                        .datapath
                        .send(PortNo::from_raw(transmit.port.into()), &transmit.frame);
                }
            }
        }
    }

    /// Returns the state of the bridge in the spanning tree; `None` without RSTP.
    pub fn rstp_status(&self) -> Option<BridgeStatus> {
        self.rstp.as_ref().map(|tree| tree.bridge.status())
    }

    /// Returns the times of a port in the spanning tree; `None` if it takes no part.
    pub fn rstp_times(&self, port: PortNo) -> Option<PortTimes> {
        self.rstp.as_ref()?.times.get(&port).copied()
    }

    /// Returns the state of a port in the spanning tree; `None` if it takes no part.
    pub fn rstp_port(&self, port: PortNo) -> Option<PortStatus> {
        let tree = self.rstp.as_ref()?;
        let number = u16::try_from(port.raw()).ok()?;
        tree.bridge.port(number)
    }
}

/// Returns the path cost of a port of STP (IEEE 802.1D-1998, table 8-5, and its usual continuation).
fn stp_path_cost(mbps: u32) -> u32 {
    match mbps {
        10_000.. => 2,
        1_000.. => 4,
        // A device without a speed counts as one with 100 Mb/s.
        0 | 100.. => 19,
        16.. => 62,
        10.. => 100,
        _ => 250,
    }
}

fn has_rstp(port: &model::Port) -> bool {
    port.number.raw() <= NUMBER_MAX && port.rstp.as_ref().is_none_or(|rstp| rstp.enabled)
}

/// Returns the number of a port in BPDUs: ports above [`NUMBER_MAX`] take no part.
fn rstp_number(port: PortNo) -> u16 {
    u16::try_from(port.raw()).unwrap_or(u16::MAX)
}

fn settings_of(wanted: &model::Rstp, address: Mac) -> rstp::Settings {
    rstp::Settings {
        priority: wanted.priority.get(),
        version: match wanted.version {
            RstpVersion::Rstp => rstp::Version::Rstp,
            RstpVersion::Stp => rstp::Version::Stp,
        },
        hello_time_s: wanted.hello_time_s.get(),
        max_age_s: wanted.max_age_s.get(),
        forward_delay_s: wanted.forward_delay_s.get(),
        tx_hold_count: wanted.transmit_hold_count.get(),
        address: wanted.address.map_or(address, model::UnicastMac::get),
    }
}

fn port_settings_of(port: &model::Port, mac: Mac) -> PortSettings {
    let defaults = PortSettings::new(mac);
    let Some(wanted) = &port.rstp else {
        return defaults;
    };
    PortSettings {
        priority: wanted.priority.get(),
        path_cost: wanted.path_cost.map(model::PathCost::get),
        edge: match wanted.edge {
            RstpEdge::Auto => Edge::Auto,
            RstpEdge::Yes => Edge::Yes,
            RstpEdge::No => Edge::No,
        },
        point_to_point: match wanted.point_to_point {
            RstpPointToPoint::Auto => None,
            RstpPointToPoint::Yes => Some(true),
            RstpPointToPoint::No => Some(false),
        },
        bpdu_guard: wanted.bpdu_guard,
        root_guard: wanted.root_guard,
        ..defaults
    }
}
