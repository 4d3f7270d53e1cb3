//! Parallel hops have the same effect as the same hops in sequence, for any verdicts, directions, entries and instances. When
//! processes die, the policy of the first hop that has not answered a packet applies to it.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use millrace_datapath::service::ServiceOutput;
use millrace_datapath::spread::FlowHash;
use millrace_nf::shm::BurstKind;
use millrace_nf::{Context, Direction, Effects, Sending, ShunnedFlow};
use millrace_pipeline::DropReason;
use millrace_types::{PortNo, Time};
use millrace_wire::Frame;

use super::*;
use crate::counters::InstanceCounters;
use crate::group::Group;
use crate::hop::{Hop, HopPolicy, Instance, Remote};
use crate::sent::BurstEffects;

type Say = fn(u32, u64) -> Verdict;

/// A fake process that answers when the test permits it.
struct Fake {
    number: u64,
    say: Say,
    given: VecDeque<(BurstKind, Frame)>,
    shown: VecDeque<u32>,
    control: Arc<Control>,
}

#[derive(Default)]
struct Control {
    /// The number of answers that the process may still give.
    answers: AtomicU64,
    is_dead: AtomicBool,
    /// The process still has access to packets.
    holds_on: AtomicBool,
}

fn number(frame: &Frame) -> u32 {
    u32::from_be_bytes(*frame.head()[14..].first_chunk().unwrap())
}

impl Fake {
    fn may(&self) -> usize {
        self.control.answers.load(Ordering::Relaxed) as usize
    }
}

impl Remote<Frame> for Fake {
    fn copies(&self) -> bool {
        false
    }
    fn expect(&self, _: usize) {}
    fn expect_done(&self) {}
    fn ready(&mut self) -> Option<BurstKind> {
        (self.may() > 0).then_some(self.given.front()?.0)
    }
    fn give(&mut self, kind: BurstKind, _: u8, burst: &mut Burst<Frame>) {
        self.given.extend(burst.drain(..).map(|packet| (kind, packet)));
    }
    fn take(
        &mut self,
        burst: &mut Burst<Frame>,
        verdicts: &mut ArrayVec<Verdict, BURST>,
    ) -> Option<BurstKind> {
        let way = self.given.front()?.0;
        while self.may() > 0 && self.given.front().is_some_and(|given| given.0 == way) && !burst.is_full() {
            let (_, packet) = self.given.pop_front()?;
            verdicts.push((self.say)(number(&packet), self.number));
            burst.push(packet);
            self.control.answers.fetch_sub(1, Ordering::Relaxed);
        }
        (!burst.is_empty()).then_some(way)
    }
    fn reclaim(&mut self, _: &mut Burst<Frame>) -> Option<BurstKind> {
        None
    }
    fn hold(&mut self, _: BurstKind, _: &mut Burst<Frame>) {}
    fn has_effects(&self) -> bool {
        false
    }
    fn collect(&mut self, _: usize, _: &mut Effects) {}
    fn shun_ended(&mut self, _: &ShunnedFlow) {}
    fn show(&mut self, _: BurstKind, _: u8, packets: &[Frame], which: u64) -> u64 {
        // Packet 666 is outside of the memory that the process maps.
        let fits = |index: usize| which & 1 << index != 0 && number(&packets[index]) != 666;
        let fitting: Vec<usize> = (0..packets.len()).filter(|index| fits(*index)).collect();
        self.shown
            .extend(fitting.iter().map(|index| number(&packets[*index])));
        fitting.iter().fold(0, |bits, index| bits | 1 << index)
    }
    fn answered(&mut self) -> usize {
        self.may().min(self.shown.len())
    }
    fn verdicts(&mut self, most: usize, verdicts: &mut ArrayVec<Verdict, BURST>) -> usize {
        let shown = self.shown.iter().take(most);
        verdicts.extend(shown.map(|packet| (self.say)(*packet, self.number)));
        if verdicts.iter().all(|verdict| *verdict == Verdict::Next) {
            verdicts.clear();
        }
        most
    }
    fn forget(&mut self, packets: usize) {
        let answered = packets.min(self.may());
        self.control.answers.fetch_sub(answered as u64, Ordering::Relaxed);
        self.shown.drain(..packets);
    }
    fn is_gone(&self) -> bool {
        !self.control.holds_on.load(Ordering::Relaxed)
    }
    fn in_flight(&self) -> usize {
        self.given.len() + self.shown.len()
    }
    fn is_alive(&mut self, _: Time) -> bool {
        !self.control.is_dead.load(Ordering::Relaxed)
    }
    fn has_begun(&self) -> bool {
        true
    }
    fn value(&self) -> [u64; 2] {
        [0; 2]
    }

