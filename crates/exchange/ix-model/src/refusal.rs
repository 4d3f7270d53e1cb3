//! The refusal of an order: a code for programs, a message for people, and the field and object concerned.

use core::fmt;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::exchange::ObjectId;
use crate::reason::{self, Coded, Reason};

/// The kind of a refusal. Each has one HTTP status in the API.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefusalCode {
    /// The object is absent, or the actor must not know that it is there (404).
    NotFound,
    /// The actor may see the object, but may not execute the operation (403).
    Forbidden,
    /// A field has a value that cannot be used (422).
    Invalid,
    /// The order contradicts the present state of an object (409).
    Conflict,
    /// A pool has no free number (409).
    Exhausted,
    /// The object is locked (423).
    Locked,
}

/// A refused order.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, Error)]
#[error("{message}")]
pub struct Refusal {
    /// The kind.
    pub code: RefusalCode,
    /// The reason in words: the thing, what was expected, the next step.
    pub message: String,
    /// The codes of the reason, for translation.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub coded: Vec<Coded>,
    /// The field of the order.
    pub field: Option<String>,
    /// The object that prevents the order, or that was not found.
    pub object: Option<ObjectId>,
    /// The number of the refused operation among those of the order, from 1; `None` if the order has no list of operations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<u32>,
}

impl Refusal {
    /// Returns a refusal without field and object.
    pub fn new(code: RefusalCode, reason: impl Into<Reason>) -> Refusal {
        let Reason { text, coded } = reason.into();
        Refusal {
            code,
            message: text,
            coded,
            field: None,
            object: None,
            step: None,
        }
    }

    /// Returns the refusal for an object that is absent or foreign.
    pub fn not_found(id: impl Into<ObjectId>) -> Refusal {
        let id = id.into();
        let reason = if id.is_placeholder() {
            reason::placeholder_empty(id)
        } else {
            reason::not_found(id)
        };
        Refusal::new(RefusalCode::NotFound, reason).object(id)
    }

    /// Returns the refusal of the value of a field.
    pub fn invalid(field: &str, reason: impl Into<Reason>) -> Refusal {
        Refusal::new(RefusalCode::Invalid, reason).field(field)
    }

    /// Returns the refusal of an order that contradicts the present state.
    pub fn conflict(reason: impl Into<Reason>) -> Refusal {
        Refusal::new(RefusalCode::Conflict, reason)
    }

    /// Adds the field.
    #[must_use]
    pub fn field(mut self, field: &str) -> Refusal {
        self.field = Some(field.to_owned());
        self
    }

    /// Adds the number of the operation.
    #[must_use]
    pub fn step(mut self, number: u32) -> Refusal {
        self.step = Some(number);
        self
    }

    /// Adds the object.
    #[must_use]
    pub fn object(mut self, object: impl Into<ObjectId>) -> Refusal {
        self.object = Some(object.into());
        self
    }
}

impl fmt::Display for RefusalCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            RefusalCode::NotFound => "not_found",
            RefusalCode::Forbidden => "forbidden",
            RefusalCode::Invalid => "invalid",
            RefusalCode::Conflict => "conflict",
            RefusalCode::Exhausted => "exhausted",
            RefusalCode::Locked => "locked",
        })
    }
}
