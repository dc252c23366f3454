//! Three stores that follow one another: random histories of them, and the promises of [`Replica`]
//! while a first copy runs. The drill `histories` records them from three real stores.
//! Every link is cut, except while a history waits for one region's commits to arrive at another,
//! so that lines are equal in every run. The recorded line says what a reply should have been.

use super::authority::view_with;
use super::bench::*;
use super::history::{Draw, described, said, standing_on};

pub const REGIONS: usize = 3;
pub const HISTORIES: u64 = 8;
/// Number of keys of one history: few, so that regions meet.
const KEYS: u64 = 3;
const STEPS: u32 = 60;

/// Three stores that follow one another, and the environment of their histories. Regions are
/// numbers below [`REGIONS`]. An error in words ends the history.
pub trait ReplicationBench: Sync {
    type Store: KeyStore + Replica + Authority;

    fn store(&self, region: usize) -> &Self::Store;

    fn origin(&self, region: usize) -> Origin;

    /// Cuts the way on which commits of `from` come to `to`. Commits on it do not arrive, and are
    /// sent again once it is mended.
    fn cut(&self, from: usize, to: usize) -> impl Future<Output = Result<(), String>> + Send;

    fn mend(&self, from: usize, to: usize) -> impl Future<Output = Result<(), String>> + Send;

    /// Returns once the store of `to` shows this heartbeat of `from`, or a later one.
    fn shows(&self, to: usize, from: usize, beat: u64) -> impl Future<Output = Result<(), String>> + Send;

    /// Ends a store's server without warning, and starts it again: same data, a new boot.
    fn crash(&self, region: usize) -> impl Future<Output = Result<(), String>> + Send;

    /// Keeps commits of `from` from being applied at `to`, as a large transaction would.
    fn stall(&self, from: usize, to: usize) -> impl Future<Output = Result<(), String>> + Send;

    /// Returns once all commits of `from` were sent to `to`, applied or not.
    fn sent(&self, from: usize, to: usize) -> impl Future<Output = Result<(), String>> + Send;

    fn flow(&self, from: usize, to: usize) -> impl Future<Output = Result<(), String>> + Send;

    /// Removes the slot of `to` at `from`, with all WAL that it kept.
    fn lose_slot(&self, from: usize, to: usize) -> impl Future<Output = Result<(), String>> + Send;

    /// Lets `to` follow `from` anew, as `onceway store reseed` does, until everything is copied.
    fn reseed(&self, from: usize, to: usize) -> impl Future<Output = Result<(), String>> + Send;

    /// Begins the same, also while a copy runs. Heartbeats of `from` come, and the copy of its
    /// records does not end before [`ReplicationBench::copied`].
    fn begin_reseed(&self, from: usize, to: usize) -> impl Future<Output = Result<(), String>> + Send;

    /// Lets that copy end. Returns once everything has been copied.
    fn copied(&self, from: usize, to: usize) -> impl Future<Output = Result<(), String>> + Send;

    /// Makes a claim that is executed and whose reply is lost. Returns what the caller hears.
    fn claim_unheard(
        &self,
        region: usize,
        ask: &ClaimAsk,
    ) -> impl Future<Output = Result<Result<ClaimReply, StoreError>, String>> + Send;
}

struct History<'a, B> {
    bench: &'a B,
    draw: Draw,
    keys: Vec<KeyId>,
    /// By region and key: the attempt that was won there last.
    won: Vec<Vec<Option<Attempt>>>,
    nonce: u128,
}

