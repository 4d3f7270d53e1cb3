//! The page of a program's commands and options.

use std::path::Path;

/// Checks that the page at `path` is `head`, and then the help of each command of a program. With `MILLRACE_BLESS` in the
/// environment, writes the page first.
///
/// # Panics
/// If the page differs.
pub fn help_page(command: &mut clap::Command, head: &str, path: &Path) {
    *command = std::mem::take(command).term_width(100);
    command.build();
    let name = command.get_name().to_owned();
    let mut text = head.to_owned();
    help(command, &name, &mut text);
    let text = text.trim_end().to_owned() + "\n";
    if std::env::var_os("MILLRACE_BLESS").is_some() {
        std::fs::write(path, &text).unwrap();
    }
    let written = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        written == text,
        "{} does not follow the definitions of the commands: its head says how it is written",
        path.display()
    );
}

/// Adds the help of a command and of its subcommands.
fn help(command: &mut clap::Command, path: &str, out: &mut String) {
    let level = "#".repeat(path.matches(' ').count() + 2);
    let text = command
        .clone()
        .disable_help_subcommand(true)
        .render_long_help()
        .to_string();
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    *out += &format!(
        "{level} {path}\n```text\n{}\n```\n\n",
        lines.join("\n").trim_end()
    );
    for sub in command
        .get_subcommands_mut()
        .filter(|sub| sub.get_name() != "help")
    {
        let path = format!("{path} {}", sub.get_name());
        help(sub, &path, out);
    }
}
