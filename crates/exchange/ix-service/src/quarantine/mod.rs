//! The quarantine of ends of peering LANs: what their routers send is judged before it may reach others.
//!
//! ```text
//! table 2 (tags popped), table 0 (other tags, reserved addresses) --packet_in, 50/s an end--> Core::packet_in
//!     --> judge: Ok | Fault(check, words) --> findings in the snapshot, ReportQuarantine { clean: false }
//! Core::watch_quarantine, once a second: ARP requests that only a proxy answers; after the clean time of the policy, in which
//!     the engine and the connection of the switch were there, and at least one good frame, ReportQuarantine { clean: true }: the end goes to production as an ordinary change
//! ```

mod checklist;
mod frames;
mod judge;
#[cfg(test)]
mod tests;

use core::net::{IpAddr, Ipv4Addr};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use millrace_ix_engine::Session;
use millrace_ix_model::{
    Actor, Config, ConfigId, ConnectionId, Exchange, LanPolicy, Operation, PortId, Prefix, Quarantine,
    Service, SwitchId, Timestamp, TrunkId, reason,
};
use millrace_ix_plan::admitted_mac;
use millrace_ix_plan::layout::{CookieFields, CookieKind};
use millrace_types::{Cookie, Duration, Mac, Time};

pub(crate) use checklist::Checklists;
pub use checklist::{Finding, Quarantined};
pub(crate) use frames::{ENGINE_MAC, arp_request, gratuitous_arp, tagged, unsolicited_advertisement};
pub use judge::Check;
use judge::{Expected, Fault, judge};

use crate::core::Core;
use crate::event::EventKind;
use crate::now::Now;
use crate::order::OrderOptions;
use crate::output::FabricRequest;

/// The shortest time between two reports to the database that an end is not clean.
const REPORT_INTERVAL: core::time::Duration = core::time::Duration::from_secs(10);
/// The time between two rounds of ARP requests that only a proxy answers.
const QUESTION_INTERVAL: Duration = Duration::from_secs(10);
/// An address outside of every peering LAN (RFC 5737). Only a router with proxy ARP answers a request for it.
const OUTSIDE: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 77);

/// An end of a peering LAN with the objects that define its correct set-up.
struct LanEnd<'a> {
    config: &'a Config,
    service: &'a Service,
    policy: &'a LanPolicy,
}

fn lan_end(exchange: &Exchange, id: ConfigId) -> Option<LanEnd<'_>> {
    let config = exchange.configs.get(&id)?;
    let service = exchange.services.get(&config.service)?;
    let policy = exchange.policies.get(&service.policy?)?;
    Some(LanEnd {
        config,
        service,
        policy,
    })
}

/// Returns tags in words: `VLAN 100`, `VLAN 100.5`, or `VLAN -` for none.
fn vlans(vids: &[u16]) -> String {
    match vids {
        [] => "VLAN -".to_owned(),
        [vid] => format!("VLAN {vid}"),
        [outer, inner, ..] => format!("VLAN {outer}.{inner}"),
    }
}

fn is_in_quarantine(config: &Config) -> bool {
    matches!(config.quarantine, Quarantine::Running { .. })
}

impl Core {
    /// Handles a packet that a switch has sent to the controller.
    pub fn packet_in(&mut self, switch: u32, session: Session, cookie: Cookie, frame: &[u8], now: Now) {
        if !self.engine.is_session(switch, session) {
            return;
        }
        let Some(fields) = CookieFields::from_cookie(cookie) else {
            return;
        };
        match fields.kind {
            CookieKind::End => self.judge_frame(ConfigId(fields.object), frame, None, now),
            CookieKind::UnassignedFrames => self.judge_stray(ConnectionId(fields.object), frame, now),
            CookieKind::Probe => {
                let side = u8::try_from(fields.generation).unwrap_or(u8::MAX);
                self.probe_arrived((TrunkId(fields.object), side), frame, now);
            }
            _ => {}
        }
    }

