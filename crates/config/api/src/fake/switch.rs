//! The fake switch of the tests of the API: all of its values are fixed.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use millrace_flow::Match;
use millrace_flow::text::{FlowCommand, FlowModText};
use millrace_model::{Config, ConfigError, ConfigErrors, Path};
use millrace_store::Store;
use millrace_types::{PortNo, TableId, Vid};
use parking_lot::Mutex;
use tokio::sync::mpsc;

use super::problem::problem;
use super::{chains, flows, lags, nic, ovsdb, queues, routing, wans};
use crate::server::{
    CaptureSpec, CapturedPacket, Direction, FlowQuery, Flows, Live, LiveError, RouteQuery, TracePacket,
};
use crate::view;

/// The valid levels of the log.
const LEVELS: [&str; 3] = ["warn", "info", "debug"];
/// The table that rejects flow entries.
const FULL_TABLE: TableId = TableId(254);

/// Returns a port, for tests.
#[cfg(test)]
pub(crate) fn port() -> view::Port {
    FakeSwitch::port("h1", 1, 0)
}

/// A switch with one bridge `br0`, ports `h1` and `h2`, four flow entries and 16 cores. The packet counters of `h1`
/// grow by 1000 with each read.
#[derive(Debug, Default)]
pub struct FakeSwitch {
    reads: AtomicU64,
    /// The store with the desired revision, which is the newest; without a store, revision 1 is desired.
    store: Option<Store>,
    /// The filter of the log; `None` stands for `info`.
    log: Mutex<Option<String>>,
    /// The running revision. The first status after a commit still shows the old one.
    running: AtomicU64,
    /// The complete revision. The second status after a commit shows the new revision as running, but not
    /// complete. The third status shows it as complete, with its problem.
    complete: AtomicU64,
}

impl FakeSwitch {
    /// Returns a switch that applies each revision of the store.
    pub(super) fn with_store(store: Store) -> FakeSwitch {
        let head = store.head().revision.number.0;
        FakeSwitch {
            running: AtomicU64::new(head),
            complete: AtomicU64::new(head),
            store: Some(store),
            reads: AtomicU64::default(),
            log: Mutex::default(),
        }
    }

    fn bridge(name: &str) -> Result<(), LiveError> {
        match name {
            "br0" => Ok(()),
            _ => Err(LiveError::NoBridge {
                name: name.to_owned(),
                running: vec!["br0".to_owned()],
            }),
        }
    }

    fn port(name: &str, number: u32, packets: u64) -> view::Port {
        let counters = view::Counters {
            packets,
            bytes: packets * 64,
            drops: packets / 500,
            errors: 0,
        };
        view::Port {
            bridge: "br0".to_owned(),
            name: name.to_owned(),
            number,
            device: format!("net_null{}", number - 1),
            driver: Some("net_null".to_owned()),
            rx_queues: 1,
            rss: None,
            offload: None,
            spread: Vec::new(),
            mac: format!("02:00:00:00:00:{number:02x}"),
            admin: view::AdminState::Up,
            link: if number == 1 {
                view::LinkState::Up
            } else {
                view::LinkState::Down
            },
            speed_bps: Some(10_000_000_000),
            mtu: 1500,
            rx: counters,
            tx: view::Counters {
                packets: packets / 2,
                bytes: packets * 32,
                drops: 0,
                errors: 0,
            },
            policer: (number == 1).then(queues::policer),
            offload_status: (number == 2).then(queues::offload),
            oam: (number == 1).then(queues::oam),
            lldp: (number == 1).then(queues::lldp),
            rstp: None,
            rates: None,
        }
    }
}

impl Live for FakeSwitch {
    fn log(&self) -> view::Log {
        let filter = self.log.lock().clone();
        view::Log {
            filter: filter.unwrap_or_else(|| "info".to_owned()),
            levels: LEVELS.map(str::to_owned).into(),
            targets: vec!["millraced".to_owned()],
        }
    }

