//! The forwarding experiments as data: the workloads, the systems, and the targets of a run.

mod acceptance;
mod definition;
mod hostile;
mod rules;
mod scaling;
mod tables;

pub use acceptance::CASES;
pub(crate) use definition::NO_SLOWER;
pub use definition::{Baseline, Case, Experiment, PacketSource, Target};

/// The experiments that measure how many packets per second a system forwards.
pub const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        name: "forward",
        title: "packets per second on one core, by rules and flows",
        cases: CASES,
    },
    Experiment {
        name: "hostile",
        title: "the same rules under hostile traffic",
        cases: hostile::HOSTILE,
    },
    Experiment {
        name: "rules",
        title: "rule sets of other shapes: an IP chain, a long access list, routes",
        cases: rules::RULES,
    },
    Experiment {
        name: "tables",
        title: "the cost of further tables, at 10,000 flows",
        cases: tables::TABLES,
    },
    Experiment {
        name: "workers",
        title: "the gain of further cores, at 10,000 flows",
        cases: scaling::WORKERS,
    },
    Experiment {
        name: "million",
        title: "a million entries and flows on one core and more (E9)",
        cases: scaling::MILLION,
    },
];

/// Returns all cases of all experiments, in order.
pub fn all() -> impl Iterator<Item = &'static Case> {
    EXPERIMENTS.iter().flat_map(|experiment| experiment.cases)
}

/// Returns the case with this name.
pub fn find(name: &str) -> Option<&'static Case> {
    all().find(|case| case.name == name)
}

#[cfg(test)]
mod tests {
    use super::acceptance::ONE_SENT;
    use super::*;

    #[test]
    fn a_case_is_compared_with_itself_or_an_earlier_case_of_its_experiment() {
        for experiment in EXPERIMENTS {
            for (index, case) in experiment.cases.iter().enumerate() {
                let own = case.targets.iter().filter_map(|target| match target.baseline {
                    Baseline::Own(name) => Some(name),
                    _ => None,
                });
                for name in own.chain([case.own]) {
                    assert!(
                        experiment.cases[..=index]
                            .iter()
                            .any(|earlier| earlier.name == name),
                        "{}",
                        case.name
                    );
                }
            }
        }
    }

    #[test]
    fn case_names_are_unique_and_acceptance_cases_have_targets() {
        for (index, case) in all().enumerate() {
            assert_eq!(all().position(|other| other.name == case.name), Some(index));
        }
        // Only the case that others are compared with has no target.
        let aimless = CASES.iter().filter(|case| case.targets.is_empty());
        assert!(aimless.map(|case| case.name).eq([ONE_SENT]));
    }
}
