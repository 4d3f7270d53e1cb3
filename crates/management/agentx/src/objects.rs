//! Objects by their identifiers.

use std::collections::BTreeMap;
use std::ops::Bound;

use crate::oid::Oid;

/// The value of an object (RFC 2578, section 7.1).
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Value {
    Integer(i32),
    OctetString(Vec<u8>),
    ObjectId(Oid),
    IpAddress([u8; 4]),
    Counter32(u32),
    Gauge32(u32),
    TimeTicks(u32),
    Counter64(u64),
    Opaque(Vec<u8>),
    /// No value: snmpd answers a registration with the subtree and this.
    Null,
    /// There is no such object, or no such row.
    NoSuchObject,
    NoSuchInstance,
    /// There is nothing behind the object that was asked for.
    EndOfMibView,
}

impl Value {
    /// Returns a text as an octet string.
    pub fn text(text: &str) -> Value {
        Value::OctetString(text.as_bytes().to_vec())
    }

    /// Returns the low bits of a counter that has 32 bits and wraps.
    pub fn counter32(count: u64) -> Value {
        Value::Counter32(count as u32)
    }

    /// Returns a number as a gauge, which stays at its maximum.
    pub fn gauge32(number: u64) -> Value {
        Value::Gauge32(u32::try_from(number).unwrap_or(u32::MAX))
    }
}

/// All objects at one time.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Objects(BTreeMap<Oid, Value>);

impl Objects {
    /// Adds an object.
    pub fn insert(&mut self, oid: Oid, value: Value) {
        self.0.insert(oid, value);
    }

    /// Returns the value of an object.
    pub fn get(&self, oid: &Oid) -> Value {
        self.0.get(oid).cloned().unwrap_or(Value::NoSuchInstance)
    }

    /// Returns the first object behind `start` and before `end`; `start` itself counts if `includes` is true, and an empty `end` is
    /// no limit.
    pub fn next(&self, start: &Oid, includes: bool, end: &Oid) -> Option<(&Oid, &Value)> {
        let start = match includes {
            true => Bound::Included(start),
            false => Bound::Excluded(start),
        };
        let (oid, value) = self.0.range((start, Bound::Unbounded)).next()?;
        (end.parts().is_empty() || oid < end).then_some((oid, value))
    }

    /// Returns the number of objects.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns true if there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
