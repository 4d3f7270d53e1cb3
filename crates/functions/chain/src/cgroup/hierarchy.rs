//! The directories in which this process can create control groups, as the kernel reports them.
//!
//! The kernel has two interfaces, which some machines use at the same time. Version 1 has a hierarchy for
//! each controller. Version 2 has one hierarchy for all, in which a group contains either groups or processes
//! (cgroups(7)). Groups are always created below the group of this process, so they divide its resources.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The controller of a resource.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Controller {
    Cpu,
    Memory,
    Pids,
}

impl Controller {
    const ALL: [Controller; 3] = [Controller::Cpu, Controller::Memory, Controller::Pids];

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Controller::Cpu => "cpu",
            Controller::Memory => "memory",
            Controller::Pids => "pids",
        }
    }
}

/// The version of the kernel's interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Version {
    One,
    Two,
}

/// A directory in which groups of a controller can be created.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ParentGroup {
    pub(crate) dir: PathBuf,
    pub(crate) version: Version,
}

/// The group of this process for each controller, or the reason why there is none.
#[derive(Clone, Debug)]
pub(crate) struct ParentGroups([Result<ParentGroup, String>; 3]);

/// Name of the group to which this process moves, so that its former group can contain groups.
const OWN: &str = "millraced";

impl ParentGroups {
    /// Parses `/proc/self/mountinfo` (proc(5)) and `/proc/self/cgroup` (cgroups(7)).
    pub(crate) fn parse(mounts: &str, own: &str) -> ParentGroups {
        ParentGroups(Controller::ALL.map(|controller| find(controller, mounts, own)))
    }

    /// Returns the directory for groups of a controller.
    pub(crate) fn parent(&self, controller: Controller) -> Result<&ParentGroup, &str> {
        let [cpu, memory, pids] = &self.0;
        let parent = match controller {
            Controller::Cpu => cpu,
            Controller::Memory => memory,
            Controller::Pids => pids,
        };
        parent.as_ref().map_err(String::as_str)
    }

    /// Returns all directories without duplicates.
    pub(crate) fn dirs(&self) -> Vec<&Path> {
        let mut dirs: Vec<&Path> = self
            .0
            .iter()
            .flatten()
            .map(|parent| parent.dir.as_path())
            .collect();
        dirs.sort();
        dirs.dedup();
        dirs
    }
}

