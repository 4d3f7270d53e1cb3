//! A function with rules. It has the methods of the engine's test bed, so that the engine's evasion tests can
//! use it. Tests compare the bytes that leave the function.

use std::collections::BTreeSet;

use millrace_inspection::{IDS, IPS};
use millrace_ips_engine::verdict::DropReason;
use millrace_ips_engine::{Mode, Settings, Verdict};
use millrace_nf::{
    Buffer, Context, Direction, Effects, Function, Kind, Sending, Settings as Texts, Setup, SharedValue,
    Verdict as Given,
};
use millrace_types::Time;
use millrace_wire::{Frame, Packet};

pub(crate) use crate::packets::{
    ATTACK, CLIENT, HOST_A, HOST_B, SERVER, Segment, Sent, acknowledgment, data, datagram, fragment,
    fragments, geneve, gre, handshake, six_in_four, vxlan, with_ident,
};

const ETHERNET: [u8; 14] = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];

/// Returns an IPv4 packet as an Ethernet frame.
pub(crate) fn ethernet(packet: &[u8]) -> Vec<u8> {
    [&ETHERNET[..], packet].concat()
}

/// Compiles rules as the control side does.
pub(crate) fn rules(kind: &Kind, text: &str, previous: Option<&SharedValue>) -> Result<SharedValue, String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("test.rules");
    std::fs::write(&path, text).unwrap();
    let settings = Texts::parse([format!("rules={}", path.display())]).unwrap();
    let shared = kind.shared.unwrap();
    let source = (shared.read)(&settings)?;
    (shared.compile)(&source.bytes, previous).map(|compiled| compiled.value)
}

/// A function, with the setup and the state of a hop.
pub(crate) struct TestBed {
    kind: &'static Kind,
    pub(crate) setup: Setup,
    pub(crate) function: Box<dyn Function>,
    pub(crate) effects: Effects,
    pub(crate) now: Time,
    pub(crate) load: u8,
    events: Vec<u8>,
}

impl TestBed {
    /// Returns a function with these settings, without rules.
    pub(crate) fn without_rules(kind: &'static Kind, settings: &[&str]) -> TestBed {
        let settings = Texts::parse(["rules=unused"].iter().chain(settings)).unwrap();
        let setup = kind.setup(&settings, 1, 0);
        TestBed {
            kind,
            function: kind.make_function(&setup).unwrap(),
            setup,
            effects: Effects::new(),
            now: Time::from_secs(1000),
            load: 0,
            events: Vec::new(),
        }
    }

    /// Returns a function with these settings and rules.
    pub(crate) fn made(kind: &'static Kind, settings: &[&str], text: &str) -> TestBed {
        let mut bed = TestBed::without_rules(kind, settings);
        assert!(bed.function.share(rules(kind, text, None).unwrap()).is_none());
        bed
    }

    pub(crate) fn new(mode: Mode, rules: &str) -> TestBed {
        let kind = match mode {
            Mode::Ips => &IPS,
            Mode::Ids => &IDS,
        };
        TestBed::made(kind, &[], rules)
    }

    pub(crate) fn inline() -> TestBed {
        TestBed::new(Mode::Ips, ATTACK)
    }

    /// Returns a function whose settings are those of an engine.
    pub(crate) fn with(settings: Settings, rules: &str) -> TestBed {
        let yes = |is_set: bool, key: &'static str| is_set.then_some(key);
        let ttl = format!("minimum_ttl={}", settings.minimum_ttl);
        let depth = format!("stream_depth={}", settings.stream_depth);
        let mut texts = vec![ttl.as_str(), depth.as_str()];
        texts.extend(yes(settings.accepts_midstream, "midstream=yes"));
        texts.extend(yes(settings.accepts_async, "asymmetric=yes"));
        let kind = match settings.mode {
            Mode::Ips => &IPS,
            Mode::Ids => &IDS,
        };
        TestBed::made(kind, &texts, rules)
    }

    /// Passes a frame to the function.
    pub(crate) fn frame(&mut self, frame: &mut Frame, direction: Direction) -> Given {
        let context = Context {
            load: self.load,
            ..Context::new(self.now, direction)
        };
        let mut burst: [&mut dyn Buffer; 1] = [frame];
        let mut verdicts = [Given::Next];
        self.effects.reset(Sending::Allowed);
        self.function
            .process_with_effects(&context, &mut burst, &mut verdicts, &mut self.effects);
        verdicts[0]
    }

    /// Sends an IP packet. The verdict is the one that the engine would have given.
    pub(crate) fn send(&mut self, bytes: Vec<u8>) -> Sent {
        let mut frame = Frame::new(&ethernet(&bytes));
        let given = self.frame(&mut frame, Direction::Forward);
        let after = Packet::head(&frame)[ETHERNET.len()..].to_vec();
        let verdict = match given {
            Given::Drop => Verdict::Drop(DropReason::Rule),
            _ if after != bytes => Verdict::Rewritten,
            _ => Verdict::Pass,
        };
        Sent {
            verdict,
            bytes: after,
        }
    }

    pub(crate) fn send_all(&mut self, packets: impl IntoIterator<Item = Vec<u8>>) -> bool {
        let mut is_dropped = false;
        for packet in packets {
            is_dropped |= self.send(packet).is_dropped();
        }
        is_dropped
    }

    pub(crate) fn handshake(&mut self) {
        for packet in handshake() {
            assert!(!self.send(packet).is_dropped());
        }
    }

    /// Ends all flows: an hour without packets exceeds each timeout of a flow.
    pub(crate) fn finish(&mut self) {
        self.now = self.now + millrace_types::Duration::from_secs(4000);
        self.function.tick(self.now);
    }

    /// Returns the events so far, as EVE JSON.
    pub(crate) fn events(&mut self) -> Vec<serde_json::Value> {
        let mut formatter = (self.kind.formatter.unwrap())(&self.setup.settings, 0);
        while self
            .setup
            .outbox
            .receive(|message| formatter.format(message, &mut self.events))
        {}
        let lines = self.events.split(|byte| *byte == b'\n');
        lines
            .filter(|line| !line.is_empty())
            .map(|line| serde_json::from_slice(line).unwrap())
            .collect()
    }

    /// Returns the rules that matched.
    pub(crate) fn sids(&mut self) -> BTreeSet<u64> {
        let events = self.events();
        let sid = |event: &serde_json::Value| event["alert"]["signature_id"].as_u64();
        events.iter().filter_map(sid).collect()
    }

    pub(crate) fn is_attack_found(&mut self) -> bool {
        self.sids().contains(&1)
    }

    /// Returns a counter, after a tick.
    pub(crate) fn counter(&mut self, name: &str) -> u64 {
        self.function.tick(self.now);
        self.setup.counters.value(name).unwrap()
    }
}
