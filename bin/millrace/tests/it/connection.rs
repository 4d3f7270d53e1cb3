//! Tests of the connection to the daemon, of failures, and of the program itself.

use std::io::{Read, Write};
use std::process::{Command, Stdio};

use millrace_api::fake::FakeServer;

use crate::harness::{command, refused, run, stdout, user};

#[test]
fn a_daemon_that_does_not_answer_is_named_with_the_command_that_starts_it() {
    let server = FakeServer::start().unwrap();
    for line in ["show ports", "diff", "watch", "trace br0 tcp"] {
        let text = refused(&server, &format!("{line} --api http://127.0.0.1:1"), 3);
        assert!(
            text.contains("no response from http://127.0.0.1:1") && text.contains("sudo millraced --config"),
            "{text}"
        );
    }
    let text = refused(&server, "wan show --api http://127.0.0.1:1", 3);
    assert!(
        text.contains("no `millrace wan between` is running")
            && text.contains("no response from http://127.0.0.1:1"),
        "{text}"
    );
    assert!(refused(&server, "show ports --api nonsense", 1).contains("the form http://127.0.0.1:8080"));
    assert_eq!(run(&server, "show nonsense").status.code(), Some(2));
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let server = FakeServer::start().unwrap();
    let mut child = command(&server, "completions bash")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let status = child.wait().unwrap();
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(status.success() && said.is_empty(), "{status}: {said}");
}

#[test]
fn a_token_comes_from_a_file_or_from_the_environment() {
    use millrace_api::server::{Limits, Tcp, Token};
    let secret = "0123456789abcdef0123";
    let tcp = Tcp {
        listen: ([127, 0, 0, 1], 0).into(),
        token: Token::new(secret).unwrap(),
        tls: None,
    };
    let server = FakeServer::start_with(Some(tcp), Limits::default()).unwrap();
    let text = refused(&server, "show bridges", 1);
    assert!(text.contains("MILLRACE_TOKEN"), "{text}");
    let mut file = tempfile::NamedTempFile::new().unwrap();
    writeln!(file, "{secret}").unwrap();
    stdout(
        &server,
        &format!("show bridges --token-file {}", file.path().display()),
    );
    let output = command(&server, "show bridges")
        .env("MILLRACE_TOKEN", secret)
        .output()
        .unwrap();
    assert!(output.status.success());
}

#[test]
fn a_user_without_access_to_the_socket_is_told_who_has_it_and_what_to_do() {
    use std::os::unix::fs::PermissionsExt as _;
    use std::os::unix::process::CommandExt as _;
    if user() != "root" {
        eprintln!("skipped: to become another user needs root");
        return;
    }
    const NOBODY: u32 = 65_534;
    let server = FakeServer::start().unwrap();
    // The folder is accessible to others, as /run/millrace is, but the socket is not; the program is executable.
    let folder = server.directory();
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755)).unwrap();
    let program = folder.join("millrace");
    // `cp` in another process copies the program: other tests start processes meanwhile, which would inherit a file
    // that this process has open for writing, and the program could not be executed (ETXTBSY).
    let copied = Command::new("cp")
        .arg(env!("CARGO_BIN_EXE_millrace"))
        .arg(&program)
        .status();
    assert!(copied.unwrap().success());
    let output = Command::new(&program)
        .args(["show", "status"])
        .current_dir("/")
        .env_clear()
        .env("MILLRACE_API", server.url())
        .uid(NOBODY)
        .gid(NOBODY)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{told}");
    let socket = server.socket().display().to_string();
    for part in [socket.as_str(), "only root may connect", "sudo millrace"] {
        assert!(told.contains(part), "{part}: {told}");
    }
}

#[test]
fn the_program_has_no_dpdk_inside() {
    let ldd = Command::new("ldd").arg(env!("CARGO_BIN_EXE_millrace")).output();
    let Ok(output) = ldd else { return };
    assert!(!String::from_utf8_lossy(&output.stdout).contains("librte"));
}

#[test]
fn each_cause_is_told_once() {
    let server = FakeServer::start().unwrap();
    let capture = tempfile::NamedTempFile::new().unwrap();
    pcap_file::pcap::PcapWriter::new(capture.reopen().unwrap()).unwrap();
    let run_function = format!(
        "nf run firewall --read {} --setting rule=foo",
        capture.path().display()
    );
    for (line, cause) in [
        ("report /nonexistent", "No such file or directory"),
        (run_function.as_str(), "expected allow or deny"),
        ("nf run firewall --read /nonexistent", "No such file or directory"),
        ("apply /nonexistent", "No such file or directory"),
    ] {
        let told = refused(&server, line, 1);
        assert_eq!(told.matches(cause).count(), 1, "{line}: {told}");
    }
}