    fn failure(&self) -> String {
        "told to".to_owned()
    }
}

/// The outcomes of packets in order: port number and packet number. Port 0 stands for a drop, 1 for a hop that is down.
#[derive(Default)]
struct Went(Vec<(u32, u32)>);

impl ServiceOutput<Frame> for Went {
    fn receive(&mut self, in_port: PortNo, burst: &mut Burst<Frame>) {
        self.0
            .extend(burst.drain(..).map(|packet| (in_port.raw(), number(&packet))));
    }
    fn forward(&mut self, in_port: PortNo, burst: &mut Burst<Frame>) {
        self.receive(in_port, burst);
    }
    fn transmit(&mut self, port: PortNo, packet: Frame) {
        self.0.push((port.raw(), number(&packet)));
    }
    fn count_drops(&mut self, _: DropReason, _: u64) {}
    fn discard(&mut self, reason: DropReason, burst: &mut Burst<Frame>) {
        let port = u32::from(reason == DropReason::HopDown);
        self.0
            .extend(burst.drain(..).map(|packet| (port, number(&packet))));
    }
}

const NEAR: u32 = 100;
const FAR: u32 = 101;

struct TestBed {
    hops: Vec<Hop<Frame>>,
    groups: Vec<Group<Frame>>,
    controls: Vec<Vec<Arc<Control>>>,
    hash: FlowHash,
    went: Went,
    effects: BurstEffects<Frame>,
}

impl TestBed {
    fn new(instances: usize, policies: &[OnFailure], group: Option<(usize, usize)>, say: Say) -> TestBed {
        let (mut hops, mut controls) = (Vec::new(), Vec::new());
        for (place, on_failure) in policies.iter().enumerate() {
            let own: Vec<Arc<Control>> = (0..instances).map(|_| Arc::default()).collect();
            let instance = |control: &Arc<Control>| {
                let fake = Fake {
                    number: place as u64,
                    say,
                    given: VecDeque::new(),
                    shown: VecDeque::new(),
                    control: Arc::clone(control),
                };
                Instance::new(
                    Runner::Remote(Box::new(fake)),
                    Arc::<InstanceCounters>::default(),
                    None,
                )
            };
            let is_in = group.is_some_and(|(first, len)| (first..first + len).contains(&place));
            hops.push(Hop {
                id: place as u32,
                policy: HopPolicy {
                    on_failure: *on_failure,
                    steer: None,
                    spread: millrace_nf::Spread::Flow,
                },
                group: is_in.then_some(0),
                instances: own.iter().map(instance).collect(),
            });
            controls.push(own);
        }
        let group = group.map(|(first, len)| Group::new(first, len, instances));
        TestBed {
            hops,
            groups: group.into_iter().collect(),
            controls,
            hash: FlowHash::new(1),
            went: Went::default(),
            effects: BurstEffects::new(),
        }
    }

