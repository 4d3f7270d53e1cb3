//! The production backend: DPDK devices, with mbufs as packets.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use millrace_dpdk::mempool::HEADROOM;
use millrace_dpdk::{
    DevArgs, Eal, Mbuf, Mempool, MempoolConfig, MempoolError, Port, PortConfig, PortInfo, Queues, TxLimits,
    thread,
};
use parking_lot::Mutex;

use millrace_pipeline::MarkColumn;

use super::allocate::Empty;
use super::dpdk_device::{DEFAULT_MTU, DpdkDevice};
use super::nodes::NumaPools;
use super::owner::{self, Owned};
use super::vhost;
use super::vnic::{VnicKind, VnicSpec};
use super::wan::Wans;
use super::{
    Backend, BufferCounts, Burst, DeviceOptions, DeviceSpec, MemoryPeer, OpenError, Opened, Registry,
    RxQueue, TxQueue, af_packet, dpdk_af_packet, socket_file,
};
use crate::offload::fences::{Fences, QueueFence};

/// Opens NICs, DPDK's virtual devices, and devices that need no driver.
pub struct DpdkBackend {
    eal: Eal,
    pools: NumaPools<Mempool>,
    /// The secret key of RSS.
    rss_word: u16,
    /// Pools of single ports by devargs, and pools that several ports share by name.
    own_pools: Mutex<HashMap<String, Mempool>>,
    own_pools_made: AtomicU32,
    registry: Registry<Mbuf>,
}

impl DpdkBackend {
    /// Returns a backend whose ports receive into one pool of `buffers` packets.
    ///
    /// # Errors
    /// [`MempoolError`] if EAL's memory does not hold them.
    pub fn new(eal: Eal, buffers: u32) -> Result<DpdkBackend, MempoolError> {
        let pool = Mempool::new(eal, &MempoolConfig::new("packets", buffers))?;
        Ok(DpdkBackend {
            eal,
            pools: NumaPools::of_this_machine(pool),
            rss_word: RandomState::new().hash_one(0) as u16 | 1,
            own_pools: Mutex::default(),
            own_pools_made: AtomicU32::new(0),
            registry: Registry::new(move |bytes| pool.packet(bytes), empty_of(pool), true),
        })
    }

    /// Returns the far end of the memory device `name`, which need not be open yet.
    pub fn memory(&self, name: &str) -> MemoryPeer<Mbuf> {
        self.registry.memory(name)
    }

    /// Returns a pool for one port. An AF_XDP port needs one because the kernel keeps some of its buffers
    /// when the port closes, which would drain a shared pool. A peer that may take many buffers at once needs
    /// one, too. Pools live as long as the process, so the next port with the same devargs gets the same pool
    /// while enough buffers are left.
    fn own_pool(&self, devargs: &str, wanted: u32) -> Result<Mempool, MempoolError> {
        let mut pools = self.own_pools.lock();
        if let Some(pool) = pools.get(devargs).filter(|pool| pool.available() >= wanted / 3) {
            return Ok(*pool);
        }
        let number = self.own_pools_made.fetch_add(1, Ordering::Relaxed);
        let pool = Mempool::new(self.eal, &MempoolConfig::new(&format!("own-{number}"), wanted))?;
        pools.insert(devargs.to_owned(), pool);
        Ok(pool)
    }

    /// Returns a pool for drivers that need a frame of `segment_size` bytes in one buffer.
    fn pool_of(&self, segment_size: u32) -> Result<Mempool, MempoolError> {
        if segment_size as usize <= self.pools.default_pool().segment_size() {
            return Ok(self.pools.default_pool());
        }
        let name = format!("packets-{segment_size}");
        let mut pools = self.own_pools.lock();
        if let Some(pool) = pools.get(&name) {
            return Ok(*pool);
        }
        let room = segment_size.saturating_add(HEADROOM.into());
        let config = MempoolConfig {
            data_room: u16::try_from(room).unwrap_or(u16::MAX),
            ..MempoolConfig::new(&name, LONG_BUFFERS)
        };
        let pool = Mempool::new(self.eal, &config)?;
        pools.insert(name, pool);
        Ok(pool)
    }

    /// Opens a virtual NIC. The number of the peer's queues is not known before the peer connects. The device
    /// therefore has as many queues as configured, and sends to the first queue, which every peer has.
    fn open_vnic(&self, spec: &VnicSpec, options: DeviceOptions) -> Result<Opened<Mbuf>, OpenError> {
        let queues = if options.only_if_spread { 1 } else { options.queues };
        let Some(devargs) = spec.devargs(queues) else {
            return self.open_own(spec, options, queues);
        };
        socket_file::expect_peer(&spec.path)?;
        Ok(opened(self.attach(&devargs, options, true)?))
    }

