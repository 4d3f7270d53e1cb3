//! Ports whose packets wait for their turn: one worker owns the scheduler, the others give it what they have.
//!
//! One owner keeps the port's rates and priorities those of all workers together, exactly, without a lock. It is the
//! one that already sends for workers without a transmit queue of their own ([ADR 6](../../../../docs/adr/0006-scheduling.md)).
//! While nobody asks for a scheduler, every worker sends through its own queue as if this module were not there.

use millrace_pipeline::{Counters, DropReason};
use millrace_types::{PortNo, QueueId, Time};
use millrace_wire::Packet;

use crate::counters::PortCounters;
use crate::cutting::each_segment;
use crate::egress::{Path, TxPort, TxPorts};
use crate::handoff::{Destination, Inbox};
use crate::io::TxQueue;
use crate::schedule::Scheduler;

/// Bursts that one port sends at a time, so that the others have theirs.
const BURSTS_MAX: usize = 64;

/// The owner's part of a scheduled port.
pub(crate) struct Scheduled<P> {
    pub(crate) queue: Box<dyn TxQueue<P>>,
    pub(crate) scheduler: Scheduler<P>,
    /// True if the port is no longer scheduled once nothing waits.
    is_ending: bool,
}

impl<P: Packet> Scheduled<P> {
    /// Returns the same with another queue to the device.
    pub(crate) fn map_queue(
        self,
        map: impl FnOnce(Box<dyn TxQueue<P>>) -> Box<dyn TxQueue<P>>,
    ) -> Scheduled<P> {
        Scheduled {
            queue: map(self.queue),
            ..self
        }
    }

    /// Has a packet wait for its turn: in segments, if it is to be cut. What finds no room is dropped and counted.
    #[inline(never)]
    pub(crate) fn enqueue_cut(
        &mut self,
        queue: Option<QueueId>,
        packet: P,
        now: Time,
        port: &PortCounters,
        counters: &Counters,
    ) {
        each_segment(packet, counters, |segment| {
            if self.scheduler.enqueue(queue, segment, now).is_err() {
                port.tx_dropped.add(1);
                counters.drops.add(DropReason::QueueFull, 1);
            }
        });
    }
}

/// What becomes of a port's packets in one worker.
pub(crate) enum Turn<P> {
    /// It schedules them, by this in place of what it may have had.
    Own(Box<Scheduler<P>>),
    /// It gives them to the worker that does.
    Give(Inbox<P>),
    /// Nobody schedules them any more.
    End,
}

/// What a round of sending came to.
#[derive(Debug, Default)]
pub(crate) struct Flushed {
    /// True if a device did not take all that it was given.
    pub(crate) is_behind: bool,
    /// Packets that schedulers let go.
    pub(crate) sent: usize,
    /// When the next one may go, if one waits.
    pub(crate) opens: Option<Time>,
}

