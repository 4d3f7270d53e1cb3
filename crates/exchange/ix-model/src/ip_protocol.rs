//! Names of IP protocols, by which people read them: "UDP", not 17.
//!
//! The names are the keywords of the IANA's registry "Assigned Internet Protocol Numbers". ICMPv6 and OSPF have the names
//! of their RFCs, because nobody looks for `IPv6-ICMP` and `OSPFIGP`.

use core::fmt;

/// The keywords of the protocols 0 to 145; empty where the registry has none.
#[rustfmt::skip]
const KEYWORDS: [&str; 146] = [
    /*   0 */ "HOPOPT", "ICMP", "IGMP", "GGP", "IPv4", "ST", "TCP", "CBT", "EGP", "IGP",
    /*  10 */ "BBN-RCC-MON", "NVP-II", "PUP", "ARGUS", "EMCON", "XNET", "CHAOS", "UDP", "MUX", "DCN-MEAS",
    /*  20 */ "HMP", "PRM", "XNS-IDP", "TRUNK-1", "TRUNK-2", "LEAF-1", "LEAF-2", "RDP", "IRTP", "ISO-TP4",
    /*  30 */ "NETBLT", "MFE-NSP", "MERIT-INP", "DCCP", "3PC", "IDPR", "XTP", "DDP", "IDPR-CMTP", "TP++",
    /*  40 */ "IL", "IPv6", "SDRP", "IPv6-Route", "IPv6-Frag", "IDRP", "RSVP", "GRE", "DSR", "BNA",
    /*  50 */ "ESP", "AH", "I-NLSP", "SWIPE", "NARP", "Min-IPv4", "TLSP", "SKIP", "ICMPv6", "IPv6-NoNxt",
    /*  60 */ "IPv6-Opts", "", "CFTP", "", "SAT-EXPAK", "KRYPTOLAN", "RVD", "IPPC", "", "SAT-MON",
    /*  70 */ "VISA", "IPCV", "CPNX", "CPHB", "WSN", "PVP", "BR-SAT-MON", "SUN-ND", "WB-MON", "WB-EXPAK",
    /*  80 */ "ISO-IP", "VMTP", "SECURE-VMTP", "VINES", "IPTM", "NSFNET-IGP", "DGP", "TCF", "EIGRP", "OSPF",
    /*  90 */ "Sprite-RPC", "LARP", "MTP", "AX.25", "IPIP", "MICP", "SCC-SP", "ETHERIP", "ENCAP", "",
    /* 100 */ "GMTP", "IFMP", "PNNI", "PIM", "ARIS", "SCPS", "QNX", "A/N", "IPComp", "SNP",
    /* 110 */ "Compaq-Peer", "IPX-in-IP", "VRRP", "PGM", "", "L2TP", "DDX", "IATP", "STP", "SRP",
    /* 120 */ "UTI", "SMP", "SM", "PTP", "ISIS over IPv4", "FIRE", "CRTP", "CRUDP", "SSCOPMCE", "IPLT",
    /* 130 */ "SPS", "PIPE", "SCTP", "FC", "RSVP-E2E-IGNORE", "Mobility Header", "UDPLite", "MPLS-in-IP", "manet", "HIP",
    /* 140 */ "Shim6", "WESP", "ROHC", "Ethernet", "AGGFRAG", "NSH",
];

/// The number of an IP protocol. It is displayed as its name, such as `UDP`, or as `protocol 200` if it has none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IpProtocol(pub u8);

impl IpProtocol {
    /// Returns true for TCP, UDP and SCTP.
    pub const fn has_ports(self) -> bool {
        matches!(self.0, 6 | 17 | 132)
    }

    /// Returns the name; `None` if the registry has none.
    pub fn name(self) -> Option<&'static str> {
        let keyword = KEYWORDS.get(usize::from(self.0)).copied();
        keyword.filter(|keyword| !keyword.is_empty())
    }
}

impl fmt::Display for IpProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.pad(name),
            None => f.pad(&format!("protocol {}", self.0)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a name as Debian's list and the registry may write it: without case and joints.
    fn plain(name: &str) -> String {
        let name = name.to_ascii_lowercase().replace(['-', ' '], "");
        match &*name {
            "ipencap" => "ipv4".to_owned(),
            "ipv6icmp" => "icmpv6".to_owned(),
            "isis" => "isisoveripv4".to_owned(),
            _ => name,
        }
    }

    #[test]
    fn the_names_are_those_of_the_list_of_the_system() {
        let list = std::fs::read_to_string("/etc/protocols").unwrap_or_default();
        let rows = list.lines().filter_map(|line| {
            let mut words = line.split('#').next()?.split_whitespace();
            let (name, number) = (words.next()?, words.next()?);
            let names: Vec<String> = words.chain([name]).map(plain).collect();
            Some((number.parse::<u8>().ok()?, names))
        });
        // The list of Debian has a pseudo protocol with the number of HOPOPT.
        let rows: Vec<_> = rows.filter(|(_, names)| names != &["ip", "ip"]).collect();
        if rows.is_empty() {
            println!("skipped: /etc/protocols (package netbase) is not here");
        }
        for (number, names) in rows {
            let name = IpProtocol(number).name().unwrap_or_default();
            assert!(
                names.contains(&plain(name)),
                "{number}: {name} is none of {names:?}"
            );
        }
    }

    #[test]
    fn a_protocol_without_a_name_says_that_its_number_is_one() {
        let text = |number: u8| IpProtocol(number).to_string();
        assert_eq!(
            [text(17), text(58), text(61), text(145), text(200), text(255)],
            [
                "UDP",
                "ICMPv6",
                "protocol 61",
                "NSH",
                "protocol 200",
                "protocol 255"
            ]
        );
    }
}
