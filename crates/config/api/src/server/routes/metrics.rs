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
use crate::server::exposition::Family;
use crate::server::live::Live;
use crate::view::{
    AdminState, Bridge, ControllerState, EgressQueue, LinkState, Port, Problem, Reconciliation,
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

/// A function that returns one counter of a port.
type PortNumber = fn(&Port) -> u64;

const PORT_COUNTERS: [(&str, &str, PortNumber); 8] = [
    (
        "millrace_port_receive_packets_total",
        "Packets received.",
        |port| port.rx.packets,
    ),
    ("millrace_port_receive_bytes_total", "Bytes received.", |port| {
        port.rx.bytes
    }),
    (
        "millrace_port_receive_drops_total",
        "Packets dropped on reception.",
        |port| port.rx.drops,
    ),
    (
        "millrace_port_receive_errors_total",
        "Packets received with errors.",
        |port| port.rx.errors,
    ),
    ("millrace_port_transmit_packets_total", "Packets sent.", |port| {
        port.tx.packets
    }),
    ("millrace_port_transmit_bytes_total", "Bytes sent.", |port| {
        port.tx.bytes
    }),
    (
        "millrace_port_transmit_drops_total",
        "Packets dropped on transmission.",
        |port| port.tx.drops,
    ),
    (
        "millrace_port_transmit_errors_total",
        "Packets that the device failed to send.",
        |port| port.tx.errors,
    ),
];

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
    let (version, ready, status) = (live.version(), live.ready(), live.status());
    let dpdk = version.dpdk.as_ref().filter(|dpdk| dpdk.used);
    let dpdk = dpdk.map_or("", |dpdk| &dpdk.version);
    let labels = [("version", version.version.as_str()), ("dpdk", dpdk)];
    Family::gauge(out, "millrace_build_info", "Always 1; the versions are labels.").sample(&labels, 1);
    Family::gauge(out, "millrace_uptime_seconds", "Time since the daemon started.")
        .sample(&[], version.uptime_seconds);
    Family::gauge(
        out,
        "millrace_ready",
        "1 if the switch forwards as configured, else 0.",
    )
    .sample(&[], u8::from(ready.ready));
    Family::gauge(
        out,
        "millrace_config_desired_revision",
        "The newest revision of the configuration.",
    )
    .sample(&[], status.desired_revision);
    Family::gauge(
        out,
        "millrace_config_running_revision",
        "The running revision; 0 before the first.",
    )
    .sample(&[], status.running_revision.unwrap_or(0));
    Family::gauge(
        out,
        "millrace_config_problems",
        "Problems: differences between the desired and the running state.",
    )
    .sample(&[], status.problems.len());
    Family::gauge(
        out,
        "millrace_config_settled",
        "1 if the running state equals the desired state, else 0.",
    )
    .sample(&[], u8::from(status.state == Reconciliation::Settled));
}

fn workers(out: &mut String, live: &dyn Live) {
    let workers: Vec<_> = live
        .workers()
        .into_iter()
        .map(|worker| (worker.id.to_string(), worker))
        .collect();
    let mut packets = Family::counter(out, "millrace_worker_packets_total", "Packets processed.");
    workers
        .iter()
        .for_each(|(id, worker)| packets.sample(&[("worker", id)], worker.packets));
    let mut bursts = Family::counter(
        out,
        "millrace_worker_bursts_total",
        "Bursts with at least one packet.",
    );
    workers
        .iter()
        .for_each(|(id, worker)| bursts.sample(&[("worker", id)], worker.bursts));
    let mut sleeps = Family::counter(
        out,
        "millrace_worker_sleeps_total",
        "Sleeps of a worker because no packets arrived.",
    );
    workers
        .iter()
        .for_each(|(id, worker)| sleeps.sample(&[("worker", id)], worker.sleeps));
    let mut busy = Family::gauge(
        out,
        "millrace_worker_busy_ratio",
        "Share of the last second that was spent on packets, 0 to 1.",
    );
    workers
        .iter()
        .for_each(|(id, worker)| busy.sample(&[("worker", id)], worker.busy));
}

