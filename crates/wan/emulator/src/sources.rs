//! Files that settings name. This crate reads none: the caller that compiles a configuration provides their contents.

/// A place from which files are read, once, when a configuration is compiled.
pub trait Sources {
    /// Returns the contents of the file that a setting names.
    ///
    /// # Errors
    /// The reason why it cannot be read, for people.
    fn read(&self, name: &str) -> Result<String, String>;
}

impl<F: Fn(&str) -> Result<String, String>> Sources for F {
    fn read(&self, name: &str) -> Result<String, String> {
        self(name)
    }
}

/// No files: a setting that names one is refused.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoSources;

impl Sources for NoSources {
    fn read(&self, name: &str) -> Result<String, String> {
        Err(format!(
            "{name}: no file can be read here; expected a setting without a file"
        ))
    }
}