    /// Accepts a level only.
    fn set_log(&self, filter: &str) -> Result<view::Log, LiveError> {
        if !LEVELS.contains(&filter) {
            return Err(LiveError::LogFilter {
                text: filter.to_owned(),
                reason: format!("expected {}", LEVELS.join(", ")),
            });
        }
        *self.log.lock() = Some(filter.to_owned());
        Ok(self.log())
    }

    fn version(&self) -> view::Version {
        view::Version {
            version: "0.1.0".to_owned(),
            dpdk: Some(view::Dpdk {
                version: "22.11".to_owned(),
                used: true,
                huge_pages: true,
            }),
            uptime_seconds: 90_061.0,
            pid: None,
            network_namespace: None,
        }
    }

    fn ready(&self) -> view::Ready {
        view::Ready {
            ready: true,
            reasons: Vec::new(),
        }
    }

    fn check(&self, config: &Config) -> Result<(), ConfigErrors> {
        let list = Path::default().key("system").key("worker_cores");
        let cores = config.system.worker_cores.iter().enumerate();
        let missing = cores.filter(|(_, core)| core.get() >= 16);
        let error = |(at, core)| {
            ConfigError::unavailable(
                list.index(at),
                format!("there is no core {core}: expected 0 to 15"),
            )
        };
        ConfigErrors::unless_empty(missing.map(error).collect())
    }

    fn status(&self) -> view::Status {
        let head = |store: &Store| store.head().revision.number.0;
        let wanted = self.store.as_ref().map_or(1, head);
        let running = match self.running.swap(wanted, Ordering::Relaxed) {
            0 => wanted,
            running => running,
        };
        let is_complete = running == wanted && {
            let complete = self.complete.swap(wanted, Ordering::Relaxed);
            complete == 0 || complete == wanted
        };
        view::Status {
            desired_revision: wanted,
            running_revision: Some(running),
            state: if is_complete {
                view::Reconciliation::Degraded
            } else {
                view::Reconciliation::Working
            },
            problems: is_complete.then(problem).into_iter().collect(),
            restart_needed_for: Vec::new(),
        }
    }

    /// The journal's reading, at any time, brings no commit forward.
    fn problems(&self) -> Vec<view::StatusProblem> {
        let wanted = self
            .store
            .as_ref()
            .map_or(1, |store| store.head().revision.number.0);
        let is_complete = [0, wanted].contains(&self.complete.load(Ordering::Relaxed));
        is_complete.then(problem).into_iter().collect()
    }

    fn bridges(&self) -> Vec<view::Bridge> {
        vec![view::Bridge {
            name: "br0".to_owned(),
            dpid: "0000000000000001".to_owned(),
            forwarding: view::Forwarding::Controlled,
            ports: 2,
            tables: 255,
            flows: flows::FLOWS.len() as u64,
            controllers_connected: 1,
        }]
    }

    fn ports(&self, bridge: &str) -> Result<Vec<view::Port>, LiveError> {
        Self::bridge(bridge)?;
        let reads = self.reads.fetch_add(1, Ordering::Relaxed);
        Ok(vec![Self::port("h1", 1, 1000 * reads), Self::port("h2", 2, 0)])
    }

    fn nic_registers(&self, bridge: &str, port: PortNo) -> Result<Vec<view::NicRegister>, LiveError> {
        Self::bridge(bridge).and_then(|()| nic::registers(port))
    }

    fn nic_entries(&self, bridge: &str, port: PortNo) -> Result<Vec<view::NicEntry>, LiveError> {
        Self::bridge(bridge).and_then(|()| nic::entries(port))
    }

