//! Limits of function processes: memory, processes, CPU time. For each limit, one function takes all it can get, and another
//! one must not be affected. The tests say so and pass where no control groups can be created.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::library::library;
use crate::switch::environment;
use crate::testbed::kills::Bystander;
use crate::testbed::{BOUND, TestBed, frame, no, sequence};
use millrace_builtin::CATALOGUE;
use millrace_chain::{Chain, ChainPlan, Class, HopPlan, HopState, Limit, OnFailure};
use millrace_datapath::io::{HeapBackend, MemoryPeer};
use millrace_loader::LOADERS;
use millrace_nf::{Limits, Settings};
use millrace_wire::Frame;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::{Pid, SysconfVar, sysconf};

/// Returns a hop of class `isolated` with the function of `load.c`.
fn load(dir: &Path, name: &str, setting: &str) -> HopPlan {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/library/load.c");
    HopPlan {
        class: Class::Isolated,
        settings: Settings::parse([setting]).unwrap(),
        ..HopPlan::new(name, &library(dir, &source))
    }
}

/// A testbed, its ports, and a constructor of more ports.
type Started = (TestBed, [MemoryPeer<Frame>; 2], Arc<HeapBackend>);

fn start(hops: Vec<HopPlan>) -> Started {
    let backend = Arc::new(HeapBackend::new());
    let memory = Arc::clone(&backend);
    let loading = environment(CATALOGUE.with_loaders(LOADERS), 1);
    let (testbed, one, two) = TestBed::on(Arc::clone(&backend), |name| memory.memory(name), loading, 1, hops);
    (testbed, [one, two], backend)
}

/// Returns a limit of the first hop if a control group enforces it. Says so otherwise.
fn in_force(testbed: &mut TestBed, name: &str) -> Option<Limit> {
    let limits = testbed.chain.stats().hops.remove(0).limits;
    let limit = limits.iter().find(|limit| limit.name == name).unwrap().clone();
    if limit.by != "cgroup" {
        eprintln!("not run: {limit:?}");
        assert!(!limit.problem.is_empty(), "it is told why");
        return None;
    }
    Some(limit)
}

/// Returns the directory of a process's group for a controller.
fn group(pid: u32, controller: &str) -> PathBuf {
    let own = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
    let one = own.lines().find_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        controllers
            .split(',')
            .any(|had| had == controller)
            .then_some(path)
    });
    match one {
        Some(path) => PathBuf::from(format!("/sys/fs/cgroup/{controller}{path}")),
        None => {
            let path = own.lines().find_map(|line| line.strip_prefix("0::")).unwrap();
            PathBuf::from(format!("/sys/fs/cgroup{path}"))
        }
    }
}

/// Returns the CPU time of a process.
fn ran_for(pid: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let (_, after) = stat.rsplit_once(") ").unwrap();
    let fields: Vec<&str> = after.split(' ').collect();
    let ticks: u32 = fields[11].parse::<u32>().unwrap() + fields[12].parse::<u32>().unwrap();
    let second = sysconf(SysconfVar::CLK_TCK).unwrap().unwrap();
    Duration::from_secs(1) * ticks / u32::try_from(second).unwrap()
}

/// Pins processes to one core, the last one that this process may use.
fn on_one_core(pids: &[u32]) {
    let may = sched_getaffinity(Pid::from_raw(0)).unwrap();
    let last = (0..CpuSet::count())
        .rfind(|core| may.is_set(*core).unwrap())
        .unwrap();
    let mut set = CpuSet::new();
    set.set(last).unwrap();
    for pid in pids {
        sched_setaffinity(Pid::from_raw(*pid as i32), &set).unwrap();
    }
}

/// Adds another chain, between ports 3 and 4.
fn beside(
    testbed: &mut TestBed,
    backend: &Arc<HeapBackend>,
    hop: HopPlan,
) -> (Chain<Frame>, [MemoryPeer<Frame>; 2]) {
    let mut plan = ChainPlan::new("beside", no(200), no(201));
    plan.hops = vec![hop];
    let mut chain = testbed.add_chain(&plan, environment(CATALOGUE.with_loaders(LOADERS), 1));
    testbed.edit_chain(&mut chain, &plan);
    let peers = [3, 4].map(|raw| testbed.add_port(raw, &|name: &str| backend.memory(name)));
    for (from, to) in [(3, 200), (201, 4)] {
        testbed.output(from, to);
    }
    (chain, peers)
}

