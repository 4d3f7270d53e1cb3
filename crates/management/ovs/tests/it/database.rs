//! A database that a test writes row by row.

use millrace_ovs::{Context, Numbers, Translation, translate};
use millrace_ovsdb::{Replica, Uuid};
use serde_json::{Value as Json, json};

/// A database with one bridge for each call of [`Database::bridge`].
#[derive(Default)]
pub(crate) struct Database {
    pub(crate) replica: Replica,
    pub(crate) numbers: Numbers,
    /// Columns of the root row.
    pub(crate) root: Json,
    last: u128,
    pub(crate) bridges: Vec<Uuid>,
}

impl Database {
    /// Adds a row and returns its UUID.
    pub(crate) fn row(&mut self, table: &str, columns: &Json) -> Uuid {
        self.last += 1;
        let uuid = Uuid::from_u128(self.last);
        self.put(table, uuid, columns);
        uuid
    }

    pub(crate) fn put(&mut self, table: &str, uuid: Uuid, columns: &Json) {
        self.replica
            .insert(table, uuid, Replica::row_from_json(table, columns).unwrap());
    }

    /// Adds a port with one interface.
    pub(crate) fn port(&mut self, name: &str, port: &Json, interface: &Json) -> Uuid {
        let interface = self.row("Interface", &with(interface, json!({"name": name})));
        self.row(
            "Port",
            &with(port, json!({"name": name, "interfaces": uuid(interface)})),
        )
    }

    /// Adds a port with several interfaces.
    pub(crate) fn bond(&mut self, name: &str, port: &Json, interfaces: &[(&str, Json)]) -> Uuid {
        let interfaces: Vec<Json> = interfaces
            .iter()
            .map(|(name, interface)| uuid(self.row("Interface", &with(interface, json!({"name": name})))))
            .collect();
        self.row(
            "Port",
            &with(port, json!({"name": name, "interfaces": ["set", interfaces]})),
        )
    }

    /// Adds a bridge with a LOCAL port and `ports`.
    pub(crate) fn bridge(&mut self, name: &str, columns: &Json, ports: &[Uuid]) -> Uuid {
        let local = self.port(name, &json!({}), &json!({"type": "internal"}));
        let ports: Vec<Json> = ports.iter().chain([&local]).map(|port| uuid(*port)).collect();
        let bridge = self.row(
            "Bridge",
            &with(columns, json!({"name": name, "ports": ["set", ports]})),
        );
        self.bridges.push(bridge);
        bridge
    }

    pub(crate) fn translated(&mut self) -> Translation {
        let bridges: Vec<Json> = self.bridges.iter().map(|bridge| uuid(*bridge)).collect();
        let root = Uuid::from_u128(u128::MAX);
        let more = self.root.as_object().cloned().unwrap_or_default();
        self.put(
            "Open_vSwitch",
            root,
            &with(
                &Json::Object(more),
                json!({"bridges": ["set", bridges], "next_cfg": 7}),
            ),
        );
        let mut context = Context {
            run_dir: Some("/run/ovs"),
            numbers: &mut self.numbers,
        };
        translate(&self.replica, &mut context)
    }
}

/// Returns the reference to a row.
pub(crate) fn uuid(uuid: Uuid) -> Json {
    json!(["uuid", uuid.to_string()])
}

#[expect(clippy::needless_pass_by_value, reason = "tests build the value in the call")]
fn with(columns: &Json, more: Json) -> Json {
    let mut all = columns.as_object().unwrap().clone();
    all.extend(more.as_object().unwrap().clone());
    Json::Object(all)
}

/// Returns the map of a column.
pub(crate) fn map(pairs: &[(&str, &str)]) -> Json {
    json!([
        "map",
        pairs
            .iter()
            .map(|(key, value)| json!([key, value]))
            .collect::<Vec<_>>()
    ])
}

/// Translates a database with bridge `br0` and one port `p1`, and returns the port as TOML without its name and number, or
/// the faults if there is none.
pub(crate) fn port_of(port: &Json, interface: &Json) -> (String, Vec<String>) {
    let mut database = Database::default();
    let p1 = database.port("p1", port, interface);
    database.bridge("br0", &json!({}), &[p1]);
    let translation = database.translated();
    let faults = translation.faults.iter().map(ToString::to_string).collect();
    let bridge = &translation.bridges[0];
    let text = bridge.ports.first().map_or_else(String::new, |port| {
        let mut config = millrace_model::Config::new();
        let mut bare = millrace_model::Bridge::new("b".parse().unwrap());
        bare.ports.push(port.clone());
        config.bridges.push(bare);
        let toml = config.to_toml();
        let at = toml.find("number = 1\n").expect("the first number") + "number = 1\n".len();
        toml[at..].trim_end().to_owned()
    });
    (text, faults)
}
