//! Writes and syncs that a real kernel refuses: to `/dev/null` everything can be written and nothing
//! synced (EINVAL), to `/dev/full` nothing can be written (ENOSPC). A link to one of them stands
//! where a file of a log will be.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use headrace_core::log::{
    Bounds, CompactionSettings, Completion, Disk, DiskOp, Error, LogId, Options,
};
use headrace_core::record::BatchBuilder;
use headrace_io::{Files, Store};

const DIRECT_BYTES: usize = 64 << 10;

/// A data folder, removed at the end.
struct Data(PathBuf);

impl Data {
    fn new(name: &str) -> Self {
        let folder = format!("headrace-{name}-{}", std::process::id());
        let path = std::env::temp_dir().canonicalize().unwrap().join(folder);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn open(&self) -> Store {
        let options = Options {
            journal_bytes: 1 << 20,
            segment_bytes: 1 << 20,
            index_interval_bytes: 4096,
            direct_write_bytes: DIRECT_BYTES as u64,
            reserve_bytes: 0,
            seed: 1,
            bounds: Bounds {
                finished_files: 4, // what a roll leaves is synced at once, and not what a creation does
                ..Bounds::NODE
            },
        };
        Store::open(&self.0, options).unwrap()
    }

    /// Has a file of the log be that device.
    fn link(&self, device: &str, file: &str) -> PathBuf {
        let folder = self.0.join("streams/gpu/0");
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join(file);
        symlink(device, &path).unwrap();
        path
    }
}

impl Drop for Data {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0); // of a test that may have failed
    }
}

fn log(store: &Store) -> LogId {
    let log = store.open_log("gpu", 0, 1, 0).unwrap();
    store.created("gpu").unwrap();
    log
}

fn append(store: &Store, log: LogId, bytes: usize) -> Result<i64, Error> {
    let mut builder = BatchBuilder::new();
    builder.push(0, Some(b"key"), Some(&vec![7; bytes]), []);
    let appended = store.append(log, builder.finish(), 1, 0)?;
    store.submit();
    Ok(appended.base_offset)
}

