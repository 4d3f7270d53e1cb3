//! Key logs: the keys of connections in a file, with which a capture can be read (docs/transport-protocol.md).
//!
//! Lines have the format of NSS (draft-ietf-tls-keylogfile), which Wireshark reads for QUIC. Each session has
//! one more line:
//!
//! ```text
//!  MILLRACE_SESSION <connection> <AEAD: 00 or 01> <content secret> <pairwise key to the receiver> <pairwise key to the sender>
//! ```

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use data_encoding::HEXLOWER;
use parking_lot::Mutex;

/// An open key log. A reader of the file can decrypt all that its connections carry.
#[derive(Clone, Debug)]
pub struct KeyLog(Arc<Mutex<File>>);

impl KeyLog {
    /// Opens a key log, which is created with mode 0600; lines are appended.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn open(path: &Path) -> io::Result<KeyLog> {
        let mut options = OpenOptions::new();
        let file = options.append(true).create(true).mode(0o600).open(path)?;
        Ok(KeyLog(Arc::new(Mutex::new(file))))
    }

    fn line(&self, label: &str, fields: &[&[u8]]) {
        let mut line = label.to_owned();
        for field in fields {
            line.push(' ');
            HEXLOWER.encode_append(field, &mut line);
        }
        line.push('\n');
        let mut file = self.0.lock();
        if let Err(error) = file.write_all(line.as_bytes()) {
            tracing::warn!(%error, "the key log was not written");
        }
    }

    /// Appends the keys of a session's data packets.
    pub(crate) fn session(&self, connection: u32, chacha: bool, secret: &[u8], pairwise: &[u8; 32]) {
        let (to_receiver, to_sender) = pairwise.split_at(16);
        let connection = connection.to_be_bytes();
        self.line(
            "MILLRACE_SESSION",
            &[&connection, &[u8::from(chacha)], secret, to_receiver, to_sender],
        );
    }
}

impl rustls::KeyLog for KeyLog {
    fn log(&self, label: &str, client_random: &[u8], secret: &[u8]) {
        self.line(label, &[client_random, secret]);
    }
}
