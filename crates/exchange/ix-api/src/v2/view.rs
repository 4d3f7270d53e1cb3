//! Parts that the objects of IX-API share: states, owners, invoices, references to other objects.

use millrace_ix_model::state::{CommercialState, ServiceState, Severity};
use millrace_ix_model::{AccountId, IdParseError, Timestamp};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::access::Principal;
use crate::problem::{Problem, ProblemKind};
use crate::v2::records::Record;

/// The states of IX-API 2.1.0.
pub(crate) const STATES: [&str; 11] = [
    "requested",
    "allocated",
    "testing",
    "production",
    "production_change_pending",
    "decommission_requested",
    "decommissioned",
    "archived",
    "error",
    "operator",
    "scheduled",
];

/// The state of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum State {
    Requested,
    Allocated,
    Testing,
    Production,
    ProductionChangePending,
    DecommissionRequested,
    Decommissioned,
    Archived,
    Error,
    Operator,
    Scheduled,
}

impl From<CommercialState> for State {
    fn from(state: CommercialState) -> State {
        match state {
            CommercialState::Requested => State::Requested,
            CommercialState::Allocated => State::Allocated,
            CommercialState::Testing => State::Testing,
            CommercialState::Production => State::Production,
            CommercialState::ProductionChangePending => State::ProductionChangePending,
            CommercialState::DecommissionRequested => State::DecommissionRequested,
            CommercialState::Decommissioned => State::Decommissioned,
            // IX-API 2.1.0 has no state for orders that were cancelled or refused.
            CommercialState::Archived | CommercialState::Cancelled => State::Archived,
            CommercialState::Error => State::Error,
            CommercialState::Operator => State::Operator,
            CommercialState::Scheduled => State::Scheduled,
        }
    }
}

/// Returns the name of a medium by its speed in Mbit/s.
pub(crate) fn medium(speed_mbps: u32) -> String {
    if speed_mbps >= 1000 {
        format!("{}G", f64::from(speed_mbps) / 1000.0)
    } else {
        format!("{speed_mbps}M")
    }
}

/// One fact about an object's state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct Status {
    /// The severity of syslog (RFC 5424, section 6.2.1).
    #[schema(minimum = 0, maximum = 7)]
    severity: u8,
    /// The fact as a word.
    tag: String,
    /// The fact in words.
    message: String,
    /// Further facts.
    #[schema(value_type = Object)]
    attrs: Map<String, Value>,
    /// The time of the answer.
    #[schema(format = DateTime)]
    timestamp: String,
}

impl Status {
    fn new(severity: u8, tag: &str, message: &str, now: Timestamp) -> Status {
        Status {
            severity,
            tag: tag.to_owned(),
            message: message.to_owned(),
            attrs: Map::new(),
            timestamp: now.to_string(),
        }
    }

    /// Returns a fact about an operation in progress.
    pub(crate) fn info(tag: &str, message: &str, now: Timestamp) -> Status {
        Status::new(6, tag, message, now)
    }

    /// Returns a fact about something that is not as contracted.
    pub(crate) fn warning(tag: &str, message: &str, now: Timestamp) -> Status {
        Status::new(4, tag, message, now)
    }
}

/// A state with its reasons.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct Stateful {
    /// The state.
    pub(crate) state: State,
    /// The facts that explain the state; empty for an object in production without faults.
    pub(crate) status: Vec<Status>,
}

impl Stateful {
    /// Returns a state without facts.
    pub(crate) fn plain(state: State) -> Stateful {
        Stateful {
            state,
            status: Vec::new(),
        }
    }

    /// Converts the displayed state of a service to the state of IX-API.
    pub(crate) fn of(shown: &ServiceState, now: Timestamp) -> Stateful {
        Stateful {
            state: shown.state.into(),
            status: shown
                .status
                .iter()
                .map(|status| Status {
                    severity: match status.severity {
                        Severity::Error => 3,
                        Severity::Warning => 4,
                        Severity::Info => 6,
                    },
                    tag: status.tag.to_owned(),
                    message: status.message.clone(),
                    attrs: Map::new(),
                    timestamp: now.to_string(),
                })
                .collect(),
        }
    }
}

/// The accounts that manage and use an object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct Owned {
    /// The account that manages the object.
    #[schema(max_length = 80)]
    pub(crate) managing_account: String,
    /// The account that uses the object.
    #[schema(max_length = 80)]
    pub(crate) consuming_account: String,
    /// The reference of the orderer, unique in the account: an order that is sent again with the same reference is
    /// refused.
    #[serde(default)]
    #[schema(max_length = 128)]
    pub(crate) external_ref: Option<String>,
}

/// The accounts and the reference of an object in a change; absent ones stay.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub(crate) struct OwnedUpdate {
    /// The account that manages the object.
    #[serde(default)]
    #[schema(max_length = 80)]
    pub(crate) managing_account: Option<String>,
    /// The account that uses the object, which cannot change.
    #[serde(default)]
    #[schema(max_length = 80)]
    pub(crate) consuming_account: Option<String>,
    /// The reference of the orderer, unique in the account.
    #[serde(default, deserialize_with = "nullable")]
    #[schema(value_type = Option<String>, max_length = 128)]
    pub(crate) external_ref: Option<Option<String>>,
}

