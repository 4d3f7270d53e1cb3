//! The LAGs of a bridge: ports whose packets the devices of several members receive and send.

use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, mpsc};

use millrace_types::{Mac, PortNo};

use super::Bridge;
use super::port::{AddPortError, BridgePort};
use crate::counters::{PortCounters, PortStats};
use crate::io::{Backend, Burst, Device, DeviceInfo, DeviceOptions, DeviceSpec, DeviceStats, PortModes};
use crate::lag::{Distribution, Distributor, LagRole};
use crate::schedule::PortQueues;
use crate::tx_port::{TxPath, TxPort};
use crate::worker::{Command, LagState};
use millrace_wire::flow_hash::FlowHash;

/// The place of a device at the port of a LAG, which has none.
struct NoDevice;

impl Device for NoDevice {
    fn info(&self) -> DeviceInfo {
        DeviceInfo {
            driver: "lag".to_owned(),
            mac: Mac::ZERO,
            speed_mbps: None,
            link_up: false,
            modes: PortModes::default(),
            mtu: 0,
            numa_node: None,
            rx_queues: 0,
            rss: None,
            offload: None,
        }
    }

    fn stats(&self) -> DeviceStats {
        DeviceStats::default()
    }

    fn set_link(&mut self, _: bool) {}
}

impl<B: Backend> Bridge<B> {
    /// Adds a LAG without members. The caller must have added the port to the pipeline and published this change. When
    /// this returns, every worker can send to the LAG; the packets are dropped until a member distributes.
    ///
    /// # Errors
    /// [`AddPortError::Exists`].
    pub fn add_lag(&mut self, port: PortNo) -> Result<(), AddPortError> {
        if self.ports.contains_key(&port) {
            return Err(AddPortError::Exists(port));
        }
        let counters: Vec<Arc<PortCounters>> = self.workers.iter().map(|_| Arc::default()).collect();
        let owner = self.ports.len() % self.workers.len();
        // One key for all workers: a flow has one member, whichever worker processes it.
        let hash = FlowHash::new(RandomState::new().hash_one(port));
        let (done, back) = mpsc::sync_channel(1);
        for (worker, counters) in self.workers.iter().zip(&counters) {
            let tx = TxPort {
                port,
                path: TxPath::Lag(Box::new(Distributor::new(hash.clone()))),
                counters: Arc::clone(counters),
                buffer: Box::new(Burst::new()),
                is_behind: false,
                has_other_queues: false,
                parked: None,
                lag: None,
            };
            worker.send(Command::AddTxPort {
                bridge: self.number,
                port: Box::new(tx),
                done: done.clone(),
            });
        }
        drop(done);
        while back.recv().is_ok() {}
        self.distributions.insert(port, Distribution::EMPTY);
        self.ports.insert(
            port,
            BridgePort {
                device: Box::new(NoDevice),
                counters,
                control_counters: PortCounters::default(),
                rx_workers: Vec::new(),
                retas: Vec::new(),
                owner,
                queues: PortQueues::default(),
                policed: None,
                lag: None,
                offload: None,
                past: PortStats::default(),
            },
        );
        Ok(())
    }

    /// Opens a device as a member of a LAG. It neither collects nor distributes until [`Self::set_lag`] says so.
    ///
    /// # Errors
    /// [`AddPortError`].
    pub fn add_member(
        &mut self,
        lag: PortNo,
        member: PortNo,
        spec: &DeviceSpec,
        options: DeviceOptions,
    ) -> Result<(), AddPortError> {
        if self.ports.contains_key(&member) {
            return Err(AddPortError::Exists(member));
        }
        let opened = self.backend.open(spec, options)?;
        self.attach(member, opened, Some(lag))
    }

    /// Sets what the members of a LAG do. When this returns, no worker sends packets of the LAG by a member that does not
    /// distribute. Flows that move to a member that joined follow when no packet can be overtaken.
    pub fn set_lag(&mut self, lag: PortNo, members: &[LagRole]) {
        let Some(distribution) = self.distributions.get_mut(&lag) else {
            return;
        };
        let distributing: Vec<PortNo> = members
            .iter()
            .filter(|member| member.distributes)
            .map(|member| member.number)
            .collect();
        *distribution = distribution.over(&distributing);
        let state = Arc::new(LagState {
            members: members.to_vec(),
            distribution: distribution.clone(),
        });
        let (done, back) = mpsc::sync_channel(1);
        for worker in &*self.workers {
            worker.send(Command::SetLag {
                bridge: self.number,
                port: lag,
                state: Arc::clone(&state),
                done: done.clone(),
            });
        }
        drop(done);
        while back.recv().is_ok() {}
    }

    /// Returns the numbers of the open members of a LAG; none of another port.
    pub(super) fn members_of(&self, lag: PortNo) -> Vec<PortNo> {
        if !self.distributions.contains_key(&lag) {
            return Vec::new();
        }
        let members = self.ports.iter().filter(|(_, port)| port.lag == Some(lag));
        members.map(|(number, _)| *number).collect()
    }
}