/// All recorded histories as one text, for both sides. `say` gets the name of each. Errors are of
/// the bench or one of its stores, in words.
pub async fn all(bench: &impl ReplicationBench, say: &(dyn Fn(&str) + Sync)) -> Result<String, String> {
    for (from, to) in links() {
        bench.cut(from, to).await?;
    }
    let mut text = String::new();
    for seed in 0..HISTORIES {
        say(&format!("history {} of {HISTORIES}", seed + 1));
        text.push_str(&format!("history {seed}\n"));
        let mut history = History::new(bench, seed);
        for step in 0..STEPS {
            let line = history.step().await.map_err(|why| format!("history {seed}, step {step}: {why}"))?;
            text.push_str(&format!("{step:>2} {line}\n"));
        }
        text.push_str(&history.end().await.map_err(|why| format!("history {seed}, its end: {why}"))?);
    }
    Ok(text)
}

/// The store that writes, and the one that copies, in [`copying`].
const FROM: usize = 0;
const TO: usize = 1;
const LOOKS: u32 = 10_000;
/// The keys of [`copying`], which are no history's.
const COPIED: u64 = u32::MAX as u64;

/// The promises of [`Replica`] while the first copy of a peer's records runs: its heartbeats come
/// already, and are not whole (docs/protocol.md#rule-29). For stores that have just begun to follow
/// one another. The error names in words the clause that broke.
pub async fn copying(bench: &impl ReplicationBench) -> Result<(), String> {
    let (mut stores, [before, missed, late]) = (History::new(bench, COPIED), [0, 1, 2]);
    stores.opened(TO).await?;
    stores.settles(FROM, before).await?;
    let whole = stores.beats(FROM).await?;
    let seen = stores.stands(whole).await?;
    holds(seen.whole, "a heartbeat that came in its turn is whole")?;
    holds(stores.has(before).await?, "its rows are here")?;

    bench.lose_slot(FROM, TO).await?;
    stores.settles(FROM, missed).await?;
    bench.begin_reseed(FROM, TO).await?;
    let kept = stores.imported().await?;
    holds(kept == whole, &format!("what was whole counts as imported up to {whole}, not {kept}"))?;
    holds(stores.has(before).await?, "what was here stays readable")?;
    stores.settles(FROM, late).await?;
    let ahead = stores.beats(FROM).await?;
    let seen = stores.stands(ahead).await?;
    let ended = stores.has(missed).await? || stores.has(late).await?;
    holds(!ended, "bench: the copy ended by itself")?;
    holds(!seen.whole, "a heartbeat whose rows are still copied is not whole")?;

    // A copy that is made anew before it was whole no longer counts.
    bench.lose_slot(FROM, TO).await?;
    bench.begin_reseed(FROM, TO).await?;
    let kept = stores.imported().await?;
    holds(kept == whole, &format!("a copy that was never whole counts for nothing, not up to {kept}"))?;
    let ahead = stores.beats(FROM).await?;
    holds(!stores.stands(ahead).await?.whole, "the copy made anew is not whole either")?;

    bench.copied(FROM, TO).await?;
    for _ in 0..LOOKS {
        // The order matters: a heartbeat that is whole at the first look has its rows at the
        // second.
        if stores.stands(ahead).await?.whole {
            let all = stores.has(missed).await? && stores.has(late).await?;
            return holds(all, "a whole heartbeat has its rows");
        }
    }
    Err("copying: a copy that ended was never whole".to_owned())
}

fn holds(holds: bool, clause: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(format!("copying: {clause}")) }
}

fn links() -> impl Iterator<Item = (usize, usize)> {
    (0..REGIONS).flat_map(|from| (0..REGIONS).filter(move |to| *to != from).map(move |to| (from, to)))
}

fn words(error: StoreError) -> String {
    error.to_string()
}

impl<'a, B: ReplicationBench> History<'a, B> {
    fn new(bench: &'a B, seed: u64) -> Self {
        let tenant = Tenant::parse("replication").expect("bench: this is a tenant");
        let key = |number| {
            let key = Key::parse(&format!("history-{seed}-{number}")).expect("bench: this is a key");
            KeyId::new(tenant.clone(), key)
        };
        let won = vec![vec![None; KEYS as usize]; REGIONS];
        Self {
            bench,
            draw: Draw(seed),
            keys: (0..KEYS).map(key).collect(),
            won,
            nonce: u128::from(seed) << 32,
        }
    }

