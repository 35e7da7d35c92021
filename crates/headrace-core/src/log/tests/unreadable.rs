//! Pages that the medium does not give back, one at a time, in every file of a stopped store.

use std::collections::BTreeMap;

use super::{batch, commit, produced, read, stamped, SMALL};
use crate::log::inspect::{repair, verify, Consent};
use crate::log::partition::LogId;
use crate::log::{open, Error, Options};
use crate::testing::SimDisk;

const LOG: LogId = LogId(0);
/// Of which a page is read whole or not at all.
const PAGE: usize = 4096;

/// A store with several segments, and what it was sent. `clean`: it was closed in order.
fn store(clean: bool) -> (SimDisk, BTreeMap<i64, Vec<u8>>) {
    let disk = SimDisk::default();
    let (mut machine, _) = open(&disk, SMALL).unwrap();
    machine.open_log("gpu", 0, 1, 0).unwrap();
    let mut sent = BTreeMap::new();
    for at in 0..50 {
        let bytes = produced(batch(1, 1000, at as u8, 1000), 1, 0, at);
        let appended = machine.append(LOG, bytes.clone(), 0, 0, 0).unwrap();
        sent.insert(appended.base_offset, stamped(bytes, appended.base_offset));
        commit(&mut machine, &disk);
    }
    if clean {
        machine.close();
        commit(&mut machine, &disk);
        assert!(machine.is_closed());
    }
    (disk.killed(), sent)
}

/// Every page of every file.
fn pages(disk: &SimDisk) -> Vec<(String, usize)> {
    let paths = disk.paths().into_iter();
    let pages = paths.flat_map(|path| {
        let count = disk.bytes(&path).len().div_ceil(PAGE);
        (0..count).map(move |page| (path.clone(), page * PAGE))
    });
    // A journal is mostly empty.
    let pages = pages.filter(|(path, at)| !path.contains("journal") || *at < 8 * PAGE);
    pages.collect()
}

fn is_side_file(path: &str) -> bool {
    path.starts_with("streams/") && path.rsplit('.').next() != Some("log")
}

/// Reads all; offsets that are refused, by that file's name.
fn refused(disk: &SimDisk, sent: &BTreeMap<i64, Vec<u8>>, path: &str) -> Result<Vec<i64>, Error> {
    let (mut machine, _) = open(disk, SMALL)?;
    machine.open_log("gpu", 0, 1, 0)?;
    let mut refused = Vec::new();
    for (offset, bytes) in sent {
        match read(&mut machine, disk, LOG, *offset, 1) {
            Err(Error::Corrupt(damage)) if damage.path == path => refused.push(*offset),
            found => assert_eq!(found.as_ref(), Ok(bytes), "{path}, offset {offset}"),
        }
    }
    Ok(refused)
}

#[test]
fn side_files_are_made_anew_and_the_rest_is_refused_by_name() {
    for clean in [true, false] {
        let (disk, sent) = store(clean);
        for (path, at) in pages(&disk) {
            let copy = disk.clone();
            copy.spoil_page(&path, at);
            match refused(&copy, &sent, &path) {
                Ok(offsets) => {
                    let most = if is_side_file(&path) { 0 } else { 6 };
                    assert!(offsets.len() <= most, "{path} at {at}: {offsets:?}");
                }
                Err(Error::Corrupt(damage)) => {
                    assert!(!is_side_file(&path), "{path} at {at}: {damage}");
                    assert_eq!(damage.path, path);
                }
                Err(error) => panic!("{path} at {at}: {error}"),
            }
        }
    }
}

#[test]
fn what_cannot_be_read_is_found_and_repaired() {
    let incarnations = BTreeMap::from([("gpu".to_owned(), 1)]);
    let consent = Consent {
        drop_damaged: true,
        rebuild_journal: true,
    };
    for clean in [true, false] {
        let (disk, sent) = store(clean);
        for (path, at) in pages(&disk) {
            let copy = disk.clone();
            copy.spoil_page(&path, at);
            let context = format!("{path} at {at}");
            let findings = verify(&copy, SMALL, &incarnations, |_, _| true, |_| {}).unwrap();
            let found = findings.iter().any(|finding| finding.damage.path == path);
            let refusal = open(&copy.clone(), SMALL).err();
            assert!(found || refusal.is_none(), "{context}: {refusal:?}");
            // Each process draws its own.
            let options = Options { seed: 78, ..SMALL };
            repair(&copy, options, &incarnations, |_, _| true, consent, false)
                .unwrap_or_else(|error| panic!("{context}: {error}"));
            let opened = open(&copy, SMALL);
            let (mut machine, _) = opened.unwrap_or_else(|error| panic!("{context}: {error}"));
            machine.open_log("gpu", 0, 1, 0).unwrap();
            let is_lost = |offset: &i64| {
                let lost = findings.iter().filter_map(|finding| finding.lost);
                lost.into_iter()
                    .any(|(from, to)| (from..to).contains(offset))
            };
            let journal = path.starts_with("journal/");
            for (offset, bytes) in sent.iter().filter(|(offset, _)| !is_lost(offset)) {
                let found = read(&mut machine, &copy, LOG, *offset, 1);
                assert!(
                    journal || found.as_ref() == Ok(bytes),
                    "{context}: offset {offset}"
                );
            }
        }
    }
}
