//! EAL starts once in a process, so each scenario of starting it runs in a process of its own: this program again,
//! with the scenario in its environment.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test's helpers are tests too")]

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use crate::eal_once::{HUGE_PAGES, config};
use millrace_dpdk::eal::{HugePages, Pci};
use millrace_dpdk::{CoreId, Eal, EalConfig, Mempool, MempoolConfig, Port, thread};

const SCENARIO: &str = "MILLRACE_TEST_SCENARIO";
const UNPRIVILEGED: u32 = 65_534;

/// Runs the scenario in the child process; does nothing in the parent.
#[test]
fn scenario() {
    let Ok(name) = std::env::var(SCENARIO) else { return };
    let config = match name.as_str() {
        "prefix" => EalConfig {
            file_prefix: "../evil".into(),
            ..config()
        },
        "core" => EalConfig {
            main_core: Some(CoreId(999)),
            ..config()
        },
        "worker core" => EalConfig {
            worker_cores: vec![CoreId(998)],
            ..config()
        },
        "little" => EalConfig {
            memory_mib: 1,
            ..config()
        },
        "much" => EalConfig {
            memory_mib: u32::MAX,
            ..config()
        },
        "no pci" => EalConfig {
            pci: Pci::Off,
            ..config()
        },
        "terabyte" => EalConfig {
            memory_mib: 1024 * 1024,
            ..config()
        },
        "shared" => EalConfig {
            in_memory: false,
            file_prefix: "millrace-test-shared".into(),
            ..config()
        },
        "huge" => EalConfig {
            huge_pages: HugePages::Require,
            ..config()
        },
        "unprivileged" => EalConfig {
            huge_pages: HugePages::Prefer,
            ..config()
        },
        _ => config(),
    };
    match Eal::init(&config) {
        Err(error) => println!("FAILED: {error}\nAGAIN: {}", Eal::init(&config).unwrap_err()),
        Ok(eal) => {
            let pool = Mempool::new(eal, &MempoolConfig::new("started", 1023)).unwrap();
            println!("STARTED huge={} in_use={}", eal.has_huge_pages(), pool.in_use());
            if name == "unprivileged" {
                for devargs in ["net_null5", "net_af_packet0,iface=lo", "net_tap0"] {
                    match Port::attach(eal, &devargs.parse().unwrap()) {
                        Ok(_) => println!("ATTACHED {devargs}"),
                        Err(error) => println!("ATTACH FAILED: {error}"),
                    }
                }
            }
            if name == "shared" {
                // Waits until the other end of the pipe is closed.
                let _ = std::io::stdin().read_line(&mut String::new());
            }
        }
    }
}

fn command(program: &Path, scenario: &str) -> Command {
    let mut command = Command::new(program);
    command
        .args(["--exact", "starts::scenario", "--nocapture"])
        .env(SCENARIO, scenario)
        .stdin(Stdio::piped());
    command
}

fn run(scenario: &str) -> String {
    text(
        &command(&std::env::current_exe().unwrap(), scenario)
            .output()
            .unwrap(),
    )
}

fn text(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    text
}

fn fails(scenario: &str, with: &str) {
    let text = run(scenario);
    let line = text
        .lines()
        .find_map(|line| line.split_once("FAILED: "))
        .unwrap_or_else(|| panic!("{text}"))
        .1;
    assert!(line.contains(with), "{line}");
    assert!(line.contains("To fix it: "), "{line}");
}

#[test]
fn what_cannot_be_is_refused_before_dpdk_sees_it() {
    fails("prefix", "\"../evil\" cannot be a file prefix");
    fails("core", "core 999 cannot be used; this process may use 0");
    fails("worker core", "core 998 cannot be used");
    fails("little", "1 MiB are too little");
}

#[test]
fn more_memory_than_the_machine_has_is_a_memory_error() {
    fails("much", "EAL cannot have 4294967295 MiB");
    fails("terabyte", "EAL cannot have 1048576 MiB");
}

