//! One rank's side of every collective: links to all others and the choice of algorithm.

use super::arena::{self, Arena};
use super::buffer::SharedBuffer;
use super::flow::{self, Ends, KIND, Room, Route, check};
use super::local::{Local, Other};
use super::number::{Number, add, bytes, bytes_mut};
use crate::error::LinkError;
use crate::frame::Peer;
use crate::handshake::Offer;
use crate::link::{Link, Wait};
use crate::transport::shared::region::{Owned, Pages, Region};
use std::sync::Arc;

/// Up to this many bytes a tree beats a ring of more than two ranks: fewer steps, each cheap.
pub const SMALL: usize = 64 << 10;
/// A broadcast travels in pieces of this many bytes, so that all levels of the tree work at once.
const PIECE: usize = 1 << 20;
/// With more ranks than this on a machine, entering all pages of all ranks at every rank takes longer than the first steps.
const MANY: usize = 16;

/// Links to all others, and what a call needs besides.
pub(super) struct Core {
    pub(super) rank: usize,
    pub(super) links: Vec<Option<Link>>,
    peers: Vec<Option<Peer>>,
    /// Number of the next collective.
    number: u64,
    room: Room,
    local: Locality,
}

/// Whether all ranks are on one machine and share memory.
enum Locality {
    /// Not determined yet.
    Unknown,
    Apart,
    Together(Box<Local>),
    /// All are ranks of one MPI job, wherever they are.
    #[cfg(feature = "mpi")]
    Mpi(super::mpi::World),
}

impl Core {
    pub(super) fn new(rank: usize, links: Vec<Option<Link>>) -> Self {
        let peer = |link: &Link| Peer { task: link.peer, address: link.address.clone() };
        let peers = links.iter().map(|link| link.as_ref().map(peer)).collect();
        Self { rank, links, peers, number: 0, room: Room::new(), local: Locality::Unknown }
    }

    pub(super) fn size(&self) -> usize {
        self.links.len()
    }

