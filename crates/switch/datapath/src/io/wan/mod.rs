//! Emulated paths as devices: `wan:NAME,a` and `wan:NAME,b`. Packets leave by the other end later, or not
//! at all.
//!
//! ```text
//!  worker of port a: Tx -- classify, segment -- Sender == ring == Receiver -- Rx :worker of port b
//!                                                 ^
//!  control: Wans -- configuration ----------------'  for frames from now on
//! ```
//!
//! A packet longer than the emulated MTU may be answered by an ICMP error. The error comes out of the end
//! that the packet entered.
//!
//! The crate `wan-emulator` has the model and the ring, but no clock. This module has the clock, the packets
//! and the names. A packet arrives when its burst is sent to the port, so all packets of a burst have the
//! same arrival time. A direction has one producer, the worker that owns the port
//! (docs/adr/0006-scheduling.md), and one consumer.

mod queue;
mod registry;
mod scenario;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use millrace_types::Mac;
use millrace_wire::Packet;

use self::queue::{OutOfPath, Rx, Tx};
use self::registry::End;
pub use self::registry::{PathError, PathSpec, PathState, Wans};
use super::allocate::Empty;
use super::{Device, DeviceInfo, DeviceSpec, DeviceStats, OpenError, Opened, PortModes};

/// Opens an end of a configured path. `empty` supplies packets for the frames that leave the path.
///
/// # Errors
/// [`OpenError`], with the next step.
pub(super) fn open<P: Packet + 'static>(
    spec: &DeviceSpec,
    wans: &Arc<Wans>,
    name: &str,
    end: usize,
    empty: &Empty<P>,
) -> Result<Opened<P>, OpenError> {
    let end = wans.open(name, end).map_err(|error| match error {
        registry::EndError::Unknown => OpenError::Missing {
            device: spec.to_string(),
            reason: format!("there is no emulated path `{name}`"),
            next_step: format!("add [[wan]] with name = \"{name}\" to the configuration"),
        },
        registry::EndError::Taken => OpenError::Busy {
            device: spec.to_string(),
            reason: "this end of the path has a port".to_owned(),
            next_step: "use the other end, or a path of its own".to_owned(),
        },
    })?;
    let epoch = wans.epoch();
    let out_of_path = OutOfPath {
        receiver: end.receiver,
        icmp_errors: end.icmp_errors,
    };
    let rx = Rx::new(out_of_path, Arc::clone(&end.shared), Arc::clone(empty), epoch);
    let tx = Tx::new(end.sender, Arc::clone(&end.shared), end.classes, epoch);
    Ok(Opened {
        rx: vec![Box::new(rx)],
        tx: vec![Box::new(tx)],
        device: Box::new(WanDevice(end.shared)),
    })
}

/// The control side's handle of an end.
struct WanDevice(Arc<End>);

impl Device for WanDevice {
    fn info(&self) -> DeviceInfo {
        DeviceInfo {
            driver: "wan".to_owned(),
            mac: Mac([0x02, 0, 0, 0, 0, 0]),
            speed_mbps: None,
            link_up: self.0.peer_is_open(),
            modes: PortModes::default(),
            mtu: 9582,
            numa_node: None,
            rx_queues: 1,
            rss: None,
            offload: None,
        }
    }

    fn stats(&self) -> DeviceStats {
        DeviceStats {
            rx_missed: 0,
            rx_errors: 0,
            rx_no_buffer: self.0.rx_no_buffer.load(Ordering::Relaxed),
            tx_errors: self.0.tx_errors.load(Ordering::Relaxed),
        }
    }

    /// Does nothing: the link is up while both ends are open.
    fn set_link(&mut self, _up: bool) {}
}

impl Drop for WanDevice {
    fn drop(&mut self) {
        self.0.close();
    }
}

#[cfg(test)]
mod tests;
