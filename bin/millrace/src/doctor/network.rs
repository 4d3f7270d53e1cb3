//! Checks of packet input and output: AF_XDP, vfio, NICs; and of the programs that labs and the demo need.

use super::finding::Finding;
use super::machine::Machine;

/// The first kernel whose AF_XDP works on every interface in copy mode (5.4, with need-wakeup).
const AF_XDP_KERNEL: (u32, u32) = (5, 4);

pub(super) fn af_xdp(machine: &Machine) -> Finding {
    let release = machine.read("proc/sys/kernel/osrelease").unwrap_or_default();
    let mut parts = release
        .split(['.', '-'])
        .map(|part| part.trim().parse::<u32>().ok());
    let version = (
        parts.next().flatten().unwrap_or(0),
        parts.next().flatten().unwrap_or(0),
    );
    let next_step = "kernel:INTERFACE works on every interface";
    if version < AF_XDP_KERNEL {
        return Finding::note(
            "af_xdp",
            format!("kernel {} is too old", release.trim()),
            format!("expected 5.4 or later; {next_step}"),
        );
    }
    // This file lists the socket protocols that the kernel supports.
    let families = machine.read("proc/net/protocols").unwrap_or_default();
    if families
        .lines()
        .any(|line| line.split_whitespace().next() == Some("XDP"))
    {
        Finding::good("af_xdp", format!("kernel {}", release.trim()))
    } else {
        Finding::note(
            "af_xdp",
            "this kernel is built without AF_XDP",
            format!("a kernel with CONFIG_XDP_SOCKETS has it; {next_step}"),
        )
    }
}

pub(super) fn vfio(machine: &Machine) -> Finding {
    let loaded = machine.exists("sys/module/vfio_pci");
    let iommu = !machine.list("sys/class/iommu").is_empty();
    let unsafe_mode = machine
        .read("sys/module/vfio/parameters/enable_unsafe_noiommu_mode")
        .is_some_and(|text| text.trim() == "Y");
    match (loaded, iommu || unsafe_mode) {
        (true, true) => Finding::good(
            "vfio",
            if iommu {
                "loaded, with an IOMMU"
            } else {
                "loaded, without an IOMMU (unsafe)"
            },
        ),
        (false, _) => Finding::note(
            "vfio",
            "not loaded",
            "needed only for NICs that are bound to DPDK: sudo modprobe vfio-pci",
        ),
        (true, false) => Finding::note(
            "vfio",
            "loaded, but there is no IOMMU",
            "for NICs that are bound to DPDK: add `intel_iommu=on iommu=pt` to the kernel's command line, or (unsafe) \
             echo Y | sudo tee /sys/module/vfio/parameters/enable_unsafe_noiommu_mode",
        ),
    }
}

/// Checks the NICs on the PCI bus and their drivers.
pub(super) fn nics(machine: &Machine) -> Finding {
    let devices = machine.list("sys/bus/pci/devices");
    let is_nic = |address: &&String| {
        let class = machine
            .read(&format!("sys/bus/pci/devices/{address}/class"))
            .unwrap_or_default();
        class.trim().starts_with("0x02")
    };
    let nics: Vec<(String, Option<String>)> = devices
        .iter()
        .filter(is_nic)
        .map(|address| {
            (
                address.clone(),
                machine.link_target(&format!("sys/bus/pci/devices/{address}/driver")),
            )
        })
        .collect();
    if nics.is_empty() {
        return Finding::good(
            "NICs",
            "none on the PCI bus; devices of the kernel and virtual ones work",
        );
    }
    let show = |(address, driver): &(String, Option<String>)| {
        format!("{address} ({})", driver.as_deref().unwrap_or("no driver"))
    };
    let found = nics.iter().map(show).collect::<Vec<_>>().join(", ");
    let is_bound = |driver: &Option<String>| {
        driver.as_deref().is_some_and(|name| {
            matches!(
                name,
                "vfio-pci" | "igb_uio" | "uio_pci_generic" | "mlx5_core" | "mlx4_core"
            )
        })
    };
    let is_free = |(address, driver): &&(String, Option<String>)| {
        !is_bound(driver)
            && !interfaces(machine, address)
                .iter()
                .any(|name| is_in_use(machine, name))
    };
    match nics.iter().find(is_free) {
        None => Finding::good("NICs", found),
        Some((address, _)) => Finding::note(
            "NICs",
            found,
            format!(
                "to bind one to DPDK (the kernel loses it): sudo dpdk-devbind.py --bind=vfio-pci {address}"
            ),
        ),
    }
}

