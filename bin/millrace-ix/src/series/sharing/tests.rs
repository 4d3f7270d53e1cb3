//! Engines that exchange series over a PostgreSQL database.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use millrace_ix_series::{Figure, Key, Level, Measure, Point, Subject, TimeZone};
use millrace_ix_store::{Postgres, PostgresSettings};
use millrace_testing::{postgres_database, postgres_sql};

use super::*;

/// A Monday, 2026-11-30T00:00:00Z.
const START: u64 = 1_795_996_800;
const HOUR: u64 = 3600;
const DAY: u64 = 86_400;
const KEY: Key = Key::new(Subject::Connection(7), Measure::In);

/// A database that an engine has led in epoch 1.
struct World {
    connection: String,
}

impl World {
    /// Returns `None` if PostgreSQL is not installed.
    fn new() -> Option<World> {
        let connection = postgres_database()?;
        let of_leader = settings(&connection, "ix-1");
        // A store waits for its server, which a task must not do.
        let leader = std::thread::spawn(move || drop(Postgres::open(of_leader).unwrap()));
        leader.join().unwrap();
        Some(World { connection })
    }

    fn engine(&self, name: &str) -> Engine {
        let memory = std::path::Path::new("/dev/shm");
        let folder = if memory.is_dir() {
            tempfile::tempdir_in(memory).unwrap()
        } else {
            tempfile::tempdir().unwrap()
        };
        let series = Shared::open(folder.path(), TimeZone::UTC).unwrap();
        let database = SharedSeries::new(settings(&self.connection, name)).unwrap();
        Engine {
            sharing: Sharing::new(database, series.clone()),
            series,
            _folder: folder,
        }
    }

    fn sql(&self, text: &str) -> String {
        postgres_sql(&self.connection, text)
    }
}

fn settings(connection: &str, name: &str) -> PostgresSettings {
    PostgresSettings {
        connection: connection.to_owned(),
        password: None,
        ca_certificate: None,
        name: name.to_owned(),
        address: String::new(),
    }
}

struct Engine {
    sharing: Sharing,
    series: Shared,
    _folder: tempfile::TempDir,
}

impl Engine {
    fn push(&self, at: u64, value: u64) {
        self.series.push(at, &[(KEY, value)]).unwrap();
    }

    fn points(&self, level: Level, from: u64, to: u64) -> Vec<Point> {
        self.series.read(KEY, level, from, to)
    }

    /// Exchanges intervals, then files.
    async fn share_all(&mut self) {
        self.sharing.intervals().await.unwrap();
        self.sharing.files().await.unwrap();
    }

    /// Returns the names of its files with their contents.
    fn files(&self) -> BTreeMap<String, Vec<u8>> {
        let names = self.series.shared_files().into_iter();
        names
            .map(|(name, _)| {
                let bytes = self.series.shared_file(&name).unwrap().unwrap();
                (name, bytes)
            })
            .collect()
    }
}

#[tokio::test]
async fn a_follower_has_the_open_hour_and_an_engine_of_an_earlier_epoch_adds_nothing() {
    let Some(world) = World::new() else { return };
    let (mut one, mut two) = (world.engine("ix-1"), world.engine("ix-2"));
    one.sharing.begin(Some(1));
    two.sharing.begin(None);
    for at in (0..100).step_by(10) {
        one.push(START + at, at);
    }
    one.sharing.intervals().await.unwrap();
    assert!(two.sharing.intervals().await.unwrap());
    let of = |engine: &Engine| engine.points(Level::Raw, START, START + 200);
    assert_eq!(of(&two), of(&one));
    assert!(!two.sharing.intervals().await.unwrap(), "nothing is taken twice");
    // The second engine leads; the first one has not heard of it, and measures.
    world.sql("UPDATE engine SET epoch = 2");
    two.sharing.begin(Some(2));
    one.push(START + 100, 1);
    one.push(START + 120, 1);
    two.push(START + 120, 2);
    one.sharing.intervals().await.unwrap();
    two.sharing.intervals().await.unwrap();
    assert_eq!(
        world.sql("SELECT count(*) FROM series_interval WHERE engine = 'ix-1'"),
        "10"
    );
    assert!(!of(&two)[10].is_known());
    // It follows, and has what the leader has.
    one.sharing.begin(None);
    one.sharing.intervals().await.unwrap();
    assert_eq!((of(&one)[10].value, of(&one)[12].value), (1, 2));
    // Intervals stay for two hours.
    two.push(START + 3 * HOUR, 3);
    two.sharing.intervals().await.unwrap();
    assert_eq!(world.sql("SELECT count(*) FROM series_interval"), "1");
}

