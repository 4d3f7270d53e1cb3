//! The paths of a process by name: their configuration, the halves of their rings, and their counters.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use millrace_flow::{Match, Rule};
use millrace_types::{ErrorChain, Priority, Time};
use millrace_wan_emulator::{
    ByteSize, Controller, DirectionConfig, DirectionId, Halves, IcmpErrors, Plan, Receiver, Scenario, Seed,
    Sender, Stats, Step, heap_memory,
};
use parking_lot::Mutex;
use thiserror::Error;

use super::scenario;

/// The longest frame that enters a path, in bytes: 9,600 and a few tags.
pub(super) const FRAME_MAX: usize = 9728;

/// The smallest default memory of a direction in bytes, with room for longer delays and higher rates that are set
/// under traffic.
const MEMORY_MIN: usize = 16 << 20;

/// The memory of a direction.
pub(super) type Ring = Box<[AtomicU64]>;

/// The two directions, in the order of the ends at which frames enter them.
const DIRECTIONS: [(DirectionId, &str); 2] = [
    (DirectionId::Forward, "a_to_b"),
    (DirectionId::Backward, "b_to_a"),
];

/// The requested settings of a path.
#[derive(Debug, Clone, PartialEq)]
pub struct PathSpec {
    /// From end a to end b, and back.
    pub directions: [DirectionConfig; 2],
    /// The seed of all random draws.
    pub seed: u64,
    /// Changes of the settings at given times.
    pub scenario: Option<Scenario>,
}

/// The error of a path that cannot be configured.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PathError {
    /// A direction cannot be emulated.
    #[error("{direction}: {reason}")]
    Direction {
        /// `a_to_b` or `b_to_a`.
        direction: &'static str,
        /// The problem, and what was expected.
        reason: String,
    },
    /// A class has a filter that is not a valid match.
    #[error("{direction}, class {class}: {reason}")]
    Filter {
        /// `a_to_b` or `b_to_a`.
        direction: &'static str,
        /// The name of the class.
        class: String,
        /// The problem, and what was expected.
        reason: String,
    },
    /// Seed, memory and classes cannot change while frames are in flight.
    #[error(
        "{what} of a path whose ends are ports cannot change: it has its present value. To fix it: remove the two ports, and add \
         them again"
    )]
    Fixed {
        /// `the seed`, `the memory`, `the classes`.
        what: &'static str,
    },
    /// A thread for the scenario cannot be started.
    #[error("the scenario does not run: {0}. To fix it: raise the limit of threads")]
    Thread(String),
}

/// The settings and counters of a path.
#[derive(Debug, Clone)]
pub struct PathState {
    /// The name of the path.
    pub name: String,
    /// The configuration in force, including the changes of a scenario.
    pub spec: PathSpec,
    /// True for each end that is a port.
    pub is_open: [bool; 2],
    /// The counters of each direction.
    pub stats: [Stats; 2],
}

/// The error of an end that cannot be opened.
#[derive(Debug)]
pub(super) enum EndError {
    /// No path has this name.
    Unknown,
    /// A port already has the end.
    Taken,
}

/// One half of a ring, lent to a queue. The half returns to `home` when the queue is dropped.
pub(super) struct BorrowedHalf<T> {
    half: Option<T>,
    home: Arc<Mutex<Option<T>>>,
}

impl<T> BorrowedHalf<T> {
    /// Returns the half, which is present until the queue is dropped.
    #[inline]
    pub(super) fn get_mut(&mut self) -> Option<&mut T> {
        self.half.as_mut()
    }
}

/// Queues are dropped by the control side, never by a worker.
impl<T> Drop for BorrowedHalf<T> {
    fn drop(&mut self) {
        *self.home.lock() = self.half.take();
    }
}