    /// Opens a virtual NIC that the switch implements itself: memif or vhost-user.
    fn open_own(
        &self,
        spec: &VnicSpec,
        options: DeviceOptions,
        queues: u16,
    ) -> Result<Opened<Mbuf>, OpenError> {
        let device = spec.to_string();
        let pool = match spec.kind {
            VnicKind::Vhost { tso: true } => self.own_pool(&device, vhost::BUFFERS * u32::from(queues)),
            _ => self.vnic_pool(options),
        };
        let empty: Empty<Mbuf> = Arc::new(empty_of(pool.map_err(failed(&device))?));
        let opened = self.registry.open_vnic(spec, options, &empty);
        opened.unwrap_or_else(|| Err(unsupported(device)))
    }

    /// Opens a kernel interface with its own pool, because its long packets take many buffers at once.
    fn open_kernel(
        &self,
        spec: &DeviceSpec,
        name: &str,
        options: DeviceOptions,
    ) -> Result<Opened<Mbuf>, OpenError> {
        let device = spec.to_string();
        let pool = self.own_pool(&device, vhost::BUFFERS).map_err(failed(&device))?;
        let empty: Empty<Mbuf> = Arc::new(empty_of(pool));
        af_packet::open(spec, name, options, &empty)
    }

    /// Returns the pool of a virtual NIC, whose frames need one buffer each.
    fn vnic_pool(&self, options: DeviceOptions) -> Result<Mempool, MempoolError> {
        match options.mtu > DEFAULT_MTU {
            true => self.pool_of(u32::from(options.mtu) + FRAME_OVERHEAD),
            false => Ok(self.pools.default_pool()),
        }
    }

    fn attach(&self, devargs: &str, options: DeviceOptions, is_vnic: bool) -> Result<Attached, OpenError> {
        let mut parsed: DevArgs = devargs.parse().map_err(failed(devargs))?;
        let is_af_packet = parsed.has_driver(dpdk_af_packet::DRIVER);
        if is_af_packet {
            let more = dpdk_af_packet::more_options(&parsed, options.mtu);
            parsed = format!("{devargs}{more}").parse().map_err(failed(devargs))?;
        }
        let owned = owner::own(&DeviceSpec::Vdev(devargs.to_owned()))?;
        let mut port = Port::attach(self.eal, &parsed).map_err(failed(devargs))?;
        let info = port.info().map_err(failed(devargs))?;
        let wanted = if options.only_if_spread && !info.rss {
            1
        } else {
            options.queues
        };
        let config = PortConfig {
            rx_queues: wanted.clamp(1, info.max_rx_queues.max(1)),
            tx_queues: wanted.clamp(1, info.max_tx_queues.max(1)),
            rss_word: self.rss_word,
            // The default MTU is not set, so that devices that cannot set an MTU are not refused.
            mtu: (options.mtu != DEFAULT_MTU && !is_af_packet).then_some(options.mtu),
            tx_limits: parsed.virtual_driver().is_none().then_some(TxLimits {
                shortest: NIC_SHORTEST,
                longest: if info.max_frame == 0 {
                    u32::MAX
                } else {
                    info.max_frame
                },
            }),
            ..PortConfig::default()
        };
        let pool = if info.driver == AF_XDP {
            self.own_pool(devargs, AF_XDP_BUFFERS * u32::from(config.rx_queues))
                .map_err(failed(devargs))?
        } else if is_af_packet {
            self.pool_of(dpdk_af_packet::segment_size(&parsed))
                .map_err(failed(devargs))?
        } else if is_vnic && options.mtu > DEFAULT_MTU {
            self.vnic_pool(options).map_err(failed(devargs))?
        } else {
            self.pools.pool_of_node(info.socket, |node| {
                let home = self.pools.default_pool();
                let config = MempoolConfig {
                    socket: Some(node),
                    ..MempoolConfig::new(&format!("packets-n{node}"), home.size())
                };
                Mempool::new(self.eal, &config)
            })
        };
        let mut queues = port.start(&config, pool).map_err(failed(devargs))?;
        if is_af_packet {
            dpdk_af_packet::discard_strays(&mut queues.rx);
        }
        Ok(Attached {
            port,
            info,
            queues,
            rx_queues: config.rx_queues,
            owned,
        })
    }
}

/// A running port.
struct Attached {
    port: Port,
    info: PortInfo,
    queues: Queues,
    rx_queues: u16,
    owned: Owned,
}

fn failed<E>(device: &str) -> impl FnOnce(E) -> OpenError
where
    E: core::error::Error + Send + Sync + 'static,
{
    let device = device.to_owned();
    move |source| OpenError::Driver {
        device,
        source: Box::new(source),
    }
}

fn unsupported(device: String) -> OpenError {
    OpenError::Unsupported {
        device,
        reason: "no driver supports this type of device".to_owned(),
        next_step: "use a PCI address, devargs, or a kernel, memory, link, tap, pcap or virtual device"
            .to_owned(),
    }
}

/// Returns a function that appends empty packets of a pool to a burst, at least one if the pool has one.
fn empty_of(pool: Mempool) -> impl Fn(usize, &mut Burst<Mbuf>) + Send + Sync + 'static {
    move |len, burst| {
        if pool.alloc_up_to(len, burst) == 0 {
            pool.alloc_up_to(1, burst);
        }
    }
}

