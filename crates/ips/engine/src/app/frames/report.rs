//! Frames as events: the view of a frame that has ended, and its first bytes.

use super::FrameView;
use crate::app::heap::heap;
use crate::app::{AppProtocol, Transaction};

/// Largest number of bytes of a frame in its event, the default of Suricata's `payload-buffer-size`.
const PAYLOAD: usize = 4 << 10;

/// A frame that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FrameReport {
    pub view: FrameView,
    /// The protocol.
    pub app: AppProtocol,
    /// The first bytes of the frame, at most 4 KiB.
    pub payload: Vec<u8>,
}

heap!(FrameReport { payload });

/// Adds a frame that has ended, if frames become events. One that is not complete has lost bytes, or ends with its direction.
pub(super) fn add(reports: &mut Option<Vec<FrameReport>>, frame: &Transaction, app: AppProtocol) {
    if let (Some(reports), Some(view)) = (reports, frame.frame) {
        let bytes = frame.bytes(0);
        reports.push(FrameReport {
            view,
            app,
            payload: bytes[..bytes.len().min(PAYLOAD)].to_vec(),
        });
    }
}
