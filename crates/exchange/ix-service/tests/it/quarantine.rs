//! The quarantine of an end: clean time counts while the engine sees the frames of the end, and faults write little.

use millrace_ix_model::{ConfigId, Quarantine, SwitchId};
use millrace_ix_plan::layout::{CookieFields, CookieKind};
use millrace_ix_service::{Check, Snapshot};
use millrace_types::Duration;
use serde_json::json;

use crate::world::World;

const SECOND: Duration = Duration::from_secs(1);
/// The clean time of the policy in seconds.
const QUARANTINE: u32 = 900;

/// A world with a peering LAN that has one end, in quarantine.
struct Lan {
    world: World,
    switch: SwitchId,
    end: ConfigId,
}

impl Lan {
    fn new() -> Lan {
        let mut world = World::new();
        let policy = json!({"name": "lan", "ethertypes": [0x0800, 0x0806, 0x86dd], "macs_max": 4, "broadcast_pps": 100,
            "multicast_pps": 100, "arp": "unicast", "quarantine_secs": QUARANTINE});
        let created = world.order(&[json!({"operation": "create_policy", "policy": policy})]);
        let policy = created.applied.created[0];
        let account = *world.core().exchange().accounts.keys().next().unwrap();
        let connection = world.connections()[0];
        world.order(&[
            json!({"operation": "create_service", "account": account, "kind": "exchange_lan", "name": "lan",
                "policy": policy, "networks": ["192.0.2.0/24"]}),
            json!({"operation": "configure_end", "service": "sv-0", "connection": connection,
                "vlan": {"type": "dot1q", "vlan": 10}}),
        ]);
        let end = *world.core().exchange().configs.keys().next().unwrap();
        world.order(&[
            json!({"operation": "add_mac", "config": end, "address": "02:00:00:00:01:01"}),
            json!({"operation": "add_ip", "config": end, "address": "192.0.2.1"}),
        ]);
        let switch = *world.core().exchange().switches.keys().next().unwrap();
        Lan { world, switch, end }
    }

    /// Passes a frame of the end to the engine.
    fn arrive(&mut self, frame: &[u8]) {
        let cookie = CookieFields {
            kind: CookieKind::End,
            object: self.end.0,
            generation: 0,
        };
        let now = self.world.now();
        let session = self.world.switches[&self.switch].session.unwrap();
        let switch = self.switch.0;
        self.world
            .core()
            .packet_in(switch, session, cookie.cookie(), frame, now);
        self.world.deliver();
    }

    /// Runs for some seconds, and looks at the quarantine at the end; returns true if the end has passed.
    fn passes_after(&mut self, secs: u32) -> bool {
        self.world.run(SECOND * secs);
        let now = self.world.now();
        self.world.core().expire(now);
        self.world.deliver();
        self.world.core().exchange().configs[&self.end].quarantine == Quarantine::Passed
    }
}

/// Returns an ARP request of the router for its own address.
fn arp() -> Vec<u8> {
    millrace_ix_service::simulation::arp_announcement([2, 0, 0, 0, 1, 1], [192, 0, 2, 1])
}

/// Returns a frame to an address with an EtherType and a source.
fn frame(destination: [u8; 6], source: u8, ethertype: [u8; 2]) -> Vec<u8> {
    [&destination[..], &[2, 0, 0, 0, 1, source], &ethertype, &[0; 46]].concat()
}

#[test]
fn clean_time_does_not_count_while_the_engine_is_away() {
    let mut lan = Lan::new();
    assert!(!lan.passes_after(10));
    let store = lan.world.kill(false);
    lan.world.time = lan.world.time + SECOND * QUARANTINE;
    lan.world.start(store);
    assert!(!lan.passes_after(1));
    lan.arrive(&arp());
    assert!(!lan.passes_after(1), "a single frame after the restart");
    assert!(!lan.passes_after(QUARANTINE - 10));
    assert!(lan.passes_after(10));
}

#[test]
fn clean_time_does_not_count_while_the_switch_is_away() {
    let mut lan = Lan::new();
    lan.arrive(&arp());
    lan.world.disconnect(lan.switch);
    assert!(!lan.passes_after(QUARANTINE + 10), "nobody has seen what it sent");
    lan.world.connect(lan.switch);
    assert!(!lan.passes_after(5));
    assert!(!lan.passes_after(QUARANTINE), "it was silent since");
    lan.arrive(&arp());
    assert!(lan.passes_after(1));
}

#[test]
fn a_stream_of_different_faults_writes_once_in_ten_seconds_and_hides_no_check() {
    let mut lan = Lan::new();
    lan.world.run(2 * SECOND);
    let revision = |lan: &mut Lan| lan.world.core().store().load().unwrap().revision.0;
    let before = revision(&mut lan);
    let lldp = frame([0x01, 0x80, 0xc2, 0, 0, 0x0e], 1, [0x88, 0xcc]);
    let lacp = frame([0x01, 0x80, 0xc2, 0, 0, 2], 1, [0x88, 0x09]);
    // 50 frames a second for 20 s, many of which have a source address of their own.
    for _ in 0..40 {
        lan.arrive(&lldp);
        lan.arrive(&lacp);
        for source in 2..25 {
            lan.arrive(&frame([2, 0, 0, 0, 1, 99], source, [8, 0]));
        }
        lan.world.run(Duration::from_millis(500));
    }
    let written = revision(&mut lan) - before;
    assert!(
        (1..=12).contains(&written),
        "{written} revisions for two or three reports, with their journal"
    );
    let snapshot = Snapshot::of(lan.world.core());
    let findings = &snapshot.quarantine[&lan.end].findings;
    for check in [Check::Lldp, Check::Lacp, Check::Mac] {
        assert!(findings.iter().any(|finding| finding.check == check), "{check:?}");
    }
}
