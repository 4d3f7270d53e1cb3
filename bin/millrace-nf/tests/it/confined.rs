//! Limits of a function's process that hold from its first instruction: files stay as they are, other processes are out of
//! reach, and the environment is empty. The functions are shared objects whose initialisers try to break the limits.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::library::library;
use crate::switch::environment;
use crate::testbed::{BOUND, TestBed, frame};
use millrace_builtin::CATALOGUE;
use millrace_chain::{Class, HopPlan, HopState, HopStats, UserIds};
use millrace_loader::LOADERS;

fn start(hops: Vec<HopPlan>) -> (TestBed, impl Sized) {
    let (testbed, one, two) = TestBed::environment(environment(CATALOGUE.with_loaders(LOADERS), 1), 1, hops);
    (testbed, (one, two))
}

fn isolated(name: &str, function: &str) -> HopPlan {
    HopPlan {
        class: Class::Isolated,
        ..HopPlan::new(name, function)
    }
}

fn stats(testbed: &mut TestBed, hop: usize) -> HopStats {
    testbed.chain.tick(testbed.bridge.now());
    testbed.chain.stats().hops.remove(hop)
}

/// Compiles a function whose initialiser runs `attempt`, and whose counters show the three numbers in `counts`. Returns its name.
fn trier(dir: &Path, name: &str, attempt: &str) -> String {
    let text = format!(
        r#"
#define _GNU_SOURCE
#include <millrace_nf.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

extern char **environ;
enum {{ DONE, REFUSED, OTHER }};
static uint64_t counts[3];

static void count(long result)
{{
    if (result >= 0) counts[DONE]++;
    else if (errno == EPERM) counts[REFUSED]++;
    else counts[OTHER]++;
}}

__attribute__((constructor)) static void begin(void)
{{
{attempt}
}}

static void *make(const millrace_nf_setup *setup, char *reason, size_t size)
{{
    (void)reason; (void)size; (void)count; (void)environ;
    memcpy(setup->counters, counts, sizeof(counts));
    return setup->counters;
}}

static void process(void *f, const millrace_nf_context *c, millrace_nf_packet *b, millrace_nf_verdict *v, size_t len)
{{
    (void)f; (void)c; (void)b; (void)v; (void)len;
}}

const millrace_nf_kind millrace_nf = {{ .abi = MILLRACE_NF_ABI, .kind_size = sizeof(millrace_nf_kind), .make = make, .process = process,
    .description = MILLRACE_NF_VERSION "name {name}\ncounter done\ncounter refused\ncounter other\n" }};
"#
    );
    let source = dir.join(name).with_extension("c");
    fs::write(&source, text).unwrap();
    library(dir, &source)
}

/// Starts a function that runs `attempt`, and returns its three counters when its process has shown them.
fn tried(attempt: &str) -> [u64; 3] {
    let dir = tempfile::tempdir().unwrap();
    let (mut testbed, _ports) = start(vec![isolated("try", &trier(dir.path(), "trier", attempt))]);
    testbed.wait("its counters", |testbed| {
        stats(testbed, 0).counters.iter().any(|(_, count)| *count != 0)
    });
    let counters = stats(&mut testbed, 0).counters;
    [0, 1, 2].map(|at| counters[at].1)
}

#[test]
fn no_way_to_open_a_file_creates_or_shortens_one() {
    let dir = tempfile::tempdir().unwrap();
    // Every user may write to this directory, so only the filter prevents it.
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let full = dir.path().join("full");
    fs::write(&full, "text").unwrap();
    fs::set_permissions(&full, fs::Permissions::from_mode(0o666)).unwrap();
    let (dir, full) = (dir.path().display(), full.display());
    let [done, refused, other] = tried(&format!(
        r#"
    count(open("{dir}/a", O_RDONLY | O_CREAT, 0666));
    count(open("{full}", O_RDONLY | O_TRUNC));
    count(open("{full}", O_RDONLY | O_APPEND));
    count(open("{dir}", O_TMPFILE | O_RDWR, 0666));
    count(open("{dir}", (O_TMPFILE & ~O_DIRECTORY) | O_RDONLY, 0666));
    count(syscall(SYS_open, "{dir}/b", O_RDONLY | O_CREAT, 0666));
    count(syscall(SYS_creat, "{dir}/c", 0666));
    struct open_how how = {{ .flags = O_RDONLY | O_CREAT, .mode = 0666 }};
    count(syscall(SYS_openat2, AT_FDCWD, "{dir}/d", &how, sizeof(how)));
    how = (struct open_how){{ .flags = O_RDONLY }};
    count(syscall(SYS_openat2, AT_FDCWD, "{full}", &how, sizeof(how)));
    /* To read, it may. */
    count(open("{full}", O_RDONLY | O_CLOEXEC));
    count(open("{dir}", O_RDONLY | O_DIRECTORY));
"#
    ));
    assert_eq!((done, refused, other), (2, 9, 0));
    let left: Vec<_> = fs::read_dir(full.to_string().trim_end_matches("full"))
        .unwrap()
        .flatten()
        .collect();
    assert_eq!(left.len(), 1, "{left:?}");
    assert_eq!(fs::read_to_string(full.to_string()).unwrap(), "text");
}

