//! The DPDK device of a transfer. Received packets are decrypted in place in their mbufs. The header and the
//! ciphertext of a sent packet are copied once, into its mbuf.

use std::cell::RefCell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use arrayvec::ArrayVec;
use millrace_courier::io::via::Via;
use millrace_courier::io::{DatagramIo, FrameIo, FrameLink};
use millrace_dpdk::thread::{Registration, register};
use millrace_dpdk::{
    Eal, EalConfig, Mbuf, Mempool, MempoolConfig, Port, PortConfig, Queues, RxQueue, TxQueue, free_burst,
};
use millrace_endpoint::FrameWriter;
use millrace_types::Mac;

use crate::idle::IdleTimer;

/// The maximum number of packets in a burst.
const BURST: usize = 64;
/// The number of mbufs in the pool: enough for both descriptor rings and for packets in flight.
const BUFFERS: u32 = 8_191;
/// The time limit for the driver to send a burst. Packets that remain after it are dropped.
const TX_PATIENCE: Duration = Duration::from_millis(1);
/// The interval of checks of the link's state.
const LINK_INTERVAL: Duration = Duration::from_millis(50);

/// The EAL of DPDK, which is initialised for the first device.
pub(crate) struct Environment {
    memory: u32,
    started: RefCell<Option<(Eal, Option<Registration>)>>,
}

impl Environment {
    pub(crate) fn new(memory: u32) -> Environment {
        Environment {
            memory,
            started: RefCell::new(None),
        }
    }

    /// Starts EAL and opens a UDP port on a device.
    pub(crate) fn open(&self, via: &Via, devargs: &str, port: u16) -> Result<Box<dyn DatagramIo>, String> {
        let text = |error: &(dyn std::error::Error + 'static)| millrace_types::ErrorChain(error).to_string();
        let devargs = devargs.parse().map_err(|error| text(&error))?;
        let eal = Eal::init(&EalConfig {
            memory_mib: self.memory,
            file_prefix: format!("millrace-courier-{}", std::process::id()),
            ..EalConfig::default()
        })
        .map_err(|error| text(&error))?;
        // Without a registered thread, mbufs are allocated without the per-lcore cache of the pool.
        *self.started.borrow_mut() = Some((eal, register(eal).ok()));
        let pool =
            Mempool::new(eal, &MempoolConfig::new("courier", BUFFERS)).map_err(|error| text(&error))?;
        let device = Port::attach(eal, &devargs).map_err(|error| text(&error))?;
        let link = DpdkLink::start(device, pool).map_err(|error| error.to_string())?;
        let mac = link.mac;
        let config = via.config(Some(mac)).map_err(|error| error.to_string())?;
        let io = FrameIo::open(link, config, port).map_err(|error| error.to_string())?;
        Ok(Box::new(io))
    }

    /// Releases EAL's resources of the machine, after the last device.
    pub(crate) fn release(self) {
        if let Some((eal, registration)) = self.started.into_inner() {
            drop(registration);
            eal.unmount_hugetlbfs();
        }
    }
}

/// A started device with one queue in each direction.
struct DpdkLink {
    rx: RxQueue,
    tx: TxQueue,
    // The queues are dropped before the device.
    device: Port,
    pool: Mempool,
    mac: Mac,
    /// Received packets in reverse order, because the next packet is popped from the end.
    received: ArrayVec<Mbuf, BURST>,
    current: Option<Mbuf>,
    /// The contiguous copy of a packet with several segments.
    linear: Vec<u8>,
    is_linear: bool,
    out: ArrayVec<Mbuf, BURST>,
    idle: IdleTimer,
    is_up: bool,
    check_at: Instant,
}

impl DpdkLink {
    fn start(mut device: Port, pool: Mempool) -> io::Result<DpdkLink> {
        let info = device.info().map_err(io::Error::other)?;
        let Queues { mut rx, mut tx } = device
            .start(&PortConfig::default(), pool)
            .map_err(io::Error::other)?;
        let (Some(rx), Some(tx)) = (rx.pop(), tx.pop()) else {
            return Err(io::Error::other("the device has no queues"));
        };
        Ok(DpdkLink {
            rx,
            tx,
            mac: Mac(info.mac),
            device,
            pool,
            received: ArrayVec::new(),
            current: None,
            linear: Vec::new(),
            is_linear: false,
            out: ArrayVec::new(),
            idle: IdleTimer::new()?,
            is_up: false,
            check_at: Instant::now(),
        })
    }

    /// Sends the burst. Packets that the driver does not accept within [`TX_PATIENCE`] are dropped.
    fn transmit(&mut self) {
        let since = Instant::now();
        while !self.out.is_empty() {
            self.tx.tx_burst(&mut self.out);
            if !self.out.is_empty() && since.elapsed() > TX_PATIENCE {
                free_burst(&mut self.out);
            }
        }
    }
}

impl FrameWriter for DpdkLink {
    fn write_frame<'a>(&mut self, size: usize, slices: impl Iterator<Item = &'a [u8]>) -> bool {
        if self.out.is_full() {
            self.transmit();
        }
        let Some(mut packet) = self.pool.alloc() else {
            return false;
        };
        let Some(mut room) = packet.append(size) else {
            return false;
        };
        for slice in slices {
            let (part, behind) = room.split_at_mut(slice.len().min(room.len()));
            part.copy_from_slice(&slice[..part.len()]);
            room = behind;
        }
        self.out.push(packet);
        true
    }
}

impl FrameLink for DpdkLink {
    fn advance(&mut self) -> io::Result<bool> {
        if self.received.is_empty() {
            // The packets of a burst are freed together, because each single free would be one call of the
            // pool.
            self.current = None;
            self.rx.rx_burst(&mut self.received);
            if self.received.is_empty() {
                self.idle.missed()?;
                return Ok(false);
            }
            self.idle.found()?;
            // The next packet is popped from the end.
            self.received.reverse();
        }
        self.current = self.received.pop();
        self.is_linear = self
            .current
            .as_ref()
            .is_some_and(|packet| !packet.is_contiguous());
        if let (true, Some(packet)) = (self.is_linear, &self.current) {
            self.linear.clear();
            packet
                .segments()
                .for_each(|segment| self.linear.extend_from_slice(segment));
        }
        Ok(true)
    }

    fn frame(&mut self) -> &mut [u8] {
        match &mut self.current {
            Some(packet) if !self.is_linear => packet.head_mut(),
            _ => &mut self.linear,
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.transmit();
        Ok(())
    }

    fn is_up(&self) -> bool {
        self.is_up
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.idle.as_fd()
    }

    fn next_timeout(&self) -> Option<Instant> {
        (!self.is_up).then_some(self.check_at)
    }

    fn on_timeout(&mut self, now: Instant) -> io::Result<()> {
        if !self.is_up && now >= self.check_at {
            self.check_at = now + LINK_INTERVAL;
            self.is_up = self.device.link().map_err(io::Error::other)?.up;
        }
        Ok(())
    }
}
