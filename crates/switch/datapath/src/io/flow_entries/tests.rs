//! Entries as rules, in virtual time, with a device that refuses, leaks or forgets.

use parking_lot::Mutex;

use millrace_flow::{Field, FlowKey, Layer};

use super::*;
use crate::offload::fences::QueueFence;
use crate::offload::key::entry_bits;
use crate::offload::rule::whole_fields;

/// A device whose rules the test sees.
#[derive(Default)]
struct Table {
    rules: Arc<Mutex<Vec<SteerRule>>>,
    refusal: Option<Refusal>,
    keeps: bool,
}

impl RuleTable for Table {
    type Rule = SteerRule;

    fn create(&mut self, rule: &SteerRule) -> Result<SteerRule, Refusal> {
        if let Some(refusal) = self.refusal {
            return Err(refusal);
        }
        self.rules.lock().push(rule.clone());
        Ok(rule.clone())
    }

    fn destroy(&mut self, rule: SteerRule) -> bool {
        if !self.keeps {
            self.rules.lock().retain(|one| *one != rule);
        }
        !self.keeps
    }
}

const ABILITIES: RuleAbilities = RuleAbilities {
    mark_bits: 24,
    no_fragment: true,
    queues: 2,
};

fn installer() -> Installer<Table> {
    let mut mask = FlowMask::default();
    mask.0.put(Field::Ipv4Dst, Field::Ipv4Dst.max_value());
    let installer = Installer {
        table: Table::default(),
        shared: Arc::new(Shared {
            operations: ArrayQueue::new(OPERATIONS_LEN),
            outcomes: ArrayQueue::new(OPERATIONS_LEN),
            fences: Arc::new(Fences::new(2)),
            stop: AtomicBool::new(false),
        }),
        abilities: ABILITIES,
        rules: BTreeMap::new(),
        mask: FlowMask::default(),
        reset: 0,
        removals: Vec::new(),
    };
    let mask = whole_fields(&entry_bits(&mask));
    let reset = DeviceOperation::Reset { number: 5, mask };
    installer.shared.operations.push(reset).unwrap();
    installer
}

fn install(installer: &Installer<Table>, slot: u32) {
    let mut key = FlowKey::default();
    key.put(Field::EthType, 0x0800);
    key.put(Field::Ipv4Dst, (0x0a00_0000 + slot).into());
    key.add_layer(Layer::Ip);
    let mark = slot + 1;
    let operation = DeviceOperation::Install { slot, mark, key };
    installer.shared.operations.push(operation).unwrap();
}

fn remove(installer: &Installer<Table>, slot: u32) {
    installer
        .shared
        .operations
        .push(DeviceOperation::Remove { slot })
        .unwrap();
}

/// Runs the thread's work once, and returns the outcomes.
fn run(installer: &mut Installer<Table>, now: Instant) -> Vec<DeviceOutcome> {
    installer.run(now);
    std::iter::from_fn(|| installer.shared.outcomes.pop()).collect()
}

fn slot(slot: u32, outcome: Outcome) -> DeviceOutcome {
    DeviceOutcome::Slot {
        reset: 5,
        slot,
        outcome,
    }
}

#[test]
fn a_slot_is_removed_when_every_queue_has_delivered_what_it_held() {
    let (mut installer, now) = (installer(), Instant::now());
    install(&installer, 3);
    let done = run(&mut installer, now);
    assert_eq!(
        done,
        [DeviceOutcome::Reset { number: 5 }, slot(3, Outcome::Installed)]
    );
    let rules = Arc::clone(&installer.table.rules);
    assert_eq!(rules.lock().len(), 1);
    remove(&installer, 3);
    assert_eq!(run(&mut installer, now), []);
    assert!(rules.lock().is_empty());
    let fences = Arc::clone(&installer.shared.fences);
    for queue in 0..2 {
        assert_eq!(run(&mut installer, now), [], "queue {queue} may hold packets");
        let mut seen = QueueFence::default();
        seen.begin(&fences);
        seen.end(&fences, queue, 64, 0);
    }
    assert_eq!(run(&mut installer, now), [slot(3, Outcome::Removed)]);
}

#[test]
fn a_queue_that_nobody_polls_leaks_the_slot() {
    let (mut installer, now) = (installer(), Instant::now());
    install(&installer, 1);
    remove(&installer, 1);
    run(&mut installer, now);
    assert_eq!(run(&mut installer, now + FENCE_TIMEOUT / 2), []);
    assert_eq!(
        run(&mut installer, now + FENCE_TIMEOUT),
        [slot(1, Outcome::Leaked)]
    );
}

#[test]
fn refusals_and_rules_that_stay_are_told() {
    let (mut installer, now) = (installer(), Instant::now());
    run(&mut installer, now);
    for refusal in [Refusal::Shape, Refusal::Capacity, Refusal::Transient] {
        installer.table.refusal = Some(refusal);
        install(&installer, 2);
        let done = run(&mut installer, now);
        assert_eq!(done, [slot(2, Outcome::Refused(refusal))]);
    }
    installer.table.refusal = None;
    installer.table.keeps = true;
    install(&installer, 2);
    install(&installer, 4);
    remove(&installer, 2);
    let done = run(&mut installer, now);
    assert_eq!(done[2..], [slot(2, Outcome::Leaked)]);
    // A rule that outlives a reset keeps its slot.
    let (number, mask) = (6, installer.mask);
    let reset = DeviceOperation::Reset { number, mask };
    installer.shared.operations.push(reset).unwrap();
    let leaked = DeviceOutcome::Slot {
        reset: 6,
        slot: 4,
        outcome: Outcome::Leaked,
    };
    assert_eq!(
        run(&mut installer, now),
        [DeviceOutcome::Reset { number: 6 }, leaked]
    );
    // A key that no header of rte_flow describes.
    let operation = DeviceOperation::Install {
        slot: 5,
        mark: 6,
        key: FlowKey::default(),
    };
    installer.shared.operations.push(operation).unwrap();
    let refused = DeviceOutcome::Slot {
        reset: 6,
        slot: 5,
        outcome: Outcome::Refused(Refusal::Shape),
    };
    assert_eq!(run(&mut installer, now), [refused]);
}

#[test]
fn a_port_that_closes_takes_its_rules_away() {
    let table = Table::default();
    let rules = Arc::clone(&table.rules);
    let fences = Arc::new(Fences::new(1));
    let mut entries = FlowEntries::start(table, &fences, ABILITIES).unwrap();
    let mask = whole_fields(&entry_bits(&FlowMask::default()));
    assert!(entries.submit(DeviceOperation::Reset { number: 1, mask }));
    let mut key = FlowKey::default();
    key.put(Field::EthType, 0x0800);
    key.add_layer(Layer::Ip);
    assert!(entries.submit(DeviceOperation::Install {
        slot: 0,
        mark: 1,
        key
    }));
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut outcomes = Vec::new();
    while outcomes.len() < 2 && Instant::now() < deadline {
        outcomes.extend(entries.poll());
        std::thread::yield_now();
    }
    assert_eq!(rules.lock().len(), 1);
    drop(entries);
    assert!(rules.lock().is_empty());
}
