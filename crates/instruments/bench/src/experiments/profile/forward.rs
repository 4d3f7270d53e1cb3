//! Profiles of systems under the cases of `bench forward`, in which packets do not pass the kernel.

use std::fs;
use std::time::{Duration, Instant};

use millrace_profile::{Profile, ProfileError, Target, measure};

use super::error::CommandError;
use crate::case::Case;
use crate::experiments::forward::prepare;
use crate::peer::{Load, Peer, sample, settle};
use crate::run::{RoundError, Run, RunError, replenish_huge_pages};

/// The name of a system with its profile, or with the reason for a missing one.
pub(super) type Outcome = (&'static str, Result<Profile, String>);

/// Starts each system with the entries and packets of a case, and profiles it.
///
/// # Errors
/// [`CommandError`]; a system that does not start has an outcome with the reason.
pub(super) fn profiles(
    run: &mut Run<'_>,
    case: &'static Case,
    peers: &[Box<dyn Peer>],
    length: Duration,
) -> Result<Vec<Outcome>, CommandError> {
    let (load, _) = prepare(run, case)?;
    let most = peers.iter().map(|peer| peer.memory_mib(&load)).max();
    // The value holds the huge pages until the end of the function.
    let huge_pages = run.huge_pages(most.unwrap_or(0));
    let mib = huge_pages.as_ref().map_or(0, |(mib, _)| *mib);
    let mut outcomes = Vec::new();
    for peer in peers {
        run.progress(&format!("{} in {}", peer.name(), case.name));
        let outcome = match one(run, case, peer.as_ref(), &load, mib, length) {
            Ok(profile) => Ok(profile?),
            Err(RoundError::Peer(error)) => Err(error.to_string()),
            Err(RoundError::Run(error)) => return Err(error.into()),
        };
        outcomes.push((peer.name(), outcome));
    }
    Ok(outcomes)
}

/// Starts a system, measures its rate, and profiles it.
fn one(
    run: &Run<'_>,
    case: &Case,
    peer: &dyn Peer,
    load: &Load,
    huge_pages_mib: u64,
    length: Duration,
) -> Result<Result<Profile, ProfileError>, RoundError> {
    let name = format!("{}/{}.profile", case.name, peer.name());
    let resources = run.resources(&name, case.workers, huge_pages_mib);
    fs::create_dir_all(&resources.dir).map_err(RunError::file(&resources.dir))?;
    let _pages = replenish_huge_pages(&resources)?;
    let mut running = peer.start(&resources, load)?;
    settle(running.as_mut(), peer.warm_up(load))?;
    // Reading the counters of a system would take time from its forwarding during the profile. The rate is
    // therefore measured before the profile, and taken as constant.
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
