//! The format for comparing the alerts of two engines: one line for each (mode, protocol, endpoints, sid).

use core::net::IpAddr;

use millrace_ips_engine::Mode;
use millrace_ips_engine::event::Alert;

/// Returns an alert as a line of fields between tabs: mode, protocol, endpoint, endpoint, sid. The endpoints are sorted
/// as text, and addresses of IPv6 are written in full.
pub fn comparison_line(mode: Mode, alert: &Alert) -> String {
    let subject = &alert.subject;
    let (source, destination) = subject.ports.unwrap_or_default();
    let mut ends = [
        (address(subject.src), source),
        (address(subject.dst), destination),
    ];
    ends.sort();
    let [(first, first_port), (second, second_port)] = ends;
    let mode = match mode {
        Mode::Ids => "ids",
        Mode::Ips => "ips",
    };
    let protocol = subject.protocol_name();
    format!(
        "{mode}\t{protocol}\t{first} {first_port}\t{second} {second_port}\t{}",
        alert.sid
    )
}

fn address(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => {
            let groups: Vec<String> = address
                .segments()
                .iter()
                .map(|group| format!("{group:04x}"))
                .collect();
            groups.join(":")
        }
    }
}