/// Waits until the store has something to tell.
fn told(store: &Store) -> Vec<Completion> {
    let mut wanted = libc::pollfd {
        fd: store.notify_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: the descriptor is open for the length of the call.
    assert_eq!(unsafe { libc::poll(&raw mut wanted, 1, 60_000) }, 1);
    store.poll()
}

/// How the next append ends.
fn ended(store: &Store) -> Result<(), String> {
    loop {
        if let Some(ended) = told(store).pop() {
            return ended.error.map_or(Ok(()), |why| Err(why.to_string()));
        }
    }
}

/// Nothing is taken any more, for that reason; the folder is free for the next store.
fn assert_writes_nothing(store: Store, log: LogId, why: &str) {
    assert_eq!(store.failed().as_deref(), Some(why));
    let refused = || Err(Error::Storage(why.to_owned()));
    assert_eq!(append(&store, log, 10), refused());
    assert_eq!(store.open_log("other", 0, 1, 0).map(|_| 0), refused());
    assert_eq!(store.trim(log, 0).map(|()| 0), refused());
    assert_eq!(store.close().map(|()| 0), refused());
    drop(store);
}

fn assert_names(why: &str, verb: &str, path: &Path, cause: &str) {
    let begin = format!("{verb} {} failed: {cause}", path.display());
    assert!(why.starts_with(&begin), "{why}");
    assert!(why.ends_with(", then restart"), "{why}");
}

#[test]
fn a_direct_write_whose_sync_fails_ends_in_an_error_and_was_never_stored() {
    let data = Data::new("direct");
    let segment = data.link("/dev/null", "00000000000000000000.log");
    let store = data.open();
    let log = log(&store);
    assert_eq!(append(&store, log, DIRECT_BYTES), Ok(0));
    let why = ended(&store).unwrap_err();
    assert_names(&why, "syncing", &segment, "Invalid argument");
    assert_eq!(store.bounds(log), Ok((0, 0)));
    assert_writes_nothing(store, log, &why);

    fs::remove_file(segment).unwrap();
    let store = data.open();
    assert_eq!(store.bounds(log), Ok((0, 0)));
    assert_eq!(append(&store, log, DIRECT_BYTES), Ok(0));
    assert_eq!(ended(&store), Ok(()));
}

#[test]
fn a_segment_whose_sync_fails_ends_all_writing_and_what_was_acknowledged_is_there() {
    let data = Data::new("segment");
    let segment = data.link("/dev/null", "00000000000000000000.log");
    let store = data.open();
    let log = log(&store);
    assert_eq!(append(&store, log, 10), Ok(0));
    assert_eq!(ended(&store), Ok(()), "the journal is synced");
    store.roll(log, 0).unwrap();
    while store.failed().is_none() {
        told(&store);
    }
    let why = store.failed().unwrap();
    assert_names(&why, "syncing", &segment, "Invalid argument");
    assert_writes_nothing(store, log, &why);

    fs::remove_file(segment).unwrap();
    let store = data.open();
    assert_eq!(store.bounds(log), Ok((0, 1)));
    assert_eq!(store.recovery().replayed_batches, 1);
}

#[test]
fn a_write_that_fails_leaves_its_append_in_doubt() {
    let data = Data::new("full");
    let segment = data.link("/dev/full", "00000000000000000000.log");
    let store = data.open();
    let log = log(&store);
    assert_eq!(append(&store, log, 10), Ok(0));
    let why = ended(&store).unwrap_err();
    assert_names(&why, "writing", &segment, "No space left");
    assert!(why.contains("free space there"), "{why}");
    assert_eq!(store.bounds(log), Ok((0, 0)));
    assert_writes_nothing(store, log, &why);

    fs::remove_file(segment).unwrap();
    let bounds = data.open().bounds(log);
    assert_eq!(bounds, Ok((0, 1)), "the journal had it");
}

#[test]
fn a_compaction_whose_sync_fails_ends_all_writing_and_takes_nothing() {
    let data = Data::new("compacted");
    let store = data.open();
    let log = log(&store);
    for at in 0..2 {
        assert_eq!(append(&store, log, 10), Ok(at));
        assert_eq!(ended(&store), Ok(()));
        store.roll(log, 0).unwrap();
    }
    let settings = CompactionSettings {
        wall_ms: 0,
        delete_retention_ms: 0,
        min_lag_ms: 0,
        span_ms: None,
    };
    let output = data.link("/dev/null", "00000000000000000000.1.log");
    assert_eq!(append(&store, log, 10), Ok(2));
    assert_eq!(ended(&store), Ok(())); // after the rolls
    let refused = store.compact(log, settings, u64::MAX).unwrap_err();
    let why = store.failed().unwrap();
    assert_eq!(format!("{refused}, then restart"), why);
    assert_names(&why, "syncing", &output, "Invalid argument");
    assert_writes_nothing(store, log, &why);

    let store = data.open();
    assert_eq!(store.bounds(log), Ok((0, 3)));
    assert!(!output.is_symlink(), "the start removes it");
    let report = store.compact(log, settings, u64::MAX).unwrap();
    assert_eq!((report.kept_records, report.removed_records), (1, 1));
}

/// Only what was begun may have lost something.
#[test]
fn a_sync_that_fails_is_told_from_one_that_could_not_begin() {
    let data = Data::new("lossy");
    let files = Files::new(data.0.clone());
    symlink("/dev/null", data.0.join("null")).unwrap();
    symlink("/proc/self", data.0.join("self")).unwrap();
    let file = |name: &str| DiskOp::Sync { path: name.into() };
    let folder = |name: &str| DiskOp::SyncFolder { path: name.into() };
    for (op, lossy) in [
        (file("null"), true),
        (folder("self"), true),
        (file("gone"), false),
        (folder("gone"), false),
    ] {
        let alone = files.perform(&op).unwrap_err();
        assert_eq!(alone.lossy, lossy, "{}", alone.text);
        // The same where many are synced at once.
        let names = (0..20).map(|at| format!("file-{at}"));
        let create = |name: String| DiskOp::Create { path: name.into() };
        let others: Vec<DiskOp> = names.clone().map(create).collect();
        assert_eq!(files.perform_all(&others), Ok(()));
        let syncs = names.map(|name| file(&name));
        let all: Vec<DiskOp> = std::iter::once(op).chain(syncs).collect();
        assert_eq!(files.perform_all(&all), Err(alone));
    }
}