impl<P: Packet> TxPorts<P> {
    /// Has schedulers give to devices what may leave by now, as far as these take it.
    #[inline(never)]
    pub(crate) fn dequeue(&mut self, now: Time, flushed: &mut Flushed) {
        let mut has_ended = false;
        for port in &mut self.ports {
            let Path::Scheduled(scheduled) = &mut port.path else {
                continue;
            };
            scheduled.scheduler.attend(now);
            for _ in 0..BURSTS_MAX {
                if !port.buffer.is_empty() {
                    port.flush();
                }
                let Path::Scheduled(scheduled) = &mut port.path else {
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
            if let Path::Scheduled(scheduled) = &port.path {
                scheduled.scheduler.tell();
                flushed.opens = match (flushed.opens, scheduled.scheduler.opens()) {
                    (Some(one), Some(other)) => Some(one.min(other)),
                    (one, other) => one.or(other),
                };
                has_ended |= scheduled.is_ending && scheduled.scheduler.is_empty();
            }
        }
        if has_ended {
            self.end();
        }
    }

    /// Changes what becomes of a port's packets. What no longer finds room is dropped and counted.
    pub(crate) fn turn(&mut self, bridge: u32, number: PortNo, turn: Turn<P>, now: Time, drops: &Counters) {
        let Some(at) = self.ports.iter().position(|port| port.port == number) else {
            return;
        };
        let mut port = self.ports.swap_remove(at);
        let mut lost = Vec::new();
        port.path = match (turn, port.path) {
            (Turn::Own(scheduler), Path::Queue(queue)) => Path::Scheduled(Box::new(Scheduled {
                queue,
                scheduler: *scheduler,
                is_ending: false,
            })),
            (Turn::Own(mut scheduler), Path::Scheduled(old)) => {
                let Scheduled {
                    queue,
                    scheduler: old,
                    ..
                } = *old;
                scheduler.inherit(old, now, &mut lost);
                Path::Scheduled(Box::new(Scheduled {
                    queue,
                    scheduler: *scheduler,
                    is_ending: false,
                }))
            }
            (Turn::Give(inbox), Path::Queue(mut queue)) => {
                // What was ready goes first: the rest follows by the way of all others.
                crate::egress::send(&mut *queue, &mut port.buffer, &port.counters);
                let to = Destination {
                    bridge,
                    port: number,
                    queue: None,
                };
                inbox.put(to, &mut port.buffer);
                lost.extend(port.buffer.drain(..));
                port.parked = Some(queue);
                Path::Worker(inbox)
            }
            (Turn::End, Path::Scheduled(mut scheduled)) => {
                scheduled.scheduler.release();
                scheduled.is_ending = true;
                Path::Scheduled(scheduled)
            }
            (Turn::End, Path::Worker(inbox)) => match port.parked.take() {
                Some(queue) => Path::Queue(queue),
                None => Path::Worker(inbox),
            },
            (_, path) => path,
        };
        port.counters.tx_dropped.add(lost.len() as u64);
        drops.drops.add(DropReason::QueueFull, lost.len() as u64);
        self.insert(port);
        self.end();
    }

    /// Ports that are no longer scheduled, and have nothing left, are as any other again.
    fn end(&mut self) {
        let has_ended = |port: &TxPort<P>| matches!(&port.path, Path::Scheduled(scheduled) if scheduled.is_ending && scheduled.scheduler.is_empty());
        while let Some(at) = self.ports.iter().position(has_ended) {
            let port = self.ports.swap_remove(at);
            let path = match port.path {
                Path::Scheduled(scheduled) => Path::Queue(scheduled.queue),
                path => path,
            };
            self.insert(TxPort { path, ..port });
        }
        self.has_scheduled = self
            .ports
            .iter()
            .any(|port| matches!(port.path, Path::Scheduled(_)));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use millrace_pipeline::Egress;
    use millrace_types::{BitRate, Duration, QueueId};
    use millrace_wire::Frame;

    use super::*;
    use crate::egress::WorkerEgress;
    use crate::events::Events;
    use crate::io::Burst;
    use crate::schedule::{PortPlan, QueueCountersMap, QueuePlan};

    const PORT: PortNo = PortNo::from_raw(1);

    /// Takes so many packets a burst.
    struct Wire(usize, Arc<Mutex<Vec<Frame>>>);

    impl TxQueue<Frame> for Wire {
        fn tx_burst(&mut self, burst: &mut Burst<Frame>) {
            let taken = self.0.min(burst.len());
            self.1.lock().unwrap().extend(burst.drain(..taken));
        }
    }

    struct Rig {
        ports: TxPorts<Frame>,
        sent: Arc<Mutex<Vec<Frame>>>,
        drops: Counters,
        events: Arc<Events<Frame>>,
    }

    impl Rig {
        fn new(appetite: usize) -> Rig {
            let sent = Arc::default();
            let mut ports = TxPorts::new();
            ports.insert(TxPort {
                port: PORT,
                path: Path::Queue(Box::new(Wire(appetite, Arc::clone(&sent)))),
                counters: Arc::default(),
                buffer: Box::new(Burst::new()),
                is_behind: false,
                parked: None,
            });
            Rig {
                ports,
                sent,
                drops: Counters::default(),
                events: Events::new(std::thread::current()),
            }
        }

        fn own(&mut self, plan: &PortPlan, now: Time) {
            let scheduler = Scheduler::new(plan, &QueueCountersMap::new(), now);
            self.turn(Turn::Own(Box::new(scheduler)), now);
        }

        fn turn(&mut self, turn: Turn<Frame>, now: Time) {
            self.ports.turn(0, PORT, turn, now, &self.drops);
        }

        fn send(&mut self, queue: Option<u32>, numbers: core::ops::Range<u8>, now: Time) {
            let mut egress = WorkerEgress {
                bridge: 0,
                tx: &mut self.ports,
                events: &self.events,
                counters: &self.drops,
                now,
            };
            let mut burst: Burst<Frame> = numbers.map(|number| Frame::new(&[number; 100])).collect();
            egress.transmit_burst(PORT, queue.map(QueueId), &mut burst);
            assert!(burst.is_empty());
        }

        fn sent(&self) -> Vec<u8> {
            self.sent
                .lock()
                .unwrap()
                .drain(..)
                .map(|frame| frame.bytes()[0])
                .collect()
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
        let mut rig = Rig::new(64);
        // 100 bytes take 100 microseconds, and 3,028 bytes come at once.
        rig.own(&shaped(8_000_000), at(0));
        rig.send(None, 0..40, at(0));
        let flushed = rig.ports.flush(at(0));
        assert_eq!((flushed.sent, flushed.is_behind), (31, false));
        let opens = flushed.opens.unwrap();
        assert_eq!(opens, at(72_000));
        assert_eq!(rig.ports.flush(at(71_999)).sent, 0);
        let flushed = rig.ports.flush(opens);
        assert_eq!((flushed.sent, flushed.opens), (1, Some(at(172_000))));
        let flushed = rig.ports.flush(at(1_000_000));
        assert_eq!((flushed.sent, flushed.opens), (8, None));
        assert_eq!(rig.sent(), (0..40).collect::<Vec<u8>>());
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
        let mut rig = Rig::new(10);
        rig.own(&plan, at(0));
        rig.send(None, 0..60, at(0));
        rig.send(None, 60..120, at(0));
        let flushed = rig.ports.flush(at(0));
        assert!(flushed.is_behind, "{flushed:?}");
        rig.send(Some(7), 200..210, at(0));
        while rig.ports.flush(at(0)).is_behind {}
        let sent = rig.sent();
        // One burst had left the queues before.
        assert_eq!(sent[64..74], (200..210).collect::<Vec<u8>>()[..]);
        assert_eq!(sent.len(), 130);
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
        let mut rig = Rig::new(64);
        rig.own(&plan, at(0));
        rig.send(Some(1), 0..20, at(0));
        assert_eq!(rig.drops.drops.read(DropReason::QueueFull), 15);
        rig.ports.flush(at(0));
        assert_eq!(rig.sent(), [0, 1, 2, 3, 4]);
    }

    #[test]
    fn a_port_is_scheduled_and_no_longer_without_losing_or_reordering_a_packet() {
        let mut rig = Rig::new(64);
        rig.send(None, 0..10, at(0));
        rig.own(&shaped(8_000), at(0));
        rig.send(None, 10..60, at(0));
        rig.ports.flush(at(0));
        rig.own(&shaped(16_000), at(1));
        rig.send(None, 60..100, at(1));
        rig.ports.flush(at(1));
        rig.turn(Turn::End, at(2));
        rig.send(None, 100..130, at(2));
        assert!(rig.ports.has_scheduled);
        while rig.ports.flush(at(2)).opens.is_some() {}
        assert!(!rig.ports.has_scheduled);
        rig.send(None, 130..160, at(3));
        rig.ports.flush(at(3));
        assert_eq!(rig.sent(), (0..160).collect::<Vec<u8>>());
    }

    #[test]
    fn who_does_not_own_the_scheduler_gives_its_packets_with_their_queue_and_gets_its_own_queue_back() {
        let mut rig = Rig::new(4);
        let inbox: Inbox<Frame> = Inbox::new();
        rig.send(None, 0..10, at(0));
        rig.turn(Turn::Give(inbox.clone()), at(0));
        assert_eq!(rig.sent(), [0, 1, 2, 3], "what the device took at once");
        rig.send(Some(3), 10..20, at(0));
        let given: Vec<_> = core::iter::from_fn(|| inbox.take()).collect();
        let packets = given.iter().flat_map(|handoff| &handoff.packets);
        let numbers: Vec<u8> = packets.map(|packet| packet.bytes()[0]).collect();
        assert_eq!(numbers, (4..20).collect::<Vec<u8>>());
        assert_eq!(given.last().unwrap().to.queue, Some(QueueId(3)));
        rig.turn(Turn::End, at(0));
        rig.send(None, 20..24, at(0));
        rig.ports.flush(at(0) + Duration::from_millis(1));
        assert_eq!(rig.sent(), [20, 21, 22, 23]);
    }
}
