//! One member: the receive, periodic, mux and churn machines of a port (IEEE 802.1AX-2014, sections 6.4.12 to 6.4.17).

use millrace_types::{Duration, Mac, Time};

use super::pdu::{Lacpdu, Marker, Participant, State};
use super::settings::Settings;
use super::{
    AGGREGATE_WAIT_TIME, CHURN_DETECTION_TIME, FAST_PERIODIC_TIME, Mbps, Mode, Rate, SHORT_TIMEOUT_TIME,
    SLOW_PERIODIC_TIME,
};

/// LACPDUs, and marker responses, that a member sends within [`FAST_PERIODIC_TIME`] at most (IEEE 802.1AX-2014, section
/// 6.4.16: three LACPDUs; responses are bounded in the same way).
const MAX_SENT: usize = 3;

/// The settings of one member of a LAG: its port.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct MemberSettings {
    /// The number of the port in its system, from 1. Some partners ignore port 0.
    pub port: u16,
    /// The priority of the port; lower is better.
    pub priority: u16,
    /// The source address of the port's frames.
    pub mac: Mac,
}

/// The state of the receive machine (IEEE 802.1AX-2014, figure 6-18).
///
/// ```text
///                link                 3 s                   LACPDU
///  disabled ───────────► expired ───────────► defaulted ──────────────┐
///     ▲                   ▲    │ LACPDU                               ▼
///     │ no link           │    └──────────────────────────────────► current
///     └── from any        └──────────── 3 s or 90 s without LACPDU ───┘
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Receive {
    /// The port has no link.
    PortDisabled,
    /// The LAG is static.
    LacpDisabled,
    /// No LACPDU arrived in time; this side asks for LACPDUs each second.
    Expired,
    /// No LACPDU arrived for longer: no partner is known.
    Defaulted,
    /// LACPDUs arrive in time.
    Current,
}

/// The state of the mux machine (IEEE 802.1AX-2014, figure 6-23, independent control).
///
/// ```text
///            selected              all waited 2 s         partner in sync            partner collects
///  detached ──────────► waiting ──────────► attached ──────────► collecting ──────────► distributing
/// ```
/// The way back is the same, one state at a time, within one call of `poll`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Mux {
    /// The member belongs to no aggregator.
    Detached,
    /// The member waits for further members.
    Waiting,
    /// The member is attached; its partner is out of synchronization.
    Attached,
    /// The member receives.
    Collecting,
    /// The member receives and sends.
    Distributing,
}

/// The decision of the selection logic (IEEE 802.1AX-2014, section 6.4.14).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Selected {
    /// The member may not carry frames of this LAG.
    Unselected,
    /// The member carries frames when both sides are ready.
    Selected,
    /// The LAG has fewer than `min_links` usable members.
    Standby,
}

/// The state of a churn machine (IEEE 802.1AX-2014, section 6.4.17).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Churn {
    /// The side is in synchronization, or the port has no link.
    None,
    /// The side has been out of synchronization for less than 60 s.
    Monitor,
    /// The side has been out of synchronization for 60 s or longer: somebody should look at its configuration.
    Churned,
}

/// Counters of a member.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// LACPDUs that were received and used.
    pub received: u64,
    /// Frames of slow protocols that are malformed, of another protocol, or came while LACP is off.
    pub discarded: u64,
    /// LACPDUs that were sent.
    pub sent: u64,
    /// Markers that were answered.
    pub markers: u64,
    /// Changes between distributing and not distributing.
    pub flaps: u64,
}

/// The state of a member, for people.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemberStatus {
    /// The number of the port.
    pub port: u16,
    /// True if the member accepts frames of the LAG.
    pub collects: bool,
    /// True if frames of the LAG are sent on this member.
    pub distributes: bool,
    /// The state of the receive machine.
    pub receive: Receive,
    /// The state of the mux machine.
    pub mux: Mux,
    /// The decision of the selection logic.
    pub selected: Selected,
    /// This side.
    pub actor: Participant,
    /// The other side; zero if it is unknown.
    pub partner: Participant,
    /// The churn state of this side.
    pub actor_churn: Churn,
    /// The churn state of the partner.
    pub partner_churn: Churn,
    pub counters: Counters,
}

/// The times of the last frames of one kind, which bound their rate.
#[derive(Clone, Copy, Debug, Default)]
struct RateLimit {
    times: [Option<Time>; MAX_SENT],
    oldest: usize,
}

