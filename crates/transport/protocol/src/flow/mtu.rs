//! Path MTU of one flow (RFC 8899, DPLPMTUD, with packets of data as probes).
//!
//! ```text
//!                            a probe is acknowledged: its size is used from now on
//!                         ┌───────────────────────────────┐
//!                         v                               │
//!   start size ───────> search ── one probe at a time ────┘
//!                         │  ^
//!     all larger sizes    │  │ a probe of the next size is acknowledged; one is sent after 1 s, 2 s, … 10 min
//!     lost three probes   v  │
//!                       complete
//!
//!   any state ── three probe timeouts with feedback only: a black hole ──> base size ── acknowledged ──> search
//! ```
//!
//! A probe here is a packet of data that is larger than the size in use; a probe timeout is that of RFC 9002, section 6.2.
//! A path that loses the packets of one size is a black hole: small packets pass, so that the receiver
//! answers reports and acknowledges no data. The sizes to try are those of common links and tunnels, and that
//! of the local interface. So receivers behind similar paths use packets of equal size, which are sealed
//! once. The data of a lost probe is sent again in packets of the size in use. The loss does not count as
//! congestion.
//!
//! The order of the sizes has three rules ([`PathMtu::next_in_search`]). The largest size comes first, because on a path
//! of equal links it passes, and one probe is then all that the search costs. After its failure the size of
//! Ethernet comes next, because it is the narrowest link of most other paths. After that, each probe halves
//! the sizes that are left (a binary search).

use crate::packet::{DATA_OVERHEAD, DATAGRAM_MAX};
use millrace_types::{Duration, Time};

/// IP packets of this size pass every path (RFC 8899, section 5.1.2, BASE_PLPMTU).
pub const BASE_MTU: u16 = 1_200;
/// The MTU of Ethernet, with which a flow begins unless its interface has a smaller one.
pub const USUAL_MTU: u16 = 1_500;
/// The largest IPv4 packet of this protocol, with jumbo frames.
const MTU_MAX: u16 = 9_000;
/// Sizes that are tried, in bytes of IP packets: IPv6's minimum; WireGuard, VXLAN, IP in IP and PPPoE over Ethernet; the plateaus
/// of RFC 1191, section 7.1; jumbo frames under VXLAN, and jumbo frames.
const MTUS: [u16; 13] = [
    BASE_MTU, 1_280, 1_400, 1_420, 1_450, 1_480, 1_492, USUAL_MTU, 2_002, 4_352, 8_166, 8_950, MTU_MAX,
];
/// The number of lost probes of one size after which the size counts as too large (RFC 8899, section 5.1.2,
/// MAX_PROBES).
const PROBES_MAX: u32 = 3;
/// The number of probe timeouts with feedback but without acknowledgement of data, after which the path is a black hole.
const BLACK_HOLE_TIMEOUTS: u32 = 3;
/// The time until the next larger size is tried again after the first search, which doubles each time.
const RAISE_FIRST: Duration = Duration::from_secs(1);
/// The maximum of that time (RFC 8899, section 5.1.1, PMTU_RAISE_TIMER).
const RAISE_MAX: Duration = Duration::from_secs(600);
/// The unit of offsets in large extents, in bytes, of which each payload is a multiple.
const OFFSET_UNIT: u16 = 16;

/// Returns the payload of a full IP packet of `mtu` bytes, `overhead` bytes of which are headers and tag.
fn payload_of(mtu: u16, overhead: u16) -> u16 {
    let most = DATAGRAM_MAX - DATA_OVERHEAD;
    let payload = usize::from(mtu.saturating_sub(overhead)).min(most);
    let payload = u16::try_from(payload).unwrap_or(u16::MAX);
    (payload - payload % OFFSET_UNIT).max(OFFSET_UNIT)
}

/// Returns the payload with which a flow begins, in bytes: that of the usual MTU, or of `mtu` if that is
/// smaller. `headers` is the bytes of IP and UDP headers.
pub fn initial_payload(mtu: u16, headers: u16) -> u16 {
    let overhead = headers.saturating_add(u16::try_from(DATA_OVERHEAD).unwrap_or(u16::MAX));
    payload_of(mtu.clamp(BASE_MTU, USUAL_MTU), overhead)
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Larger sizes are tried, one probe at a time.
    Search,
    /// No larger size is known to pass. The next larger one is tried again at `raise_at`.
    Complete { raise_at: Time },
    /// No larger size is tried until a packet of the base size is acknowledged.
    BlackHole,
}

/// A probe in flight.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Probe {
    /// The packet number.
    number: u64,
    /// The index of the probe's size.
    size: usize,
}

