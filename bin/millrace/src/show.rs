//! `millrace show`: the desired and the running state.

mod flows;
mod queues;

use std::collections::BTreeMap;
use std::fmt::Display;

use anyhow::Result;
use millrace_api::client::{Client, ClientError};
use millrace_api::view::{self, format_utc};
use millrace_model::Config;
use serde::Serialize;

use crate::bridges::bridge_names;
use crate::cli::{OfBridge, Show};
use crate::human::{bps, or_dash, port, short, span};
use crate::output::{Session, say};
use crate::table::Table;

pub(crate) fn run(session: &Session, args: &Show) -> Result<()> {
    let client = session.client()?;
    match args {
        Show::Status => session.print(&status(client)?, Status::text),
        Show::Bridges => session.print_table(&client.bridges()?, |list| bridges(list)),
        Show::Ports(of) => per_bridge(session, of, Client::ports, advised_ports),
        Show::Flows(wanted) => flows::show(session, wanted),
        Show::Tables(of) => per_bridge(session, of, Client::tables, tables),
        Show::Groups(of) => per_bridge(session, of, Client::groups, groups),
        Show::Meters(of) => per_bridge(session, of, Client::meters, meters),
        Show::Queues(of) => per_bridge(session, of, Client::queues, queues::table),
        Show::Policers(of) => per_bridge(session, of, queues::policed, queues::policers),
        Show::Controllers(of) => per_bridge(session, of, Client::controllers, controllers),
        Show::Workers => session.print_table(&client.workers()?, |list| workers(list)),
        Show::Drops { all } => {
            let mut drops = client.drops()?;
            drops.retain(|drop| *all || drop.packets > 0);
            session.print_table(&drops, |list| dropped(list))
        }
        Show::Macs(of) => per_bridge(session, of, Client::macs, macs),
        Show::Config { revision, full } => config(session, *revision, *full),
        Show::History { limit } => session.print(&client.revisions((*limit).into())?, history),
    }
}

/// Prints one table for each bridge, with a heading if there are several; JSON is an object by bridge.
fn per_bridge<T: Serialize, D: Display>(
    session: &Session,
    of: &OfBridge,
    ask: impl Fn(&Client, &str) -> Result<Vec<T>, ClientError>,
    table: impl Fn(&[T]) -> D,
) -> Result<()> {
    let client = session.client()?;
    let mut lists = BTreeMap::new();
    for name in bridge_names(client, of)? {
        let list = ask(client, &name)?;
        lists.insert(name, list);
    }
    session.print(&lists, |lists| {
        if lists.is_empty() {
            return "no bridge runs\n".to_owned();
        }
        let several = lists.len() > 1;
        let part = |(name, list): (&String, &Vec<T>)| {
            let heading = if several {
                format!("bridge {name}\n")
            } else {
                String::new()
            };
            format!("{heading}{}", table(list))
        };
        lists.iter().map(part).collect::<Vec<_>>().join("\n")
    })
}

/// The content of `show status`.
#[derive(Serialize)]
struct Status {
    version: view::Version,
    ready: view::Ready,
    status: view::Status,
    pending: Option<view::ConfirmPending>,
}

fn status(client: &Client) -> Result<Status, ClientError> {
    Ok(Status {
        version: client.version()?,
        ready: client.ready()?,
        status: client.status()?,
        pending: client.confirmation()?.pending,
    })
}

