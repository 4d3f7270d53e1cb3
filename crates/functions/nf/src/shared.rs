//! A value that all functions of a hop share, such as a compiled rule set. The control side makes it once; functions open no
//! files.
//!
//! ```text
//!  settings ──read──▶ source: bytes ──compile──▶ SharedValue ──▶ Function::share, in every lane and instance
//!           (files)                   (pure)
//! ```
//!
//! A function runs without a value until the first one is compiled. It keeps its value while another is
//! compiled, and if that compilation fails. A source holds all that the compilation needs, so that another
//! process can repeat it.

use core::any::Any;
use core::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use crate::settings::Settings;

/// A value of any type that functions share. Clones share the value.
#[derive(Clone)]
pub struct SharedValue(Arc<dyn Any + Send + Sync>);

impl SharedValue {
    /// Returns a value to share.
    pub fn new<T: Any + Send + Sync>(value: T) -> SharedValue {
        SharedValue(Arc::new(value))
    }

    /// Returns the value if it is of type `T`.
    pub fn get<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        Arc::clone(&self.0).downcast().ok()
    }
}

impl<T: Any + Send + Sync> From<Arc<T>> for SharedValue {
    fn from(value: Arc<T>) -> SharedValue {
        SharedValue(value)
    }
}

impl fmt::Debug for SharedValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SharedValue").finish_non_exhaustive()
    }
}

/// A file of a source, with its state before it was opened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InputFile {
    path: PathBuf,
    /// Size and time of modification; `None` if the file could not be found.
    state: Option<(u64, SystemTime)>,
}

impl InputFile {
    /// Returns a file that is about to be opened. A change while it is read is then seen by the next comparison.
    pub fn before_open(path: &Path) -> InputFile {
        InputFile {
            path: path.to_owned(),
            state: InputFile::state(path),
        }
    }

    /// Returns the path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns true if the file has changed since [`InputFile::before_open`].
    pub fn has_changed(&self) -> bool {
        InputFile::state(&self.path) != self.state
    }

    fn state(path: &Path) -> Option<(u64, SystemTime)> {
        let metadata = std::fs::metadata(path).ok()?;
        Some((metadata.len(), metadata.modified().ok()?))
    }
}

/// The input of a compilation.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Source {
    /// All that the compilation needs: the contents of files, and the settings.
    pub bytes: Vec<u8>,
    /// The files. A change of one of them requires another compilation.
    pub files: Vec<InputFile>,
}

/// A compiled value.
#[derive(Clone, Debug)]
pub struct Compiled {
    pub value: SharedValue,
    /// A line for operators, such as the number of rules.
    pub summary: String,
}

/// The functions that make the shared value of a kind. Both run on the control side and may take long.
#[derive(Clone, Copy)]
pub struct SharedKind {
    /// The settings from which the value is made. A change of these keeps the functions; a change of others makes new ones.
    pub settings: &'static [&'static str],
    /// Reads the files that the settings name, or returns the reason why that fails.
    pub read: fn(&Settings) -> Result<Source, String>,
    /// Compiles a source, or returns the reason why that fails. The second argument is the value that the result replaces:
    /// numbers that functions remember, such as those of flow bits, stay the same.
    pub compile: fn(&[u8], Option<&SharedValue>) -> Result<Compiled, String>,
    /// True if the compilation generates machine code: a process keeps the right to make memory executable then.
    pub generates_code: bool,
}

impl fmt::Debug for SharedKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedKind")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

impl SharedKind {
    /// Returns the settings from which the value is made.
    pub fn own(&self, settings: &Settings) -> Settings {
        settings.filtered(|key| self.settings.contains(&key))
    }

    /// Returns the settings with which a function is created.
    pub fn others(&self, settings: &Settings) -> Settings {
        settings.filtered(|key| !self.settings.contains(&key))
    }
}

/// A value that a process has compiled, or could not compile.
#[derive(Clone, Debug)]
pub struct NewValue {
    /// The number of the value's source, from 1.
    pub generation: u64,
    /// The value; `None` if it could not be compiled.
    pub value: Option<SharedValue>,
}

/// The source of shared values for a function in its own process.
pub trait Values {
    /// Returns the next value, once.
    fn take(&mut self) -> Option<NewValue>;

    /// Takes a value that the function no longer uses, to drop it outside of the poll loop.
    fn retire(&mut self, value: SharedValue);
}

/// Turns the messages of a hop's functions into the bytes that the target of `export` receives. It runs on the control side,
/// one for each hop.
pub trait Formatter: Send {
    /// Uses another shared value from now on.
    fn share(&mut self, value: &SharedValue) {
        let _ = value;
    }

    /// Appends the bytes for a message.
    fn format(&mut self, message: &[u8], out: &mut Vec<u8>);

    /// Appends a periodic report. It is called about once a second with the Unix time in milliseconds and the sums of the
    /// counters of all functions.
    fn report(&mut self, unix_millis: u64, counters: &[(&'static str, u64)], out: &mut Vec<u8>) {
        let _ = (unix_millis, counters, out);
    }
}

/// The constructor of a formatter. The settings were accepted by the function's constructor.
pub type FormatterConstructor = fn(&Settings, zero_unix_millis: u64) -> Box<dyn Formatter>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_has_its_type_and_no_other() {
        let value = SharedValue::new(7_u32);
        assert_eq!(value.get::<u32>().as_deref(), Some(&7));
        assert!(value.get::<u64>().is_none());
    }

    #[test]
    fn settings_are_split_into_those_of_the_value_and_those_of_the_function() {
        let kind = SharedKind {
            settings: &["rules"],
            read: |_| Ok(Source::default()),
            compile: |_, _| Err("never".to_owned()),
            generates_code: false,
        };
        let settings = Settings::parse(["rules=a", "mode=x", "rules=b"]).unwrap();
        let texts = |settings: Settings| settings.texts().collect::<Vec<_>>();
        assert_eq!(texts(kind.own(&settings)), ["rules=a", "rules=b"]);
        assert_eq!(texts(kind.others(&settings)), ["mode=x"]);
    }
}
