//! Runs the program against a server of a fake switch.

use std::process::{Command, Output, Stdio};

use millrace_api::fake::FakeServer;
use serde_json::Value;

/// Returns the command `line`, with a minimal environment and without input.
pub(crate) fn command(server: &FakeServer, line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_millrace"));
    command
        .args(line.split_whitespace())
        .env_clear()
        .env("MILLRACE_API", server.url())
        .env("USER", "tester");
    command.stdin(Stdio::null());
    command
}

/// Runs a command and returns its output.
pub(crate) fn run(server: &FakeServer, line: &str) -> Output {
    command(server, line).output().unwrap()
}

/// Runs a command that must succeed, and returns its standard output.
pub(crate) fn stdout(server: &FakeServer, line: &str) -> String {
    let output = run(server, line);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        output.status.success(),
        "{line}: {text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    text
}

/// Runs a command that commits a change that does not run in full, and returns its standard output.
pub(crate) fn committed(server: &FakeServer, line: &str) -> String {
    let output = run(server, line);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(4), "{line}: {text}");
    assert!(output.stderr.is_empty(), "{line}");
    text
}

/// Runs a command with `--json`, and returns the value that it prints.
pub(crate) fn json(server: &FakeServer, line: &str) -> Value {
    let text = stdout(server, &format!("{line} --json"));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{line}: {error}: {text}"))
}

/// Runs a command that must fail with the exit status `code`, and returns its standard error.
pub(crate) fn refused(server: &FakeServer, line: &str, code: i32) -> String {
    let output = run(server, line);
    assert_eq!(
        output.status.code(),
        Some(code),
        "{line}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(output.stdout.is_empty(), "{line}");
    String::from_utf8(output.stderr).unwrap()
}

/// Returns the name of the user who runs the tests.
pub(crate) fn user() -> String {
    let output = Command::new("id").arg("-un").output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}