impl Status {
    fn text(&self) -> String {
        let Status {
            version,
            ready,
            status,
            pending,
        } = self;
        let dpdk = match &version.dpdk {
            None => "built without DPDK".to_owned(),
            Some(dpdk) if !dpdk.used => format!("DPDK {} not used (--no-dpdk)", dpdk.version),
            Some(dpdk) if dpdk.huge_pages => format!("DPDK {} with huge pages", dpdk.version),
            Some(dpdk) => format!("DPDK {} without huge pages", dpdk.version),
        };
        let mut lines = vec![
            format!(
                "millrace {}, {dpdk}, up {}",
                version.version,
                span(version.uptime_seconds)
            ),
            if ready.ready {
                "ready".to_owned()
            } else {
                format!("not ready: {}", ready.reasons.join("; "))
            },
            format!(
                "configuration: revision {} desired, {} running, {}",
                status.wanted_revision,
                or_dash(status.running_revision),
                match status.state {
                    view::Reconciliation::Settled => "settled",
                    view::Reconciliation::Working => "being changed",
                    view::Reconciliation::Degraded => "degraded",
                }
            ),
        ];
        if let Some(pending) = pending {
            lines.push(format!(
                "revision {} is rolled back at {} unless `millrace confirm` is run before",
                pending.revision,
                format_utc(pending.deadline)
            ));
        }
        lines.extend(status.problems.iter().map(problem));
        if !status.restart_needed_for.is_empty() {
            lines.push(format!(
                "a restart of millraced is needed for {}",
                status.restart_needed_for.join(", ")
            ));
        }
        lines.join("\n") + "\n"
    }
}

fn problem(problem: &view::StatusProblem) -> String {
    format!(
        "! {}: {}\n  to fix it: {}",
        problem.subject, problem.message, problem.remedy
    )
}

/// Returns the differences between the desired and the running state as `show status` prints them.
pub(crate) fn problems(list: &[view::StatusProblem]) -> String {
    list.iter().map(|item| problem(item) + "\n").collect()
}

fn bridges(list: &[view::Bridge]) -> Table {
    let mut table = Table::new(
        &[
            "BRIDGE",
            "DATAPATH ID",
            "FORWARDING",
            ">PORTS",
            ">FLOWS",
            ">CONTROLLERS",
        ],
        "no bridge runs",
    );
    for bridge in list {
        let forwarding = match bridge.forwarding {
            view::Forwarding::Controlled => "controlled",
            view::Forwarding::Secure => "secure",
            view::Forwarding::Standalone => "standalone",
        };
        table.row([
            bridge.name.clone(),
            bridge.dpid.clone(),
            forwarding.to_owned(),
            bridge.ports.to_string(),
            bridge.flows.to_string(),
            bridge.controllers_connected.to_string(),
        ]);
    }
    table
}

fn port_state(port: &view::Port) -> &'static str {
    match (port.admin, port.link) {
        (view::AdminState::Down, _) => "off",
        (_, view::LinkState::Up) => "up",
        (_, view::LinkState::Down) => "no link",
        (_, view::LinkState::Missing) => "missing",
    }
}

/// Returns the table of ports, followed by advice for ports that forward partial checksums.
fn advised_ports(list: &[view::Port]) -> String {
    let mut text = ports(list).to_string();
    for line in crate::doctor::advice(list) {
        text += &format!("{line}\n");
    }
    text
}

fn ports(list: &[view::Port]) -> Table {
    let mut table = Table::new(
        &[
            ">NO",
            "PORT",
            "STATE",
            ">SPEED",
            ">RX PACKETS",
            ">RX PPS",
            ">RX BPS",
            ">TX PACKETS",
            ">TX PPS",
            ">TX BPS",
            ">DROPS",
            ">ERRORS",
            "DEVICE",
            "DRIVER",
            ">QUEUES",
            "RSS",
            "SPREAD",
            "OFFLOAD",
        ],
        "no port",
    );
    for given in list {
        let rate = |pick: fn(&view::Rates) -> f64| given.rates.as_ref().map(pick);
        table.row([
            port(given.number),
            given.name.clone(),
            port_state(given).to_owned(),
            or_dash(given.speed_bps.map(|speed| bps(speed as f64))),
            given.rx.packets.to_string(),
            or_dash(rate(|rates| rates.rx_pps).map(short)),
            or_dash(rate(|rates| rates.rx_bps).map(short)),
            given.tx.packets.to_string(),
            or_dash(rate(|rates| rates.tx_pps).map(short)),
            or_dash(rate(|rates| rates.tx_bps).map(short)),
            (given.rx.drops + given.tx.drops).to_string(),
            (given.rx.errors + given.tx.errors).to_string(),
            given.device.clone(),
            or_dash(given.driver.as_ref()),
            given.rx_queues.to_string(),
            or_dash(given.rss.as_ref()),
            // The numbers of RETA buckets, by worker.
            or_dash((!given.spread.is_empty()).then(|| {
                let buckets: Vec<_> = given.spread.iter().map(ToString::to_string).collect();
                buckets.join("/")
            })),
            or_dash(given.offload.as_ref()),
        ]);
    }
    table
}

