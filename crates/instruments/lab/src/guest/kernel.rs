//! The kernel of guests: Debian's cloud kernel, unpacked by `scripts/setup.sh guests`, or installed.

use std::fs;
use std::path::{Path, PathBuf};

use crate::up::UpError;

/// The directory into which `scripts/setup.sh guests` unpacks the package.
const UNPACKED: &str = "/var/cache/millrace/guest";
/// The environment variable that names another directory.
const VARIABLE: &str = "MILLRACE_GUEST";

/// A kernel and its modules.
#[derive(Debug, Clone)]
pub(crate) struct Kernel {
    root: PathBuf,
    release: String,
}

impl Kernel {
    /// Returns the latest cloud kernel: below `$MILLRACE_GUEST`, in the directory of the setup script, or installed.
    ///
    /// # Errors
    /// [`UpError::NoKernel`].
    pub(crate) fn find() -> Result<Kernel, UpError> {
        let roots = match std::env::var_os(VARIABLE) {
            Some(root) => vec![PathBuf::from(root)],
            None => vec![PathBuf::from(UNPACKED), PathBuf::from("/")],
        };
        roots.iter().find_map(|root| Kernel::below(root)).ok_or_else(|| {
            let looked: Vec<String> = roots
                .iter()
                .map(|root| root.join("boot").display().to_string())
                .collect();
            UpError::NoKernel {
                looked: looked.join(" and "),
            }
        })
    }

    fn below(root: &Path) -> Option<Kernel> {
        let entries = fs::read_dir(root.join("boot")).ok()?;
        let releases = entries.filter_map(|entry| {
            let name = entry.ok()?.file_name().into_string().ok()?;
            name.strip_prefix("vmlinuz-").map(str::to_owned)
        });
        let cloud = releases.filter(|release| release.contains("cloud"));
        // Releases are compared by their numbers, not as text.
        let release = cloud.max_by_key(|release| {
            let numbers = release.split(|c: char| !c.is_ascii_digit());
            numbers
                .map(|number| number.parse().unwrap_or(0))
                .collect::<Vec<u64>>()
        })?;
        Some(Kernel {
            root: root.to_owned(),
            release,
        })
    }

    /// Returns the path of the kernel image.
    pub(super) fn image(&self) -> PathBuf {
        self.root.join("boot").join(format!("vmlinuz-{}", self.release))
    }

    /// Returns the path of a module, from its path below `kernel/`.
    pub(super) fn module(&self, path: &str) -> PathBuf {
        let modules = self.root.join("lib/modules").join(&self.release);
        modules.join("kernel").join(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_cloud_kernel_is_taken_and_none_is_told() {
        let dir = tempfile::tempdir().unwrap();
        assert!(Kernel::below(dir.path()).is_none());
        let boot = dir.path().join("boot");
        fs::create_dir(&boot).unwrap();
        for release in ["6.1.0-9-cloud-amd64", "6.1.0-56-cloud-amd64", "6.12.0-1-amd64"] {
            fs::write(boot.join(format!("vmlinuz-{release}")), "").unwrap();
        }
        let kernel = Kernel::below(dir.path()).unwrap();
        assert_eq!(kernel.image(), boot.join("vmlinuz-6.1.0-56-cloud-amd64"));
    }
}
