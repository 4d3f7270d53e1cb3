//! Changes of a running bridge by an operator without a controller: flow_mods, and resets of counters.
//!
//! Flow entries that an operator adds are, like those of controllers, state of the running switch and not
//! configuration. Controllers see them in statistics and monitors, and may change or remove them. They stay when
//! controllers connect and disconnect. A restart of the daemon keeps them if `system.keep_flows` is true.

use millrace_datapath::PortStats;
use millrace_datapath::io::{Backend, DeviceStats};
use millrace_pipeline::{FdbKey, FlowFilter, FlowMod, FlowModError, ModOutcome};
use millrace_types::{PortNo, Vid};

use super::bridge::{Baseline, BridgeControl};

/// The refused flow_mod of a list.
#[derive(Debug)]
pub struct RefusedFlowMod {
    /// Index in the list.
    pub index: usize,
    pub error: FlowModError,
}

impl<B: Backend> BridgeControl<B> {
    /// Applies flow_mods in order, all or none, as an atomic bundle does. When this returns, every worker uses them, as
    /// after a barrier, and flow updates and flow_removed messages are queued.
    ///
    /// # Errors
    /// [`RefusedFlowMod`] for the first refused flow_mod; nothing has changed.
    pub fn flow_mods(&mut self, mods: Vec<FlowMod>) -> Result<ModOutcome, RefusedFlowMod> {
        let refused = |index| move |error| RefusedFlowMod { index, error };
        let prepared = mods.into_iter().enumerate();
        let mut prepared = prepared
            .map(|(index, flow_mod)| self.tables.prepare(flow_mod).map_err(refused(index)))
            .collect::<Result<Vec<_>, _>>()?;
        let now = self.datapath.now();
        self.tables.reserve(prepared.iter(), &mut self.ops);
        self.tables.begin(&self.ops);
        let mut sum = ModOutcome::default();
        for (index, prepared) in prepared.iter_mut().enumerate() {
            match self.tables.apply(prepared, now, &mut self.ops) {
                Ok(outcome) => {
                    sum.added += outcome.added;
                    sum.modified += outcome.modified;
                    sum.removed += outcome.removed;
                }
                Err(error) => {
                    self.tables.roll_back(&mut self.ops);
                    return Err(RefusedFlowMod { index, error });
                }
            }
        }
        self.tables.commit();
        self.publish();
        Ok(sum)
    }

    /// Resets the counters of the selected flow entries to zero. Returns the number of these entries.
    ///
    /// # Errors
    /// [`FlowModError`]; nothing has changed.
    pub fn reset_flow_counters(&mut self, filter: &FlowFilter) -> Result<usize, FlowModError> {
        let reset = self.tables.reset_counts(filter, &mut self.ops)?;
        self.publish();
        Ok(reset)
    }

    /// Forgets the MAC addresses of a VLAN, of a port, or of both; all if neither is given. Returns their number.
    pub fn flush_fdb(&mut self, vlan: Option<Vid>, port: Option<PortNo>) -> usize {
        let removed = self.tables.forget_fdb(vlan, port, &mut self.ops);
        self.publish();
        removed
    }

    /// Adds a MAC address that is not learned, and stays. Returns false if it is an address of the router.
    pub fn add_static_mac(&mut self, key: FdbKey, port: PortNo) -> bool {
        if self.is_of_router(key) {
            return false;
        }
        let now = self.datapath.now();
        self.tables.set_static_fdb(key, port, now, &mut self.ops);
        self.publish();
        true
    }

    /// Removes a MAC address that was added. Returns false if there is none, apart from those of the router.
    pub fn remove_static_mac(&mut self, key: FdbKey) -> bool {
        let is_there = self.tables.fdb().any(|entry| entry.key == key && entry.is_static);
        if !is_there || self.is_of_router(key) {
            return false;
        }
        self.tables.remove_static_fdb(key, &mut self.ops);
        self.publish();
        true
    }

    fn is_of_router(&self, key: FdbKey) -> bool {
        self.router
            .as_ref()
            .is_some_and(|held| held.interfaces.addresses.contains(&key))
    }

    /// Resets the counters of a port, or of all ports, to zero for all readers. Returns the number of these ports.
    pub fn reset_port_counters(&mut self, port: Option<PortNo>) -> usize {
        let selected = self.ports.keys().copied();
        let selected: Vec<PortNo> = selected
            .filter(|number| port.is_none_or(|port| port == *number))
            .collect();
        for number in &selected {
            let baseline = Baseline {
                port: self.counted(*number),
                device: self.datapath.device_stats(*number).unwrap_or_default(),
            };
            self.baselines.insert(*number, baseline);
        }
        selected.len()
    }

    /// Returns the counters of a port since it was opened, or since their latest reset.
    pub fn port_stats(&self, number: PortNo) -> PortStats {
        let now = self.counted(number);
        let Some(Baseline { port: zero, .. }) = self.baselines.get(&number) else {
            return now;
        };
        PortStats {
            rx_packets: now.rx_packets.saturating_sub(zero.rx_packets),
            rx_bytes: now.rx_bytes.saturating_sub(zero.rx_bytes),
            tx_packets: now.tx_packets.saturating_sub(zero.tx_packets),
            tx_bytes: now.tx_bytes.saturating_sub(zero.tx_bytes),
            tx_dropped: now.tx_dropped.saturating_sub(zero.tx_dropped),
        }
    }

    /// Returns the device counters of a port since it was opened, or since their latest reset; zeros for a port without a
    /// device.
    pub fn device_stats(&self, number: PortNo) -> DeviceStats {
        let now = self.datapath.device_stats(number).unwrap_or_default();
        let Some(Baseline { device: zero, .. }) = self.baselines.get(&number) else {
            return now;
        };
        DeviceStats {
            rx_missed: now.rx_missed.saturating_sub(zero.rx_missed),
            rx_errors: now.rx_errors.saturating_sub(zero.rx_errors),
            rx_no_buffer: now.rx_no_buffer.saturating_sub(zero.rx_no_buffer),
            tx_errors: now.tx_errors.saturating_sub(zero.tx_errors),
        }
    }
}