fn tables(list: &[view::Table]) -> Table {
    let headings = [
        ">TABLE",
        ">ENTRIES",
        ">MAX",
        ">LOOKUPS",
        ">MATCHES",
        ">HIT",
        "CLASSIFIER",
        ">MEMORY",
    ];
    let mut table = Table::new(&headings, "no table in use");
    // Most of the 255 tables are never used.
    for given in list
        .iter()
        .filter(|table| table.entries > 0 || table.lookups > 0 || table.table == 0)
    {
        let hit = (given.lookups > 0)
            .then(|| format!("{:.1} %", 100.0 * given.matches as f64 / given.lookups as f64));
        table.row([
            given.table.to_string(),
            given.entries.to_string(),
            given.max_entries.to_string(),
            given.lookups.to_string(),
            given.matches.to_string(),
            or_dash(hit),
            given.classifier.clone(),
            or_dash(
                given
                    .memory_bytes
                    .map(|bytes| format!("{}B", short(bytes as f64))),
            ),
        ]);
    }
    table
}

fn controllers(list: &[view::Controller]) -> Table {
    let headings = [
        "TARGET",
        "STATE",
        ">SINCE",
        "ROLE",
        ">IN",
        ">OUT",
        ">PACKET-INS DROPPED",
        "LAST ERROR",
    ];
    let mut table = Table::new(&headings, "no controller is configured");
    for given in list {
        let state = match (given.state, given.retry_in_seconds) {
            (view::ControllerState::Listening, _) => "listening".to_owned(),
            (view::ControllerState::Connecting, _) => "connecting".to_owned(),
            (view::ControllerState::Handshake, _) => "handshake".to_owned(),
            (view::ControllerState::Connected, _) => "connected".to_owned(),
            (view::ControllerState::Backoff, Some(seconds)) => format!("again in {}", span(seconds)),
            (view::ControllerState::Backoff, None) => "waiting".to_owned(),
        };
        let role = given.role.map(|role| match role {
            view::Role::Equal => "equal",
            view::Role::Master => "master",
            view::Role::Slave => "slave",
        });
        table.row([
            given.target.clone(),
            state,
            span(given.since_seconds),
            or_dash(role),
            given.messages_in.to_string(),
            given.messages_out.to_string(),
            given.packet_ins_dropped.to_string(),
            or_dash(given.last_error.as_ref()),
        ]);
    }
    table
}

pub(crate) fn workers(list: &[view::Worker]) -> Table {
    let headings = [
        ">WORKER",
        ">CORE",
        ">BUSY",
        ">PACKETS",
        ">PER BURST",
        ">CYCLES/PACKET",
        ">HANDED OFF",
        ">SLEEPS",
        "POLLS",
    ];
    let mut table = Table::new(&headings, "no worker runs");
    for given in list {
        let per_burst =
            (given.bursts > 0).then(|| format!("{:.1}", given.packets as f64 / given.bursts as f64));
        let queue = |queue: &view::Queue| format!("{}:{}/{}", queue.bridge, queue.port, queue.queue);
        table.row([
            given.id.to_string(),
            or_dash(given.core),
            format!("{:.0} %", 100.0 * given.busy),
            given.packets.to_string(),
            or_dash(per_burst),
            or_dash(given.cycles_per_packet.map(|cycles| format!("{cycles:.0}"))),
            given.handed_off.to_string(),
            given.sleeps.to_string(),
            given.queues.iter().map(queue).collect::<Vec<_>>().join(" "),
        ]);
    }
    table
}

pub(crate) fn dropped(list: &[view::Drop]) -> Table {
    let mut table = Table::new(
        &["BRIDGE", ">PACKETS", "REASON", "MEANING"],
        "no packet was dropped",
    );
    for given in list {
        table.row([
            or_dash(given.bridge.as_ref()),
            given.packets.to_string(),
            given.reason.clone(),
            given.description.clone(),
        ]);
    }
    table
}

