//! Flow rules that a device applies itself: the device steers matching packets to one of its queues, or marks
//! them so that the worker need not parse them.
//!
//! # Queues
//! Hardly any NIC hashes MPLS, so all MPLS packets arrive at one queue. If a device takes rules, has several
//! queues and does not hash labels, the rules of [`label_rules`] spread MPLS by the low bits of the outermost
//! label, from the moment the port opens.
//!
//! # Marks
//! A mark is a claim about packets: all packets with it agree in the fields that its rule matches. It changes no queue, no
//! bucket and no worker, and is never 0 ([`Mark`]). [`crate::offload::rule`] makes such rules.
//!
//! The trait [`Steering`] is implemented with rte_flow (`dpdk`, drivers that have it) and by the memory
//! device. The memory device applies rules as a NIC would, for tests of the layers above.

use millrace_wire::Mark;
use thiserror::Error;

/// The type of a header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Header {
    /// Ethernet, 14 bytes.
    Ethernet,
    /// The tag control information of a VLAN tag and the EtherType after it, 4 bytes.
    Vlan,
    /// A label stack entry, 4 bytes.
    Mpls,
    /// IPv4 without options, 20 bytes.
    Ipv4,
    /// IPv6 without extension headers, 40 bytes.
    Ipv6,
    /// TCP without options, 20 bytes.
    Tcp,
    /// UDP, 8 bytes.
    Udp,
    /// The common header of SCTP, 12 bytes.
    Sctp,
}

/// A header that packets must have, and a masked match of its first bytes, as on the wire.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HeaderMatch {
    /// The type of the header.
    pub header: Header,
    /// The values of its first bytes where the mask has ones.
    pub bytes: Vec<u8>,
    /// The mask; as long as `bytes`.
    pub mask: Vec<u8>,
}

/// The action of a device on a packet that matches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SteerAction {
    /// Steers the packet to this receive queue.
    Queue(u16),
    /// Sets this mark, and does not change the queue.
    Mark(Mark),
}

/// A rule that a NIC applies in hardware: headers to match, and an action.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SteerRule {
    /// The headers, from the outermost in.
    pub headers: Vec<HeaderMatch>,
    /// The action on packets that match.
    pub action: SteerAction,
}

/// The number of a rule of one device.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RuleId(pub u64);

/// The reason why a device does not take a rule.
#[derive(Debug, Error)]
pub enum SteerError {
    /// The device takes no rules, or the port has no such device.
    #[error("the device takes no rules; flows are spread in software")]
    None,
    /// The rule has a header that is shorter than its match.
    #[error("the rule matches more bytes than a header has")]
    Header,
    /// The device refuses this rule.
    #[error("{0}")]
    Refused(#[source] Box<dyn core::error::Error + Send + Sync>),
}

/// The types of rules that a device takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Steers {
    /// True if the device steers 5-tuples to queues.
    pub flows: bool,
    /// True if the device sets marks.
    pub marks: bool,
    /// True if the device steers VLANs to queues.
    pub vlans: bool,
    /// True if the device steers masked MPLS labels to queues.
    pub labels: bool,
}

impl Steers {
    /// Returns the names of the types, for people: `flows,marks`; `None` if there are none.
    pub fn names(self) -> Option<String> {
        let all = [
            (self.flows, "flows"),
            (self.marks, "marks"),
            (self.vlans, "vlans"),
            (self.labels, "labels"),
        ];
        let names: Vec<_> = all
            .into_iter()
            .filter(|(has, _)| *has)
            .map(|(_, name)| name)
            .collect();
        (!names.is_empty()).then(|| names.join(","))
    }
}

/// A device that takes rules.
pub trait Steering {
    /// Installs a rule.
    ///
    /// # Errors
    /// Returns [`SteerError`]; nothing has changed then.
    fn install(&mut self, rule: &SteerRule) -> Result<RuleId, SteerError>;

    /// Removes a rule. Returns false if there was none.
    fn remove(&mut self, rule: RuleId) -> bool;
}

/// Returns rules that spread MPLS over a number of queues: the largest power of two that is at most `queues`. Returns
/// none for a single queue.
pub fn label_rules(queues: u16) -> Vec<SteerRule> {
    let used = 1_u32 << queues.max(1).ilog2();
    let rule = |queue: u32| {
        // Label (20 bits), traffic class, bottom of stack, TTL (RFC 3032, section 2.1).
        let entry = |label: u32| (label << 12).to_be_bytes()[..3].to_vec();
        SteerRule {
            headers: vec![
                HeaderMatch {
                    header: Header::Ethernet,
                    bytes: Vec::new(),
                    mask: Vec::new(),
                },
                HeaderMatch {
                    header: Header::Mpls,
                    bytes: entry(queue),
                    mask: entry(used - 1),
                },
            ],
            action: SteerAction::Queue(queue as u16),
        }
    };
    (0..used).filter(|_| used > 1).map(rule).collect()
}

impl SteerRule {
    /// Returns true if a packet matches. A device does this in hardware.
    pub(crate) fn matches(&self, packet: &[u8]) -> bool {
        let (mut rest, mut kind) = (packet, 0);
        for part in &self.headers {
            // The length of the header, and true if the previous header announces it.
            let (size, is_there) = match part.header {
                Header::Ethernet => (14, true),
                Header::Vlan => (4, matches!(kind, 0x8100 | 0x88a8)),
                Header::Mpls => (4, matches!(kind, 0x8847 | 0x8848)),
                Header::Ipv4 => (20, kind == 0x0800 && rest.first() == Some(&0x45)),
                Header::Ipv6 => (
                    40,
                    kind == 0x86dd && rest.first().is_some_and(|byte| byte >> 4 == 6),
                ),
                Header::Tcp => (20, kind == 6),
                Header::Udp => (8, kind == 17),
                Header::Sctp => (12, kind == 132),
            };
            let Some(bytes) = rest.get(..size).filter(|_| is_there) else {
                return false;
            };
            debug_assert!(part.bytes.len() == part.mask.len() && part.bytes.len() <= size);
            let wanted = part.bytes.iter().zip(&part.mask);
            if bytes
                .iter()
                .zip(wanted)
                .any(|(byte, (wanted, mask))| byte & mask != wanted & mask)
            {
                return false;
            }
            kind = match part.header {
                Header::Ethernet => u16::from_be_bytes([bytes[12], bytes[13]]),
                Header::Vlan => u16::from_be_bytes([bytes[2], bytes[3]]),
                // A fragment has no ports.
                Header::Ipv4 if u16::from_be_bytes([bytes[6], bytes[7]]) & 0x3fff == 0 => bytes[9].into(),
                Header::Ipv6 => bytes[6].into(),
                _ => 0,
            };
            rest = &rest[size..];
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_label_has_one_queue() {
        for (queues, used) in [(1, 0), (2, 2), (5, 4), (8, 8)] {
            let rules = label_rules(queues);
            assert_eq!(rules.len(), used);
            for label in 0..100_u32 {
                let mut frame = vec![2; 12];
                frame.extend([0x88, 0x47]);
                frame.extend((label << 12 | 0x140).to_be_bytes());
                let matching: Vec<_> = rules.iter().filter(|rule| rule.matches(&frame)).collect();
                assert_eq!(matching.len(), used.min(1));
            }
        }
    }
}
