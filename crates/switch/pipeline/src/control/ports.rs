//! Ports: addition, removal, configuration and state.

use std::sync::Arc;

use millrace_types::PortNo;

use super::error::PortModError;
use super::journal::Undo;
use super::writer::Control;
use crate::{Op, Port, PortConfig, PortState};

/// The bits of `OFPPC_*` that a port_mod may change.
const CONFIG_BITS: u32 = PortConfig::DOWN.0
    | PortConfig::NO_RECV.0
    | PortConfig::NO_FLOOD.0
    | PortConfig::NO_FWD.0
    | PortConfig::NO_PACKET_IN.0;

impl Control {
    /// Adds a port, or replaces its configuration and state. MAC addresses learned from the port are removed
    /// when its link goes down and when its VLANs change. A port_mod changes neither link nor VLANs, so that
    /// a rollback need not restore addresses.
    pub fn set_port(&mut self, port: Port, ops: &mut Vec<Op>) {
        let before = self.ports.port(port.number);
        if before == Some(&port) {
            return;
        }
        let is_down = |port: &Port| port.state.has(PortState::LINK_DOWN);
        let forgets =
            before.is_some_and(|before| before.vlan != port.vlan || is_down(&port) && !is_down(before));
        if forgets {
            self.fdb.forget(|entry| entry.port == port.number, ops);
        }
        ops.push(Op::Port(Arc::new(port.clone())));
        self.ports.insert(port);
    }

    /// Removes a port, and the MAC addresses learned from it. Flow entries that output to the port stay;
    /// these outputs drop packets.
    pub fn remove_port(&mut self, number: PortNo, ops: &mut Vec<Op>) {
        if self.ports.remove(number).is_some() {
            ops.push(Op::RemovePort(number));
            self.fdb.forget(|entry| entry.port == number, ops);
            self.fdb.release(|entry| entry.port == number, ops);
        }
    }

    /// Returns a port.
    pub fn port(&self, number: PortNo) -> Option<&Port> {
        self.ports.port(number)
    }

    /// Returns all ports, ordered by number.
    pub fn ports(&self) -> impl Iterator<Item = &Port> {
        self.ports.iter()
    }

    /// Executes a port_mod (OpenFlow 1.3.5, section 7.3.4.3): the bits in `mask` become those of `config`. Returns the
    /// changed port.
    ///
    /// # Errors
    /// [`PortModError`]; nothing has changed.
    pub fn port_mod(
        &mut self,
        number: PortNo,
        config: PortConfig,
        mask: PortConfig,
        ops: &mut Vec<Op>,
    ) -> Result<&Port, PortModError> {
        let unknown = (config.0 | mask.0) & !CONFIG_BITS;
        if unknown != 0 {
            return Err(PortModError::BadConfig { config: unknown });
        }
        self.change_port(number, ops, |port| {
            port.config = PortConfig(port.config.0 & !mask.0 | config.0 & mask.0);
        })
    }

    /// Sets the state of a port that its device reports. Learned MAC addresses are removed as in
    /// [`Self::set_port`].
    ///
    /// # Errors
    /// [`PortModError::NoSuchPort`].
    pub fn set_port_state(
        &mut self,
        number: PortNo,
        state: PortState,
        ops: &mut Vec<Op>,
    ) -> Result<&Port, PortModError> {
        self.change_port(number, ops, |port| port.state = state)
    }

    fn change_port(
        &mut self,
        number: PortNo,
        ops: &mut Vec<Op>,
        change: impl FnOnce(&mut Port),
    ) -> Result<&Port, PortModError> {
        let missing = PortModError::NoSuchPort { port: number };
        let mut port = self.ports.port(number).ok_or(missing)?.clone();
        self.record_undo(|| Undo::Port(Box::new(port.clone())));
        change(&mut port);
        self.set_port(port, ops);
        self.ports.port(number).ok_or(missing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ControlConfig, ErrorCode};

    #[test]
    fn a_port_mod_changes_the_masked_bits_and_tells_readers_once() {
        let mut control = Control::new(ControlConfig::default());
        let mut ops = Vec::new();
        let one = PortNo::from_raw(1);
        control.set_port(Port::new(one), &mut ops);
        ops.clear();
        let both = PortConfig::DOWN | PortConfig::NO_FWD;
        let port = control.port_mod(one, both, PortConfig::DOWN, &mut ops).unwrap();
        assert_eq!(port.config, PortConfig::DOWN);
        control.port_mod(one, both, PortConfig::DOWN, &mut ops).unwrap();
        assert_eq!(ops.len(), 1);
    }

    #[test]
    fn a_bad_port_mod_has_its_error_and_changes_nothing() {
        let mut control = Control::new(ControlConfig::default());
        let mut ops = Vec::new();
        let one = PortNo::from_raw(1);
        let down = PortConfig::DOWN;
        let missing = control.port_mod(one, down, down, &mut ops).unwrap_err();
        assert_eq!(missing.code(), ErrorCode::OFPPMFC_BAD_PORT);
        control.set_port(Port::new(one), &mut ops);
        let unknown = control
            .port_mod(one, PortConfig(1 << 20), down, &mut ops)
            .unwrap_err();
        assert_eq!(unknown.code(), ErrorCode::OFPPMFC_BAD_CONFIG);
        assert_eq!(control.port(one).unwrap().config, PortConfig::default());
    }
}
