//! The state of one slot.
//!
//! ```text
//!   Free --install--> Installing --installed--> Installed --remove--> Removing --removed--> Free, with the next tag
//!                         |                                              |
//!                      refused: Free                                  leaked: Leaked, for ever
//! ```
//! A free slot leaks if its entry outlives a reset. A slot that was removed is used again only after the device's answer, which comes after a fence has passed all queues.

use millrace_flow::FlowKey;
use millrace_types::Time;

#[derive(Clone, Debug)]
pub(crate) enum SlotState {
    Free,
    Installing(FlowKey),
    Installed(Flow),
    Removing,
    Leaked,
}

/// A flow that has a slot.
#[derive(Clone, Debug)]
pub(crate) struct Flow {
    pub(crate) key: FlowKey,
    pub(crate) since: Time,
    /// Packets per second, smoothed over about two seconds.
    pub(crate) rate: f64,
    /// The counter of the slot at the last window.
    pub(crate) counted: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct Slot {
    pub(crate) state: SlotState,
    /// The tag of the next or current mark, 1 at least.
    pub(crate) tag: u32,
}

impl Slot {
    pub(crate) const FREE: Slot = Slot {
        state: SlotState::Free,
        tag: 1,
    };

    /// Frees the slot. Its next mark has another tag, so that no mark of the past names it.
    pub(crate) fn free(&mut self, tag_max: u32) {
        self.state = SlotState::Free;
        self.tag = if self.tag >= tag_max { 1 } else { self.tag + 1 };
    }
}