#[test]
fn limits_of_processes_are_named_by_pid_zero_alone() {
    let [done, refused, other] = tried(
        r#"
    struct rlimit limit;
    count(syscall(SYS_prlimit64, 0, RLIMIT_CORE, NULL, &limit));
    count(syscall(SYS_prlimit64, getpid(), RLIMIT_CORE, NULL, &limit));
    count(syscall(SYS_prlimit64, getppid(), RLIMIT_CORE, NULL, &limit));
    count(syscall(SYS_prlimit64, 1, RLIMIT_CORE, &limit, NULL));
    count(setrlimit(RLIMIT_CORE, &limit));
"#,
    );
    assert_eq!((done, refused, other), (2, 3, 0));
}

#[test]
fn a_function_of_a_chain_finds_no_environment() {
    assert!(std::env::vars_os().next().is_some(), "this process has one");
    let [variables, looked, bytes] = tried(
        r#"
    char byte;
    for (char **at = environ; at && *at; at++) counts[DONE]++;
    int file = open("/proc/self/environ", O_RDONLY);
    while (file >= 0 && read(file, &byte, 1) == 1) counts[OTHER]++;
    counts[REFUSED] = 1;
"#,
    );
    assert_eq!((variables, looked, bytes), (0, 1, 0));
}

#[test]
fn a_function_on_its_own_gives_its_environment_up() {
    let dir = tempfile::tempdir().unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_millrace-nf"))
        .arg("--vhost")
        .arg(dir.path().join("none.sock"))
        .args(["--function", "macswap"])
        .env("MILLRACE_SECRET", "1")
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let pid = child.id();
    let read = |file: &str| fs::read(format!("/proc/{pid}/{file}"));
    // Both are empty while the program is executed.
    let is_empty = || {
        let was_executed = read("cmdline").is_ok_and(|text| !text.is_empty());
        was_executed && read("environ").is_ok_and(|text| text.is_empty())
    };
    let began = Instant::now();
    let is_empty = loop {
        match is_empty() {
            true => break true,
            _ if began.elapsed() > BOUND || child.try_wait().unwrap().is_some() => break false,
            _ => std::thread::sleep(std::time::Duration::from_millis(1)),
        }
    };
    let _ended = child.kill();
    child.wait().unwrap();
    assert!(is_empty);
}

/// Needs root, because only root may change the user of a process.
#[test]
fn every_process_has_a_user_and_a_group_of_its_own() {
    if !nix::unistd::Uid::effective().is_root() {
        eprintln!("not run: it needs root");
        return;
    }
    let hops = (0..3).map(|at| HopPlan {
        instances: 2,
        ..isolated(&format!("h{at}"), "macswap")
    });
    let (mut testbed, _ports) = start(hops.collect());
    testbed.wait("the hops to be up", |testbed| {
        (0..3).all(|at| stats(testbed, at).state == HopState::Up)
    });
    let ids = |pid: u32, key: &str| -> Vec<u32> {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(key)).unwrap();
        line.split_whitespace().map(|id| id.parse().unwrap()).collect()
    };
    let mut users = BTreeSet::new();
    for pid in testbed.chain.processes().collect::<Vec<_>>() {
        let found = ids(pid, "Uid:");
        assert!(found.iter().all(|id| *id == found[0]), "{found:?}");
        assert_eq!((ids(pid, "Gid:"), ids(pid, "Groups:")), (found.clone(), vec![]));
        let range = UserIds::DEFAULT.first..UserIds::DEFAULT.first + UserIds::DEFAULT.len;
        assert!(range.contains(&found[0]), "{found:?}");
        assert!(users.insert(found[0]), "{found:?} twice");
    }
    assert_eq!(users.len(), 6);
}

#[test]
fn a_hop_is_down_with_the_last_words_of_its_process() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("quits.c");
    let text = r#"
#include <millrace_nf.h>
#include <stdio.h>
#include <stdlib.h>
static void *make(const millrace_nf_setup *setup, char *reason, size_t size) { (void)reason; (void)size; return setup->counters; }
static void process(void *f, const millrace_nf_context *c, millrace_nf_packet *b, millrace_nf_verdict *v, size_t len)
{
    (void)f; (void)c; (void)b; (void)v; (void)len;
    for (int i = 0; i < 10000; i++) fprintf(stderr, "noise %d\n", i);
    fprintf(stderr, "the table of sessions is full\n");
    exit(3);
}
const millrace_nf_kind millrace_nf = { .abi = MILLRACE_NF_ABI, .kind_size = sizeof(millrace_nf_kind), .make = make, .process = process,
    .description = MILLRACE_NF_VERSION "name quits\ncounter none\n" };
"#;
    fs::write(&source, text).unwrap();
    let hop = isolated("quits", &library(dir.path(), &source));
    let (mut testbed, one, _two) =
        TestBed::environment(environment(CATALOGUE.with_loaders(LOADERS), 1), 1, vec![hop]);
    assert!(one.send(&frame(0, 1)));
    testbed.wait("its failure", |testbed| !stats(testbed, 0).failure.is_empty());
    assert_eq!(
        stats(&mut testbed, 0).failure,
        "its process ended: exit status: 3: noise 9998; noise 9999; the table of sessions is full"
    );
}

#[test]
fn a_hop_whose_process_never_shows_life_is_never_up() {
    let mut environment = environment(CATALOGUE, 1);
    environment.program = "/bin/false".into();
    let (mut testbed, _one, _two) = TestBed::environment(environment, 1, vec![isolated("swap", "macswap")]);
    let is_up = |testbed: &mut TestBed| stats(testbed, 0).state == HopState::Up;
    testbed.wait("two restarts", |testbed| {
        assert!(!is_up(testbed), "{:?}", testbed.chain.stats());
        stats(testbed, 0).restarts >= 2
    });
    assert_eq!(
        stats(&mut testbed, 0).failure,
        "its process ended: exit status: 1"
    );
}
