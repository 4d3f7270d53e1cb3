//! `millrace nf`: the functions of chains. `millrace chain plan`: the workers that chains need.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use millrace_api::client::Client;
use millrace_api::view::{Chain, ChainHop, SharedState};
use millrace_builtin::CATALOGUE;
use millrace_model::InstanceCount;
use serde::Serialize;

use crate::bridges::bridge_names;
use crate::chain_edit::change_chain;
use crate::cli::{BridgeSelection, ChainCommand, HopName, Nf, Plan};
use crate::output::{Session, say};
use crate::table::Table;

pub(crate) fn run(session: &Session, args: &Nf) -> Result<()> {
    match args {
        Nf::List(of) => print(session, of, list),
        Nf::Stats(of) => print(session, of, stats),
        Nf::Functions => functions(session),
        Nf::Run(wanted) => crate::nf_run::run(session, wanted),
        Nf::Rate(wanted) => crate::nf_rate::run(session, wanted),
        Nf::Restart(hop) => {
            let client = session.client()?;
            let restarted = client.restart_hop(&hop.bridge, &hop.chain, &hop.hop)?;
            session.print(&restarted, |restarted| {
                format!("{}/{}: functions restarted\n", restarted.chain, restarted.hop)
            })
        }
        Nf::Reload { hop, timeout } => reload(session, hop, *timeout),
        Nf::Scale { hop, instances } => {
            let instances = InstanceCount::new(*instances)?;
            change(session, hop, &format!("scale to {instances}"), |wanted| {
                wanted.instances = instances;
            })
        }
        Nf::Drain { hop, undo } => {
            let why = if *undo { "end drain" } else { "drain" };
            change(session, hop, why, |wanted| wanted.drained = !undo)
        }
    }
}

/// The interval at which the state of a hop is read.
const POLL: Duration = Duration::from_millis(100);

/// Loads the files of a hop again, and waits for the end.
fn reload(session: &Session, hop: &HopName, timeout: Duration) -> Result<()> {
    let client = session.client()?;
    client.reload_hop(&hop.bridge, &hop.chain, &hop.hop)?;
    let name = format!("{}/{}", hop.chain, hop.hop);
    let began = Instant::now();
    let state = loop {
        let chains = client.chains(&hop.bridge)?;
        let chain = chains.into_iter().find(|chain| chain.name == hop.chain);
        let held = chain.and_then(|chain| chain.hops.into_iter().find(|held| held.name == hop.hop));
        let state = held.and_then(|held| held.shared).unwrap_or_default();
        if state.state != "loading" {
            break state;
        }
        if began.elapsed() > timeout {
            bail!("{name}: still loading after {timeout:?}; `millrace nf list` shows the end");
        }
        std::thread::sleep(POLL);
    };
    if !state.failure.is_empty() {
        bail!("{name}: {}; what was loaded before stays in use", state.failure);
    }
    session.print(&state, |state: &SharedState| {
        format!("{name}: {}\n", state.summary)
    })
}

pub(crate) fn chain(session: &Session, args: &ChainCommand) -> Result<()> {
    match args {
        ChainCommand::Plan(wanted) => plan(session, wanted),
    }
}

/// The chains of a bridge.
#[derive(Serialize)]
struct OnBridge {
    bridge: String,
    chains: Vec<Chain>,
}

fn all(client: &Client, of: &BridgeSelection) -> Result<Vec<OnBridge>> {
    let names = bridge_names(client, of)?.into_iter();
    names
        .map(|bridge| {
            let chains = client.chains(&bridge)?;
            Ok(OnBridge { bridge, chains })
        })
        .collect()
}

fn print(session: &Session, of: &BridgeSelection, table: fn(&[OnBridge]) -> String) -> Result<()> {
    let client = session.client()?;
    session.print(&all(client, of)?, |list| table(list))
}

fn hops(list: &[OnBridge]) -> impl Iterator<Item = (&str, &Chain, &ChainHop)> {
    list.iter().flat_map(|on| {
        let chains = on.chains.iter();
        chains.flat_map(move |chain| chain.hops.iter().map(move |hop| (on.bridge.as_str(), chain, hop)))
    })
}

