//! Functions from files in a running switch: WebAssembly modules in the worker, and shared objects in processes that can only
//! compute. An error in a function takes only its own hop down.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::path::{Path, PathBuf};

use crate::library::library;
use crate::switch::environment;
use crate::testbed::{BOUND, TestBed, frame, sequence};
use millrace_builtin::CATALOGUE;
use millrace_chain::{Class, HopPlan, HopState, HopStats, OnFailure};
use millrace_datapath::io::{Backend, MemoryPeer};
use millrace_loader::LOADERS;
use millrace_nf::{Limits, Settings};
use millrace_testing::{open_to_all, trusted_folder};
use millrace_types::{Duration, Time};
use millrace_wire::Frame;

fn start(hops: Vec<HopPlan>) -> (TestBed, MemoryPeer<Frame>, MemoryPeer<Frame>) {
    TestBed::environment(environment(CATALOGUE.with_loaders(LOADERS), 1), 1, hops)
}

fn hop(name: &str, function: &str, class: Class) -> HopPlan {
    HopPlan {
        class,
        ..HopPlan::new(name, function)
    }
}

fn stats(testbed: &mut TestBed, hop: usize) -> HopStats {
    testbed.chain.tick(testbed.bridge.now());
    testbed.chain.stats().hops.remove(hop)
}

/// Writes a module that drops packets whose first byte is 1, and executes `wrong` for a packet whose first byte is 2. Returns its
/// function name. The burst buffer is at 65536: a descriptor of 24 bytes, 128 bytes of headroom, then the packet (at 65688).
fn module(dir: &Path, name: &str, wrong: &str) -> String {
    let description = "millrace-nf 1\\0aname picky\\0acounter wrongs\\0a";
    let text = format!(
        r#"(module (memory (export "memory") 4) (data (i32.const 1024) "{description}")
        (func (export "millrace_nf_describe") (result i64) (i64.const {}))
        (func (export "millrace_nf_text") (param i32) (result i32) (i32.const 4096))
        (func (export "millrace_nf_make") (param i32 i64 i64) (result i64) (i64.const 0))
        (func (export "millrace_nf_room") (param i32) (result i32) (i32.const 65536))
        (func (export "millrace_nf_counters") (result i32) (i32.const 8192))
        (func (export "millrace_nf_process") (param $packets i32) (param i64 i32)
            (if (i32.ne (local.get $packets) (i32.const 1)) (then (return)))
            (if (i32.eq (i32.load8_u (i32.const 65688)) (i32.const 1))
                (then (i32.store (i32.const 65552) (i32.const 2))))
            (if (i32.eq (i32.load8_u (i32.const 65688)) (i32.const 2))
                (then {wrong}))))"#,
        1024 | (description.replace("\\0a", "\n").len() as u64) << 32
    );
    let path = dir.join(name);
    std::fs::write(&path, wat::parse_str(text).unwrap()).unwrap();
    format!("wasm:{}", path.display())
}

/// Returns a frame with this first byte. Broadcast and multicast bits do not matter here.
fn with_first(byte: u8, number: u32) -> Vec<u8> {
    let mut bytes = frame(0, number);
    bytes[0] = byte;
    bytes
}

