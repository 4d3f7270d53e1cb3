//! Messages: sets of templates and of records.

use crate::{HEADER_SIZE, Template};

/// The version of IPFIX.
const VERSION: u16 = 10;
const TEMPLATE_SET: u16 = 2;
const OPTIONS_TEMPLATE_SET: u16 = 3;
const SET_HEADER_SIZE: usize = 4;

/// The part of the header that the exporter decides for each message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// The time at which the message leaves, in seconds since 1970.
    pub export_time: u32,
    /// The number of data records that were sent before this message in the session and observation domain; it wraps.
    pub sequence: u32,
    /// The observation domain.
    pub domain: u32,
}

/// The sets of a message.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Body {
    sets: Vec<u8>,
    /// The number of data records, by which the sequence number of the next message is higher.
    pub records: u32,
}

impl Body {
    /// Returns the message.
    pub fn emit(&self, header: Header) -> Vec<u8> {
        let size = HEADER_SIZE + self.sets.len();
        let mut bytes = Vec::with_capacity(size);
        bytes.extend_from_slice(&VERSION.to_be_bytes());
        bytes.extend_from_slice(&(size as u16).to_be_bytes());
        for word in [header.export_time, header.sequence, header.domain] {
            bytes.extend_from_slice(&word.to_be_bytes());
        }
        bytes.extend_from_slice(&self.sets);
        bytes
    }
}

/// A message that is being made.
#[derive(Debug)]
pub struct Builder {
    body: Body,
    size_max: usize,
    /// The id and the beginning of the last set, which may grow.
    last: Option<(u16, usize)>,
}

impl Builder {
    /// Returns a builder of a message of at most `size_max` bytes, and at most 65,535.
    pub fn new(size_max: usize) -> Builder {
        Builder {
            body: Body::default(),
            size_max: size_max.min(usize::from(u16::MAX)),
            last: None,
        }
    }

    /// Returns true if the message has no set.
    pub fn is_empty(&self) -> bool {
        self.body.sets.is_empty()
    }

    /// Adds a template. Returns false if it does not fit.
    pub fn template(&mut self, template: &Template) -> bool {
        let mut bytes = Vec::new();
        bytes.extend_from_slice(&template.id.to_be_bytes());
        bytes.extend_from_slice(&(template.elements.len() as u16).to_be_bytes());
        let set = if template.scopes == 0 {
            TEMPLATE_SET
        } else {
            bytes.extend_from_slice(&template.scopes.to_be_bytes());
            OPTIONS_TEMPLATE_SET
        };
        for element in template.elements {
            bytes.extend_from_slice(&element.id.to_be_bytes());
            bytes.extend_from_slice(&element.size.field().to_be_bytes());
        }
        self.append(set, &bytes)
    }

    /// Adds a record. Returns false if it does not fit, or has not the size of its template.
    pub fn record(&mut self, template: &Template, values: &crate::Values) -> bool {
        let bytes = values.as_bytes();
        if template.record_size().is_some_and(|size| size != bytes.len()) {
            return false;
        }
        let is_added = self.append(template.id, bytes);
        self.body.records += u32::from(is_added);
        is_added
    }

    /// Appends bytes to the last set, or to a new one if the last one has another id.
    fn append(&mut self, set: u16, bytes: &[u8]) -> bool {
        let sets = &mut self.body.sets;
        let begin = match self.last {
            Some((id, begin)) if id == set => begin,
            _ => sets.len(),
        };
        let is_new = begin == sets.len();
        let added = bytes.len() + if is_new { SET_HEADER_SIZE } else { 0 };
        if HEADER_SIZE + sets.len() + added > self.size_max {
            return false;
        }
        if is_new {
            sets.extend_from_slice(&set.to_be_bytes());
            sets.extend_from_slice(&[0, 0]);
            self.last = Some((set, begin));
        }
        sets.extend_from_slice(bytes);
        let size = (sets.len() - begin) as u16;
        sets[begin + 2..begin + 4].copy_from_slice(&size.to_be_bytes());
        true
    }

    /// Returns the message, and begins the next one.
    pub fn take(&mut self) -> Body {
        self.last = None;
        core::mem::take(&mut self.body)
    }
}
