//! Ports with a scheduler: one worker owns the scheduler, and other workers forward their packets to this
//! owner.
//!
//! With one owner, the port's rates and priorities hold exactly for all workers together, without a lock.
//! The owner is the worker that already sends for workers without a transmit queue ([ADR
//! 6](../../../../docs/adr/0006-scheduling.md)). While no scheduler is configured, every worker sends through
//! its own queue as if this module did not exist.

use millrace_pipeline::{Counters, DropReason};
use millrace_types::{PortNo, Time};
use millrace_wire::Packet;

use crate::handoff::{Destination, Inbox};
use crate::schedule::Scheduler;
use crate::tx_port::{Flushed, Scheduled, TxPath, TxPort, TxPorts, earlier};

/// Maximum number of bursts that one port sends in a round, so that other ports are served, too.
const BURSTS_MAX: usize = 64;

/// The role of one worker in the scheduling of a port. A role changes how the worker sends to the port ([`TxPath`]):
///
/// ```text
///           Own                     None, once the scheduler is empty
///  Queue --------> Scheduled -----------------------------------------> Queue       the owner
///
///           Forward                            None
///  Queue ------------> Worker, queue parked ------------> Queue                     other workers
/// ```
pub(crate) enum SchedulerRole<P> {
    /// The worker owns this scheduler, which replaces a previous one.
    Own(Box<Scheduler<P>>),
    /// The worker forwards its packets to the inbox of the owner.
    Forward(Inbox<P>),
    /// The port is no longer scheduled.
    None,
}

impl<P> SchedulerRole<P> {
    fn name(&self) -> &'static str {
        match self {
            SchedulerRole::Own(_) => "Own",
            SchedulerRole::Forward(_) => "Forward",
            SchedulerRole::None => "None",
        }
    }
}

impl<P: Packet> TxPorts<P> {
    /// Moves packets that may leave now from schedulers to devices, as many as the devices accept.
    #[inline(never)]
    pub(crate) fn dequeue(&mut self, now: Time, flushed: &mut Flushed) {
        let mut has_ended = false;
        for port in &mut self.ports {
            let TxPath::Scheduled(scheduled) = &mut port.path else {
                continue;
            };
            scheduled.scheduler.note_poll(now);
            for _ in 0..BURSTS_MAX {
                if !port.buffer.is_empty() {
                    flushed.left += port.flush();
                }
                let TxPath::Scheduled(scheduled) = &mut port.path else {
                    break;
                };
                if !port.buffer.is_empty() || scheduled.scheduler.is_empty() {
                    break;
                }
                scheduled.scheduler.dequeue(now, &mut port.buffer);
                flushed.sent += port.buffer.len();
                if port.buffer.is_empty() {
                    break;
                }
            }
            if let TxPath::Scheduled(scheduled) = &port.path {
                scheduled.scheduler.publish_len();
                // While the device accepts nothing, no queued packet can leave.
                if port.buffer.is_empty() {
                    flushed.eligible_at = earlier(flushed.eligible_at, scheduled.scheduler.eligible_at());
                }
                has_ended |= scheduled.is_ending && scheduled.scheduler.is_empty();
            }
        }
        if has_ended {
            self.end_scheduling();
        }
    }

