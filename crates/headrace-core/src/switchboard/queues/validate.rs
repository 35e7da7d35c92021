//! What must always hold of queues.

use std::collections::BTreeMap;

use super::pull::is_pull;
use crate::switchboard::Switchboard;

impl Switchboard {
    /// Asserts what must always hold.
    pub(in crate::switchboard) fn validate_queues(&self) {
        let queues = &self.queues;
        let mut held: BTreeMap<u64, usize> = BTreeMap::new();
        let mut held_bytes = 0;
        for (slot, group) in &queues.groups {
            let queue = &queues.all[group.queue as usize];
            assert_eq!(queue.groups.get(&group.name), Some(&(slot as u32)));
            assert_eq!(queue.ends.len(), group.parts.len());
            for (partition, part) in (0..).zip(&group.parts) {
                part.ledger.validate();
                held_bytes += part.held_bytes();
                assert_eq!(part.is_hot, group.hot.contains(&partition));
                for holder in part.ledger.holders() {
                    *held.entry(holder).or_default() += 1;
                }
                for offset in part.deaths.keys() {
                    assert!(part.ledger.is_open(*offset), "what is dead is owed");
                }
                let is_dead = |offset| part.deaths.contains_key(offset);
                assert!(part.unburied.iter().all(is_dead));
            }
            if let Some(active) = group.active {
                assert!(group.members.contains(&active) && self.is_here(active));
            }
            for number in group.line.iter().filter(|number| !is_pull(**number)) {
                assert_eq!(queues.consumers[number].group, slot as u32);
            }
        }
        for (number, consumer) in &queues.consumers {
            let held = held.remove(number).unwrap_or(0);
            assert_eq!(held, consumer.held, "consumer {number}");
            // What the queue says may be less than it was.
            assert!(consumer.prefetch == 0 || held <= consumer.prefetch);
            let session = &self.sessions[consumer.session as usize];
            assert!(
                held == 0 || session.connection.is_some(),
                "who is away has nothing"
            );
        }
        held.retain(|holder, _| !is_pull(*holder)); // of those that are over
        for coming in &queues.returns {
            held.remove(&coming.holder);
        }
        assert!(held.is_empty(), "who is gone has nothing");
        queues.validate_pulls();
        assert_eq!(held_bytes, queues.held_bytes());
        for (_, session) in &self.sessions {
            let Some(consuming) = &session.consuming else {
                continue;
            };
            for filter in consuming.terms.keys() {
                assert!(session.subscriptions.contains_key(filter));
            }
        }
    }
}
