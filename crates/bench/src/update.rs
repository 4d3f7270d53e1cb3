//! Entries change, 10,000 a second, while packets of 100,000 others pass: what that costs them.

use std::fs;
use std::time::Duration;

use crate::figure::{self, UPDATE};
use crate::forward::{top_up, undisturbed};
use crate::peer::channel::Channel;
use crate::peer::{Load, Peer, sample, settle};
use crate::process::pause;
use crate::run::{Run, RunError, TurnError};
use crate::workload::{Shape, Sizes, Workload};

/// How long it all takes, for people who wait.
pub const ESTIMATE: Duration = Duration::from_secs(140);

const FLOWS: usize = 100_000;
/// Flow_mods a second.
const RATE: u32 = 10_000;
const SEED: u64 = 8;
/// Another seed: entries that no packet takes.
const OTHER_SEED: u64 = 9;

/// Measures these systems. One that fails is recorded as such, and the others go on.
///
/// # Errors
/// [`RunError`].
pub fn run(run: &mut Run<'_>, peers: &[Box<dyn Peer>]) -> Result<(), RunError> {
    run.tell(&format!(
        "{UPDATE}: 10,000 flow_mods a second while packets of 100,000 flows pass"
    ));
    let dir = run.site(UPDATE, 1, 0).dir;
    fs::create_dir_all(&dir).map_err(RunError::file(&dir))?;
    let workload = Workload::new(Shape::Exact(FLOWS), SEED);
    let (flows, packets) = (dir.join("flows"), dir.join("packets.pcap"));
    fs::write(&flows, workload.lines()).map_err(RunError::file(&flows))?;
    let load = Load {
        flows,
        flows_len: workload.rules_len,
        packets_len: workload
            .write_packets(&packets, &Sizes::SMALLEST, SEED)
            .map_err(RunError::file(&packets))?,
        ingress: vec![packets],
        first_sink: None,
        memif: None,
    };
    let others = Workload::new(Shape::Exact(FLOWS), OTHER_SEED);
    for peer in peers {
        match turn(run, peer.as_ref(), &load, &others) {
            Ok(()) => {}
            Err(TurnError::Peer(error)) => run.failed(UPDATE, peer.name(), &error)?,
            Err(TurnError::Run(error)) => return Err(error),
        }
    }
    Ok(())
}

fn turn(run: &mut Run<'_>, peer: &dyn Peer, load: &Load, others: &Workload) -> Result<(), TurnError> {
    let pages = run.huge_pages(peer.memory_mib(load));
    let mib = pages.as_ref().map_or(0, |(mib, _)| *mib);
    let site = run.site(&format!("{UPDATE}/{}", peer.name()), 1, mib);
    fs::create_dir_all(&site.dir).map_err(RunError::file(&site.dir))?;
    let _pages = top_up(&site)?;
    let mut running = peer.start(&site, load)?;
    let Some(target) = running.target() else {
        return Ok(());
    };
    let mut warm_up = peer.warm_up(load);
    if run.effort.quick {
        warm_up.least = warm_up.least.min(Duration::from_secs(5));
        warm_up.most = warm_up.most.min(Duration::from_secs(5));
    }
    settle(running.as_mut(), warm_up)?;
    let window = run.effort.window;
    for round in 0..run.effort.rounds {
        let quiet = undisturbed(running.as_mut(), window, 1)?;
        let lost = running.lost()?;
        let (target, headers) = (target.clone(), others.headers.clone());
        let updates = std::thread::spawn(move || {
            let duration = window + Duration::from_millis(600);
            Channel::connect(&target)?.flow_mods(&headers, RATE, duration)
        });
        // Until the first are on their way.
        pause(Duration::from_millis(200))?;
        let busy = sample(running.as_mut(), window, 1);
        let Ok(taken) = updates.join() else { continue };
        let (busy, taken) = (busy?, taken?);
        let mut figure = |name: &str, value: f64| match figure::find(UPDATE, name) {
            Some(quantity) => run.figure(peer.name(), round, quantity, value),
            None => Ok(()),
        };
        let accepted = taken.confirmed.saturating_sub(taken.errors) as f64;
        figure("flow-mods", accepted / taken.seconds)?;
        if let (Some(before), Some(after)) = (lost, running.lost()?) {
            figure("lost", after.saturating_sub(before) as f64)?;
        }
        figure("throughput", busy.total() / quiet.total())?;
    }
    Ok(())
}