    fn flows(&self, bridge: &str, query: &FlowQuery) -> Result<Flows, LiveError> {
        Self::bridge(bridge)?;
        let wanted = |position: usize, matching: &Match, flow: &view::Flow| {
            let rule = |matching: &Match| matching.rule(millrace_types::Priority(0));
            query
                .after
                .is_none_or(|after| (after.table, after.position) < (flow.table, position as u64))
                && query.table.is_none_or(|table| table.0 == flow.table)
                && query
                    .cookie
                    .is_none_or(|cookie| cookie.matches(millrace_types::Cookie(0x2a)))
                && query
                    .within
                    .as_ref()
                    .is_none_or(|within| rule(matching).is_within(&rule(within)))
        };
        let mut found: Vec<(usize, view::Flow)> = flows::all()
            .into_iter()
            .enumerate()
            .filter(|(position, (matching, flow))| wanted(*position, matching, flow))
            .map(|(position, (_, flow))| (position, flow))
            .collect();
        let more = found.len() > query.limit;
        found.truncate(query.limit);
        let last = found.last().filter(|_| more);
        let next = last.map(|(position, flow)| view::FlowCursor {
            table: flow.table,
            position: *position as u64,
        });
        Ok(Flows {
            flows: found.into_iter().map(|(_, flow)| flow).collect(),
            next,
        })
    }

    fn flow_mods(&self, bridge: &str, mods: Vec<FlowModText>) -> Result<view::FlowModsDone, LiveError> {
        Self::bridge(bridge)?;
        if let Some(index) = mods.iter().position(|given| given.table == FULL_TABLE) {
            return Err(LiveError::FlowMod {
                index,
                code: "OFPFMFC_TABLE_FULL".to_owned(),
                message: format!("table {FULL_TABLE} is full"),
            });
        }
        let mut done = view::FlowModsDone::default();
        for given in mods {
            match given.command {
                FlowCommand::Add => done.added += 1,
                FlowCommand::Modify | FlowCommand::ModifyStrict => done.modified += 1,
                FlowCommand::Delete | FlowCommand::DeleteStrict => done.removed += 1,
            }
        }
        Ok(done)
    }

    fn save_flows(&self, bridge: &str) -> Result<view::FlowsSaved, LiveError> {
        Self::bridge(bridge)?;
        Ok(view::FlowsSaved {
            bridge: bridge.to_owned(),
            flows: flows::FLOWS.len() as u64,
            groups: 1,
            meters: 1,
            file: format!("/var/lib/millrace/flows/{bridge}.flows"),
        })
    }

    /// Forgets one address of each VLAN, or of each port.
    fn flush_macs(&self, bridge: &str, vlan: Option<Vid>, port: Option<PortNo>) -> Result<u64, LiveError> {
        Self::bridge(bridge)?;
        Ok(match (vlan, port) {
            (None, None) => 4,
            (Some(_), Some(_)) => 1,
            _ => 2,
        })
    }

    fn reset_flow_counters(&self, bridge: &str, query: &FlowQuery) -> Result<u64, LiveError> {
        let all = FlowQuery {
            limit: usize::MAX,
            ..query.clone()
        };
        Ok(self.flows(bridge, &all)?.flows.len() as u64)
    }

    fn reset_port_counters(&self, bridge: &str, port: Option<PortNo>) -> Result<u64, LiveError> {
        Self::bridge(bridge)?;
        Ok(port.map_or(2, |_| 1))
    }

    fn tables(&self, bridge: &str) -> Result<Vec<view::Table>, LiveError> {
        Self::bridge(bridge)?;
        Ok(flows::tables())
    }

    fn controllers(&self, bridge: &str) -> Result<Vec<view::Controller>, LiveError> {
        Self::bridge(bridge)?;
        let controller = |target: &str, state, role, error: Option<&str>| view::Controller {
            bridge: "br0".to_owned(),
            target: target.to_owned(),
            state,
            role,
            since_seconds: 61.0,
            last_error: error.map(str::to_owned),
            retry_in_seconds: error.map(|_| 3.5),
            messages_in: 12,
            messages_out: 34,
            packet_ins_dropped: 0,
        };
        Ok(vec![
            controller(
                "tcp:127.0.0.1:6653",
                view::ControllerState::Connected,
                Some(view::Role::Equal),
                None,
            ),
            controller(
                "tcp:10.0.0.9:6653",
                view::ControllerState::Backoff,
                None,
                Some("connection refused"),
            ),
            controller(
                "punix:/run/br0.sock",
                view::ControllerState::Listening,
                None,
                None,
            ),
        ])
    }

