//! The experiment `grow`: a table grows to 500,000 entries while packets pass. Flow_mods are sent over one
//! OpenFlow connection as fast as the switch accepts them, with a barrier every 1,000. The experiment
//! measures the flow_mods per second over all entries and over the last fifth, the barrier latency, and the
//! rate of packets.
//!
//! The messages are built in advance, and sent without waiting for replies: only the flow control of TCP
//! limits their rate. A flow_mod counts when the next barrier is answered. Packets of one flow are offered at
//! full rate, so that the forwarding thread uses its core all the time. The sender of flow_mods and the
//! control plane of the switch share the other core.

pub(crate) mod quantities;

use std::fs;
use std::time::Duration;

use crate::experiments::install::ReservedResources;
use crate::figure;
use crate::peer::channel::{Channel, GrowthResult};
use crate::peer::{Load, Peer};
use crate::run::{RoundError, Run, RunError};
use crate::workload::{Shape, Sizes, Workload};
use millrace_process::{ProcessError, pin_current_thread};
use quantities::GROW;

/// The expected duration of the experiment.
pub const ESTIMATE: Duration = Duration::from_secs(80);

/// The number of entries.
const ENTRIES: usize = 500_000;
const SEED: u64 = 7;

/// Measures these systems. The failure of a system is recorded, and the others continue.
///
/// # Errors
/// [`RunError`].
pub fn run(run: &mut Run<'_>, peers: &[Box<dyn Peer>]) -> Result<(), RunError> {
    run.progress(&format!(
        "{GROW}: a table grows to 500,000 entries, a barrier every 1,000, while packets pass"
    ));
    let dir = run.resources(GROW, 1, 0).dir;
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
        let rounds = run.length.rounds.min(3);
        let outcome = (0..rounds).try_for_each(|round| grow(run, peer.as_ref(), round, &load, &entries));
        match outcome {
            Ok(()) => {}
            Err(RoundError::Peer(error)) => run.failed(GROW, peer.name(), &error)?,
            Err(RoundError::Run(error)) => return Err(error),
        }
    }
    Ok(())
}

/// Measures the rate of packets before and during the growth of the table.
fn grow(
    run: &mut Run<'_>,
    peer: &dyn Peer,
    round: usize,
    load: &Load,
    entries: &Workload,
) -> Result<(), RoundError> {
    let reserved = ReservedResources::new(run, peer, GROW, round, load)?;
    let core = reserved.resources.control_core;
    let mut running = peer.start(&reserved.resources, load)?;
    let Some(target) = running.target() else {
        return Ok(());
    };
    let window = Duration::from_secs(1);
    let sum = |rates: [f64; 2]| rates.iter().sum::<f64>();
    running.rate(window)?;
    let quiet = sum(running.rate(window)?);
    let headers = entries.headers.clone();
    let growing = std::thread::spawn(move || -> Result<GrowthResult, ProcessError> {
        pin_current_thread(core);
        Channel::connect(&target)?.grow(&headers)
    });
    let mut busy = Vec::new();
    while !growing.is_finished() {
        busy.push(sum(running.rate(window / 2)?));
    }
    let grown = growing.join().unwrap_or(Err(ProcessError::Interrupted))?;
    // The last window is left out: it extends beyond the end of the growth.
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