    /// Changes the role of this worker for a port. Drops and counts the packets that no longer fit into
    /// queues.
    pub(crate) fn set_scheduler_role(
        &mut self,
        bridge: u32,
        number: PortNo,
        role: SchedulerRole<P>,
        now: Time,
        drops: &Counters,
    ) {
        let Some(at) = self.ports.iter().position(|port| port.port == number) else {
            debug_assert!(false, "port {number} is not here");
            return;
        };
        let mut port = self.ports.swap_remove(at);
        let mut lost = Vec::new();
        port.path = match (role, port.path) {
            (SchedulerRole::Own(scheduler), TxPath::Queue(queue)) => TxPath::Scheduled(Box::new(Scheduled {
                queue,
                scheduler: *scheduler,
                is_ending: false,
            })),
            (SchedulerRole::Own(mut scheduler), TxPath::Scheduled(old)) => {
                let Scheduled {
                    queue,
                    scheduler: old,
                    ..
                } = *old;
                scheduler.inherit(old, now, &mut lost);
                TxPath::Scheduled(Box::new(Scheduled {
                    queue,
                    scheduler: *scheduler,
                    is_ending: false,
                }))
            }
            (SchedulerRole::Forward(inbox), TxPath::Queue(mut queue)) => {
                // The device takes buffered packets first. The others go to the owner's inbox, as all later
                // packets do.
                crate::tx_port::send(&mut *queue, &mut port.buffer, &port.counters);
                let to = Destination {
                    bridge,
                    port: number,
                    queue: None,
                };
                inbox.put(to, &mut port.buffer);
                lost.extend(port.buffer.drain(..));
                // A receive queue with backpressure waits while this is true, and an empty buffer is never flushed.
                port.is_behind = false;
                port.parked = Some(queue);
                TxPath::Worker(inbox)
            }
            (SchedulerRole::None, TxPath::Scheduled(mut scheduled)) => {
                scheduled.scheduler.lift_limits();
                scheduled.is_ending = true;
                TxPath::Scheduled(scheduled)
            }
            (SchedulerRole::None, TxPath::Worker(inbox)) => match port.parked.take() {
                Some(queue) => TxPath::Queue(queue),
                None => TxPath::Worker(inbox),
            },
            // The settings of the port changed, and this worker continues to forward.
            (SchedulerRole::Forward(_), TxPath::Worker(inbox)) => TxPath::Worker(inbox),
            (role, path) => {
                // The owner of a port has a queue and never changes, and scheduling ends only after it began.
                debug_assert!(false, "{} does not follow {}", role.name(), path.name());
                path
            }
        };
        port.counters.tx_dropped.add(lost.len() as u64);
        drops.drops.add(DropReason::QueueFull, lost.len() as u64);
        self.insert(port);
        self.end_scheduling();
    }

