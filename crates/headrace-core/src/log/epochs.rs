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

    /// The file: its version, how many there are, and each.
    pub(super) fn file(&self) -> Vec<u8> {
        let lines = self.0.iter();
        let lines = lines.map(|(epoch, first)| format!("{epoch} {first}\n"));
        let text: String = lines.collect();
        format!("0\n{}\n{text}", self.0.len()).into_bytes()
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

#[cfg(test)]
mod tests {
    use super::*;

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