/// Returns the kernel's interfaces of a NIC. The interface of a virtio NIC is one directory further down.
fn interfaces(machine: &Machine, address: &str) -> Vec<String> {
    let device = format!("sys/bus/pci/devices/{address}");
    let mut names = machine.list(&format!("{device}/net"));
    for child in machine
        .list(&device)
        .iter()
        .filter(|name| name.starts_with("virtio"))
    {
        names.extend(machine.list(&format!("{device}/{child}/net")));
    }
    names
}

/// Returns true if a route uses the interface, or if it belongs to an upper interface, such as a bond, a bridge or a VLAN. If DPDK
/// took such an interface, the machine could lose its network, and the user the connection to the machine.
fn is_in_use(machine: &Machine, interface: &str) -> bool {
    let routes = machine.read("proc/net/route").unwrap_or_default();
    let has_ipv4 = || {
        routes
            .lines()
            .any(|line| line.split_whitespace().next() == Some(interface))
    };
    let routes = machine.read("proc/net/ipv6_route").unwrap_or_default();
    // Each interface that is up has routes for link-local and multicast addresses.
    let has_ipv6 = || {
        routes.lines().any(|line| {
            let is_on_link = line.starts_with("fe80") || line.starts_with("ff");
            !is_on_link && line.split_whitespace().last() == Some(interface)
        })
    };
    let has_upper = || {
        let entries = machine.list(&format!("sys/class/net/{interface}"));
        entries.iter().any(|entry| entry.starts_with("upper_"))
    };
    has_ipv4() || has_ipv6() || has_upper()
}

/// The programs that labs and the demo use, with their Debian packages.
const TOOLS: [(&str, &str); 6] = [
    ("ip", "iproute2"),
    ("ethtool", "ethtool"),
    ("iperf3", "iperf3"),
    ("tcpdump", "tcpdump"),
    ("ovs-ofctl", "openvswitch-common"),
    ("dpdk-testpmd", "dpdk"),
];

