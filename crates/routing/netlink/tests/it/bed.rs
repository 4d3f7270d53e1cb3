//! Namespaces, commands, and a consumer of events with a slow, obvious copy of what the events say.

use std::collections::{BTreeMap, BTreeSet};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::time::{Duration, Instant};

use millrace_fib::{Family, Prefix};
use millrace_netlink::{Kernel, Namespace, Settings};
use millrace_rib::event::{Change, Dump, NextHopObjectKind, Object, Route};
use millrace_rib::{Action, Event, Netns};
use nix::sched::{CloneFlags, unshare};
use nix::unistd::gettid;

/// The longest time that the kernel or a daemon may take.
pub(crate) const BOUND: Duration = Duration::from_secs(60);
pub(crate) const NETNS: Netns = Netns(7);

/// Puts the calling thread, and the processes that it starts, into a namespace of its own, and returns it; `None` if that is
/// not permitted.
pub(crate) fn apart() -> Option<Namespace> {
    if let Err(errno) = unshare(CloneFlags::CLONE_NEWNET) {
        eprintln!("SKIPPED: a network namespace needs root ({errno})");
        return None;
    }
    ip("link set lo up");
    Some(Namespace::Path(
        format!("/proc/{}/task/{}/ns/net", std::process::id(), gettid()).into(),
    ))
}

pub(crate) fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program)
        .args(arguments)
        .stderr(Stdio::piped())
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

pub(crate) fn ip(arguments: &str) -> String {
    run("ip", &arguments.split(' ').collect::<Vec<_>>())
}

/// Executes lines of `ip` in one process.
pub(crate) fn batch(lines: &str) {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), lines).unwrap();
    run("ip", &["-batch", file.path().to_str().unwrap()]);
}

