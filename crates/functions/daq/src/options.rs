//! The options of a session: the socket, which Snort calls the input, and the variables of the module.

use std::path::{Path, PathBuf};

use millrace_types::Duration;
use thiserror::Error;

/// The variables, each with a description in one line.
pub(crate) const VARIABLES: [(&str, &str); 4] = [
    ("socket", "path of the hop's socket; by default the input (-i)"),
    (
        "instance",
        "number of the hop's instance; by default any that is free",
    ),
    (
        "shun_seconds",
        "idle time after which a white- or blacklisted flow is inspected again (60)",
    ),
    (
        "retry",
        "what happens to a packet that is to be retried a second time: pass or drop (drop)",
    ),
];

/// The reason why an option is refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum OptionsError {
    /// The module has no variable of that name.
    #[error("there is no variable `{0}`: expected socket, instance, shun_seconds or retry")]
    Unknown(String),
    /// The variable does not accept the value.
    #[error("variable `{name}`: `{value}` is not valid: expected {expected}")]
    Value {
        name: &'static str,
        value: String,
        /// The form of valid values.
        expected: &'static str,
    },
    /// Neither the input nor `socket` is a path.
    #[error("`{0}` is no path: expected the socket of a hop, such as -i /run/millrace/ips.sock")]
    NoSocket(String),
}

/// The options of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The socket of the hop.
    pub socket: PathBuf,
    /// The instance; `None` takes any that is free.
    pub instance: Option<u32>,
    /// The idle time of shunned flows.
    pub shun_idle: Duration,
    /// A packet with a second verdict `Retry` passes; else it is dropped.
    pub retry_passes: bool,
    /// Verdicts take effect; otherwise all packets pass (passive mode).
    pub is_inline: bool,
}

impl Options {
    /// Returns the options for an input and variables.
    ///
    /// # Errors
    /// [`OptionsError`].
    pub fn new<'a>(
        input: &str,
        is_inline: bool,
        variables: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Options, OptionsError> {
        let mut options = Options {
            socket: input.into(),
            instance: None,
            shun_idle: Duration::from_secs(60),
            retry_passes: false,
            is_inline,
        };
        for (name, value) in variables {
            let wrong = |name, expected| OptionsError::Value {
                name,
                value: value.to_owned(),
                expected,
            };
            match name {
                "socket" => options.socket = value.into(),
                "instance" => {
                    let number = value.parse();
                    options.instance = Some(number.map_err(|_| wrong("instance", "a number"))?);
                }
                "shun_seconds" => {
                    let seconds = value
                        .parse()
                        .ok()
                        .filter(|seconds| (1..=86_400).contains(seconds));
                    let seconds = seconds.ok_or_else(|| wrong("shun_seconds", "1 to 86400"))?;
                    options.shun_idle = Duration::from_secs(seconds);
                }
                "retry" => {
                    options.retry_passes = match value {
                        "pass" => true,
                        "drop" => false,
                        _ => return Err(wrong("retry", "pass or drop")),
                    }
                }
                _ => return Err(OptionsError::Unknown(name.to_owned())),
            }
        }
        match Path::new(&options.socket).is_absolute() {
            true => Ok(options),
            false => Err(OptionsError::NoSocket(options.socket.display().to_string())),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn options_are_the_input_and_the_variables_and_errors_name_what_is_expected() {
        let variables = [("instance", "3"), ("shun_seconds", "5"), ("retry", "pass")];
        let options = Options::new("/run/a.sock", true, variables).unwrap();
        assert_eq!(options.socket, Path::new("/run/a.sock"));
        assert_eq!(
            (options.instance, options.shun_idle, options.retry_passes),
            (Some(3), Duration::from_secs(5), true)
        );
        let other = Options::new("eth0", true, [("socket", "/run/b.sock")]).unwrap();
        assert_eq!(other.socket, Path::new("/run/b.sock"));
        for (input, variable, wanted) in [
            ("eth0", ("instance", "1"), "no path"),
            ("/a", ("instance", "x"), "a number"),
            ("/a", ("shun_seconds", "0"), "1 to 86400"),
            ("/a", ("retry", "never"), "pass or drop"),
            ("/a", ("foo", "1"), "no variable `foo`"),
        ] {
            let error = Options::new(input, true, [variable]).unwrap_err().to_string();
            assert!(error.contains(wanted), "{error}");
        }
    }
}
