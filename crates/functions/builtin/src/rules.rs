//! The rules of the firewall: `allow|deny [tcp|udp|icmp|sctp|NUMBER] [from PREFIX] [to PREFIX] [port N[-M]]`. The first match
//! decides; `port` is the destination port.

use core::net::{IpAddr, Ipv4Addr};
use core::ops::RangeInclusive;
use core::str::FromStr;

use millrace_nf::flow::FlowPacket;
use millrace_wire::IpProto;

/// The decision of a rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Decision {
    Allow,
    Deny,
}

impl FromStr for Decision {
    type Err = String;

    fn from_str(text: &str) -> Result<Decision, String> {
        match text {
            "allow" => Ok(Decision::Allow),
            "deny" => Ok(Decision::Deny),
            _ => Err("expected allow or deny".to_owned()),
        }
    }
}

/// An address prefix, which contains addresses of its IP version only. An IPv4 prefix holds the bits of IPv4-mapped
/// IPv6 addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Prefix {
    is_v6: bool,
    bits: u128,
    mask: u128,
}

impl Prefix {
    fn contains(&self, is_v6: bool, address: [u8; 16]) -> bool {
        self.is_v6 == is_v6 && u128::from_be_bytes(address) & self.mask == self.bits
    }
}

impl FromStr for Prefix {
    type Err = String;

    fn from_str(text: &str) -> Result<Prefix, String> {
        let wrong = || format!("`{text}` is not a prefix: expected an address, or ADDRESS/LENGTH");
        let (address, length) = match text.split_once('/') {
            Some((address, length)) => (address, Some(length)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let (octets, before) = match address {
            IpAddr::V4(v4) => (Ipv4Addr::to_ipv6_mapped(&v4).octets(), 96),
            IpAddr::V6(v6) => (v6.octets(), 0),
        };
        let length = match length {
            None => 128,
            Some(length) => length.parse::<u32>().map_err(|_| wrong())?.saturating_add(before),
        };
        if length > 128 {
            return Err(wrong());
        }
        let mask = u128::MAX.checked_shl(128 - length).unwrap_or(0);
        let bits = u128::from_be_bytes(octets);
        if bits & !mask != 0 {
            return Err(format!(
                "`{text}` has bits set behind the prefix length: expected zeros there"
            ));
        }
        Ok(Prefix {
            is_v6: address.is_ipv6(),
            bits,
            mask,
        })
    }
}

/// A rule. A condition that is `None` matches all packets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Rule {
    pub(crate) decision: Decision,
    proto: Option<IpProto>,
    from: Option<Prefix>,
    to: Option<Prefix>,
    ports: Option<RangeInclusive<u16>>,
}

impl Rule {
    /// Returns whether the rule matches a packet.
    pub(crate) fn matches(&self, packet: &FlowPacket) -> bool {
        let (id, is_v6) = (&packet.id, packet.is_v6);
        self.proto.is_none_or(|proto| {
            // `icmp` matches ICMPv4 and ICMPv6.
            proto.0 == id.proto || proto == IpProto::ICMPV4 && id.proto == IpProto::ICMPV6.0
        }) && self
            .from
            .is_none_or(|prefix| prefix.contains(is_v6, id.source.address))
            && self
                .to
                .is_none_or(|prefix| prefix.contains(is_v6, id.destination.address))
            && self
                .ports
                .as_ref()
                .is_none_or(|ports| ports.contains(&id.destination.port))
    }
}

impl FromStr for Rule {
    type Err = String;

    fn from_str(text: &str) -> Result<Rule, String> {
        let mut words = text.split_whitespace();
        let decision = words.next().unwrap_or_default().parse()?;
        let mut rule = Rule {
            decision,
            proto: None,
            from: None,
            to: None,
            ports: None,
        };
        while let Some(word) = words.next() {
            let mut operand = || words.next().ok_or(format!("`{word}` lacks its operand"));
            match word {
                "tcp" => rule.proto = Some(IpProto::TCP),
                "udp" => rule.proto = Some(IpProto::UDP),
                "sctp" => rule.proto = Some(IpProto::SCTP),
                "icmp" => rule.proto = Some(IpProto::ICMPV4),
                "from" => rule.from = Some(operand()?.parse()?),
                "to" => rule.to = Some(operand()?.parse()?),
                "port" => rule.ports = Some(ports(operand()?)?),
                number => {
                    let proto = number.parse().map_err(|_| {
                        format!(
                            "`{number}`: expected tcp, udp, icmp, sctp, a protocol number, from, to or port"
                        )
                    })?;
                    rule.proto = Some(IpProto(proto));
                }
            }
        }
        let has_ports = matches!(rule.proto, Some(IpProto::TCP | IpProto::UDP | IpProto::SCTP));
        if rule.ports.is_some() && !has_ports {
            return Err("`port` requires tcp, udp or sctp: other protocols have no ports".to_owned());
        }
        Ok(rule)
    }
}

fn ports(text: &str) -> Result<RangeInclusive<u16>, String> {
    let wrong = || format!("`{text}`: expected a port, or LOW-HIGH");
    let (low, high) = text.split_once('-').unwrap_or((text, text));
    let (low, high): (u16, u16) = (
        low.parse().map_err(|_| wrong())?,
        high.parse().map_err(|_| wrong())?,
    );
    if low <= high { Ok(low..=high) } else { Err(wrong()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_rules_name_the_expected_words() {
        for (text, part) in [
            ("drop tcp", "expected allow or deny"),
            ("deny tcp port", "lacks its operand"),
            ("deny port 22", "requires tcp"),
            ("deny tcp port 9-3", "LOW-HIGH"),
            ("deny from 10.0.0.1/8", "bits set behind the prefix length"),
            ("deny from 10.0.0.0/33", "not a prefix"),
            ("deny from 10.0.0.0/4294967295", "not a prefix"),
            ("deny gopher", "expected tcp"),
        ] {
            let error = text.parse::<Rule>().unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn prefixes_contain_their_addresses_and_none_of_the_other_ip_version() {
        let v4: Prefix = "10.1.0.0/16".parse().unwrap();
        let mapped = |text: &str| text.parse::<Ipv4Addr>().unwrap().to_ipv6_mapped().octets();
        assert!(v4.contains(false, mapped("10.1.255.3")) && !v4.contains(false, mapped("10.2.0.0")));
        let all: Prefix = "::/0".parse().unwrap();
        assert!(all.contains(true, [7; 16]) && !all.contains(false, mapped("10.1.255.3")));
        let all: Prefix = "0.0.0.0/0".parse().unwrap();
        assert!(all.contains(false, mapped("10.1.255.3")) && !all.contains(true, mapped("10.1.255.3")));
    }
}
