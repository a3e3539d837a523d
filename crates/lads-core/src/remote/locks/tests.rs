use super::LockKind::{Exclusive, Shared};
use super::*;
use proptest::prelude::*;

const FILE: FileId = FileId { device: 1, inode: 2 };

fn owner(client: u64) -> Owner {
    Owner { client: ClientNumber(client), file: FileNumber(7) }
}

/// Asks as a client whose requests have its own number.
fn ask(locks: &mut Locks, client: u64, kind: LockKind) -> bool {
    locks.lock(FILE, owner(client), client, kind).unwrap()
}

fn clients(grants: &[Grant]) -> Vec<u64> {
    grants.iter().map(|grant| grant.client.0).collect()
}

fn unlock(locks: &mut Locks, client: u64) -> Vec<u64> {
    clients(&locks.unlock(FILE, owner(client)).unwrap())
}

#[test]
fn a_writer_has_a_file_alone() {
    let mut locks = Locks::default();
    assert!(ask(&mut locks, 1, Exclusive));
    assert!(!ask(&mut locks, 2, Shared) && !ask(&mut locks, 3, Exclusive));
    assert_eq!(unlock(&mut locks, 1), [2]);
    assert_eq!(unlock(&mut locks, 2), [3]);
    assert_eq!(unlock(&mut locks, 3), [0; 0]);
}

#[test]
fn readers_share_a_file() {
    let mut locks = Locks::default();
    assert!(ask(&mut locks, 1, Shared) && ask(&mut locks, 2, Shared));
    assert!(!ask(&mut locks, 3, Exclusive));
    assert_eq!((unlock(&mut locks, 2), unlock(&mut locks, 1)), (vec![], vec![3]));
}

#[test]
fn readers_that_come_later_do_not_overtake_a_writer() {
    let mut locks = Locks::default();
    assert!(ask(&mut locks, 1, Shared) && !ask(&mut locks, 2, Exclusive));
    assert!(!ask(&mut locks, 3, Shared) && !ask(&mut locks, 4, Shared));
    assert_eq!(unlock(&mut locks, 1), [2]);
    assert_eq!(unlock(&mut locks, 2), [3, 4], "both at once");
}

#[test]
fn other_files_are_not_waited_for() {
    let mut locks = Locks::default();
    assert!(ask(&mut locks, 1, Exclusive));
    let other = FileId { inode: 3, ..FILE };
    assert_eq!(locks.lock(other, owner(2), 2, Exclusive), Ok(true));
}

#[test]
fn two_threads_of_a_client_wait_for_each_other() {
    let mut locks = Locks::default();
    assert_eq!(locks.lock(FILE, owner(1), 10, Exclusive), Ok(true));
    assert_eq!(locks.lock(FILE, owner(1), 11, Exclusive), Ok(false));
    let grants = locks.unlock(FILE, owner(1)).unwrap();
    assert_eq!(grants, [Grant { client: ClientNumber(1), request: 11 }]);
    assert_eq!(locks.unlock(FILE, owner(1)), Some(vec![]));
    assert_eq!(locks.unlock(FILE, owner(1)), None);
}

#[test]
fn what_was_not_locked_is_not_unlocked() {
    let mut locks = Locks::default();
    assert!(ask(&mut locks, 1, Exclusive) && !ask(&mut locks, 2, Exclusive));
    assert_eq!(locks.unlock(FILE, owner(2)), None, "it waits");
    let other_handle = Owner { file: FileNumber(8), ..owner(1) };
    assert_eq!(locks.unlock(FILE, other_handle), None);
    assert_eq!(locks.unlock(FileId { inode: 3, ..FILE }, owner(1)), None);
}

#[test]
fn whoever_is_gone_has_no_lock_and_waits_for_none() {
    let mut locks = Locks::default();
    assert!(ask(&mut locks, 1, Exclusive));
    assert!(!ask(&mut locks, 2, Exclusive) && !ask(&mut locks, 3, Shared));
    assert_eq!(locks.release(FILE, owner(2)), Released { grants: vec![], given_up: vec![2] });
    assert_eq!(clients(&locks.release(FILE, owner(1)).grants), [3]);
    assert_eq!(locks.release(FILE, owner(3)), Released::default());
    assert_eq!((locks.files.len(), locks.counts.len()), (0, 0), "nothing is kept");
}

/// A writer that waits and goes lets the readers behind it join those who read.
#[test]
fn readers_go_on_when_the_writer_before_them_is_gone() {
    let mut locks = Locks::default();
    assert!(ask(&mut locks, 1, Shared));
    assert!(!ask(&mut locks, 2, Exclusive) && !ask(&mut locks, 3, Shared));
    assert_eq!(clients(&locks.release(FILE, owner(2)).grants), [3]);
}

#[test]
fn it_is_known_who_holds_up_others() {
    let mut locks = Locks::default();
    assert!(ask(&mut locks, 1, Exclusive) && !ask(&mut locks, 1, Exclusive));
    assert_eq!(locks.holding_up(), BTreeSet::new(), "only itself");
    assert!(!ask(&mut locks, 2, Shared));
    assert_eq!(locks.holding_up(), BTreeSet::from([ClientNumber(1)]));
}

#[test]
fn a_client_has_a_limited_number_of_locks() {
    let mut locks = Locks::default();
    for request in 0..CLIENT_LOCKS_MAX as u64 {
        locks.lock(FILE, owner(1), request, Shared).unwrap();
    }
    assert_eq!(locks.lock(FILE, owner(1), 0, Shared), Err(TooMany));
    assert_eq!(locks.lock(FILE, owner(2), 0, Shared), Ok(true), "others may");
    locks.unlock(FILE, owner(1)).unwrap();
    assert_eq!(locks.lock(FILE, owner(1), 0, Shared), Ok(true));
}

proptest! {
    /// Whatever is asked for in whatever order: no writer beside another owner, nobody waits for a
    /// free lock, and in the end everybody has had what was asked for, in order.
    #[test]
    fn locks_are_given_in_order(steps in prop::collection::vec((0..5u64, any::<bool>()), 0..200)) {
        let mut locks = Locks::default();
        let (mut asked, mut given, mut held) = (Vec::<(u64, bool)>::new(), Vec::new(), Vec::new());
        for (client, is_shared) in steps {
            // Each asks again when it has had its turn.
            if let Some(place) = held.iter().position(|&it| asked[it] == (client, is_shared)) {
                held.remove(place);
                for grant in locks.unlock(FILE, owner(client)).unwrap() {
                    let request = usize::try_from(grant.request).unwrap();
                    held.push(request);
                    given.push(request);
                }
                continue;
            }
            let waiting = given.len()..asked.len();
            let is_busy = held.iter().copied().chain(waiting).any(|it| asked[it].0 == client);
            if !is_busy {
                let request = asked.len();
                asked.push((client, is_shared));
                let kind = if is_shared { Shared } else { Exclusive };
                if locks.lock(FILE, owner(client), request as u64, kind).unwrap() {
                    held.push(request);
                    given.push(request);
                }
            }
            prop_assert!(held.len() < 2 || held.iter().all(|&it| asked[it].1));
            prop_assert!(given.len() == asked.len() || !held.is_empty(), "somebody waits");
            prop_assert!(given.iter().copied().eq(0..given.len()), "{:?}", given);
        }
    }
}
