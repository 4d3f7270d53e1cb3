//! Mirrors of a bridge, from the agent's values to those of REST.

use millrace_agent::control::BridgeControl;
use millrace_api::view;
use millrace_datapath::io::Backend;

/// Returns the mirrors of a bridge.
pub(super) fn view<B: Backend>(control: &BridgeControl<B>) -> Vec<view::Mirror> {
    let mirrors = control.config().mirrors.iter();
    let mirror = |mirror: &millrace_model::Mirror| {
        let count = control.mirror_count(&mirror.name);
        let names = |ports: &[millrace_model::PortName]| ports.iter().map(ToString::to_string).collect();
        view::Mirror {
            name: mirror.name.to_string(),
            select_all: mirror.select_all,
            select_received: names(&mirror.select_received),
            select_sent: names(&mirror.select_sent),
            select_vlans: mirror.select_vlans.iter().map(|vlan| vlan.get()).collect(),
            output_port: mirror.output_port.as_ref().map(ToString::to_string),
            output_vlan: mirror.output_vlan.map(millrace_types::Vid::raw),
            snaplen: mirror.snaplen.map(millrace_model::SnapLen::get),
            packets: count.packets,
            bytes: count.bytes,
            lost: count.lost,
        }
    };
    mirrors.map(mirror).collect()
}
