//! Opens a file whose code is to run inside the switch, by a path that only root and the daemon's user can change.
//!
//! A check of a path name does not cover a later open: a user who may write to one of its folders can replace the file
//! in between. So every component is opened relative to its folder (`openat` with `O_PATH` and `O_NOFOLLOW`), and the
//! checks use that descriptor: its owner, and that neither group nor others may write. (An access control list that
//! lets another user write appears as group permission; acl(5).) The loader then loads the descriptor of the file that
//! was checked. The same walk follows symbolic links.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, fstat, open, openat, readlinkat};
use rustix::process::geteuid;
use thiserror::Error;

/// Largest number of symbolic links in a path, as in path_resolution(7).
const LINKS_MAX: usize = 40;
/// Write permission of group and others.
const WRITABLE: u32 = 0o022;

/// The reason why a file must not be loaded into the switch.
#[derive(Debug, Error)]
pub(crate) enum TrustError {
    /// The kernel does not open a component of the path.
    #[error("{}: {source}", path.display())]
    Open {
        /// The path up to the component.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// A component belongs to a user who is not trusted with the switch.
    #[error("{} belongs to user {owner}: {}", path.display(), Expected(owners))]
    Owner {
        /// The path up to the component.
        path: PathBuf,
        /// The user id of the owner.
        owner: u32,
        /// The users to which the component may belong.
        owners: Vec<u32>,
    },
    /// Users other than the owner may write to a component.
    #[error("{} has mode {mode:04o}, so users other than its owner may write there: {}", path.display(), Expected(owners))]
    Writable {
        /// The path up to the component.
        path: PathBuf,
        /// The permission bits.
        mode: u32,
        /// The users to which the component may belong.
        owners: Vec<u32>,
    },
    /// The path ends at another type than a regular file, or passes another type than a folder.
    #[error("{} is no regular file: expected a shared object", path.display())]
    NotRegular {
        /// The path up to the component.
        path: PathBuf,
    },
    /// The path has too many symbolic links.
    #[error("{} passes more than {LINKS_MAX} symbolic links", path.display())]
    Links { path: PathBuf },
}

/// The violated rule, and the next steps.
struct Expected<'a>(&'a [u32]);

impl core::fmt::Display for Expected<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("a shared object of class inline runs inside the switch, so it and every folder above it must belong to root")?;
        for owner in self.0.iter().filter(|owner| **owner != 0) {
            write!(f, " or to user {owner}")?;
        }
        f.write_str(", with write permission for the owner only. Move it to such a folder, /usr/local/lib/millrace for example, or use class isolated")
    }
}

/// Opens the file at an absolute path with `O_PATH`, if only root and the user of this process can change the target
/// of the path.
///
/// # Errors
/// [`TrustError`] for the first component that violates the rule.
pub(crate) fn open_trusted(path: &Path) -> Result<OwnedFd, TrustError> {
    let root = open(
        "/",
        OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    );
    let root = root.map_err(|error| failed(Path::new("/"), error))?;
    Walk {
        root,
        owners: vec![0, geteuid().as_raw()],
    }
    .to(path)
}

fn failed(path: &Path, error: rustix::io::Errno) -> TrustError {
    TrustError::Open {
        path: path.to_owned(),
        source: error.into(),
    }
}

/// The walk along a path, with the users that are trusted.
struct Walk {
    /// The root folder of absolute paths.
    root: OwnedFd,
    /// The users that every component may belong to.
    owners: Vec<u32>,
}

impl Walk {
    fn to(&self, path: &Path) -> Result<OwnedFd, TrustError> {
        let (mut folder, mut at) = (self.again()?, PathBuf::from("/"));
        self.check(&folder, &at)?;
        let mut left = names(path);
        let mut links = 0;
        while let Some(name) = left.pop_front() {
            let is_up = name == OsStr::new("..");
            let here = if is_up {
                at.parent().unwrap_or(&at).to_owned()
            } else {
                at.join(&name)
            };
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let next = openat(&folder, &name, flags, Mode::empty()).map_err(|error| failed(&here, error))?;
            let mode = fstat(&next).map_err(|error| failed(&here, error))?.st_mode;
            match FileType::from_raw_mode(mode) {
                FileType::Symlink => {
                    links += 1;
                    if links > LINKS_MAX {
                        return Err(TrustError::Links {
                            path: path.to_owned(),
                        });
                    }
                    let target = readlinkat(&next, "", Vec::new()).map_err(|error| failed(&here, error))?;
                    let target = PathBuf::from(OsString::from_vec(target.into_bytes()));
                    if target.is_absolute() {
                        (folder, at) = (self.again()?, PathBuf::from("/"));
                    }
                    for name in names(&target).into_iter().rev() {
                        left.push_front(name);
                    }
                }
                FileType::Directory => {
                    self.check(&next, &here)?;
                    (folder, at) = (next, here);
                }
                FileType::RegularFile if left.is_empty() => {
                    self.check(&next, &here)?;
                    return Ok(next);
                }
                _ => return Err(TrustError::NotRegular { path: here }),
            }
        }
        Err(TrustError::NotRegular { path: at })
    }

