//! Credentials read again while the process runs: on SIGHUP, and when one of their files was changed.
//!
//! Neighbours: `run` starts it, `config::credentials` reads, the gateway takes what was read, whole. Files that are wrong, empty or gone
//! change nothing but a log line and a counter: whoever could ask can still ask, and nobody else can. It must not read any
//! other file again.

use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::Signal;

use crate::config::Errors;
use crate::config::credentials::CredentialsFile;
use crate::gateway::Gateway;
use crate::gateway::credentials::Credentials;
use crate::ports::Ports;

/// Between two looks at the files.
const EVERY: Duration = Duration::from_secs(2);

/// Goes on for as long as it is polled.
pub(super) async fn watch<P: Ports>(gateway: Arc<Gateway<P>>, mut file: CredentialsFile, mut hangup: Signal) {
    loop {
        let asked = tokio::select! {
            biased;
            got = hangup.recv() => got.is_some(),
            () = tokio::time::sleep(EVERY) => false,
        };
        let look = move || {
            let read = (asked || file.has_changed()).then(|| file.read_again());
            (file, read)
        };
        let Ok((looked_at, read)) = tokio::task::spawn_blocking(look).await else {
            tracing::error!("credentials are not watched any more: restart to have them read again");
            return;
        };
        file = looked_at;
        if let Some(read) = read {
            take(&gateway, read);
        }
    }
}

fn take<P: Ports>(gateway: &Gateway<P>, read: Result<Credentials, Errors>) {
    match read {
        Ok(credentials) => {
            tracing::info!("credentials read again");
            gateway.reload_credentials(Some(credentials));
        }
        Err(Errors(problems)) => {
            for problem in &problems {
                tracing::error!(%problem, "credentials not read again; the old ones stay");
            }
            gateway.reload_credentials(None);
        }
    }
}
