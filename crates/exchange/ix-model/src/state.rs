//! The life of a service. The displayed state is a total function of the order, the state of the switches,
//! the answer of the invited account, and the result of the quarantine.
//!
//! ```text
//!  ordered   consent given   rules in switches   15 clean minutes
//! requested -> allocated -----------------> testing -> production <-> production_change_pending
//!                                  (virtual circuits: no testing)  -> decommission_requested -> decommissioned
//! ```

use serde::{Deserialize, Serialize};

use crate::reason::{self, Coded, Reason};

/// The commercial state (IX-API 2, `State`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CommercialState {
    /// The order exists; something is missing before resources can be used.
    #[default]
    Requested,
    /// Resources are reserved.
    Allocated,
    /// The end is in quarantine.
    Testing,
    /// Frames flow.
    Production,
    /// Frames flow, and a change is in progress.
    ProductionChangePending,
    /// Deletion is ordered and in progress.
    DecommissionRequested,
    /// The service is removed from the switches.
    Decommissioned,
    /// The service is kept for the record.
    Archived,
    /// The service failed.
    Error,
    /// An operator must act.
    Operator,
    /// The service begins later.
    Scheduled,
    /// The order was cancelled or refused.
    Cancelled,
}

impl CommercialState {
    /// All states.
    pub const ALL: [CommercialState; 12] = [
        CommercialState::Requested,
        CommercialState::Allocated,
        CommercialState::Testing,
        CommercialState::Production,
        CommercialState::ProductionChangePending,
        CommercialState::DecommissionRequested,
        CommercialState::Decommissioned,
        CommercialState::Archived,
        CommercialState::Error,
        CommercialState::Operator,
        CommercialState::Scheduled,
        CommercialState::Cancelled,
    ];

    /// Returns true if the switches should carry the service.
    pub const fn is_carried(self) -> bool {
        matches!(
            self,
            CommercialState::Requested
                | CommercialState::Allocated
                | CommercialState::Testing
                | CommercialState::Production
                | CommercialState::ProductionChangePending
        )
    }
}

/// The realisation of a service in the switches, as the engine knows it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "name")]
pub enum Realisation {
    /// Nothing is in the switches yet.
    Planned,
    /// A generation is being installed.
    Installing { generation: u32 },
    /// A generation is installed in all switches.
    InPlace { generation: u32 },
    /// Frames do not flow, or do not flow as contracted.
    Degraded(Reason),
    /// The rules are being removed.
    Removing,
    /// The rules are confirmed gone.
    Gone,
}

/// The answer of the invited account, without its reason.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ConsentState {
    /// The account has not answered, or has not configured its end.
    Pending,
    /// The account has consented, or no consent is needed.
    Given,
    /// The account has refused.
    Refused,
}

/// The quarantine's result.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "name")]
pub enum Checklist {
    /// The service has no quarantine.
    NotNeeded,
    /// No offending frame was seen so far.
    Running {
        /// The remaining time in seconds.
        remaining_secs: u32,
    },
    /// Offending frames are seen.
    Failing(Reason),
    /// The quarantine is over.
    Passed,
}

impl Checklist {
    /// Returns the worse of two results, such as those of two ends of a service. The order does not matter,
    /// except that the first of two findings is returned.
    #[must_use]
    pub fn worse(self, other: Checklist) -> Checklist {
        /// Returns a larger value for a worse result.
        fn rank(list: &Checklist) -> (u8, u32) {
            match list {
                Checklist::NotNeeded => (0, 0),
                Checklist::Passed => (1, 0),
                Checklist::Running { remaining_secs } => (2, *remaining_secs),
                Checklist::Failing(_) => (3, 0),
            }
        }
        if rank(&other) > rank(&self) { other } else { self }
    }
}

/// The severity of a status.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// A member or operator must act.
    Error,
    /// Something is not as contracted.
    Warning,
    /// An operation is in progress.
    Info,
}

/// A reason why a service is not in production, or not as contracted.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Status {
    pub severity: Severity,
    /// The kind of the message, stable for programs.
    pub tag: &'static str,
    /// The message in words.
    pub message: String,
    /// The codes of the message, for translation; empty if the tag says everything.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub coded: Vec<Coded>,
}

/// The displayed state of a service.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct ServiceState {
    /// The commercial state.
    pub state: CommercialState,
    /// The reasons why the service is not in production, or not as contracted; empty in production without
    /// faults.
    pub status: Vec<Status>,
}

impl ServiceState {
    fn new(
        state: CommercialState,
        severity: Severity,
        tag: &'static str,
        message: impl Into<String>,
    ) -> ServiceState {
        let status = Status {
            severity,
            tag,
            message: message.into(),
            coded: Vec::new(),
        };
        ServiceState {
            state,
            status: vec![status],
        }
    }

