//! Next hops of routes: sets, and the adjacencies that they consist of.
//!
//! ```text
//! routes ──> set (a group of the FIB) ──> adjacencies (next hops of the FIB) ──> link, neighbour
//!            by the contents of a route's      by interface and gateway
//!            next hops, or a number
//! ```
//!
//! Routes with equal next hops share a set, so that a link or a neighbour that fails is repaired in as many places as
//! there are sets, whatever the number of routes. Sets and adjacencies are counted; unused ones are retired.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use millrace_fib::{Family, GroupId, NextHopId, NextHopKind};

use crate::event::{Hop, Netns, Source};

/// The number of a set.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct SetId(pub(crate) u32);

/// The number of an adjacency.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct AdjacencyId(pub(crate) u32);

/// The next hops of a route, by which equal ones are found.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct SetKey {
    pub(crate) netns: Netns,
    /// The family of the routes, where `via` has hops: the kernel's rules differ. IPv4 for all others.
    pub(crate) family: Family,
    pub(crate) via: Via,
    /// The MTU of the route; 0: that of the link.
    pub(crate) mtu: u16,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Via {
    One(Hop),
    Many(Vec<Hop>),
    Object(Source, u32),
    /// A neighbour on a link that has traffic of its own.
    Host(u32, IpAddr),
    /// An address of this machine, on a link.
    Local(u32),
    /// A blackhole, or a route that answers with an error.
    Discard(NextHopKind),
}

impl Via {
    /// Returns the next hops that the route names itself.
    pub(crate) fn hops(&self) -> &[Hop] {
        match self {
            Via::One(hop) => core::slice::from_ref(hop),
            Via::Many(hops) => hops,
            Via::Object(..) | Via::Host(..) | Via::Local(_) | Via::Discard(_) => &[],
        }
    }
}

#[derive(Debug)]
pub(crate) struct Set {
    pub(crate) key: SetKey,
    /// The number of routes that have the set.
    pub(crate) users: u32,
    pub(crate) group: GroupId,
    pub(crate) members: Vec<(AdjacencyId, u32)>,
    /// The hops of the set that the kernel marked dead (`RTNH_F_DEAD`); as many as the key has.
    pub(crate) dead: Vec<bool>,
}

impl Set {
    /// Returns true if the kernel passes over routes with this set: all next hops are dead.
    pub(crate) fn is_dead(&self) -> bool {
        !self.dead.is_empty() && self.dead.iter().all(|dead| *dead)
    }
}

/// An adjacency: a neighbour on a link, or this machine, or a discard.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum AdjacencyKey {
    Neighbour {
        netns: Netns,
        ifindex: u32,
        /// None: the neighbour is the packet's destination.
        gateway: Option<IpAddr>,
        mtu: u16,
    },
    Local {
        netns: Netns,
        ifindex: u32,
    },
    Discard(NextHopKind),
}

impl AdjacencyKey {
    /// Returns the namespace and the link.
    pub(crate) fn link(&self) -> Option<(Netns, u32)> {
        match self {
            AdjacencyKey::Neighbour { netns, ifindex, .. } | AdjacencyKey::Local { netns, ifindex } => {
                Some((*netns, *ifindex))
            }
            AdjacencyKey::Discard(_) => None,
        }
    }

    fn has_mtu(&self) -> bool {
        matches!(self, AdjacencyKey::Neighbour { mtu: 1.., .. })
    }
}

#[derive(Debug)]
pub(crate) struct Adjacency {
    pub(crate) key: AdjacencyKey,
    pub(crate) next_hop: NextHopId,
    /// The sets that have it; one that has it twice is there twice.
    pub(crate) sets: Vec<SetId>,
    /// The number of `sets` that are those of routes, and not of a host.
    pub(crate) gateway_uses: u32,
    pub(crate) is_live: bool,
}

/// Items by number, whose numbers are used again.
#[derive(Debug)]
struct Slab<T> {
    items: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Slab<T> {
        Slab {
            items: Vec::new(),
            free: Vec::new(),
        }
    }
}

impl<T> Slab<T> {
    fn insert(&mut self, item: T) -> u32 {
        if let Some(at) = self.free.pop() {
            self.items[at as usize] = Some(item);
            return at;
        }
        self.items.push(Some(item));
        self.items.len() as u32 - 1
    }

    fn get(&self, at: u32) -> Option<&T> {
        self.items.get(at as usize)?.as_ref()
    }

    fn get_mut(&mut self, at: u32) -> Option<&mut T> {
        self.items.get_mut(at as usize)?.as_mut()
    }

    fn remove(&mut self, at: u32) -> Option<T> {
        let item = self.items.get_mut(at as usize)?.take()?;
        self.free.push(at);
        Some(item)
    }

    fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        (0..)
            .zip(&self.items)
            .filter_map(|(at, item)| Some((at, item.as_ref()?)))
    }
}

/// All sets and adjacencies, and where to find them.
#[derive(Debug, Default)]
pub(crate) struct HopTable {
    sets: Slab<Set>,
    adjacencies: Slab<Adjacency>,
    set_by_key: HashMap<SetKey, SetId>,
    adjacency_by_key: HashMap<AdjacencyKey, AdjacencyId>,
    by_link: HashMap<(Netns, u32), HashSet<AdjacencyId>>,
    /// The number of adjacencies with an MTU of their own.
    with_mtu: usize,
}

impl HopTable {
    pub(crate) fn find_set(&self, key: &SetKey) -> Option<SetId> {
        self.set_by_key.get(key).copied()
    }

    /// Returns the set of a next-hop object, for routes without an MTU of their own.
    pub(crate) fn find_object_set(&self, netns: Netns, source: Source, id: u32) -> Option<SetId> {
        self.find_set(&SetKey {
            netns,
            family: Family::V4,
            via: Via::Object(source, id),
            mtu: 0,
        })
    }

    pub(crate) fn insert_set(&mut self, set: Set) -> SetId {
        let key = set.key.clone();
        let id = SetId(self.sets.insert(set));
        self.set_by_key.insert(key, id);
        id
    }

    pub(crate) fn set(&self, id: SetId) -> Option<&Set> {
        self.sets.get(id.0)
    }

    pub(crate) fn set_mut(&mut self, id: SetId) -> Option<&mut Set> {
        self.sets.get_mut(id.0)
    }

    pub(crate) fn remove_set(&mut self, id: SetId) -> Option<Set> {
        let set = self.sets.remove(id.0)?;
        self.set_by_key.remove(&set.key);
        Some(set)
    }

    pub(crate) fn sets(&self) -> impl Iterator<Item = (SetId, &Set)> {
        self.sets.iter().map(|(at, set)| (SetId(at), set))
    }

    pub(crate) fn find_adjacency(&self, key: &AdjacencyKey) -> Option<AdjacencyId> {
        self.adjacency_by_key.get(key).copied()
    }

    pub(crate) fn insert_adjacency(&mut self, adjacency: Adjacency) -> AdjacencyId {
        let key = adjacency.key;
        let id = AdjacencyId(self.adjacencies.insert(adjacency));
        self.adjacency_by_key.insert(key, id);
        if let Some(link) = key.link() {
            self.by_link.entry(link).or_default().insert(id);
        }
        self.with_mtu += usize::from(key.has_mtu());
        id
    }

    pub(crate) fn adjacency(&self, id: AdjacencyId) -> Option<&Adjacency> {
        self.adjacencies.get(id.0)
    }

    pub(crate) fn adjacency_mut(&mut self, id: AdjacencyId) -> Option<&mut Adjacency> {
        self.adjacencies.get_mut(id.0)
    }

    pub(crate) fn remove_adjacency(&mut self, id: AdjacencyId) -> Option<Adjacency> {
        let adjacency = self.adjacencies.remove(id.0)?;
        self.adjacency_by_key.remove(&adjacency.key);
        if let Some(link) = adjacency.key.link()
            && let Some(all) = self.by_link.get_mut(&link)
        {
            all.remove(&id);
            if all.is_empty() {
                self.by_link.remove(&link);
            }
        }
        self.with_mtu -= usize::from(adjacency.key.has_mtu());
        Some(adjacency)
    }

    /// Returns the adjacencies on a link.
    pub(crate) fn on_link(&self, netns: Netns, ifindex: u32) -> Vec<AdjacencyId> {
        let all = self.by_link.get(&(netns, ifindex));
        all.map(|all| all.iter().copied().collect()).unwrap_or_default()
    }

    /// Returns the adjacencies of a neighbour on a link: with each MTU.
    pub(crate) fn of_neighbour(&self, netns: Netns, ifindex: u32, address: IpAddr) -> Vec<AdjacencyId> {
        let key = AdjacencyKey::Neighbour {
            netns,
            ifindex,
            gateway: Some(address),
            mtu: 0,
        };
        // Nearly all routes have no MTU of their own.
        if self.with_mtu == 0 {
            return self.find_adjacency(&key).into_iter().collect();
        }
        self.on_link(netns, ifindex)
            .into_iter()
            .filter(|id| {
                self.adjacency(*id).is_some_and(|adjacency| {
                    matches!(adjacency.key, AdjacencyKey::Neighbour { gateway: Some(gateway), .. } if gateway == address)
                })
            })
            .collect()
    }
}
