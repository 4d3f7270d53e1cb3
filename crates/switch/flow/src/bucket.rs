//! Buckets of groups: lists of actions, and the conditions for their use.

use millrace_types::{GroupId, PortNo};

use crate::Action;

/// A bucket of a group (`ofp_bucket`; OpenFlow 1.3.5, section 7.3.4.2).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Bucket {
    /// The bucket's share of the packets of a select group, relative to the weights of the other buckets. A
    /// bucket of weight zero gets no packets. The weight is zero in other group types.
    pub weight: u16,
    /// The port that must be live for the bucket to be live; [`PortNo::ANY`] for none.
    pub watch_port: PortNo,
    /// The group that must be live for the bucket to be live; [`GroupId::ANY`] for none. If there is a port as well,
    /// one of the two is enough.
    pub watch_group: GroupId,
    /// The action set, in any order.
    pub actions: Box<[Action]>,
}

impl Bucket {
    /// Returns a bucket with these actions that watches no port and no group.
    pub fn new(actions: impl Into<Box<[Action]>>) -> Bucket {
        Bucket {
            weight: 0,
            watch_port: PortNo::ANY,
            watch_group: GroupId::ANY,
            actions: actions.into(),
        }
    }

    /// Returns true if the bucket watches a port or a group. Other buckets are always live.
    pub fn watches(&self) -> bool {
        self.watch_port != PortNo::ANY || self.watch_group != GroupId::ANY
    }
}