#[tokio::test]
async fn an_engine_that_was_away_for_a_week_gets_all_files_and_the_bill_covers_both_leaders() {
    let Some(world) = World::new() else { return };
    let (mut one, mut two) = (world.engine("ix-1"), world.engine("ix-2"));
    one.sharing.begin(Some(1));
    for at in (0..8 * DAY + 2 * HOUR).step_by(1800) {
        one.push(START + at, 1000 + at / DAY);
    }
    one.share_all().await;
    two.sharing.begin(None);
    two.share_all().await;
    assert_eq!(two.files(), one.files());
    let end = START + 8 * DAY + 2 * HOUR;
    for level in [Level::Five, Level::Hour] {
        assert_eq!(
            two.points(level, START, end),
            one.points(level, START, end),
            "{level:?}"
        );
    }
    // The other one leads for a day. The hours of the day leave the database when their day is there.
    world.sql("UPDATE engine SET epoch = 2");
    two.sharing.begin(Some(2));
    for at in (0..DAY).step_by(1800) {
        two.push(end + at, 5000);
    }
    two.share_all().await;
    let names = world.sql("SELECT string_agg(name, ' ') FROM series_file WHERE name LIKE '%.piece'");
    assert_eq!(names.split(' ').count(), 1, "{names}");
    one.sharing.begin(None);
    one.share_all().await;
    assert_eq!(one.files(), two.files());
    let month = one.series.month_of(START + 3 * DAY);
    let figure = |engine: &Engine| -> Figure { engine.series.figure(7, month, end + DAY) };
    assert_eq!(figure(&one), figure(&two));
    assert_eq!(figure(&one).billed(), Some(5000));
    // A comparison without news writes nothing.
    let versions = || world.sql("SELECT string_agg(xmin::text, ' ' ORDER BY name) FROM series_file");
    let before = versions();
    one.sharing.files().await.unwrap();
    two.sharing.files().await.unwrap();
    assert_eq!(versions(), before);
}

#[tokio::test]
async fn two_copies_of_an_hour_become_one_wherever_they_meet() {
    let Some(world) = World::new() else { return };
    let (mut one, mut two) = (world.engine("ix-1"), world.engine("ix-2"));
    one.sharing.begin(Some(1));
    two.sharing.begin(Some(1));
    // Both know the first five minutes; the second ones the first engine only, and the third ones the second engine only.
    for at in (0..300).step_by(10) {
        one.push(START + at, 100);
        two.push(START + at, 200);
        one.push(START + at + 300, 101);
        two.push(START + at + 600, 202);
    }
    one.push(START + HOUR, 1);
    two.push(START + HOUR, 2);
    one.sharing.files().await.unwrap();
    two.sharing.files().await.unwrap();
    one.sharing.files().await.unwrap();
    assert_eq!(one.files(), two.files());
    let found = one.points(Level::Five, START, START + 900);
    let values: Vec<u64> = found.iter().map(|point| point.value).collect();
    assert_eq!(values, [100, 101, 202], "the first copy in the database counts");
}

#[tokio::test]
async fn a_damaged_file_in_the_database_is_replaced_by_a_right_one_and_a_newer_one_is_left_alone() {
    let Some(world) = World::new() else { return };
    let (mut one, mut two) = (world.engine("ix-1"), world.engine("ix-2"));
    one.sharing.begin(Some(1));
    one.push(START, 100);
    one.push(START + HOUR, 100);
    one.sharing.files().await.unwrap();
    let right = one.files();
    let (name, bytes) = right.first_key_value().unwrap();
    world.sql("UPDATE series_part SET bytes = overlay(bytes PLACING 'x' FROM 20)");
    two.sharing.begin(None);
    two.sharing.files().await.unwrap();
    assert!(two.files().is_empty());
    // The engine that has it gives it again.
    one.sharing.files().await.unwrap();
    two.sharing.files().await.unwrap();
    assert_eq!(two.files(), right);
    let newer = [b"NEWER", &bytes[..]].concat();
    let version = sha256_hex(bytes);
    let put = one.sharing.database.put_file(name, Some(&version), &newer);
    assert!(put.await.unwrap().is_some());
    two.sharing.files().await.unwrap();
    one.sharing.files().await.unwrap();
    assert_eq!(one.sharing.database.file(name).await.unwrap(), Some(newer));
    assert_eq!(two.files(), right);
}

