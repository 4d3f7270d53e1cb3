//! Both results of the parser's walk while they are being made: the OpenFlow view and the flow view.

use millrace_nic::HashKeys;
use millrace_nic::completion::kind;
use millrace_nic::hash::mix;
use millrace_nic::key::{Key, layer};
use millrace_wire::flow_hash::NETWORK_ROTATION;

/// The outermost headers, from which the key is made.
#[derive(Clone, Debug)]
pub(crate) struct OpenFlowView {
    pub(crate) is_open: bool,
    pub(crate) key: Key,
    pub(crate) kind: u8,
    pub(crate) l3: usize,
    pub(crate) l4: usize,
    /// Offset of the end of the IP packet; 0 without one.
    pub(crate) packet_end: usize,
    pub(crate) has_ip_checksum: bool,
}

impl OpenFlowView {
    pub(crate) fn new(port: u8) -> OpenFlowView {
        let mut key = Key::default();
        key.0[6] = u64::from(port) << 32;
        OpenFlowView {
            is_open: true,
            key,
            kind: 0,
            l3: 0,
            l4: 0,
            packet_end: 0,
            has_ip_checksum: false,
        }
    }

    pub(crate) fn set_macs(&mut self, dst: u64, src: u64) {
        self.key.0[0] = dst;
        self.key.0[1] = src;
    }

    pub(crate) fn set_ether_type(&mut self, ether_type: u16) {
        self.key.0[0] = self.key.0[0] & ((1 << 48) - 1) | u64::from(ether_type) << 48;
    }

    /// Takes the TCI of the first tag; returns without change for further ones.
    pub(crate) fn add_tag(&mut self, tci: u16) {
        if self.key.0[1] >> 60 & 1 == 0 {
            self.key.0[1] |= u64::from(tci & 0xfff | 0x1000) << 48 | u64::from(tci >> 13) << 61;
        }
    }

    pub(crate) fn add_layer(&mut self, bits: u8) {
        self.key.0[6] |= u64::from(bits) << 40;
        if bits & layer::FRAGMENT_LATER != 0 {
            // A later fragment has both bits; it replaces a first one.
            let is_later = bits & layer::FRAGMENT_LATER == layer::FRAGMENT_LATER;
            self.kind &= !(kind::FIRST | kind::LATER);
            self.kind |= if is_later { kind::LATER } else { kind::FIRST };
        }
    }

    pub(crate) fn set_proto(&mut self, proto: u8) {
        self.key.0[6] = self.key.0[6] & !(0xff << 48) | u64::from(proto) << 48;
    }

    pub(crate) fn set_class(&mut self, traffic_class: u8) {
        self.key.0[6] |= u64::from(traffic_class) << 56;
    }

    pub(crate) fn set_addresses(&mut self, src: u128, dst: u128) {
        self.key.0[2] = (src >> 64) as u64;
        self.key.0[3] = src as u64;
        self.key.0[4] = (dst >> 64) as u64;
        self.key.0[5] = dst as u64;
    }

    pub(crate) fn set_ports(&mut self, at: usize, src: u16, dst: u16) {
        self.key.0[6] |= u64::from(src) | u64::from(dst) << 16;
        self.add_layer(layer::L4);
        self.l4 = at;
    }

    pub(crate) fn set_tcp_flags(&mut self, flags: u16) {
        self.key.0[7] |= u64::from(flags & 0xfff) << 48;
    }

    /// Takes a label stack entry as on the wire: label, TC, bottom of stack, TTL.
    pub(crate) fn set_label(&mut self, entry: u32) {
        let (label, tc, bottom) = (entry >> 12, entry >> 9 & 7, entry >> 8 & 1);
        self.key.0[7] |= u64::from(label | tc << 20 | bottom << 23);
    }

    pub(crate) fn set_isid(&mut self, isid: u32) {
        self.key.0[7] |= u64::from(isid) << 24;
    }
}

/// The innermost headers, from which the hash is made.
#[derive(Clone, Debug)]
pub(crate) struct FlowView {
    pub(crate) is_open: bool,
    pub(crate) ends: u64,
    pub(crate) kind: u16,
    pub(crate) network: u64,
    pub(crate) l3: usize,
    pub(crate) l4: usize,
}

impl FlowView {
    pub(crate) fn new() -> FlowView {
        FlowView {
            is_open: true,
            ends: 0,
            kind: 0,
            network: 0,
            l3: 0,
            l4: 0,
        }
    }

    pub(crate) fn join(&mut self, number: u32) {
        self.network = self.network.rotate_left(NETWORK_ROTATION) ^ u64::from(number);
    }

    /// Sets both ends, each an address of 48 bits and a port.
    pub(crate) fn set_ends(&mut self, keys: &HashKeys, one: (u64, u16), two: (u64, u16)) {
        let end =
            |(address, port): (u64, u16)| mix((address << 16 | u64::from(port)) ^ keys.flow[0], keys.flow[1]);
        self.ends = end(one).wrapping_add(end(two));
    }

    pub(crate) fn hash(&self, keys: &HashKeys) -> u64 {
        let ends = self.ends ^ u64::from(self.kind).wrapping_mul(keys.flow[3]);
        mix(ends ^ keys.flow[4], self.network ^ keys.flow[5])
    }
}

/// Returns an IPv6 address as one of 48 bits.
pub(crate) fn address48(keys: &HashKeys, address: u128) -> u64 {
    mix(
        (address >> 64) as u64 ^ keys.flow[2],
        address as u64 ^ keys.flow[3],
    ) >> 16
}
