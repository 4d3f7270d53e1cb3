//! A core, its database and two switches in virtual time.

use std::collections::{BTreeMap, VecDeque};

use millrace_ix_engine::{Content, Event, Settings};
use millrace_ix_model::{Actor, ConnectionId, ObjectId, Operation, ServiceId, SwitchId};
use millrace_ix_service::simulation::ModelSwitch;
use millrace_ix_service::{
    Core, Fabric, FabricKey, FabricRequest, Now, OrderError, OrderOptions, OrderRequest, Ordered, Output,
    ServiceEvent, Verifier, VerifyRequest,
};
use millrace_ix_store::{Sqlite, Store, UnixMillis};
use millrace_types::{Duration, PortNo, Time};
use serde_json::{Value, json};

/// The wall clock at the monotonic time zero.
const WALL: u64 = 1_700_000_000_000;
/// The time of an operation of a switch.
const LATENCY: Duration = Duration::from_millis(5);
/// The time from the loss of a connection to the next connection.
const RECONNECT: Duration = Duration::from_millis(300);

pub(crate) struct World {
    pub(crate) time: Time,
    pub(crate) core: Option<Core>,
    pub(crate) switches: BTreeMap<SwitchId, ModelSwitch>,
    /// The requests that each switch has not answered, with the times of the answers.
    waiting: BTreeMap<SwitchId, Vec<(Time, FabricRequest)>>,
    reconnect: BTreeMap<SwitchId, Time>,
    sessions: u64,
    /// The frames that the core sent by ports.
    pub(crate) frames: Vec<(SwitchId, PortNo, Vec<u8>)>,
    /// The requests that the verifier has not handled. Worlds without verification have none.
    pub(crate) to_verify: VecDeque<VerifyRequest>,
    pub(crate) verifier: Verifier,
    /// True if the verifier answers nothing.
    pub(crate) is_verifier_late: bool,
    /// The longest verification of a change.
    pub(crate) verification: Option<Duration>,
    /// The events that the core reported.
    pub(crate) events: Vec<ServiceEvent>,
    /// The time by which the wall clock is behind, in milliseconds.
    pub(crate) behind: u64,
}

pub(crate) fn operation(value: Value) -> Operation {
    serde_json::from_value(value).unwrap()
}

impl World {
    /// Returns a world with two sites, a trunk, and a member with four connections, two at each site.
    pub(crate) fn new() -> World {
        World::with(Box::new(Sqlite::in_memory().unwrap()))
    }

    pub(crate) fn with(store: Box<dyn Store>) -> World {
        World::verified(store, None)
    }

    /// Returns a world in which changes are verified before their flip.
    pub(crate) fn verified(store: Box<dyn Store>, verification: Option<Duration>) -> World {
        let mut world = World {
            time: Time::from_secs(1),
            core: None,
            switches: BTreeMap::new(),
            waiting: BTreeMap::new(),
            reconnect: BTreeMap::new(),
            sessions: 0,
            frames: Vec::new(),
            events: Vec::new(),
            to_verify: VecDeque::new(),
            verifier: Verifier::default(),
            is_verifier_late: false,
            verification,
            behind: 0,
        };
        world.start(store);
        world.order(&[
            json!({"operation": "create_site", "name": "Otemachi"}),
            json!({"operation": "create_switch", "name": "ote-1", "site": "st-0", "dpid": "0000000000000001", "ports": ports()}),
            json!({"operation": "create_site", "name": "Makuhari"}),
            json!({"operation": "create_switch", "name": "mak-1", "site": "st-0", "dpid": "0000000000000002", "ports": ports()}),
        ]);
        let ids: Vec<SwitchId> = world.core().exchange().switches.keys().copied().collect();
        let (one, two) = (ids[0], ids[1]);
        world.order(&[json!({
            "operation": "create_trunk", "name": "t1", "kind": "vxlan", "ends": [format!("{one}:100"), format!("{two}:100")],
            "capacity_mbps": 10000, "mtu": 1700,
        })]);
        let connection = |name: &str, port: String| json!({"operation": "create_connection", "account": "ac-0", "name": name, "kind": "standalone", "ports": [port]});
        world.order(&[
            json!({"operation": "create_account", "name": "A", "kind": "member"}),
            connection("a1", format!("{one}:1")),
            connection("a2", format!("{one}:2")),
            connection("a3", format!("{two}:1")),
            connection("a4", format!("{two}:2")),
        ]);
        for id in ids {
            world.switches.insert(id, ModelSwitch::default());
            world.reconnect.insert(id, world.time);
        }
        world.run(Duration::from_secs(2));
        world
    }

