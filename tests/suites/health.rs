//! A sick upstream on real processes: its region drains itself, says why, and comes home when the
//! upstream is well.
//!
//! The simulation plays the rules (`takeover/healths.rs`). Here are the file's settings, the check
//! over HTTP, and the commands. It must not drain a region itself.

use std::fs;
use std::time::Duration;

use crate::support::{BODY, ask, deployment, key_at, post, run, series, status, until};
use onceway::fleet::deployment::Deployment;
use onceway::fleet::region::{Action, Part};
use serde_json::Value;

const HEALTH: &str = r#"
[upstream.health]
path = "/healthz"
every = "200ms"
within = "1s"
sick_after = "2400ms"
cool_down = "1s"
"#;

/// The standing of a region, as another region reports it.
async fn standing(deployment: &Deployment, by: usize, about: &str) -> Value {
    let status = status(&deployment.regions[by]).await;
    let regions = status["authority"]["regions"].as_array().cloned().unwrap_or_default();
    regions.into_iter().find(|region| region["name"] == about).unwrap_or_default()
}

#[test]
fn a_sick_upstream_drains_its_region_and_lets_it_come_home() {
    run(async {
        let deployment = deployment(Duration::from_millis(20)).await;
        for region in &deployment.regions {
            let file = deployment.dir().join(format!("{}.toml", region.name));
            fs::write(&file, fs::read_to_string(&file).unwrap() + HEALTH).unwrap();
            region.act(Action::Stop, Part::Gateway).await.unwrap();
            region.act(Action::Start, Part::Gateway).await.unwrap();
            region.serves().await.unwrap();
        }
        let name = deployment.regions[0].name.to_string();
        let sick_key = key_at(&deployment.regions[0], "sick").await;
        deployment.set_sick(0, true);
        until("the region to be out", async || standing(&deployment, 1, &name).await["standing"] == "sealed")
            .await;
        let told = standing(&deployment, 1, &name).await;
        assert_eq!(told["upstream_failing"], true, "{told}");
        let own = status(&deployment.regions[0]).await;
        assert_eq!(
            (&own["upstream"]["sick"], &own["upstream"]["keeps_out"]),
            (&true.into(), &true.into()),
            "{own}"
        );
        // Its clients still send to it: their keys run elsewhere.
        let post = || post(&deployment.regions[0].public(), "/v1/charges", &sick_key, BODY);
        until("the key to run elsewhere", async || ask(post()).await.status == 201).await;
        let answer = ask(post()).await;
        assert_eq!(answer.header("idempotent-replayed"), "true");
        assert_ne!(answer.header("onceway-region"), name);
        let told = deployment.regions[1].operate(&["region", "status", &name]).await.unwrap();
        let said = String::from_utf8_lossy(&told.stdout).into_owned();
        assert!(told.status.code() == Some(3) && said.contains("its upstream is sick"), "{said}");
        for name in ["onceway_upstream_sick", "onceway_drains_by_health_total"] {
            assert_eq!(series(&deployment.regions[0], name).await, Some(1.0), "{name}");
        }
        deployment.set_sick(0, false);
        until("the region to be home", async || {
            standing(&deployment, 1, &name).await["standing"] == "serving"
        })
        .await;
        deployment.shut_down().await.unwrap();
    });
}
