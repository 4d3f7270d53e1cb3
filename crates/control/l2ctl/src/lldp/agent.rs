//! The LLDP agent of a system: the transmit and receive machines of its ports (IEEE 802.1AB-2016, clause 9).

use millrace_types::{Duration, Mac, PortNo, Time};

use super::MAX_NEIGHBOURS;
use super::id::{ChassisId, PortId};
use super::pdu::{Aggregation, Capabilities, Lldpdu, ManagementAddress, NamedVlan};
use crate::frame::{self, LLDP_ETHER_TYPE, LLDP_NEAREST_BRIDGE, Transmit};

/// The interval of LLDPDUs to a neighbour that is new (`msgFastTx`, IEEE 802.1AB-2016, section 9.2.5.5).
const FAST_INTERVAL: Duration = Duration::from_secs(1);
/// LLDPDUs in the fast interval for one new neighbour (`txFastInit`).
const FAST_COUNT: u8 = 4;
/// LLDPDUs that a port sends in a row at most; one more is allowed each second (`txCreditMax`).
const MAX_CREDITS: u64 = 5;
/// Size of an LLDPDU that is sent at most, in bytes: that of a frame without jumbo.
const SENT_SIZE: usize = 1500;

/// The settings of the system.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    pub chassis: ChassisId,
    pub system_name: String,
    pub system_description: String,
    /// The capabilities that the system has, and those that are enabled.
    pub capabilities: (Capabilities, Capabilities),
    /// The management addresses.
    pub addresses: Vec<ManagementAddress>,
    /// The time between two LLDPDUs of a port, 1 to 3600 s (`msgTxInterval`).
    pub interval_s: u16,
    /// The number of intervals for which a neighbour keeps the information, 1 to 100 (`msgTxHold`).
    pub hold: u8,
}

/// The settings of a port: what it tells, and which directions are enabled.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortSettings {
    /// The source address.
    pub mac: Mac,
    /// The identifier of the port.
    pub id: PortId,
    /// The description of the port.
    pub description: String,
    /// True if LLDPDUs are sent.
    pub sends: bool,
    /// True if LLDPDUs are received.
    pub receives: bool,
    /// The VLAN of untagged frames; 0 if there is none.
    pub port_vlan: Option<u16>,
    /// The VLANs of the port.
    pub vlans: Vec<NamedVlan>,
    /// The link aggregation state.
    pub aggregation: Option<Aggregation>,
    /// The maximum frame size, with header and check sequence, in bytes.
    pub max_frame_size: Option<u16>,
}

/// Counters of a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// LLDPDUs that were sent.
    pub sent: u64,
    /// LLDPDUs that were received.
    pub received: u64,
    /// LLDPDUs that are malformed.
    pub discarded: u64,
    /// LLDPDUs of neighbours for which the port has no room.
    pub too_many_neighbours: u64,
    /// TLVs that were not read.
    pub unread_tlvs: u64,
    /// Neighbours whose time to live ended.
    pub aged_out: u64,
}

/// A neighbour of a port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Neighbour {
    /// The source address of its LLDPDUs.
    pub mac: Mac,
    /// The last LLDPDU.
    pub pdu: Lldpdu,
    /// The time of its first LLDPDU.
    pub since: Time,
    /// The time at which the information expires.
    pub expires: Time,
}

#[derive(Clone, Debug)]
struct Port {
    number: PortNo,
    settings: PortSettings,
    is_up: bool,
    neighbours: Vec<Neighbour>,
    counters: Counters,
    next_send: Time,
    /// LLDPDUs that remain to be sent in the fast interval.
    fast: u8,
    /// The time at which the port has all credits again: each LLDPDU moves it by a second.
    credits_full: Time,
}

/// The LLDP agent of a system.
#[derive(Clone, Debug)]
pub struct Agent {
    settings: Settings,
    /// The ports, by number.
    ports: Vec<Port>,
    /// The number of changes of the neighbours.
    changes: u64,
    /// Shutdown LLDPDUs of ports that were removed or no longer send.
    farewells: Vec<Transmit<PortNo>>,
}

impl Agent {
    /// Returns an agent without ports.
    pub fn new(settings: Settings) -> Agent {
        Agent {
            settings,
            ports: Vec::new(),
            changes: 0,
            farewells: Vec::new(),
        }
    }

    /// Changes the settings of the system; neighbours are told soon.
    pub fn set_settings(&mut self, settings: Settings, now: Time) {
        if self.settings != settings {
            // Neighbours know this system by its chassis: the old one says farewell.
            if self.settings.chassis != settings.chassis {
                self.shut_down();
            }
            self.settings = settings;
            self.ports.iter_mut().for_each(|port| port.next_send = now);
        }
    }

