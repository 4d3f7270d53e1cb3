//! The life of a device from probe to removal, and the diagnosis of a failed probe.

use std::ffi::CString;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use millrace_dpdk_sys as sys;
use nix::net::if_::if_nametoindex;
use parking_lot::Mutex;

use super::driver_resources::DriverResources;
use super::{AttachError, DevArgs, PortError, PortId, StartError};
use crate::eal::log;
use crate::{Eal, Errno};

/// The lock for DPDK's lists of devices, which DPDK does not lock.
static PROBING: Mutex<()> = Mutex::new(());

/// Kernel drivers that give a device to user space, and kernel drivers that share a device with a poll-mode
/// driver.
const USABLE_KERNEL_DRIVERS: [&str; 7] = [
    "vfio-pci",
    "igb_uio",
    "uio_pci_generic",
    "mlx4_core",
    "mlx5_core",
    "mana",
    "sfc",
];

/// The answer of a driver that was asked to deliver the marks of flow rules. Some drivers validate and create such rules,
/// although the receive function that they chose leaves marks out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum MarkDelivery {
    /// The driver does not answer, or has not been asked.
    #[default]
    Unknown,
    /// The driver delivers marks.
    Yes,
    /// The driver does not deliver marks.
    No,
}

impl MarkDelivery {
    /// Returns the answer for the result of `shim_port_negotiate_marks`.
    pub(super) fn of_code(code: i32) -> MarkDelivery {
        match code {
            0 => MarkDelivery::No,
            1.. => MarkDelivery::Yes,
            _ => MarkDelivery::Unknown,
        }
    }
}

/// An attached device. Dropping it stops, closes and removes it.
#[derive(Debug)]
pub(super) struct Device {
    /// [`PortId::DETACHED`] after a failure to attach the device again.
    id: PortId,
    devargs: DevArgs,
    started: bool,
    was_configured: bool,
    /// False after the first call of `remove`, even if the call failed.
    attached: bool,
    /// True if `remove` failed, so that DPDK's bus may still have the device.
    is_on_bus: bool,
    /// The sockets that the driver opened and may not close.
    resources: DriverResources,
    /// The number of packets that were dropped because the device cannot send them.
    dropped: AtomicU64,
    /// The answer of the driver at the last start.
    mark_delivery: MarkDelivery,
    /// The number of [`FlowRule`](super::FlowRule)s, each of which owns the device, too.
    flow_rules: AtomicUsize,
}

impl Device {
    pub(super) fn attach(_eal: Eal, devargs: &DevArgs) -> Result<Self, AttachError> {
        Ok(Self {
            id: probe(devargs)?,
            devargs: devargs.clone(),
            started: false,
            was_configured: false,
            attached: true,
            is_on_bus: false,
            resources: DriverResources::default(),
            dropped: AtomicU64::new(0),
            mark_delivery: MarkDelivery::Unknown,
            flow_rules: AtomicUsize::new(0),
        })
    }

    /// Removes the device, if it is attached, and attaches it again, for drivers that can start a device only once.
    pub(super) fn attach_again(&mut self) -> Result<(), StartError> {
        let removed = self.remove();
        // DPDK may assign the number to another device from now on.
        self.id = PortId::DETACHED;
        removed.map_err(StartError::Detach)?;
        if self.is_on_bus {
            // An earlier removal failed. DPDK would refuse to probe the device again.
            let _probing = PROBING.lock();
            self.is_on_bus = !unprobe(&self.devargs);
        }
        self.id = probe(&self.devargs).map_err(StartError::Attach)?;
        self.attached = true;
        self.was_configured = false;
        Ok(())
    }

    pub(super) fn id(&self) -> PortId {
        self.id
    }

    /// Returns false after a failure to attach the device again.
    pub(super) fn is_attached(&self) -> bool {
        self.attached
    }

    pub(super) fn name(&self) -> &str {
        self.devargs.name()
    }

    /// Returns the existing kernel interface whose frames the device receives and sends.
    pub(super) fn kernel_interface(&self) -> Option<&str> {
        self.devargs.kernel_interface()
    }

    pub(super) fn is_started(&self) -> bool {
        self.started
    }

    /// Returns true if queues were set up since the device was attached.
    pub(super) fn was_configured(&self) -> bool {
        self.was_configured
    }

    pub(super) fn set_configured(&mut self, started: bool) {
        self.was_configured = true;
        self.started = started;
    }

