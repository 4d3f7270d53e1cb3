//! Controllers and listeners of a bridge.

use millrace_agent::BridgeControl;
use millrace_agent::channel::{ChannelKind, ChannelState, ChannelStatus};
use millrace_api::view;
use millrace_datapath::io::Backend;
use millrace_model::FailMode;
use millrace_openflow::roles::Role;
use millrace_pipeline::DropReason;

/// Returns the view of a channel.
pub(super) fn controller(bridge: &str, channel: ChannelStatus) -> view::Controller {
    let (state, retry) = match channel.state {
        ChannelState::Connecting => (view::ControllerState::Connecting, None),
        ChannelState::Connected => (view::ControllerState::Connected, None),
        ChannelState::Listening => (view::ControllerState::Listening, None),
        ChannelState::Waiting { pause } => {
            let left = pause.saturating_sub(channel.since).as_secs_f64();
            (view::ControllerState::Backoff, Some(left))
        }
    };
    let role = channel.role.map(|role| match role {
        Role::Equal => view::Role::Equal,
        Role::Master => view::Role::Master,
        Role::Slave => view::Role::Slave,
    });
    let target = match (channel.kind, channel.address) {
        (ChannelKind::Accepted, Some(address)) => address.to_string(),
        // A peer on a Unix socket has no address.
        (ChannelKind::Accepted, None) => format!("{} connection {}", channel.target, channel.number),
        _ => channel.target,
    };
    view::Controller {
        bridge: bridge.to_owned(),
        target,
        state,
        role,
        since_seconds: channel.since.as_secs_f64(),
        last_error: channel.last_error,
        retry_in_seconds: retry,
        messages_in: channel.messages_in,
        messages_out: channel.messages_out,
        packet_ins_dropped: channel.dropped,
    }
}

/// Returns the problem of a bridge that has dropped packets for controllers and has no controller now.
pub(super) fn lost_packets<B: Backend>(bridge: &mut BridgeControl<B>) -> Option<view::StatusProblem> {
    let dropped = bridge.tables().drops(DropReason::NoController);
    if dropped == 0 || bridge.controllers_len() != 0 {
        return None;
    }
    let (reason, name) = (DropReason::NoController, &bridge.config().name);
    let next_step = match bridge.config().fail_mode {
        FailMode::Secure => {
            "start the controller (`millrace show controllers` has its state), or set fail_mode = \"standalone\""
        }
        FailMode::Standalone => "start the controller (`millrace show controllers` has its state)",
    };
    Some(view::StatusProblem {
        subject: format!("bridge {name}"),
        message: format!(
            "no controller is connected; {dropped} packets for a controller were dropped ({reason})"
        ),
        next_step: next_step.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use millrace_types::Duration;

    use super::*;

    #[test]
    fn connections_to_one_unix_socket_have_targets_of_their_own() {
        let channel = |number, kind, state| ChannelStatus {
            number,
            target: "punix:/run/br0.sock".to_owned(),
            kind,
            state,
            since: Duration::from_secs(1),
            address: None,
            role: None,
            last_error: None,
            messages_in: 0,
            messages_out: 0,
            dropped: 0,
        };
        let accepted = |number| channel(number, ChannelKind::Accepted, ChannelState::Connected);
        let channels = [
            channel(1, ChannelKind::Listener, ChannelState::Listening),
            accepted(2),
            accepted(3),
        ];
        assert_eq!(
            channels.map(|channel| controller("br0", channel).target),
            [
                "punix:/run/br0.sock",
                "punix:/run/br0.sock connection 2",
                "punix:/run/br0.sock connection 3"
            ]
        );
    }
}
