//! `QoS` 1 publishes to one client: a window of packet ids, and a queue beyond it.

use std::collections::VecDeque;

use super::{Delivery, OVERHEAD_BYTES};

/// Packet ids 1 to `limit`. Taking and giving back cost the same however many are in flight, and
/// an id rests as long as possible before it is used again.
#[derive(Debug)]
pub struct PacketIds {
    limit: u16,
    /// Ids up to this one have been used.
    used_to: u16,
    free: VecDeque<u16>,
    /// One bit an id: in flight.
    taken: Vec<u64>,
}

impl PacketIds {
    /// `limit` ids, none taken.
    pub fn new(limit: u16) -> Self {
        Self {
            limit,
            used_to: 0,
            free: VecDeque::new(),
            taken: Vec::new(),
        }
    }

    /// Ids in flight.
    pub fn len(&self) -> usize {
        usize::from(self.used_to) - self.free.len()
    }

    /// True where no id is in flight.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// An id that is not in flight.
    pub fn take(&mut self) -> Option<u16> {
        let id = if self.used_to < self.limit {
            self.used_to += 1;
            self.used_to
        } else {
            self.free.pop_front()?
        };
        let word = usize::from(id / 64);
        if word >= self.taken.len() {
            self.taken.resize(word + 1, 0);
        }
        self.taken[word] |= 1 << (id % 64);
        Some(id)
    }

    /// Frees an id; false where it was not in flight.
    pub fn give(&mut self, id: u16) -> bool {
        let Some(word) = self.taken.get_mut(usize::from(id / 64)) else {
            return false;
        };
        if *word & 1 << (id % 64) == 0 {
            return false;
        }
        *word &= !(1 << (id % 64));
        self.free.push_back(id);
        true
    }
}

/// What a client is sent at `QoS` 1.
///
/// The window holds packet ids alone: a session ends with its connection, so nothing is ever
/// sent again.
#[derive(Debug)]
pub struct Outbound {
    ids: PacketIds,
    queue: VecDeque<Queued>,
    queued_bytes: usize,
}

#[derive(Debug)]
struct Queued {
    delivery: Delivery,
    bytes: usize,
}

impl Outbound {
    /// At most `window` publishes in flight.
    pub fn new(window: u16) -> Self {
        Self {
            ids: PacketIds::new(window),
            queue: VecDeque::new(),
            queued_bytes: 0,
        }
    }

    /// Bytes that wait for the window, [`OVERHEAD_BYTES`] of each message included.
    pub fn queued_bytes(&self) -> usize {
        self.queued_bytes
    }

    /// Messages that wait for the window.
    pub fn queued(&self) -> usize {
        self.queue.len()
    }

    /// Packets in flight.
    pub fn in_flight(&self) -> usize {
        self.ids.len()
    }

    /// A packet id for a message to send at once; None where it must queue. Nothing is overtaken:
    /// while something waits, the window is full.
    pub fn take_id(&mut self) -> Option<u16> {
        self.ids.take()
    }

    /// Queues a message that will be a packet of `bytes`.
    pub fn enqueue(&mut self, delivery: Delivery, bytes: usize) {
        let bytes = bytes + OVERHEAD_BYTES;
        self.queued_bytes += bytes;
        self.queue.push_back(Queued { delivery, bytes });
    }

    /// The client acknowledged `id`; false where nothing was in flight under it.
    pub fn acknowledge(&mut self, id: u16) -> bool {
        self.ids.give(id)
    }

    /// The next queued message for which the window has room, with its packet id.
    pub fn next_queued(&mut self) -> Option<(u16, Delivery)> {
        if self.queue.is_empty() {
            return None;
        }
        let id = self.ids.take()?;
        let queued = self.queue.pop_front()?;
        self.queued_bytes -= queued.bytes;
        Some((id, queued.delivery))
    }

    /// Drops the messages at the front whose expiry has passed; how many.
    pub fn discard_expired(&mut self, mono_ms: u64) -> usize {
        let mut count = 0;
        while let Some(queued) = self.queue.front() {
            if !queued.delivery.message.is_expired(mono_ms) {
                break;
            }
            self.queued_bytes -= queued.bytes;
            self.queue.pop_front();
            count += 1;
        }
        count
    }

    /// Drops what waits.
    pub fn clear(&mut self) {
        *self = Self::new(self.ids.limit);
    }

    /// Asserts what must always hold.
    ///
    /// # Panics
    /// Where it does not.
    pub fn validate(&self) {
        let taken: u32 = self.ids.taken.iter().map(|word| word.count_ones()).sum();
        assert_eq!(
            taken as usize,
            self.ids.len(),
            "each id in flight is counted once"
        );
        assert!(
            self.queue.is_empty() || self.ids.len() == usize::from(self.ids.limit),
            "nothing waits while the window has room"
        );
        let bytes: usize = self.queue.iter().map(|queued| queued.bytes).sum();
        assert_eq!(bytes, self.queued_bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_rests_before_it_is_used_again() {
        let mut ids = PacketIds::new(3);
        assert_eq!((ids.take(), ids.take()), (Some(1), Some(2)));
        assert!(ids.give(1));
        assert_eq!(ids.take(), Some(3));
        assert_eq!(ids.take(), Some(1));
        assert_eq!(ids.take(), None);
        assert_eq!(ids.len(), 3);
    }

    #[test]
    fn only_an_id_in_flight_can_be_given_back() {
        let mut ids = PacketIds::new(u16::MAX);
        assert!(!ids.give(1));
        assert!(!ids.give(u16::MAX));
        assert_eq!(ids.take(), Some(1));
        assert!(ids.give(1));
        assert!(!ids.give(1));
        assert!(ids.is_empty());
    }

    #[test]
    fn every_id_of_the_largest_window_is_unique() {
        let mut ids = PacketIds::new(u16::MAX);
        let taken: std::collections::BTreeSet<_> = std::iter::from_fn(|| ids.take()).collect();
        assert_eq!(taken.len(), usize::from(u16::MAX));
        assert!(!taken.contains(&0));
    }
}
