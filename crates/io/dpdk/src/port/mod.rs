//! Network devices: attach one by its devargs, start it, pass each queue to a thread, stop it, detach it.
//!
//! A device is attached from [`Port::attach`] until the [`Port`] and all its queues are dropped. [`Port::start`] makes
//! the queues; while one of them exists the device runs and cannot be stopped, so a worker never polls a stopped
//! device. A [`FlowRule`] keeps the device as it is, too.

mod attach;
mod devargs;
mod driver_resources;
mod error;
mod flow;
mod info;
mod queue;
mod start;

use std::fmt;
use std::sync::Arc;

use millrace_dpdk_sys as sys;

pub use devargs::{DevArgs, DevArgsError};
pub use error::{AttachError, PortError, StartError};
pub use flow::{
    FLOW_LEN_MAX, FlowAction, FlowError, FlowHeader, FlowItem, FlowOffload, FlowRule, FlowSpec, Flows,
};
pub use info::{Link, PortInfo, PortStats};
pub use queue::{RxQueue, TxLimits, TxQueue};

use crate::{Eal, Mempool};
use attach::Device;

/// DPDK's port number, which may be assigned to another device after a detach.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortId(pub(crate) u16);

impl PortId {
    /// A number that no port has, as `RTE_MBUF_PORT_INVALID`: DPDK refuses it with ENODEV.
    pub(crate) const DETACHED: Self = Self(u16::MAX);

    /// Returns the number.
    #[must_use]
    pub fn number(self) -> u16 {
        self.0
    }
}

impl fmt::Display for PortId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The configuration of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortConfig {
    /// The number of receive queues, at least one.
    pub rx_queues: u16,
    /// The number of transmit queues, at least one.
    pub tx_queues: u16,
    /// The number of descriptors of a receive queue; adjusted to the nearest that the device supports.
    pub rx_descriptors: u16,
    /// The number of descriptors of a transmit queue; adjusted to the nearest that the device supports.
    pub tx_descriptors: u16,
    /// The MTU in bytes. `None` keeps the MTU of the device or, with `net_af_packet` and `net_af_xdp`, of the
    /// kernel interface. These two drivers cannot raise it.
    pub mtu: Option<u16>,
    /// True to receive frames for any MAC address, as a switch does.
    pub promiscuous: bool,
    /// Two bytes that are repeated as the RSS key of a device with several receive queues and a Toeplitz
    /// hash. Both directions of a flow then arrive at one queue. The value should be random and not zero.
    pub rss_word: u16,
    /// The limits on sent frames; `None` for a device that sends frames of any size, as most virtual devices
    /// do.
    pub tx_limits: Option<TxLimits>,
}

impl Default for PortConfig {
    fn default() -> Self {
        Self {
            rx_queues: 1,
            tx_queues: 1,
            rx_descriptors: 1024,
            tx_descriptors: 1024,
            mtu: None,
            promiscuous: true,
            // Woo and Park, "Scalable TCP session monitoring with symmetric receive-side scaling" (2012).
            rss_word: 0x6d5a,
            tx_limits: None,
        }
    }
}

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
