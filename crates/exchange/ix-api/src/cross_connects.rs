//! Orders of cross-connects: the cable between a port of the exchange and the cage of a member, and the letter of authorisation
//! (LOA) that the data centre wants to see before it patches.
//!
//! ```text
//!              authorise (staff)        place (member)         install (staff)
//!  requested ------------------> authorised ----------> ordered ---------> installed
//!      |                             |  \__ the letter's end: expired        |
//!      +---- cancel (both) ----------+---------------------+                 +-- remove (staff) --> removed
//!                                    v
//!                                cancelled
//! ```

use millrace_ix_model::{AccountId, ConnectionId, SiteId, Timestamp, UserId};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::v2::records::Record;

/// The state of an order as it is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CrossConnectState {
    Requested,
    /// The letter is issued.
    Authorised,
    /// The data centre has the order.
    Ordered,
    Installed,
    Cancelled,
    Removed,
    /// The letter ended before the data centre had the order.
    Expired,
}

/// A step from one state to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Step {
    /// The staff issues the letter.
    Authorise,
    /// The member tells that the data centre has the order.
    Place,
    /// The staff has seen light on the port.
    Install,
    /// Either side gives the order up.
    Cancel,
    /// The staff has removed the cable.
    Remove,
}

impl Step {
    /// All steps.
    pub(crate) const ALL: [Step; 5] = [
        Step::Authorise,
        Step::Place,
        Step::Install,
        Step::Cancel,
        Step::Remove,
    ];

    /// Returns true for the steps of the exchange's staff.
    pub(crate) const fn is_of_staff(self) -> bool {
        matches!(self, Step::Authorise | Step::Install | Step::Remove)
    }

    /// Returns the state after the step; `None` if the state before it does not permit it.
    pub(crate) const fn after(self, before: CrossConnectState) -> Option<CrossConnectState> {
        use CrossConnectState as S;
        Some(match (self, before) {
            // An expired letter is issued again.
            (Step::Authorise, S::Requested | S::Expired) => S::Authorised,
            (Step::Place, S::Authorised) => S::Ordered,
            (Step::Install, S::Ordered) => S::Installed,
            (Step::Cancel, S::Requested | S::Authorised | S::Ordered | S::Expired) => S::Cancelled,
            (Step::Remove, S::Installed) => S::Removed,
            _ => return None,
        })
    }
}

/// A step that was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Made {
    pub(crate) state: CrossConnectState,
    pub(crate) at: Timestamp,
    pub(crate) by: Option<UserId>,
    /// A note in words.
    pub(crate) note: Option<String>,
}

/// The letter of authorisation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Authorisation {
    /// The code by which the data centre verifies the letter.
    pub(crate) code: String,
    /// The exchange's side: rack, panel and position.
    pub(crate) demarcation: String,
    pub(crate) issued: Timestamp,
    pub(crate) valid_until: Timestamp,
}

/// An order as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CrossConnect {
    pub(crate) account: AccountId,
    pub(crate) site: SiteId,
    /// The connection that it is for; `None` before there is one.
    pub(crate) connection: Option<ConnectionId>,
    /// The member's side: cage, rack, panel and position.
    pub(crate) member_side: String,
    /// The medium: `single-mode LC`.
    pub(crate) medium: String,
    /// The number of the order at the data centre.
    pub(crate) order_number: Option<String>,
    pub(crate) letter: Option<Authorisation>,
    /// The steps, oldest first; the first one is the request.
    pub(crate) history: Vec<Made>,
}

impl Record for CrossConnect {
    const PREFIX: &'static str = "xc";
}

impl CrossConnect {
    /// Returns the state at a time.
    pub(crate) fn state(&self, now: Timestamp) -> CrossConnectState {
        let stored = self
            .history
            .last()
            .map_or(CrossConnectState::Requested, |made| made.state);
        let is_over = self
            .letter
            .as_ref()
            .is_some_and(|letter| letter.valid_until <= now);
        if stored == CrossConnectState::Authorised && is_over {
            CrossConnectState::Expired
        } else {
            stored
        }
    }

    /// Returns true if the letter authorises the data centre at a time.
    pub(crate) fn is_authorised(&self, now: Timestamp) -> bool {
        matches!(
            self.state(now),
            CrossConnectState::Authorised | CrossConnectState::Ordered | CrossConnectState::Installed
        )
    }
}

/// The facts of a letter.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LetterFacts<'a> {
    pub(crate) exchange: &'a str,
    /// The number of the order, for people: `7`.
    pub(crate) number: &'a str,
    pub(crate) member: &'a str,
    pub(crate) asns: &'a [u32],
    pub(crate) site: &'a str,
    pub(crate) medium: &'a str,
    pub(crate) member_side: &'a str,
    pub(crate) letter: &'a Authorisation,
    /// The address at which the data centre verifies the code; `None` if the exchange does not know its own.
    pub(crate) verify_at: Option<&'a str>,
}

