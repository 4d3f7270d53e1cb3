//! The ports of a bridge: opens their devices, and distributes the queues over the workers.

use std::collections::BTreeSet;
use std::io;
use std::sync::{Arc, mpsc};

use millrace_types::{Mac, PortNo};

use super::Bridge;
use super::port::{AddPortError, BridgePort};
use crate::counters::{PortCounters, PortStats};
use crate::io::steer::label_rules;
use crate::io::{
    Backend, BucketTable, Burst, ChangeReporter, Device, DeviceInfo, DeviceOptions, DeviceSpec, DeviceStats,
    Opened, TxQueue,
};
use crate::lag::LagMember;
use crate::schedule::PortQueues;
use crate::tx_port::{TxPath, TxPort};
use crate::worker::{Command, RxPort};

impl<B: Backend> Bridge<B> {
    /// Opens a device, and attaches its queues to the workers. The caller must have added the port to the
    /// pipeline and published this change ([`Op`](millrace_pipeline::Op)), because packets from an unknown
    /// port are dropped. When this returns, every worker can send to the port.
    ///
    /// # Errors
    /// [`AddPortError`].
    pub fn add_port(
        &mut self,
        port: PortNo,
        spec: &DeviceSpec,
        options: DeviceOptions,
    ) -> Result<(), AddPortError> {
        if self.ports.contains_key(&port) {
            return Err(AddPortError::Exists(port));
        }
        let opened = self.backend.open(spec, options)?;
        self.attach_port(port, opened)
    }

    /// Adds a port as [`Self::add_port`] does, for a device that is already open: a logical port with packets
    /// from a [`Service`](crate::service::Service). A logical port may have no receive queue.
    ///
    /// # Errors
    /// [`AddPortError::Exists`].
    pub fn attach_port(&mut self, port: PortNo, opened: Opened<B::Packet>) -> Result<(), AddPortError> {
        self.attach(port, opened, None)
    }

    /// Adds a device that is open, as a port, or as a member of a LAG.
    pub(super) fn attach(
        &mut self,
        port: PortNo,
        opened: Opened<B::Packet>,
        lag: Option<PortNo>,
    ) -> Result<(), AddPortError> {
        if self.ports.contains_key(&port) {
            return Err(AddPortError::Exists(port));
        }
        let Opened { rx, tx, mut device } = opened;
        spread_labels(&mut *device, rx.len());
        if device.delivers_gso() {
            self.expect_gso();
        }
        let counters: Vec<Arc<PortCounters>> = self.workers.iter().map(|_| Arc::default()).collect();
        // Ports start at different workers, so that ports with one queue spread over all of them.
        let owner = self.ports.len() % self.workers.len();
        self.add_tx_port(port, owner, tx, &counters, lag);
        let policed = lag.and_then(|lag| self.ports.get(&lag)?.policed.clone());
        let rx_len = rx.len();
        let rx_workers: Vec<usize> = (0..rx_len).map(|i| (owner + i) % self.workers.len()).collect();
        // Members of LAGs share a port, and so do their tables: theirs are those of software.
        let spreading = self.spreading.as_ref();
        let table = spreading
            .filter(|_| lag.is_none())
            .map(|spreading| spreading.device(&rx_workers))
            .filter(|table| {
                let table: Arc<dyn BucketTable> = table.clone();
                device.follow(&table)
            });
        if let (Some(spreading), Some(table)) = (spreading, &table) {
            spreading.balance(table);
        }
        let mut retas: Vec<_> = table.iter().cloned().collect();
        for (queue, worker) in rx.into_iter().zip(rx_workers.iter().copied()) {
            let spread = spreading
                .filter(|_| table.is_none())
                .map(|spreading| spreading.queue(worker, rx_len));
            let (reta, spreader) = spread.unzip();
            retas.extend(reta);
            let rx = RxPort {
                port: lag.unwrap_or(port),
                queue,
                counters: Arc::clone(&counters[worker]),
                spreader,
                policing: policed.clone(),
                backpressure: false,
                waits_for: None,
                is_segmenting: false,
                member: lag.map(|_| LagMember::new(port)),
                marks: None,
                has_column: false,
            };
            self.workers[worker].send(Command::AddRxPort {
                bridge: self.number,
                port: Box::new(rx),
            });
        }
        let reporter = ChangeReporter::new(port, &self.changed);
        if !device.report_changes(&reporter) {
            self.silent.insert(port);
        }
        // A device that was opened again in its port's life may have another link.
        reporter.report();
        self.ports.insert(
            port,
            BridgePort {
                device,
                counters,
                control_counters: PortCounters::default(),
                rx_workers,
                retas,
                owner,
                queues: PortQueues::default(),
                policed: None,
                lag,
                offload: None,
                past: PortStats::default(),
            },
        );
        Ok(())
    }

