//! Devices that classify packets: their registers, and the entries that the switch has in them.

use millrace_agent::BridgeControl;
use millrace_api::server::LiveError;
use millrace_api::view;
use millrace_datapath::io::Backend;
use millrace_flow::{Field, FlowKey, FlowMask, Match};
use millrace_types::PortNo;

use super::offload::level;
use super::trace::known_port;

/// Returns the registers of the device of a port.
pub(super) fn registers<B: Backend>(
    control: &BridgeControl<B>,
    bridge: &str,
    port: PortNo,
) -> Result<Vec<view::NicRegister>, LiveError> {
    known_port(control, bridge, port)?;
    let Some(registers) = control.datapath().registers(port) else {
        return Err(LiveError::Contradicted {
            message: format!(
                "the device of port {port} of bridge {bridge} has no registers: expected `nic:PATH`"
            ),
            next_step: "`millrace show ports` names the driver of each port; those of `nic` have registers"
                .to_owned(),
        });
    };
    if registers.is_empty() {
        return Err(LiveError::Unavailable {
            message: format!("the device of port {port} of bridge {bridge} is not connected"),
            next_step: "start the device, such as millrace-nic, at the socket that the port names".to_owned(),
        });
    }
    let registers = registers.into_iter().map(|register| view::NicRegister {
        name: register.name,
        offset: register.offset as u64,
        value: register.value,
        meaning: register.meaning,
    });
    Ok(registers.collect())
}

/// Returns the entries that the switch has in the device of a port.
pub(super) fn entries<B: Backend>(
    control: &BridgeControl<B>,
    bridge: &str,
    port: PortNo,
) -> Result<Vec<view::NicEntry>, LiveError> {
    known_port(control, bridge, port)?;
    let Some(held) = control.datapath().offload_entries(port) else {
        return Err(LiveError::Contradicted {
            message: format!("port {port} of bridge {bridge} has no offload, so its device gets no entries"),
            next_step: "set `offload` in the port (docs/smart-nic.md)".to_owned(),
        });
    };
    let entries = held.entries.iter().map(|(entry, dropped)| view::NicEntry {
        slot: entry.slot,
        mark: entry.mark,
        level: level(held.level).to_owned(),
        dropped: *dropped,
        packets_per_second: entry.rate,
        matching: matching(&entry.key, &held.mask).to_string(),
    });
    Ok(entries.collect())
}

/// Returns the packets that equal a key in the bits of a mask, as far as fields of a match say it.
fn matching(key: &FlowKey, mask: &FlowMask) -> Match {
    let mut builder = Match::builder();
    for field in Field::ALL {
        let bits = mask.0.field(field);
        let is_there = field.layer().is_none_or(|layer| key.has(layer));
        if bits == 0 || !is_there {
            continue;
        }
        let masked = (bits != field.max_value()).then_some(bits);
        // Fields that share storage differ in their prerequisites, one of which is met.
        let mut tried = builder.clone();
        if tried.push(field, key.field(field) & bits, masked).is_ok() && tried.finish().is_ok() {
            builder = tried;
        }
    }
    builder.finish().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use millrace_flow::Layer;

    #[test]
    fn an_entry_is_shown_as_the_match_of_its_bits() {
        let mut key = FlowKey::default();
        key.put(Field::EthType, 0x0800);
        key.put(Field::IpProto, 17);
        key.put(Field::Ipv4Dst, 0x0a00_0100);
        key.put(Field::UdpDst, 2000);
        key.add_layer(Layer::Ip);
        key.add_layer(Layer::L4);
        let mut mask = FlowMask::default();
        for (field, bits) in [
            (Field::EthType, 0xffff),
            (Field::IpProto, 0xff),
            (Field::Ipv4Dst, 0xffff_ff00),
            (Field::UdpDst, 0xffff),
        ] {
            mask.0.put(field, bits);
        }
        let expected: Match = "udp,nw_dst=10.0.1.0/24,tp_dst=2000".parse().unwrap();
        assert_eq!(matching(&key, &mask).to_string(), expected.to_string());
    }
}