    /// Returns a world with a peering LAN that has an end at each site.
    pub(crate) fn lan() -> World {
        World::lan_with(Box::new(Sqlite::in_memory().unwrap()))
    }

    pub(crate) fn lan_with(store: Box<dyn Store>) -> World {
        let mut world = World::with(store);
        let policy = json!({"name": "lan", "ethertypes": [0x0800, 0x0806, 0x86dd], "macs_max": 4, "broadcast_pps": 100,
            "multicast_pps": 100, "arp": "unicast", "quarantine_secs": 0});
        let created = world.order(&[json!({"operation": "create_policy", "policy": policy})]);
        let policy = created.applied.created[0];
        let account = *world.core().exchange().accounts.keys().next().unwrap();
        let connections = world.connections();
        let end = |connection: usize, vlan: u16| {
            json!({"operation": "configure_end", "service": "sv-0", "connection": connections[connection],
                "vlan": {"type": "dot1q", "vlan": vlan}})
        };
        world.order(&[
            json!({"operation": "create_service", "account": account, "kind": "exchange_lan", "name": "lan", "policy": policy,
                "networks": ["192.0.2.0/24"]}),
            end(0, 10),
            end(2, 10),
        ]);
        let waive = |config| json!({"operation": "waive_quarantine", "config": config, "reason": "a test"});
        let ends: Vec<_> = world.core().exchange().configs.keys().map(waive).collect();
        world.order(&ends);
        world.run(Duration::from_secs(2));
        assert!(world.is_settled());
        world
    }

    /// Starts a core from a database.
    pub(crate) fn start(&mut self, store: Box<dyn Store>) {
        let settings = Settings {
            seed: 7,
            verification: self.verification,
            // Worlds with verification keep foreign entries: the verifier must judge them.
            foreign: match self.verification {
                Some(_) => millrace_ix_engine::ForeignPolicy::Leave,
                None => millrace_ix_engine::ForeignPolicy::Exclusive,
            },
            ..Settings::default()
        };
        self.core = Some(Core::start(store, settings, false, self.now()).unwrap());
        let numbers: Vec<SwitchId> = self.switches.keys().copied().collect();
        for number in numbers {
            let switch = self.switches.get_mut(&number).unwrap();
            switch.session = None;
            self.waiting.remove(&number);
            self.reconnect.insert(number, self.time + RECONNECT);
        }
    }

    /// Kills the core. Pending commits are executed if `applied`, but are not answered.
    pub(crate) fn kill(&mut self, applied: bool) -> Box<dyn Store> {
        let mut core = self.core.take().unwrap();
        // The requests that the core has not sent are lost with it.
        drop(core.outputs());
        for (id, requests) in std::mem::take(&mut self.waiting) {
            for (_, request) in requests {
                if applied {
                    let _ = self.switches.get_mut(&id).unwrap().answer(request);
                }
            }
        }
        core.into_store()
    }

    pub(crate) fn core(&mut self) -> &mut Core {
        self.core.as_mut().unwrap()
    }

    pub(crate) fn now(&self) -> Now {
        Now {
            time: self.time,
            wall: UnixMillis(WALL + self.time.nanos() / 1_000_000 - self.behind),
        }
    }

    pub(crate) fn try_order(
        &mut self,
        operations: &[Value],
        options: &OrderOptions,
    ) -> Result<Ordered, OrderError> {
        let operations = operations.iter().cloned().map(operation).collect();
        let now = self.now();
        let ordered = self.core().order(operations, &Actor::system(), options, now);
        self.deliver();
        ordered
    }

