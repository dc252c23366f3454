//! The endpoints of an upstream: the addresses of its names, and the choice for the next request.
//!
//! Names are asked again in the background, and a failing resolver takes nothing away for a minute.
//! An endpoint that no connection can be made to is out until a dial in the background brings it
//! back. No request waits for a trial, and no answer puts an endpoint out: it may be about the
//! request.

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arc_swap::ArcSwap;
use http::HeaderValue;
use rustls::pki_types::ServerName;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use super::idle::Idle;
use super::verdict::Failure;
use crate::adapters::system::lock;

/// Time for which a name's last addresses count while its resolver fails.
const KEPT: Duration = Duration::from_secs(60);
/// Longest wait for a resolver.
const LOOKUP: Duration = Duration::from_secs(5);
/// Time without a new question after nothing was found at all.
const NOTHING: Duration = Duration::from_secs(1);
/// Most addresses of one upstream.
const MOST: usize = 64;
/// The first time that an endpoint is out, and the longest.
const OUT: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));
/// Time for which a failure counts as one more request: an endpoint failing fast draws none.
const BLAMED_FOR: Duration = Duration::from_secs(5);
/// Most failures that count.
const MOST_BLAMED: usize = 4_096;

/// One configured address of an upstream.
#[derive(Clone, Debug)]
pub struct Target {
    pub host: String,
    pub port: u16,
    /// The `Host` header for it.
    pub authority: HeaderValue,
    /// The name that its certificate must have; `None` for plain HTTP.
    pub tls: Option<ServerName<'static>>,
}

impl Target {
    fn literal(&self) -> Option<SocketAddr> {
        let bare = self.host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(&self.host);
        bare.parse::<IpAddr>().ok().map(|ip| SocketAddr::new(ip, self.port))
    }
}

pub type Found = Pin<Box<dyn Future<Output = io::Result<Vec<SocketAddr>>> + Send>>;
pub type Lookup = fn(String, u16) -> Found;

pub fn system(host: String, port: u16) -> Found {
    Box::pin(async move { Ok(tokio::net::lookup_host((host, port)).await?.collect()) })
}

pub struct Endpoint {
    pub target: Arc<Target>,
    pub address: SocketAddr,
    pub idle: Arc<Mutex<Idle>>,
    /// Requests under way.
    busy: AtomicUsize,
    /// Number of entries of `blamed`, so that an endpoint without failures is read without a lock.
    faults: AtomicUsize,
    /// Moments at which recent failures stop counting.
    blamed: Mutex<VecDeque<Instant>>,
    is_out: AtomicBool,
    out: Mutex<Option<Out>>,
}

struct Out {
    /// The next trial.
    until: Instant,
    span: Duration,
    trying: bool,
}

impl fmt::Display for Endpoint {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.target.literal() {
            Some(address) => write!(out, "{address}"),
            None => write!(out, "{} ({})", self.target.host, self.address),
        }
    }
}

impl Endpoint {
    fn new(target: Arc<Target>, address: SocketAddr) -> Self {
        Self {
            target,
            address,
            idle: Arc::default(),
            busy: AtomicUsize::new(0),
            faults: AtomicUsize::new(0),
            blamed: Mutex::default(),
            is_out: AtomicBool::new(false),
            out: Mutex::new(None),
        }
    }

    pub fn is_out(&self) -> bool {
        self.is_out.load(Ordering::Relaxed)
    }

    fn load(&self, now: Instant) -> usize {
        let busy = self.busy.load(Ordering::Relaxed);
        if self.faults.load(Ordering::Relaxed) == 0 {
            return busy;
        }
        let mut blamed = lock(&self.blamed);
        while blamed.pop_front_if(|until| *until <= now).is_some() {}
        self.faults.store(blamed.len(), Ordering::Relaxed);
        busy + blamed.len()
    }

    fn blame(&self, now: Instant) {
        let mut blamed = lock(&self.blamed);
        if blamed.len() < MOST_BLAMED {
            blamed.push_back(now + BLAMED_FOR);
        }
        self.faults.store(blamed.len(), Ordering::Relaxed);
    }

