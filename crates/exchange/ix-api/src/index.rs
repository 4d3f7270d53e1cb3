//! An index of the ends of services and connections, and of the addresses of ends. The index of a snapshot is
//! the previous index, updated with the objects that differ. A complete new index after each order would cost
//! more than all requests.

use millrace_ix_model::{ConfigId, ConnectionId, Exchange, IpId, MacId, Numbered, PersistentMap, ServiceId};

/// The objects that belong to an object, in the order of their identifiers.
#[derive(Debug, Clone, Default)]
pub(crate) struct Index {
    /// The ends of each service.
    pub(crate) by_service: PersistentMap<ServiceId, Vec<ConfigId>>,
    /// The ends of each connection.
    pub(crate) by_connection: PersistentMap<ConnectionId, Vec<ConfigId>>,
    /// The MAC addresses of each end.
    pub(crate) macs: PersistentMap<ConfigId, Vec<MacId>>,
    /// The IP addresses of each end.
    pub(crate) ips: PersistentMap<ConfigId, Vec<IpId>>,
}

impl Index {
    /// Returns a new index of an exchange.
    pub(crate) fn of(exchange: &Exchange) -> Index {
        Index::default().updated(&Exchange::default(), exchange)
    }

    /// Returns the index of `new`, if `self` is the index of `old`.
    pub(crate) fn updated(&self, old: &Exchange, new: &Exchange) -> Index {
        let mut index = self.clone();
        renew(&mut index.by_service, &old.configs, &new.configs, |end| {
            end.service
        });
        renew(&mut index.by_connection, &old.configs, &new.configs, |end| {
            end.connection
        });
        renew(&mut index.macs, &old.macs, &new.macs, |mac| mac.config);
        renew(&mut index.ips, &old.ips, &new.ips, |ip| ip.config);
        index
    }
}

/// Updates the list of each owner with the objects that differ between `old` and `new`.
fn renew<Owner: Numbered, Id: Numbered, Object: PartialEq>(
    lists: &mut PersistentMap<Owner, Vec<Id>>,
    old: &PersistentMap<Id, Object>,
    new: &PersistentMap<Id, Object>,
    owner: impl Fn(&Object) -> Owner,
) {
    for id in old.differing(new) {
        let (before, after) = (old.get(&id).map(&owner), new.get(&id).map(&owner));
        if before == after {
            continue;
        }
        if let Some(owner) = before
            && let Some(list) = lists.get_mut(&owner)
        {
            list.retain(|other| *other != id);
            if list.is_empty() {
                lists.remove(&owner);
            }
        }
        let Some(owner) = after else { continue };
        match lists.get_mut(&owner) {
            Some(list) => {
                let at = list.partition_point(|other| *other < id);
                list.insert(at, id);
            }
            None => {
                lists.insert(owner, vec![id]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_follow_objects_that_come_move_and_go() {
        let mut old = PersistentMap::<MacId, ConfigId>::new();
        let mut lists = PersistentMap::new();
        let mut seed = 7_u32;
        for _ in 0..500 {
            let mut new = old.clone();
            for _ in 0..3 {
                seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let (id, owner) = (MacId(seed >> 16 & 63), ConfigId(seed >> 24 & 7));
                match seed >> 8 & 3 {
                    0 => drop(new.remove(&id)),
                    _ => drop(new.insert(id, owner)),
                }
            }
            renew(&mut lists, &old, &new, |owner| *owner);
            let mut anew = PersistentMap::<ConfigId, Vec<MacId>>::new();
            renew(&mut anew, &PersistentMap::new(), &new, |owner| *owner);
            assert_eq!(lists, anew);
            assert_eq!(lists.values().map(Vec::len).sum::<usize>(), new.len());
            assert!(lists.values().all(|list| list.is_sorted()));
            old = new;
        }
    }
}
