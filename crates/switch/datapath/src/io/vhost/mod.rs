//! vhost-user as a device: the other side of the Unix socket is the driver of a virtual machine or a process, which
//! need not be trusted.
//!
//! A thread for each port ([`session_thread`]) exchanges the messages with one driver at a time ([`peer`]). A
//! ring that the driver starts is inserted into a slot ([`ring_slot`](super::ring_slot)), from which a worker
//! acquires it for each burst. The thread removes the ring between two bursts when the driver stops it, or
//! disconnects. A worker therefore never waits, and nothing accesses a driver's memory after the driver was
//! told that the ring stopped.
//!
//! ```text
//!   worker: Rx, Tx <-- acquire, release --> RingSlot <-- insert, remove -- session thread <-- socket --> driver
//!                  --> violations -------------------------------------------->
//! ```
//!
//! The crate `vhost` documents which values of a driver are trusted, and why a driver cannot do harm.

mod interface;
mod peer;
mod queue;
mod session_thread;

use std::sync::Arc;

use millrace_types::Mac;
use millrace_vhost::memory::UnsealedPolicy;
use millrace_vhost::ring::Limits;
use millrace_vhost::session::PAIRS_MAX;
use millrace_wire::Packet;

use self::interface::Interface;
use self::queue::{Rx, Tx};
use self::session_thread::SessionThread;
use super::allocate::Empty;
use super::peer::{failed, mac_of};
use super::vnic::VnicSpec;
use super::{Device, DeviceInfo, DeviceOptions, DeviceStats, OpenError, Opened, PortModes, RxQueue, TxQueue};

/// Number of buffers for each receive queue of a port with TSO: enough for more than a hundred packets of 64
/// KiB.
#[cfg(feature = "dpdk")]
pub(super) const BUFFERS: u32 = 4095;
/// Size of a frame's headers in bytes: Ethernet header and two VLAN tags.
const FRAME_OVERHEAD: usize = 22;

/// Opens a port. `empty` supplies packets to be filled with received frames. With `tso`, drivers may leave
/// TCP segmentation to the switch; packets then arrive in as many buffers as they need. `accepts_unsealed` is
/// true if this process survives when a driver shrinks memory.
///
/// # Errors
/// Returns [`OpenError`], which has the next step.
pub(super) fn open<P: Packet + 'static>(
    spec: &VnicSpec,
    tso: bool,
    options: DeviceOptions,
    empty: &Empty<P>,
    accepts_unsealed: bool,
) -> Result<Opened<P>, OpenError> {
    let pairs = match options.only_if_spread {
        true => 1,
        false => options.queues.clamp(1, PAIRS_MAX),
    };
    let mtu = usize::from(options.mtu);
    let limits = Limits {
        // Without TSO, guests may send frames longer than the MTU, as far as the switch's buffers hold them.
        frame_size: if tso { mtu + FRAME_OVERHEAD } else { usize::MAX },
        mtu,
        is_segmented: tso,
    };
    let interface = Interface::new(spec, pairs, limits).map_err(|error| failed(spec, &error))?;
    let interface = Arc::new(interface);
    let unsealed = match accepts_unsealed {
        true => UnsealedPolicy::Accept,
        false => UnsealedPolicy::Reject,
    };
    let thread = SessionThread::start(spec, &interface, unsealed)?;
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
            _thread: thread,
            interface,
        }),
    })
}

struct Vhost {
    mac: Mac,
    mtu: u16,
    tso: bool,
    /// The thread of the port; it ends when this is dropped.
    _thread: SessionThread,
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

    /// Does nothing: the link is up while packets flow.
    fn set_link(&mut self, _up: bool) {}

    fn delivers_gso(&self) -> bool {
        self.tso
    }

    fn refused_frames(&self) -> u64 {
        self.interface.counters.read().rx_errors
    }

    fn refusal_remedy(&self) -> String {
        "compare the MTU of the port with that of the guest; or let the guest segment: ethtool -K INTERFACE tso off gso off"
            .to_owned()
    }
}

#[cfg(test)]
mod tests;
