//! Programs whose server is killed and started again.

use super::{SERVED, on_every_mpi};
use std::path::Path;
use std::process::{Child, Command};

/// How often the server is killed.
const KILLS: u32 = 4;

/// Starts a server process for a place, and waits until it listens.
fn serve(directory: &Path, port: u16) -> Child {
    let at = directory.join("at");
    let _ = std::fs::remove_file(&at);
    std::fs::write(directory.join("port"), port.to_string()).unwrap();
    let mut server = Command::new(std::env::current_exe().unwrap());
    server.args(["--exact", "a_server_of_its_own"]).env(SERVED, directory);
    let mut server = server.env("XDG_RUNTIME_DIR", directory).spawn().unwrap();
    while !at.exists() {
        assert!(server.try_wait().unwrap().is_none(), "the server has ended");
        std::thread::yield_now();
    }
    server
}

#[test]
fn programs_go_on_when_their_server_is_killed_and_started_again() {
    on_every_mpi(|mpi, place| {
        let program = place.program(mpi, "tests/programs/restarted.c", &["-std=gnu11"]);
        let directory = place.directory.path();
        let free = std::net::TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        let mut server = serve(directory, port);
        let (mut command, enough) = (place.run(mpi, 3), place.path("enough"));
        command.arg(&program).arg(format!("rfs:127.0.0.1:{port}:new")).arg(&enough);
        let running = std::thread::spawn(move || command.output().unwrap());
        // All have opened the file when it is not empty, and are connected again when they write.
        let mut last = std::time::SystemTime::UNIX_EPOCH;
        let changed = || {
            let found = place.at_server("new").metadata().ok().filter(|it| it.len() > 0);
            found.and_then(|it| it.modified().ok())
        };
        for _ in 0..KILLS {
            while changed().is_none_or(|it| it <= last) {
                assert!(!running.is_finished(), "{:?}", running.join());
                std::thread::yield_now();
            }
            server.kill().unwrap();
            server.wait().unwrap();
            last = changed().unwrap();
            server = serve(directory, port);
        }
        std::fs::write(&enough, b"").unwrap();
        let output = running.join().unwrap();
        server.kill().unwrap();
        server.wait().unwrap();
        assert!(output.status.success(), "{mpi:?}: {output:?}");
    });
}
