//! Sets of files for the transport, at both ends: manifest, digests, have-maps, journal and commit.
//!
//! The crate opens no socket, starts no thread and reads no clock. A courier drives it: it passes bytes, messages and the
//! time in, and takes bytes, messages and events out. Files are reached through the trait [`fs::FileSystem`].
//!
//! ```text
//!             sender                                              receiver
//!  paths ─> Scan ─────────── manifest (control) ───────────> ManifestReader ─> Sink
//!             │                                                                 │
//!             v       <───── have-map: extents and values ─────                 │
//!          Source     ────── extents that the receiver keeps ─>                 │
//!   files ─> extent ──────── bytes by address (data) ────────> group of 16 KiB ─┤─> temporary file
//!             │ BLAKE3                                          │ BLAKE3        │
//!             └───────────── value of each extent (control) ──> compare ────────┤─> journal ─> rename
//!                     <───── wrong: values of its groups? ────────┘
//! ```
//!
//! 1. A [`manifest::Manifest`] gives each data byte of a set an address in the transport's space of extents.
//! 2. A [`source::Source`] reads extents, hashes them and detects files that change ([`digest`]).
//! 3. A [`sink::Sink`] writes groups into temporary files, verifies extents, keeps a journal and renames.

#![forbid(unsafe_code)]

pub mod clean;
pub mod digest;
pub mod entry;
pub mod fs;
mod journal;
pub mod manifest;
pub mod path;
pub mod scan;
pub mod sink;
pub mod source;
mod varint;

pub use digest::{ExtentValue, HaveEntry, Value};
pub use manifest::{Manifest, ManifestError, ManifestLimits, ManifestReader};
pub use path::RelativePath;
pub use scan::{Scan, ScanItem, ScanOptions};
pub use sink::{Commit, Sink, SinkError, SinkEvent, SinkOptions};
pub use source::{OnChange, Source, SourceOptions};
