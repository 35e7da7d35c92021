//! Damage to a folder at rest: any byte of any file may change, vanish or not be readable.
//!
//! What must follow: the store opens and everything acknowledged is there, or whoever meets the
//! damage, the start or a reader, is told the file, the place and the remedy; and with the file
//! restored all is as it was. Nothing is lost in silence, nothing invented.

use super::anomaly::{Anomaly, Kind};
use super::disk::SimDisk;
use super::random::Random;
use super::shell::Shell;
use super::simulation::Simulation;

/// Damages tried on the folder that a run leaves behind.
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
            Self::Unreadable(at) => return disk.spoil_sector(path, at),
            Self::Missing => return disk.erase(path),
        }
        disk.overwrite(path, bytes);
    }
}

/// Damages the folder that `simulation` leaves, again and again, and looks what it takes for it.
pub(super) fn judge(simulation: &mut Simulation) -> Result<(), Anomaly> {
    let folder = simulation.shell.die(None);
    for _ in 0..TRIALS {
        let paths = folder.disk.paths();
        let Some(path) = simulation.random.pick(&paths).cloned() else {
            return Ok(());
        };
        let damage = Damage::draw(&mut simulation.random, folder.disk.bytes(&path).len());
        simulation.trace.note(format_args!("{damage:?} of {path}"));
        let damaged = folder.disk.clone();
        damage.inflict(&damaged, &path, &mut simulation.random);
        let what = format!("{damage:?} of {path}");
        let (shell, checker) = (damaged.clone(), simulation.checker.clone());
        let outcome = trial(simulation, shell, &path);
        simulation.checker = checker;
        outcome.map_err(|anomaly| Anomaly {
            text: format!("after {what}: {}", anomaly.text),
            ..anomaly
        })?;
    }
    Ok(())
}

/// Opens a damaged folder and reads everything.
fn trial(simulation: &mut Simulation, disk: SimDisk, path: &str) -> Result<(), Anomaly> {
    let mut port = simulation.shell.die(None);
    port.disk = disk;
    let opened = Shell::open(port, simulation.options);
    simulation.trace.note(format_args!(
        "opened: {:?}",
        opened.as_ref().map(|(_, recovery)| recovery)
    ));
    match opened {
        Err(error) => explained(path, &error.to_string()),
        Ok((shell, _)) => {
            let sound = std::mem::replace(&mut simulation.shell, shell);
            let outcome = simulation.look_at_everything();
            simulation.shell = sound;
            match outcome {
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
