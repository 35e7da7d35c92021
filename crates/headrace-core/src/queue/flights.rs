//! Messages that were delivered and are neither settled nor due back.
//!
//! Two orders over one slab: by deadline, and by who holds them. Deadlines of deliveries come in
//! order, so one is put at the end and taken from anywhere at the same cost, whatever is in flight;
//! an extended one may stand elsewhere and is looked for from the end.

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
    flight: Flight,
    by_deadline: Links,
    by_holder: Links,
}

/// First and last of a row of nodes.
#[derive(Clone, Copy, Debug)]
struct Ends {
    first: usize,
    last: usize,
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
    by_holder: Map<u64, Ends>,
}

impl Flights {
    /// Nothing.
    pub fn new(hash_key: Key) -> Self {
        Self {
            nodes: Slab::new(),
            by_deadline: EMPTY,
            by_holder: Map::with_hasher(hash_key),
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Adds one; it has this id until it is removed.
    pub fn add(&mut self, flight: Flight) -> usize {
        let alone = Links {
            before: NONE,
            behind: NONE,
        };
        let id = self.nodes.insert(Node {
            flight,
            by_deadline: alone,
            by_holder: alone,
        });
        self.place(id);
        let ends = self.by_holder.entry(flight.holder).or_insert(EMPTY);
        let before = ends.last;
        ends.last = id;
        if before == NONE {
            ends.first = id;
        } else {
            self.nodes[before].by_holder.behind = id;
        }
        self.nodes[id].by_holder.before = before;
        id
    }

    /// One of them.
    pub fn get(&self, id: usize) -> Flight {
        self.nodes[id].flight
    }

    /// Who has each.
    pub fn holders(&self) -> impl Iterator<Item = u64> + '_ {
        self.nodes.iter().map(|(_, node)| node.flight.holder)
    }

    /// Ends one.
    pub fn remove(&mut self, id: usize) -> Flight {
        self.displace(id);
        let Node {
            flight, by_holder, ..
        } = self.nodes.remove(id);
        let ends = self.by_holder.get_mut(&flight.holder).expect("it has one");
        match by_holder.before {
            NONE => ends.first = by_holder.behind,
            before => self.nodes[before].by_holder.behind = by_holder.behind,
        }
        match by_holder.behind {
            NONE => ends.last = by_holder.before,
            behind => self.nodes[behind].by_holder.before = by_holder.before,
        }
        if ends.first == NONE {
            self.by_holder.remove(&flight.holder);
        }
        flight
    }

    /// Gives one another deadline.
    pub fn extend(&mut self, id: usize, deadline_ms: u64) {
        self.displace(id);
        self.nodes[id].flight.deadline_ms = deadline_ms;
        self.place(id);
    }

    /// The one whose deadline is first.
    pub fn first(&self) -> Option<(usize, Flight)> {
        let id = self.by_deadline.first;
        (id != NONE).then(|| (id, self.nodes[id].flight))
    }

    /// One that `holder` has.
    pub fn held_by(&self, holder: u64) -> Option<usize> {
        self.by_holder.get(&holder).map(|ends| ends.first)
    }

    /// Puts a node where its deadline belongs, behind those of the same.
    fn place(&mut self, id: usize) {
        let deadline_ms = self.nodes[id].flight.deadline_ms;
        let mut before = self.by_deadline.last;
        while before != NONE && self.nodes[before].flight.deadline_ms > deadline_ms {
            before = self.nodes[before].by_deadline.before;
        }
        let behind = match before {
            NONE => std::mem::replace(&mut self.by_deadline.first, id),
            before => std::mem::replace(&mut self.nodes[before].by_deadline.behind, id),
        };
        match behind {
            NONE => self.by_deadline.last = id,
            behind => self.nodes[behind].by_deadline.before = id,
        }
        self.nodes[id].by_deadline = Links { before, behind };
    }

    fn displace(&mut self, id: usize) {
        let Links { before, behind } = self.nodes[id].by_deadline;
        match before {
            NONE => self.by_deadline.first = behind,
            before => self.nodes[before].by_deadline.behind = behind,
        }
        match behind {
            NONE => self.by_deadline.last = before,
            behind => self.nodes[behind].by_deadline.before = before,
        }
    }
}
