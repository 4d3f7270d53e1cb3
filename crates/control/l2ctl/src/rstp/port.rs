//! A port: the variables of its machines, with the names of IEEE 802.1D-2004, section 17.19.

use millrace_types::Time;

use super::bpdu::{Bpdu, Times};
use super::vector::{PortId, PriorityVector};
use super::{Edge, Link, PortSettings, PortState, Role};

/// The origin of a port's priority vector (`infoIs`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum InfoIs {
    Disabled,
    Aged,
    Mine,
    Received,
}

/// The state of the port protocol migration machine (IEEE 802.1D-2004, figure 17-14).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Migration {
    CheckingRstp,
    SelectingStp,
    Sensing,
}

/// The state of the topology change machine (IEEE 802.1D-2004, figure 17-22). The other states of the figure are left at
/// once.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum TopologyChange {
    Inactive,
    Learning,
    Active,
}

/// Counters of a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// BPDUs that were received and used.
    pub received: u64,
    /// BPDUs that are malformed or too old.
    pub discarded: u64,
    /// BPDUs that were sent.
    pub sent: u64,
    /// Changes to forwarding.
    pub forward_transitions: u64,
    /// Topology changes that neighbours reported to this port.
    pub topology_changes: u64,
}

/// The state of a port, for people.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PortStatus {
    /// The number of the port.
    pub port: u16,
    /// The identifier of the port.
    pub id: PortId,
    pub role: Role,
    pub state: PortState,
    pub path_cost: u32,
    /// The priority vector of the port: that of its designated port.
    pub priority: PriorityVector,
    /// True if the port leads to hosts.
    pub is_edge: bool,
    /// True if the link has two ends.
    pub is_point_to_point: bool,
    /// True if the port sends RST BPDUs; false if it sends those of STP.
    pub sends_rstp: bool,
    /// True if BPDU guard disabled the port.
    pub is_guarded: bool,
    /// True if root guard keeps the port from becoming the root port.
    pub is_root_inconsistent: bool,
    pub counters: Counters,
}

/// The deadlines of the timers: a timer is 0, in the words of the standard, from its deadline on.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Timers {
    pub(super) edge_delay_while: Time,
    pub(super) fd_while: Time,
    pub(super) hello_when: Time,
    pub(super) mdelay_while: Time,
    pub(super) rb_while: Time,
    pub(super) rcvd_info_while: Time,
    pub(super) rr_while: Time,
    pub(super) tc_while: Time,
    /// The time at which `tx_count` is decremented.
    pub(super) tx_tick: Time,
}

/// The information of a BPDU that a designated port sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Said {
    pub(super) priority: PriorityVector,
    /// In 1/256 s.
    pub(super) message_age: u16,
    pub(super) at: Time,
    /// True if the port has had another role since: it took what the neighbour said.
    pub(super) is_withdrawn: bool,
}

/// A port and its variables.
#[derive(Clone, Debug)]
pub(super) struct Port {
    pub(super) number: u16,
    pub(super) settings: PortSettings,
    pub(super) link: Option<Link>,
    /// True if a BPDU arrived at a port with BPDU guard.
    pub(super) is_guarded: bool,
    pub(super) timers: Timers,
    pub(super) counters: Counters,

    pub(super) agree: bool,
    pub(super) agreed: bool,
    pub(super) disputed: bool,
    pub(super) forward: bool,
    pub(super) forwarding: bool,
    pub(super) info_is: InfoIs,
    pub(super) learn: bool,
    pub(super) learning: bool,
    pub(super) new_info: bool,
    pub(super) oper_edge: bool,
    pub(super) proposed: bool,
    pub(super) proposing: bool,
    pub(super) re_root: bool,
    pub(super) reselect: bool,
    pub(super) role: Role,
    pub(super) selected: bool,
    pub(super) selected_role: Role,
    pub(super) send_rstp: bool,
    pub(super) sync: bool,
    pub(super) synced: bool,
    pub(super) updt_info: bool,

    pub(super) port_priority: PriorityVector,
    pub(super) port_times: Times,
    pub(super) designated_priority: PriorityVector,
    pub(super) designated_times: Times,