fn list(all: &[OnBridge]) -> String {
    let headings = [
        "BRIDGE",
        "CHAIN",
        "HOP",
        "FUNCTION",
        "CLASS",
        "STATE",
        ">PARALLEL",
        ">INSTANCES",
        ">RESTARTS",
        ">NS/PACKET",
        ">LATENCY US",
    ];
    let mut table = Table::new(&headings, none(all));
    let (mut failures, mut limited) = (String::new(), String::new());
    for (bridge, chain, hop) in hops(all) {
        table.row([
            bridge.to_owned(),
            chain.name.clone(),
            hop.name.clone(),
            hop.function.clone(),
            hop.class.clone(),
            hop.state.clone(),
            hop.parallel.map_or("-".to_owned(), |group| group.to_string()),
            hop.instances.to_string(),
            hop.restarts.to_string(),
            hop.nanos_per_packet
                .map_or("-".to_owned(), |nanos| format!("{nanos:.0}")),
            hop.latency_nanos
                .map_or("-".to_owned(), |nanos| format!("{:.1}", nanos / 1000.0)),
        ]);
        if !hop.failure.is_empty() {
            failures += &format!("{}/{} failed last with: {}\n", chain.name, hop.name, hop.failure);
        }
        limited += &limits(chain, hop);
        limited += &shared(chain, hop);
        limited += &report(chain, hop);
    }
    format!("{table}{limited}{failures}{}", problems(all))
}

/// Returns the text for a table without hops.
fn none(all: &[OnBridge]) -> &'static str {
    match all.iter().all(|on| on.chains.is_empty()) {
        true => "there are no chains",
        false => "the chains have no hops",
    }
}

/// Returns a line for each chain that does not run as configured, with the reason.
fn problems(all: &[OnBridge]) -> String {
    let chains = all
        .iter()
        .flat_map(|on| on.chains.iter().map(move |chain| (&on.bridge, chain)));
    let line = |(bridge, chain): (&String, &Chain)| {
        problem(chain).map(|problem| format!("{bridge}: chain {} {problem}\n", chain.name))
    };
    chains.filter_map(line).collect()
}

/// Returns the reason why a chain does not run as configured.
fn problem(chain: &Chain) -> Option<String> {
    let how = match chain.state.as_str() {
        "down" => "does not run",
        _ => "runs as before the last change",
    };
    (!chain.problem.is_empty()).then(|| format!("{how}: {}", chain.problem))
}

/// Returns the limits of a hop's functions with the mechanisms that enforce them, and a line for each limit that is
/// not enforced as it should be.
fn limits(chain: &Chain, hop: &ChainHop) -> String {
    if hop.limits.is_empty() {
        return String::new();
    }
    let at = format!("{}/{}", chain.name, hop.name);
    let each = hop
        .limits
        .iter()
        .map(|limit| format!("{} {} ({})", limit.name, limit.value, limit.by));
    let mut text = format!("{at} is limited: {}\n", each.collect::<Vec<_>>().join(", "));
    for limit in hop.limits.iter().filter(|limit| !limit.problem.is_empty()) {
        text += &format!(
            "{at}: {} is enforced by {}: {}\n",
            limit.name, limit.by, limit.problem
        );
    }
    text
}

/// Returns a line about the shared value of a hop's functions, or nothing if they have none.
fn shared(chain: &Chain, hop: &ChainHop) -> String {
    let Some(shared) = &hop.shared else {
        return String::new();
    };
    let summary = match shared.summary.as_str() {
        "" => "nothing yet",
        summary => summary,
    };
    let failure = match shared.failure.as_str() {
        "" => String::new(),
        failure => format!("; the last load failed: {failure}"),
    };
    format!(
        "{}/{} {}: {summary}{failure}\n",
        chain.name, hop.name, shared.state
    )
}

/// Returns the lines of the report of a hop's functions, such as the rules that exceeded a limit of their evaluation.
fn report(chain: &Chain, hop: &ChainHop) -> String {
    let lines = hop.report.iter();
    lines
        .map(|line| format!("{}/{}: {line}\n", chain.name, hop.name))
        .collect()
}

