//! `millrace show mirrors`.

use millrace_api::view::Mirror;

use crate::table::Table;

/// Returns a row for each mirror.
pub(super) fn table(list: &[Mirror]) -> Table {
    let mut table = Table::new(
        &["MIRROR", "PACKETS OF", "TO", ">PACKETS", ">BYTES", ">LOST"],
        "no mirror",
    );
    for mirror in list {
        table.row([
            mirror.name.clone(),
            selection(mirror),
            output(mirror),
            mirror.packets.to_string(),
            mirror.bytes.to_string(),
            mirror.lost.to_string(),
        ]);
    }
    table
}

fn selection(mirror: &Mirror) -> String {
    let mut parts = Vec::new();
    if mirror.select_all {
        parts.push("all ports".to_owned());
    }
    for (verb, ports) in [
        ("received", &mirror.select_received),
        ("sent", &mirror.select_sent),
    ] {
        if !ports.is_empty() {
            parts.push(format!("{verb} by {}", ports.join(",")));
        }
    }
    if !mirror.select_vlans.is_empty() {
        let vlans: Vec<String> = mirror.select_vlans.iter().map(u16::to_string).collect();
        parts.push(format!("VLAN {}", vlans.join(",")));
    }
    parts.join(", ")
}

fn output(mirror: &Mirror) -> String {
    let port = mirror.output_port.as_ref().map(|port| format!("port {port}"));
    let vlan = mirror.output_vlan.map(|vlan| format!("VLAN {vlan}"));
    let output = port.or(vlan).unwrap_or_default();
    match mirror.snaplen {
        None => output,
        Some(snaplen) => format!("{output}, {snaplen} bytes"),
    }
}
