//! Names of AS-SETs in a routing registry (RFC 2622, section 5).
//!
//! ```text
//!   AS-EXAMPLE              AS64500:AS-CUSTOMERS         AS64500
//!   RIPE::AS-EXAMPLE        only the holder of AS 64500  a network without customers
//!   AS-EXAMPLE@RIPE         can register this name
//! ```

use core::fmt;
use core::str::FromStr;

/// The largest length of a name in bytes.
const SIZE_MAX: usize = 100;

/// The name of an AS-SET, in upper case, or one AS number in its place. Names of other registries are other AS-SETs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AsSet {
    source: Option<String>,
    name: String,
}

/// A text that is not the name of an AS-SET.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("expected an AS-SET such as AS-EXAMPLE, RIPE::AS-EXAMPLE or AS64500:AS-CUSTOMERS")]
pub struct AsSetError;

impl AsSet {
    /// Returns the AS number with which the name begins. The registry lets only its holder register such a name (RFC 2725,
    /// section 9.6).
    pub fn owner(&self) -> Option<u32> {
        self.name.split(':').next().and_then(number)
    }

    /// Returns the registry; `None` for a name that any may have.
    pub fn source(&self) -> Option<&str> {
        self.source.as_deref()
    }

    /// Returns the name without the registry.
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// Returns the number of a component such as AS64500.
fn number(component: &str) -> Option<u32> {
    let digits = component.strip_prefix("AS")?;
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|asn| is_number && *asn != 0)
}

/// Returns true for a component such as AS-EXAMPLE.
fn is_set(component: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    component
        .strip_prefix("AS-")
        .is_some_and(|rest| !rest.is_empty() && rest.bytes().all(is_letter))
}

impl FromStr for AsSet {
    type Err = AsSetError;

    fn from_str(text: &str) -> Result<AsSet, AsSetError> {
        if text.len() > SIZE_MAX {
            return Err(AsSetError);
        }
        let text = text.to_ascii_uppercase();
        let (source, name) = match (text.split_once("::"), text.split_once('@')) {
            (Some((source, name)), None) | (None, Some((name, source))) => (Some(source), name),
            (None, None) => (None, text.as_str()),
            (Some(_), Some(_)) => return Err(AsSetError),
        };
        let is_source = |source: &str| {
            !source.is_empty()
                && source
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        };
        let components: Vec<&str> = name.split(':').collect();
        let is_name = components.iter().all(|one| is_set(one) || number(one).is_some())
            && (components.len() == 1 || components.iter().any(|one| is_set(one)));
        if !is_name || source.is_some_and(|source| !is_source(source)) {
            return Err(AsSetError);
        }
        Ok(AsSet {
            source: source.map(str::to_owned),
            name: name.to_owned(),
        })
    }
}

impl fmt::Display for AsSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.source {
            Some(source) => write!(f, "{source}::{}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_and_without_a_registry_are_read_and_compared_without_case() {
        let of = |text: &str| text.parse::<AsSet>().unwrap();
        assert_eq!(of("as-Example@ripe"), of("RIPE::AS-EXAMPLE"));
        assert_eq!(of("RIPE::AS-EXAMPLE").to_string(), "RIPE::AS-EXAMPLE");
        let set = of("AS-Example@ripe");
        assert_eq!((set.source(), set.name()), (Some("RIPE"), "AS-EXAMPLE"));
        assert_eq!(of("AS-EXAMPLE").source(), None);
        assert_ne!(of("RADB::AS-EXAMPLE"), of("RIPE::AS-EXAMPLE"));
        assert_ne!(of("AS-EXAMPLE"), of("RIPE::AS-EXAMPLE"));
        assert_eq!(of("AS64500:AS-CUSTOMERS:AS64501").owner(), Some(64_500));
        assert_eq!(of("RIPE::AS64500:AS-CUSTOMERS").owner(), Some(64_500));
        assert_eq!(of("AS64500").owner(), Some(64_500));
        for without in ["AS-EXAMPLE", "AS-64500", "AS-X:AS64500"] {
            assert_eq!(of(without).owner(), None, "{without}");
        }
    }

    #[test]
    fn a_name_cannot_carry_a_second_query_to_the_registry() {
        for text in [
            "",
            "FOO",
            "AS-",
            "AS",
            "AS0",
            "AS-FOO\n!gAS1",
            "AS-FOO,1",
            "AS-FOO AS-BAR",
            "AS1:AS2",
            ":AS-FOO",
            "AS-FOO:",
            "RIPE::",
            "::AS-FOO",
            "RIPE::AS-FOO@RADB",
            "RIPE::X::AS-FOO",
            "AS4294967296",
            "AS+1",
            "AS-FOO@RI PE",
        ] {
            assert_eq!(text.parse::<AsSet>(), Err(AsSetError), "{text:?}");
        }
        assert_eq!(format!("AS-{}", "X".repeat(98)).parse::<AsSet>(), Err(AsSetError));
    }
}