/// Returns a line with the shunned flows and the sent packets of a hop, or nothing if there were none.
fn effects(chain: &Chain, hop: &ChainHop) -> String {
    let shunned = hop.shunned_flows + hop.shunned_passed + hop.shunned_dropped;
    if shunned + hop.sent + hop.not_sent == 0 {
        return String::new();
    }
    format!(
        "{}/{}: shunned flows {}, their packets passed {} and dropped {}; packets sent {}, not sent {}\n",
        chain.name,
        hop.name,
        hop.shunned_flows,
        hop.shunned_passed,
        hop.shunned_dropped,
        hop.sent,
        hop.not_sent
    )
}

fn stats(all: &[OnBridge]) -> String {
    let headings = [
        "CHAIN", "HOP", "FUNCTION", ">PACKETS", ">BYTES", ">NEXT", ">DROPPED", ">SKIPPED", ">TO PORT",
        ">PASSED", ">LOST", ">DEPTH",
    ];
    let mut table = Table::new(&headings, none(all));
    let mut more = String::new();
    for (_, chain, hop) in hops(all) {
        table.row([
            chain.name.clone(),
            hop.name.clone(),
            hop.function.clone(),
            hop.packets.to_string(),
            hop.bytes.to_string(),
            hop.next.to_string(),
            hop.dropped.to_string(),
            hop.skipped.to_string(),
            hop.to_port.to_string(),
            hop.passed.to_string(),
            hop.lost.to_string(),
            hop.depth.to_string(),
        ]);
        more += &limits(chain, hop);
        more += &shared(chain, hop);
        more += &effects(chain, hop);
        let counters: Vec<String> = hop
            .counters
            .iter()
            .map(|counter| format!("{} {}", counter.name, counter.value))
            .collect();
        if !counters.is_empty() {
            more += &format!("{}/{}: {}\n", chain.name, hop.name, counters.join(", "));
        }
        more += &report(chain, hop);
    }
    format!("{table}{more}{}", problems(all))
}

/// The description of a built-in function.
#[derive(Serialize)]
struct FunctionInfo {
    name: &'static str,
    about: &'static str,
    settings: Vec<(&'static str, &'static str)>,
    counters: &'static [&'static str],
    /// True if the function does not change packets.
    only_reads: bool,
}

fn functions(session: &Session) -> Result<()> {
    let about = CATALOGUE.kinds().iter().map(|kind| FunctionInfo {
        name: kind.name,
        about: kind.about,
        settings: kind.settings.to_vec(),
        counters: kind.counters,
        only_reads: kind.only_reads(),
    });
    session.print(&about.collect::<Vec<_>>(), |list| {
        let mut text = String::new();
        for kind in list {
            text += &format!("{}: {}\n", kind.name, kind.about);
            for (key, about) in &kind.settings {
                text += &format!("  {key}: {about}\n");
            }
            text += &format!("  counts {}\n", kind.counters.join(", "));
            if kind.only_reads {
                text += "  only reads packets\n";
            }
        }
        text
    })
}

/// Changes a hop in the configuration.
fn change(
    session: &Session,
    hop: &HopName,
    why: &str,
    change: impl FnOnce(&mut millrace_model::Hop),
) -> Result<()> {
    let missing = || {
        anyhow!(
            "{} {}/{}: no such hop is configured",
            hop.bridge,
            hop.chain,
            hop.hop
        )
    };
    let why = format!("{why}: {}/{}", hop.chain, hop.hop);
    change_chain(session, &hop.bridge, &hop.chain, &why, |chain| {
        let mut hops = chain.hops.iter_mut();
        let wanted = hops.find(|wanted| wanted.name.as_str() == hop.hop);
        change(wanted.ok_or_else(missing)?);
        Ok(())
    })
}

