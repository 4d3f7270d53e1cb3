//! The life of a service: the state that people see, as a total function of what was ordered, what the switches have,
//! what the invited account answered, and what the quarantine found.
//!
//! ```text
//!  ordered   consent given   rules in switches   15 clean minutes
//! requested -> allocated -----------------> testing -> production <-> production_change_pending
//!                                  (virtual circuits: no testing)  -> decommission_requested -> decommissioned
//! ```

use serde::{Deserialize, Serialize};

/// The commercial state (IX-API 2, `State`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CommercialState {
    /// The order is there; something is missing before resources can be used.
    #[default]
    Requested,
    /// Resources are reserved.
    Allocated,
    /// The end is in quarantine.
    Testing,
    /// Frames flow.
    Production,
    /// Frames flow, and a change is under way.
    ProductionChangePending,
    /// Deletion is ordered and under way.
    DecommissionRequested,
    /// The service is out of the switches.
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

    /// Returns true if the switches are to carry the service.
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
    /// A generation is being put in.
    Installing {
        /// The generation.
        generation: u32,
    },
    /// A generation is in all switches.
    InPlace {
        /// The generation.
        generation: u32,
    },
    /// Frames flow not at all, or not as contracted.
    Degraded {
        /// The reason in words.
        reason: String,
    },
    /// The rules are being taken out.
    Removing,
    /// The rules are confirmed gone.
    Gone,
}

/// The answer of the invited account, without its words.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ConsentState {
    /// The account has not answered, or has not configured its end.
    Pending,
    /// The account has consented, or nobody has to.
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
        /// The seconds that are left.
        remaining_secs: u32,
    },
    /// Offending frames are seen.
    Failing {
        /// The finding in words.
        finding: String,
    },
    /// The quarantine is over.
    Passed,
}

/// The severity of a status.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Somebody must act.
    Error,
    /// Something is not as contracted.
    Warning,
    /// Something is under way.
    Info,
}

/// The answer to "why is it not in production?".
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Status {
    /// The severity.
    pub severity: Severity,
    /// The kind of the message, stable for programs.
    pub tag: &'static str,
    /// The message in words.
    pub message: String,
}

/// The state that people see.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Shown {
    /// The commercial state.
    pub state: CommercialState,
    /// The things that are missing to move on; empty in production without complaint.
    pub status: Vec<Status>,
}

/// Returns the state that people see.
///
/// Every combination has an answer. An order outranks what the switches do: a service whose deletion was ordered is in
/// `decommission_requested` until its rules are confirmed gone, whatever else is true of it.
pub fn shown(
    ordered: CommercialState,
    realisation: &Realisation,
    consent: ConsentState,
    checklist: &Checklist,
) -> Shown {
    use CommercialState as C;
    let with = |state, severity, tag, message: String| Shown {
        state,
        status: vec![Status {
            severity,
            tag,
            message,
        }],
    };
    match ordered {
        C::Decommissioned | C::Archived => {
            return Shown {
                state: ordered,
                status: Vec::new(),
            };
        }
        C::Cancelled => {
            return with(
                C::Cancelled,
                Severity::Info,
                "cancelled",
                "the order was cancelled".to_owned(),
            );
        }
        C::Error => {
            return with(
                C::Error,
                Severity::Error,
                "failed",
                "the order failed; the history has the reason".to_owned(),
            );
        }
        C::Operator => {
            let message = "the order waits for the exchange's staff".to_owned();
            return with(C::Operator, Severity::Warning, "operator", message);
        }
        C::Scheduled => {
            return with(
                C::Scheduled,
                Severity::Info,
                "scheduled",
                "the service begins at its time".to_owned(),
            );
        }
        C::DecommissionRequested => {
            return if *realisation == Realisation::Gone {
                Shown {
                    state: C::Decommissioned,
                    status: Vec::new(),
                }
            } else {
                let message = "the rules are being taken out of the switches".to_owned();
                with(C::DecommissionRequested, Severity::Info, "removing", message)
            };
        }
        C::Requested | C::Allocated | C::Testing | C::Production | C::ProductionChangePending => {}
    }
    match consent {
        ConsentState::Refused => {
            let message = "the other side refused".to_owned();
            return with(C::Cancelled, Severity::Error, "refused", message);
        }
        ConsentState::Pending => {
            let message = "the other side has not accepted and configured its end".to_owned();
            return with(C::Requested, Severity::Info, "waiting_for_peer", message);
        }
        ConsentState::Given => {}
    }
    let was_in_production = matches!(ordered, C::Production | C::ProductionChangePending);
    match realisation {
        Realisation::Planned => {
            let message = "the rules are not in the switches yet".to_owned();
            with(C::Allocated, Severity::Info, "planned", message)
        }
        Realisation::Installing { generation } => {
            let state = if was_in_production {
                C::ProductionChangePending
            } else {
                C::Allocated
            };
            let message = format!("generation {generation} is being put into the switches");
            with(state, Severity::Info, "installing", message)
        }
        Realisation::Removing => {
            let message =
                "the rules are being taken out of the switches; the order says that they should stay";
            with(
                C::ProductionChangePending,
                Severity::Warning,
                "removing",
                message.to_owned(),
            )
        }
        Realisation::Gone => {
            let message = "the switches do not have the rules; the engine puts them back".to_owned();
            with(C::Allocated, Severity::Warning, "missing", message)
        }
        Realisation::InPlace { .. } | Realisation::Degraded { .. } => {
            let mut status = Vec::new();
            if let Realisation::Degraded { reason } = realisation {
                status.push(Status {
                    severity: Severity::Warning,
                    tag: "degraded",
                    message: reason.clone(),
                });
            }
            let state = match checklist {
                Checklist::NotNeeded | Checklist::Passed => C::Production,
                Checklist::Running { remaining_secs } => {
                    status.push(Status {
                        severity: Severity::Info,
                        tag: "quarantine",
                        message: format!(
                            "the quarantine ends after {remaining_secs} more seconds without a fault"
                        ),
                    });
                    C::Testing
                }
                Checklist::Failing { finding } => {
                    status.push(Status {
                        severity: Severity::Error,
                        tag: "quarantine_failing",
                        message: format!("the quarantine goes on: {finding}"),
                    });
                    C::Testing
                }
            };
            Shown { state, status }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use CommercialState as C;

    /// Returns every combination of the four inputs.
    fn product() -> Vec<(C, Realisation, ConsentState, Checklist)> {
        let realisations = [
            Realisation::Planned,
            Realisation::Installing { generation: 2 },
            Realisation::InPlace { generation: 2 },
            Realisation::Degraded {
                reason: "both trunks are down".to_owned(),
            },
            Realisation::Removing,
            Realisation::Gone,
        ];
        let checklists = [
            Checklist::NotNeeded,
            Checklist::Running { remaining_secs: 60 },
            Checklist::Failing {
                finding: "a frame with EtherType 0x88cc".to_owned(),
            },
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
                Realisation::InPlace { .. } | Realisation::Degraded { .. }
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
            // A state that is no end says in words what is missing, unless all is well.
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
        let realisation = Realisation::Degraded {
            reason: "site 2 does not answer".to_owned(),
        };
        let finding = "two MAC addresses".to_owned();
        let seen = shown(
            C::Testing,
            &realisation,
            ConsentState::Given,
            &Checklist::Failing { finding },
        );
        let tags: Vec<_> = seen.status.iter().map(|status| status.tag).collect();
        assert_eq!(tags, ["degraded", "quarantine_failing"]);
    }
}
