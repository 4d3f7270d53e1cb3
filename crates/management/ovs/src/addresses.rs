//! The MAC addresses of internal ports, and that of a bridge, from which its datapath ID follows.
//!
//! As in Open vSwitch, a bridge has the address that `other_config:hwaddr` gives, or else the lowest universally administered
//! address of its ports, or else one of its own. The addresses of ports are known when the ports run: a translation begins with
//! those that the switch had ([`Translation::keep_addresses`]), and is corrected by its state
//! ([`Translation::choose_addresses`]).

use millrace_model as model;
use millrace_types::Mac;

use crate::fault::Faults;
use crate::place::{BridgeRow, PortRow, Translation};
use crate::rows::View;
use crate::state::{BridgeState, State};

/// Reads `other_config:hwaddr`.
pub(crate) fn hwaddr(
    view: &View<'_>,
    bridge: &mut model::Bridge,
    faults: &mut Faults,
) -> Option<model::UnicastMac> {
    let text = view.map("other_config").get("hwaddr").copied();
    let given = text.and_then(|text| match text.parse::<model::UnicastMac>() {
        Ok(mac) => Some(mac),
        Err(error) => {
            faults.ignore(
                &view.row_name(),
                format!("other_config:hwaddr={text} has no effect: {error}"),
            );
            None
        }
    });
    bridge.local_mac = given;
    given
}

/// Returns the address of a bridge whose ports have none: that of its name, as its datapath ID.
fn own(bridge: &model::Bridge) -> Option<model::UnicastMac> {
    let mac = Mac::from_u64(bridge.name.derived_dpid().0);
    mac.to_string().parse().ok()
}

/// The addresses of a bridge beside ports that run.
struct Addresses<'a> {
    local: Option<model::UnicastMac>,
    /// Those of ports that are bridges themselves.
    fakes: Vec<(&'a str, Option<model::UnicastMac>)>,
}

impl<'a> Addresses<'a> {
    /// Returns the addresses that follow from those of the ports.
    fn wanted(bridge: &model::Bridge, row: &'a BridgeRow, state: &BridgeState) -> Addresses<'a> {
        let own = own(bridge);
        let local = row.hwaddr.or_else(|| lowest(row, state, |_| true)).or(own);
        let fakes = fake_bridges(row).map(|fake| {
            let mac = lowest(row, state, |other| fake.tag.is_some() && other.tag == fake.tag);
            (fake.name.as_str(), mac.or(own))
        });
        Addresses {
            local,
            fakes: fakes.collect(),
        }
    }

    /// Returns the address of a port; `None` if it is no bridge itself.
    fn of(&self, port: &model::Port) -> Option<Option<model::UnicastMac>> {
        let fake = self.fakes.iter().find(|(name, _)| *name == port.name.as_str());
        fake.map(|(_, mac)| *mac)
    }
}

/// Gives an internal port the address of its row.
pub(crate) fn of_port(interface: &View<'_>, port: &mut model::Port, faults: &mut Faults) {
    let is_internal = interface.text("type") == Some("internal");
    let Some(text) = interface.text("mac") else {
        return;
    };
    let (row, name) = (interface.row_name(), interface.text("name").unwrap_or(""));
    match text.parse() {
        Ok(mac) if is_internal => port.mac = Some(mac),
        Ok(_) => faults.ignore(
            &row,
            format!("mac={text} has no effect on an interface that is not internal: expected `ip link set {name} address {text}`"),
        ),
        Err(error) => {
            let error: model::UnicastMacError = error;
            faults.ignore(&row, format!("mac={text} has no effect: {error}"));
        }
    }
}

impl Translation {
    /// Gives bridges and their VLANs the addresses that they have in a configuration, or their own if it has none, unless a row
    /// gives one.
    pub fn keep_addresses(&mut self, running: &model::Config) {
        let (bridges, rows) = (&mut self.bridges, &self.rows);
        for (bridge, row) in placed(bridges, rows) {
            let before = running.bridge(bridge.name.as_str());
            if row.hwaddr.is_none() {
                let mac = before.and_then(|before| before.local_mac);
                bridge.local_mac = mac.or_else(|| own(bridge));
            }
            let own = own(bridge);
            let is_fake =
                |port: &&mut model::Port| fake_bridges(row).any(|fake| fake.name == port.name.as_str());
            for port in bridge.ports.iter_mut().filter(is_fake) {
                let mac = before.and_then(|before| before.port(port.name.as_str())?.mac);
                port.mac = mac.or(own);
            }
        }
    }

