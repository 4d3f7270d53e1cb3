//! The name of a network function: built in, or a file.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use crate::decode::text_field;
use crate::name::HopName;
use crate::node::shorten;

/// The length limit of a path, in bytes.
const PATH_MAX: usize = 1024;
/// The prefix of a name that refers to a WebAssembly file.
const WASM: &str = "wasm:";
const LIBRARY: &str = "library:";
/// The prefix of the socket to which processes of the operator attach.
const ATTACHED: &str = "attached:";
/// The length limit of a Unix socket's path, in bytes (`sun_path`, unix(7), without its NUL).
const SOCKET_PATH_MAX: usize = 107;

/// The error for a text that names no function.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{}` is not a function: {reason}", shorten(.text))]
pub struct FunctionNameError {
    /// The rejected text.
    pub text: String,
    /// The reason and the expected form.
    pub reason: &'static str,
}

/// A network function: a name, `wasm:PATH`, `library:PATH` or `attached:PATH`, with an absolute path.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FunctionName(String);

impl FunctionName {
    /// Returns the name as written.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the name of a built-in function; `None` for a file.
    pub fn name(&self) -> Option<&str> {
        (!self.0.contains(':')).then_some(self.as_str())
    }

    /// Returns the path of the socket to which processes of the operator attach.
    pub fn attach_path(&self) -> Option<&str> {
        self.0.strip_prefix(ATTACHED)
    }

    /// Returns true if the function is a WebAssembly module.
    pub fn is_wasm(&self) -> bool {
        self.0.starts_with(WASM)
    }
}

impl fmt::Display for FunctionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl FromStr for FunctionName {
    type Err = FunctionNameError;

    fn from_str(text: &str) -> Result<FunctionName, FunctionNameError> {
        let refuse = |reason| {
            Err(FunctionNameError {
                text: text.to_owned(),
                reason,
            })
        };
        let prefixes = [WASM, LIBRARY, ATTACHED];
        let path = prefixes.iter().find_map(|prefix| text.strip_prefix(prefix));
        match path {
            None if text.parse::<HopName>().is_err() => refuse(
                "expected a name of 1 to 15 letters, digits, `_`, `-` and `.`, wasm:PATH, library:PATH or attached:PATH",
            ),
            Some(path) if !path.starts_with('/') => refuse("expected an absolute path"),
            Some(path) if path.len() > PATH_MAX || path.chars().any(char::is_control) => {
                refuse("expected a path of at most 1024 bytes without control characters")
            }
            Some(path) if text.starts_with(ATTACHED) && path.len() > SOCKET_PATH_MAX => {
                refuse("expected the path of a socket, of at most 107 bytes")
            }
            _ => Ok(FunctionName(text.to_owned())),
        }
    }
}

text_field!(
    FunctionName,
    "a name, wasm:PATH, library:PATH or attached:PATH",
    "firewall"
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_is_a_name_or_a_file() {
        let name: FunctionName = "firewall".parse().unwrap();
        assert_eq!((name.name(), name.is_wasm()), (Some("firewall"), false));
        let file: FunctionName = "wasm:/usr/lib/millrace/fw.wasm".parse().unwrap();
        assert_eq!((file.name(), file.is_wasm()), (None, true));
        let socket: FunctionName = "attached:/run/millrace/snort.sock".parse().unwrap();
        assert_eq!(
            (socket.name(), socket.attach_path()),
            (None, Some("/run/millrace/snort.sock"))
        );
        let long = format!("attached:/{}", "x".repeat(107));
        for wrong in [
            &*long,
            "attached:snort",
            "",
            "a b",
            "wasm:",
            "wasm:fw.wasm",
            "library:../x.so",
            "java:/x",
            "wasm:/a\nb",
        ] {
            assert!(wrong.parse::<FunctionName>().is_err(), "{wrong}");
        }
    }
}
