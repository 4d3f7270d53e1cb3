//! The port information machine (IEEE 802.1D-2004, section 17.27): what a port knows of the designated port of its link.

use millrace_types::{Duration, Mac, Time};

use super::bpdu::{Bpdu, Fields, Flags, PortRole, Times};
use super::port::{InfoIs, Port, Said};
use super::vector::PriorityVector;

/// The longest time that a BPDU and the answer to it are under way.
const UNDER_WAY: Duration = Duration::from_secs(1);

/// The kind of a received message (`rcvdInfo`, section 17.21.8).
enum Received {
    SuperiorDesignated,
    RepeatedDesignated,
    InferiorDesignated,
    InferiorRootAlternate,
    Other,
}

impl Port {
    /// The port information machine (figure 17-18).
    pub(super) fn update_information(&mut self, is_rstp: bool, address: Mac, now: Time) -> bool {
        if !self.is_enabled() {
            self.message = None;
            if self.info_is == InfoIs::Disabled {
                return false;
            }
            self.proposing = false;
            self.proposed = false;
            self.agree = false;
            self.agreed = false;
            self.said.clear();
            self.neighbour_cost = None;
            self.timers.rcvd_info_while = now;
            self.set_information(InfoIs::Disabled);
            return true;
        }
        if self.info_is == InfoIs::Disabled {
            self.set_information(InfoIs::Aged);
            return true;
        }
        if self.updt_info {
            if self.selected {
                self.take_designated();
            }
            return self.selected;
        }
        if let Some(bpdu) = self.message.take() {
            self.handle(bpdu, is_rstp, address, now);
            return true;
        }
        if self.info_is == InfoIs::Received && now >= self.timers.rcvd_info_while {
            self.set_information(InfoIs::Aged);
            return true;
        }
        false
    }

    fn set_information(&mut self, info_is: InfoIs) {
        self.info_is = info_is;
        self.reselect = true;
        self.selected = false;
    }

    /// Makes the designated vector the vector of the port (state UPDATE).
    fn take_designated(&mut self) {
        let is_better =
            self.info_is == InfoIs::Mine && self.designated_priority.is_better_or_same(&self.port_priority);
        // The neighbour agreed to better information than this port has now: it may have agreed because it heard what this
        // bridge said before, by way of other bridges. The standard leaves such a port forwarding, and stale information
        // about a root that is gone then goes round a loop until it is too old (Elmeleegy, Cox and Ng, "On
        // Count-to-Infinity Induced Forwarding Loops in Ethernet Networks", 2006). Here, the port discards, and proposes
        // anew, before it sends worse information; that takes one exchange with the neighbour.
        let can_agree_anew = self.send_rstp && self.is_point_to_point();
        self.disputed |= self.agreed && !is_better && self.learn && can_agree_anew;
        self.proposing = false;
        self.proposed = false;
        self.agreed &= is_better;
        self.synced &= self.agreed;
        self.port_priority = self.designated_priority;
        self.port_times = self.designated_times;
        self.updt_info = false;
        self.info_is = InfoIs::Mine;
        self.new_info = true;
    }

    /// Handles a message (states RECEIVE and those after it).
    fn handle(&mut self, bpdu: Bpdu, is_rstp: bool, address: Mac, now: Time) {
        let fields = match bpdu {
            Bpdu::TopologyChange => {
                self.rcvd_tcn = true;
                return;
            }
            Bpdu::Config(fields) | Bpdu::Rst(fields) => fields,
        };
        let role = match (bpdu, fields.flags.role()) {
            (Bpdu::Rst(_), role) if role != PortRole::Unknown => role,
            _ => PortRole::Designated,
        };
        let message = PriorityVector {
            root: fields.root,
            root_path_cost: fields.root_path_cost,
            designated_bridge: fields.bridge,
            designated_port: fields.port,
            bridge_port: self.id(),
        };
        let times = bounded(fields.times);
        // A port that hears itself is connected to itself. Its own vector replaces that of the port, which thus becomes a
        // backup port, as if another port of this bridge had sent the BPDU.
        let is_own = fields.bridge.address == address && fields.port == self.id();
        match self.kind_of(role, &message, times, is_own) {
            Received::SuperiorDesignated => {
                self.agreed = false;
                self.proposing = false;
                self.record_proposal(&fields);
                self.set_tc_flags(&fields);
                self.agree &=
                    self.info_is == InfoIs::Received && message.is_better_or_same(&self.port_priority);
                self.port_priority = message;
                self.port_times = times;
                self.update_lifetime(now);
                self.set_information(InfoIs::Received);
            }
            Received::RepeatedDesignated => {
                self.record_proposal(&fields);
                self.set_tc_flags(&fields);
                self.update_lifetime(now);
            }
            Received::InferiorDesignated => {
                // The neighbour learns although this port is the better one: it does not hear this port.
                if fields.flags.contains(Flags::LEARNING) {
                    self.disputed = true;
                    self.agreed = false;
                }
            }
            Received::InferiorRootAlternate => {
                // A neighbour that knows what this port says has the same root; one that names another root agreed to
                // what this port said before, perhaps before it said something better. The standard takes both.
                // Another port of this bridge, at the end of a cable from the bridge to itself, always has the root of
                // this bridge: nobody waits for such a cable, thus its ports do without agreement.
                let knows_this = fields.root == self.port_priority.root && fields.bridge.address != address;
                let has_agreed = fields.flags.contains(Flags::AGREEMENT)
                    && knows_this
                    && self.answers_present(role, &message, times, now);
                self.agreed = is_rstp && self.is_point_to_point() && has_agreed;
                if self.agreed && role == PortRole::Root {
                    self.neighbour_cost = message
                        .root_path_cost
                        .checked_sub(self.port_priority.root_path_cost);
                }
                self.proposing &= !self.agreed;
                self.set_tc_flags(&fields);
            }
            Received::Other => {}
        }
    }

