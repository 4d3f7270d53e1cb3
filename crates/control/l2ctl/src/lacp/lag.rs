//! A LAG: its members, the selection logic (IEEE 802.1AX-2014, section 6.4.14) and the fallback.

use millrace_types::{Mac, Time};

use super::member::{Carries, Member, MemberSettings, MemberStatus, Mux, Receive, Selected};
use super::pdu::{Lacpdu, Pdu, State};
use super::settings::Settings;
use super::{Fallback, Mbps, Mode};
use crate::frame::{self, SLOW_ETHER_TYPE, SLOW_PROTOCOLS, Transmit};

/// Transitions that the mux machine of a member takes at most for one event: from distributing down to detached, and to
/// waiting again.
const MAX_TRANSITIONS: usize = 8;

/// Members that may carry frames together have the same group: the LAG ID (IEEE 802.1AX-2014, section 6.3.6).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
struct Group {
    key: u16,
    system_priority: u16,
    system: Mac,
    partner_key: u16,
    /// The partner's port if the partner does not aggregate it.
    individual: Option<PartnerPort>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
struct PartnerPort {
    priority: u16,
    number: u16,
}

/// A link aggregation group.
#[derive(Clone, Debug)]
pub struct Lag {
    settings: Settings,
    /// The members, by port number.
    members: Vec<Member>,
    group: Option<Group>,
}

impl Lag {
    /// Returns a LAG whose members have no link yet.
    pub fn new(settings: Settings, members: &[MemberSettings]) -> Lag {
        let mut lag = Lag {
            settings,
            members: Vec::new(),
            group: None,
        };
        lag.set_members(members);
        lag
    }

    /// Returns the settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Changes the settings. Members keep their state unless the mode, the number or the system changes.
    pub fn set_settings(&mut self, settings: Settings, now: Time) {
        let old = core::mem::replace(&mut self.settings, settings);
        let identity = |settings: &Settings| (settings.mode, settings.number, settings.system);
        if identity(&old) != identity(&settings) {
            self.group = None;
            for member in &mut self.members {
                let link = member.link;
                *member = Member::new(member.settings, settings.mode);
                member.set_link(link, settings.mode, now);
            }
        } else if old != settings {
            self.members.iter_mut().for_each(Member::announce);
        }
    }

    /// Changes the members. Members that stay as they are keep their state.
    pub fn set_members(&mut self, members: &[MemberSettings]) {
        let mut old = core::mem::take(&mut self.members);
        for settings in members {
            let kept = old.iter().position(|member| member.settings == *settings);
            self.members.push(match kept {
                Some(at) => old.swap_remove(at),
                None => Member::new(*settings, self.settings.mode),
            });
        }
        self.members.sort_by_key(|member| member.settings.port);
    }

    /// Handles a change of a member's link; `None` is no link.
    pub fn set_link(&mut self, port: u16, link: Option<Mbps>, now: Time) {
        let mode = self.settings.mode;
        if let Some(member) = self.member_mut(port) {
            member.set_link(link, mode, now);
        }
    }

    /// Handles a frame that a member received. The work is bounded by the number of members.
    pub fn receive(&mut self, port: u16, frame: &[u8], now: Time) {
        let settings = self.settings;
        let Some(member) = self.member_mut(port) else {
            return;
        };
        let body = frame::body_of(frame, SLOW_ETHER_TYPE, |to| to == SLOW_PROTOCOLS);
        let pdu = body.and_then(|(_, body)| Pdu::parse(body));
        let may_receive = member.link.is_some();
        match pdu {
            // A marker needs no LACP: the other side may be a static LAG that drains its links.
            Some(Pdu::Marker(marker)) if may_receive => member.receive_marker(marker),
            Some(Pdu::Lacp(pdu)) if may_receive && settings.mode != Mode::Static => {
                member.receive(&pdu, &settings, now);
                self.forget_moved(port, &pdu);
            }
            _ => member.counters.discarded += 1,
        }
    }