/// The state that both queues of an end, its device and the registry share.
#[derive(Debug)]
pub(super) struct End {
    number: usize,
    is_open: Arc<[AtomicBool; 2]>,
    /// Packets that could not be segmented, or were too long.
    pub(super) tx_errors: AtomicU64,
    /// Number of times that no buffer was free for a packet that was due.
    pub(super) rx_no_buffer: AtomicU64,
}

impl End {
    /// Returns true if the other end is a port, so that sent packets have a receiver.
    #[inline]
    pub(super) fn peer_is_open(&self) -> bool {
        let [a, b] = &*self.is_open;
        let peer = if self.number == 0 { b } else { a };
        peer.load(Ordering::Acquire)
    }

    fn flag(&self) -> &AtomicBool {
        let [a, b] = &*self.is_open;
        if self.number == 0 { a } else { b }
    }

    /// Marks the end as closed: it is no longer a port.
    pub(super) fn close(&self) {
        self.flag().store(false, Ordering::Release);
    }
}

/// An end that was just opened.
pub(super) struct OpenedEnd {
    pub(super) sender: BorrowedHalf<Sender<Ring>>,
    pub(super) receiver: BorrowedHalf<Receiver<Ring>>,
    pub(super) icmp_errors: BorrowedHalf<IcmpErrors>,
    pub(super) classes: Box<[Rule]>,
    pub(super) shared: Arc<End>,
}

/// One direction of a path.
struct Line {
    sender: Arc<Mutex<Option<Sender<Ring>>>>,
    receiver: Arc<Mutex<Option<Receiver<Ring>>>>,
    icmp_errors: Arc<Mutex<Option<IcmpErrors>>>,
    controller: Controller,
    rules: Box<[Rule]>,
    /// The configuration in force, including the changes of a scenario.
    current: DirectionConfig,
}

impl Line {
    fn new(config: &DirectionConfig, seed: u64, number: usize, now: Time) -> Result<Line, PathError> {
        let (toward, direction) = DIRECTIONS[number];
        let refuse = |reason: String| PathError::Direction { direction, reason };
        let rules = rules(config, direction)?;
        let plan = |config: &DirectionConfig| {
            Plan::new(config, Seed::new(seed), toward, &files)
                .map_err(|error| refuse(ErrorChain(&error).to_string()))
        };
        let mut planned = plan(config)?;
        if config.memory.is_none() && planned.memory_size() < MEMORY_MIN {
            let roomy = DirectionConfig {
                memory: Some(ByteSize(MEMORY_MIN as u64)),
                ..config.clone()
            };
            planned = plan(&roomy)?;
        }
        let plan = planned;
        check_available(plan.memory_size(), available_memory()).map_err(refuse)?;
        let memory = heap_memory(plan.memory_size());
        let halves = plan
            .start(memory, now)
            .map_err(|error| refuse(ErrorChain(&error).to_string()))?;
        let Halves {
            sender,
            receiver,
            icmp_errors,
            controller,
        } = halves;
        Ok(Line {
            sender: Arc::new(Mutex::new(Some(sender))),
            receiver: Arc::new(Mutex::new(Some(receiver))),
            icmp_errors: Arc::new(Mutex::new(Some(icmp_errors))),
            controller,
            rules,
            current: config.clone(),
        })
    }

    fn set(&mut self, config: &DirectionConfig, number: usize) -> Result<(), PathError> {
        if *config == self.current {
            return Ok(());
        }
        self.controller
            .set(config, &files)
            .map_err(|error| PathError::Direction {
                direction: DIRECTIONS[number].1,
                reason: ErrorChain(&error).to_string(),
            })?;
        self.current = config.clone();
        Ok(())
    }
}

/// Returns the rules of the classes.
fn rules(config: &DirectionConfig, direction: &'static str) -> Result<Box<[Rule]>, PathError> {
    let rule = |class: &millrace_wan_emulator::ClassConfig| {
        let filter: Match = class.filter.parse().map_err(|error| PathError::Filter {
            direction,
            class: class.name.clone(),
            reason: format!("{error}"),
        })?;
        Ok(filter.rule(Priority(0)))
    };
    config.class.iter().map(rule).collect()
}

