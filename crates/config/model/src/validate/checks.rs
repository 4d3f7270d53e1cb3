//! The checks in progress: the errors found so far, and the values that must be unique.

use std::collections::HashMap;
use std::hash::Hash;

use crate::decode::UnlocatedError;
use crate::error::{Path, Problem, Step};

/// The values seen so far, each with the path of its first use.
pub(super) struct Unique<T> {
    what: &'static str,
    seen: HashMap<T, Path>,
}

impl<T: Eq + Hash> Unique<T> {
    pub(super) fn new(what: &'static str) -> Unique<T> {
        Unique {
            what,
            seen: HashMap::new(),
        }
    }

    pub(super) fn check(
        &mut self,
        value: T,
        text: &impl ToString,
        path: Path,
        issues: &mut Vec<UnlocatedError>,
    ) {
        match self.seen.get(&value) {
            Some(first) => {
                let problem = Problem::Duplicate {
                    what: self.what,
                    value: text.to_string(),
                    first: first.clone(),
                };
                issues.push(UnlocatedError { path, problem });
            }
            None => {
                self.seen.insert(value, path);
            }
        }
    }
}

/// The errors found so far.
#[derive(Default)]
pub(super) struct Checks {
    pub(super) issues: Vec<UnlocatedError>,
}

impl Checks {
    pub(super) fn conflict(&mut self, path: Path, message: String) {
        self.issues.push(UnlocatedError {
            path,
            problem: Problem::Conflict { message },
        });
    }
}

/// Converts a path in the decoded configuration to the path in the text. Lists in the text still contain the
/// dropped items, so indices after them are larger.
pub(super) fn with_dropped(path: &Path, dropped: &[Path]) -> Path {
    let mut text_path = Path::default();
    for step in &path.0 {
        let step = match step {
            Step::Key(key) => Step::Key(key.clone()),
            Step::Index(index) => {
                let mut index = *index;
                // Dropped items are recorded in the order of the list.
                for lost in dropped {
                    if let Some((Step::Index(position), list)) = lost.0.split_last()
                        && *list == *text_path.0
                        && *position <= index
                    {
                        index += 1;
                    }
                }
                Step::Index(index)
            }
        };
        text_path.0.push(step);
    }
    text_path
}
