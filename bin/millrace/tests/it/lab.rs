//! Tests of `lab`.

use millrace_api::fake::FakeServer;

use crate::harness::refused;

#[test]
fn lab_commands_name_what_is_missing() {
    let server = FakeServer::start().unwrap();
    assert!(refused(&server, "lab up /nothing.toml", 1).contains("cannot read /nothing.toml"));
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("lab.toml");
    std::fs::write(&file, "[[host]]\nname = \"UPPER\"\n").unwrap();
    let text = refused(&server, &format!("lab up {}", file.display()), 1);
    assert!(
        text.contains("lab.toml:2:") && text.contains("expected"),
        "{text}"
    );
    assert!(refused(&server, "lab run --lab no-such-lab h1 true", 1).contains("lab"));
}

#[test]
fn a_lab_that_is_not_there_cannot_be_removed() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: removing a lab needs root");
        return;
    }
    let server = FakeServer::start().unwrap();
    let told = refused(&server, "lab down no-such-lab", 1);
    assert!(told.contains("there is no lab no-such-lab: "), "{told}");
}
