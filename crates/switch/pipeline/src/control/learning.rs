//! The MAC table of a bridge: learning, ageing, configuration.

use std::sync::Arc;

use millrace_types::{PortNo, Time, Vid};

use super::fdb::FdbConfig;
use super::writer::Control;
use crate::{FdbEntry, FdbKey, Learn, Op};

impl Control {
    /// Learns the port of a new or moved address, which a worker reported by
    /// [`Egress::learn`](crate::Egress::learn).
    pub fn learn(&mut self, learn: Learn, now: Time, ops: &mut Vec<Op>) {
        if self.ports.port(learn.port).is_some() {
            self.fdb.learn(learn, now, ops);
        }
    }

    /// Removes addresses that were idle for the ageing time. Visits at most `budget` entries, from the ageing cursor
    /// on.
    pub fn age_fdb(&mut self, now: Time, budget: usize, ops: &mut Vec<Op>) {
        self.fdb.age(now, budget, ops);
    }

    /// Sets the configuration of the MAC table. Addresses that no longer fit are removed.
    pub fn set_fdb_config(&mut self, config: FdbConfig, ops: &mut Vec<Op>) {
        self.config.fdb = config;
        self.fdb.set_config(config, ops);
    }

    /// Sets a static entry of the MAC table: packets to this address leave by this port, whatever addresses NORMAL learns.
    pub fn set_static_fdb(&mut self, key: FdbKey, port: PortNo, now: Time, ops: &mut Vec<Op>) {
        self.fdb.fix(key, port, now, ops);
    }

    /// Removes a static entry of the MAC table.
    pub fn remove_static_fdb(&mut self, key: FdbKey, ops: &mut Vec<Op>) {
        self.fdb.release(|entry| entry.key == key, ops);
    }

    /// Removes the learned addresses of a VLAN, of a port, or of both; all if neither is given. Static entries stay.
    /// Returns the number of addresses removed.
    pub fn forget_fdb(&mut self, vid: Option<Vid>, port: Option<PortNo>, ops: &mut Vec<Op>) -> usize {
        if vid.is_none() && port.is_none() {
            let len = self.fdb.list.len();
            self.fdb.flush(ops);
            return len;
        }
        let is_selected = |entry: &FdbEntry| {
            vid.is_none_or(|vid| entry.key.vid == vid) && port.is_none_or(|port| entry.port == port)
        };
        self.fdb.forget(is_selected, ops)
    }

    /// Returns all addresses, learned and static, in no order.
    pub fn fdb(&self) -> impl Iterator<Item = &Arc<FdbEntry>> {
        self.fdb.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ControlConfig, Forwarding, Port};
    use millrace_types::Mac;

    struct Bridge {
        control: Control,
        forwarding: Forwarding,
        ops: Vec<Op>,
    }

    impl Bridge {
        fn new(max_entries: u32) -> Bridge {
            let config = ControlConfig {
                fdb: FdbConfig {
                    max_entries,
                    ..FdbConfig::default()
                },
                ..ControlConfig::default()
            };
            let mut control = Control::new(config);
            let mut ops = Vec::new();
            for port in 1..=3 {
                control.set_port(Port::new(PortNo::from_raw(port)), &mut ops);
            }
            let forwarding = control.forwarding();
            Bridge {
                control,
                forwarding,
                ops: Vec::new(),
            }
        }

        fn learn(&mut self, mac: u64, port: u32, at: u64) {
            let learn = Learn {
                vid: Vid::default(),
                mac: Mac::from_u64(mac),
                port: PortNo::from_raw(port),
            };
            self.control.learn(learn, Time::from_secs(at), &mut self.ops);
            self.sync();
        }

        fn sync(&mut self) {
            self.ops.drain(..).for_each(|op| self.forwarding.apply(&op));
            assert_eq!(self.forwarding.fdb_len(), self.control.fdb().count());
            let fdb = &self.control.fdb;
            assert_eq!(fdb.index.len(), fdb.list.len());
            assert!(fdb.list.iter().all(|entry| !entry.is_static));
            assert!((0..fdb.list.len()).all(|at| fdb.position(fdb.list[at].key) == Some(at)));
        }

        fn port_of(&self, mac: u64) -> Option<u32> {
            let key = FdbKey {
                vid: Vid::default(),
                mac: Mac::from_u64(mac),
            };
            self.forwarding.fdb().lookup(key).map(|entry| entry.port.raw())
        }
    }

    #[test]
    fn an_address_that_moves_is_found_at_its_new_port() {
        let mut bridge = Bridge::new(10);
        bridge.learn(2, 1, 0);
        bridge.learn(2, 3, 1);
        assert_eq!(bridge.port_of(2), Some(3));
    }