    /// Puts it out after a failed dial: longer than the last time, if that was a trial.
    pub fn failed(&self, now: Instant, why: &str) {
        let mut out = lock(&self.out);
        let span = match &*out {
            None => {
                tracing::warn!(endpoint = %self, why, "an endpoint of the upstream is out: no connection to it");
                OUT.0
            }
            Some(before) if before.trying || before.until <= now => (before.span * 2).min(OUT.1),
            Some(before) => before.span,
        };
        *out = Some(Out { until: now + span, span, trying: false });
        self.is_out.store(true, Ordering::Relaxed);
    }

    /// Takes it in: a connection was made.
    pub fn connected(&self) {
        if !self.is_out() {
            return;
        }
        let mut out = lock(&self.out);
        self.is_out.store(false, Ordering::Relaxed);
        if out.take().is_some() {
            tracing::info!(endpoint = %self, "an endpoint of the upstream is back");
        }
    }

    /// True if a trial is due, which the caller begins now. The next one is due even if this one
    /// ends without a word.
    fn begins_trial(&self, now: Instant) -> bool {
        let mut out = lock(&self.out);
        let due = out.as_mut().filter(|out| out.until <= now);
        due.map(|out| (out.until, out.trying) = (now + OUT.1, true)).is_some()
    }
}

/// The place of one request at its endpoint.
pub struct Turn(pub Arc<Endpoint>);

impl Turn {
    fn take(endpoint: &Arc<Endpoint>, most: usize) -> Option<Self> {
        let before = endpoint.busy.fetch_add(1, Ordering::Relaxed);
        let turn = Self(endpoint.clone());
        (before < most).then_some(turn)
    }

    /// Idle connections that may stay beside one more, if the endpoint has `most` in all.
    pub fn spare(&self, most: usize) -> usize {
        most.saturating_sub(self.0.busy.load(Ordering::Relaxed))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.busy.fetch_sub(1, Ordering::Relaxed);
    }
}

#[derive(Clone, Debug)]
struct Answer {
    addresses: Vec<SocketAddr>,
    /// Moment of the resolver's answer; `None` for a literal address, which stays.
    at: Option<Instant>,
}

#[derive(Default)]
struct Known {
    endpoints: Vec<Arc<Endpoint>>,
    answers: Vec<Option<Answer>>,
    /// Moment of the last question; `None` before the first one.
    asked: Option<Instant>,
    trouble: Option<String>,
}

pub struct Endpoints {
    targets: Vec<Arc<Target>>,
    every: Duration,
    lookup: Lookup,
    known: ArcSwap<Known>,
    /// Held while what is known is replaced.
    replacing: Mutex<()>,
    asking: AtomicBool,
    asked: Notify,
}

/// The endpoints that one request may go to.
pub struct Choice {
    known: Arc<Known>,
    /// One bit for each endpoint that was tried.
    tried: u64,
}

impl Endpoints {
    pub fn new(targets: Vec<Target>, every: Duration, lookup: Lookup) -> Self {
        let targets: Vec<Arc<Target>> = targets.into_iter().map(Arc::new).collect();
        let literal = |target: &Arc<Target>| {
            target.literal().map(|address| Answer { addresses: vec![address], at: None })
        };
        let answers: Vec<Option<Answer>> = targets.iter().map(literal).collect();
        let known = merged(&targets, &[], Known { answers, ..Known::default() });
        Self {
            targets,
            every,
            lookup,
            known: ArcSwap::from_pointee(known),
            replacing: Mutex::default(),
            asking: AtomicBool::new(false),
            asked: Notify::new(),
        }
    }

    /// The endpoints as they are known now; `None` if [`Endpoints::choice`] has more to do.
    pub fn known(&self, now: Instant) -> Option<Choice> {
        let known = self.known.load_full();
        let is_known = !known.is_over(now) && !known.is_due(now, self.every) && !known.endpoints.is_empty();
        is_known.then_some(Choice { known, tried: 0 })
    }

