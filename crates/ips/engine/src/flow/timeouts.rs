//! Times after which an idle flow ends.

use millrace_types::Duration;
use millrace_wire::IpProto;

use super::{Flow, FlowState, FlowVerdict};

/// The time-out of a shunned flow. The engine does not see its packets, and the switch may never report the
/// end of the shun.
const SHUNNED: Duration = Duration::from_secs(3600);

/// Idle time-outs of one protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeoutsOfProtocol {
    /// For a flow with packets of one direction only.
    pub new: Duration,
    /// For an established flow.
    pub established: Duration,
    /// For a closed flow.
    pub closed: Duration,
    /// For a flow that is passed or bypassed.
    pub bypassed: Duration,
}

/// Idle time-outs by protocol. The defaults are those in Suricata's documentation of `flow-timeouts`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    pub tcp: TimeoutsOfProtocol,
    pub udp: TimeoutsOfProtocol,
    /// ICMP and ICMPv6.
    pub icmp: TimeoutsOfProtocol,
    /// Other protocols.
    pub other: TimeoutsOfProtocol,
}

impl Default for Timeouts {
    fn default() -> Timeouts {
        let times = |new, established, closed, bypassed| TimeoutsOfProtocol {
            new: Duration::from_secs(new),
            established: Duration::from_secs(established),
            closed: Duration::from_secs(closed),
            bypassed: Duration::from_secs(bypassed),
        };
        Timeouts {
            tcp: times(60, 600, 60, 100),
            udp: times(30, 300, 0, 100),
            icmp: times(30, 300, 0, 100),
            other: times(30, 300, 0, 100),
        }
    }
}

impl Timeouts {
    /// Returns the idle time after which `flow` ends.
    pub fn of(&self, flow: &Flow) -> Duration {
        let times = match IpProto(flow.key.protocol) {
            IpProto::TCP => &self.tcp,
            IpProto::UDP => &self.udp,
            IpProto::ICMPV4 | IpProto::ICMPV6 => &self.icmp,
            _ => &self.other,
        };
        if flow.is_shunned {
            return SHUNNED;
        }
        match (flow.verdict, flow.state) {
            (FlowVerdict::Pass | FlowVerdict::Bypass, _) => times.bypassed,
            (_, FlowState::New) => times.new,
            (_, FlowState::Established) => times.established,
            (_, FlowState::Closed) => times.closed,
        }
    }
}