impl RateLimit {
    /// Returns the time from which one more frame may be sent.
    fn next(&self) -> Time {
        self.times[self.oldest].map_or(Time::ZERO, |sent| sent + FAST_PERIODIC_TIME)
    }

    fn record(&mut self, now: Time) {
        self.times[self.oldest] = Some(now);
        self.oldest = (self.oldest + 1) % MAX_SENT;
    }
}

/// A member and its machines.
#[derive(Clone, Debug)]
pub(super) struct Member {
    pub(super) settings: MemberSettings,
    /// The speed of the link; `None` without a link.
    pub(super) link: Option<Mbps>,
    pub(super) receive: Receive,
    pub(super) mux: Mux,
    pub(super) selected: Selected,
    pub(super) partner: Participant,
    /// True if the LAG's fallback made this member carry frames.
    pub(super) is_fallback: bool,
    pub(super) counters: Counters,
    current_while: Option<Time>,
    wait_while: Option<Time>,
    /// The time of the next periodic LACPDU.
    periodic: Option<Time>,
    needs_to_transmit: bool,
    sent: RateLimit,
    responses: RateLimit,
    /// The marker to answer.
    marker: Option<Marker>,
    /// The times since which actor and partner are out of synchronization.
    actor_out_of_sync: Option<Time>,
    partner_out_of_sync: Option<Time>,
}

/// The frames that a member carries.
#[derive(Clone, Copy)]
pub(super) struct Carries {
    /// True if received frames are accepted.
    pub(super) collects: bool,
    /// True if frames are sent.
    pub(super) distributes: bool,
}

impl Member {
    pub(super) fn new(settings: MemberSettings, mode: Mode) -> Member {
        Member {
            settings,
            link: None,
            receive: if mode == Mode::Static {
                Receive::LacpDisabled
            } else {
                Receive::PortDisabled
            },
            mux: Mux::Detached,
            selected: Selected::Unselected,
            partner: Participant::default(),
            is_fallback: false,
            counters: Counters::default(),
            current_while: None,
            wait_while: None,
            periodic: None,
            needs_to_transmit: false,
            sent: RateLimit::default(),
            responses: RateLimit::default(),
            marker: None,
            actor_out_of_sync: None,
            partner_out_of_sync: None,
        }
    }

    /// Returns true if a partner is known.
    pub(super) fn knows_partner(&self) -> bool {
        self.partner.system != Mac::ZERO && self.link.is_some()
    }

    /// Returns this side, as LACPDUs describe it.
    pub(super) fn actor(&self, settings: &Settings) -> Participant {
        let state = State::AGGREGATION
            .with(State::ACTIVITY, settings.mode == Mode::Active)
            .with(State::TIMEOUT, settings.rate == Rate::Fast)
            .with(State::SYNCHRONIZATION, self.mux >= Mux::Attached)
            .with(State::COLLECTING, self.mux >= Mux::Collecting)
            .with(State::DISTRIBUTING, self.mux >= Mux::Distributing)
            .with(State::DEFAULTED, !self.knows_partner())
            .with(State::EXPIRED, self.receive == Receive::Expired);
        Participant {
            system_priority: settings.system_priority,
            system: settings.system,
            key: settings.number.key(self.link.unwrap_or_default()),
            port_priority: self.settings.priority,
            port: self.settings.port,
            state,
        }
    }

    /// Handles a change of the link.
    pub(super) fn set_link(&mut self, link: Option<Mbps>, mode: Mode, now: Time) {
        let had_link = self.link.is_some();
        if core::mem::replace(&mut self.link, link) == link || mode == Mode::Static {
            return;
        }
        self.needs_to_transmit = link.is_some();
        match link {
            None => {
                self.receive = Receive::PortDisabled;
                self.selected = Selected::Unselected;
                self.partner.state = self.partner.state.with(State::SYNCHRONIZATION, false);
                self.current_while = None;
                self.marker = None;
            }
            // Another speed is another key: the partner must know it before the member is selected again.
            Some(_) if had_link => self.selected = Selected::Unselected,
            Some(_) => self.expire(now),
        }
    }

    /// Forgets the partner, whose port is now connected to another port of this system (`port_moved`).
    pub(super) fn forget_partner(&mut self) {
        self.partner = Participant::default();
    }

