//! The state machines of the ports (IEEE 802.1D-2004, sections 17.22 to 17.31). Each function takes at most one
//! transition and returns true if it took one; [`Bridge::step`] runs them until none is left.

use millrace_types::{Duration, Time};

use super::bpdu::{Bpdu, Fields, Flags, PortRole, Times};
use super::bridge::{Action, Bridge};
use super::port::{InfoIs, Migration, Port, TopologyChange};
use super::{Edge, MIGRATE_TIME, Role, Version};
use crate::frame::{self, Transmit};

/// Rounds of transitions for one event at most. The machines settle in far fewer; the bound keeps an error in them from
/// stopping the thread.
const MAX_ROUNDS: usize = 100;

impl Bridge {
    /// Runs all machines at `now` until they have settled, then sends what is due.
    pub(super) fn step(&mut self, now: Time) {
        let hello = self.hello();
        for port in &mut self.ports {
            port.hold_timers(hello, now);
        }
        for _ in 0..MAX_ROUNDS {
            let mut has_changed = false;
            for at in 0..self.ports.len() {
                let is_rstp = self.settings.version == Version::Rstp;
                let address = self.settings.address;
                let port = &mut self.ports[at];
                has_changed |= port.migrate(is_rstp, now);
                has_changed |= port.detect_edge(now);
                has_changed |= port.update_information(is_rstp, address, now);
            }
            has_changed |= self.select_roles();
            for at in 0..self.ports.len() {
                has_changed |= self.change_role(at, now);
                has_changed |= self.change_state(at);
                has_changed |= self.change_topology(at, now);
            }
            if !has_changed {
                break;
            }
        }
        for at in 0..self.ports.len() {
            self.transmit(at, now);
        }
    }

    fn hello(&self) -> Duration {
        Duration::from_secs(self.settings.hello_time_s.into())
    }

    /// The port role transitions machine (figures 17-20 to 17-23).
    fn change_role(&mut self, at: usize, now: Time) -> bool {
        let port = &self.ports[at];
        if !port.selected || port.updt_info {
            return false;
        }
        if port.role != port.selected_role {
            let port = &mut self.ports[at];
            if port.role == Role::Designated {
                port.withdraw_said();
            }
            port.role = port.selected_role;
            match port.role {
                Role::Root => {
                    port.timers.rr_while = now + Times::duration(port.designated_times.forward_delay);
                }
                Role::Designated => {}
                Role::Disabled | Role::Alternate | Role::Backup => {
                    port.learn = false;
                    port.forward = false;
                    port.synced = false;
                }
            }
            return true;
        }
        match port.role {
            Role::Disabled => self.ports[at].settle_blocked(now),
            Role::Root => self.change_root(at, now),
            Role::Designated => self.ports[at].change_designated(now),
            Role::Alternate | Role::Backup => self.ports[at].settle_blocked(now) || self.agree_or_propose(at),
        }
    }

    fn change_root(&mut self, at: usize, now: Time) -> bool {
        if self.agree_or_propose(at) {
            return true;
        }
        let port = &self.ports[at];
        if !port.forward && !port.re_root {
            self.ports.iter_mut().for_each(|port| port.re_root = true);
            return true;
        }
        if port.re_root && port.forward {
            self.ports[at].re_root = false;
            return true;
        }
        let may_advance = !port.forward
            && (now >= port.timers.fd_while
                || self.settings.version == Version::Rstp
                    && now >= port.timers.rb_while
                    && self.is_re_rooted(at, now));
        if may_advance {
            self.ports[at].advance(now);
        }
        may_advance
    }

    /// Handles a proposal at the root port or at an alternate port: the designated ports synchronize, then this port agrees.
    fn agree_or_propose(&mut self, at: usize) -> bool {
        let port = &self.ports[at];
        let is_proposed = port.proposed && !port.agree;
        let agrees = port.proposed && port.agree || !port.agree && self.is_all_synced();
        if agrees {
            let port = &mut self.ports[at];
            port.proposed = false;
            port.sync = false;
            port.agree = true;
            port.new_info = true;
        } else if is_proposed {
            self.ports.iter_mut().for_each(|port| port.sync = true);
            self.ports[at].proposed = false;
        }
        agrees || is_proposed
    }

    /// Returns true if all ports have their roles and all except the root port are synchronized (`allSynced`).
    fn is_all_synced(&self) -> bool {
        let is_synced = |port: &Port| {
            port.selected
                && !port.updt_info
                && port.role == port.selected_role
                && (port.synced || port.role == Role::Root)
        };
        self.ports.iter().all(is_synced)
    }