fn bridges(out: &mut String, live: &dyn Live) {
    let bridges = live.bridges();
    // A bridge that is removed meanwhile has no ports: this scrape lacks its samples.
    let ports: Vec<Port> = bridges
        .iter()
        .flat_map(|bridge| live.ports(&bridge.name).unwrap_or_default())
        .collect();
    for (name, help, number) in PORT_COUNTERS {
        let mut family = Family::counter(out, name, help);
        for port in &ports {
            family.sample(&[("bridge", &port.bridge), ("port", &port.name)], number(port));
        }
    }
    let mut up = Family::gauge(
        out,
        "millrace_port_up",
        "1 if the port is administratively up and has a link, else 0.",
    );
    for port in &ports {
        let is_up = port.admin == AdminState::Up && port.link == LinkState::Up;
        up.sample(&[("bridge", &port.bridge), ("port", &port.name)], u8::from(is_up));
    }
    let mut enabled = Family::gauge(
        out,
        "millrace_port_enabled",
        "1 if the port is administratively up, else 0.",
    );
    for port in &ports {
        let is_enabled = port.admin == AdminState::Up;
        enabled.sample(
            &[("bridge", &port.bridge), ("port", &port.name)],
            u8::from(is_enabled),
        );
    }
    oam(out, &ports);
    let tables: Vec<_> = bridges
        .iter()
        .flat_map(|bridge| {
            let tables = live.tables(&bridge.name).unwrap_or_default().into_iter();
            tables.map(|table| (bridge.name.as_str(), table.table.to_string(), table))
        })
        // A bridge can have 255 tables: those without entries and lookups are left out.
        .filter(|(_, _, table)| table.entries > 0 || table.lookups > 0)
        .collect();
    let mut entries = Family::gauge(out, "millrace_table_entries", "Flow entries.");
    tables
        .iter()
        .for_each(|(bridge, id, table)| entries.sample(&[("bridge", bridge), ("table", id)], table.entries));
    let mut lookups = Family::counter(out, "millrace_table_lookups_total", "Packets looked up.");
    tables
        .iter()
        .for_each(|(bridge, id, table)| lookups.sample(&[("bridge", bridge), ("table", id)], table.lookups));
    let mut matches = Family::counter(
        out,
        "millrace_table_matches_total",
        "Packets that matched an entry.",
    );
    tables
        .iter()
        .for_each(|(bridge, id, table)| matches.sample(&[("bridge", bridge), ("table", id)], table.matches));
    let controllers: Vec<_> = bridges
        .iter()
        .flat_map(|bridge| live.controllers(&bridge.name).unwrap_or_default())
        .filter(|controller| controller.state != ControllerState::Listening)
        .collect();
    let mut connected = Family::gauge(
        out,
        "millrace_controller_connected",
        "1 if the controller is connected, else 0.",
    );
    for controller in &controllers {
        let is_connected = u8::from(controller.state == ControllerState::Connected);
        connected.sample(
            &[("bridge", &controller.bridge), ("target", &controller.target)],
            is_connected,
        );
    }
    let mut received = Family::counter(
        out,
        "millrace_controller_receive_messages_total",
        "OpenFlow messages received.",
    );
    for controller in &controllers {
        received.sample(
            &[("bridge", &controller.bridge), ("target", &controller.target)],
            controller.messages_in,
        );
    }
    let mut sent = Family::counter(
        out,
        "millrace_controller_transmit_messages_total",
        "OpenFlow messages sent.",
    );
    for controller in &controllers {
        sent.sample(
            &[("bridge", &controller.bridge), ("target", &controller.target)],
            controller.messages_out,
        );
    }
    let help = "Packet-ins dropped by a rate limit or a full queue.";
    let mut dropped = Family::counter(out, "millrace_controller_dropped_packet_ins_total", help);
    for controller in &controllers {
        dropped.sample(
            &[("bridge", &controller.bridge), ("target", &controller.target)],
            controller.packet_ins_dropped,
        );
    }
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
    super::offload_metrics::offload(out, live, &bridges);
    queues(out, live, &bridges);
    super::chain_metrics::chains(out, live, &bridges);
    super::wan_metrics::wans(out, live);
    super::lag_metrics::lags(out, live);
    super::routing_metrics::router(out, live);
}

