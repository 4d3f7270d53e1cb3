//! A bucket of a group: a list of actions, and when it is to be used.

use millrace_types::{GroupId, PortNo};

use crate::Action;

/// One way that packets of a group can go (`ofp_bucket`, section 7.3.4.2).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Bucket {
    /// Share of a select group, relative to the other buckets; zero gets nothing. Zero in other groups.
    pub weight: u16,
    /// The bucket is live while this port is; [`PortNo::ANY`] for none.
    pub watch_port: PortNo,
    /// The bucket is live while this group is; [`GroupId::ANY`] for none. With a port, either is enough.
    pub watch_group: GroupId,
    /// An action set, in any order.
    pub actions: Box<[Action]>,
}

impl Bucket {
    /// A bucket with these actions that watches nothing.
    pub fn new(actions: impl Into<Box<[Action]>>) -> Bucket {
        Bucket {
            weight: 0,
            watch_port: PortNo::ANY,
            watch_group: GroupId::ANY,
            actions: actions.into(),
        }
    }

    /// Whether its liveness depends on something. A bucket that watches nothing is always live.
    pub fn watches(&self) -> bool {
        self.watch_port != PortNo::ANY || self.watch_group != GroupId::ANY
    }
}