    /// The BPDU that the port information machine handles next (`rcvdMsg`).
    pub(super) message: Option<Bpdu>,
    pub(super) migration: Migration,
    pub(super) rcvd_rstp: bool,
    pub(super) rcvd_stp: bool,
    pub(super) mcheck: bool,

    pub(super) topology: TopologyChange,
    pub(super) rcvd_tc: bool,
    pub(super) rcvd_tc_ack: bool,
    pub(super) rcvd_tcn: bool,
    pub(super) tc_ack: bool,
    pub(super) tc_prop: bool,

    pub(super) tx_count: u8,

    /// The information that the port sent as a designated port in the last second, and the last before; at most 10 BPDUs a second.
    /// Withdrawn information stays as long as a neighbour keeps it.
    pub(super) said: Vec<Said>,
    /// The path cost of the neighbour's port, as far as its agreements tell it.
    pub(super) neighbour_cost: Option<u32>,
}

impl Port {
    /// Returns a port without a link. `priority` and `times` are those of the bridge as the root.
    pub(super) fn new(
        number: u16,
        settings: PortSettings,
        priority: PriorityVector,
        times: Times,
        sends_rstp: bool,
    ) -> Port {
        Port {
            number,
            settings,
            link: None,
            is_guarded: false,
            timers: Timers::default(),
            counters: Counters::default(),
            agree: false,
            agreed: false,
            disputed: false,
            forward: false,
            forwarding: false,
            info_is: InfoIs::Disabled,
            learn: false,
            learning: false,
            new_info: false,
            oper_edge: settings.edge == Edge::Yes,
            proposed: false,
            proposing: false,
            re_root: false,
            reselect: true,
            role: Role::Disabled,
            selected: false,
            selected_role: Role::Disabled,
            send_rstp: sends_rstp,
            sync: false,
            synced: true,
            updt_info: false,
            port_priority: priority,
            port_times: times,
            designated_priority: priority,
            designated_times: times,
            message: None,
            migration: Migration::CheckingRstp,
            rcvd_rstp: false,
            rcvd_stp: false,
            mcheck: false,
            topology: TopologyChange::Inactive,
            rcvd_tc: false,
            rcvd_tc_ack: false,
            rcvd_tcn: false,
            tc_ack: false,
            tc_prop: false,
            tx_count: 0,
            said: Vec::new(),
            neighbour_cost: None,
        }
    }

    /// Returns the identifier of the port.
    pub(super) fn id(&self) -> PortId {
        PortId::new(self.settings.priority, self.number)
    }

    /// Returns true if the port has a link and no guard disabled it (`portEnabled`).
    pub(super) fn is_enabled(&self) -> bool {
        self.link.is_some() && !self.is_guarded
    }

    /// Returns the path cost.
    pub(super) fn path_cost(&self) -> u32 {
        let by_speed = || self.link.map_or(super::MAX_PATH_COST, Link::path_cost);
        self.settings.path_cost.unwrap_or_else(by_speed)
    }

    /// Returns true if the link has two ends (`operPointToPointMAC`).
    pub(super) fn is_point_to_point(&self) -> bool {
        let by_link = || self.link.is_some_and(|link| link.is_full_duplex);
        self.settings.point_to_point.unwrap_or_else(by_link)
    }

    /// Returns true if the port is the root port or a designated port.
    pub(super) fn is_active(&self) -> bool {
        matches!(self.role, Role::Root | Role::Designated)
    }

    /// Returns the state of the port.
    pub(super) fn state(&self) -> PortState {
        match (self.forwarding, self.learning) {
            (true, _) => PortState::Forwarding,
            (false, true) => PortState::Learning,
            (false, false) => PortState::Discarding,
        }
    }

    /// Returns the state for people. `root_priority` is the best vector of all ports.
    pub(super) fn status(&self) -> PortStatus {
        let is_better = self.port_priority.is_better_or_same(&self.designated_priority);
        PortStatus {
            port: self.number,
            id: self.id(),
            role: self.role,
            state: self.state(),
            path_cost: self.path_cost(),
            priority: self.port_priority,
            is_edge: self.oper_edge,
            is_point_to_point: self.is_point_to_point(),
            sends_rstp: self.send_rstp,
            is_guarded: self.is_guarded,
            is_root_inconsistent: self.settings.root_guard && self.info_is == InfoIs::Received && is_better,
            counters: self.counters,
        }
    }
}
