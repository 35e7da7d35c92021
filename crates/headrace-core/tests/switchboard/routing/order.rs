//! The order in which members of a group work on a key: one at a time, oldest first. What was
//! published under another strategy is in none.

use std::collections::{BTreeMap, BTreeSet};

/// Work that is not finished and has a place in the order of its key, by its number.
#[derive(Default)]
pub struct Order {
    waiting: BTreeMap<String, BTreeSet<u64>>,
    keys: BTreeMap<u64, String>,
}

impl Order {
    /// Work of a key was published.
    pub fn add(&mut self, key: String, work: u64) {
        self.waiting.entry(key.clone()).or_default().insert(work);
        self.keys.insert(work, key);
    }

    /// Work is finished, or out of its order for good.
    pub fn remove(&mut self, work: &str) {
        let work = number(work);
        let key = self.keys.remove(&work);
        if let Some(waiting) = key.and_then(|key| self.waiting.get_mut(&key)) {
            waiting.remove(&work);
        }
    }

    /// Asserts that all that comes before some work is finished, or with the member that gets it.
    pub fn check(&self, work: &str, member_has: &[&str]) {
        let Some(key) = self.keys.get(&number(work)) else {
            return;
        };
        for before in self.waiting[key].range(..number(work)) {
            let is_there = member_has.contains(&before.to_string().as_str());
            assert!(is_there, "{work} before {before}");
        }
    }
}

fn number(work: &str) -> u64 {
    work.parse().expect("work is numbered")
}
