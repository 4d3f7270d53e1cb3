//! Control groups: what the kernel lets the process of a function use, whatever the function does (cgroups(7)).
//!
//! A group is made for each process, before it runs a line of the function, and is removed when the process is gone; what
//! a switch that was killed left behind is removed by the next one. Where the kernel, or whoever gave us our rights, does
//! not let us make groups, functions run with the limits of before (rlimits, niceness), and it is said which limit is held
//! by what, or by nothing.
//!
//! **Weights are niceness, not groups.** Functions on one core hand it to each other by yielding, and a yield gives the
//! core to another process of the same group of CPU time only: measured, a turn of two processes takes 1.6 to 3 µs in one
//! group and 11 to 20 µs in two. So a process has a group of CPU time to itself only where it has a hard share
//! (`cpu_percent`), or where it weighs more than niceness permits.

mod place;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use place::{Controller, Place, Places, Version, delegate};

use crate::plan::{Class, HopPlan};

/// A limit of a hop's functions, and what holds it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Limit {
    /// What is bounded, as the configuration calls it; or `processes`.
    pub name: &'static str,
    /// The bound.
    pub value: u64,
    /// What holds it: `cgroup`, `rlimit`, `niceness`, `module`; or `nothing`.
    pub by: &'static str,
    /// Why it is not held by a control group, where it should be; empty otherwise.
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

    /// Held by a group, or else as before.
    fn held(name: &'static str, value: u64, bound: Result<PathBuf, String>) -> Limit {
        let mut limit = Limit::new(name, value, "cgroup");
        if let Err(problem) = bound {
            limit.fall_back(problem);
        }
        limit
    }

    /// No group holds it.
    fn fall_back(&mut self, problem: String) {
        self.by = match self.name {
            "processes" | "memory_mib" => "rlimit",
            "weight" if self.value <= HopPlan::WEIGHT.into() || may_be_less_nice() => "niceness",
            _ => "nothing",
        };
        self.problem = problem;
    }
}

/// A function's process may begin no other one.
const PROCESSES: u64 = 1;
/// The quota of a group is a part of so many microseconds: short, as packets wait for the rest of it.
const PERIOD_MICROS: u64 = 10_000;
/// The least quota in microseconds that the kernel takes.
const QUOTA_MIN_MICROS: u64 = 1_000;
/// What an ordinary process weighs in version 1.
const SHARES: u64 = 1024;
/// How often it is tried to remove a group whose process has ended, which the kernel notices a little later.
const REMOVALS: u32 = 100;
const REMOVAL_PAUSE: std::time::Duration = std::time::Duration::from_millis(10);

/// What names of groups begin with; then comes the number of the switch's process, and one for each group.
const PREFIX: &str = "millrace-nf-";
static MADE: AtomicU64 = AtomicU64::new(0);

/// Groups of version 2 and their weights: once one has a share of its own, all have.
static WEIGHTS: Mutex<BTreeMap<PathBuf, u16>> = Mutex::new(BTreeMap::new());

/// The group of one process: a directory for each hierarchy.
#[derive(Debug, Default)]
pub(crate) struct Group {
    dirs: Vec<PathBuf>,
    /// That of its memory.
    memory: Option<PathBuf>,
    /// Whether its time is divided by its weight.
    has_time: bool,
}

/// What a process is to be bounded by.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    memory: Option<u64>,
    cpu_percent: Option<u8>,
    weight: u16,
    /// Whether niceness can say what the weight says.
    is_nice: bool,
}

/// Where this process makes groups; looked up once, when what others of its kind left behind is removed, too.
fn places() -> &'static Places {
    static PLACES: OnceLock<Places> = OnceLock::new();
    PLACES.get_or_init(|| {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        let places = Places::parse(&read("/proc/self/mountinfo"), &read("/proc/self/cgroup"));
        for dir in places.dirs() {
            remove_stale(dir, Path::new("/proc"));
        }
        places
    })
}