    /// Calls `work`, which sets up queues, and records the AF_XDP sockets that are opened meanwhile.
    pub(super) fn note_sockets<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let _probing = PROBING.lock();
        let before = DriverResources::now();
        let result = work();
        self.resources.extend(DriverResources::since(&before));
        result
    }

    pub(super) fn info(&self) -> Result<sys::shim_port_info, Errno> {
        let mut info = sys::shim_port_info::default();
        // SAFETY: the number is that of the attached device, or one that DPDK refuses;
        // `info` is writable.
        Errno::check(unsafe { sys::shim_port_info(self.id.0, &raw mut info) }).map(|_| info)
    }

    pub(super) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    pub(super) fn count_dropped(&self, packets: u64) {
        self.dropped.fetch_add(packets, Ordering::Relaxed);
    }

    pub(super) fn reset_dropped(&self) {
        self.dropped.store(0, Ordering::Relaxed);
    }

    pub(super) fn flow_rules(&self) -> usize {
        self.flow_rules.load(Ordering::Relaxed)
    }

    /// Returns the driver's answer to the question for marks, at the last start.
    pub(super) fn mark_delivery(&self) -> MarkDelivery {
        self.mark_delivery
    }

    pub(super) fn set_mark_delivery(&mut self, delivery: MarkDelivery) {
        self.mark_delivery = delivery;
    }

    pub(super) fn add_flow_rule(&self) {
        self.flow_rules.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn remove_flow_rule(&self) {
        self.flow_rules.fetch_sub(1, Ordering::Relaxed);
    }

    /// Converts the return value of a DPDK call about this device; `action` names the call in the error.
    pub(super) fn check(&self, action: &'static str, code: i32) -> Result<(), PortError> {
        let refused = |errno| PortError::Device {
            port: self.name().to_owned(),
            action,
            errno,
        };
        Errno::check(code).map(|_| ()).map_err(refused)
    }

    pub(super) fn stop(&mut self) -> Result<(), PortError> {
        if !self.started {
            return Ok(());
        }
        // SAFETY: the port is attached, and no thread has a queue of it: queues prevent a `&mut` borrow of the device.
        self.check("stop it", unsafe { sys::rte_eth_dev_stop(self.id.0) })?;
        self.started = false;
        Ok(())
    }

    pub(super) fn detach(mut self) -> Result<(), PortError> {
        self.remove()
    }

    /// Stops, closes and removes the device, once.
    fn remove(&mut self) -> Result<(), PortError> {
        if !std::mem::take(&mut self.attached) {
            return Ok(());
        }
        self.is_on_bus = true;
        let _probing = PROBING.lock();
        let stopped = self.stop();
        let action = "detach it";
        let refused = |errno| PortError::Device {
            port: self.name().to_owned(),
            action,
            errno,
        };
        let bus_device = self.info().map_err(refused)?.device;
        // SAFETY: the port is attached and unused, since self is the last owner.
        self.check("close it", unsafe { sys::rte_eth_dev_close(self.id.0) })?;
        // SAFETY: the bus keeps its device until this call; PROBING excludes other threads.
        self.check(action, unsafe { sys::rte_dev_remove(bus_device) })?;
        (self.is_on_bus, self.started) = (false, false);
        self.resources.close();
        stopped
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        if let Err(error) = self.remove() {
            tracing::warn!(port = self.name(), %error, "the device stays attached");
        }
    }
}

fn probe(devargs: &DevArgs) -> Result<PortId, AttachError> {
    let _probing = PROBING.lock();
    let name = devargs.name().to_owned();
    if port_named(devargs).is_some() {
        return Err(AttachError::Attached { name });
    }
    check_devargs(devargs)?;
    // SAFETY: EAL is up, because every caller holds or held a token; the text is zero-terminated and copied,
    // and PROBING excludes other threads.
    let (code, warnings) = log::capture(|| unsafe { sys::rte_dev_probe(devargs.as_c_str().as_ptr()) });
    if let Err(errno) = Errno::check(code) {
        return Err(explain(devargs, errno, &warnings));
    }
    port_named(devargs).ok_or_else(|| {
        let _is_removed = unprobe(devargs);
        AttachError::NoPort { name }
    })
}

fn port_named(devargs: &DevArgs) -> Option<PortId> {
    let name = CString::new(devargs.name()).ok()?;
    let mut id = 0;
    // SAFETY: the name is zero-terminated, and `id` is writable.
    let code = unsafe { sys::rte_eth_dev_get_port_by_name(name.as_ptr(), &raw mut id) };
    (code == 0).then_some(PortId(id))
}

/// Removes a device, which no port uses, from its bus. Returns false if that failed.
fn unprobe(devargs: &DevArgs) -> bool {
    let bus = if devargs.is_pci() { c"pci" } else { c"vdev" };
    let Ok(name) = CString::new(devargs.name()) else {
        return false;
    };
    // SAFETY: both texts are zero-terminated; the caller holds PROBING, and no thread has a handle to the device.
    let code = unsafe { sys::rte_eal_hotplug_remove(bus.as_ptr(), name.as_ptr()) };
    let removed = Errno::check(code);
    if let Err(error) = removed {
        tracing::warn!(device = devargs.name(), %error, "the device stays attached");
    }
    removed.is_ok()
}

/// Size of the file header of a capture, in bytes.
const CAPTURE_HEADER: u64 = 24;

