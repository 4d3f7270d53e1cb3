//! Requests to the kernel as bytes.

use std::net::IpAddr;

use millrace_fib::Family;
use millrace_rib::event::Dump;

use crate::wire::{HEADER_SIZE, family, ifa, kind, nlm_flag, ntf};

/// `RTEXT_FILTER_SKIP_STATS`: links without their counters.
const SKIP_STATISTICS: u32 = 8;
/// `IFLA_EXT_MASK`.
const EXT_MASK: u16 = 29;

/// The number by which the switch knows the addresses that it has set (`IFA_PROTO`), in this run or in an earlier one. Programs
/// choose theirs from 4 to 255; iproute2 prints it as `proto 77`.
pub(crate) const ADDRESS_PROTOCOL: u8 = 77;

/// Requests that are sent together. Each has the number of its position, from 1.
#[derive(Clone, Debug, Default)]
pub(crate) struct Requests {
    bytes: Vec<u8>,
    len: u32,
}

impl Requests {
    /// Returns the bytes of all requests.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Removes all requests.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.len = 0;
    }

    /// Adds the request for a dump, which has a number of its own.
    pub(crate) fn dump(&mut self, dump: Dump, sequence: u32) {
        let of = |number: Family| match number {
            Family::V4 => family::INET,
            Family::V6 => family::INET6,
        };
        let flags = nlm_flag::DUMP;
        match dump {
            Dump::Links => self.add(kind::GET_LINK, flags, &[0; 16], |attributes| {
                attributes.add(EXT_MASK, &SKIP_STATISTICS.to_ne_bytes());
            }),
            Dump::Addresses => self.add(kind::GET_ADDR, flags, &[0; 8], |_| {}),
            Dump::Neighbours => self.add(kind::GET_NEIGH, flags, &[0; 12], |_| {}),
            Dump::NextHops => self.add(kind::GET_NEXTHOP, flags, &[0; 8], |_| {}),
            Dump::Routes(number) => {
                let mut fixed = [0; 12];
                fixed[0] = of(number);
                self.add(kind::GET_ROUTE, flags, &fixed, |_| {});
            }
        }
        if let Some(at) = self.bytes.get_mut(8..12) {
            at.copy_from_slice(&sequence.to_ne_bytes());
        }
    }

    /// Adds the question for a neighbour.
    pub(crate) fn neighbour(&mut self, ifindex: u32, address: IpAddr) {
        self.about_neighbour(kind::GET_NEIGH, 0, 0, (ifindex, address), |_| {});
    }

    /// Adds the request to resolve a neighbour now (`NTF_USE`), and to keep it fresh from now on, or no longer. It fails if the
    /// neighbour `is_new` and the kernel knows it already, or is not and the kernel does not know it. The kernel makes a static
    /// neighbour (`NUD_PERMANENT`) one without a MAC address.
    pub(crate) fn resolve(&mut self, ifindex: u32, address: IpAddr, managed: bool, is_new: bool) {
        let key = (ifindex, address);
        let flags = if is_new {
            nlm_flag::CREATE | nlm_flag::EXCLUSIVE
        } else {
            0
        };
        self.about_neighbour(kind::NEW_NEIGH, flags, ntf::USE, key, |attributes| {
            if managed {
                attributes.add(ntf::FLAGS_EXT_ATTRIBUTE, &ntf::EXT_MANAGED.to_ne_bytes());
            }
        });
    }

    /// Adds a message about a neighbour, by interface and address; `ndm_flags` are those of its `ndmsg`.
    fn about_neighbour(
        &mut self,
        kind: u16,
        flags: u16,
        ndm_flags: u8,
        (ifindex, address): (u32, IpAddr),
        more: impl FnOnce(&mut Attributes<'_>),
    ) {
        let mut fixed = [0; 12];
        fixed[0] = family_of(address);
        fixed[4..8].copy_from_slice(&ifindex.to_ne_bytes());
        fixed[10] = ndm_flags;
        self.add(kind, flags, &fixed, |attributes| {
            attributes.add_address(ntf::DST_ATTRIBUTE, address);
            more(attributes);
        });
    }

    /// Adds the request to give an interface an address.
    pub(crate) fn add_address(&mut self, ifindex: u32, address: IpAddr, prefix_len: u8) {
        let flags = nlm_flag::CREATE | nlm_flag::EXCLUSIVE;
        self.address(kind::NEW_ADDR, flags, ifindex, address, prefix_len);
    }

    /// Adds the request to take an address from an interface.
    pub(crate) fn remove_address(&mut self, ifindex: u32, address: IpAddr, prefix_len: u8) {
        self.address(kind::DEL_ADDR, 0, ifindex, address, prefix_len);
    }

    fn address(&mut self, kind: u16, flags: u16, ifindex: u32, address: IpAddr, prefix_len: u8) {
        let mut fixed = [0; 8];
        fixed[0] = family_of(address);
        fixed[1] = prefix_len;
        fixed[4..8].copy_from_slice(&ifindex.to_ne_bytes());
        self.add(kind, flags, &fixed, |attributes| {
            attributes.add_address(ifa::LOCAL, address);
            attributes.add_address(ifa::ADDRESS, address);
            attributes.add(ifa::PROTOCOL, &[ADDRESS_PROTOCOL]);
        });
    }

    fn add(&mut self, kind: u16, flags: u16, fixed: &[u8], attributes: impl FnOnce(&mut Attributes<'_>)) {
        let start = self.bytes.len();
        self.len += 1;
        self.bytes.extend([0; 4]);
        self.bytes.extend(kind.to_ne_bytes());
        self.bytes.extend((flags | nlm_flag::REQUEST).to_ne_bytes());
        self.bytes.extend(self.len.to_ne_bytes());
        self.bytes.extend([0; HEADER_SIZE - 12]);
        self.bytes.extend(fixed);
        attributes(&mut Attributes(&mut self.bytes));
        let size = (self.bytes.len() - start) as u32;
        if let Some(at) = self.bytes.get_mut(start..start + 4) {
            at.copy_from_slice(&size.to_ne_bytes());
        }
    }
}

struct Attributes<'a>(&'a mut Vec<u8>);

impl Attributes<'_> {
    /// Adds an attribute with a short value, at most some hundred bytes.
    fn add(&mut self, kind: u16, value: &[u8]) {
        self.0.extend((value.len() as u16 + 4).to_ne_bytes());
        self.0.extend(kind.to_ne_bytes());
        self.0.extend(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
    }

    fn add_address(&mut self, kind: u16, address: IpAddr) {
        match address {
            IpAddr::V4(address) => self.add(kind, &address.octets()),
            IpAddr::V6(address) => self.add(kind, &address.octets()),
        }
    }
}

fn family_of(address: IpAddr) -> u8 {
    if address.is_ipv4() {
        family::INET
    } else {
        family::INET6
    }
}