    fn next(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    /// Bytes sent and received so far.
    pub(super) fn traffic(&self) -> (u64, u64) {
        let links = || self.links.iter().flatten();
        let moved = match &self.local {
            Locality::Together(local) => local.moved,
            #[cfg(feature = "mpi")]
            Locality::Mpi(world) => world.moved,
            Locality::Unknown | Locality::Apart => 0,
        };
        let sent: u64 = links().map(|link| link.sender.sent()).sum();
        let received: u64 = links().map(|link| link.receiver.received()).sum();
        (sent + moved, received + moved)
    }

    /// After a failure the ranks cannot get back into lockstep: closes all links, so that the others fail at
    /// once and not at their deadlines.
    pub(super) fn hang_up(&self) {
        #[cfg(feature = "mpi")]
        if matches!(self.local, Locality::Mpi(_)) {
            super::mpi::give_up();
        }
        for link in self.links.iter().flatten() {
            link.closer.close();
        }
    }

    /// Link to another rank.
    fn link(&mut self, to: usize) -> (&mut Link, &Peer) {
        match (&mut self.links[to], &self.peers[to]) {
            (Some(link), Some(peer)) => (link, peer),
            _ => unreachable!("a group has links to all ranks but itself"),
        }
    }

    pub(super) fn all_reduce<T: Number>(
        &mut self,
        data: &mut [T],
        trailer: &mut [f64],
        wait: &Wait<'_>,
    ) -> Result<(), LinkError> {
        let size = self.size();
        if size == 1 {
            return Ok(());
        }
        if let Some(local) = self.local(wait)? {
            return local.all_reduce(data, trailer, wait);
        }
        #[cfg(feature = "mpi")]
        if size_of_val(data) > super::mpi::RIDE && self.mpi().is_some() {
            return self.all_reduce_by_mpi(data, trailer, wait);
        }
        self.over_links(data, trailer, wait)
    }

    /// The same through messages.
    pub(super) fn over_links<T: Number>(
        &mut self,
        data: &mut [T],
        trailer: &mut [f64],
        wait: &Wait<'_>,
    ) -> Result<(), LinkError> {
        let size = self.size();
        let number = self.next();
        if size == 2 {
            let other = 1 - self.rank;
            let (Some(link), Some(peer)) = (&mut self.links[other], &self.peers[other]) else {
                unreachable!("a group has links to all ranks but itself")
            };
            let mut ends = Ends::of(link, peer);
            let route = Route::both(data.len());
            return flow::run(&mut ends, &route, number, data, trailer, &mut self.room, wait);
        }
        if size_of_val(data) <= SMALL {
            self.tree(number, data, wait)?;
        } else {
            self.ring(number, data, wait)?;
        }
        if trailer.is_empty() {
            return Ok(());
        }
        let number = self.next();
        self.tree(number, trailer, wait)
    }

    pub(super) fn all_gather<T: Number>(
        &mut self,
        data: &mut [T],
        lengths: &[usize],
        wait: &Wait<'_>,
    ) -> Result<(), LinkError> {
        let (rank, size) = (self.rank, self.size());
        if size == 1 {
            return Ok(());
        }
        if let Some(local) = self.local(wait)? {
            return local.all_gather(data, lengths, wait);
        }
        let number = self.next();
        let route = Route::gather(rank, lengths);
        self.along(&route, number, data, wait)
    }

    /// In round `r` to the `r`-th rank to the right, while the same comes from the left: no rank waits for one that is not
    /// yet in the round or beyond it.
    pub(super) fn all_to_all<T: Number>(
        &mut self,
        out: &[T],
        lengths: &[usize],
        into: &mut [T],
        wait: &Wait<'_>,
    ) -> Result<(), LinkError> {
        let (rank, size) = (self.rank, self.size());
        let own = lengths[rank];
        let part = |of: usize| {
            let start = lengths[..of].iter().sum::<usize>();
            &out[start..start + lengths[of]]
        };
        into[rank * own..(rank + 1) * own].copy_from_slice(part(rank));
        let mut data = Vec::new();
        for round in 1..size {
            let (to, from) = ((rank + round) % size, (rank + size - round) % size);
            let number = self.next();
            data.clear();
            data.extend_from_slice(part(to));
            data.resize(lengths[to] + own, T::default());
            let route = Route::swap(lengths[to], own);
            self.between(from, to, &route, number, &mut data, wait)?;
            into[from * own..(from + 1) * own].copy_from_slice(&data[lengths[to]..]);
        }
        Ok(())
    }

    /// The group within one machine, if that is what it is. The first call sets it up, together with all
    /// others.
    pub(super) fn local(&mut self, wait: &Wait<'_>) -> Result<Option<&mut Local>, LinkError> {
        if matches!(self.local, Locality::Unknown) {
            self.local = self.settle(wait)?;
        }
        match &mut self.local {
            Locality::Together(local) => Ok(Some(local)),
            _ => Ok(None),
        }
    }

    /// The same without waiting: nothing before the first collective.
    pub(super) fn local_now(&mut self) -> Option<&mut Local> {
        if let Locality::Together(local) = &mut self.local { Some(local) } else { None }
    }

    /// The MPI job, if the ranks of the group are its ranks.
    #[cfg(feature = "mpi")]
    pub(super) fn mpi(&mut self) -> Option<&mut super::mpi::World> {
        if let Locality::Mpi(world) = &mut self.local { Some(world) } else { None }
    }

    /// The same, to look at.
    #[cfg(feature = "mpi")]
    pub(super) fn mpi_now(&self) -> Option<&super::mpi::World> {
        if let Locality::Mpi(world) = &self.local { Some(world) } else { None }
    }

    /// An error with the name of a rank that has closed its link or died, if there is one; nothing is read.
    #[cfg(feature = "mpi")]
    pub(super) fn gone(&self, wait: &Wait<'_>) -> Option<LinkError> {
        let links = self.links.iter().zip(&self.peers);
        links.flat_map(|(link, peer)| link.as_ref().zip(peer.as_ref())).find_map(|(link, peer)| {
            let state = match (&link.pair, link.receiver.socket()) {
                (Some(pair), _) => pair.check(),
                (None, Some(socket)) => crate::transport::tcp::check(socket),
                (None, None) => Ok(()), // threads of one process, which end together
            };
            state.err().map(|cause| peer.lost(wait.phase, cause))
        })
    }

    /// Any other rank, for errors that concern all of them.
    #[cfg(feature = "mpi")]
    pub(super) fn some_peer(&self) -> &Peer {
        self.peers.iter().flatten().next().expect("a group that sums has other ranks")
    }

    fn settle(&mut self, wait: &Wait<'_>) -> Result<Locality, LinkError> {
        #[cfg(feature = "mpi")]
        if let Some(world) = self.join_mpi(wait)? {
            return Ok(Locality::Mpi(world));
        }
        let together = self.size() > 1 && self.links.iter().flatten().all(Link::shares_memory);
        if !together {
            return Ok(Locality::Apart);
        }
        let Some(mut regions) = self.share(arena::BYTES, wait)? else {
            return Ok(Locality::Apart);
        };
        let own = Arena(regions.remove(self.rank));
        let me = self.rank;
        let ranks = (0..self.size()).filter(|rank| *rank != me);
        let mut others = Vec::new();
        for (rank, region) in ranks.zip(regions) {
            let (link, peer) = self.link(rank);
            let Some(pair) = link.pair.clone() else { return Ok(Locality::Apart) };
            others.push(Other { rank, peer: peer.clone(), pair, arena: Arena(region) });
        }
        Ok(Locality::Together(Box::new(Local::new(self.rank, own, others))))
    }

    /// Allocates that many bytes of shared memory at every rank and maps those of all ranks, in order of rank. `None` if
    /// any rank failed.
    fn share(&mut self, bytes: usize, wait: &Wait<'_>) -> Result<Option<Vec<Region>>, LinkError> {
        let number = self.next();
        let pages = if self.size() > MANY { Pages::WhenUsed } else { Pages::AtOnce };
        let own = Region::create(bytes, pages).ok();
        let offer = serde_json::to_vec(&own.as_ref().map(Owned::offer));
        let offer = offer.expect("an offer is plain data");
        let ranks: Vec<usize> = (0..self.size()).filter(|rank| *rank != self.rank).collect();
        for rank in &ranks {
            self.send(*rank, number, &offer)?;
        }
        let mut regions = Vec::new();
        for rank in &ranks {
            let mut theirs = Vec::new();
            let (link, peer) = self.link(*rank);
            let head = link.receiver.receive_into(wait, 1024, &mut theirs)?;
            check(&head, number, head.length, peer)?;
            let offer: Option<Offer> = serde_json::from_slice(&theirs)
                .map_err(|_| peer.protocol("something else", "an offer of memory"))?;
            regions.push(offer.and_then(|offer| Region::open(&offer, bytes, pages).ok()));
        }
        // Used only if every rank has mapped the memory of all ranks.
        let number = self.next();
        let mut fine = own.is_some() && regions.iter().all(Option::is_some);
        for rank in &ranks {
            self.send(*rank, number, &[u8::from(fine)])?;
        }
        for rank in &ranks {
            let mut word = [0];
            self.receive(*rank, number, &mut word, wait)?;
            fine &= word[0] == 1;
        }
        let (Some(own), true) = (own, fine) else { return Ok(None) };
        let mut regions: Vec<Region> = regions.into_iter().flatten().collect();
        regions.insert(self.rank, own.region);
        Ok(Some(regions))
    }

    /// A buffer that the other ranks of the machine can see; ordinary memory where they cannot.
    pub(super) fn buffer(
        &mut self,
        length: usize,
        wait: &Wait<'_>,
    ) -> Result<SharedBuffer, LinkError> {
        if length == 0 || self.size() == 1 || self.local(wait)?.is_none() {
            return Ok(SharedBuffer::own(length));
        }
        let Some(regions) = self.share(length * 4, wait)? else {
            return Ok(SharedBuffer::own(length));
        };
        let regions: Vec<Arc<Region>> = regions.into_iter().map(Arc::new).collect();
        let buffer = SharedBuffer::shared(Arc::clone(&regions[self.rank]), length);
        if let Some(local) = self.local_now() {
            local.register(regions, length * 4);
        }
        Ok(buffer)
    }

    fn ring<T: Number>(
        &mut self,
        number: u64,
        data: &mut [T],
        wait: &Wait<'_>,
    ) -> Result<(), LinkError> {
        let route = Route::ring(self.rank, self.size(), data.len());
        self.along(&route, number, data, wait)
    }

    /// To the right what the route says, while the same comes from the left.
    fn along<T: Number>(
        &mut self,
        route: &Route,
        number: u64,
        data: &mut [T],
        wait: &Wait<'_>,
    ) -> Result<(), LinkError> {
        let (rank, size) = (self.rank, self.size());
        let (left, right) = ((rank + size - 1) % size, (rank + 1) % size);
        self.between(left, right, route, number, data, wait)
    }

    /// To one rank what the route says, while the same comes from another, or from the same one.
    fn between<T: Number>(
        &mut self,
        left: usize,
        right: usize,
        route: &Route,
        number: u64,
        data: &mut [T],
        wait: &Wait<'_>,
    ) -> Result<(), LinkError> {
        let (Some(from_peer), Some(to_peer)) = (&self.peers[left], &self.peers[right]) else {
            unreachable!("a group has links to all ranks but itself")
        };
        let mut ends = if left == right {
            let Some(link) = &mut self.links[left] else {
                unreachable!("a group has links to all ranks but itself")
            };
            Ends::of(link, to_peer)
        } else {
            let [Some(from), Some(to)] = self
                .links
                .get_disjoint_mut([left, right])
                .expect("left and right differ with three ranks or more")
            else {
                unreachable!("a group has links to all ranks but itself")
            };
            Ends { to: &mut *to.sender, from: &mut *from.receiver, to_peer, from_peer }
        };
        flow::run(&mut ends, route, number, data, &mut [], &mut self.room, wait)
    }

    /// Adds up along a binomial tree to rank 0 and sends the sums back the same way.
    fn tree<T: Number>(
        &mut self,
        number: u64,
        data: &mut [T],
        wait: &Wait<'_>,
    ) -> Result<(), LinkError> {
        let (rank, size) = (self.rank, self.size());
        let mut other = vec![T::default(); data.len()];
        let mut step = 1;
        while step < size && rank & step == 0 {
            if rank + step < size {
                self.receive(rank + step, number, bytes_mut(&mut other), wait)?;
                add(data, &other);
            }
            step *= 2;
        }
        if rank > 0 {
            self.send(rank - step, number, bytes(data))?;
            self.receive(rank - step, number, bytes_mut(data), wait)?;
        }
        while step > 1 {
            step /= 2;
            if rank + step < size {
                self.send(rank + step, number, bytes(data))?;
            }
        }
        Ok(())
    }

    pub(super) fn broadcast(
        &mut self,
        root: usize,
        data: &mut [u8],
        wait: &Wait<'_>,
    ) -> Result<(), LinkError> {
        let size = self.size();
        // Ranks as seen from the root, so that the tree hangs from it.
        let place = (self.rank + size - root) % size;
        let real = |place: usize| (place + root) % size;
        // The lowest set bit tells the parent; below it are the children.
        let top = if place == 0 { size.next_power_of_two() } else { place & place.wrapping_neg() };
        for piece in pieces(data) {
            let number = self.next();
            if place > 0 {
                self.receive(real(place - top), number, piece, wait)?;
            }
            let mut step = top / 2;
            while step > 0 {
                if place + step < size {
                    self.send(real(place + step), number, piece)?;
                }
                step /= 2;
            }
        }
        Ok(())
    }

    pub(super) fn gather(
        &mut self,
        root: usize,
        data: &[u8],
        most: u64,
        wait: &Wait<'_>,
    ) -> Result<Option<Vec<Vec<u8>>>, LinkError> {
        let number = self.next();
        if self.rank != root {
            self.send(root, number, data)?;
            return Ok(None);
        }
        let mut all = Vec::with_capacity(self.size());
        for from in 0..self.size() {
            let mut one = Vec::new();
            if from == root {
                one.extend_from_slice(data);
            } else {
                let (link, peer) = self.link(from);
                let head = link.receiver.receive_into(wait, most, &mut one)?;
                check(&head, number, head.length, peer)?;
            }
            all.push(one);
        }
        Ok(Some(all))
    }

    fn send(&mut self, to: usize, number: u64, data: &[u8]) -> Result<(), LinkError> {
        self.link(to).0.sender.send(KIND, number, &[data])
    }

    fn receive(
        &mut self,
        from: usize,
        number: u64,
        into: &mut [u8],
        wait: &Wait<'_>,
    ) -> Result<(), LinkError> {
        let (link, peer) = self.link(from);
        let head = link.receiver.receive(wait)?;
        check(&head, number, into.len() as u64, peer)?;
        link.receiver.read(into)
    }
}

/// The pieces of a broadcast; an empty one is still a message, so that it also synchronises.
fn pieces(data: &mut [u8]) -> impl Iterator<Item = &mut [u8]> {
    let count = data.len().div_ceil(PIECE).max(1);
    let mut rest = Some(data);
    (0..count).map(move |_| {
        let data = rest.take().unwrap_or_default();
        let (piece, after) = data.split_at_mut(data.len().min(PIECE));
        rest = Some(after);
        piece
    })
}