    /// Restores the direct path of ports whose scheduling has ended and whose queues are empty.
    fn end_scheduling(&mut self) {
        let has_ended = |port: &TxPort<P>| matches!(&port.path, TxPath::Scheduled(scheduled) if scheduled.is_ending && scheduled.scheduler.is_empty());
        while let Some(at) = self.ports.iter().position(has_ended) {
            let port = self.ports.swap_remove(at);
            let path = match port.path {
                TxPath::Scheduled(scheduled) => TxPath::Queue(scheduled.queue),
                path => path,
            };
            self.insert(TxPort { path, ..port });
        }
        self.has_scheduled = self
            .ports
            .iter()
            .any(|port| matches!(port.path, TxPath::Scheduled(_)));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use millrace_pipeline::Egress;
    use millrace_types::{BitRate, Duration, QueueId};
    use millrace_wire::Frame;
    use parking_lot::Mutex;

    use super::*;
    use crate::egress::WorkerEgress;
    use crate::events::Events;
    use crate::io::{Burst, TxQueue};
    use crate::schedule::{PortPlan, QueueCountersMap, QueuePlan};

    const PORT: PortNo = PortNo::from_raw(1);

    /// A device that takes this many packets of a burst.
    struct Wire(usize, Arc<Mutex<Vec<Frame>>>);

    impl TxQueue<Frame> for Wire {
        fn tx_burst(&mut self, burst: &mut Burst<Frame>) {
            let taken = self.0.min(burst.len());
            self.1.lock().extend(burst.drain(..taken));
        }
    }

    struct TestBed {
        ports: TxPorts<Frame>,
        sent: Arc<Mutex<Vec<Frame>>>,
        drops: Counters,
        events: Arc<Events<Frame>>,
    }

    impl TestBed {
        fn new(burst_max: usize) -> TestBed {
            let sent = Arc::default();
            let mut ports = TxPorts::new();
            ports.insert(TxPort {
                port: PORT,
                path: TxPath::Queue(Box::new(Wire(burst_max, Arc::clone(&sent)))),
                counters: Arc::default(),
                buffer: Box::new(Burst::new()),
                is_behind: false,
                has_other_queues: false,
                parked: None,
                lag: None,
            });
            TestBed {
                ports,
                sent,
                drops: Counters::default(),
                events: Events::new(std::thread::current()),
            }
        }

        fn own(&mut self, plan: &PortPlan, now: Time) {
            let scheduler = Scheduler::new(plan, &QueueCountersMap::new(), now);
            self.set_role(SchedulerRole::Own(Box::new(scheduler)), now);
        }

        fn set_role(&mut self, role: SchedulerRole<Frame>, now: Time) {
            self.ports.set_scheduler_role(0, PORT, role, now, &self.drops);
        }

        fn send(&mut self, queue: Option<u32>, numbers: core::ops::Range<u8>, now: Time) {
            let mut egress = WorkerEgress {
                bridge: 0,
                tx: &mut self.ports,
                events: &self.events,
                counters: &self.drops,
                now,
                in_port: None,
                sampler: None,
                sampled: None,
                is_noting: false,
            };
            let mut burst: Burst<Frame> = numbers.map(|number| Frame::new(&[number; 100])).collect();
            egress.transmit_burst(PORT, queue.map(QueueId), &mut burst);
            assert!(burst.is_empty());
        }

        fn sent(&self) -> Vec<u8> {
            self.sent.lock().drain(..).map(|frame| frame.bytes()[0]).collect()
        }
    }

    fn at(nanos: u64) -> Time {
        Time::from_nanos(nanos)
    }

    fn shaped(bps: u64) -> PortPlan {
        PortPlan {
            rate: Some(BitRate::from_bps(bps)),
            ..PortPlan::default()
        }
    }

    #[test]
    fn packets_wait_for_their_turn_and_the_worker_is_told_when_that_is() {
        let mut bed = TestBed::new(64);
        // 100 bytes take 100 microseconds, and a burst is 3,028 bytes long.
        bed.own(&shaped(8_000_000), at(0));
        bed.send(None, 0..40, at(0));
        let flushed = bed.ports.flush(at(0));
        assert_eq!((flushed.sent, flushed.is_behind), (31, false));
        let eligible_at = flushed.eligible_at.unwrap();
        assert_eq!(eligible_at, at(72_000));
        assert_eq!(bed.ports.flush(at(71_999)).sent, 0);
        let flushed = bed.ports.flush(eligible_at);
        assert_eq!((flushed.sent, flushed.eligible_at), (1, Some(at(172_000))));
        let flushed = bed.ports.flush(at(1_000_000));
        assert_eq!((flushed.sent, flushed.eligible_at), (8, None));
        assert_eq!(bed.sent(), (0..40).collect::<Vec<u8>>());
    }

    #[test]
    fn what_the_device_does_not_take_waits_in_its_queue_where_priorities_count() {
        let urgent = QueuePlan {
            priority: 7,
            ..QueuePlan::new(QueueId(7))
        };
        let plan = PortPlan {
            queues: vec![urgent],
            ..PortPlan::default()
        };
        let mut bed = TestBed::new(10);
        bed.own(&plan, at(0));
        bed.send(None, 0..60, at(0));
        bed.send(None, 60..120, at(0));
        let flushed = bed.ports.flush(at(0));
        assert!(flushed.is_behind, "{flushed:?}");
        bed.send(Some(7), 200..210, at(0));
        while bed.ports.flush(at(0)).is_behind {}
        let sent = bed.sent();
        // One burst had left the queues earlier.
        assert_eq!(sent[64..74], (200..210).collect::<Vec<u8>>()[..]);
        assert_eq!(sent.len(), 130);
    }

    #[test]
    fn packets_before_a_device_that_takes_nothing_let_the_worker_sleep() {
        let mut bed = TestBed::new(0);
        bed.own(&PortPlan::default(), at(0));
        bed.send(None, 0..60, at(0));
        bed.send(None, 60..120, at(0));
        bed.ports.flush(at(0));
        let flushed = bed.ports.flush(at(0));
        assert!(flushed.is_behind, "{flushed:?}");
        assert_eq!((flushed.left, flushed.sent, flushed.eligible_at), (0, 0, None));
    }

    #[test]
    fn a_full_queue_drops_by_name() {
        let few = QueuePlan {
            packets_max: 5,
            ..QueuePlan::new(QueueId(1))
        };
        let plan = PortPlan {
            queues: vec![few],
            ..PortPlan::default()
        };
        let mut bed = TestBed::new(64);
        bed.own(&plan, at(0));
        bed.send(Some(1), 0..20, at(0));
        assert_eq!(bed.drops.drops.read(DropReason::QueueFull), 15);
        bed.ports.flush(at(0));
        assert_eq!(bed.sent(), [0, 1, 2, 3, 4]);
    }

    #[test]
    fn a_port_is_scheduled_and_no_longer_without_losing_or_reordering_a_packet() {
        let mut bed = TestBed::new(64);
        bed.send(None, 0..10, at(0));
        bed.own(&shaped(8_000), at(0));
        bed.send(None, 10..60, at(0));
        bed.ports.flush(at(0));
        bed.own(&shaped(16_000), at(1));
        bed.send(None, 60..100, at(1));
        bed.ports.flush(at(1));
        bed.set_role(SchedulerRole::None, at(2));
        bed.send(None, 100..130, at(2));
        assert!(bed.ports.has_scheduled);
        while bed.ports.flush(at(2)).eligible_at.is_some() {}
        assert!(!bed.ports.has_scheduled);
        bed.send(None, 130..160, at(3));
        bed.ports.flush(at(3));
        assert_eq!(bed.sent(), (0..160).collect::<Vec<u8>>());
    }

    #[test]
    fn who_does_not_own_the_scheduler_gives_its_packets_with_their_queue_and_gets_its_own_queue_back() {
        let mut bed = TestBed::new(4);
        let inbox: Inbox<Frame> = Inbox::new();
        bed.send(None, 0..10, at(0));
        bed.set_role(SchedulerRole::Forward(inbox.clone()), at(0));
        assert_eq!(bed.sent(), [0, 1, 2, 3], "the device took these at once");
        bed.send(Some(3), 10..20, at(0));
        let handoffs: Vec<_> = core::iter::from_fn(|| inbox.take()).collect();
        let packets = handoffs.iter().flat_map(|handoff| &handoff.packets);
        let numbers: Vec<u8> = packets.map(|packet| packet.bytes()[0]).collect();
        assert_eq!(numbers, (4..20).collect::<Vec<u8>>());
        assert_eq!(handoffs.last().unwrap().to.queue, Some(QueueId(3)));
        bed.set_role(SchedulerRole::None, at(0));
        bed.send(None, 20..24, at(0));
        bed.ports.flush(at(0) + Duration::from_millis(1));
        assert_eq!(bed.sent(), [20, 21, 22, 23]);
    }

    #[test]
    fn a_port_that_was_behind_holds_back_no_queue_once_the_owner_sends_for_it() {
        let mut bed = TestBed::new(0);
        bed.send(None, 0..10, at(0));
        assert!(bed.ports.flush(at(0)).is_behind);
        assert!(bed.ports.is_behind(PORT));
        for role in [SchedulerRole::Forward(Inbox::new()), SchedulerRole::None] {
            bed.set_role(role, at(0));
            assert!(!bed.ports.flush(at(0)).is_behind);
            assert!(!bed.ports.is_behind(PORT));
        }
    }
}
