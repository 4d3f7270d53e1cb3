//! Bridges in random networks whose links fail. An oracle computes the spanning tree; no instant may have a loop.

use std::collections::{BTreeMap, BTreeSet};

use millrace_l2ctl::rstp::{
    Action, Bridge, BridgeId, Edge, Link, PortSettings, PortState, Role, Settings, Version,
};
use millrace_types::{Duration, Mac, Time, split_mix};

const LINK: Link = Link {
    mbps: 1_000,
    is_full_duplex: true,
};

/// A cable between two ports; each end is a bridge and a port number.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Cable {
    ends: [(usize, u16); 2],
    delay: Duration,
    is_up: bool,
    /// The number of times that the cable has failed: frames of before are lost.
    epoch: u32,
}

struct Frame {
    arrives: Time,
    bridge: usize,
    port: u16,
    bytes: Vec<u8>,
    cable: usize,
    epoch: u32,
}

struct Network {
    now: Time,
    bridges: Vec<Bridge>,
    cables: Vec<Cable>,
    states: BTreeMap<(usize, u16), PortState>,
    frames: Vec<Frame>,
    flushes: BTreeSet<(usize, u16)>,
    /// The seed of the network, for messages.
    number: u64,
    seed: u64,
}

impl Network {
    fn new(bridges: usize, seed: u64) -> Network {
        let mut network = Network {
            now: Time::ZERO,
            bridges: Vec::new(),
            cables: Vec::new(),
            states: BTreeMap::new(),
            frames: Vec::new(),
            flushes: BTreeSet::new(),
            number: seed,
            seed,
        };
        for number in 0..bridges {
            let priority = (network.random(4) as u16) << 12;
            let settings = Settings {
                priority,
                ..Settings::new(Mac([2, 0, 0, 0, 0, number as u8]))
            };
            network.bridges.push(Bridge::new(settings, Time::ZERO));
        }
        network
    }

    fn random(&mut self, below: u64) -> u64 {
        split_mix::next(&mut self.seed) % below
    }

    fn set_version(&mut self, bridge: usize, version: Version) {
        let settings = Settings {
            version,
            ..*self.bridges[bridge].settings()
        };
        self.bridges[bridge].set_settings(settings, self.now);
    }

    fn connect(&mut self, a: usize, b: usize, cost: Option<u32>) -> usize {
        let delay = Duration::from_micros(50 + self.random(2_000));
        let mut ends = [(a, 0), (b, 0)];
        for (bridge, port) in &mut ends {
            *port = self.bridges[*bridge].ports().count() as u16 + 1;
            let mac = Mac([4, 0, 0, 0, *bridge as u8, *port as u8]);
            let settings = PortSettings {
                path_cost: cost,
                ..PortSettings::new(mac)
            };
            self.bridges[*bridge].set_port(*port, settings, self.now);
        }
        self.cables.push(Cable {
            ends,
            delay,
            is_up: false,
            epoch: 0,
        });
        self.cables.len() - 1
    }

    fn set_cable(&mut self, at: usize, is_up: bool) {
        self.cables[at].is_up = is_up;
        self.cables[at].epoch += 1;
        for (bridge, port) in self.cables[at].ends {
            self.bridges[bridge].set_link(port, is_up.then_some(LINK), self.now);
            self.collect(bridge);
        }
    }

    /// Carries out the actions of a bridge, and checks after each that there is no loop.
    fn collect(&mut self, bridge: usize) {
        for action in self.bridges[bridge].poll(self.now) {
            match action {
                Action::SetState { port, state } => {
                    self.states.insert((bridge, port), state);
                    self.check_loops();
                }
                Action::Flush { port } => {
                    self.flushes.insert((bridge, port));
                }
                Action::Transmit(transmit) => {
                    let from = (bridge, transmit.port);
                    let cable = self.cables.iter().position(|cable| cable.ends.contains(&from));
                    let cable = cable.filter(|at| self.cables[*at].is_up);
                    if let Some(at) = cable {
                        let Cable {
                            ends, delay, epoch, ..
                        } = self.cables[at];
                        let (bridge, port) = if ends[0] == from { ends[1] } else { ends[0] };
                        let (arrives, bytes) = (self.now + delay, transmit.frame);
                        self.frames.push(Frame {
                            arrives,
                            bridge,
                            port,
                            bytes,
                            cable: at,
                            epoch,
                        });
                    }
                }
            }
        }
    }

