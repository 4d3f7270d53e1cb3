//! Labs on this machine's kernel: they work, and leave nothing behind, whenever `up` or `down` is killed. The tests
//! need root, iproute2, ethtool and ping, and print a line where they cannot run.

#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "tests: they say what they skip, and fail loudly"
)]

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use millrace_lab::{Lab, OpenError, RunError, Topology, UpError, UpOptions};

/// The environment variable that makes the test process run as [`victim`], which is killed.
const VICTIM: &str = "MILLRACE_LAB_VICTIM";

fn can_run(tools: &[&str]) -> bool {
    if !nix::unistd::geteuid().is_root() {
        println!("skipped: a lab needs root");
        return false;
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let there = |tool: &&&str| std::env::split_paths(&path).any(|dir| dir.join(tool).is_file());
    let missing: Vec<_> = tools.iter().filter(|tool| !there(tool)).collect();
    if !missing.is_empty() {
        println!("skipped: {missing:?} not installed");
    }
    missing.is_empty()
}

/// Returns a lab of three hosts on a switch of `kind`; every test has its own lab name, so that they run side by side.
fn three_hosts(name: &str, kind: &str) -> Topology {
    let mut text = format!("name = \"{name}\"\n");
    for host in 1..=3 {
        text +=
            &format!("[[host]]\nname = \"h{host}\"\nip = \"10.0.0.{host}/24\"\nipv6 = \"fd00::{host}/64\"\n");
    }
    text += &format!("[[switch]]\nname = \"br0\"\nkind = \"{kind}\"\nports = [\"h1\", \"h2\", \"h3\"]\n");
    Topology::parse("smoke.toml", &text).unwrap()
}

fn up(topology: &Topology) -> Lab {
    let options = UpOptions {
        millraced: millraced(),
        ..UpOptions::default()
    };
    Lab::up(topology, &options, &mut |_| {}).unwrap()
}

/// Returns the daemon that was built with these tests, or `$MILLRACED`.
fn millraced() -> Option<PathBuf> {
    let given = std::env::var_os("MILLRACED").map(PathBuf::from);
    let beside = || {
        let test = std::env::current_exe().unwrap();
        let built = test.parent()?.parent()?.join("millraced");
        built.is_file().then_some(built)
    };
    let found = given.or_else(beside);
    if found.is_none() {
        println!("skipped: no millraced; `cargo build -p millraced` makes it");
    }
    found
}

/// Writes a script that starts the daemon with an absent interface in place of that of host h1. `device` is
/// the type of its port.
fn without(device: &str, dir: &Path) -> Option<PathBuf> {
    let script = format!(
        "#!/bin/sh\nsed -i 's/{device}h1/{device}nowhere/' \"$2\"\nexec {} \"$@\"\n",
        millraced()?.display()
    );
    Some(program(dir, &script))
}

fn program(dir: &Path, script: &str) -> PathBuf {
    let path = dir.join("millraced");
    std::fs::write(&path, script).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

/// A guard that removes the lab even if the test fails.
struct Removed<'a>(&'a str);

impl Drop for Removed<'_> {
    fn drop(&mut self) {
        let _ = Lab::down(self.0);
    }
}

#[track_caller]
fn assert_nothing_is_left(lab: &str) {
    assert!(!Path::new("/run/millrace-lab").join(lab).exists(), "directory");
    let links = std::fs::read_dir("/run/netns").into_iter().flatten();
    let links = links.filter(|entry| {
        entry.as_ref().is_ok_and(|entry| {
            entry
                .file_name()
                .to_string_lossy()
                .starts_with(&format!("mr-{lab}-"))
        })
    });
    assert_eq!(links.count(), 0, "names of namespaces");
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    assert!(
        !mounts.contains(&format!("/run/millrace-lab/{lab}/")),
        "mounts: {mounts}"
    );
    assert_eq!(processes_of(lab), Vec::<String>::new(), "processes");
}

/// Returns the command lines of processes, except zombies, that carry the mark of a lab of this name or mention its
/// directory.
fn processes_of(lab: &str) -> Vec<String> {
    let (mark, dir) = (
        format!("MILLRACE_LAB_MARK={lab}-"),
        format!("/run/millrace-lab/{lab}/"),
    );
    let pids = std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(Result::ok)
        .map(|entry| entry.path());
    let read = |path: &Path| String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned();
    let marked = |pid: &PathBuf| {
        read(&pid.join("environ"))
            .split('\0')
            .any(|variable| variable.starts_with(&mark))
    };
    let command = |pid: &PathBuf| read(&pid.join("cmdline")).replace('\0', " ");
    pids.filter(|pid| marked(pid) || command(pid).contains(&dir))
        .map(|pid| command(&pid))
        .collect()
}