/// Returns the memory that programs may still take, in bytes; `None` if the kernel does not report it (proc(5),
/// `MemAvailable`).
fn available_memory() -> Option<usize> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: usize = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// Refuses memory that the machine does not have. Every page is touched at the start, so the kernel would
/// kill a process.
fn check_available(needed: usize, available: Option<usize>) -> Result<(), String> {
    let mib = |bytes: usize| bytes >> 20;
    match available {
        Some(available) if needed > available => Err(format!(
            "memory: {} MiB are needed, and this machine has {} MiB available; to fix it: lower `memory`, or the rate, the \
             delay, its jitter or the queue",
            mib(needed),
            mib(available)
        )),
        _ => Ok(()),
    }
}

/// Reads the files that a configuration names. A table of iproute2 that is not in `/usr/lib/tc` is looked for in
/// `/usr/lib/*/tc`, where distributions with several architectures install it.
fn files(name: &str) -> Result<String, String> {
    let found = std::fs::read_to_string(name);
    let found = match (&found, name.strip_prefix("/usr/lib/tc/")) {
        (Err(_), Some(table)) => table_of_an_architecture(Path::new("/usr/lib"), table).map_or(found, Ok),
        _ => found,
    };
    found.map_err(|error| format!("{name}: {error}"))
}

/// Returns the text of the file `*/tc/NAME` below a folder, if there is one.
fn table_of_an_architecture(folder: &Path, name: &str) -> Option<String> {
    let architectures = std::fs::read_dir(folder).ok()?.flatten();
    architectures
        .map(|entry| entry.path().join("tc").join(name))
        .find_map(|path| std::fs::read_to_string(path).ok())
}

struct WanPath {
    spec: PathSpec,
    lines: [Line; 2],
    is_open: Arc<[AtomicBool; 2]>,
    /// The number of the configuration, which no other configuration of any path has. A new configuration
    /// ends the scenario of the previous one.
    version: u64,
}

/// The emulated paths of a process.
pub struct Wans {
    /// The origin of the paths' clock.
    epoch: Instant,
    paths: Mutex<BTreeMap<String, WanPath>>,
    /// The number of configurations so far, those of removed paths included.
    versions: AtomicU64,
    /// Starts the threads of scenarios.
    spawn: scenario::Spawn,
}

impl Default for Wans {
    fn default() -> Wans {
        Wans {
            epoch: Instant::now(),
            paths: Mutex::default(),
            versions: AtomicU64::new(0),
            spawn: scenario::spawn,
        }
    }
}

impl Wans {
    /// Creates a path, or changes it for later frames. Frames in flight are not affected.
    ///
    /// # Errors
    /// [`PathError`]; the path is then unchanged.
    pub fn configure(self: &Arc<Wans>, name: &str, spec: &PathSpec) -> Result<(), PathError> {
        let mut paths = self.paths.lock();
        let version = self.versions.fetch_add(1, Ordering::Relaxed);
        // The thread ends without a step if `version` does not become the version of the path.
        let start_scenario = || match &spec.scenario {
            Some(scenario) => self.start_scenario(name, version, scenario),
            None => Ok(()),
        };
        if let Some(path) = paths.get_mut(name) {
            if path.spec == *spec {
                return Ok(());
            }
            let fixed = fixed(&path.spec, spec);
            let is_used = path.is_open.iter().any(|open| open.load(Ordering::Acquire));
            match fixed {
                Some(what) if is_used => return Err(PathError::Fixed { what }),
                Some(_) => {
                    let lines = self.lines(spec)?;
                    start_scenario()?;
                    path.lines = lines;
                }
                None => {
                    start_scenario()?;
                    let [forward, backward] = &mut path.lines;
                    let before = forward.current.clone();
                    forward.set(&spec.directions[0], 0)?;
                    if let Err(error) = backward.set(&spec.directions[1], 1) {
                        forward.set(&before, 0)?;
                        return Err(error);
                    }
                }
            }
            path.spec = spec.clone();
            path.version = version;
        } else {
            let path = WanPath {
                spec: spec.clone(),
                lines: self.lines(spec)?,
                is_open: Arc::default(),
                version,
            };
            start_scenario()?;
            paths.insert(name.to_owned(), path);
        }
        Ok(())
    }

