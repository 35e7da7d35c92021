//! The switchboard, told as stories: what clients send, and the transcript of what they get.
//!
//! Each test is named by the clause that it holds (`mqtt_` and the section of MQTT 5.0, or of
//! 3.1.1 where the name says so), or by the rule of ours. [`stage::Stage`] asserts the machine's
//! invariants after each event.

mod administer;
mod aliases;
mod announce;
mod authenticate;
mod batches;
mod bounds;
mod budget;
mod checkpoints;
mod clauses;
mod configure;
mod connect;
mod crowd;
mod crowd_claims;
mod crowd_groups;
mod deliver;
mod depot;
mod devices;
mod disk;
mod exchange;
mod feeds;
mod feeds_bounds;
mod feeds_lives;
mod feeds_report;
mod feeds_return;
mod fuzz;
mod group_keys;
mod group_work;
mod groups;
mod holes;
mod keep_alive;
mod kept;
mod options;
mod overflow;
mod permit;
mod platter;
mod publish;
mod queues;
mod queues_altered;
mod queues_depth;
mod queues_hostile;
mod queues_kept;
mod queues_lives;
mod queues_pull;
mod queues_wire;
mod repeats;
mod replay;
mod retained;
mod retained_crash;
mod retained_log;
mod retained_restart;
mod routing;
mod session;
mod shelf;
mod stage;
mod store;
mod subscribe;
mod table;
mod trace;
mod transcript;
mod turns;
mod will;
mod wills_crash;
