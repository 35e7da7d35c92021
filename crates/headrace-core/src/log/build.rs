//! Encoding a round: the journal's bytes, and the segment writes that follow from them.

use std::ops::Range;
use std::sync::Arc;

use super::disk::{DiskOp, Path, Slice};
use super::journal::{RoundWriter, PAGE};
use super::layout;
use super::partition::LogId;
use super::round::{Draft, Frontier, Group, Journalled, Piece, Place, Round};

/// What building collects beside the journal's buffer.
#[derive(Default)]
struct Build {
    before: Vec<DiskOp>,
    after: Vec<DiskOp>,
    /// Segment writes out of the journal's buffer: place in `after`, path, position, range.
    shared: Vec<(Path, u64, Range<usize>)>,
    rolls: Vec<DiskOp>,
    frontiers: Vec<Frontier>,
    registered: Vec<LogId>,
    trimmed: Vec<(LogId, i64)>,
    replaces: bool,
    direct_writes: u64,
}

impl Draft {
    /// Encodes the round.
    pub fn build(self) -> Round {
        let mut build = Build {
            before: self.first,
            ..Build::default()
        };
        let journal = if self.pieces.is_empty() {
            let path = self.place.path;
            build
                .before
                .extend(self.sync.then_some(DiskOp::Sync { path }));
            None
        } else {
            Some(journal(&mut build, self.pieces, self.place, self.sync))
        };
        Round {
            before: build.before,
            attempts: self.attempts,
            after: build.after,
            items: self.items,
            frontiers: build.frontiers,
            registered: build.registered,
            trimmed: build.trimmed,
            replaces: build.replaces,
            direct_writes: build.direct_writes,
            synced: self.sync,
            deleted: self.deleted,
            closes: self.closes,
            journal,
        }
    }
}

/// Encodes the journal's part and the segment writes that follow from it.
fn journal(build: &mut Build, pieces: Vec<Piece>, place: Place, sync: bool) -> Journalled {
    let mut buffer = Vec::with_capacity(PAGE);
    let mut chain = place.chain;
    let mut seed = place.seed;
    let mut synced = place.synced;
    if let Some(rotation) = &place.rotation {
        if synced < chain.round {
            // The new file goes on from all of them.
            let path = place.path.clone();
            build.before.push(DiskOp::Sync { path });
            synced = chain.round;
        }
        rotation.header.encode(&mut buffer);
        seed = rotation.header.seed();
        let mut round = RoundWriter::begin(&mut buffer, chain, seed, synced);
        round.checkpoint(&rotation.checkpoint);
        chain = chain.after(round.finish());
    }
    let mut round = RoundWriter::begin(&mut buffer, chain, seed, synced);
    for piece in pieces {
        write_piece(build, &mut round, piece);
    }
    chain = chain.after(round.finish());

    let bytes = buffer.len() as u64;
    let buffer = Arc::new(buffer);
    build.after.append(&mut build.rolls);
    for (path, position, range) in build.shared.drain(..) {
        let data = Slice::new(buffer.clone(), range.start, range.end);
        build.after.push(DiskOp::Write {
            path,
            position,
            data,
        });
    }
    let data = Slice::new(buffer, 0, bytes as usize);
    let position = place.position;
    let Some(rotation) = place.rotation else {
        build.before.push(DiskOp::Write {
            path: place.path.clone(),
            position,
            data,
        });
        let path = place.path;
        build.before.extend(sync.then_some(DiskOp::Sync { path }));
        return Journalled {
            chain,
            position: position + bytes,
            bytes,
            rotated: None,
        };
    };
    // The file gets its name only when it is whole: a name in the journal is a promise.
    let spare = Path::from(layout::SPARE);
    build.before.push(DiskOp::Write {
        path: spare.clone(),
        position: 0,
        data,
    });
    build.before.push(DiskOp::Sync {
        path: spare.clone(),
    });
    build.before.push(DiskOp::Rename {
        from: spare,
        to: rotation.path.clone(),
    });
    build.before.push(DiskOp::SyncFolder {
        path: layout::JOURNAL.into(),
    });
    Journalled {
        chain,
        position: bytes,
        bytes,
        rotated: Some((rotation.header, rotation.path)),
    }
}

fn write_piece(build: &mut Build, round: &mut RoundWriter, piece: Piece) {
    match piece {
        Piece::Register {
            log,
            partition,
            incarnation,
            created_ms,
            stream,
        } => {
            round.register(log.0, partition, incarnation, created_ms, &stream);
            build.registered.push(log);
        }
        Piece::Trim { log, start_offset } => {
            round.trim(log.0, start_offset);
            build.trimmed.push((log, start_offset));
        }
        Piece::Replace { log, swap } => {
            round.replace(log.0, &swap);
            build.replaces = true;
        }
        Piece::Delete { stream } => round.delete(&stream),
        Piece::Checkpoint(body) => round.checkpoint(&body),
        Piece::Group(group) => write_group(build, round, &group),
    }
}