    fn macs(&self, bridge: &str) -> Result<Vec<view::MacEntry>, LiveError> {
        Self::bridge(bridge)?;
        Ok(vec![queues::mac()])
    }

    fn mirrors(&self, bridge: &str) -> Result<Vec<view::Mirror>, LiveError> {
        Self::bridge(bridge)?;
        Ok(vec![queues::mirror()])
    }

    fn sflow(&self, bridge: &str) -> Result<Option<view::Sflow>, LiveError> {
        Self::bridge(bridge)?;
        Ok(Some(queues::sflow()))
    }

    fn ipfix(&self, bridge: &str) -> Result<Option<view::Ipfix>, LiveError> {
        Self::bridge(bridge)?;
        Ok(Some(queues::ipfix()))
    }

    fn groups(&self, bridge: &str) -> Result<Vec<view::Group>, LiveError> {
        Self::bridge(bridge)?;
        let bucket = |watch_port, packets| view::Bucket {
            weight: 0,
            watch_port: Some(watch_port),
            watch_group: None,
            actions: format!("output:{watch_port}"),
            packets,
            bytes: packets * 100,
        };
        Ok(vec![view::Group {
            id: 7,
            kind: "fast_failover".to_owned(),
            references: 2,
            packets: 12,
            bytes: 1200,
            duration_seconds: 61.5,
            buckets: vec![bucket(1, 10), bucket(2, 2)],
        }])
    }

    fn meters(&self, bridge: &str) -> Result<Vec<view::Meter>, LiveError> {
        Self::bridge(bridge)?;
        Ok(vec![view::Meter {
            id: "controller".to_owned(),
            unit: "pktps".to_owned(),
            flows: 0,
            packets: 900,
            bytes: 90_000,
            duration_seconds: 3.0,
            bands: vec![view::Band {
                kind: "drop".to_owned(),
                rate: 100,
                burst_size: Some(50),
                prec_level: None,
                packets: 550,
                bytes: 55_000,
            }],
        }])
    }

    fn chains(&self, bridge: &str) -> Result<Vec<view::Chain>, LiveError> {
        Self::bridge(bridge).map(|()| chains::chains())
    }

    fn restart_hop(&self, bridge: &str, chain: &str, hop: &str) -> Result<(), LiveError> {
        Self::bridge(bridge)?;
        if (chain, hop) == ("edge", "fw") {
            return Ok(());
        }
        Err(LiveError::NoHop {
            bridge: bridge.to_owned(),
            hop: format!("{chain}/{hop}"),
            hops: vec!["edge/fw".to_owned()],
        })
    }

    fn reload_hop(&self, bridge: &str, chain: &str, hop: &str) -> Result<(), LiveError> {
        self.restart_hop(bridge, chain, hop)
    }

    fn queues(&self, bridge: &str) -> Result<Vec<view::EgressQueue>, LiveError> {
        Self::bridge(bridge).map(|()| queues::queues())
    }

    fn ovsdb(&self) -> view::Ovsdb {
        ovsdb::ovsdb()
    }

    fn wans(&self) -> Vec<view::WanPath> {
        wans::wans()
    }

    fn lags(&self) -> Vec<view::Lag> {
        lags::lags()
    }

    fn vrfs(&self) -> Vec<view::Vrf> {
        routing::vrfs()
    }

    fn router_totals(&self) -> Option<view::RouterTotals> {
        Some(routing::totals())
    }

    fn router_interfaces(&self) -> Vec<view::RouterInterface> {
        routing::interfaces()
    }

    fn routes(&self, vrf: &str, query: &RouteQuery) -> Result<view::RoutePage, LiveError> {
        routing::routes(vrf, query)
    }

    fn nexthops(&self, vrf: &str) -> Result<Vec<view::NextHopGroup>, LiveError> {
        routing::nexthops(vrf)
    }

