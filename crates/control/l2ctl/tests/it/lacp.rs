//! Two LAGs back to back.

use millrace_l2ctl::Transmit;
use millrace_l2ctl::lacp::{Fallback, Lag, LagNumber, Mbps, MemberSettings, Mode, Rate, Settings};
use millrace_types::{Duration, Mac, Time, split_mix};

const MEMBERS: u16 = 3;
const DELAY: Duration = Duration::from_micros(300);

/// Two LAGs whose members with the same number are connected.
struct Pair {
    now: Time,
    lags: [Lag; 2],
    /// The time of arrival, the end that receives, and the frame with the number of the member.
    in_flight: Vec<(Time, usize, Transmit)>,
    /// The share of frames that are lost, in percent.
    loss: u64,
    /// True if frames were lost: an end may then not know the state of the other.
    was_lossy: bool,
    seed: u64,
    is_cut: [bool; MEMBERS as usize + 1],
    sent: usize,
}

fn settings(end: u8, mode: Mode, rate: Rate) -> Settings {
    Settings {
        system_priority: 0x8000,
        system: Mac([2, 0, 0, 0, 0, end]),
        number: LagNumber::new(1).unwrap(),
        mode,
        rate,
        min_links: 1,
        fallback: Fallback::None,
    }
}

impl Pair {
    fn new(ends: [(Mode, Rate); 2], loss: u64, seed: u64) -> Pair {
        let lag = |end: u8| {
            let (mode, rate) = ends[usize::from(end)];
            let members: Vec<MemberSettings> = (1..=MEMBERS)
                .map(|port| MemberSettings {
                    port,
                    priority: 1,
                    mac: Mac([4, 0, 0, 0, end, port as u8]),
                })
                .collect();
            let mut lag = Lag::new(settings(end, mode, rate), &members);
            for port in 1..=MEMBERS {
                lag.set_link(port, Some(Mbps(10_000)), Time::ZERO);
            }
            lag
        };
        Pair {
            now: Time::ZERO,
            lags: [lag(0), lag(1)],
            in_flight: Vec::new(),
            loss,
            was_lossy: loss > 0,
            seed,
            is_cut: [false; MEMBERS as usize + 1],
            sent: 0,
        }
    }

    /// Runs until `to`. A member that sends frames must have a partner that receives them, unless its cable is cut without
    /// that either end sees it.
    fn run(&mut self, to: Time) {
        loop {
            for end in 0..2 {
                for transmit in self.lags[end].poll(self.now) {
                    self.sent += 1;
                    let is_lost = split_mix::next(&mut self.seed) % 100 < self.loss;
                    if !is_lost && !self.is_cut[usize::from(transmit.port)] {
                        self.in_flight.push((self.now + DELAY, 1 - end, transmit));
                    }
                }
            }
            for lag in &self.lags {
                assert!(
                    lag.deadline().is_none_or(|deadline| deadline > self.now),
                    "poll has done what was due"
                );
            }
            if !self.was_lossy {
                self.check();
            }
            let deadlines = self.lags.iter().filter_map(Lag::deadline);
            let next = deadlines.chain(self.in_flight.iter().map(|(at, ..)| *at)).min();
            let Some(next) = next.filter(|next| *next <= to) else {
                self.now = to;
                return;
            };
            self.now = self.now.max(next);
            while let Some(at) = self.in_flight.iter().position(|(at, ..)| *at <= self.now) {
                let (_, end, transmit) = self.in_flight.remove(at);
                self.lags[end].receive(transmit.port, &transmit.frame, self.now);
            }
        }
    }

    fn check(&self) {
        for port in (1..=MEMBERS).filter(|port| !self.is_cut[usize::from(*port)]) {
            for end in 0..2 {
                // A LAG that stops to collect tells the other, which hears it after the delay.
                let is_told = self
                    .in_flight
                    .iter()
                    .any(|(_, to, frame)| *to == end && frame.port == port);
                let receives = self.lags[1 - end].collects(port) || is_told;
                assert!(
                    !self.lags[end].distributes(port) || receives,
                    "member {port} sends into a void"
                );
            }
        }
    }

