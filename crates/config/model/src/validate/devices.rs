//! Machine resources of devices; no two ports may use the same one.

use std::collections::HashSet;

use crate::device::Device;
use crate::vnic::VnicKind;

/// Returns the machine resources that a device uses exclusively.
pub(super) fn resources(device: &Device) -> HashSet<String> {
    let mut taken = HashSet::new();
    match device {
        Device::Pci(pci) => {
            let part = pci
                .args
                .value("representor")
                .map(|part| format!(",representor={part}"))
                .unwrap_or_default();
            taken.insert(format!("{}{part}", pci.address));
        }
        Device::Vdev(vdev) => {
            taken.insert(vdev.name().to_owned());
            if let Some(iface) = vdev.args.value("iface") {
                // AF_XDP can assign the queues of one interface to several devices.
                let queue = vdev
                    .args
                    .value("start_queue")
                    .map(|queue| format!(",start_queue={queue}"));
                taken.insert(format!("iface={iface}{}", queue.unwrap_or_default()));
            }
        }
        Device::Pcap(files) => taken.extend(files.tx().map(|path| format!("pcap:tx={}", path.display()))),
        Device::Tap(name) | Device::Kernel(name) => {
            taken.insert(format!("iface={name}"));
        }
        Device::Vnic(vnic) => {
            // Several memif interfaces can share one socket.
            let id = match vnic.kind() {
                VnicKind::Memif => format!(",id={}", vnic.id()),
                VnicKind::Vhost | VnicKind::VirtioUser => String::new(),
            };
            taken.insert(format!("socket={}{id}", vnic.path().display()));
        }
        Device::Nic(path) => {
            taken.insert(format!("socket={}", path.display()));
        }
        Device::Wan(_) => {
            taken.insert(device.to_string());
        }
        Device::Link(_)
        | Device::Tunnel(_)
        | Device::Nsh(_)
        | Device::Lag(_)
        | Device::Memory
        | Device::Chain(_) => {}
    }
    taken
}
