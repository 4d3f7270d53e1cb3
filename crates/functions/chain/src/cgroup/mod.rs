//! Control groups: limits that the kernel enforces on the process of a function (cgroups(7)).
//!
//! Each process gets a group before it runs an instruction of the function. The group is removed when the
//! process has ended; groups of a switch that was killed are removed by the next switch. If this process may
//! not create groups, functions run with rlimits and niceness only. `millrace nf list` shows the mechanism
//! that enforces each limit, or `nothing` if none does.
//!
//! **Weights are niceness, not groups.** Functions that share a core yield it to each other, and sched_yield(2) gives the core
//! only to a process of the same CPU group. As measured, two processes take turns within 1.6 to 3 µs in one CPU group, and
//! within 11 to 20 µs in two. A process therefore gets a CPU group of its own only if it has a hard limit (`cpu_percent`), or
//! a weight above what niceness permits.

mod hierarchy;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use hierarchy::{Controller, ParentGroup, ParentGroups, Version, delegate};
use parking_lot::Mutex;

use crate::plan::{Class, HopPlan};

/// A resource limit of a hop's functions, and the mechanism that enforces it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Limit {
    /// The name of the limit in the configuration, or `processes`.
    pub name: &'static str,
    /// The value of the limit.
    pub value: u64,
    /// The mechanism: `cgroup`, `rlimit`, `niceness`, `module` or `nothing`.
    pub by: &'static str,
    /// The reason why no control group enforces the limit, if one should; empty otherwise.
    pub problem: String,
}

impl Limit {
    fn new(name: &'static str, value: u64, by: &'static str) -> Limit {
        Limit {
            name,
            value,
            by,
            problem: String::new(),
        }
    }

    /// Returns a limit that a group enforces. If `bound` is an error, the limit falls back to another
    /// mechanism.
    fn by_group(name: &'static str, value: u64, bound: Result<PathBuf, String>) -> Limit {
        let mut limit = Limit::new(name, value, "cgroup");
        if let Err(problem) = bound {
            limit.fall_back(problem);
        }
        limit
    }

    /// Selects the mechanism for a limit that no group enforces.
    fn fall_back(&mut self, problem: String) {
        self.by = match self.name {
            "processes" | "memory_mib" => "rlimit",
            "weight" if self.value <= HopPlan::WEIGHT.into() || may_be_less_nice() => "niceness",
            _ => "nothing",
        };
        self.problem = problem;
    }
}

/// Maximum number of processes in a group: a function must not start any other.
const PROCESSES: u64 = 1;
/// Period of CPU quotas, in microseconds. It is short because packets wait for the rest of a period.
const PERIOD_MICROS: u64 = 10_000;
/// The smallest CPU quota that the kernel accepts, in microseconds.
const QUOTA_MIN_MICROS: u64 = 1_000;
/// The weight of an ordinary process in version 1.
const SHARES: u64 = 1024;
/// Maximum number of attempts to remove a group: the kernel removes a process from its group shortly after its end.
const REMOVALS: u32 = 100;
/// Pause between two attempts.
const REMOVAL_PAUSE: std::time::Duration = std::time::Duration::from_millis(10);

/// Prefix of the names of groups. The process id of the switch and a number follow.
const PREFIX: &str = "millrace-nf-";
/// The number of groups created so far.
static MADE: AtomicU64 = AtomicU64::new(0);

/// The directories of all groups, and their weights. Once the CPU controller is enabled for one group of version 2, it
/// is enabled for all.
static WEIGHTS: Mutex<BTreeMap<PathBuf, u16>> = Mutex::new(BTreeMap::new());

/// The group of one process, with a directory in each hierarchy.
#[derive(Debug, Default)]
pub(crate) struct Group {
    dirs: Vec<PathBuf>,
    /// The directory of the memory controller.
    memory: Option<PathBuf>,
    /// True if the kernel divides CPU time by the weight of the group.
    has_time: bool,
}

/// The desired limits of a process.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    /// The number of threads.
    threads: u64,
    memory: Option<u64>,
    cpu_percent: Option<u8>,
    weight: u16,
    /// Niceness can express the weight.
    is_nice: bool,
}

/// Returns the directories for groups. The first call also removes groups of switches that have ended.
fn parents() -> &'static ParentGroups {
    static PARENTS: OnceLock<ParentGroups> = OnceLock::new();
    PARENTS.get_or_init(|| {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        let parents = ParentGroups::parse(&read("/proc/self/mountinfo"), &read("/proc/self/cgroup"));
        for dir in parents.dirs() {
            remove_stale(dir, Path::new("/proc"));
        }
        parents
    })
}