/// Sends until a packet has passed, which shows that the process is up.
fn wait_until_up([one, two]: &[MemoryPeer<Frame>; 2]) {
    assert!(one.send(&frame(0, 0)));
    two.receive_within(BOUND).expect("a packet passes");
}

/// Keeps a function busy.
fn feed([one, two]: &[MemoryPeer<Frame>; 2]) {
    for number in 0..8 {
        // Frames that do not fit are not needed.
        let _enough = one.send(&frame(number % 8, u32::from(number)));
    }
    while two.receive().is_some() {}
}

#[test]
fn a_function_that_eats_memory_is_killed_by_its_own_limit_and_backs_off_and_nobody_else_notices() {
    let dir = tempfile::tempdir().unwrap();
    let mut hop = load(dir.path(), "eater", "eat=4");
    hop.on_failure = OnFailure::Open;
    hop.limits = Limits {
        memory: Some(48 << 20),
        ..Limits::default()
    };
    let (mut testbed, ports, backend) = start(vec![hop]);
    let Some(limit) = in_force(&mut testbed, "memory_mib") else {
        return;
    };
    assert_eq!(limit.value, 48);
    let began = Instant::now();
    let memory = |name: &str| backend.memory(name);
    let loading = environment(CATALOGUE.with_loaders(LOADERS), 1);
    let mut other = Bystander::<HeapBackend>::new(&mut testbed, memory, loading, Class::Isolated);
    testbed.wait("it to be killed four times", |testbed| {
        feed(&ports);
        other.exchange();
        testbed.chain.tick(testbed.bridge.now());
        testbed.chain.stats().hops[0].restarts == 4
    });
    let hop = testbed.chain.stats().hops.remove(0);
    assert_eq!(hop.failure, "its process exceeded `memory_mib`, and was killed");
    // The pauses are 100, 200, 400 and 800 ms, because the function itself is at fault.
    assert!(
        began.elapsed() >= Duration::from_millis(1500),
        "{:?}",
        began.elapsed()
    );
    testbed.wait("the other chain's packets", |_| {
        other.take(usize::MAX);
        other.is_complete()
    });
}

