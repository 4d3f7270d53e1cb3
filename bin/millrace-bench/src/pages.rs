//! Completions and docs/cli-bench.md, generated from the definitions in `cli`.

use std::io::Write;

use anyhow::Result;
use clap::CommandFactory;
use clap_complete::Shell;

use crate::cli::Cli;

pub(crate) fn completions(shell: Shell) -> Result<()> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "millrace-bench", &mut text);
    Ok(std::io::stdout().write_all(&text)?)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn the_page_of_the_program_is_what_the_definition_says() {
        Cli::command().debug_assert();
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/cli-bench.md");
        let head = "# The command line of the experiments\n\n<!-- Written by `MILLRACE_BLESS=1 cargo test -p millrace-experiments pages`; \
                    edit bin/millrace-bench/src/cli.rs and crates/instruments/bench instead. -->\n\n\
                    `millrace bench`, `millrace report` and `millrace profile` run these commands.\n\n";
        millrace_testing::help_page(&mut Cli::command(), head, &path);
    }

    #[test]
    fn every_command_has_a_man_page() {
        let dir = tempfile::tempdir().unwrap();
        millrace_program::write_man_pages(Cli::command(), dir.path()).unwrap();
        for page in ["millrace-bench.1", "millrace-bench-report.1"] {
            assert!(dir.path().join(page).exists(), "{page}");
        }
    }
}