/// Removes groups of switches that have ended.
fn remove_stale(dir: &Path, proc: &Path) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let owner = name
            .to_str()
            .and_then(|name| name.strip_prefix(PREFIX)?.split('-').next());
        // This process has no groups yet, so a group with its process id belongs to an earlier process.
        if let Some(owner) = owner
            && (!proc.join(owner).exists() || owner == std::process::id().to_string())
        {
            // A group with processes cannot be removed.
            let _stays = fs::remove_dir(entry.path());
        }
    }
}

/// Creates the group of a function's process. Returns the group, and the mechanism of each limit.
/// `compiles` is true if a second thread of the process compiles the shared value.
pub(crate) fn for_function(plan: &HopPlan, compiles: bool) -> (Group, Vec<Limit>) {
    let is_module = plan.function.starts_with("wasm:");
    let wanted = Wanted {
        threads: PROCESSES + u64::from(compiles),
        // The engine limits the memory of a module. Compiling the module takes more.
        memory: plan.limits.memory.filter(|_| !is_module),
        cpu_percent: plan.cpu_percent,
        weight: plan.weight,
        is_nice: plan.weight <= HopPlan::WEIGHT || may_be_less_nice(),
    };
    let number = MADE.fetch_add(1, Ordering::Relaxed);
    let (group, mut limits) = make(
        parents(),
        wanted,
        &format!("{PREFIX}{}-{number}", std::process::id()),
    );
    limits.extend(of_module(plan));
    (group, limits)
}

/// Returns the limits of a module that the engine enforces.
pub(crate) fn of_module(plan: &HopPlan) -> Vec<Limit> {
    let mut limits = Vec::new();
    if plan.function.starts_with("wasm:") {
        let memory = plan
            .limits
            .memory
            .map(|bytes| Limit::new("memory_mib", bytes >> 20, "module"));
        limits.extend(memory);
        limits.extend(plan.limits.fuel.map(|fuel| Limit::new("fuel", fuel, "module")));
    }
    limits
}

/// Returns the limits of a hop of class inline; none for other classes.
pub(crate) fn inline(plan: &HopPlan) -> Vec<Limit> {
    match plan.class {
        Class::Inline => of_module(plan),
        Class::Ring | Class::Isolated => Vec::new(),
    }
}

/// Returns whether this process may lower niceness (`CAP_SYS_NICE`, capabilities(7)).
fn may_be_less_nice() -> bool {
    const CAP_SYS_NICE: u32 = 23;
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let bits = line.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok());
    bits.is_some_and(|bits| bits >> CAP_SYS_NICE & 1 == 1)
}

/// Creates a group. A controller that is not available is reported with the limit that needs it.
fn make(parents: &ParentGroups, wanted: Wanted, name: &str) -> (Group, Vec<Limit>) {
    let mut group = Group::default();
    let mut limits = Vec::new();
    let bound = group.bound(parents, Controller::Pids, name, |dir, _| {
        write(dir, "pids.max", &wanted.threads)
    });
    limits.push(Limit::by_group("processes", wanted.threads, bound));
    if let Some(bytes) = wanted.memory {
        let bound = group.bound(parents, Controller::Memory, name, |dir, version| {
            bound_memory(dir, version, bytes)
        });
        group.memory = bound.as_ref().ok().cloned();
        limits.push(Limit::by_group("memory_mib", bytes >> 20, bound));
    }
    let mut time = Ok(PathBuf::new());
    if wanted.cpu_percent.is_some() || !wanted.is_nice {
        time = group.bound(parents, Controller::Cpu, name, |dir, version| {
            let quota = wanted
                .cpu_percent
                .map_or(Ok(()), |percent| bound_time(dir, version, percent));
            quota.and_then(|()| weigh(dir, version, wanted.weight))
        });
        group.has_time = time.is_ok();
    }
    let unified = group.dirs.iter().find(|dir| dir.join("cpu.weight").exists());
    if let Some(dir) = unified.cloned() {
        // The CPU controller is already enabled here, so the weights of all groups apply.
        group.has_time |= weigh(&dir, Version::Two, wanted.weight).is_ok();
    }
    if let Some(percent) = wanted.cpu_percent {
        limits.push(Limit::by_group("cpu_percent", percent.into(), time.clone()));
    }
    if wanted.weight != HopPlan::WEIGHT {
        let mut limit = Limit::new("weight", wanted.weight.into(), "cgroup");
        if !group.has_time {
            limit.fall_back(match time {
                Err(problem) if !wanted.is_nice => problem,
                _ => String::new(),
            });
        }
        limits.push(limit);
    }
    let weights = group.dirs.iter().map(|dir| (dir.clone(), wanted.weight));
    WEIGHTS.lock().extend(weights);
    (group, limits)
}

fn write(dir: &Path, file: &str, value: &impl ToString) -> io::Result<()> {
    let named = |error: io::Error| io::Error::new(error.kind(), format!("{file}: {error}"));
    fs::write(dir.join(file), value.to_string()).map_err(named)
}

