//! Metrics for Prometheus.
//!
//! The names follow the conventions of Prometheus: base units, `_total` for counters, labels for the dimensions that a
//! query would sum over. Everything is read for each scrape; nothing is stored.

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use millrace_store::Snapshot;

use crate::server::app::App;
use crate::server::authorship::now;
use crate::server::exposition::{Family, Labels, Metric, metrics, write};
use crate::server::live::Live;
use crate::view::{
    AdminState, Bridge, Controller, ControllerState, EgressQueue, LinkState, Oam, Port, Problem, Ready,
    Reconciliation, Status, Table, Version, Worker,
};

/// Read the metrics, in the text format of Prometheus
#[utoipa::path(get, path = "/metrics", tag = "health",
    responses((status = 200, body = String, content_type = "text/plain"), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn metrics(State(app): State<App>) -> Result<Response, Problem> {
    let (head, lock) = (app.store.head(), app.store.locked(now()));
    let mut text = app.with_live(text).await?;
    configuration(&mut text, &head, lock.is_some());
    Ok((
        [(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")],
        text,
    )
        .into_response())
}

/// The properties of the process that have no labels.
type Process = (Version, Ready, Status);

const PROCESS: &[Metric<Process>] = metrics! {
    gauge "millrace_uptime_seconds", "Time since the daemon started." =>
        |(version, _, _)| version.uptime_seconds;
    gauge "millrace_ready", "1 if the switch forwards as configured, else 0." =>
        |(_, ready, _)| ready.ready;
    gauge "millrace_config_desired_revision", "The newest revision of the configuration." =>
        |(_, _, status)| status.desired_revision;
    gauge "millrace_config_running_revision", "The running revision; 0 before the first." =>
        |(_, _, status)| status.running_revision.unwrap_or(0);
    gauge "millrace_config_problems", "Problems: differences between the desired and the running state." =>
        |(_, _, status)| status.problems.len();
    gauge "millrace_config_settled", "1 if the running state equals the desired state, else 0." =>
        |(_, _, status)| status.state == Reconciliation::Settled;
};

const WORKER: &[Metric<Worker>] = metrics! {
    counter "millrace_worker_packets_total", "Packets processed." =>
        |worker| worker.packets;
    counter "millrace_worker_bursts_total", "Bursts with at least one packet." =>
        |worker| worker.bursts;
    counter "millrace_worker_sleeps_total", "Sleeps of a worker because no packets arrived." =>
        |worker| worker.sleeps;
    gauge "millrace_worker_busy_ratio", "Share of the last second that was spent on packets, 0 to 1." =>
        |worker| worker.busy;
};

const PORT: &[Metric<Port>] = metrics! {
    counter "millrace_port_receive_packets_total", "Packets received." =>
        |port| port.rx.packets;
    counter "millrace_port_receive_bytes_total", "Bytes received." =>
        |port| port.rx.bytes;
    counter "millrace_port_receive_drops_total", "Packets dropped on reception." =>
        |port| port.rx.drops;
    counter "millrace_port_receive_errors_total", "Packets received with errors." =>
        |port| port.rx.errors;
    counter "millrace_port_transmit_packets_total", "Packets sent." =>
        |port| port.tx.packets;
    counter "millrace_port_transmit_bytes_total", "Bytes sent." =>
        |port| port.tx.bytes;
    counter "millrace_port_transmit_drops_total", "Packets dropped on transmission." =>
        |port| port.tx.drops;
    counter "millrace_port_transmit_errors_total", "Packets that the device failed to send." =>
        |port| port.tx.errors;
    gauge "millrace_port_up", "1 if the port is administratively up and has a link, else 0." =>
        |port| port.admin == AdminState::Up && port.link == LinkState::Up;
    gauge "millrace_port_enabled", "1 if the port is administratively up, else 0." =>
        |port| port.admin == AdminState::Up;
};

const OAM: &[Metric<Oam>] = metrics! {
    gauge "millrace_port_live", "1 if BFD and continuity checks let the port be live, else 0." =>
        |oam| oam.live;
    gauge "millrace_bfd_up", "1 if the BFD session is up, else 0." =>
        |oam| oam.bfd.as_ref().map(|bfd| bfd.state == "up");
    gauge "millrace_ccm_up",
        "1 if continuity check messages of the other end arrive without defect, else 0." =>
        |oam| oam.ccm.as_ref().map(|ccm| ccm.up);
    counter "millrace_oam_flaps_total",
        "Changes of BFD sessions and of continuity checks between up and not up." =>
        |oam| oam.bfd.as_ref().map_or(0, |bfd| bfd.flaps) + oam.ccm.as_ref().map_or(0, |ccm| ccm.flaps);
    gauge "millrace_port_damped", "1 if flap damping holds the port down, else 0." =>
        |oam| oam.damping.as_ref().map(|damping| damping.remaining_s.is_some());
};

const TABLE: &[Metric<Table>] = metrics! {
    gauge "millrace_table_entries", "Flow entries." =>
        |table| table.entries;
    counter "millrace_table_lookups_total", "Packets looked up." =>
        |table| table.lookups;
    counter "millrace_table_matches_total", "Packets that matched an entry." =>
        |table| table.matches;
};

const CONTROLLER: &[Metric<Controller>] = metrics! {
    gauge "millrace_controller_connected", "1 if the controller is connected, else 0." =>
        |controller| controller.state == ControllerState::Connected;
    counter "millrace_controller_receive_messages_total", "OpenFlow messages received." =>
        |controller| controller.messages_in;
    counter "millrace_controller_transmit_messages_total", "OpenFlow messages sent." =>
        |controller| controller.messages_out;
    counter "millrace_controller_dropped_packet_ins_total",
        "Packet-ins dropped by a rate limit or a full queue." =>
        |controller| controller.packet_ins_dropped;
};

const QUEUE: &[Metric<EgressQueue>] = metrics! {
    counter "millrace_queue_transmit_packets_total", "Packets sent from an egress queue." =>
        |queue| queue.packets;
    counter "millrace_queue_transmit_bytes_total", "Bytes sent from an egress queue." =>
        |queue| queue.bytes;
    counter "millrace_queue_dropped_packets_total", "Packets dropped because an egress queue was full." =>
        |queue| queue.drops;
    gauge "millrace_queue_waiting_packets", "Packets in an egress queue." =>
        |queue| queue.waiting_packets;
};

/// Returns all metrics.
fn text(live: &dyn Live) -> String {
    let mut out = String::new();
    process(&mut out, live);
    workers(&mut out, live);
    bridges(&mut out, live);
    super::ovsdb_metrics::ovsdb(&mut out, live);
    let mut drops = Family::counter(
        &mut out,
        "millrace_dropped_packets_total",
        "Packets dropped by the switch, by reason.",
    );
    for drop in live.drops() {
        drops.sample(
            &[
                ("bridge", drop.bridge.as_deref().unwrap_or("")),
                ("reason", &drop.reason),
            ],
            drop.packets,
        );
    }
    out
}

/// Writes the state of the configuration.
fn configuration(out: &mut String, head: &Snapshot, is_locked: bool) {
    let help = "The time at which the unconfirmed revision is rolled back; absent if none waits.";
    let mut deadline = Family::gauge(out, "millrace_config_confirm_deadline_seconds", help);
    if let Some(pending) = head.pending {
        deadline.sample(&[], pending.deadline.0);
    }
    let help = "1 if a session holds the lock on the configuration, else 0.";
    Family::gauge(out, "millrace_config_locked", help).sample(&[], u8::from(is_locked));
    let help = "The highest number of the desired state of an origin, such as next_cfg, that is committed.";
    let mut external = Family::gauge(out, "millrace_config_external_number", help);
    for (origin, number) in &*head.externals {
        external.sample(&[("origin", origin.as_str())], number);
    }
}

fn process(out: &mut String, live: &dyn Live) {
    let process = (live.version(), live.ready(), live.status());
    let (version, _, _) = &process;
    let dpdk = version.dpdk.as_ref().filter(|dpdk| dpdk.used);
    let dpdk = dpdk.map_or("", |dpdk| &dpdk.version);
    let labels = [("version", version.version.as_str()), ("dpdk", dpdk)];
    Family::gauge(out, "millrace_build_info", "Always 1; the versions are labels.").sample(&labels, 1);
    write(out, PROCESS, &[([], &process)]);
}

fn workers(out: &mut String, live: &dyn Live) {
    let workers = live.workers();
    let ids: Vec<String> = workers.iter().map(|worker| worker.id.to_string()).collect();
    let each = ids.iter().zip(&workers);
    let each = each.map(|(id, worker)| ([("worker", id.as_str())], worker));
    write(out, WORKER, &each.collect::<Vec<_>>());
}

fn labels(port: &Port) -> Labels<'_, 2> {
    [("bridge", &port.bridge), ("port", &port.name)]
}

fn bridges(out: &mut String, live: &dyn Live) {
    let bridges = live.bridges();
    // A bridge that is removed meanwhile has no ports: this scrape lacks its samples.
    let ports: Vec<Port> = bridges
        .iter()
        .flat_map(|bridge| live.ports(&bridge.name).unwrap_or_default())
        .collect();
    let each = ports.iter().map(|port| (labels(port), port));
    write(out, PORT, &each.collect::<Vec<_>>());
    let monitored = ports
        .iter()
        .filter_map(|port| Some((labels(port), port.oam.as_ref()?)));
    write(out, OAM, &monitored.collect::<Vec<_>>());
    tables(out, live, &bridges);
    let controllers: Vec<Controller> = bridges
        .iter()
        .flat_map(|bridge| live.controllers(&bridge.name).unwrap_or_default())
        .filter(|controller| controller.state != ControllerState::Listening)
        .collect();
    let each = controllers.iter().map(|controller| {
        let Controller { bridge, target, .. } = controller;
        ([("bridge", bridge.as_str()), ("target", target)], controller)
    });
    write(out, CONTROLLER, &each.collect::<Vec<_>>());
    let mut macs = Family::gauge(out, "millrace_mac_entries", "Learned MAC addresses.");
    for bridge in &bridges {
        macs.sample(
            &[("bridge", &bridge.name)],
            live.macs(&bridge.name).map_or(0, |macs| macs.len()),
        );
    }
    super::mirror_metrics::mirrors(out, live, &bridges);
    super::sflow_metrics::sflow(out, live, &bridges);
    super::ipfix_metrics::ipfix(out, live, &bridges);
    super::offload_metrics::offload(out, &ports);
    queues(out, live, &bridges);
    super::chain_metrics::chains(out, live, &bridges);
    super::wan_metrics::wans(out, live);
    super::lag_metrics::lags(out, live);
    super::routing_metrics::router(out, live);
}

fn tables(out: &mut String, live: &dyn Live, bridges: &[Bridge]) {
    let of_bridge = |bridge: &Bridge| {
        let tables = live.tables(&bridge.name).unwrap_or_default().into_iter();
        // A bridge can have 255 tables: those without entries and lookups are left out.
        let used = tables.filter(|table| table.entries > 0 || table.lookups > 0);
        let name = bridge.name.clone();
        used.map(move |table| (name.clone(), table.table.to_string(), table))
            .collect::<Vec<_>>()
    };
    let tables: Vec<_> = bridges.iter().flat_map(of_bridge).collect();
    let each = tables.iter().map(|(bridge, id, table)| {
        let labels = [("bridge", bridge.as_str()), ("table", id.as_str())];
        (labels, table)
    });
    write(out, TABLE, &each.collect::<Vec<_>>());
}

fn queues(out: &mut String, live: &dyn Live, bridges: &[Bridge]) {
    let of_bridge = |bridge: &Bridge| {
        let queues = live.queues(&bridge.name).unwrap_or_default().into_iter();
        let name = bridge.name.clone();
        queues
            .map(move |queue| (name.clone(), queue.id.to_string(), queue))
            .collect::<Vec<_>>()
    };
    let queues: Vec<_> = bridges.iter().flat_map(of_bridge).collect();
    let each = queues.iter().map(|(bridge, id, queue)| {
        let labels = [("bridge", bridge.as_str()), ("port", &queue.port), ("queue", id)];
        (labels, queue)
    });
    write(out, QUEUE, &each.collect::<Vec<_>>());
}