fn opened(attached: Attached) -> Opened<Mbuf> {
    let queues = attached.queues;
    let fences = Arc::new(Fences::new(attached.rx_queues));
    let rx = queues.rx.into_iter().map(|queue| {
        let fences = Arc::clone(&fences);
        Box::new(Rx {
            queue,
            fences,
            marks: None,
        }) as Box<dyn RxQueue<Mbuf>>
    });
    let tx = queues
        .tx
        .into_iter()
        .map(|queue| Box::new(Tx { queue }) as Box<dyn TxQueue<Mbuf>>);
    Opened {
        rx: rx.collect(),
        tx: tx.collect(),
        device: Box::new(DpdkDevice::new(
            attached.port,
            attached.info,
            attached.rx_queues,
            attached.owned,
            &fences,
        )),
    }
}

/// The driver whose ports share their pool with the kernel.
const AF_XDP: &str = "net_af_xdp";
/// Number of buffers for each queue of an AF_XDP port: the capacity of the kernel's rings, and as many again
/// in flight.
const AF_XDP_BUFFERS: u32 = 3 * 4096;
/// Number of buffers of a pool for long frames. A driver for long frames keeps no buffers, so all are packets
/// in flight.
const LONG_BUFFERS: u32 = 2047;

/// The shortest frame that every NIC sends, in bytes: `I40E_TX_MIN_PKT_LEN`. An i40e stops the queue at
/// shorter frames.
const NIC_SHORTEST: u16 = 17;

/// Size of a frame's headers in bytes: Ethernet header and two VLAN tags.
const FRAME_OVERHEAD: u32 = 22;

impl Backend for DpdkBackend {
    type Packet = Mbuf;
    type Registration = thread::Registration;

    fn packet(&self, bytes: &[u8]) -> Option<Mbuf> {
        self.pools.default_pool().packet(bytes)
    }

    fn wans(&self) -> &Arc<Wans> {
        self.registry.wans()
    }

    fn open(&self, spec: &DeviceSpec, options: DeviceOptions) -> Result<Opened<Mbuf>, OpenError> {
        match spec {
            DeviceSpec::Pci(devargs) | DeviceSpec::Vdev(devargs) => {
                Ok(opened(self.attach(devargs, options, false)?))
            }
            DeviceSpec::Vnic(vnic) => self.open_vnic(vnic, options),
            DeviceSpec::Kernel(name) => self.open_kernel(spec, name, options),
            other => {
                let opened = self.registry.open(other, options);
                opened.unwrap_or_else(|| Err(unsupported(other.to_string())))
            }
        }
    }

    fn register_worker(&self) -> Result<thread::Registration, String> {
        thread::register(self.eal).map_err(|error| error.to_string())
    }

    fn buffers(&self) -> Option<BufferCounts> {
        let home = self.pools.default_pool();
        Some(BufferCounts {
            used: home.in_use() as usize,
            all: home.size() as usize,
        })
    }
}

struct Rx {
    queue: millrace_dpdk::RxQueue,
    fences: Arc<Fences>,
    /// The marks of the last burst, if they are kept.
    marks: Option<Box<Marks>>,
}

#[derive(Default)]
struct Marks {
    column: MarkColumn,
    fence: QueueFence,
}

impl Rx {
    /// Receives a burst with the marks of flow rules and the hashes of RSS, and notes what has left the queue.
    fn receive(
        queue: &mut millrace_dpdk::RxQueue,
        fences: &Fences,
        marks: &mut Marks,
        burst: &mut Burst<Mbuf>,
    ) {
        let (first, room) = (burst.len(), burst.remaining_capacity());
        marks.column.clear();
        marks.fence.begin(fences);
        let received = queue.rx_burst(burst);
        for (at, packet) in burst.iter_mut().enumerate().skip(first) {
            let hash = packet.rss_hash();
            marks.column.set(at, packet.take_mark().unwrap_or(0), hash);
        }
        marks.fence.end(fences, queue.queue().into(), room, received);
    }
}

impl RxQueue<Mbuf> for Rx {
    #[inline]
    fn rx_burst(&mut self, burst: &mut Burst<Mbuf>) {
        match &mut self.marks {
            None => {
                self.queue.rx_burst(burst);
            }
            Some(marks) => Rx::receive(&mut self.queue, &self.fences, marks, burst),
        }
    }

    fn keep_marks(&mut self, is_kept: bool) {
        self.marks = is_kept.then(Box::default);
    }

    #[inline]
    fn marks(&self) -> Option<&MarkColumn> {
        self.marks.as_ref().map(|marks| &marks.column)
    }
}

struct Tx {
    queue: millrace_dpdk::TxQueue,
}

impl TxQueue<Mbuf> for Tx {
    #[inline]
    fn tx_burst(&mut self, burst: &mut Burst<Mbuf>) {
        self.queue.tx_burst(burst);
    }
}
