//! Check of checksum offload on ports that use DPDK's AF_PACKET or AF_XDP driver on a veth interface.
//!
//! Hosts at the other end leave partial checksums for a NIC to complete. The kernel marks each such frame, but these
//! drivers ignore the mark and forward the frame unchanged: TCP and UDP fail, while ping works.

use millrace_api::view::Port;
use millrace_model::Device;

use super::finding::Finding;

/// The drivers that forward partial checksums.
const DRIVERS: [&str; 2] = ["net_af_packet", "net_af_xdp"];

/// Returns the veth interface of a port whose driver forwards partial checksums.
fn affected(port: &Port, is_veth: impl Fn(&str) -> bool) -> Option<String> {
    let Ok(Device::Vdev(vdev)) = port.device.parse() else {
        return None;
    };
    let interface = vdev
        .args
        .value("iface")
        .filter(|_| DRIVERS.contains(&vdev.driver()))?;
    is_veth(interface).then(|| interface.to_owned())
}

/// Returns true for a veth interface of this machine; false also if the kernel does not answer.
fn is_veth(interface: &str) -> bool {
    millrace_lab::is_veth(interface).unwrap_or(false)
}

/// Returns a line of advice for each affected port, to print below a list of ports.
pub(crate) fn advice(ports: &[Port]) -> Vec<String> {
    let concerned = ports
        .iter()
        .filter_map(|port| Some((port, affected(port, is_veth)?)));
    concerned
        .map(|(port, interface)| advice_on(port, &interface))
        .collect()
}

fn advice_on(port: &Port, interface: &str) -> String {
    format!(
        "port {}: it forwards partial checksums: set device = \"kernel:{interface}\", which completes partial checksums; or, in each \
         host behind {interface}: ethtool -K INTERFACE tx off",
        port.name
    )
}

/// Checks the ports of all bridges. Returns `None` if no port is affected.
pub(super) fn of_ports(ports: &[Port]) -> Option<Finding> {
    finding(&advice(ports))
}

fn finding(lines: &[String]) -> Option<Finding> {
    (!lines.is_empty()).then(|| {
        let found = "TCP and UDP arrive with wrong checksums from hosts with checksum offload";
        Finding::note("checksums", found, lines.join("\n"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(device: &str) -> Port {
        let text = format!(
            r#"{{"bridge":"br0","name":"p1","number":1,"device":"{device}","mac":"02:00:00:00:00:01","admin":"up","link":"up","mtu":1500,
                "rx":{{"packets":0,"bytes":0,"drops":0,"errors":0}},"tx":{{"packets":0,"bytes":0,"drops":0,"errors":0}}}}"#
        );
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    #[test]
    fn dpdk_drivers_at_virtual_ethernet_are_warned_of_with_the_device_that_mends_it() {
        let is_veth = |interface: &str| interface == "veth1";
        for device in [
            "net_af_packet0,iface=veth1",
            "net_af_xdp3,iface=veth1,start_queue=0",
        ] {
            let port = port(device);
            let interface = affected(&port, is_veth).unwrap();
            let finding = finding(&[advice_on(&port, &interface)]).unwrap();
            let next_step = finding.next_step.unwrap();
            assert!(
                next_step.contains("kernel:veth1") && next_step.contains("ethtool -K"),
                "{next_step}"
            );
        }
        for device in [
            "kernel:veth1",
            "net_af_packet0,iface=eth0",
            "net_tap0,iface=veth1",
            "0000:01:00.0",
        ] {
            assert_eq!(affected(&port(device), is_veth), None, "{device}");
        }
        assert_eq!(finding(&[]), None);
    }
}