fn ping(lab: &Lab, from: &str, to: &str) -> bool {
    let output = lab.output(from, &["ping", "-c", "1", "-W", "20", to]).unwrap();
    output.status.success()
}

fn ping_all(lab: &Lab) {
    for from in 1..=3 {
        for to in 1..=3 {
            assert!(
                ping(lab, &format!("h{from}"), &format!("10.0.0.{to}")),
                "h{from} to h{to}, IPv4"
            );
            assert!(
                ping(lab, &format!("h{from}"), &format!("fd00::{to}")),
                "h{from} to h{to}, IPv6"
            );
        }
    }
}

#[test]
fn three_hosts_reach_each_other_over_the_kernels_bridge_and_leave_no_trace() {
    if !can_run(&["ethtool", "ping"]) {
        return;
    }
    let _removed = Removed("t-bridge");
    // The directory that systemd creates for the service, which is not running: `RuntimeDirectory=millrace`.
    let of_the_service = Path::new("/run/millrace");
    std::fs::create_dir_all(of_the_service).unwrap();
    let lab = up(&three_hosts("t-bridge", "linux-bridge"));
    assert!(
        !of_the_service.join("lab").exists(),
        "files of the lab in the directory of the service"
    );
    ping_all(&lab);
    // A daemon that a command leaves behind is removed with the lab.
    lab.run("h1", &["sh", "-c", "sleep 600 & exit 0"]).unwrap();
    // While the daemon executes its program, its environment is empty for a moment.
    let start = std::time::Instant::now();
    while processes_of("t-bridge").len() != 1 {
        assert!(
            start.elapsed() < std::time::Duration::from_secs(60),
            "the daemon is not there"
        );
        std::thread::yield_now();
    }
    drop(lab);
    let report = Lab::down("t-bridge").unwrap();
    assert_eq!((report.ended, report.foreign_processes), (1, vec![]));
    assert_nothing_is_left("t-bridge");
    assert!(of_the_service.exists(), "the directory of the service stays");
    assert!(!Lab::down("t-bridge").unwrap().existed, "down again is no error");
}

#[test]
fn three_hosts_reach_each_other_over_open_vswitch_which_answers_openflow_13() {
    if !can_run(&["ethtool", "ping", "ovs-vswitchd"]) {
        return;
    }
    let _removed = Removed("t-ovs");
    let lab = up(&three_hosts("t-ovs", "ovs"));
    ping_all(&lab);
    let show = ["ovs-ofctl", "-O", "OpenFlow13", "show", "tcp:127.0.0.1:6653"];
    let show = String::from_utf8(lab.output("br0", &show).unwrap().stdout).unwrap();
    assert!(
        show.contains("dpid:0000000000000001") && show.contains("3(h3)"),
        "{show}"
    );
    let daemons = lab.status().daemons;
    assert!(
        daemons.len() == 2 && daemons.iter().all(|daemon| daemon.alive),
        "{daemons:?}"
    );
    Lab::down("t-ovs").unwrap();
    assert_nothing_is_left("t-ovs");
}

#[test]
fn three_hosts_reach_each_other_over_open_vswitch_with_dpdk() {
    let daemon = "/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk";
    if !can_run(&["ethtool", "ping", "ovs-vsctl"]) || !std::path::Path::new(daemon).is_file() {
        return;
    }
    let _removed = Removed("t-dpdk");
    let lab = up(&three_hosts("t-dpdk", "ovs-dpdk"));
    ping_all(&lab);
    let status = lab.status();
    assert!(
        status.nodes.iter().any(|node| node.kind == "ovs-dpdk"),
        "{status:?}"
    );
    Lab::down("t-dpdk").unwrap();
    assert_nothing_is_left("t-dpdk");
}

