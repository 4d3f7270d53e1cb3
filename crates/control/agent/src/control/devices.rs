//! Devices of ports, from the configuration to the data plane.

use std::path::Path;

use millrace_datapath::io::{DeviceSpec, SocketAccess, VnicKind, VnicSpec};
use millrace_model as model;

/// Returns the device of a port or of a member of a LAG, whose name is `name`.
///
/// A memory device has no name in the configuration; it is named after its bridge and port.
pub(super) fn device_spec(bridge: &str, name: &str, device: &model::Device) -> DeviceSpec {
    match device {
        model::Device::Pci(_) => DeviceSpec::Pci(device.to_string()),
        model::Device::Vdev(_) => DeviceSpec::Vdev(device.to_string()),
        model::Device::Pcap(files) => DeviceSpec::Pcap {
            rx: files.rx().map(Path::to_owned),
            tx: files.tx().map(Path::to_owned),
            repeat: files.repeat(),
        },
        model::Device::Wan(end) => DeviceSpec::Wan {
            name: end.name.to_string(),
            end: usize::from(end.is_b),
        },
        model::Device::Link(name) => DeviceSpec::Link(name.to_string()),
        model::Device::Tap(name) => DeviceSpec::Tap(name.to_string()),
        model::Device::Kernel(name) => DeviceSpec::Kernel(name.to_string()),
        model::Device::Nic(path) => DeviceSpec::Nic(path.clone()),
        model::Device::Vnic(vnic) => DeviceSpec::Vnic(vnic_spec(vnic)),
        // Tunnels and NSH ports have no device, a LAG has those of its members, and a chain supplies the devices of
        // its ports, so no device is opened.
        model::Device::Memory
        | model::Device::Tunnel(_)
        | model::Device::Nsh(_)
        | model::Device::Lag(_)
        | model::Device::Chain(_) => DeviceSpec::Memory(format!("{bridge}/{name}")),
    }
}

/// Returns the device of a virtual NIC.
fn vnic_spec(vnic: &model::Vnic) -> VnicSpec {
    VnicSpec {
        kind: match vnic.kind() {
            model::VnicKind::Vhost => VnicKind::Vhost { tso: vnic.tso() },
            model::VnicKind::VirtioUser => VnicKind::VirtioUser {
                packed: vnic.rings() == model::VirtioRings::Packed,
            },
            model::VnicKind::Memif => VnicKind::Memif { id: vnic.id() },
        },
        path: vnic.path().to_owned(),
        access: (vnic.role() == model::VnicRole::Server).then(|| SocketAccess {
            owner: vnic.owner().map(str::to_owned),
            group: vnic.group().map(str::to_owned),
            mode: vnic.mode(),
        }),
    }
}