    const fn without_status(state: CommercialState) -> ServiceState {
        ServiceState {
            state,
            status: Vec::new(),
        }
    }
}

/// Returns the displayed state of a service.
///
/// Every combination has an answer. The order has precedence over the state of the switches: a service whose
/// deletion was ordered is in `decommission_requested` until its rules are confirmed gone, whatever the other
/// inputs are.
pub fn shown(
    ordered: CommercialState,
    realisation: &Realisation,
    consent: ConsentState,
    checklist: &Checklist,
) -> ServiceState {
    let is_gone = *realisation == Realisation::Gone;
    shown_by_order(ordered, is_gone)
        .or_else(|| shown_by_consent(consent))
        .unwrap_or_else(|| shown_by_switches(ordered, realisation, checklist))
}

/// Returns the state that follows from the order alone, if the service no longer runs or does not run yet.
fn shown_by_order(ordered: CommercialState, is_gone: bool) -> Option<ServiceState> {
    use CommercialState as C;
    use Severity::{Error, Info, Warning};
    Some(match ordered {
        C::Decommissioned | C::Archived => ServiceState::without_status(ordered),
        C::Cancelled => ServiceState::new(ordered, Info, "cancelled", "the order was cancelled"),
        C::Error => ServiceState::new(
            ordered,
            Error,
            "failed",
            "the order failed; the history has the reason",
        ),
        C::Operator => ServiceState::new(
            ordered,
            Warning,
            "operator",
            "the order waits for the exchange's staff",
        ),
        C::Scheduled => ServiceState::new(ordered, Info, "scheduled", "the service begins at its time"),
        C::DecommissionRequested if is_gone => ServiceState::without_status(C::Decommissioned),
        C::DecommissionRequested => ServiceState::new(
            ordered,
            Info,
            "removing",
            "the rules are being taken out of the switches",
        ),
        C::Requested | C::Allocated | C::Testing | C::Production | C::ProductionChangePending => return None,
    })
}

/// Returns the state of a service that the other side has not accepted.
fn shown_by_consent(consent: ConsentState) -> Option<ServiceState> {
    let message = "the other side has not accepted and configured its end";
    match consent {
        ConsentState::Refused => Some(ServiceState::new(
            CommercialState::Cancelled,
            Severity::Error,
            "refused",
            "the other side refused",
        )),
        ConsentState::Pending => Some(ServiceState::new(
            CommercialState::Requested,
            Severity::Info,
            "waiting_for_peer",
            message,
        )),
        ConsentState::Given => None,
    }
}

/// Returns the state of a service that should run, from the state of the switches.
fn shown_by_switches(
    ordered: CommercialState,
    realisation: &Realisation,
    checklist: &Checklist,
) -> ServiceState {
    use CommercialState as C;
    use Severity::{Info, Warning};
    match realisation {
        Realisation::Planned => ServiceState::new(
            C::Allocated,
            Info,
            "planned",
            "the rules are not in the switches yet",
        ),
        Realisation::Installing { generation } => {
            let was_in_production = matches!(ordered, C::Production | C::ProductionChangePending);
            let state = if was_in_production {
                C::ProductionChangePending
            } else {
                C::Allocated
            };
            let message = format!("generation {generation} is being put into the switches");
            ServiceState::new(state, Info, "installing", message)
        }
        Realisation::Removing => ServiceState::new(
            C::ProductionChangePending,
            Warning,
            "removing",
            "the rules are being taken out of the switches; the order says that they should stay",
        ),
        Realisation::Gone => ServiceState::new(
            C::Allocated,
            Warning,
            "missing",
            "the switches do not have the rules; the engine puts them back",
        ),
        Realisation::InPlace { .. } => shown_by_checklist(checklist, None),
        Realisation::Degraded(reason) => shown_by_checklist(checklist, Some(reason)),
    }
}

