//! The simulation finds nothing in the engine, and everything that is planted.

mod checker;
mod seeds;