#[tokio::test]
async fn a_file_of_several_parts_is_replaced_only_by_who_has_merged_its_version() {
    let Some(world) = World::new() else { return };
    let mut one = world.engine("ix-1").sharing.database;
    let content = |seed: usize| -> Vec<u8> { (0..(5 << 19)).map(|at| (at * seed) as u8).collect() };
    let first = one.put_file("a", None, &content(3)).await.unwrap().unwrap();
    assert_eq!(one.put_file("a", None, b"other").await.unwrap(), None);
    assert_eq!(one.put_file("a", Some("wrong"), b"other").await.unwrap(), None);
    assert_eq!(one.file("a").await.unwrap(), Some(content(3)));
    let second = one
        .put_file("a", Some(&first), &content(7))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(one.file("a").await.unwrap(), Some(content(7)));
    one.remove_file("a", &first).await.unwrap();
    assert_eq!(one.files().await.unwrap(), [("a".to_owned(), second.clone())]);
    // A part that is missing, and one that is too long.
    world.sql("UPDATE series_part SET bytes = bytes || 'x' WHERE part = 2");
    assert!(matches!(one.file("a").await, Err(StoreError::Damaged(_))));
    world.sql("DELETE FROM series_part WHERE part = 1");
    assert!(matches!(one.file("a").await, Err(StoreError::Damaged(_))));
    one.remove_file("a", &second).await.unwrap();
    assert_eq!(world.sql("SELECT count(*) FROM series_part"), "0");
    assert_eq!(one.file("a").await.unwrap(), None);
}

#[tokio::test]
async fn a_frozen_month_is_that_of_the_database() {
    let Some(world) = World::new() else { return };
    let (mut one, mut two) = (world.engine("ix-1"), world.engine("ix-2"));
    let month = one.series.month_of(START);
    let figure = |engine: &Engine| BTreeMap::from([(7, engine.series.figure(7, month, START + HOUR))]);
    one.push(START, 100);
    one.series.freeze(month, &figure(&one)).unwrap();
    two.push(START, 200);
    two.series.freeze(month, &figure(&two)).unwrap();
    assert_ne!(one.series.frozen(month), two.series.frozen(month));
    one.sharing.files().await.unwrap();
    two.sharing.files().await.unwrap();
    assert_eq!(two.series.frozen(month), one.series.frozen(month));
    one.sharing.files().await.unwrap();
    assert_eq!(one.series.frozen(month), Some(figure(&one)));
}

#[tokio::test]
async fn a_database_that_is_away_is_told_and_what_was_measured_meanwhile_is_given_after_it() {
    let Some(world) = World::new() else { return };
    let (mut one, mut two) = (world.engine("ix-1"), world.engine("ix-2"));
    one.sharing.begin(Some(1));
    one.push(START, 1);
    one.sharing.intervals().await.unwrap();
    // The server ends the session; the next call makes another one.
    world.sql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'millrace-ix ix-1'",
    );
    one.push(START + 10, 2);
    let mut tries = 0;
    while one.sharing.intervals().await.is_err() {
        tries += 1;
        assert!(tries < 3);
    }
    two.sharing.intervals().await.unwrap();
    let found = two.points(Level::Raw, START, START + 20);
    assert_eq!((found[0].value, found[1].value), (1, 2));
    // A write that the server refuses, as with a full disk, is tried again.
    world.sql("ALTER TABLE series_interval ADD CONSTRAINT refused CHECK (false) NOT VALID");
    one.push(START + 20, 3);
    one.push(START + 30, 4);
    assert!(one.sharing.intervals().await.is_err());
    world.sql("ALTER TABLE series_interval DROP CONSTRAINT refused");
    one.sharing.intervals().await.unwrap();
    two.sharing.intervals().await.unwrap();
    let found = one.points(Level::Raw, START, START + 40);
    assert_eq!(two.points(Level::Raw, START, START + 40), found);
    assert!(found.iter().all(|point| point.is_known()));
}
