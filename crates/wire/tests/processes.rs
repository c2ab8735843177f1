//! Real processes of this machine over shared memory, one of them killed in the middle.
//!
//! This program starts itself again as the second process, so it has its own `main`.

#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::print_stderr)]

use paceline_wire::{
    Channel, ClusterKey, Endpoint, Group, Identity, Link, Purpose, Role, Security, TaskId, Wait,
};
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

fn worker(index: u32) -> TaskId {
    TaskId::new(Role::Worker, index)
}

fn soon(phase: &str) -> Wait<'_> {
    Wait::within(Duration::from_secs(900), phase)
}

fn endpoint(index: u32, key: ClusterKey) -> Endpoint {
    let identity = Identity {
        me: worker(index),
        run: String::from("processes"),
        version: String::from("1"),
        plan: [0; 32],
        key,
        security: Security::Plain,
        shared_memory: true,
    };
    Endpoint::bind(identity, "127.0.0.1:0").unwrap()
}

/// Starts a second process that does `what`, and joins it.
fn start(what: &str) -> (Child, Link) {
    let key = ClusterKey::generate().unwrap();
    let door = endpoint(0, key.clone());
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["second", what, &door.address().to_string()])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(key.to_text().as_bytes()).unwrap();
    let (_, link) = door.accept(&soon("the second process")).unwrap();
    assert_eq!(link.carrier, "shared memory");
    (child, link)
}

const LENGTH: usize = 700_000;

fn second(what: &str, address: &str) {
    let mut key = String::new();
    std::io::stdin().read_to_string(&mut key).unwrap();
    let door = endpoint(1, key.trim().parse().unwrap());
    let purpose = Purpose::Data { generation: 0, channel: Channel::AllReduce };
    let mut link = door.dial(worker(0), address, purpose, &soon("joining")).unwrap();
    match what {
        "echo" => {
            let mut got = Vec::new();
            loop {
                let head = link.receiver.receive_into(&soon("a word"), 1 << 30, &mut got).unwrap();
                link.sender.send(head.kind, head.number, &[&got]).unwrap();
                if head.kind == 1 {
                    return;
                }
            }
        }
        "sum" => {
            let mut group = Group::new(1, vec![Some(link), None]);
            let mut buffer = group.buffer(LENGTH, &soon("sharing")).unwrap();
            let mut private = vec![0.0; LENGTH];
            for round in 0..u32::MAX {
                buffer.fill(2.0);
                private.fill(round as f32);
                group.all_reduce(&mut buffer, &soon("the sum")).unwrap();
                group.all_reduce(&mut private, &soon("the sum")).unwrap();
            }
        }
        "wait" => thread::sleep(Duration::from_secs(600)),
        // Takes the messages and answers none.
        "fill" => {
            link.receiver.receive(&soon("a word")).unwrap();
            thread::sleep(Duration::from_secs(600));
        }
        other => panic!("what is {other}?"),
    }
}

fn messages_pass_between_processes() {
    let (mut child, mut link) = start("echo");
    let large: Vec<u8> = (0..3_000_000u32).map(|i| (i * 13).to_le_bytes()[1]).collect();
    let mut got = Vec::new();
    for number in 0..2000u64 {
        link.sender.send(0, number, &[&number.to_le_bytes()]).unwrap();
        link.receiver.receive_into(&soon("an echo"), 8, &mut got).unwrap();
        assert_eq!(got, number.to_le_bytes());
    }
    thread::scope(|scope| {
        let sender = &mut link.sender;
        scope.spawn(|| sender.send(1, 0, &[&large]).unwrap());
        link.receiver.receive_into(&soon("the large echo"), 1 << 30, &mut got).unwrap();
    });
    assert!(got == large);
    assert!(child.wait().unwrap().success());
    let error = link.receiver.receive(&soon("more")).unwrap_err();
    assert!(error.is_lost(), "{error}");
}

/// Kills the second process in the middle of sums, wherever that happens to be.
fn a_killed_process_is_named_at_once_in_the_middle_of_a_sum() {
    for delay in [0, 3, 10, 25] {
        let (mut child, link) = start("sum");
        let mut group = Group::new(0, vec![None, Some(link)]);
        let mut buffer = group.buffer(LENGTH, &soon("sharing")).unwrap();
        let mut private = vec![0.0; LENGTH];
        let killer = thread::spawn(move || {
            thread::sleep(Duration::from_millis(delay));
            child.kill().unwrap();
            child.wait().unwrap();
            Instant::now()
        });
        let mut rounds = 0;
        let error = loop {
            buffer.fill(1.0);
            private.fill(1.0);
            if let Err(error) = group.all_reduce(&mut buffer, &soon("the sum")) {
                break error;
            }
            assert!(buffer.iter().all(|sum| *sum == 3.0), "a wrong sum");
            if let Err(error) = group.all_reduce(&mut private, &soon("the sum")) {
                break error;
            }
            let wanted = 1.0 + rounds as f32;
            assert!(private.iter().all(|sum| *sum == wanted), "a wrong sum");
            rounds += 1;
        };
        let noticed = Instant::now();
        let killed = killer.join().unwrap();
        assert!(error.is_lost(), "{error}");
        assert_eq!(error.task(), Some(worker(1)));
        assert!(error.to_string().contains("while the sum"), "{error}");
        // Lost, not out of time: how soon depends on the machine.
        let late = noticed.saturating_duration_since(killed);
        eprintln!("noticed after {late:?}");
    }
}

fn a_killed_process_is_noticed_while_waiting_for_its_message() {
    let (mut child, mut link) = start("wait");
    let killer = thread::spawn(move || {
        thread::sleep(Duration::from_millis(50));
        child.kill().unwrap();
        child.wait().unwrap();
    });
    let error = link.receiver.receive(&soon("a word")).unwrap_err();
    assert!(error.is_lost(), "{error}");
    assert!(error.to_string().contains("worker/1"), "{error}");
    killer.join().unwrap();
}

fn a_killed_process_is_noticed_while_waiting_for_room() {
    let (mut child, mut link) = start("fill");
    let killer = thread::spawn(move || {
        thread::sleep(Duration::from_millis(50));
        child.kill().unwrap();
        child.wait().unwrap();
    });
    let error = link.sender.send(0, 0, &[&vec![0; 8 << 20]]).unwrap_err();
    assert!(error.is_lost(), "{error}");
    killer.join().unwrap();
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let [first, what, address] = &words[..]
        && first == "second"
    {
        return second(what, address);
    }
    let tests: [(&str, fn()); 4] = [
        ("messages_pass_between_processes", messages_pass_between_processes),
        (
            "a_killed_process_is_named_at_once_in_the_middle_of_a_sum",
            a_killed_process_is_named_at_once_in_the_middle_of_a_sum,
        ),
        (
            "a_killed_process_is_noticed_while_waiting_for_its_message",
            a_killed_process_is_noticed_while_waiting_for_its_message,
        ),
        (
            "a_killed_process_is_noticed_while_waiting_for_room",
            a_killed_process_is_noticed_while_waiting_for_room,
        ),
    ];
    if words.iter().any(|word| word == "--list") {
        for (name, _) in tests {
            println!("{name}: test");
        }
        return;
    }
    let filter = words.iter().find(|word| !word.starts_with('-'));
    for (name, test) in tests {
        if filter.is_none_or(|filter| name.contains(filter.as_str())) {
            test();
            println!("test {name} ... ok");
        }
    }
}
