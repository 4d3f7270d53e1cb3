//! Sets of packets in words, for refusals of changes and for dry runs.

use core::net::{Ipv4Addr, Ipv6Addr};

use millrace_flow::Field;
use millrace_ix_model::IpProtocol;
use millrace_types::Mac;

use crate::space::{Cube, Var};

/// Returns the packets of a cube in words, such as "IPv4, UDP, to 192.0.2.1, from port 53".
pub fn packets(cube: &Cube) -> String {
    let mut words: Vec<String> = Vec::new();
    let protocol = cube.exact(Var::Field(Field::IpProto));
    for (var, value, mask) in cube.iter() {
        let is_exact = mask == var.all();
        let text = match var {
            Var::Vid(0) => format!("VLAN {}", number(value, mask, is_exact)),
            Var::Vid(at) => format!("VLAN {} as tag {}", number(value, mask, is_exact), at + 1),
            Var::Pcp(_) => format!("priority {}", number(value, mask, is_exact)),
            Var::Field(field) => match field {
                Field::EthDst if is_exact && value == Mac::BROADCAST.to_u64().into() => {
                    "broadcast".to_owned()
                }
                Field::EthDst if value == GROUP && mask == GROUP => "to a group address".to_owned(),
                Field::EthDst if value == 0 && mask == GROUP => "to one host".to_owned(),
                Field::EthDst => format!("to {}", mac(value, mask, is_exact)),
                Field::EthSrc => format!("from {}", mac(value, mask, is_exact)),
                Field::EthType => ethertype(value),
                Field::IpProto => ip_protocol(value),
                Field::Ipv4Dst => format!("to {}", prefix4(value, mask)),
                Field::Ipv4Src => format!("from {}", prefix4(value, mask)),
                Field::Ipv6Dst => format!("to {}", prefix6(value, mask)),
                Field::Ipv6Src => format!("from {}", prefix6(value, mask)),
                Field::TcpDst | Field::UdpDst | Field::SctpDst => {
                    format!("to port {}", number(value, mask, is_exact))
                }
                Field::TcpSrc | Field::UdpSrc | Field::SctpSrc => {
                    format!("from port {}", number(value, mask, is_exact))
                }
                Field::Icmpv6Type if protocol == Some(58) => neighbour_discovery(value),
                Field::ArpOp if value == 1 => "request".to_owned(),
                Field::ArpTpa => format!("for {}", prefix4(value, mask)),
                Field::ArpSpa => format!("by {}", prefix4(value, mask)),
                Field::Ipv6NdTarget => format!("for {}", prefix6(value, mask)),
                field => format!("{field} {}", number(value, mask, is_exact)),
            },
        };
        words.push(text);
    }
    if words.is_empty() {
        "all packets".to_owned()
    } else {
        words.join(", ")
    }
}

/// The bit of an Ethernet address that marks a group address.
const GROUP: u128 = 0x0100_0000_0000;

fn number(value: u128, mask: u128, is_exact: bool) -> String {
    if is_exact {
        value.to_string()
    } else {
        format!("{value:#x}/{mask:#x}")
    }
}

fn mac(value: u128, mask: u128, is_exact: bool) -> String {
    let text = |value: u128| Mac::from_u64(value as u64).to_string();
    if is_exact {
        text(value)
    } else {
        format!("{}/{}", text(value), text(mask))
    }
}

fn ethertype(value: u128) -> String {
    match value {
        0x0800 => "IPv4".to_owned(),
        0x86dd => "IPv6".to_owned(),
        0x0806 => "ARP".to_owned(),
        other => format!("EtherType {other:#06x}"),
    }
}

fn ip_protocol(value: u128) -> String {
    let number = u8::try_from(value).ok();
    let name = number.and_then(|number| IpProtocol(number).name());
    name.map_or_else(|| format!("IP protocol {value}"), str::to_owned)
}

fn neighbour_discovery(value: u128) -> String {
    match value {
        133 => "router solicitation".to_owned(),
        134 => "router advertisement".to_owned(),
        135 => "neighbour solicitation".to_owned(),
        136 => "neighbour advertisement".to_owned(),
        137 => "redirect".to_owned(),
        other => format!("type {other}"),
    }
}

fn prefix4(value: u128, mask: u128) -> String {
    let address = Ipv4Addr::from_bits(value as u32);
    match (mask as u32).leading_ones() {
        32 => address.to_string(),
        len if mask as u32 == u32::MAX.checked_shl(32 - len).unwrap_or(0) => format!("{address}/{len}"),
        _ => format!("{address}/{}", Ipv4Addr::from_bits(mask as u32)),
    }
}

fn prefix6(value: u128, mask: u128) -> String {
    let address = Ipv6Addr::from_bits(value);
    match mask.leading_ones() {
        128 => address.to_string(),
        len if mask == u128::MAX.checked_shl(128 - len).unwrap_or(0) => format!("{address}/{len}"),
        _ => format!("{address}/{}", Ipv6Addr::from_bits(mask)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_of_an_amplification_attack_read_as_a_person_would_say_them() {
        let cube = Cube::any()
            .with(Var::Field(Field::EthType), 0x0800u16)
            .with(Var::Field(Field::IpProto), 17u8)
            .masked(Var::Field(Field::Ipv4Dst), 0xc000_0200u32, 0xffff_ff00u32)
            .with(Var::Field(Field::UdpSrc), 53u16);
        assert_eq!(packets(&cube), "IPv4, UDP, to 192.0.2.0/24, from port 53");
        assert_eq!(packets(&Cube::any()), "all packets");
        let tagged = Cube::any().with(Var::Vid(0), 100u16).with(Var::Vid(1), 7u16);
        assert_eq!(packets(&tagged), "VLAN 100, VLAN 7 as tag 2");
    }
}