    /// Returns the settings of the system.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Adds a port, which has no link, or changes its settings; neighbours are told soon.
    pub fn set_port(&mut self, number: PortNo, settings: PortSettings, now: Time) {
        match self.position(number) {
            Ok(at) => {
                let old = self.ports[at].settings.clone();
                if old == settings {
                    return;
                }
                if old.id != settings.id || !settings.sends {
                    self.say_farewell(at);
                }
                let port = &mut self.ports[at];
                port.next_send = now;
                if !settings.receives {
                    self.changes += port.neighbours.len() as u64;
                    port.neighbours.clear();
                }
                port.settings = settings;
            }
            Err(at) => self.ports.insert(
                at,
                Port {
                    number,
                    settings,
                    is_up: false,
                    neighbours: Vec::new(),
                    counters: Counters::default(),
                    next_send: now,
                    fast: 0,
                    credits_full: now,
                },
            ),
        }
    }

    /// Removes a port; its neighbours are told.
    pub fn remove_port(&mut self, number: PortNo) {
        if let Ok(at) = self.position(number) {
            self.say_farewell(at);
            let port = self.ports.remove(at);
            self.changes += port.neighbours.len() as u64;
        }
    }

    /// Tells the neighbours of all ports that the information of this system is no longer valid: the next
    /// [`Agent::poll`] returns the shutdown LLDPDUs (IEEE 802.1AB-2016, section 9.1.2.2).
    pub fn shut_down(&mut self) {
        (0..self.ports.len()).for_each(|at| self.say_farewell(at));
    }

    /// Handles a change of a port's link.
    pub fn set_link(&mut self, number: PortNo, is_up: bool, now: Time) {
        let Ok(at) = self.position(number) else {
            return;
        };
        let port = &mut self.ports[at];
        if core::mem::replace(&mut port.is_up, is_up) != is_up {
            port.next_send = now;
            // Neighbours of a link that is down stay until they expire: the operator sees who was there.
            port.fast = if is_up { FAST_COUNT } else { 0 };
        }
    }

    /// Handles a frame that a port received.
    pub fn receive(&mut self, number: PortNo, frame: &[u8], now: Time) {
        let own = &self.settings.chassis;
        let Ok(at) = self.ports.binary_search_by_key(&number, |port| port.number) else {
            return;
        };
        let port = &mut self.ports[at];
        if !port.settings.receives || !port.is_up {
            return;
        }
        let parsed = frame::body_of(frame, LLDP_ETHER_TYPE, Mac::is_reserved_link_local);
        let Some((mac, Ok(pdu))) = parsed.map(|(mac, body)| (mac, Lldpdu::parse(body))) else {
            port.counters.discarded += 1;
            return;
        };
        port.counters.received += 1;
        port.counters.unread_tlvs += u64::from(pdu.unread);
        // A port that hears itself has a loop behind it, not a neighbour.
        if pdu.chassis == *own && pdu.port == port.settings.id {
            return;
        }
        self.changes += u64::from(port.learn(mac, pdu, now));
    }

    /// Returns the frames that are due at `now`, and forgets neighbours that have expired.
    pub fn poll(&mut self, now: Time) -> Vec<Transmit<PortNo>> {
        let mut frames = core::mem::take(&mut self.farewells);
        for port in &mut self.ports {
            let before = port.neighbours.len();
            port.neighbours.retain(|neighbour| now < neighbour.expires);
            let aged = (before - port.neighbours.len()) as u64;
            port.counters.aged_out += aged;
            self.changes += aged;
            if port.is_due(now) {
                frames.push(port.transmit(&self.settings, now));
            }
        }
        frames
    }

    /// Returns the time at which [`Agent::poll`] is due; `None` if nothing is.
    pub fn deadline(&self) -> Option<Time> {
        if !self.farewells.is_empty() {
            return Some(Time::ZERO);
        }
        let expiry = |port: &Port| port.neighbours.iter().map(|neighbour| neighbour.expires).min();
        let send = |port: &Port| port.sends().then(|| port.next_send.max(port.next_credit()));
        self.ports
            .iter()
            .flat_map(|port| [expiry(port), send(port)])
            .flatten()
            .min()
    }

    /// Returns the neighbours of all ports, with the numbers of the ports.
    pub fn neighbours(&self) -> impl Iterator<Item = (PortNo, &Neighbour)> {
        self.ports
            .iter()
            .flat_map(|port| port.neighbours.iter().map(|neighbour| (port.number, neighbour)))
    }