impl OwnedUpdate {
    /// Changes the reference, and refuses other accounts.
    pub(crate) fn apply(self, owned: &mut Owned) -> Result<(), Problem> {
        unchanged(
            "managing_account",
            self.managing_account.as_ref(),
            &owned.managing_account,
        )?;
        unchanged(
            "consuming_account",
            self.consuming_account.as_ref(),
            &owned.consuming_account,
        )?;
        owned.external_ref = self.external_ref.unwrap_or(owned.external_ref.take());
        Ok(())
    }
}

/// Refuses another value of a property that cannot change. A client that writes back what it has read sends the present one.
pub(crate) fn unchanged<T: PartialEq + ?Sized>(
    property: &str,
    given: Option<&T>,
    present: &T,
) -> Result<(), Problem> {
    match given {
        Some(given) if given != present => Err(invalid(property, format!("{property} cannot change"))),
        _ => Ok(()),
    }
}

/// The parts of an order that an invoice needs. The exchange stores them and does not use them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct Billed {
    /// The account that pays.
    #[schema(max_length = 80)]
    pub(crate) billing_account: String,
    /// The number of the purchase order.
    #[serde(default)]
    #[schema(max_length = 80)]
    pub(crate) purchase_order: String,
    /// The contract.
    #[serde(default)]
    #[schema(max_length = 128)]
    pub(crate) contract_ref: Option<String>,
    /// The assignments of roles to contacts.
    #[serde(default)]
    pub(crate) role_assignments: Vec<String>,
}

/// The facts about an object that IX-API has and the model does not.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct IxApiProperties {
    pub(crate) managing_account: Option<String>,
    pub(crate) billed: Option<Billed>,
    /// True if the member wants to be on the member list.
    pub(crate) listed: Option<bool>,
    pub(crate) product_offering: Option<String>,
    /// True if everybody may join the service.
    pub(crate) public: bool,
    pub(crate) lacp_timeout: Option<String>,
    pub(crate) legal_name: Option<String>,
    pub(crate) address: Option<Address>,
    pub(crate) billing_information: Option<BillingInformation>,
    pub(crate) presence: Vec<String>,
    /// The reference of the orderer that replaces the one of the order; empty for none.
    pub(crate) external_ref: Option<String>,
}

impl Record for IxApiProperties {
    const PREFIX: &'static str = "extra";
}

impl IxApiProperties {
    /// Returns the owners of an object of an account.
    pub(crate) fn owned(&self, account: AccountId, external_ref: Option<&String>) -> Owned {
        Owned {
            managing_account: self
                .managing_account
                .clone()
                .unwrap_or_else(|| account.to_string()),
            consuming_account: account.to_string(),
            external_ref: self.reference(external_ref),
        }
    }

    /// Returns the reference of an object whose order had the reference `ordered`.
    pub(crate) fn reference(&self, ordered: Option<&String>) -> Option<String> {
        let set = self.external_ref.as_ref();
        set.or(ordered).filter(|reference| !reference.is_empty()).cloned()
    }

    /// Returns the parts for an invoice. The account pays for itself unless another account is named.
    pub(crate) fn billed(&self, account: AccountId) -> Billed {
        self.billed.clone().unwrap_or_else(|| Billed {
            billing_account: account.to_string(),
            ..Billed::default()
        })
    }
}

/// A postal address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct Address {
    /// The country (ISO 3166-1 alpha-2).
    #[schema(min_length = 2, max_length = 2)]
    country: String,
    /// The town.
    #[schema(max_length = 40)]
    locality: String,
    /// The postal code.
    #[schema(max_length = 24)]
    postal_code: String,
    /// The street with the number.
    #[schema(max_length = 80)]
    street_address: String,
    /// The region.
    #[serde(default)]
    #[schema(max_length = 80)]
    region: Option<String>,
    /// The post office box.
    #[serde(default)]
    #[schema(max_length = 80)]
    post_office_box_number: Option<String>,
}

impl Address {
    /// Refuses texts that IX-API does not permit.
    pub(crate) fn check(&self, property: &str) -> Result<(), Problem> {
        let name = |part: &str| format!("{property}/{part}");
        if self.country.chars().count() != 2 {
            return Err(invalid(
                &name("country"),
                "expected two letters (ISO 3166-1 alpha-2)",
            ));
        }
        check_text(&name("country"), &self.country, 2)?;
        check_text(&name("locality"), &self.locality, 40)?;
        check_text(&name("postal_code"), &self.postal_code, 24)?;
        check_text(&name("street_address"), &self.street_address, 80)?;
        check_text(&name("region"), self.region.as_deref().unwrap_or_default(), 80)?;
        let post_office_box = self.post_office_box_number.as_deref().unwrap_or_default();
        check_text(&name("post_office_box_number"), post_office_box, 80)
    }
}

