//! Batches: calls about keys that wait at the same time share one statement.
//!
//! A batch states positive facts only: won, found, done. A call about which it is silent makes its
//! own statement, where every rare case is handled. A lone call makes its own and waits for nobody:
//! it only lets those go first that are ready to run, so that calls that come together share a
//! statement. `batches` has the statements.

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::yield_now;
use tokio::time::Instant;
use tokio_postgres::Row;

use super::breaker::Guard;
use super::connect::Connections;
use super::errors;
use super::run::Failed;
use crate::adapters::system::lock;
use crate::ports::store::StoreError;
use crate::protocol::key::Tenant;

/// Statements of one kind under way at the same time, at most. The second begins beside a lone
/// call, once [`TIMES`] as many wait as the first has, or when the first is [`SLOW`]. A statement
/// costs as much as five of its keys, so one large batch after the other beats two small ones. The
/// second is for what one cannot carry.
pub(super) const AT_ONCE: usize = 2;
const TIMES: usize = 4;
/// Time after which nobody waits for the first statement any more: its connection may be stuck.
const SLOW: Duration = Duration::from_millis(50);
/// Calls in one batch, and their bytes, at most.
const MOST: usize = 128;
const MOST_BYTES: usize = 1 << 20;

/// A call that can share a statement.
pub(super) trait Member: Send + Sync + Sized + 'static {
    const WHAT: &'static str;
    /// The fact that a batch can state of it.
    type Fact: Send + 'static;

    /// The tenant whose turn it takes.
    fn tenant(&self) -> &Tenant;
    fn bytes(&self) -> usize;
    /// Sends the statement of a batch once, over these connections and within this time.
    fn send(
        batch: &[&Self],
        sql: &str,
        over: &Connections,
        within: Duration,
    ) -> impl Future<Output = Result<Vec<Row>, Failed>> + Send;
    /// The facts that the rows state of the members, in the members' order.
    fn facts(batch: &[&Self], rows: Vec<Row>) -> Result<Vec<Option<Self::Fact>>, StoreError>;
}

pub(super) enum Asked<M: Member> {
    /// A batch says so.
    Fact(M::Fact),
    /// Nothing was written for it: it makes its own statement.
    Silent,
    /// Nobody else waits: it makes its own statement, and holds the place meanwhile.
    Alone(Place<M>),
}

pub(super) struct Gather<M: Member> {
    connections: Connections,
    within: Duration,
    sql: String,
    guard: Arc<Guard>,
    queue: Mutex<Queue<M>>,
}

struct Waiting<M: Member> {
    member: M,
    since: Instant,
    reply: oneshot::Sender<Result<Option<M::Fact>, Failed>>,
}

/// Waiting calls by tenant. Tenants take turns, so one with many keys does not hold up the others.
struct Queue<M: Member> {
    turns: VecDeque<Tenant>,
    waiting: HashMap<Tenant, VecDeque<Waiting<M>>>,
    calls: usize,
    /// Statements under way, and one that gathers.
    busy: usize,
    /// Calls in the statements under way.
    sent: usize,
    began: Instant,
    /// True while the holder of a place lets others take part. Nobody else takes a place then.
    gathering: bool,
}

impl<M: Member> Default for Queue<M> {
    fn default() -> Self {
        Self {
            turns: VecDeque::new(),
            waiting: HashMap::new(),
            calls: 0,
            busy: 0,
            sent: 0,
            began: Instant::now(),
            gathering: false,
        }
    }
}

/// One of the [`AT_ONCE`] places. Whoever gives it up while others wait hands it to a batch.
pub(super) struct Place<M: Member> {
    gather: Arc<Gather<M>>,
    gathering: bool,
    sent: usize,
    /// True if it goes on for a place that was dropped, and has not run yet.
    inherited: bool,
}

impl<M: Member> Gather<M> {
    pub(super) fn new(
        connections: Connections,
        within: Duration,
        sql: String,
        guard: Arc<Guard>,
    ) -> Arc<Self> {
        Arc::new(Self { connections, within, sql, guard, queue: Mutex::default() })
    }

    /// Takes part in a batch, or may go alone. Sent within half of a call's time, or never.
    pub(super) async fn ask(
        self: &Arc<Self>,
        member: impl FnOnce() -> Result<M, StoreError> + Send,
    ) -> Result<Asked<M>, StoreError> {
        let pass = self.guard.breaker.pass(M::WHAT)?;
        let (reply, answer) = oneshot::channel();
        let join = || -> Result<(), StoreError> {
            let waiting = Waiting { member: member()?, since: Instant::now(), reply };
            lock(&self.queue).push(waiting);
            Ok(())
        };
        match self.place(1) {
            Some(mut place) => {
                yield_now().await;
                if place.gathered() == 0 {
                    place.sends(1);
                    return Ok(Asked::Alone(place));
                }
                join()?;
                tokio::spawn(work(place));
            }
            None => {
                join()?;
                // A place may have been given up since it was asked for.
                if let Some(place) = self.place(0) {
                    tokio::spawn(work(place));
                }
            }
        }
        let Ok(ended) = answer.await else {
            return Err(StoreError::Unknown(format!("{}: its batch came to no end", M::WHAT)));
        };
        self.guard.ended(pass, ended.as_ref().map_or_else(|failed| failed.answered, |_| true));
        Ok(ended?.map_or(Asked::Silent, Asked::Fact))
    }