    /// Forgets the partner of members without a link if the same port of the same system is now heard elsewhere.
    fn forget_moved(&mut self, port: u16, pdu: &Lacpdu) {
        let moved = self.members.iter_mut().filter(|member| {
            member.settings.port != port
                && member.receive == Receive::PortDisabled
                && member.partner.system == pdu.actor.system
                && member.partner.port == pdu.actor.port
        });
        moved.for_each(Member::forget_partner);
    }

    /// Runs all machines, and returns the frames that are due. Afterwards [`Lag::collects`] and [`Lag::distributes`] say
    /// what the data plane does; the data plane changes before the frames are sent.
    pub fn poll(&mut self, now: Time) -> Vec<Transmit> {
        let distributed: Vec<bool> = self.ports().map(|port| self.distributes(port)).collect();
        self.members.iter_mut().for_each(|member| member.run_receive(now));
        // A member that became unselected detaches before it may be selected again.
        self.run_mux(now);
        self.select();
        self.run_mux(now);
        self.set_fallback();
        for (at, had) in distributed.into_iter().enumerate() {
            let has = self
                .members
                .get(at)
                .is_some_and(|member| self.carries(member).distributes);
            self.members[at].counters.flaps += u64::from(had != has);
        }
        let settings = self.settings;
        let mut frames = Vec::new();
        for member in &mut self.members {
            member.run_churn(now);
            let MemberSettings { port, mac, .. } = member.settings;
            frames.extend(member.transmit(&settings, now).map(|body| Transmit {
                port,
                frame: frame::with_ether_type(SLOW_PROTOCOLS, mac, SLOW_ETHER_TYPE, &body),
            }));
        }
        frames
    }

    /// Detaches all members, and returns the LACPDUs that say so: the partner moves its flows at once, and not after its
    /// timeout. The caller drops the LAG, or a part of its members, afterwards.
    pub fn shut_down(&mut self, now: Time) -> Vec<Transmit> {
        let settings = self.settings;
        self.members
            .iter_mut()
            .filter_map(|member| {
                let MemberSettings { port, mac, .. } = member.settings;
                let body = member.leave(&settings, now)?;
                Some(Transmit {
                    port,
                    frame: frame::with_ether_type(SLOW_PROTOCOLS, mac, SLOW_ETHER_TYPE, &body),
                })
            })
            .collect()
    }

    /// Returns the time at which [`Lag::poll`] is due; `None` if nothing is.
    pub fn deadline(&self) -> Option<Time> {
        let deadlines = self
            .members
            .iter()
            .filter_map(|member| member.deadline(&self.settings));
        deadlines.chain(self.ready_at()).min()
    }

    /// Returns true if frames that this member receives belong to the LAG.
    pub fn collects(&self, port: u16) -> bool {
        self.member(port)
            .is_some_and(|member| self.carries(member).collects)
    }

    /// Returns true if frames of the LAG are sent on this member.
    pub fn distributes(&self, port: u16) -> bool {
        self.member(port)
            .is_some_and(|member| self.carries(member).distributes)
    }

    /// Returns true if a member distributes.
    pub fn is_up(&self) -> bool {
        self.members.iter().any(|member| self.carries(member).distributes)
    }

    /// Returns the port numbers of the members, ascending.
    pub fn ports(&self) -> impl Iterator<Item = u16> {
        self.members.iter().map(|member| member.settings.port)
    }

    /// Returns the states of the members.
    pub fn status(&self, now: Time) -> Vec<MemberStatus> {
        let status = |member: &Member| member.status(&self.settings, self.carries(member), now);
        self.members.iter().map(status).collect()
    }