    /// Returns a new descriptor of the root folder.
    fn again(&self) -> Result<OwnedFd, TrustError> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        openat(&self.root, ".", flags, Mode::empty()).map_err(|error| failed(Path::new("/"), error))
    }

    fn check(&self, file: &OwnedFd, path: &Path) -> Result<(), TrustError> {
        let stat = rustix::fs::statat(file, "", AtFlags::EMPTY_PATH).map_err(|error| failed(path, error))?;
        let (path, owners) = (path.to_owned(), self.owners.clone());
        if !self.owners.contains(&stat.st_uid) {
            let owner = stat.st_uid;
            return Err(TrustError::Owner { path, owner, owners });
        }
        if stat.st_mode & WRITABLE != 0 {
            let mode = stat.st_mode & 0o7777;
            return Err(TrustError::Writable { path, mode, owners });
        }
        Ok(())
    }
}

/// Returns the components of a path, without its root.
fn names(path: &Path) -> VecDeque<OsString> {
    let name = |component: Component<'_>| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    };
    path.components().filter_map(name).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::fd::AsRawFd as _;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    /// Creates a folder that represents `/`, with `lib/f.so` in it.
    struct Tree(tempfile::TempDir);

    impl Tree {
        fn new() -> Tree {
            let tree = Tree(tempfile::tempdir().unwrap());
            fs::create_dir(tree.at("lib")).unwrap();
            fs::write(tree.at("lib/f.so"), "first").unwrap();
            tree.mode("", 0o755).mode("lib", 0o755).mode("lib/f.so", 0o644);
            tree
        }

        fn at(&self, path: &str) -> PathBuf {
            self.0.path().join(path)
        }

        fn mode(&self, path: &str, mode: u32) -> &Tree {
            fs::set_permissions(self.at(path), fs::Permissions::from_mode(mode)).unwrap();
            self
        }

        fn open(&self, path: &str) -> Result<OwnedFd, TrustError> {
            self.open_as(path, vec![0, geteuid().as_raw()])
        }

        fn open_as(&self, path: &str, owners: Vec<u32>) -> Result<OwnedFd, TrustError> {
            let flags = OFlags::PATH | OFlags::DIRECTORY;
            let root = open(self.0.path(), flags, Mode::empty()).unwrap();
            Walk { root, owners }.to(Path::new(path))
        }
    }

    fn text(file: &OwnedFd) -> String {
        fs::read_to_string(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap()
    }

    #[test]
    fn a_file_that_nobody_else_can_change_is_opened_also_behind_links() {
        let tree = Tree::new();
        symlink("lib", tree.at("usr")).unwrap();
        symlink("/usr/f.so", tree.at("lib/g.so")).unwrap();
        symlink("../lib/f.so", tree.at("lib/h.so")).unwrap();
        for path in ["/lib/f.so", "/usr/g.so", "/lib/./h.so", "/lib/../usr/f.so"] {
            assert_eq!(text(&tree.open(path).unwrap()), "first", "{path}");
        }
    }

    #[test]
    fn write_permission_for_others_anywhere_on_the_path_is_refused() {
        for (path, mode) in [
            ("", 0o1777),
            ("lib", 0o775),
            ("lib", 0o757),
            ("lib/f.so", 0o664),
            ("lib/f.so", 0o646),
        ] {
            let tree = Tree::new();
            tree.mode(path, mode);
            let error = tree.open("/lib/f.so").unwrap_err();
            let is_it = matches!(&error, TrustError::Writable { mode: found, path: at, .. }
                if *found == mode && *at == Path::new("/").join(path));
            assert!(is_it, "{path} {mode:o}: {error:?}");
        }
    }

    #[test]
    fn another_owner_anywhere_on_the_path_is_refused() {
        let tree = Tree::new();
        let error = tree
            .open_as("/lib/f.so", vec![geteuid().as_raw() + 1])
            .unwrap_err();
        assert!(
            matches!(error, TrustError::Owner { ref path, .. } if path == Path::new("/")),
            "{error}"
        );
        if !geteuid().is_root() {
            eprintln!("not run to its end: it needs root to give files away");
            return;
        }
        for path in ["lib", "lib/f.so"] {
            let tree = Tree::new();
            std::os::unix::fs::chown(tree.at(path), Some(65534), None).unwrap();
            let error = tree.open("/lib/f.so").unwrap_err().to_string();
            assert!(
                error.starts_with(&format!("/{path} belongs to user 65534: ")),
                "{error}"
            );
        }
    }

    #[test]
    fn a_link_leads_only_to_where_nobody_else_can_write() {
        let tree = Tree::new();
        fs::create_dir(tree.at("tmp")).unwrap();
        fs::write(tree.at("tmp/f.so"), "").unwrap();
        tree.mode("tmp", 0o1777).mode("tmp/f.so", 0o644);
        symlink("../tmp/f.so", tree.at("lib/g.so")).unwrap();
        assert!(matches!(tree.open("/lib/g.so"), Err(TrustError::Writable { .. })));
        symlink("again", tree.at("again")).unwrap();
        assert!(matches!(tree.open("/again"), Err(TrustError::Links { .. })));
    }

    #[test]
    fn folders_and_files_in_their_place_are_refused() {
        let tree = Tree::new();
        for path in ["/", "/lib", "/lib/f.so/g.so"] {
            assert!(
                matches!(tree.open(path), Err(TrustError::NotRegular { .. })),
                "{path}"
            );
        }
        assert!(matches!(tree.open("/lib/none.so"), Err(TrustError::Open { .. })));
    }

    #[test]
    fn a_file_that_takes_the_place_of_the_checked_one_is_not_what_was_opened() {
        let tree = Tree::new();
        let file = tree.open("/lib/f.so").unwrap();
        fs::write(tree.at("lib/other"), "second").unwrap();
        fs::rename(tree.at("lib/other"), tree.at("lib/f.so")).unwrap();
        assert_eq!(text(&file), "first");
    }
}