/// Waits until `is_so` returns true.
pub(crate) fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + BOUND;
    while !is_so() {
        assert!(Instant::now() < end, "not within {BOUND:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A host in a namespace of its own: a thread that waits there.
pub(crate) struct Neighbour {
    pub(crate) namespace: Namespace,
    commands: std::sync::mpsc::Sender<Box<dyn FnOnce() + Send>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Neighbour {
    /// Moves an interface of this thread's namespace to that of the host, and executes lines of `ip` there.
    pub(crate) fn start(interface: &str, lines: &str) -> Neighbour {
        let (commands, queue) = std::sync::mpsc::channel::<Box<dyn FnOnce() + Send>>();
        let (report, reported) = sync_channel(1);
        let thread = std::thread::spawn(move || {
            apart().unwrap();
            report.send(gettid()).unwrap();
            queue.into_iter().for_each(|command| command());
        });
        let task = reported.recv().unwrap();
        let path = format!("/proc/{}/task/{task}/ns/net", std::process::id());
        let host = Neighbour {
            namespace: Namespace::Path(path.into()),
            commands,
            thread: Some(thread),
        };
        host.take(interface);
        let lines = lines.to_owned();
        host.on(move || batch(&lines));
        host
    }

    /// Moves an interface of this thread's namespace to that of the host.
    pub(crate) fn take(&self, interface: &str) {
        let Namespace::Path(path) = &self.namespace else {
            panic!("a host has a namespace of its own");
        };
        ip(&format!("link set {interface} netns {}", path.display()));
    }

    /// Runs a function in the namespace of the host, and returns its value.
    pub(crate) fn on<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        let (report, reported) = sync_channel(1);
        self.commands
            .send(Box::new(move || {
                let _sent = report.send(work());
            }))
            .unwrap();
        reported.recv().unwrap()
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        let (none, _) = std::sync::mpsc::channel();
        self.commands = none;
        let _panicked = self.thread.take().map(std::thread::JoinHandle::join);
    }
}

/// The identity of a route: table, prefix, metric.
pub(crate) type Key = (u32, Prefix, u32);

/// A consumer: the events as they came, and what they say is there.
pub(crate) struct Consumer {
    pub(crate) sender: SyncSender<Vec<Event>>,
    events: Receiver<Vec<Event>>,
    /// All changes since the last call of [`Self::take`].
    pub(crate) changes: Vec<Change>,
    pub(crate) routes: BTreeMap<Key, Route>,
    pub(crate) nexthops: BTreeMap<u32, NextHopObjectKind>,
    counts: BTreeMap<(u32, Family, u8), usize>,
    listed: BTreeSet<Key>,
    pub(crate) ended: Vec<Dump>,
}

impl Consumer {
    pub(crate) fn new(batches: usize) -> Consumer {
        let (sender, events) = sync_channel(batches);
        Consumer {
            sender,
            events,
            changes: Vec::new(),
            routes: BTreeMap::new(),
            nexthops: BTreeMap::new(),
            counts: BTreeMap::new(),
            listed: BTreeSet::new(),
            ended: Vec::new(),
        }
    }

    /// Takes the events that wait.
    pub(crate) fn poll(&mut self) {
        loop {
            match self.events.try_recv() {
                Ok(batch) => batch.into_iter().for_each(|event| self.read(event)),
                Err(TryRecvError::Empty) => return,
                Err(TryRecvError::Disconnected) => panic!("this consumer has a sender"),
            }
        }
    }

    fn read(&mut self, event: Event) {
        assert_eq!(event.netns, NETNS);
        match &event.change {
            Change::There(Object::Route(route)) => {
                let key = (route.table, route.prefix, route.metric);
                self.listed.insert(key);
                self.remove(&key);
                *self.counts.entry(group(route)).or_default() += 1;
                self.routes.insert(key, route.clone());
            }
            Change::Gone(Object::Route(route)) => {
                let key = (route.table, route.prefix, route.metric);
                self.listed.remove(&key);
                self.remove(&key);
            }
            Change::There(Object::NextHop(nexthop)) => {
                self.nexthops.insert(nexthop.id, nexthop.kind.clone());
            }
            Change::Gone(Object::NextHop(nexthop)) => {
                self.nexthops.remove(&nexthop.id);
            }
            Change::DumpBegins(Dump::Routes(_)) => self.listed.clear(),
            Change::DumpEnds(dump) => {
                self.ended.push(*dump);
                if let Dump::Routes(family) = dump {
                    let unlisted = self
                        .routes
                        .keys()
                        .filter(|key| key.1.family() == *family && !self.listed.contains(*key));
                    let unlisted: Vec<Key> = unlisted.copied().collect();
                    unlisted.iter().for_each(|key| self.remove(key));
                }
            }
            _ => {}
        }
        self.changes.push(event.change);
    }

    /// Takes events until `is_so` returns true.
    pub(crate) fn until(&mut self, what: &str, mut is_so: impl FnMut(&Consumer) -> bool) {
        let end = Instant::now() + BOUND;
        self.poll();
        while !is_so(self) {
            let left = end.saturating_duration_since(Instant::now());
            match self.events.recv_timeout(left) {
                Ok(batch) => batch.into_iter().for_each(|event| self.read(event)),
                Err(_) => panic!(
                    "not within {BOUND:?}: {what}\n{:?}\n{:?}",
                    self.counts,
                    self.changes.iter().rev().take(20).collect::<Vec<_>>()
                ),
            }
            self.poll();
        }
    }

    /// Takes events until one of the changes since the last [`Self::take`] is this one.
    pub(crate) fn until_change(&mut self, what: &str, is_it: impl Fn(&Change) -> bool) {
        let mut seen = 0;
        self.until(what, |consumer| {
            let is_there = consumer.changes[seen..].iter().any(&is_it);
            seen = consumer.changes.len();
            is_there
        });
    }

    /// Returns the changes since the last call.
    pub(crate) fn take(&mut self) -> Vec<Change> {
        core::mem::take(&mut self.changes)
    }

    /// Returns the number of routes of a table and family with this origin.
    pub(crate) fn count(&self, table: u32, family: Family, protocol: u8) -> usize {
        self.counts
            .get(&(table, family, protocol))
            .copied()
            .unwrap_or_default()
    }

    /// Forgets all routes.
    pub(crate) fn clear(&mut self) {
        self.routes.clear();
        self.counts.clear();
    }

    fn remove(&mut self, key: &Key) {
        if let Some(route) = self.routes.remove(key) {
            *self.counts.get_mut(&group(&route)).unwrap() -= 1;
        }
    }
}

fn group(route: &Route) -> (u32, Family, u8) {
    (route.table, route.prefix.family(), route.protocol)
}

pub(crate) const ALL_DUMPS: [Dump; 6] = [
    Dump::Links,
    Dump::Addresses,
    Dump::NextHops,
    Dump::Routes(Family::V4),
    Dump::Routes(Family::V6),
    Dump::Neighbours,
];

pub(crate) fn open(namespace: &Namespace, consumer: &Consumer) -> Kernel {
    Kernel::open(NETNS, namespace, Settings::default(), consumer.sender.clone()).unwrap()
}

/// Asks for dumps, and takes events until all have ended. One that fails, because messages were lost meanwhile, is asked for again,
/// as the RIB does.
pub(crate) fn dump(kernel: &Kernel, consumer: &mut Consumer, dumps: &[Dump]) {
    let already = consumer.ended.len();
    let ask = |dump: Dump| kernel.execute(&Action::Dump { netns: NETNS, dump });
    dumps.iter().copied().for_each(ask);
    let mut seen = consumer.changes.len();
    consumer.until("the dumps end", |consumer| {
        for change in &consumer.changes[seen..] {
            if let Change::DumpFails(dump) = change {
                ask(*dump);
            }
        }
        seen = consumer.changes.len();
        consumer.ended.len() == already + dumps.len()
    });
}

pub(crate) fn prefix(text: &str) -> Prefix {
    text.parse().unwrap()
}