    fn run(&mut self, to: Time) {
        loop {
            for bridge in 0..self.bridges.len() {
                if self.bridges[bridge]
                    .deadline()
                    .is_some_and(|deadline| deadline <= self.now)
                {
                    self.collect(bridge);
                }
                let deadline = self.bridges[bridge].deadline();
                assert!(
                    deadline.is_none_or(|deadline| deadline > self.now),
                    "poll has done what was due"
                );
            }
            let deadlines = self.bridges.iter().filter_map(Bridge::deadline);
            let next = deadlines
                .chain(self.frames.iter().map(|frame| frame.arrives))
                .min();
            let Some(next) = next.filter(|next| *next <= to) else {
                self.now = to;
                return;
            };
            self.now = self.now.max(next);
            while let Some(at) = self.frames.iter().position(|frame| frame.arrives <= self.now) {
                let frame = self.frames.remove(at);
                let cable = &self.cables[frame.cable];
                if cable.is_up && cable.epoch == frame.epoch {
                    self.bridges[frame.bridge].receive(frame.port, &frame.bytes, self.now);
                    self.collect(frame.bridge);
                }
            }
        }
    }

    fn run_for(&mut self, duration: Duration) {
        self.run(self.now + duration);
    }

    fn forwards(&self, cable: &Cable) -> bool {
        let is_forwarding = |end| self.states.get(end) == Some(&PortState::Forwarding);
        cable.is_up && cable.ends.iter().all(is_forwarding)
    }

    /// Fails if the cables with two forwarding ends form a cycle.
    fn check_loops(&self) {
        let mut groups: Vec<usize> = (0..self.bridges.len()).collect();
        for cable in self.cables.iter().filter(|cable| self.forwards(cable)) {
            let [a, b] = cable.ends.map(|(bridge, _)| groups[bridge]);
            assert_ne!(
                a, b,
                "a loop at {:?} in the network of seed {}",
                self.now, self.number
            );
            groups
                .iter_mut()
                .filter(|group| **group == b)
                .for_each(|group| *group = a);
        }
    }

    /// Returns the bridges that each bridge reaches, as a component number.
    fn components(&self, is_used: impl Fn(&Cable) -> bool) -> Vec<usize> {
        let mut groups: Vec<usize> = (0..self.bridges.len()).collect();
        for cable in self.cables.iter().filter(|cable| is_used(cable)) {
            let [a, b] = cable.ends.map(|(bridge, _)| groups[bridge]);
            groups
                .iter_mut()
                .filter(|group| **group == b)
                .for_each(|group| *group = a);
        }
        groups
    }

    /// Returns true if two bridges that are connected can exchange frames.
    fn is_connected(&self) -> bool {
        let (all, forwarding) = (
            self.components(|cable| cable.is_up),
            self.components(|cable| self.forwards(cable)),
        );
        let pairs = |groups: &[usize]| -> BTreeSet<(usize, usize)> {
            let count = groups.len();
            let all = (0..count).flat_map(|a| (0..count).map(move |b| (a, b)));
            all.filter(|(a, b)| groups[*a] == groups[*b]).collect()
        };
        pairs(&all) == pairs(&forwarding)
    }

    /// Returns the root and the cost that each bridge must have, by relaxation over all cables.
    fn oracle(&self) -> Vec<(BridgeId, u32)> {
        let ids: Vec<BridgeId> = self.bridges.iter().map(|bridge| bridge.status().id).collect();
        let mut best: Vec<(BridgeId, u32)> = ids.iter().map(|id| (*id, 0)).collect();
        for _ in 0..self.bridges.len() {
            for cable in self.cables.iter().filter(|cable| cable.is_up) {
                let [a, b] = cable.ends;
                for (from, to) in [(a, b), (b, a)] {
                    let cost = self.bridges[to.0].port(to.1).unwrap().path_cost;
                    let (root, far) = best[from.0];
                    best[to.0] = best[to.0].min((root, far + cost));
                }
            }
        }
        best
    }

