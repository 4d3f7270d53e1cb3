//! The bearer token of the TCP address (RFC 6750): read from a file of the operator, or generated into the state
//! directory.

use std::fs::{File, Metadata};
use std::io::{ErrorKind, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use axum::http::{HeaderMap, header};
use subtle::ConstantTimeEq;

/// The smallest length of a token in bytes: it cannot be guessed even at a million attempts a second.
const TOKEN_MIN_SIZE: usize = 16;
/// The number of random bytes in a generated token.
const GENERATED_SIZE: usize = 32;

/// The bearer token that every request over TCP must carry.
pub struct Token(Box<[u8]>);

/// Errors of a token file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// The file cannot be read.
    #[error("cannot read the token file: {0}")]
    Read(std::io::Error),
    /// A token cannot be generated.
    #[error("cannot write the generated token: {0}")]
    Write(std::io::Error),
    /// Other users can read or replace the generated token.
    #[error(
        "other users can read or replace the generated token: expected a file of root or the daemon's user with mode \
         0600; remove it, so that the next start generates another one"
    )]
    Exposed,
    /// Other users can read or replace the token of the operator.
    #[error(
        "the token file is not of root or the daemon's user, or others can read it, or its group or others can write to it \
         (mode {mode:04o}, owner {owner}): expected a file of root or the daemon's user with mode 0600 or 0640"
    )]
    Shared {
        /// The permission bits of the file.
        mode: u32,
        /// The user id of its owner.
        owner: u32,
    },
    /// The first line is too short.
    #[error(
        "the first line of the token file has {size} bytes: expected at least {TOKEN_MIN_SIZE}, as `(umask 077; openssl rand -hex 32 > FILE)` makes"
    )]
    TooShort {
        /// The length of the line in bytes, without blanks at its ends.
        size: usize,
    },
}

impl Token {
    /// Returns the token in the first line of a file, without blanks at its ends. The group of the file may read it.
    ///
    /// # Errors
    /// [`TokenError`]; a file that other users can read or replace is rejected.
    pub fn from_file(path: &Path) -> Result<Token, TokenError> {
        let mut file = File::open(path).map_err(TokenError::Read)?;
        let found = file.metadata().map_err(TokenError::Read)?;
        if !is_of_root_or_us(&found) || found.mode() & 0o026 != 0 {
            return Err(TokenError::Shared {
                mode: found.mode() & 0o7777,
                owner: found.uid(),
            });
        }
        let mut text = String::new();
        file.read_to_string(&mut text).map_err(TokenError::Read)?;
        Token::new(text.lines().next().unwrap_or(""))
    }

    /// Returns the token in `text`, without blanks at its ends.
    ///
    /// # Errors
    /// [`TokenError::TooShort`].
    pub fn new(text: &str) -> Result<Token, TokenError> {
        let text = text.trim();
        if text.len() < TOKEN_MIN_SIZE {
            return Err(TokenError::TooShort { size: text.len() });
        }
        Ok(Token(text.as_bytes().into()))
    }

    /// Returns the token in the file `path` of the state directory. Generates the file with mode 0600 if it is
    /// missing.
    ///
    /// # Errors
    /// [`TokenError`]; a file that other users can read or replace is rejected.
    pub fn generated(path: &Path) -> Result<Token, TokenError> {
        if let Some(token) = Token::generated_before(path)? {
            return Ok(token);
        }
        generate(path).map_err(TokenError::Write)?;
        Token::from_file(path)
    }

    /// Returns the token in the file `path` of the state directory; `None` if the file is missing.
    ///
    /// # Errors
    /// As [`Token::generated`].
    pub(super) fn generated_before(path: &Path) -> Result<Option<Token>, TokenError> {
        match std::fs::symlink_metadata(path) {
            Ok(found) => {
                if !found.is_file() || !is_of_root_or_us(&found) || found.mode() & 0o077 != 0 {
                    return Err(TokenError::Exposed);
                }
                Token::from_file(path).map(Some)
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(TokenError::Read(error)),
        }
    }

    /// Returns true if the request carries the token. The comparison takes constant time for tokens of the right
    /// length.
    pub(super) fn is_carried_by(&self, headers: &HeaderMap) -> bool {
        let given = headers
            .get(header::AUTHORIZATION)
            .map_or(&b""[..], |value| value.as_bytes());
        let Some((scheme, token)) = given.split_at_checked(7) else {
            return false;
        };
        scheme.eq_ignore_ascii_case(b"bearer ") && bool::from(token.trim_ascii().ct_eq(&self.0))
    }
}

fn is_of_root_or_us(file: &Metadata) -> bool {
    file.uid() == 0 || file.uid() == rustix::process::geteuid().as_raw()
}

/// Writes a random token to `path` atomically.
fn generate(path: &Path) -> std::io::Result<()> {
    let mut random = [0; GENERATED_SIZE];
    File::open("/dev/urandom")?.read_exact(&mut random)?;
    let text = data_encoding::HEXLOWER.encode(&random);
    millrace_durable::replace(path, format!("{text}\n").as_bytes(), millrace_durable::PRIVATE)
}

/// Returns true if every user of this machine can read the file.
pub(super) fn is_open_to_all(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|file| file.mode() & 0o004 != 0)
}

/// Hides the secret.
impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    fn chmod(path: &Path, mode: u32) {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    fn is_for(token: &Token, text: &str) -> bool {
        let mut headers = HeaderMap::new();
        headers.insert(
            header::AUTHORIZATION,
            format!("Bearer {}", text.trim()).parse().unwrap(),
        );
        token.is_carried_by(&headers)
    }

    #[test]
    fn a_generated_token_is_private_lasts_and_is_another_one_once_it_is_removed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("api-token");
        let token = Token::generated(&path).unwrap();
        let first = std::fs::read_to_string(&path).unwrap();
        assert_eq!(first.trim().len(), 2 * GENERATED_SIZE);
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert!(is_for(&token, &first));
        assert!(is_for(&Token::generated(&path).unwrap(), &first));
        std::fs::remove_file(&path).unwrap();
        assert!(!is_for(&Token::generated(&path).unwrap(), &first));
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_generated_token_that_others_could_read_or_have_made_is_not_used() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("api-token");
        Token::generated(&path).unwrap();
        for mode in [0o640, 0o604, 0o620] {
            chmod(&path, mode);
            assert!(
                matches!(Token::generated(&path), Err(TokenError::Exposed)),
                "{mode:o}"
            );
        }
        std::fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/etc/hostname", &path).unwrap();
        assert!(matches!(Token::generated(&path), Err(TokenError::Exposed)));
    }

    #[test]
    fn a_token_file_that_others_could_read_or_write_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "0123456789abcdef\n").unwrap();
        for mode in [0o600, 0o400, 0o640] {
            chmod(file.path(), mode);
            assert!(Token::from_file(file.path()).is_ok(), "{mode:o}");
        }
        for wrong in [0o646, 0o644, 0o660, 0o602] {
            chmod(file.path(), wrong);
            assert!(
                matches!(Token::from_file(file.path()), Err(TokenError::Shared { mode, .. }) if mode == wrong),
                "{wrong:o}"
            );
        }
    }

    #[test]
    fn a_secret_that_every_user_can_read_is_noticed() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for (mode, open) in [(0o600, false), (0o640, false), (0o644, true)] {
            chmod(file.path(), mode);
            assert_eq!(is_open_to_all(file.path()), open, "{mode:o}");
        }
    }

    #[test]
    fn a_token_that_can_be_guessed_is_refused() {
        assert!(Token::new("secret").is_err());
    }
}
