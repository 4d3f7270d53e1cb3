//! The C library from a program in C, which the test compiles.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Returns the directory in which cargo has built the libraries.
fn built() -> PathBuf {
    let mut path = std::env::current_exe().unwrap();
    path.pop();
    path
}

/// Compiles the program in C against one of the libraries.
fn compile(dir: &Path, name: &str, library: &[&str]) -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = dir.join(name);
    let status = Command::new("cc")
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic", "-o"])
        .arg(&program)
        .arg(here.join("tests/transfer.c"))
        .arg("-I")
        .arg(here.join("include"))
        .args(library)
        .args(["-lpthread", "-lm", "-ldl"])
        .status()
        .unwrap();
    assert!(status.success(), "the header or the program does not compile");
    program
}

fn run(program: &Path, dir: &Path, words: &[&str]) -> (Output, String) {
    let output = Command::new(program)
        .args(words)
        .current_dir(dir)
        .env("LD_LIBRARY_PATH", built())
        .env("XDG_CONFIG_HOME", dir)
        .output()
        .unwrap();
    let text = [&output.stdout[..], &output.stderr]
        .map(String::from_utf8_lossy)
        .concat();
    (output, text)
}

#[test]
fn a_program_in_c_sends_receives_cancels_and_gets_errors_as_text() {
    let dir = tempfile::tempdir().unwrap();
    let built = built();
    let shared = format!("-L{}", built.display());
    let archive = built.join("libmillrace_transfer.a");
    let libraries = [
        vec![&*shared, "-lmillrace_transfer"],
        vec![archive.to_str().unwrap()],
    ];
    for (name, library) in ["shared", "static"].iter().zip(libraries) {
        let program = compile(dir.path(), name, &library);
        let at = dir.path().join(format!("{name}.d"));
        fs::create_dir_all(at.join("in")).unwrap();
        fs::write(at.join("file"), vec![7; 300_000]).unwrap();
        fs::write(at.join("large"), vec![7; 8 << 20]).unwrap();
        let (output, text) = run(&program, &at, &["transfer"]);
        assert!(output.status.success(), "{text}");
        assert_eq!(fs::read(at.join("in/file")).unwrap(), vec![7; 300_000]);
        let (output, text) = run(&program, &at, &["cancel"]);
        assert!(output.status.success(), "{text}");
        assert!(!at.join("in/large").exists(), "nothing partial has a name");
        for word in ["stop", "errors"] {
            let (output, text) = run(&program, &at, &[word]);
            assert!(output.status.success(), "{word}: {text}");
        }
    }
}