    fn traversal(&mut self, direction: Direction) -> Traversal<'_, Frame> {
        let exit = if direction == Direction::Forward {
            FAR
        } else {
            NEAR
        };
        Traversal {
            hops: &mut self.hops,
            groups: &mut self.groups,
            context: Context::new(Time::ZERO, direction),
            exit: PortNo::from_raw(exit),
            hash: &self.hash,
            outlet: &mut self.went,
            effects: &mut self.effects,
            sending: Sending::Allowed,
        }
    }

    /// Lets an instance of a hop answer more packets.
    fn let_answer(&self, hop: usize, instance: usize, packets: u64) {
        self.controls[hop][instance]
            .answers
            .fetch_add(packets, Ordering::Relaxed);
    }

    fn enter(&mut self, direction: Direction, numbers: core::ops::Range<u32>, position: usize) {
        let frame = |number: u32| {
            let mut bytes = [0; 60];
            bytes[..4].copy_from_slice(&(number % 7).to_be_bytes());
            bytes[14..18].copy_from_slice(&number.to_be_bytes());
            Frame::new(&bytes)
        };
        let mut burst: Burst<Frame> = numbers.map(frame).collect();
        self.traversal(direction).traverse(&mut burst, position);
        assert!(burst.is_empty());
    }

    /// Polls like a lane.
    fn take_back(&mut self) {
        for at in (0..self.hops.len()).rev() {
            for instance in 0..self.hops[at].instances.len() {
                let mut burst = Burst::new();
                if let Some(group) = self.hops[at].group {
                    let answered = self.groups[group].answered(instance, &mut self.hops, Time::ZERO);
                    if let Some(answered) = answered {
                        let direction = answered.kind().direction;
                        self.traversal(direction)
                            .gather(group, instance, &answered, &mut burst);
                    }
                    continue;
                }
                let mut verdicts = ArrayVec::new();
                let held = &mut self.hops[at].instances[instance];
                let Runner::Remote(remote) = &mut held.runner else {
                    continue;
                };
                if let Some(BurstKind { direction, .. }) = remote.take(&mut burst, &mut verdicts) {
                    held.count(&verdicts);
                    held.counters.bytes.add(60 * burst.len() as u64);
                    self.traversal(direction).resume(&mut burst, &verdicts, at);
                }
            }
        }
    }

    fn finish(&mut self) {
        for hop in 0..self.hops.len() {
            (0..self.hops[hop].instances.len()).for_each(|instance| self.let_answer(hop, instance, 1 << 40));
        }
        (0..2000).for_each(|_| self.take_back());
        assert_eq!(self.groups.iter().map(Group::in_flight).sum::<usize>(), 0);
    }

    /// Returns the counters of each hop: packets, next, skipped, dropped, to a port, passed, lost.
    fn counts(&self) -> Vec<[u64; 7]> {
        let of = |instance: &Instance<Frame>| {
            let counters = &instance.counters;
            [
                &counters.packets,
                &counters.next,
                &counters.skipped,
                &counters.dropped,
                &counters.to_port,
                &counters.passed,
                &counters.lost,
            ]
            .map(crate::counters::Count::read)
        };
        let sum = |hop: &Hop<Frame>| {
            hop.instances.iter().map(of).fold([0; 7], |mut sum, one| {
                sum.iter_mut().zip(one).for_each(|(sum, one)| *sum += one);
                sum
            })
        };
        self.hops.iter().map(sum).collect()
    }
}

/// Returns a deterministic pseudo-random sequence.
fn dice(state: &mut u64, bound: u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state % bound
}

fn anything(packet: u32, hop: u64) -> Verdict {
    let mut state = u64::from(packet) << 8 | hop | 1 << 60;
    for _ in 0..4 {
        dice(&mut state, 2);
    }
    match dice(&mut state, 16) {
        0 => Verdict::Drop,
        over @ 1..=3 => Verdict::Skip(over as u8 - 1),
        4 => Verdict::ToPort(PortNo::from_raw(7)),
        _ => Verdict::Next,
    }
}

fn on(_: u32, _: u64) -> Verdict {
    Verdict::Next
}

#[test]
fn packets_go_where_they_would_go_one_hop_after_the_other_and_are_counted_so() {
    let policies = [OnFailure::Closed; 5];
    for seed in 1..60_u64 {
        let mut state = seed << 20 | 0x9e37_79b9;
        let instances = 1 + seed as usize % 3;
        let (first, len) = [(1, 3), (0, 5), (0, 2), (3, 2)][seed as usize % 4];
        let mut together = TestBed::new(instances, &policies, Some((first, len)), anything);
        let mut apart = TestBed::new(instances, &policies, None, anything);
        let mut sent = 1000;
        for _ in 0..60 {
            let direction = Direction::from_raw(dice(&mut state, 2) as u32);
            let packets = 1 + dice(&mut state, 64) as u32;
            let position = dice(&mut state, 5).saturating_sub(2) as usize;
            for testbed in [&mut together, &mut apart] {
                testbed.enter(direction, sent..sent + packets, position);
            }
            sent += packets;
            for _ in 0..3 {
                let (hop, instance) = (
                    dice(&mut state, 5) as usize,
                    dice(&mut state, instances as u64) as usize,
                );
                let answers = dice(&mut state, 100);
                for testbed in [&mut together, &mut apart] {
                    testbed.let_answer(hop, instance, answers);
                    testbed.take_back();
                }
            }
        }
        together.finish();
        apart.finish();
        assert_eq!(together.counts(), apart.counts(), "seed {seed}");
        let went = [&together, &apart].map(|testbed| testbed.went.0.iter().copied().collect::<BTreeSet<_>>());
        assert_eq!(went[0], went[1], "seed {seed}");
        assert_eq!(
            (together.went.0.len(), went[0].len()),
            (sent as usize - 1000, sent as usize - 1000)
        );
    }
}

