//! Files that settings name. This crate reads no files: the caller that compiles a configuration provides
//! their contents.

/// A provider of file contents. Each file is read once, when a configuration is compiled.
pub trait Sources {
    /// Returns the contents of the file that a setting names.
    ///
    /// # Errors
    /// The reason why the file cannot be read, as a text for users.
    fn read(&self, name: &str) -> Result<String, String>;
}

impl<F: Fn(&str) -> Result<String, String>> Sources for F {
    fn read(&self, name: &str) -> Result<String, String> {
        self(name)
    }
}

/// A provider without files: a setting that names a file is refused.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoSources;

impl Sources for NoSources {
    fn read(&self, name: &str) -> Result<String, String> {
        Err(format!(
            "{name}: no file can be read here; expected a setting without a file"
        ))
    }
}