/// Returns the letter of authorisation as text for printing. It is in English, the language of data centres.
pub(crate) fn letter(facts: &LetterFacts<'_>) -> String {
    let day = |time: Timestamp| time.to_string().chars().take(10).collect::<String>();
    let asns: Vec<String> = facts.asns.iter().map(|asn| format!("AS{asn}")).collect();
    let networks = if asns.is_empty() {
        String::new()
    } else {
        format!(" ({})", asns.join(", "))
    };
    let verify = facts
        .verify_at
        .map_or_else(String::new, |address| format!("Verify at     {address}\n"));
    format!(
        "LETTER OF AUTHORISATION\n\n{exchange}\n\n\
         {exchange} authorises {member}{networks}, or its agent, to order a cross-connect to the\n\
         demarcation point below. The requester bears all charges.\n\n\
         Number        {number}\n\
         Site          {site}\n\
         Our side      {ours}\n\
         Member's side {theirs}\n\
         Medium        {medium}\n\
         Issued        {issued}\n\
         Valid until   {valid}\n\
         Code          {code}\n{verify}\n\
         This letter authorises one cross-connect, and no work on other cables or equipment.\n",
        exchange = facts.exchange,
        member = facts.member,
        number = facts.number,
        site = facts.site,
        ours = facts.letter.demarcation,
        theirs = facts.member_side,
        medium = facts.medium,
        issued = day(facts.letter.issued),
        valid = day(facts.letter.valid_until),
        code = facts.letter.code,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use CrossConnectState as S;

    #[test]
    fn each_step_is_possible_from_the_states_in_the_drawing_and_from_no_other() {
        let states = [
            S::Requested,
            S::Authorised,
            S::Ordered,
            S::Installed,
            S::Cancelled,
            S::Removed,
            S::Expired,
        ];
        let possible: Vec<(Step, S, S)> = Step::ALL
            .into_iter()
            .flat_map(|step| {
                states
                    .into_iter()
                    .filter_map(move |before| Some((step, before, step.after(before)?)))
            })
            .collect();
        assert_eq!(
            possible,
            [
                (Step::Authorise, S::Requested, S::Authorised),
                (Step::Authorise, S::Expired, S::Authorised),
                (Step::Place, S::Authorised, S::Ordered),
                (Step::Install, S::Ordered, S::Installed),
                (Step::Cancel, S::Requested, S::Cancelled),
                (Step::Cancel, S::Authorised, S::Cancelled),
                (Step::Cancel, S::Ordered, S::Cancelled),
                (Step::Cancel, S::Expired, S::Cancelled),
                (Step::Remove, S::Installed, S::Removed),
            ]
        );
    }

    #[test]
    fn a_letter_ends_by_itself_unless_the_data_centre_has_the_order() {
        let made = |state| Made {
            state,
            at: Timestamp::from_secs(0),
            by: None,
            note: None,
        };
        let mut order = CrossConnect {
            account: AccountId(1),
            site: SiteId(1),
            connection: None,
            member_side: "cage 7".to_owned(),
            medium: "single-mode LC".to_owned(),
            order_number: None,
            letter: Some(Authorisation {
                code: "x".to_owned(),
                demarcation: "rack 3".to_owned(),
                issued: Timestamp::from_secs(0),
                valid_until: Timestamp::from_secs(100),
            }),
            history: vec![made(S::Requested), made(S::Authorised)],
        };
        assert_eq!(order.state(Timestamp::from_secs(99)), S::Authorised);
        assert_eq!(order.state(Timestamp::from_secs(100)), S::Expired);
        assert!(!order.is_authorised(Timestamp::from_secs(100)));
        order.history.push(made(S::Ordered));
        assert_eq!(order.state(Timestamp::from_secs(100)), S::Ordered);
    }

    #[test]
    fn a_letter_names_both_sides_its_end_and_where_it_is_verified() {
        let authorisation = Authorisation {
            code: "ABCD-1234".to_owned(),
            demarcation: "rack 3, panel A, 17-18".to_owned(),
            issued: "2026-11-24T01:02:03.000Z".parse().unwrap(),
            valid_until: "2026-12-24T01:02:03.000Z".parse().unwrap(),
        };
        let text = letter(&LetterFacts {
            exchange: "Test IX",
            number: "7",
            member: "Aoba Networks",
            asns: &[64500, 64501],
            site: "Otemachi",
            medium: "single-mode LC",
            member_side: "cage 7, rack 2",
            letter: &authorisation,
            verify_at: Some("https://ix.example/letter#ABCD-1234"),
        });
        for part in [
            "Aoba Networks (AS64500, AS64501)",
            "Our side      rack 3, panel A, 17-18\n",
            "Member's side cage 7, rack 2\n",
            "Valid until   2026-12-24\n",
            "Verify at     https://ix.example/letter#ABCD-1234\n",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