#[test]
fn three_hosts_reach_each_other_over_millrace_which_answers_openflow_13() {
    if !can_run(&["ethtool", "ping", "ovs-ofctl"]) || millraced().is_none() {
        return;
    }
    let _removed = Removed("t-millrace");
    let lab = up(&three_hosts("t-millrace", "millrace"));
    ping_all(&lab);
    let show = ["ovs-ofctl", "-O", "OpenFlow13", "show", "tcp:127.0.0.1:6653"];
    let show = String::from_utf8(lab.output("br0", &show).unwrap().stdout).unwrap();
    assert!(
        show.contains("dpid:0000000000000001") && show.contains("3(h3)"),
        "{show}"
    );
    Lab::down("t-millrace").unwrap();
    assert_nothing_is_left("t-millrace");
}

#[test]
fn where_the_device_of_choice_does_not_work_af_packet_is_taken_and_the_reason_told() {
    let dir = tempfile::tempdir().unwrap();
    let Some(daemon) = can_run(&["ethtool", "ping"])
        .then(|| without("kernel:", dir.path()))
        .flatten()
    else {
        return;
    };
    let _removed = Removed("t-fallback");
    let options = UpOptions {
        millraced: Some(daemon),
        ..UpOptions::default()
    };
    let mut steps = Vec::new();
    let topology = three_hosts("t-fallback", "millrace");
    let lab = Lab::up(&topology, &options, &mut |step| steps.push(step.to_string())).unwrap();
    let step = steps.iter().find(|step| step.contains("using af_packet instead"));
    assert!(step.is_some_and(|step| step.contains("nowhere")), "{steps:?}");
    ping_all(&lab);
    Lab::down("t-fallback").unwrap();
    assert_nothing_is_left("t-fallback");
}

#[test]
fn a_device_that_was_asked_for_and_does_not_work_is_an_error_with_the_next_step() {
    let dir = tempfile::tempdir().unwrap();
    let Some(daemon) = can_run(&["ethtool"])
        .then(|| without("net_af_xdp0,iface=", dir.path()))
        .flatten()
    else {
        return;
    };
    let _removed = Removed("t-degraded");
    let options = UpOptions {
        millraced: Some(daemon),
        ..UpOptions::default()
    };
    let text = "name = \"t-degraded\"\n[[host]]\nname = \"h1\"\n[[switch]]\nname = \"br0\"\n\
                kind = \"millrace\"\ndevice = \"af_xdp\"\nports = [\"h1\"]\n";
    let topology = Topology::parse("degraded.toml", text).unwrap();
    let error = Lab::up(&topology, &options, &mut |_| {}).unwrap_err();
    assert!(matches!(error, UpError::Degraded { .. }), "{error}");
    assert!(error.to_string().contains("nowhere"), "{error}");
    assert_nothing_is_left("t-degraded");
}

#[test]
fn frames_on_a_link_are_as_on_a_wire_and_hosts_are_quiet() {
    if !can_run(&["ethtool", "ping"]) {
        return;
    }
    let _removed = Removed("t-wire");
    let lab = up(&three_hosts("t-wire", "linux-bridge"));
    let features = lab.output("h1", &["ethtool", "-k", "eth0"]).unwrap();
    let features = String::from_utf8(features.stdout).unwrap();
    for feature in [
        "rx-checksumming",
        "tx-checksumming",
        "scatter-gather",
        "tcp-segmentation-offload",
        "generic-segmentation-offload",
        "generic-receive-offload",
        "rx-vlan-offload",
        "tx-vlan-offload",
    ] {
        let line = features
            .lines()
            .find(|line| line.trim_start().starts_with(&format!("{feature}:")));
        assert!(
            line.is_some_and(|line| line.contains(": off")),
            "{feature}: {line:?}"
        );
    }
    // An idle host sends only reports of the multicast groups that its IPv6 addresses imply: no router solicitation,
    // no duplicate address detection.
    let count = |key: &str| {
        let text = lab.output("h2", &["cat", "/proc/net/snmp6"]).unwrap().stdout;
        let text = String::from_utf8(text).unwrap();
        let line = text.lines().find(|line| line.starts_with(key)).map(str::to_owned);
        line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok())
            .unwrap_or(0)
    };
    assert_eq!(
        count("Icmp6OutRouterSolicits") + count("Icmp6OutNeighborSolicits"),
        0_u64
    );
    Lab::down("t-wire").unwrap();
    assert_nothing_is_left("t-wire");
}

