//! The ticket of an incomplete transfer, in a file: a receiver that is started again admits the same sender
//! by it.
//!
//! A ticket authorises one transfer of one sender. So only a ticket with an owner is kept. After a restart it
//! admits only the owner's key, whether it has expired or not; the file is removed at the end of the transfer. A receiver
//! that is started again also has a new ticket, for another sender.

use crate::identity::PublicKey;
use crate::ticket::Ticket;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The file of a ticket.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeptTicket {
    path: PathBuf,
}

impl KeptTicket {
    /// Returns the file for a receiving directory. It is below the directory of the user's configuration.
    ///
    /// # Errors
    /// If the receiving directory cannot be resolved.
    pub fn of_directory(configuration: &Path, directory: &Path) -> io::Result<KeptTicket> {
        let directory = directory.canonicalize()?;
        let digest = blake3::hash(directory.as_os_str().as_encoded_bytes()).to_hex();
        Ok(KeptTicket {
            path: configuration.join("tickets").join(&digest.as_str()[..32]),
        })
    }

    /// Returns the ticket and its owner, if the ticket is of this receiver. Its expiry does not count: the transfer has begun.
    pub(super) fn load(&self, receiver: PublicKey) -> Option<(Ticket, PublicKey)> {
        let mode = fs::metadata(&self.path).ok()?.permissions().mode();
        if mode & 0o077 != 0 {
            tracing::warn!(path = %self.path.display(), "others may read the ticket that was kept; it is not used");
            return None;
        }
        let text = fs::read_to_string(&self.path).ok()?;
        let (ticket, owner) = text.trim_end().split_once('\n')?;
        let (ticket, owner): (Ticket, PublicKey) = (ticket.parse().ok()?, owner.parse().ok()?);
        (ticket.key == receiver).then_some((ticket, owner))
    }

    /// Keeps a ticket that a sender owns. Without the file, the sender needs a new ticket after a restart.
    pub(super) fn keep(&self, ticket: &Ticket, owner: PublicKey) {
        if let Err(error) = self.write(format!("{ticket}\n{owner}\n").as_bytes()) {
            tracing::warn!(path = %self.path.display(), %error, "the ticket was not kept");
        }
    }

    fn write(&self, text: &[u8]) -> io::Result<()> {
        if let Some(parent) = self.path.parent() {
            fs::create_dir_all(parent)?;
        }
        millrace_durable::replace(&self.path, text, millrace_durable::PRIVATE)
    }

    /// Forgets the ticket of a transfer that has ended.
    pub(super) fn forget(&self) {
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(path = %self.path.display(), %error, "the ticket that was kept was not removed");
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, UNIX_EPOCH};

    #[test]
    fn a_ticket_is_kept_for_its_receiver_and_only_if_nobody_else_can_read_it() {
        let dir = tempfile::tempdir().unwrap();
        let kept = KeptTicket::of_directory(dir.path(), dir.path()).unwrap();
        let (receiver, owner) = (PublicKey::new([7; 32]), PublicKey::new([8; 32]));
        let expires = UNIX_EPOCH + Duration::from_secs(1_800_000_000);
        let ticket = Ticket {
            expires,
            key: receiver,
            secret: [9; 16],
            addresses: vec!["10.0.0.1:7800".parse().unwrap()],
        };
        assert_eq!(kept.load(receiver), None);
        kept.keep(&ticket, PublicKey::new([1; 32]));
        kept.keep(&ticket, owner);
        assert_eq!(kept.load(receiver), Some((ticket, owner)));
        assert_eq!(kept.load(owner), None, "another receiver");
        fs::set_permissions(&kept.path, fs::Permissions::from_mode(0o640)).unwrap();
        assert_eq!(kept.load(receiver), None);
        fs::set_permissions(&kept.path, fs::Permissions::from_mode(0o600)).unwrap();
        kept.forget();
        kept.forget();
        assert_eq!(kept.load(receiver), None);
        assert_eq!(fs::read_dir(dir.path().join("tickets")).unwrap().count(), 0);
    }
}
