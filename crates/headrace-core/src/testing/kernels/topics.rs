//! Topics of a fleet against the subscriptions of those who watch it.
//!
//! Seven subscriptions of ten name one topic of a device, two all of a device, one a metric of all
//! devices of a rack. Topics come in random order, so caches help as little as in a broker.

use std::hint::black_box;

use super::Kernel;
use crate::hash::Key;
use crate::testing::Random;
use crate::topic::{Filter, Tree};

const METRICS: [&str; 10] = [
    "power", "temp", "clock", "memory", "fan", "util", "pcie", "nvlink", "ecc", "state",
];

/// So many topics are matched in turn, at most.
const TOPICS_MAX: u32 = 100_000;

/// A tree of subscriptions, and topics that match some.
pub struct Fleet {
    /// By the number of the subscription.
    tree: Tree<u32, [u64; 2]>,
    /// In random order.
    topics: Vec<String>,
    filters: Vec<String>,
    writes_percent: u64,
    /// Of operations, and of writes.
    done: [u64; 2],
}

impl Fleet {
    /// So many subscriptions.
    pub fn new(subscriptions: u32, writes_percent: u64) -> Self {
        let mut tree = Tree::new(Key(1, 2));
        let filters: Vec<String> = (0..subscriptions).map(Self::filter).collect();
        for (number, filter) in (0..).zip(&filters) {
            tree.insert(parsed(filter), number, [0; 2]);
        }
        Self {
            tree,
            topics: Self::topics(subscriptions),
            filters,
            writes_percent,
            done: [0, 0],
        }
    }

    /// A topic of a device.
    pub fn topic(device: u32, metric: u32) -> String {
        let metric = METRICS[metric as usize % METRICS.len()];
        format!("fleet/rack-{}/node-{device}/{metric}", device / 40)
    }

    /// Of those that such subscriptions match, in random order.
    pub fn topics(subscriptions: u32) -> Vec<String> {
        let devices = u64::from(subscriptions.div_ceil(10));
        let topic = |at: u32| Self::topic((u64::from(at) * 7919 % devices) as u32, at);
        let mut topics: Vec<String> = (0..subscriptions.min(TOPICS_MAX)).map(topic).collect();
        let mut random = Random::new(1);
        for at in (1..topics.len()).rev() {
            topics.swap(at, random.below(at + 1));
        }
        topics
    }

    /// The filter of a subscription.
    pub fn filter(number: u32) -> String {
        let device = number / 10;
        match number % 10 {
            0..=6 => Self::topic(device, number),
            7 | 8 => format!("fleet/rack-{}/node-{device}/#", device / 40),
            _ => {
                let metric = METRICS[device as usize % METRICS.len()];
                format!("fleet/rack-{device}/+/{metric}")
            }
        }
    }

    /// A subscription goes, and the next time it comes again.
    fn write(&mut self) {
        let [_, writes] = &mut self.done;
        let number = (*writes / 2 * 7919 % self.filters.len() as u64) as u32;
        let filter = parsed(&self.filters[number as usize]);
        let before = if *writes % 2 == 0 {
            self.tree.remove(filter, &number).is_some()
        } else {
            self.tree.insert(filter, number, [0; 2]).is_none()
        };
        assert!(before, "subscriptions come and go in turn");
        *writes += 1;
    }
}

impl Kernel for Fleet {
    fn run(&mut self, operations: u64) -> u64 {
        let mut matched = 0_u64;
        for _ in 0..operations {
            let [done, writes] = &mut self.done;
            *done += 1;
            if *done * self.writes_percent / 100 > *writes {
                self.write();
            } else {
                let topic = &self.topics[(*done % self.topics.len() as u64) as usize];
                self.tree
                    .matches(black_box(topic), &mut |_, _| matched += 1);
            }
        }
        black_box(matched);
        operations
    }
}

fn parsed(filter: &str) -> Filter<'_> {
    Filter::parse(filter).expect("it is well formed")
}