fn bound_memory(dir: &Path, version: Version, bytes: u64) -> io::Result<()> {
    let (limit, swap, swapped) = match version {
        // Version 1 limits the sum of memory and swap space.
        Version::One => ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes", bytes),
        Version::Two => ("memory.max", "memory.swap.max", 0),
    };
    write(dir, limit, &bytes)?;
    // Kernels without swap accounting lack this file.
    match dir.join(swap).exists() {
        true => write(dir, swap, &swapped),
        false => Ok(()),
    }
}

/// Sets a hard limit of CPU time, in percent of a core.
fn bound_time(dir: &Path, version: Version, percent: u8) -> io::Result<()> {
    let percent = u64::from(percent.max(1));
    let quota = (PERIOD_MICROS * percent / 100).max(QUOTA_MIN_MICROS);
    let period = quota * 100 / percent;
    match version {
        Version::One => {
            write(dir, "cpu.cfs_period_us", &period)?;
            write(dir, "cpu.cfs_quota_us", &quota)
        }
        Version::Two => write(dir, "cpu.max", &format!("{quota} {period}")),
    }
}

fn weigh(dir: &Path, version: Version, weight: u16) -> io::Result<()> {
    match version {
        Version::One => {
            let shares = u64::from(weight) * SHARES / u64::from(HopPlan::WEIGHT);
            write(dir, "cpu.shares", &shares)
        }
        Version::Two => write(dir, "cpu.weight", &weight),
    }
}

impl Group {
    /// Sets a limit of a controller. Returns the directory of the group.
    fn bound(
        &mut self,
        parents: &ParentGroups,
        controller: Controller,
        name: &str,
        bound: impl FnOnce(&Path, Version) -> io::Result<()>,
    ) -> Result<PathBuf, String> {
        let parent = parents.parent(controller)?;
        let dir = parent.dir.join(name);
        self.open(parent, controller, &dir)
            .and_then(|()| bound(&dir, parent.version))
            .map_err(|error| format!("{}: {error}", parent.dir.display()))?;
        Ok(dir)
    }

    /// Creates the directory of the group, unless it exists.
    fn open(&mut self, parent: &ParentGroup, controller: Controller, dir: &PathBuf) -> io::Result<()> {
        if parent.version == Version::Two {
            delegate(&parent.dir, &[controller])?;
            if controller == Controller::Cpu {
                for (other, weight) in WEIGHTS.lock().iter() {
                    // The write fails for groups that were just removed, or are in another hierarchy.
                    let _removed = weigh(other, Version::Two, *weight);
                }
            }
        }
        if !self.dirs.contains(dir) {
            fs::create_dir(dir)?;
            self.dirs.push(dir.clone());
        }
        Ok(())
    }

    /// Moves a process into the group. If that fails, the limits fall back to other mechanisms.
    pub(crate) fn join(&self, process: u32, limits: &mut [Limit]) {
        for dir in &self.dirs {
            if let Err(error) = write(dir, "cgroup.procs", &process) {
                let problem = format!("{}: {error}", dir.display());
                for limit in limits.iter_mut().filter(|limit| limit.by == "cgroup") {
                    limit.fall_back(problem.clone());
                }
                return;
            }
        }
    }

    /// Returns whether the kernel has killed a process of the group because it exceeded its memory limit.
    pub(crate) fn has_killed(&self) -> bool {
        let killed = |file: &str| {
            let text = fs::read_to_string(self.memory.as_ref()?.join(file)).ok()?;
            let line = text.lines().find_map(|line| line.strip_prefix("oom_kill "))?;
            line.trim().parse::<u64>().ok()
        };
        ["memory.events", "memory.oom_control"]
            .into_iter()
            .filter_map(killed)
            .any(|times| times > 0)
    }
}

