//! Settings of the parsers.

use super::file::File;
use super::frames::FrameSet;
use crate::flow::Direction;

/// The numbers of content codings that can be undone: each has a decoder with a window of its own.
pub const CONTENT_CODINGS: core::ops::RangeInclusive<usize> = 1..=5;

/// Settings of the parsers. The defaults are those that the documentation of Suricata gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AppSettings {
    /// Bytes of the body of an HTTP request that are inspected.
    pub request_body_limit: usize,
    /// Bytes of the body of an HTTP response that are inspected.
    pub response_body_limit: usize,
    /// Content codings of the body of an HTTP message that are undone, one inside the other.
    pub content_codings: usize,
    /// Bytes of a mail attachment that are inspected.
    pub attachment_limit: usize,
    /// The minimum size in bytes of the body of an HTTP request that is inspected before it is complete.
    pub request_body_minimum: usize,
    /// The minimum size in bytes of the body of an HTTP response that is inspected before it is complete.
    pub response_body_minimum: usize,
    /// The minimum size in bytes of a mail attachment that is inspected before it is complete.
    pub attachment_minimum: usize,
    /// The frames that rules inspect.
    pub frames: FrameSet,
    /// True if all frames become events.
    pub reports_frames: bool,
    /// Parts of messages that parsers look at only if rules ask for them.
    pub asks: Asks,
    /// True if transactions become records.
    pub keeps_records: bool,
    /// True if records have what Suricata writes only if its configuration asks for it: headers, certificates, payloads.
    pub details: bool,
    /// True if files are hashed.
    pub hashes_files: bool,
    /// Largest size in bytes of a file that a rule can store (`filestore`): its bytes are kept until it ends. With 0, none is
    /// stored.
    pub store_limit: usize,
    /// True in mode `ips`: bytes are inspected before they are forwarded.
    pub is_inline: bool,
    /// True if the engine follows connections of which it sees one direction only. A client then seems not to wait for any
    /// answer.
    pub is_asymmetric: bool,
}

/// Parts of messages that parsers look at only if rules ask for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Asks {
    /// Frames of HTTP/2 that are no headers and no data.
    pub http2_frames: bool,
    /// Headers of HTTP/2 with their values (`http2.header`).
    pub http2_headers: bool,
    /// The fields of SDP in bodies of SIP.
    pub sdp: bool,
    /// URLs in the text of mails, and the digest of their bodies.
    pub mail_bodies: bool,
    /// The version of each message of SMB.
    pub smb_versions: bool,
    /// Ranges of files over HTTP, which are joined.
    pub ranges: bool,
}

impl Asks {
    /// Everything.
    pub const ALL: Asks = Asks {
        http2_frames: true,
        http2_headers: true,
        sdp: true,
        mail_bodies: true,
        smb_versions: true,
        ranges: true,
    };
}

impl Default for AppSettings {
    fn default() -> AppSettings {
        AppSettings {
            request_body_limit: 100 << 10,
            response_body_limit: 100 << 10,
            content_codings: 2,
            attachment_limit: 100_000,
            request_body_minimum: 32 << 10,
            response_body_minimum: 40 << 10,
            attachment_minimum: 32 << 10,
            frames: FrameSet::default(),
            reports_frames: false,
            asks: Asks::default(),
            keeps_records: false,
            details: false,
            hashes_files: false,
            store_limit: 0,
            is_inline: false,
            is_asymmetric: false,
        }
    }
}

impl AppSettings {
    /// Returns an empty file.
    pub(crate) fn file(&self, direction: Direction, name: &[u8]) -> File {
        let mut file = File::new(direction, name, self.hashes_files);
        file.keep(self.store_limit);
        file
    }

    /// Returns the settings under overload: half as many bytes of bodies and attachments are inspected.
    pub fn half_as_deep(self) -> AppSettings {
        AppSettings {
            request_body_limit: self.request_body_limit / 2,
            response_body_limit: self.response_body_limit / 2,
            attachment_limit: self.attachment_limit / 2,
            ..self
        }
    }

    /// Returns the settings for mode `ips`: bytes are inspected before they are forwarded, so buffers need no minimum.
    pub fn inline(self) -> AppSettings {
        AppSettings {
            request_body_minimum: 0,
            response_body_minimum: 0,
            attachment_minimum: 0,
            is_inline: true,
            ..self
        }
    }
}