#[test]
fn a_faulty_module_in_the_worker_takes_its_hop_down_and_is_restarted() {
    let dir = tempfile::tempdir().unwrap();
    for (name, wrong, reason) in [
        (
            "endless.wasm",
            "(loop $again (br $again))",
            "more than its 1000000 units of fuel",
        ),
        (
            "busy.wasm",
            "(loop $again (memory.fill (i32.const 0) (i32.const 0) (i32.const 65000)) (br $again))",
            "longer than 2000 ms",
        ),
        ("trap.wasm", "unreachable", "wasm trap: wasm `unreachable`"),
        (
            "wild.wasm",
            "(i32.store (i32.const -4) (i32.const 1))",
            "out of bounds memory access",
        ),
        (
            "length.wasm",
            "(i32.store (i32.const 65544) (i32.const 9000))",
            "it reports a packet of",
        ),
        (
            "verdict.wasm",
            "(i32.store (i32.const 65552) (i32.const 7))",
            "verdict 7",
        ),
    ] {
        let mut hops = vec![
            hop("module", &module(dir.path(), name, wrong), Class::Inline),
            hop("swap", "macswap", Class::Inline),
            hop("back", "macswap", Class::Inline),
        ];
        hops[0].on_failure = OnFailure::Open;
        // A worker may be kept from its core for longer than the 20 ms that a burst has by default.
        let is_busy = name == "busy.wasm";
        hops[0].limits.burst_time = Some(Duration::from_secs(if is_busy { 2 } else { 3600 }));
        // Filling memory uses up the default fuel in about two seconds; here the time must end first.
        hops[0].limits.fuel = is_busy.then_some(1 << 40);
        let (mut testbed, one, two) = start(hops);
        // Packets are sent one at a time, because the module handles only bursts of one.
        assert!(one.send(&with_first(1, 0)));
        testbed.wait("it is dropped", |testbed| stats(testbed, 0).dropped == 1);
        assert!(one.send(&with_first(0, 1)));
        assert_eq!(
            sequence(&two.receive_within(BOUND).unwrap()),
            1,
            "{name}: the other is dropped"
        );
        assert!(one.send(&with_first(2, 2)));
        // The hop fails open.
        assert_eq!(sequence(&two.receive_within(BOUND).unwrap()), 2, "{name}");
        testbed.wait(name, |testbed| stats(testbed, 0).failure.contains(reason));
        testbed.wait("the hop to be up", |testbed| {
            let hop = stats(testbed, 0);
            hop.state == HopState::Up && hop.restarts == 1
        });
        testbed.settle();
        assert!(one.send(&with_first(1, 3)));
        testbed.wait("it drops again", |testbed| stats(testbed, 0).dropped == 2);
        assert!(one.send(&with_first(0, 4)));
        assert_eq!(
            sequence(&two.receive_within(BOUND).unwrap()),
            4,
            "{name}: it works again"
        );
        let hop = stats(&mut testbed, 0);
        assert_eq!((hop.passed, hop.lost, hop.dropped), (1, 0, 2), "{name}");
        testbed.wait("the buffers to come back", |testbed| {
            testbed
                .datapath
                .backend()
                .buffers()
                .is_some_and(|buffers| buffers.used == 0)
        });
    }
}

#[test]
fn an_invalid_module_is_rejected_and_the_chain_is_unchanged() {
    let dir = tempfile::tempdir().unwrap();
    let (mut testbed, one, two) = start(vec![hop("swap", "macswap", Class::Inline)]);
    let path = dir.path().join("text.wasm");
    std::fs::write(&path, "not a module").unwrap();
    for class in [Class::Inline, Class::Isolated] {
        let mut plan = testbed.chain.plan().clone();
        plan.hops
            .push(hop("module", &format!("wasm:{}", path.display()), class));
        let error = testbed
            .chain
            .edit(&plan, testbed.bridge.now())
            .err()
            .unwrap()
            .to_string();
        assert!(
            error.contains("hop module: ") && error.contains("not a WebAssembly module"),
            "{error}"
        );
    }
    let mut plan = testbed.chain.plan().clone();
    plan.hops[0].function = "sieve".to_owned();
    let error = testbed
        .chain
        .edit(&plan, testbed.bridge.now())
        .err()
        .unwrap()
        .to_string();
    assert!(error.ends_with("tap, wasm:PATH, library:PATH"), "{error}");
    assert!(one.send(&frame(0, 7)));
    assert_eq!(sequence(&two.receive_within(BOUND).unwrap()), 7);
}

#[test]
fn a_module_in_a_process_has_the_same_effect_as_in_the_worker() {
    let dir = tempfile::tempdir().unwrap();
    open_to_all(dir.path());
    let function = module(dir.path(), "picky.wasm", "unreachable");
    let (mut testbed, one, two) = start(vec![hop("module", &function, Class::Isolated)]);
    for number in 0..50 {
        assert!(one.send(&with_first((number % 2) as u8, number)));
        match number % 2 {
            0 => assert_eq!(sequence(&two.receive_within(BOUND).unwrap()), number),
            _ => testbed.wait("the drop", |testbed| {
                stats(testbed, 0).dropped == u64::from(number).div_ceil(2)
            }),
        }
    }
    testbed.wait("the drops", |testbed| stats(testbed, 0).dropped == 25);
    assert!(stats(&mut testbed, 0).counters.contains(&("wrongs", 0)));
    assert!(one.send(&with_first(2, 99)));
    testbed.wait("its process to end", |testbed| {
        stats(testbed, 0).failure.contains("its process ended")
    });
}

