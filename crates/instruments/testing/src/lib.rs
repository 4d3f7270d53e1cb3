//! Support for integration tests: separate processes, network functions in C, JSON schemas, capture files, databases
//! of PostgreSQL, and pages of command lines.
//!
//! All integration tests of a crate share one program and run side by side in its threads. A test that needs a process
//! for itself starts with [`own_process!`].

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test fails by panicking, and shows the output of its process"
)]

mod capture;
mod functions;
mod help_page;
mod postgres;
mod schema;

use std::process::Command;

pub use capture::udp_capture;
pub use functions::{compile_function, open_to_all, trusted_folder};
pub use help_page::help_page;
pub use postgres::{postgres_database, postgres_sql};
pub use schema::Schema;

/// The environment variable that names the test that runs alone in this process.
const ALONE: &str = "MILLRACE_TEST_ALONE";

/// Runs the calling test in a separate process.
///
/// In the process that the test runner started, the macro starts the same program again with this test alone,
/// waits for it, and returns from the calling test. In the second process, the macro does nothing.
///
/// # Panics
/// If the test fails in its own process. The output of that process comes first.
#[macro_export]
macro_rules! own_process {
    () => {{
        fn here() {}
        if !$crate::is_alone(std::any::type_name_of_val(&here)) {
            return;
        }
    }};
}

/// Returns true in the process that runs the test alone; otherwise runs the test in such a process and returns false.
///
/// `here` is the path of a function inside the test, with the name of the test program in front.
#[doc(hidden)]
pub fn is_alone(here: &str) -> bool {
    let test = test_of(here);
    if std::env::var_os(ALONE).is_some_and(|alone| alone == test) {
        return true;
    }
    let output = std::env::current_exe().and_then(|program| {
        Command::new(program)
            .args([
                "--exact",
                test,
                "--nocapture",
                "--include-ignored",
                "--test-threads=1",
            ])
            .env(ALONE, test)
            .output()
    });
    match output {
        Ok(output) => {
            let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
            let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
            eprint!("{stdout}{stderr}");
            assert!(
                output.status.success(),
                "{test} in its own process: {}",
                output.status
            );
            assert!(
                stdout.contains("1 passed"),
                "the process ran no test named {test}; expected exactly one"
            );
        }
        Err(error) => panic!("cannot start {test} in its own process: {error}"),
    }
    false
}

/// Returns the test runner's name of the test that contains the function at `here`.
fn test_of(here: &str) -> &str {
    let inside = here.split_once("::").map_or(here, |(_, inside)| inside);
    inside.rsplit_once("::").map_or(inside, |(test, _)| test)
}

#[cfg(test)]
mod tests {
    use super::{ALONE, is_alone, test_of};

    #[test]
    fn a_test_that_asks_for_its_own_process_runs_there_alone() {
        own_process!();
        let alone = std::env::var(ALONE).unwrap();
        assert_eq!(
            alone,
            "tests::a_test_that_asks_for_its_own_process_runs_there_alone"
        );
    }

    #[test]
    #[should_panic(expected = "expected exactly one")]
    fn a_process_that_runs_no_test_is_a_failure() {
        is_alone("program::no::such_test::here");
    }

    #[test]
    #[ignore = "fails on purpose; the test below runs it"]
    fn fails() {
        assert!(std::env::var_os(ALONE).is_none(), "fails on purpose");
    }

    #[test]
    #[should_panic(expected = "in its own process")]
    fn a_test_that_fails_in_its_own_process_fails() {
        is_alone("program::tests::fails::here");
    }

    #[test]
    fn the_name_of_a_test_has_neither_the_program_nor_the_inner_function() {
        assert_eq!(test_of("it::ring::order_is_kept::here"), "ring::order_is_kept");
    }
}
