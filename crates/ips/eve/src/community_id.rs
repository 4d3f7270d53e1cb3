//! The Community ID of a flow: a hash that other tools also compute (Community ID specification, version 1,
//! seed 0).

use core::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha1::{Digest, Sha1};

use crate::protocol::{ICMP, ICMPV6, has_ports};

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

/// Returns the Community ID of two endpoints. The hash includes the ports of TCP, UDP and SCTP.
pub(crate) fn community_id(
    source: (IpAddr, u16),
    destination: (IpAddr, u16),
    protocol: u8,
) -> Option<String> {
    // For ICMP, the hash has two values made from ICMP types in place of ports. The events do not hold these
    // types.
    if protocol == ICMP || protocol == ICMPV6 {
        return None;
    }
    let ends = [source, destination].map(|(address, port)| (octets(address), port));
    let [first, second] = match ends[0] <= ends[1] {
        true => [&ends[0], &ends[1]],
        false => [&ends[1], &ends[0]],
    };
    let mut hash = Sha1::new();
    hash.update([0, 0]);
    hash.update(&first.0);
    hash.update(&second.0);
    hash.update([protocol, 0]);
    if has_ports(protocol) {
        hash.update(first.1.to_be_bytes());
        hash.update(second.1.to_be_bytes());
    }
    Some(format!("1:{}", STANDARD.encode(hash.finalize())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::TCP;

    #[test]
    fn it_equals_the_examples_of_its_specification() {
        let one = (IpAddr::from([128, 232, 110, 120]), 34_855);
        let two = (IpAddr::from([66, 35, 250, 204]), 80);
        let wanted = Some("1:LQU9qZlK+B5F3KDmev6m5PMibrg=".to_owned());
        assert_eq!(community_id(one, two, TCP), wanted);
        assert_eq!(community_id(two, one, TCP), wanted);
    }
}
