//! What partitions know of the sources of publishes, and who waits for what a source repeats.

use super::{Streams, Waiter};
use crate::session::Ending;
use crate::switchboard::partition::Repeat;
use crate::switchboard::sources::{Sources, SOURCES_OF_NODE_MAX};

impl Streams {
    /// The sources of a partition.
    pub fn sources(&mut self, id: u64, partition: u32) -> Option<&mut Sources> {
        let slot = *self.by_id.get(&id)?;
        let stream = &mut self.slots[slot as usize];
        stream
            .partitions
            .get_mut(partition as usize)
            .map(|partition| &mut partition.sources)
    }

    /// Notes sources that the log holds. None where there is no such partition.
    pub fn load_sources<'a>(
        &mut self,
        id: u64,
        partition: u32,
        sources: impl IntoIterator<Item = (&'a str, u64, u64)>,
    ) -> Option<()> {
        let window = self.sources(id, partition)?;
        for (name, epoch, sequence) in sources {
            window.load(name, epoch, sequence);
        }
        self.bound_sources();
        Some(())
    }

    /// Counts the sources, and has them forgotten until they are few enough.
    pub(super) fn bound_sources(&mut self) {
        loop {
            let streams = self.slots.iter_mut();
            let windows = streams.flat_map(|(_, stream)| &mut stream.partitions);
            let mut most: Option<&mut Sources> = None;
            self.sources = 0;
            for window in windows.map(|partition| &mut partition.sources) {
                self.sources += window.len();
                if most.as_ref().is_none_or(|most| most.len() < window.len()) {
                    most = Some(window);
                }
            }
            match most {
                Some(most) if self.sources > SOURCES_OF_NODE_MAX => most.turn(),
                _ => return,
            }
        }
    }

    /// Makes the waiter of a repeat wait for all that is in flight to a partition; 0 where nothing
    /// is, else it is settled once.
    pub fn wait(&mut self, slot: u32, partition: u32, waiter: Option<Waiter>) -> u32 {
        let stream = &mut self.slots[slot as usize];
        let partition = &mut stream.partitions[partition as usize];
        let (Some(waiter), Some(last)) = (waiter, partition.newest()) else {
            return 0;
        };
        partition.repeats.push_back(Repeat {
            waiter,
            last,
            ending: Ending::Stored,
        });
        1
    }
}
