//! A pool of packet buffers for each NUMA node that has devices. A NIC then writes packets into memory of its
//! own node; otherwise all of them would cross the link between the sockets.

use std::collections::BTreeMap;

use parking_lot::Mutex;

/// The pools, by node.
pub(super) struct NumaPools<P> {
    /// The pool for devices without a node, and on machines with one node.
    default_pool: P,
    /// True if the machine has several nodes.
    are_several: bool,
    others: Mutex<BTreeMap<u16, P>>,
}

impl<P: Copy> NumaPools<P> {
    /// Returns the pools of a machine. `default_pool` is an existing pool, and `online` the kernel's list of the
    /// machine's nodes (`0`, `0-1`).
    pub(super) fn new(default_pool: P, online: &str) -> NumaPools<P> {
        NumaPools {
            default_pool,
            are_several: online.trim().contains(['-', ',']),
            others: Mutex::default(),
        }
    }

    /// Returns the pools of this machine.
    pub(super) fn of_this_machine(default_pool: P) -> NumaPools<P> {
        let online = std::fs::read_to_string("/sys/devices/system/node/online");
        NumaPools::new(default_pool, &online.unwrap_or_default())
    }

    pub(super) fn default_pool(&self) -> P {
        self.default_pool
    }

    /// Returns the pool of a node, and creates it at the first use. If EAL has no memory on this node, the
    /// buffers come from another node: that is slower, but better than no port.
    pub(super) fn pool_of_node<E: core::fmt::Display>(
        &self,
        node: Option<u16>,
        make: impl FnOnce(u16) -> Result<P, E>,
    ) -> P {
        let Some(node) = node.filter(|_| self.are_several) else {
            return self.default_pool;
        };
        let mut others = self.others.lock();
        *others.entry(node).or_insert_with(|| {
            make(node).unwrap_or_else(|error| {
                tracing::warn!(node, %error, "no packet buffers on this NUMA node: those of another node are used; reserve hugepages on this one");
                self.default_pool
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn make(node: u16) -> Result<u32, String> {
        Ok(100 + u32::from(node))
    }

    #[test]
    fn a_machine_with_one_node_has_one_pool() {
        let nodes = NumaPools::new(1, "0\n");
        assert_eq!(nodes.pool_of_node(Some(0), make), 1);
        assert_eq!(nodes.pool_of_node(None, make), 1);
    }

    #[test]
    fn each_node_has_a_pool_which_is_made_once() {
        let nodes = NumaPools::new(1, "0-1\n");
        assert_eq!(
            [Some(0), Some(1), None].map(|node| nodes.pool_of_node(node, make)),
            [100, 101, 1]
        );
        assert_eq!(nodes.pool_of_node(Some(1), |_| Err::<u32, _>("made twice")), 101);
    }

    #[test]
    fn a_node_without_memory_borrows() {
        let nodes = NumaPools::new(1, "0,2");
        assert_eq!(nodes.pool_of_node(Some(2), |_| Err::<u32, _>("no memory")), 1);
    }
}
