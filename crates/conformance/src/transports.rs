//! Every kind of link that may join two tasks.

use paceline_cluster::membership::Carrier;
use paceline_wire::{
    Channel, ClusterKey, Endpoint, Identity, Link, Purpose, Security, TaskId, Wait,
};
use std::time::Duration;

/// One kind of link.
#[derive(Debug)]
pub struct Transport {
    /// What [`Link::carrier`] says.
    pub name: &'static str,
    carrier: fn() -> Carrier,
}

/// Every kind of link.
pub const TRANSPORTS: &[Transport] = &[
    Transport { name: "memory", carrier: || Carrier::new(paceline_wire::pair) },
    Transport { name: "shared memory", carrier: || over_sockets(Security::Plain, true) },
    Transport { name: "tcp", carrier: || over_sockets(Security::Plain, false) },
    Transport { name: "tls", carrier: || over_sockets(Security::Tls, false) },
];

impl Transport {
    /// Makes links of this kind.
    #[must_use]
    pub fn carrier(&self) -> Carrier {
        let (name, inner) = (self.name, (self.carrier)());
        Carrier::new(move |a, b| {
            let (near, far) = inner.link(a, b);
            assert_eq!((near.carrier, far.carrier), (name, name), "another kind of link");
            (near, far)
        })
    }
}

/// Two endpoints on this machine, one dials and the other accepts.
fn over_sockets(security: Security, shared_memory: bool) -> Carrier {
    let key = ClusterKey::generate().unwrap();
    Carrier::new(move |a, b| {
        let bind = |me: TaskId| {
            let identity = Identity {
                me,
                run: "conformance".into(),
                version: "1".into(),
                plan: [0; 32],
                key: key.clone(),
                security,
                shared_memory,
            };
            Endpoint::bind(identity, "127.0.0.1:0").unwrap()
        };
        let (near, far) = (bind(a), bind(b));
        let wait = Wait::within(Duration::from_secs(900), "joining two tasks");
        let purpose = Purpose::Data { generation: 0, channel: Channel::AllReduce };
        let dialled: Link = near.dial(b, &far.address().to_string(), purpose, &wait).unwrap();
        let (_, accepted) = far.accept(&wait).unwrap();
        (dialled, accepted)
    })
}
