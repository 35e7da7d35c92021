//! What must hold of segments and their files whenever nothing is due.

use super::anomaly::Anomaly;
use super::clients::{LogClients, Name};
use super::simulation::Simulation;
use crate::log::{Disk, SegmentFacts};

/// Segments follow on each other, each is needed, and no file is left of those that are gone.
pub(super) fn judge(simulation: &Simulation) -> Result<(), Anomaly> {
    for (name, clients) in &simulation.logs {
        let refused = |text| Simulation::refused(&clients.label, text);
        let machine = &simulation.shell.machine;
        let told = |error: crate::log::Error| refused(error.to_string());
        let segments = machine.segments(clients.id).map_err(told)?;
        let bounds = machine.bounds(clients.id).map_err(told)?;
        if !are_sound(&segments, bounds) {
            return Err(refused(format!("{bounds:?} in {segments:?}")));
        }
        no_other_files(simulation, *name, clients, &segments)?;
        epochs_are_told(simulation, *name, clients, bounds)?;
    }
    Ok(())
}

fn are_sound(segments: &[SegmentFacts], (start, end): (i64, i64)) -> bool {
    let follows = segments.windows(2).all(|pair| {
        pair[0].next_offset == pair[1].base_offset && pair[1].base_offset > start && !pair[0].active
    });
    let told = segments.iter().all(|segment| {
        let is_empty = segment.base_offset == segment.next_offset; // but for marks
        segment.created_ms.is_some() && (is_empty || segment.max_timestamp.is_some())
    });
    let (Some(first), Some(last)) = (segments.first(), segments.last()) else {
        return false;
    };
    follows && told && first.base_offset <= start && last.next_offset == end && last.active
}

fn no_other_files(
    simulation: &Simulation,
    name: Name,
    clients: &LogClients,
    segments: &[SegmentFacts],
) -> Result<(), Anomaly> {
    // What could not be removed, or was too much for a close, goes with the next start.
    if simulation.shell.disk().has_leftovers() || simulation.shell.machine.is_closed() {
        return Ok(());
    }
    let folder = format!("streams/{}/{}", name.0, name.1);
    let names = simulation.shell.disk().list(&folder).unwrap_or_default();
    for file in names {
        let mut parts = file.split('.');
        let (base, kind) = (parts.next(), parts.next_back());
        if !matches!(kind, Some("log" | "index" | "timeindex")) {
            continue;
        }
        let base = base.and_then(|base| base.parse().ok());
        let generation = parts.next().map_or(Some(0), |form| form.parse().ok());
        let is = |segment: &SegmentFacts| {
            Some(segment.base_offset) == base && Some(segment.generation) == generation
        };
        if !segments.iter().any(is) {
            let text = format!("{folder}/{file} is left of a segment that is gone");
            return Err(Simulation::refused(&clients.label, text));
        }
    }
    Ok(())
}

/// The file that Kafka's tools read says of which epoch each batch is.
fn epochs_are_told(
    simulation: &Simulation,
    name: Name,
    clients: &LogClients,
    (start, end): (i64, i64),
) -> Result<(), Anomaly> {
    let path = format!("streams/{}/{}/leader-epoch-checkpoint", name.0, name.1);
    let file = String::from_utf8_lossy(&simulation.shell.disk().bytes(&path)).into_owned();
    let epoch = |line: &str| {
        let (epoch, first) = line.split_once(' ')?;
        Some((first.parse().ok()?, epoch.parse().ok()?))
    };
    let told: Vec<(i64, i32)> = file.lines().skip(2).filter_map(epoch).collect();
    for (offset, written) in clients.epochs.range(start..end.max(start)) {
        let of = told.iter().rfind(|(first, _)| first <= offset);
        if of.is_some_and(|(_, epoch)| epoch != written) {
            let text = format!("{path} does not say that {offset} is of epoch {written}: {file:?}");
            return Err(Simulation::refused(&clients.label, text));
        }
    }
    Ok(())
}