/// Checks for mistakes that a driver would report later, and less clearly.
fn check_devargs(devargs: &DevArgs) -> Result<(), AttachError> {
    if devargs.is_pci() {
        return check_pci(devargs.name());
    }
    // The kernel is asked, since /sys may show another network namespace.
    if let Some(interface) = devargs.kernel_interface()
        && if_nametoindex(interface).is_err()
    {
        return Err(AttachError::NoInterface {
            name: devargs.name().to_owned(),
            interface: interface.to_owned(),
        });
    }
    match devargs.option("rx_pcap") {
        Some(path) if devargs.has_driver("net_pcap") => check_capture_file(devargs, path),
        _ => Ok(()),
    }
}

fn check_capture_file(devargs: &DevArgs, path: &str) -> Result<(), AttachError> {
    let (name, path) = (devargs.name().to_owned(), Path::new(path).to_owned());
    match fs::File::open(&path).and_then(|file| file.metadata()) {
        Err(source) => Err(AttachError::File { name, path, source }),
        // The driver would allocate buffers for the empty file and keep them.
        Ok(file) if file.len() <= CAPTURE_HEADER && devargs.option("infinite_rx") == Some("1") => {
            Err(AttachError::EmptyCapture { name, path })
        }
        Ok(_) => Ok(()),
    }
}

fn check_pci(address: &str) -> Result<(), AttachError> {
    let folder = Path::new("/sys/bus/pci/devices").join(address);
    if !folder.exists() {
        return Err(AttachError::NoPciDevice {
            address: address.to_owned(),
        });
    }
    let link = fs::read_link(folder.join("driver")).ok();
    let driver = link
        .as_deref()
        .and_then(Path::file_name)
        .and_then(|name| name.to_str())
        .unwrap_or("none");
    if USABLE_KERNEL_DRIVERS.contains(&driver) {
        Ok(())
    } else {
        Err(AttachError::KernelDriver {
            address: address.to_owned(),
            driver: driver.to_owned(),
        })
    }
}

/// The messages that EAL adds to every failure.
const BOILERPLATE: [&str; 2] = [
    "Driver cannot attach the device",
    "Failed to attach device on primary process",
];

/// Classifies a failed probe by its log and its error number. Drivers return -1 for any failure, so that number alone
/// does not mean "not permitted".
fn explain(devargs: &DevArgs, errno: Errno, warnings: &[String]) -> AttachError {
    use nix::errno::Errno as E;
    let name = devargs.name().to_owned();
    let unparsed = warnings
        .iter()
        .any(|line| line.contains("failed to parse device"));
    if let (true, Some(driver)) = (unparsed, devargs.virtual_driver()) {
        return AttachError::NoDriver {
            name,
            driver: driver.to_owned(),
        };
    }
    let telling = |line: &&String| !BOILERPLATE.iter().any(|same| line.contains(same));
    let reasons: Vec<&str> = warnings.iter().filter(telling).map(String::as_str).collect();
    let nameless = errno.number() == 1;
    let detail = match (reasons.is_empty(), nameless) {
        (false, _) => reasons.join("; "),
        (true, true) => "the driver gives no reason".to_owned(),
        (true, false) => errno.to_string(),
    };
    let says = |word: &str| detail.to_ascii_lowercase().contains(word);
    // The kernel rejects this socket only for lack of permission, which the driver does not report.
    let socket_refused = says("could not open af_packet socket");
    if socket_refused || errno.is(E::EACCES) || says("permission denied") || says("not permitted") {
        AttachError::Permission { name, detail }
    } else if errno.is(E::EBUSY) || says("busy") || says("already in use") {
        AttachError::InUse { name, detail }
    } else if errno.is(E::EINVAL) || nameless {
        AttachError::Options {
            name,
            devargs: devargs.to_string(),
            detail,
        }
    } else {
        AttachError::Other { name, errno, detail }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eal::tests::small_eal;

    #[test]
    fn a_driver_that_answers_no_delivers_no_marks_and_one_that_does_not_answer_may() {
        assert_eq!(MarkDelivery::of_code(0), MarkDelivery::No);
        assert_eq!(MarkDelivery::of_code(1), MarkDelivery::Yes);
        assert_eq!(MarkDelivery::of_code(-nix::libc::ENOTSUP), MarkDelivery::Unknown);
    }

    #[test]
    fn a_device_that_cannot_be_attached_again_loses_its_number_until_it_can() {
        // EAL starts once in a process.
        millrace_testing::own_process!();
        let eal = small_eal();
        let attach = |devargs: &str| Device::attach(eal, &devargs.parse().unwrap()).unwrap();
        let mut device = attach("net_null0");
        // An interface that disappeared.
        let missing = "net_af_packet0,iface=nosuch0".parse().unwrap();
        let devargs = std::mem::replace(&mut device.devargs, missing);
        let error = device.attach_again().unwrap_err();
        assert!(
            matches!(error, StartError::Attach(AttachError::NoInterface { .. })),
            "{error}"
        );
        let other = attach("net_null1");
        assert_ne!(device.id(), other.id());
        assert!(!device.is_attached() && device.info().is_err());
        device.devargs = devargs;
        device.attach_again().unwrap();
        assert!(device.is_attached() && device.info().is_ok());
        assert_ne!(device.id(), other.id());
    }
}