    /// Distributes the transmit queues over the workers, one for each, beginning with `owner`. Workers
    /// without a queue send through the inbox of `owner`. Returns when all workers can send to the port;
    /// before that, packets to it would be dropped.
    fn add_tx_port(
        &self,
        port: PortNo,
        owner: usize,
        tx: Vec<Box<dyn TxQueue<B::Packet>>>,
        counters: &[Arc<PortCounters>],
        lag: Option<PortNo>,
    ) {
        debug_assert!(!tx.is_empty(), "port {port} has no transmit queue");
        let workers = self.workers.len();
        let has_other_queues = tx.len().min(workers) > 1;
        let mut queues: Vec<_> = self.workers.iter().map(|_| None).collect();
        for (i, queue) in tx.into_iter().take(workers).enumerate() {
            queues[(owner + i) % workers] = Some(queue);
        }
        let (done, back) = mpsc::sync_channel(1);
        for ((worker, queue), counters) in self.workers.iter().zip(queues).zip(counters) {
            let path = match queue {
                Some(queue) => TxPath::Queue(queue),
                None => TxPath::Worker(self.workers[owner].inbox.clone()),
            };
            let tx = TxPort {
                port,
                path,
                counters: Arc::clone(counters),
                buffer: Box::new(Burst::new()),
                is_behind: false,
                has_other_queues,
                parked: None,
                lag,
            };
            worker.send(Command::AddTxPort {
                bridge: self.number,
                port: Box::new(tx),
                done: done.clone(),
            });
        }
        drop(done);
        while back.recv().is_ok() {}
    }

    /// Prepares all workers for GSO packets, and returns when they are prepared.
    fn expect_gso(&self) {
        let (done, back) = mpsc::sync_channel(1);
        for worker in &*self.workers {
            worker.send(Command::ExpectGso { done: done.clone() });
        }
        drop(done);
        while back.recv().is_ok() {}
    }

    /// Switches backpressure of a port on or off. With backpressure, the port's packets stay in its device
    /// while the output port of the last burst has no room. Without backpressure, which is the default,
    /// packets without room are dropped. The output port must have a transmit queue in the worker that receives
    /// the packets, and no scheduler (ADR 6). Packets to other ports, and packets that a worker hands off, are
    /// dropped as without backpressure. All packets of the port wait, whatever their destination.
    /// Returns false if there is no such port.
    pub fn set_backpressure(&mut self, port: PortNo, enabled: bool) -> bool {
        for worker in &*self.workers {
            worker.send(Command::SetBackpressure {
                bridge: self.number,
                port,
                enabled,
            });
        }
        self.ports.contains_key(&port)
    }

    /// Removes a port from the workers and closes its device. The caller must have removed the port from the pipeline
    /// and published that. Returns false if there was no such port.
    pub fn remove_port(&mut self, port: PortNo) -> bool {
        for member in self.members_of(port) {
            self.remove_port(member);
        }
        self.end_drops_of(port);
        let Some(removed) = self.ports.remove(&port) else {
            return false;
        };
        self.silent.remove(&port);
        self.offloading.remove(&port);
        let (done, back) = mpsc::sync_channel(self.workers.len());
        for worker in &*self.workers {
            worker.send(Command::RemovePort {
                bridge: self.number,
                port,
                done: done.clone(),
            });
        }
        drop(done);
        // All queues come back and are dropped here, before the device.
        while back.recv().is_ok() {}
        if let Some(lag) = removed.lag.and_then(|lag| self.ports.get_mut(&lag)) {
            lag.past.add(&removed.stats());
        }
        self.distributions.remove(&port);
        drop(removed);
        true
    }

