//! The parts that all programs have alike: the log on standard error, the name of the machine, and man pages made of the definition of the command line.

#![forbid(unsafe_code)]

use std::io::{self, IsTerminal as _, Write as _};
use std::path::Path;

use clap::Command;
use clap_mangen::Man;
use millrace_log::Lines;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::ParseError;

/// Parses the value of `--log`: a level, or directives as in `RUST_LOG`. The text stays what it is.
///
/// # Errors
/// The directive that cannot be parsed.
pub fn log_filter(text: &str) -> Result<String, ParseError> {
    EnvFilter::try_new(text).map(|_| text.to_owned())
}

/// Starts the log on standard error, in colors if that is a terminal, with a filter that [`log_filter`] has parsed. A log that the
/// program has started before stays.
pub fn start_log(filter: &str) {
    let has_colors = io::stderr().is_terminal();
    let _ = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new(filter))
        .with_ansi(has_colors)
        .with_writer(move || Lines::new(io::stderr(), has_colors))
        .try_init();
}

/// Returns the name of the machine (proc(5)).
///
/// # Errors
/// The file cannot be read; the error names it.
pub fn host_name() -> io::Result<String> {
    const FILE: &str = "/proc/sys/kernel/hostname";
    let text = std::fs::read_to_string(FILE);
    text.map(|text| text.trim_end().to_owned())
        .map_err(|error| io::Error::new(error.kind(), format!("{FILE}: {error}")))
}

/// Writes the page of a program or of its only command, for section 8, to standard output.
///
/// # Errors
/// Standard output cannot be written.
pub fn print_man_page(command: Command) -> io::Result<()> {
    let mut page = Vec::new();
    Man::new(command).section("8").render(&mut page)?;
    io::stdout().write_all(&page)
}

/// Writes a page of section 1 for a program and for each of its commands to a directory, which is made: `millrace.1`,
/// `millrace-show.1`.
///
/// # Errors
/// The directory cannot be made, or a page cannot be written.
pub fn write_man_pages(command: Command, dir: &Path) -> io::Result<()> {
    let named =
        |error: io::Error| io::Error::new(error.kind(), format!("man pages in {}: {error}", dir.display()));
    std::fs::create_dir_all(dir).map_err(named)?;
    clap_mangen::generate_to(command, dir).map_err(named)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    #[test]
    fn a_filter_that_the_log_cannot_use_is_refused() {
        for valid in [
            "info",
            "off",
            "warn,millrace_ix=debug",
            "millrace_api[request]=trace",
        ] {
            assert_eq!(log_filter(valid).unwrap(), valid);
        }
        for wrong in ["millrace_ix=loud", "a=b=c", "[=info"] {
            assert!(log_filter(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn each_command_has_a_page_and_a_directory_that_cannot_be_made_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let command = || Command::new("example").subcommand(Command::new("show").about("Shows"));
        write_man_pages(command(), &dir.path().join("man")).unwrap();
        assert!(dir.path().join("man/example.1").exists());
        assert!(dir.path().join("man/example-show.1").exists());
        let error = write_man_pages(command(), Path::new("/dev/null/man")).unwrap_err();
        assert!(error.to_string().contains("/dev/null/man"), "{error}");
    }
}
