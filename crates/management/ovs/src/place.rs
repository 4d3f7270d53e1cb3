//! The place of every row in the configuration, and the rows that are taken out of it.

use millrace_model as model;
use millrace_ovsdb::Uuid;
use millrace_types::PortNo;

use crate::fault::{Fault, RowName, Severity};
use crate::rows::View;

/// A bridge of the database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BridgeRow {
    pub uuid: Uuid,
    pub name: String,
    /// The reason why the bridge does not exist in the switch.
    pub error: Option<String>,
    pub ports: Vec<PortRow>,
    pub controllers: Vec<ControllerRow>,
    /// True if the columns of its spanning tree are those of STP: of `stp_enable` without `rstp_enable`.
    pub has_stp: bool,
    /// The MAC address that `other_config:hwaddr` gives to the LOCAL port; without it, the ports decide.
    pub hwaddr: Option<model::UnicastMac>,
    pub mirrors: Vec<MirrorRow>,
}

/// A port of the database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortRow {
    pub uuid: Uuid,
    pub name: String,
    /// True if the port has several interfaces, which are the members of a LAG with the name of the port.
    pub is_bond: bool,
    /// True if the column `lacp` asks for LACP.
    pub has_lacp: bool,
    /// The column `tag`.
    pub tag: Option<i64>,
    /// The column `fake_bridge`: the port is the LOCAL port of a bridge that is a VLAN of this one.
    pub is_fake_bridge: bool,
    /// The column `mac`, which counts as that of the interface when a bridge chooses its address.
    pub mac: Option<model::UnicastMac>,
    pub interfaces: Vec<InterfaceRow>,
}

/// An interface of the database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InterfaceRow {
    pub uuid: Uuid,
    pub name: String,
    /// The column `type`, with `system` for an empty one.
    pub kind: String,
    /// The column `mac`.
    pub mac: Option<String>,
    /// The number of its port in the switch; of an interface of a bond, that of the bond.
    pub number: Option<PortNo>,
    /// The column `error`: the reason why the interface is no port of the switch, or why its port goes nowhere.
    pub error: Option<String>,
}

impl PortRow {
    /// Returns the row of a port.
    pub(crate) fn of(view: &View<'_>, is_bond: bool, interfaces: Vec<InterfaceRow>) -> PortRow {
        PortRow {
            uuid: view.uuid,
            name: view.text("name").unwrap_or("").to_owned(),
            is_bond,
            has_lacp: view.text("lacp").is_some_and(|lacp| lacp != "off"),
            tag: view.integer("tag"),
            is_fake_bridge: view.is_true("fake_bridge"),
            mac: view.text("mac").and_then(|text| text.parse().ok()),
            interfaces,
        }
    }
}

impl InterfaceRow {
    /// Returns the row of an interface that is no port yet.
    pub(crate) fn of(view: &View<'_>) -> InterfaceRow {
        InterfaceRow {
            uuid: view.uuid,
            name: view.text("name").unwrap_or("").to_owned(),
            kind: view.text("type").unwrap_or("system").to_owned(),
            mac: view.text("mac").map(str::to_owned),
            number: None,
            error: None,
        }
    }
}

/// A controller of the database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControllerRow {
    pub uuid: Uuid,
    /// The target, as the model prints it; the column if it has none in the model.
    pub target: String,
    /// The reason why the bridge does not connect.
    pub error: Option<String>,
}

/// A mirror of the database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MirrorRow {
    pub uuid: Uuid,
    /// The column `name`.
    pub name: String,
    /// The name of the mirror in the switch; `None` if the row is not in effect.
    pub model_name: Option<String>,
}

/// The rows of a database as a configuration.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Translation {
    /// The row of table `Open_vSwitch`; `None` if the database is not initialised.
    pub root: Option<Uuid>,
    /// The number that every change of a client raises.
    pub next_cfg: i64,
    /// The interval of statistics, in milliseconds.
    pub statistics_interval_ms: u64,
    /// True if the column of `Open_vSwitch` is empty, so that the switch writes it.
    pub lacks_version: bool,
    pub lacks_db_version: bool,
    /// The bridges of the configuration.
    pub bridges: Vec<model::Bridge>,
    /// All bridges of the database.
    pub rows: Vec<BridgeRow>,
    /// The differences between the rows and the configuration.
    pub faults: Vec<Fault>,
}

impl Translation {
    /// Takes a port out of the configuration, for a reason that its interfaces show.
    pub(crate) fn refuse_port(&mut self, bridge: &str, port: &str, reason: &str) {
        for model in self
            .bridges
            .iter_mut()
            .filter(|model| model.name.as_str() == bridge)
        {
            let is_lag = model
                .ports
                .iter()
                .any(|made| made.name.as_str() == port && matches!(made.device, model::Device::Lag(_)));
            model.ports.retain(|made| made.name.as_str() != port);
            model.lags.retain(|lag| !is_lag || lag.name.as_str() != port);
        }
        // A port of the model has the name of its interface, or of its bond.
        self.refuse_interfaces(bridge, reason, |is_bond, row, interface| match is_bond {
            true => row == port,
            false => interface == port,
        });
    }

