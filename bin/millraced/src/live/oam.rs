//! OAM of ports, from the agent's values to those of REST.

use millrace_agent::control::{BfdStatus, CcmStatus, DampingStatus, OamStatus};
use millrace_api::view;
use millrace_types::Duration;

/// Returns the state of OAM of a port.
pub(super) fn view(status: &OamStatus) -> view::Oam {
    view::Oam {
        live: status.is_live,
        restores_in_s: seconds(status.restores_in),
        bfd: status.bfd.as_ref().map(bfd),
        ccm: status.ccm.as_ref().map(ccm),
        damping: status.damping.as_ref().map(damping),
    }
}

fn seconds(duration: Option<Duration>) -> Option<f64> {
    duration.map(|duration| duration.as_secs_f64())
}

fn bfd(status: &BfdStatus) -> view::BfdSession {
    view::BfdSession {
        state: status.state.to_string(),
        remote_state: status.remote_state.to_string(),
        diagnostic: status.diagnostic.to_string(),
        local_discriminator: status.local_discriminator,
        remote_discriminator: status.remote_discriminator,
        tx_interval_ms: seconds(status.tx_interval).map(|seconds| seconds * 1000.0),
        detection_time_ms: status.detection_time.as_secs_f64() * 1000.0,
        rx_packets: status.counters.received,
        rx_discarded: status.counters.discarded,
        tx_packets: status.counters.sent,
        flaps: status.counters.flaps,
    }
}

fn ccm(status: &CcmStatus) -> view::ContinuityCheck {
    view::ContinuityCheck {
        up: status.is_up,
        rdi: status.has_rdi,
        remote_mep: status.remote_mep,
        rx_messages: status.counters.received,
        rx_discarded: status.counters.discarded,
        rx_defects: status.counters.defects,
        tx_messages: status.counters.sent,
        flaps: status.counters.flaps,
    }
}

fn damping(status: &DampingStatus) -> view::Damping {
    view::Damping {
        remaining_s: seconds(status.left),
        times: status.damped,
    }
}
