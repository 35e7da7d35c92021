//! Damage to the folder of a process that was killed: any byte of any file may change, vanish or
//! not be readable. (After a power cut nobody could tell damage from what was never synced.)
//!
//! What must follow: the store opens and everything acknowledged is there, or whoever meets the
//! damage, the start or a reader, is told the file, the place and the remedy; and with the file
//! restored all is as it was. Nothing is lost in silence, nothing invented.

use super::anomaly::{Anomaly, Kind};
use super::disk::SimDisk;
use super::random::Random;
use super::sabotage::Saboteur;
use super::shell::Shell;
use super::simulation::Simulation;
use super::workload;

/// Damages tried on one folder.
const TRIALS: usize = 4;

/// One damage, for a reader of the trace.
#[derive(Debug)]
enum Damage {
    BitFlip(usize),
    Garbage(usize),
    Zeros(usize),
    Cut(usize),
    Unreadable(usize),
    Missing,
}

impl Damage {
    fn draw(random: &mut Random, bytes: usize) -> Self {
        let at = random.below(bytes.max(1));
        match random.below(12) {
            0..6 => Self::BitFlip(at),
            6 | 7 => Self::Garbage(at),
            8 => Self::Zeros(at),
            9 => Self::Cut(at),
            10 => Self::Unreadable(at),
            _ => Self::Missing,
        }
    }

    fn inflict(&self, disk: &SimDisk, path: &str, random: &mut Random) {
        let mut bytes = disk.bytes(path);
        let sector = |at: usize| at / 512 * 512..(at / 512 * 512 + 512).min(bytes.len());
        match *self {
            Self::BitFlip(at) => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << random.below(8);
                }
            }
            Self::Garbage(at) => {
                let sector = sector(at);
                bytes[sector].fill_with(|| random.bits() as u8);
            }
            Self::Zeros(at) => {
                let sector = sector(at);
                bytes[sector].fill(0);
            }
            Self::Cut(at) => bytes.truncate(at),
            Self::Unreadable(at) => return disk.spoil_page(path, at),
            Self::Missing => return disk.erase(path),
        }
        disk.overwrite(path, bytes);
    }
}

/// Damages the folder behind `port`, again and again, and looks what a start takes it for.
pub(super) fn judge(simulation: &mut Simulation, port: &Saboteur) -> Result<(), Anomaly> {
    for _ in 0..TRIALS {
        let paths = port.disk.paths();
        let Some(path) = simulation.random.choose(&paths).cloned() else {
            return Ok(());
        };
        let damage = Damage::draw(&mut simulation.random, port.disk.bytes(&path).len());
        let what = format!("{damage:?} of {path}");
        simulation.trace.note(format_args!("{what}"));
        let damaged = port.clone();
        damage.inflict(&damaged.disk, &path, &mut simulation.random);
        let before = (
            simulation.checker.clone(),
            simulation.logs.clone(),
            simulation.deleting.clone(),
            simulation.is_cut,
        );
        let outcome = trial(simulation, damaged, &path);
        (
            simulation.checker,
            simulation.logs,
            simulation.deleting,
            simulation.is_cut,
        ) = before;
        outcome.map_err(|anomaly| Anomaly {
            text: format!("after {what}: {}", anomaly.text),
            ..anomaly
        })?;
    }
    Ok(())
}

/// Opens a damaged folder and reads everything.
fn trial(simulation: &mut Simulation, port: Saboteur, path: &str) -> Result<(), Anomaly> {
    // The damage may look like the end of a journal that was not synced.
    simulation.is_cut = true;
    if path.starts_with("journal/") {
        simulation.checker.may_forget_trims();
    }
    let opened = Shell::open(port, simulation.options);
    let told = opened.as_ref().map(|(_, recovery)| recovery);
    simulation.trace.note(format_args!("opened: {told:?}"));
    match opened {
        Err(error) => explained(path, &error.to_string()),
        Ok((shell, _)) => {
            simulation.shell = shell;
            let looked = simulation.look_at_everything();
            match looked.and_then(|()| compact_everything(simulation)) {
                Err(Anomaly {
                    kind: Kind::Refused,
                    text,
                    ..
                }) => explained(path, &text),
                outcome => outcome,
            }
        }
    }
}

/// A compaction copies nothing that is damaged under a CRC of its own.
fn compact_everything(simulation: &mut Simulation) -> Result<(), Anomaly> {
    if simulation.random.chance(50) {
        return Ok(());
    }
    for name in simulation.logs.keys().copied().collect::<Vec<_>>() {
        workload::begin_compaction(simulation, name, 0)?;
        simulation.settle()?;
    }
    simulation.look_at_everything()
}

/// A refusal names the file, or the batch whose CRC a reader found wrong.
fn explained(path: &str, text: &str) -> Result<(), Anomaly> {
    let folder = path.rsplit_once('/').map_or(path, |(folder, _)| folder);
    let names_place = text.contains(folder)
        && (text.contains("restore") || text.contains("check") || text.contains("move"));
    let by_reader = text.contains("CRC");
    if names_place || by_reader {
        return Ok(());
    }
    Err(Simulation::refused(path, format!("not explained: {text}")))
}