    /// The endpoints as they are known now. Waits only if no address is known, or none that counts
    /// still. Fails with `NoAddress`.
    pub async fn choice(self: &Arc<Self>, now: Instant) -> Result<Choice, Failure> {
        let mut known = self.known.load_full();
        if known.is_over(now) {
            // Nobody is sent to where the service was long ago.
            known = self.replace(|before| Known {
                answers: before.answers_at(now),
                asked: before.asked,
                trouble: before.trouble.clone(),
                ..Known::default()
            });
        }
        if known.is_due(now, self.every) {
            let asked = self.asked.notified();
            let mut asked = pin!(asked);
            asked.as_mut().enable();
            if !self.asking.swap(true, Ordering::AcqRel) {
                let asking = Asking(self.clone());
                tokio::spawn(async move { ask(&asking).await });
            }
            if known.endpoints.is_empty() {
                asked.await;
                known = self.known.load_full();
            }
        }
        if known.endpoints.is_empty() {
            let why = known.trouble.clone().unwrap_or_else(|| "its name has no address".to_owned());
            return Err(Failure::NoAddress(why));
        }
        Ok(Choice { known, tried: 0 })
    }

    fn replace(&self, next: impl FnOnce(&Known) -> Known) -> Arc<Known> {
        let _one = lock(&self.replacing);
        let before = self.known.load_full();
        let known = Arc::new(merged(&self.targets, &before.endpoints, next(&before)));
        let stays = |one: &Arc<Endpoint>| known.endpoints.iter().any(|kept| Arc::ptr_eq(one, kept));
        for gone in before.endpoints.iter().filter(|one| !stays(one)) {
            lock(&gone.idle).retire();
        }
        self.known.store(known.clone());
        known
    }
}

/// The one task that asks; whoever waits for it is told of its end, whatever that is.
struct Asking(Arc<Endpoints>);

impl Drop for Asking {
    fn drop(&mut self) {
        self.0.asking.store(false, Ordering::Release);
        self.0.asked.notify_waiters();
    }
}

/// Asks for all names at once, in a task: a request that gives up ends no question of others.
async fn ask(Asking(endpoints): &Asking) {
    let one = |target: &Arc<Target>| {
        let looked_up =
            target.literal().is_none().then(|| (endpoints.lookup)(target.host.clone(), target.port));
        looked_up.map(|looked_up| tokio::spawn(timeout(LOOKUP, looked_up)))
    };
    let pending: Vec<_> = endpoints.targets.iter().map(one).collect();
    let mut found = Vec::with_capacity(pending.len());
    for looked_up in pending {
        found.push(match looked_up {
            None => None,
            Some(looked_up) => Some(match looked_up.await {
                Ok(Ok(Ok(addresses))) if addresses.is_empty() => Err("the name has no address".to_owned()),
                Ok(Ok(Ok(addresses))) => Ok(addresses),
                Ok(Ok(Err(error))) => Err(error.to_string()),
                Ok(Err(_)) | Err(_) => Err("the resolver does not answer".to_owned()),
            }),
        });
    }
    let now = Instant::now();
    endpoints.replace(|before| {
        let (mut answers, mut trouble) = (before.answers_at(now), None);
        for ((target, answer), found) in endpoints.targets.iter().zip(&mut answers).zip(found) {
            match found {
                None => {}
                Some(Ok(addresses)) => *answer = Some(Answer { addresses, at: Some(now) }),
                Some(Err(why)) => trouble = Some(format!("look up {}: {why}", target.host)),
            }
        }
        if let (Some(why), None) = (&trouble, &before.trouble) {
            tracing::warn!(
                why,
                "an upstream's name cannot be looked up: its last addresses are kept for 60 s"
            );
        }
        Known { answers, asked: Some(now), trouble, ..Known::default() }
    });
}

impl Answer {
    fn is_over(&self, now: Instant) -> bool {
        self.at.is_some_and(|at| at + KEPT <= now)
    }
}

