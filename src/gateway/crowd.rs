//! How many requests this gateway has at once, and how many bytes of their bodies: what is beyond is refused before it is read.
//!
//! Neighbours: [`super::Gateway::handle`] and [`super::Gateway::place_for_forward`] take a place per request, [`super::admit`] makes room for its body. A
//! place is kept by whatever keeps the request: its task, which goes on when the client hangs up, and its answer's body. Clients and peers have
//! places of their own, so that neither shuts the other out. It must not wait: a queue would only be one more thing to bound.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt;

use super::ending::jittered;
use super::problems::Problem;
use super::{Gateway, metrics};
use crate::ports::{Body, BodyError, Ports};

/// When to ask again, about.
const SOON: Duration = Duration::from_secs(1);

/// The most that a gateway has at once: so much of its clients, and as much again of its peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MostAtOnce {
    /// Requests.
    pub requests: usize,
    /// Bytes of their bodies: as announced while they are read, or as large as the route allows.
    pub bodies: usize,
}

impl Default for MostAtOnce {
    fn default() -> Self {
        Self { requests: 4_000, bodies: 256 << 20 }
    }
}

/// Who sent a request here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whose {
    /// A client.
    Client,
    /// Another region, which forwarded it.
    Peer,
}

impl Whose {
    /// The word for metrics.
    pub(super) fn word(self) -> &'static str {
        match self {
            Whose::Client => "clients",
            Whose::Peer => "peers",
        }
    }
}

/// All requests of a gateway.
#[derive(Debug, Default)]
pub(super) struct Crowd {
    clients: Count,
    peers: Count,
}

#[derive(Debug, Default)]
struct Count {
    requests: AtomicUsize,
    bodies: AtomicUsize,
}

/// One request's place; free again when the last copy is dropped.
#[derive(Clone, Debug)]
pub struct Place(Arc<Taken>);

#[derive(Debug)]
struct Taken {
    crowd: Arc<Crowd>,
    whose: Whose,
    most: MostAtOnce,
    body: AtomicUsize,
}

impl<P: Ports> Gateway<P> {
    /// A place for one more request, or the refusal of it.
    pub(super) fn place(&self, whose: Whose) -> Result<Place, Problem> {
        let most = self.live.load().most_at_once;
        self.crowd.place(whose, most).ok_or_else(|| overloaded(self))
    }
}

/// The refusal of a request that there is no room for.
pub(super) fn overloaded<P: Ports>(gateway: &Gateway<P>) -> Problem {
    Problem::Overloaded { after: jittered(gateway, SOON) }
}

impl Crowd {
    /// A place for one more request, unless there are as many as may be.
    pub(super) fn place(self: &Arc<Self>, whose: Whose, most: MostAtOnce) -> Option<Place> {
        let requests = &self.of(whose).requests;
        let there = requests.fetch_add(1, Ordering::SeqCst);
        if there >= most.requests {
            requests.fetch_sub(1, Ordering::SeqCst);
            return None;
        }
        metrics::request_came(whose);
        Some(Place(Arc::new(Taken { crowd: self.clone(), whose, most, body: AtomicUsize::new(0) })))
    }

    fn of(&self, whose: Whose) -> &Count {
        match whose {
            Whose::Client => &self.clients,
            Whose::Peer => &self.peers,
        }
    }
}

impl Place {
    /// Makes room for the request's body, of this many bytes instead of what was said before. `false`: there is none. For fewer bytes than were said
    /// there always is.
    pub(super) fn has_room_for(&self, bytes: usize) -> bool {
        let (bodies, most) = (&self.0.crowd.of(self.0.whose).bodies, self.0.most.bodies);
        let before = self.0.body.load(Ordering::SeqCst);
        // One step, so that whoever finds no room takes none from others meanwhile.
        let room = bodies.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |there| {
            let after = there - before + bytes;
            (bytes <= before || after <= most).then_some(after)
        });
        if room.is_ok() {
            self.0.body.store(bytes, Ordering::SeqCst);
        }
        room.is_ok()
    }

    /// The answer's body keeps the place until its last piece was handed on, or it was given up.
    pub(super) fn until_sent(self, body: Body) -> Body {
        Placed { body, _place: self }.boxed_unsync()
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        let count = self.crowd.of(self.whose);
        count.bodies.fetch_sub(*self.body.get_mut(), Ordering::SeqCst);
        count.requests.fetch_sub(1, Ordering::SeqCst);
        metrics::request_left(self.whose);
    }
}

/// An answer's body that keeps its request's place.
struct Placed {
    body: Body,
    _place: Place,
}

impl http_body::Body for Placed {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use http_body::Body as _;

    use super::*;
    use crate::ports::body::full;

    const FEW: MostAtOnce = MostAtOnce { requests: 2, bodies: 100 };

    #[test]
    fn clients_and_peers_have_places_of_their_own_and_get_them_back() {
        let crowd = Arc::new(Crowd::default());
        let first = crowd.place(Whose::Client, FEW).unwrap();
        let second = crowd.place(Whose::Client, FEW).unwrap();
        assert!(crowd.place(Whose::Client, FEW).is_none());
        let peers = crowd.place(Whose::Peer, FEW).unwrap();
        let sent = second.clone().until_sent(full("an answer"));
        drop(second);
        assert!(crowd.place(Whose::Client, FEW).is_none(), "the answer is still being sent");
        assert_eq!(sent.size_hint().exact(), Some(9));
        drop(sent);
        let third = crowd.place(Whose::Client, FEW).unwrap();
        drop((first, third, peers));
        for whose in [Whose::Client, Whose::Peer] {
            assert_eq!(crowd.of(whose).requests.load(Ordering::SeqCst), 0);
        }
    }

    #[test]
    fn bodies_have_as_much_room_as_there_is_and_give_it_back() {
        let crowd = Arc::new(Crowd::default());
        let first = crowd.place(Whose::Client, FEW).unwrap();
        let second = crowd.place(Whose::Client, FEW).unwrap();
        assert!(first.has_room_for(90));
        assert!(!second.has_room_for(11), "it was told so before it was read");
        assert!(crowd.place(Whose::Peer, FEW).unwrap().has_room_for(100), "peers have room of their own");
        assert!(first.has_room_for(95), "its own room counts once");
        assert!(first.has_room_for(20), "less was sent than announced");
        assert!(second.has_room_for(80));
        assert!(!first.has_room_for(21));
        let raised = crowd.place(Whose::Client, MostAtOnce { requests: 3, bodies: 1_000 }).unwrap();
        assert!(raised.has_room_for(500), "it came after a reload");
        assert!(second.has_room_for(80) && second.has_room_for(79), "what there was room for, there is");
        assert!(!second.has_room_for(81));
        drop((first, second, raised));
        assert_eq!(crowd.of(Whose::Client).bodies.load(Ordering::SeqCst), 0);
    }
}
