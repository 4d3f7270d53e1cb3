//! The log in memory, for tests that read it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::Write;
use std::sync::Arc;

use parking_lot::Mutex;
use tracing::Dispatch;

/// A log that a test reads, line by line.
#[derive(Debug, Clone, Default)]
pub(crate) struct LogLines(Arc<Mutex<Vec<u8>>>);

impl LogLines {
    /// Returns a subscriber that writes its lines here.
    pub(crate) fn dispatch(&self) -> Dispatch {
        let lines = self.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_ansi(false)
            .with_writer(move || lines.clone());
        Dispatch::new(subscriber.finish())
    }

    /// Returns the number of lines that contain a text.
    pub(crate) fn count(&self, text: &str) -> usize {
        let bytes = self.0.lock();
        let lines = std::str::from_utf8(&bytes).unwrap();
        lines.lines().filter(|line| line.contains(text)).count()
    }
}

impl Write for LogLines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
