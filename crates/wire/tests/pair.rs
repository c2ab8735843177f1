//! Links inside one process: order, deadlines, endings, bounds.

#![allow(clippy::unwrap_used)]

use paceline_wire::{Head, LinkError, Role, TaskId, Wait, pair};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

fn worker(index: u32) -> TaskId {
    TaskId::new(Role::Worker, index)
}

fn soon(phase: &str) -> Wait<'_> {
    Wait::within(Duration::from_secs(900), phase)
}

#[test]
fn messages_arrive_in_order_and_in_pieces() {
    let (mut a, mut b) = pair(worker(0), worker(1));
    a.sender.send(1, 7, &[b"abc", b"", b"def"]).unwrap();
    a.sender.send(2, 8, &[]).unwrap();
    let many: Vec<&[u8]> = vec![b"x"; 20];
    a.sender.send(3, 9, &many).unwrap();
    assert_eq!(b.receiver.receive(&soon("one")).unwrap(), Head { kind: 1, number: 7, length: 6 });
    let mut piece = [0; 4];
    b.receiver.read(&mut piece).unwrap();
    assert_eq!(&piece, b"abcd");
    // The part of a payload that was not read is skipped.
    assert_eq!(b.receiver.receive(&soon("two")).unwrap(), Head { kind: 2, number: 8, length: 0 });
    let mut all = Vec::new();
    assert_eq!(b.receiver.receive_into(&soon("three"), 20, &mut all).unwrap().length, 20);
    assert_eq!(all, [b'x'; 20]);
    assert_eq!(a.sender.sent(), b.receiver.received());
}

#[test]
fn a_message_larger_than_the_room_passes() {
    let (mut a, mut b) = pair(worker(0), worker(1));
    let sent: Vec<u8> = (0..5_000_000u32).map(|i| i.to_le_bytes()[1]).collect();
    let copy = sent.clone();
    let writer = thread::spawn(move || {
        a.sender.send(0, 0, &[&copy]).unwrap();
        a
    });
    let mut got = Vec::new();
    b.receiver.receive_into(&soon("all"), u64::MAX, &mut got).unwrap();
    assert!(got == sent);
    writer.join().unwrap();
}

#[test]
fn silence_ends_at_the_deadline_and_names_who_and_what() {
    let (_a, mut b) = pair(worker(0), worker(1));
    let wait = Wait::within(Duration::from_millis(30), "waiting for the gradient of step 17");
    let error = b.receiver.receive(&wait).unwrap_err();
    assert!(error.is_timeout());
    let text = error.to_string();
    assert!(text.starts_with("worker/0 at this process did not answer within"), "{text}");
    assert!(text.ends_with("while waiting for the gradient of step 17"), "{text}");
}

#[test]
fn a_payload_that_stops_half_way_ends_at_the_deadline() {
    let (mut a, mut b) = pair(worker(0), worker(1));
    a.sender.start(Head { kind: 1, number: 0, length: 100 }).unwrap();
    assert_eq!(a.sender.push(&[1; 40]).unwrap(), 40);
    assert!(!a.sender.flushed());
    b.receiver.receive(&Wait::within(Duration::from_millis(50), "reading weights")).unwrap();
    let error = b.receiver.read(&mut [0; 100]).unwrap_err();
    assert!(error.is_timeout(), "{error}");
    assert!(error.to_string().ends_with("while reading weights"), "{error}");
}

#[test]
fn a_dropped_end_is_a_loss_on_both_halves() {
    let (a, mut b) = pair(worker(0), worker(1));
    drop(a);
    let error = b.receiver.receive(&soon("waiting for anything")).unwrap_err();
    assert!(error.is_lost(), "{error}");
    assert_eq!(error.task(), Some(worker(0)));
    assert!(b.sender.send(0, 0, &[b"x"]).unwrap_err().is_lost());
}

#[test]
fn closing_wakes_waiting_callers_at_both_ends() {
    let (mut a, mut b) = pair(worker(0), worker(1));
    let closer = a.closer.clone();
    thread::scope(|scope| {
        let here = scope.spawn(|| a.receiver.receive(&soon("here")).unwrap_err());
        let there = scope.spawn(|| b.receiver.receive(&soon("there")).unwrap_err());
        thread::sleep(Duration::from_millis(20));
        closer.close();
        assert!(here.join().unwrap().is_lost());
        assert!(there.join().unwrap().is_lost());
    });
}

#[test]
fn a_flag_ends_the_wait() {
    let (_a, mut b) = pair(worker(0), worker(1));
    let flag = AtomicBool::new(false);
    thread::scope(|scope| {
        let waiting = scope.spawn(|| b.receiver.receive(&soon("long").unless(&flag)).unwrap_err());
        flag.store(true, Ordering::Relaxed);
        assert!(matches!(waiting.join().unwrap(), LinkError::Cancelled { .. }));
    });
}

#[test]
fn a_reader_that_never_reads_stalls_the_sender_no_longer_than_told() {
    let (mut a, _b) = pair(worker(0), worker(1));
    a.sender.set_stall(Duration::from_millis(40));
    let error = a.sender.send(0, 0, &[&vec![0; 3 << 20]]).unwrap_err();
    assert!(error.is_timeout(), "{error}");
}

#[test]
fn lengths_are_checked_before_anything_is_allocated() {
    let (mut a, mut b) = pair(worker(0), worker(1));
    a.sender.start(Head { kind: 1, number: 0, length: 1000 }).unwrap();
    a.sender.push(&[]).unwrap();
    let mut into = Vec::new();
    let error = b.receiver.receive_into(&soon("small"), 999, &mut into).unwrap_err();
    assert!(matches!(error, LinkError::TooLong { length: 1000, most: 999, .. }), "{error}");
    assert_eq!(into.capacity(), 0);

    let (mut a, mut b) = pair(worker(0), worker(1));
    a.sender.start(Head { kind: 1, number: 0, length: 1 << 63 }).unwrap();
    a.sender.push(&[]).unwrap();
    let error = b.receiver.receive(&soon("huge")).unwrap_err();
    assert!(matches!(error, LinkError::TooLong { .. }), "{error}");
}
