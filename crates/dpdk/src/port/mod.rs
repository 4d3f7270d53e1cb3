//! Network devices: attach one by its devargs, start it, hand each queue to a thread, stop it, detach it.
//!
//! A [`Port`] is attached from [`Port::attach`] until it and all its queues are dropped. [`Port::start`] makes the
//! queues; while one of them lives the device runs and cannot be stopped, so a worker never polls a stopped device.

mod attach;
mod devargs;
mod error;
mod info;
mod queue;

use std::fmt;
use std::sync::Arc;

use millrace_dpdk_sys as sys;

pub use devargs::{DevArgs, DevArgsError};
pub use error::{AttachError, PortError, StartError};
use info::driver_name;
pub use info::{Link, PortInfo, PortStats};
pub use queue::{RxQueue, TxQueue};

use crate::{Eal, Errno, Mempool};
use attach::Device;

/// DPDK's number of a port; given again to another device after a detach.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortId(pub(crate) u16);

impl PortId {
    /// The number.
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

/// How a port is to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortConfig {
    /// Receive queues, at least one.
    pub rx_queues: u16,
    /// Transmit queues, at least one.
    pub tx_queues: u16,
    /// Packets that a receive queue holds; moved to the nearest that the device can.
    pub rx_descriptors: u16,
    /// Packets that a transmit queue holds; moved to the nearest that the device can.
    pub tx_descriptors: u16,
    /// The longest packet without Ethernet header, bytes; the device's own where `None`.
    pub mtu: Option<u16>,
    /// Receive frames for any address: a switch does.
    pub promiscuous: bool,
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
        }
    }
}

/// What [`Port::start`] hands out: each queue belongs to one thread.
#[derive(Debug)]
pub struct Queues {
    /// In the order of their numbers.
    pub rx: Vec<RxQueue>,
    /// In the order of their numbers.
    pub tx: Vec<TxQueue>,
}

/// A device that this process has attached. When it and all its queues are dropped the device is stopped, closed and
/// detached.
#[derive(Debug)]
pub struct Port {
    device: Arc<Device>,
}

/// Drivers that take chains of segments without saying so: one frees them, the other gathers them into its file.
const CHAINING_DRIVERS: [&str; 2] = ["net_null", "net_pcap"];

/// Bytes of a frame beside its MTU, where the driver names no other: Ethernet header and checksum.
const FRAME_OVERHEAD: usize = 18;

impl Port {
    /// Attaches a device: `0000:03:00.0`, or `net_af_packet0,iface=eth1` or any other of DPDK's virtual devices.
    /// Takes up to some seconds for a NIC.
    ///
    /// # Errors
    /// [`AttachError`]; nothing is attached then.
    pub fn attach(eal: Eal, devargs: &DevArgs) -> Result<Self, AttachError> {
        Ok(Self {
            device: Arc::new(Device::attach(eal, devargs)?),
        })
    }

    /// Stops, closes and detaches the device, and says whether that worked. (Dropping it does the same, and logs.)
    ///
    /// # Errors
    /// [`PortError::QueuesInUse`]: the device is detached when the last of its queues is dropped.
    /// [`PortError::Device`]: the driver refused.
    pub fn detach(self) -> Result<(), PortError> {
        let name = self.name().to_owned();
        Arc::into_inner(self.device)
            .ok_or(PortError::QueuesInUse { port: name })?
            .detach()
    }

    /// Starts the device with buffers from `pool` for what it receives, and hands out its queues.
    ///
    /// # Errors
    /// [`StartError`]; the device is stopped then.
    pub fn start(&mut self, config: &PortConfig, pool: Mempool) -> Result<Queues, StartError> {
        let port = self.name().to_owned();
        let Some(device) = Arc::get_mut(&mut self.device) else {
            return Err(StartError::Running { port });
        };
        if device.is_started() {
            return Err(StartError::Running { port });
        }
        let info = device.info().map_err(|errno| StartError::Device {
            port: port.clone(),
            step: "info",
            errno,
        })?;
        check(&info, config, &port)?;
        start_device(device, &info, config, pool).map_err(|(step, errno)| StartError::Device {
            port,
            step,
            errno,
        })?;
        // Drivers that cannot send a chain of segments get packets in one piece.
        let chains = info.tx_multi_segs != 0 || CHAINING_DRIVERS.contains(&driver_name(&info).as_str());
        let rx = (0..config.rx_queues).map(|queue| RxQueue::new(Arc::clone(&self.device), queue));
        let tx = (0..config.tx_queues).map(|queue| TxQueue::new(Arc::clone(&self.device), queue, chains));
        Ok(Queues {
            rx: rx.collect(),
            tx: tx.collect(),
        })
    }

    /// Stops the device, when all its queues have been dropped. It can be started again.
    ///
    /// # Errors
    /// [`PortError`]
    pub fn stop(&mut self) -> Result<(), PortError> {
        let port = self.name().to_owned();
        Arc::get_mut(&mut self.device)
            .ok_or(PortError::QueuesInUse { port })?
            .stop()
    }

    /// The device's name: the PCI address, or the first word of the devargs.
    #[must_use]
    pub fn name(&self) -> &str {
        self.device.name()
    }

    /// DPDK's number for it, which [`crate::Mbuf::port`] of its packets is.
    #[must_use]
    pub fn id(&self) -> PortId {
        self.device.id()
    }

    /// What the device is and can do.
    ///
    /// # Errors
    /// [`PortError::Device`]
    pub fn info(&self) -> Result<PortInfo, PortError> {
        PortInfo::read(&self.device)
    }

