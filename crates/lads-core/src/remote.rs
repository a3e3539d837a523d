//! Remote files for MPI programs: what a client and a server say to each other, and their rules
//! (the RFS paper, section 3).
//!
//! A client is a process of an MPI program. It has one connection to a server, for all files that
//! it opens there. Requests travel as messages, the bytes of files in frames ([`crate::frame`]),
//! both ways. A frame holds one piece of the stream of bytes that a view shows ([`crate::view`]);
//! the server finds out where in the file that lies.
//!
//! [`name`] says which servers and path a name means, [`hints`] what a user asks for in one text.
//!
//! [`client`] is the session of a client. [`outbox`] chooses the next frame to send, and the frames
//! to stage on a local disk; [`outlook`] how many of them, and [`kept`] is the list of that disk.
//! [`rest`] decides when nothing is sent, [`window`] how many frames may be in flight, [`reading`]
//! which data is cached and read ahead, and [`taken`] whether one more file may be opened. [`gate`]
//! checks every message and frame of a server.
//!
//! [`server`] is the session of a server, for all its clients: [`order`] says in which order it
//! does what a client asks for, [`writes`] in which order it does what several write, [`locks`] who
//! may access a file as if at one moment, [`scatter`] which OSTs hold a piece. [`replies`] limits
//! what waits for a client that does not listen, and [`descriptors`] the files that clients have
//! open.

pub mod client;
pub mod descriptors;
pub mod extent;
pub mod gate;
pub mod groups;
pub mod hints;
pub mod joined;
pub mod kept;
pub mod locks;
pub mod message;
pub mod name;
pub mod order;
pub mod outbox;
pub mod outlook;
pub mod policy;
mod rate;
pub mod reading;
pub mod replies;
pub mod rest;
pub mod scatter;
pub mod server;
pub mod taken;
pub mod window;
pub mod writes;
