//! Messages that were delivered and are neither settled nor due back.
//!
//! Two orders over one slab: by deadline, and by who holds them. Deadlines of deliveries come in
//! order, so one is put at the end and taken from anywhere at the same cost, whatever is in flight;
//! those that were given another one stand in an order of their own. What somebody holds can be
//! passed on as a whole, at the cost of one.

use std::collections::BTreeSet;

use slab::Slab;

use crate::hash::{Key, Map};

const NONE: usize = usize::MAX;

/// A delivery that is not over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flight {
    /// Of the message.
    pub offset: i64,
    /// Who has it.
    pub holder: u64,
    /// Until when, milliseconds on the clock that never steps back.
    pub deadline_ms: u64,
}

#[derive(Clone, Copy, Debug)]
struct Links {
    before: usize,
    behind: usize,
}

#[derive(Debug)]
struct Node {
    offset: i64,
    deadline_ms: u64,
    /// In `Flights::hands`.
    hand: usize,
    /// None of one that is in `odd`.
    by_deadline: Option<Links>,
    by_holder: Links,
}

/// First and last of a row of nodes.
#[derive(Clone, Copy, Debug)]
struct Ends {
    first: usize,
    last: usize,
}

/// What one holder has.
#[derive(Debug)]
struct Hand {
    holder: u64,
    ends: Ends,
}

const EMPTY: Ends = Ends {
    first: NONE,
    last: NONE,
};

/// What is in flight.
#[derive(Debug)]
pub struct Flights {
    nodes: Slab<Node>,
    by_deadline: Ends,
    /// Those whose deadline is not in the order in which they came.
    odd: BTreeSet<(u64, usize)>,
    hands: Slab<Hand>,
    by_holder: Map<u64, usize>,
}

impl Flights {
    /// Nothing.
    pub fn new(hash_key: Key) -> Self {
        Self {
            nodes: Slab::new(),
            by_deadline: EMPTY,
            odd: BTreeSet::new(),
            hands: Slab::new(),
            by_holder: Map::with_hasher(hash_key),
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Adds one; it has this id until it is removed.
    pub fn add(&mut self, flight: Flight) -> usize {
        let Flight {
            offset,
            holder,
            deadline_ms,
        } = flight;
        let hands = &mut self.hands;
        let hand = *self.by_holder.entry(holder).or_insert_with(|| {
            let ends = EMPTY;
            hands.insert(Hand { holder, ends })
        });
        let ends = &mut self.hands[hand].ends;
        let before = ends.last;
        let id = self.nodes.insert(Node {
            offset,
            deadline_ms,
            hand,
            by_deadline: None,
            by_holder: Links {
                before,
                behind: NONE,
            },
        });
        ends.last = id;
        if before == NONE {
            ends.first = id;
        } else {
            self.nodes[before].by_holder.behind = id;
        }
        let last = self.by_deadline.last;
        if last == NONE || self.nodes[last].deadline_ms <= deadline_ms {
            self.put_last(id);
        } else {
            self.odd.insert((deadline_ms, id));
        }
        id
    }

    /// One of them.
    pub fn get(&self, id: usize) -> Flight {
        let node = &self.nodes[id];
        Flight {
            offset: node.offset,
            holder: self.hands[node.hand].holder,
            deadline_ms: node.deadline_ms,
        }
    }

    /// Who has each.
    pub fn holders(&self) -> impl Iterator<Item = u64> + '_ {
        let nodes = self.nodes.iter();
        nodes.map(|(_, node)| self.hands[node.hand].holder)
    }

    /// Gives all that `from` has to `to`, who has none.
    pub fn pass_on(&mut self, from: u64, to: u64) {
        if let Some(hand) = self.by_holder.remove(&from) {
            self.hands[hand].holder = to;
            let before = self.by_holder.insert(to, hand);
            assert_eq!(before, None, "it has some");
        }
    }

    /// Ends one.
    pub fn remove(&mut self, id: usize) {
        self.displace(id);
        let Node {
            hand, by_holder, ..
        } = self.nodes.remove(id);
        let Hand { holder, ends } = &mut self.hands[hand];
        match by_holder.before {
            NONE => ends.first = by_holder.behind,
            before => self.nodes[before].by_holder.behind = by_holder.behind,
        }
        match by_holder.behind {
            NONE => ends.last = by_holder.before,
            behind => self.nodes[behind].by_holder.before = by_holder.before,
        }
        if ends.first == NONE {
            self.by_holder.remove(holder);
            self.hands.remove(hand);
        }
    }

    /// Gives one another deadline.
    pub fn extend(&mut self, id: usize, deadline_ms: u64) {
        self.displace(id);
        self.nodes[id].deadline_ms = deadline_ms;
        self.odd.insert((deadline_ms, id));
    }

    /// The one whose deadline is first.
    pub fn first(&self) -> Option<(usize, Flight)> {
        let in_order = (self.by_deadline.first != NONE).then(|| {
            let id = self.by_deadline.first;
            (self.nodes[id].deadline_ms, id)
        });
        let first = in_order.into_iter().chain(self.odd.first().copied()).min();
        first.map(|(_, id)| (id, self.get(id)))
    }

    /// One that `holder` has.
    pub fn held_by(&self, holder: u64) -> Option<usize> {
        let hand = self.by_holder.get(&holder)?;
        Some(self.hands[*hand].ends.first)
    }

    /// Puts a node behind all that are in order.
    fn put_last(&mut self, id: usize) {
        let before = std::mem::replace(&mut self.by_deadline.last, id);
        match before {
            NONE => self.by_deadline.first = id,
            before => self.links(before).behind = id,
        }
        self.nodes[id].by_deadline = Some(Links {
            before,
            behind: NONE,
        });
    }

    fn displace(&mut self, id: usize) {
        let Some(Links { before, behind }) = self.nodes[id].by_deadline.take() else {
            self.odd.remove(&(self.nodes[id].deadline_ms, id));
            return;
        };
        match before {
            NONE => self.by_deadline.first = behind,
            before => self.links(before).behind = behind,
        }
        match behind {
            NONE => self.by_deadline.last = before,
            behind => self.links(behind).before = before,
        }
    }

    fn links(&mut self, id: usize) -> &mut Links {
        let links = self.nodes[id].by_deadline.as_mut();
        links.expect("it is in order")
    }
}
