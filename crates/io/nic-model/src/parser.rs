//! The parser: a machine that takes one header a step, as an engine of the RTL does.

use millrace_nic::completion::kind;
use millrace_nic::key::{Key, layer};
use millrace_nic::register::Tunnel;
use millrace_nic::{Config, RECOGNITION_SIZE, STEPS_MAX, WINDOW_SIZE};
use millrace_wire::checksum;

use crate::proto;
use crate::recognize::{looks_like_ethernet, looks_like_ipv4, looks_like_ipv6};
use crate::view::{FlowView, OpenFlowView, address48};

/// The result of a parse.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "docs/nic-interface.md describes each")]
pub struct Parsed {
    pub key: Key,
    pub hash: u64,
    pub complete: bool,
    pub truncated: bool,
    pub ip_checksum: bool,
    pub kind: u8,
    /// Offsets in bytes.
    pub l3: usize,
    pub l4: usize,
    pub inner_l3: usize,
    pub inner_l4: usize,
    pub tags: u8,
    pub labels: u8,
    pub steps: usize,
}

/// The header that the next step takes.
#[derive(Clone, Copy, Debug)]
enum Next {
    Ethernet,
    /// The header that an EtherType announces.
    Type(u16),
    Ipv4,
    Ipv6,
    /// A label; the network before the stack.
    Label(u64),
    Extension(u8),
    Protocol(u8),
    Tunnel(Tunnel),
    /// An extension header of GTP-U of a type.
    GtpExtension(u8),
    GtpPayload,
}

/// A parser between two steps. The walk ends where a step returns `None`.
struct Walk<'a> {
    config: &'a Config,
    window: &'a [u8],
    at: usize,
    end: usize,
    /// Offset of the end of the innermost packet, wherever the window ends.
    packet_end: usize,
    /// The addresses of the innermost packet, as 48 bits each.
    addresses: [u64; 2],
    is_v6: bool,
    has_snap: bool,
    openflow: OpenFlowView,
    flow: FlowView,
    tags: u8,
    labels: u8,
    steps: usize,
    /// A header was not there in full, and the window ends before it.
    is_cut: bool,
    is_out_of_steps: bool,
}

/// Returns what the parser finds in a frame of a port.
#[must_use]
pub fn parse(frame: &[u8], port: u8, config: &Config) -> Parsed {
    let window = frame.get(..WINDOW_SIZE).unwrap_or(frame);
    let mut walk = Walk {
        config,
        window,
        at: 0,
        end: window.len(),
        packet_end: usize::MAX,
        addresses: [0; 2],
        is_v6: false,
        has_snap: false,
        openflow: OpenFlowView::new(port),
        flow: FlowView::new(),
        tags: 0,
        labels: 0,
        steps: 0,
        is_cut: false,
        is_out_of_steps: false,
    };
    let mut next = Some(Next::Ethernet);
    while let Some(header) = next
        && (walk.openflow.is_open || walk.flow.is_open)
    {
        next = walk.take(header);
    }
    let Walk { openflow, flow, .. } = &walk;
    let is_beyond_window = walk.is_cut && frame.len() > WINDOW_SIZE;
    Parsed {
        key: openflow.key,
        hash: flow.hash(&config.keys),
        complete: !walk.is_out_of_steps && !is_beyond_window,
        truncated: openflow.packet_end > frame.len(),
        ip_checksum: openflow.has_ip_checksum,
        kind: openflow.kind,
        l3: openflow.l3,
        l4: openflow.l4,
        inner_l3: flow.l3,
        inner_l4: flow.l4,
        tags: walk.tags,
        labels: walk.labels,
        steps: walk.steps,
    }
}

