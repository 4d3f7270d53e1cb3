//! Quality of service of a bridge's ports: schedulers of sent packets and policers of received ones.

use std::sync::Arc;

use millrace_pipeline::{ColorCount, Policer, PolicerPlan};
use millrace_types::PortNo;

use super::Bridge;
use crate::io::Backend;
use crate::schedule::{PortPlan, QueueStatus, Scheduler};
use crate::scheduled::SchedulerRole;
use crate::worker::{Command, Policing};

impl<B: Backend> Bridge<B> {
    /// Schedules the packets that leave by a port, or ends the scheduling if the plan is plain. The plan may
    /// be changed at any time. Queues that still exist keep their packets and counters; packets of removed
    /// queues move to queue 0. Returns false if there is no such port.
    pub fn schedule(&mut self, port: PortNo, plan: &PortPlan) -> bool {
        let now = self.now();
        let Some(state) = self.ports.get_mut(&port) else {
            return false;
        };
        if plan.is_plain() && state.queues.is_empty() {
            return true;
        }
        let counters = state.queues.change(plan, now);
        for (number, worker) in self.workers.iter().enumerate() {
            let role = if plan.is_plain() {
                SchedulerRole::None
            } else if number == state.owner {
                SchedulerRole::Own(Box::new(Scheduler::new(plan, &counters, now)))
            } else {
                SchedulerRole::Forward(self.workers[state.owner].inbox.clone())
            };
            worker.send(Command::SetSchedulerRole {
                bridge: self.number,
                port,
                role,
            });
        }
        true
    }

    /// Returns the queues of a port, by number; none if its packets are not scheduled, or if there is no such port.
    pub fn queues(&self, port: PortNo) -> Vec<QueueStatus> {
        self.ports
            .get(&port)
            .map(|port| port.queues.read())
            .unwrap_or_default()
    }

    /// Polices the packets that a port receives; `None` ends policing. The counters exist until policing
    /// ends. Returns false if there is no such port.
    pub fn police(&mut self, port: PortNo, plan: Option<&PolicerPlan>) -> bool {
        let now = self.now();
        let Some(state) = self.ports.get_mut(&port) else {
            return false;
        };
        let policing = plan.map(|plan| Policing {
            policer: Arc::new(Policer::new(*plan, now)),
            counters: state
                .policed
                .as_ref()
                .map(|policing| Arc::clone(&policing.counters))
                .unwrap_or_default(),
        });
        state.policed.clone_from(&policing);
        for worker in &*self.workers {
            worker.send(Command::SetPolicing {
                bridge: self.number,
                port,
                policing: policing.clone(),
            });
        }
        true
    }

    /// Returns the number of green, yellow and red packets that the policer of a port counted, if it has one.
    pub fn policed(&self, port: PortNo) -> Option<[ColorCount; 3]> {
        Some(self.ports.get(&port)?.policed.as_ref()?.counters.read())
    }
}
