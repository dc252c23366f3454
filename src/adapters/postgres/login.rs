//! The login of a running store, role and password, and its replacement by a new one.
//!
//! A new login is tried first, on a connection of its own: it must reach this region's gate and be
//! allowed to write. Then all connections are made with it. While it is refused, the old
//! connections stay in use. `connect` lets the old ones finish.

use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use deadpool_postgres::Pool;
use tokio::time::{sleep, timeout};
use tokio_postgres::Error;
use uuid::Uuid;

use super::address::Address;
use super::connect::{self, Connections};
use super::tls::Tls;
use super::{errors, rows};
use crate::adapters::system::lock;
use crate::ports::store::StoreError;
use crate::protocol::region::Origin;

/// Time between two tries of a login that is refused: the role may get its password after the file.
const AGAIN: Duration = Duration::from_secs(1);

/// The login that a store's connections are made with. Cheap to clone: all clones share it.
#[derive(Clone)]
pub struct Login(Arc<Shared>);

struct Shared {
    origin: Origin,
    tls: Option<Tls>,
    within: Duration,
    /// A read and a write that every gateway's role may do. Neither has an effect.
    tries: [String; 2],
    lanes: Vec<Lane>,
    state: Mutex<State>,
}

pub(super) struct Lane {
    pub(super) connections: Connections,
    pub(super) most: usize,
    /// True if its plans suit batches.
    pub(super) planned: bool,
}

struct State {
    /// Address of the connections that are made now.
    used: Address,
    /// Number of the newest wish. A login is tried for as long as no other is wanted.
    turn: u64,
}

pub(super) fn pool(
    address: &Address,
    tls: Option<Tls>,
    within: Duration,
    most: usize,
    planned: bool,
) -> Result<Pool, StoreError> {
    let tuned = connect::tuned(address, within.mul_f64(0.4));
    connect::pool(&if planned { connect::planned(&tuned) } else { tuned }, tls, most)
}

impl Login {
    pub(super) fn new(
        origin: Origin,
        used: Address,
        tls: Option<Tls>,
        within: Duration,
        tries: [String; 2],
        lanes: Vec<Lane>,
    ) -> Self {
        let state = Mutex::new(State { used, turn: 0 });
        Self(Arc::new(Shared { origin, tls, within, tries, lanes, state }))
    }

    /// The address with the login that is used now.
    pub fn address(&self) -> Address {
        lock(&self.0.state).used.clone()
    }

    /// Takes the role and the password of `address` over, in the background, once the store accepts
    /// them. An earlier wish that the store still refuses is given up. Must run in a runtime.
    pub fn renew(&self, address: Address) {
        let mut state = lock(&self.0.state);
        state.turn += 1;
        if address != state.used {
            tokio::spawn(take_over(Arc::downgrade(&self.0), address, state.turn));
        }
    }
}

/// Tries a login until it is taken over or another one is wanted. Ends when the store is dropped.
async fn take_over(shared: Weak<Shared>, address: Address, turn: u64) {
    let mut said = None;
    loop {
        let Some(shared) = shared.upgrade() else { return };
        if lock(&shared.state).turn != turn {
            return;
        }
        let Err(why) = shared.try_out(&address).await.and_then(|()| shared.replace(&address, turn)) else {
            return;
        };
        if said.as_ref() != Some(&why) {
            tracing::error!(
                why,
                at = address.place(),
                "the store refuses its new login, so its connections keep the old one: put the right one into the file, or into Postgres"
            );
            said = Some(why);
        }
        drop(shared);
        sleep(AGAIN).await;
    }
}

impl Shared {
    /// Checks that a login can do a gateway's work here. The error says what to do.
    async fn try_out(&self, address: &Address) -> Result<(), String> {
        let tuned = connect::tuned(address, self.within.mul_f64(0.4));
        let text = |error: Error| errors::describe(&error);
        let trial = async {
            let client = connect::single(&tuned).await.map_err(text)?;
            let found = client.query(&self.tries[0], &[]).await.map_err(text)?;
            let row = found.first().ok_or("the store has no gate: run `onceway store init`")?;
            let (of, own): (&str, _) = (rows::get(row, "origin")?, &self.origin);
            if of != own.to_string() {
                return Err(format!("the store belongs to {of}, not to {own}: check the address"));
            }
            let (tenant, key): (&str, &[u8]) = ("", &[]);
            // No tenant is empty: nothing is found.
            client
                .query(&self.tries[1], &[&tenant, &key, &0_i64, &0_i32, &Uuid::nil()])
                .await
                .map(drop)
                .map_err(text)
        };
        let late = |_| format!("no answer within {} ms", self.within.as_millis());
        timeout(self.within, trial).await.map_err(late)?
    }

    /// Makes all connections with this login from now on, unless another one is wanted by now.
    fn replace(&self, address: &Address, turn: u64) -> Result<(), String> {
        let make = |lane: &Lane| pool(address, self.tls.clone(), self.within, lane.most, lane.planned);
        let pools: Vec<Pool> =
            self.lanes.iter().map(make).collect::<Result<_, _>>().map_err(|error| error.to_string())?;
        let mut state = lock(&self.state);
        if state.turn == turn {
            self.lanes.iter().zip(pools).for_each(|(lane, pool)| lane.connections.replace(pool));
            state.used = address.clone();
            tracing::info!(at = address.place(), "the store's new login is in use");
        }
        Ok(())
    }
}
