//! The numbers of linux/netlink.h, rtnetlink.h, if_link.h, if_addr.h, neighbour.h, nexthop.h and netconf.h.
//!
//! `libc` and `netlink-sys` have some of them; here they are complete, with the types that the decoders compare.

/// Address families.
pub mod family {
    pub const UNSPEC: u8 = 0;
    pub const INET: u8 = 2;
    pub const INET6: u8 = 10;
}

/// Types of messages (`NLMSG_*`, `RTM_*`).
pub mod kind {
    pub const NOOP: u16 = 1;
    pub const ERROR: u16 = 2;
    pub const DONE: u16 = 3;
    pub const OVERRUN: u16 = 4;
    pub const NEW_LINK: u16 = 16;
    pub const DEL_LINK: u16 = 17;
    pub const GET_LINK: u16 = 18;
    pub const NEW_ADDR: u16 = 20;
    pub const DEL_ADDR: u16 = 21;
    pub const GET_ADDR: u16 = 22;
    pub const NEW_ROUTE: u16 = 24;
    pub const DEL_ROUTE: u16 = 25;
    pub const GET_ROUTE: u16 = 26;
    pub const NEW_NEIGH: u16 = 28;
    pub const DEL_NEIGH: u16 = 29;
    pub const GET_NEIGH: u16 = 30;
    pub const NEW_NETCONF: u16 = 80;
    pub const NEW_NEXTHOP: u16 = 104;
    pub const DEL_NEXTHOP: u16 = 105;
    pub const GET_NEXTHOP: u16 = 106;
}

/// Flags of a message (`NLM_F_*`).
pub mod nlm_flag {
    pub const REQUEST: u16 = 1;
    pub const MULTI: u16 = 2;
    pub const ACK: u16 = 4;
    /// The objects changed while a dump was made: it may lack some, or have some twice.
    pub const DUMP_INTERRUPTED: u16 = 16;
    /// `NLM_F_ROOT | NLM_F_MATCH`, of a request.
    pub const DUMP: u16 = 0x300;
    /// Of `RTM_NEW*`: an existing object was, or is to be, replaced.
    pub const REPLACE: u16 = 0x100;
    /// Of `RTM_NEW*` requests: fail if the object exists.
    pub const EXCLUSIVE: u16 = 0x200;
    pub const CREATE: u16 = 0x400;
    /// Of `RTM_NEW*`: the object was added behind those of the same key.
    pub const APPEND: u16 = 0x800;
}

/// Multicast groups of notifications (`RTNLGRP_*`).
pub mod multicast {
    pub const LINK: u32 = 1;
    pub const NEIGH: u32 = 3;
    pub const IPV4_IFADDR: u32 = 5;
    pub const IPV4_ROUTE: u32 = 7;
    pub const IPV6_IFADDR: u32 = 9;
    pub const IPV6_ROUTE: u32 = 11;
    pub const IPV4_NETCONF: u32 = 24;
    pub const IPV6_NETCONF: u32 = 25;
    pub const NEXTHOP: u32 = 32;
}

/// Attributes of routes (`RTA_*`).
pub mod rta {
    pub const DST: u16 = 1;
    pub const SRC: u16 = 2;
    pub const OIF: u16 = 4;
    pub const GATEWAY: u16 = 5;
    pub const PRIORITY: u16 = 6;
    pub const PREFSRC: u16 = 7;
    pub const METRICS: u16 = 8;
    pub const MULTIPATH: u16 = 9;
    pub const TABLE: u16 = 15;
    pub const VIA: u16 = 18;
    pub const ENCAP_TYPE: u16 = 21;
    pub const NH_ID: u16 = 30;
}

/// Metrics of routes (`RTAX_*`).
pub mod rtax {
    pub const MTU: u16 = 2;
}

