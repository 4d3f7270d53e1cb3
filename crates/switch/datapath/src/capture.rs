//! Captures: selects the packets that workers copy for operators.
//!
//! Workers evaluate the filters of all captures of a bridge before they copy a packet, so that packets that no capture
//! selects cost no buffer and no slot in the queue to the control side. Filters allocate nothing and always terminate.

use std::sync::Arc;

use millrace_flow::{Field, FlowKey, Rule};
use millrace_types::PortNo;
use millrace_wire::bpf::Program;
use millrace_wire::{Depth, Layers, Packet};

/// Maximum number of captures of a bridge at a time: each has a bit in
/// [`CapturedPacket::captures`](crate::CapturedPacket::captures).
pub const CAPTURES_MAX: usize = 64;

/// The conditions of a capture: it selects the packets that pass all of them.
#[derive(Debug, Clone, Default)]
pub struct CaptureFilter {
    /// Selects packets of this port.
    pub port: Option<PortNo>,
    /// Selects received packets (`true`) or sent ones (`false`).
    pub received: Option<bool>,
    /// Selects packets whose flow key the rule matches.
    pub rule: Option<Rule>,
    /// Selects packets that the program accepts. The program sees the first segment of a packet, which has all headers.
    pub program: Option<Program>,
}

impl CaptureFilter {
    fn selects<P: Packet>(&self, port: PortNo, received: bool, packet: &P) -> bool {
        self.port.is_none_or(|wanted| wanted == port)
            && self.received.is_none_or(|wanted| wanted == received)
            && self
                .program
                .as_ref()
                .is_none_or(|program| program.accepts(packet.head(), packet.len()))
            && self.rule.as_ref().is_none_or(|rule| {
                let mut key = FlowKey::default();
                key.set_field(Field::InPort, port.raw().into());
                let head = packet.head();
                key.extract(head, &Layers::parse(head, Depth::All));
                rule.matches(&key)
            })
    }
}

/// The captures of a bridge, each with its number, 0 to 63.
#[derive(Debug, Clone, Default)]
pub(crate) struct Captures(Arc<[(u8, CaptureFilter)]>);

impl Captures {
    pub(crate) fn new(filters: impl IntoIterator<Item = (u8, CaptureFilter)>) -> Captures {
        let captures = Captures(filters.into_iter().collect());
        debug_assert!(
            captures
                .0
                .iter()
                .all(|(number, _)| usize::from(*number) < CAPTURES_MAX),
            "each capture has a bit of its own"
        );
        captures
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the captures, shared, if there are any.
    #[inline]
    pub(crate) fn shared(&self) -> Option<Captures> {
        (!self.is_empty()).then(|| self.clone())
    }

    /// Returns a bit for each capture that selects the packet.
    pub(crate) fn of<P: Packet>(&self, port: PortNo, received: bool, packet: &P) -> u64 {
        self.0.iter().fold(0, |bits, (number, filter)| {
            bits | u64::from(filter.selects(port, received, packet)) << (number & 63)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use millrace_flow::Match;
    use millrace_types::Priority;
    use millrace_wire::Frame;

    #[test]
    fn each_capture_that_wants_a_packet_has_its_bit() {
        let rule = |text: &str| text.parse::<Match>().unwrap().rule(Priority(0));
        let all = CaptureFilter::default();
        let captures = Captures::new([
            (0, all.clone()),
            (
                3,
                CaptureFilter {
                    port: Some(PortNo::from_raw(1)),
                    ..all.clone()
                },
            ),
            (
                5,
                CaptureFilter {
                    received: Some(false),
                    ..all.clone()
                },
            ),
            (
                63,
                CaptureFilter {
                    // A = EtherType; accept ARP.
                    program: Some("4,40 0 0 12,21 0 1 2054,6 0 0 65535,6 0 0 0".parse().unwrap()),
                    rule: Some(rule("arp")),
                    ..all
                },
            ),
        ]);
        let arp: millrace_flow::compose::PacketText = "arp".parse().unwrap();
        let arp = Frame::new(&arp.frame().unwrap());
        let other = Frame::new(&[0; 60]);
        let one = PortNo::from_raw(1);
        assert_eq!(captures.of(one, true, &arp), 1 | 1 << 3 | 1 << 63);
        assert_eq!(captures.of(one, false, &other), 1 | 1 << 3 | 1 << 5);
        assert_eq!(captures.of(PortNo::from_raw(2), true, &other), 1);
    }
}
