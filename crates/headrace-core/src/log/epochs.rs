//! The epochs of one log: from which offset on the records are of which leader's term (KIP-101).
//!
//! The journal tells of each before its first batch, and keeps them. The file
//! `leader-epoch-checkpoint`, which Kafka's tools read, is made from that, and made anew by each
//! start that finds it otherwise: it is not synced with what it tells of, so a power cut may tear
//! it (KAFKA-16541).

use super::codec::{Put, Take};
use super::error::Error;
use super::machine::Machine;
use super::partition::LogId;
use crate::record::BatchHeader;

/// Epochs kept, the newest: one more with each change of the leader. A follower that is further
/// behind has to begin anew.
pub(super) const EPOCHS_MAX: usize = 16;

/// Bytes of one in a checkpoint.
pub(super) const EPOCH_BYTES: u64 = 12;

/// `(epoch, offset of its first record)`, both ascending; never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Epochs(Vec<(i32, i64)>);

impl Default for Epochs {
    /// Until there are replicas, everything belongs to the first epoch.
    fn default() -> Self {
        Self(vec![(0, 0)])
    }
}

impl Machine {
    /// What is appended to `log` from now on belongs to `epoch`, which is none that came before.
    pub fn lead(&mut self, log: LogId, epoch: i32) -> Result<(), Error> {
        let log = self.log_mut(log)?;
        if epoch < log.leader_epoch {
            return Err(Error::Argument(format!(
                "epoch {epoch} comes after epoch {}",
                log.leader_epoch
            )));
        }
        log.leader_epoch = epoch;
        Ok(())
    }
}

impl Epochs {
    /// The newest.
    pub(super) fn current(&self) -> i32 {
        self.0.last().expect("there is one").0
    }

    /// The epoch of the record at `offset`, where that is known.
    pub(super) fn at(&self, offset: i64) -> Option<i32> {
        let after = self.0.partition_point(|(_, first)| *first <= offset);
        after.checked_sub(1).map(|at| self.0[at].0)
    }

    /// `epoch` begins at `offset`: one that began there or later has no record.
    pub(super) fn begin(&mut self, epoch: i32, offset: i64) {
        self.0.retain(|(_, first)| *first < offset);
        self.0.push((epoch, offset));
        let old = self.0.len().saturating_sub(EPOCHS_MAX);
        self.0.drain(..old);
    }

    /// The log ends at `end`: what was to begin later has not.
    pub(super) fn cut(&mut self, end: i64) {
        let kept = self.0.partition_point(|(_, first)| *first <= end);
        self.0.truncate(kept.max(1));
    }

    /// The newest has records below `end`, the end of the log, or is the one with which every log
    /// begins. Else its first batch may still have waited.
    pub(super) fn has_begun(&self, end: i64) -> bool {
        let newest = self.0.last();
        *self == Self::default() || newest.is_some_and(|(_, first)| *first < end)
    }

    /// The file: its version, how many there are, and each.
    pub(super) fn file(&self) -> Vec<u8> {
        let lines = self.0.iter();
        let lines = lines.map(|(epoch, first)| format!("{epoch} {first}\n"));
        let text: String = lines.collect();
        format!("0\n{}\n{text}", self.0.len()).into_bytes()
    }

    /// What a file tells; None where it is not whole. It carries no checksum.
    pub(super) fn of_file(file: &[u8]) -> Option<Self> {
        let mut lines = std::str::from_utf8(file).ok()?.lines();
        lines.nth(1)?; // the version, and how many there are
        let epoch = |line: &str| {
            let (epoch, first) = line.split_once(' ')?;
            Some((epoch.parse().ok()?, first.parse().ok()?))
        };
        let epochs: Vec<(i32, i64)> = lines.map(epoch).collect::<Option<_>>()?;
        let ascends = epochs
            .windows(2)
            .all(|pair| pair[0].0 < pair[1].0 && pair[0].1 < pair[1].1);
        let epochs = Self(epochs);
        let is_whole = ascends && !epochs.0.is_empty() && epochs.file() == file;
        is_whole.then_some(epochs)
    }

    pub(super) fn put(&self, out: &mut Vec<u8>) {
        out.put_u32(self.0.len() as u32);
        for (epoch, first) in &self.0 {
            out.put_u32(*epoch as u32);
            out.put_i64(*first);
        }
    }

    pub(super) fn take(take: &mut Take) -> Option<Self> {
        let epochs = (0..take.u32()?).map(|_| Some((take.u32()? as i32, take.i64()?)));
        Some(Self(epochs.collect::<Option<_>>()?))
    }
}

/// The epochs that the batches of a log tell, where no journal does. No CRC covers a stamp: one that
/// the next batch takes back was none.
#[derive(Debug, Default)]
pub(super) struct Heard {
    begun: Vec<(i32, i64)>,
    /// That of the last batch, where it began with it.
    latest: Option<(i32, i64)>,
    /// Offset after the last batch.
    end: i64,
}