#[test]
fn eal_starts_without_pci() {
    assert!(run("no pci").contains("STARTED huge=false in_use=0"));
}

#[test]
fn two_processes_in_memory_do_not_meet() {
    assert!(run("plain").contains("STARTED"));
    assert!(run("plain").contains("STARTED"));
}

#[test]
fn a_file_prefix_has_one_process_at_a_time() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("SKIPPED: needs root");
        return;
    }
    let exe = std::env::current_exe().unwrap();
    let mut first: Child = command(&exe, "shared").stdout(Stdio::piped()).spawn().unwrap();
    let mut said = String::new();
    let mut lines = std::io::BufReader::new(first.stdout.take().unwrap());
    while !said.contains("STARTED") && std::io::BufRead::read_line(&mut lines, &mut said).unwrap() > 0 {}
    assert!(said.contains("STARTED"), "{said}");
    fails(
        "shared",
        "another DPDK process uses the file prefix \"millrace-test-shared\"",
    );
    // After a failure inside DPDK there is no second try.
    assert!(run("shared").contains("AGAIN: EAL failed to start before"));
    drop(first.stdin.take());
    let _ = std::io::copy(&mut lines, &mut std::io::sink());
    assert!(first.wait().unwrap().success());
    let _ = std::fs::remove_dir_all("/run/dpdk/millrace-test-shared");
}

#[test]
fn an_unprivileged_user_gets_a_slower_switch_and_plain_errors() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("SKIPPED: becoming another user needs root");
        return;
    }
    let _held = HUGE_PAGES.lock();
    // A copy that every user may execute.
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("starts");
    // `cp` writes the copy: a program that another test starts meanwhile would inherit our open descriptor (ETXTBSY).
    let copied = std::process::Command::new("cp")
        .arg(std::env::current_exe().unwrap())
        .arg(&program)
        .status();
    assert!(copied.unwrap().success());
    let open = <std::fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o755);
    std::fs::set_permissions(folder.path(), open.clone()).unwrap();
    std::fs::set_permissions(&program, open).unwrap();
    let as_nobody = |scenario| {
        let mut command = command(&program, scenario);
        command
            .uid(UNPRIVILEGED)
            .gid(UNPRIVILEGED)
            .current_dir("/")
            .env_remove("XDG_RUNTIME_DIR");
        text(&command.output().unwrap())
    };

    let slower = as_nobody("unprivileged");
    // Huge pages or not: any process may use reserved pages that are free.
    assert!(slower.contains("STARTED huge="), "{slower}");
    assert!(slower.contains("ATTACHED net_null5"), "{slower}");
    for device in ["net_af_packet0", "net_tap0"] {
        assert!(
            slower.contains(&format!("ATTACH FAILED: device {device} needs permission")),
            "{slower}"
        );
    }
    let required = as_nobody("huge");
    if required.contains("STARTED huge=true") {
        eprintln!("SKIPPED: somebody reserved huge pages that are free, so nobody is refused them");
        return;
    }
    assert!(required.contains("FAILED: huge pages are required"), "{required}");
    assert!(
        required.contains("not permitted") && required.contains("To fix it: as root"),
        "{required}"
    );
}

#[test]
fn a_worker_runs_on_its_core_with_a_cache_of_its_own() {
    let eal = crate::eal_once::eal();
    let pool = Mempool::new(eal, &MempoolConfig::new("cached", 1023)).unwrap();
    let core = *thread::allowed_cores().last().unwrap();
    let worker = thread::spawn(eal, "worker", core, move || {
        drop(pool.alloc());
        (
            thread::allowed_cores(),
            std::thread::current().name().map(str::to_owned),
            pool.in_use(),
        )
    });
    let (cores, name, in_use) = worker.unwrap().join().unwrap();
    assert_eq!((cores, name.as_deref(), in_use), (vec![core], Some("worker"), 0));
    // The process starts more threads, one after the other, than DPDK has lcores.
    for _ in 0..200 {
        thread::spawn(eal, "short", core, || ()).unwrap().join().unwrap();
    }
}