    fn region(&mut self) -> usize {
        self.draw.below(REGIONS as u64) as usize
    }

    async fn step(&mut self) -> Result<String, String> {
        let (kind, region, key) = (self.draw.below(60), self.region(), self.draw.below(KEYS) as usize);
        let to = (region + 1 + self.draw.below(REGIONS as u64 - 1) as usize) % REGIONS;
        match kind {
            0..3 => self.claims(region, key, false).await,
            3..14 => self.claims(region, key, true).await,
            14..18 => self.claims_unheard(region, key).await,
            18..27 => self.ends(region, key).await,
            27..29 => {
                self.crash(region).await?;
                Ok(format!("{} crashes; {}", name(region), self.everything(region).await?))
            }
            29..32 => self.adopts(region, key).await,
            32..36 => Ok(format!("{} has {}", name(region), self.everything(region).await?)),
            36..41 => self.is_held_up(region, to).await,
            41..44 => self.loses_its_slot(region, to, key).await,
            _ => {
                // Now and then one of the two crashes while commits are on their way.
                let crashes = [None, None, None, Some(region), Some(to)][self.draw.below(5) as usize];
                self.arrives(region, to, crashes).await
            }
        }
    }

    async fn end(&mut self) -> Result<String, String> {
        for (from, to) in links() {
            self.arrives(from, to, None).await?;
        }
        let mut text = String::new();
        for region in 0..REGIONS {
            text.push_str(&format!("in the end {} has {}\n", name(region), self.everything(region).await?));
        }
        Ok(text)
    }

    async fn ask(&mut self, region: usize, key: usize, over: bool) -> Result<ClaimAsk, String> {
        let store = self.bench.store(region);
        self.nonce += 1;
        let mut ask = asked(&self.keys[key], self.nonce, self.opened(region).await?.version);
        if over {
            let rows = store.look_up(std::slice::from_ref(&ask.id)).await.map_err(words)?;
            ask.basis = standing_on(&rows.concat(), &self.bench.origin(region));
        }
        Ok(ask)
    }

    async fn claim(&mut self, region: usize, key: usize, ask: &ClaimAsk) -> Result<String, String> {
        let reply = self.bench.store(region).claim(ask).await.map_err(words)?;
        let (won, story) = said(ask, reply, |rows| self.shown(rows));
        if won.is_some() {
            self.won[region][key] = won;
        }
        Ok(story)
    }

    async fn claims(&mut self, region: usize, key: usize, over: bool) -> Result<String, String> {
        let ask = self.ask(region, key, over).await?;
        let reply = self.claim(region, key, &ask).await?;
        let what = if over { "over what it sees" } else { "as absent" };
        Ok(format!("{} claims key {key} {what}: {reply}", name(region)))
    }

    /// A ghost commit: the reply of the claim is lost. The claim is made again, now and then after
    /// an event that could hide the first one.
    async fn claims_unheard(&mut self, region: usize, key: usize) -> Result<String, String> {
        let ask = self.ask(region, key, true).await?;
        let heard = match self.bench.claim_unheard(region, &ask).await? {
            Err(StoreError::Unknown(_)) => "nobody knows",
            Err(StoreError::Definite(_)) => "not sent",
            Ok(_) => "heard",
        };
        let between = match self.draw.below(3) {
            0 => String::new(),
            1 => {
                self.crash(region).await?;
                ", it crashes".to_owned()
            }
            _ => format!(", it {}", self.moves_its_gate(region).await?),
        };
        let again = self.claim(region, key, &ask).await?;
        Ok(format!(
            "{} claims key {key} over what it sees: {heard}{between}; the same again: {again}",
            name(region)
        ))
    }

