//! EAL, packet pool and devices, from the command line.

use millrace_dpdk::eal::HugePages;
use millrace_dpdk::mempool::HEADROOM;
use millrace_dpdk::thread::{self, ThreadError};
use millrace_dpdk::{
    AttachError, CoreId, DevArgsError, Eal, EalConfig, EalError, Mempool, MempoolConfig, MempoolError, Port,
    PortConfig, RxQueue, StartError, TxQueue,
};
use thiserror::Error;

use crate::args::{self, Args};

/// The default data size of a buffer in bytes, without headroom.
const DEFAULT_FRAME_SIZE: usize = 2048;
/// The memory that EAL and drivers need themselves, in MiB.
const EAL_MEMORY_MIB: u64 = 96;

/// An error at the start of the devices.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// EAL does not start.
    #[error(transparent)]
    Eal(#[from] EalError),
    /// The text does not name a device.
    #[error(transparent)]
    DevArgs(#[from] DevArgsError),
    /// The device cannot be attached.
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// The device cannot be started.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The packet pool cannot be allocated.
    #[error(transparent)]
    Pool(#[from] MempoolError),
    /// The poll loop cannot be started.
    #[error(transparent)]
    Thread(#[from] ThreadError),
    /// More devices than a report has counters for.
    #[error("{0} devices: expected at most 8, tx and rx together")]
    TooMany(usize),
}

/// The largest number of devices: a report counts packets for each.
const RX_MAX: usize = 8;

/// The running devices.
pub(crate) struct Devices {
    pub(crate) eal: Eal,
    pub(crate) pool: Mempool,
    /// All devices; those that send come first.
    pub(crate) ports: Vec<Port>,
    /// The transmit queue of each device that sends, in the order of the command line.
    pub(crate) tx: Vec<TxQueue>,
    /// The receive queues, device by device.
    pub(crate) rx: Vec<RxQueue>,
    /// The unused queues, which must live as long as their devices.
    pub(crate) unused: (Vec<RxQueue>, Vec<TxQueue>),
}

/// Starts EAL and the devices, with buffers for frames of `frame_max` bytes.
pub(crate) fn open(args: &Args, frame_max: usize) -> Result<Devices, DeviceError> {
    let mut names: Vec<&str> = Vec::new();
    for name in args.tx.iter().chain(&args.rx) {
        if !names.contains(&name.as_str()) {
            names.push(name);
        }
    }
    let sends = |name: &str| args.tx.iter().any(|tx| tx == name);
    let receives = |name: &str| args.rx.is_empty() || args.rx.iter().any(|rx| rx == name);
    if names.len() > RX_MAX {
        return Err(DeviceError::TooMany(names.len()));
    }
    let data_size = frame_max.max(DEFAULT_FRAME_SIZE) + usize::from(HEADROOM);
    let pool = MempoolConfig {
        data_room: u16::try_from(data_size).unwrap_or(u16::MAX),
        ..MempoolConfig::new("generator", args.buffers)
    };
    let memory_mib = pool.memory_size().div_ceil(1 << 20) * 5 / 4 + EAL_MEMORY_MIB;
    // EAL's own threads are pinned to this core too, because the switch may use any other core.
    thread::pin(&[CoreId(args.core)])?;
    let eal = Eal::init(&EalConfig {
        worker_cores: vec![CoreId(args.core)],
        memory_mib: u32::try_from(memory_mib).unwrap_or(u32::MAX),
        huge_pages: match args.huge_pages {
            args::HugePages::Off => HugePages::Off,
            args::HugePages::Prefer => HugePages::Prefer,
            args::HugePages::Require => HugePages::Require,
        },
        file_prefix: format!("generator-{}", std::process::id()),
        ..EalConfig::default()
    })?;
    let pool = Mempool::new(eal, &pool)?;
    let config = PortConfig {
        rx_queues: args.rx_queues,
        rx_descriptors: args.descriptors,
        tx_descriptors: args.descriptors,
        ..PortConfig::default()
    };
    let (mut ports, mut txs, mut rxs) = (Vec::new(), Vec::new(), Vec::new());
    let (mut unused_rx, mut unused_tx) = (Vec::new(), Vec::new());
    for name in names {
        let mut port = Port::attach(eal, &name.parse()?)?;
        let queues = port.start(&config, pool)?;
        if sends(name) {
            txs.extend(queues.tx);
        } else {
            unused_tx.extend(queues.tx);
        }
        if receives(name) {
            rxs.extend(queues.rx);
        } else {
            unused_rx.extend(queues.rx);
        }
        ports.push(port);
    }
    Ok(Devices {
        eal,
        pool,
        ports,
        tx: txs,
        rx: rxs,
        unused: (unused_rx, unused_tx),
    })
}