/// Removes groups of switches that are gone.
fn remove_stale(dir: &Path, proc: &Path) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let owner = name
            .to_str()
            .and_then(|name| name.strip_prefix(PREFIX)?.split('-').next());
        // This process has none yet: one of its number is from another time.
        if let Some(owner) = owner
            && (!proc.join(owner).exists() || owner == std::process::id().to_string())
        {
            // One in which somebody still is stays.
            let _stays = fs::remove_dir(entry.path());
        }
    }
}

/// Makes the group of a function's process, and tells of each limit what holds it.
pub(crate) fn for_function(plan: &HopPlan) -> (Group, Vec<Limit>) {
    let is_module = plan.function.starts_with("wasm:");
    let wanted = Wanted {
        // A module's memory is bounded where it is run; to compile it takes more.
        memory: plan.limits.memory.filter(|_| !is_module),
        cpu_percent: plan.cpu_percent,
        weight: plan.weight,
        is_nice: plan.weight <= HopPlan::WEIGHT || may_be_less_nice(),
    };
    let number = MADE.fetch_add(1, Ordering::Relaxed);
    let (group, mut limits) = make(
        places(),
        wanted,
        &format!("{PREFIX}{}-{number}", std::process::id()),
    );
    limits.extend(of_module(plan));
    (group, limits)
}

/// The limits that a module has of itself, wherever it runs.
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

/// The limits of a hop in the worker.
pub(crate) fn inline(plan: &HopPlan) -> Vec<Limit> {
    match plan.class {
        Class::Inline => of_module(plan),
        Class::Ring | Class::Isolated => Vec::new(),
    }
}

/// CAP_SYS_NICE (capabilities(7)): niceness below that of this process.
fn may_be_less_nice() -> bool {
    const CAP_SYS_NICE: u32 = 23;
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let bits = line.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok());
    bits.is_some_and(|bits| bits >> CAP_SYS_NICE & 1 == 1)
}