impl Drop for Group {
    /// Removes the group. Blocks up to a second for each directory, until the kernel has removed the ended process.
    fn drop(&mut self) {
        for dir in self.dirs.drain(..) {
            WEIGHTS.lock().remove(&dir);
            for _ in 0..REMOVALS {
                match fs::remove_dir(&dir) {
                    Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                        std::thread::sleep(REMOVAL_PAUSE);
                    }
                    Err(error) if error.kind() != io::ErrorKind::NotFound => {
                        tracing::warn!(dir = %dir.display(), %error, "control group not removed");
                        break;
                    }
                    _ => break,
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a group of version 2 made of plain files.
    fn two(controllers: &str, dir: &Path) -> ParentGroups {
        fs::write(dir.join("cgroup.controllers"), controllers).unwrap();
        fs::write(dir.join("cgroup.subtree_control"), "").unwrap();
        ParentGroups::parse(
            &format!("41 31 0:38 / {} rw - cgroup2 cgroup2 rw", dir.display()),
            "0::/\n",
        )
    }

    const WANTED: Wanted = Wanted {
        threads: 1,
        memory: Some(64 << 20),
        cpu_percent: Some(25),
        weight: 300,
        is_nice: true,
    };

    fn summary(limits: &[Limit]) -> Vec<(&str, u64, &str)> {
        limits
            .iter()
            .map(|limit| (limit.name, limit.value, limit.by))
            .collect()
    }

    #[test]
    fn a_group_of_version_two_has_one_directory_with_all_limits() {
        let dir = tempfile::tempdir().unwrap();
        let parents = two("cpu memory pids", dir.path());
        let (group, limits) = make(&parents, WANTED, "a");
        assert_eq!(
            summary(&limits),
            [
                ("processes", 1, "cgroup"),
                ("memory_mib", 64, "cgroup"),
                ("cpu_percent", 25, "cgroup"),
                ("weight", 300, "cgroup")
            ]
        );
        let read = |file: &str| fs::read_to_string(dir.path().join("a").join(file)).unwrap();
        assert_eq!(
            (read("pids.max"), read("memory.max")),
            ("1".into(), (64 << 20).to_string())
        );
        assert_eq!(
            (read("cpu.max"), read("cpu.weight")),
            ("2500 10000".into(), "300".into())
        );
        let compiling = Wanted { threads: 2, ..WANTED };
        let (_group, limits) = make(&parents, compiling, "b");
        assert_eq!(
            limits.first().map(|limit| (limit.name, limit.value)),
            Some(("processes", 2))
        );
        fs::write(dir.path().join("a/memory.events"), "low 0\noom 1\noom_kill 0\n").unwrap();
        assert!(!group.has_killed());
        fs::write(dir.path().join("a/memory.events"), "low 0\noom 1\noom_kill 2\n").unwrap();
        assert!(group.has_killed());
    }

    #[test]
    fn once_one_function_has_a_group_of_time_the_weights_of_all_count_there() {
        let dir = tempfile::tempdir().unwrap();
        let parents = two("cpu memory pids", dir.path());
        let plain = Wanted {
            cpu_percent: None,
            ..WANTED
        };
        let (_first, limits) = make(&parents, plain, "a");
        assert!(summary(&limits).contains(&("weight", 300, "niceness")));
        let weight = dir.path().join("a/cpu.weight");
        assert!(!weight.exists(), "nobody divides time there");
        let (_second, _) = make(&parents, WANTED, "b");
        assert_eq!(fs::read_to_string(weight).unwrap(), "300");
    }

    #[test]
    fn a_share_of_a_hundredth_is_one_that_the_kernel_takes() {
        let dir = tempfile::tempdir().unwrap();
        bound_time(dir.path(), Version::One, 1).unwrap();
        let read = |file: &str| fs::read_to_string(dir.path().join(file)).unwrap();
        assert_eq!(
            (read("cpu.cfs_quota_us"), read("cpu.cfs_period_us")),
            ("1000".into(), "100000".into())
        );
    }

    #[test]
    fn without_groups_the_mechanism_of_each_limit_and_the_reason_are_reported() {
        let nowhere = ParentGroups::parse("", "");
        let heavy = Wanted {
            is_nice: false,
            ..WANTED
        };
        let (group, limits) = make(&nowhere, heavy, "a");
        assert!(group.dirs.is_empty() && !group.has_killed());
        let by: Vec<&str> = limits.iter().map(|limit| limit.by).collect();
        assert_eq!(by[..3], ["rlimit", "rlimit", "nothing"]);
        assert!(
            limits
                .iter()
                .all(|limit| limit.problem.starts_with("no hierarchy of control groups"))
        );
        // Only one of the controllers is delegated.
        let dir = tempfile::tempdir().unwrap();
        let (_group, limits) = make(&two("pids", dir.path()), WANTED, "a");
        let by: Vec<&str> = limits.iter().map(|limit| limit.by).collect();
        assert_eq!(by[..3], ["cgroup", "rlimit", "nothing"]);
        assert!(limits[2].problem.contains("`cpu` is not delegated"), "{limits:?}");
    }

    #[test]
    fn groups_of_switches_that_have_ended_are_removed_and_others_stay() {
        let (dir, proc) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::create_dir(proc.path().join("77")).unwrap();
        for name in [
            "millrace-nf-77-1",
            "millrace-nf-78-1",
            "millrace-nf-78-2",
            "another",
        ] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        remove_stale(dir.path(), proc.path());
        let mut left: Vec<_> = fs::read_dir(dir.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        left.sort();
        assert_eq!(left, ["another", "millrace-nf-77-1"]);
    }
}
