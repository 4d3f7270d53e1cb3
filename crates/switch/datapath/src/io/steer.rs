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
//! bucket and no worker, and is never 0 ([`Mark`]). A device that marks wrongly can therefore change nothing but the time
//! that a packet takes.
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
    /// The ports of TCP, 4 bytes.
    Tcp,
    /// The ports of UDP, 4 bytes.
    Udp,
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
    /// The packet has no headers that rules can match.
    #[error("no rule matches such a packet: expected TCP or UDP over IPv4, with at most one VLAN tag")]
    Packet,
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

/// Returns the rule that marks packets of the same flow and direction as `packet`.
///
/// # Errors
/// Returns [`SteerError::Packet`].
pub fn mark_rule(packet: &[u8], mark: Mark) -> Result<SteerRule, SteerError> {
    let any = |header| HeaderMatch {
        header,
        bytes: Vec::new(),
        mask: Vec::new(),
    };
    let mut headers = vec![any(Header::Ethernet)];
    let mut at = 14;
    if packet.get(12..14) == Some(&[0x81, 0x00]) {
        headers.push(HeaderMatch {
            header: Header::Vlan,
            bytes: packet.get(at..at + 2).ok_or(SteerError::Packet)?.to_vec(),
            mask: vec![0x0f, 0xff],
        });
        at += 4;
    }
    let ip = packet.get(at..at + 24).ok_or(SteerError::Packet)?;
    let is_fragment = u16::from_be_bytes([ip[6], ip[7]]) & 0x3fff != 0;
    let is_ipv4 = packet[at - 2..at] == [0x08, 0x00] && ip[0] == 0x45 && !is_fragment;
    let transport = match ip[9] {
        6 => Header::Tcp,
        17 => Header::Udp,
        _ => return Err(SteerError::Packet),
    };
    if !is_ipv4 {
        return Err(SteerError::Packet);
    }
    let mut mask = vec![0; 20];
    mask[9] = 0xff;
    mask[12..].fill(0xff);
    headers.push(HeaderMatch {
        header: Header::Ipv4,
        bytes: ip[..20]
            .iter()
            .zip(&mask)
            .map(|(byte, mask)| byte & mask)
            .collect(),
        mask,
    });
    headers.push(HeaderMatch {
        header: transport,
        bytes: ip[20..24].to_vec(),
        mask: vec![0xff; 4],
    });
    Ok(SteerRule {
        headers,
        action: SteerAction::Mark(mark),
    })
}

impl SteerRule {
    /// Returns true if a packet matches. A device does this in hardware.
    pub(super) fn matches(&self, packet: &[u8]) -> bool {
        let (mut rest, mut kind) = (packet, 0);
        for part in &self.headers {
            // The length of the header, and true if the previous header announces it.
            let (size, is_there) = match part.header {
                Header::Ethernet => (14, true),
                Header::Vlan => (4, matches!(kind, 0x8100 | 0x88a8)),
                Header::Mpls => (4, matches!(kind, 0x8847 | 0x8848)),
                Header::Ipv4 => (20, kind == 0x0800 && rest.first() == Some(&0x45)),
                Header::Tcp => (4, kind == 6),
                Header::Udp => (4, kind == 17),
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

    const MARK: Mark = Mark::new(7).unwrap();

    fn udp(vlan: Option<u16>, source: u16) -> Vec<u8> {
        let mut frame = vec![2; 12];
        if let Some(vid) = vlan {
            frame.extend([0x81, 0x00]);
            frame.extend(vid.to_be_bytes());
        }
        frame.extend([
            8, 0, 0x45, 0, 0, 40, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
        ]);
        frame.extend(source.to_be_bytes());
        frame.extend([0, 53, 0, 20, 0, 0]);
        frame
    }

    #[test]
    fn a_mark_rule_matches_its_flow_and_no_other() {
        for vlan in [None, Some(5)] {
            let rule = mark_rule(&udp(vlan, 1), MARK).unwrap();
            let mut later = udp(vlan, 1);
            // The offset of the TTL after a VLAN tag, if any.
            let ttl = if vlan.is_some() { 26 } else { 22 };
            later[ttl] = 9;
            assert!(rule.matches(&later));
            assert!(!rule.matches(&udp(vlan, 2)));
            assert!(!rule.matches(&udp(Some(6), 1)));
        }
    }

    #[test]
    fn no_rule_is_made_for_what_the_hash_knows_another_way() {
        let mut fragment = udp(None, 1);
        fragment[20] = 0x20;
        for packet in [&fragment[..], &[0; 60], &udp(None, 1)[..30], &[]] {
            assert!(matches!(mark_rule(packet, MARK), Err(SteerError::Packet)));
        }
    }

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
