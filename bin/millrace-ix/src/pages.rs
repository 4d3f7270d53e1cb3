//! Completions and man pages, generated from the definition of the command line.

use std::path::Path;

use anyhow::{Context, Result};
use clap::Command;
use clap_complete::Shell;

use crate::show;

/// Prints the completions for a shell.
pub(crate) fn completions(shell: Shell, mut command: Command) -> Result<()> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut command, "millrace-ix", &mut text);
    show::print(&String::from_utf8_lossy(&text))
}

/// Writes `millrace-ix.1`, `millrace-ix-order.1` and so on to `dir`.
pub(crate) fn man(dir: &Path, command: Command) -> Result<()> {
    std::fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    clap_mangen::generate_to(command, dir)
        .with_context(|| format!("cannot write man pages to {}", dir.display()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use clap::CommandFactory as _;

    use super::*;
    use crate::cli::Options;

    #[test]
    fn the_definition_is_sound() {
        Options::command().debug_assert();
    }

    #[test]
    fn every_command_has_a_man_page_and_every_shell_its_completions() {
        let dir = tempfile::tempdir().unwrap();
        man(dir.path(), Options::command()).unwrap();
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
