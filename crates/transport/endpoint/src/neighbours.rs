//! The neighbour cache, of ARP and of neighbour discovery alike: MAC addresses of next hops, and frames that wait for them.
//!
//! ```text
//!               answer                      30 s                    a packet is sent
//!  Incomplete ────────> Reachable ───────────────────> Stale ───────────────────────> Delay
//!   │   ^                 ^   │ another MAC address     │ another MAC address           │ 5 s
//!   │   │ 3 probes        │   │ is claimed              │ is claimed                    │
//!   │   │ in vain         │   v                         v                               v
//!   │   └──────────────── │ ─ Probe  <────────────────────────────────────────────────────
//!   │                     └──── answer from the known MAC address
//!   v 3 requests in vain
//!  removed: unreachable
//! ```
//!
//! The states are those of RFC 4861, section 7.3.2. The cache differs from the RFC in one point. Anyone can
//! claim another MAC address for a known neighbour, so a claim replaces nothing at once. The known address is
//! probed, and the claim is accepted only if the known address does not answer ([`CONTEST_INTERVAL`] times
//! [`SOLICITS_MAX`] later).

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;

use millrace_types::{Duration, Mac, Time, split_mix};

use crate::limits::{
    CONTEST_INTERVAL, DELAY_FIRST_PROBE_TIME, NEIGHBOURS_MAX, REACHABLE_TIME, RETRANS_TIMER, SOLICITS_MAX,
    STALE_TIME, UNSOLICITED_NEIGHBOURS_MAX, WAITING_MAX, WAITING_TOTAL_MAX,
};

/// A request for a MAC address (ARP request or neighbour solicitation).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Solicitation {
    pub(crate) address: IpAddr,
    /// The neighbour that is asked; `None`: all.
    pub(crate) mac: Option<Mac>,
}

/// The kind of message that contains a neighbour's MAC address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Evidence {
    /// An answer to a request of ours.
    Answer,
    /// An advertisement that does not override what is known (RFC 4861, section 4.4, O flag clear).
    Hint,
    /// An unsolicited message.
    Claim,
    /// A request for an own address, with the MAC address of the host that asks.
    Solicitation,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Incomplete { solicits: u8 },
    Reachable,
    Stale,
    Delay,
    Probe { solicits: u8 },
}

#[derive(Debug)]
struct Neighbour {
    /// The MAC address; unset only in [`State::Incomplete`].
    mac: Mac,
    state: State,
    /// The time at which the state ends.
    until: Time,
    used: Time,
    /// True if the neighbour asked us, and nothing was sent to it since.
    is_unsolicited: bool,
    /// The MAC address that someone claims while the known one is probed.
    contender: Option<Mac>,
    waiting: VecDeque<Vec<u8>>,
}

/// The neighbour cache (RFC 4861, section 5.1), for IPv4 and IPv6, with the frames that wait for an address.
#[derive(Debug)]
pub(crate) struct NeighbourCache {
    entries: HashMap<IpAddr, Neighbour>,
    solicitations: VecDeque<Solicitation>,
    unreachable: VecDeque<IpAddr>,
    waiting: usize,
    /// Frames that were dropped because no answer arrived, a limit was reached, or their entry was removed.
    dropped: u64,
    /// A time before which no entry's state ends.
    next: Option<Time>,
    random: u64,
}

impl NeighbourCache {
    pub(crate) fn new(seed: u64) -> NeighbourCache {
        NeighbourCache {
            entries: HashMap::new(),
            solicitations: VecDeque::new(),
            unreachable: VecDeque::new(),
            waiting: 0,
            dropped: 0,
            next: None,
            random: seed,
        }
    }

    /// Returns the MAC address of a next hop; if it is not known, asks for it.
    pub(crate) fn resolve(&mut self, now: Time, address: IpAddr) -> Option<Mac> {
        if let Some(entry) = self.entries.get_mut(&address) {
            entry.used = now;
            entry.is_unsolicited = false;
            if entry.state == State::Stale {
                entry.state = State::Delay;
                entry.until = now + DELAY_FIRST_PROBE_TIME;
                note(&mut self.next, entry.until);
            }
            return (!matches!(entry.state, State::Incomplete { .. })).then_some(entry.mac);
        }
        self.make_room(NEIGHBOURS_MAX, |_| true);
        let until = now + RETRANS_TIMER;
        self.insert(
            address,
            Mac::ZERO,
            State::Incomplete { solicits: 1 },
            (now, until),
            false,
        );
        self.solicitations.push_back(Solicitation { address, mac: None });
        None
    }