    /// Starts the thread of a scenario. Its steps wait for the lock of the paths, which the caller holds.
    fn start_scenario(
        self: &Arc<Wans>,
        name: &str,
        version: u64,
        scenario: &Scenario,
    ) -> Result<(), PathError> {
        let (of_steps, wans) = (name.to_owned(), Arc::downgrade(self));
        let change = move |step: &Step| {
            let wans = wans.upgrade();
            wans.is_some_and(|wans| wans.step(&of_steps, version, step))
        };
        let (name, wans) = (name.to_owned(), Arc::downgrade(self));
        let is_over = move || {
            let wans = wans.upgrade();
            !wans.is_some_and(|wans| wans.is_configured(&name, version))
        };
        scenario::start(self.spawn, scenario.clone(), is_over, change)
            .map_err(|error| PathError::Thread(error.to_string()))
    }

    /// Removes the paths that are not among `names` and have no end that is a port.
    pub fn retain(&self, names: &[&str]) {
        self.paths.lock().retain(|name, path| {
            names.contains(&name.as_str()) || path.is_open.iter().any(|open| open.load(Ordering::Acquire))
        });
    }

    /// Returns the state of every path, in the order of names.
    pub fn states(&self) -> Vec<PathState> {
        let state = |(name, path): (&String, &WanPath)| PathState {
            name: name.clone(),
            spec: PathSpec {
                directions: path.lines.each_ref().map(|line| line.current.clone()),
                ..path.spec.clone()
            },
            is_open: path.is_open.each_ref().map(|open| open.load(Ordering::Acquire)),
            stats: path.lines.each_ref().map(|line| line.controller.stats()),
        };
        self.paths.lock().iter().map(state).collect()
    }

    /// Returns the origin of the paths' clock.
    pub(super) fn epoch(&self) -> Instant {
        self.epoch
    }

    /// Lends the halves of an end: the sender and the ICMP errors of the direction that begins there, and the
    /// receiver of the other direction.
    pub(super) fn open(&self, name: &str, end: usize) -> Result<OpenedEnd, EndError> {
        let paths = self.paths.lock();
        let path = paths.get(name).ok_or(EndError::Unknown)?;
        let [forward, backward] = &path.lines;
        let (out, back) = if end == 0 {
            (forward, backward)
        } else {
            (backward, forward)
        };
        let shared = Arc::new(End {
            number: end,
            is_open: Arc::clone(&path.is_open),
            tx_errors: AtomicU64::new(0),
            rx_no_buffer: AtomicU64::new(0),
        });
        if shared.flag().swap(true, Ordering::AcqRel) {
            return Err(EndError::Taken);
        }
        Ok(OpenedEnd {
            sender: lend(&out.sender),
            receiver: lend(&back.receiver),
            icmp_errors: lend(&out.icmp_errors),
            classes: out.rules.clone(),
            shared,
        })
    }

    /// Returns new rings for a path.
    fn lines(&self, spec: &PathSpec) -> Result<[Line; 2], PathError> {
        let now = Time::from_nanos(self.epoch.elapsed().as_nanos() as u64);
        let [forward, backward] = &spec.directions;
        Ok([
            Line::new(forward, spec.seed, 0, now)?,
            Line::new(backward, spec.seed, 1, now)?,
        ])
    }

    /// Returns true if a configuration is the present one of its path.
    fn is_configured(&self, name: &str, version: u64) -> bool {
        self.paths
            .lock()
            .get(name)
            .is_some_and(|path| path.version == version)
    }

