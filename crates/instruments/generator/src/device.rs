//! From the command line to running devices.

use millrace_dpdk::eal::HugePages;
use millrace_dpdk::mempool::HEADROOM;
use millrace_dpdk::thread::{self, ThreadError};
use millrace_dpdk::{
    AttachError, CoreId, DevArgsError, Eal, EalConfig, EalError, Mempool, MempoolConfig, MempoolError, Port,
    PortConfig, RxQueue, StartError, TxQueue,
};
use thiserror::Error;

use crate::args::{self, Args};

/// Room for data in a buffer of the usual size, headroom not counted, bytes.
const USUAL_FRAME: usize = 2048;
/// What EAL and drivers want for themselves, MiB.
const OWN_MEMORY_MIB: u64 = 96;

/// Why devices are not there.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// EAL does not start.
    #[error(transparent)]
    Eal(#[from] EalError),
    /// Text that names no device.
    #[error(transparent)]
    DevArgs(#[from] DevArgsError),
    /// A device that cannot be attached.
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// A device that cannot be started.
    #[error(transparent)]
    Start(#[from] StartError),
    /// There is no memory for packets.
    #[error(transparent)]
    Pool(#[from] MempoolError),
    /// The poll loop cannot be started.
    #[error(transparent)]
    Thread(#[from] ThreadError),
    /// There are too many devices.
    #[error("{0} devices are too many; expected at most 8")]
    TooMany(usize),
}

/// The most devices that receive: as many as a report tells apart.
const RX_MAX: usize = 8;

/// Devices that run.
pub(crate) struct Devices {
    pub(crate) eal: Eal,
    pub(crate) pool: Mempool,
    /// All of them; the first ones send.
    pub(crate) ports: Vec<Port>,
    /// One for each device that sends, in the order in which they were named.
    pub(crate) tx: Vec<TxQueue>,
    /// Device after device, of each as many as were asked for.
    pub(crate) rx: Vec<RxQueue>,
    /// Queues that are there and not used: they keep nothing but their devices.
    pub(crate) unused: (Vec<RxQueue>, Vec<TxQueue>),
}

/// Starts EAL and the devices; `frame_max` bytes fit into one buffer.
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
    let room = frame_max.max(USUAL_FRAME) + usize::from(HEADROOM);
    let pool = MempoolConfig {
        data_room: u16::try_from(room).unwrap_or(u16::MAX),
        ..MempoolConfig::new("generator", args.buffers)
    };
    let memory_mib = pool.memory_size().div_ceil(1 << 20) * 5 / 4 + OWN_MEMORY_MIB;
    // Also EAL's own threads: any other core may be the switch's.
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