    /// A free place, for which calls gather from now on. So many more calls would wait.
    fn place(self: &Arc<Self>, more: usize) -> Option<Place<M>> {
        let mut queue = lock(&self.queue);
        let many = MOST.min(TIMES * queue.sent);
        let may_begin =
            queue.busy == 0 || queue.sent <= 1 || queue.calls + more >= many || queue.began.elapsed() >= SLOW;
        let is_free = queue.busy < AT_ONCE && !queue.gathering && may_begin;
        queue.busy += usize::from(is_free);
        queue.gathering |= is_free;
        is_free.then(|| Place { gather: self.clone(), gathering: true, sent: 0, inherited: false })
    }

    /// The next batch, without those whose callers went away or waited too long.
    fn next(&self) -> Vec<Waiting<M>> {
        let batch = lock(&self.queue).take();
        let half = self.within / 2;
        let in_time = |waiting: Waiting<M>| {
            if waiting.since.elapsed() <= half {
                return Some(waiting);
            }
            let error = errors::not_sent(M::WHAT, "it waited too long for its turn");
            drop(waiting.reply.send(Err(Failed { error, answered: false })));
            None
        };
        batch.into_iter().filter(|waiting| !waiting.reply.is_closed()).filter_map(in_time).collect()
    }

    async fn send(&self, batch: Vec<Waiting<M>>) {
        let members: Vec<&M> = batch.iter().map(|waiting| &waiting.member).collect();
        let waited = batch.iter().map(|waiting| waiting.since.elapsed()).max().unwrap_or_default();
        let sent = M::send(&members, &self.sql, &self.connections, self.within.saturating_sub(waited)).await;
        let facts =
            sent.and_then(|rows| M::facts(&members, rows).map_err(|error| Failed { error, answered: true }));
        let results: Vec<Result<Option<M::Fact>, Failed>> = match facts {
            Ok(facts) => facts.into_iter().map(Ok).collect(),
            // The server answered that nothing was written: that may be due to one of them.
            Err(Failed { error: StoreError::Definite(_), answered: true }) => {
                batch.iter().map(|_| Ok(None)).collect()
            }
            Err(Failed { error, answered }) => {
                batch.iter().map(|_| Err(Failed { error: error.clone(), answered })).collect()
            }
        };
        for (waiting, result) in batch.into_iter().zip(results) {
            drop(waiting.reply.send(result));
        }
    }
}

async fn work<M: Member>(mut place: Place<M>) {
    place.inherited = false;
    while place.gathered() > 0 {
        let batch = place.gather.next();
        if !batch.is_empty() {
            let sent = batch.len();
            place.sends(sent);
            place.gather.send(batch).await;
            // Calls that are ready by now take part in the next, unless as many wait already.
            if place.gathered() < sent {
                yield_now().await;
            }
        }
    }
}

impl<M: Member> Place<M> {
    /// Ends the gathering, and returns the number of calls that wait.
    fn gathered(&mut self) -> usize {
        let mut queue = lock(&self.gather.queue);
        queue.gathering &= !std::mem::take(&mut self.gathering);
        queue.calls
    }

    fn sends(&mut self, calls: usize) {
        let before = std::mem::replace(&mut self.sent, calls);
        let mut queue = lock(&self.gather.queue);
        queue.sent = queue.sent + calls - before;
        queue.began = Instant::now();
    }
}

impl<M: Member> Queue<M> {
    fn push(&mut self, waiting: Waiting<M>) {
        self.calls += 1;
        let tenant = waiting.member.tenant();
        match self.waiting.get_mut(tenant) {
            Some(others) => others.push_back(waiting),
            None => {
                self.turns.push_back(tenant.clone());
                self.waiting.insert(tenant.clone(), VecDeque::from([waiting]));
            }
        }
    }

    fn take(&mut self) -> Vec<Waiting<M>> {
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while batch.len() < MOST
            && bytes < MOST_BYTES
            && let Some(tenant) = self.turns.pop_front()
        {
            let Some(of_tenant) = self.waiting.get_mut(&tenant) else { continue };
            let Some(waiting) = of_tenant.pop_front() else { continue };
            self.calls -= 1;
            bytes += waiting.member.bytes();
            batch.push(waiting);
            if of_tenant.is_empty() {
                self.waiting.remove(&tenant);
            } else {
                self.turns.push_back(tenant);
            }
        }
        batch
    }
}