/// Types of routes (`RTN_*`).
pub mod rtn {
    pub const UNICAST: u8 = 1;
    pub const LOCAL: u8 = 2;
    pub const BROADCAST: u8 = 3;
    pub const ANYCAST: u8 = 4;
    pub const MULTICAST: u8 = 5;
    pub const BLACKHOLE: u8 = 6;
    pub const UNREACHABLE: u8 = 7;
    pub const PROHIBIT: u8 = 8;
    pub const THROW: u8 = 9;
}

/// Tables of routes (`RT_TABLE_*`).
pub mod table {
    pub const MAIN: u32 = 254;
    pub const LOCAL: u32 = 255;
}

/// Flags of next hops (`RTNH_F_*`).
pub mod rtnh_flag {
    pub const DEAD: u32 = 1;
    pub const ONLINK: u32 = 4;
    pub const LINKDOWN: u32 = 16;
}

/// Attributes of nexthop objects (`NHA_*`).
pub mod nexthop_attribute {
    pub const ID: u16 = 1;
    pub const GROUP: u16 = 2;
    pub const GROUP_TYPE: u16 = 3;
    pub const BLACKHOLE: u16 = 4;
    pub const OIF: u16 = 5;
    pub const GATEWAY: u16 = 6;
    pub const ENCAP_TYPE: u16 = 7;
    pub const FDB: u16 = 11;
}

/// Attributes of links (`IFLA_*`).
pub mod ifla {
    pub const ADDRESS: u16 = 1;
    pub const IFNAME: u16 = 3;
    pub const MTU: u16 = 4;
    pub const MASTER: u16 = 10;
    pub const LINK: u16 = 5;
    pub const LINKINFO: u16 = 18;
    pub const CARRIER: u16 = 33;
    /// The number of the namespace of the lower link, if that is another one.
    pub const LINK_NETNSID: u16 = 37;
}

/// Attributes inside `IFLA_LINKINFO`.
pub mod info {
    pub const KIND: u16 = 1;
    pub const DATA: u16 = 2;
    /// Inside the data of a VRF device (`IFLA_VRF_TABLE`).
    pub const VRF_TABLE: u16 = 1;
}

/// Flags of links (`IFF_*`).
pub mod iff {
    pub const UP: u32 = 1;
    pub const LOOPBACK: u32 = 8;
    pub const RUNNING: u32 = 0x40;
    pub const LOWER_UP: u32 = 0x10000;
}

/// Attributes of addresses (`IFA_*`).
pub mod ifa {
    pub const ADDRESS: u16 = 1;
    pub const LOCAL: u16 = 2;
    pub const FLAGS: u16 = 8;
    pub const PROTOCOL: u16 = 11;
}

/// States of neighbours (`NUD_*`).
pub mod nud {
    pub const INCOMPLETE: u16 = 0x01;
    pub const REACHABLE: u16 = 0x02;
    pub const STALE: u16 = 0x04;
    pub const DELAY: u16 = 0x08;
    pub const PROBE: u16 = 0x10;
    pub const FAILED: u16 = 0x20;
    pub const NOARP: u16 = 0x40;
    pub const PERMANENT: u16 = 0x80;
}

/// Attributes and flags of neighbours (`NDA_*`, `NTF_*`).
pub mod ntf {
    pub const DST_ATTRIBUTE: u16 = 1;
    pub const LLADDR_ATTRIBUTE: u16 = 2;
    pub const FLAGS_EXT_ATTRIBUTE: u16 = 15;
    /// Of a request: the entry is in use, so that the kernel resolves it now.
    pub const USE: u8 = 0x01;
    pub const PROXY: u8 = 0x08;
    pub const ROUTER: u8 = 0x80;
    /// In `NDA_FLAGS_EXT`: the kernel resolves the entry and keeps it fresh, with or without traffic.
    pub const EXT_MANAGED: u32 = 1;
}

/// Attributes of network settings (`NETCONFA_*`), and the interface numbers that stand for several.
pub mod netconf {
    pub const IFINDEX: u16 = 1;
    pub const FORWARDING: u16 = 2;
    pub const ALL: i32 = -1;
    pub const DEFAULT: i32 = -2;
}
