use super::*;
use lads_core::remote::message::Call;
use lads_hostile::files::TOKEN;
use lads_hostile::files::server::{Server as LyingServer, listen};
use lads_hostile::peer::Told;
use lads_hostile::world::World;
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

/// Serves one client until a file is closed, and hangs up then.
fn hangs_up_at_a_close(listener: &TcpListener, world: &World) -> Told {
    let mut server = LyingServer::accept(listener, world.clone())?;
    server.greet_until(|call| matches!(call, Call::Close { .. }))?;
    server.hang_up();
    Ok(())
}

fn honest(listener: &TcpListener, world: &World) -> Told {
    let mut server = LyingServer::accept(listener, world.clone())?;
    server.greet()?;
    server.serve()
}

/// Writes to a file and closes it, without waiting for the server.
fn written(address: &str, token: &Path) -> Result<(), Error> {
    let hints = Hints {
        token_file: Some(token.to_owned()),
        defers_open: true,
        defers_close: true,
        ..Hints::default()
    };
    let name = format!("rfs:{address}:a");
    let flags = flag::WRITE | flag::CREATE;
    let file =
        RemoteFile::open(name.as_bytes(), flags, Group { size: 1, ..Group::default() }, hints)?;
    file.handle().write(0, &[b"x"])?;
    file.close()
}

fn is_lost(address: &str) -> bool {
    let clients = clients();
    let of = &clients.as_ref().unwrap().of;
    of[&Server::At(address.to_owned())].is_lost()
}

/// The connections belong to the process, so all of this is one test.
#[test]
fn the_error_of_each_server_is_one_at_the_end_whatever_replaces_or_follows_it() {
    let place = tempfile::tempdir().unwrap();
    let world = World::at(place.path());
    fs::create_dir(world.peer()).unwrap();
    fs::write(world.peer().join("notes"), "").unwrap();
    let token = place.path().join("token");
    fs::write(&token, TOKEN.map(|byte| format!("{byte:02x}")).concat()).unwrap();
    fs::set_permissions(&token, fs::Permissions::from_mode(0o600)).unwrap();
    let servers = [0, 1, 2].map(|_| listen());
    let ((bad, at_bad), good) = (&servers[0], &servers[1..]);
    std::thread::scope(|scope| {
        for (listener, _) in good {
            scope.spawn(|| honest(listener, &world));
        }
        let lying = scope.spawn(|| hangs_up_at_a_close(bad, &world));
        for (_, address) in &servers {
            written(address, &token).unwrap();
        }
        let error = finish().unwrap_err();
        assert!(format!("{error:?}").contains(at_bad.as_str()), "{error:?}");
        lying.join().unwrap().unwrap();
        // The next file has a new connection. What the old one has lost was an error before.
        scope.spawn(|| hangs_up_at_a_close(bad, &world));
        written(at_bad, &token).unwrap();
        while !is_lost(at_bad) {
            std::thread::sleep(Duration::from_millis(1));
        }
        // The second connection is lost, and no call has returned that when a third replaces it.
        scope.spawn(|| honest(bad, &world));
        written(at_bad, &token).unwrap();
        let error = finish().unwrap_err();
        assert!(format!("{error:?}").contains(at_bad.as_str()), "{error:?}");
        finish().unwrap();
        // The servers end with their clients.
        clients().take();
    });
}
