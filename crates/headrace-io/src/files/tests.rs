//! Effects on real files.

use std::sync::mpsc;
use std::time::Duration;

use super::*;

#[test]
fn many_syncs_are_one_and_a_missing_file_is_named() {
    let root = std::env::temp_dir().join(format!("headrace-files-{}", std::process::id()));
    fs::create_dir_all(&root).unwrap();
    let files = Files::new(root.clone());
    let paths = (0..SYNCS_MIN).map(|at| Path::from(format!("file-{at}")));
    let mut ops = Vec::new();
    for path in paths.clone() {
        ops.push(DiskOp::Create { path: path.clone() });
        let data = vec![7; 10].into();
        let position = 0;
        ops.push(DiskOp::Write {
            path,
            position,
            data,
        });
    }
    ops.extend(paths.map(|path| DiskOp::Sync { path }));
    ops.push(DiskOp::SyncFolder { path: "".into() });
    assert_eq!(files.perform_all(&ops), Ok(()));

    let path = Path::from("gone");
    ops.insert(ops.len() - 1, DiskOp::Sync { path });
    let error = files.perform_all(&ops).unwrap_err().text;
    assert!(error.starts_with("syncing ") && error.contains("/gone failed: No such"));
    fs::remove_dir_all(root).unwrap();
}

#[test]
fn what_is_settled_is_not_open_any_more_and_what_is_not_there_no_fault() {
    let root = std::env::temp_dir().join(format!("headrace-settled-{}", std::process::id()));
    fs::create_dir_all(&root).unwrap();
    let files = Files::new(root.clone());
    let mut paths = vec![Path::from("missing")];
    for at in 0..2 * SYNCS_MIN {
        paths.push(Path::from(format!("file-{at}")));
        fs::write(root.join(&*paths[at + 1]), "seven").unwrap();
    }
    let few = paths[..3].to_vec();
    for paths in [few, paths] {
        assert_eq!(files.perform(&DiskOp::Settle { paths }), Ok(()));
        assert_eq!(files.open_count(), 0);
    }
    assert_eq!(files.read("file-0", 0, 10), Ok(b"seven".to_vec()));
    fs::remove_dir_all(root).unwrap();
}

#[test]
fn what_cannot_be_removed_is_told_and_tried_again() {
    let root = std::env::temp_dir().join(format!("headrace-left-{}", std::process::id()));
    fs::create_dir_all(root.join("gone")).unwrap(); // no file, so no file of that name goes
    let files = Files::new(root.clone());
    let path = Path::from("gone");
    let let_go = DiskOp::LetGo { path: path.clone() };
    assert_eq!(files.perform(&let_go), Ok(()));
    assert!(files.leftovers.has_news() && !files.leftovers.has_news());
    let report = files.leftovers.report().unwrap();
    assert!(report.contains("tried again: 1; the first: removing "));
    assert!(report.contains("/gone failed: "));

    files.retry_leftovers();
    assert!(root.join("gone").exists() && files.leftovers.count() == 1);
    fs::remove_dir(root.join("gone")).unwrap();
    fs::write(root.join("gone"), "file").unwrap();
    files.retry_leftovers();
    assert!(!root.join("gone").exists() && files.leftovers.has_news());
    assert_eq!(files.leftovers.report(), None);

    fs::create_dir(root.join("gone")).unwrap();
    assert_eq!(files.perform(&let_go), Ok(()));
    fs::remove_dir(root.join("gone")).unwrap();
    assert_eq!(files.perform(&DiskOp::Create { path }), Ok(()));
    files.retry_leftovers();
    assert!(root.join("gone").exists(), "it is a new file's name");
    fs::remove_dir_all(root).unwrap();
}

#[test]
fn a_sync_is_told_before_the_next_of_its_file_begins() {
    let root = std::env::temp_dir().join(format!("headrace-turns-{}", std::process::id()));
    fs::create_dir_all(&root).unwrap();
    let files = Files::new(root.clone());
    let [first, other] = ["first", "other"].map(Path::from);
    for path in [&first, &other] {
        assert_eq!(
            files.perform(&DiskOp::Create { path: path.clone() }),
            Ok(())
        );
    }
    let [again, other] = [&first, &other].map(|path| DiskOp::Sync { path: path.clone() });
    let (told, hears) = mpsc::channel();
    std::thread::scope(|scope| {
        let hear = |ended: Result<(), DiskError>| {
            let told = told.clone();
            let (files, again) = (&files, &again);
            scope.spawn(move || {
                files.perform_heard(std::slice::from_ref(again), &|ended| {
                    told.send(()).unwrap();
                    ended
                })
            });
            let early = hears.recv_timeout(Duration::from_millis(100));
            assert!(early.is_err(), "the first is not told yet");
            assert_eq!(files.perform(&other), Ok(()), "nobody else waits");
            ended
        };
        assert_eq!(
            files.perform_heard(std::slice::from_ref(&again), &hear),
            Ok(())
        );
    });
    assert_eq!(hears.recv(), Ok(()));
    fs::remove_dir_all(root).unwrap();
}
