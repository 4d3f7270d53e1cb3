//! Where control groups can be made: found in what the kernel tells of this process, at run time.
//!
//! Two interfaces are in use, side by side on some machines: version 1 has a hierarchy of directories for each controller,
//! version 2 one for all, in which a group may have groups within it or processes, but not both (cgroups(7)). A group is
//! always made below the one that this process is in: what it was given to divide is what it divides.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// What bounds one resource.
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

/// Which interface files there are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Version {
    One,
    Two,
}

/// A directory below which groups of a controller can be made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    pub(crate) dir: PathBuf,
    pub(crate) version: Version,
}

/// The group that this process is in, for each controller; or why there is none.
#[derive(Clone, Debug)]
pub(crate) struct Places([Result<Place, String>; 3]);

/// Where this process goes if the group that it is in is to have groups within it.
const OWN: &str = "millraced";

impl Places {
    /// From `/proc/self/mountinfo` (proc(5)) and `/proc/self/cgroup` (cgroups(7)).
    pub(crate) fn parse(mounts: &str, own: &str) -> Places {
        Places(Controller::ALL.map(|controller| place(controller, mounts, own)))
    }

    /// Where groups of a controller are made.
    pub(crate) fn place(&self, controller: Controller) -> Result<&Place, &str> {
        let [cpu, memory, pids] = &self.0;
        let place = match controller {
            Controller::Cpu => cpu,
            Controller::Memory => memory,
            Controller::Pids => pids,
        };
        place.as_ref().map_err(String::as_str)
    }

    /// All directories, each once.
    pub(crate) fn dirs(&self) -> Vec<&Path> {
        let mut dirs: Vec<&Path> = self.0.iter().flatten().map(|place| place.dir.as_path()).collect();
        dirs.sort();
        dirs.dedup();
        dirs
    }
}

/// The path in one hierarchy, of the lines `NUMBER:CONTROLLERS:PATH`.
fn own_path(own: &str, is_it: impl Fn(&str, &str) -> bool) -> Option<&str> {
    own.lines().find_map(|line| {
        let (number, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        is_it(number, controllers).then_some(path)
    })
}

/// The directory of this process's group in a hierarchy of this type, with this option if any.
fn dir(mounts: &str, fstype: &str, option: Option<&str>, path: &str) -> Option<PathBuf> {
    mounts.lines().find_map(|line| {
        let (left, right) = line.split_once(" - ")?;
        let left: Vec<&str> = left.split(' ').collect();
        let right: Vec<&str> = right.split(' ').collect();
        let (root, at) = (left.get(3)?, left.get(4)?);
        let has = |option| {
            right
                .get(2)
                .is_some_and(|options| options.split(',').any(|had| had == option))
        };
        if right.first() != Some(&fstype) || !option.is_none_or(has) {
            return None;
        }
        // What is mounted may be a part of the hierarchy, as in a container.
        let below = Path::new(path).strip_prefix(root).ok()?;
        // Not `join`, which would end an empty path with a slash.
        Some(
            [Path::new(at), below]
                .iter()
                .filter(|part| !part.as_os_str().is_empty())
                .collect(),
        )
    })
}

fn place(controller: Controller, mounts: &str, own: &str) -> Result<Place, String> {
    let name = controller.as_str();
    let one = own_path(own, |_, controllers| {
        controllers.split(',').any(|had| had == name)
    });
    if let Some(dir) = one.and_then(|path| dir(mounts, "cgroup", Some(name), path)) {
        return Ok(Place {
            dir,
            version: Version::One,
        });
    }
    let two = own_path(own, |number, controllers| number == "0" && controllers.is_empty());
    if let Some(dir) = two.and_then(|path| dir(mounts, "cgroup2", None, path)) {
        let there = fs::read_to_string(dir.join("cgroup.controllers")).unwrap_or_default();
        if there.split_whitespace().any(|had| had == name) {
            return Ok(Place {
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

/// Has groups of version 2 that are made in `dir` bound what these controllers do. If this process alone is in `dir`, it
/// moves into a group of its own there first.
///
/// # Errors
/// What the kernel says, and what to do where others are in the group.
pub(crate) fn delegate(dir: &Path, controllers: &[Controller]) -> io::Result<()> {
    let control = dir.join("cgroup.subtree_control");
    let on = fs::read_to_string(&control)?;
    let missing = controllers
        .iter()
        .filter(|controller| !on.split_whitespace().any(|had| had == controller.as_str()));
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

    fn dir_of(places: &Places, controller: Controller) -> Result<&str, &str> {
        places.place(controller).map(|place| place.dir.to_str().unwrap())
    }

    #[test]
    fn each_controller_of_version_one_has_a_hierarchy_and_a_container_sees_its_part() {
        let own = "9:name=systemd:/\n8:pids:/\n4:memory:/docker/77/a\n2:cpu,cpuacct:/system.slice/millraced.service\n0::/";
        let places = Places::parse(MOUNTS, own);
        assert_eq!(
            dir_of(&places, Controller::Cpu),
            Ok("/sys/fs/cgroup/cpu/system.slice/millraced.service")
        );
        assert_eq!(dir_of(&places, Controller::Memory), Ok("/sys/fs/cgroup/memory/a"));
        assert_eq!(dir_of(&places, Controller::Pids), Ok("/sys/fs/cgroup/pids"));
        assert_eq!(places.dirs().len(), 3);
        // A group that is not below what is mounted cannot be divided.
        let outside = Places::parse(MOUNTS, "4:memory:/docker/78\n");
        assert!(outside.place(Controller::Memory).is_err());
        assert!(Places::parse("", "").place(Controller::Cpu).is_err());
    }

    /// Files as those of a group of version 2, in which a write stays what was written.
    fn group(controllers: &str) -> (tempfile::TempDir, Places) {
        let dir = tempfile::tempdir().unwrap();
        let unit = dir.path().join("unit");
        fs::create_dir(&unit).unwrap();
        fs::write(unit.join("cgroup.controllers"), controllers).unwrap();
        fs::write(unit.join("cgroup.subtree_control"), "").unwrap();
        let mounts = format!("41 31 0:38 / {} rw - cgroup2 cgroup2 rw", dir.path().display());
        let places = Places::parse(&mounts, "0::/unit\n");
        (dir, places)
    }

    #[test]
    fn version_two_has_what_is_delegated_and_passes_on_what_is_asked_for() {
        let (dir, places) = group("memory pids\n");
        let unit = dir.path().join("unit");
        let place = places.place(Controller::Memory).unwrap();
        assert_eq!((&place.dir, place.version), (&unit, Version::Two));
        let error = places.place(Controller::Cpu).unwrap_err();
        assert!(
            error.ends_with("unit: the controller `cpu` is not delegated to this group"),
            "{error}"
        );
        assert_eq!(places.dirs(), [unit.as_path()]);
        delegate(&unit, &[Controller::Memory, Controller::Pids]).unwrap();
        let control = unit.join("cgroup.subtree_control");
        assert_eq!(fs::read_to_string(&control).unwrap(), "+memory +pids");
        // What is on is not asked for again.
        fs::write(&control, "memory pids\n").unwrap();
        delegate(&unit, &[Controller::Memory]).unwrap();
        assert_eq!(fs::read_to_string(&control).unwrap(), "memory pids\n");
    }
}
