//! Contract rates in virtual time: a load above the contract is delivered at the contracted rate, and a
//! change of the rate drops no frame of a load below both rates. `make exchange-check` tests rates up to 1
//! Gbit/s.

use core::time::Duration;

use millrace_ix_model::{
    ConfigId, EndRole, Exchange, Operation, ServiceKind, SwitchId, TrunkKind, VlanRequest,
};
use millrace_ix_plan::{Modification, Settings, phases, plan};
use millrace_types::Time;

use crate::fabric::Fabric;
use crate::oracle::{join, tags_of};
use crate::world::{NOW, World, c_tag};

const SETTINGS: Settings = Settings {
    now: NOW,
    extensions: false,
};
const SIZE: usize = 1514;

/// A circuit between two sites, and the frames of both ends.
struct Circuit {
    world: World,
    fabric: Fabric,
    ends: Vec<(ConfigId, SwitchId, u32, Vec<u8>)>,
}

impl Circuit {
    /// Returns a circuit with a contract in both directions.
    fn new(mbps: u32) -> Circuit {
        let mut world = World::new(2, TrunkKind::Vxlan);
        let account = world.account("a");
        let service = world.service(account, ServiceKind::P2pVc, None);
        let mut ends = Vec::new();
        for (at, vlan) in [c_tag(100), VlanRequest::Port].into_iter().enumerate() {
            let port = world.port(at, 1);
            let connection = world.connection(account, vec![port]);
            let config: ConfigId = world.create(Operation::ConfigureEnd {
                service,
                connection,
                vlan,
                capacity_mbps: Some(mbps),
                role: EndRole::Root,
                asns: Default::default(),
                external_ref: None,
            });
            let tags = tags_of(world.exchange.configs[&config].vlan, 3);
            let addresses = [2, 0, 0, 0, 0, 1 + at as u8, 2, 0, 0, 0, 0, 2 - at as u8];
            let rest = [&[0x08, 0x00][..], &[0; SIZE - 14]].concat();
            ends.push((
                config,
                port.switch,
                port.port.raw(),
                join(&addresses, &tags, &rest),
            ));
        }
        let mut fabric = Fabric::new(&world.exchange);
        let plan = plan(&world.exchange, &SETTINGS);
        assert_eq!(plan.problems, []);
        fabric.install(&plan);
        Circuit { world, fabric, ends }
    }

    /// Sends frames from both ends at a rate for a time. Calls `at` after each hundredth of the time. Returns
    /// the bytes that were sent and delivered in each direction.
    fn run(
        &mut self,
        mbps: f64,
        time: Duration,
        mut at: impl FnMut(&mut Circuit, u64),
    ) -> [(usize, usize); 2] {
        let interval = SIZE as f64 * 8000.0 / mbps;
        let count = (time.as_nanos() as f64 / interval) as u64;
        let start: Time = self.fabric.now;
        let mut bytes = [(0, 0); 2];
        let mut part = u64::MAX;
        for number in 0..count {
            self.fabric.now = start + Duration::from_nanos((number as f64 * interval) as u64);
            if number * 100 / count != part {
                part = number * 100 / count;
                at(self, part);
            }
            for (end, bytes) in bytes.iter_mut().enumerate() {
                let (_, switch, port, frame) = &self.ends[end];
                let delivered = self.fabric.send_now(*switch, *port, frame);
                assert!(delivered.len() <= 1);
                bytes.0 += SIZE;
                bytes.1 += delivered.len() * SIZE;
            }
        }
        bytes
    }

    /// Changes the contract of both ends, in the phases of a change.
    fn set_rate(&mut self, mbps: u32) {
        let before: Exchange = self.world.exchange.clone();
        for (config, ..) in &self.ends {
            let operation = Operation::SetRate {
                config: *config,
                capacity_mbps: Some(mbps),
            };
            self.world.apply(operation).unwrap();
        }
        let phases = phases(&before, &self.world.exchange, &SETTINGS);
        for phase in [phases.stage, phases.flip, phases.clean] {
            for (switch, modifications) in phase {
                let modifications: Vec<Modification> = modifications;
                self.fabric.modify(switch, &modifications);
            }
        }
    }
}

/// Fails unless the delivered bytes are the contract within 2 %.
fn check(bytes: [(usize, usize); 2], mbps: u32, secs: f64, case: &str) -> f64 {
    let mut worst: f64 = 0.0;
    for (sent, delivered) in bytes {
        let contract = f64::from(mbps) * 125_000.0 * secs;
        assert!(sent as f64 > 1.4 * contract, "{case}");
        let error = delivered as f64 / contract - 1.0;
        assert!(error.abs() <= 0.02, "{case}: {delivered} bytes of {contract}");
        worst = if error.abs() > worst.abs() { error } else { worst };
    }
    worst
}

#[test]
fn a_contract_passes_its_rate_within_two_percent_in_both_directions_and_a_change_loses_nothing_below_it() {
    let is_long = std::env::var_os("MILLRACE_EXCHANGE_LONG").is_some();
    let rates: &[u32] = if is_long { &[10, 100, 1_000] } else { &[10] };
    let ten = Duration::from_secs(10);
    for &mbps in rates {
        let mut circuit = Circuit::new(mbps);
        let sent = circuit.run(f64::from(mbps) * 1.5, ten, |_, _| {});
        let first = check(sent, mbps, 10.0, &format!("{mbps} Mbit/s"));
        // The rate is halved and restored under traffic just below the lower rate. The pause fills the
        // bucket.
        circuit.fabric.now = circuit.fabric.now + ten;
        let lower = mbps / 2;
        let kept = circuit.run(f64::from(lower) * 0.99, ten, |circuit, part| match part {
            30 => circuit.set_rate(lower),
            60 => circuit.set_rate(mbps),
            _ => {}
        });
        assert!(
            kept.iter().all(|(sent, delivered)| sent == delivered),
            "{mbps} Mbit/s: {kept:?}"
        );
        circuit.set_rate(lower);
        circuit.fabric.now = circuit.fabric.now + ten;
        let sent = circuit.run(f64::from(lower) * 1.5, ten, |_, _| {});
        let second = check(sent, lower, 10.0, &format!("{lower} Mbit/s after a change"));
        println!(
            "{mbps} Mbit/s: {:+.2} % in 10 s, {:+.2} % after a change to {lower} Mbit/s, 0 lost below the lower rate",
            100.0 * first,
            100.0 * second
        );
    }
}
