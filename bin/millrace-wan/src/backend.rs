//! The interfaces by name, and the backend that opens them: DPDK only if one of them needs it.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use millrace_datapath::io::{DeviceSpec, HeapBackend};
use millrace_model::Device;
use millrace_wan_control::args::BetweenArgs;

/// The number of packet buffers without DPDK: a burst or two for each side. Delayed frames are in the path's
/// memory.
const FRAMES: usize = 1024;
/// The size of a packet buffer without DPDK, in bytes.
const FRAME_SIZE: usize = 9728;

/// Forwards until SIGINT or SIGTERM.
pub(crate) fn run(between: &BetweenArgs) -> Result<()> {
    let interfaces = [interface(&between.a)?, interface(&between.b)?];
    if interfaces[0] == interfaces[1] {
        bail!("{} is both ends of the path: expected two interfaces", between.a);
    }
    let needs_dpdk = |spec: &DeviceSpec| matches!(spec, DeviceSpec::Pci(_) | DeviceSpec::Vdev(_));
    if interfaces.iter().any(needs_dpdk) {
        return with_dpdk(between, &interfaces);
    }
    crate::run::run(
        &Arc::new(HeapBackend::with_pool(FRAMES, FRAME_SIZE)),
        between,
        &interfaces,
    )
}

/// Returns the device that a text names: a bare name is an interface of the kernel.
fn interface(text: &str) -> Result<DeviceSpec> {
    let is_bare = !text.contains([':', ',']) && !text.starts_with("net_");
    let device: Device = match is_bare {
        true => format!("kernel:{text}").parse(),
        false => text.parse(),
    }?;
    Ok(match &device {
        Device::Kernel(name) => DeviceSpec::Kernel(name.to_string()),
        Device::Tap(name) => DeviceSpec::Tap(name.to_string()),
        Device::Pci(_) => DeviceSpec::Pci(device.to_string()),
        Device::Vdev(_) => DeviceSpec::Vdev(device.to_string()),
        Device::Pcap(files) => DeviceSpec::Pcap {
            rx: files.rx().map(Path::to_owned),
            tx: files.tx().map(Path::to_owned),
            repeat: files.repeat(),
        },
        _ => bail!(
            "`{text}` is no interface of a path: expected the name of an interface (eth1), tap:NAME, a PCI address or DPDK \
             devargs (net_af_xdp0,iface=eth1)"
        ),
    })
}

#[cfg(not(feature = "dpdk"))]
fn with_dpdk(_: &BetweenArgs, _: &[DeviceSpec; 2]) -> Result<()> {
    bail!(
        "this millrace-wan was built without DPDK: use interfaces of the kernel, or build it with the feature dpdk"
    )
}

/// Starts EAL, runs the path on it, and releases EAL's resources of the machine.
#[cfg(feature = "dpdk")]
fn with_dpdk(between: &BetweenArgs, interfaces: &[DeviceSpec; 2]) -> Result<()> {
    use millrace_datapath::io::dpdk::DpdkBackend;
    use millrace_dpdk::{CoreId, Eal, EalConfig};

    /// The memory of EAL in MiB, for pools and rings of two ports. Delayed frames are in other memory.
    const MEMORY_MIB: u32 = 256;
    /// Buffers of the shared pool.
    const BUFFERS: u32 = 32_767;
    let eal = Eal::init(&EalConfig {
        worker_cores: between.cores.iter().map(|core| CoreId(*core)).collect(),
        memory_mib: MEMORY_MIB,
        file_prefix: format!("millrace-wan-{}", std::process::id()),
        ..EalConfig::default()
    })
    .context("DPDK does not start (interfaces of the kernel need none)")?;
    let backend = DpdkBackend::new(eal, BUFFERS).context("the packet pool")?;
    let outcome = crate::run::run(&Arc::new(backend), between, interfaces);
    eal.unmount_hugetlbfs();
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_name_is_an_interface_of_the_kernel_and_devargs_are_dpdks() {
        assert_eq!(interface("eth1").unwrap(), DeviceSpec::Kernel("eth1".to_owned()));
        assert_eq!(
            interface("kernel:eth1").unwrap(),
            DeviceSpec::Kernel("eth1".to_owned())
        );
        assert_eq!(
            interface("net_ring0").unwrap(),
            DeviceSpec::Vdev("net_ring0".to_owned())
        );
        for wrong in ["", "link:a", "wan:geo,a"] {
            let error = interface(wrong).unwrap_err().to_string();
            assert!(error.contains("expected"), "{error}");
        }
    }
}
