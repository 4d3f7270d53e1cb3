//! The commands of ovs-vsctl(8), executed on rows. A call takes effect as a whole or not at all, as its transaction does.

use std::collections::BTreeSet;

use millrace_ovsdb::{Atom, Datum, Row, Uuid};

use super::database::{Database, ROOT};
use super::rows::{self, Named};
use super::vsctl::Subcommand;

/// Commands that only read, or wait for the switch.
const READERS: [&str; 18] = [
    "show",
    "list",
    "find",
    "list-br",
    "br-exists",
    "br-to-vlan",
    "br-to-parent",
    "br-get-external-id",
    "list-ports",
    "port-to-br",
    "list-ifaces",
    "iface-to-br",
    "get-controller",
    "get-fail-mode",
    "get-manager",
    "get-ssl",
    "wait-until",
    "comment",
];

/// One call of ovs-vsctl.
pub(super) struct Call<'a> {
    pub(super) database: &'a mut Database,
    pub(super) named: Named,
}

/// A bridge, or a fake bridge: a VLAN of another one.
#[derive(PartialEq, Eq)]
struct Bridge {
    uuid: Uuid,
    vlan: Option<i64>,
}

fn names(text: &str) -> Datum {
    Datum::from(text)
}

impl Call<'_> {
    /// Executes commands.
    ///
    /// # Errors
    /// The reason why ovs-vsctl would refuse them. The rows are then half changed.
    pub(super) fn execute(&mut self, commands: &[Subcommand]) -> Result<(), String> {
        // Names may be used before the command that gives them, so rows with names come first.
        for command in commands.iter().filter(|command| command.name == "create") {
            if let (Some(id), Some(table)) = (command.id(), command.arguments.first()) {
                let table = rows::table(table)?;
                let uuid = self.database.create(table.name, Row::new());
                self.named.insert(id.to_owned(), (table.name, uuid));
            }
        }
        commands.iter().try_for_each(|command| self.command(command))
    }

    fn command(&mut self, command: &Subcommand) -> Result<(), String> {
        let arguments: Vec<&str> = command.arguments.iter().map(String::as_str).collect();
        let may_exist = command.has("--may-exist");
        let if_exists = command.has("--if-exists");
        let expected = |form: &str| Err(format!("{}: expected {form}", command.name));
        match (command.name.as_str(), arguments.as_slice()) {
            ("init", []) => Ok(()),
            ("emer-reset", []) => self.reset(),
            ("add-br", [name]) => self.add_bridge(name, may_exist),
            ("add-br", [name, parent, vlan]) => self.add_fake_bridge(name, parent, vlan, may_exist),
            ("del-br", [name]) => self.delete_bridge(name, if_exists),
            ("add-port", [bridge, port, settings @ ..]) => {
                self.add_port(bridge, port, &[port], settings, may_exist)
            }
            ("add-bond", [bridge, port, more @ ..]) => {
                let count = more.iter().take_while(|word| !word.contains('=')).count();
                let (interfaces, settings) = more.split_at(count);
                if interfaces.len() < 2 {
                    return expected("BRIDGE PORT INTERFACE INTERFACE…");
                }
                self.add_port(bridge, port, interfaces, settings, may_exist)
            }
            ("add-bond-iface", [port, interface]) => self.add_bond_interface(port, interface, may_exist),
            ("del-bond-iface", [.., interface]) => self.delete_interface(interface, if_exists),
            ("del-port", [port]) => self.delete_port(None, port, if_exists, command.has("--with-iface")),
            ("del-port", [bridge, port]) => {
                self.delete_port(Some(bridge), port, if_exists, command.has("--with-iface"))
            }
            ("set-controller", [bridge, targets @ ..]) if !targets.is_empty() => {
                let bridge = self.bridge(bridge)?.uuid;
                self.replace("Bridge", bridge, "controller", "Controller", targets)
            }
            ("del-controller", [bridge]) => {
                let bridge = self.bridge(bridge)?.uuid;
                self.replace("Bridge", bridge, "controller", "Controller", &[])
            }
            ("set-fail-mode", [bridge, mode @ ("standalone" | "secure")]) => {
                let bridge = self.bridge(bridge)?.uuid;
                self.database.set("Bridge", bridge, "fail_mode", names(mode));
                Ok(())
            }
            ("del-fail-mode", [bridge]) => {
                let bridge = self.bridge(bridge)?.uuid;
                self.database
                    .set("Bridge", bridge, "fail_mode", Datum::set::<&str>([]));
                Ok(())
            }
            ("set-manager", targets) if !targets.is_empty() => {
                let root = self.root()?;
                self.replace(ROOT, root, "manager_options", "Manager", targets)
            }
            ("del-manager", []) => {
                let root = self.root()?;
                self.replace(ROOT, root, "manager_options", "Manager", &[])
            }
            ("set-ssl", [key, certificate, authority]) => {
                let row = Row::from([
                    ("private_key".to_owned(), names(key)),
                    ("certificate".to_owned(), names(certificate)),
                    ("ca_cert".to_owned(), names(authority)),
                    (
                        "bootstrap_ca_cert".to_owned(),
                        Datum::from(command.has("--bootstrap")),
                    ),
                ]);
                let ssl = self.database.create("SSL", row);
                let root = self.root()?;
                self.database.set(ROOT, root, "ssl", Datum::from(ssl));
                Ok(())
            }
            ("del-ssl", []) => {
                let root = self.root()?;
                self.database.set(ROOT, root, "ssl", Datum::set::<Uuid>([]));
                Ok(())
            }
            ("br-set-external-id", [bridge, key, value @ ..]) if value.len() < 2 => {
                let bridge = self.bridge(bridge)?.uuid;
                let mut pairs = self.pairs("Bridge", bridge, "external_ids");
                match value.first() {
                    Some(value) => pairs.insert(Atom::from(*key), Atom::from(*value)),
                    None => pairs.remove(&Atom::from(*key)),
                };
                self.database
                    .set("Bridge", bridge, "external_ids", Datum::Map(pairs));
                Ok(())
            }
            ("set", [table, record, settings @ ..]) if !settings.is_empty() => {
                self.on_rows(table, record, if_exists, |call, table, row| {
                    settings
                        .iter()
                        .try_for_each(|setting| call.set(table, row, setting))
                })
            }
            ("add", [table, record, column, values @ ..]) if !values.is_empty() => {
                self.on_rows(table, record, if_exists, |call, table, row| {
                    let column = rows::column(table, column)?;
                    values
                        .iter()
                        .try_for_each(|value| call.add(table, row, column, value))
                })
            }
            ("remove", [table, record, column, values @ ..]) if !values.is_empty() => {
                self.on_rows(table, record, if_exists, |call, table, row| {
                    let column = rows::column(table, column)?;
                    values
                        .iter()
                        .try_for_each(|value| call.remove(table, row, column, value))
                })
            }
            ("clear", [table, record, columns @ ..]) if !columns.is_empty() => {
                self.on_rows(table, record, if_exists, |call, table, row| {
                    for name in columns {
                        let column = rows::column(table, name)?;
                        call.database
                            .set(table.name, row, column.name, Datum::set::<&str>([]));
                    }
                    Ok(())
                })
            }
            ("create", [table, settings @ ..]) => {
                let table = rows::table(table)?;
                let row = match command.id().and_then(|id| self.named.get(id)) {
                    Some((_, uuid)) => *uuid,
                    None => self.database.create(table.name, Row::new()),
                };
                settings
                    .iter()
                    .try_for_each(|setting| self.set(table, row, setting))
            }
            ("destroy", [table, records @ ..]) => {
                let table = rows::table(table)?;
                let records: Vec<Uuid> = match command.has("--all") {
                    true => self
                        .database
                        .replica
                        .rows(table.name)
                        .map(|(uuid, _)| uuid)
                        .collect(),
                    false => records
                        .iter()
                        .map(|record| rows::row(self.database, &self.named, table, record))
                        .filter(|row| row.is_ok() || !if_exists)
                        .collect::<Result<_, _>>()?,
                };
                records
                    .iter()
                    .for_each(|row| self.database.remove(table.name, *row));
                Ok(())
            }
            ("get", [table, record, ..]) => {
                if let Some(id) = command.id() {
                    let table = rows::table(table)?;
                    let row = rows::row(self.database, &self.named, table, record)?;
                    self.named.insert(id.to_owned(), (table.name, row));
                }
                Ok(())
            }
            (name, _) if READERS.contains(&name) => Ok(()),
            ("" | "add-br" | "del-br" | "add-port" | "del-port" | "set" | "add" | "remove" | "clear", _) => {
                expected("the arguments of ovs-vsctl(8)")
            }
            (name, _) => Err(format!("{name}: a command that is not known here")),
        }
    }

    fn root(&self) -> Result<Uuid, String> {
        self.database
            .root()
            .ok_or_else(|| "the database has no root".to_owned())
    }

    /// Returns a bridge, or the bridge and VLAN of a fake one.
    fn bridge(&self, name: &str) -> Result<Bridge, String> {
        if let Some(uuid) = self.database.find("Bridge", "name", name) {
            return Ok(Bridge { uuid, vlan: None });
        }
        let unknown = || format!("no bridge named {name}");
        let port = self.database.find("Port", "name", name).ok_or_else(unknown)?;
        let is_fake = self.database.column("Port", port, "fake_bridge") == Datum::from(true);
        let vlan = self.tag(port);
        let parent = self
            .holder("Bridge", "ports", port)
            .filter(|_| is_fake)
            .ok_or_else(unknown)?;
        Ok(Bridge { uuid: parent, vlan })
    }

    /// Returns the bridge of a port: a fake one if its VLAN is that of the port.
    fn owner(&self, port: Uuid) -> Option<Bridge> {
        let uuid = self.holder("Bridge", "ports", port)?;
        let vlan = self
            .tag(port)
            .filter(|vlan| self.fake_bridge(uuid, *vlan).is_some());
        Some(Bridge { uuid, vlan })
    }

    fn tag(&self, port: Uuid) -> Option<i64> {
        match self.database.column("Port", port, "tag") {
            Datum::Set(tags) => tags.into_iter().find_map(|tag| match tag {
                Atom::Integer(tag) => Some(tag),
                _ => None,
            }),
            Datum::Map(_) => None,
        }
    }

    /// Returns the port that is the fake bridge of a VLAN.
    fn fake_bridge(&self, bridge: Uuid, vlan: i64) -> Option<Uuid> {
        let mut ports = self.database.refers("Bridge", bridge, "ports").into_iter();
        ports.find(|port| {
            self.database.column("Port", *port, "fake_bridge") == Datum::from(true)
                && self.tag(*port) == Some(vlan)
        })
    }

    /// Returns the row of a table whose column refers to a row.
    fn holder(&self, table: &'static str, column: &str, row: Uuid) -> Option<Uuid> {
        let mut holders = self.database.replica.rows(table).map(|(uuid, _)| uuid);
        holders.find(|holder| self.database.refers(table, *holder, column).contains(&row))
    }

    fn add_bridge(&mut self, name: &str, may_exist: bool) -> Result<(), String> {
        if self.bridge(name).is_ok() {
            return match may_exist {
                true => Ok(()),
                false => Err(format!("a bridge named {name} already exists")),
            };
        }
        self.expect_free(name)?;
        let port = self.create_port(name, &[name], "internal");
        let row = Row::from([
            ("name".to_owned(), names(name)),
            ("ports".to_owned(), Datum::from(port)),
        ]);
        let bridge = self.database.create("Bridge", row);
        let root = self.root()?;
        self.database.add_reference(ROOT, root, "bridges", bridge);
        Ok(())
    }

    fn add_fake_bridge(
        &mut self,
        name: &str,
        parent: &str,
        vlan: &str,
        may_exist: bool,
    ) -> Result<(), String> {
        let vlan: i64 = vlan
            .parse()
            .ok()
            .filter(|vlan| (0..=4095).contains(vlan))
            .ok_or_else(|| format!("{vlan}: expected a VLAN of 0 to 4095"))?;
        let parent = self.bridge(parent)?;
        if let Ok(known) = self.bridge(name) {
            return match may_exist && known.uuid == parent.uuid && known.vlan == Some(vlan) {
                true => Ok(()),
                false => Err(format!("a bridge named {name} already exists")),
            };
        }
        if parent.vlan.is_some() {
            return Err("a fake bridge cannot be the parent of another one".to_owned());
        }
        if self.fake_bridge(parent.uuid, vlan).is_some() {
            return Err(format!("VLAN {vlan} has a fake bridge already"));
        }
        self.expect_free(name)?;
        let port = self.create_port(name, &[name], "internal");
        self.database.set("Port", port, "fake_bridge", Datum::from(true));
        self.database.set("Port", port, "tag", Datum::from(vlan));
        self.database.add_reference("Bridge", parent.uuid, "ports", port);
        Ok(())
    }

    fn expect_free(&self, name: &str) -> Result<(), String> {
        for table in ["Port", "Interface"] {
            if self.database.find(table, "name", name).is_some() {
                return Err(format!("{table} {name} already exists"));
            }
        }
        Ok(())
    }

    fn create_port(&mut self, name: &str, interfaces: &[&str], kind: &str) -> Uuid {
        let interfaces: Vec<Uuid> = interfaces
            .iter()
            .map(|interface| {
                let mut row = Row::from([("name".to_owned(), names(interface))]);
                if !kind.is_empty() {
                    row.insert("type".to_owned(), names(kind));
                }
                self.database.create("Interface", row)
            })
            .collect();
        self.database.create(
            "Port",
            Row::from([
                ("name".to_owned(), names(name)),
                ("interfaces".to_owned(), Datum::set(interfaces)),
            ]),
        )
    }

    fn delete_bridge(&mut self, name: &str, if_exists: bool) -> Result<(), String> {
        let bridge = match self.bridge(name) {
            Err(_) if if_exists => return Ok(()),
            bridge => bridge?,
        };
        match bridge.vlan {
            // The ports of a fake bridge go with it.
            Some(vlan) => {
                let tag = Datum::from(vlan);
                for port in self.database.refers("Bridge", bridge.uuid, "ports") {
                    if self.database.column("Port", port, "tag") == tag {
                        self.database.remove("Port", port);
                    }
                }
            }
            None => self.database.remove("Bridge", bridge.uuid),
        }
        self.database.collect_garbage();
        Ok(())
    }

    fn add_port(
        &mut self,
        bridge: &str,
        name: &str,
        interfaces: &[&str],
        settings: &[&str],
        may_exist: bool,
    ) -> Result<(), String> {
        let bridge = self.bridge(bridge)?;
        let port = match self.database.find("Port", "name", name) {
            // An existing port keeps its settings.
            Some(port) if may_exist => {
                if self.owner(port) != Some(bridge) {
                    return Err(format!("port {name} is in another bridge"));
                }
                let wanted: Option<BTreeSet<Uuid>> = interfaces
                    .iter()
                    .map(|interface| self.database.find("Interface", "name", interface))
                    .collect();
                let present = self.database.refers("Port", port, "interfaces");
                return match wanted == Some(present.into_iter().collect()) {
                    true => Ok(()),
                    false => Err(format!("port {name} has other interfaces")),
                };
            }
            Some(_) => return Err(format!("a port named {name} already exists")),
            None => {
                for interface in interfaces {
                    self.expect_free(interface)?;
                }
                let port = self.create_port(name, interfaces, "");
                if let Some(vlan) = bridge.vlan {
                    self.database.set("Port", port, "tag", Datum::from(vlan));
                }
                self.database.add_reference("Bridge", bridge.uuid, "ports", port);
                port
            }
        };
        let table = rows::table("Port")?;
        settings
            .iter()
            .try_for_each(|setting| self.set(table, port, setting))
    }

    fn add_bond_interface(&mut self, port: &str, interface: &str, may_exist: bool) -> Result<(), String> {
        let port = rows::row(self.database, &self.named, rows::table("Port")?, port)?;
        if let Some(known) = self.database.find("Interface", "name", interface) {
            return match may_exist && self.holder("Port", "interfaces", known) == Some(port) {
                true => Ok(()),
                false => Err(format!("interface {interface} already exists")),
            };
        }
        let row = Row::from([("name".to_owned(), names(interface))]);
        let interface = self.database.create("Interface", row);
        self.database.add_reference("Port", port, "interfaces", interface);
        Ok(())
    }

    fn delete_interface(&mut self, interface: &str, if_exists: bool) -> Result<(), String> {
        match self.database.find("Interface", "name", interface) {
            Some(uuid) => {
                self.database.remove("Interface", uuid);
                Ok(())
            }
            None if if_exists => Ok(()),
            None => Err(format!("no interface named {interface}")),
        }
    }

    fn delete_port(
        &mut self,
        bridge: Option<&str>,
        name: &str,
        if_exists: bool,
        by_interface: bool,
    ) -> Result<(), String> {
        if self.bridge(name).is_ok() {
            return match if_exists {
                true => Ok(()),
                false => Err(format!(
                    "port {name} is the local port of a bridge: expected del-br {name}"
                )),
            };
        }
        let of_interface = || {
            let interface = self.database.find("Interface", "name", name)?;
            self.holder("Port", "interfaces", interface)
        };
        let found = self.database.find("Port", "name", name);
        let Some(port) = found.or_else(|| of_interface().filter(|_| by_interface)) else {
            return match if_exists {
                true => Ok(()),
                false => Err(format!("no port named {name}")),
            };
        };
        if let Some(bridge) = bridge
            && self.owner(port) != Some(self.bridge(bridge)?)
        {
            return Err(format!("bridge {bridge} has no port {name}"));
        }
        self.database.remove("Port", port);
        self.database.collect_garbage();
        Ok(())
    }

    /// Replaces the rows that a column refers to by rows with these targets.
    fn replace(
        &mut self,
        table: &'static str,
        row: Uuid,
        column: &str,
        to: &'static str,
        targets: &[&str],
    ) -> Result<(), String> {
        let made: Vec<Uuid> = targets
            .iter()
            .map(|target| {
                self.database
                    .create(to, Row::from([("target".to_owned(), names(target))]))
            })
            .collect();
        self.database.set(table, row, column, Datum::set(made));
        Ok(())
    }

    fn reset(&mut self) -> Result<(), String> {
        let bridges: Vec<Uuid> = self
            .database
            .replica
            .rows("Bridge")
            .map(|(uuid, _)| uuid)
            .collect();
        for bridge in bridges {
            for column in ["controller", "fail_mode", "mirrors", "netflow", "sflow", "ipfix"] {
                self.database
                    .set("Bridge", bridge, column, Datum::set::<&str>([]));
            }
            for column in ["other_config", "external_ids"] {
                self.database
                    .set("Bridge", bridge, column, Datum::map::<&str, &str>([]));
            }
        }
        let root = self.root()?;
        for column in ["manager_options", "ssl"] {
            self.database.set(ROOT, root, column, Datum::set::<&str>([]));
        }
        Ok(())
    }
}
