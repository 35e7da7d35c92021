//! What must always hold of streams that are read, asserted.

use super::serve::Slice;
use crate::switchboard::Switchboard;

impl Switchboard {
    /// Asserts what must always hold of streams that are read.
    pub(in crate::switchboard) fn validate_feeds(&self) {
        let node = &self.feeds;
        let sessions = self.sessions.iter();
        let of_session = sessions.filter_map(|(slot, session)| {
            let feeds = session.feeds.as_ref()?;
            Some((slot as u32, session, feeds))
        });
        let (mut count, mut positions) = (0, 0);
        let mut readers = node.readers.iter();
        for (slot, session, feeds) in of_session {
            assert!(!feeds.is_empty());
            assert_eq!(readers.next(), Some(&slot));
            positions += feeds.positions();
            for (filter, feed) in feeds.iter() {
                count += 1;
                assert_eq!(feeds.filter_of(feed.number), Some(filter));
                assert!(session.subscriptions.contains_key(filter));
                let source = &node.sources[&feed.stream];
                assert!(source.readers.contains_key(&slot));
                for progress in &feed.partitions {
                    assert!(progress.position() <= progress.next());
                }
                let partitions = (0..).zip(&feed.partitions);
                let mut behind = partitions
                    .filter(|(partition, each)| each.next() < node.end(feed.stream, *partition));
                assert!(
                    behind.all(|(partition, _)| feeds.is_behind(feed.number, partition)),
                    "no record is forgotten"
                );
            }
            let wants = feeds.next();
            let rests = node.slices.contains_key(&slot)
                || feeds.is_in_turn
                || feeds.is_in_line
                || feeds.asked.is_some()
                || node.resting.contains(&slot)
                || session
                    .connection
                    .is_none_or(|slot| self.connections[slot as usize].touched)
                || !self.reader_has_room(slot);
            assert!(wants.is_none() || rests, "nobody who has room is forgotten");
        }
        assert_eq!(readers.next(), None);
        assert_eq!((count, positions), (node.count, node.positions));
        let held: usize = node.slices.values().map(Slice::bytes).sum();
        assert_eq!(held, node.held_bytes);
        let readers = node
            .sources
            .values()
            .flat_map(|source| source.readers.values());
        assert_eq!(readers.sum::<usize>(), count);
    }
}
