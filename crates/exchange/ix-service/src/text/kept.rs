//! The parts of a text that the model does not have: what accounts keep at the exchange. They are read and written by `ix-api`, which
//! stores them, and name other objects as the rest of the text does.

use std::collections::BTreeSet;

use millrace_ix_store::sha256_hex;
use serde::{Deserialize, Serialize};

use super::Document;

/// A contact of an account, with its roles.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ContactText {
    pub account: String,
    /// The account that manages the contact, if it is another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub managing_account: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub email: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub telephone: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external_ref: Option<String>,
    /// The roles: `abuse`, `billing`, `implementation`, `legal`, `noc`, `peering`.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub roles: BTreeSet<String>,
}

/// A rule that lets an account join a multipoint service, such as a closed group, or keeps it out.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JoiningRuleText {
    /// The account and the name of the service.
    pub service: [String; 2],
    pub account: String,
    /// `allow` or `deny`.
    pub effect: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity_min: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity_max: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external_ref: Option<String>,
}

/// A session with a route server, without its password.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RouteServerSessionText {
    /// The account and the name of the peering LAN.
    pub service: [String; 2],
    /// The DNS name of the route server.
    pub server: String,
    /// The address of the member in the LAN.
    pub ip: String,
    pub asn: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub as_set_v4: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub as_set_v6: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_prefix_v4: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_prefix_v6: Option<u32>,
    #[serde(default)]
    pub insert_ixp_asn: bool,
    /// `active` or `passive`.
    pub bgp_session_type: String,
    /// The account that pays.
    pub billing_account: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub purchase_order: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contract_ref: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external_ref: Option<String>,
}

/// The records of accounts at the exchange, sorted. In a text, `None` stands for a part that the text does not have.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Kept {
    pub contacts: Option<Vec<ContactText>>,
    pub joining_rules: Option<Vec<JoiningRuleText>>,
    pub route_server_sessions: Option<Vec<RouteServerSessionText>>,
}

impl Kept {
    /// Returns the SHA-256, in hexadecimal digits.
    pub fn digest(&self) -> String {
        sha256_hex(serde_json::to_string(self).unwrap_or_default().as_bytes())
    }
}

impl Document {
    /// Returns the text with what accounts keep, and with its digest in the base.
    #[must_use]
    pub fn with_kept(mut self, kept: Kept) -> Document {
        if let Some(base) = &mut self.base {
            base.kept = Some(kept.digest());
        }
        self.contact = kept.contacts;
        self.joining_rule = kept.joining_rules;
        self.route_server_session = kept.route_server_sessions;
        self
    }

    /// Returns what the text says about what accounts keep.
    pub fn kept(&self) -> Kept {
        Kept {
            contacts: self.contact.clone(),
            joining_rules: self.joining_rule.clone(),
            route_server_sessions: self.route_server_session.clone(),
        }
    }

    /// Returns true if the text has an account with this name.
    pub fn has_account(&self, name: &str) -> bool {
        self.account.iter().any(|account| account.name == name)
    }

    /// Returns true if the text has a service with this account and name.
    pub fn has_service(&self, [account, name]: &[String; 2]) -> bool {
        let mut services = self.service.iter();
        services.any(|service| service.account == *account && service.name == *name)
    }
}
