//! The destinations of a sampled packet, as recorded by the egress of the worker.

use millrace_pipeline::DropReason;
use millrace_types::PortNo;

use super::SampleOutcome;

/// The destinations of a sampled packet and of its copies.
#[derive(Default)]
pub(crate) struct SampledDestinations {
    sent: u32,
    /// The last port that took the packet, and the VLAN tag there.
    last: Option<(PortNo, Option<u16>)>,
    /// The last port that did not take the packet, and the reason.
    refused: Option<(PortNo, DropReason)>,
    is_taken: bool,
}

impl SampledDestinations {
    /// Records that a port took the packet with this VLAN tag, or the reason why the port refused it.
    pub(crate) fn note_port(&mut self, port: PortNo, tci: Option<u16>, refused: Option<DropReason>) {
        match refused {
            None => {
                self.sent += 1;
                self.last = Some((port, tci));
            }
            Some(reason) => self.refused = Some((port, reason)),
        }
    }

    /// Records that the switch itself took the packet.
    pub(crate) fn note_taken(&mut self) {
        self.is_taken = true;
    }

    /// Returns the outcome of the packet. `drop_reason` is the reason of the packet's last drop.
    pub(crate) fn outcome(&self, drop_reason: Option<DropReason>) -> SampleOutcome {
        match (self.sent, self.last, self.refused, drop_reason) {
            (1, Some((port, tci)), ..) => SampleOutcome::Sent { port, tci },
            (sent, Some(_), ..) => SampleOutcome::Copied(sent),
            (_, None, Some((port, reason)), _) => SampleOutcome::Dropped {
                reason,
                port: Some(port),
            },
            _ if self.is_taken => SampleOutcome::Taken,
            (_, None, None, Some(reason)) => SampleOutcome::Dropped { reason, port: None },
            (_, None, None, None) => SampleOutcome::Unknown,
        }
    }
}
