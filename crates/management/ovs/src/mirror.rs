//! Mirror rows: copies of packets for a monitor.

use std::collections::BTreeMap;

use millrace_model as model;
use millrace_ovsdb::Uuid;

use crate::fault::RowName;
use crate::one::One;
use crate::place::{MirrorRow, PortRow};
use crate::rows::View;

/// Adds the mirrors of a bridge whose ports are translated. Returns the rows with the names that they have in the model.
pub(crate) fn mirrors(
    one: &mut One<'_, '_>,
    view: &View<'_>,
    ports: &[PortRow],
    bridge: &mut model::Bridge,
) -> Vec<MirrorRow> {
    let names = port_names(ports);
    let mut rows = Vec::new();
    for mirror in view.refer(one.replica, "mirrors", "Mirror") {
        let row = mirror.row_name();
        let name = model_name(&row, bridge);
        let made = name.and_then(|name| mirror_of(one, &mirror, &row, name, &names));
        let model_name = match made {
            Ok(made) => {
                let name = made.name.to_string();
                bridge.mirrors.push(made);
                Some(name)
            }
            Err(reason) => {
                one.faults.refuse(&row, reason);
                None
            }
        };
        rows.push(MirrorRow {
            uuid: mirror.uuid,
            name: row.name,
            model_name,
        });
    }
    rows
}

/// Returns the names that the rows of ports have in the model: those of their interface, or of their bond.
fn port_names(ports: &[PortRow]) -> BTreeMap<Uuid, model::PortName> {
    let in_effect = ports.iter().filter_map(|port| {
        let first = port.interfaces.first()?;
        first.number?;
        let name = if port.is_bond { &port.name } else { &first.name };
        Some((port.uuid, name.parse().ok()?))
    });
    in_effect.collect()
}

/// Returns the name of the row, or one of its UUID if the model does not have that name or another mirror does.
fn model_name(row: &RowName, bridge: &model::Bridge) -> Result<model::MirrorName, String> {
    let own = row.name.parse::<model::MirrorName>().ok();
    let is_free = |name: &model::MirrorName| bridge.mirrors.iter().all(|mirror| mirror.name != *name);
    match own.filter(is_free) {
        Some(name) => Ok(name),
        None => {
            let digits = row.uuid.to_string();
            format!("mirror-{}", digits.get(digits.len() - 8..).unwrap_or(""))
                .parse()
                .map_err(|error: model::NameError| error.to_string())
        }
    }
}

fn mirror_of(
    one: &mut One<'_, '_>,
    view: &View<'_>,
    row: &RowName,
    name: model::MirrorName,
    names: &BTreeMap<Uuid, model::PortName>,
) -> Result<model::Mirror, String> {
    let mut made = model::Mirror::new(name);
    if let Some(port) = view.refer(one.replica, "output_port", "Port").first() {
        let Some(output) = names.get(&port.uuid) else {
            return Err(format!(
                "output_port {}: the bridge has no such port, or it is not in effect; expected a port of the bridge",
                port.row_name().name
            ));
        };
        made.output_port = Some(output.clone());
        if let Some(vlan) = view.integer("output_vlan") {
            one.faults.ignore(
                row,
                format!("output_vlan={vlan} has no effect: copies go to output_port"),
            );
        }
    } else if let Some(vlan) = view.integer("output_vlan") {
        let vid = u16::try_from(vlan).ok().filter(|vid| (1..=4094).contains(vid));
        let vid = vid.and_then(|vid| millrace_types::Vid::new(vid).ok());
        made.output_vlan = Some(vid.ok_or_else(|| format!("output_vlan={vlan}: expected 1 to 4094"))?);
    } else {
        return Err("no output: expected output_port or output_vlan".to_owned());
    }
    made.select_all = view.is_true("select_all");
    for (column, selected) in [
        ("select_src_port", &mut made.select_received),
        ("select_dst_port", &mut made.select_sent),
    ] {
        // With select_all, the other columns say nothing.
        let ports = view.refer(one.replica, column, "Port").into_iter();
        for port in ports.filter(|_| !made.select_all) {
            match names.get(&port.uuid) {
                // The output port has no packets but copies.
                Some(name) if made.output_port.as_ref() == Some(name) => {}
                Some(name) => selected.push(name.clone()),
                None => one.faults.refuse(
                    row,
                    format!(
                        "{column} {}: the bridge has no such port, or it is not in effect; expected a port of the bridge",
                        port.row_name().name
                    ),
                ),
            }
        }
    }
    if !made.select_all && made.select_received.is_empty() && made.select_sent.is_empty() {
        return Err(
            "it selects nothing, and its output port is one as any other: expected select_all=true, or ports in \
             select_src_port or select_dst_port"
                .to_owned(),
        );
    }
    let vlans = view
        .integers("select_vlan")
        .filter_map(|vlan| u16::try_from(vlan).ok());
    made.select_vlans = vlans
        .filter_map(|vlan| model::MirrorVlan::new(vlan).ok())
        .collect();
    if let Some(snaplen) = view.integer("snaplen") {
        let snaplen = u16::try_from(snaplen)
            .ok()
            .and_then(|size| model::SnapLen::new(size).ok());
        made.snaplen = Some(snaplen.ok_or("snaplen: expected 14 to 65535 bytes")?);
    }
    Ok(made)
}