pub(super) fn lab_tools(machine: &Machine) -> Finding {
    let directories = [
        "usr/bin",
        "usr/sbin",
        "bin",
        "sbin",
        "usr/local/bin",
        "usr/local/sbin",
    ];
    let has = |tool: &str| {
        directories
            .iter()
            .any(|directory| machine.exists(&format!("{directory}/{tool}")))
    };
    let missing: Vec<_> = TOOLS.iter().filter(|(tool, _)| !has(tool)).collect();
    if missing.is_empty() {
        return Finding::good("tools", "all programs of labs and the demo are installed");
    }
    let names: Vec<&str> = missing.iter().map(|(tool, _)| *tool).collect();
    let packages: Vec<&str> = missing.iter().map(|(_, package)| *package).collect();
    Finding::note(
        "tools",
        format!("missing: {}", names.join(", ")),
        format!(
            "for labs and the demo: sudo apt-get install {}",
            packages.join(" ")
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::super::finding::Verdict;
    use super::super::machine::tests::machine;
    use super::*;

    #[test]
    fn af_xdp_needs_a_kernel_that_is_new_enough_and_built_with_it() {
        let release = |text| ("proc/sys/kernel/osrelease", text);
        let protocols = (
            "proc/net/protocols",
            "protocol  size sockets\nXDP       1088      0\nTCP 2 3\n",
        );
        let (_dir, new) = machine(&[release("6.1.0-18-amd64\n"), protocols]);
        assert_eq!(af_xdp(&new), Finding::good("af_xdp", "kernel 6.1.0-18-amd64"));
        let (_dir, without) = machine(&[release("6.1.0\n")]);
        assert!(af_xdp(&without).next_step.unwrap().contains("CONFIG_XDP_SOCKETS"));
        let (_dir, old) = machine(&[release("4.19.0\n"), protocols]);
        assert_eq!(af_xdp(&old).verdict, Verdict::Note);
    }

    #[test]
    fn a_nic_of_the_kernel_is_shown_with_the_command_that_binds_it() {
        let device = "sys/bus/pci/devices/0000:01:00.0";
        let (_dir, kernel) = machine(&[
            (&format!("{device}/class"), "0x020000\n"),
            (&format!("{device}/driver"), "->../../../bus/pci/drivers/ixgbe"),
            ("sys/bus/pci/devices/0000:02:00.0/class", "0x030000\n"),
        ]);
        let finding = nics(&kernel);
        assert_eq!(finding.found, "0000:01:00.0 (ixgbe)");
        assert!(
            finding
                .next_step
                .unwrap()
                .ends_with("--bind=vfio-pci 0000:01:00.0")
        );
    }

    #[test]
    fn a_nic_that_carries_the_routes_of_the_machine_is_not_to_be_taken() {
        let device = "sys/bus/pci/devices/0000:01:00.0";
        let class = format!("{device}/class");
        let interface = format!("{device}/virtio1/net/eth0/mtu");
        let routes = "Iface Destination\neth0 00000000\n";
        let (_dir, used) = machine(&[
            (&class, "0x020000"),
            (&interface, "1500"),
            ("proc/net/route", routes),
        ]);
        assert_eq!(nics(&used).verdict, Verdict::Good);
    }

    #[test]
    fn a_nic_with_ipv6_routes_or_below_a_bond_is_not_to_be_taken() {
        let device = "sys/bus/pci/devices/0000:01:00.0";
        let class = (&*format!("{device}/class"), "0x020000");
        let interface = (&*format!("{device}/net/eth0/mtu"), "1500");
        let upper = ("sys/class/net/eth0/upper_bond0", "->../../bond0");
        let (_dir, below) = machine(&[class, interface, upper]);
        assert_eq!(nics(&below).verdict, Verdict::Good);
        let route = |destination: &str, size: u8, device: &str| {
            let zero = "0".repeat(32);
            format!(
                "{destination:0<32} {size:02x} {zero} 00 {zero} 00000400 00000001 00000000 00000001 {device:>8}\n"
            )
        };
        // The routes of an interface that is up with only a link-local address, and a route of another interface.
        let idle = [
            route("fe80", 64, "eth0"),
            route("ff00", 8, "eth0"),
            route("", 0, "lo"),
        ]
        .concat();
        let (_dir, idle) = machine(&[class, interface, ("proc/net/ipv6_route", &idle)]);
        assert_eq!(nics(&idle).verdict, Verdict::Note);
        for route in [route("", 0, "eth0"), route("20010db8", 64, "eth0")] {
            let (_dir, used) = machine(&[class, interface, ("proc/net/ipv6_route", &route)]);
            assert_eq!(nics(&used).verdict, Verdict::Good, "{route}");
        }
    }

    #[test]
    fn vfio_without_an_iommu_is_noted() {
        let module = ("sys/module/vfio_pci/refcnt", "0\n");
        assert!(vfio(&machine(&[module]).1).found.contains("no IOMMU"));
        let (_dir, whole) = machine(&[module, ("sys/class/iommu/dmar0/x", "")]);
        assert_eq!(vfio(&whole).verdict, Verdict::Good);
    }

    #[test]
    fn missing_tools_come_with_their_packages() {
        let (_dir, some) = machine(&[
            ("usr/bin/ip", ""),
            ("usr/sbin/ethtool", ""),
            ("usr/bin/iperf3", ""),
        ]);
        let finding = lab_tools(&some);
        assert_eq!(finding.found, "missing: tcpdump, ovs-ofctl, dpdk-testpmd");
        assert!(
            finding
                .next_step
                .unwrap()
                .ends_with("apt-get install tcpdump openvswitch-common dpdk")
        );
    }
}
