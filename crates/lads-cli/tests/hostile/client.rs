//! A client of a server that lies: makes every kind of call that a program can make, and prints
//! the result of each.

use lads_core::remote::message::{LockKind, OpenMode};
use lads_engine::remote::{Client, ClientOptions, FileHandle, RemoteError, read_token};
use lads_hostile::files::{BUFFERS_BYTES, DONE, LOST, TIMEOUT};
use std::fmt::Debug;
use std::fs;
use std::path::Path;

const MODE: OpenMode = OpenMode { reads: true, writes: true, creates: true, is_new: false };

/// Uses the server at an address, with the token in a file.
pub(crate) fn run(at: &str, token: &str) {
    // Processes of this name are watched.
    fs::write("/proc/self/comm", "lads").unwrap();
    let token = read_token(Path::new(token)).unwrap();
    let options = ClientOptions {
        buffers_bytes: BUFFERS_BYTES,
        read_bytes: 4 << 20,
        timeout: TIMEOUT,
        ..ClientOptions::default()
    };
    let used = Client::connect(at, &token, &options).and_then(|client| use_all(&client));
    match used {
        Ok(()) => println!("{DONE}"),
        Err(error) => println!("{LOST}{}", error.text),
    }
}

/// Makes all calls, until the connection is lost.
fn use_all(client: &Client) -> Result<(), RemoteError> {
    let made = |name: &str, result: Result<u64, RemoteError>| made(client, name, result);
    let file = client.open(b"a", MODE, [1; 16], false)?;
    made("write", file.write(5, &[&[1; 100_000], &[2; 7]]).map(|()| 0))?;
    made("flush", file.flush().map(|()| 0))?;
    made("read", read(&file, 0, 10))?;
    made("read", read(&file, 1 << 20, 2 << 20))?;
    made("read", read(&file, 3 << 20, 1000))?;
    made("size", file.size())?;
    made("end", file.end())?;
    made("set_view", file.set_view(3, &[0, 4, 0, 0, 0, 0, 0, 0, 0]).map(|()| 0))?;
    made("end", file.end())?;
    made("set_size", file.set_size(7).map(|()| 0))?;
    made("preallocate", file.preallocate(9).map(|()| 0))?;
    made("add_shared", file.add_shared(1))?;
    made("set_shared", file.set_shared(5).map(|()| 0))?;
    made("lock", file.lock(LockKind::Exclusive).map(|()| 0))?;
    file.unlock();
    made("write", file.write(0, &[&vec![3; 10 << 20]]).map(|()| 0))?;
    made("sync", file.sync().map(|()| 0))?;
    made("read", read(&file, 7, 100_000))?;
    made("delete", client.delete(b"b").map(|()| 0))?;
    let other = client.open(b"c", MODE, [2; 16], true)?;
    made("close", other.close(true).map(|()| 0))?;
    made("close", file.close(false).map(|()| 0))?;
    made("finish", client.finish().map(|()| 0))
}

/// Prints what a call returns. Only the loss of the connection ends the program.
fn made(client: &Client, name: &str, result: Result<u64, RemoteError>) -> Result<(), RemoteError> {
    match result {
        Ok(number) => {
            assert!(i64::try_from(number).is_ok(), "{name} returns {number}");
            print(name, &number);
        }
        Err(error) if client.is_lost() => return Err(error),
        Err(error) => print(name, &error.text),
    }
    Ok(())
}

fn print(name: &str, value: &dyn Debug) {
    println!("{name}: {value:?}");
}

fn read(file: &FileHandle, position: u64, length: usize) -> Result<u64, RemoteError> {
    let mut bytes = vec![0; length];
    let count = file.read(position, &mut [&mut bytes])?;
    assert!(count <= length as u64, "{count} of {length} bytes were read");
    Ok(count)
}
