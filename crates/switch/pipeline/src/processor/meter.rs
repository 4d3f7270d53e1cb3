//! Meters in a worker (OpenFlow 1.3.5, section 5.7).

use millrace_types::MeterId;
use millrace_wire::rewrite;
use millrace_wire::{Dscp, Packet};

use super::observe::Observer;
use super::packet_source::PacketSource;
use super::run::Run;
use crate::meter::{BandKind, CompiledMeter};
use crate::police::{drop_precedence, dscp};
use crate::{DropReason, Egress};

impl<P: Packet, E: Egress<P>, O: Observer<P>> Run<'_, P, E, O> {
    /// Executes a meter instruction for packet `i` of the burst. Returns the packet, unless a band dropped it.
    #[inline(never)]
    pub(crate) fn meter(&mut self, i: usize, packet: P, id: MeterId) -> Option<P> {
        match self.fwd.meter(id) {
            Some(compiled) => self.pass(i, packet, compiled),
            // The control side deletes entries together with their meter.
            None => Some(packet),
        }
    }

    /// Passes a packet through a meter. Returns the packet, unless a band dropped it.
    pub(crate) fn pass(&mut self, i: usize, mut packet: P, compiled: &CompiledMeter) -> Option<P> {
        let size = packet.len();
        self.counters
            .count_entry(compiled.slot(), 1, size as u64, self.now);
        // A packet that will be segmented counts as its segments.
        let packets = packet
            .segment_size()
            .map_or(1, |segment| size.div_ceil(usize::from(segment.get())));
        let applied = compiled.measure(packets, size, self.now, O::IS_REAL);
        self.observer.meter(compiled.meter(), applied);
        let Some(at) = applied else {
            return Some(packet);
        };
        if let Some(band) = compiled.bands().get(at) {
            self.counters.count_entry(band.slot, 1, size as u64, self.now);
        }
        match compiled.meter().bands.get(at)?.kind {
            BandKind::Drop => {
                self.drop(PacketSource::Move(packet), DropReason::Meter);
                None
            }
            BandKind::DscpRemark { prec_level } => {
                self.remark(i, &mut packet, prec_level);
                Some(packet)
            }
        }
    }

    fn remark(&mut self, i: usize, packet: &mut P, levels: u8) {
        let headers = &mut self.scratch.states[i].headers;
        let layers = headers.layers(packet);
        let head = packet.head_mut();
        if let Some(dscp) = dscp(head, &layers).and_then(|dscp| remarked(dscp, levels)) {
            rewrite::ip_dscp(head, &layers, Dscp::from_low_bits(dscp));
            headers.changed = true;
        }
    }
}

/// Returns the code point with a drop precedence `levels` higher; `None` for a code point without drop
/// precedence.
fn remarked(dscp: u8, levels: u8) -> Option<u8> {
    let precedence = drop_precedence(dscp)?;
    Some(dscp & 0b11_1000 | precedence.saturating_add(levels).min(3) << 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_assured_forwarding_is_remarked_and_not_beyond_the_highest_precedence() {
        // One level makes AF21 AF22; 255 levels make AF41 AF43; AF13 has the highest precedence and stays.
        assert_eq!(remarked(18, 1), Some(20));
        assert_eq!(remarked(34, 255), Some(38));
        assert_eq!(remarked(14, 1), Some(14));
        // Best effort, class selectors and expedited forwarding have no drop precedence.
        for dscp in [0, 8, 16, 32, 40, 46, 48, 11] {
            assert_eq!(remarked(dscp, 1), None, "{dscp}");
        }
    }
}