    /// Returns true if no other port was the root port a short time ago (`reRooted`).
    fn is_re_rooted(&self, at: usize, now: Time) -> bool {
        let mut others = self.ports.iter().enumerate().filter(|(other, _)| *other != at);
        others.all(|(_, port)| now >= port.timers.rr_while)
    }

    /// The port state transition machine (figure 17-24).
    fn change_state(&mut self, at: usize) -> bool {
        let port = &mut self.ports[at];
        let (learning, forwarding) = (port.learn, port.learn && port.forward);
        if (learning, forwarding) == (port.learning, port.forwarding) {
            return false;
        }
        port.counters.forward_transitions += u64::from(forwarding && !port.forwarding);
        port.learning = learning;
        port.forwarding = forwarding;
        self.actions.push(Action::SetState {
            port: port.number,
            state: port.state(),
        });
        true
    }

    /// The topology change machine (figure 17-25).
    fn change_topology(&mut self, at: usize, now: Time) -> bool {
        let (max_age, delay) = (self.root_times.max_age, self.root_times.forward_delay);
        let old = Times::duration(max_age) + Times::duration(delay);
        let hello = self.hello();
        let port = &mut self.ports[at];
        let (is_active, is_edge) = (port.is_active(), port.oper_edge);
        let has_received = port.rcvd_tc || port.rcvd_tcn || port.rcvd_tc_ack || port.tc_prop;
        match port.topology {
            TopologyChange::Inactive if port.learn => port.begin_learning(),
            TopologyChange::Inactive => {
                port.forget_topology();
                return false;
            }
            TopologyChange::Learning if is_active && port.forward && !is_edge => {
                port.topology = TopologyChange::Active;
                port.announce_change(hello, old, now);
                port.new_info = true;
                self.propagate(at, now);
            }
            TopologyChange::Learning if has_received => port.forget_topology(),
            TopologyChange::Learning if !is_active && !port.learn && !port.learning => {
                port.topology = TopologyChange::Inactive;
                port.timers.tc_while = now;
                port.tc_ack = false;
                self.actions.push(Action::Flush { port: port.number });
            }
            TopologyChange::Active if !is_active || is_edge => port.begin_learning(),
            TopologyChange::Active if port.rcvd_tcn || port.rcvd_tc => {
                if port.rcvd_tcn {
                    port.announce_change(hello, old, now);
                }
                port.rcvd_tcn = false;
                port.rcvd_tc = false;
                port.tc_ack |= port.role == Role::Designated;
                port.counters.topology_changes += 1;
                self.propagate(at, now);
            }
            TopologyChange::Active if port.tc_prop => {
                port.announce_change(hello, old, now);
                port.tc_prop = false;
                self.actions.push(Action::Flush { port: port.number });
            }
            TopologyChange::Active if port.rcvd_tc_ack => {
                port.timers.tc_while = now;
                port.rcvd_tc_ack = false;
            }
            TopologyChange::Learning | TopologyChange::Active => return false,
        }
        true
    }

    /// Tells all other ports of a topology change (`setTcPropTree`).
    fn propagate(&mut self, from: usize, now: Time) {
        self.topology_changes += 1;
        self.last_change = Some(now);
        for (at, port) in self.ports.iter_mut().enumerate() {
            port.tc_prop |= at != from;
        }
    }

    /// The port transmit machine (figure 17-17).
    fn transmit(&mut self, at: usize, now: Time) {
        let hello = self.hello();
        let hold_count = self.settings.tx_hold_count;
        let port = &mut self.ports[at];
        port.count_down(now);
        if !port.is_enabled() || !port.selected || port.updt_info {
            return;
        }
        if now >= port.timers.hello_when {
            port.timers.hello_when = now + hello;
            let announces = port.role == Role::Root && now < port.timers.tc_while;
            port.new_info |= port.role == Role::Designated || announces;
        }
        if !port.new_info || port.tx_count >= hold_count {
            return;
        }
        port.new_info = false;
        let bpdu = match (port.send_rstp, port.role) {
            (true, Role::Disabled) => return,
            (true, role) => Bpdu::Rst(port.fields(role_of(role), now)),
            (false, Role::Root) => Bpdu::TopologyChange,
            (false, Role::Designated) => Bpdu::Config(port.fields(PortRole::Unknown, now)),
            (false, _) => return,
        };
        if !matches!(bpdu, Bpdu::TopologyChange) {
            port.tc_ack = false;
        }
        if port.role == Role::Designated {
            port.note_said(now);
        }
        if port.tx_count == 0 {
            port.timers.tx_tick = now + Duration::from_secs(1);
        }
        port.tx_count += 1;
        port.timers.hello_when = now + hello;
        port.counters.sent += 1;
        let frame = frame::with_llc(port.settings.mac, &bpdu.emit());
        self.actions.push(Action::Transmit(Transmit {
            port: port.number,
            frame,
        }));
    }
}