    /// Judges a frame that table 0 assigns to no end, because the frame has a reserved address or other tags.
    fn judge_stray(&mut self, connection: ConnectionId, frame: &[u8], now: Now) {
        let vids = frames::vids(frame);
        let ends = self.exchange.configs.iter();
        let ends: Vec<_> = ends
            .filter(|(_, config)| config.connection == connection)
            .map(|(id, config)| (*id, frames::vids_of(config.vlan), is_in_quarantine(config)))
            .collect();
        let has_prefix = |tags: &[u16]| vids.starts_with(tags);
        // The owner is the end with the longest list of tags that the frame begins with.
        let owner = ends
            .iter()
            .filter(|(_, tags, _)| has_prefix(tags) && (!tags.is_empty() || vids.is_empty()))
            .max_by_key(|(_, tags, _)| tags.len());
        if let Some((id, tags, in_quarantine)) = owner {
            if *in_quarantine {
                let body = frames::without_tags(frame, tags.len());
                self.judge_frame(*id, &body, Some(frame), now);
            }
            return;
        }
        let name = vlans(&vids);
        for (id, tags, _) in ends.into_iter().filter(|(.., in_quarantine)| *in_quarantine) {
            // A frame of a protocol between bridges is reported as that protocol, whatever its tags are.
            let body = frames::without_tags(frame, vids.len());
            let fault = judge::link_fault(&body)
                .unwrap_or_else(|| (Check::Tag, reason::frame_tags(&name, vlans(&tags))));
            self.note_fault(id, fault, frame, now);
        }
    }

    fn judge_frame(&mut self, id: ConfigId, body: &[u8], whole: Option<&[u8]>, now: Now) {
        let Some(end) = lan_end(&self.exchange, id).filter(|end| is_in_quarantine(end.config)) else {
            return;
        };
        let macs = self.exchange.macs.values();
        let at = now.timestamp();
        let macs = macs
            .filter(|mac| mac.config == id && mac.is_valid(at))
            .map(|mac| mac.address);
        let ips = self.exchange.ips.values();
        let expected = Expected {
            macs: macs.collect(),
            ips: ips
                .filter(|ip| ip.config == id && ip.is_valid(at))
                .map(|ip| ip.address)
                .collect(),
            ethertypes: &end.policy.ethertypes,
            networks: &end.service.networks,
        };
        match judge(body, &expected) {
            Ok(true) => {
                let known = self.checklists.get(&id).is_some_and(|list| list.seen);
                if !known {
                    Arc::make_mut(&mut self.checklists).entry(id).or_default().seen = true;
                    let event = EventKind::Object {
                        id: id.into(),
                        revision: self.revision,
                        deleted: false,
                    };
                    self.tell(event, now);
                }
            }
            Ok(false) => {}
            Err(fault) => self.note_fault(id, fault, whole.unwrap_or(body), now),
        }
    }

    /// Keeps a finding, and writes that the clean time begins again.
    fn note_fault(&mut self, id: ConfigId, fault: Fault, frame: &[u8], now: Now) {
        let Some(Config {
            quarantine: Quarantine::Running { clean_since },
            ..
        }) = self.exchange.configs.get(&id)
        else {
            return;
        };
        let is_due = now.timestamp().since(*clean_since) >= REPORT_INTERVAL;
        let list = Arc::make_mut(&mut self.checklists).entry(id).or_default();
        let is_first = list.findings.is_empty();
        if list.findings.iter().all(|finding| finding.check != fault.0) {
            tracing::info!(end = %id, check = fault.0.name(), "{}", fault.1);
        }
        list.add(fault, frame, now.timestamp());
        self.changed = true;
        if is_due || is_first {
            self.report_quarantine(id, false, now);
        }
    }

    fn report_quarantine(&mut self, config: ConfigId, clean: bool, now: Now) {
        let operation = Operation::ReportQuarantine { config, clean };
        let done = self.order(vec![operation], &Actor::system(), &OrderOptions::default(), now);
        if let Err(error) = done {
            tracing::warn!(end = %config, %error, "the result of the quarantine is written later");
        }
    }