/// Returns the state of a service whose rules are in the switches: in quarantine or in production.
fn shown_by_checklist(checklist: &Checklist, degraded: Option<&Reason>) -> ServiceState {
    let (state, quarantine) = match checklist {
        Checklist::NotNeeded | Checklist::Passed => (CommercialState::Production, None),
        Checklist::Running { remaining_secs } => {
            let running = reason::quarantine_left(remaining_secs);
            (
                CommercialState::Testing,
                Some((Severity::Info, "quarantine", running)),
            )
        }
        Checklist::Failing(finding) => {
            let reason = reason::quarantine_goes_on().then(": ", finding.clone());
            let failing = (Severity::Error, "quarantine_failing", reason);
            (CommercialState::Testing, Some(failing))
        }
    };
    let degraded = degraded.map(|reason| (Severity::Warning, "degraded", reason.clone()));
    let status = degraded
        .into_iter()
        .chain(quarantine)
        .map(|(severity, tag, reason)| Status {
            severity,
            tag,
            message: reason.text,
            coded: reason.coded,
        });
    ServiceState {
        state,
        status: status.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use CommercialState as C;

    #[test]
    fn the_worst_checklist_of_several_ends_wins_in_any_order() {
        let finding = || Checklist::Failing(reason::frame_ethertype("0x88cc"));
        let running = |remaining_secs| Checklist::Running { remaining_secs };
        let worst = |lists: Vec<Checklist>| lists.into_iter().fold(Checklist::NotNeeded, Checklist::worse);
        assert_eq!(worst(vec![finding(), running(60)]), finding());
        assert_eq!(worst(vec![running(60), finding()]), finding());
        assert_eq!(worst(vec![running(60), running(900), running(30)]), running(900));
        assert_eq!(worst(vec![running(0), Checklist::Passed]), running(0));
        assert_eq!(worst(vec![]), Checklist::NotNeeded);
    }

    /// Returns every combination of the four inputs.
    fn product() -> Vec<(C, Realisation, ConsentState, Checklist)> {
        let realisations = [
            Realisation::Planned,
            Realisation::Installing { generation: 2 },
            Realisation::InPlace { generation: 2 },
            Realisation::Degraded(reason::trunks_down("otemachi-1", "makuhari-1")),
            Realisation::Removing,
            Realisation::Gone,
        ];
        let checklists = [
            Checklist::NotNeeded,
            Checklist::Running { remaining_secs: 60 },
            Checklist::Failing(reason::frame_ethertype("0x88cc")),
            Checklist::Passed,
        ];
        let mut product = Vec::new();
        for ordered in C::ALL {
            for realisation in &realisations {
                for consent in [ConsentState::Pending, ConsentState::Given, ConsentState::Refused] {
                    for checklist in &checklists {
                        product.push((ordered, realisation.clone(), consent, checklist.clone()));
                    }
                }
            }
        }
        product
    }

    #[test]
    fn the_whole_table_is_as_it_was_agreed() {
        assert_eq!(product().len(), 12 * 6 * 3 * 4);
        for (ordered, realisation, consent, checklist) in product() {
            let seen = shown(ordered, &realisation, consent, &checklist);
            let is_ended = matches!(
                ordered,
                C::Decommissioned | C::Archived | C::Error | C::Operator | C::Scheduled | C::Cancelled
            );
            let passes = matches!(checklist, Checklist::NotNeeded | Checklist::Passed);
            let is_in = matches!(
                realisation,
                Realisation::InPlace { .. } | Realisation::Degraded(_)
            );
            let expected = if is_ended {
                ordered
            } else if ordered == C::DecommissionRequested {
                if realisation == Realisation::Gone {
                    C::Decommissioned
                } else {
                    C::DecommissionRequested
                }
            } else if consent == ConsentState::Refused {
                C::Cancelled
            } else if consent == ConsentState::Pending {
                C::Requested
            } else if is_in {
                if passes { C::Production } else { C::Testing }
            } else if realisation == Realisation::Removing
                || matches!(realisation, Realisation::Installing { .. })
                    && matches!(ordered, C::Production | C::ProductionChangePending)
            {
                C::ProductionChangePending
            } else {
                C::Allocated
            };
            let case = format!("{ordered:?} {realisation:?} {consent:?} {checklist:?}");
            assert_eq!(seen.state, expected, "{case}");
            // A state that is not final has a message about the missing step, unless the service runs without
            // faults.
            let is_well = matches!(seen.state, C::Decommissioned | C::Archived)
                || seen.state == C::Production && matches!(realisation, Realisation::InPlace { .. });
            assert_eq!(seen.status.is_empty(), is_well, "{case}");
            assert!(
                seen.status.iter().all(|status| !status.message.is_empty()),
                "{case}"
            );
        }
    }

    #[test]
    fn a_degraded_quarantine_tells_both() {
        let realisation = Realisation::Degraded(reason::link_down("aoba-tokyo"));
        let seen = shown(
            C::Testing,
            &realisation,
            ConsentState::Given,
            &Checklist::Failing(reason::frame_ethertype("0x88cc")),
        );
        let tags: Vec<_> = seen.status.iter().map(|status| status.tag).collect();
        assert_eq!(tags, ["degraded", "quarantine_failing"]);
        let coded: Vec<_> = seen.status.iter().flat_map(|status| &status.coded).collect();
        let codes: Vec<&str> = coded.iter().map(|coded| coded.code.as_str()).collect();
        assert_eq!(codes, ["link-down", "quarantine-goes-on", "frame-ethertype"]);
    }
}