#[test]
fn routes_rates_and_frame_sizes_are_as_the_file_says() {
    if !can_run(&["ethtool", "ping", "tc"]) {
        return;
    }
    let _removed = Removed("t-routed");
    let text = "
        name = \"t-routed\"
        [[host]]
        name = \"left\"
        ip = \"10.1.0.1/24\"
        gateway = \"10.1.0.254\"
        [[host]]
        name = \"router\"
        ip = [\"10.1.0.254/24\", \"10.2.0.254/24\"]
        [[host]]
        name = \"right\"
        ip = \"10.2.0.1/24\"
        gateway = \"10.2.0.254\"
        [[link]]
        ends = [\"left\", \"router\"]
        rate = \"10Mbps\"
        mtu = 4000
        [[link]]
        ends = [\"router\", \"right\"]
        mtu = 4000";
    let lab = up(&Topology::parse("routed.toml", text).unwrap());
    assert!(
        lab.run("router", &["sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward"])
            .unwrap()
            .success()
    );
    let big = [
        "ping", "-c", "1", "-W", "20", "-M", "do", "-s", "3972", "10.2.0.1",
    ];
    assert!(
        lab.output("left", &big).unwrap().status.success(),
        "a packet of 4000 octets across the router"
    );
    let shaper = String::from_utf8(
        lab.output("left", &["tc", "qdisc", "show", "dev", "eth0"])
            .unwrap()
            .stdout,
    );
    assert!(shaper.unwrap().contains("tbf"), "the link is shaped");
    Lab::down("t-routed").unwrap();
    assert_nothing_is_left("t-routed");
}

#[test]
fn an_impossible_request_is_rejected_with_the_next_step() {
    if !can_run(&["ethtool"]) {
        return;
    }
    let _removed = Removed("t-refused");
    let topology = three_hosts("t-refused", "linux-bridge");
    let lab = up(&topology);
    let again = Lab::up(&topology, &UpOptions::default(), &mut |_| {}).unwrap_err();
    assert!(matches!(again, UpError::AlreadyUp { .. }), "{again}");
    assert!(again.to_string().contains("millrace lab down t-refused"));
    let nobody = lab.output("h9", &["true"]).unwrap_err();
    assert!(
        nobody
            .to_string()
            .contains("no host or switch `h9`: expected one of h1, h2, h3, br0"),
        "{nobody}"
    );
    let program = lab.output("h1", &["no-such-program"]).unwrap_err();
    assert!(matches!(program, RunError::Program { .. }), "{program}");
    assert!(matches!(
        lab.output::<&str>("h1", &[]),
        Err(RunError::NoCommand { .. })
    ));
    assert!(matches!(
        Lab::open(Some("t-nowhere")),
        Err(OpenError::Unknown { .. })
    ));
    Lab::down("t-refused").unwrap();

    let options = UpOptions {
        millraced: Some("/nowhere/millraced".into()),
        ..UpOptions::default()
    };
    let topology = three_hosts("t-refused", "millrace");
    let no_daemon = Lab::up(&topology, &options, &mut |_| {}).unwrap_err();
    assert!(no_daemon.to_string().contains("MILLRACED"), "{no_daemon}");
    assert_nothing_is_left("t-refused");
}

#[test]
fn a_daemon_that_ends_at_once_is_reported_with_its_last_words_and_the_lab_removed() {
    if !can_run(&["ethtool"]) {
        return;
    }
    let _removed = Removed("t-ends");
    let dir = tempfile::tempdir().unwrap();
    let daemon = program(dir.path(), "#!/bin/sh\necho no such device >&2\nexit 3\n");
    let options = UpOptions {
        millraced: Some(daemon),
        ..UpOptions::default()
    };
    let mut steps = Vec::new();
    let topology = three_hosts("t-ends", "millrace");
    let error = Lab::up(&topology, &options, &mut |step| steps.push(step.to_string())).unwrap_err();
    assert!(
        error.to_string().contains("exit status: 3") && error.to_string().contains("no such device"),
        "{error}"
    );
    assert!(
        steps
            .iter()
            .any(|step| step.contains("kernel does not work here, using af_packet")),
        "{steps:?}"
    );
    assert_nothing_is_left("t-ends");
}

#[test]
fn a_process_that_the_lab_did_not_start_is_named_and_left_alone() {
    if !can_run(&["ethtool", "ip"]) {
        return;
    }
    let _removed = Removed("t-foreign");
    let lab = up(&three_hosts("t-foreign", "linux-bridge"));
    let namespace = lab.status().nodes[0].namespace.clone();
    let mut foreign_process = Command::new("nsenter")
        .arg(format!("--net=/run/netns/{namespace}"))
        .args(["sleep", "600"])
        .spawn()
        .unwrap();
    let inside = format!("/proc/{}/comm", foreign_process.id());
    wait_until(|| std::fs::read_to_string(&inside).is_ok_and(|name| name.trim() == "sleep"));
    let report = Lab::down("t-foreign").unwrap();
    assert_eq!(report.foreign_processes.len(), 1);
    assert_eq!(
        (
            report.foreign_processes[0].command.as_str(),
            report.foreign_processes[0].node.as_str()
        ),
        ("sleep", "h1")
    );
    assert!(foreign_process.try_wait().unwrap().is_none(), "it still runs");
    foreign_process.kill().unwrap();
    foreign_process.wait().unwrap();
    assert_nothing_is_left("t-foreign");
}

#[track_caller]
fn wait_until(mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !done() {
        assert!(Instant::now() < deadline, "not within 60 s");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The process that the tests below kill; as a test of its own it does nothing.
#[test]
fn victim() {
    let Ok(task) = std::env::var(VICTIM) else { return };
    match task.split(' ').collect::<Vec<_>>().as_slice() {
        ["up", name, kind] => drop(up(&three_hosts(name, kind))),
        ["down", name] => drop(Lab::down(name).unwrap()),
        _ => panic!("{task}"),
    }
}

fn start_victim(task: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "smoke::victim"])
        .env(VICTIM, task)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Waits until `process` ends, `pause` at most. Returns true if it ended.
fn ended_within(process: &mut Child, pause: Duration) -> bool {
    let deadline = Instant::now() + pause;
    loop {
        if process.try_wait().unwrap().is_some() {
            return true;
        }
        let Some(left) = deadline.checked_duration_since(Instant::now()) else {
            return false;
        };
        std::thread::sleep(left.min(Duration::from_millis(1)));
    }
}

/// Kills `up` at `rounds` moments spread over its duration, and `down` in half of the rounds.
///
/// The duration depends on the load of the machine. An `up` that ends before its moment therefore sets the duration that
/// the next moments are spread over, and its round is repeated.
fn kill_and_remove(name: &str, kind: &str, rounds: u32) {
    let _removed = Removed(name);
    let began = Instant::now();
    assert!(
        start_victim(&format!("up {name} {kind}"))
            .wait()
            .unwrap()
            .success()
    );
    let mut whole = began.elapsed();
    Lab::down(name).unwrap();
    let (mut round, mut too_late) = (0, 0);
    while round < rounds {
        let began = Instant::now();
        let mut victim = start_victim(&format!("up {name} {kind}"));
        let ended = ended_within(&mut victim, whole * round / rounds);
        if ended {
            whole = began.elapsed();
            too_late += 1;
            assert!(
                too_late <= rounds,
                "an up of {whole:?} ends before it is killed, again and again"
            );
        } else {
            victim.kill().unwrap();
            victim.wait().unwrap();
        }
        if round % 2 == 1 {
            let mut victim = start_victim(&format!("down {name}"));
            std::thread::sleep(whole * (round / 2) / rounds);
            victim.kill().unwrap();
            victim.wait().unwrap();
        }
        Lab::down(name).unwrap();
        assert_nothing_is_left(name);
        round += u32::from(!ended);
    }
    println!("{kind}: {rounds} killed before they were done, {too_late} after, in {whole:?}");
}

#[test]
fn an_up_killed_at_any_moment_is_removed_whole_with_the_kernels_bridge() {
    if can_run(&["ethtool"]) {
        kill_and_remove("t-kill-br", "linux-bridge", 60);
    }
}

#[test]
fn an_up_killed_at_any_moment_is_removed_whole_with_daemons() {
    if can_run(&["ethtool", "ovs-vswitchd"]) {
        kill_and_remove("t-kill-ovs", "ovs", 30);
    }
}

#[test]
fn an_up_killed_at_any_moment_is_removed_whole_with_millrace() {
    if can_run(&["ethtool"]) && millraced().is_some() {
        kill_and_remove("t-kill-mr", "millrace", 20);
    }
}
