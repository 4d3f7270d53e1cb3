//! A safe wrapper of DPDK: the environment ([`Eal`]), packet buffers ([`Mempool`], [`Mbuf`]), devices
//! ([`Port`], [`RxQueue`], [`TxQueue`]), rings between threads ([`ring`]) and the threads themselves ([`thread`]).
//!
//! The three rules that make it safe:
//! 1. **[`Eal`] is a token.** A value proves that EAL is up. EAL lives as long as the process, and so do mempools, so
//!    no packet outlives its memory.
//! 2. **An [`Mbuf`] has one owner.** No function of this crate makes a second reference to a buffer (reference count
//!    1), so `&mut Mbuf` may change its bytes. Copies are deep.
//! 3. **A queue has one thread.** [`RxQueue`] and [`TxQueue`] move between threads, and are neither shared nor cloned;
//!    a port stops only when all of them have returned.
//!
//! ```compile_fail,E0277
//! fn two_threads_use<T: Sync>() {}
//! two_threads_use::<millrace_dpdk::RxQueue>();
//! ```
//! ```compile_fail,E0277
//! fn two_threads_use<T: Sync>() {}
//! two_threads_use::<millrace_dpdk::TxQueue>();
//! ```
//!
//! A worker that returns received packets:
//! ```no_run
//! use arrayvec::ArrayVec;
//! use millrace_dpdk::{
//!     CoreId, Eal, EalConfig, Mempool, MempoolConfig, Port, PortConfig, free_burst, thread,
//! };
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let eal = Eal::init(&EalConfig { worker_cores: vec![CoreId(1)], ..EalConfig::default() })?;
//! let pool = Mempool::new(eal, &MempoolConfig::new("packets", 8191))?;
//! let mut port = Port::attach(eal, &"net_af_packet0,iface=eth1".parse()?)?;
//! let mut queues = port.start(&PortConfig::default(), pool)?;
//! let worker = thread::spawn(eal, "worker-1", CoreId(1), move || {
//!     let mut burst = ArrayVec::<_, 32>::new();
//!     for _ in 0..1_000_000 {
//!         queues.rx[0].rx_burst(&mut burst);
//!         queues.tx[0].tx_burst(&mut burst);
//!         free_burst(&mut burst);
//!     }
//! })?;
//! let _ = worker.join();
//! port.stop()?;
//! eal.unmount_hugetlbfs();
//! # Ok(())
//! # }
//! ```

pub mod clock;
pub mod eal;
pub mod hugepages;
pub mod mempool;
pub mod ring;
pub mod thread;

mod affinity;
mod alloc;
mod burst;
mod errno;
mod mbuf;
mod memory;
mod packet;
mod port;

pub use affinity::CoreId;
pub use burst::free_burst;
pub use eal::{Eal, EalConfig, EalError};
pub use errno::Errno;
pub use mbuf::{Mbuf, Segments, SegmentsMut};
pub use mempool::{Mempool, MempoolConfig, MempoolError};
pub use port::{
    AttachError, DevArgs, DevArgsError, FLOW_LEN_MAX, FlowAction, FlowError, FlowHeader, FlowItem,
    FlowOffload, FlowRule, FlowSpec, Flows, Link, Port, PortConfig, PortError, PortId, PortInfo, PortStats,
    Queues, RxQueue, StartError, TxLimits, TxQueue,
};