/// Returns the path of this process's group in one hierarchy, from lines `NUMBER:CONTROLLERS:PATH`.
fn own_path(own: &str, is_it: impl Fn(&str, &str) -> bool) -> Option<&str> {
    own.lines().find_map(|line| {
        let (number, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        is_it(number, controllers).then_some(path)
    })
}

/// Returns the directory of the group `path` in a mounted hierarchy of type `fstype`, which has the mount option `option` if
/// one is given.
fn dir(mounts: &str, fstype: &str, option: Option<&str>, path: &str) -> Option<PathBuf> {
    mounts.lines().find_map(|line| {
        let (left, right) = line.split_once(" - ")?;
        let left: Vec<&str> = left.split(' ').collect();
        let right: Vec<&str> = right.split(' ').collect();
        let (root, at) = (left.get(3)?, left.get(4)?);
        let has = |option| {
            right
                .get(2)
                .is_some_and(|options| options.split(',').any(|listed| listed == option))
        };
        if right.first() != Some(&fstype) || !option.is_none_or(has) {
            return None;
        }
        // The mount may show a part of the hierarchy, as in a container.
        let below = Path::new(path).strip_prefix(root).ok()?;
        // `join` would append a slash for an empty path.
        Some(
            [Path::new(at), below]
                .iter()
                .filter(|part| !part.as_os_str().is_empty())
                .collect(),
        )
    })
}

/// Returns the directory for groups of a controller, or the reason why there is none.
fn find(controller: Controller, mounts: &str, own: &str) -> Result<ParentGroup, String> {
    let name = controller.as_str();
    let one = own_path(own, |_, controllers| {
        controllers.split(',').any(|listed| listed == name)
    });
    if let Some(dir) = one.and_then(|path| dir(mounts, "cgroup", Some(name), path)) {
        return Ok(ParentGroup {
            dir,
            version: Version::One,
        });
    }
    let two = own_path(own, |number, controllers| number == "0" && controllers.is_empty());
    if let Some(dir) = two.and_then(|path| dir(mounts, "cgroup2", None, path)) {
        let available = fs::read_to_string(dir.join("cgroup.controllers")).unwrap_or_default();
        if available.split_whitespace().any(|listed| listed == name) {
            return Ok(ParentGroup {
                dir,
                version: Version::Two,
            });
        }
        return Err(format!(
            "{}: the controller `{name}` is not delegated to this group",
            dir.display()
        ));
    }
    Err(format!("no hierarchy of control groups with `{name}` is mounted"))
}

/// Enables controllers for groups of version 2 in `dir`. If only this process is in `dir`, it first moves to a group of its
/// own there.
///
/// # Errors
/// The kernel's error, or a message with another process in the group and the next step.
pub(crate) fn delegate(dir: &Path, controllers: &[Controller]) -> io::Result<()> {
    let control = dir.join("cgroup.subtree_control");
    let enabled = fs::read_to_string(&control)?;
    let missing = controllers.iter().filter(|controller| {
        !enabled
            .split_whitespace()
            .any(|listed| listed == controller.as_str())
    });
    let text: Vec<String> = missing
        .map(|controller| format!("+{}", controller.as_str()))
        .collect();
    if text.is_empty() {
        return Ok(());
    }
    let text = text.join(" ");
    let Err(error) = fs::write(&control, &text) else {
        return Ok(());
    };
    if error.kind() != io::ErrorKind::ResourceBusy {
        return Err(error);
    }
    let own = std::process::id().to_string();
    let processes = fs::read_to_string(dir.join("cgroup.procs"))?;
    if let Some(other) = processes.lines().find(|process| **process != own) {
        return Err(io::Error::other(format!(
            "process {other} is in the same group: expected millraced alone (with systemd, in a unit with Delegate=yes)"
        )));
    }
    let leaf = dir.join(OWN);
    match fs::create_dir(&leaf) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => fs::write(leaf.join("cgroup.procs"), &own)?,
    }
    fs::write(&control, &text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n\
        32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct\n\
        35 31 0:32 /docker/77 /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n\
        39 31 0:36 / /sys/fs/cgroup/pids rw,relatime - cgroup cgroup rw,pids\n";

    fn dir_of(parents: &ParentGroups, controller: Controller) -> Result<&str, &str> {
        parents
            .parent(controller)
            .map(|parent| parent.dir.to_str().unwrap())
    }

    #[test]
    fn each_controller_of_version_one_has_a_hierarchy_and_a_container_sees_a_part() {
        let own = "9:name=systemd:/\n8:pids:/\n4:memory:/docker/77/a\n2:cpu,cpuacct:/system.slice/millraced.service\n0::/";
        let parents = ParentGroups::parse(MOUNTS, own);
        assert_eq!(
            dir_of(&parents, Controller::Cpu),
            Ok("/sys/fs/cgroup/cpu/system.slice/millraced.service")
        );
        assert_eq!(
            dir_of(&parents, Controller::Memory),
            Ok("/sys/fs/cgroup/memory/a")
        );
        assert_eq!(dir_of(&parents, Controller::Pids), Ok("/sys/fs/cgroup/pids"));
        assert_eq!(parents.dirs().len(), 3);
        // A group outside of the mounted part cannot have children.
        let outside = ParentGroups::parse(MOUNTS, "4:memory:/docker/78\n");
        assert!(outside.parent(Controller::Memory).is_err());
        assert!(ParentGroups::parse("", "").parent(Controller::Cpu).is_err());
    }

    /// Returns parent groups in a directory of plain files, which are named like the files of a group of
    /// version 2.
    fn group(controllers: &str) -> (tempfile::TempDir, ParentGroups) {
        let dir = tempfile::tempdir().unwrap();
        let unit = dir.path().join("unit");
        fs::create_dir(&unit).unwrap();
        fs::write(unit.join("cgroup.controllers"), controllers).unwrap();
        fs::write(unit.join("cgroup.subtree_control"), "").unwrap();
        let mounts = format!("41 31 0:38 / {} rw - cgroup2 cgroup2 rw", dir.path().display());
        let parents = ParentGroups::parse(&mounts, "0::/unit\n");
        (dir, parents)
    }

    #[test]
    fn version_two_offers_delegated_controllers_and_enables_requested_ones() {
        let (dir, parents) = group("memory pids\n");
        let unit = dir.path().join("unit");
        let parent = parents.parent(Controller::Memory).unwrap();
        assert_eq!((&parent.dir, parent.version), (&unit, Version::Two));
        let error = parents.parent(Controller::Cpu).unwrap_err();
        assert!(
            error.ends_with("unit: the controller `cpu` is not delegated to this group"),
            "{error}"
        );
        assert_eq!(parents.dirs(), [unit.as_path()]);
        delegate(&unit, &[Controller::Memory, Controller::Pids]).unwrap();
        let control = unit.join("cgroup.subtree_control");
        assert_eq!(fs::read_to_string(&control).unwrap(), "+memory +pids");
        // Enabled controllers are not written again.
        fs::write(&control, "memory pids\n").unwrap();
        delegate(&unit, &[Controller::Memory]).unwrap();
        assert_eq!(fs::read_to_string(&control).unwrap(), "memory pids\n");
    }
}
