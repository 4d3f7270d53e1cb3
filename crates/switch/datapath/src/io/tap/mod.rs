//! A tap device: a kernel interface by which the machine itself, or a container, is connected to a bridge.
//!
//! A system call for each frame is expensive, and a system call for each poll even more so. Two threads
//! therefore make these calls, one for each direction, and workers see two queues in memory. An empty poll
//! costs a worker one read of a counter, while the threads sleep in the kernel. Works with any packet buffer,
//! with and without DPDK.
//!
//! An interface that another program deletes is made again, in the network namespace of the switch: down and without addresses,
//! as a new one, with the MTU and the MAC address that were set.

mod queues;
pub(super) mod shadow;

use core::cell::Cell;
use std::fs::File;
use std::io;
use std::sync::Arc;

use millrace_types::Mac;
use millrace_wire::Packet;
use parking_lot::Mutex;

use self::queues::{Connection, Remake};
use super::allocate::Allocate;
use super::changes::ReporterSlot;
use super::kernel;
use super::link_watch::LinkWatch;
use super::{
    ChangeReporter, Device, DeviceInfo, DeviceOptions, DeviceSpec, DeviceStats, OpenError, Opened, PortModes,
};

struct Tap<P> {
    name: String,
    mtu: u16,
    /// The MAC address that was set, for the interface that is made again, too.
    wanted_mac: Arc<Mutex<Option<Mac>>>,
    /// The last known MAC address; an interface in another network namespace cannot be queried.
    mac: Cell<Mac>,
    connection: Connection<P>,
    reporter: Arc<ReporterSlot>,
    /// Reports changes until it is dropped.
    _watch: LinkWatch,
}

/// Makes the interface again, and reports that it was deleted and that it is back.
struct Remaker {
    name: String,
    mtu: u16,
    mac: Arc<Mutex<Option<Mac>>>,
    reporter: Arc<ReporterSlot>,
}

impl Remake for Remaker {
    fn remake(&self) -> io::Result<File> {
        let file = kernel::create(&self.name)?;
        kernel::set_mtu(&self.name, self.mtu)?;
        if let Some(mac) = *self.mac.lock() {
            kernel::set_mac(&self.name, mac)?;
        }
        Ok(file)
    }

    fn changed(&self) {
        self.reporter.report();
    }
}

/// Creates the interface and starts its threads.
///
/// # Errors
/// Returns [`OpenError`], which has the next step.
pub(super) fn open<P: Packet + 'static>(
    spec: &DeviceSpec,
    name: &str,
    options: DeviceOptions,
    allocate: &Allocate<P>,
) -> Result<Opened<P>, OpenError> {
    let file = kernel::create(name).map_err(|error| refused(spec, name, &error))?;
    let failed = |error: io::Error| OpenError::Failed {
        device: spec.to_string(),
        reason: error.to_string(),
        next_step: "read the kernel's messages: ip -d link show, dmesg".to_owned(),
    };
    kernel::set_mtu(name, options.mtu).map_err(failed)?;
    let reporter = Arc::<ReporterSlot>::default();
    let mac = Arc::<Mutex<Option<Mac>>>::default();
    let remaker = Remaker {
        mac: Arc::clone(&mac),
        name: name.to_owned(),
        mtu: options.mtu,
        reporter: Arc::clone(&reporter),
    };
    let (connection, rx, tx) =
        Connection::start(file, name, allocate, Some(Box::new(remaker))).map_err(failed)?;
    let watch = LinkWatch::start(name, {
        let reporter = Arc::clone(&reporter);
        move || reporter.report()
    });
    let tap = Tap {
        _watch: watch.map_err(failed)?,
        reporter,
        name: name.to_owned(),
        mtu: options.mtu,
        wanted_mac: mac,
        mac: Cell::new(Mac::ZERO),
        connection,
    };
    Ok(Opened {
        rx: vec![Box::new(rx)],
        tx: vec![Box::new(tx)],
        device: Box::new(tap),
    })
}

fn refused(spec: &DeviceSpec, name: &str, error: &io::Error) -> OpenError {
    let device = spec.to_string();
    match error.raw_os_error() {
        Some(libc::EBUSY | libc::EINVAL | libc::EEXIST) => OpenError::Busy {
            device,
            reason: format!("the kernel refuses a tap device of this name: {error}"),
            next_step: format!("see its user (ip -d link show {name}), or choose another name"),
        },
        Some(libc::EPERM | libc::EACCES) => OpenError::Failed {
            device,
            reason: format!("{error}: this process may not create interfaces"),
            next_step: format!(
                "start millraced with CAP_NET_ADMIN, or create the interface for it: \
                 ip tuntap add dev {name} mode tap user USER"
            ),
        },
        Some(libc::ENOENT | libc::ENXIO | libc::ENODEV) => OpenError::Unsupported {
            device,
            reason: format!("/dev/net/tun: {error}"),
            next_step: "load the kernel's module: modprobe tun; give a container the device /dev/net/tun"
                .to_owned(),
        },
        _ => OpenError::Failed {
            device,
            reason: error.to_string(),
            next_step: "read the kernel's messages: dmesg".to_owned(),
        },
    }
}

impl<P: Send> Device for Tap<P> {
    fn info(&self) -> DeviceInfo {
        let state = kernel::state(&self.name).ok();
        if let Some(state) = state {
            self.mac.set(Mac(state.mac));
        }
        // An interface that was moved to a container cannot be queried, and counts as up.
        let is_running = state.is_none_or(|state| state.is_running);
        DeviceInfo {
            driver: "tap".to_owned(),
            mac: self.mac.get(),
            speed_mbps: None,
            link_up: is_running && !self.connection.is_deleted(),
            modes: PortModes::default(),
            mtu: self.mtu,
            numa_node: None,
            rx_queues: 1,
            rss: None,
            offload: None,
        }
    }

    fn stats(&self) -> DeviceStats {
        self.connection.stats()
    }

    fn report_changes(&mut self, reporter: &ChangeReporter) -> bool {
        self.reporter.set(reporter);
        true
    }

    fn set_mac(&mut self, mac: Option<Mac>) -> io::Result<()> {
        *self.wanted_mac.lock() = mac;
        mac.map_or(Ok(()), |mac| kernel::set_mac(&self.name, mac))
    }

    /// Does nothing: the owner of the interface's addresses sets it up or down.
    fn set_link(&mut self, _up: bool) {}
}

#[cfg(test)]
mod tests;
