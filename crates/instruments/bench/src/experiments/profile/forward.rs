//! Profiles of systems that forward as fast as they can: the cases of `bench forward`, where nothing of the
//! kernel is in the way and stages show.

use std::fs;
use std::time::{Duration, Instant};

use millrace_profile::{Profile, ProfileError, Target, measure};

use super::CommandError;
use crate::case::Case;
use crate::experiments::forward::{prepare, top_up};
use crate::peer::{Load, Peer, sample, settle};
use crate::run::{Run, RunError, TurnError};

/// What became of a system: its profile, or why there is none.
pub(super) type Outcome = (&'static str, Result<Profile, String>);

/// Starts each system with the case's entries and packets, and watches it.
///
/// # Errors
/// [`CommandError`]; a system that does not start is an outcome.
pub(super) fn profiles(
    run: &mut Run<'_>,
    case: &'static Case,
    peers: &[Box<dyn Peer>],
    length: Duration,
) -> Result<Vec<Outcome>, CommandError> {
    let (load, _) = prepare(run, case)?;
    let most = peers.iter().map(|peer| peer.memory_mib(&load)).max();
    // Kept until the end: they go back when this is dropped.
    let huge_pages = run.huge_pages(most.unwrap_or(0));
    let mib = huge_pages.as_ref().map_or(0, |(mib, _)| *mib);
    let mut outcomes = Vec::new();
    for peer in peers {
        run.tell(&format!("{} in {}", peer.name(), case.name));
        let outcome = match one(run, case, peer.as_ref(), &load, mib, length) {
            Ok(profile) => Ok(profile?),
            Err(TurnError::Peer(error)) => Err(error.to_string()),
            Err(TurnError::Run(error)) => return Err(error.into()),
        };
        outcomes.push((peer.name(), outcome));
    }
    Ok(outcomes)
}

fn one(
    run: &Run<'_>,
    case: &Case,
    peer: &dyn Peer,
    load: &Load,
    huge_pages_mib: u64,
    length: Duration,
) -> Result<Result<Profile, ProfileError>, TurnError> {
    let name = format!("{}/{}.profile", case.name, peer.name());
    let site = run.site(&name, case.workers, huge_pages_mib);
    fs::create_dir_all(&site.dir).map_err(RunError::file(&site.dir))?;
    let _pages = top_up(&site)?;
    let mut running = peer.start(&site, load)?;
    settle(running.as_mut(), peer.warm_up(load))?;
    // Asking takes a while that the system should spend forwarding: its rate is measured before, and taken
    // to last.
    let rate = sample(running.as_mut(), Duration::from_secs(1), case.workers)?.total();
    let start = Instant::now();
    let packets = || Some((rate * start.elapsed().as_secs_f64()) as u64);
    let target = Target {
        system: peer.name(),
        load: case.name,
        pid: i32::try_from(running.pid()).ok(),
        packets: &packets,
    };
    Ok(measure(&target, length))
}
