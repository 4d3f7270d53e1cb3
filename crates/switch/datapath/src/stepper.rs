//! A worker without a thread: the caller of [`Stepper`] runs the worker, round by round. A simulated run
//! (`millrace profile --simulate`) counts only the instructions of such rounds.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use millrace_types::Time;
use millrace_wire::Packet;

use crate::io::Burst;
use crate::worker::Worker;

/// Interval at which commands of the control side are executed.
const COMMAND_INTERVAL: Duration = Duration::from_micros(100);

/// The only worker of a datapath. It must be dropped before the bridges: a bridge that is dropped waits for its
/// workers.
pub struct Stepper<P> {
    worker: Worker<P>,
    burst: Box<Burst<P>>,
}

/// Ends the loop that executes commands, even if the control side's work panics.
struct Done<'a>(&'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

impl<P: Packet + 'static> Stepper<P> {
    pub(crate) fn new(worker: Worker<P>) -> Stepper<P> {
        Stepper {
            worker,
            burst: Box::new(Burst::new()),
        }
    }

    /// Calls `work`, and meanwhile executes the commands that `work` sends to the worker, for example to add
    /// and remove ports.
    pub fn serve<R>(&mut self, work: impl FnOnce() -> R) -> R {
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let _end = Done(&done);
            scope.spawn(|| {
                while !done.load(Ordering::Acquire) {
                    self.worker.run_pending_commands();
                    std::thread::sleep(COMMAND_INTERVAL);
                }
            });
            work()
        })
    }

    /// Polls every receive queue once, and forwards the packets. Returns the number of packets processed. The
    /// function is never inlined, so that all callers run the same code.
    #[inline(never)]
    pub fn forward_round(&mut self, now: Time) -> usize {
        self.worker.forward_round(now, &mut self.burst)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use millrace_flow::{Action, Instructions, Match};
    use millrace_pipeline::{Control, ControlConfig, FlowMod, FlowModCommand, Port};
    use millrace_types::{PortNo, Priority, TableId, Time};
    use millrace_wire::Packet;

    use crate::io::{DeviceOptions, DeviceSpec, HeapBackend};
    use crate::{BridgeSetup, Datapath};

    #[test]
    fn a_stepped_worker_forwards_when_it_is_told_to_and_not_before() {
        let backend = Arc::new(HeapBackend::new());
        let (datapath, mut stepper) = Datapath::stepped(Arc::clone(&backend));
        let mut control = Control::new(ControlConfig::default());
        let setup = BridgeSetup {
            forwarding: [control.forwarding(), control.forwarding()],
            counters: vec![control.counters(), control.counters()],
        };
        let bridge = stepper.serve(|| {
            let mut bridge = datapath.bridge(setup).unwrap();
            let mut ops = Vec::new();
            for raw in [1, 2] {
                let port = PortNo::ordinary(raw).unwrap();
                control.set_port(Port::new(port), &mut ops);
                bridge.publish(&mut ops);
                let device = DeviceSpec::Memory(format!("m{raw}"));
                bridge.add_port(port, &device, DeviceOptions::PLAIN).unwrap();
            }
            let mut entry = FlowMod::new(FlowModCommand::Add, TableId(0), Priority(1), Match::any());
            entry.instructions = Instructions {
                apply_actions: Some(Box::new([Action::Output {
                    port: PortNo::ordinary(2).unwrap(),
                    max_len: 0,
                }])),
                ..Instructions::default()
            };
            control.flow_mod(entry, Time::ZERO, &mut ops).unwrap();
            bridge.publish(&mut ops);
            bridge
        });
        let (from, to) = (backend.memory("m1"), backend.memory("m2"));
        assert!(from.send(&[7; 60]));
        assert!(to.receive().is_none());
        assert_eq!(stepper.forward_round(Time::from_nanos(1)), 1);
        assert_eq!(to.receive().map(|packet| packet.len()), Some(60));
        assert_eq!(stepper.forward_round(Time::from_nanos(2)), 0);
        drop(stepper);
        drop(bridge);
    }
}
