//! Offload of a bridge's ports to their devices.

use std::sync::Arc;

use millrace_flow::{FlowKey, FlowMask};
use millrace_offload::Load;
use millrace_pipeline::{MarkLevel, MarkObstacle};
use millrace_types::PortNo;

use super::Bridge;
use super::port::BridgePort;
use crate::io::Backend;
use crate::offload::key::entry_bits;
use crate::offload::port::{MarkSetup, PortOffload, WorkerChange};
use crate::offload::{DeviceOperation, MarkedKey, OffloadBy, OffloadSettings, OffloadStatus};
use crate::worker::{Command, PortMarks};

impl<B: Backend> Bridge<B> {
    /// Sets the use of the entries of a port's device, or ends it. Settings that are as before change nothing; others end the
    /// distrust of the device. Returns false if there is no such port, or its device has no entries.
    pub fn set_offload(&mut self, port: PortNo, settings: Option<OffloadSettings>) -> bool {
        let (workers, now) = (self.workers.len(), self.now());
        let Some(state) = self.ports.get_mut(&port) else {
            return false;
        };
        let Some(device) = state.device.offload() else {
            return false;
        };
        if state.offload.as_ref().map(|offload| *offload.settings()) != settings {
            if settings.is_none() {
                // Nobody asks for the outcome: entries that stay mark packets whose marks nobody reads.
                let _is_taken = device.submit(DeviceOperation::Reset {
                    number: now.nanos(),
                    mask: entry_bits(&FlowMask::default()),
                });
            }
            state.offload = settings.map(|settings| Box::new(PortOffload::new(settings, workers)));
            self.send_marks(port, &WorkerChange::Setup(None));
        }
        true
    }

    /// Runs planners and governors of all ports, and submits operations to their devices. To be called some times in a tenth of a
    /// second; never waits.
    pub fn run_offload(&mut self) {
        if !self.ports.values().any(|port| port.offload.is_some()) {
            return;
        }
        let (now, bits) = (self.now(), self.forwarding().match_bits());
        let load = self.workers.iter().fold(Load::default(), |load, worker| Load {
            packets: load.packets + worker.counters.packets.read(),
            busy_nanos: load.busy_nanos + worker.counters.busy_nanos.read(),
        });
        let mut all = Vec::new();
        for (number, port) in &mut self.ports {
            if let (Some(offload), Some(device)) = (&mut port.offload, port.device.offload()) {
                let changes = offload.tick(device, bits, load, now);
                all.extend(changes.into_iter().map(|change| (*number, change)));
            }
        }
        for (port, change) in all {
            self.send_marks(port, &change);
        }
    }

    /// Returns the state of the offload of a port; `None` if it has none.
    pub fn offload_status(&self, port: PortNo) -> Option<OffloadStatus> {
        let state = self.ports.get(&port)?;
        let mut status = state.offload.as_ref()?.status();
        if status.level != MarkLevel::Dispatch
            && let Some(obstacle) = self.mark_obstacle(port, state)
        {
            (status.level, status.by) = (MarkLevel::Dispatch, OffloadBy::Obstacle(obstacle));
        }
        Some(status)
    }

    /// Returns the mark that a port's device puts beside packets with this key, if it does.
    pub fn mark_of(&self, port: PortNo, key: &FlowKey) -> Option<MarkedKey> {
        let state = self.ports.get(&port)?;
        let marked = state.offload.as_ref()?.mark_of(key)?;
        Some(match self.mark_obstacle(port, state) {
            None => marked,
            Some(_) => MarkedKey {
                level: MarkLevel::Dispatch,
                ..marked
            },
        })
    }

    /// Returns the setting because of which marks of a port are not used, if there is one.
    fn mark_obstacle(&self, number: PortNo, port: &BridgePort) -> Option<&'static str> {
        if port.policed.is_some() {
            Some("policer")
        } else if port
            .retas
            .iter()
            .any(|reta| reta.is_on() && reta.receiver().is_some())
        {
            Some("spread")
        } else {
            self.forwarding().mark_obstacle(number).map(MarkObstacle::name)
        }
    }

    /// Sends a change to the workers that receive from a port. Each of its queues has slots of its own.
    fn send_marks(&self, port: PortNo, change: &WorkerChange) {
        let queues = self.ports.get(&port).map_or(&[][..], |port| &port.rx_workers);
        for (number, worker) in self.workers.iter().enumerate() {
            let here = queues.iter().filter(|worker| **worker == number);
            let marks = |setup: &Arc<MarkSetup>| PortMarks::new(setup, number);
            worker.send(match change {
                WorkerChange::Setup(setup) => Command::SetMarks {
                    bridge: self.number,
                    port,
                    marks: here.filter_map(|_| setup.as_ref().and_then(marks)).collect(),
                },
                WorkerChange::Slots(changes) => Command::ChangeSlots {
                    bridge: self.number,
                    port,
                    changes: Arc::clone(changes),
                },
            });
        }
    }
}