    #[test]
    fn an_idle_address_is_removed_after_the_ageing_time() {
        let mut bridge = Bridge::new(10);
        bridge.learn(2, 1, 0);
        bridge.learn(4, 1, 200);
        bridge.control.age_fdb(Time::from_secs(299), 10, &mut bridge.ops);
        bridge.sync();
        assert_eq!(bridge.port_of(2), Some(1));
        bridge.control.age_fdb(Time::from_secs(300), 10, &mut bridge.ops);
        bridge.sync();
        assert_eq!((bridge.port_of(2), bridge.port_of(4)), (None, Some(1)));
    }

    #[test]
    fn a_flood_of_addresses_on_one_port_does_not_push_out_those_of_another() {
        let mut bridge = Bridge::new(100);
        for mac in 0..5 {
            bridge.learn(0x1000 + mac * 2, 2, 0);
        }
        for mac in 0..1000 {
            bridge.learn(0x10_0000 + mac * 2, 1, mac);
        }
        assert_eq!(bridge.forwarding.fdb_len(), 100);
        assert!((0..5).all(|mac| bridge.port_of(0x1000 + mac * 2) == Some(2)));
        assert_eq!(bridge.port_of(0x10_0000 + 999 * 2), Some(1));
    }

    #[test]
    fn a_full_table_evicts_idle_addresses_and_not_those_that_it_has_just_learned() {
        let mut bridge = Bridge::new(1000);
        for mac in 0..1000 {
            bridge.learn(0x1000 + mac * 2, 1, 0);
        }
        for mac in 0..500 {
            bridge.learn(0x10_0000 + mac * 2, 1, 1 + mac);
        }
        let known = (0..500).filter(|mac| bridge.port_of(0x10_0000 + mac * 2) == Some(1));
        assert_eq!(known.count(), 500);
    }

    #[test]
    fn addresses_are_forgotten_by_vlan_and_port() {
        let mut bridge = Bridge::new(10);
        let tagged = Vid::new(7).unwrap();
        bridge.learn(2, 1, 0);
        bridge.learn(4, 2, 0);
        for (mac, port) in [(6, 1), (8, 2)] {
            let learn = Learn {
                vid: tagged,
                mac: Mac::from_u64(mac),
                port: PortNo::from_raw(port),
            };
            bridge.control.learn(learn, Time::ZERO, &mut bridge.ops);
        }
        let port = Some(PortNo::from_raw(1));
        assert_eq!(bridge.control.forget_fdb(Some(tagged), port, &mut bridge.ops), 1);
        bridge.sync();
        assert_eq!((bridge.port_of(2), bridge.forwarding.fdb_len()), (Some(1), 3));
        assert_eq!(bridge.control.forget_fdb(None, port, &mut bridge.ops), 1);
        bridge.sync();
        assert_eq!((bridge.port_of(2), bridge.port_of(4)), (None, Some(2)));
        assert_eq!(bridge.control.forget_fdb(None, None, &mut bridge.ops), 2);
        bridge.sync();
        assert_eq!(bridge.forwarding.fdb_len(), 0);
    }

    #[test]
    fn a_static_entry_neither_moves_nor_ages_nor_yields_to_a_flood_and_goes_with_its_port() {
        let mut bridge = Bridge::new(4);
        let key = FdbKey {
            vid: Vid::default(),
            mac: Mac::from_u64(2),
        };
        bridge.learn(2, 1, 0);
        let two = PortNo::from_raw(2);
        bridge
            .control
            .set_static_fdb(key, two, Time::ZERO, &mut bridge.ops);
        bridge.sync();
        bridge.learn(2, 1, 1);
        for mac in 0..100 {
            bridge.learn(0x1000 + mac * 2, 2, mac);
        }
        bridge
            .control
            .age_fdb(Time::from_secs(1_000_000), 100, &mut bridge.ops);
        bridge.control.forget_fdb(None, Some(two), &mut bridge.ops);
        bridge.control.forget_fdb(None, None, &mut bridge.ops);
        bridge.sync();
        assert_eq!((bridge.port_of(2), bridge.forwarding.fdb_len()), (Some(2), 1));
        assert!(bridge.control.forwarding().fdb().lookup(key).unwrap().is_static);
        bridge.control.remove_port(two, &mut bridge.ops);
        bridge.sync();
        assert_eq!(bridge.port_of(2), None);
        bridge
            .control
            .set_static_fdb(key, PortNo::from_raw(1), Time::ZERO, &mut bridge.ops);
        bridge.control.remove_static_fdb(key, &mut bridge.ops);
        bridge.learn(2, 3, 1);
        assert_eq!(bridge.port_of(2), Some(3), "free again");
    }

    #[test]
    fn the_addresses_of_a_removed_port_are_removed() {
        let mut bridge = Bridge::new(10);
        bridge.learn(2, 1, 0);
        bridge.learn(4, 2, 0);
        bridge.control.remove_port(PortNo::from_raw(1), &mut bridge.ops);
        bridge.sync();
        assert_eq!((bridge.port_of(2), bridge.port_of(4)), (None, Some(2)));
        bridge.learn(6, 1, 0);
        assert_eq!(bridge.port_of(6), None, "a removed port has no addresses");
    }
}
