//! The interfaces that a client of DCE/RPC proposed for a context.
//!
//! ```text
//!  context ─▶ newest ─▶ earlier ─▶ earliest
//!               ▲          ▲
//!             call       call            each call keeps those that were proposed before it
//! ```
//!
//! A client may propose a thousand interfaces for one context and then send small calls, so calls share the list.

use std::sync::Arc;

use crate::app::heap::Heap;

/// An interface: its UUID as text, and its major and minor version.
pub(crate) type Interface = (Vec<u8>, [u16; 2]);

/// Interfaces, newest first. A clone shares them, and does not see those that are added later.
#[derive(Clone, Default)]
pub struct Interfaces {
    newest: Option<Arc<Node>>,
}

struct Node {
    interface: Interface,
    earlier: Interfaces,
}

impl Interfaces {
    /// Largest number of interfaces of a call in an EVE record.
    pub const RECORDED: usize = 16;

    /// Adds an interface.
    pub fn add(&mut self, interface: Interface) {
        let earlier = core::mem::take(self);
        self.newest = Some(Arc::new(Node { interface, earlier }));
    }

    /// Returns the interfaces, newest first.
    pub fn iter(&self) -> impl Iterator<Item = &Interface> {
        let nodes = core::iter::successors(self.newest.as_deref(), |node| node.earlier.newest.as_deref());
        nodes.map(|node| &node.interface)
    }
}

impl Extend<Interface> for Interfaces {
    fn extend<T: IntoIterator<Item = Interface>>(&mut self, interfaces: T) {
        for interface in interfaces {
            self.add(interface);
        }
    }
}

impl FromIterator<Interface> for Interfaces {
    fn from_iter<T: IntoIterator<Item = Interface>>(interfaces: T) -> Interfaces {
        let mut all = Interfaces::default();
        all.extend(interfaces);
        all
    }
}

impl PartialEq for Interfaces {
    fn eq(&self, other: &Interfaces) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for Interfaces {}

impl core::fmt::Debug for Interfaces {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl Heap for Interfaces {
    fn heap(&self) -> usize {
        self.iter()
            .map(|interface| size_of::<Node>() + interface.0.capacity())
            .sum()
    }
}