    fn assert_tree(&self, context: &str) {
        for (bridge, expected) in self.bridges.iter().zip(self.oracle()) {
            let status = bridge.status();
            assert_eq!(
                (status.root, status.root_path_cost),
                expected,
                "{context}: bridge {}",
                status.id
            );
        }
        assert!(self.is_connected(), "{context}: bridges do not reach each other");
        // Each cable has exactly one designated end, except one whose ends are on the same bridge.
        for cable in self.cables.iter().filter(|cable| cable.is_up) {
            let designated = cable
                .ends
                .iter()
                .filter(|(bridge, port)| self.bridges[*bridge].port(*port).unwrap().role == Role::Designated);
            assert_eq!(designated.count(), 1, "{context}");
        }
    }
}

fn ring(size: usize) -> Network {
    let mut network = Network::new(size, 7);
    for bridge in 0..size {
        let cable = network.connect(bridge, (bridge + 1) % size, None);
        network.set_cable(cable, true);
    }
    network
}

/// `MILLRACE_RSTP_NETWORKS` is the number of networks (60 if unset), and `MILLRACE_RSTP_SEED` the seed of the first.
#[test]
fn random_networks_converge_to_the_tree_of_the_oracle_and_never_loop() {
    let number = |name: &str, default: u64| std::env::var(name).map_or(default, |text| text.parse().unwrap());
    let first = number("MILLRACE_RSTP_SEED", 0);
    for seed in first..first + number("MILLRACE_RSTP_NETWORKS", 60) {
        run_random(seed);
    }
}

/// Cables fail and come back in these networks while information about a root that is gone goes round. By the letter of the
/// standard, and with agreements to what a port said before, each of them has a loop for an instant. In the last of them, two
/// neighbours agree to each other while the agreement of each to what the other withdrew is under way.
#[test]
fn agreements_to_what_a_port_said_before_make_no_loops() {
    for seed in [
        99, 179, 180, 222, 255, 291, 326, 396, 472, 491, 503, 587, 877, 913, 1117, 1284, 1352, 1448, 10070,
    ] {
        run_random(seed);
    }
}

/// Runs a random network whose cables fail in 12 steps.
fn run_random(seed: u64) {
    let mut network = Network::new(3 + seed as usize % 7, seed);
    let count = network.bridges.len();
    let extra = network.random(6) as usize;
    for number in 0..count - 1 + extra {
        let b = network.random(count as u64) as usize;
        let (a, b) = if number < count - 1 {
            (number + 1, b.min(number))
        } else {
            (number % count, b)
        };
        let cost = [None, Some(1 + network.random(9) as u32 * 1_000)][network.random(2) as usize];
        network.connect(a, b, cost);
    }
    for cable in 0..network.cables.len() {
        network.set_cable(cable, true);
    }
    network.run_for(Duration::from_secs(60));
    network.assert_tree(&format!("seed {seed}, begin"));
    for step in 0..12 {
        let changes = 1 + network.random(3);
        for _ in 0..changes {
            let cable = network.random(network.cables.len() as u64) as usize;
            let is_up = network.cables[cable].is_up;
            network.set_cable(cable, !is_up);
            let pause = network.random(3) * network.random(700);
            network.run_for(Duration::from_millis(pause));
        }
        network.run_for(Duration::from_secs(60));
        network.assert_tree(&format!("seed {seed}, step {step}"));
    }
}

#[test]
fn a_ring_of_six_is_repaired_within_a_second_whatever_cable_fails() {
    for cut in 0..6 {
        let mut network = ring(6);
        network.run_for(Duration::from_secs(30));
        network.assert_tree("begin");
        // The second time, the ports that get other roles have had them before.
        for _ in 0..2 {
            network.set_cable(cut, false);
            let cut_at = network.now;
            while !network.is_connected() {
                network.run_for(Duration::from_millis(1));
                assert!(network.now < cut_at + Duration::from_secs(1), "cable {cut}");
            }
            network.run_for(Duration::from_secs(10));
            network.assert_tree("cut");
            network.set_cable(cut, true);
            network.run_for(Duration::from_secs(10));
            network.assert_tree("repaired");
        }
    }
}

