//! Which logs the store holds, whoever has asked for them.

use super::machine::Machine;

/// A log that the journal knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldLog {
    /// Its stream.
    pub stream: String,
    /// Its partition.
    pub partition: u32,
    /// Which stream of that name.
    pub incarnation: u64,
    /// It holds records, or has held some.
    pub has_past: bool,
}

impl Machine {
    /// Every log, by its stream's name and its partition.
    pub fn held_logs(&self) -> Vec<HeldLog> {
        let held = self.names.values().map(|id| &self.logs[id]);
        held.map(|log| HeldLog {
            stream: log.stream.to_string(),
            partition: log.partition,
            incarnation: log.incarnation,
            has_past: log.next_offset > 0,
        })
        .collect()
    }
}