impl<M: Member> Drop for Place<M> {
    fn drop(&mut self) {
        // One look at the queue: a call that comes after it finds the place free.
        let mut queue = lock(&self.gather.queue);
        queue.gathering &= !self.gathering;
        queue.sent -= self.sent;
        let ends = queue.calls == 0 || self.inherited;
        let Some(runtime) = (!ends).then(Handle::try_current).and_then(Result::ok) else {
            queue.busy -= 1;
            return;
        };
        // Not under the lock: a runtime at its end drops at once what is spawned.
        drop(queue);
        let gather = self.gather.clone();
        drop(runtime.spawn(work(Place { gather, gathering: false, sent: 0, inherited: true })));
    }
}

#[cfg(test)]
mod tests {
    use deadpool_postgres::{Manager, Pool};
    use tokio_postgres::NoTls;

    use super::*;
    use crate::adapters::postgres::breaker::Probe;
    use crate::adapters::postgres::errors::Effect;

    struct Call(Tenant);

    fn call() -> Call {
        Call(Tenant::parse("one").unwrap())
    }

    fn waiting(member: Call) -> Waiting<Call> {
        Waiting { member, since: Instant::now(), reply: oneshot::channel().0 }
    }

    /// Over connections that are never made.
    fn gather() -> Arc<Gather<Call>> {
        let manager = Manager::new(tokio_postgres::Config::new(), NoTls);
        let connections = Connections::from(Pool::builder(manager).build().unwrap());
        let (within, effect, sql) = (Duration::from_secs(1), Effect::Writes, String::new());
        let probe = Probe { connections: connections.clone(), within, effect, sql: sql.clone() };
        Gather::new(connections, within, sql, Guard::new("writes", probe))
    }

    impl Member for Call {
        const WHAT: &'static str = "a call";
        type Fact = ();

        fn tenant(&self) -> &Tenant {
            &self.0
        }

        fn bytes(&self) -> usize {
            MOST_BYTES / 4
        }

        async fn send(_: &[&Self], _: &str, _: &Connections, _: Duration) -> Result<Vec<Row>, Failed> {
            Ok(Vec::new())
        }

        fn facts(batch: &[&Self], _: Vec<Row>) -> Result<Vec<Option<()>>, StoreError> {
            Ok(batch.iter().map(|_| None).collect())
        }
    }

    #[tokio::test]
    async fn simultaneous_calls_share_one_statement() {
        let gather = gather();
        let ask = || gather.ask(|| Ok(call()));
        let Ok(Asked::Alone(first)) = ask().await else { panic!("nobody else was there") };
        let Ok(Asked::Alone(second)) = ask().await else { panic!("nobody waited beside the first") };
        drop((first, second));
        let (one, two, three) = tokio::join!(ask(), ask(), ask());
        for asked in [one, two, three] {
            assert!(matches!(asked, Ok(Asked::Silent)), "a batch says nothing here");
        }
    }

    /// It drops a place while a call waits, and then at once what goes on for it.
    #[test]
    fn the_end_of_a_runtime_ends_a_busy_place() {
        let (over, ended) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let gather = gather();
            lock(&gather.queue).push(waiting(call()));
            let place = gather.place(0).unwrap();
            runtime.spawn(async move {
                let _place = place;
                std::future::pending::<()>().await
            });
            runtime.block_on(yield_now());
            drop(runtime);
            over.send(lock(&gather.queue).busy).unwrap();
        });
        assert_eq!(ended.recv_timeout(Duration::from_secs(10)), Ok(0));
    }

    #[test]
    fn a_long_queue_begins_a_second_statement() {
        let gather = gather();
        let waits = || lock(&gather.queue).push(waiting(call()));
        let mut first = gather.place(1).unwrap();
        assert!(gather.place(1).is_none(), "calls gather");
        first.gathered();
        first.sends(2);
        (0..7).for_each(|_| waits());
        assert!(gather.place(0).is_none());
        waits();
        let mut second = gather.place(0).unwrap();
        second.gathered();
        second.sends(gather.next().len());
        waits();
        assert!(gather.place(9).is_none(), "both places are taken");
        drop((first, second));
        assert!(gather.place(0).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_second_statement_begins_beside_one_that_is_slow() {
        let gather = gather();
        let mut first = gather.place(1).unwrap();
        first.gathered();
        first.sends(100);
        tokio::time::advance(SLOW - Duration::from_millis(1)).await;
        assert!(gather.place(1).is_none());
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(gather.place(1).is_some());
    }

    #[test]
    fn tenants_take_turns_and_a_batch_has_a_bound() {
        let mut queue = Queue::default();
        for tenant in ["many", "many", "many", "many", "one", "two", "two"] {
            queue.push(waiting(Call(Tenant::parse(tenant).unwrap())));
        }
        let mut batch =
            || -> Vec<String> { queue.take().iter().map(|waiting| waiting.member.0.to_string()).collect() };
        assert_eq!(batch(), ["many", "one", "two", "many"]);
        assert_eq!(batch(), ["two", "many", "many"]);
        assert!(batch().is_empty() && queue.turns.is_empty() && queue.waiting.is_empty());
        assert_eq!(queue.calls, 0);
    }
}
