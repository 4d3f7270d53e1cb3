//! vhost-user as a device: the driver of a virtual machine, or of a process, at the other side of a Unix socket, which need
//! not be trusted.
//!
//! Messages are the business of a thread for each port ([`speaker`]), which has one driver at a time ([`peer`]). A ring that
//! the driver starts goes into a slot ([`slot`]), where a worker takes it for each burst; the thread takes it away
//! between two bursts when the driver stops it, or goes. So a worker never waits, and nobody touches a driver's memory once
//! it was told that nobody does.
//!
//! What is believed of a driver, and why nothing it does can harm, is in the crate `vhost`.

mod interface;
mod peer;
mod queue;
mod speaker;

use std::sync::Arc;

use millrace_types::Mac;
use millrace_vhost::memory::UnsealedPolicy;
use millrace_vhost::ring::Limits;
use millrace_vhost::session::PAIRS_MAX;
use millrace_wire::Packet;

use self::interface::Interface;
use self::queue::{Rx, Tx};
use self::speaker::Speaker;
use super::peer::{failed, mac_of};
use super::registry::Empty;
use super::vnic::VnicSpec;
use super::{Device, DeviceInfo, DeviceOptions, DeviceStats, OpenError, Opened, PortModes, RxQueue, TxQueue};

/// Buffers of a port whose drivers leave it to us to cut TCP, for each of its receive queues: more than a hundred packets of
/// 64 KiB.
#[cfg(feature = "dpdk")]
pub(super) const BUFFERS: u32 = 4095;
/// Size of a frame beside its MTU in bytes: Ethernet header and two VLAN tags.
const FRAME_OVERHEAD: usize = 22;

/// Opens a port whose packets `empty` makes. With `tso` drivers may leave it to us to cut TCP into segments; then packets
/// come in as many buffers as they need. `bears_shrinking` says whether this process survives when a driver takes memory
/// back.
///
/// # Errors
/// [`OpenError`], with a remedy.
pub(super) fn open<P: Packet + 'static>(
    spec: &VnicSpec,
    tso: bool,
    options: DeviceOptions,
    empty: &Empty<P>,
    bears_shrinking: bool,
) -> Result<Opened<P>, OpenError> {
    let pairs = match options.only_if_spread {
        true => 1,
        false => options.queues.clamp(1, PAIRS_MAX),
    };
    let mtu = usize::from(options.mtu);
    let limits = Limits {
        // Guests may send longer ones than they are told, as far as our buffers hold them.
        frame_size: if tso { mtu + FRAME_OVERHEAD } else { usize::MAX },
        mtu,
        is_segmented: tso,
    };
    let interface = Interface::new(spec, pairs, limits).map_err(|error| failed(spec, &error))?;
    let interface = Arc::new(interface);
    let unsealed = match bears_shrinking {
        true => UnsealedPolicy::Accept,
        false => UnsealedPolicy::Reject,
    };
    let speaker = Speaker::start(spec, &interface, unsealed)?;
    let rx = (0..pairs).map(|pair| {
        let rx = Rx::new(Arc::clone(&interface), pair, Arc::clone(empty));
        Box::new(rx) as Box<dyn RxQueue<P>>
    });
    Ok(Opened {
        rx: rx.collect(),
        tx: vec![Box::new(Tx::new(Arc::clone(&interface))) as Box<dyn TxQueue<P>>],
        device: Box::new(Vhost {
            mac: mac_of(spec),
            mtu: options.mtu,
            tso,
            _speaker: speaker,
            interface,
        }),
    })
}

struct Vhost {
    mac: Mac,
    mtu: u16,
    tso: bool,
    /// Ends when it is dropped.
    _speaker: Speaker,
    interface: Arc<Interface>,
}

impl Device for Vhost {
    fn info(&self) -> DeviceInfo {
        DeviceInfo {
            driver: "vhost".to_owned(),
            mac: self.mac,
            speed_mbps: None,
            link_up: self.interface.is_up(),
            modes: PortModes::default(),
            mtu: self.mtu,
            numa_node: None,
            rx_queues: self.interface.pairs(),
            rss: None,
            offload: self.tso.then(|| "tso".to_owned()),
        }
    }

    fn stats(&self) -> DeviceStats {
        self.interface.counters.read()
    }

    /// The link is up while packets flow; nobody else decides.
    fn set_link(&mut self, _up: bool) {}

    fn gives_uncut(&self) -> bool {
        self.tso
    }
}

#[cfg(test)]
mod tests;
