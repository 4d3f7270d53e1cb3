//! The table of a run: the median of each case and system, its ratios to other systems, and the verdict on the
//! targets. `out/bench/table.json` is the list of its rows.

mod text;

use serde::Serialize;

use crate::case::{self, Baseline, Case, Target};
use crate::figure::{self, Quantity};
use crate::record::{Record, failure};
use millrace_report::stats::Summary;

/// The name of Millrace among the systems.
const OURS: &str = "millrace";
const OVS: &str = "ovs-dpdk";
const OVS_TUNED: &str = "ovs-dpdk-tuned";
const TESTPMD: &str = "testpmd-io";
/// The name of an earlier build of Millrace.
const BEFORE: &str = "millrace-before";
/// The remarks on a rate whose packets left by the wrong port, and on a rate with missing measurements.
const WRONG_PORT: &str = "packets left by the wrong port";
pub(crate) const INCOMPLETE: &str = "not measured in all rounds";

/// A row of `table.json`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// The name of the case.
    pub case: &'static str,
    /// The name of the system.
    pub system: String,
    /// The median of the measurements in million packets per second; `null` without measurements.
    pub mpps: Option<f64>,
    /// The ratio of the median to the median of Open vSwitch with DPDK, in the better of its measured
    /// configurations.
    pub ratio_ovs: Option<f64>,
    /// The ratio of the median to the median of testpmd io.
    pub ratio_testpmd: Option<f64>,
    /// The ratio of the median to Millrace's median in the reference case of this case, such as one rule or
    /// one table.
    pub ratio_self: Option<f64>,
    /// The targets of Millrace; `null` for other systems.
    pub target: Option<String>,
    /// True if all targets are met; `null` if not all could be compared.
    pub met: Option<bool>,
    /// Half of the range of the measurements, in percent of the median.
    pub spread_percent: Option<f64>,
    /// The number of measurements.
    pub samples: usize,
    /// The smallest share of its core that the forwarding thread got in a measurement, 0 to 1.
    pub core_share: Option<f64>,
    /// True if the packets left by the correct ports in every measurement.
    pub right: bool,
    /// The reason why a measurement is missing; `null` if none is missing.
    pub reason: Option<String>,
    /// The name of the quantity; `null` for a rate of packets.
    pub quantity: Option<&'static str>,
    /// The median of the quantity, or its maximum if the bound is for every round.
    pub value: Option<f64>,
    /// The unit of the quantity.
    pub unit: Option<&'static str>,
}

/// A target and the ratio that was measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Outcome {
    pub target: Target,
    /// The measured ratio; `None` if one of the two rates was not measured.
    pub reached: Option<f64>,
    /// True if the packets of Millrace left by the correct ports in every measurement.
    pub right: bool,
    /// True if Millrace was measured in all rounds.
    pub complete: bool,
    /// The configuration of the other system that failed, so that the ratio is to the other configuration, which may be
    /// the slower one.
    pub unmeasured: Option<&'static str>,
}

impl Outcome {
    /// Returns true if the target is met; `None` if the ratio, or that to the better configuration, was not measured.
    /// The target is not met if packets left by the wrong port or if a round has no measurement.
    pub fn met(&self) -> Option<bool> {
        match self.reached {
            _ if !self.right => Some(false),
            Some(reached) if !self.complete || reached < self.target.at_least => Some(false),
            Some(_) => self.unmeasured.is_none().then_some(true),
            None => None,
        }
    }

    /// Returns, in words, the reasons why the target is not met, or cannot be judged, whatever the ratio is; empty if
    /// there are none.
    pub(crate) fn flaws(&self) -> String {
        let flaws = [(self.right, WRONG_PORT), (self.complete, INCOMPLETE)];
        let flaws = flaws.iter().filter(|flaw| !flaw.0).map(|flaw| flaw.1.to_owned());
        let unmeasured = self.unmeasured.map(|system| format!("{system} was not measured"));
        flaws.chain(unmeasured).collect::<Vec<String>>().join("; ")
    }
}

/// The table of a run.
#[derive(Debug, Clone)]
pub struct Table {
    /// The rows in the order of the cases. Within a case, the rows are in the order in which the systems were
    /// measured.
    pub rows: Vec<Row>,
}

struct Measured<'a> {
    records: &'a [Record],
}