/// The payload sizes of one flow.
#[derive(Clone, Debug)]
pub(super) struct PathMtu {
    /// The largest IP packet that the interface sends or that a router reported, in bytes.
    limit: u16,
    /// Bytes of an IP packet that are no payload.
    overhead: u16,
    /// Payloads in ascending order; the first is the base size.
    sizes: Vec<u16>,
    /// The index of the size in use.
    current: usize,
    /// The index of the smallest size that the path has lost; the number of sizes if it has lost none.
    too_large: usize,
    state: State,
    probe: Option<Probe>,
    /// The number of lost probes of the size that is being tried.
    failures: u32,
    /// The time until the next size is tried again.
    wait: Duration,
}

impl PathMtu {
    /// Returns the state of a flow that begins with a payload. `limit` is the largest IP packet that the
    /// interface sends. `overhead` is the bytes of an IP packet besides its payload.
    pub(super) fn new(payload: u16, limit: u16, overhead: u16) -> PathMtu {
        let mut path = PathMtu {
            limit,
            overhead,
            sizes: Vec::new(),
            current: 0,
            too_large: 0,
            state: State::Search,
            probe: None,
            failures: 0,
            wait: RAISE_FIRST,
        };
        path.search_from(payload);
        path
    }

    /// Begins a search with a payload that is in use.
    fn search_from(&mut self, payload: u16) {
        let most = payload_of(self.limit.max(BASE_MTU), self.overhead).max(payload);
        let sizes = MTUS.iter().map(|mtu| payload_of(*mtu, self.overhead));
        self.sizes = sizes
            .filter(|size| *size < most)
            .chain([most])
            // Sizes that differ by less than the unit of offsets count as one size.
            .filter(|size| size.abs_diff(payload) >= OFFSET_UNIT)
            .chain([payload])
            .collect();
        self.sizes.sort_unstable();
        self.sizes.dedup();
        self.current = self.sizes.partition_point(|size| *size < payload);
        self.too_large = self.sizes.len();
        self.state = State::Search;
        (self.probe, self.failures) = (None, 0);
    }

    /// Returns the payload of packets that are no probes.
    pub(super) fn payload(&self) -> u16 {
        self.sizes[self.current]
    }

    /// Returns the index of the size to be tried now.
    fn candidate(&self, now: Time) -> Option<usize> {
        let next = self.current + 1;
        match self.state {
            State::BlackHole => None,
            State::Complete { raise_at } => (now >= raise_at && next < self.sizes.len()).then_some(next),
            State::Search => self.next_in_search(),
        }
    }

    /// Returns the index of the size that a search tries next: the largest, then that of Ethernet, then the middle of those
    /// that are left. The reasons are at the start of the file.
    fn next_in_search(&self) -> Option<usize> {
        let left = self.current + 1..self.too_large;
        if left.is_empty() {
            return None;
        }
        let largest = left.end - 1;
        if !self.has_lost_a_size() {
            return Some(largest);
        }
        let usual = payload_of(USUAL_MTU, self.overhead);
        let usual = self.sizes.partition_point(|size| *size < usual);
        if left.contains(&usual) {
            return Some(usual);
        }
        Some(usize::midpoint(left.start, largest))
    }

    /// Returns true if a size is known to be too large.
    fn has_lost_a_size(&self) -> bool {
        self.too_large < self.sizes.len()
    }

    /// Returns true while a larger size is about to be tried for the first time. The size in use may then
    /// change with the next feedback.
    pub(super) fn is_about_to_change(&self) -> bool {
        let has_larger = self.current + 1 < self.too_large;
        self.state == State::Search && has_larger && !self.has_lost_a_size() && self.failures == 0
    }

    /// Returns the payload of a probe that is to be sent.
    pub(super) fn probe(&self, now: Time) -> Option<u16> {
        let candidate = self.probe.is_none().then(|| self.candidate(now))??;
        Some(self.sizes[candidate])
    }

    /// Learns that the packet with this number is a probe.
    pub(super) fn on_probe(&mut self, now: Time, number: u64) {
        self.probe = self.candidate(now).map(|size| Probe { number, size });
        if let State::Complete { raise_at } = &mut self.state {
            self.wait = (2 * self.wait).min(RAISE_MAX);
            *raise_at = now + self.wait;
        }
    }

    /// Learns that a packet with this number and payload was acknowledged.
    pub(super) fn on_acked(&mut self, now: Time, number: u64, payload: u16) {
        match self.probe {
            Some(probe) if probe.number == number => {
                // The path has changed, so larger sizes may pass as well.
                if let State::Complete { .. } = self.state {
                    self.too_large = self.sizes.len();
                }
                (self.current, self.probe, self.failures) = (probe.size, None, 0);
                self.state = State::Search;
                self.end_search(now);
            }
            _ if self.state == State::BlackHole && payload <= self.sizes[0] => {
                self.state = State::Search;
                self.end_search(now);
            }
            _ => {}
        }
    }

