//! Offload of a bridge's ports to their devices.

use millrace_flow::FlowKey;
use millrace_offload::Load;
use millrace_types::PortNo;

use super::Bridge;
use crate::io::Backend;
use crate::offload::port::{PortOffload, WorkerChange};
use crate::offload::{MarkedKey, OffloadSettings, OffloadStatus};
use crate::worker::Command;

impl<B: Backend> Bridge<B> {
    /// Sets the use of the entries of a port's device, or ends it. Settings that are as before change nothing; others end the
    /// distrust of the device. Returns false if there is no such port, or its device has no entries.
    pub fn set_offload(&mut self, port: PortNo, settings: Option<OffloadSettings>) -> bool {
        let workers = self.workers.len();
        let Some(state) = self.ports.get_mut(&port) else {
            return false;
        };
        if state.device.offload().is_none() {
            return false;
        }
        if state.offload.as_ref().map(|offload| *offload.settings()) != settings {
            state.offload = settings.map(|settings| Box::new(PortOffload::new(settings, workers)));
            self.send_marks(port, WorkerChange::Setup(None));
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
            self.send_marks(port, change);
        }
    }

    /// Returns the state of the offload of a port; `None` if it has none.
    pub fn offload_status(&self, port: PortNo) -> Option<OffloadStatus> {
        Some(self.ports.get(&port)?.offload.as_ref()?.status())
    }

    /// Returns the mark that a port's device puts beside packets with this key, if it does.
    pub fn mark_of(&self, port: PortNo, key: &FlowKey) -> Option<MarkedKey> {
        self.ports.get(&port)?.offload.as_ref()?.mark_of(key)
    }

    fn send_marks(&self, port: PortNo, change: WorkerChange) {
        for (number, worker) in self.workers.iter().enumerate() {
            worker.send(Command::SetMarks {
                bridge: self.number,
                port,
                worker: number,
                change: change.clone(),
            });
        }
    }
}
