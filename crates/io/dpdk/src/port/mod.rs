//! Network devices: attach one by its devargs, start it, pass each queue to a thread, stop it, detach it.
//!
//! A device is attached from [`Port::attach`] until the [`Port`] and all its queues are dropped. [`Port::start`] makes
//! the queues; while one of them exists the device runs and cannot be stopped, so a worker never polls a stopped
//! device. A [`FlowRule`] keeps the device as it is, too.

mod attach;
mod config;
mod devargs;
mod driver_resources;
mod error;
mod flow;
mod id;
mod info;
mod queue;
mod start;

use std::sync::Arc;

use millrace_dpdk_sys as sys;

pub use config::PortConfig;
pub use devargs::{DevArgs, DevArgsError};
pub use error::{AttachError, PortError, StartError};
pub use flow::{
    FLOW_LEN_MAX, FlowAction, FlowError, FlowHeader, FlowItem, FlowOffload, FlowRule, FlowSpec, Flows,
};
pub use id::PortId;
pub use info::{Link, PortInfo, PortStats};
pub use queue::{RxQueue, TxLimits, TxQueue};

use crate::{Eal, Mempool};
use attach::Device;

/// The queues of a started port; each belongs to one thread.
#[derive(Debug)]
pub struct Queues {
    /// The receive queues, by number.
    pub rx: Vec<RxQueue>,
    /// The transmit queues, by number.
    pub tx: Vec<TxQueue>,
}

/// An attached device. When it and all its queues are dropped, the device is stopped, closed and detached.
#[derive(Debug)]
pub struct Port {
    device: Arc<Device>,
}

impl Port {
    /// Attaches a device, such as `0000:03:00.0` or `net_af_packet0,iface=eth1`. Takes up to several seconds for a
    /// NIC.
    ///
    /// # Errors
    /// [`AttachError`]; nothing is attached then.
    pub fn attach(eal: Eal, devargs: &DevArgs) -> Result<Self, AttachError> {
        Ok(Self {
            device: Arc::new(Device::attach(eal, devargs)?),
        })
    }

    /// Stops, closes and detaches the device, and returns a failure. Dropping the port does the same, and
    /// logs a failure.
    ///
    /// # Errors
    /// [`PortError::QueuesInUse`], [`PortError::FlowRules`]: the device is detached when the last of its queues and flow
    /// rules is dropped.
    /// [`PortError::Device`]: the driver failed.
    pub fn detach(self) -> Result<(), PortError> {
        let in_use = self.in_use();
        Arc::into_inner(self.device).ok_or(in_use)?.detach()
    }

    /// Starts the device with `pool` for received packets, and returns its queues.
    ///
    /// `net_af_xdp` takes 2,048 buffers for each queue and does not return them when the port is detached.
    ///
    /// # Errors
    /// [`StartError`]; the device is stopped then, except after [`StartError::Running`] and
    /// [`StartError::FlowRules`]. After [`StartError::Detach`] and [`StartError::Attach`] the port has no device: other
    /// calls fail, and the next start tries to attach the device again.
    pub fn start(&mut self, config: &PortConfig, pool: Mempool) -> Result<Queues, StartError> {
        let port = self.name().to_owned();
        let in_use = if self.has_only_flow_rules() {
            StartError::FlowRules { port }
        } else {
            StartError::Running { port }
        };
        let device = Arc::get_mut(&mut self.device)
            .filter(|device| !device.is_started())
            .ok_or(in_use)?;
        let chains = start::start(device, config, pool)?;
        let rx = (0..config.rx_queues).map(|queue| RxQueue::new(Arc::clone(&self.device), queue));
        let tx = (0..config.tx_queues)
            .map(|queue| TxQueue::new(Arc::clone(&self.device), queue, chains, config.tx_limits));
        Ok(Queues {
            rx: rx.collect(),
            tx: tx.collect(),
        })
    }

    /// Stops the device after all its queues and flow rules have been dropped. It can be started again.
    ///
    /// # Errors
    /// [`PortError`]
    pub fn stop(&mut self) -> Result<(), PortError> {
        let in_use = self.in_use();
        Arc::get_mut(&mut self.device).ok_or(in_use)?.stop()
    }

