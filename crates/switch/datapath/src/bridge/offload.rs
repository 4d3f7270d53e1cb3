//! Offload of a bridge's ports to their devices.

use std::sync::Arc;

use millrace_flow::{FlowKey, FlowMask};
use millrace_nic::reading::Reading;
use millrace_offload::Load;
use millrace_pipeline::{Forwarding, MarkLevel, MarkObstacle};
use millrace_types::PortNo;

use super::Bridge;
use super::port::BridgePort;
use crate::io::Backend;
use crate::offload::key::entry_bits;
use crate::offload::port::{DropCount, MarkSetup, PortOffload, WorkerChange};
use crate::offload::{DeviceOperation, MarkedKey, OffloadBy, OffloadEntries, OffloadSettings, OffloadStatus};
use crate::worker::{Command, PortMarks};

impl<B: Backend> Bridge<B> {
    /// Sets the use of the entries of a port's device, or ends it. Settings that are as before change nothing; others end the
    /// distrust of the device. Returns false if there is no such port, or its device has no entries.
    pub fn set_offload(&mut self, port: PortNo, settings: Option<OffloadSettings>) -> bool {
        let (workers, now) = (self.workers.len(), self.now());
        let held = self.ports.get(&port).and_then(|port| port.offload.as_ref());
        if held.map(|offload| *offload.settings()) != settings {
            self.end_drops_of(port);
        }
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
            match settings {
                Some(_) => self.offloading.insert(port),
                None => self.offloading.remove(&port),
            };
            state.offload = settings.map(|settings| Box::new(PortOffload::new(settings, workers)));
            self.send_marks(port, &WorkerChange::Setup(None));
        }
        true
    }

    /// Runs planners and governors of all ports, and submits operations to their devices. To be called some times in a tenth of a
    /// second; never waits.
    pub fn run_offload(&mut self) {
        if self.offloading.is_empty() {
            return;
        }
        let (now, bits) = (self.now(), self.forwarding().match_bits());
        let load = self.workers.iter().fold(Load::default(), |load, worker| Load {
            packets: load.packets + worker.counters.packets.read(),
            busy_nanos: load.busy_nanos + worker.counters.busy_nanos.read(),
        });
        let (mut all, mut dropped) = (Vec::new(), Vec::new());
        let forwarding = self.writer.read();
        for number in &self.offloading {
            let Some(port) = self.ports.get_mut(number) else {
                continue;
            };
            let is_obstructed = drop_obstacle(forwarding, *number, port);
            if let (Some(offload), Some(device)) = (&mut port.offload, port.device.offload()) {
                let changes = offload.tick(device, bits, load, now);
                all.extend(changes.into_iter().map(|change| (*number, change)));
                offload.tick_drops(forwarding, is_obstructed);
                dropped.push((*number, offload.take_drop_counts()));
            }
        }
        for (port, change) in all {
            self.send_marks(port, &change);
        }
        for (port, counts) in dropped {
            self.count_dropped(port, counts);
        }
    }

    /// Ends the drops of devices that the tables do not ask for any more, and waits for it. Packets that were dropped until then
    /// are counted by the entries of before.
    pub(super) fn end_changed_drops(&mut self) {
        let forwarding = self.writer.read();
        let mut dropped = Vec::new();
        for number in &self.offloading {
            let Some(port) = self.ports.get_mut(number) else {
                continue;
            };
            if !port.offload.as_ref().is_some_and(|offload| offload.has_drops()) {
                continue;
            }
            let is_obstructed = drop_obstacle(forwarding, *number, port);
            if let Some(offload) = &mut port.offload {
                offload.end_changed_drops(forwarding, is_obstructed);
                dropped.push((*number, offload.take_drop_counts()));
            }
        }
        for (port, counts) in dropped {
            self.count_dropped(port, counts);
        }
    }

    /// Ends the drops of a port's device, and counts them.
    pub(super) fn end_drops_of(&mut self, port: PortNo) {
        let offload = self.ports.get_mut(&port).and_then(|port| port.offload.as_mut());
        let counts = offload.map_or_else(Vec::new, |offload| {
            offload.end_drops();
            offload.take_drop_counts()
        });
        self.count_dropped(port, counts);
    }

    /// Counts packets that the device of a port dropped, as the worker that received them would have.
    fn count_dropped(&self, port: PortNo, counts: Vec<DropCount>) {
        let now = self.now();
        for DropCount { path, packets, bytes } in counts {
            path.count(&self.counters, packets, bytes, now);
            if let Some(port) = self.ports.get(&port) {
                port.control_counters.rx_packets.add(packets);
                port.control_counters.rx_bytes.add(bytes);
            }
        }
    }

    /// Returns the state of the offload of a port; `None` if it has none.
    pub fn offload_status(&self, port: PortNo) -> Option<OffloadStatus> {
        let state = self.ports.get(&port)?;
        let mut status = state.offload.as_ref()?.status();
        if status.level != MarkLevel::Dispatch
            && let Some(obstacle) = mark_obstacle(self.forwarding(), port, state)
        {
            (status.level, status.by) = (MarkLevel::Dispatch, OffloadBy::Obstacle(obstacle));
        }
        Some(status)
    }

    /// Returns the mark that a port's device puts beside packets with this key, if it does.
    pub fn mark_of(&self, port: PortNo, key: &FlowKey) -> Option<MarkedKey> {
        let state = self.ports.get(&port)?;
        let marked = state.offload.as_ref()?.mark_of(key)?;
        Some(match mark_obstacle(self.forwarding(), port, state) {
            None => marked,
            Some(_) => MarkedKey {
                level: MarkLevel::Dispatch,
                ..marked
            },
        })
    }

    /// Returns the entries that a port's device has; `None` if the port has no offload.
    pub fn offload_entries(&self, port: PortNo) -> Option<OffloadEntries> {
        let state = self.ports.get(&port)?;
        let entries = state.offload.as_ref()?.entries();
        Some(match mark_obstacle(self.forwarding(), port, state) {
            None => entries,
            Some(_) => OffloadEntries {
                level: MarkLevel::Dispatch,
                ..entries
            },
        })
    }

    /// Returns the registers of a port's device, none while it is away; `None` if the port's device has none.
    pub fn registers(&self, port: PortNo) -> Option<Vec<Reading>> {
        self.ports.get(&port)?.device.registers()
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

/// Returns the setting because of which marks of a port are not used, if there is one.
fn mark_obstacle(forwarding: &Forwarding, number: PortNo, port: &BridgePort) -> Option<&'static str> {
    if port.policed.is_some() {
        Some("policer")
    } else if port
        .retas
        .iter()
        .any(|reta| reta.is_on() && reta.receiver().is_some())
    {
        Some("spread")
    } else {
        forwarding.mark_obstacle(number).map(MarkObstacle::name)
    }
}

/// Returns true if a device must not drop packets of a port: marks of its packets are not used.
fn drop_obstacle(forwarding: &Forwarding, number: PortNo, port: &BridgePort) -> bool {
    port.lag.is_some() || mark_obstacle(forwarding, number, port).is_some()
}
