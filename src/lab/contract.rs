//! The promises of each port in executable form: one function per clause; a breach panics. The same
//! suites run on the real side (Postgres, mutual TLS, HTTP) and on the simulated side. A suite
//! takes a *bench*: the port, and an environment that can restart the store, refuse a connection,
//! pass time.

pub mod audit;
pub mod authority;
pub mod bench;
pub mod clock;
pub mod escrow;
pub mod history;
pub mod imports;
pub mod peers;
pub mod replica;
pub mod replication;
pub mod store;
pub mod upstream;

use std::time::Duration;

use http::Response;
use onceway_ports::{Body, BodyError, Clock, body};

/// The time by which a real port may be late on a busy machine: not for waiting.
const SLACK: Duration = Duration::from_secs(5);

/// Runs all futures at the same time, on this task, and gives their results in order.
async fn together<F: Future>(mut futures: Vec<F>) -> Vec<F::Output> {
    let Some(last) = futures.pop() else { return Vec::new() };
    let (mut results, last) = tokio::join!(biased; Box::pin(together(futures)), last);
    results.push(last);
    results
}

/// The future's result, or a panic once it took `most` and the slack.
async fn bounded<C: Clock, F: Future>(clock: &C, most: Duration, what: &str, future: F) -> F::Output {
    tokio::select! {
        biased;
        value = future => value,
        () = clock.sleep_until(clock.now() + most + SLACK) => {
            panic!("{what}: nothing came within {most:?} and {SLACK:?}")
        }
    }
}

/// The call's result, after at least nine tenths of this time.
async fn is_waited_for<C: Clock, F: Future>(clock: &C, span: Duration, what: &str, call: F) -> F::Output {
    let begun = clock.now();
    let value = call.await;
    let took = clock.now().since(begun);
    assert!(took * 10 > span * 9, "{what} that takes {span:?} came after {took:?}");
    value
}

async fn read(response: Response<Body>) -> Vec<u8> {
    whole(response.into_body()).await.expect("the body broke off")
}

async fn whole(body: Body) -> Result<Vec<u8>, BodyError> {
    match body::collect(body, usize::MAX).await? {
        body::Collected::Whole(bytes) | body::Collected::Over(bytes, _) => Ok(bytes.to_vec()),
    }
}
