//! The record of a reservation: written before pages are reserved, removed when the reservation is dropped. A
//! record without a live process belongs to a process that was killed before it dropped its reservation.

use std::fs;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// The directory of the service, which systemd creates (`RuntimeDirectory=millrace`).
const DIRECTORY: &str = "/run/millrace";
const FILE: &str = "/run/millrace/huge-pages";
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// True if the record belongs to a live reservation of this process.
static IS_OURS: AtomicBool = AtomicBool::new(false);

/// A record that this process wrote. Dropping it removes the file.
#[derive(Debug)]
pub(super) struct Record {
    _written: (),
}

/// The record of a reservation, as another process wrote it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct AbandonedReservation {
    /// Number of persistent pages before the reservation.
    pub(super) before: u64,
    /// Largest number of persistent pages that the reservation added.
    pub(super) pages: u64,
}

impl Record {
    /// Writes the record. Returns `None` for a second reservation of this process, and if the write fails: the
    /// pages then stay reserved if the process is killed.
    pub(super) fn write(before: u64, pages: u64) -> Option<Record> {
        if IS_OURS.swap(true, Ordering::AcqRel) {
            return None;
        }
        match write(&AbandonedReservation { before, pages }) {
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

fn write(reservation: &AbandonedReservation) -> io::Result<()> {
    let text = reservation.text(&boot_id()?);
    fs::create_dir_all(DIRECTORY)?;
    remove();
    let mut options = fs::OpenOptions::new();
    let mut file = options.write(true).create_new(true).mode(0o600).open(FILE)?;
    io::Write::write_all(&mut file, text.as_bytes())
}

/// Returns the record that a killed process has left since the machine booted.
pub(super) fn read() -> Option<AbandonedReservation> {
    if IS_OURS.load(Ordering::Acquire) {
        return None;
    }
    let text = fs::read_to_string(FILE).ok()?;
    AbandonedReservation::parse(&text, &boot_id().ok()?)
}

/// Removes the record.
pub(super) fn remove() {
    // The file may be absent.
    let _absent = fs::remove_file(Path::new(FILE));
}

impl AbandonedReservation {
    /// Returns the text of the record: `BOOT BEFORE PAGES`.
    fn text(&self, boot: &str) -> String {
        format!("{boot} {} {}\n", self.before, self.pages)
    }

    /// Parses a record of this boot. Returns `None` for an earlier boot, whose pages do not exist any more.
    fn parse(text: &str, boot: &str) -> Option<AbandonedReservation> {
        let mut words = text.split_whitespace();
        if words.next()? != boot {
            return None;
        }
        Some(AbandonedReservation {
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
        let reservation = AbandonedReservation {
            before: 7,
            pages: 256,
        };
        let text = reservation.text("a-boot");
        assert_eq!(AbandonedReservation::parse(&text, "a-boot"), Some(reservation));
        assert_eq!(AbandonedReservation::parse(&text, "another-boot"), None);
        assert_eq!(
            AbandonedReservation::parse("a-boot 7", "a-boot"),
            None,
            "cut short"
        );
        assert_eq!(AbandonedReservation::parse("", "a-boot"), None);
    }
}