    /// Executes orders as a group.
    pub(crate) fn order_all(
        &mut self,
        orders: &[(Vec<Value>, OrderOptions)],
    ) -> Vec<Result<Ordered, OrderError>> {
        let request = |(operations, options): &(Vec<Value>, OrderOptions)| OrderRequest {
            operations: operations.iter().cloned().map(operation).collect(),
            actor: Actor::system(),
            options: options.clone(),
        };
        let requests = orders.iter().map(request).collect();
        let now = self.now();
        let results = self.core().order_all(requests, now);
        self.deliver();
        results
    }

    pub(crate) fn order(&mut self, operations: &[Value]) -> Ordered {
        self.try_order(operations, &OrderOptions::default()).unwrap()
    }

    /// Returns the connections, two at each site.
    pub(crate) fn connections(&mut self) -> Vec<ConnectionId> {
        self.core().exchange().connections.keys().copied().collect()
    }

    /// Orders a circuit between two connections, which are given by their indices in the list.
    pub(crate) fn circuit(&mut self, name: &str, ends: [(usize, u16); 2]) -> (ServiceId, Ordered) {
        let ordered = self
            .try_order(&self.circuit_operations(name, ends), &OrderOptions::default())
            .unwrap();
        (ordered.applied.first().unwrap(), ordered)
    }

    pub(crate) fn circuit_operations(&self, name: &str, ends: [(usize, u16); 2]) -> Vec<Value> {
        let exchange = self.core.as_ref().unwrap().exchange();
        let account = exchange.accounts.keys().next().unwrap();
        let mut operations =
            vec![json!({"operation": "create_service", "account": account, "kind": "p2p_vc", "name": name})];
        operations.extend(ends.map(|(connection, vlan)| {
            let connection = exchange.connections.keys().nth(connection).unwrap();
            json!({"operation": "configure_end", "service": "sv-0", "connection": connection,
                "vlan": {"type": "dot1q", "vlan": vlan}, "capacity_mbps": 100})
        }));
        operations
    }

    /// Adds a switch, which connects a moment later.
    pub(crate) fn connect(&mut self, switch: SwitchId) {
        self.switches.insert(switch, ModelSwitch::default());
        self.reconnect.insert(switch, self.time + RECONNECT);
    }

    /// Lets a switch that was disconnected connect a moment later, with the content that it has.
    pub(crate) fn connect_again(&mut self, switch: SwitchId) {
        self.reconnect.insert(switch, self.time + RECONNECT);
    }

    /// Ends the connection of a switch.
    pub(crate) fn disconnect(&mut self, switch: SwitchId) {
        self.waiting.remove(&switch);
        let found = self.switches.get_mut(&switch).unwrap();
        let session = found.session.take().unwrap();
        let now = self.now();
        let switch = switch.0;
        self.core().handle(Event::Disconnected { switch, session }, now);
        self.deliver();
    }

    /// Passes the requests of the core to the switches and to the verifier.
    pub(crate) fn deliver(&mut self) {
        self.deliver_requests();
        self.verify();
    }

    fn deliver_requests(&mut self) {
        let at = self.time + LATENCY;
        let Some(core) = &mut self.core else { return };
        for output in core.outputs() {
            match output {
                Output::Request(FabricRequest::PacketOut {
                    switch, port, frame, ..
                }) => self.frames.push((switch, port, frame)),
                Output::Request(request) => {
                    let (FabricRequest::Dump { switch, session }
                    | FabricRequest::Commit { switch, session, .. }
                    | FabricRequest::PacketOut { switch, session, .. }) = &request;
                    let switch = *switch;
                    assert_eq!(self.switches[&switch].session, Some(*session));
                    self.waiting.entry(switch).or_default().push((at, request));
                }
                Output::Event(event) => self.events.push(event),
                Output::Verify(request) => self.to_verify.push_back(request),
            }
        }
    }

    /// Lets the verifier handle its requests, and passes its answers to the core.
    fn verify(&mut self) {
        while let Some(request) = self.to_verify.pop_front().filter(|_| !self.is_verifier_late) {
            if let Some(event) = self.verifier.handle(request) {
                let now = self.now();
                self.core().handle(event, now);
                self.deliver_requests();
            }
        }
    }