#[test]
fn a_cut_in_use_flushes_addresses_at_every_bridge_of_the_ring() {
    let mut network = ring(6);
    network.run_for(Duration::from_secs(30));
    let used = network
        .cables
        .iter()
        .position(|cable| network.forwards(cable))
        .unwrap();
    network.flushes.clear();
    network.set_cable(used, false);
    network.run_for(Duration::from_secs(3));
    let bridges: BTreeSet<usize> = network.flushes.iter().map(|(bridge, _)| *bridge).collect();
    assert_eq!(bridges.len(), 6);
}

#[test]
fn the_root_fails_and_the_next_best_bridge_takes_over() {
    let mut network = ring(6);
    network.run_for(Duration::from_secs(30));
    let root = network
        .bridges
        .iter()
        .position(|bridge| bridge.status().root_port.is_none())
        .unwrap();
    for cable in [root, (root + 5) % 6] {
        network.set_cable(cable, false);
    }
    network.run_for(Duration::from_secs(30));
    network.assert_tree("without the root");
}

#[test]
fn bridges_of_both_protocols_form_one_tree_without_loops() {
    for seed in 0..8 {
        let mut network = ring(5);
        for bridge in 0..5 {
            if seed >> bridge & 1 == 1 || seed == 0 {
                network.set_version(bridge, Version::Stp);
            }
        }
        // STP needs twice the forward delay, and the maximum age after a failure.
        network.run_for(Duration::from_secs(60));
        network.assert_tree("begin");
        for cable in 0..5 {
            network.set_cable(cable, false);
            network.run_for(Duration::from_secs(80));
            network.assert_tree("cut");
            network.set_cable(cable, true);
            network.run_for(Duration::from_secs(80));
            network.assert_tree("repaired");
        }
        let speaks_stp = network
            .bridges
            .iter()
            .flat_map(Bridge::ports)
            .any(|port| !port.sends_rstp);
        assert!(speaks_stp);
    }
}

#[test]
fn a_neighbour_that_changes_to_rstp_is_spoken_to_in_rstp_after_a_check() {
    let mut network = ring(3);
    network.set_version(0, Version::Stp);
    network.run_for(Duration::from_secs(60));
    let towards = |network: &Network| network.bridges[1].port(1).unwrap().sends_rstp;
    assert!(!towards(&network), "port 1 of bridge 1 leads to bridge 0");
    network.set_version(0, Version::Rstp);
    network.run_for(Duration::from_secs(10));
    network.bridges[1].check_migration(1, network.now);
    network.run_for(Duration::from_secs(10));
    assert!(towards(&network));
    network.assert_tree("both speak RSTP");
}

#[test]
fn two_cables_between_two_bridges_and_a_cable_from_a_bridge_to_itself_do_not_loop() {
    let mut network = Network::new(2, 3);
    for (a, b) in [(0, 1), (0, 1), (0, 0), (1, 1)] {
        let cable = network.connect(a, b, None);
        network.set_cable(cable, true);
    }
    network.run_for(Duration::from_secs(60));
    assert_eq!(
        network
            .cables
            .iter()
            .filter(|cable| network.forwards(cable))
            .count(),
        1
    );
    let backups = network
        .bridges
        .iter()
        .flat_map(Bridge::ports)
        .filter(|port| port.role == Role::Backup);
    assert_eq!(backups.count(), 2);
}

/// Returns a bridge with one port, and its answers to nothing from 0 to `to` in ms.
fn alone(edge: Edge, to: u64) -> (Bridge, Vec<(u64, PortState)>) {
    let mut bridge = Bridge::new(Settings::new(Mac([2; 6])), Time::ZERO);
    bridge.set_port(
        1,
        PortSettings {
            edge,
            ..PortSettings::new(Mac([4; 6]))
        },
        Time::ZERO,
    );
    bridge.set_link(1, Some(LINK), Time::ZERO);
    let mut states = Vec::new();
    for at in 0..to {
        for action in bridge.poll(Time::from_millis(at)) {
            if let Action::SetState { state, .. } = action {
                states.push((at, state));
            }
        }
    }
    (bridge, states)
}