    async fn ends(&mut self, region: usize, key: usize) -> Result<String, String> {
        let how = self.draw.below(3);
        let Some(attempt) = &self.won[region][key] else {
            return Ok(format!("{} has won no key {key}", name(region)));
        };
        let store = self.bench.store(region);
        let (what, written) = match how {
            0 => ("settles", store.settle(attempt, &answer()).await),
            1 => ("releases", store.release(attempt).await),
            _ => ("doubts", store.doubt(attempt, None).await),
        };
        let written = written.map_err(words)?;
        Ok(format!("{} {what} key {key} {}: {written:?}", name(region), attempt.token))
    }

    async fn adopts(&mut self, region: usize, key: usize) -> Result<String, String> {
        let ask = self.ask(region, key, true).await?;
        let moved = self.moves_its_gate(region).await?;
        let reply = self.claim(region, key, &ask).await?;
        Ok(format!("{} {moved}; it claims key {key} under the gate before: {reply}", name(region)))
    }

    async fn moves_its_gate(&self, region: usize) -> Result<String, String> {
        let gate = self.opened(region).await?;
        let mut origins: Vec<Origin> = (0..REGIONS).map(|number| self.bench.origin(number)).collect();
        origins.rotate_left(region);
        let epoch = gate.epoch + 1;
        let state = GateState::founded(view_with(&origins, self.keys[0].tenant().clone(), epoch));
        let written = self.bench.store(region).set_gate(gate.version, &state).await.map_err(words)?;
        Ok(format!("adopts epoch {epoch}: {written:?}"))
    }

    /// Lets all commits of `from` arrive at `to`. Returns the content of `to` then.
    async fn arrives(&mut self, from: usize, to: usize, crashes: Option<usize>) -> Result<String, String> {
        let bench = self.bench;
        bench.mend(from, to).await?;
        if let Some(region) = crashes {
            self.crash(region).await?;
        }
        bench.shows(to, from, self.beats(from).await?).await?;
        bench.cut(from, to).await?;
        let crashed = crashes.map(|region| format!(", {} crashes", name(region))).unwrap_or_default();
        Ok(format!("{} to {}{crashed}; {}", name(from), name(to), self.everything(to).await?))
    }

    /// Lets them arrive behind something large at `to`. Returns the content of `to` while all of it
    /// was sent, and once it was applied.
    async fn is_held_up(&mut self, from: usize, to: usize) -> Result<String, String> {
        let bench = self.bench;
        bench.stall(from, to).await?;
        bench.mend(from, to).await?;
        let beat = self.beats(from).await?;
        bench.sent(from, to).await?;
        let meanwhile = self.everything(to).await?;
        bench.flow(from, to).await?;
        bench.shows(to, from, beat).await?;
        bench.cut(from, to).await?;
        let then = self.everything(to).await?;
        Ok(format!("{} to {}, held up: {meanwhile}; at last: {then}", name(from), name(to)))
    }

    /// Loses the slot of `to` at `from`, with all that had not arrived, and lets `to` follow anew.
    /// Returns the content of `to` after each. It does not wait to see that nothing comes without a
    /// slot: on three real stores no line would show how long is enough.
    async fn loses_its_slot(&mut self, from: usize, to: usize, key: usize) -> Result<String, String> {
        let bench = self.bench;
        let missed = self.claims(from, key, true).await?;
        bench.lose_slot(from, to).await?;
        let missed = format!("{missed}; {}", self.claims(from, key, true).await?);
        bench.mend(from, to).await?;
        let beat = self.beats(from).await?;
        let without = self.everything(to).await?;
        bench.reseed(from, to).await?;
        bench.shows(to, from, beat).await?;
        bench.cut(from, to).await?;
        let then = self.everything(to).await?;
        Ok(format!("{missed}; {} loses its slot there: {without}; it follows anew: {then}", name(to)))
    }