/// The recipient of invoices.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct BillingInformation {
    /// The name.
    #[schema(max_length = 80)]
    name: String,
    /// The address.
    address: Address,
    /// The number for value-added tax.
    #[serde(default)]
    #[schema(min_length = 2, max_length = 20)]
    vat_number: Option<String>,
}

impl BillingInformation {
    /// Refuses texts that IX-API does not permit.
    pub(crate) fn check(&self, property: &str) -> Result<(), Problem> {
        check_text(&format!("{property}/name"), &self.name, 80)?;
        self.address.check(&format!("{property}/address"))?;
        if let Some(number) = &self.vat_number {
            let name = format!("{property}/vat_number");
            if number.chars().count() < 2 {
                return Err(invalid(&name, "the text is shorter than 2 characters"));
            }
            check_text(&name, number, 20)?;
        }
        Ok(())
    }
}

/// Returns the refusal of a property.
pub(crate) fn invalid(property: &str, reason: impl Into<Box<str>>) -> Problem {
    Problem::new(ProblemKind::Invalid, reason).with_error(format!("/{property}"), "invalid")
}

/// Parses an identifier in a property.
pub(crate) fn id<K: std::str::FromStr<Err = IdParseError>>(property: &str, text: &str) -> Result<K, Problem> {
    text.parse::<K>()
        .map_err(|error: IdParseError| invalid(property, error.to_string()))
}

/// Parses an account in a property. Refuses an account that the principal may not read.
pub(crate) fn account(principal: &Principal, property: &str, text: &str) -> Result<AccountId, Problem> {
    let account: AccountId = id(property, text)?;
    if principal.may_read(account) {
        Ok(account)
    } else {
        Err(invalid(property, format!("there is no {account}")))
    }
}

/// Refuses texts that are longer than IX-API permits, and texts with control characters.
pub(crate) fn check_text(property: &str, text: &str, max: usize) -> Result<(), Problem> {
    if text.chars().count() > max {
        return Err(invalid(
            property,
            format!("the text is longer than {max} characters"),
        ));
    }
    if text.chars().any(char::is_control) {
        return Err(invalid(
            property,
            "the text has control characters: expected none",
        ));
    }
    Ok(())
}

/// Deserializes a property that may be absent, null, or a value. Null becomes `Some(None)`.
pub(crate) fn nullable<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Option<T>>, D::Error> {
    Option::<T>::deserialize(deserializer).map(Some)
}

impl Owned {
    /// Returns the account that uses the object, after checking both accounts and the reference.
    pub(crate) fn check(&self, principal: &Principal) -> Result<AccountId, Problem> {
        account(principal, "managing_account", &self.managing_account)?;
        if let Some(reference) = &self.external_ref {
            check_text("external_ref", reference, 128)?;
        }
        account(principal, "consuming_account", &self.consuming_account)
    }
}

/// The parts that an invoice needs in a change; absent ones stay.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub(crate) struct BilledUpdate {
    /// The account that pays.
    #[serde(default)]
    #[schema(max_length = 80)]
    billing_account: Option<String>,
    /// The number of the purchase order.
    #[serde(default)]
    #[schema(max_length = 80)]
    purchase_order: Option<String>,
    /// The contract.
    #[serde(default, deserialize_with = "nullable")]
    #[schema(value_type = Option<String>, max_length = 128)]
    contract_ref: Option<Option<String>>,
    /// The assignments of roles to contacts.
    #[serde(default)]
    role_assignments: Option<Vec<String>>,
}

impl BilledUpdate {
    /// Changes the parts that are given.
    pub(crate) fn apply(self, billed: &mut Billed) {
        let Billed {
            billing_account,
            purchase_order,
            contract_ref,
            role_assignments,
        } = billed;
        *billing_account = self.billing_account.unwrap_or(std::mem::take(billing_account));
        *purchase_order = self.purchase_order.unwrap_or(std::mem::take(purchase_order));
        *contract_ref = self.contract_ref.unwrap_or(contract_ref.take());
        *role_assignments = self.role_assignments.unwrap_or(std::mem::take(role_assignments));
    }
}

impl Billed {
    /// Checks the account and the texts.
    pub(crate) fn check(&self, principal: &Principal) -> Result<(), Problem> {
        account(principal, "billing_account", &self.billing_account)?;
        check_text("purchase_order", &self.purchase_order, 80)?;
        check_text(
            "contract_ref",
            self.contract_ref.as_deref().unwrap_or_default(),
            128,
        )
    }
}

/// Returns true: a property with `skip_serializing_if = "is_secret"` is never written into an answer or a record.
/// (`skip_serializing` would also remove it from the OpenAPI document of the request.)
pub(crate) fn is_secret<T>(_: &T) -> bool {
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_medium_is_named_by_its_speed() {
        for (speed, name) in [(100, "100M"), (1000, "1G"), (2500, "2.5G"), (100_000, "100G")] {
            assert_eq!(medium(speed), name);
        }
    }
}