#[test]
fn edge_ports_forward_at_once_automatic_ones_after_three_seconds_and_others_after_the_delays() {
    use PortState::{Forwarding, Learning};
    assert_eq!(alone(Edge::Yes, 40_000).1, [(0, Learning), (0, Forwarding)]);
    // Learning begins after the hello time; no BPDU came for 3 s.
    assert_eq!(
        alone(Edge::Auto, 40_000).1,
        [(2_000, Learning), (3_000, Forwarding)]
    );
    assert_eq!(
        alone(Edge::No, 40_000).1,
        [(2_000, Learning), (4_000, Forwarding)]
    );
}

#[test]
fn bpdu_guard_disables_a_port_until_its_link_goes_down() {
    let mut network = Network::new(2, 3);
    let cable = network.connect(0, 1, None);
    let guarded = PortSettings {
        bpdu_guard: true,
        ..PortSettings::new(Mac([4; 6]))
    };
    network.bridges[0].set_port(1, guarded, Time::ZERO);
    network.set_cable(cable, true);
    network.run_for(Duration::from_secs(20));
    let port = network.bridges[0].port(1).unwrap();
    assert_eq!(
        (port.role, port.state, port.is_guarded),
        (Role::Disabled, PortState::Discarding, true)
    );
    network.set_cable(cable, false);
    network.bridges[0].set_port(
        1,
        PortSettings {
            bpdu_guard: false,
            ..guarded
        },
        network.now,
    );
    network.set_cable(cable, true);
    network.run_for(Duration::from_secs(20));
    network.assert_tree("the guard is off");
}

#[test]
fn root_guard_blocks_a_port_that_would_become_the_root_port() {
    let mut network = Network::new(2, 3);
    let cable = network.connect(0, 1, None);
    for (bridge, priority) in [(0, 0x2000), (1, 0x1000)] {
        let settings = Settings {
            priority,
            ..*network.bridges[bridge].settings()
        };
        network.bridges[bridge].set_settings(settings, Time::ZERO);
    }
    let guarded = PortSettings {
        root_guard: true,
        ..PortSettings::new(Mac([4; 6]))
    };
    network.bridges[0].set_port(1, guarded, Time::ZERO);
    network.set_cable(cable, true);
    network.run_for(Duration::from_secs(20));
    let port = network.bridges[0].port(1).unwrap();
    assert_eq!((port.role, port.state), (Role::Alternate, PortState::Discarding));
    assert!(port.is_root_inconsistent);
    assert_eq!(network.bridges[0].status().root, network.bridges[0].status().id);
    let worse = Settings {
        priority: 0x3000,
        ..*network.bridges[1].settings()
    };
    network.bridges[1].set_settings(worse, network.now);
    network.run_for(Duration::from_secs(20));
    assert!(!network.bridges[0].port(1).unwrap().is_root_inconsistent);
    network.assert_tree("the neighbour is worse");
}

#[test]
fn a_flood_of_bpdus_is_answered_by_the_hold_count_and_then_by_one_a_second() {
    let mut network = ring(3);
    network.run_for(Duration::from_secs(30));
    let mut bridge = network.bridges.remove(0);
    let mut sent = 0;
    for at in 0..20_000_u64 {
        let now = network.now + Duration::from_millis(at / 2);
        // Every BPDU claims another root with a proposal, and each is better than all before.
        let mut bytes = vec![0x01, 0x80, 0xc2, 0, 0, 0, 4, 0, 0, 0, 0, 9, 0, 39, 0x42, 0x42, 3];
        bytes.extend([0, 0, 2, 2, 0x0e]);
        bytes.extend(((1 << 48) - 1 - at).to_be_bytes());
        bytes.extend([0, 0, 0, 1]);
        bytes.extend([0x10, 0, 4, 0, 0, 0, 0, 9, 0x80, 1, 0, 0, 20, 0, 2, 0, 15, 0, 0]);
        bridge.receive(1, &bytes, now);
        sent += bridge
            .poll(now)
            .iter()
            .filter(|action| matches!(action, Action::Transmit(transmit) if transmit.port == 1))
            .count();
    }
    assert!((9..=17).contains(&sent), "{sent} BPDUs in 10 s");
}