/// A function that returns one counter of a queue.
type QueueNumber = fn(&EgressQueue) -> u64;

const QUEUE_COUNTERS: [(&str, &str, QueueNumber); 3] = [
    (
        "millrace_queue_transmit_packets_total",
        "Packets sent from an egress queue.",
        |queue| queue.packets,
    ),
    (
        "millrace_queue_transmit_bytes_total",
        "Bytes sent from an egress queue.",
        |queue| queue.bytes,
    ),
    (
        "millrace_queue_dropped_packets_total",
        "Packets dropped because an egress queue was full.",
        |queue| queue.drops,
    ),
];

fn queues(out: &mut String, live: &dyn Live, bridges: &[Bridge]) {
    let queues = bridges.iter().flat_map(|bridge| {
        let queues = live.queues(&bridge.name).unwrap_or_default();
        queues.into_iter().map(|queue| (bridge.name.clone(), queue))
    });
    let queues: Vec<(String, EgressQueue)> = queues.collect();
    let sample = |mut family: Family<'_>, number: QueueNumber| {
        for (bridge, queue) in &queues {
            let labels = [
                ("bridge", bridge.as_str()),
                ("port", &queue.port),
                ("queue", &queue.id.to_string()),
            ];
            family.sample(&labels, number(queue));
        }
    };
    for (name, help, number) in QUEUE_COUNTERS {
        sample(Family::counter(out, name, help), number);
    }
    let waiting = Family::gauge(
        out,
        "millrace_queue_waiting_packets",
        "Packets in an egress queue.",
    );
    sample(waiting, |queue| queue.waiting_packets);
}
/// Writes the state of OAM of the ports that have it.
fn oam(out: &mut String, ports: &[Port]) {
    let monitored = || ports.iter().filter_map(|port| Some((port, port.oam.as_ref()?)));
    let mut live = Family::gauge(
        out,
        "millrace_port_live",
        "1 if BFD and continuity checks let the port be live, else 0.",
    );
    for (port, oam) in monitored() {
        live.sample(
            &[("bridge", &port.bridge), ("port", &port.name)],
            u8::from(oam.live),
        );
    }
    let mut up = Family::gauge(out, "millrace_bfd_up", "1 if the BFD session is up, else 0.");
    for (port, oam) in monitored() {
        if let Some(bfd) = &oam.bfd {
            up.sample(
                &[("bridge", &port.bridge), ("port", &port.name)],
                u8::from(bfd.state == "up"),
            );
        }
    }
    let mut up = Family::gauge(
        out,
        "millrace_ccm_up",
        "1 if continuity check messages of the other end arrive without defect, else 0.",
    );
    for (port, oam) in monitored() {
        if let Some(ccm) = &oam.ccm {
            up.sample(
                &[("bridge", &port.bridge), ("port", &port.name)],
                u8::from(ccm.up),
            );
        }
    }
    let help = "Changes of BFD sessions and of continuity checks between up and not up.";
    let mut flaps = Family::counter(out, "millrace_oam_flaps_total", help);
    for (port, oam) in monitored() {
        let bfd = oam.bfd.as_ref().map_or(0, |bfd| bfd.flaps);
        let ccm = oam.ccm.as_ref().map_or(0, |ccm| ccm.flaps);
        flaps.sample(&[("bridge", &port.bridge), ("port", &port.name)], bfd + ccm);
    }
    let mut damped = Family::gauge(
        out,
        "millrace_port_damped",
        "1 if flap damping holds the port down, else 0.",
    );
    for (port, oam) in monitored() {
        if let Some(damping) = &oam.damping {
            damped.sample(
                &[("bridge", &port.bridge), ("port", &port.name)],
                u8::from(damping.remaining_s.is_some()),
            );
        }
    }
}