    /// Takes a member out of a bond, for a reason that its interface shows.
    pub(crate) fn refuse_member(&mut self, bridge: &str, lag: &str, member: &str, reason: &str) {
        let models = self
            .bridges
            .iter_mut()
            .filter(|model| model.name.as_str() == bridge);
        let mut is_empty = false;
        for made in models
            .flat_map(|model| &mut model.lags)
            .filter(|made| made.name.as_str() == lag)
        {
            made.members.retain(|made| made.name.as_str() != member);
            is_empty = made.members.is_empty();
        }
        self.refuse_interfaces(bridge, reason, |is_bond, row, interface| {
            is_bond && row == lag && interface == member
        });
        if is_empty {
            self.refuse_port(bridge, lag, reason);
        }
    }

    /// Notes the reason at the interfaces of a bridge that have none yet and that are meant: by whether their port is a bond,
    /// its name, and their own name.
    fn refuse_interfaces(&mut self, bridge: &str, reason: &str, is_meant: impl Fn(bool, &str, &str) -> bool) {
        let ports = self
            .rows
            .iter_mut()
            .filter(|row| row.name == bridge)
            .flat_map(|row| &mut row.ports);
        for port in ports {
            let (is_bond, name) = (port.is_bond, port.name.as_str());
            for row in &mut port.interfaces {
                if row.error.is_some() || !is_meant(is_bond, name, &row.name) {
                    continue;
                }
                row.error = Some(reason.to_owned());
                row.number = None;
                self.faults.push(Fault {
                    row: RowName {
                        table: "Interface",
                        uuid: row.uuid,
                        name: row.name.clone(),
                    },
                    severity: Severity::Refused,
                    reason: reason.to_owned(),
                });
            }
        }
    }

    /// Takes a bridge out of the configuration, for a reason that its interfaces show.
    pub(crate) fn refuse_bridge(&mut self, bridge: &str, reason: &str) {
        self.bridges.retain(|model| model.name.as_str() != bridge);
        for row in self
            .rows
            .iter_mut()
            .filter(|row| row.name == bridge && row.error.is_none())
        {
            row.error = Some(reason.to_owned());
            for interface in row.ports.iter_mut().flat_map(|port| &mut port.interfaces) {
                interface.number = None;
                interface
                    .error
                    .get_or_insert_with(|| format!("bridge {bridge} is not in effect: {reason}"));
            }
            self.faults.push(Fault {
                row: RowName {
                    table: "Bridge",
                    uuid: row.uuid,
                    name: row.name.clone(),
                },
                severity: Severity::Refused,
                reason: reason.to_owned(),
            });
        }
    }

    /// Takes a mirror out of the configuration.
    pub(crate) fn refuse_mirror(&mut self, bridge: &str, mirror: &str, reason: &str) {
        self.change_mirror(bridge, mirror, reason, |_| false);
    }

    /// Takes a port out of the selection of a mirror.
    pub(crate) fn refuse_selection(
        &mut self,
        bridge: &str,
        mirror: &str,
        port: &model::PortName,
        reason: &str,
    ) {
        self.change_mirror(bridge, mirror, reason, |mirror| {
            mirror.select_received.retain(|name| name != port);
            mirror.select_sent.retain(|name| name != port);
            !mirror.select_received.is_empty() || !mirror.select_sent.is_empty()
        });
    }

    /// Changes a mirror for a reason that is noted at its row, and takes it out of the configuration if `change` returns false.
    fn change_mirror(
        &mut self,
        bridge: &str,
        mirror: &str,
        reason: &str,
        change: impl Fn(&mut model::Mirror) -> bool,
    ) {
        let mut remains = false;
        let models = self.bridges.iter_mut();
        for model in models.filter(|model| model.name.as_str() == bridge) {
            model.mirrors.retain_mut(|made| {
                if made.name.as_str() != mirror {
                    return true;
                }
                remains = change(made);
                remains
            });
        }
        let rows = self.rows.iter_mut().filter(|row| row.name == bridge);
        let mut rows = rows.flat_map(|row| &mut row.mirrors);
        if let Some(row) = rows.find(|row| row.model_name.as_deref() == Some(mirror)) {
            if !remains {
                row.model_name = None;
            }
            self.faults.push(Fault {
                row: RowName {
                    table: "Mirror",
                    uuid: row.uuid,
                    name: row.name.clone(),
                },
                severity: Severity::Refused,
                reason: reason.to_owned(),
            });
        }
    }

    /// Takes a controller out of the configuration.
    pub(crate) fn refuse_controller(&mut self, bridge: &str, target: &str, reason: &str) {
        for row in self.rows.iter_mut().filter(|row| row.name == bridge) {
            for controller in row.controllers.iter_mut().filter(|row| row.target == target) {
                controller.error.get_or_insert_with(|| reason.to_owned());
                self.faults.push(Fault {
                    row: RowName {
                        table: "Controller",
                        uuid: controller.uuid,
                        name: target.to_owned(),
                    },
                    severity: Severity::Refused,
                    reason: reason.to_owned(),
                });
            }
        }
    }
}
