//! Capture files as a device.

use std::path::{Path, PathBuf};

use crate::node::shorten;

/// Capture files: packets of `rx` are received, sent packets are written to `tx`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PcapFiles {
    pub(super) rx: Option<PathBuf>,
    pub(super) tx: Option<PathBuf>,
    pub(super) repeat: bool,
}

impl PcapFiles {
    /// Returns the file of received packets; without one, nothing is received.
    pub fn rx(&self) -> Option<&Path> {
        self.rx.as_deref()
    }

    /// Returns the file of sent packets; without one, sent packets are counted and dropped.
    pub fn tx(&self) -> Option<&Path> {
        self.tx.as_deref()
    }

    /// Returns true if `rx` repeats endlessly.
    pub fn repeat(&self) -> bool {
        self.repeat
    }
}

/// Parses the text after `pcap:`.
pub(super) fn parse(text: &str) -> Result<PcapFiles, String> {
    const KEYS: &str = "expected pcap:rx=FILE,tx=FILE with at least one file, and loop=true with rx";
    let mut files = PcapFiles {
        rx: None,
        tx: None,
        repeat: false,
    };
    for part in text.split(',') {
        let (key, value) = part
            .split_once('=')
            .ok_or_else(|| format!("`{}` is not key=value; {KEYS}", shorten(part)))?;
        match (key, value) {
            ("loop", "true") => files.repeat = true,
            ("loop", "false") => files.repeat = false,
            ("rx", "") | ("tx", "") => return Err(format!("`{key}` is empty; {KEYS}")),
            ("rx", path) if files.rx.is_none() => files.rx = Some(PathBuf::from(path)),
            ("tx", path) if files.tx.is_none() => files.tx = Some(PathBuf::from(path)),
            ("rx" | "tx", _) => return Err(format!("`{key}` is given twice; {KEYS}")),
            _ => return Err(format!("`{}` is not known here; {KEYS}", shorten(part))),
        }
    }
    match files {
        PcapFiles {
            rx: None, tx: None, ..
        } => Err(format!("it names no file; {KEYS}")),
        PcapFiles {
            rx: None,
            repeat: true,
            ..
        } => Err(format!("`loop` without `rx` repeats nothing; {KEYS}")),
        PcapFiles {
            rx: Some(rx),
            tx: Some(tx),
            ..
        } if rx == tx => Err("`rx` and `tx` are the same file; expected two".to_owned()),
        files => Ok(files),
    }
}