    /// Learns that a packet with this number was lost. Returns true if it is a probe: the loss of a probe is
    /// no sign of congestion (RFC 8899, section 3).
    pub(super) fn on_lost(&mut self, now: Time, number: u64) -> bool {
        let Some(probe) = self.probe.take_if(|probe| probe.number == number) else {
            return false;
        };
        if self.state == State::Search {
            self.failures += 1;
            if self.failures >= PROBES_MAX {
                (self.too_large, self.failures) = (probe.size, 0);
                self.end_search(now);
            }
        }
        true
    }

    /// Ends the search if no size is left.
    fn end_search(&mut self, now: Time) {
        if self.current + 1 >= self.too_large {
            let raise_at = now + self.wait;
            self.state = State::Complete { raise_at };
        }
    }

    /// Learns that this many consecutive probe timeouts brought feedback and no acknowledgement of data.
    pub(super) fn on_timeout(&mut self, timeouts: u32) {
        if timeouts >= BLACK_HOLE_TIMEOUTS && self.current > 0 {
            (self.too_large, self.current) = (self.current, 0);
            self.state = State::BlackHole;
            (self.probe, self.failures) = (None, 0);
        }
    }

    /// Learns the largest IP packet that the interface sends, or that a router reported.
    pub(super) fn on_limit(&mut self, limit: u16) {
        if limit != self.limit {
            self.limit = limit;
            let most = payload_of(limit.max(BASE_MTU), self.overhead);
            let state = self.state;
            self.search_from(self.payload().min(most));
            if state == State::BlackHole && self.current == 0 {
                self.state = state;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OVERHEAD: u16 = 72;

    /// Runs a flow in the seconds `times` over a path that passes IP packets of up to `mtu` bytes. Returns
    /// the sizes of its probes.
    fn run(path: &mut PathMtu, mtu: u16, times: std::ops::Range<u64>) -> Vec<u16> {
        let mut probes = Vec::new();
        for second in times {
            let now = Time::from_secs(second);
            // Twenty round trips a second.
            for number in second * 20..(second + 1) * 20 {
                if let Some(payload) = path.probe(now) {
                    path.on_probe(now, number);
                    probes.push(payload);
                    if payload + OVERHEAD <= mtu {
                        path.on_acked(now, number, payload);
                    } else {
                        path.on_lost(now, number);
                    }
                } else if path.payload() + OVERHEAD <= mtu {
                    path.on_acked(now, number, path.payload());
                } else {
                    path.on_timeout(BLACK_HOLE_TIMEOUTS);
                }
            }
        }
        probes
    }

    /// Returns a flow whose interface sends packets of up to `limit` bytes.
    fn path(limit: u16) -> PathMtu {
        PathMtu::new(payload_of(USUAL_MTU, OVERHEAD), limit, OVERHEAD)
    }

    /// Loses all probes of the size that is tried, and returns that size as an MTU.
    fn lose_size(path: &mut PathMtu) -> u16 {
        let payload = path.probe(Time::ZERO).unwrap();
        for number in 0..u64::from(PROBES_MAX) {
            assert_eq!(path.probe(Time::ZERO), Some(payload));
            path.on_probe(Time::ZERO, number);
            assert!(path.on_lost(Time::ZERO, number));
        }
        *MTUS
            .iter()
            .find(|mtu| payload_of(**mtu, OVERHEAD) == payload)
            .unwrap()
    }

    #[test]
    fn the_largest_size_is_tried_first_and_ends_the_search_if_it_passes() {
        let mut path = path(9_000);
        assert!(path.payload() == 1_424 && path.is_about_to_change());
        assert_eq!(run(&mut path, 9_000, 0..60), [8_928]);
        assert!(!path.is_about_to_change());
        assert_eq!(path.payload(), 8_928);
    }

    #[test]
    fn a_search_after_the_largest_failed_halves_the_sizes_that_are_left() {
        let mut path = path(9_000);
        // Larger than Ethernet are 2,002, 4,352, 8,166, 8,950 and 9,000 bytes.
        let tried: Vec<u16> = (0..3).map(|_| lose_size(&mut path)).collect();
        assert_eq!(tried, [9_000, 4_352, 2_002]);
        assert_eq!(path.candidate(Time::ZERO), None, "only the size in use is left");
    }

    #[test]
    fn the_size_of_ethernet_is_tried_before_the_others_if_the_flow_is_below_it() {
        let mut path = PathMtu::new(payload_of(BASE_MTU, OVERHEAD), 9_000, OVERHEAD);
        let tried: Vec<u16> = (0..2).map(|_| lose_size(&mut path)).collect();
        assert_eq!(tried, [9_000, 1_500]);
    }

    #[test]
    fn a_probe_is_sent_alone_and_repeated_after_its_loss() {
        let mut path = path(9_000);
        for number in 0..u64::from(PROBES_MAX) - 1 {
            assert_eq!(path.probe(Time::ZERO), Some(8_928));
            path.on_probe(Time::ZERO, number);
            assert_eq!(path.probe(Time::ZERO), None, "one at a time");
            assert!(path.on_lost(Time::ZERO, number));
        }
        path.on_probe(Time::ZERO, 2);
        path.on_acked(Time::ZERO, 2, 8_928);
        assert_eq!(path.payload(), 8_928);
    }

    #[test]
    fn the_loss_of_another_packet_is_not_that_of_a_probe() {
        let mut path = path(9_000);
        path.on_probe(Time::ZERO, 1);
        assert!(!path.on_lost(Time::ZERO, 0));
        assert!(path.on_lost(Time::ZERO, 1));
    }

    #[test]
    fn the_largest_size_that_passes_is_found() {
        for (limit, mtu, found) in [
            (9_000, 1_500, 1_500),
            (9_000, 8_960, 8_950),
            (9_000, 4_400, 4_352),
            (3_000, 3_000, 3_000),
            (1_500, 1_400, 1_400),
            (1_500, 1_300, 1_280),
            (1_500, 1_200, 1_200),
            (65_535, 9_000, 9_000),
        ] {
            let mut path = path(limit);
            run(&mut path, mtu, 0..2);
            assert_eq!(path.payload(), payload_of(found, OVERHEAD), "{limit} {mtu}");
        }
    }

    #[test]
    fn three_probe_timeouts_lead_to_the_base_size() {
        let mut path = path(9_000);
        run(&mut path, 9_000, 0..1);
        path.on_timeout(BLACK_HOLE_TIMEOUTS - 1);
        assert_eq!(path.payload(), 8_928);
        path.on_timeout(BLACK_HOLE_TIMEOUTS);
        assert_eq!((path.payload(), path.probe(Time::from_secs(9))), (1_120, None));
    }

    #[test]
    fn a_black_hole_ends_when_a_packet_of_the_base_size_is_acknowledged() {
        let now = Time::from_secs(9);
        let mut path = path(9_000);
        run(&mut path, 9_000, 0..1);
        path.on_timeout(BLACK_HOLE_TIMEOUTS);
        path.on_acked(now, 1, 8_928);
        assert_eq!(path.probe(now), None, "it was sent before");
        path.on_acked(now, 2, 1_120);
        assert_eq!(path.probe(now), Some(1_424), "the size of Ethernet first");
        run(&mut path, 1_450, 9..10);
        assert_eq!(path.payload(), 1_376);
    }

    #[test]
    fn the_next_size_is_tried_again_ever_more_rarely_until_it_passes() {
        let mut path = path(9_000);
        run(&mut path, 1_500, 0..1);
        let probes: Vec<usize> = [1..2, 2..4, 4..8, 8..16, 16..60]
            .map(|times| run(&mut path, 1_500, times).len())
            .into();
        assert_eq!(probes, [1, 1, 1, 1, 1]);
        assert_eq!(path.payload(), 1_424);
        let probes = run(&mut path, 9_000, 60..200);
        assert_eq!((&probes[..], path.payload()), (&[1_920, 8_928][..], 8_928));
    }

    #[test]
    fn a_limit_that_falls_holds_at_once_and_one_that_rises_starts_a_search() {
        let mut path = path(9_000);
        run(&mut path, 9_000, 0..1);
        path.on_limit(1_400);
        assert_eq!(path.payload(), 1_328);
        assert_eq!(run(&mut path, 9_000, 1..90), []);
        path.on_limit(9_000);
        assert_eq!(run(&mut path, 9_000, 90..91), [8_928]);
        path.on_limit(68);
        assert_eq!(path.payload(), 1_120, "no router makes a path useless");
    }

    #[test]
    fn a_flow_begins_with_the_usual_size_or_that_of_its_interface() {
        let payloads = [9_000, 1_500, 1_400, 600].map(|mtu| initial_payload(mtu, 28));
        assert_eq!(payloads, [1_424, 1_424, 1_328, 1_120]);
        assert_eq!(initial_payload(1_500, 48), 1_408);
    }
}
