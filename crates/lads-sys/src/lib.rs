//! The only `unsafe` code of LADS: memory that many threads read and write through buffers handed
//! out one by one ([`Arena`]), system calls that no safe crate wraps, and the confinement of a
//! process that serves a peer ([`confine()`]).
#![allow(unsafe_code)]

mod arena;
pub mod beegfs;
mod confine;
mod copying;
pub mod emulated;
mod ending;
mod extent;
mod fork;
mod inherited;
pub mod lustre;
mod realtime;
mod residency;
mod signals;
mod stdio;
mod tcp;
mod usage;
mod user;
mod writeback;
mod xattrs;

pub use arena::{Arena, Buffer};
pub use confine::{Confinement, FileAccess, InForce, confine};
pub use copying::gather_past_cache;
pub use ending::Ending;
pub use extent::first_extent;
pub use fork::{Forked, fork};
pub use inherited::inherited_sockets;
pub use realtime::run_before_others;
pub use residency::resident_bytes;
pub use signals::{
    SignalsBlocked, hold_file_size_signal, is_signal_ignored, with_all_signals,
    without_file_size_signal,
};
pub use stdio::Standard;
pub use tcp::{congestion_control, path_mtu, round_trip, widen_window};
pub use usage::{Usage, cpu_delay, cpu_idle, cpu_time, usage};
pub use user::become_user;
pub use writeback::{start_writeback, start_writeback_of};
pub use xattrs::list_xattrs_at;
