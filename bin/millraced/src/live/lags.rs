//! LAGs, from the agent's values to those of REST.

use millrace_agent::control::BridgeControl;
use millrace_agent::control::lacp::{
    LacpChurn, LagMemberStatus, LagStatus, Mux, Participant, Receive, Selected,
};
use millrace_api::view;
use millrace_datapath::io::Backend;
use millrace_model::LagMode;
use millrace_types::{Mac, PortNo};

use super::lldp;
use super::ports::counters_of;

/// Returns the LAGs of a bridge, in the order of port numbers.
pub(super) fn view<B: Backend>(control: &mut BridgeControl<B>) -> Vec<view::Lag> {
    let control = &*control;
    let lag = |number: &PortNo| {
        let (port, status) = (control.ports().get(number)?, control.lag_status(*number)?);
        let (rx, tx) = counters_of(control, *number);
        let LagStatus {
            model,
            settings,
            is_up,
            members,
        } = &status;
        Some(view::Lag {
            name: model.name.to_string(),
            bridge: control.config().name.to_string(),
            port: port.model.name.to_string(),
            number: number.raw(),
            mode: model.mode.to_string(),
            rate: model.rate.to_string(),
            min_links: model.min_links.get(),
            fallback: model.fallback.to_string(),
            system_priority: settings.system_priority,
            system: settings.system.to_string(),
            mac: port.info.mac.to_string(),
            link: link(*is_up),
            speed_bps: port.info.speed_mbps.map(bps),
            rx,
            tx,
            members: members
                .iter()
                .map(|status| member(control, model.mode, status))
                .collect(),
        })
    };
    control.ports().keys().filter_map(lag).collect()
}

fn member<B: Backend>(
    control: &BridgeControl<B>,
    mode: LagMode,
    status: &LagMemberStatus<'_>,
) -> view::LagMember {
    let number = status.model.number;
    let (rx, tx) = match status.info {
        Some(_) => counters_of(control, number),
        None => Default::default(),
    };
    view::LagMember {
        name: status.model.name.to_string(),
        number: number.raw(),
        device: status.model.device.to_string(),
        link: status
            .info
            .map_or(view::LinkState::Missing, |info| link(info.link_up)),
        speed_bps: status.info.and_then(|info| info.speed_mbps).map(bps),
        collecting: status.lacp.is_some_and(|lacp| lacp.collects),
        distributing: status.lacp.is_some_and(|lacp| lacp.distributes),
        since_s: status.since.map(|since| since.as_secs()),
        lacp: lacp(status).filter(|_| mode != LagMode::On),
        lldp: control.lldp_status(number).as_ref().map(lldp::view),
        rx,
        tx,
    }
}

fn lacp(status: &LagMemberStatus<'_>) -> Option<view::Lacp> {
    let lacp = status.lacp?;
    let counted = lacp.counters;
    let receive = match lacp.receive {
        Receive::PortDisabled => "port-disabled",
        Receive::LacpDisabled => "lacp-disabled",
        Receive::Expired => "expired",
        Receive::Defaulted => "defaulted",
        Receive::Current => "current",
    };
    let mux = match lacp.mux {
        Mux::Detached => "detached",
        Mux::Waiting => "waiting",
        Mux::Attached => "attached",
        Mux::Collecting => "collecting",
        Mux::Distributing => "distributing",
    };
    let selected = match lacp.selected {
        Selected::Unselected => "unselected",
        Selected::Selected => "selected",
        Selected::Standby => "standby",
    };
    let churn = |state: LacpChurn| match state {
        LacpChurn::None => "none",
        LacpChurn::Monitor => "monitor",
        LacpChurn::Churned => "churn",
    };
    Some(view::Lacp {
        receive: receive.to_owned(),
        mux: mux.to_owned(),
        selected: selected.to_owned(),
        actor: participant(&lacp.actor),
        partner: (lacp.partner.system != Mac::ZERO).then(|| participant(&lacp.partner)),
        actor_churn: churn(lacp.actor_churn).to_owned(),
        partner_churn: churn(lacp.partner_churn).to_owned(),
        rx_lacpdus: counted.received,
        rx_discarded: counted.discarded,
        tx_lacpdus: counted.sent,
        markers: counted.markers,
        flaps: counted.flaps,
    })
}

fn participant(side: &Participant) -> view::LacpParticipant {
    view::LacpParticipant {
        system_priority: side.system_priority,
        system: side.system.to_string(),
        key: side.key,
        port_priority: side.port_priority,
        port: side.port,
        state: side.state.names().map(str::to_owned).collect(),
    }
}

fn link(is_up: bool) -> view::LinkState {
    if is_up {
        view::LinkState::Up
    } else {
        view::LinkState::Down
    }
}

fn bps(mbps: u32) -> u64 {
    u64::from(mbps) * 1_000_000
}