impl Walk<'_> {
    fn byte(&self, at: usize) -> u8 {
        self.window.get(self.at + at).copied().unwrap_or_default()
    }

    fn be(&self, at: usize, size: usize) -> u128 {
        (at..at + size).fold(0, |value, at| value << 8 | u128::from(self.byte(at)))
    }

    fn be16(&self, at: usize) -> u16 {
        self.be(at, 2) as u16
    }

    fn be32(&self, at: usize) -> u32 {
        self.be(at, 4) as u32
    }

    /// Counts a step; `None` if it is one too many.
    fn step(&mut self) -> Option<()> {
        if self.steps == STEPS_MAX {
            self.is_out_of_steps = true;
            return None;
        }
        self.steps += 1;
        Some(())
    }

    /// Returns `None` if there are fewer bytes.
    fn need(&mut self, size: usize) -> Option<()> {
        if self.at + size <= self.end {
            return Some(());
        }
        self.is_cut |= self.end == self.window.len();
        None
    }

    fn take(&mut self, header: Next) -> Option<Next> {
        match header {
            Next::Ethernet => self.ethernet(),
            Next::Type(ether_type) => self.ether_type(ether_type),
            Next::Ipv4 => self.ipv4(),
            Next::Ipv6 => self.ipv6(),
            Next::Label(outside) => self.label(outside),
            Next::Extension(proto) => self.extension(proto),
            Next::Protocol(proto) => self.protocol(proto),
            Next::Tunnel(tunnel) => self.tunnel(tunnel),
            Next::GtpExtension(kind) => self.gtp_extension(kind),
            Next::GtpPayload => {
                self.need(1)?;
                match self.byte(0) >> 4 {
                    4 => Some(Next::Ipv4),
                    6 => Some(Next::Ipv6),
                    _ => None,
                }
            }
        }
    }

    fn macs(&self, at: usize) -> [u64; 2] {
        [self.be(at, 6) as u64, self.be(at + 6, 6) as u64]
    }

    fn ethernet(&mut self) -> Option<Next> {
        self.step()?;
        self.need(14)?;
        let [dst, src] = self.macs(0);
        let ether_type = self.be16(12);
        if self.openflow.is_open {
            self.openflow.set_macs(dst, src);
            self.openflow.set_ether_type(ether_type);
        }
        if self.flow.is_open {
            self.flow.set_ends(&self.config.keys, (dst, 0), (src, 0));
            self.flow.kind = ether_type;
        }
        self.at += 14;
        Some(Next::Type(ether_type))
    }

    fn ether_type(&mut self, ether_type: u16) -> Option<Next> {
        if let Some(tpid) = self.config.tpid(ether_type) {
            // OpenFlow knows tags directly after the addresses only.
            self.openflow.is_open &= tpid.openflow && !self.has_snap;
            return self.tag();
        }
        match ether_type {
            0..0x0600 => self.length(),
            0x0800 => self.ipv4(),
            0x86dd => self.ipv6(),
            0x0806 => {
                if self.openflow.is_open {
                    self.need(28)?;
                    if self.be(0, 6) == 0x0001_0800_0604 {
                        self.openflow.add_layer(layer::ARP);
                        self.openflow.kind |= kind::ARP;
                        self.openflow.l3 = self.at;
                    }
                }
                None
            }
            0x88e7 => self.pbb(),
            0x8847 | 0x8848 => Some(Next::Label(self.flow.network)),
            0x6558 => {
                self.openflow.is_open = false;
                Some(Next::Ethernet)
            }
            _ => None,
        }
    }

    fn tag(&mut self) -> Option<Next> {
        self.step()?;
        self.need(4)?;
        let (tci, ether_type) = (self.be16(0), self.be16(2));
        self.tags += 1;
        if self.openflow.is_open {
            self.openflow.add_tag(tci);
            self.openflow.set_ether_type(ether_type);
        }
        self.flow.join(u32::from(tci & 0xfff));
        self.flow.kind = ether_type;
        self.at += 4;
        Some(Next::Type(ether_type))
    }

    /// Takes what follows the length of an 802.3 frame.
    fn length(&mut self) -> Option<Next> {
        if self.openflow.is_open {
            self.openflow.set_ether_type(0x05ff);
        }
        self.flow.kind = 0x05ff;
        self.need(8)?;
        let ether_type = self.be16(6);
        if self.be(0, 6) != 0xaaaa_0300_0000 || ether_type < 0x0600 {
            return None;
        }
        self.step()?;
        if self.openflow.is_open {
            self.openflow.set_ether_type(ether_type);
            self.has_snap = true;
        }
        self.flow.kind = ether_type;
        self.at += 8;
        Some(Next::Type(ether_type))
    }

    fn pbb(&mut self) -> Option<Next> {
        self.step()?;
        self.need(18)?;
        let isid = self.be32(0) & 0xff_ffff;
        if self.openflow.is_open {
            self.openflow.add_layer(layer::PBB);
            self.openflow.kind |= kind::PBB;
            self.openflow.set_isid(isid);
            self.openflow.l3 = self.at;
            self.openflow.is_open = false;
        }
        let [dst, src] = self.macs(4);
        self.flow.join(isid);
        self.flow.set_ends(&self.config.keys, (dst, 0), (src, 0));
        self.flow.kind = self.be16(16);
        self.at += 18;
        Some(Next::Type(self.flow.kind))
    }

    fn label(&mut self, outside: u64) -> Option<Next> {
        self.step()?;
        self.need(4)?;
        let entry = self.be32(0);
        self.labels += 1;
        if self.openflow.is_open {
            self.openflow.add_layer(layer::MPLS);
            self.openflow.kind |= kind::MPLS;
            self.openflow.set_label(entry);
            self.openflow.l3 = self.at;
            self.openflow.is_open = false;
        }
        self.flow.join(entry >> 12);
        self.at += 4;
        if entry >> 8 & 1 == 0 {
            return Some(Next::Label(outside));
        }
        let Some((payload, skip)) = self.recognize() else {
            self.is_cut |= self.at + RECOGNITION_SIZE > WINDOW_SIZE;
            return None;
        };
        self.flow.network = outside;
        self.at += skip;
        Some(payload)
    }

    /// Returns the payload of a label stack, and the size of its control word.
    fn recognize(&self) -> Option<(Next, usize)> {
        let bytes = self.window.get(self.at..self.end)?;
        if looks_like_ipv4(bytes) {
            return Some((Next::Ipv4, 0));
        }
        if looks_like_ipv6(bytes) {
            return Some((Next::Ipv6, 0));
        }
        if looks_like_ethernet(bytes) {
            return Some((Next::Ethernet, 0));
        }
        let has_word = *bytes.first()? < 0x10;
        (has_word && looks_like_ethernet(bytes.get(4..)?)).then_some((Next::Ethernet, 4))
    }

    fn ipv4(&mut self) -> Option<Next> {
        self.step()?;
        self.need(20)?;
        let size = usize::from(self.byte(0) & 0xf) * 4;
        let total = usize::from(self.be16(2));
        if self.byte(0) >> 4 != 4 || size < 20 || total < size {
            return None;
        }
        let (proto, fragment) = (self.byte(9), self.be16(6) & 0x3fff);
        let [src, dst] = [self.be32(12), self.be32(16)];
        self.addresses = [src.into(), dst.into()];
        self.is_v6 = false;
        self.flow_ip(proto);
        let has_options = self.need(size);
        if self.openflow.is_open && has_options.is_some() {
            let header = &self.window[self.at..self.at + size];
            self.openflow.has_ip_checksum = checksum::internet(header) == 0;
            self.openflow.set_addresses(src.into(), dst.into());
            self.openflow_ip(kind::V4, proto, self.byte(1), self.at + total);
            match fragment {
                0 => {}
                0x2000 => self.openflow.add_layer(layer::FRAGMENT_FIRST),
                _ => self.openflow.add_layer(layer::FRAGMENT_LATER),
            }
        }
        has_options?;
        self.packet_end = self.at + total;
        self.end = self.end.min(self.packet_end);
        self.at += size;
        if fragment != 0 {
            self.flow.is_open = false;
        }
        // A later fragment has no transport header.
        (fragment == 0 || fragment == 0x2000).then_some(Next::Protocol(proto))
    }

    fn ipv6(&mut self) -> Option<Next> {
        self.step()?;
        self.need(40)?;
        if self.byte(0) >> 4 != 6 {
            return None;
        }
        let (payload, proto) = (usize::from(self.be16(4)), self.byte(6));
        let [src, dst] = [self.be(8, 16), self.be(24, 16)];
        self.addresses = [src, dst].map(|address| address48(&self.config.keys, address));
        self.is_v6 = true;
        self.flow_ip(proto);
        self.packet_end = self.at + 40 + payload;
        if self.openflow.is_open {
            self.openflow.set_addresses(src, dst);
            let class = (self.be16(0) >> 4) as u8;
            self.openflow_ip(kind::V6, proto, class, self.packet_end);
        }
        self.end = self.end.min(self.packet_end);
        self.at += 40;
        Some(Next::Extension(proto))
    }

    fn openflow_ip(&mut self, kind: u8, proto: u8, class: u8, packet_end: usize) {
        self.openflow.add_layer(layer::IP);
        self.openflow.kind |= kind;
        self.openflow.set_proto(proto);
        self.openflow.set_class(class);
        self.openflow.packet_end = packet_end;
        self.openflow.l3 = self.at;
    }

    fn flow_ip(&mut self, proto: u8) {
        if self.flow.is_open {
            let [one, two] = self.addresses;
            self.flow.set_ends(&self.config.keys, (one, 0), (two, 0));
            self.flow.kind = proto.into();
            self.flow.l3 = self.at;
        }
    }

    fn extension(&mut self, proto: u8) -> Option<Next> {
        if !matches!(
            proto,
            proto::HOP_BY_HOP | proto::ROUTING | proto::FRAGMENT | proto::AH | proto::DEST_OPTIONS
        ) {
            return Some(Next::Protocol(proto));
        }
        self.step()?;
        self.need(8)?;
        let length = usize::from(self.byte(1));
        let size = match proto {
            proto::FRAGMENT => 8,
            proto::AH => 4 * (length + 2),
            _ => 8 * (length + 1),
        };
        self.need(size)?;
        let next = self.byte(0);
        if self.flow.is_open {
            self.flow.kind = next.into();
        }
        if self.openflow.is_open {
            self.openflow.set_proto(next);
        }
        if proto == proto::FRAGMENT {
            self.flow.is_open = false;
            let field = self.be16(2);
            if self.openflow.is_open && field & 0xfff8 != 0 {
                self.openflow.add_layer(layer::FRAGMENT_LATER);
                return None;
            }
            if self.openflow.is_open && field & 1 != 0 {
                self.openflow.add_layer(layer::FRAGMENT_FIRST);
            }
        }
        self.at += size;
        Some(Next::Extension(next))
    }

    fn protocol(&mut self, proto: u8) -> Option<Next> {
        match proto {
            proto::TCP | proto::UDP | proto::DCCP | proto::SCTP | proto::UDP_LITE => self.ports(proto),
            proto::ICMPV4 | proto::ICMPV6 => self.icmp(proto),
            proto::IPV4 | proto::IPV6 | proto::GRE => {
                self.openflow.is_open = false;
                match proto {
                    _ if !self.flow.is_open => None,
                    proto::IPV4 => Some(Next::Ipv4),
                    proto::IPV6 => Some(Next::Ipv6),
                    _ => self.gre(),
                }
            }
            _ => None,
        }
    }

    fn ports(&mut self, proto: u8) -> Option<Next> {
        self.step()?;
        if self.openflow.is_open {
            self.openflow_ports(proto);
            self.openflow.is_open = false;
        }
        if !self.flow.is_open {
            return None;
        }
        self.need(4)?;
        let [one, two] = self.addresses;
        let (src, dst) = (self.be16(0), self.be16(2));
        self.flow.set_ends(&self.config.keys, (one, src), (two, dst));
        self.flow.l4 = self.at;
        let tunnel = self.config.tunnel(dst).filter(|_| proto == proto::UDP)?;
        self.need(8)?;
        self.at += 8;
        Some(Next::Tunnel(tunnel))
    }

    fn openflow_ports(&mut self, proto: u8) -> Option<()> {
        let payload = self.packet_end.saturating_sub(self.at);
        let is_first = self.openflow.kind & kind::FIRST != 0;
        let is_valid = match proto {
            proto::TCP => {
                self.need(20)?;
                let size = usize::from(self.byte(12) >> 4) * 4;
                (20..=payload).contains(&size)
            }
            proto::UDP => {
                self.need(8)?;
                let size = usize::from(self.be16(4));
                size >= 8 && (size <= payload || is_first)
            }
            proto::SCTP => {
                self.need(12)?;
                true
            }
            _ => false,
        };
        if is_valid {
            self.openflow.set_ports(self.at, self.be16(0), self.be16(2));
            if proto == proto::TCP {
                self.openflow.set_tcp_flags(self.be16(12));
            }
        }
        Some(())
    }

    fn icmp(&mut self, proto: u8) -> Option<Next> {
        self.step()?;
        if self.openflow.is_open {
            if self.is_v6 == (proto == proto::ICMPV6) && self.need(if self.is_v6 { 4 } else { 8 }).is_some() {
                self.openflow
                    .set_ports(self.at, self.byte(0).into(), self.byte(1).into());
            }
            self.openflow.is_open = false;
        }
        if !self.flow.is_open {
            return None;
        }
        self.need(8)?;
        // Errors quote the packet that caused them (RFC 792; RFC 4443, section 2.1).
        let quoted = match (proto, self.byte(0)) {
            (proto::ICMPV4, 3 | 4 | 5 | 11 | 12) => Next::Ipv4,
            (proto::ICMPV6, 1..=4) => Next::Ipv6,
            _ => return None,
        };
        self.at += 8;
        Some(quoted)
    }

    fn gre(&mut self) -> Option<Next> {
        self.step()?;
        self.need(4)?;
        let (flags, ether_type) = (self.be16(0), self.be16(2));
        if flags & 0x4007 != 0 {
            return None;
        }
        let size = 4 + 4 * (flags & 0xb000).count_ones() as usize;
        self.need(size)?;
        self.at += size;
        Some(Next::Type(ether_type))
    }

    fn tunnel(&mut self, tunnel: Tunnel) -> Option<Next> {
        if tunnel == Tunnel::Mpls {
            return Some(Next::Label(self.flow.network));
        }
        self.step()?;
        self.need(8)?;
        let first = self.byte(0);
        match tunnel {
            Tunnel::Vxlan if first & 0x08 != 0 => {
                self.flow.join(self.be32(4) >> 8);
                self.at += 8;
                Some(Next::Ethernet)
            }
            Tunnel::Geneve if first >> 6 == 0 => {
                let size = 8 + 4 * usize::from(first & 0x3f);
                self.need(size)?;
                self.flow.join(self.be32(4) >> 8);
                let ether_type = self.be16(2);
                self.at += size;
                Some(Next::Type(ether_type))
            }
            Tunnel::GtpU if first >> 4 == 3 && self.byte(1) == 255 => {
                if first & 7 == 0 {
                    self.at += 8;
                    return Some(Next::GtpPayload);
                }
                self.need(12)?;
                let kind = if first & 4 == 0 { 0 } else { self.byte(11) };
                self.at += 12;
                Some(Next::GtpExtension(kind))
            }
            _ => None,
        }
    }

    fn gtp_extension(&mut self, kind: u8) -> Option<Next> {
        if kind == 0 {
            return Some(Next::GtpPayload);
        }
        self.step()?;
        self.need(1)?;
        let size = 4 * usize::from(self.byte(0));
        if size == 0 {
            return None;
        }
        self.need(size)?;
        let kind = self.byte(size - 1);
        self.at += size;
        Some(Next::GtpExtension(kind))
    }
}
