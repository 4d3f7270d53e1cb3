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
//!   any state ── three probes of a silent path that only bring feedback: a black hole ──> base size ── acknowledged ──> search
//! ```
//!
//! A path that loses the packets of one size is a black hole: small packets pass, so that the receiver
//! answers reports and acknowledges no data. The sizes to try are those of common links and tunnels, and that
//! of the local interface. So receivers behind similar paths use packets of equal size, which are sealed
//! once. The largest size is tried first: a path of equal links needs one probe. The data of a lost probe is
//! sent again in packets of the size in use. The loss does not count as congestion.

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
const STEPS: [u16; 13] = [
    BASE_MTU, 1_280, 1_400, 1_420, 1_450, 1_480, 1_492, USUAL_MTU, 2_002, 4_352, 8_166, 8_950, MTU_MAX,
];
/// The number of lost probes of one size after which the size counts as too large (RFC 8899, section 5.1.2,
/// MAX_PROBES).
const PROBES_MAX: u32 = 3;
/// The number of probes of a silent path with feedback but without acknowledgement of data, after which the
/// flow returns to the base size.
const SILENT: u32 = 3;
const FIRST_WAIT: Duration = Duration::from_secs(1);
const LAST_WAIT: Duration = Duration::from_secs(600);

/// Returns the payload of a full IP packet of `mtu` bytes, `overhead` bytes of which are headers and tag.
fn payload_of(mtu: u16, overhead: u16) -> u16 {
    let most = DATAGRAM_MAX - DATA_OVERHEAD;
    let payload = usize::from(mtu.saturating_sub(overhead)).min(most);
    // Sixteen is the unit of offsets in large extents.
    u16::try_from(payload & !15).unwrap_or(u16::MAX).max(16)
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

/// The payload sizes of one flow.
#[derive(Clone, Debug)]
pub(super) struct PathMtu {
    /// The largest IP packet that the interface sends or that a router reported, in bytes.
    limit: u16,
    /// Bytes of an IP packet that are no payload.
    overhead: u16,
    /// Payloads in ascending order; the first is the base size.
    steps: Vec<u16>,
    /// The index of the size in use.
    current: usize,
    /// Sizes from this index on are too large, as far as is known.
    bound: usize,
    state: State,
    /// The number of the probe in flight, and the index of its size.
    probe: Option<(u64, usize)>,
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
            steps: Vec::new(),
            current: 0,
            bound: 0,
            state: State::Search,
            probe: None,
            failures: 0,
            wait: FIRST_WAIT,
        };
        path.search_from(payload);
        path
    }

    /// Begins a search with a payload that is in use.
    fn search_from(&mut self, payload: u16) {
        let most = payload_of(self.limit.max(BASE_MTU), self.overhead).max(payload);
        let steps = STEPS.iter().map(|step| payload_of(*step, self.overhead));
        self.steps = steps
            .filter(|size| *size < most)
            .chain([most])
            // Sizes that differ by less than 16 bytes, the unit of offsets, count as one size.
            .filter(|size| size.abs_diff(payload) >= 16)
            .chain([payload])
            .collect();
        self.steps.sort_unstable();
        self.steps.dedup();
        self.current = self.steps.partition_point(|step| *step < payload);
        self.bound = self.steps.len();
        self.state = State::Search;
        (self.probe, self.failures) = (None, 0);
    }

    /// Returns the payload of packets that are no probes.
    pub(super) fn payload(&self) -> u16 {
        self.steps[self.current]
    }

    /// Returns the index of the size to be tried now.
    fn candidate(&self, now: Time) -> Option<usize> {
        let next = self.current + 1;
        match self.state {
            State::BlackHole => None,
            State::Complete { raise_at } => (now >= raise_at && next < self.steps.len()).then_some(next),
            State::Search if next >= self.bound => None,
            State::Search if self.bound == self.steps.len() => Some(self.bound - 1),
            State::Search => {
                let usual = payload_of(USUAL_MTU, self.overhead);
                let usual = self.steps.partition_point(|step| *step < usual);
                let is_between = (next..self.bound).contains(&usual);
                Some(if is_between {
                    usual
                } else {
                    usize::midpoint(next, self.bound - 1)
                })
            }
        }
    }

    /// Returns true while a larger size is about to be tried for the first time. The size in use may then
    /// change with the next feedback.
    pub(super) fn is_about_to_change(&self) -> bool {
        let is_open = self.current + 1 < self.bound && self.bound == self.steps.len();
        self.state == State::Search && is_open && self.failures == 0
    }

    /// Returns the payload of a probe that is to be sent.
    pub(super) fn probe(&self, now: Time) -> Option<u16> {
        let candidate = self.probe.is_none().then(|| self.candidate(now))??;
        Some(self.steps[candidate])
    }

    /// Learns that the packet with this number is a probe.
    pub(super) fn on_probe(&mut self, now: Time, number: u64) {
        self.probe = self.candidate(now).map(|candidate| (number, candidate));
        if let State::Complete { raise_at } = &mut self.state {
            self.wait = (2 * self.wait).min(LAST_WAIT);
            *raise_at = now + self.wait;
        }
    }

    /// Learns that a packet with this number and payload was acknowledged.
    pub(super) fn on_acked(&mut self, now: Time, number: u64, payload: u16) {
        match self.probe {
            Some((probe, step)) if probe == number => {
                if let State::Complete { .. } = self.state {
                    self.bound = self.steps.len();
                }
                (self.current, self.probe, self.failures) = (step, None, 0);
                self.state = State::Search;
                self.end_search(now);
            }
            _ if self.state == State::BlackHole && payload <= self.steps[0] => {
                self.state = State::Search;
                self.end_search(now);
            }
            _ => {}
        }
    }

    /// Learns that a packet with this number was lost. Returns true if it is a probe: the loss of a probe is
    /// no sign of congestion (RFC 8899, section 3).
    pub(super) fn on_lost(&mut self, now: Time, number: u64) -> bool {
        let Some((_, step)) = self.probe.filter(|(probe, _)| *probe == number) else {
            return false;
        };
        self.probe = None;
        if self.state == State::Search {
            self.failures += 1;
            if self.failures >= PROBES_MAX {
                (self.bound, self.failures) = (step, 0);
                self.end_search(now);
            }
        }
        true
    }

    /// Ends the search if no size is left.
    fn end_search(&mut self, now: Time) {
        if self.current + 1 >= self.bound {
            let raise_at = now + self.wait;
            self.state = State::Complete { raise_at };
        }
    }

    /// Learns that this many probes of a silent path brought feedback and no acknowledgement of data.
    pub(super) fn on_timeout(&mut self, timeouts: u32) {
        if timeouts >= SILENT && self.current > 0 {
            (self.bound, self.current) = (self.current, 0);
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
                    path.on_timeout(SILENT);
                }
            }
        }
        probes
    }

    #[test]
    fn one_probe_finds_a_path_of_jumbo_frames() {
        let mut path = PathMtu::new(1_424, 9_000, OVERHEAD);
        assert!(path.payload() == 1_424 && path.is_about_to_change());
        assert_eq!(run(&mut path, 9_000, 0..60), [8_928]);
        assert!(!path.is_about_to_change());
        assert_eq!(path.payload(), 8_928);
    }

    #[test]
    fn the_largest_step_that_passes_is_found_and_a_lost_probe_is_repeated() {
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
            let mut path = PathMtu::new(1_424, limit, OVERHEAD);
            run(&mut path, mtu, 0..2);
            assert_eq!(path.payload(), (found - OVERHEAD) & !15, "{limit} {mtu}");
        }
        let mut path = PathMtu::new(1_424, 9_000, OVERHEAD);
        for number in 0..2 {
            assert_eq!(path.probe(Time::ZERO), Some(8_928));
            path.on_probe(Time::ZERO, number);
            assert_eq!(path.probe(Time::ZERO), None, "one at a time");
            path.on_lost(Time::ZERO, number);
        }
        path.on_probe(Time::ZERO, 2);
        path.on_acked(Time::ZERO, 2, 8_928);
        assert_eq!(path.payload(), 8_928);
    }

    #[test]
    fn a_black_hole_leads_to_the_base_size_and_from_there_to_the_largest_that_passes() {
        let mut path = PathMtu::new(1_424, 9_000, OVERHEAD);
        run(&mut path, 9_000, 0..1);
        path.on_timeout(SILENT - 1);
        assert_eq!(path.payload(), 8_928);
        path.on_timeout(SILENT);
        assert_eq!((path.payload(), path.probe(Time::from_secs(9))), (1_120, None));
        path.on_acked(Time::from_secs(9), 1, 8_928);
        assert_eq!(path.payload(), 1_120, "it was sent before");
        path.on_acked(Time::from_secs(9), 2, 1_120);
        assert_eq!(
            path.probe(Time::from_secs(9)),
            Some(1_424),
            "the usual size first"
        );
        run(&mut path, 1_450, 9..10);
        assert_eq!(path.payload(), 1_376);
    }

    #[test]
    fn the_next_size_is_tried_again_ever_more_rarely_until_it_passes() {
        let mut path = PathMtu::new(1_424, 9_000, OVERHEAD);
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
        let mut path = PathMtu::new(1_424, 9_000, OVERHEAD);
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