/// Returns a row for each group, and one for each of its buckets.
fn groups(list: &[view::Group]) -> Table {
    let headings = [
        ">GROUP", "TYPE", ">PACKETS", ">BYTES", ">USED BY", ">AGE", "BUCKET",
    ];
    let mut table = Table::new(&headings, "there are no groups");
    for given in list {
        table.row([
            given.id.to_string(),
            given.kind.clone(),
            given.packets.to_string(),
            given.bytes.to_string(),
            given.references.to_string(),
            span(given.duration_seconds),
            String::new(),
        ]);
        for bucket in &given.buckets {
            let weight = (given.kind == "select").then(|| format!("weight {}, ", bucket.weight));
            let port = bucket
                .watch_port
                .map(|watched| format!("watches port {}, ", port(watched)));
            let group = bucket
                .watch_group
                .map(|watched| format!("watches group {watched}, "));
            table.row([
                String::new(),
                String::new(),
                bucket.packets.to_string(),
                bucket.bytes.to_string(),
                String::new(),
                String::new(),
                [weight, port, group].into_iter().flatten().collect::<String>() + &bucket.actions,
            ]);
        }
    }
    table
}

/// Returns a row for each meter, and one for each of its bands.
fn meters(list: &[view::Meter]) -> Table {
    let headings = [">METER", ">PACKETS", ">BYTES", ">FLOWS", ">AGE", "BAND"];
    let mut table = Table::new(&headings, "there are no meters");
    for given in list {
        table.row([
            given.id.clone(),
            given.packets.to_string(),
            given.bytes.to_string(),
            given.flows.to_string(),
            span(given.duration_seconds),
            String::new(),
        ]);
        for band in &given.bands {
            let levels = band.prec_level.map(|levels| format!(" by {levels}"));
            let burst = band.burst_size.map(|size| format!(", burst {size}"));
            table.row([
                String::new(),
                band.packets.to_string(),
                band.bytes.to_string(),
                String::new(),
                String::new(),
                format!(
                    "{}{} above {} {}{}",
                    band.kind,
                    levels.unwrap_or_default(),
                    band.rate,
                    given.unit,
                    burst.unwrap_or_default()
                ),
            ]);
        }
    }
    table
}

fn macs(list: &[view::MacEntry]) -> Table {
    let mut table = Table::new(&["MAC", ">VLAN", ">PORT", ">AGE"], "no address is learned");
    for given in list {
        table.row([
            given.mac.clone(),
            given.vlan.to_string(),
            port(given.port),
            span(given.age_seconds),
        ]);
    }
    table
}

fn config(session: &Session, revision: Option<u64>, full: bool) -> Result<()> {
    let client = session.client()?;
    let json = match revision {
        Some(number) => client.revision(number)?.config,
        None => client.config()?.0,
    };
    if session.json() {
        return session.print(&json, |_| String::new());
    }
    // A configuration is shown even if a function rejects its settings.
    let config: Config = serde_json::from_value(json)?;
    say(&if full {
        config.to_toml_full()
    } else {
        config.to_toml()
    })
}

/// Returns the origin of a revision in words.
pub(crate) fn origin(origin: view::Origin) -> String {
    match origin {
        view::Origin::Initial => "initial".to_owned(),
        view::Origin::Commit => "commit".to_owned(),
        view::Origin::Rollback { to } => format!("rollback to {to}"),
        view::Origin::Expired { to } => format!("not confirmed, back to {to}"),
        view::Origin::Cancelled { to } => format!("cancelled, back to {to}"),
    }
}

fn history(revisions: &view::Revisions) -> String {
    let mut table = Table::new(
        &[">REVISION", "TIME", "AUTHOR", "ORIGIN", "COMMENT"],
        "no revision",
    );
    for given in &revisions.revisions {
        let waits = revisions
            .pending
            .is_some_and(|pending| pending.revision == given.number);
        let note = if waits { " (waits to be confirmed)" } else { "" };
        table.row([
            given.number.to_string(),
            format_utc(given.time),
            given.author.clone(),
            origin(given.origin) + note,
            given.comment.replace('\n', " "),
        ]);
    }
    table.to_string()
}