    /// Keeps a frame until the MAC address of its next hop is known.
    pub(crate) fn wait(&mut self, address: IpAddr, frame: Vec<u8>) {
        if self.waiting >= WAITING_TOTAL_MAX {
            self.dropped += 1;
            return;
        }
        let Some(entry) = self.entries.get_mut(&address) else {
            self.dropped += 1;
            return;
        };
        if entry.waiting.len() >= WAITING_MAX {
            entry.waiting.pop_front();
            self.waiting -= 1;
            self.dropped += 1;
        }
        entry.waiting.push_back(frame);
        self.waiting += 1;
    }

    /// Learns the MAC address of a neighbour; returns the frames that waited for it, which are complete now.
    pub(crate) fn learn(
        &mut self,
        now: Time,
        address: IpAddr,
        mac: Mac,
        evidence: Evidence,
    ) -> VecDeque<Vec<u8>> {
        let reachable_until = now + self.reachable_time();
        let Some(entry) = self.entries.get_mut(&address) else {
            if evidence == Evidence::Solicitation {
                self.make_room(UNSOLICITED_NEIGHBOURS_MAX, |entry| entry.is_unsolicited);
                self.make_room(NEIGHBOURS_MAX, |_| true);
                self.insert(address, mac, State::Stale, (now, now + STALE_TIME), true);
            }
            return VecDeque::new();
        };
        match entry.state {
            State::Incomplete { .. } => {
                entry.mac = mac;
                // Only an answer proves reachability. After any other message the neighbour counts as stale, and the waiting
                // frames move it to Delay.
                (entry.state, entry.until) = match evidence {
                    Evidence::Answer => (State::Reachable, reachable_until),
                    _ => (State::Delay, now + DELAY_FIRST_PROBE_TIME),
                };
                note(&mut self.next, entry.until);
                let mut frames = std::mem::take(&mut entry.waiting);
                self.waiting -= frames.len();
                for frame in &mut frames {
                    if let Some(destination) = frame.first_chunk_mut() {
                        *destination = mac.0;
                    }
                }
                return frames;
            }
            _ if entry.mac == mac && evidence == Evidence::Answer => {
                entry.state = State::Reachable;
                entry.until = reachable_until;
                entry.contender = None;
                note(&mut self.next, entry.until);
            }
            // Only an answer shows that the neighbour receives what is sent to it.
            _ if entry.mac == mac => {}
            State::Reachable if evidence == Evidence::Hint => {
                entry.state = State::Stale;
                entry.until = now + STALE_TIME;
                note(&mut self.next, entry.until);
            }
            State::Reachable | State::Stale | State::Delay if evidence != Evidence::Hint => {
                entry.contender = Some(mac);
                entry.state = State::Probe { solicits: 1 };
                entry.until = now + CONTEST_INTERVAL;
                note(&mut self.next, entry.until);
                let mac = Some(entry.mac);
                self.solicitations.push_back(Solicitation { address, mac });
            }
            _ => {}
        }
        VecDeque::new()
    }

    /// Returns true if the cache waits for an answer of this neighbour.
    pub(crate) fn expects_answer(&self, address: IpAddr) -> bool {
        let state = self.entries.get(&address).map(|entry| entry.state);
        matches!(state, Some(State::Incomplete { .. } | State::Probe { .. }))
    }

    /// Returns the earliest time at which a state may end.
    pub(crate) fn next_timeout(&self) -> Option<Time> {
        self.next
    }

    /// Ends the states that are due.
    pub(crate) fn on_timeout(&mut self, now: Time) {
        if self.next.is_none_or(|next| next > now) {
            return;
        }
        let is_due = |(address, entry): (&IpAddr, &Neighbour)| (entry.until <= now).then_some(*address);
        let mut due: Vec<IpAddr> = self.entries.iter().filter_map(is_due).collect();
        due.sort_unstable();
        for address in due {
            self.end_state(now, address);
        }
        self.next = self.entries.values().map(|entry| entry.until).min();
    }

    fn end_state(&mut self, now: Time, address: IpAddr) {
        let Some(entry) = self.entries.get_mut(&address) else {
            return;
        };
        let interval = match entry.contender {
            Some(_) => CONTEST_INTERVAL,
            None => RETRANS_TIMER,
        };
        let ask = match &mut entry.state {
            State::Incomplete { solicits } if *solicits < SOLICITS_MAX => {
                *solicits += 1;
                Some(None)
            }
            State::Incomplete { .. } => {
                self.remove(address);
                self.unreachable.push_back(address);
                return;
            }
            State::Reachable => {
                entry.state = State::Stale;
                entry.until = now + STALE_TIME;
                None
            }
            State::Stale => {
                self.remove(address);
                return;
            }
            State::Delay => {
                entry.state = State::Probe { solicits: 1 };
                Some(Some(entry.mac))
            }
            State::Probe { solicits } if *solicits < SOLICITS_MAX => {
                *solicits += 1;
                Some(Some(entry.mac))
            }
            State::Probe { .. } => match entry.contender.take() {
                Some(mac) => {
                    entry.mac = mac;
                    entry.state = State::Stale;
                    entry.until = now + STALE_TIME;
                    None
                }
                None => {
                    entry.state = State::Incomplete { solicits: 1 };
                    Some(None)
                }
            },
        };
        if let Some(mac) = ask {
            entry.until = now + interval;
            self.solicitations.push_back(Solicitation { address, mac });
        }
    }