fn role_of(role: Role) -> PortRole {
    match role {
        Role::Root => PortRole::Root,
        Role::Designated => PortRole::Designated,
        Role::Disabled | Role::Alternate | Role::Backup => PortRole::AlternateOrBackup,
    }
}

impl Port {
    /// Takes a BPDU (the port receive machine, figure 17-13).
    pub(super) fn receive(&mut self, bpdu: Bpdu, now: Time) {
        match bpdu {
            Bpdu::Rst(_) => self.rcvd_rstp = true,
            Bpdu::Config(_) | Bpdu::TopologyChange => self.rcvd_stp = true,
        }
        self.oper_edge = false;
        self.timers.edge_delay_while = now + MIGRATE_TIME;
        self.message = Some(bpdu);
    }

    /// Renews the timers that the port's role keeps at their first value up to now.
    fn hold_timers(&mut self, hello: Duration, now: Time) {
        let forward_delay = Times::duration(self.designated_times.forward_delay);
        match self.role {
            Role::Root => self.timers.rr_while = now + forward_delay,
            Role::Designated => {}
            Role::Disabled | Role::Alternate | Role::Backup => {
                self.timers.fd_while = now + self.forward_delay();
                self.timers.rr_while = now;
            }
        }
        if self.role == Role::Backup {
            self.timers.rb_while = now + hello * 2;
        }
        if !self.is_enabled() {
            self.timers.edge_delay_while = now + MIGRATE_TIME;
        }
    }

    /// Returns the time for which the port stays discarding, and learning, without agreement: the hello time among bridges
    /// with RSTP (`forwardDelay`).
    fn forward_delay(&self) -> Duration {
        Times::duration(if self.send_rstp {
            self.designated_times.hello_time
        } else {
            self.designated_times.forward_delay
        })
    }

    /// The port protocol migration machine (figure 17-15).
    fn migrate(&mut self, is_rstp: bool, now: Time) -> bool {
        let is_over = now >= self.timers.mdelay_while;
        let next = match self.migration {
            Migration::CheckingRstp if is_over && self.is_enabled() => Migration::Sensing,
            Migration::Sensing if !self.is_enabled() || self.mcheck => Migration::CheckingRstp,
            Migration::Sensing if self.send_rstp && self.rcvd_stp => Migration::SelectingStp,
            Migration::Sensing if is_rstp && !self.send_rstp && self.rcvd_rstp => Migration::CheckingRstp,
            Migration::SelectingStp if is_over || !self.is_enabled() || self.mcheck => Migration::Sensing,
            Migration::CheckingRstp if !self.is_enabled() => {
                self.timers.mdelay_while = now + MIGRATE_TIME;
                return false;
            }
            _ => return false,
        };
        self.migration = next;
        match next {
            Migration::CheckingRstp => {
                self.mcheck = false;
                self.send_rstp = is_rstp;
                self.timers.mdelay_while = now + MIGRATE_TIME;
            }
            Migration::SelectingStp => {
                self.send_rstp = false;
                self.timers.mdelay_while = now + MIGRATE_TIME;
            }
            Migration::Sensing => {
                self.rcvd_rstp = false;
                self.rcvd_stp = false;
            }
        }
        true
    }

    /// The bridge detection machine (figure 17-16).
    fn detect_edge(&mut self, now: Time) -> bool {
        let is_edge = match self.settings.edge {
            Edge::Yes if !self.is_enabled() => true,
            _ if !self.is_enabled() => false,
            Edge::Auto if now >= self.timers.edge_delay_while && self.send_rstp && self.proposing => true,
            _ => self.oper_edge,
        };
        core::mem::replace(&mut self.oper_edge, is_edge) != is_edge
    }

    /// Settles a port that neither learns nor forwards (states DISABLED_PORT and ALTERNATE_PORT).
    fn settle_blocked(&mut self, now: Time) -> bool {
        let is_settled = self.synced && !self.sync && !self.re_root;
        if self.learning || self.forwarding || is_settled {
            return false;
        }
        self.timers.fd_while = now + self.forward_delay();
        self.timers.rr_while = now;
        self.synced = true;
        self.sync = false;
        self.re_root = false;
        true
    }

