//! Right plans: no false alarm.

use millrace_ix_plan::plan;
use millrace_ix_verify::{Checker, Register};

use crate::support::{SETTINGS, fabric, findings, world};
use crate::world::NOW;

/// Returns a number of the environment, or the short form's.
pub(crate) fn number(name: &str, short: u64) -> u64 {
    std::env::var(name)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(short)
}

#[test]
fn a_plan_of_the_planner_holds_all_properties() {
    for seed in 0..number("MILLRACE_EXCHANGES", 12) {
        let (world, _) = world(seed);
        let plan = plan(&world.exchange, &SETTINGS);
        assert_eq!(findings(&world.exchange, &plan), [], "seed {seed}");
    }
}

#[test]
fn no_entry_of_a_plan_is_dead_or_shadowed() {
    for seed in 0..number("MILLRACE_EXCHANGES", 4) {
        // LANs and multipoint circuits have entries for questions that only members at other switches would ask.
        let (world, _) = world(3 * seed);
        let plan = plan(&world.exchange, &SETTINGS);
        let register = Register::of(&world.exchange, NOW);
        let fabric = fabric(&plan, &register);
        let mut checker = Checker::new(&fabric, &register);
        checker.shadowed();
        checker.dead();
        let found: Vec<String> = checker.into_findings().iter().map(ToString::to_string).collect();
        assert_eq!(found, Vec::<String>::new(), "seed {seed}");
    }
}
