//! The program as a user starts it: settings that cannot be had are refused before an interface is touched.
//!
//! Cargo builds a program for the tests of its own package; the live tests in tests/interop need this one.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::process::Command;

/// Returns the text that the program prints when it refuses these settings.
fn refusal(settings: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_millrace-wan"))
        .args(["between", "mr-a", "mr-b"])
        .args(settings)
        .output()
        .unwrap();
    assert!(!output.status.success(), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn a_delay_without_a_unit_is_refused_with_the_units_that_there_are() {
    let text = refusal(&["--delay", "100"]);
    assert!(
        text.contains("`100` is not a delay") && text.contains("`ms`"),
        "{text}"
    );
}

#[test]
fn a_path_that_may_hold_any_number_of_bytes_is_refused_with_the_settings_that_bound_it() {
    let text = refusal(&["--delay", "10ms"]);
    assert!(
        text.contains("to fix it: set `memory`") && text.contains("or `rate`"),
        "{text}"
    );
}

#[test]
fn an_interface_that_does_not_exist_is_named() {
    let text = refusal(&["--delay", "10ms", "--rate", "1Gbps"]);
    assert!(text.contains("mr-a"), "{text}");
}
