//! A table that grows to 500,000 entries as fast as the switch takes them over an OpenFlow connection, with a barrier
//! every 1,000, while packets pass: how many flow_mods a second, whether that falls as the table grows, how long
//! barriers take, and what it costs the packets.
//!
//! The messages are made before, and sent without waiting for answers: the connection's own flow control is the only
//! brake. A flow_mod counts when a barrier after it is answered. Packets of one flow come as fast as the switch takes
//! them, so that its forwarding thread has its core to itself and no more; the sender of flow_mods and the switch's
//! control plane share the other one.

use std::fs;
use std::time::Duration;

use crate::experiments::install::Place;
use crate::figure::{self, GROW};
use crate::peer::channel::{Channel, Grown};
use crate::peer::{Load, Peer};
use crate::run::{Run, RunError, TurnError};
use crate::workload::{Shape, Sizes, Workload};
use millrace_process::{ProcessError, confine_self};

/// How long it all takes, for people who wait.
pub const ESTIMATE: Duration = Duration::from_secs(80);

/// How many entries.
const ENTRIES: usize = 500_000;
const SEED: u64 = 7;

/// Measures these systems. One that fails is recorded as such, and the others go on.
///
/// # Errors
/// [`RunError`].
pub fn run(run: &mut Run<'_>, peers: &[Box<dyn Peer>]) -> Result<(), RunError> {
    run.tell(&format!(
        "{GROW}: a table grows to 500,000 entries, a barrier every 1,000, while packets pass"
    ));
    let dir = run.site(GROW, 1, 0).dir;
    fs::create_dir_all(&dir).map_err(RunError::file(&dir))?;
    let one = Workload::new(Shape::OneRule, SEED);
    let (flows, packets) = (dir.join("one"), dir.join("packets.pcap"));
    fs::write(&flows, one.lines()).map_err(RunError::file(&flows))?;
    let packets_len = one
        .write_packets(&packets, &Sizes::SMALLEST, SEED)
        .map_err(RunError::file(&packets))?;
    let load = Load {
        flows,
        flows_len: 1,
        ingress: vec![packets],
        packets_len,
        first_sink: None,
        memif: None,
    };
    let entries = Workload::new(Shape::Exact(ENTRIES), SEED);
    for peer in peers.iter().filter(|peer| peer.applies_rules()) {
        let rounds = run.effort.rounds.min(3);
        let outcome = (0..rounds).try_for_each(|round| grow(run, peer.as_ref(), round, &load, &entries));
        match outcome {
            Ok(()) => {}
            Err(TurnError::Peer(error)) => run.failed(GROW, peer.name(), &error)?,
            Err(TurnError::Run(error)) => return Err(error),
        }
    }
    Ok(())
}

fn grow(
    run: &mut Run<'_>,
    peer: &dyn Peer,
    round: usize,
    load: &Load,
    entries: &Workload,
) -> Result<(), TurnError> {
    let place = Place::new(run, peer, GROW, round, load)?;
    let core = place.site.control_core;
    let mut running = peer.start(&place.site, load)?;
    let Some(target) = running.target() else {
        return Ok(());
    };
    let window = Duration::from_secs(1);
    let sum = |rates: [f64; 2]| rates.iter().sum::<f64>();
    running.rate(window)?;
    let quiet = sum(running.rate(window)?);
    let headers = entries.headers.clone();
    let growing = std::thread::spawn(move || -> Result<Grown, ProcessError> {
        confine_self(core);
        Channel::connect(&target)?.grow(&headers)
    });
    let mut busy = Vec::new();
    while !growing.is_finished() {
        busy.push(sum(running.rate(window / 2)?));
    }
    let grown = growing.join().unwrap_or(Err(ProcessError::Interrupted))?;
    // The last window is partly after the end.
    busy.truncate(busy.len().saturating_sub(1).max(1));
    let busy = busy.iter().sum::<f64>() / busy.len().max(1) as f64;
    for (name, value) in [
        ("flow-mods", grown.accepted as f64 / grown.seconds),
        ("last-fifth", grown.last_fifth),
        ("barrier", grown.slowest_barrier.as_secs_f64() * 1e3),
        ("throughput", busy / quiet),
    ] {
        if let Some(quantity) = figure::find(GROW, name) {
            run.figure(peer.name(), round, quantity, value)?;
        }
    }
    Ok(())
}
