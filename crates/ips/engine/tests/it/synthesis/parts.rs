//! The bytes of the buffers of a rule.

use millrace_ips_engine::detect::Rule;
use millrace_ips_engine::detect::program::{BufferTest, Operation, Step};
use millrace_ips_rules::buffers::Buffer;
use millrace_ips_rules::options::transform::Transform;

use super::fill::{fill, holds};
use super::random::Random;

/// The bytes of each buffer that a rule has conditions on.
#[derive(Debug, Clone, Default)]
pub(crate) struct Parts {
    list: Vec<(Buffer, Vec<u8>)>,
}

/// Returns the bytes that transforms leave of a buffer.
pub(crate) fn transformed(transforms: &[Step], bytes: &[u8]) -> Vec<u8> {
    let mut out = bytes.to_vec();
    for transform in transforms {
        match transform {
            Step::Plain(Transform::DotPrefix) => out.insert(0, b'.'),
            Step::Plain(Transform::ToLowercase) => out.make_ascii_lowercase(),
            Step::Plain(Transform::ToUppercase) => out.make_ascii_uppercase(),
            _ => {}
        }
    }
    out
}

fn tests(rule: &Rule, buffer: Buffer) -> impl Iterator<Item = &BufferTest> {
    rule.buffers.iter().filter(move |test| test.buffer == buffer)
}

impl Parts {
    /// Returns bytes that the conditions on each buffer accept; the error is the buffer for which there are none.
    /// `extra` has conditions on buffers that the rule writes in another way.
    pub(crate) fn of_rule(
        rule: &Rule,
        extra: &[(Buffer, Vec<Operation>)],
        random: &mut Random,
    ) -> Result<Parts, Buffer> {
        let mut buffers: Vec<Buffer> = rule.buffers.iter().map(|test| test.buffer).collect();
        buffers.extend(extra.iter().map(|(buffer, _)| *buffer));
        buffers.sort();
        buffers.dedup();
        let mut parts = Parts::default();
        // `urilen:…,raw` compares the size of the raw URI, which is that of the normalised one here.
        let is_size = |test: &&BufferTest| {
            let is_size = |operation: &Operation| matches!(operation, Operation::Size(_));
            test.buffer == Buffer::HttpUriRaw && test.operations.iter().all(is_size)
        };
        let sizes: Vec<&BufferTest> = rule.buffers.iter().filter(is_size).collect();
        let has_uri = buffers.contains(&Buffer::HttpUri);
        let is_sized = has_uri && sizes.len() == tests(rule, Buffer::HttpUriRaw).count();
        buffers.retain(|buffer| !is_sized || *buffer != Buffer::HttpUriRaw);
        for buffer in buffers {
            let mut lists: Vec<&[Operation]> = tests(rule, buffer).map(|test| &test.operations[..]).collect();
            let others = extra.iter().filter(|(other, _)| *other == buffer);
            lists.extend(others.map(|(_, operations)| &operations[..]));
            let (base, starts): (&[u8], &[usize]) = match buffer {
                Buffer::HttpUri => {
                    lists.extend(sizes.iter().map(|test| &test.operations[..]));
                    (b"/a", &[0, 1, 2])
                }
                Buffer::HttpUriRaw => (b"/a", &[0, 1, 2]),
                _ => (b"", &[0]),
            };
            let filled = fill(&lists, base, starts, random);
            let mut bytes = match (filled, base) {
                (Some(bytes), _) => bytes,
                (None, b"") => return Err(buffer),
                (None, _) => fill(&lists, b"/", &[0], random).ok_or(buffer)?,
            };
            // An empty value counts as absent.
            if bytes.is_empty() && lists.iter().all(|list| holds(list, b"a")) {
                bytes.push(b'a');
            }
            let is_dot = |step: &Step| matches!(step, Step::Plain(Transform::DotPrefix));
            let has_dot = tests(rule, buffer).any(|test| test.transforms.iter().any(is_dot));
            if has_dot && bytes.first() == Some(&b'.') {
                bytes.remove(0);
            }
            if buffer == Buffer::HttpHost {
                bytes.make_ascii_lowercase();
                // The dot after the last label is no part of the normalised host.
                let longer = [&bytes[..], b"a"].concat();
                if bytes.ends_with(b".") && lists.iter().all(|list| holds(list, &longer)) {
                    bytes = longer;
                }
            }
            parts.list.push((buffer, bytes));
        }
        Ok(parts)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Returns the bytes of a buffer.
    pub(crate) fn of(&self, buffer: Buffer) -> Option<&[u8]> {
        let found = self.list.iter().find(|(other, _)| *other == buffer)?;
        Some(&found.1)
    }

    /// Returns the bytes of a buffer, to be changed.
    pub(crate) fn of_mut(&mut self, buffer: Buffer) -> Option<&mut Vec<u8>> {
        let found = self.list.iter_mut().find(|(other, _)| *other == buffer)?;
        Some(&mut found.1)
    }

    /// Returns all buffers.
    pub(crate) fn list(&self) -> &[(Buffer, Vec<u8>)] {
        &self.list
    }
}