    /// Applies a step of a scenario. Returns false, without a change, if the path was configured again or
    /// removed in the meantime.
    fn step(&self, name: &str, version: u64, step: &Step) -> bool {
        let mut paths = self.paths.lock();
        let Some(path) = paths.get_mut(name).filter(|path| path.version == version) else {
            return false;
        };
        for (number, line) in path.lines.iter_mut().enumerate() {
            if !step.concerns(DIRECTIONS[number].0) {
                continue;
            }
            let mut config = line.current.clone();
            let changed = step
                .apply(&mut config.path)
                .map_err(|error| error.to_string())
                .and_then(|()| line.set(&config, number).map_err(|error| error.to_string()));
            if let Err(error) = changed {
                tracing::warn!(path = %name, %error, "a step of the scenario does not apply");
            }
        }
        true
    }
}

fn lend<T>(home: &Arc<Mutex<Option<T>>>) -> BorrowedHalf<T> {
    BorrowedHalf {
        half: home.lock().take(),
        home: Arc::clone(home),
    }
}

/// Returns the name of the first setting that differs but cannot change under traffic.
fn fixed(old: &PathSpec, new: &PathSpec) -> Option<&'static str> {
    let differs = |of: fn(&DirectionConfig) -> String| {
        old.directions.each_ref().map(of) != new.directions.each_ref().map(of)
    };
    let names = |config: &DirectionConfig| {
        let class = |class: &millrace_wan_emulator::ClassConfig| format!("{} {}", class.name, class.filter);
        config.class.iter().map(class).collect::<Vec<_>>().join(";")
    };
    if old.seed != new.seed {
        return Some("the seed");
    }
    if differs(|config| format!("{:?}", config.memory)) {
        return Some("the memory");
    }
    differs(names).then_some("the classes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_whose_scenario_cannot_start_is_unchanged_and_each_retry_says_so() {
        let wans = Arc::new(Wans {
            spawn: |_| Err(std::io::Error::other("no more threads")),
            ..Wans::default()
        });
        let plain = PathSpec {
            directions: Default::default(),
            seed: 1,
            scenario: None,
        };
        let mut changed = PathSpec {
            scenario: Some(Scenario::parse("at 1s forward loss 100%\n").unwrap()),
            ..plain.clone()
        };
        let refused = |spec: &PathSpec| {
            for _ in 0..2 {
                let error = wans.configure("p", spec).unwrap_err();
                assert!(matches!(error, PathError::Thread(_)), "{error}");
            }
        };
        refused(&changed);
        assert!(wans.states().is_empty());
        wans.configure("p", &plain).unwrap();
        refused(&changed);
        changed.seed = 2;
        refused(&changed);
        assert_eq!(wans.states()[0].spec, plain);
    }

    #[test]
    fn a_table_of_netem_is_found_in_the_folder_of_the_architecture() {
        let lib = tempfile::tempdir().unwrap();
        let folder = lib.path().join("x86_64-linux-gnu/tc");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("normal.dist"), "0 1 2").unwrap();
        assert_eq!(
            table_of_an_architecture(lib.path(), "normal.dist").as_deref(),
            Some("0 1 2")
        );
        assert_eq!(table_of_an_architecture(lib.path(), "pareto.dist"), None);
        let missing = files("/usr/lib/tc/no such table.dist").unwrap_err();
        assert!(
            missing.starts_with("/usr/lib/tc/no such table.dist: "),
            "{missing}"
        );
    }

    #[test]
    fn memory_that_the_machine_does_not_have_is_refused_with_both_sizes() {
        let available = available_memory().unwrap();
        assert!(available > 1 << 20, "{available}");
        assert_eq!(check_available(available, Some(available)), Ok(()));
        let error = check_available(3 << 30, Some(1 << 30)).unwrap_err();
        assert!(
            error.contains("3072 MiB") && error.contains("1024 MiB"),
            "{error}"
        );
    }
}
