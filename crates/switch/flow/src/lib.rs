//! What a flow is: the fields a packet is matched on, the match, the actions, and the structures that
//! find the entry for a packet.
//!
//! - [`Field`]: the match fields of OpenFlow 1.3.5 and those of Open vSwitch beyond them, defined once, in one table
//!   (`field.rs`); the codec, the key, the names on the command line and the documentation follow from it.
//! - [`FlowKey`] and [`FlowMask`]: a packet's fields at fixed places in seventeen words.
//! - [`Match`]: what a controller asked for, in the order it asked, validated; [`Rule`] is its compiled form.
//! - [`Action`] and [`Instructions`]: what to do with a packet that matched; [`Bucket`]: what a group may do with it.
//! - [`classify`]: bursts of keys in, verdicts out.

#![deny(unsafe_code)] // but for `classify::simd`

mod action;
mod bucket;
pub mod classify;
mod common;
pub mod compose;
mod connection;
mod extract;
mod field;
mod key;
mod matching;
pub mod text;

pub use action::{Action, Instructions, SetField, SetFieldError};
pub use bucket::Bucket;
pub use extract::depth_for;
pub use field::{Field, FieldSet, Format, OxmId, Place, Prerequisite};
pub use key::{FlowKey, FlowMask, Layer, Rule};
pub use matching::{Extension, Match, MatchBuilder, MatchError, MatchField};
