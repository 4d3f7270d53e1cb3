//! The text form of programs: the output of `tcpdump -ddd`, with commas instead of line ends, as `iptables -m bpf
//! --bytecode` accepts it.
//!
//! ```text
//! COUNT,CODE JT JF K,CODE JT JF K,…
//! ```

use core::fmt;
use core::str::FromStr;

use super::{INSTRUCTIONS_MAX, Instruction, Program, VerifyError};

/// The error of parsing a program.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseError {
    /// The text does not have the form `COUNT,CODE JT JF K,…`.
    #[error(
        "`{token}`: expected COUNT,CODE JT JF K,…: what `tcpdump -ddd` prints, with commas for line ends"
    )]
    Form {
        /// The invalid part.
        token: String,
    },
    /// The count differs from the number of instructions.
    #[error("the program has {len} instructions, and says that it has {count}")]
    Count {
        /// The count in the text.
        count: usize,
        /// The number of instructions.
        len: usize,
    },
    /// The program is invalid.
    #[error(transparent)]
    Verify(#[from] VerifyError),
}

impl FromStr for Program {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Program, ParseError> {
        let mut parts = text.trim().split([',', '\n']);
        let form = |token: &str| ParseError::Form {
            token: token.chars().take(32).collect(),
        };
        let first = parts.next().unwrap_or_default();
        let count: usize = first.trim().parse().map_err(|_| form(first))?;
        // Parsing stops one instruction beyond the limit, which suffices for the error.
        let parts = parts.take(INSTRUCTIONS_MAX + 1);
        let instructions = parts
            .map(|part| instruction(part).ok_or_else(|| form(part)))
            .collect::<Result<Vec<_>, _>>()?;
        if instructions.len() != count {
            let len = instructions.len();
            return Err(ParseError::Count { count, len });
        }
        Ok(Program::new(&instructions)?)
    }
}

fn instruction(text: &str) -> Option<Instruction> {
    let mut numbers = text.split_ascii_whitespace();
    let instruction = Instruction {
        code: numbers.next()?.parse().ok()?,
        jt: numbers.next()?.parse().ok()?,
        jf: numbers.next()?.parse().ok()?,
        k: numbers.next()?.parse().ok()?,
    };
    numbers.next().is_none().then_some(instruction)
}

/// Writes `CODE JT JF K`.
impl fmt::Display for Instruction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {} {}", self.code, self.jt, self.jf, self.k)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_says_how_many_instructions_follow() {
        assert!("1,6 0 0 0".parse::<Program>().is_ok());
        assert!("2\n0 0 0 1\n22 0 0 0\n".parse::<Program>().is_ok());
        for (text, words) in [
            ("", "``: expected COUNT"),
            ("x", "`x`"),
            ("1,6 0 0", "`6 0 0`"),
            ("1,6 0 0 0 0", "`6 0 0 0 0`"),
            ("1,6 0 0 -1", "-1"),
            ("1,6 256 0 1", "256"),
            ("2,6 0 0 0", "has 1 instructions, and says that it has 2"),
        ] {
            let error = text.parse::<Program>().unwrap_err().to_string();
            assert!(error.contains(words), "{text}: {error}");
        }
    }
}
