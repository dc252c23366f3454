//! Causes by a witness: one that no view names answers and has no vote.
//!
//! It runs beside the regions, whose ring does not name it. It must not become a voter of the
//! fleet.

use crate::alerts::machines::{DAY, certified};
use crate::alerts::stage::Stage;
use crate::support::*;
use onceway_lab::process::{Launch, Process};

const NAME: &str = "witness-1";

pub async fn has_no_vote(stage: &Stage) {
    let name = RegionName::parse(NAME).unwrap();
    certified(stage, &name, 30 * DAY);
    let dir = stage.fleet.dir().join(NAME);
    fs::create_dir(&dir).unwrap();
    let ring = fs::read_to_string(stage.fleet.dir().join("ring.toml")).unwrap();
    fs::write(dir.join("ring.toml"), format!("{ring}\n[[witness]]\nname = {NAME:?}\n")).unwrap();
    let certificates = stage.fleet.dir().join("certificates");
    let own = files_in(&certificates, &name);
    let base = ports::free_run(2).expect("two free ports");
    let admin = format!("127.0.0.1:{}", base + 1);
    let text = format!(
        "name = {NAME:?}\nring = \"ring.toml\"\nfile = \"witness.state\"\n[listen]\npeer = \"127.0.0.1:{base}\"\nadmin = {admin:?}\n\
         [peer]\ncertificate = {:?}\nkey = {:?}\nca = {:?}\n",
        own.certificate,
        own.key,
        certificates.join("ca.pem"),
    );
    fs::write(dir.join("witness.toml"), text).unwrap();
    let args = ["witness", "--config", "witness.toml"];
    let made = Command::new(program()).args(args).arg("--init").current_dir(&dir).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let witness = Process::spawn(&Launch {
        program: program(),
        args: args.map(Into::into).into(),
        env: Vec::new(),
        cwd: dir.clone(),
        log: dir.join("witness.log"),
        account: None,
    });
    let witness = witness.unwrap();
    stage.prometheus.look_at_witness(Some((NAME, &admin)));
    stage.fires("OncewayWitnessHasNoVote", &[("region", NAME), ("instance", &admin)]).await;
    stage.prometheus.look_at_witness(None);
    stage.quiet("OncewayWitnessHasNoVote", &[]).await;
    witness.kill().await.unwrap();
}