    /// Returns the numbers of the open ports, LAGs and members of LAGs.
    pub fn ports(&self) -> impl Iterator<Item = PortNo> + '_ {
        self.ports.keys().copied()
    }

    /// Returns the worker that has the first transmit queue of a port; the others follow in the order of workers.
    pub fn first_tx_worker(&self, port: PortNo) -> Option<usize> {
        Some(self.ports.get(&port)?.owner)
    }

    /// Returns the worker, the port and the number of each receive queue.
    pub fn polled(&self) -> Vec<(usize, PortNo, u16)> {
        let queues = |(number, port): (&PortNo, &BridgePort)| {
            let number = *number;
            let workers = port.rx_workers.clone().into_iter().zip(0..);
            workers.map(move |(worker, queue)| (worker, number, queue))
        };
        self.ports.iter().flat_map(queues).collect()
    }

    /// Returns true if a device has reported a change of its properties that [`Self::take_changed`] has not returned.
    pub fn has_changed_ports(&self) -> bool {
        self.changed.has_any()
    }

    /// Returns the ports and members of LAGs whose devices may have other properties than at the last call: those that reported
    /// a change, and all that report none.
    pub fn take_changed(&mut self) -> BTreeSet<PortNo> {
        let mut changed = self.changed.take();
        changed.extend(&self.silent);
        changed
    }

    /// Returns the current properties of a port's device.
    pub fn device_info(&self, port: PortNo) -> Option<DeviceInfo> {
        Some(self.ports.get(&port)?.device.info())
    }

    /// Returns the counters of a port's device.
    pub fn device_stats(&self, port: PortNo) -> Option<DeviceStats> {
        let mut sum = self.ports.get(&port)?.device.stats();
        for member in self
            .members_of(port)
            .iter()
            .filter_map(|member| self.ports.get(member))
        {
            let of_member = member.device.stats();
            sum.rx_missed += of_member.rx_missed;
            sum.rx_errors += of_member.rx_errors;
            sum.rx_no_buffer += of_member.rx_no_buffer;
            sum.tx_errors += of_member.tx_errors;
        }
        Some(sum)
    }

    /// Returns the number of frames that a port's device refused (`Device::refused_frames`).
    pub fn refused_frames(&self, port: PortNo) -> u64 {
        let members = self.members_of(port);
        let devices = members
            .iter()
            .chain([&port])
            .filter_map(|port| self.ports.get(port));
        devices.map(|port| port.device.refused_frames()).sum()
    }

    /// Returns what an operator can do about the refused frames of a port.
    pub fn refusal_remedy(&self, port: PortNo) -> String {
        let members = self.members_of(port);
        let devices = members
            .iter()
            .chain([&port])
            .filter_map(|port| self.ports.get(port));
        let refusing = devices.max_by_key(|port| port.device.refused_frames());
        refusing.map_or_else(String::new, |port| port.device.refusal_remedy())
    }

    /// Returns the sum of the counters of a port: those of the workers, and of packet_outs. Those of a LAG are the sums of
    /// its members, and of the members that it had.
    pub fn port_stats(&self, port: PortNo) -> Option<PortStats> {
        let mut sum = self.ports.get(&port)?.stats();
        for member in self.members_of(port) {
            let member = self.ports.get(&member).map(BridgePort::stats);
            sum.add(&member.unwrap_or_default());
        }
        Some(sum)
    }

    /// Sets a port's link up or down, if its device can; the links of all members of a LAG.
    pub fn set_link(&mut self, port: PortNo, up: bool) {
        for member in self.members_of(port) {
            self.set_link(member, up);
        }
        if let Some(held) = self.ports.get_mut(&port) {
            held.device.set_link(up);
            self.changed.add(port);
        }
    }

    /// Sets the MAC address of a port's device, now and whenever it is made again.
    ///
    /// # Errors
    /// As [`Device::set_mac`].
    pub fn set_mac(&mut self, port: PortNo, mac: Option<Mac>) -> io::Result<()> {
        let Some(held) = self.ports.get_mut(&port) else {
            return Ok(());
        };
        let outcome = held.device.set_mac(mac);
        self.changed.add(port);
        outcome
    }
}

/// Installs rules that spread MPLS over the queues of a device that takes rules and does not hash labels. Called before
/// the workers get the queues: a rule that moves a flow to another queue later could reorder it.
fn spread_labels(device: &mut dyn Device, queues: usize) {
    let rss = device.info().rss;
    let hashes_labels = rss.is_some_and(|types| types.split(',').any(|name| name == "mpls"));
    let Some(steering) = device.steering().filter(|_| queues > 1 && !hashes_labels) else {
        return;
    };
    let rules = label_rules(u16::try_from(queues).unwrap_or(u16::MAX));
    let mut installed = Vec::new();
    for rule in &rules {
        match steering.install(rule) {
            Ok(id) => installed.push(id),
            Err(error) => {
                tracing::debug!(%error, "the device refuses rules for MPLS; all of it comes to one queue");
                // Rules for only some labels would be no better than no rules.
                for id in installed {
                    steering.remove(id);
                }
                return;
            }
        }
    }
}