fn write_group(build: &mut Build, round: &mut RoundWriter, group: &Group) {
    if let Some(roll) = &group.roll {
        round.roll(group.log.0, roll.segment, roll.created_ms);
    }
    for (epoch, offset) in &group.epochs {
        round.epoch(group.log.0, *epoch, *offset);
    }
    build.rolls.extend(group.epochs_file.iter().cloned());
    let head = group.journalled();
    if head > 0 {
        // The first write to a page since the journal's file began carries all of the page: a
        // power cut that spoils it takes durable bytes along, and these bring them back.
        let page: &[u8] = if group.page_logged { &[] } else { &group.page };
        let parts = std::iter::once(page).chain(prefix(&group.parts, head));
        let written = round.write(
            group.log.0,
            group.segment,
            group.position - page.len() as u64,
            parts,
        );
        let run = written.start + page.len()..written.end;
        build.shared.push((group.path.clone(), group.position, run));
    }
    if group.direct && head < group.bytes {
        write_direct(build, round, group, head);
    } else {
        build.rolls.extend(group.roll_ops());
    }
    let end = group.position + group.bytes;
    build.frontiers.push(Frontier {
        log: group.log,
        segment: group.segment,
        bytes: end,
        next_offset: group.next_offset,
        tail: tail(group, end),
        page_logged: !group.direct || end % PAGE as u64 == 0,
    });
}

/// The part from the first page boundary on: written and synced before the round that notes it.
fn write_direct(build: &mut Build, round: &mut RoundWriter, group: &Group, head: u64) {
    build.direct_writes += 1;
    let data = suffix(&group.parts, head);
    let position = group.position + head;
    round.direct(
        group.log.0,
        group.segment,
        position,
        data.len(),
        crc32c::crc32c(&data),
    );
    let folders = group
        .folders
        .iter()
        .cloned()
        .map(|path| DiskOp::SyncFolder { path });
    build.before.extend(group.roll_ops());
    build.before.push(DiskOp::Write {
        path: group.path.clone(),
        position,
        data,
    });
    build.before.push(DiskOp::Sync {
        path: group.path.clone(),
    });
    build.before.extend(folders);
}

/// The first `bytes` of all parts.
fn prefix(parts: &[Arc<Vec<u8>>], bytes: u64) -> impl Iterator<Item = &[u8]> {
    let mut left = bytes as usize;
    parts.iter().map_while(move |part| {
        let taken = &part[..left.min(part.len())];
        left -= taken.len();
        (!taken.is_empty()).then_some(taken)
    })
}

/// All parts without their first `bytes`; copied only where there are several.
fn suffix(parts: &[Arc<Vec<u8>>], bytes: u64) -> Slice {
    let mut skip = bytes as usize;
    if let [part] = parts {
        return Slice::new(part.clone(), skip, part.len());
    }
    let mut data = Vec::with_capacity(parts.iter().map(|part| part.len()).sum());
    for part in parts {
        let skipped = skip.min(part.len());
        data.extend_from_slice(&part[skipped..]);
        skip -= skipped;
    }
    data.into()
}

/// The bytes of the last, partial page that ends at `end`.
fn tail(group: &Group, end: u64) -> Vec<u8> {
    let wanted = (end % PAGE as u64) as usize;
    let mut tail = Vec::with_capacity(PAGE);
    let mut parts = group.parts.len();
    let mut found = 0;
    while parts > 0 && found < wanted {
        parts -= 1;
        found += group.parts[parts].len();
    }
    if found < wanted {
        tail.extend_from_slice(&group.page);
    }
    for part in &group.parts[parts..] {
        tail.extend_from_slice(&part[part.len().saturating_sub(wanted)..]);
    }
    tail.drain(..tail.len() - wanted);
    tail
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(page: &[u8], parts: &[&[u8]]) -> Group {
        Group {
            log: LogId(1),
            segment: 0,
            path: "s".into(),
            folders: Vec::new(),
            position: page.len() as u64,
            parts: parts.iter().map(|part| Arc::new(part.to_vec())).collect(),
            bytes: parts.iter().map(|part| part.len() as u64).sum(),
            next_offset: 9,
            epochs: Vec::new(),
            epochs_file: Vec::new(),
            roll: None,
            page: page.to_vec(),
            page_logged: false,
            direct: false,
        }
    }

    #[test]
    fn the_tail_is_the_end_of_all_bytes_so_far() {
        for (page, lengths) in [
            (0, vec![10]),
            (10, vec![10, 20]),
            (4000, vec![50, 50]),
            (100, vec![4096]),
            (1, vec![5000, 3]),
            (4095, vec![1]),
            (7, vec![1, 1, 8190, 1]),
        ] {
            let all: Vec<u8> = (0..page + lengths.iter().sum::<usize>())
                .map(|at| at as u8)
                .collect();
            let mut parts = Vec::new();
            let mut at = page;
            for length in &lengths {
                parts.push(&all[at..at + length]);
                at += length;
            }
            let group = group(&all[..page], &parts);
            let wanted = &all[all.len() / PAGE * PAGE..];
            assert_eq!(tail(&group, all.len() as u64), wanted, "{page} {lengths:?}");
        }
    }

    #[test]
    fn a_prefix_and_a_suffix_make_the_whole() {
        let group = group(&[], &[b"abc", b"d", b"efgh"]);
        for cut in 0..=8 {
            let mut all: Vec<u8> = prefix(&group.parts, cut).flatten().copied().collect();
            assert_eq!(all.len() as u64, cut);
            all.extend_from_slice(&suffix(&group.parts, cut));
            assert_eq!(all, b"abcdefgh");
        }
    }
}
