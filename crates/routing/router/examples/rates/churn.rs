//! Routes that change while packets are forwarded by them: half of the changes give a route of 24 bits another next hop, as BGP
//! does all day, the others add and remove routes of 28 bits below one.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use millrace_fib::{FibId, GroupId, Prefix, Retired, Writer};
use millrace_types::split_mix;

/// The interval in which a batch of changes is made.
const INTERVAL: Duration = Duration::from_millis(1);
/// Changes in an interval: 100,000 a second.
const CHANGES: u32 = 100;
/// Rounds of the worker that end each burst that may have seen what was retired before them.
const GRACE_ROUNDS: u64 = 2;

/// A route of 24 bits.
struct Entry {
    address: Ipv4Addr,
    group: GroupId,
    has_longer: bool,
}

/// The routes, and who changes them.
pub(crate) struct Churn {
    writer: Writer,
    fib: FibId,
    groups: Vec<GroupId>,
    entries: Vec<Entry>,
    random: u64,
    /// Memory that the worker may still read, and the round after which it does not.
    retired: Option<(Retired, u64)>,
}

impl Churn {
    pub(crate) fn new(
        writer: Writer,
        fib: FibId,
        groups: Vec<GroupId>,
        routes: Vec<(Ipv4Addr, GroupId)>,
    ) -> Churn {
        let entry = |(address, group)| Entry {
            address,
            group,
            has_longer: false,
        };
        Churn {
            writer,
            fib,
            groups,
            entries: routes.into_iter().map(entry).collect(),
            random: 2,
            retired: None,
        }
    }

    fn next(&mut self, below: usize) -> usize {
        split_mix::next(&mut self.random) as usize % below
    }

    fn change(&mut self) -> Result<(), Box<dyn std::error::Error>> {
        let (at, group) = (self.next(self.entries.len()), self.next(self.groups.len()));
        let (is_of_longer, group) = (self.next(2) == 0, self.groups[group]);
        let entry = &mut self.entries[at];
        let prefix = |len| Prefix::new(IpAddr::V4(entry.address), len);
        if !is_of_longer {
            self.writer.replace(self.fib, &prefix(24)?, group)?;
            entry.group = group;
        } else if entry.has_longer {
            self.writer
                .remove(self.fib, &prefix(28)?, Some((24, entry.group)))?;
            entry.has_longer = false;
        } else {
            self.writer.insert(self.fib, &prefix(28)?, group)?;
            entry.has_longer = true;
        }
        Ok(())
    }

    /// Gives memory back that the worker, which counts its rounds, no longer reads.
    fn reclaim(&mut self, round: u64) {
        if let Some((retired, _)) = self.retired.take_if(|(_, last)| round > *last) {
            self.writer.reclaim(retired);
        }
        if self.retired.is_none() {
            let retired = self.writer.take_retired();
            self.retired = retired.map(|retired| (retired, round + GRACE_ROUNDS));
        }
    }

    /// Changes routes until `stop` is set. Returns the changes in a second.
    pub(crate) fn run(&mut self, stop: &AtomicBool, rounds: &AtomicU64) -> Result<f64, String> {
        let start = Instant::now();
        let (mut next, mut made) = (start, 0);
        while !stop.load(Ordering::Relaxed) {
            for _ in 0..CHANGES {
                self.change().map_err(|error| error.to_string())?;
            }
            made += CHANGES;
            self.reclaim(rounds.load(Ordering::Acquire));
            next += INTERVAL;
            std::thread::sleep(next.saturating_duration_since(Instant::now()));
        }
        Ok(f64::from(made) / start.elapsed().as_secs_f64())
    }
}
