//! The disk under a switchboard: what is on its way there, and what a crash leaves of it.

use headrace_core::switchboard::Append;
use headrace_core::testing::Random;

use super::platter::{Death, Platter, SESSIONS};

/// Streams of the node, and partitions of each.
pub const STREAMS: [(&str, u32); 2] = [("one", 3), ("two", 1)];

/// Partitions of the log of sessions.
pub const PARTITIONS: u32 = 3;

pub enum Disk {
    /// Nothing is read back, so it is only asked when appends end, which is in any order.
    Tickets(Vec<u64>),
    /// What is acknowledged is there after a crash.
    Platter(Box<Platter>),
}

impl Disk {
    pub fn platter() -> Self {
        let [one, two] = STREAMS;
        let streams = [one, two, (SESSIONS, PARTITIONS)];
        Self::Platter(Platter::new(&streams).into())
    }

    /// False where the disk refuses at once.
    pub fn append(&mut self, append: Append, has_room: bool) -> bool {
        match self {
            _ if !has_room => {}
            Self::Tickets(tickets) => tickets.push(append.ticket),
            Self::Platter(platter) => {
                let (name, _) = STREAMS[append.stream as usize - 1];
                platter.append((name, append.partition), append.batch, append.ticket);
            }
        }
        has_room
    }

    /// Where sessions lie.
    pub fn sessions(&mut self) -> &mut Platter {
        match self {
            Self::Tickets(_) => unreachable!("sessions live in memory"),
            Self::Platter(platter) => platter,
        }
    }

    /// What was appended commits together.
    pub fn submit(&mut self) {
        if let Self::Platter(platter) = self {
            platter.submit();
        }
    }

    pub fn is_idle(&self) -> bool {
        match self {
            Self::Tickets(tickets) => tickets.is_empty(),
            Self::Platter(platter) => platter.is_idle(),
        }
    }

    /// Works on; the tickets that end.
    pub fn works(&mut self, random: &mut Random) -> Vec<u64> {
        match self {
            Self::Tickets(tickets) => {
                let count = tickets.len() as u64;
                let at = (count > 0).then(|| random.below(count) as usize);
                at.map(|at| tickets.swap_remove(at)).into_iter().collect()
            }
            Self::Platter(platter) => {
                let mut ended = Vec::new();
                for _ in 0..=random.below(10) {
                    ended.extend(platter.step());
                    if random.chance(30) {
                        platter.step_chore();
                    }
                }
                ended
            }
        }
    }

    /// Checkpoints whose space came back.
    pub fn checkpoints(&self) -> usize {
        match self {
            Self::Tickets(_) => 0,
            Self::Platter(platter) => platter.checkpoints,
        }
    }

    /// The node is gone; what it left of the log of sessions, by partition.
    pub fn crash(&mut self, random: &mut Random) -> Vec<Vec<u8>> {
        let platter = self.sessions();
        let deaths = [Death::Kill, Death::PowerCut, Death::PowerCut];
        platter.die(random.pick(&deaths), random.below(u64::MAX));
        let partitions = 0..PARTITIONS;
        let read = partitions.map(|partition| platter.read((SESSIONS, partition), 0));
        read.collect()
    }
}
