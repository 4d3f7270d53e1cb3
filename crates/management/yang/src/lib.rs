//! The configuration of a switch as YANG data (RFC 7950): what NETCONF and gNMI have in common.
//!
//! ```text
//! millrace-model ---> schema ---> module      text of the YANG module
//!                        |
//!   XML -> xml -> data --+--> edit            a document of REST, edited
//!   XML <- xml <- data --+
//!               filter                        RFC 6241, section 6
//! interfaces --> ietf                         ports as interfaces, and ietf-interfaces over them
//! datastore                                   the switch behind it, as a trait
//! ```
//!
//! A *document* is the JSON of `GET /api/v1/config`. Its *trimmed* form lacks what equals the defaults (RFC 6243, section
//! 2.2): edits apply to that form, in which a value that equals its default does not exist.

#![forbid(unsafe_code)]

pub mod data;
pub mod datastore;
pub mod edit;
pub mod filter;
pub mod ietf;
pub mod interfaces;
pub mod module;
pub mod schema;
pub mod xml;
pub mod xpath;

/// The XML namespace of the module `millrace`.
pub const NAMESPACE: &str = "urn:millrace:switch";
/// The name of the module.
pub const MODULE: &str = "millrace";
/// The revision of the module: the date of its last change.
pub const REVISION: &str = "2026-11-29";