impl Heard {
    /// Takes note of the next batch.
    pub(super) fn note(&mut self, header: &BatchHeader) {
        let epoch = header.leader_epoch;
        let latest = self.latest.take();
        self.begun
            .extend(latest.filter(|(latest, _)| *latest <= epoch));
        if self.begun.last().map(|(begun, _)| *begun) < Some(epoch) {
            self.latest = Some((epoch, header.base_offset));
        }
        self.end = header.next_offset();
    }

    /// With what `told` tells of the offsets before these batches, and behind them.
    pub(super) fn with(mut self, told: Option<&Epochs>) -> Epochs {
        self.begun.extend(self.latest.take());
        let (Some(first), Some(last)) = (self.begun.first(), self.begun.last()) else {
            return told.cloned().unwrap_or_default();
        };
        let told = told.map_or(&[][..], |told| &told.0);
        let before = |(epoch, from): &&(i32, i64)| *epoch <= first.0 && *from <= first.1;
        let behind = |(epoch, from): &&(i32, i64)| *epoch > last.0 && *from >= self.end;
        let all = told.iter().filter(before).chain(&self.begun);
        let mut all: Vec<_> = all.chain(told.iter().filter(behind)).copied().collect();
        all.dedup_by_key(|(epoch, _)| *epoch);
        let mut epochs = Epochs(Vec::new());
        for (epoch, from) in all {
            epochs.begin(epoch, from);
        }
        epochs
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{set_base_offset, set_leader_epoch, BatchBuilder};

    /// What batches of one record tell, from `first` on, of these epochs.
    fn heard(first: i64, epochs: &[i32]) -> Heard {
        let mut heard = Heard::default();
        for (offset, epoch) in (first..).zip(epochs) {
            let mut builder = BatchBuilder::new();
            builder.push(0, None, Some(b"v"), []);
            let mut batch = builder.finish();
            set_base_offset(&mut batch, offset);
            set_leader_epoch(&mut batch, *epoch);
            heard.note(&BatchHeader::parse(&batch).unwrap());
        }
        heard
    }

    #[test]
    fn a_stamp_that_the_next_batch_takes_back_is_no_epoch() {
        let told = |epochs: &[i32]| heard(10, epochs).with(None).0;
        assert_eq!(told(&[0, 0, 3, 3, 9]), [(0, 10), (3, 12), (9, 14)]);
        assert_eq!(told(&[2, 66, 2, 3]), [(2, 10), (3, 13)]);
        assert_eq!(told(&[66, 2, 2]), [(2, 11)]); // of the first nothing is held
        assert_eq!(told(&[2, 2, 0, 2]), [(2, 10)]);
    }

    #[test]
    fn what_is_told_of_records_that_are_gone_stays() {
        let told = Epochs(vec![(0, 0), (2, 5), (4, 12), (7, 13)]);
        let with = |heard: Heard| heard.with(Some(&told)).0;
        assert_eq!(with(Heard::default()), told.0);
        assert_eq!(with(heard(10, &[2, 2, 2])), [(0, 0), (2, 5), (7, 13)]);
        assert_eq!(
            with(heard(10, &[3, 3])),
            [(0, 0), (2, 5), (3, 10), (4, 12), (7, 13)]
        );
    }

    #[test]
    fn a_file_is_read_as_it_is_written_or_not_at_all() {
        let epochs = Epochs(vec![(0, 0), (3, 10)]);
        let file = epochs.file();
        assert_eq!(Epochs::of_file(&file), Some(epochs));
        for end in 0..file.len() {
            assert_eq!(Epochs::of_file(&file[..end]), None, "{end} bytes");
        }
        for other in [
            "1\n1\n0 0\n",
            "0\n0\n",
            "0\n2\n3 0\n1 5\n",
            "0\n1\n0 zero\n",
        ] {
            assert_eq!(Epochs::of_file(other.as_bytes()), None, "{other}");
        }
        assert_eq!(Epochs::of_file(&[0xff]), None);
    }

    #[test]
    fn an_epoch_is_that_of_the_offsets_from_its_first_on() {
        let mut epochs = Epochs::default();
        epochs.begin(3, 10);
        epochs.begin(4, 10);
        epochs.begin(9, 25);
        let at = |offset| epochs.at(offset).unwrap();
        assert_eq!([0, 9, 10, 24, 25, 99].map(at), [0, 0, 4, 4, 9, 9]);
        assert_eq!(epochs.file(), b"0\n3\n0 0\n4 10\n9 25\n");
        let mut out = Vec::new();
        epochs.put(&mut out);
        assert_eq!(Epochs::take(&mut Take(&out)), Some(epochs.clone()));
        epochs.cut(24);
        assert_eq!(epochs.current(), 4);
        epochs.cut(-1);
        assert_eq!(epochs, Epochs::default());
    }

    #[test]
    fn the_newest_are_kept() {
        let mut epochs = Epochs::default();
        for epoch in 1..100 {
            epochs.begin(epoch, i64::from(epoch));
        }
        assert_eq!(epochs.0.len(), EPOCHS_MAX);
        assert_eq!((epochs.at(1), epochs.at(99)), (None, Some(99)));
    }
}
