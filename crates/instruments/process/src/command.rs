//! Command lines: where programs are found, how they are wrapped, and tools that are run to their end.

use std::ffi::OsStr;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use millrace_lab::find_program;
use nix::sys::signal::Signal;

use crate::error::ProcessError;

/// The number of lines of a log that an error shows.
const TAIL_LINES: usize = 8;

/// With autogroup (sched(7)) the kernel groups tasks by session. Nice levels count only within a group, and
/// each group has a nice level. This shell script sets the nice level of its group to argument 0, and
/// executes the program.
const AUTOGROUP_SCRIPT: &str = r#"{ echo "$0" > /proc/self/autogroup; } 2> /dev/null; exec "$@""#;

/// Returns the path of a program of Millrace: the value of the environment variable `variable`, else the result of
/// [`find_program`], else the path beside this program.
pub fn program_path(name: &str, variable: &str) -> PathBuf {
    if let Some(path) = std::env::var_os(variable) {
        return path.into();
    }
    let own = || std::env::current_exe().unwrap_or_default();
    find_program(name).unwrap_or_else(|| own().with_file_name(name))
}

/// Returns the command line as text that a shell accepts.
pub fn command_line(command: &Command) -> String {
    let plain = |text: &OsStr| {
        let text = text.to_string_lossy().into_owned();
        if !text.is_empty()
            && text
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c))
        {
            text
        } else {
            format!("'{}'", text.replace('\'', "'\\''"))
        }
    };
    std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(plain)
        .collect::<Vec<_>>()
        .join(" ")
}

/// Returns the command, wrapped by `setpriv`, so that the program ends with this process, and by `nice`, if `nice` is
/// not 0.
pub fn wrap(command: &Command, nice: i32) -> Command {
    let mut words: Vec<&OsStr> = Vec::new();
    let level = nice.to_string();
    if is_installed("setpriv") {
        words.extend(["setpriv", "--pdeathsig", "KILL"].map(OsStr::new));
    }
    if nice != 0 && nix::unistd::geteuid().is_root() {
        words.extend(["nice", "-n", &level].map(OsStr::new));
        if is_installed("setsid") {
            words.extend(["setsid", "sh", "-c", AUTOGROUP_SCRIPT, &level].map(OsStr::new));
        }
    }
    words.push(command.get_program());
    words.extend(command.get_args());
    let mut wrapped = Command::new(words.first().copied().unwrap_or_default());
    wrapped.args(words.iter().skip(1));
    for (key, value) in command.get_envs() {
        match value {
            Some(value) => wrapped.env(key, value),
            None => wrapped.env_remove(key),
        };
    }
    if let Some(dir) = command.get_current_dir() {
        wrapped.current_dir(dir);
    }
    wrapped
}

/// Returns true if the program is found: by its path, or in `$PATH`.
pub fn is_installed(program: &str) -> bool {
    program.contains('/') && Path::new(program).is_file()
        || std::env::var_os("PATH")
            .is_some_and(|paths| std::env::split_paths(&paths).any(|dir| dir.join(program).is_file()))
}

/// Runs a tool, waits for its end, and returns its standard output.
///
/// # Errors
/// [`ProcessError::Start`], and the errors of [`tool_output`].
pub fn run_tool(command: &mut Command) -> Result<String, ProcessError> {
    let output = run(command)?;
    tool_output(command, &output)
}

/// Returns the standard output of a tool that has ended.
///
/// # Errors
/// [`ProcessError::Interrupted`] if SIGINT ended the tool, which Ctrl-C sends to the instrument and to its tools;
/// [`ProcessError::Tool`] if the exit status is not 0.
pub fn tool_output(command: &Command, output: &Output) -> Result<String, ProcessError> {
    let out = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(out);
    }
    if output.status.signal() == Some(Signal::SIGINT as i32) {
        return Err(ProcessError::Interrupted);
    }
    let text = tail(&format!("{}{out}", String::from_utf8_lossy(&output.stderr)));
    Err(ProcessError::Tool {
        command: command_line(command),
        output: match text.is_empty() {
            true => output.status.to_string(),
            false => text,
        },
    })
}

/// Returns the output of `PROGRAM --version` in one line; `None` if the program cannot be run.
pub fn version(program: impl AsRef<OsStr>) -> Option<String> {
    let out = run_tool(Command::new(program).arg("--version")).ok()?;
    let lines: Vec<&str> = out
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect();
    Some(lines.join(", "))
}

fn run(command: &mut Command) -> Result<Output, ProcessError> {
    command
        .stdin(Stdio::null())
        .output()
        .map_err(|source| ProcessError::Start {
            program: command.get_program().to_string_lossy().into_owned(),
            source,
        })
}

/// Returns the last non-empty lines of a text.
pub fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_is_quoted_for_a_shell() {
        let mut command = Command::new("ovs-ofctl");
        command.args([
            "add-flow",
            "br0",
            "in_port=1,actions=set_field:1->eth_dst",
            "it's",
        ]);
        assert_eq!(
            command_line(&command),
            r"ovs-ofctl add-flow br0 'in_port=1,actions=set_field:1->eth_dst' 'it'\''s'"
        );
    }

    #[test]
    fn a_tool_that_sigint_ends_is_an_interrupt_and_one_that_fails_silently_has_its_status() {
        let run = |script: &str| run_tool(Command::new("sh").arg("-c").arg(script)).unwrap_err();
        // A shell in the background starts its jobs with SIGINT ignored.
        let error = run("exec env --default-signal=INT sh -c 'kill -INT $$'");
        assert!(matches!(error, ProcessError::Interrupted), "{error}");
        let error = run("kill -KILL $$").to_string();
        assert!(error.contains("signal: 9"), "{error}");
        let error = run("exit 3").to_string();
        assert!(error.ends_with("fails: exit status: 3"), "{error}");
        let error = run("echo no such device >&2; exit 3").to_string();
        assert!(error.ends_with("fails: no such device"), "{error}");
    }
}