impl Measured<'_> {
    fn rates(&self, case: &str, system: &str) -> Vec<f64> {
        self.samples(case, system).map(|sample| sample.0).collect()
    }

    /// Returns for each measurement million packets per second, core share, and true if the packets left by
    /// the correct ports.
    fn samples(&self, of_case: &str, of_system: &str) -> impl Iterator<Item = (f64, f64, bool)> {
        self.records.iter().filter_map(move |record| match record {
            Record::Sample {
                case,
                system,
                pps,
                core_share,
                right,
                ..
            } if case == of_case && system == of_system => {
                Some((pps.iter().sum::<f64>() / 1e6, *core_share, *right))
            }
            _ => None,
        })
    }

    fn median(&self, case: &str, system: &str) -> Option<f64> {
        Some(Summary::of(&self.rates(case, system))?.median)
    }

    fn baseline(&self, case: &Case, baseline: Baseline) -> Option<f64> {
        match baseline {
            Baseline::OvsShipped => self.median(case.name, OVS),
            Baseline::OvsTuned => self.median(case.name, OVS_TUNED),
            Baseline::Ovs => {
                let both = [OVS, OVS_TUNED].map(|system| self.median(case.name, system));
                both.into_iter().flatten().reduce(f64::max)
            }
            Baseline::Testpmd => self.median(case.name, TESTPMD),
            Baseline::Own(own) => self.median(own, OURS),
            Baseline::Before => self.median(case.name, BEFORE),
        }
    }

    /// Returns the configuration of a baseline that failed and has no rate.
    fn unmeasured(&self, case: &Case, baseline: Baseline) -> Option<&'static str> {
        let configurations: &[&str] = match baseline {
            Baseline::Ovs => &[OVS, OVS_TUNED],
            _ => &[],
        };
        configurations.iter().copied().find(|system| {
            failure(self.records, case.name, system, None).is_some()
                && self.median(case.name, system).is_none()
        })
    }

    /// Returns the systems of a case, in the order in which they first appear.
    fn systems(&self, of_case: &str) -> Vec<String> {
        let mut systems: Vec<String> = Vec::new();
        for record in self.records {
            let (Record::Sample { case, system, .. }
            | Record::Failed { case, system, .. }
            | Record::Figure { case, system, .. }) = record
            else {
                continue;
            };
            if case == of_case && !systems.contains(system) {
                systems.push(system.clone());
            }
        }
        systems
    }

    /// Returns the row of a system in a case.
    fn row(&self, case: &Case, system: &str) -> Row {
        let summary = Summary::of(&self.rates(case.name, system));
        let mpps = summary.map(|summary| summary.median);
        let ratio = |other: Option<f64>| Some(mpps? / other.filter(|other| *other > 0.0)?);
        let outcomes = (system == OURS).then(|| self.outcomes(case));
        let met = outcomes.as_ref().and_then(|outcomes| {
            let met: Vec<Option<bool>> = outcomes.iter().map(Outcome::met).collect();
            if met.contains(&Some(false)) {
                Some(false)
            } else {
                met.iter().all(Option::is_some).then_some(true)
            }
        });
        Row {
            case: case.name,
            system: system.to_owned(),
            mpps,
            ratio_ovs: ratio(self.baseline(case, Baseline::Ovs)),
            ratio_testpmd: ratio(self.baseline(case, Baseline::Testpmd)),
            ratio_self: ratio(self.baseline(case, Baseline::Own(case.own))),
            target: outcomes.map(|outcomes| {
                let targets: Vec<String> = outcomes
                    .iter()
                    .map(|outcome| outcome.target.to_string())
                    .collect();
                targets.join(", ")
            }),
            met,
            spread_percent: summary.map(|summary| summary.spread_percent()),
            samples: summary.map_or(0, |summary| summary.len),
            core_share: self
                .samples(case.name, system)
                .map(|sample| sample.1)
                .reduce(f64::min),
            right: self.is_right(case.name, system),
            reason: failure(self.records, case.name, system, None).map(str::to_owned),
            quantity: None,
            value: None,
            unit: None,
        }
    }

    /// Returns the row of a quantity; `None` if it was neither measured nor failed.
    fn figure_row(&self, of: &Quantity, of_system: &str) -> Option<Row> {
        let values = of.values(self.records, of_system);
        let summary = Summary::of(&values);
        let reason = of.failure(self.records, of_system);
        if summary.is_none() && reason.is_none() {
            return None;
        }
        let value = of.aggregate(&values);
        let ours = of_system == OURS;
        Some(Row {
            case: of.case,
            system: of_system.to_owned(),
            mpps: None,
            ratio_ovs: None,
            ratio_testpmd: None,
            ratio_self: None,
            target: of.target().filter(|_| ours),
            met: ours.then(|| of.verdict(self.records, of_system)).flatten(),
            spread_percent: summary.map(|summary| summary.spread_percent()),
            samples: summary.map_or(0, |summary| summary.len),
            core_share: None,
            right: true,
            reason: reason.map(str::to_owned),
            quantity: Some(of.name),
            value,
            unit: Some(of.unit),
        })
    }

    fn is_right(&self, case: &str, system: &str) -> bool {
        self.samples(case, system).all(|sample| sample.2)
    }

    fn outcomes(&self, case: &Case) -> Vec<Outcome> {
        let ours = self.median(case.name, OURS);
        let right = self.is_right(case.name, OURS);
        let complete = failure(self.records, case.name, OURS, None).is_none();
        let outcome = |target: &Target| Outcome {
            target: *target,
            reached: match (ours, self.baseline(case, target.baseline)) {
                (Some(ours), Some(other)) if other > 0.0 => Some(ours / other),
                _ => None,
            },
            right,
            complete,
            unmeasured: self.unmeasured(case, target.baseline),
        };
        let before = self.median(case.name, BEFORE).map(|_| &case::NO_SLOWER);
        case.targets.iter().chain(before).map(outcome).collect()
    }
}

