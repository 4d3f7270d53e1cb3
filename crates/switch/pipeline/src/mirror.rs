//! Mirrors: copies of packets for a monitor, at a port (SPAN) or in a VLAN (RSPAN).

use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use millrace_types::{PortNo, Vid};

use crate::VidSet;

/// Maximum number of mirrors of a bridge: each has a bit in the words that say which mirrors copied a packet.
pub const MIRRORS_MAX: usize = 32;

/// The destination of a mirror's copies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MirrorOutput {
    /// A port, which carries nothing else.
    Port(PortNo),
    /// All ports that carry a VLAN. NORMAL learns no MAC addresses in it.
    Vlan(Vid),
}

/// Numbers of packets and copies.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MirrorCount {
    /// Packets that the mirror selected.
    pub packets: u64,
    /// Bytes of these packets, before copies are tagged or truncated.
    pub bytes: u64,
    /// Copies that were not sent: no buffer was free, or the output did not take them.
    pub lost: u64,
}

/// The counters of a mirror, which all workers write.
#[derive(Debug, Default)]
pub struct MirrorCounters {
    packets: AtomicU64,
    bytes: AtomicU64,
    lost: AtomicU64,
}

impl MirrorCounters {
    pub(crate) fn selected(&self, bytes: usize) {
        self.packets.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn lost(&self, copies: u64) {
        self.lost.fetch_add(copies, Ordering::Relaxed);
    }

    /// Returns the counts.
    pub fn read(&self) -> MirrorCount {
        MirrorCount {
            packets: self.packets.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            lost: self.lost.load(Ordering::Relaxed),
        }
    }
}

/// A mirror of a bridge.
#[derive(Clone, Debug)]
pub struct Mirror {
    /// The ports whose received packets are copied.
    pub received: Vec<PortNo>,
    /// The ports whose sent packets are copied.
    pub sent: Vec<PortNo>,
    /// The VLANs whose packets are copied; `None` is all of them.
    pub vlans: Option<Box<VidSet>>,
    pub output: MirrorOutput,
    /// Maximum size of a copy, in bytes.
    pub snaplen: Option<u16>,
    pub counters: Arc<MirrorCounters>,
}

impl Mirror {
    pub(crate) fn selects_vlan(&self, vid: Vid) -> bool {
        self.vlans.as_ref().is_none_or(|vlans| vlans.contains(vid))
    }
}

/// Mirrors are equal if they copy the same packets and have the same counters.
impl PartialEq for Mirror {
    fn eq(&self, other: &Mirror) -> bool {
        self.received == other.received
            && self.sent == other.sent
            && self.vlans == other.vlans
            && self.output == other.output
            && self.snaplen == other.snaplen
            && Arc::ptr_eq(&self.counters, &other.counters)
    }
}

/// The mirrors of a bridge.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Mirrors {
    mirrors: Vec<Mirror>,
    /// By mirror, one bit for each mirror with the same output, which gets one copy of a packet at most.
    same_output: Vec<u32>,
    output_ports: Vec<PortNo>,
    /// `None` without mirrors to a VLAN.
    output_vlans: Option<Box<VidSet>>,
    /// The mirrors that copy received packets of some port, one bit each.
    receiving: u32,
    /// The mirrors that copy sent packets of some port, one bit each.
    sending: u32,
}

impl Mirrors {
    /// Returns the mirrors of a bridge; those beyond [`MIRRORS_MAX`] are ignored.
    pub fn new(mirrors: impl IntoIterator<Item = Mirror>) -> Mirrors {
        let mut mirrors: Vec<Mirror> = mirrors.into_iter().take(MIRRORS_MAX).collect();
        for mirror in &mut mirrors {
            mirror.received.sort_unstable();
            mirror.sent.sort_unstable();
        }
        let bits = |is_in: &dyn Fn(&Mirror) -> bool| {
            let selected = mirrors.iter().enumerate().filter(|(_, mirror)| is_in(mirror));
            selected.fold(0, |bits, (at, _)| bits | 1 << at)
        };
        let vlans: VidSet = mirrors
            .iter()
            .filter_map(|mirror| match mirror.output {
                MirrorOutput::Vlan(vid) => Some(vid),
                MirrorOutput::Port(_) => None,
            })
            .collect();
        Mirrors {
            same_output: mirrors
                .iter()
                .map(|mirror| bits(&|other| other.output == mirror.output))
                .collect(),
            output_ports: mirrors
                .iter()
                .filter_map(|mirror| match mirror.output {
                    MirrorOutput::Port(port) => Some(port),
                    MirrorOutput::Vlan(_) => None,
                })
                .collect(),
            output_vlans: (vlans != VidSet::EMPTY).then(|| Box::new(vlans)),
            receiving: bits(&|mirror| !mirror.received.is_empty()),
            sending: bits(&|mirror| !mirror.sent.is_empty()),
            mirrors,
        }
    }

    /// Returns true if there are no mirrors.
    pub fn is_empty(&self) -> bool {
        self.mirrors.is_empty()
    }

    /// Returns true if the port is the output port of a mirror.
    pub(crate) fn has_output_port(&self, port: PortNo) -> bool {
        self.output_ports.contains(&port)
    }

    /// Returns true if the VLAN is the output of a mirror.
    #[inline]
    pub(crate) fn has_output_vlan(&self, vid: Vid) -> bool {
        self.output_vlans
            .as_ref()
            .is_some_and(|vlans| vlans.contains(vid))
    }

    /// Returns a mirror by its bit.
    pub(crate) fn mirror(&self, bit: u32) -> Option<&Mirror> {
        self.mirrors.get(bit as usize)
    }

    /// Returns the mirrors with the output of mirror `bit`, one bit each.
    pub(crate) fn same_output(&self, bit: u32) -> u32 {
        self.same_output.get(bit as usize).copied().unwrap_or(0)
    }

    /// Returns the mirrors that copy received packets of a port, one bit each.
    pub(crate) fn received_at(&self, port: PortNo) -> u32 {
        self.bits(|mirror| &mirror.received, port)
    }

    /// Returns the mirrors that copy sent packets of a port, one bit each.
    pub(crate) fn sent_by(&self, port: PortNo) -> u32 {
        self.bits(|mirror| &mirror.sent, port)
    }

    fn bits(&self, ports: impl Fn(&Mirror) -> &[PortNo], port: PortNo) -> u32 {
        let selected = |mirror: &Mirror| ports(mirror).binary_search(&port).is_ok();
        let mirrors = self.mirrors.iter().enumerate();
        mirrors.fold(0, |bits, (at, mirror)| bits | u32::from(selected(mirror)) << at)
    }

    /// Returns the mirrors that copy received packets, one bit each.
    pub(crate) fn receiving(&self) -> u32 {
        self.receiving
    }

    /// Returns the mirrors that copy sent packets, one bit each.
    pub(crate) fn sending(&self) -> u32 {
        self.sending
    }
}