    fn distributing(&self, end: usize) -> usize {
        (1..=MEMBERS)
            .filter(|port| self.lags[end].distributes(*port))
            .count()
    }
}

const MODES: [Mode; 2] = [Mode::Active, Mode::Passive];
const RATES: [Rate; 2] = [Rate::Fast, Rate::Slow];

fn all_pairs() -> impl Iterator<Item = [(Mode, Rate); 2]> {
    let end = || MODES.into_iter().flat_map(|mode| RATES.map(|rate| (mode, rate)));
    end().flat_map(move |a| end().map(move |b| [a, b]))
}

#[test]
fn every_pair_of_modes_comes_up_except_two_passive_ends() {
    for ends in all_pairs() {
        let mut pair = Pair::new(ends, 0, 1);
        pair.run(Time::from_millis(3_500));
        let is_possible = ends.iter().any(|(mode, _)| *mode == Mode::Active);
        let expected = if is_possible { usize::from(MEMBERS) } else { 0 };
        assert_eq!(
            [pair.distributing(0), pair.distributing(1)],
            [expected; 2],
            "{ends:?}"
        );
        // It stays up, with the LACPDUs that the rates ask for and no more.
        let before = pair.sent;
        pair.run(Time::from_secs(303));
        assert_eq!(
            [pair.distributing(0), pair.distributing(1)],
            [expected; 2],
            "{ends:?}"
        );
        let in_five_minutes = |rate: Rate| if rate == Rate::Fast { 300 } else { 10 };
        let asked = (in_five_minutes(ends[0].1) + in_five_minutes(ends[1].1)) * usize::from(MEMBERS);
        let sent = pair.sent - before;
        if is_possible {
            assert!(
                (asked - 12..=asked + 12).contains(&sent),
                "{ends:?}: {sent} instead of {asked}"
            );
        } else {
            assert_eq!(pair.sent, 0);
        }
    }
}

#[test]
fn a_cut_that_no_end_sees_is_found_after_the_timeout_and_repaired() {
    for rate in RATES {
        let mut pair = Pair::new([(Mode::Active, rate); 2], 0, 1);
        pair.run(Time::from_secs(10));
        pair.is_cut[2] = true;
        pair.in_flight.clear();
        let timeout = if rate == Rate::Fast { 3_500 } else { 90_500 };
        pair.run(pair.now + Duration::from_millis(timeout));
        assert_eq!([pair.distributing(0), pair.distributing(1)], [2, 2]);
        pair.is_cut[2] = false;
        pair.run(pair.now + Duration::from_secs(36));
        assert_eq!([pair.distributing(0), pair.distributing(1)], [3, 3]);
    }
}

#[test]
fn a_link_that_goes_down_at_one_end_takes_the_member_out_at_both_within_milliseconds() {
    let mut pair = Pair::new([(Mode::Active, Rate::Slow); 2], 0, 1);
    pair.run(Time::from_secs(10));
    let now = pair.now;
    for end in 0..2 {
        pair.lags[end].set_link(3, None, now);
    }
    pair.run(now + Duration::from_millis(1));
    assert_eq!([pair.distributing(0), pair.distributing(1)], [2, 2]);
}

#[test]
fn a_third_of_all_frames_may_be_lost_and_afterwards_all_members_come_back() {
    for seed in 0..20 {
        for ends in all_pairs().filter(|ends| ends.iter().any(|(mode, _)| *mode == Mode::Active)) {
            let mut pair = Pair::new(ends, 33, seed);
            let mut up = 0;
            for second in 0..400 {
                pair.run(Time::from_secs(second));
                up += usize::from(pair.distributing(0) > 0 && pair.distributing(1) > 0);
            }
            assert!(up > 200, "{ends:?}, seed {seed}: the LAG was up in {up} of 400 s");
            pair.loss = 0;
            pair.in_flight.clear();
            // Two intervals of the slow rate, and the wait for other members.
            pair.run(pair.now + Duration::from_secs(65));
            assert_eq!(
                [pair.distributing(0), pair.distributing(1)],
                [3, 3],
                "{ends:?}, seed {seed}"
            );
        }
    }
}