    /// Crashes a store after a heartbeat of its own. A store may lose applied rows of another by a
    /// crash, and get them again, if nothing of its own was committed since. (A subscription
    /// commits without waiting for the disk.) How much it loses is chance, hence the heartbeat.
    async fn crash(&self, region: usize) -> Result<(), String> {
        self.beats(region).await?;
        self.bench.crash(region).await?;
        self.opened(region).await.map(drop)
    }

    async fn beats(&self, region: usize) -> Result<u64, String> {
        self.opened(region).await?;
        let beat = self.bench.store(region).beat(None).await.map_err(words)?;
        Ok(beat.ok_or("an open gate lets no heartbeat be written")?.seq)
    }

    async fn opened(&self, region: usize) -> Result<Gate, String> {
        let store = self.bench.store(region);
        let gate = store.gate().await.map_err(words)?;
        if gate.is_open() {
            return Ok(gate);
        }
        match store.approve(gate.version, &gate.running).await.map_err(words)? {
            Written::Done => store.gate().await.map_err(words),
            other => Err(format!("the running boot could not be approved: {other:?}")),
        }
    }

    async fn settles(&mut self, region: usize, key: usize) -> Result<(), String> {
        self.claims(region, key, false).await?;
        let attempt = self.won[region][key].as_ref().ok_or("bench: a new key was not won")?;
        match self.bench.store(region).settle(attempt, &answer()).await.map_err(words)? {
            Written::Done => Ok(()),
            Written::Lost | Written::GateMoved => Err("bench: an own claim was not settled".to_owned()),
        }
    }

    /// The writer's heartbeat as the copying store shows it, once this one has arrived.
    async fn stands(&self, beat: u64) -> Result<Heartbeat, String> {
        self.bench.shows(TO, FROM, beat).await?;
        let all = self.bench.store(TO).heartbeats().await.map_err(words)?;
        let one = all.into_iter().find(|one| one.origin == self.bench.origin(FROM));
        one.ok_or_else(|| "copying: a heartbeat that came is gone".to_owned())
    }

    async fn has(&self, key: usize) -> Result<bool, String> {
        let rows = self.bench.store(TO).look_up(&self.keys[key..=key]).await.map_err(words)?;
        Ok(rows.concat().iter().any(|row| matches!(row.state, State::Settled { .. })))
    }

    /// The heartbeat up to which the writer's rows count as imported at the copying store.
    async fn imported(&self) -> Result<u64, String> {
        let all = self.bench.store(TO).recall().await.map_err(words)?;
        Ok(all.iter().find(|one| one.origin == self.bench.origin(FROM)).map_or(0, |one| one.imported))
    }

    /// All rows of the history's keys in a region, and the applied heartbeats with their epochs.
    async fn everything(&self, region: usize) -> Result<String, String> {
        let store = self.bench.store(region);
        let found = store.look_up(&self.keys).await.map_err(words)?;
        let keys = found.iter().enumerate().map(|(key, rows)| format!("key {key} {}", self.shown(rows)));
        let heard = store.heartbeats().await.map_err(words)?;
        let mut heard: Vec<_> =
            heard.iter().map(|beat| (self.number(&beat.origin), beat.seq, beat.epoch)).collect();
        heard.sort_unstable();
        let heard: Vec<_> =
            heard.iter().map(|(region, seq, epoch)| format!("{region}:{seq}@{epoch}")).collect();
        Ok(format!("{}; heartbeats {}", keys.collect::<Vec<_>>().join("; "), heard.join(" ")))
    }

    fn shown(&self, rows: &[Row]) -> String {
        let mut all: Vec<_> =
            rows.iter().map(|row| format!("{} {}", self.number(&row.origin), described(row))).collect();
        all.sort_unstable();
        if all.is_empty() { "nothing".to_owned() } else { all.join(", ") }
    }

    fn number(&self, origin: &Origin) -> &'static str {
        (0..REGIONS).find(|region| self.bench.origin(*region) == *origin).map_or("?", name)
    }
}

fn name(region: usize) -> &'static str {
    ["a", "b", "c"].get(region).copied().unwrap_or("?")
}