/// Returns the targets of Millrace in a case, with the measured ratios.
pub fn outcomes(case: &Case, records: &[Record]) -> Vec<Outcome> {
    Measured { records }.outcomes(case)
}

impl Table {
    /// Returns the table of these records.
    pub fn of(records: &[Record]) -> Table {
        let measured = Measured { records };
        let rates = case::all()
            .flat_map(|case| {
                measured
                    .systems(case.name)
                    .into_iter()
                    .map(move |system| (case, system))
            })
            .map(|(case, system)| measured.row(case, &system));
        let figures = figure::all()
            .flat_map(|quantity| {
                measured
                    .systems(quantity.case)
                    .into_iter()
                    .map(move |system| (quantity, system))
            })
            .filter_map(|(quantity, system)| measured.figure_row(quantity, &system));
        Table {
            rows: rates.chain(figures).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(case: &str, system: &str, mpps: f64) -> Record {
        Record::Sample {
            case: case.to_owned(),
            system: system.to_owned(),
            round: 0,
            window: 0,
            pps: [mpps * 5e5, mpps * 5e5],
            core_share: 1.0,
            right: true,
        }
    }

    #[test]
    fn a_build_that_is_a_twentieth_slower_than_the_one_before_is_reported() {
        for (mpps, is_met) in [(19.1, true), (18.9, false)] {
            let records = [
                sample("routes-mixed", OURS, mpps),
                sample("routes-mixed", BEFORE, 20.0),
            ];
            let table = Table::of(&records);
            assert_eq!(table.rows[0].met, Some(is_met), "{mpps}");
            assert!(table.text(&records).contains("0.95 of the build before"));
        }
        let alone = Table::of(&[sample("routes-mixed", OURS, 20.0)]);
        assert_eq!(alone.rows[0].target.as_deref(), Some(""));
    }

    fn records() -> Vec<Record> {
        vec![
            sample("one-rule", OURS, 20.0),
            sample("one-rule", OURS, 26.0),
            sample("one-rule", OURS, 24.0),
            sample("one-rule", TESTPMD, 40.0),
            sample("one-rule", OVS, 16.0),
            sample("exact-100k", OURS, 8.0),
            sample("exact-100k", OVS, 0.1),
            sample("exact-100k", OVS_TUNED, 1.0),
            Record::Failed {
                case: "exact-100k".to_owned(),
                system: TESTPMD.to_owned(),
                quantity: None,
                reason: "no memory\nmore".to_owned(),
            },
        ]
    }

    #[test]
    fn a_row_has_the_keys_that_others_read() {
        let table = Table::of(&records());
        let json = serde_json::to_value(&table.rows[0]).unwrap();
        for key in [
            "case",
            "system",
            "mpps",
            "ratio_ovs",
            "ratio_testpmd",
            "ratio_self",
            "target",
            "met",
        ] {
            assert!(json.get(key).is_some(), "{key}");
        }
        assert_eq!(json["mpps"], 24.0);
        assert_eq!(json["ratio_ovs"], 1.5);
        assert_eq!(json["ratio_testpmd"], 0.6);
        assert_eq!(json["met"], false);
        assert_eq!(json["target"], "1.3x ovs-dpdk, 0.7 of testpmd io");
    }

    #[test]
    fn a_case_is_met_only_if_all_its_targets_were_measured_and_met() {
        let table = Table::of(&records());
        let ours = |case: &str| {
            table
                .rows
                .iter()
                .find(|row| row.case == case && row.system == OURS)
                .unwrap()
                .met
        };
        // The ratios to Open vSwitch meet their targets. The ratio to the rate of one flow, a third, does
        // not.
        assert_eq!(ours("exact-100k"), Some(false));
        let without: Vec<Record> = records().into_iter().take(4).collect();
        let row = Table::of(&without).rows[0].clone();
        assert_eq!((row.ratio_ovs, row.met), (None, Some(false)));
        let met = [sample("masks-10k", OURS, 5.0), sample("masks-10k", OVS, 1.0)];
        assert_eq!(Table::of(&met).rows[0].met, Some(true));
        assert_eq!(Table::of(&met[..1]).rows[0].met, None);
    }

    #[test]
    fn a_rate_of_packets_that_left_by_the_wrong_port_meets_no_target() {
        let mut records = [5.0, 5.0, 1.0].map(|mpps| sample("masks-10k", OURS, mpps));
        let [.., other] = &mut records;
        *other = sample("masks-10k", OVS, 1.0);
        assert_eq!(Table::of(&records).rows[0].met, Some(true));
        let Record::Sample { right, .. } = &mut records[1] else {
            unreachable!()
        };
        *right = false;
        let table = Table::of(&records);
        assert_eq!((table.rows[0].right, table.rows[0].met), (false, Some(false)));
        let text = table.text(&records);
        assert!(text.contains("NOT MET") && text.contains(WRONG_PORT), "{text}");
        // Without the other system, the ratio is unknown. The target is not met anyway, because packets left
        // by the wrong port.
        assert_eq!(Table::of(&records[..2]).rows[0].met, Some(false));
    }

    #[test]
    fn a_ratio_to_the_slower_configuration_meets_no_target_if_the_other_one_failed() {
        let tuned = Record::Failed {
            case: "masks-10k".to_owned(),
            system: OVS_TUNED.to_owned(),
            quantity: None,
            reason: "no huge pages".to_owned(),
        };
        let records = |ours: f64, tuned: Record| {
            [
                sample("masks-10k", OURS, ours),
                sample("masks-10k", OVS, 1.0),
                tuned,
            ]
        };
        let met = |records: &[Record]| Table::of(records).rows[0].met;
        assert_eq!(met(&records(5.0, tuned.clone())), None);
        // The ratio to the better configuration can only be lower.
        assert_eq!(met(&records(0.5, tuned.clone())), Some(false));
        assert_eq!(
            met(&records(5.0, sample("masks-10k", OVS_TUNED, 1.2))),
            Some(true)
        );
        let outcome = outcomes(case::find("masks-10k").unwrap(), &records(5.0, tuned))[0];
        assert_eq!(outcome.flaws(), "ovs-dpdk-tuned was not measured");
    }

    fn failed(case: &str, quantity: Option<&str>) -> Record {
        Record::Failed {
            case: case.to_owned(),
            system: OURS.to_owned(),
            quantity: quantity.map(str::to_owned),
            reason: "the daemon ended".to_owned(),
        }
    }

    #[test]
    fn what_failed_in_some_round_is_not_met_and_names_the_reason() {
        let records = [
            sample("masks-10k", OURS, 5.0),
            sample("masks-10k", OVS, 1.0),
            failed("masks-10k", None),
        ];
        let row = &Table::of(&records).rows[0];
        assert_eq!((row.mpps, row.met), (Some(5.0), Some(false)));
        assert_eq!(row.reason.as_deref(), Some("the daemon ended"));

        let install = figure::find("install-1m", "install").unwrap();
        let figure = Record::Figure {
            case: install.case.to_owned(),
            system: OURS.to_owned(),
            round: 0,
            quantity: install.name.to_owned(),
            unit: install.unit.to_owned(),
            value: 1.0,
        };
        let verdict = |records: &[Record]| {
            let table = Table::of(records);
            let row = table.rows.iter().find(|row| row.quantity == Some(install.name));
            row.map(|row| (row.value, row.met, row.reason.clone()))
        };
        let reason = Some("the daemon ended".to_owned());
        assert_eq!(
            verdict(std::slice::from_ref(&figure)),
            Some((Some(1.0), Some(true), None))
        );
        assert_eq!(
            verdict(&[figure.clone(), failed(install.case, None)]),
            Some((Some(1.0), Some(false), reason.clone()))
        );
        assert_eq!(
            verdict(&[failed(install.case, Some(install.name))]),
            Some((None, None, reason))
        );
        // A failure of another quantity does not affect this quantity.
        assert_eq!(
            verdict(&[figure, failed(install.case, Some("delete"))]),
            Some((Some(1.0), Some(true), None))
        );
    }

    #[test]
    fn ratios_refer_to_the_better_configuration_of_open_vswitch() {
        let row = &Table::of(&records()).rows[3];
        assert_eq!(
            (row.case, row.system.as_str(), row.ratio_ovs),
            ("exact-100k", OURS, Some(8.0))
        );
    }

    #[test]
    fn a_system_that_failed_is_in_the_table_with_its_reason() {
        let records = records();
        let table = Table::of(&records);
        let row = table.rows.last().unwrap();
        assert_eq!((row.mpps, row.reason.as_deref()), (None, Some("no memory\nmore")));
        let text = table.text(&records);
        assert!(text.contains("no memory") && text.contains("NOT MET"), "{text}");
    }
}