/// Makes a group of this name. What cannot be had is told with the limit that it was for.
fn make(places: &Places, wanted: Wanted, name: &str) -> (Group, Vec<Limit>) {
    let mut group = Group::default();
    let mut limits = Vec::new();
    let bound = group.bound(places, Controller::Pids, name, |dir, _| {
        write(dir, "pids.max", &PROCESSES)
    });
    limits.push(Limit::held("processes", PROCESSES, bound));
    if let Some(bytes) = wanted.memory {
        let bound = group.bound(places, Controller::Memory, name, |dir, version| {
            bound_memory(dir, version, bytes)
        });
        group.memory = bound.as_ref().ok().cloned();
        limits.push(Limit::held("memory_mib", bytes >> 20, bound));
    }
    let mut time = Ok(PathBuf::new());
    if wanted.cpu_percent.is_some() || !wanted.is_nice {
        time = group.bound(places, Controller::Cpu, name, |dir, version| {
            let quota = wanted
                .cpu_percent
                .map_or(Ok(()), |percent| bound_time(dir, version, percent));
            quota.and_then(|()| weigh(dir, version, wanted.weight))
        });
        group.has_time = time.is_ok();
    }
    let two = group.dirs.iter().find(|dir| dir.join("cpu.weight").exists());
    if let Some(dir) = two.cloned() {
        // Somebody had this level divide time, and so it does among all.
        group.has_time |= weigh(&dir, Version::Two, wanted.weight).is_ok();
    }
    if let Some(percent) = wanted.cpu_percent {
        limits.push(Limit::held("cpu_percent", percent.into(), time.clone()));
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
    lock(&WEIGHTS).extend(weights);
    (group, limits)
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn write(dir: &Path, file: &str, value: &impl ToString) -> io::Result<()> {
    let named = |error: io::Error| io::Error::new(error.kind(), format!("{file}: {error}"));
    fs::write(dir.join(file), value.to_string()).map_err(named)
}

fn bound_memory(dir: &Path, version: Version, bytes: u64) -> io::Result<()> {
    let (limit, swap, swapped) = match version {
        // In version 1 memory and swap space together are bounded.
        Version::One => ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes", bytes),
        Version::Two => ("memory.max", "memory.swap.max", 0),
    };
    write(dir, limit, &bytes)?;
    // A kernel without swap space has no such file.
    match dir.join(swap).exists() {
        true => write(dir, swap, &swapped),
        false => Ok(()),
    }
}

/// A share of a core, however idle the core is.
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
    /// Has a controller bound what the group uses. Returns the directory.
    fn bound(
        &mut self,
        places: &Places,
        controller: Controller,
        name: &str,
        bound: impl FnOnce(&Path, Version) -> io::Result<()>,
    ) -> Result<PathBuf, String> {
        let place = places.place(controller)?;
        let dir = place.dir.join(name);
        self.open(place, controller, &dir)
            .and_then(|()| bound(&dir, place.version))
            .map_err(|error| format!("{}: {error}", place.dir.display()))?;
        Ok(dir)
    }

    fn open(&mut self, place: &Place, controller: Controller, dir: &PathBuf) -> io::Result<()> {
        if place.version == Version::Two {
            delegate(&place.dir, &[controller])?;
            if controller == Controller::Cpu {
                for (other, weight) in lock(&WEIGHTS).iter() {
                    // Gone just now, or of another hierarchy.
                    let _weighs_nothing = weigh(other, Version::Two, *weight);
                }
            }
        }
        if !self.dirs.contains(dir) {
            fs::create_dir(dir)?;
            self.dirs.push(dir.clone());
        }
        Ok(())
    }

    /// Takes a process in; if that is refused, says in the limits what holds them now.
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

    /// Whether the kernel has killed a process of it, as it had more memory than it may have.
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
    /// To be dropped where nobody waits: the kernel may take a little until it knows that the process is gone.
    fn drop(&mut self) {
        for dir in self.dirs.drain(..) {
            lock(&WEIGHTS).remove(&dir);
            for _ in 0..REMOVALS {
                match fs::remove_dir(&dir) {
                    Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                        std::thread::sleep(REMOVAL_PAUSE);
                    }
                    Err(error) if error.kind() != io::ErrorKind::NotFound => {
                        tracing::warn!(dir = %dir.display(), %error, "a control group stays behind");
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

    /// A group of version 2 as the kernel would show it, but for what it does: files stay as they are written.
    fn two(controllers: &str, dir: &Path) -> Places {
        fs::write(dir.join("cgroup.controllers"), controllers).unwrap();
        fs::write(dir.join("cgroup.subtree_control"), "").unwrap();
        Places::parse(
            &format!("41 31 0:38 / {} rw - cgroup2 cgroup2 rw", dir.display()),
            "0::/\n",
        )
    }

    const WANTED: Wanted = Wanted {
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
        let places = two("cpu memory pids", dir.path());
        let (group, limits) = make(&places, WANTED, "a");
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
        fs::write(dir.path().join("a/memory.events"), "low 0\noom 1\noom_kill 0\n").unwrap();
        assert!(!group.has_killed());
        fs::write(dir.path().join("a/memory.events"), "low 0\noom 1\noom_kill 2\n").unwrap();
        assert!(group.has_killed());
    }

    #[test]
    fn once_one_function_has_a_group_of_time_the_weights_of_all_count_there() {
        let dir = tempfile::tempdir().unwrap();
        let places = two("cpu memory pids", dir.path());
        let plain = Wanted {
            cpu_percent: None,
            ..WANTED
        };
        let (_first, limits) = make(&places, plain, "a");
        assert!(summary(&limits).contains(&("weight", 300, "niceness")));
        let weight = dir.path().join("a/cpu.weight");
        assert!(!weight.exists(), "nobody divides time there");
        let (_second, _) = make(&places, WANTED, "b");
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
    fn where_no_group_can_be_made_it_is_told_what_holds_and_why() {
        let nowhere = Places::parse("", "");
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
        // Delegated, but not all of it.
        let dir = tempfile::tempdir().unwrap();
        let (_group, limits) = make(&two("pids", dir.path()), WANTED, "a");
        let by: Vec<&str> = limits.iter().map(|limit| limit.by).collect();
        assert_eq!(by[..3], ["cgroup", "rlimit", "nothing"]);
        assert!(limits[2].problem.contains("`cpu` is not delegated"), "{limits:?}");
    }

    #[test]
    fn groups_of_switches_that_are_gone_are_removed_and_those_of_others_stay() {
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
