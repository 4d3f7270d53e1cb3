//! The backend of the real world: devices of DPDK, and packets that are mbufs.

use millrace_dpdk::{
    Attachment, DevArgs, Eal, Mbuf, MbufBurst, Mempool, MempoolConfig, MempoolError, Port, PortConfig, thread,
};
use millrace_flow::classify::BURST;
use millrace_types::Mac;
use millrace_wire::{NoHeadroom, Packet};

use super::{
    Backend, Burst, Device, DeviceInfo, DeviceOptions, DeviceSpec, DeviceStats, MemoryPeer, OpenError,
    Opened, Registry, RxQueue, TxQueue,
};

impl Packet for Mbuf {
    #[inline]
    fn len(&self) -> usize {
        Mbuf::len(self)
    }

    #[inline]
    fn head(&self) -> &[u8] {
        Mbuf::head(self)
    }

    #[inline]
    fn head_mut(&mut self) -> &mut [u8] {
        Mbuf::head_mut(self)
    }

    #[inline]
    fn prepend(&mut self, size: usize) -> Result<(), NoHeadroom> {
        Mbuf::prepend(self, size).map(|_| ()).ok_or(NoHeadroom)
    }

    #[inline]
    fn trim_front(&mut self, size: usize) {
        let size = size.min(Mbuf::head(self).len());
        // It has that many bytes in its head, so this cannot fail.
        let _trimmed = self.adj(size);
    }

    fn try_clone(&self) -> Option<Self> {
        self.try_copy()
    }

    fn copy_to(&self, out: &mut Vec<u8>, max_len: usize) {
        let mut left = max_len;
        for segment in self.segments() {
            let take = segment.len().min(left);
            out.extend_from_slice(&segment[..take]);
            left -= take;
        }
    }
}

/// Opens NICs and DPDK's virtual devices, and those that need no driver.
pub struct DpdkBackend {
    eal: Eal,
    pool: Mempool,
    registry: Registry<Mbuf>,
}

impl DpdkBackend {
    /// A backend whose ports receive into one pool of `buffers` packets.
    ///
    /// # Errors
    /// [`MempoolError`] if the memory that EAL has does not hold them.
    pub fn new(eal: Eal, buffers: u32) -> Result<DpdkBackend, MempoolError> {
        let pool = Mempool::new(eal, &MempoolConfig::new("packets", buffers))?;
        Ok(DpdkBackend {
            eal,
            pool,
            registry: Registry::new(move |bytes| pool.packet(bytes)),
        })
    }

    /// The far end of the memory device `name`, which need not be open yet.
    pub fn memory(&self, name: &str) -> MemoryPeer<Mbuf> {
        self.registry.memory(name)
    }

    fn open_port(&self, devargs: &str, options: DeviceOptions) -> Result<Opened<Mbuf>, OpenError> {
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
        let parsed: DevArgs = devargs.parse().map_err(failed(devargs))?;
        let mut port = Port::attach(self.eal, &parsed).map_err(failed(devargs))?;
        let info = port.info().map_err(failed(devargs))?;
        let config = PortConfig {
            rx_queues: options.queues.clamp(1, info.max_rx_queues.max(1)),
            tx_queues: options.queues.clamp(1, info.max_tx_queues.max(1)),
            // What most devices have is not worth a refusal by those that cannot be told.
            mtu: (options.mtu != DEFAULT_MTU).then_some(options.mtu),
            ..PortConfig::default()
        };
        let queues = port.start(&config, self.pool).map_err(failed(devargs))?;
        let rx = queues
            .rx
            .into_iter()
            .map(|queue| Box::new(Rx { queue }) as Box<dyn RxQueue<Mbuf>>);
        let tx = queues.tx.into_iter().map(|queue| {
            Box::new(Tx {
                queue,
                burst: MbufBurst::new(),
            }) as Box<dyn TxQueue<Mbuf>>
        });
        Ok(Opened {
            rx: rx.collect(),
            tx: tx.collect(),
            device: Box::new(DpdkDevice {
                port,
                driver: info.driver,
                mac: Mac(info.mac),
                numa: info.socket,
            }),
        })
    }
}

/// The MTU of Ethernet.
const DEFAULT_MTU: u16 = 1500;

impl Backend for DpdkBackend {
    type Packet = Mbuf;
    type Registration = thread::Registration;

    fn packet(&self, bytes: &[u8]) -> Option<Mbuf> {
        self.pool.packet(bytes)
    }

    fn open(&self, spec: &DeviceSpec, options: DeviceOptions) -> Result<Opened<Mbuf>, OpenError> {
        match spec {
            DeviceSpec::Pci(devargs) | DeviceSpec::Vdev(devargs) => self.open_port(devargs, options),
            other => self.registry.open(other).unwrap_or_else(|| {
                Err(OpenError::Unsupported {
                    device: other.to_string(),
                    reason: "no driver knows this kind of device".to_owned(),
                    remedy: "Use a PCI address, devargs, or a memory, link or pcap device.".to_owned(),
                })
            }),
        }
    }

    fn register_worker(&self) -> Result<thread::Registration, String> {
        thread::register(self.eal).map_err(|error| error.to_string())
    }

    fn buffers(&self) -> Option<(usize, usize)> {
        Some((self.pool.in_use() as usize, self.pool.size() as usize))
    }
}

struct Rx {
    queue: millrace_dpdk::RxQueue,
}

impl RxQueue<Mbuf> for Rx {
    #[inline]
    fn rx_burst(&mut self, burst: &mut Burst<Mbuf>) {
        let mut received = MbufBurst::<BURST>::new();
        self.queue.rx_burst(&mut received);
        burst.extend(received.drain());
    }
}

struct Tx {
    queue: millrace_dpdk::TxQueue,
    /// What the device did not take at the last call, ahead of what comes now.
    burst: MbufBurst<BURST>,
}
