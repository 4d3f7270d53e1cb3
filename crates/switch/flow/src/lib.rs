//! Flows: the match fields of a packet, matches, actions, and the classifiers that find the flow entry of a packet.
//!
//! - [`Field`]: the match fields of OpenFlow 1.3.5 and those that Open vSwitch adds, defined once in one table
//!   (`field.rs`). The codec, the key, the names on the command line and the documentation follow from it.
//! - [`FlowKey`] and [`FlowMask`]: the fields of a packet at fixed positions in seventeen words.
//! - [`Match`]: the match of a controller, in the controller's order of fields, validated; [`Rule`] is its compiled
//!   form.
//! - [`Action`] and [`Instructions`]: the operations on a packet that matches; [`Bucket`]: the actions of one bucket
//!   of a group.
//! - [`classify`]: classifiers, which take bursts of keys and return verdicts.

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

pub use action::{Action, Instructions, SetField, SetFieldError, WriteMetadata};
pub use bucket::Bucket;
pub use extract::depth_for;
pub use field::{BitPosition, Field, FieldSet, Format, OxmId, Prerequisite};
pub use key::{FlowKey, FlowMask, Layer, Rule};
pub use matching::{Extension, Match, MatchBuilder, MatchError, MatchField};
