//! A machine, described by its files, such as those in /proc and /sys.

use std::path::{Path, PathBuf};

/// A machine, described by the files below a root directory.
pub(super) struct Machine {
    pub(super) root: PathBuf,
}

impl Machine {
    /// Returns the machine that the program runs on.
    pub(super) fn this() -> Machine {
        Machine {
            root: PathBuf::from("/"),
        }
    }

    /// Returns the text of a file, or `None` if it cannot be read.
    pub(super) fn read(&self, path: &str) -> Option<String> {
        std::fs::read_to_string(self.root.join(path)).ok()
    }

    pub(super) fn exists(&self, path: &str) -> bool {
        self.root.join(path).exists()
    }

    /// Returns the names in a directory, sorted; the list is empty if it cannot be read.
    pub(super) fn list(&self, path: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.root.join(path))
            .into_iter()
            .flatten()
            .flatten();
        let mut names: Vec<String> = entries
            .filter_map(|entry| entry.file_name().into_string().ok())
            .collect();
        names.sort();
        names
    }

    /// Returns the last component of a symbolic link's target.
    pub(super) fn link_target(&self, path: &str) -> Option<String> {
        let target = std::fs::read_link(self.root.join(path)).ok()?;
        Some(Path::new(&target).file_name()?.to_str()?.to_owned())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Returns a machine with these files. A content that begins with `->` is the target of a symbolic link.
    pub(in crate::doctor) fn machine(files: &[(&str, &str)]) -> (tempfile::TempDir, Machine) {
        let dir = tempfile::tempdir().unwrap();
        for (path, content) in files {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            match content.strip_prefix("->") {
                Some(target) => std::os::unix::fs::symlink(target, path).unwrap(),
                None => std::fs::write(path, content).unwrap(),
            }
        }
        let machine = Machine {
            root: dir.path().to_owned(),
        };
        (dir, machine)
    }
}