    pub(crate) fn poll_solicitation(&mut self) -> Option<Solicitation> {
        self.solicitations.pop_front()
    }

    /// Returns a next hop that did not answer.
    pub(crate) fn poll_unreachable(&mut self) -> Option<IpAddr> {
        self.unreachable.pop_front()
    }

    /// Returns the number of waiting frames that were dropped since the last call.
    pub(crate) fn take_dropped(&mut self) -> u64 {
        std::mem::take(&mut self.dropped)
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Removes the least recently used entry for which `counts` returns true, if there are `max` such entries.
    fn make_room(&mut self, max: usize, counts: impl Fn(&Neighbour) -> bool) {
        let counted = || self.entries.iter().filter(|(_, entry)| counts(entry));
        if counted().count() < max {
            return;
        }
        let oldest = counted().min_by_key(|(address, entry)| (entry.used, **address));
        if let Some(address) = oldest.map(|(address, _)| *address) {
            self.remove(address);
        }
    }

    fn insert(
        &mut self,
        address: IpAddr,
        mac: Mac,
        state: State,
        (used, until): (Time, Time),
        is_unsolicited: bool,
    ) {
        note(&mut self.next, until);
        let neighbour = Neighbour {
            mac,
            state,
            until,
            used,
            is_unsolicited,
            contender: None,
            waiting: VecDeque::new(),
        };
        self.entries.insert(address, neighbour);
    }

    fn remove(&mut self, address: IpAddr) {
        if let Some(entry) = self.entries.remove(&address) {
            self.waiting -= entry.waiting.len();
            self.dropped += entry.waiting.len() as u64;
        }
    }

    /// Returns a time between half and one and a half of [`REACHABLE_TIME`] (RFC 4861, section 6.3.2).
    fn reachable_time(&mut self) -> Duration {
        let span = REACHABLE_TIME.as_millis() as u64;
        Duration::from_millis(span / 2 + split_mix::next(&mut self.random) % span)
    }
}

fn note(next: &mut Option<Time>, until: Time) {
    *next = Some(next.map_or(until, |next| next.min(until)));
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALICE: Mac = Mac([2, 0, 0, 0, 0, 0xa]);
    const EVE: Mac = Mac([2, 0, 0, 0, 0, 0xe]);

    fn ip(last: u32) -> IpAddr {
        IpAddr::V4((0x0a00_0000 + last).into())
    }

    fn at(millis: u64) -> Time {
        Time::from_millis(millis)
    }

    /// Returns a cache that knows Alice as reachable.
    fn with_alice() -> NeighbourCache {
        let mut cache = NeighbourCache::new(1);
        assert_eq!(cache.resolve(at(0), ip(1)), None);
        cache.learn(at(1), ip(1), ALICE, Evidence::Answer);
        while cache.poll_solicitation().is_some() {}
        cache
    }

    /// Lets time pass in steps of 50 ms; returns the requests with their times.
    fn solicitations(cache: &mut NeighbourCache, from: u64, to: u64) -> Vec<(u64, Option<Mac>)> {
        let mut all = Vec::new();
        for now in (from..=to).step_by(50) {
            cache.on_timeout(at(now));
            all.extend(
                std::iter::from_fn(|| cache.poll_solicitation()).map(|solicitation| (now, solicitation.mac)),
            );
        }
        all
    }

    #[test]
    fn frames_wait_for_the_answer_and_get_its_mac_address() {
        let mut cache = NeighbourCache::new(1);
        assert_eq!(cache.resolve(at(0), ip(1)), None);
        cache.wait(ip(1), vec![0; 60]);
        cache.wait(ip(1), vec![0; 61]);
        let frames = cache.learn(at(5), ip(1), ALICE, Evidence::Answer);
        assert_eq!(frames.iter().map(Vec::len).collect::<Vec<_>>(), [60, 61]);
        assert!(frames.iter().all(|frame| frame[..6] == ALICE.0));
        assert_eq!(cache.resolve(at(6), ip(1)), Some(ALICE));
    }

    #[test]
    fn a_silent_neighbour_is_asked_three_times_and_then_unreachable() {
        let mut cache = NeighbourCache::new(1);
        cache.resolve(at(0), ip(1));
        cache.wait(ip(1), vec![0; 60]);
        let sent = solicitations(&mut cache, 0, 4_000);
        assert_eq!(sent, [(0, None), (1_000, None), (2_000, None)]);
        assert_eq!(cache.poll_unreachable(), Some(ip(1)));
        assert_eq!((cache.take_dropped(), cache.len()), (1, 0));
    }

    #[test]
    fn an_idle_neighbour_is_probed_when_it_is_used_again_and_asked_for_if_it_is_silent() {
        let mut cache = with_alice();
        assert_eq!(solicitations(&mut cache, 0, 50_000), []);
        assert_eq!(
            cache.resolve(at(50_000), ip(1)),
            Some(ALICE),
            "stale addresses are used"
        );
        let sent = solicitations(&mut cache, 50_000, 59_000);
        let unicast = [55_000, 56_000, 57_000].map(|at| (at, Some(ALICE)));
        assert_eq!(sent, [&unicast[..], &[(58_000, None), (59_000, None)]].concat());
        cache.learn(at(59_100), ip(1), ALICE, Evidence::Answer);
        assert_eq!(cache.resolve(at(59_200), ip(1)), Some(ALICE));
        assert_eq!(solicitations(&mut cache, 59_200, 70_000), []);
    }

    #[test]
    fn a_claim_is_believed_only_if_the_known_neighbour_is_silent() {
        for evidence in [Evidence::Claim, Evidence::Solicitation, Evidence::Answer] {
            let mut cache = with_alice();
            cache.learn(at(100), ip(1), EVE, evidence);
            assert_eq!(
                cache.poll_solicitation().unwrap().mac,
                Some(ALICE),
                "{evidence:?}"
            );
            assert_eq!(cache.resolve(at(150), ip(1)), Some(ALICE));
            // A second claim, and an answer by the claiming host, change nothing.
            cache.learn(at(160), ip(1), EVE, Evidence::Answer);
            cache.learn(at(200), ip(1), ALICE, Evidence::Answer);
            assert_eq!(solicitations(&mut cache, 200, 5_000), []);
            assert_eq!(cache.resolve(at(5_000), ip(1)), Some(ALICE));

            let mut cache = with_alice();
            cache.learn(at(100), ip(1), EVE, evidence);
            assert_eq!(solicitations(&mut cache, 100, 1_000).len(), 3);
            assert_eq!(
                cache.resolve(at(1_000), ip(1)),
                Some(EVE),
                "Alice has moved to another interface"
            );
        }
    }

    #[test]
    fn an_advertisement_without_override_makes_a_neighbour_stale_and_changes_no_address() {
        let mut cache = with_alice();
        cache.learn(at(100), ip(1), EVE, Evidence::Hint);
        assert_eq!(cache.resolve(at(100), ip(1)), Some(ALICE));
        assert_eq!(
            solicitations(&mut cache, 100, 6_000).first(),
            Some(&(5_100, Some(ALICE)))
        );
        cache.learn(at(6_000), ip(1), EVE, Evidence::Hint);
        assert_eq!(cache.resolve(at(6_000), ip(1)), Some(ALICE));
    }

    #[test]
    fn unknown_peers_create_few_entries_and_never_push_out_neighbours_that_are_used() {
        let mut cache = with_alice();
        for last in 100..5_000 {
            cache.learn(at(u64::from(last)), ip(last), EVE, Evidence::Solicitation);
            cache.learn(at(u64::from(last)), ip(last + 10_000), EVE, Evidence::Claim);
            cache.learn(at(u64::from(last)), ip(last + 20_000), EVE, Evidence::Answer);
            assert!(cache.len() <= 1 + UNSOLICITED_NEIGHBOURS_MAX);
        }
        assert_eq!(cache.resolve(at(5_000), ip(1)), Some(ALICE));
    }

    #[test]
    fn waiting_frames_and_entries_are_bounded() {
        let mut cache = NeighbourCache::new(1);
        let mut waited = 0;
        for last in 0..2 * NEIGHBOURS_MAX as u32 {
            cache.resolve(at(u64::from(last)), ip(last));
            for _ in 0..WAITING_MAX + 3 {
                cache.wait(ip(last), vec![0; 60]);
                waited += 1;
            }
        }
        assert_eq!(cache.len(), NEIGHBOURS_MAX);
        let held: usize = cache.entries.values().map(|entry| entry.waiting.len()).sum();
        assert_eq!(held, cache.waiting);
        assert!(held <= WAITING_TOTAL_MAX);
        assert_eq!(cache.take_dropped() + held as u64, waited);
    }
}