impl Known {
    fn is_over(&self, now: Instant) -> bool {
        self.answers.iter().flatten().any(|answer| answer.is_over(now))
    }

    fn answers_at(&self, now: Instant) -> Vec<Option<Answer>> {
        let counts = |answer: &Option<Answer>| answer.clone().filter(|answer| !answer.is_over(now));
        self.answers.iter().map(counts).collect()
    }

    fn is_due(&self, now: Instant, every: Duration) -> bool {
        let is_named = |answer: &Option<Answer>| answer.as_ref().is_none_or(|answer| answer.at.is_some());
        let every = if self.endpoints.is_empty() { NOTHING } else { every };
        self.answers.iter().any(is_named) && self.asked.is_none_or(|asked| now >= asked + every)
    }
}

/// Adds the endpoints, and keeps what is known of those that stay.
fn merged(targets: &[Arc<Target>], before: &[Arc<Endpoint>], mut next: Known) -> Known {
    for (target, answer) in targets.iter().zip(&next.answers) {
        for address in answer.iter().flat_map(|answer| &answer.addresses) {
            let is = |one: &&Arc<Endpoint>| Arc::ptr_eq(&one.target, target) && one.address == *address;
            if next.endpoints.len() < MOST && !next.endpoints.iter().any(|one| is(&one)) {
                let known = before.iter().find(is).cloned();
                next.endpoints.push(known.unwrap_or_else(|| Endpoint::new(target.clone(), *address).into()));
            }
        }
    }
    next
}

impl Choice {
    /// The place for this request at the next endpoint: of two drawn at random the less busy one,
    /// first among those that are in. `None` if all were tried, or have `most` requests.
    pub fn next(&mut self, most: usize, now: Instant) -> Option<Turn> {
        let endpoints = &self.known.endpoints;
        loop {
            // One look at each: an endpoint may go out or come back meanwhile.
            let (mut well, mut out) = (0_u64, 0_u64);
            for (at, endpoint) in endpoints.iter().enumerate().filter(|(at, _)| self.tried & (1 << at) == 0) {
                *(if endpoint.is_out() { &mut out } else { &mut well }) |= 1 << at;
            }
            let left = if well == 0 { out } else { well };
            let nth = |nth: u32| (0..nth).fold(left, |left, _| left & (left - 1)).trailing_zeros() as usize;
            let at = match left.count_ones() {
                0 => return None,
                1 => nth(0),
                count => {
                    let first = rand::random_range(0..count);
                    let second = (first + rand::random_range(1..count)) % count;
                    let (first, second) = (nth(first), nth(second));
                    if endpoints[first].load(now) <= endpoints[second].load(now) { first } else { second }
                }
            };
            self.tried |= 1 << at;
            if let Some(turn) = Turn::take(&endpoints[at], most) {
                return Some(turn);
            }
        }
    }

    pub fn has_more(&self) -> bool {
        (self.tried.count_ones() as usize) < self.known.endpoints.len()
    }

    /// Counts a failure against the endpoint for a while: an outcome that is not known, an answer
    /// that is late, or a 5xx. Without another endpoint there is nothing to choose.
    pub fn blame(&self, turn: &Turn) {
        if self.known.endpoints.len() > 1 {
            turn.0.blame(Instant::now());
        }
    }

    /// Puts an endpoint out that no connection was made to, unless there is no other.
    pub fn failed(&self, turn: &Turn, why: &str) {
        if self.known.endpoints.len() > 1 {
            turn.0.failed(Instant::now(), why);
        }
    }