    /// Ends the quarantine of ends that were clean for the time of their policy, and sends ends in quarantine ARP requests that
    /// only a proxy answers.
    pub(crate) fn watch_quarantine(&mut self, now: Now) {
        let running: Vec<_> = self
            .exchange
            .configs
            .iter()
            .filter_map(|(id, config)| match config.quarantine {
                Quarantine::Running { clean_since } => Some((*id, clean_since)),
                _ => None,
            })
            .collect();
        let is_running = |id: &ConfigId| running.iter().any(|(other, _)| other == id);
        if self.checklists.keys().any(|id| !is_running(id)) {
            Arc::make_mut(&mut self.checklists).retain(|id, _| is_running(id));
            self.changed = true;
        }
        for (id, clean_since) in &running {
            let Some(end) = lan_end(&self.exchange, *id) else {
                continue;
            };
            let needed = core::time::Duration::from_secs(end.policy.quarantine_secs.into());
            let list = self.checklists.get(id);
            let newest = list.and_then(|list| list.findings.iter().map(|finding| finding.at).max());
            let since = newest.map_or(*clean_since, |at| at.max(*clean_since));
            // Frames that arrive while the engine or the switch's connection is away are not seen.
            let Some(observed_since) = self.observed_since(end.config.connection) else {
                continue;
            };
            let since = since.max(observed_since);
            if list.is_some_and(|list| list.seen) && now.timestamp().since(since) >= needed {
                self.report_quarantine(*id, true, now);
            }
        }
        if now.time >= self.next_question {
            self.next_question = now.time + QUESTION_INTERVAL;
            for (id, _) in running {
                self.ask_for_proxy(id);
            }
        }
    }

    /// Returns the time from which the frames of a connection have reached the engine; `None` if its switch is not
    /// connected.
    fn observed_since(&self, connection: ConnectionId) -> Option<Timestamp> {
        let switch = self.switch_of(connection)?;
        self.observed.get(&switch).copied()
    }

    fn switch_of(&self, connection: ConnectionId) -> Option<SwitchId> {
        let found = self.exchange.connections.get(&connection)?;
        found.ports.first().map(|port| port.switch)
    }

    /// Records that the frames of a switch no longer reach the engine. A correct frame of each end must arrive again.
    pub(crate) fn stop_observing(&mut self, switch: SwitchId) {
        self.observed.remove(&switch);
        let seen = self.checklists.iter().filter(|(_, list)| list.seen);
        let ends: Vec<ConfigId> = seen.map(|(id, _)| *id).collect();
        for id in ends {
            let config = self.exchange.configs.get(&id);
            let is_there = config.is_some_and(|config| self.switch_of(config.connection) == Some(switch));
            if let Some(list) = Arc::make_mut(&mut self.checklists)
                .get_mut(&id)
                .filter(|_| is_there)
            {
                list.seen = false;
                self.changed = true;
            }
        }
    }

    /// Sends an end in quarantine ARP requests for addresses of the LAN that nobody has, and for an address outside.
    fn ask_for_proxy(&mut self, id: ConfigId) {
        let Some(end) = lan_end(&self.exchange, id) else {
            return;
        };
        let service = end.config.service;
        let is_registered = |address: Ipv4Addr| {
            let mut ips = self.exchange.ips.values();
            ips.any(|ip| {
                ip.address == IpAddr::V4(address)
                    && self
                        .exchange
                        .configs
                        .get(&ip.config)
                        .is_some_and(|config| config.service == service)
            })
        };
        let mut questions = Vec::new();
        for network in &end.service.networks {
            let mut free = highest_addresses(*network).filter(|address| !is_registered(*address));
            if let (Some(from), Some(target)) = (free.next(), free.next()) {
                questions.extend([target, OUTSIDE].map(|target| arp_request(ENGINE_MAC, from, target)));
            }
        }
        for question in questions {
            self.send_to_end(id, question);
        }
    }

    /// Sends a frame to the router at an end, with the tags of the end.
    pub(crate) fn send_to_end(&mut self, id: ConfigId, frame: Vec<u8>) {
        let Some(config) = self.exchange.configs.get(&id) else {
            return;
        };
        let ports = self
            .exchange
            .connections
            .get(&config.connection)
            .map(|found| &found.ports[..]);
        // Frames to a LAG leave through the first of its ports that is up.
        let port = ports.unwrap_or_default().iter().copied().find(|port: &PortId| {
            let state = self.ports.get(port);
            state.is_none_or(|state| state.is_up())
        });
        if let Some(port) = port {
            let frame = tagged(frame, config.vlan);
            self.send_frame(port, frame);
        }
    }