    fn neighbours(&self, vrf: &str) -> Result<Vec<view::Neighbour>, LiveError> {
        routing::neighbours(vrf)
    }

    fn workers(&self) -> Vec<view::Worker> {
        let queue = |port: &str| view::Queue {
            bridge: "br0".to_owned(),
            port: port.to_owned(),
            queue: 0,
        };
        vec![view::Worker {
            id: 0,
            core: Some(1),
            queues: vec![queue("h1"), queue("h2")],
            handed_off: 0,
            packets: 1_000_000,
            bursts: 40_000,
            busy: 0.25,
            sleeps: 17,
            cycles_per_packet: Some(120.0),
        }]
    }

    fn measure_load(&self) {}

    fn drops(&self) -> Vec<view::Drop> {
        let drop = |reason: &str, description: &str, packets| view::Drop {
            bridge: Some("br0".to_owned()),
            reason: reason.to_owned(),
            description: description.to_owned(),
            packets,
        };
        vec![
            drop(
                "no_match",
                "no entry matched, and the table has no table-miss entry",
                42,
            ),
            drop("ttl_expired", "the TTL was decremented to zero", 0),
        ]
    }

    fn trace(&self, bridge: &str, packet: &TracePacket) -> Result<view::Trace, LiveError> {
        Self::bridge(bridge)?;
        let hex = data_encoding::HEXLOWER.encode(&packet.frame);
        let matched = |(_, priority, matching, actions): (u8, u16, &str, &str)| view::Matched {
            priority,
            cookie: "0x2a".to_owned(),
            matching: matching.to_owned(),
            actions: actions.to_owned(),
        };
        Ok(view::Trace {
            bridge: bridge.to_owned(),
            in_port: packet.in_port.raw(),
            packet: hex.clone(),
            fields: format!("in_port={}", packet.in_port),
            notes: Vec::new(),
            steps: vec![view::TraceStep {
                table: Some(0),
                chain: None,
                matched: Some(matched(flows::FLOWS[1])),
                effects: vec!["set ip_dscp to 7".to_owned(), "output to port 2".to_owned()],
            }],
            outputs: vec![view::TraceOutput {
                port: "h2".to_owned(),
                number: 2,
                queue: None,
                packet: hex,
            }],
            dropped: None,
        })
    }

    /// Returns a trace at once for a filter on UDP, else waits for `timeout`.
    fn trace_live(
        &self,
        bridge: &str,
        filter: &Match,
        timeout: Duration,
    ) -> Result<Option<view::Trace>, LiveError> {
        Self::bridge(bridge)?;
        if filter
            .field(millrace_flow::Field::IpProto)
            .is_some_and(|given| given.value == 17)
        {
            let packet = TracePacket {
                in_port: PortNo::from_raw(1),
                metadata: 0,
                tunnel_id: 0,
                frame: vec![0; 60],
            };
            return self.trace(bridge, &packet).map(Some);
        }
        std::thread::sleep(timeout);
        Ok(None)
    }

    /// Sends three packets of `h1`, then nothing.
    fn capture(&self, bridge: &str, spec: &CaptureSpec) -> Result<mpsc::Receiver<CapturedPacket>, LiveError> {
        Self::bridge(bridge)?;
        let (send, packets) = mpsc::channel(16);
        let size = 60.min(spec.snap_size) as usize;
        std::thread::spawn(move || {
            for number in 0..3_u8 {
                let packet = CapturedPacket {
                    unix_nanos: 1_700_000_000_000_000_000 + u64::from(number),
                    port: PortNo::from_raw(1),
                    direction: Direction::Rx,
                    size: 60,
                    bytes: vec![number; size],
                    lost_before: 0,
                };
                if send.blocking_send(packet).is_err() {
                    return;
                }
            }
            while !send.is_closed() {
                std::thread::sleep(Duration::from_millis(10));
            }
        });
        Ok(packets)
    }
}