    /// Returns true if the device has flow rules and no queues.
    fn has_only_flow_rules(&self) -> bool {
        let rules = self.device.flow_rules();
        rules > 0 && Arc::strong_count(&self.device) == 1 + rules
    }

    /// Returns the error of an operation that is not possible while queues or flow rules exist.
    fn in_use(&self) -> PortError {
        let port = self.name().to_owned();
        if self.has_only_flow_rules() {
            PortError::FlowRules { port }
        } else {
            PortError::QueuesInUse { port }
        }
    }

    /// Returns the device's name: the PCI address, or the first word of the devargs.
    #[must_use]
    pub fn name(&self) -> &str {
        self.device.name()
    }

    /// Returns DPDK's port number, which is also in [`crate::Mbuf::port`] of its packets.
    #[must_use]
    pub fn id(&self) -> PortId {
        self.device.id()
    }

    /// Returns the properties and capabilities of the device.
    ///
    /// # Errors
    /// [`PortError::Device`]
    pub fn info(&self) -> Result<PortInfo, PortError> {
        PortInfo::read(&self.device)
    }

    /// Returns the existing kernel interface whose frames the port receives and sends, if there is one.
    pub fn kernel_interface(&self) -> Option<&str> {
        self.device.kernel_interface()
    }

    /// Returns the state and speed of the link, without waiting for it.
    ///
    /// # Errors
    /// [`PortError::Device`]
    pub fn link(&self) -> Result<Link, PortError> {
        Link::read(&self.device)
    }

    /// Returns the state and speed of the link as the driver knows them. Most drivers of a kernel interface report a link
    /// that is always up.
    ///
    /// # Errors
    /// [`PortError::Device`]
    pub fn driver_link(&self) -> Result<Link, PortError> {
        Link::of_driver(&self.device)
    }

    /// Returns the counters since the device was attached or [`Self::reset_stats`] was called.
    ///
    /// # Errors
    /// [`PortError::Device`]
    pub fn stats(&self) -> Result<PortStats, PortError> {
        PortStats::read(&self.device)
    }

    /// Sets the counters to zero.
    ///
    /// # Errors
    /// [`PortError::Device`]; not every driver can.
    pub fn reset_stats(&self) -> Result<(), PortError> {
        // SAFETY: the number is that of the attached device, or one that DPDK refuses.
        self.device.check("reset the counters", unsafe {
            sys::rte_eth_stats_reset(self.id().0)
        })?;
        self.device.reset_dropped();
        Ok(())
    }

    /// Enables or disables promiscuous mode.
    ///
    /// # Errors
    /// [`PortError::Device`]; not every driver can.
    pub fn set_promiscuous(&mut self, on: bool) -> Result<(), PortError> {
        let code = if on {
            // SAFETY: the number is that of the attached device, or one that DPDK refuses.
            unsafe { sys::rte_eth_promiscuous_enable(self.id().0) }
        } else {
            // SAFETY: the number is that of the attached device, or one that DPDK refuses.
            unsafe { sys::rte_eth_promiscuous_disable(self.id().0) }
        };
        self.device.check("change promiscuous mode", code)
    }

    /// Sets the administrative state of the link.
    ///
    /// # Errors
    /// [`PortError::Device`]; not every driver can.
    pub fn set_link(&mut self, up: bool) -> Result<(), PortError> {
        let code = if up {
            // SAFETY: the number is that of the attached device, or one that DPDK refuses.
            unsafe { sys::rte_eth_dev_set_link_up(self.id().0) }
        } else {
            // SAFETY: the number is that of the attached device, or one that DPDK refuses.
            unsafe { sys::rte_eth_dev_set_link_down(self.id().0) }
        };
        self.device.check("change the link", code)
    }

    /// Returns the current MTU in bytes.
    ///
    /// # Errors
    /// [`PortError::Device`]
    pub fn mtu(&self) -> Result<u16, PortError> {
        let mut mtu = 0;
        // SAFETY: the number is that of the attached device, or one that DPDK refuses;
        // `mtu` is writable.
        self.device.check("read the MTU", unsafe {
            sys::rte_eth_dev_get_mtu(self.id().0, &raw mut mtu)
        })?;
        Ok(mtu)
    }
}
