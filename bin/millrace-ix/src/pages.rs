//! Completions, generated from the definition of the command line.

use anyhow::Result;
use clap::Command;
use clap_complete::Shell;

use crate::show;

/// Prints the completions for a shell.
pub(crate) fn completions(shell: Shell, mut command: Command) -> Result<()> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut command, "millrace-ix", &mut text);
    show::print(&String::from_utf8_lossy(&text))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use clap::CommandFactory as _;
    use millrace_program::write_man_pages;

    use super::*;
    use crate::cli::Options;

    #[test]
    fn the_definition_is_sound() {
        Options::command().debug_assert();
    }

    #[test]
    fn every_command_has_a_man_page_and_every_shell_its_completions() {
        let dir = tempfile::tempdir().unwrap();
        write_man_pages(Options::command(), dir.path()).unwrap();
        for page in [
            "millrace-ix.1",
            "millrace-ix-order.1",
            "millrace-ix-audit-verify.1",
        ] {
            assert!(dir.path().join(page).exists(), "{page}");
        }
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let mut text = Vec::new();
            clap_complete::generate(shell, &mut Options::command(), "millrace-ix", &mut text);
            assert!(String::from_utf8_lossy(&text).contains("enforce"));
        }
    }
}