    /// Whether the link is up, and how fast; does not wait for it to settle.
    ///
    /// # Errors
    /// [`PortError::Device`]
    pub fn link(&self) -> Result<Link, PortError> {
        Link::read(&self.device)
    }

    /// Counters since the device was attached or [`Self::reset_stats`] was called.
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
        // SAFETY: the port is attached as long as `device` lives.
        self.device.check("reset the counters", unsafe {
            sys::rte_eth_stats_reset(self.id().0)
        })
    }

    /// Receives frames for any address, or only for its own.
    ///
    /// # Errors
    /// [`PortError::Device`]; not every driver can.
    pub fn set_promiscuous(&mut self, on: bool) -> Result<(), PortError> {
        let code = if on {
            // SAFETY: the port is attached as long as `device` lives.
            unsafe { sys::rte_eth_promiscuous_enable(self.id().0) }
        } else {
            // SAFETY: the port is attached as long as `device` lives.
            unsafe { sys::rte_eth_promiscuous_disable(self.id().0) }
        };
        self.device.check("change promiscuous mode", code)
    }

    /// Takes the link up or down, as an administrator does.
    ///
    /// # Errors
    /// [`PortError::Device`]; not every driver can.
    pub fn set_link(&mut self, up: bool) -> Result<(), PortError> {
        let code = if up {
            // SAFETY: the port is attached as long as `device` lives.
            unsafe { sys::rte_eth_dev_set_link_up(self.id().0) }
        } else {
            // SAFETY: the port is attached as long as `device` lives.
            unsafe { sys::rte_eth_dev_set_link_down(self.id().0) }
        };
        self.device.check("change the link", code)
    }

    /// The longest packet it takes now, without Ethernet header, bytes.
    ///
    /// # Errors
    /// [`PortError::Device`]
    pub fn mtu(&self) -> Result<u16, PortError> {
        let mut mtu = 0;
        // SAFETY: the port is attached as long as `device` lives, and `mtu` is there to be written.
        self.device.check("read the MTU", unsafe {
            sys::rte_eth_dev_get_mtu(self.id().0, &raw mut mtu)
        })?;
        Ok(mtu)
    }
}

fn check(info: &sys::shim_port_info, config: &PortConfig, port: &str) -> Result<(), StartError> {
    let queues = [
        ("receive", config.rx_queues, info.max_rx_queues),
        ("transmit", config.tx_queues, info.max_tx_queues),
    ];
    for (direction, asked, max) in queues {
        if asked == 0 || asked > max {
            return Err(StartError::Queues {
                port: port.to_owned(),
                direction,
                asked,
                max,
            });
        }
    }
    match config.mtu {
        Some(asked) if asked < info.min_mtu || (info.max_mtu != 0 && asked > info.max_mtu) => {
            Err(StartError::Mtu {
                port: port.to_owned(),
                asked,
                min: info.min_mtu,
                max: info.max_mtu,
            })
        }
        _ => Ok(()),
    }
}

fn start_device(
    device: &mut Device,
    info: &sys::shim_port_info,
    config: &PortConfig,
    pool: Mempool,
) -> Result<(), (&'static str, Errno)> {
    let id = device.id().0;
    let step = |step: &'static str, code: i32| Errno::check(code).map(|_| ()).map_err(|errno| (step, errno));
    let optional = |name: &'static str, code: i32| match step(name, code) {
        Err((_, errno)) if errno.is(nix::errno::Errno::ENOTSUP) => Ok(()),
        outcome => outcome,
    };
    let frame = usize::from(config.mtu.unwrap_or(1500)) + FRAME_OVERHEAD;
    let wanted = sys::shim_port_conf {
        rx_queues: config.rx_queues,
        tx_queues: config.tx_queues,
        mtu: config.mtu.unwrap_or(0),
        scatter: u8::from(frame > pool.segment_size()),
        multi_segs: 1,
        rss: u8::from(info.rss_types != 0),
    };
    // SAFETY: the port is attached and stopped, and `&mut Device` keeps others out; the same holds for each below.
    step("configure", unsafe {
        sys::shim_port_configure(id, &raw const wanted)
    })?;
    if let Some(mtu) = config.mtu {
        // SAFETY: as above.
        optional("set the MTU", unsafe { sys::rte_eth_dev_set_mtu(id, mtu) })?;
    }
    let (mut rx_len, mut tx_len) = (config.rx_descriptors, config.tx_descriptors);
    // SAFETY: as above; both numbers are there to be written.
    let code = unsafe { sys::rte_eth_dev_adjust_nb_rx_tx_desc(id, &raw mut rx_len, &raw mut tx_len) };
    step("choose descriptors", code)?;
    // SAFETY: as above.
    let socket = unsafe { sys::rte_eth_dev_socket_id(id) }.cast_unsigned();
    let defaults = std::ptr::null();
    for queue in 0..config.rx_queues {
        // SAFETY: as above; the pool lives as long as the process.
        let code = unsafe { sys::rte_eth_rx_queue_setup(id, queue, rx_len, socket, defaults, pool.as_raw()) };
        step("set up a receive queue", code)?;
    }
    for queue in 0..config.tx_queues {
        // SAFETY: as above.
        let code = unsafe { sys::rte_eth_tx_queue_setup(id, queue, tx_len, socket, std::ptr::null()) };
        step("set up a transmit queue", code)?;
    }
    if config.promiscuous {
        // SAFETY: as above.
        optional("promiscuous mode", unsafe { sys::rte_eth_promiscuous_enable(id) })?;
    }
    // SAFETY: as above, and all queues are set up.
    step("start", unsafe { sys::rte_eth_dev_start(id) })?;
    device.set_started();
    Ok(())
}
