//! Actions: requests of the RIB to the kernel.

use std::net::IpAddr;

use crate::event::{Dump, Netns};

/// A request to the kernel of a namespace. The RIB needs no answer other than the events that follow.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Action {
    /// Sets or clears `NTF_EXT_MANAGED` of a neighbour: the kernel asks for a managed neighbour before it ages. A
    /// neighbour that does not exist is made, in state none.
    Manage {
        netns: Netns,
        ifindex: u32,
        address: IpAddr,
        managed: bool,
    },
    /// Asks for a neighbour now (`NTF_USE`).
    Probe {
        netns: Netns,
        ifindex: u32,
        address: IpAddr,
    },
    /// Asks for a dump. Its answer comes between `DumpBegins` and `DumpEnds`. A producer that is about to send the same
    /// request already may answer both with one dump that begins after the second.
    Dump { netns: Netns, dump: Dump },
}
