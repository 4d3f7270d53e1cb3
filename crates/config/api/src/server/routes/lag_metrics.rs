//! The metrics of LAGs in `/metrics`.

use crate::server::exposition::{Labels, Metric, metrics, write};
use crate::server::live::Live;
use crate::view::{Lacp, Lag, LagMember, LinkState};

const LAG: &[Metric<Lag>] = metrics! {
    gauge "millrace_lag_members", "Members of the LAG in the configuration." =>
        |lag| lag.members.len();
    gauge "millrace_lag_members_distributing", "Members that send packets of the LAG." =>
        |lag| lag.members.iter().filter(|member| member.distributing).count();
    gauge "millrace_lag_min_links", "The number of usable members below which the LAG is down." =>
        |lag| lag.min_links;
};

const MEMBER: &[Metric<LagMember>] = metrics! {
    gauge "millrace_lag_member_up", "1 if the member has a link, else 0." =>
        |member| member.link == LinkState::Up;
    gauge "millrace_lag_member_distributing", "1 if the member sends packets of the LAG, else 0." =>
        |member| member.distributing;
    gauge "millrace_lag_member_churned",
        "1 if a side of LACP has been out of synchronization for 60 seconds, else 0." =>
        |member| member.lacp.as_ref().is_some_and(is_churned);
    counter "millrace_lag_member_receive_packets_total", "Packets received at the member." =>
        |member| member.rx.packets;
    counter "millrace_lag_member_receive_bytes_total", "Bytes received at the member." =>
        |member| member.rx.bytes;
    counter "millrace_lag_member_receive_drops_total", "Packets dropped on reception at the member." =>
        |member| member.rx.drops;
    counter "millrace_lag_member_transmit_packets_total", "Packets sent by the member." =>
        |member| member.tx.packets;
    counter "millrace_lag_member_transmit_bytes_total", "Bytes sent by the member." =>
        |member| member.tx.bytes;
    counter "millrace_lag_member_transmit_drops_total", "Packets dropped on transmission by the member." =>
        |member| member.tx.drops;
};

const LACP: &[Metric<Lacp>] = metrics! {
    counter "millrace_lag_member_lacpdus_received_total", "LACPDUs received." =>
        |lacp| lacp.rx_lacpdus;
    counter "millrace_lag_member_lacpdus_discarded_total", "Malformed or unknown frames of slow protocols." =>
        |lacp| lacp.rx_discarded;
    counter "millrace_lag_member_lacpdus_sent_total", "LACPDUs sent." =>
        |lacp| lacp.tx_lacpdus;
    counter "millrace_lag_member_flaps_total", "Changes between distributing and not distributing." =>
        |lacp| lacp.flaps;
};

fn is_churned(lacp: &Lacp) -> bool {
    lacp.actor_churn == "churn" || lacp.partner_churn == "churn"
}

fn labels(lag: &Lag) -> Labels<'_, 3> {
    [("bridge", &lag.bridge), ("port", &lag.port), ("lag", &lag.name)]
}

/// Writes the metrics of all LAGs; none without LAGs.
pub(super) fn lags(out: &mut String, live: &dyn Live) {
    let lags = live.lags();
    if lags.is_empty() {
        return;
    }
    let each: Vec<_> = lags.iter().map(|lag| (labels(lag), lag)).collect();
    write(out, LAG, &each);
    let members = lags.iter().flat_map(|lag| {
        let [bridge, port, name] = labels(lag);
        let members = lag.members.iter();
        members.map(move |member| ([bridge, port, name, ("member", member.name.as_str())], member))
    });
    let members: Vec<_> = members.collect();
    write(out, MEMBER, &members);
    let with_lacp = members
        .iter()
        .filter_map(|(labels, member)| Some((*labels, member.lacp.as_ref()?)));
    write(out, LACP, &with_lacp.collect::<Vec<_>>());
}