    /// Returns the frames that a member carries.
    fn carries(&self, member: &Member) -> Carries {
        if self.settings.mode == Mode::Static {
            let links = self.members.iter().filter(|member| member.link.is_some()).count();
            let is_up = member.link.is_some() && links >= self.settings.min_links;
            return Carries {
                collects: is_up,
                distributes: is_up,
            };
        }
        let by_mux = |state: Mux| member.mux >= state || member.is_fallback;
        Carries {
            collects: by_mux(Mux::Collecting),
            distributes: by_mux(Mux::Distributing),
        }
    }

    /// Selects the members of one group. The group stays while it has enough members, so that a new partner does not
    /// disrupt a working LAG; otherwise the largest group is taken, of equal ones the one that compares lower.
    fn select(&mut self) {
        if self.settings.mode == Mode::Static {
            return;
        }
        let groups: Vec<Option<Group>> = self.members.iter().map(|member| self.group_of(member)).collect();
        let count = |group: &Group| groups.iter().flatten().filter(|other| *other == group).count();
        let min_links = self.settings.min_links;
        let kept = self.group.filter(|group| count(group) >= min_links.max(1));
        self.group = kept.or_else(|| {
            let best = groups
                .iter()
                .flatten()
                .max_by_key(|group| (count(group), core::cmp::Reverse(**group)));
            best.copied()
        });
        let chosen = match &self.group {
            Some(group) if count(group) >= min_links => Selected::Selected,
            _ => Selected::Standby,
        };
        for (member, group) in self.members.iter_mut().zip(&groups) {
            let is_of_group = group.is_some() && *group == self.group;
            member.selected = if is_of_group { chosen } else { Selected::Unselected };
        }
    }

    /// Returns the group of a member; `None` if it cannot carry frames: no link, no partner, or a partner that is this
    /// system (a loop in the cabling).
    fn group_of(&self, member: &Member) -> Option<Group> {
        let partner = &member.partner;
        let is_usable = member.knows_partner() && partner.system != self.settings.system;
        let is_aggregatable = partner.state.contains(State::AGGREGATION);
        is_usable.then(|| Group {
            key: member.actor(&self.settings).key,
            system_priority: partner.system_priority,
            system: partner.system,
            partner_key: partner.key,
            individual: (!is_aggregatable).then_some(PartnerPort {
                priority: partner.port_priority,
                number: partner.port,
            }),
        })
    }

    fn run_mux(&mut self, now: Time) {
        for _ in 0..MAX_TRANSITIONS {
            let ready = self.ready_at().is_none_or(|at| now >= at);
            let mut has_changed = false;
            for member in &mut self.members {
                has_changed |= member.run_mux(ready, now);
            }
            if !has_changed {
                break;
            }
        }
    }

    /// Returns the time at which all members that wait have waited long enough; `None` if none waits.
    fn ready_at(&self) -> Option<Time> {
        self.members.iter().filter_map(Member::waits_until).max()
    }

    /// Chooses the member that carries frames alone while no member knows a partner.
    fn set_fallback(&mut self) {
        let has_partner = self.members.iter().any(Member::knows_partner);
        let usable = |member: &&Member| member.receive == Receive::Defaulted && !has_partner;
        let chosen = match self.settings.fallback {
            Fallback::None => None,
            Fallback::Member(port) => self.member(port).filter(usable),
            Fallback::Individual => {
                let usable = self.members.iter().filter(usable);
                usable.min_by_key(|member| (member.settings.priority, member.settings.port))
            }
        };
        let chosen = chosen.map(|member| member.settings.port);
        for member in &mut self.members {
            member.is_fallback = Some(member.settings.port) == chosen;
        }
    }

    fn member(&self, port: u16) -> Option<&Member> {
        let at = self
            .members
            .binary_search_by_key(&port, |member| member.settings.port)
            .ok()?;
        self.members.get(at)
    }

    fn member_mut(&mut self, port: u16) -> Option<&mut Member> {
        let at = self
            .members
            .binary_search_by_key(&port, |member| member.settings.port)
            .ok()?;
        self.members.get_mut(at)
    }
}