    /// Enters the state expired.
    fn expire(&mut self, now: Time) {
        self.receive = Receive::Expired;
        let state = self.partner.state.with(State::SYNCHRONIZATION, false);
        self.partner.state = state.with(State::TIMEOUT, true);
        self.current_while = Some(now + SHORT_TIMEOUT_TIME);
    }

    /// Handles a valid LACPDU (state current).
    pub(super) fn receive(&mut self, pdu: &Lacpdu, settings: &Settings, now: Time) {
        self.counters.received += 1;
        let actor = self.actor(settings);
        // update_Selected: the port is connected to something else than before.
        let aggregates = |side: &Participant| side.state.contains(State::AGGREGATION);
        if !pdu.actor.is_same_port(&self.partner) || aggregates(&pdu.actor) != aggregates(&self.partner) {
            self.selected = Selected::Unselected;
        }
        // update_NTT: the partner has an old view of this side.
        let compared = State::ACTIVITY | State::TIMEOUT | State::SYNCHRONIZATION | State::AGGREGATION;
        let knows_actor = pdu.partner.is_same_port(&actor);
        if !knows_actor || pdu.partner.state & compared != actor.state & compared {
            self.needs_to_transmit = true;
        }
        // recordPDU
        let stays_alive = pdu.actor.state.contains(State::ACTIVITY)
            || actor.state.contains(State::ACTIVITY) && pdu.partner.state.contains(State::ACTIVITY);
        let matches =
            knows_actor && aggregates(&pdu.partner) == aggregates(&actor) || !aggregates(&pdu.actor);
        let is_in_sync = pdu.actor.state.contains(State::SYNCHRONIZATION) && matches && stays_alive;
        self.partner = pdu.actor;
        self.partner.state = self.partner.state.with(State::SYNCHRONIZATION, is_in_sync);
        self.receive = Receive::Current;
        self.current_while = Some(now + settings.rate.timeout());
    }

    /// Handles a marker: it is answered by the next `transmit`.
    pub(super) fn receive_marker(&mut self, marker: Marker) {
        if !marker.is_response {
            self.marker = Some(marker);
        }
    }

    /// Runs the timer of the receive machine.
    pub(super) fn run_receive(&mut self, now: Time) {
        if self.current_while.is_none_or(|until| now < until) {
            return;
        }
        self.current_while = None;
        match self.receive {
            Receive::Current => self.expire(now),
            Receive::Expired => {
                self.receive = Receive::Defaulted;
                self.selected = Selected::Unselected;
                self.partner = Participant::default();
            }
            Receive::PortDisabled | Receive::LacpDisabled | Receive::Defaulted => {}
        }
    }

    /// Returns the time until which the member waits for others; `None` if it does not.
    pub(super) fn waits_until(&self) -> Option<Time> {
        self.wait_while.filter(|_| self.selected == Selected::Selected)
    }

    /// Takes at most one transition of the mux machine; returns true if it took one. `ready` is true if all waiting
    /// members of the LAG have waited long enough.
    pub(super) fn run_mux(&mut self, ready: bool, now: Time) -> bool {
        let is_selected = self.selected == Selected::Selected;
        let is_in_sync = self.partner.state.contains(State::SYNCHRONIZATION);
        let partner_collects = self.partner.state.contains(State::COLLECTING);
        let next = match self.mux {
            Mux::Detached if self.selected != Selected::Unselected => Mux::Waiting,
            Mux::Waiting if self.selected == Selected::Unselected => Mux::Detached,
            Mux::Waiting if is_selected && ready => Mux::Attached,
            Mux::Attached if !is_selected => Mux::Detached,
            Mux::Attached if is_in_sync => Mux::Collecting,
            Mux::Collecting if !is_selected || !is_in_sync => Mux::Attached,
            Mux::Collecting if partner_collects => Mux::Distributing,
            Mux::Distributing if !is_selected || !is_in_sync || !partner_collects => Mux::Collecting,
            _ => return false,
        };
        self.wait_while = (next == Mux::Waiting).then(|| now + AGGREGATE_WAIT_TIME);
        // The partner is not told that the member waits, which changes no bit of the state.
        self.needs_to_transmit |= next != Mux::Waiting;
        self.mux = next;
        true
    }

    /// Runs the churn machines.
    pub(super) fn run_churn(&mut self, now: Time) {
        let has_link = self.link.is_some() && self.receive != Receive::LacpDisabled;
        let update = |since: &mut Option<Time>, is_in_sync: bool| {
            if is_in_sync || !has_link {
                *since = None;
            } else {
                since.get_or_insert(now);
            }
        };
        update(&mut self.actor_out_of_sync, self.mux >= Mux::Attached);
        let is_in_sync = self.partner.state.contains(State::SYNCHRONIZATION);
        update(&mut self.partner_out_of_sync, is_in_sync);
    }

