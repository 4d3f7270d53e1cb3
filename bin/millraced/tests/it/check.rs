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
fn tls_files_that_cannot_work_and_interfaces_that_are_not_there_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: String| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let made = || rcgen::generate_simple_self_signed(vec!["br0".to_owned()]).unwrap();
    let (one, other) = (made(), made());
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new(vec!["br0".to_owned()]).unwrap();
    (params.not_before, params.not_after) =
        (rcgen::date_time_ymd(2020, 1, 1), rcgen::date_time_ymd(2021, 1, 1));
    let expired = params.self_signed(&key).unwrap();
    let certificate = write("certificate.pem", one.cert.pem());
    let good_key = write("key.pem", one.signing_key.serialize_pem());
    let foreign_key = write("foreign.pem", other.signing_key.serialize_pem());
    let (old, old_key) = (
        write("old.pem", expired.pem()),
        write("old-key.pem", key.serialize_pem()),
    );
    for (certificate, key, expected) in [
        (&certificate, &good_key, None),
        (
            &certificate,
            &foreign_key,
            Some("bridge[0].tls.private_key: the private key"),
        ),
        (&old, &old_key, Some("bridge[0].tls.certificate: ")),
    ] {
        let tls = format!(
            "name = \"br0\"\ntls = {{ private_key = \"{key}\", certificate = \"{certificate}\", ca_certificate = \"{}\" }}\n",
            folder.path().join("certificate.pem").display()
        );
        let site = Site::new(&GOOD.replace("name = \"br0\"\n", &tls));
        let (passes, output) = site.check();
        assert_eq!(passes, expected.is_none(), "{output}");
        has(&output, &[expected.unwrap_or("a valid configuration")]);
    }
    let api = format!("listen = \"127.0.0.1:0\"\ntls_cert = \"{old}\"\ntls_key = \"{old_key}\"\n");
    let (passes, output) = Site::new(&GOOD.replacen("[api]\n", &format!("[api]\n{api}"), 1)).check();
    assert!(!passes, "{output}");
    has(&output, &["api.tls_cert: ", "has expired"]);
    let site = Site::new(&format!(
        "{GOOD}[[bridge.port]]\nname = \"p2\"\nnumber = 2\ndevice = \"kernel:nope\"\n"
    ));
    let (passes, output) = site.check();
    assert!(!passes, "{output}");
    has(
        &output,
        &["bridge[0].port[1].device: there is no interface nope in this network namespace"],
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
        "--log-to",
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
        &[
            "for program in millraced ",
            "/$$program --man > $(DESTDIR)$(PREFIX)/share/man/man8/$$program.8; done",
            "millraced --man-config > $(DESTDIR)$(PREFIX)/share/man/man5/millraced.toml.5",
        ],
    );
    let output = site.command(&["--man-config"]).output().unwrap();
    assert!(output.status.success());
    has(
        &String::from_utf8(output.stdout).unwrap(),
        &[".TH millraced.toml 5", "[[bridge.port]]", "keep_flows"],
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