    /// Returns the counters of a port; `None` if there is no such port.
    pub fn counters(&self, number: PortNo) -> Option<Counters> {
        self.position(number)
            .ok()
            .and_then(|at| self.ports.get(at))
            .map(|port| port.counters)
    }

    /// Returns the numbers of the ports, ascending.
    pub fn ports(&self) -> impl Iterator<Item = PortNo> {
        self.ports.iter().map(|port| port.number)
    }

    /// Returns the number of changes of the neighbours since the start; a reader that sees the same number twice has
    /// missed nothing.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    fn position(&self, number: PortNo) -> Result<usize, usize> {
        self.ports.binary_search_by_key(&number, |port| port.number)
    }

    /// Queues a shutdown LLDPDU of a port, if it has sent another.
    fn say_farewell(&mut self, at: usize) {
        let Some(port) = self
            .ports
            .get_mut(at)
            .filter(|port| port.sends() && port.counters.sent > 0)
        else {
            return;
        };
        let pdu = Lldpdu::new(self.settings.chassis.clone(), port.settings.id.clone(), 0);
        port.counters.sent += 1;
        let transmit = port.frame(&pdu);
        self.farewells.push(transmit);
    }
}

impl Port {
    fn sends(&self) -> bool {
        self.is_up && self.settings.sends
    }

    /// Returns the time from which one more LLDPDU may be sent.
    fn next_credit(&self) -> Time {
        self.credits_full - FAST_INTERVAL * (MAX_CREDITS as u32 - 1)
    }

    fn is_due(&self, now: Time) -> bool {
        self.sends() && now >= self.next_send && now >= self.next_credit()
    }

    /// Remembers a neighbour; returns true if something changed.
    fn learn(&mut self, mac: Mac, pdu: Lldpdu, now: Time) -> bool {
        let is_same = |known: &Neighbour| known.pdu.chassis == pdu.chassis && known.pdu.port == pdu.port;
        let known = self.neighbours.iter().position(is_same);
        if pdu.time_to_live_s == 0 {
            return known.map(|at| self.neighbours.remove(at)).is_some();
        }
        let expires = now + Duration::from_secs(pdu.time_to_live_s.into());
        match known {
            Some(at) => {
                let neighbour = &mut self.neighbours[at];
                let has_changed = neighbour.pdu != pdu || neighbour.mac != mac;
                neighbour.expires = expires;
                neighbour.mac = mac;
                neighbour.pdu = pdu;
                has_changed
            }
            None if self.neighbours.len() >= MAX_NEIGHBOURS => {
                self.counters.too_many_neighbours += 1;
                false
            }
            None => {
                self.neighbours.push(Neighbour {
                    mac,
                    pdu,
                    since: now,
                    expires,
                });
                // The new neighbour learns of this system soon.
                self.fast = FAST_COUNT;
                self.next_send = self.next_send.min(now + FAST_INTERVAL);
                true
            }
        }
    }

    fn transmit(&mut self, system: &Settings, now: Time) -> Transmit<PortNo> {
        let interval = Duration::from_secs(system.interval_s.max(1).into());
        self.fast = self.fast.saturating_sub(1);
        self.next_send = now
            + if self.fast > 0 {
                FAST_INTERVAL.min(interval)
            } else {
                interval
            };
        self.credits_full = self.credits_full.max(now) + FAST_INTERVAL;
        self.counters.sent += 1;
        let seconds = u32::from(system.interval_s) * u32::from(system.hold) + 1;
        let settings = &self.settings;
        let pdu = Lldpdu {
            port_description: Some(settings.description.clone()).filter(|text| !text.is_empty()),
            system_name: Some(system.system_name.clone()).filter(|text| !text.is_empty()),
            system_description: Some(system.system_description.clone()).filter(|text| !text.is_empty()),
            capabilities: Some(system.capabilities),
            addresses: system.addresses.clone(),
            port_vlan: settings.port_vlan,
            vlans: settings.vlans.clone(),
            aggregation: settings.aggregation,
            max_frame_size: settings.max_frame_size,
            ..Lldpdu::new(
                system.chassis.clone(),
                settings.id.clone(),
                u16::try_from(seconds).unwrap_or(u16::MAX),
            )
        };
        self.frame(&pdu)
    }

    fn frame(&self, pdu: &Lldpdu) -> Transmit<PortNo> {
        Transmit {
            port: self.number,
            frame: frame::with_ether_type(
                LLDP_NEAREST_BRIDGE,
                self.settings.mac,
                LLDP_ETHER_TYPE,
                &pdu.emit(SENT_SIZE),
            ),
        }
    }
}