    /// Returns the interval of periodic LACPDUs; `None` if neither side asks for any.
    fn periodic_interval(&self, settings: &Settings) -> Option<Duration> {
        let is_active = settings.mode == Mode::Active || self.partner.state.contains(State::ACTIVITY);
        if self.link.is_none() || settings.mode == Mode::Static || !is_active {
            return None;
        }
        // The partner says how fast it wants LACPDUs; the rate of this side says how fast this side wants them. To a
        // partner that is unknown, this side sends slowly once it has given up.
        Some(if self.partner.state.contains(State::TIMEOUT) {
            FAST_PERIODIC_TIME
        } else {
            SLOW_PERIODIC_TIME
        })
    }

    /// Returns the bodies of the PDUs that are due at `now`, after the EtherType.
    pub(super) fn transmit(&mut self, settings: &Settings, now: Time) -> impl Iterator<Item = Vec<u8>> {
        let response = self
            .marker
            .take_if(|_| now >= self.responses.next())
            .map(|marker| {
                self.responses.record(now);
                self.counters.markers += 1;
                Marker {
                    is_response: true,
                    ..marker
                }
                .emit()
                .to_vec()
            });
        let interval = self.periodic_interval(settings);
        match (interval, self.periodic) {
            (None, _) => self.periodic = None,
            (Some(interval), None) => self.periodic = Some(now + interval),
            // The partner asks for a faster rate than before: it gets an LACPDU at once.
            (Some(interval), Some(due)) if due > now + interval || now >= due => {
                self.needs_to_transmit = true;
                self.periodic = Some(now + interval);
            }
            _ => {}
        }
        let may_send = self.needs_to_transmit && interval.is_some() && now >= self.sent.next();
        let pdu = may_send.then(|| {
            self.needs_to_transmit = false;
            self.sent.record(now);
            self.lacpdu(settings)
        });
        response.into_iter().chain(pdu)
    }

    /// Detaches the member for good. Returns the body of the LACPDU that tells the partner, if there is one.
    pub(super) fn leave(&mut self, settings: &Settings, now: Time) -> Option<Vec<u8>> {
        self.selected = Selected::Unselected;
        while self.run_mux(false, now) {}
        self.knows_partner().then(|| self.lacpdu(settings))
    }

    /// Returns the body of an LACPDU of the present state, and counts it as sent.
    fn lacpdu(&mut self, settings: &Settings) -> Vec<u8> {
        self.counters.sent += 1;
        let lacpdu = Lacpdu {
            actor: self.actor(settings),
            partner: self.partner,
            collector_max_delay: 0,
        };
        lacpdu.emit().to_vec()
    }

    /// Returns the time at which the member has something to do, apart from its wait for others.
    pub(super) fn deadline(&self, settings: &Settings) -> Option<Time> {
        let has_interval = self.periodic_interval(settings).is_some();
        let transmit = (self.needs_to_transmit && has_interval).then(|| self.sent.next());
        let response = self.marker.map(|_| self.responses.next());
        [self.current_while, self.periodic, transmit, response]
            .into_iter()
            .flatten()
            .min()
    }

    pub(super) fn churn(since: Option<Time>, now: Time) -> Churn {
        match since {
            None => Churn::None,
            Some(since) if now.since(since) < CHURN_DETECTION_TIME => Churn::Monitor,
            Some(_) => Churn::Churned,
        }
    }

    /// Returns the state for people. `carries` says if the member collects, and if it distributes.
    pub(super) fn status(&self, settings: &Settings, carries: Carries, now: Time) -> MemberStatus {
        MemberStatus {
            port: self.settings.port,
            collects: carries.collects,
            distributes: carries.distributes,
            receive: self.receive,
            mux: self.mux,
            selected: self.selected,
            actor: self.actor(settings),
            partner: self.partner,
            actor_churn: Member::churn(self.actor_out_of_sync, now),
            partner_churn: Member::churn(self.partner_out_of_sync, now),
            counters: self.counters,
        }
    }

    /// Sends the state at the next opportunity: a setting changed.
    pub(super) fn announce(&mut self) {
        self.needs_to_transmit = true;
    }
}