#[test]
fn the_example_in_c_runs_in_a_process_and_in_the_worker() {
    let dir = tempfile::tempdir().unwrap();
    let source = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples/functions/ttl.c");
    let trusted = trusted_folder(env!("CARGO_TARGET_TMPDIR"));
    let mut hops = vec![
        hop("apart", &library(dir.path(), &source), Class::Isolated),
        hop("here", &library(trusted.path(), &source), Class::Inline),
    ];
    hops[0].settings = Settings::parse(["minimum=5"]).unwrap();
    let (mut testbed, one, two) = start(hops);
    let mut wrong = testbed.chain.plan().clone();
    wrong.hops[0].settings = Settings::parse(["minimum=0"]).unwrap();
    let error = testbed
        .chain
        .edit(&wrong, testbed.bridge.now())
        .err()
        .unwrap()
        .to_string();
    assert!(
        error.contains("`minimum=0`: expected minimum=1 to minimum=255"),
        "{error}"
    );
    let sent = frame(0, 1);
    assert!(one.send(&sent));
    let received = two.receive_within(BOUND).unwrap();
    assert_eq!((received[22], sequence(&received)), (sent[22] - 2, 1));
    let mut old = frame(0, 2);
    old[22] = 4;
    assert!(one.send(&old));
    testbed.wait("it expires, and is counted by the function", |testbed| {
        let hop = stats(testbed, 0);
        hop.dropped == 1 && hop.counters == [("lowered", 1), ("expired", 1)]
    });
    testbed.wait("and in the worker", |testbed| {
        stats(testbed, 1).counters == [("lowered", 1), ("expired", 0)]
    });
}

#[test]
fn a_library_that_others_could_replace_is_not_loaded_into_the_worker() {
    let dir = tempfile::tempdir().unwrap();
    let source = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples/functions/ttl.c");
    let function = library(dir.path(), &source);
    std::fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    let (mut testbed, _one, _two) = start(Vec::new());
    let mut plan = testbed.chain.plan().clone();
    plan.hops.push(hop("here", &function, Class::Inline));
    let error = testbed
        .chain
        .edit(&plan, testbed.bridge.now())
        .err()
        .unwrap()
        .to_string();
    assert!(
        error.contains("users other than its owner may write there"),
        "{error}"
    );
    plan.hops[0].class = Class::Isolated;
    assert!(testbed.chain.edit(&plan, testbed.bridge.now()).is_ok());
}

/// A function that tries forbidden actions while it is loaded and while it runs, and counts successes and rejections.
const SPY: &str = r#"
#define _GNU_SOURCE
#include <millrace_nf.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { OPENED, SENT, FORKED, EXECUTED, KILLED, TRACED, WROTE, CODE, EARLY, REFUSED };
static uint64_t early;

static int is_refused(long result) { return result == -1 && (errno == EPERM || errno == EACCES || errno == EAGAIN); }

static void try_all(uint64_t *counts, int may_read)
{
    int file = open("/etc/passwd", O_RDONLY);
    if (may_read) { if (file >= 0) close(file); }
    else if (is_refused(file)) counts[REFUSED]++; else counts[OPENED]++;
    file = open("/tmp/millrace-spy", O_CREAT | O_WRONLY, 0666);
    if (is_refused(file)) counts[REFUSED]++; else counts[WROTE]++;
    if (is_refused(socket(AF_INET, SOCK_DGRAM, 0))) counts[REFUSED]++; else counts[SENT]++;
    long child = syscall(SYS_fork);
    if (child == 0) _exit(0);
    if (is_refused(child)) counts[REFUSED]++; else counts[FORKED]++;
    char *none[] = { "true", NULL };
    if (is_refused(execve("/bin/true", none, NULL))) counts[REFUSED]++; else counts[EXECUTED]++;
    if (is_refused(kill(getppid(), 0))) counts[REFUSED]++; else counts[KILLED]++;
    if (is_refused(ptrace(PTRACE_ATTACH, getppid(), 0, 0))) counts[REFUSED]++; else counts[TRACED]++;
}

__attribute__((constructor)) static void begin(void)
{
    uint64_t counts[10] = { 0 };
    try_all(counts, 1);
    for (int i = OPENED; i < EARLY; i++) early += counts[i];
}

