//! Ends of dumps and replays: objects that were not named are gone. Namespaces that are gone.

use std::collections::HashSet;
use std::net::IpAddr;

use millrace_types::Time;

use crate::event::{Address, Dump, Netns, Source};
use crate::rib::Rib;
use crate::routes::Origin;

impl Rib {
    pub(crate) fn dump_ended(&mut self, netns: Netns, dump: Dump, now: Time) {
        let Some(namespace) = self.namespaces.get_mut(&netns) else {
            return;
        };
        let Some(at) = namespace.dumps.iter().position(|state| state.dump == dump) else {
            return;
        };
        let generation = namespace.dumps.remove(at).generation;
        namespace.read.insert(dump);
        match dump {
            Dump::Links => {
                let stale = namespace
                    .links
                    .values()
                    .filter(|record| record.generation != generation);
                let gone: Vec<u32> = stale.map(|record| record.link.ifindex).collect();
                self.counts.swept += gone.len() as u64;
                for ifindex in gone {
                    self.link_gone(netns, ifindex, now);
                }
            }
            Dump::Addresses => {
                let named = namespace.named_addresses.take().unwrap_or_default();
                let all = namespace.links.values().flat_map(|record| &record.addresses);
                let gone: Vec<Address> = all.filter(|address| !named.contains(*address)).copied().collect();
                self.counts.swept += gone.len() as u64;
                for address in gone {
                    self.address_gone(netns, address, now);
                }
            }
            Dump::Neighbours => {
                let stale = namespace
                    .neighbours
                    .iter()
                    .filter(|(_, record)| record.generation != generation);
                let gone: Vec<(u32, IpAddr)> = stale.map(|(key, _)| *key).collect();
                self.counts.swept += gone.len() as u64;
                for (ifindex, address) in gone {
                    self.neighbour_gone(netns, ifindex, address);
                }
            }
            Dump::NextHops => self.sweep_objects(netns, Source::Kernel, generation),
            Dump::Routes(family) => {
                let swept = self.remove_all(netns, |prefix, record| {
                    prefix.family() == family
                        && record.origin.source() == Source::Kernel
                        && record.generation != generation
                });
                self.counts.swept += swept as u64;
            }
        }
    }

    fn sweep_objects(&mut self, netns: Netns, source: Source, generation: u8) {
        let Some(namespace) = self.namespaces.get(&netns) else {
            return;
        };
        let stale = |record: &crate::namespace::ObjectRecord| record.generation != generation;
        let gone: Vec<u32> = namespace
            .objects
            .iter()
            .filter(|(key, record)| key.0 == source && stale(record))
            .map(|(key, _)| key.1)
            .collect();
        self.counts.swept += gone.len() as u64;
        self.objects_gone(netns, source, gone);
    }

    /// Ends the replay of an FPM connection.
    pub(crate) fn replay_ended(&mut self, netns: Netns) {
        let Some(namespace) = self.namespaces.get_mut(&netns) else {
            return;
        };
        namespace.replay = None;
        let generation = namespace.fpm_generation;
        let swept = self.remove_all(netns, |_, record| {
            record.origin == Origin::Fpm && record.generation != generation
        });
        self.counts.swept += swept as u64;
        self.sweep_objects(netns, Source::Fpm, generation);
    }

    /// Empties the FIBs of a namespace that has gone.
    pub(crate) fn empty(&mut self, netns: Netns) {
        self.remove_all(netns, |_, _| true);
        for at in self.vrfs_of(netns) {
            let hosts: Vec<(IpAddr, u32)> = self
                .vrf(at)
                .map(|vrf| vrf.hosts.keys().copied().collect())
                .unwrap_or_default();
            for (address, ifindex) in hosts {
                self.remove_host(crate::rib::VrfId(at as u32), ifindex, address);
            }
        }
        let Some(namespace) = self.namespaces.get_mut(&netns) else {
            return;
        };
        let links: HashSet<u32> = namespace.links.keys().copied().collect();
        namespace.links.clear();
        namespace.macvlans.clear();
        namespace.neighbours.clear();
        namespace.objects.clear();
        namespace.groups_of.clear();
        for ifindex in links {
            self.refresh_link(netns, ifindex);
        }
    }
}
