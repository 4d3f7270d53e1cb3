//! Options that look values up in sets and lists of files.

use std::sync::Arc;

use millrace_ips_rules::Reason;
use millrace_ips_rules::options::dataset::{Dataset, SetTest, SetType};
use millrace_ips_rules::options::words::TextField;

use super::builder::Builder;
use super::options::negation;
use crate::detect::compile::bytes::List;
use crate::detect::dataset::{self, SavedSet};
use crate::detect::program::{AppTest, Operation, SetLookup};

impl Builder<'_> {
    /// Adds a look-up of the buffer in a set of values.
    pub(super) fn dataset(&mut self, set: &Dataset) -> Result<(), Reason> {
        if self.list == List::Payload {
            return Err(Reason::Invalid {
                problem: "a look-up of the payload".to_owned(),
                expected: "a sticky buffer before it",
            });
        }
        let known = self.interner.sets.get(&set.name);
        let Some(kind) = set.kind.or(known.map(|(kind, _)| *kind)) else {
            return Err(Reason::Invalid {
                problem: format!("the set {} has no type", set.name),
                expected: "type string, md5, sha256, ipv4 or ip in the first rule with the set",
            });
        };
        if set.has_subdomains && kind != SetType::String {
            return Err(Reason::Invalid {
                problem: format!("match subdomain with the set {} of type {kind}", set.name),
                expected: "a set of type string",
            });
        }
        let values = match known {
            Some((known, _)) if *known != kind => {
                return Err(Reason::Invalid {
                    problem: format!("the set {} has the type {known} in another rule", set.name),
                    expected: "one type for each set",
                });
            }
            Some((_, values)) if set.file().is_none() || !values.is_empty() => Arc::clone(values),
            _ => {
                let text = match set.file() {
                    Some((name, must_exist)) => self.contents(name, must_exist)?,
                    None => &[],
                };
                let has_reputation = matches!(set.test, SetTest::Reputation(_));
                let values = match &set.enrichment {
                    Some(form) => {
                        let (values, json) = dataset::read_json(kind, &set.name, form, text)?;
                        self.interner.json.insert(set.name.clone(), Arc::new(json));
                        values
                    }
                    None => dataset::read(kind, has_reputation, text)?,
                };
                let values = Arc::new(values);
                let entry = (kind, Arc::clone(&values));
                self.interner.sets.insert(set.name.clone(), entry);
                values
            }
        };
        if let Some(file) = set.saved_file() {
            let saved = SavedSet {
                name: set.name.as_str().into(),
                kind,
                file: file.to_owned(),
                values: Arc::clone(&values),
            };
            let known = self.interner.saved.entry(set.name.clone()).or_insert(saved);
            if known.file != file {
                return Err(Reason::Invalid {
                    problem: format!(
                        "the set {} is written to {} by another rule",
                        set.name, known.file
                    ),
                    expected: "one file for each set",
                });
            }
        }
        let lookup = SetLookup {
            name: set.name.as_str().into(),
            kind,
            test: set.test,
            values,
            has_subdomains: set.has_subdomains,
            json: self.interner.json.get(&set.name).cloned(),
            is_saved: false,
        };
        self.push(self.list, Operation::Set(lookup));
        Ok(())
    }

    /// Returns the contents of a file that an option names.
    fn contents(&self, name: &str, must_exist: bool) -> Result<&'_ [u8], Reason> {
        let key = (self.file.to_owned(), name.to_owned());
        match self.data.get(&key) {
            Some(text) => Ok(text),
            None if !must_exist => Ok(&[]),
            None => Err(Reason::Invalid {
                problem: format!("the file {name} cannot be read"),
                expected: "a file beside the rule file, or an absolute name",
            }),
        }
    }

    /// Adds a condition on the digest of a file.
    pub(super) fn digest(&mut self, field: TextField, text: &str) -> Result<(), Reason> {
        let (is_negated, name) = negation(text);
        let size = match field {
            TextField::FileMd5 => 16,
            TextField::FileSha1 => 20,
            _ => 32,
        };
        let key = (self.file.to_owned(), field.keyword(), name.to_owned());
        let list = match self.interner.digests.get(&key) {
            Some(list) => Arc::clone(list),
            None => {
                let list = Arc::new(dataset::digests(size, self.contents(name, true)?)?);
                self.interner.digests.insert(key, Arc::clone(&list));
                list
            }
        };
        self.app.push(AppTest::Digest {
            field,
            list,
            is_negated,
        });
        Ok(())
    }
}