#[test]
fn what_goes_on_comes_out_in_order_however_late_each_hop_answers() {
    let mut testbed = TestBed::new(1, &[OnFailure::Closed; 3], Some((0, 3)), on);
    let mut state = 77;
    for burst in 0..50 {
        let direction = Direction::from_raw(dice(&mut state, 2) as u32);
        testbed.enter(direction, 1000 + burst * 10..1010 + burst * 10, 0);
        for _ in 0..2 {
            testbed.let_answer(dice(&mut state, 3) as usize, 0, dice(&mut state, 25));
            testbed.take_back();
        }
    }
    testbed.finish();
    let came: Vec<u32> = testbed.went.0.iter().map(|went| went.1).collect();
    assert_eq!(came, (1000..1500).collect::<Vec<_>>());
}

#[test]
fn of_those_that_a_dead_hop_has_not_answered_its_policy_decides_and_hops_behind_it_count_them_so() {
    for (policy, port) in [
        (OnFailure::Closed, 1),
        (OnFailure::Open, 0),
        (OnFailure::Bypass, FAR),
    ] {
        let drops: Say = |_, hop| if hop == 2 { Verdict::Drop } else { Verdict::Next };
        let mut testbed = TestBed::new(
            1,
            &[OnFailure::Closed, policy, OnFailure::Closed],
            Some((0, 3)),
            drops,
        );
        testbed.enter(Direction::Forward, 0..10, 0);
        for (hop, answers) in [(0, 100), (1, 4), (2, 100)] {
            testbed.let_answer(hop, 0, answers);
        }
        let dying = Arc::clone(&testbed.controls[1][0]);
        dying.holds_on.store(true, Ordering::Relaxed);
        dying.is_dead.store(true, Ordering::Relaxed);
        (0..5).for_each(|_| testbed.take_back());
        // Answers from before the end of the process count. Other packets wait until the process has lost
        // access; more packets arrive meanwhile.
        assert_eq!(testbed.went.0, [(0, 0), (0, 1), (0, 2), (0, 3)]);
        testbed.enter(Direction::Forward, 10..20, 0);
        testbed.take_back();
        assert_eq!(testbed.went.0.len(), 4);
        dying.holds_on.store(false, Ordering::Relaxed);
        (0..5).for_each(|_| testbed.take_back());
        assert_eq!(
            testbed.went.0[4..],
            (4..20).map(|number| (port, number)).collect::<Vec<_>>()
        );
        let behind = if policy == OnFailure::Open { 20 } else { 4 };
        let counts = testbed.counts();
        assert_eq!(
            (counts[0][0], counts[1][0], counts[2][0]),
            (20, 4, behind),
            "{policy:?}"
        );
        let passed = if policy == OnFailure::Closed {
            [0, 16]
        } else {
            [16, 0]
        };
        assert_eq!(counts[1][5..], passed);
        // The process has no packets left, so another process can replace it.
        assert_eq!(testbed.hops[1].instances[0].in_flight(), 0);
    }
}

#[test]
fn a_packet_that_cannot_be_shown_to_a_hop_is_lost_there_whatever_the_others_say() {
    let mut testbed = TestBed::new(1, &[OnFailure::Open; 3], Some((0, 3)), on);
    testbed.enter(Direction::Forward, 664..668, 0);
    testbed.finish();
    assert_eq!(
        testbed.went.0.iter().map(|went| went.0).collect::<Vec<_>>(),
        [FAR, FAR, 1, FAR]
    );
    assert_eq!(
        testbed.counts(),
        [
            [3, 3, 0, 0, 0, 0, 1],
            [3, 3, 0, 0, 0, 0, 0],
            [3, 3, 0, 0, 0, 0, 0]
        ]
    );
}
