//! The settings of NORMAL that are about the whole bridge.

use millrace_types::Vid;

use crate::VidSet;

/// The settings of NORMAL for all ports.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NormalSettings {
    /// `None` without VLANs.
    flooded: Option<Box<VidSet>>,
    forwards_reserved: bool,
}

impl NormalSettings {
    /// Returns settings with these VLANs that learn no addresses. With `forwards_reserved`, packets to the link-local group
    /// addresses 01:80:c2:00:00:00 to :0f are forwarded.
    pub fn new(flooded: impl IntoIterator<Item = Vid>, forwards_reserved: bool) -> NormalSettings {
        let flooded: VidSet = flooded.into_iter().collect();
        NormalSettings {
            flooded: (flooded != VidSet::EMPTY).then(|| Box::new(flooded)),
            forwards_reserved,
        }
    }

    /// Returns true if packets of the VLAN go to all of its ports, and none is learned from.
    #[inline]
    pub(crate) fn floods(&self, vid: Vid) -> bool {
        self.flooded.as_ref().is_some_and(|set| set.contains(vid))
    }

    /// Returns true if packets to the link-local group addresses are forwarded.
    #[inline]
    pub(crate) fn forwards_reserved(&self) -> bool {
        self.forwards_reserved
    }
}