    fn change_designated(&mut self, now: Time) -> bool {
        let is_blocked = !self.learning && !self.forwarding;
        if !self.forward && !self.agreed && !self.proposing && !self.oper_edge {
            self.proposing = true;
            let delay = if self.is_point_to_point() {
                MIGRATE_TIME
            } else {
                Times::duration(self.designated_times.max_age)
            };
            self.timers.edge_delay_while = now + delay;
            self.new_info = true;
            return true;
        }
        if (is_blocked || self.agreed || self.oper_edge) && !self.synced || self.sync && self.synced {
            self.timers.rr_while = now;
            self.synced = true;
            self.sync = false;
            return true;
        }
        let was_root = now < self.timers.rr_while;
        if !was_root && self.re_root {
            self.re_root = false;
            return true;
        }
        let must_discard = self.sync && !self.synced || self.re_root && was_root || self.disputed;
        if must_discard && !self.oper_edge && (self.learn || self.forward) {
            self.learn = false;
            self.forward = false;
            self.disputed = false;
            self.timers.fd_while = now + self.forward_delay();
            return true;
        }
        let is_due = now >= self.timers.fd_while || self.agreed || self.oper_edge;
        let is_held = self.sync || was_root && self.re_root;
        if is_due && !is_held && !self.forward {
            self.agreed = if self.learn { self.send_rstp } else { self.agreed };
            self.advance(now);
            return true;
        }
        false
    }

    /// Takes the next step to forwarding: learning, then forwarding.
    fn advance(&mut self, now: Time) {
        if self.learn {
            self.forward = true;
            self.timers.fd_while = now;
        } else {
            self.learn = true;
            self.timers.fd_while = now + self.forward_delay();
        }
    }

    fn begin_learning(&mut self) {
        self.topology = TopologyChange::Learning;
        self.forget_topology();
    }

    fn forget_topology(&mut self) {
        self.rcvd_tc = false;
        self.rcvd_tcn = false;
        self.rcvd_tc_ack = false;
        self.tc_prop = false;
    }

    /// Announces a topology change for a while (`newTcWhile`).
    fn announce_change(&mut self, hello: Duration, old: Duration, now: Time) {
        if now < self.timers.tc_while {
            return;
        }
        if self.send_rstp {
            self.timers.tc_while = now + hello + Duration::from_secs(1);
            self.new_info = true;
        } else {
            self.timers.tc_while = now + old;
        }
    }

    /// Counts the BPDUs of the last second.
    fn count_down(&mut self, now: Time) {
        while self.tx_count > 0 && now >= self.timers.tx_tick {
            self.tx_count -= 1;
            self.timers.tx_tick = self.timers.tx_tick + Duration::from_secs(1);
        }
    }

    fn fields(&self, role: PortRole, now: Time) -> Fields {
        let flags = Flags::default().with(Flags::TOPOLOGY_CHANGE, now < self.timers.tc_while);
        let flags = if role == PortRole::Unknown {
            flags.with(Flags::TOPOLOGY_CHANGE_ACK, self.tc_ack)
        } else {
            flags
                .with(Flags::PROPOSAL, self.proposing)
                .with(Flags::LEARNING, self.learning)
                .with(Flags::FORWARDING, self.forwarding)
                .with(Flags::AGREEMENT, self.agree)
                .with_role(role)
        };
        Fields {
            flags,
            root: self.designated_priority.root,
            root_path_cost: self.designated_priority.root_path_cost,
            bridge: self.designated_priority.designated_bridge,
            port: self.designated_priority.designated_port,
            times: self.designated_times,
        }
    }

    /// Returns the deadlines of the timers that run after `now`, as far as the port's role lets them run out.
    pub(super) fn deadlines(&self, now: Time) -> impl Iterator<Item = Time> {
        let timers = self.timers;
        let is_active = self.is_active();
        let deadlines = [
            (self.is_enabled(), timers.hello_when),
            (self.is_enabled(), timers.mdelay_while),
            (self.proposing, timers.edge_delay_while),
            (is_active, timers.fd_while),
            (self.role == Role::Designated, timers.rr_while),
            (self.role == Role::Root, timers.rb_while),
            (self.info_is == InfoIs::Received, timers.rcvd_info_while),
            (self.tx_count > 0, timers.tx_tick),
        ];
        deadlines
            .into_iter()
            .filter(move |(runs, at)| *runs && *at > now)
            .map(|(_, at)| at)
    }
}