#[test]
fn a_fork_in_the_group_of_a_function_is_refused_whoever_tries() {
    let dir = tempfile::tempdir().unwrap();
    let (mut testbed, ports, _) = start(vec![load(dir.path(), "plain", "spin=0")]);
    wait_until_up(&ports);
    if in_force(&mut testbed, "processes").is_none() {
        return;
    }
    let pid = testbed.chain.processes().next().unwrap();
    let group = group(pid, "pids");
    let mut shell = Command::new("sh")
        .args(["-c", "read -r go; /bin/true; echo forked"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    std::fs::write(group.join("cgroup.procs"), shell.id().to_string()).unwrap();
    shell.stdin.take().unwrap().write_all(b"go\n").unwrap();
    let output = shell.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "", "{output:?}");
    assert!(!output.status.success());
    // The function still works, and its group is removed with it.
    wait_until_up(&ports);
    assert!(group.exists());
    drop(testbed);
    let deadline = Instant::now() + BOUND;
    while group.exists() {
        assert!(Instant::now() < deadline, "{} stays behind", group.display());
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn busy_functions_on_one_core_share_it_by_their_weights() {
    if !nix::unistd::Uid::effective().is_root() {
        eprintln!("not run: it needs root");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mut heavy = load(dir.path(), "heavy", "spin=1000");
    heavy.weight = 300;
    let light = load(dir.path(), "light", "spin=1000");
    let (mut testbed, ports, backend) = start(vec![light]);
    let (mut other, others) = beside(&mut testbed, &backend, heavy);
    wait_until_up(&ports);
    wait_until_up(&others);
    let pids = [&testbed.chain, &other].map(|chain| chain.processes().next().unwrap());
    on_one_core(&pids);
    let mut round = |testbed: &mut TestBed| {
        feed(&ports);
        feed(&others);
        testbed.chain.tick(testbed.bridge.now());
        other.tick(testbed.bridge.now());
        let depths = [&mut testbed.chain, &mut other].map(|chain| chain.stats().hops[0].depth);
        depths[0].min(depths[1])
    };
    // Their windows and the rings before them hold work for seconds in which this thread may not run.
    for _ in 0..500 {
        feed(&ports);
        feed(&others);
    }
    testbed.wait("both to have much to do", |testbed| round(testbed) > 900);
    let before = pids.map(ran_for);
    testbed.wait("three seconds of the core", |testbed| {
        assert!(round(testbed) > 0, "they are busy");
        pids.into_iter().map(ran_for).sum::<Duration>()
            >= before.iter().sum::<Duration>() + Duration::from_secs(3)
    });
    let after = pids.map(ran_for);
    let [light, heavy] = [0, 1].map(|at| (after[at] - before[at]).as_secs_f64());
    let ratio = heavy / light;
    eprintln!("weights 100 and 300: {light:.2} s and {heavy:.2} s, {ratio:.2} times as much");
    assert!((2.2..4.0).contains(&ratio), "{light} s and {heavy} s");
    let limits = other.stats().hops.remove(0).limits;
    let weight = limits.iter().find(|limit| limit.name == "weight").unwrap();
    assert_eq!((weight.value, weight.by), (300, "niceness"));
}

#[test]
fn a_function_has_no_more_of_a_core_than_its_percentage_and_counts_as_alive() {
    let dir = tempfile::tempdir().unwrap();
    let mut hop = load(dir.path(), "capped", "spin=1000");
    hop.cpu_percent = Some(20);
    let (mut testbed, ports, _) = start(vec![hop]);
    if in_force(&mut testbed, "cpu_percent").is_none() {
        return;
    }
    wait_until_up(&ports);
    let pid = testbed.chain.processes().next().unwrap();
    let (began, before) = (Instant::now(), ran_for(pid));
    testbed.wait("half a second of a core", |testbed| {
        feed(&ports);
        testbed.chain.tick(testbed.bridge.now());
        ran_for(pid) >= before + Duration::from_millis(500)
    });
    let share = (ran_for(pid) - before).as_secs_f64() / began.elapsed().as_secs_f64();
    assert!(share < 0.25, "{share}");
    let hop = testbed.chain.stats().hops.remove(0);
    assert_eq!((hop.state, hop.restarts), (HopState::Up, 0), "{hop:?}");
}

#[test]
fn packets_of_another_function_on_the_core_pass_while_one_is_busy_without_end() {
    let dir = tempfile::tempdir().unwrap();
    let (mut testbed, ports, backend) = start(vec![load(dir.path(), "busy", "spin=5000")]);
    let swap = HopPlan {
        class: Class::Isolated,
        ..HopPlan::new("swap", "macswap")
    };
    let (mut other, [three, four]) = beside(&mut testbed, &backend, swap);
    wait_until_up(&ports);
    assert!(three.send(&frame(0, 0)));
    four.receive_within(BOUND).unwrap();
    let busy = testbed.chain.processes().next().unwrap();
    on_one_core(&[busy, other.processes().next().unwrap()]);
    testbed.wait("much to do", |testbed| {
        feed(&ports);
        testbed.chain.stats().hops[0].depth > 100
    });
    let before = ran_for(busy);
    for number in 1..=200 {
        assert!(three.send(&frame(0, number)));
        let came = four.receive_within(BOUND).unwrap();
        assert_eq!(sequence(&came), number);
        feed(&ports);
        testbed.chain.tick(testbed.bridge.now());
        other.tick(testbed.bridge.now());
    }
    // A packet waits for a time slice, and never for the rest of the other function's work, which takes 0.5 s at any time.
    let ran = ran_for(busy) - before;
    eprintln!("200 packets, one after the other, while a busy function ran for {ran:?}");
    assert!(ran < Duration::from_secs(6), "{ran:?}");
    let hops = [&mut testbed.chain, &mut other].map(|chain| chain.stats().hops.remove(0));
    assert!(
        hops.iter()
            .all(|hop| hop.restarts == 0 && hop.state == HopState::Up),
        "{hops:?}"
    );
}