    /// Returns true if an agreement can only be the answer to what this port says now. BPDUs have no numbers: an agreement that
    /// was under way while this port said something else looks like one to the present. If that other information was better,
    /// the neighbour may have taken it since, and its port may lead to this bridge a second time. If this port was no
    /// designated port meanwhile, it agreed to the neighbour, whose port may be the designated one since.
    fn answers_present(&self, role: PortRole, message: &PriorityVector, times: Times, now: Time) -> bool {
        // A root port says again, one bridge further, the information that it heard; an alternate port has its own from elsewhere.
        let is_of_path = |said: &Said| {
            message.root_path_cost > said.priority.root_path_cost && times.message_age > said.message_age
        };
        let may_answer =
            |said: &Said| message.root == said.priority.root && (role != PortRole::Root || is_of_path(said));
        let costs_as_before = |said: &Said| {
            let cost = self
                .neighbour_cost
                .and_then(|cost| said.priority.root_path_cost.checked_add(cost));
            role == PortRole::Root && may_answer(said) && cost == Some(message.root_path_cost)
        };
        self.is_the_only_answer(may_answer, now) || self.is_the_only_answer(costs_as_before, now)
    }

    /// Returns true if what this port says now may have been answered, nothing that was withdrawn may, and nothing better was
    /// said between that and something else that may have been answered.
    fn is_the_only_answer(&self, may_answer: impl Fn(&Said) -> bool, now: Time) -> bool {
        let present = Said {
            priority: self.port_priority,
            message_age: self.port_times.message_age,
            at: now,
            is_withdrawn: false,
        };
        let mut is_answerable = false;
        let is_doubtful = self.said.iter().any(|said| {
            is_answerable |= may_answer(said);
            let is_kept = now.since(said.at) < self.lifetime_of_said();
            is_answerable && said.priority.message() < present.priority.message()
                || said.is_withdrawn && is_kept && may_answer(said)
        });
        may_answer(&present) && !is_doubtful
    }

    /// Returns the time for which a neighbour keeps what it heard from this port once.
    fn lifetime_of_said(&self) -> Duration {
        Times::duration(self.designated_times.hello_time) * 3
    }

    /// Notes that the port is no designated port any more.
    pub(super) fn withdraw_said(&mut self) {
        self.said.iter_mut().for_each(|said| said.is_withdrawn = true);
    }

    /// Notes what the port says in a BPDU. What it said more than [`UNDER_WAY`] before is forgotten, except for the last of it,
    /// which the neighbour had until then.
    pub(super) fn note_said(&mut self, now: Time) {
        let said = Said {
            priority: self.designated_priority,
            message_age: self.designated_times.message_age,
            at: now,
            is_withdrawn: false,
        };
        let old = self
            .said
            .iter()
            .filter(|said| now.since(said.at) >= UNDER_WAY)
            .count();
        self.said.drain(..old.saturating_sub(1));
        self.said.push(said);
    }

    fn kind_of(&self, role: PortRole, message: &PriorityVector, times: Times, is_own: bool) -> Received {
        let is_same = message.message() == self.port_priority.message();
        match role {
            PortRole::Designated if is_own && self.info_is != InfoIs::Received => {
                Received::SuperiorDesignated
            }
            PortRole::Designated if message.is_superior_to(&self.port_priority) => {
                Received::SuperiorDesignated
            }
            PortRole::Designated if is_same && times == self.port_times => Received::RepeatedDesignated,
            PortRole::Designated if is_same => Received::SuperiorDesignated,
            PortRole::Designated => Received::InferiorDesignated,
            PortRole::Root | PortRole::AlternateOrBackup if self.port_priority.is_better_or_same(message) => {
                Received::InferiorRootAlternate
            }
            _ => Received::Other,
        }
    }

    fn record_proposal(&mut self, fields: &Fields) {
        self.proposed |= fields.flags.contains(Flags::PROPOSAL);
    }

    fn set_tc_flags(&mut self, fields: &Fields) {
        self.rcvd_tc |= fields.flags.contains(Flags::TOPOLOGY_CHANGE);
        self.rcvd_tc_ack |= fields.flags.contains(Flags::TOPOLOGY_CHANGE_ACK);
    }

    /// Sets the lifetime of received information: three hello times, or none if it is too old (`updtRcvdInfoWhile`).
    fn update_lifetime(&mut self, now: Time) {
        let times = self.port_times;
        let is_young = times.message_age.saturating_add(256) <= times.max_age;
        let lifetime = if is_young {
            Times::duration(times.hello_time) * 3
        } else {
            Duration::ZERO
        };
        self.timers.rcvd_info_while = now + lifetime;
    }
}

/// Returns the times with each in the range that the standard allows (IEEE 802.1D-2004, table 17-1), so that a neighbour
/// can neither stop this bridge nor make it spin.
fn bounded(times: Times) -> Times {
    let seconds = |units: u16, low: u16, high: u16| units.clamp(low << 8, high << 8);
    Times {
        message_age: times.message_age,
        max_age: seconds(times.max_age, 6, 40),
        hello_time: seconds(times.hello_time, 1, 10),
        forward_delay: seconds(times.forward_delay, 4, 30),
    }
}
