//! The header of a frame, its types and its flags.

/// Size of the header of a frame.
pub(super) const HEADER: usize = 9;

/// Types of frames (section 6).
pub(super) mod kind {
    pub(in crate::app::http::http2) const DATA: u8 = 0;
    pub(in crate::app::http::http2) const HEADERS: u8 = 1;
    pub(in crate::app::http::http2) const PRIORITY: u8 = 2;
    pub(in crate::app::http::http2) const RST_STREAM: u8 = 3;
    pub(in crate::app::http::http2) const SETTINGS: u8 = 4;
    pub(in crate::app::http::http2) const PUSH_PROMISE: u8 = 5;
    pub(in crate::app::http::http2) const GOAWAY: u8 = 7;
    pub(in crate::app::http::http2) const WINDOW_UPDATE: u8 = 8;
    pub(in crate::app::http::http2) const CONTINUATION: u8 = 9;
}

/// Flags of frames.
pub(super) mod flag {
    pub(in crate::app::http::http2) const END_STREAM: u8 = 0x01;
    pub(in crate::app::http::http2) const ACK: u8 = 0x01;
    pub(in crate::app::http::http2) const END_HEADERS: u8 = 0x04;
    pub(in crate::app::http::http2) const PADDED: u8 = 0x08;
    pub(in crate::app::http::http2) const PRIORITY: u8 = 0x20;
}

/// The header of a frame.
#[derive(Debug, Clone, Copy)]
pub(super) struct Frame {
    pub(super) size: usize,
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) stream: u32,
}

impl Frame {
    #[inline]
    pub(super) fn read(bytes: &[u8; HEADER]) -> Frame {
        let [a, b, c, kind, flags, stream @ ..] = *bytes;
        Frame {
            size: usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c),
            kind,
            flags,
            // The highest bit is reserved.
            stream: u32::from_be_bytes(stream) & 0x7fff_ffff,
        }
    }

    #[inline]
    pub(super) fn has(self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}
