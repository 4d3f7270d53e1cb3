//! LLDP: a setting of an interface in Open vSwitch, of the bridge and its ports here.

use millrace_model as model;
use millrace_ovsdb::Replica;

use crate::fault::Faults;
use crate::keys;
use crate::rows::View;

fn is_enabled(interface: &View<'_>) -> bool {
    interface.map("lldp").get("enable") == Some(&"true")
}

/// Enables LLDP of a bridge if an interface asks for it.
pub(crate) fn bridge(replica: &Replica, view: &View<'_>, bridge: &mut model::Bridge) {
    let ports = view.refer(replica, "ports", "Port").into_iter();
    let mut interfaces = ports.flat_map(|port| port.refer(replica, "interfaces", "Interface"));
    if interfaces.any(|interface| is_enabled(&interface)) {
        bridge.lldp = Some(model::Lldp::new());
    }
}

/// Sets LLDP of the port of these interfaces.
pub(crate) fn port(
    interfaces: &[View<'_>],
    bridge: &model::Bridge,
    port: &mut model::Port,
    faults: &mut Faults,
) {
    for interface in interfaces {
        let row = interface.row_name();
        keys::flag(interface, "lldp", "enable", &row, faults);
        keys::check(interface, "lldp", &row, |key| key == "enable", faults);
    }
    if bridge.lldp.is_some() && !interfaces.iter().any(is_enabled) {
        port.lldp = model::PortLldp::Off;
    }
}
