//! The record of a reservation: written before pages are reserved, removed when the reservation is dropped. One that is
//! found belongs to a process that was killed in between.

use std::fs;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// The directory of the service, which systemd makes (`RuntimeDirectory=millrace`).
const DIRECTORY: &str = "/run/millrace";
const FILE: &str = "/run/millrace/huge-pages";
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// Whether the record is that of a live reservation of this process.
static IS_OURS: AtomicBool = AtomicBool::new(false);

/// A record that this process wrote. Dropping it removes the file.
#[derive(Debug)]
pub(super) struct Record {
    _written: (),
}

/// A reservation as another process recorded it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Left {
    /// Persistent pages before.
    pub(super) before: u64,
    /// Persistent pages that it was about to add, at most.
    pub(super) pages: u64,
}

impl Record {
    /// Writes the record. Without a place for it, a process that is killed now leaves its pages reserved.
    /// A second reservation of the process has none.
    pub(super) fn write(before: u64, pages: u64) -> Option<Record> {
        if IS_OURS.swap(true, Ordering::AcqRel) {
            return None;
        }
        match write(&Left { before, pages }) {
            Ok(()) => Some(Record { _written: () }),
            Err(error) => {
                IS_OURS.store(false, Ordering::Release);
                tracing::debug!(file = FILE, %error, "the reservation of huge pages is not recorded");
                None
            }
        }
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        remove();
        IS_OURS.store(false, Ordering::Release);
    }
}

fn boot_id() -> io::Result<String> {
    fs::read_to_string(BOOT_ID).map(|text| text.trim().to_owned())
}

fn write(left: &Left) -> io::Result<()> {
    let text = left.text(&boot_id()?);
    fs::create_dir_all(DIRECTORY)?;
    remove();
    let mut options = fs::OpenOptions::new();
    let mut file = options.write(true).create_new(true).mode(0o600).open(FILE)?;
    io::Write::write_all(&mut file, text.as_bytes())
}

/// Returns the record of a killed process of this boot.
pub(super) fn read() -> Option<Left> {
    if IS_OURS.load(Ordering::Acquire) {
        return None;
    }
    let text = fs::read_to_string(FILE).ok()?;
    Left::parse(&text, &boot_id().ok()?)
}

/// Removes the record.
pub(super) fn remove() {
    // It may not be there.
    let _gone = fs::remove_file(Path::new(FILE));
}

impl Left {
    /// `BOOT BEFORE PAGES`
    fn text(&self, boot: &str) -> String {
        format!("{boot} {} {}\n", self.before, self.pages)
    }

    /// Returns what a text of this boot says. The pages of an earlier boot are gone with it.
    fn parse(text: &str, boot: &str) -> Option<Left> {
        let mut words = text.split_whitespace();
        if words.next()? != boot {
            return None;
        }
        Some(Left {
            before: words.next()?.parse().ok()?,
            pages: words.next()?.parse().ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_says_what_was_reserved_in_this_boot() {
        let left = Left {
            before: 7,
            pages: 256,
        };
        let text = left.text("a-boot");
        assert_eq!(Left::parse(&text, "a-boot"), Some(left));
        assert_eq!(Left::parse(&text, "another-boot"), None);
        assert_eq!(Left::parse("a-boot 7", "a-boot"), None, "cut short");
        assert_eq!(Left::parse("", "a-boot"), None);
    }
}
