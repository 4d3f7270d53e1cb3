//! A kernel interface as a device, by packet sockets that the switch opens itself: `kernel:eth1`.
//!
//! ```text
//!   worker: Rx --- slot --- Receiver     The watch inserts and removes receivers and senders between two
//!   worker: Tx --- slot --- Sender       bursts, as interfaces come and go; a worker that finds none has
//!              [`super::ring_slot`]      nothing to receive, and drops the packets that it sends.
//!   watch: events of the interface ([`super::link_watch`]) -> open, close
//! ```
//!
//! The crate `af-packet` handles frames, their checksums and their segmentation.

mod interface;
mod queue;
mod watch;

use std::sync::Arc;

use millrace_af_packet::{OpenError as Reason, QUEUES_MAX};
use millrace_wire::Packet;

use self::interface::{Interface, LinkReader};
use self::queue::{Rx, Tx};
use self::watch::LinkMonitor;
use super::allocate::Empty;
use super::owner;
use super::peer::failed;
use super::{
    ChangeReporter, Device, DeviceInfo, DeviceOptions, DeviceSpec, DeviceStats, OpenError, Opened, RxQueue,
    TxQueue,
};

/// The headers by which the kernel spreads flows over several queues (`PACKET_FANOUT_HASH`).
const SPREADS_BY: &str = "ip,tcp,udp";

/// The settings of ethtool by which a kernel segments packets, inside of tunnels, too, before it sends them.
const SEGMENTATION_OFF: &str = "tso off tx-udp-segmentation off tx-udp_tnl-segmentation off \
                                tx-udp_tnl-csum-segmentation off tx-gre-segmentation off tx-gre-csum-segmentation off \
                                tx-ipxip4-segmentation off tx-ipxip6-segmentation off";

/// Opens the interface `name`. `empty` supplies packets to be filled with received frames.
///
/// # Errors
/// [`OpenError`], with the next step.
pub(super) fn open<P: Packet + 'static>(
    spec: &DeviceSpec,
    name: &str,
    options: DeviceOptions,
    empty: &Empty<P>,
) -> Result<Opened<P>, OpenError> {
    let owned = owner::own(spec)?;
    let queues = options.queues.clamp(1, QUEUES_MAX);
    let interface = Interface::new(name, queues, owned).map_err(|error| failed(spec, &error))?;
    let interface = Arc::new(interface);
    interface
        .attach_first()
        .map_err(|reason| refused(spec, name, &reason))?;
    let watch = LinkMonitor::start(&interface).map_err(|error| failed(spec, &error))?;
    if usize::from(options.mtu) > interface.mtu() {
        let (wanted, mtu) = (options.mtu, interface.mtu());
        tracing::warn!(
            device = %spec, wanted, mtu,
            "longer frames than the interface carries are dropped: ip link set {name} mtu {wanted}"
        );
    }
    let rx = (0..queues).map(|queue| {
        let rx = Rx::new(Arc::clone(&interface), queue, Arc::clone(empty));
        Box::new(rx) as Box<dyn RxQueue<P>>
    });
    let tx = (0..queues).map(|queue| Box::new(Tx::new(Arc::clone(&interface), queue)) as Box<dyn TxQueue<P>>);
    Ok(Opened {
        rx: rx.collect(),
        tx: tx.collect(),
        device: Box::new(AfPacket {
            network: LinkReader::default(),
            _watch: watch,
            interface,
        }),
    })
}

fn refused(spec: &DeviceSpec, name: &str, reason: &Reason) -> OpenError {
    let device = spec.to_string();
    let text = reason.to_string();
    match reason {
        Reason::Missing { .. } => OpenError::Missing {
            device,
            reason: text,
            next_step: format!(
                "name an existing one (ip -br link), or move it into this network namespace: ip link set {name} netns PID"
            ),
        },
        Reason::Permission => OpenError::Failed {
            device,
            reason: text,
            next_step: "start millraced with CAP_NET_RAW, by systemd (AmbientCapabilities=CAP_NET_RAW) or \
                     setcap cap_net_raw+ep"
                .to_owned(),
        },
        Reason::NotEthernet { .. } => OpenError::Unsupported {
            device,
            reason: text,
            next_step: "name an interface with link/ether (ip -br link)".to_owned(),
        },
        Reason::Refused { .. } => OpenError::Failed {
            device,
            reason: text,
            next_step:
                "free memory (a queue takes 8 MiB of the kernel's) or set fewer `queues`, and see dmesg"
                    .to_owned(),
        },
    }
}

struct AfPacket {
    network: LinkReader,
    /// The thread that follows the interface; it ends when this is dropped.
    _watch: LinkMonitor,
    interface: Arc<Interface>,
}

impl Device for AfPacket {
    fn info(&self) -> DeviceInfo {
        let connection = self.network.connection(&self.interface);
        DeviceInfo {
            driver: "kernel".to_owned(),
            mac: connection.mac,
            speed_mbps: connection.speed_mbps,
            link_up: connection.is_up,
            modes: connection.modes,
            mtu: u16::try_from(self.interface.mtu()).unwrap_or(u16::MAX),
            numa_node: None,
            rx_queues: self.interface.queues(),
            rss: (self.interface.queues() > 1).then(|| SPREADS_BY.to_owned()),
            offload: Some("tso".to_owned()),
        }
    }

    fn stats(&self) -> DeviceStats {
        self.interface.stats()
    }

    fn report_changes(&mut self, reporter: &ChangeReporter) -> bool {
        self.interface.reporter.set(reporter);
        true
    }

    /// Does nothing: the owner of the interface sets it up or down.
    fn set_link(&mut self, _up: bool) {}

    fn delivers_gso(&self) -> bool {
        true
    }

    fn refused_frames(&self) -> u64 {
        self.interface.counters.read().rx_errors
    }

    fn refusal_remedy(&self) -> String {
        format!(
            "compare the MTU of {0} with that of its sender; or let the sender's kernel segment: ethtool -K INTERFACE \
             {SEGMENTATION_OFF}, on the other end of a veth pair, or else on {0}",
            self.interface.name
        )
    }
}

#[cfg(test)]
mod tests;
