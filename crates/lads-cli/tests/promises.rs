//! Tests that `lads cp` keeps its promises. Each test runs the real command, and is named after
//! something that a person who trusts it with data relies on.
//!
//! An ordinary run tries a few seeds of each test. With `LADS_TRUST=1` in the environment, it tries
//! as many as it takes to trust a release. `LADS_SEED=n` runs one seed alone, such as the one that
//! a failure named. If something is missing on this machine (rsync, sshd, the right to mount), a
//! test prints a message and passes.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "these are tests")]

#[path = "promises/absence.rs"]
mod absence;
#[path = "promises/between.rs"]
mod between;
#[path = "promises/blocked.rs"]
mod blocked;
#[path = "promises/ceph.rs"]
mod ceph;
#[path = "promises/changes.rs"]
mod changes;
#[path = "promises/chaos.rs"]
mod chaos;
#[path = "promises/check.rs"]
mod check;
#[path = "promises/choice.rs"]
mod choice;
#[path = "promises/cleaning.rs"]
mod cleaning;
#[path = "promises/completions.rs"]
mod completions;
#[path = "promises/config.rs"]
mod config;
#[path = "promises/daemon.rs"]
mod daemon;
#[path = "promises/delete.rs"]
mod delete;
#[path = "promises/deploying.rs"]
mod deploying;
#[path = "promises/depth.rs"]
mod depth;
#[path = "promises/distance.rs"]
mod distance;
#[path = "promises/doctor.rs"]
mod doctor;
#[path = "promises/ends.rs"]
mod ends;
#[path = "promises/everyday.rs"]
mod everyday;
#[path = "promises/expand.rs"]
mod expand;
#[path = "promises/faultfs.rs"]
mod faultfs;
#[path = "promises/few_threads.rs"]
mod few_threads;
#[path = "promises/file_server.rs"]
mod file_server;
#[path = "promises/file_sizes.rs"]
mod file_sizes;
#[path = "promises/firewall.rs"]
mod firewall;
#[path = "promises/greeting.rs"]
mod greeting;
#[path = "promises/habits.rs"]
mod habits;
#[path = "promises/hosts.rs"]
mod hosts;
#[path = "promises/identity.rs"]
mod identity;
#[path = "promises/links.rs"]
mod links;
#[path = "promises/listing.rs"]
mod listing;
#[path = "promises/made_up.rs"]
mod made_up;
#[path = "promises/media.rs"]
mod media;
#[path = "promises/metadata.rs"]
mod metadata;
#[path = "promises/mounts.rs"]
mod mounts;
#[path = "promises/moving.rs"]
mod moving;
#[path = "promises/names.rs"]
mod names;
#[path = "promises/network.rs"]
mod network;
#[path = "promises/order.rs"]
mod order;
#[path = "promises/outages.rs"]
mod outages;
#[path = "promises/parts.rs"]
mod parts;
#[path = "promises/passing.rs"]
mod passing;
#[path = "promises/permissions.rs"]
mod permissions;
#[path = "promises/pipes.rs"]
mod pipes;
#[path = "promises/placing.rs"]
mod placing;
#[path = "promises/port.rs"]
mod port;
#[path = "promises/power.rs"]
mod power;
#[path = "promises/privileges.rs"]
mod privileges;
#[path = "promises/processors.rs"]
mod processors;
#[path = "promises/protected.rs"]
mod protected;
#[path = "promises/proxy.rs"]
mod proxy;
#[path = "promises/quiet.rs"]
mod quiet;
#[path = "promises/refusals.rs"]
mod refusals;
#[path = "promises/remote.rs"]
mod remote;
#[path = "promises/replacing.rs"]
mod replacing;
#[path = "promises/replay.rs"]
mod replay;
#[path = "promises/restarted.rs"]
mod restarted;
#[path = "promises/resume.rs"]
mod resume;
#[path = "promises/ssh.rs"]
mod ssh;
#[path = "promises/staging.rs"]
mod staging;
#[path = "promises/stopping.rs"]
mod stopping;
#[path = "promises/storage.rs"]
mod storage;
#[path = "promises/terminal.rs"]
mod terminal;
#[path = "promises/there.rs"]
mod there;
#[path = "promises/times.rs"]
mod times;
#[path = "promises/trace.rs"]
mod trace;
#[path = "promises/truth.rs"]
mod truth;
#[path = "promises/uncached.rs"]
mod uncached;
#[path = "promises/unnamed.rs"]
mod unnamed;
#[path = "promises/walking.rs"]
mod walking;
#[path = "promises/words.rs"]
mod words;
#[path = "promises/world.rs"]
mod world;

use lads_trees as tree;
