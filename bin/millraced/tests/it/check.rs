//! `--check` names missing resources with line and column; the man page names every option.

use crate::start::{GOOD, Site, has};

#[test]
fn files_that_are_not_there_are_named_with_their_place() {
    let site = Site::new(&format!(
        "{GOOD}[[bridge.port]]\nname = \"p2\"\nnumber = 2\ndevice = \"pcap:rx=/nope.pcap\"\n\
         [[bridge.port]]\nname = \"p3\"\nnumber = 3\ndevice = \"vhost:/nope/vm.sock\"\n\
         [[bridge.chain]]\nname = \"c\"\nnumber = 4\n[[bridge.chain.hop]]\nname = \"w\"\nfunction = \"wasm:/nope.wasm\"\n"
    ));
    let (passes, output) = site.check();
    assert!(!passes, "{output}");
    has(
        &output,
        &[
            ":12:10: bridge[0].port[1].device: /nope.pcap: cannot be read",
            "bridge[0].port[2].device: /nope/vm.sock: cannot be created: there is no directory /nope",
            "bridge[0].chain[0].hop[0].function: /nope.wasm: cannot be read",
        ],
    );
}

#[test]
fn a_state_directory_that_cannot_be_made_is_refused_by_a_check() {
    let site = Site::new(&format!("[system]\nstate_dir = \"/proc/millrace\"\n{GOOD}"));
    let (passes, output) = site.check();
    assert!(!passes, "{output}");
    has(
        &output,
        &[":2:13: system.state_dir: /proc/millrace: cannot be created"],
    );
    let site = Site::new(GOOD);
    let output = site
        .command(&["--check", "--state-dir", "/proc/millrace"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    has(
        &String::from_utf8(output.stderr).unwrap(),
        &["--state-dir: /proc/millrace: cannot be created"],
    );
}

#[test]
fn the_man_page_names_every_option_and_is_installed() {
    let site = Site::new(GOOD);
    let output = site.command(&["--man"]).output().unwrap();
    assert!(output.status.success());
    // Roff writes a hyphen as `\-`.
    let page = String::from_utf8(output.stdout).unwrap().replace("\\-", "-");
    for part in [
        ".TH millraced 8",
        "--config",
        "--revision",
        "--state-dir",
        "--no-dpdk",
        "--check",
        "--log",
        "--log-json",
        "EXIT STATUS",
        "FILES",
        "SIGNALS",
        "SEE ALSO",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
    let makefile = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../Makefile")).unwrap();
    has(
        &makefile,
        &["millraced --man > $(DESTDIR)$(PREFIX)/share/man/man8/millraced.8"],
    );
}

#[test]
fn the_systemd_unit_starts_the_daemon_again_without_end_and_keeps_its_runtime_directory() {
    let unit = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/millraced.service")).unwrap();
    let (head, service) = unit.split_once("[Service]").unwrap();
    // A rollback of a change that crashes the daemon needs a start after the time to confirm.
    has(head, &["[Unit]\n", "\nStartLimitIntervalSec=0\n"]);
    has(service, &["\nRestart=on-failure\n", "\nRestartSec=2\n"]);
    // The directory holds files of the next start and of other processes.
    has(
        service,
        &[
            "\nRuntimeDirectory=millrace\n",
            "\nRuntimeDirectoryPreserve=yes\n",
        ],
    );
}