    /// Sends a frame by a port of a switch, if the switch is connected.
    pub(crate) fn send_frame(&mut self, PortId { switch, port }: PortId, frame: Vec<u8>) {
        if let Some(session) = self.engine.session(switch.0) {
            self.ask_switch(FabricRequest::PacketOut {
                switch,
                session,
                port,
                frame,
            });
        }
    }

    /// Announces to the other members of a LAN that an end has a new MAC address. Each member gets one
    /// gratuitous ARP request or unsolicited neighbour advertisement for each address of the end.
    pub(crate) fn announce(&mut self, id: ConfigId, mac: Mac) {
        let Some(config) = self.exchange.configs.get(&id) else {
            return;
        };
        let others: Vec<_> = self
            .exchange
            .ends(config.service)
            .filter(|(other, config)| *other != id && config.quarantine.is_over() && !config.shut_down)
            .map(|(other, _)| other)
            .collect();
        let ips: Vec<_> = self
            .exchange
            .ips
            .values()
            .filter(|ip| ip.config == id)
            .map(|ip| ip.address)
            .collect();
        for other in others {
            let macs: Vec<_> = self
                .exchange
                .macs
                .values()
                .filter(|registered| registered.config == other)
                .map(|registered| registered.address)
                .collect();
            for to in macs {
                for address in &ips {
                    let frame = match address {
                        IpAddr::V4(address) => gratuitous_arp(to, mac, *address),
                        IpAddr::V6(address) => unsolicited_advertisement(to, mac, *address),
                    };
                    self.send_to_end(other, frame);
                }
            }
        }
    }

    /// Records the newest MAC address of each end of a peering LAN that the switches admit. One that differs from the
    /// previous one is announced at once, and twice more at intervals of a second. Addresses that a change in progress
    /// admits do not count yet: a member that sends to one of them would lose those frames, and the change may be
    /// rolled back. The first address of an end is not announced, nor are those that are in use when the engine starts.
    pub(crate) fn watch_macs(&mut self, now: Now) {
        let at = now.timestamp();
        let unused = self.engine.unused_entries();
        let unused: BTreeSet<(ConfigId, Mac)> =
            unused.filter_map(|(id, entry)| admitted_mac(id, entry)).collect();
        let mut newest: BTreeMap<ConfigId, (Timestamp, Mac)> = BTreeMap::new();
        for mac in self.exchange.macs.values() {
            let is_newer = newest
                .get(&mac.config)
                .is_none_or(|(from, _)| *from <= mac.valid_from);
            if mac.is_valid(at) && is_newer && !unused.contains(&(mac.config, mac.address)) {
                newest.insert(mac.config, (mac.valid_from, mac.address));
            }
        }
        let configs = &self.exchange.configs;
        self.announced.retain(|id, _| configs.contains_key(id));
        for (id, (_, mac)) in newest {
            let before = self.announced.insert(id, mac);
            if before.is_some_and(|before| before != mac) && lan_end(&self.exchange, id).is_some() {
                tracing::info!(end = %id, %mac, "the newest MAC address is announced to the LAN");
                let times = [0, 1, 2].map(|secs| (now.time + Duration::from_secs(secs), id, mac));
                self.announcements.extend(times);
            }
        }
        let waiting: Vec<(Time, ConfigId, Mac)> = std::mem::take(&mut self.announcements);
        let (due, later): (Vec<_>, Vec<_>) = waiting.into_iter().partition(|(at, ..)| *at <= now.time);
        self.announcements = later;
        for (_, id, mac) in due {
            self.announce(id, mac);
        }
    }
}

/// Returns the highest addresses of an IPv4 network that hosts can have, at most 256.
fn highest_addresses(network: Prefix) -> impl Iterator<Item = Ipv4Addr> {
    let last = match network.address() {
        IpAddr::V4(first) if network.len() < 31 => Some(first.to_bits() | (u32::MAX >> network.len())),
        _ => None,
    };
    last.into_iter()
        .flat_map(|last| (1..=256).filter_map(move |below| last.checked_sub(below)))
        .map(Ipv4Addr::from_bits)
        .take_while(move |address| network.contains(IpAddr::V4(*address)))
        .filter(move |address| IpAddr::V4(*address) != network.address())
}