    /// The endpoints that are to be tried in the background now.
    pub fn trials(&self, now: Instant) -> impl Iterator<Item = &Arc<Endpoint>> {
        let others = self.known.endpoints.iter().filter(|_| self.known.endpoints.len() > 1);
        others.filter(move |one| one.is_out() && one.begins_trial(now))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use tokio::time::sleep;

    use super::*;

    /// Answers of the resolver by host; a host that is not here fails.
    static NAMES: Mutex<BTreeMap<String, Vec<u8>>> = Mutex::new(BTreeMap::new());

    fn scripted(host: String, port: u16) -> Found {
        let known = lock(&NAMES).get(&host).cloned();
        let found = known.ok_or_else(|| io::Error::other("no such name"));
        Box::pin(async move {
            let address = |last| SocketAddr::new([127, 0, 0, last].into(), port);
            Ok(found?.into_iter().map(address).collect())
        })
    }

    fn says(host: &str, addresses: &[u8]) {
        lock(&NAMES).insert(host.to_owned(), addresses.to_vec());
    }

    fn of(hosts: &[&str], lookup: Lookup) -> Arc<Endpoints> {
        let target = |host: &&str| Target {
            host: (*host).to_owned(),
            port: 1,
            authority: HeaderValue::from_static("a"),
            tls: None,
        };
        Arc::new(Endpoints::new(hosts.iter().map(target).collect(), Duration::from_secs(5), lookup))
    }

    /// The last bytes of the addresses that a request may go to, in order.
    async fn known(endpoints: &Arc<Endpoints>) -> Vec<u8> {
        let Ok(mut choice) = endpoints.choice(Instant::now()).await else { return Vec::new() };
        let turns = std::iter::from_fn(|| choice.next(1, Instant::now()));
        let mut last: Vec<u8> = turns
            .map(|turn| match turn.0.address.ip() {
                IpAddr::V4(ip) => ip.octets()[3],
                IpAddr::V6(_) => 0,
            })
            .collect();
        last.sort_unstable();
        last
    }

    #[tokio::test(start_paused = true)]
    async fn names_resolve_in_the_background_and_stay_cached() {
        let endpoints = of(&["changes"], scripted);
        assert_eq!(known(&endpoints).await, [0; 0], "no such name yet");
        says("changes", &[1, 2]);
        assert_eq!(known(&endpoints).await, [0; 0], "asked a moment ago");
        sleep(NOTHING).await;
        assert_eq!(known(&endpoints).await, [1, 2]);
        says("changes", &[2, 3]);
        sleep(Duration::from_secs(4)).await;
        assert_eq!(known(&endpoints).await, [1, 2], "not due yet");
        sleep(Duration::from_secs(1)).await;
        assert_eq!(known(&endpoints).await, [1, 2], "nobody waits for the question");
        sleep(Duration::from_millis(1)).await;
        assert_eq!(known(&endpoints).await, [2, 3]);
        lock(&NAMES).remove("changes");
        for _ in 0..11 {
            sleep(Duration::from_secs(5)).await;
            assert_eq!(known(&endpoints).await, [2, 3]);
        }
        sleep(Duration::from_secs(6)).await;
        assert_eq!(known(&endpoints).await, [0; 0], "a minute later");
        // After a long pause nobody is sent to where the service was long ago.
        says("changes", &[4]);
        sleep(NOTHING).await;
        assert_eq!(known(&endpoints).await, [4]);
        says("changes", &[5]);
        sleep(KEPT).await;
        assert_eq!(known(&endpoints).await, [5]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_name_that_fails_takes_nothing_from_the_others() {
        says("well", &[7]);
        let endpoints = of(&["127.0.0.9", "well", "ill"], scripted);
        assert_eq!(known(&endpoints).await, [9], "nobody waits while there is an address");
        sleep(Duration::from_millis(1)).await;
        assert_eq!(known(&endpoints).await, [7, 9]);
        let literal = of(&["127.0.0.9", "[::1]"], scripted);
        assert_eq!(known(&literal).await, [0, 9]);
    }

    #[tokio::test(start_paused = true)]
    async fn an_abandoned_request_does_not_cancel_shared_lookups() {
        fn slow(host: String, port: u16) -> Found {
            Box::pin(async move {
                sleep(Duration::from_secs(3)).await;
                scripted(host, port).await
            })
        }
        says("slow", &[1]);
        let endpoints = of(&["slow"], slow);
        for _ in 0..2 {
            assert!(timeout(Duration::from_secs(1), endpoints.choice(Instant::now())).await.is_err());
        }
        let begun = Instant::now();
        assert_eq!(known(&endpoints).await, [1]);
        assert_eq!(begun.elapsed(), Duration::from_secs(1), "the first one's question");
    }

    #[tokio::test(start_paused = true)]
    async fn an_endpoint_stays_the_same_while_its_address_does() {
        says("stays", &[1]);
        let endpoints = of(&["stays"], scripted);
        let first = endpoints.choice(Instant::now()).await.unwrap().next(1, Instant::now()).unwrap();
        says("stays", &[1, 2]);
        sleep(Duration::from_secs(5)).await;
        assert_eq!(known(&endpoints).await, [0; 0], "its one place is taken");
        sleep(Duration::from_millis(1)).await;
        let mut choice = endpoints.choice(Instant::now()).await.unwrap();
        let second = choice.next(1, Instant::now()).unwrap();
        assert_eq!(second.0.address.ip(), IpAddr::from([127, 0, 0, 2]), "the other one has its request");
        assert!(choice.next(1, Instant::now()).is_none());
        drop(first);
        let again = endpoints.choice(Instant::now()).await.unwrap().next(1, Instant::now()).unwrap();
        assert_eq!(again.0.address.ip(), IpAddr::from([127, 0, 0, 1]));
    }

    #[tokio::test(start_paused = true)]
    async fn the_less_busy_of_two_endpoints_is_chosen() {
        let endpoints = of(&["127.0.0.1", "127.0.0.2"], scripted);
        let next = async || endpoints.choice(Instant::now()).await.unwrap().next(99, Instant::now()).unwrap();
        let busy = next().await;
        for _ in 0..20 {
            assert_ne!(next().await.0.address, busy.0.address);
        }
        let failing = next().await;
        for _ in 0..5 {
            failing.0.blame(Instant::now());
        }
        let address = failing.0.address;
        drop(failing);
        for _ in 0..20 {
            assert_ne!(next().await.0.address, address);
        }
        sleep(BLAMED_FOR).await;
        for _ in 0..20 {
            assert_eq!(next().await.0.address, address, "its failures are forgotten, the other is busy");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_unreachable_endpoint_is_retried_in_the_background() {
        let endpoints = of(&["127.0.0.1", "127.0.0.2"], scripted);
        let choice = async || endpoints.choice(Instant::now()).await.unwrap();
        let mut first = choice().await;
        let turn = first.next(9, Instant::now()).unwrap();
        first.failed(&turn, "refused");
        let (out, mut span) = (turn.0.clone(), OUT.0);
        for _ in 0..20 {
            let mut later = choice().await;
            assert_ne!(later.next(9, Instant::now()).unwrap().0.address, out.address);
            assert_eq!(later.next(9, Instant::now()).unwrap().0.address, out.address, "the last resort");
            assert_eq!(later.trials(Instant::now()).count(), 0);
        }
        for expected in [2, 4, 8, 16, 30, 30] {
            sleep(span - Duration::from_millis(1)).await;
            assert_eq!(choice().await.trials(Instant::now()).count(), 0, "{span:?}");
            sleep(Duration::from_millis(1)).await;
            assert_eq!(choice().await.trials(Instant::now()).count(), 1, "{span:?}");
            assert_eq!(choice().await.trials(Instant::now()).count(), 0, "one trial at a time");
            assert!(out.is_out());
            out.failed(Instant::now(), "refused");
            span = Duration::from_secs(expected);
        }
        sleep(span).await;
        assert_eq!(choice().await.trials(Instant::now()).count(), 1);
        sleep(OUT.1).await;
        assert_eq!(choice().await.trials(Instant::now()).count(), 1, "the one before ended without a word");
        out.connected();
        assert!(!out.is_out() && lock(&out.out).is_none());
        // Alone it is never out.
        let endpoints = of(&["127.0.0.1"], scripted);
        let mut alone = endpoints.choice(Instant::now()).await.unwrap();
        let turn = alone.next(9, Instant::now()).unwrap();
        alone.failed(&turn, "refused");
        assert!(!turn.0.is_out());
    }
}
