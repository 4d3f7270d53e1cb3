//! Completions and docs/cli.md, generated from the definitions in `cli`.

use anyhow::Result;
use clap::CommandFactory;
use clap_complete::Shell;

use crate::cli::Cli;
use crate::output::say;

pub(crate) fn completions(shell: Shell) -> Result<()> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "millrace", &mut text);
    say(&String::from_utf8_lossy(&text))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn docs_cli_md_is_what_the_definition_says() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/cli.md");
        let head = "# The command line\n\n<!-- Written by `MILLRACE_BLESS=1 cargo test -p millrace pages`; \
            edit bin/millrace/src/cli/ instead. -->\n\n";
        millrace_testing::help_page(&mut Cli::command(), head, &path);
    }

    #[test]
    fn every_command_has_a_man_page_and_every_shell_its_completions() {
        let dir = tempfile::tempdir().unwrap();
        millrace_program::write_man_pages(Cli::command(), dir.path()).unwrap();
        for page in [
            "millrace.1",
            "millrace-show.1",
            "millrace-show-flows.1",
            "millrace-lab-up.1",
        ] {
            assert!(dir.path().join(page).exists(), "{page}");
        }
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let mut text = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "millrace", &mut text);
            assert!(String::from_utf8_lossy(&text).contains("doctor"));
        }
    }
}
