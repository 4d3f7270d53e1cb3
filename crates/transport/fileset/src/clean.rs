//! Files that transfers left behind: temporary files and journals of those that were interrupted and did not go on.

use crate::entry::Timestamp;
use crate::fs::{FileSystem, FileType, Metadata};
use crate::path::{RESERVED_PREFIX, RelativePath};
use std::io;

/// Passes each temporary file and journal below the root that was last modified before a time to `visit`. Symlinks are not followed,
/// and a directory that may not be read is passed over.
///
/// # Errors
/// If a directory cannot be read for another reason than its permissions.
pub fn partial_files<F: FileSystem>(
    fs: &F,
    before: Timestamp,
    visit: &mut dyn FnMut(&RelativePath, &Metadata),
) -> io::Result<()> {
    let mut stack = vec![RelativePath::root()];
    while let Some(directory) = stack.pop() {
        let names = match fs.names(&directory) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied && !directory.is_root() => continue,
            // The directory was removed meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound && !directory.is_root() => continue,
            names => names?,
        };
        for name in names {
            let Ok(path) = directory.join(&name) else { continue };
            let Ok(metadata) = fs.metadata(&path) else {
                continue;
            };
            match metadata.file_type {
                FileType::Directory => stack.push(path),
                FileType::File | FileType::Symlink
                    if name.starts_with(RESERVED_PREFIX) && metadata.modified < before =>
                {
                    visit(&path, &metadata);
                }
                _ => {}
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::memory::MemoryFs;

    #[test]
    fn only_old_files_of_transfers_are_found_in_every_directory() {
        let fs = MemoryFs::new();
        let path = |text: &str| RelativePath::new(text.as_bytes()).unwrap();
        fs.put(&path("d"), None).unwrap();
        for name in ["kept", "d/kept", "d/.millrace-old", ".millrace-old.journal"] {
            fs.put(&path(name), Some(b"1")).unwrap();
        }
        let now = fs.metadata(&path(".millrace-old.journal")).unwrap().modified;
        let before = Timestamp {
            nanoseconds: now.nanoseconds + 1,
            ..now
        };
        fs.put(&path("d/.millrace-new"), Some(b"1")).unwrap();
        let mut found = Vec::new();
        partial_files(&fs, before, &mut |path, _| found.push(path.to_string())).unwrap();
        found.sort();
        assert_eq!(found, [".millrace-old.journal", "d/.millrace-old"]);
    }
}