    /// Processes the next event that is due until `until`. Returns false if there is none.
    pub(crate) fn step(&mut self, until: Time) -> bool {
        let answers = self.waiting.iter().filter(|(id, _)| !self.switches[id].is_deaf);
        let answers = answers.flat_map(|(_, requests)| requests.iter().map(|(at, _)| *at));
        let deadline = self.core.as_ref().and_then(Core::deadline);
        let next = answers
            .chain(self.reconnect.values().copied())
            .chain(deadline)
            .min();
        let Some(next) = next.filter(|next| *next <= until) else {
            self.time = until;
            return false;
        };
        self.time = self.time.max(next);
        let now = self.now();
        if let Some(switch) = self
            .reconnect
            .iter()
            .find(|(_, at)| **at <= self.time)
            .map(|(switch, _)| *switch)
        {
            self.reconnect.remove(&switch);
            self.sessions += 1;
            let session = self.sessions;
            self.switches.get_mut(&switch).unwrap().session = Some(session);
            self.core().handle(
                Event::Connected {
                    switch: switch.0,
                    session,
                },
                now,
            );
            self.deliver();
            return true;
        }
        let ids: Vec<SwitchId> = self.switches.keys().copied().collect();
        for id in ids {
            let switch = self.switches.get_mut(&id).unwrap();
            let requests = self.waiting.entry(id).or_default();
            let due = requests
                .iter()
                .position(|(at, _)| *at <= now.time)
                .filter(|_| !switch.is_deaf);
            let Some(event) = due.and_then(|due| switch.answer(requests.remove(due).1)) else {
                continue;
            };
            self.core().handle(event, now);
            self.deliver();
        }
        self.core().tick(now);
        self.deliver();
        true
    }

    pub(crate) fn run(&mut self, duration: Duration) {
        let until = self.time + duration;
        while self.step(until) {}
    }

    /// Runs for some seconds, and does the periodic work after each.
    pub(crate) fn run_and_expire(&mut self, secs: u32) {
        for _ in 0..secs {
            self.run(Duration::from_secs(1));
            let now = self.now();
            self.core().expire(now);
            self.deliver();
        }
        self.run(Duration::from_secs(1));
    }

    /// Returns true if no change is in progress and each switch has exactly the planned entries.
    pub(crate) fn is_settled(&mut self) -> bool {
        let plan = self.core().plan();
        let is_idle = self.core().engine().changes().next().is_none();
        let empty = Content::<Fabric>::new();
        is_idle
            && self.switches.iter().all(|(id, switch)| {
                let mut content = switch.content.clone();
                content.retain(|key, _| !is_marker(key));
                content == *plan.get(&id.0).unwrap_or(&empty)
            })
    }

    /// Returns the released numbers that switches may still have.
    pub(crate) fn numbers_in_switches(&mut self) -> Vec<String> {
        let pools = self.core().exchange().pools.clone();
        let waiting = pools.into_iter().flat_map(|(kind, pool)| {
            let numbers = pool.released.into_iter();
            let waiting = numbers.filter(|(_, rest)| *rest == millrace_ix_model::NumberHold::InSwitches);
            waiting
                .map(move |(number, _)| format!("{kind:?} {number}"))
                .collect::<Vec<_>>()
        });
        waiting.collect()
    }

    /// Returns the identifiers of all services.
    pub(crate) fn services(&mut self) -> Vec<ServiceId> {
        self.core().exchange().services.keys().copied().collect()
    }

    pub(crate) fn delete(&mut self, object: impl Into<ObjectId>) -> Ordered {
        let object: ObjectId = object.into();
        self.order(&[json!({"operation": "delete", "target": object})])
    }
}

fn ports() -> Value {
    [1, 2, 3, 4, 100]
        .map(|number| json!({"number": number, "speed_mbps": 10000}))
        .into_iter()
        .collect()
}

/// Returns true for the marker entry.
pub(crate) fn is_marker(key: &FabricKey) -> bool {
    matches!(key, FabricKey::Flow(flow) if flow.table.0 == 7)
}