static void *make(const millrace_nf_setup *setup, char *reason, size_t size)
{
    (void)reason; (void)size;
    setup->counters[EARLY] = early;
    return setup->counters;
}

static void process(void *function, const millrace_nf_context *context, millrace_nf_packet *burst,
                    millrace_nf_verdict *verdicts, size_t len)
{
    (void)context; (void)burst; (void)verdicts; (void)len;
    uint64_t *counts = function;
    try_all(counts, 0);
    void *code = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (code == MAP_FAILED) counts[REFUSED]++; else counts[CODE]++;
}

const millrace_nf_kind millrace_nf = {
    .abi = MILLRACE_NF_ABI, .kind_size = sizeof(millrace_nf_kind), .make = make, .process = process,
    .description = MILLRACE_NF_VERSION "name spy\ncounter opened\ncounter sent\ncounter forked\ncounter executed\n"
        "counter killed\ncounter traced\ncounter wrote\ncounter code\ncounter early\ncounter refused\n",
};
"#;

#[test]
fn a_function_in_a_process_may_neither_open_nor_send_nor_fork_nor_execute() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("spy.c");
    std::fs::write(&source, SPY).unwrap();
    let function = library(dir.path(), &source);
    let (mut testbed, one, two) = start(vec![hop("spy", &function, Class::Isolated)]);
    assert!(one.send(&frame(0, 1)));
    two.receive_within(BOUND).expect("it goes on as if it could not");
    testbed.wait("what it tried", |testbed| {
        stats(testbed, 0)
            .counters
            .iter()
            .any(|(name, value)| (*name, *value) == ("refused", 8))
    });
    let counters = stats(&mut testbed, 0).counters;
    assert!(
        counters
            .iter()
            .all(|(name, value)| *value == 0 || *name == "refused"),
        "{counters:?}"
    );
}

#[test]
fn memory_beyond_the_limit_of_a_process_is_not_given() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("eater.c");
    let text = r#"
#include <millrace_nf.h>
#include <stdlib.h>
#include <string.h>
static void *make(const millrace_nf_setup *setup, char *reason, size_t size) { (void)reason; (void)size; return setup->counters; }
static void process(void *f, const millrace_nf_context *c, millrace_nf_packet *b, millrace_nf_verdict *v, size_t len)
{
    (void)c; (void)b; (void)v; (void)len;
    uint64_t *counts = f;
    for (int i = 0; i < 64; i++) { char *m = malloc(1 << 20); if (m) { memset(m, 1, 1 << 20); counts[0]++; } else counts[1]++; }
}
const millrace_nf_kind millrace_nf = { .abi = MILLRACE_NF_ABI, .kind_size = sizeof(millrace_nf_kind), .make = make, .process = process,
    .description = MILLRACE_NF_VERSION "name eater\ncounter given\ncounter refused\n" };
"#;
    std::fs::write(&source, text).unwrap();
    let mut plan = hop("eater", &library(dir.path(), &source), Class::Isolated);
    plan.limits = Limits {
        memory: Some(16 << 20),
        ..Limits::default()
    };
    let (mut testbed, one, two) = start(vec![plan]);
    assert!(one.send(&frame(0, 1)));
    two.receive_within(BOUND).expect("it goes on");
    testbed.wait("what it was given", |testbed| stats(testbed, 0).counters[1].1 > 0);
    let counters = stats(&mut testbed, 0).counters;
    assert!(
        counters[0].1 < 16 && counters[0].1 + counters[1].1 == 64,
        "{counters:?}"
    );
}

#[test]
fn a_function_that_never_describes_itself_is_rejected() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("mute.c");
    std::fs::write(&source, "#include <unistd.h>\n__attribute__((constructor)) static void begin(void) { for (;;) usleep(1000); }\n").unwrap();
    let function = library(dir.path(), &source);
    let (mut testbed, one, two) = start(Vec::new());
    let mut plan = testbed.chain.plan().clone();
    plan.hops.push(hop("mute", &function, Class::Isolated));
    let error = testbed.chain.edit(&plan, Time::ZERO).err().unwrap().to_string();
    assert!(error.contains("does not describe itself within 5s"), "{error}");
    assert!(one.send(&frame(0, 7)));
    assert_eq!(sequence(&two.receive_within(BOUND).unwrap()), 7);
}