/// The cost of a chain at a rate, and the workers that it needs.
#[derive(Serialize)]
struct ChainNeeds {
    chain: String,
    /// The time of one packet in all hops, in nanoseconds.
    nanos_per_packet: f64,
    packets_per_second: f64,
    cores: f64,
    lanes: u32,
    lanes_now: u32,
    /// Pairs of adjacent hops that could form a parallel group.
    parallel: Vec<(String, String)>,
    not_measured: Vec<String>,
    /// The reason why the chain does not run as configured.
    problem: Option<String>,
}

/// The share of a core that functions may use; the switch needs the rest.
const CORE_SHARE: f64 = 0.7;

fn plan(session: &Session, wanted: &Plan) -> Result<()> {
    let client = session.client()?;
    let rate = wanted.rate.bps() as f64;
    // A frame takes 24 bytes more on the wire: frame check sequence, preamble and inter-packet gap.
    let packets_per_second = rate / (8.0 * f64::from(wanted.frame.checked_add(24).context("--frame")?));
    let mut plans = Vec::new();
    for on in all(client, &wanted.of)? {
        for chain in on.chains {
            plans.push(needs_of(&chain, packets_per_second));
        }
    }
    if session.json() {
        return session.print(&plans, |_| String::new());
    }
    let mut text = String::new();
    for plan in &plans {
        if let Some(problem) = &plan.problem {
            text += &format!("{} {problem}\n", plan.chain);
        }
        if plan.lanes_now == 0 {
            continue;
        }
        text += &format!(
            "{}: {:.0} ns per packet, {:.2} Mpps: {:.2} cores; lanes = {} (now {})\n",
            plan.chain,
            plan.nanos_per_packet,
            plan.packets_per_second / 1e6,
            plan.cores,
            plan.lanes,
            plan.lanes_now
        );
        for (one, other) in &plan.parallel {
            text += &format!(
                "  {one} and {other} read only what the other does not write: they can be a parallel group\n"
            );
        }
        for hop in &plan.not_measured {
            text += &format!("  {hop}: not measured yet, send packets through it\n");
        }
    }
    say(if text.is_empty() {
        "there are no chains\n"
    } else {
        &text
    })
}

fn needs_of(chain: &Chain, packets_per_second: f64) -> ChainNeeds {
    let measured = chain.hops.iter().filter_map(|hop| hop.nanos_per_packet);
    // `sum` of an empty iterator is -0.
    let nanos = measured.fold(0.0, |sum, nanos| sum + nanos);
    let cores = nanos * 1e-9 * packets_per_second;
    let kind = |hop: &ChainHop| CATALOGUE.find(&hop.function).ok();
    let is_free = |pair: &&[ChainHop]| match (kind(&pair[0]), kind(&pair[1])) {
        (Some(one), Some(other)) => one.is_parallel_with(other),
        _ => false,
    };
    let pairs = chain.hops.windows(2).filter(is_free);
    ChainNeeds {
        chain: chain.name.clone(),
        nanos_per_packet: nanos,
        packets_per_second,
        cores,
        lanes: (cores / CORE_SHARE).ceil().max(1.0) as u32,
        lanes_now: chain.lanes,
        parallel: pairs
            .map(|pair| (pair[0].name.clone(), pair[1].name.clone()))
            .collect(),
        not_measured: chain
            .hops
            .iter()
            .filter(|hop| hop.nanos_per_packet.is_none() && hop.state != "drained")
            .map(|hop| hop.name.clone())
            .collect(),
        problem: problem(chain),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_tables_name_the_rules_that_exceeded_a_limit() {
        let hop = ChainHop {
            name: "ips".to_owned(),
            report: vec!["rule 1:7 exceeded a limit of its evaluation 3 times".to_owned()],
            ..ChainHop::default()
        };
        let chain = Chain {
            name: "edge".to_owned(),
            near: 1,
            far: 2,
            lanes: 1,
            state: "up".to_owned(),
            problem: String::new(),
            hops: vec![hop],
        };
        let all = [OnBridge {
            bridge: "br0".to_owned(),
            chains: vec![chain],
        }];
        for table in [list, stats] {
            assert!(table(&all).contains("edge/ips: rule 1:7 exceeded a limit"));
        }
    }
}