    /// Gives bridges and their VLANs the addresses that follow from the ports that run. Returns true if one is another than
    /// before.
    pub fn choose_addresses(&mut self, state: &State) -> bool {
        let (bridges, rows) = (&mut self.bridges, &self.rows);
        let mut has_changed = false;
        for (bridge, row) in placed(bridges, rows) {
            let Some(state) = state.bridges.get(bridge.name.as_str()) else {
                continue;
            };
            let wanted = Addresses::wanted(bridge, row, state);
            let mut give = |place: &mut Option<model::UnicastMac>, mac: Option<model::UnicastMac>| {
                has_changed |= *place != mac;
                *place = mac;
            };
            give(&mut bridge.local_mac, wanted.local);
            for port in &mut bridge.ports {
                if let Some(mac) = wanted.of(port) {
                    give(&mut port.mac, mac);
                }
            }
        }
        has_changed
    }

    /// Returns true if the ports that run ask for other addresses.
    pub fn wants_other_addresses(&self, state: &State) -> bool {
        let has_moved = |bridge: &model::Bridge| {
            let row = self.rows.iter().find(|row| row.name == bridge.name.as_str());
            let state = state.bridges.get(bridge.name.as_str());
            row.zip(state).is_some_and(|(row, state)| {
                let wanted = Addresses::wanted(bridge, row, state);
                let has_moved = |port: &model::Port| wanted.of(port).is_some_and(|mac| port.mac != mac);
                bridge.local_mac != wanted.local
                    || !wanted.fakes.is_empty() && bridge.ports.iter().any(has_moved)
            })
        };
        self.bridges.iter().any(has_moved)
    }

    /// Gives a bridge whose datapath ID would be that of another one the ID of its name.
    pub(crate) fn distinguish(&mut self, others: &model::Config) {
        let mut taken: Vec<_> = others.bridges.iter().map(model::Bridge::datapath_id).collect();
        taken.extend(self.bridges.iter().filter_map(|bridge| bridge.dpid));
        for bridge in self.bridges.iter_mut().filter(|bridge| bridge.dpid.is_none()) {
            if taken.contains(&bridge.datapath_id()) {
                bridge.dpid = Some(bridge.name.derived_dpid());
            }
            taken.push(bridge.datapath_id());
        }
    }
}

/// Returns the bridges with their rows.
fn placed<'a>(
    bridges: &'a mut [model::Bridge],
    rows: &'a [BridgeRow],
) -> impl Iterator<Item = (&'a mut model::Bridge, &'a BridgeRow)> {
    bridges.iter_mut().filter_map(|bridge| {
        let row = rows.iter().find(|row| row.name == bridge.name.as_str())?;
        Some((bridge, row))
    })
}

/// Returns the ports that are bridges themselves, and whose rows give no address.
fn fake_bridges(row: &BridgeRow) -> impl Iterator<Item = &PortRow> {
    row.ports.iter().filter(|port| {
        let mut interfaces = port.interfaces.iter();
        port.is_fake_bridge
            && interfaces.all(|interface| interface.kind == "internal" && interface.mac.is_none())
    })
}

/// Returns the lowest universally administered address of the ports that are meant, apart from those that are bridges
/// themselves. A port whose row has an address is always meant, as in Open vSwitch.
fn lowest(
    row: &BridgeRow,
    state: &BridgeState,
    is_meant: impl Fn(&PortRow) -> bool,
) -> Option<model::UnicastMac> {
    let of_device = |port: &PortRow| {
        let first = port.interfaces.iter().min_by_key(|interface| &interface.name)?;
        state.ports.get(&first.name)?.mac.parse().ok()
    };
    row.ports
        .iter()
        .filter(|port| port.name != row.name && !port.is_fake_bridge)
        .filter_map(|port| {
            port.mac
                .or_else(|| Some(port).filter(|port| is_meant(port)).and_then(of_device))
        })
        .filter(|mac| mac.get().0[0] & 2 == 0)
        .min()
}
