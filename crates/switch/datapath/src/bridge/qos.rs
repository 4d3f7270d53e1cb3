//! How fast packets leave the ports of a bridge and in which order, and how fast they may come.

use std::sync::Arc;

use millrace_pipeline::{ColorCount, Policer, PolicerPlan};
use millrace_types::PortNo;

use super::Bridge;
use crate::io::Backend;
use crate::schedule::{PortPlan, QueueStatus, Scheduler};
use crate::turn::Turn;
use crate::worker::{Policing, Wish};

impl<B: Backend> Bridge<B> {
    /// Has the packets that leave by a port wait in queues for their turn; or no longer, if the plan is plain. It may be
    /// changed at any time: what waits in queues that stay goes on waiting, with its counters, and what waited in
    /// others goes to queue 0. Returns whether there is such a port.
    pub fn schedule(&mut self, port: PortNo, plan: &PortPlan) -> bool {
        let now = self.now();
        let Some(held) = self.ports.get_mut(&port) else {
            return false;
        };
        if plan.is_plain() && held.queues.is_empty() {
            return true;
        }
        let counters = held.queues.change(plan, now);
        for (number, worker) in self.workers.iter().enumerate() {
            let turn = if plan.is_plain() {
                Turn::End
            } else if number == held.owner {
                Turn::Own(Box::new(Scheduler::new(plan, &counters, now)))
            } else {
                Turn::Give(self.workers[held.owner].inbox.clone())
            };
            worker.wish(Wish::Turn {
                bridge: self.number,
                port,
                turn,
            });
        }
        true
    }

    /// The queues of a port, by their numbers; none if its packets are not scheduled, or if there is no such port.
    pub fn queues(&self, port: PortNo) -> Vec<QueueStatus> {
        self.ports
            .get(&port)
            .map(|port| port.queues.read())
            .unwrap_or_default()
    }

    /// Polices what comes in by a port, or no longer. Counters stay until it is policed no longer. Returns whether
    /// there is such a port.
    pub fn police(&mut self, port: PortNo, plan: Option<&PolicerPlan>) -> bool {
        let now = self.now();
        let Some(held) = self.ports.get_mut(&port) else {
            return false;
        };
        let policing = plan.map(|plan| Policing {
            policer: Arc::new(Policer::new(*plan, now)),
            counters: held.policed.clone().unwrap_or_default(),
        });
        held.policed = policing.as_ref().map(|policing| Arc::clone(&policing.counters));
        for worker in &*self.workers {
            worker.wish(Wish::Police {
                bridge: self.number,
                port,
                policing: policing.clone(),
            });
        }
        true
    }

    /// What the policer of a port counted of green, yellow and red packets, if it has one.
    pub fn policed(&self, port: PortNo) -> Option<[ColorCount; 3]> {
        Some(self.ports.get(&port)?.policed.as_ref()?.read())
    }
}
