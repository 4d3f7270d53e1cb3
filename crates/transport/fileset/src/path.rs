//! Paths below a root, as bytes.

use thiserror::Error;

/// The maximum length of a path in bytes (`PATH_MAX`, less the terminating NUL).
pub const PATH_MAX: usize = 4_095;
/// The maximum length of a name in bytes (`NAME_MAX`).
pub const NAME_MAX: usize = 255;
/// The prefix of the names of temporary files and journals of transfers in progress.
pub const RESERVED_PREFIX: &[u8] = b".millrace-";

/// The reason why bytes are not a path below a root.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum PathError {
    /// The path has too many bytes.
    #[error("a path of {0} bytes is longer than {PATH_MAX}")]
    TooLong(usize),
    /// A name has too many bytes.
    #[error("a name of {0} bytes is longer than {NAME_MAX}")]
    NameTooLong(usize),
    /// A name is empty, as in `a//b` and `/a`.
    #[error("the path {0:?} has an empty name; paths are relative and have single slashes")]
    EmptyName(String),
    /// A name is `.` or `..`.
    #[error("the path {0:?} contains . or .., which could leave the root")]
    Dots(String),
    /// A name contains a NUL byte.
    #[error("the path {0:?} contains a NUL byte")]
    Nul(String),
}

/// A path below a root. The empty path is the root. No name of the path is empty, `.` or `..`, or contains
/// NUL.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct RelativePath(Box<[u8]>);

impl RelativePath {
    /// Returns the path of the root.
    pub fn root() -> RelativePath {
        RelativePath::default()
    }

    /// Returns the path that consists of the bytes.
    ///
    /// # Errors
    /// [`PathError`] names the rule that the bytes violate.
    pub fn new(bytes: &[u8]) -> Result<RelativePath, PathError> {
        if bytes.len() > PATH_MAX {
            return Err(PathError::TooLong(bytes.len()));
        }
        if !bytes.is_empty() {
            for name in bytes.split(|byte| *byte == b'/') {
                check_name(name, bytes)?;
            }
        }
        Ok(RelativePath(bytes.into()))
    }

    /// Returns the path of an entry of this directory.
    ///
    /// # Errors
    /// If the name or the joined path is not valid.
    pub fn join(&self, name: &[u8]) -> Result<RelativePath, PathError> {
        let mut bytes = self.0.to_vec();
        if !bytes.is_empty() && !name.is_empty() {
            bytes.push(b'/');
        }
        bytes.extend_from_slice(name);
        RelativePath::new(&bytes)
    }

    /// Returns the bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns true for the path of the root.
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the names in the path, from the root down.
    pub fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.0.split(|byte| *byte == b'/').filter(|name| !name.is_empty())
    }

    /// Returns the directory and the name in it; the root has the empty name.
    pub fn split(&self) -> (RelativePath, &[u8]) {
        match self.0.iter().rposition(|byte| *byte == b'/') {
            Some(at) => (RelativePath(self.0[..at].into()), &self.0[at + 1..]),
            None => (RelativePath::root(), &self.0),
        }
    }

    /// Returns true if a name in the path begins with [`RESERVED_PREFIX`].
    pub fn is_reserved(&self) -> bool {
        self.names().any(|name| name.starts_with(RESERVED_PREFIX))
    }
}

impl std::fmt::Debug for RelativePath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", String::from_utf8_lossy(&self.0))
    }
}

impl std::fmt::Display for RelativePath {
    /// Writes the path. Bytes that are not UTF-8 are replaced, and control characters are escaped.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for character in String::from_utf8_lossy(&self.0).chars() {
            if character.is_control() {
                write!(f, "{}", character.escape_default())?;
            } else {
                write!(f, "{character}")?;
            }
        }
        Ok(())
    }
}

fn check_name(name: &[u8], path: &[u8]) -> Result<(), PathError> {
    let shown = || String::from_utf8_lossy(path).into_owned();
    match name {
        b"" => Err(PathError::EmptyName(shown())),
        b"." | b".." => Err(PathError::Dots(shown())),
        _ if name.len() > NAME_MAX => Err(PathError::NameTooLong(name.len())),
        _ if name.contains(&0) => Err(PathError::Nul(shown())),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_could_leave_the_root_are_refused() {
        for bad in ["/etc", "../x", "a/../b", "a//b", "a/", ".", "a/.", "a\0b"] {
            assert!(RelativePath::new(bad.as_bytes()).is_err(), "{bad:?}");
        }
        assert!(RelativePath::new(&[b'n'; 256]).is_err());
        assert!(RelativePath::new(&b"ab/".repeat(1_400)[..4_199]).is_err());
        for good in ["", "a", "a/b", "..a/b..", "\u{e9}"] {
            assert!(RelativePath::new(good.as_bytes()).is_ok(), "{good:?}");
        }
        assert!(RelativePath::new(&[0xff, b'/', 0xfe]).is_ok());
    }

    #[test]
    fn a_path_splits_and_joins() {
        let path = RelativePath::new(b"a/b/c").unwrap();
        let (directory, name) = path.split();
        assert_eq!((directory.as_bytes(), name), (&b"a/b"[..], &b"c"[..]));
        assert_eq!(directory.join(name).unwrap(), path);
        assert_eq!(RelativePath::root().join(b"a").unwrap().as_bytes(), b"a");
        assert!(directory.join(b"..").is_err());
    }
}
